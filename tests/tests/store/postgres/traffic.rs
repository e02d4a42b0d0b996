//! Many concurrent callers on few sessions.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use mainspring_shared::agent::{OnBusy, SendOptions};
use mainspring_shared::id::{BootId, SendId, SessionKey};
use mainspring_shared::send::SendStatus;
use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, AfterSend, ClaimOutcome, CompleteOutcome, Inspect as _, ParkSend,
    ParkUntil, ReleaseLoss, ReleaseSession, SweepReady,
};

use crate::postgres::world::{
    TENANT, World, answer, cold, first_round, id, in_second_round, to, totals, with_world,
};

const SENDS: usize = 400;

/// Accepts until all are stored, in groups over all sessions; cancels some.
async fn accept(world: &World, keys: &[SessionKey], left: &AtomicUsize) -> Vec<SendId> {
    let mut ids = Vec::new();
    let boot = BootId(id());
    while left
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(4))
        .is_ok()
    {
        let items = (0..4).map(|n| {
            let turn = ids.len() + n;
            let mut item = to(keys[turn % keys.len()]);
            if turn % 7 == 0 {
                item.options = SendOptions {
                    on_busy: OnBusy::Reject,
                    ..SendOptions::default()
                };
            }
            item
        });
        let items: Vec<AcceptSend> = items.collect();
        let asked: Vec<SendId> = items.iter().map(|item| item.id).collect();
        let outcomes = world.store.accept_sends(boot, items).await;
        let outcomes = outcomes.expect("accepts");
        for (id, outcome) in asked.into_iter().zip(outcomes) {
            match outcome {
                AcceptOutcome::Accepted(_) => ids.push(id),
                AcceptOutcome::Refused(_) => {
                    left.fetch_add(1, Ordering::Relaxed);
                }
                other => panic!("{other:?}"),
            }
        }
        if ids.len() % 5 == 0
            && let Some(last) = ids.last()
        {
            let cancelled = world.store.cancel_sends(boot, vec![(TENANT, *last)]);
            cancelled.await.expect("cancels");
        }
        // Fewer sends may be left than make a group; they are not worth another one.
        if left.load(Ordering::Relaxed) < 4 {
            break;
        }
    }
    ids
}

/// Claims and works until every send is final: completes, appends, parks or gives back, in turn.
async fn work(world: &World, keys: &[SessionKey], done: &AtomicUsize) {
    let boot = world.boot_now().await;
    let mut turn = 0;
    while done.load(Ordering::Relaxed) == 0 {
        let items = keys.iter().map(|key| cold(*key)).collect();
        let claimed = world.store.claim_sessions(boot, items).await;
        for outcome in claimed.expect("claims") {
            let ClaimOutcome::Claimed(mut claimed) = outcome else {
                continue;
            };
            loop {
                turn += 1;
                if turn % 11 == 0 {
                    let lease = claimed.lease;
                    let key = claimed.key;
                    let release = ReleaseSession {
                        key,
                        lease,
                        lost: ReleaseLoss::Nothing,
                    };
                    let released = world.store.release_sessions(vec![release]).await;
                    assert_eq!(released.expect("answers"), [true]);
                    break;
                }
                if turn % 13 == 0 {
                    let park = ParkSend {
                        key: claimed.key,
                        lease: claimed.lease,
                        send_id: claimed.send.record.id,
                        on: mainspring_shared::send::WaitingOn::Retry,
                        until: ParkUntil::After(std::time::Duration::ZERO),
                        unless: 0,
                        usage: Vec::new(),
                        totals: totals(claimed.send.record.rounds),
                    };
                    world.store.park_sends(vec![park]).await.expect("parks");
                    break;
                }
                let began = claimed.send.record.rounds > 0;
                let mut last = answer(&claimed, AfterSend::Continue);
                if turn % 3 == 0 && !began {
                    let round = first_round(&claimed);
                    let appended = world.store.append_rounds(vec![round]).await;
                    appended.expect("appends");
                    claimed.lease.write += 1;
                    last.lease = claimed.lease;
                }
                if turn % 3 == 0 || began {
                    last.messages.remove(0);
                    last.messages[0].round = 1;
                    in_second_round(&mut last);
                }
                if turn % 5 == 0 {
                    last.then = AfterSend::Release;
                }
                let completed = world.store.complete_sends(vec![last]).await;
                match completed.expect("completes").remove(0) {
                    CompleteOutcome::Completed(completed) => match completed.next {
                        Some((next, counters)) => {
                            claimed.send = next;
                            claimed.lease.write += 1;
                            claimed.counters = counters;
                        }
                        None => break,
                    },
                    other @ (CompleteOutcome::Undelivered
                    | CompleteOutcome::LeaseLost
                    | CompleteOutcome::Locked) => {
                        panic!("nobody takes leases of live boots: {other:?}")
                    }
                }
            }
        }
        world.store.sweep_alarms(boot, 100).await.expect("sweeps");
    }
}

async fn watch(world: &World, ids: &[SendId], done: &AtomicUsize) {
    loop {
        let asked = ids.iter().map(|id| (TENANT, *id)).collect();
        let sends = world.store.get_sends(asked).await.expect("reads");
        if sends.iter().flatten().all(|send| send.status.is_final()) {
            break;
        }
        tokio::task::yield_now().await;
    }
    done.store(1, Ordering::Relaxed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_accept_claim_cancel_and_complete_on_few_sessions() {
    with_world("traffic", async |world| {
        let mut keys = Vec::new();
        for _ in 0..6 {
            keys.push(world.session().await);
        }
        let (left, done) = (AtomicUsize::new(SENDS), AtomicUsize::new(0));
        let accepted = futures::future::join_all((0..5).map(|_| accept(world, &keys, &left)));
        let run = async {
            let ids = accepted.await.concat();
            watch(world, &ids, &done).await;
            ids
        };
        let workers = futures::future::join_all((0..5).map(|_| work(world, &keys, &done)));
        let (ids, _) = futures::future::join(run, workers).await;
        assert!(ids.len() > SENDS / 2, "only {} were accepted", ids.len());
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
        let dump = world.store.dump().await.expect("dumps");
        let sends: Vec<_> = dump.sessions.iter().flat_map(|s| &s.sends).collect();
        assert_eq!(sends.len(), ids.len());
        let completed = sends.iter().filter(|s| s.status == SendStatus::Completed);
        assert!(completed.count() > ids.len() / 2);
        for session in &dump.sessions {
            assert_eq!((session.hot.ready_since, session.hot.owner), (None, None));
        }
        let found = world
            .store
            .audit(mainspring_shared::store::AuditOptions::default());
        assert_eq!(found.await.expect("audits"), []);
        let query = SweepReady {
            pool: None,
            older_than_ms: 0,
            after: None,
            limit: 10,
        };
        let swept = world.store.sweep_ready(query).await.expect("sweeps");
        assert_eq!(swept.sessions, []);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_granted_to_one_of_many_claimers() {
    with_world("one_grant", async |world| {
        let key = world.session().await;
        for _ in 0..20 {
            world.send(1, to(key)).await;
            let boot = world.boot_now().await;
            let claims = (0..6).map(|_| world.store.claim_sessions(boot, vec![cold(key)]));
            let outcomes = futures::future::join_all(claims).await;
            let mut granted = Vec::new();
            for outcome in outcomes {
                match outcome.expect("claims").remove(0) {
                    ClaimOutcome::Claimed(claimed) => granted.push(claimed),
                    ClaimOutcome::Busy => {}
                    ClaimOutcome::Idle | ClaimOutcome::Suspect | ClaimOutcome::Waits => {
                        panic!("it has work")
                    }
                }
            }
            assert_eq!(granted.len(), 1);
            let item = answer(&granted[0], AfterSend::Continue);
            let completed = world.store.complete_sends(vec![item]).await;
            completed.expect("completes");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_boot_is_taken_over_or_renewed_but_never_both() {
    with_world("renew_race", async |world| {
        for round in 0..20 {
            let at = round * 100_000;
            let (old, new) = (world.boot(at).await, world.boot(at + 50_000).await);
            let key = world.session().await;
            world.send(at, to(key)).await;
            world.claim(at + 1, old, key).await;
            let then = world.store.at(world.time(at + 50_000));
            let renew = then.renew_boot(old, crate::postgres::world::TTL, 0);
            let claim = world.try_claim(at + 50_000, new, key);
            let (renewed, claimed) = futures::future::join(renew, claim).await;
            let is_dead = renewed.expect("answers") == mainspring_shared::store::Renewal::Dead;
            let is_taken = matches!(claimed, ClaimOutcome::Claimed(_));
            assert_eq!(is_dead, is_taken, "{claimed:?}");
        }
    })
    .await;
}
