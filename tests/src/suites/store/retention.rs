//! Old sends are removed; their messages stay.

use mainspring_shared::id::{RunId, RunKey, TenantId};
use mainspring_shared::send::WaitingOn;
use mainspring_shared::store::{
    AcceptSend, AfterSend, AuditOptions, CreateRunOutcome, Inspect, NewRun, RetireSends, Retired,
};
use mainspring_shared::workflow::run::{DSL_VERSION, RunLeaf, RunOptions};
use serde_json::json;
use uuid::Uuid;

use super::prelude::*;

fn page(keep: i64) -> RetireSends {
    RetireSends {
        tenant: TenantId::DEFAULT,
        keep: millis(keep),
        young: millis(keep),
        after: None,
        limit: 100,
    }
}

async fn retire(store: &dyn Inspect, ms: i64, query: RetireSends) -> Retired {
    let retired = store.at(time(ms)).retire_sends(query).await;
    retired.expect("the store answers")
}

async fn is_there(store: &dyn Inspect, n: u128) -> bool {
    let found = store.get_sends(vec![(TenantId::DEFAULT, send(n))]).await;
    one(found.expect("the store answers")).is_some()
}

async fn assert_sound(store: &dyn Inspect, ms: i64) {
    let violations = store.at(time(ms)).audit(AuditOptions::default()).await;
    assert_eq!(violations.expect("the store answers"), []);
}

/// A send of session 1, from acceptance to its end at `ms`.
async fn answered(store: &dyn Inspect, ms: i64, item: AcceptSend) {
    let n = item.id.0.as_u128();
    accept(store, ms - 2, item).await;
    let claimed = claim(store, ms - 1, 1, 1, n).await;
    complete(store, ms, ending(&claimed, AfterSend::Release)).await;
}

pub async fn old_sends_go_and_what_was_said_stays(store: &dyn Inspect) {
    let claimed = running(store).await;
    append(store, 20, round(&claimed, 0)).await;
    let mut item = ending(&claimed, AfterSend::Release);
    item.messages = vec![answer("done", 1, &[])];
    item.usage = vec![usage_row(1, 2)];
    item.round = Some(round_ref(1));
    item.totals = totals(2);
    complete(store, 30, item).await;
    answered(store, 60, sending(2, 1)).await;
    let before = dumped(store, 1).await;
    let said = transcript(store, 1).await;
    let steps = before.steps.iter().filter(|step| step.send_id == send(1));
    let steps = steps.count();
    let usage = before.usage.iter().filter(|(id, ..)| *id == send(1));
    let rows = 1 + steps + before.calls.len() + usage.count();
    assert!(steps > 0 && before.calls.len() == 1 && rows > 4);

    // Nothing had ended before 29.
    assert_eq!(retire(store, 79, page(50)).await, Retired::default());
    let retired = retire(store, 100, page(50)).await;
    assert_eq!((retired.rows, retired.next), (rows as u64, None));
    assert!(!is_there(store, 1).await && is_there(store, 2).await);
    assert_eq!(transcript(store, 1).await, said);
    let left = dumped(store, 1).await;
    assert_eq!(left.retired_steps, steps as i64);
    assert!(left.steps.iter().all(|step| step.send_id == send(2)));
    assert_eq!(left.steps.len() + steps, before.steps.len());
    assert!(left.calls.is_empty());
    assert!(left.usage.iter().all(|(id, ..)| *id == send(2)));
    assert_eq!(left.hot, before.hot);
    assert_sound(store, 100).await;
    assert_eq!(retire(store, 101, page(50)).await, Retired::default());

    // The session continues where it was, and what is old by then is removed too.
    answered(store, 120, sending(3, 1)).await;
    assert_eq!(last_step(store, 1).await.n, left.hot.next_step + 1);
    assert_sound(store, 120).await;
    let retired = retire(store, 1_000, page(10)).await;
    assert!(retired.rows > 0);
    let empty = dumped(store, 1).await;
    assert!(empty.steps.is_empty() && empty.sends.is_empty() && empty.usage.is_empty());
    assert_eq!(empty.retired_steps, empty.hot.next_step - 1);
    assert_sound(store, 1_000).await;
    answered(store, 1_010, sending(4, 1)).await;
    assert_sound(store, 1_010).await;
}

pub async fn sends_that_are_open_or_untold_stay(store: &dyn Inspect) {
    let parent = running(store).await;
    wait_for_calls(
        store,
        12,
        &parent,
        WaitingOn::Agent,
        vec![waits(WaitingOn::Agent)],
    )
    .await;
    accept(store, 20, child(2, 2, 1, &call(&parent, 0, 0))).await;
    let claimed = claim(store, 21, 1, 2, 2).await;
    complete(store, 22, ending(&claimed, AfterSend::Release)).await;
    // The parent waits, and was not told of the child's end.
    let left = Retired {
        skipped: 2,
        ..Retired::default()
    };
    assert_eq!(retire(store, 50_000, page(10)).await, left);
    report(store, 50_001).await;
    assert!(retire(store, 50_002, page(10)).await.rows > 0);
    assert!(is_there(store, 1).await && !is_there(store, 2).await);
    assert_sound(store, 50_002).await;
}

pub async fn sends_of_a_run_stay_with_it(store: &dyn Inspect) {
    register(store, SCHEDULER).await;
    register(store, 1).await;
    let run = |n: u128| RunId(Uuid::from_u128(n));
    let new = NewRun {
        key: RunKey {
            tenant: TenantId::DEFAULT,
            run: run(1),
        },
        name: "run".into(),
        spec: json!({ "name": "run", "root": {} }),
        dsl_version: DSL_VERSION,
        input: json!("tea"),
        options: RunOptions::default(),
        session: None,
        reports_to: None,
        depth: 1,
        idempotency: None,
    };
    let created = store.at(time(0)).create_runs(vec![new]).await;
    let created = one(created.expect("the store answers"));
    assert!(matches!(created, CreateRunOutcome::Created(_)));
    for n in [1, 2] {
        let leaf = RunLeaf {
            run: run(n),
            path: "root".into(),
            attempt: 1,
        };
        let item = AcceptSend {
            run: Some(leaf),
            ..opening(n, n)
        };
        accept(store, 10, item).await;
        let claimed = claim(store, 11, 1, n, n).await;
        complete(store, 12, ending(&claimed, AfterSend::Release)).await;
    }
    assert!(retire(store, 1_000, page(10)).await.rows > 0);
    assert!(is_there(store, 1).await, "its run is there");
    assert!(!is_there(store, 2).await, "its run is not");
    let key = RunKey {
        tenant: TenantId::DEFAULT,
        run: run(1),
    };
    let forgotten = store.forget_runs(vec![key]).await;
    assert_eq!(forgotten.expect("the store answers"), 0, "it is not final");
    let left = Retired {
        skipped: 1,
        ..Retired::default()
    };
    assert_eq!(retire(store, 1_001, page(10)).await, left);
}

pub async fn sends_are_looked_at_page_by_page(store: &dyn Inspect) {
    accept(store, 0, opening(1, 1)).await;
    let claimed = claim(store, 5, 1, 1, 1).await;
    complete(store, 6, ending(&claimed, AfterSend::Release)).await;
    for n in 2..=5 {
        answered(store, 10 * n as i64, sending(n, 1)).await;
    }
    let query = |after: Option<u128>| RetireSends {
        after: after.map(send),
        limit: 2,
        ..page(0)
    };
    let foreign = RetireSends {
        tenant: TenantId(2),
        ..page(0)
    };
    assert_eq!(retire(store, 1_000, foreign).await, Retired::default());
    // 4 and 5 had not ended before 35.
    let mut after = None;
    let mut pages = Vec::new();
    loop {
        let retired = retire(store, 35, query(after)).await;
        pages.push(retired.rows > 0);
        let Some(next) = retired.next else { break };
        after = Some(next.0.as_u128());
    }
    assert_eq!(pages, [true, true]);
    for n in 1..=5 {
        assert_eq!(is_there(store, n).await, n > 3, "{n}");
    }
    assert_sound(store, 40).await;
}

pub async fn a_page_is_bounded_by_the_rounds_of_its_sends(store: &dyn Inspect) {
    let claimed = running(store).await;
    for n in 0..3 {
        append(store, 20, round(&claimed, n)).await;
    }
    let mut item = ending(&claimed, AfterSend::Release);
    item.messages = vec![answer("done", 3, &[])];
    item.usage = vec![usage_row(3, 4)];
    item.totals.rounds = 4;
    complete(store, 30, item).await;
    answered(store, 60, sending(2, 1)).await;
    answered(store, 70, sending(3, 1)).await;
    let query = RetireSends {
        limit: 3,
        ..page(10)
    };
    // The first one has four rounds, more than fit on a page with others.
    let retired = retire(store, 1_000, query).await;
    assert_eq!(retired.next, Some(send(1)));
    assert!(!is_there(store, 1).await && is_there(store, 2).await);
    let query = RetireSends {
        after: retired.next,
        ..query
    };
    let retired = retire(store, 1_000, query).await;
    assert_eq!(retired.next, None);
    assert!(!is_there(store, 2).await && !is_there(store, 3).await);
    assert_sound(store, 1_000).await;
}

pub async fn what_is_as_old_and_stays_is_counted(store: &dyn Inspect) {
    let parent = running(store).await;
    let begins = vec![waits(WaitingOn::Agent)];
    wait_for_calls(store, 12, &parent, WaitingOn::Agent, begins).await;
    accept(store, 20, child(2, 2, 1, &call(&parent, 0, 0))).await;
    let claimed = claim(store, 21, 1, 2, 2).await;
    complete(store, 22, ending(&claimed, AfterSend::Release)).await;
    // The parent is open, and the child's end is not reported.
    assert_eq!(retire(store, 5_000, page(1_000)).await.skipped, 2);
    report(store, 5_001).await;
    let retired = retire(store, 5_002, page(1_000)).await;
    assert_eq!(retired.skipped, 1);
    // Recent sends do not count as skipped: they are not due.
    assert_eq!(retire(store, 5_003, page(6_000)).await.skipped, 0);
}
