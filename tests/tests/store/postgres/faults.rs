//! Broken connections and lost replies.

use std::time::Duration;

use mainspring_shared::error::{Code, Coded as _};
use mainspring_shared::id::{BootId, SessionKey};
use mainspring_shared::message::{NewMessage, Role};
use mainspring_shared::send::WaitingOn;
use mainspring_shared::session::{SIGNAL_INBOX, SIGNAL_RESULT};
use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{
    AcceptOutcome, AfterSend, CallBegin, CallChange, CallStep, ClaimOutcome, CompleteOutcome,
    Error, Inspect as _, ParkOutcome, PostOutcome, ReleaseLoss, ReleaseSession,
};
use mainspring_shared::tool::CallResult;
use sqlx::Executor;

use crate::postgres::tools::{answered, asking, ids, only_calls, outside, park_on, result};
use crate::postgres::world::{
    World, answer, at_server, cold, first_round, in_second_round, to, with_world,
};

/// Breaks every connection of the store, as a restart of the server does.
async fn break_connections(world: &World) {
    let mut connection = world.connection().await;
    connection
        .execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        .await
        .expect("breaks them");
}

#[tokio::test]
async fn broken_connections_are_replaced_unnoticed() {
    with_world("broken", async |world| {
        let worker = world.boot_now().await;
        let key = world.session().await;
        for turn in 0..3 {
            // Fill the pools with connections that are about to break.
            let reads = (0..8).map(|_| world.store.get_session(key));
            futures::future::join_all(reads).await;
            break_connections(world).await;
            let accepted = world.accept(turn, vec![to(key)]).await;
            assert!(
                matches!(accepted[..], [AcceptOutcome::Accepted(_)]),
                "{accepted:?}"
            );
            break_connections(world).await;
            let claimed = world.store.claim_sessions(worker, vec![cold(key)]).await;
            let ClaimOutcome::Claimed(claimed) = claimed.expect("claims").remove(0) else {
                panic!("not claimed");
            };
            break_connections(world).await;
            let round = world.store.append_rounds(vec![first_round(&claimed)]).await;
            assert!(matches!(
                round.expect("appends")[..],
                [mainspring_shared::store::AppendOutcome::Appended { .. }]
            ));
            break_connections(world).await;
            let mut last = answer(&claimed, AfterSend::Continue);
            last.messages.remove(0);
            last.messages[0].round = 1;
            in_second_round(&mut last);
            last.lease.write = 1;
            let done = world.store.complete_sends(vec![last]).await;
            assert!(matches!(
                done.expect("completes")[..],
                [CompleteOutcome::Completed(_)]
            ));
            break_connections(world).await;
            world.store.check().await.expect("is there");
            break_connections(world).await;
            world.store.dump().await.expect("dumps");
        }
        let found = world
            .store
            .audit(mainspring_shared::store::AuditOptions::default());
        assert_eq!(found.await.expect("audits"), []);
    })
    .await;
}

#[tokio::test]
async fn a_database_that_allows_no_connections_is_unavailable_until_it_does_again() {
    with_world("closed", async |world| {
        let key = world.session().await;
        let (_, database) = world
            .settings
            .url
            .rsplit_once('/')
            .expect("the URL names a database");
        at_server(format!("ALTER DATABASE {database} ALLOW_CONNECTIONS false")).await;
        at_server(format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'"
        ))
        .await;
        // A connection may answer once more before it closes.
        let error = loop {
            if let Err(error) = world.store.get_session(key).await {
                break error;
            }
        };
        assert_eq!(error.code(), Code::StoreUnavailable, "{error:?}");
        let opened = mainspring_store_postgres::PostgresStore::open(&world.settings).await;
        let error = opened.expect_err("no connection is to be had");
        assert_eq!(error.code(), Code::StoreUnavailable, "{error:?}");
        at_server(format!("ALTER DATABASE {database} ALLOW_CONNECTIONS true")).await;
        let found = world.store.get_session(key).await;
        assert!(found.expect("connections are to be had again").is_some());
    })
    .await;
}

/// Breaks the connections again and again while `work` runs.
async fn while_breaking<T>(world: &World, work: impl Future<Output = T>) -> T {
    let breaks = async {
        loop {
            break_connections(world).await;
        }
    };
    tokio::select! {
        done = work => done,
        () = breaks => unreachable!("it has no end"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_breaks_nothing_is_lost_or_done_twice() {
    with_world("breaking", async |world| {
        let worker = world.boot_now().await;
        let key = world.session().await;
        let mut stored = 0;
        let work = async {
            for turn in 0..60 {
                let item = to(key);
                let id = item.id;
                let accepted = world
                    .store
                    .accept_sends(worker, vec![item])
                    .await
                    .map(|mut outcomes| outcomes.remove(0));
                match accepted {
                    Ok(AcceptOutcome::Accepted(_)) => stored += 1,
                    Ok(other) => panic!("{other:?}"),
                    // It broke more often than the store retries, so the send may or may not be
                    // stored.
                    Err(_) => {
                        let there = loop {
                            let asked = vec![(crate::postgres::world::TENANT, id)];
                            if let Ok(mut sends) = world.store.get_sends(asked).await {
                                break sends.remove(0).is_some();
                            }
                        };
                        stored += usize::from(there);
                    }
                }
                let claimed = world.store.claim_sessions(worker, vec![cold(key)]).await;
                let Ok(claimed) = claimed else {
                    continue;
                };
                if let [ClaimOutcome::Claimed(claimed)] = &claimed[..] {
                    let mut item = answer(claimed, AfterSend::Release);
                    if turn % 4 == 0 {
                        let release = ReleaseSession {
                            key,
                            lease: claimed.lease,
                            lost: ReleaseLoss::Nothing,
                        };
                        let released = world.store.release_sessions(vec![release]).await;
                        if released.is_ok() {
                            continue;
                        }
                    }
                    // Its worker retries until it knows: the send is final, or the lease is lost.
                    while world
                        .store
                        .complete_sends(vec![item.clone()])
                        .await
                        .is_err()
                    {
                        item.then = AfterSend::Release;
                    }
                }
            }
        };
        while_breaking(world, work).await;
        let dump = world.store.dump().await.expect("dumps");
        assert_eq!(dump.sessions[0].sends.len(), stored);
        let found = world
            .store
            .audit(mainspring_shared::store::AuditOptions::default());
        assert_eq!(found.await.expect("audits"), []);
    })
    .await;
}

#[tokio::test]
async fn a_grant_whose_claim_failed_is_given_back_with_the_next_renewal() {
    with_world("doubtful", async |world| {
        let worker = world.boot_now().await;
        let key = world.session().await;
        world.send(0, to(key)).await;
        // The grant is committed, but the window cannot be read: the claim fails after its commit.
        let mut connection = world.connection().await;
        connection
            .execute("UPDATE session_hot SET next_seq = 2")
            .await
            .expect("pretends that there are messages");
        connection
            .execute("ALTER TABLE messages RENAME TO hidden")
            .await
            .expect("hides the messages");
        let failed = world.store.claim_sessions(worker, vec![cold(key)]).await;
        assert_eq!(
            failed.expect("each item has its answer"),
            [ClaimOutcome::Busy]
        );
        connection
            .execute("ALTER TABLE hidden RENAME TO messages")
            .await
            .expect("shows them again");
        let busy = world.store.claim_sessions(worker, vec![cold(key)]).await;
        assert_eq!(busy.expect("answers"), [ClaimOutcome::Busy]);
        let renewed = world
            .store
            .renew_boot(worker, crate::postgres::world::TTL, 0)
            .await;
        renewed.expect("renews");
        // For seconds it is not asked again for what could not be read.
        let claimed = async {
            loop {
                let again = world.store.claim_sessions(worker, vec![cold(key)]).await;
                if let [ClaimOutcome::Claimed(_)] = again.expect("claims")[..] {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        let claimed = tokio::time::timeout(Duration::from_secs(20), claimed).await;
        claimed.expect("it is claimed");
    })
    .await;
}

/// Retries until there is a reply.
async fn until_answered<T, F>(ask: impl Fn() -> F) -> T
where
    F: Future<Output = mainspring_shared::store::Result<Vec<T>>>,
{
    loop {
        if let Ok(mut outcomes) = ask().await {
            return outcomes.remove(0);
        }
    }
}

/// One send with two tool calls, one of which gets its result from outside while the send is
/// parking.
async fn one_turn(world: &World, worker: BootId, key: SessionKey) {
    let store = &world.store;
    let item = to(key);
    // A retry after a failure may find the send already stored, which the database refuses.
    while !matches!(
        store.accept_sends(worker, vec![item.clone()]).await,
        Ok(_) | Err(Error::Refused { .. })
    ) {}
    let claimed = loop {
        let claim = until_answered(|| store.claim_sessions(worker, vec![cold(key)])).await;
        if let ClaimOutcome::Claimed(claimed) = claim {
            break claimed;
        }
        // A renewal gives back the grant of a failed claim.
        let _ = store
            .renew_boot(worker, crate::postgres::world::TTL, 0)
            .await;
    };
    let calls = ids(&claimed, 2);
    let round = asking(&claimed, [CallBegin::Started, outside()]);
    while !matches!(
        store.append_rounds(vec![round.clone()]).await,
        Ok(_) | Err(Error::Refused { .. })
    ) {}
    let mut step = only_calls(&claimed);
    step.lease.write = 1;
    step.changes.push(CallChange {
        call_id: calls[0].clone(),
        change: CallStep::Settled(CallResult::text("ours")),
    });
    until_answered(|| store.append_rounds(vec![step.clone()])).await;

    let mut park = park_on(&claimed, WaitingOn::Tool);
    park.unless = SIGNAL_RESULT | SIGNAL_INBOX;
    park.lease.write = 2;
    let answer_of = result(key, &calls[1], "theirs");
    let (parked, posted) = futures::future::join(
        until_answered(|| store.park_sends(vec![park.clone()])),
        until_answered(|| store.post_results(vec![answer_of.clone()])),
    )
    .await;
    assert!(
        matches!(
            posted,
            PostOutcome::Accepted { .. } | PostOutcome::AlreadySettled
        ),
        "{posted:?}"
    );
    let claimed = if matches!(parked, ParkOutcome::Woken { .. }) {
        let mut claimed = claimed;
        claimed.lease.write = 3;
        claimed
    } else {
        // The send was parked, so the result made it ready, and a sweep finds it.
        loop {
            let claim = store.claim_sessions(worker, vec![cold(key)]).await;
            match claim.map(|mut outcomes| outcomes.remove(0)) {
                Ok(ClaimOutcome::Claimed(claimed)) => break claimed,
                Ok(ClaimOutcome::Idle | ClaimOutcome::Suspect | ClaimOutcome::Waits) => {
                    panic!("nobody wakes the send: {parked:?}")
                }
                Ok(ClaimOutcome::Busy) | Err(_) => {
                    let _ = store
                        .renew_boot(worker, crate::postgres::world::TTL, 0)
                        .await;
                }
            }
        }
    };
    let mut last = answer(&claimed, AfterSend::Release);
    last.messages = answered(&round.messages[1]);
    last.messages.push(NewMessage {
        role: Role::Assistant,
        ..NewMessage::user(Vec::new(), 1)
    });
    in_second_round(&mut last);
    until_answered(|| store.complete_sends(vec![last.clone()])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_breaks_calls_are_answered_once_and_nobody_waits_for_ever() {
    let test = with_world("breaking_calls", async |world| {
        const TURNS: usize = 12;
        let worker = world.boot_now().await;
        let key = world.session().await;
        let work = async {
            for _ in 0..TURNS {
                one_turn(world, worker, key).await;
            }
        };
        while_breaking(world, work).await;
        let dump = world.store.dump().await.expect("dumps");
        let session = &dump.sessions[0];
        assert_eq!(session.messages.len(), TURNS * 5);
        let texts = session.calls.iter().map(|call| {
            let result = call.result.as_ref().expect("is settled");
            (call.attempt, result.whole_text())
        });
        let texts: Vec<(i32, String)> = texts.collect();
        assert_eq!(texts.len(), TURNS * 2);
        for pair in texts.chunks(2) {
            assert_eq!(pair[0], (1, "ours".to_owned()));
            assert_eq!(pair[1], (0, "theirs".to_owned()));
        }
        let found = world
            .store
            .audit(mainspring_shared::store::AuditOptions::default());
        assert_eq!(found.await.expect("audits"), []);
    });
    Box::pin(test).await;
}
