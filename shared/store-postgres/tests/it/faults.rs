//! Connections that break, answers that get lost.

use mainspring_shared::store::{
    AcceptOutcome, ClaimOutcome, CompleteOutcome, ReleaseSession, Store, Then,
};
use sqlx::{Connection, Executor, PgConnection};

use crate::world::{World, answer, cold, first_round, to, with_world};

/// Breaks every connection of the store, as a restart of the server does.
async fn break_connections(world: &World) {
    let mut connection = PgConnection::connect(&world.settings.url)
        .await
        .expect("connects");
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
            // Fills the pools with connections that are about to break.
            let reads = (0..8).map(|_| world.store.get_session(key));
            futures::future::join_all(reads).await;
            break_connections(world).await;
            let accepted = world.accept(turn, vec![to(key)]).await;
            assert!(
                matches!(accepted[..], [AcceptOutcome::Accepted(_)]),
                "{accepted:?}"
            );
            break_connections(world).await;
            let claimed = world
                .store
                .claim_sessions(None, worker, vec![cold(key)])
                .await;
            let ClaimOutcome::Claimed(claimed) = claimed.expect("claims").remove(0) else {
                panic!("not claimed");
            };
            break_connections(world).await;
            let round = world
                .store
                .append_rounds(None, vec![first_round(&claimed)])
                .await;
            assert!(matches!(
                round.expect("appends")[..],
                [mainspring_shared::store::AppendOutcome::Appended { .. }]
            ));
            break_connections(world).await;
            let mut last = answer(&claimed, Then::Continue);
            last.messages.remove(0);
            last.messages[0].round = 1;
            last.usage[0].round = 1;
            let done = world.store.complete_sends(None, vec![last]).await;
            assert!(matches!(
                done.expect("completes")[..],
                [CompleteOutcome::Completed(_)]
            ));
            break_connections(world).await;
            assert_eq!(world.store.check().await.expect("is there").schema, 1);
            break_connections(world).await;
            world.store.dump().await.expect("dumps");
        }
        let found = world
            .store
            .audit(None, mainspring_shared::store::AuditOptions::default());
        assert_eq!(found.await.expect("audits"), []);
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
                    .accept_sends(None, worker, vec![item])
                    .await
                    .map(|mut outcomes| outcomes.remove(0));
                match accepted {
                    Ok(AcceptOutcome::Accepted(_)) => stored += 1,
                    Ok(other) => panic!("{other:?}"),
                    // It broke more often than the store tries; the send is there or is not.
                    Err(_) => {
                        let there = loop {
                            let asked = vec![(crate::world::TENANT, id)];
                            if let Ok(mut sends) = world.store.get_sends(asked).await {
                                break sends.remove(0).is_some();
                            }
                        };
                        stored += usize::from(there);
                    }
                }
                let claimed = world
                    .store
                    .claim_sessions(None, worker, vec![cold(key)])
                    .await;
                let Ok(claimed) = claimed else {
                    continue;
                };
                if let [ClaimOutcome::Claimed(claimed)] = &claimed[..] {
                    let mut item = answer(claimed, Then::Release);
                    if turn % 4 == 0 {
                        let release = ReleaseSession {
                            key,
                            lease: claimed.lease,
                        };
                        let released = world.store.release_sessions(None, vec![release]).await;
                        if released.is_ok() {
                            continue;
                        }
                    }
                    // Its worker goes on until it knows: the send is final, or the lease is gone.
                    while world
                        .store
                        .complete_sends(None, vec![item.clone()])
                        .await
                        .is_err()
                    {
                        item.then = Then::Release;
                    }
                }
            }
        };
        while_breaking(world, work).await;
        let dump = world.store.dump().await.expect("dumps");
        assert_eq!(dump.sessions[0].sends.len(), stored);
        let found = world
            .store
            .audit(None, mainspring_shared::store::AuditOptions::default());
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
        // The grant is made, but the window cannot be read: the claim fails after its commit.
        let mut connection = PgConnection::connect(&world.settings.url)
            .await
            .expect("connects");
        connection
            .execute("UPDATE session_hot SET next_seq = 2")
            .await
            .expect("pretends that there are messages");
        connection
            .execute("ALTER TABLE messages RENAME TO hidden")
            .await
            .expect("hides the messages");
        let failed = world
            .store
            .claim_sessions(None, worker, vec![cold(key)])
            .await;
        assert!(failed.is_err(), "{failed:?}");
        connection
            .execute("ALTER TABLE hidden RENAME TO messages")
            .await
            .expect("shows them again");
        let busy = world
            .store
            .claim_sessions(None, worker, vec![cold(key)])
            .await;
        assert_eq!(busy.expect("answers"), [ClaimOutcome::Busy]);
        let renewed = world
            .store
            .renew_boot(None, worker, crate::world::TTL, 0)
            .await;
        renewed.expect("renews");
        let again = world
            .store
            .claim_sessions(None, worker, vec![cold(key)])
            .await;
        assert!(matches!(
            again.expect("claims")[..],
            [ClaimOutcome::Claimed(_)]
        ));
    })
    .await;
}
