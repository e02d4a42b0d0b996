//! A row that cannot be read fails on its own, without blocking anything else.

use std::time::Duration;

use mainspring_shared::agent::SendOptions;
use mainspring_shared::id::{BootId, RunId, RunKey, SessionKey, TimerId};
use mainspring_shared::invariants::READABLE;
use mainspring_shared::message::ContentPart;
use mainspring_shared::send::{SendStatus, WaitingOn};
use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{
    AcceptSend, AfterSend, AuditOptions, ClaimRuns, Inspect as _, ListSends, ListTimers, NewRun,
    NewTimer,
};
use mainspring_shared::time::Span;
use mainspring_shared::timer::{Schedule, TimerRule, TimerTarget};
use mainspring_shared::workflow::run::{DSL_VERSION, RunLeaf, RunOptions};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use crate::postgres::world::{TENANT, World, answer, id, to, with_world};

async fn plant(world: &World, statement: &str) {
    let connection = PgConnection::connect(&world.settings.url).await;
    let mut connection = connection.expect("connects");
    let done = connection
        .execute(AssertSqlSafe(statement.to_owned()))
        .await;
    assert!(done.expect("plants").rows_affected() > 0, "{statement}");
}

/// The tables whose rows the audit cannot read.
async fn unreadable(world: &World) -> Vec<String> {
    let found = world
        .store
        .at(world.time(9_000))
        .audit(AuditOptions::default())
        .await;
    let found = found.expect("audits").into_iter();
    let rows = found.filter(|violation| violation.invariant == READABLE);
    rows.flat_map(|violation| violation.rows)
        .filter_map(|row| Some(row["table"].as_str()?.to_owned()))
        .collect()
}

async fn timer(world: &World, session: SessionKey) -> TimerId {
    let id = TimerId(id());
    let once = Schedule::After(Span(Duration::from_secs(1)));
    let new = NewTimer {
        id,
        tenant: TENANT,
        target: TimerTarget::Send {
            session: session.session,
            input: vec![ContentPart::text("tick")],
            options: Box::default(),
        },
        rule: TimerRule::new(once),
        armed_max: None,
    };
    let made = world
        .store
        .at(world.time(0))
        .create_timers(vec![(new, None)])
        .await;
    made.expect("makes it");
    id
}

#[tokio::test]
async fn timers_fire_beside_those_that_cannot_be_read() {
    with_world("unread_timers", async |world| {
        let key = world.session().await;
        let (first, second) = (timer(world, key).await, timer(world, key).await);
        let third = timer(world, key).await;
        for sick in [first, second] {
            let at = sick.0;
            plant(
                world,
                &format!("UPDATE timers SET rule = '{{}}' WHERE timer_id = '{at}'"),
            )
            .await;
        }
        // Even if unreadable rows fill a whole page.
        let fired = world
            .store
            .at(world.time(1_000))
            .fire_timers(BootId(id()), 1)
            .await;
        let fired = fired.expect("fires");
        assert_eq!((fired.served, fired.sends.len()), (1, 1));
        let query = ListTimers {
            tenant: TENANT,
            session: None,
            status: None,
            before: None,
            limit: 10,
        };
        let listed = world.store.list_timers(query).await.expect("lists");
        let listed: Vec<_> = listed.data.iter().map(|timer| timer.id).collect();
        assert_eq!(listed, [third]);
        assert_eq!(unreadable(world).await, ["timers", "timers"]);
    })
    .await;
}

#[tokio::test]
async fn alarms_are_served_beside_sends_that_cannot_be_read() {
    with_world("unread_alarms", async |world| {
        let mut delayed = Vec::new();
        for _ in 0..4 {
            let item = AcceptSend {
                options: SendOptions {
                    delay: Some(Span(Duration::from_secs(1))),
                    ..SendOptions::default()
                },
                ..to(world.session().await)
            };
            delayed.push(world.send(0, item).await.0);
        }
        for sick in &delayed[..2] {
            let sick = sick.0;
            plant(
                world,
                &format!("UPDATE sends SET options = '[]' WHERE send_id = '{sick}'"),
            )
            .await;
        }
        for limit in [1, 10] {
            let swept = world
                .store
                .at(world.time(1_000))
                .sweep_alarms(BootId(id()), limit)
                .await;
            assert_eq!(swept.expect("sweeps").served, 1, "{limit}");
        }
        let query = ListSends {
            tenant: TENANT,
            session: None,
            status: None,
            before: None,
            limit: 3,
        };
        let listed = world.store.list_sends(query).await.expect("lists");
        assert_eq!((listed.data.len(), listed.more), (2, true));
        assert_eq!(unreadable(world).await, ["sends", "sends"]);
    })
    .await;
}

#[tokio::test]
async fn children_are_reported_beside_those_that_cannot_be_read() {
    with_world("unread_children", async |world| {
        let waits = || crate::postgres::tools::waits(WaitingOn::Agent, false);
        let (parent, _) = world.waiting(WaitingOn::Agent, [waits(), waits()]).await;
        let calls = crate::postgres::tools::ids(&parent, 2);
        let mut children = Vec::new();
        for call in &calls {
            let item = AcceptSend {
                reports_to: Some(call.clone()),
                ..to(world.session().await)
            };
            let (child, _) = world.send(5, item).await;
            let cancelled = world
                .store
                .at(world.time(6))
                .cancel_sends(BootId(id()), vec![(TENANT, child)])
                .await;
            cancelled.expect("cancels");
            children.push(child);
        }
        let sick = children[0].0;
        plant(
            world,
            &format!("UPDATE sends SET usage = 'x' WHERE send_id = '{sick}'"),
        )
        .await;
        for expected in [1, 0] {
            let told = world
                .store
                .at(world.time(7))
                .report_children(None, 10)
                .await;
            assert_eq!(told.expect("reports").len(), expected);
        }
        let settled = world
            .store
            .get_calls(vec![(TENANT, calls[1].clone())])
            .await;
        let settled = settled.expect("reads").remove(0).expect("is there");
        assert!(settled.result.is_some());
        assert_eq!(unreadable(world).await, ["sends"]);
    })
    .await;
}

fn run(n: u128) -> RunKey {
    RunKey {
        tenant: TENANT,
        run: RunId(uuid::Uuid::from_u128(n)),
    }
}

async fn create_run(world: &World, key: RunKey, dsl_version: i32) {
    let new = NewRun {
        key,
        name: "r".to_owned(),
        spec: json!({}),
        dsl_version,
        input: Value::Null,
        options: RunOptions::default(),
        session: None,
        reports_to: None,
        depth: 0,
        idempotency: None,
    };
    let created = world.store.at(world.time(0)).create_runs(vec![new]).await;
    created.expect("creates");
}

#[tokio::test]
async fn runs_are_claimed_beside_news_that_cannot_be_read() {
    with_world("unread_runs", async |world| {
        let worker = world.boot(0).await;
        for n in 1..=3 {
            create_run(world, run(n), DSL_VERSION).await;
        }
        let mut leaves = Vec::new();
        for n in 1..=2 {
            let key = world.session().await;
            let item = AcceptSend {
                run: Some(RunLeaf {
                    run: run(n).run,
                    path: "/0".to_owned(),
                    attempt: 1,
                }),
                ..to(key)
            };
            leaves.push(world.send(1, item).await.0);
            let claimed = world.claim(2, worker, key).await;
            world
                .complete(3, answer(&claimed, AfterSend::Release))
                .await;
        }
        plant(
            world,
            &format!(
                "UPDATE sends SET usage = 'x' WHERE send_id = '{}'",
                leaves[0].0
            ),
        )
        .await;
        plant(
            world,
            &format!(
                "INSERT INTO run_asks (tenant, run_id, ask, created_at)
            VALUES (1, '{}', '{{\"ask\":\"dance\"}}', 0)",
                run(3).run.0
            ),
        )
        .await;
        let claim = ClaimRuns {
            boot: worker,
            limit: 10,
            ends_max: 10,
            leaves_max: None,
            dsl_max: DSL_VERSION,
            aside: Vec::new(),
        };
        let claimed = world
            .store
            .at(world.time(4))
            .claim_runs(claim.clone())
            .await;
        let claimed = claimed.expect("claims").runs;
        let found: Vec<_> = claimed
            .iter()
            .map(|news| {
                (
                    news.key,
                    news.unreadable,
                    news.ends.len(),
                    news.unreadable_asks.len(),
                )
            })
            .collect();
        assert_eq!(
            found,
            [
                (run(1), true, 1, 0),
                (run(2), false, 1, 0),
                (run(3), true, 0, 1)
            ]
        );
        assert_eq!(claimed[0].ends[0].end.send, leaves[0]);
        assert_eq!(claimed[0].ends[0].end.status, SendStatus::Failed);
        assert_eq!(claimed[1].ends[0].end.status, SendStatus::Completed);
        assert_eq!(unreadable(world).await, ["sends", "run_asks"]);
    })
    .await;
}
