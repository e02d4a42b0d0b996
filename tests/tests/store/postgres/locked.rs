//! A stuck transaction holds a session's lock: operations on that session fail, and those on its
//! neighbours are delayed by a fraction of a second.

use std::time::Duration;

use mainspring_shared::agent::OnBusy;
use mainspring_shared::id::{BootId, SendId, SessionKey, TenantId, TimerId};
use mainspring_shared::message::ContentPart;
use mainspring_shared::send::WaitingOn;
use mainspring_shared::store::{
    AcceptOutcome, AfterSend, AppendOutcome, CancelOutcome, ClaimOutcome, Claimed, CompleteOutcome,
    DeliverItem, DeliverOutcome, Error, IdempotencyKey, Inspect as _, NewTimer, ParkOutcome,
    ParkSend, PostOutcome, PostResult,
};
use mainspring_shared::time::Span;
use mainspring_shared::timer::{Schedule, TimerRule, TimerTarget};
use mainspring_store_postgres::Settings;
use sqlx::{Executor, PgConnection};
use tokio::time::Instant;

use crate::postgres::tools::{ids, outside, park_on, result, words};
use crate::postgres::world::{
    World, answer, cold, first_round, id, to, totals, with_patient_world,
};

/// Longest acceptable delay for a neighbour.
const SOON: Duration = Duration::from_millis(500);

/// Runs a test with a store that has the default lock timeout.
async fn with_short_locks(name: &str, test: impl AsyncFnOnce(&World)) {
    with_patient_world(name, Settings::new("").lock_timeout, test).await;
}

/// A transaction that holds the hot rows of sessions and does nothing.
struct Stuck(PgConnection);

impl Stuck {
    async fn with(world: &World, keys: &[SessionKey]) -> Self {
        let mut connection = world.connection().await;
        connection.execute("BEGIN").await.expect("begins");
        for key in keys {
            sqlx::query("SELECT FROM session_hot WHERE session_id = $1 FOR UPDATE")
                .bind(key.session.0)
                .execute(&mut connection)
                .await
                .expect("locks");
        }
        Self(connection)
    }

    async fn let_go(mut self) {
        self.0.execute("ROLLBACK").await.expect("ends");
    }
}

/// Asserts that the longest of several samples is short enough.
fn assert_soon(samples: &[Duration]) {
    let longest = samples.iter().max().expect("samples");
    assert!(*longest <= SOON, "{samples:?}");
}

async fn sessions(world: &World, count: usize) -> Vec<SessionKey> {
    let mut keys = Vec::with_capacity(count);
    for _ in 0..count {
        keys.push(world.session().await);
    }
    keys
}

#[tokio::test]
async fn sends_to_other_sessions_are_accepted_at_once() {
    with_short_locks("locked_accept", async |world| {
        let keys = sessions(world, 8).await;
        let boot = BootId(id());
        let stuck = Stuck::with(world, &keys[3..4]).await;
        let mut samples = Vec::new();
        for _ in 0..5 {
            let items = keys.iter().map(|key| to(*key)).collect();
            let begun = Instant::now();
            let outcomes = world
                .store
                .at(world.time(1))
                .accept_sends(boot, items)
                .await;
            samples.push(begun.elapsed());
            for (n, outcome) in outcomes.expect("answers").into_iter().enumerate() {
                if n == 3 {
                    assert_eq!(outcome, AcceptOutcome::Locked);
                } else {
                    assert!(matches!(outcome, AcceptOutcome::Accepted(_)), "{outcome:?}");
                }
            }
        }
        assert_soon(&samples);
        stuck.let_go().await;
        let (_, accepted) = world.send(2, to(keys[3])).await;
        assert_eq!(
            accepted.position,
            Some(1),
            "nothing of it was stored before"
        );
        world.assert_sound(2).await;
    })
    .await;
}

#[tokio::test]
async fn other_sessions_are_claimed_and_go_on_at_once() {
    with_short_locks("locked_work", async |world| {
        let worker = world.boot(0).await;
        let keys = sessions(world, 12).await;
        for key in &keys {
            world.send(1, to(*key)).await;
        }
        let mut samples = Vec::new();
        let stuck = Stuck::with(world, &keys[..1]).await;
        let items = keys.iter().map(|key| cold(*key)).collect();
        let begun = Instant::now();
        let claimed = world
            .store
            .at(world.time(2))
            .claim_sessions(worker, items)
            .await;
        samples.push(begun.elapsed());
        let mut claimed = claimed.expect("answers").into_iter();
        assert_eq!(claimed.next(), Some(ClaimOutcome::Busy));
        let held: Vec<_> = claimed
            .map(|outcome| match outcome {
                ClaimOutcome::Claimed(claimed) => *claimed,
                other => panic!("not claimed: {other:?}"),
            })
            .collect();
        stuck.let_go().await;

        let stuck = Stuck::with(world, &[keys[1], keys[5], keys[9]]).await;
        let parking = |held: &Claimed| ParkSend {
            totals: totals(0),
            ..park_on(held, WaitingOn::Retry)
        };
        let (rounds, others) = held.split_at(4);
        let (ends, parks) = others.split_at(4);
        let begun = Instant::now();
        let items = rounds.iter().map(first_round).collect();
        let stored = world.store.at(world.time(3)).append_rounds(items).await;
        samples.push(begun.elapsed());
        let begun = Instant::now();
        let items = ends.iter().map(|held| answer(held, AfterSend::Release));
        let ended = world
            .store
            .at(world.time(3))
            .complete_sends(items.collect())
            .await;
        samples.push(begun.elapsed());
        let begun = Instant::now();
        let items = parks.iter().map(parking);
        let parked = world
            .store
            .at(world.time(3))
            .park_sends(items.collect())
            .await;
        samples.push(begun.elapsed());
        assert_soon(&samples);
        let stored = stored.expect("answers");
        assert_eq!(stored[0], AppendOutcome::Locked);
        let is_stored = |o: &AppendOutcome| matches!(o, AppendOutcome::Appended { .. });
        assert!(stored[1..].iter().all(is_stored), "{stored:?}");
        let ended = ended.expect("answers");
        assert_eq!(ended[0], CompleteOutcome::Locked);
        let is_ended = |o: &CompleteOutcome| matches!(o, CompleteOutcome::Completed(_));
        assert!(ended[1..].iter().all(is_ended), "{ended:?}");
        let parked = parked.expect("answers");
        assert_eq!(parked[0], ParkOutcome::Locked);
        let is_parked = |o: &ParkOutcome| matches!(o, ParkOutcome::Parked { .. });
        assert!(parked[1..].iter().all(is_parked), "{parked:?}");
        stuck.let_go().await;

        // An item answered with `Locked` was not written: the same call succeeds now.
        world.append(4, first_round(&rounds[0])).await;
        world
            .complete(4, answer(&ends[0], AfterSend::Release))
            .await;
        let parked = world.park(4, parking(&parks[0])).await;
        assert!(is_parked(&parked), "{parked:?}");
        world.assert_sound(4).await;
    })
    .await;
}

/// Creates a timer that is due one second after the start of the test.
async fn arm(world: &World, session: SessionKey) -> TimerId {
    let timer = NewTimer {
        id: TimerId(id()),
        tenant: session.tenant,
        target: TimerTarget::Send {
            session: session.session,
            input: vec![ContentPart::text("tick")],
            options: Box::default(),
        },
        rule: TimerRule::new(Schedule::After(Span(Duration::from_secs(1)))),
        armed_max: None,
    };
    let id = timer.id;
    let made = world
        .store
        .at(world.time(0))
        .create_timers(vec![(timer, None)])
        .await;
    made.expect("makes it");
    id
}

#[tokio::test]
async fn timers_of_other_sessions_fire_and_those_of_the_locked_one_stay_due() {
    with_short_locks("locked_timers", async |world| {
        let keys = sessions(world, 4).await;
        for key in &keys {
            arm(world, *key).await;
        }
        let boot = BootId(id());
        let stuck = Stuck::with(world, &keys[..1]).await;
        let begun = Instant::now();
        let fired = world
            .store
            .at(world.time(1_000))
            .fire_timers(boot, 100)
            .await;
        assert_soon(&[begun.elapsed()]);
        let fired = fired.expect("fires");
        let told: Vec<_> = fired.sends.iter().map(|send| send.key).collect();
        assert_eq!(told, keys[1..]);
        assert_eq!((fired.served, fired.more), (3, false));
        let again = world
            .store
            .at(world.time(1_001))
            .fire_timers(boot, 100)
            .await;
        assert_eq!(again.expect("answers").served, 0);
        stuck.let_go().await;
        let fired = world
            .store
            .at(world.time(1_002))
            .fire_timers(boot, 100)
            .await;
        let fired = fired.expect("fires");
        assert_eq!((fired.served, fired.sends[0].key), (1, keys[0]));
        world.assert_sound(1_002).await;
    })
    .await;
}

#[tokio::test]
async fn bad_data_of_one_costs_the_others_nothing_and_stores_nothing() {
    with_short_locks("bad_data", async |world| {
        let worker = world.boot(0).await;
        let keys = sessions(world, 3).await;
        let mut items = Vec::new();
        for key in &keys {
            world.send(1, to(*key)).await;
            let claimed = world.claim(2, worker, *key).await;
            items.push(first_round(&claimed));
        }
        // Two responses of one attempt.
        let twice = items[1].usage[0].clone();
        items[1].usage.push(twice);
        let before = world.store.dump().await.expect("dumps");
        let stored = world
            .store
            .at(world.time(3))
            .append_rounds(items.clone())
            .await;
        assert!(matches!(stored, Err(Error::Refused { .. })), "{stored:?}");
        let after = world.store.dump().await.expect("dumps");
        assert_eq!(after, before, "the caller knows that nothing is stored");
        for (n, item) in items.into_iter().enumerate() {
            let stored = world
                .store
                .at(world.time(4))
                .append_rounds(vec![item])
                .await;
            assert_eq!(stored.is_ok(), n != 1, "{stored:?}");
        }
        world.assert_sound(4).await;
    })
    .await;
}

#[tokio::test]
async fn a_send_that_was_accepted_is_not_refused_when_it_is_sent_again() {
    with_short_locks("accepted_again", async |world| {
        let key = world.session().await;
        let item = to(key);
        let boot = BootId(id());
        let then = world.store.at(world.time(1));
        let accept = || then.accept_sends(boot, vec![item.clone()]);
        let first = accept().await.expect("accepts");
        let again = accept().await.expect("is known");
        assert!(matches!(first[0], AcceptOutcome::Accepted(_)), "{first:?}");
        assert!(matches!(again[0], AcceptOutcome::Accepted(_)), "{again:?}");
        let dump = world.store.dump().await.expect("dumps");
        assert_eq!(dump.sessions[0].sends.len(), 1);
        world.assert_sound(1).await;
    })
    .await;
}

#[tokio::test]
async fn a_next_send_that_cannot_be_read_costs_its_session_alone() {
    with_short_locks("unreadable_next", async |world| {
        let worker = world.boot(0).await;
        let keys = sessions(world, 2).await;
        let mut ends = Vec::new();
        for key in &keys {
            world.send(1, to(*key)).await;
            world.send(1, to(*key)).await;
            ends.push(answer(
                &world.claim(2, worker, *key).await,
                AfterSend::Continue,
            ));
        }
        let mut raw = world.connection().await;
        sqlx::query("UPDATE sends SET usage = '7' WHERE session_id = $1 AND position = 2")
            .bind(keys[0].session.0)
            .execute(&mut raw)
            .await
            .expect("breaks it");
        let ended = world.store.at(world.time(3)).complete_sends(ends).await;
        let ended = ended.expect("answers");
        let next = |n: usize| match &ended[n] {
            CompleteOutcome::Completed(completed) => completed.next.is_some(),
            other => panic!("not completed: {other:?}"),
        };
        assert_eq!((next(0), next(1)), (false, true));
        // The worker does not work on it, so its renewal gives the lease back for another to claim.
        let renewed = world
            .store
            .at(world.time(4))
            .renew_boot(worker, crate::postgres::world::TTL, 1)
            .await;
        renewed.expect("renews");
        let owners = "SELECT count(*) FROM session_hot WHERE owner_boot IS NOT NULL";
        let owned: i64 = sqlx::query_scalar(owners)
            .fetch_one(&mut raw)
            .await
            .expect("counts");
        assert_eq!(owned, 1);
    })
    .await;
}

/// Inbox words, results and cancels for several sessions, of which the first is locked.
struct Outside {
    words: Vec<DeliverItem>,
    results: Vec<PostResult>,
    ends: Vec<(TenantId, SendId)>,
}

impl Outside {
    /// For the first of `waiting` alone, or for all the others.
    fn of(waiting: &[Claimed], n: usize) -> Self {
        let words = |held: &Claimed| words(held.key, &format!("itm_{n}"), OnBusy::Steer);
        let results = |held: &Claimed| result(held.key, &ids(held, 20)[n], "seen");
        let ends = |held: &Claimed| (held.key.tenant, held.send.record.id);
        Self {
            words: waiting.iter().map(words).collect(),
            results: waiting.iter().map(results).collect(),
            ends: waiting.iter().map(ends).collect(),
        }
    }
}

#[tokio::test]
async fn words_results_and_cancels_reach_other_sessions_at_once() {
    with_short_locks("locked_outside", async |world| {
        const ROUNDS: usize = 15;
        let boot = BootId(id());
        let mut waiting = Vec::new();
        for _ in 0..4 {
            let begins = (0..20).map(|_| outside());
            waiting.push(world.waiting(WaitingOn::Tool, begins).await.0);
        }
        let is_told = |o: &DeliverOutcome| matches!(o, DeliverOutcome::Accepted { .. });
        let is_posted = |o: &PostOutcome| matches!(o, PostOutcome::Accepted { .. });
        let is_ended = |o: &CancelOutcome| matches!(o, CancelOutcome::Cancelled { .. });
        let stuck = Stuck::with(world, &[waiting[0].key]).await;
        let mut samples = Vec::new();
        for n in 0..ROUNDS {
            let Outside { words, results, .. } = Outside::of(&waiting, n);
            let begun = Instant::now();
            let told = world
                .store
                .at(world.time(5))
                .deliver_items(boot, words)
                .await;
            samples.push(begun.elapsed());
            let told = told.expect("answers");
            assert_eq!(told[0], DeliverOutcome::Locked);
            assert!(told[1..].iter().all(is_told), "{told:?}");
            let begun = Instant::now();
            let posted = world.store.at(world.time(5)).post_results(results).await;
            samples.push(begun.elapsed());
            let posted = posted.expect("answers");
            assert_eq!(posted[0], PostOutcome::Locked);
            assert!(posted[1..].iter().all(is_posted), "{posted:?}");
        }
        let Outside { ends, .. } = Outside::of(&waiting, 0);
        let begun = Instant::now();
        let ended = world.store.at(world.time(6)).cancel_sends(boot, ends).await;
        samples.push(begun.elapsed());
        let ended = ended.expect("answers");
        assert_eq!(ended[0], CancelOutcome::Locked);
        assert!(ended[1..].iter().all(is_ended), "{ended:?}");
        assert_soon(&samples);
        stuck.let_go().await;

        // Nothing was written for the locked session; now everything is, exactly once.
        let first = &waiting[..1];
        assert_eq!(world.inbox(first[0].key, false).await, []);
        for (n, again) in [(0, false), (0, true)] {
            let Outside { words, results, .. } = Outside::of(first, n);
            let told = world.deliver(7, words).await;
            assert!(is_told(&told[0]), "{told:?}");
            let posted = world.post(7, results).await;
            assert_eq!(is_posted(&posted[0]), !again, "{posted:?}");
        }
        assert_eq!(world.inbox(first[0].key, false).await.len(), 1);
        let Outside { ends, .. } = Outside::of(first, 0);
        let ended = world.store.at(world.time(8)).cancel_sends(boot, ends).await;
        assert!(is_ended(&ended.expect("answers")[0]));
        world.assert_sound(8).await;
    })
    .await;
}

#[tokio::test]
async fn an_idempotency_key_that_is_being_taken_keeps_its_own_item_waiting() {
    with_short_locks("locked_key", async |world| {
        let boot = BootId(id());
        let keys = sessions(world, 4).await;
        for key in &keys {
            world.send(1, to(*key)).await;
        }
        let keyed = |n: usize| DeliverItem {
            idempotency: Some(IdempotencyKey {
                tenant: keys[n].tenant,
                route: "POST /v1/sends".to_owned(),
                key: format!("key_{n}"),
                body_hash: [7; 32],
            }),
            ..words(keys[n], &format!("itm_{n}"), OnBusy::Steer)
        };
        let mut other = world.connection().await;
        other.execute("BEGIN").await.expect("begins");
        let takes =
            "INSERT INTO idempotency_keys (tenant, route, key, body_hash, resource, created_at)
            VALUES ($1, 'POST /v1/sends', 'key_2', '\\x07', gen_random_uuid(), 1)";
        sqlx::query(takes)
            .bind(keys[2].tenant.0)
            .execute(&mut other)
            .await
            .expect("takes it");
        let items = (0..keys.len()).map(keyed).collect();
        let told = world
            .store
            .at(world.time(2))
            .deliver_items(boot, items)
            .await;
        let told = told.expect("answers");
        for (n, outcome) in told.iter().enumerate() {
            let is_locked = *outcome == DeliverOutcome::Locked;
            assert_eq!(is_locked, n == 2, "{n}: {outcome:?}");
        }
        other.execute("ROLLBACK").await.expect("ends");
        let told = world.deliver(3, vec![keyed(2)]).await;
        assert!(
            matches!(told[0], DeliverOutcome::Accepted { .. }),
            "{told:?}"
        );
        world.assert_sound(3).await;
    })
    .await;
}
