//! Each invariant reports the violation that is planted for it. A schema constraint that would
//! reject the violation is dropped first: the audit does not rely on it.

mod plants;

use std::collections::BTreeSet;
use std::time::Duration;

use mainspring_shared::id::{BootId, SessionKey, TimerId};
use mainspring_shared::invariants::{INVARIANTS, READABLE, piecewise};
use mainspring_shared::message::{ContentPart, Role};
use mainspring_shared::store::{
    AfterSend, AuditKind, AuditOptions, CallBegin, Inspect as _, NewTimer, audit_in_pieces,
};
use mainspring_shared::time::Span;
use mainspring_shared::timer::{CatchUp, First, Schedule, TimerRule, TimerTarget};
use mainspring_shared::tool::CallResult;
use sqlx::{AssertSqlSafe, Executor};

use self::plants::{FREE_HOT, PLANTED, PLANTED_TOO};
use crate::postgres::tools::{answered, asking};
use crate::postgres::world::{World, answer, in_second_round, says, to, with_world};

/// A sound history: one session with a finished send that called a tool, a running send and one
/// queued behind it, and an idle session.
async fn history(world: &World) {
    let worker = world.boot(0).await;
    let key = world.session().await;
    world.session().await;
    let ticking = world.session().await;
    tick(world, ticking).await;
    for _ in 0..3 {
        world.send(1, to(key)).await;
    }
    let claimed = world.claim(2, worker, key).await;
    let mut round = asking(&claimed, [CallBegin::Settled(CallResult::text("seen"))]);
    round.messages.extend(answered(&round.messages[1]));
    world.append(3, round).await;
    let mut last = answer(&claimed, AfterSend::Continue);
    last.messages = vec![says(Role::Assistant, "done", 1)];
    in_second_round(&mut last);
    last.usage[0].attempt = 2;
    world.complete(4, last).await;
    world.assert_sound(4).await;
}

/// A timer with three occurrences.
async fn tick(world: &World, session: SessionKey) {
    let every = Schedule::Every {
        every: Span(Duration::from_secs(1)),
        first: Some(First::At(world.time(0))),
    };
    let timer = NewTimer {
        id: TimerId(uuid::Uuid::from_u128(7)),
        tenant: session.tenant,
        target: TimerTarget::Send {
            session: session.session,
            input: vec![ContentPart::text("tick")],
            options: Box::default(),
        },
        rule: TimerRule {
            catch_up: CatchUp::All,
            ..TimerRule::new(every)
        },
        armed_max: None,
    };
    let made = world
        .store
        .at(world.time(0))
        .create_timers(vec![(timer, None)])
        .await;
    made.expect("makes it");
    let at = world.time(2_000);
    let boot = BootId(uuid::Uuid::from_u128(8));
    let fired = world.store.at(at).fire_timers(boot, 10).await;
    let fired = fired.expect("fires");
    assert_eq!((fired.sends.len(), fired.merged), (1, 2));
}

/// Plants violations and returns the names of the invariants that report them.
async fn reported(world: &World, statements: &[&str]) -> Vec<String> {
    let mut connection = world.connection().await;
    for statement in statements {
        let planted = connection
            .execute(AssertSqlSafe((*statement).to_owned()))
            .await;
        let planted = planted.unwrap_or_else(|error| panic!("{statement}: {error}"));
        let changes = !statement.starts_with("ALTER") && !statement.starts_with("DROP");
        assert!(
            !changes || planted.rows_affected() > 0,
            "{statement} changed nothing"
        );
    }
    let found = world
        .store
        .at(world.time(5))
        .audit(AuditOptions::default())
        .await;
    let found = found.expect("audits");
    assert!(found.iter().all(|violation| !violation.rows.is_empty()));
    let found: Vec<String> = found.into_iter().map(|found| found.invariant).collect();
    // A violation within one session, run or timer is found by an audit of that object alone.
    let alone = audit_in_pieces(&*world.store.at(world.time(5)), 1).await;
    let (_, alone) = alone.expect("audits");
    let alone: BTreeSet<String> = alone.into_iter().map(|found| found.invariant).collect();
    // Two of these invariants are only partly checked in pieces.
    let in_part = ["run.final_is_quiet", "timer.never_early"];
    let whole = |name: &&String| {
        let mut kinds = AuditKind::ALL.into_iter();
        !in_part.contains(&name.as_str())
            && kinds.any(|kind| piecewise(kind).contains(&name.as_str()))
    };
    if !alone.contains(READABLE) {
        let alone: BTreeSet<&String> = alone.iter().filter(whole).collect();
        assert_eq!(alone, found.iter().filter(whole).collect());
    }
    found
}

#[tokio::test]
async fn each_invariant_reports_its_planted_violation() {
    let planted: Vec<_> = PLANTED.iter().map(|(name, _)| *name).collect();
    let known: Vec<_> = INVARIANTS.iter().map(|(name, _)| *name).collect();
    assert_eq!(planted, known);
    for (name, statements) in PLANTED {
        let database = format!("audit_{}", name.replace('.', "_"));
        with_world(&database, async |world| {
            history(world).await;
            let found = reported(world, statements).await;
            assert!(found.contains(&(*name).to_owned()), "{name}: {found:?}");
        })
        .await;
    }
}

#[tokio::test]
async fn a_broken_answer_is_reported_whatever_is_broken() {
    for (n, (name, statement)) in PLANTED_TOO.iter().enumerate() {
        with_world(&format!("audit_too_{n}"), async |world| {
            history(world).await;
            let found = reported(world, &[statement]).await;
            assert!(
                found.contains(&(*name).to_owned()),
                "{statement}: {found:?}"
            );
        })
        .await;
    }
}

#[tokio::test]
async fn a_ready_session_without_work_is_reported_too() {
    with_world("audit_idle_ready", async |world| {
        history(world).await;
        let statements = [
            FREE_HOT,
            "UPDATE session_hot SET ready_since = 1 WHERE ready_since IS NULL",
        ];
        let found = reported(world, &statements).await;
        assert_eq!(found, ["session.ready_iff_work"]);
    })
    .await;
}

#[tokio::test]
async fn the_rows_of_a_violation_are_bounded() {
    with_world("audit_bounded", async |world| {
        history(world).await;
        reported(world, &["UPDATE messages SET epoch = 99"]).await;
        let options = AuditOptions {
            rows_max: 2,
            ..AuditOptions::default()
        };
        let found = world
            .store
            .at(world.time(5))
            .audit(options)
            .await
            .expect("audits");
        let granted = found.iter().find(|v| v.invariant == "epoch.granted");
        let rows = &granted.expect("is reported").rows;
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0]["epoch"], 99);
    })
    .await;
}
