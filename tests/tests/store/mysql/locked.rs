//! A stuck transaction holds a session's lock: operations on that session fail, and those on its
//! neighbours are delayed by a fraction of a second.

use std::time::Duration;

use mainspring_shared::agent::{OnBusy, SendOptions};
use mainspring_shared::id::{TenantId, TimerId};
use mainspring_shared::message::ContentPart;
use mainspring_shared::send::WaitingOn;
use mainspring_shared::store::{
    AcceptOutcome, AfterSend, AppendOutcome, CallAnswer, CancelOutcome, ClaimOutcome, Claimed,
    CompleteOutcome, DeliverOutcome, Inspect as _, NewTimer, ParkOutcome, ParkSend, ParkUntil,
    PostOutcome, PostResult, SendTotals,
};
use mainspring_shared::time::Span;
use mainspring_shared::timer::{Schedule, TimerRule, TimerTarget};
use mainspring_shared::tool::{CallResult, call_id};
use mainspring_store_core::SqlStore;
use sqlx::{Connection, MySqlConnection};
use tokio::time::Instant;
use uuid::Uuid;

use crate::mysql::opened::{Opened, Place, open};
use crate::mysql::steps::*;

/// Longest acceptable delay for a neighbour.
const SOON: Duration = Duration::from_millis(500);

/// Number of sessions in each test; the first one is locked.
const SESSIONS: u128 = 8;

/// A transaction that holds a session's hot row and does nothing.
struct Stuck(MySqlConnection);

impl Stuck {
    async fn with(place: &Place, session: u128) -> Self {
        let mut conn = MySqlConnection::connect(place.url())
            .await
            .expect("connects");
        let begin = "START TRANSACTION";
        sqlx::raw_sql(begin)
            .execute(&mut conn)
            .await
            .expect("begins");
        sqlx::query("SELECT epoch FROM session_hot WHERE tenant = ? AND session_id = ? FOR UPDATE")
            .bind(key(session).tenant.0)
            .bind(key(session).session.0.as_bytes().to_vec())
            .fetch_one(&mut conn)
            .await
            .expect("locks");
        Self(conn)
    }

    async fn let_go(mut self) {
        let end = "ROLLBACK";
        sqlx::raw_sql(end).execute(&mut self.0).await.expect("ends");
    }
}

/// Asserts that the median of several samples is short enough. On a busy machine the same operation
/// may take `usual` even without a lock.
fn assert_soon(mut samples: Vec<Duration>, usual: Duration) {
    samples.sort_unstable();
    let most = SOON + 3 * usual;
    assert!(
        samples[samples.len() / 2] <= most,
        "{samples:?}, at most {most:?}"
    );
}

/// Asserts that the first outcome, and only that one, is `locked`.
fn assert_first<T: std::fmt::Debug + PartialEq>(outcomes: &[T], locked: &T) {
    let (first, others) = outcomes.split_first().expect("outcomes");
    assert_eq!(first, locked);
    assert!(!others.contains(locked), "{others:?}");
}

/// Creates sessions with one send each. Returns how long it took to accept them as one group.
async fn sessions(store: &SqlStore) -> Duration {
    register(store, 0, 1).await;
    let items = (1..=SESSIONS).map(|session| opening(session, session));
    let begun = Instant::now();
    let outcomes = store
        .at(time(0))
        .accept_sends(SCHEDULER, items.collect())
        .await;
    outcomes.expect("answers");
    begun.elapsed()
}

/// Creates the sessions and claims all of them. Also returns how long it took to accept their
/// sends.
async fn claimed(store: &SqlStore) -> (Vec<Claimed>, Duration) {
    let usual = sessions(store).await;
    let mut all = Vec::new();
    for session in 1..=SESSIONS {
        all.push(claim(store, 1, 1, session, session).await);
    }
    (all, usual)
}

#[tokio::test]
async fn other_sessions_take_sends_items_and_cancels_at_once() {
    let Some(Opened { store, place }) = open().await else {
        return;
    };
    let usual = sessions(&store).await;
    let stuck = Stuck::with(&place, 1).await;
    let mut samples = Vec::new();
    for n in 1..=3 {
        let items = (1..=SESSIONS).map(|session| sending(100 * n + session, session));
        let begun = Instant::now();
        let outcomes = store
            .at(time(2))
            .accept_sends(SCHEDULER, items.collect())
            .await;
        samples.push(begun.elapsed());
        assert_first(&outcomes.expect("answers"), &AcceptOutcome::Locked);
    }
    let items = (1..=SESSIONS).map(|session| words(session, "an item", OnBusy::Steer));
    let begun = Instant::now();
    let outcomes = store
        .at(time(3))
        .deliver_items(SCHEDULER, items.collect())
        .await;
    samples.push(begun.elapsed());
    assert_first(&outcomes.expect("answers"), &DeliverOutcome::Locked);
    let items = (1..=SESSIONS).map(|session| (TenantId::DEFAULT, send(session)));
    let begun = Instant::now();
    let outcomes = store
        .at(time(4))
        .cancel_sends(SCHEDULER, items.collect())
        .await;
    samples.push(begun.elapsed());
    assert_first(&outcomes.expect("answers"), &CancelOutcome::Locked);
    assert_soon(samples, usual);
    stuck.let_go().await;
    let accepted = accept(&store, 5, sending(101, 1)).await;
    assert_eq!(
        accepted.position,
        Some(2),
        "nothing of it was stored before"
    );
    assert_sound(&store, 6).await;
}

#[tokio::test]
async fn other_sessions_are_claimed_and_go_on_at_once() {
    let Some(Opened { store, place }) = open().await else {
        return;
    };
    let usual = sessions(&store).await;
    let stuck = Stuck::with(&place, 1).await;
    let items = (1..=SESSIONS).map(|session| claiming(session, session));
    let begun = Instant::now();
    let outcomes = store
        .at(time(1))
        .claim_sessions(boot(1), items.collect())
        .await;
    let mut samples = vec![begun.elapsed()];
    let outcomes = outcomes.expect("answers");
    assert_first(&outcomes, &ClaimOutcome::Busy);
    stuck.let_go().await;
    let held: Vec<Claimed> = outcomes
        .into_iter()
        .filter_map(|outcome| match outcome {
            ClaimOutcome::Claimed(claimed) => Some(*claimed),
            _ => None,
        })
        .collect();
    assert_eq!(held.len() as u128, SESSIONS - 1);
    let (rounds, others) = held.split_at(2);
    let (ends, parks) = others.split_at(2);
    let parking = |held: &Claimed| ParkSend {
        key: held.key,
        lease: held.lease,
        send_id: held.send.record.id,
        on: WaitingOn::Retry,
        until: ParkUntil::Asked,
        unless: 0,
        usage: Vec::new(),
        totals: SendTotals::default(),
    };

    let stuck = Stuck::with(&place, 2).await;
    let begun = Instant::now();
    let items = rounds.iter().map(round).collect();
    let outcomes = store.at(time(2)).append_rounds(items).await;
    let outcomes = outcomes.expect("answers");
    samples.push(begun.elapsed());
    assert_first(&outcomes, &AppendOutcome::Locked);
    stuck.let_go().await;

    let stuck = Stuck::with(&place, 4).await;
    let items = ends
        .iter()
        .map(|held| ending(held, &held.send.record, AfterSend::Release));
    let begun = Instant::now();
    let outcomes = store.at(time(3)).complete_sends(items.collect()).await;
    samples.push(begun.elapsed());
    assert_first(&outcomes.expect("answers"), &CompleteOutcome::Locked);
    stuck.let_go().await;

    let stuck = Stuck::with(&place, 6).await;
    let begun = Instant::now();
    let items = parks.iter().map(parking).collect();
    let outcomes = store.at(time(4)).park_sends(items).await;
    let outcomes = outcomes.expect("answers");
    samples.push(begun.elapsed());
    assert_first(&outcomes, &ParkOutcome::Locked);
    stuck.let_go().await;
    assert_soon(samples, usual);

    // An item answered with `Locked` was not written: the same call succeeds now.
    append(&store, 5, round(&rounds[0])).await;
    complete(
        &store,
        5,
        ending(&ends[0], &ends[0].send.record, AfterSend::Release),
    )
    .await;
    let parked = store.at(time(5)).park_sends(vec![parking(&parks[0])]).await;
    let parked = one(parked.expect("answers"));
    assert!(matches!(parked, ParkOutcome::Parked { .. }), "{parked:?}");
    assert_sound(&store, 6).await;
}

#[tokio::test]
async fn results_for_other_sessions_are_taken_at_once() {
    let Some(Opened { store, place }) = open().await else {
        return;
    };
    let (claimed, usual) = claimed(&store).await;
    for claimed in claimed {
        let begins = vec![waits(WaitingOn::Human)];
        let outcome = append(&store, 2, calling(&claimed, begins)).await;
        assert!(
            matches!(outcome, AppendOutcome::Appended { .. }),
            "{outcome:?}"
        );
    }
    let results = || {
        let items = (1..=SESSIONS).map(|session| PostResult {
            key: key(session),
            call_id: call_id(send(session), 0, 0),
            answer: CallAnswer::Result(CallResult::text("as asked")),
        });
        items.collect::<Vec<_>>()
    };
    let stuck = Stuck::with(&place, 1).await;
    let begun = Instant::now();
    let outcomes = store.at(time(3)).post_results(results()).await;
    assert_soon(vec![begun.elapsed()], usual);
    assert_first(&outcomes.expect("answers"), &PostOutcome::Locked);
    stuck.let_go().await;
    let outcomes = store.at(time(4)).post_results(results()).await;
    let outcomes = outcomes.expect("answers");
    let (first, others) = outcomes.split_first().expect("outcomes");
    assert!(matches!(first, PostOutcome::Accepted { .. }), "{first:?}");
    assert!(
        others.iter().all(|it| *it == PostOutcome::AlreadySettled),
        "{others:?}"
    );
    assert_sound(&store, 5).await;
}

#[tokio::test]
async fn timers_and_alarms_of_other_sessions_are_served_at_once() {
    let Some(Opened { store, place }) = open().await else {
        return;
    };
    register(&store, 0, 1).await;
    let begun = Instant::now();
    for session in 1..=SESSIONS {
        let mut item = opening(session, session);
        item.options = SendOptions {
            deadline: Some(Span(Duration::from_secs(1))),
            ..SendOptions::default()
        };
        accept(&store, 0, item).await;
        let timer = NewTimer {
            id: TimerId(Uuid::from_u128(session)),
            tenant: key(session).tenant,
            target: TimerTarget::Send {
                session: key(session).session,
                input: vec![ContentPart::text("tick")],
                options: Box::default(),
            },
            rule: TimerRule::new(Schedule::After(Span(Duration::from_secs(1)))),
            armed_max: None,
        };
        let made = store.at(time(0)).create_timers(vec![(timer, None)]).await;
        made.expect("answers");
    }
    let usual = begun.elapsed();
    let stuck = Stuck::with(&place, 1).await;
    let begun = Instant::now();
    let fired = store.at(time(1_000)).fire_timers(SCHEDULER, 100).await;
    let mut samples = vec![begun.elapsed()];
    let begun = Instant::now();
    let swept = store.at(time(1_000)).sweep_alarms(SCHEDULER, 100).await;
    samples.push(begun.elapsed());
    assert_soon(samples, usual);
    assert_eq!(fired.expect("answers").sends.len() as u128, SESSIONS - 1);
    assert_eq!(swept.expect("answers").finished.len() as u128, SESSIONS - 1);
    stuck.let_go().await;
    let fired = store.at(time(1_001)).fire_timers(SCHEDULER, 100).await;
    assert_eq!(fired.expect("answers").sends.len(), 1, "it stayed due");
    let swept = store.at(time(1_001)).sweep_alarms(SCHEDULER, 100).await;
    assert_eq!(swept.expect("answers").finished.len(), 1);
    assert_sound(&store, 1_002).await;
}
