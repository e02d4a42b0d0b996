//! A row that cannot be read fails on its own, without blocking anything else.

use std::time::Duration;

use mainspring_shared::agent::SendOptions;
use mainspring_shared::id::{RunId, RunKey, TenantId, TimerId};
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
use mainspring_shared::tool::call_id;
use mainspring_shared::workflow::run::{DSL_VERSION, RunLeaf, RunOptions};
use mainspring_store_sqlite::SqliteStore;
use serde_json::{Value, json};
use tempfile::TempDir;
use uuid::Uuid;

use crate::sqlite::file::beside;
use crate::sqlite::opened::{Opened, open};
use crate::sqlite::steps::*;

async fn plant(dir: &TempDir, sql: &'static str) {
    let done = sqlx::raw_sql(sql).execute(&mut beside(dir).await).await;
    assert!(done.expect(sql).rows_affected() > 0, "{sql}");
}

/// The tables whose rows the audit cannot read.
async fn unreadable(store: &SqliteStore) -> Vec<String> {
    let found = store.at(time(9_000)).audit(AuditOptions::default()).await;
    let rows = found.expect("audits").into_iter();
    let rows = rows.filter(|violation| violation.invariant == READABLE);
    rows.flat_map(|violation| violation.rows)
        .filter_map(|row| Some(row["table"].as_str()?.to_owned()))
        .collect()
}

#[tokio::test]
async fn timers_fire_beside_those_that_cannot_be_read() {
    let Opened { store, place: dir } = open().await;
    accept(&store, 0, opening(1, 1)).await;
    for n in 1..=3 {
        let new = NewTimer {
            id: TimerId(Uuid::from_u128(n)),
            tenant: TenantId::DEFAULT,
            target: TimerTarget::Send {
                session: key(1).session,
                input: vec![ContentPart::text("tick")],
                options: Box::default(),
            },
            rule: TimerRule::new(Schedule::After(Span(Duration::from_secs(1)))),
            armed_max: None,
        };
        let made = store.at(time(0)).create_timers(vec![(new, None)]).await;
        made.expect("makes it");
    }
    plant(
        &dir,
        "UPDATE timers SET rule = '{}' WHERE timer_id < x'00000000000000000000000000000003'",
    )
    .await;
    // Even if unreadable rows fill a whole page.
    let fired = store.at(time(1_000)).fire_timers(SCHEDULER, 1).await;
    let fired = fired.expect("fires");
    assert_eq!((fired.served, fired.sends.len()), (1, 1));
    let query = ListTimers {
        tenant: TenantId::DEFAULT,
        session: None,
        status: None,
        before: None,
        limit: 10,
    };
    let listed = store.list_timers(query).await.expect("lists");
    let listed: Vec<_> = listed
        .data
        .iter()
        .map(|timer| timer.id.0.as_u128())
        .collect();
    assert_eq!(listed, [3]);
    assert_eq!(unreadable(&store).await, ["timers", "timers"]);
}

#[tokio::test]
async fn alarms_are_served_beside_sends_that_cannot_be_read() {
    let Opened { store, place: dir } = open().await;
    for n in 1..=4 {
        let item = AcceptSend {
            options: SendOptions {
                delay: Some(Span(Duration::from_secs(1))),
                ..SendOptions::default()
            },
            ..opening(n, n)
        };
        accept(&store, 0, item).await;
    }
    plant(
        &dir,
        "UPDATE sends SET options = '[]' WHERE send_id < x'00000000000000000000000000000003'",
    )
    .await;
    for limit in [1, 10] {
        let swept = store.at(time(1_000)).sweep_alarms(SCHEDULER, limit).await;
        assert_eq!(swept.expect("sweeps").served, 1, "{limit}");
    }
    let query = ListSends {
        tenant: TenantId::DEFAULT,
        session: None,
        status: None,
        before: None,
        limit: 3,
    };
    let listed = store.list_sends(query).await.expect("lists");
    assert_eq!((listed.data.len(), listed.more), (2, true));
    assert_eq!(unreadable(&store).await, ["sends", "sends"]);
}

#[tokio::test]
async fn children_are_reported_beside_those_that_cannot_be_read() {
    let Opened { store, place: dir } = open().await;
    let claimed = running(&store).await;
    let begins = vec![waits(WaitingOn::Agent), waits(WaitingOn::Agent)];
    append(&store, 20, calling(&claimed, begins)).await;
    for (n, place) in [(2, 0), (3, 1)] {
        let child = AcceptSend {
            reports_to: Some(call_id(send(1), 0, place)),
            ..opening(n, n)
        };
        accept(&store, 21, child).await;
        cancel(&store, 22, n).await;
    }
    plant(
        &dir,
        "UPDATE sends SET usage = 'x' WHERE send_id = x'00000000000000000000000000000002'",
    )
    .await;
    for expected in [1, 0] {
        let told = store.at(time(23)).report_children(None, 10).await;
        assert_eq!(told.expect("reports").len(), expected);
    }
    let id = call_id(send(1), 0, 1);
    let settled = store.get_calls(vec![(TenantId::DEFAULT, id)]).await;
    let settled = settled.expect("reads").remove(0).expect("is there");
    assert!(settled.result.is_some());
    assert_eq!(unreadable(&store).await, ["sends"]);
}

fn run(n: u128) -> RunKey {
    RunKey {
        tenant: TenantId::DEFAULT,
        run: RunId(Uuid::from_u128(n)),
    }
}

#[tokio::test]
async fn runs_are_claimed_beside_news_that_cannot_be_read() {
    let Opened { store, place: dir } = open().await;
    register(&store, 0, 1).await;
    for n in 1..=3 {
        let new = NewRun {
            key: run(n),
            name: "r".to_owned(),
            spec: json!({}),
            dsl_version: DSL_VERSION,
            input: Value::Null,
            options: RunOptions::default(),
            session: None,
            reports_to: None,
            depth: 0,
            idempotency: None,
        };
        store
            .at(time(0))
            .create_runs(vec![new])
            .await
            .expect("creates");
    }
    for n in 1..=2 {
        let item = AcceptSend {
            run: Some(RunLeaf {
                run: run(n).run,
                path: "/0".to_owned(),
                attempt: 1,
            }),
            ..opening(n, n)
        };
        accept(&store, 1, item).await;
        let claimed = claim(&store, 2, 1, n, n).await;
        let end = ending(&claimed, &claimed.send.record, AfterSend::Release);
        complete(&store, 3, end).await;
    }
    plant(
        &dir,
        "UPDATE sends SET usage = 'x' WHERE send_id = x'00000000000000000000000000000001'",
    )
    .await;
    plant(
        &dir,
        "INSERT INTO run_asks (tenant, run_id, ask, created_at)
        VALUES (1, x'00000000000000000000000000000003', '{\"ask\":\"dance\"}', 0)",
    )
    .await;
    let claim = ClaimRuns {
        boot: boot(1),
        limit: 10,
        ends_max: 10,
        leaves_max: None,
        dsl_max: DSL_VERSION,
        aside: Vec::new(),
    };
    let claimed = store
        .at(time(4))
        .claim_runs(claim)
        .await
        .expect("claims")
        .runs;
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
    assert_eq!(claimed[0].ends[0].end.send, send(1));
    assert_eq!(claimed[0].ends[0].end.status, SendStatus::Failed);
    assert_eq!(claimed[1].ends[0].end.status, SendStatus::Completed);
    assert_eq!(unreadable(&store).await, ["sends", "run_asks"]);
}
