//! Delays, retries, deadlines, and the other sweeps.

use std::time::Duration;

use mainspring_shared::agent::{Priority, SendOptions};
use mainspring_shared::error::Code;
use mainspring_shared::id::BootId;
use mainspring_shared::send::{SendStatus, StopReason, WaitingOn};
use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, AlarmSweep, ClaimOutcome, IdempotencyKey, ParkSend, ParkUntil,
    SweepReady, Then,
};
use mainspring_shared::time::Span;

use crate::world::{TENANT, World, answer, id, to, totals, with_world};

fn secs(secs: u64) -> Span {
    Span(Duration::from_secs(secs))
}

fn with_options(item: AcceptSend, options: SendOptions) -> AcceptSend {
    AcceptSend { options, ..item }
}

async fn sweep(world: &World, at: i64) -> AlarmSweep {
    let swept = world.store.sweep_alarms(world.at(at), BootId(id()), 10);
    swept.await.expect("sweeps")
}

#[tokio::test]
async fn a_delayed_send_gets_its_place_when_it_is_due() {
    with_world("delayed", async |world| {
        let key = world.session().await;
        let options = SendOptions {
            delay: Some(secs(5)),
            deadline: Some(secs(60)),
            priority: Priority::Low,
            ..SendOptions::default()
        };
        let (delayed, _) = world.send(0, with_options(to(key), options)).await;
        let early = sweep(world, 4_999).await;
        assert_eq!((early.served, early.next_alarm_at), (0, world.at(5_000)));
        let due = sweep(world, 5_000).await;
        assert_eq!((due.served, due.next_alarm_at), (1, world.at(60_000)));
        assert_eq!(due.ring.len(), 1);
        assert_eq!(due.ring[0].priority, Priority::Low);
        let record = world.record(delayed).await;
        assert_eq!(
            (record.position, record.alarm_at),
            (Some(1), world.at(60_000))
        );
        world.assert_sound(5_000).await;
        let worker = world.boot(5_000).await;
        let claimed = world.claim(5_001, worker, key).await;
        world
            .complete(5_002, answer(&claimed, Then::Continue))
            .await;
        let after = sweep(world, 60_000).await;
        assert_eq!((after.served, after.next_alarm_at), (0, None));
    })
    .await;
}

#[tokio::test]
async fn a_parked_retry_is_ready_when_it_is_due_and_resumes() {
    with_world("retry", async |world| {
        let worker = world.boot(0).await;
        let key = world.session().await;
        let (send, _) = world.send(0, to(key)).await;
        let claimed = world.claim(1, worker, key).await;
        let park = ParkSend {
            key,
            lease: claimed.lease,
            send_id: send,
            on: WaitingOn::Retry,
            until: ParkUntil::After(Duration::from_secs(6)),
            unless: 0,
            usage: Vec::new(),
            totals: totals(0),
        };
        world
            .store
            .park_sends(world.at(2), vec![park])
            .await
            .expect("parks");
        assert_eq!(sweep(world, 6_001).await.served, 0);
        let due = sweep(world, 6_002).await;
        assert_eq!(
            (due.served, due.ring.len(), due.next_alarm_at),
            (1, 1, None)
        );
        world.assert_sound(6_002).await;
        // An accept between the wake-up and the claim disturbs neither.
        let (_, accepted) = world.send(6_003, to(key)).await;
        assert_eq!(accepted.ring, None);
        let again = world.claim(6_004, worker, key).await;
        assert_eq!((again.send.record.id, again.counters.pending), (send, 1));
        assert!(again.send.resumed.is_some());
        let steps = world.store.read_steps(key, 0, 10).await.expect("reads");
        let last = steps.last().expect("steps");
        assert_eq!(last.refs.reason.as_deref(), Some("retry"));
        world.complete(6_005, answer(&again, Then::Continue)).await;
        world.assert_sound(6_005).await;
    })
    .await;
}

#[tokio::test]
async fn deadlines_end_what_nobody_runs_and_leave_the_rest_to_its_worker() {
    with_world("deadline", async |world| {
        let worker = world.boot(0).await;
        let options = || SendOptions {
            deadline: Some(secs(5)),
            ..SendOptions::default()
        };
        let (running, waiting) = (world.session().await, world.session().await);
        let (runs, _) = world.send(0, with_options(to(running), options())).await;
        let (queued, _) = world.send(0, with_options(to(running), options())).await;
        let (waits, _) = world.send(0, with_options(to(waiting), options())).await;
        world.claim(1, worker, running).await;
        let claimed = world.claim(1, worker, waiting).await;
        let park = ParkSend {
            key: waiting,
            lease: claimed.lease,
            send_id: waits,
            on: WaitingOn::Retry,
            until: ParkUntil::After(Duration::from_mins(1)),
            unless: 0,
            usage: Vec::new(),
            totals: totals(0),
        };
        world
            .store
            .park_sends(world.at(2), vec![park])
            .await
            .expect("parks");
        let swept = sweep(world, 5_000).await;
        assert_eq!(swept.served, 3);
        let mut finished: Vec<_> = swept.finished.iter().map(|(_, id, _)| *id).collect();
        finished.sort();
        assert_eq!(finished, [queued, waits]);
        for id in [queued, waits] {
            let record = world.record(id).await;
            assert_eq!(record.status, SendStatus::Failed);
            assert_eq!(record.stop_reason, Some(StopReason::Deadline));
            assert_eq!(record.error.expect("says why").code, Code::SendDeadline);
        }
        let record = world.record(runs).await;
        assert_eq!(
            (record.status, record.alarm_at),
            // When nobody may hold its lease any more.
            (SendStatus::Running, world.at(10_001))
        );
        let dump = world.store.dump().await.expect("dumps");
        let messages: Vec<_> = dump.sessions.iter().map(|s| s.messages.len()).collect();
        assert_eq!(messages, [0, 1], "only the started one was said");
        world.assert_sound(5_000).await;
    })
    .await;
}

#[tokio::test]
async fn the_ready_sweep_goes_through_everything_once() {
    with_world("sweep_ready", async |world| {
        let worker = world.boot(0).await;
        let mut keys = Vec::new();
        for n in 0..7 {
            let key = world.session().await;
            world.send(n, to(key)).await;
            keys.push(key);
        }
        world.claim(100, worker, keys[2]).await;
        let mut query = SweepReady {
            pool: None,
            older_than_ms: 0,
            after: None,
            limit: 2,
        };
        let mut seen = Vec::new();
        loop {
            let swept = world.store.sweep_ready(world.at(100), query.clone()).await;
            let swept = swept.expect("sweeps");
            seen.extend(swept.sessions.iter().map(|ready| ready.key));
            query.after = swept.next;
            if query.after.is_none() {
                break;
            }
        }
        keys.remove(2);
        assert_eq!(seen, keys);
        let stats = world
            .store
            .queue_stats(world.at(100))
            .await
            .expect("counts");
        assert_eq!((stats[0].ready, stats[0].running), (6, 1));
        assert_eq!(stats[0].oldest_ready_ms, 100);
        let scaling = world.store.scaling(world.at(100), "default").await;
        assert_eq!(scaling.expect("counts").demand, 7);
        let other = world.store.scaling(world.at(100), "other").await;
        assert_eq!(other.expect("counts").demand, 0);
        query.older_than_ms = 98;
        query.limit = 10;
        let old = world
            .store
            .sweep_ready(world.at(100), query)
            .await
            .expect("sweeps");
        assert_eq!(old.sessions.len(), 2, "of three, one is held");
    })
    .await;
}

#[tokio::test]
async fn retention_forgets_old_keys_and_boots_that_own_nothing() {
    with_world("retention", async |world| {
        let (gone, owner) = (world.boot(0).await, world.boot(0).await);
        let key = world.session().await;
        let item = || AcceptSend {
            idempotency: Some(IdempotencyKey {
                tenant: TENANT,
                route: "r".to_owned(),
                key: "k".to_owned(),
                body_hash: [0; 32],
            }),
            ..to(key)
        };
        world.send(0, item()).await;
        world.claim(1, owner, key).await;
        let keep = Duration::from_secs(100);
        let early = world.store.sweep_retention(world.at(50_000), keep).await;
        assert_eq!(early.expect("sweeps"), 0);
        let late = world.store.sweep_retention(world.at(200_000), keep).await;
        assert_eq!(late.expect("sweeps"), 2);
        let dump = world.store.dump().await.expect("dumps");
        let boots: Vec<_> = dump.boots.iter().map(|boot| boot.id).collect();
        assert_eq!(boots, [owner]);
        assert_ne!(owner, gone);
        let again = world.accept(200_001, vec![item()]).await;
        assert!(matches!(again[..], [AcceptOutcome::Accepted(_)]));
        let other = world.boot(200_001).await;
        let taken = world.try_claim(200_002, other, key).await;
        assert!(matches!(taken, ClaimOutcome::Claimed(_)));
        world.assert_sound(200_003).await;
    })
    .await;
}
