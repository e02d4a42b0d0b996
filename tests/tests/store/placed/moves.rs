//! Moves of a tenant: they complete no matter where the mover died, and nothing is ever written to
//! a database where the tenant is not.

use std::collections::{BTreeMap, BTreeSet};

use mainspring_shared::id::TenantId;
use mainspring_shared::store::placements::{Elsewhere, Phase, Placements as _};
use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{AcceptOutcome, CompleteOutcome, Error, ListSessions, ReadMessages};
use mainspring_store_placed::{MoveError, Step};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, Row as _};
use tokio::runtime::Handle;
use tokio::task::block_in_place;

use crate::placed::world::{
    World, accept, answer, claim, complete, moment, new_session, to, together, with_world,
};

/// A tenant's sessions as clients see them.
async fn seen(world: &World, tenant: TenantId) -> Vec<(String, usize)> {
    let query = ListSessions {
        tenant,
        status: None,
        agent: None,
        metadata: BTreeMap::new(),
        before: None,
        limit: 100,
    };
    let sessions = world.placed.list_sessions(query).await.expect("lists").data;
    let mut seen = Vec::new();
    for session in sessions {
        let messages = ReadMessages {
            key: session.key,
            after: 0,
            limit: 100,
        };
        let messages = world.placed.read_messages(messages).await.expect("reads");
        seen.push((session.key.session.to_string(), messages.len()));
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_goes_on_from_wherever_the_one_before_was_cut_off() {
    with_world("cut_off", async |world| {
        let tenant = world.tenant("nomad").await;
        let boot = world.boot().await;
        for _ in 0..3 {
            let key = world.session(tenant).await;
            accept(&world.placed, key).await;
            complete(&world.placed, &claim(&world.placed, boot, key).await).await;
        }
        let mut before = seen(world, tenant).await;
        assert_eq!(before.len(), 3);
        let mut rows = world.rows("home", tenant).await;
        // The mover dies one step later each time, until the move completes; back and forth between
        // the databases.
        for (n, to) in ["b", "c", "home"].into_iter().enumerate() {
            let mut step = 0;
            loop {
                let mut told = 0;
                let mut last = None;
                let mut dies = |it: &Step| {
                    last = Some(it.clone());
                    told += 1;
                    told <= step
                };
                let ended = world.mover.take(tenant, to, &mut dies).await;
                match ended {
                    Ok(moved) => {
                        assert_eq!(moved.placement.place, to);
                        assert_eq!(moved.placement.phase, Phase::Settled);
                        break;
                    }
                    Err(MoveError::Stopped) => {
                        // Whatever state a dead mover leaves, clients can read everything.
                        assert_eq!(seen(world, tenant).await, before, "{last:?}");
                    }
                    Err(error) => panic!("move {n}, cut off behind {last:?}: {error}"),
                }
                step += 1;
            }
            assert!(step > 3, "it was cut off {step} times");
            assert_eq!(seen(world, tenant).await, before);
            for place in ["home", "b", "c"] {
                let expected = if place == to { rows } else { 0 };
                assert_eq!(
                    world.rows(place, tenant).await,
                    expected,
                    "{place} behind {to}"
                );
            }
            // The tenant can be used at its new place, under the lease that its worker has on every
            // database.
            let key = world.session(tenant).await;
            accept(&world.placed, key).await;
            complete(&world.placed, &claim(&world.placed, boot, key).await).await;
            before = seen(world, tenant).await;
            rows = world.rows(to, tenant).await;
        }
        world.assert_sound().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_knows_an_old_catalogue_writes_nothing_where_a_tenant_was() {
    with_world("stale", async |world| {
        let tenant = world.tenant("nomad").await;
        let stale = together(&world.stores);
        let boot = world.boot().await;
        let key = world.session(tenant).await;
        accept(&world.placed, key).await;
        let held = claim(&world.placed, boot, key).await;
        // This read makes it cache the catalogue as of now.
        assert!(stale.get_session(key).await.expect("reads").is_some());
        let mut until_drained = |step: &Step| *step != Step::Drained;
        let cut = world.mover.take(tenant, "b", &mut until_drained).await;
        assert!(matches!(cut, Err(MoveError::Stopped)), "{cut:?}");
        // The stale process is told to retry, for each kind of write; so is the worker that owns
        // the session.
        let accepted = stale
            .accept_sends(boot, vec![to(key)])
            .await
            .expect("answers");
        assert_eq!(accepted, [AcceptOutcome::Locked]);
        let ended = stale
            .complete_sends(vec![answer(&held)])
            .await
            .expect("answers");
        assert_eq!(ended, [CompleteOutcome::Locked]);
        let new = new_session(tenant);
        stale
            .create_sessions(vec![(new, None)])
            .await
            .expect_err("is refused");
        // The database itself refuses, so this does not depend on what a process knows.
        let alone = &world.stores["home"];
        let refused = alone.accept_sends(boot, vec![to(key)]).await;
        let refused = refused.expect_err("is refused");
        assert!(Elsewhere::is_cause_of(&refused));
        let moved = world.take(tenant, "b").await;
        assert!(moved.rows > 0);
        // The worker completes with the grant from before the move, under the same lease.
        let ended = stale
            .complete_sends(vec![answer(&held)])
            .await
            .expect("answers");
        assert!(
            matches!(ended[..], [CompleteOutcome::Completed(_)]),
            "{ended:?}"
        );
        accept(&stale, key).await;
        assert_eq!(alone.tenants_away().await.expect("reads"), [tenant]);
        // The session is gone from there, and none can be created.
        let gone = alone.accept_sends(boot, vec![to(key)]).await;
        let gone = gone.expect("answers");
        assert!(matches!(gone[..], [AcceptOutcome::Refused(_)]), "{gone:?}");
        let refused = alone.create_sessions(vec![(new_session(tenant), None)]);
        let refused = refused.await.expect_err("is refused");
        assert!(Elsewhere::is_cause_of(&refused));
        assert_eq!(world.rows("home", tenant).await, 0);
        world.assert_sound().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_that_has_not_arrived_can_be_given_up() {
    with_world("given_up", async |world| {
        let tenant = world.tenant("nomad").await;
        let key = world.session(tenant).await;
        let mut until_copied = |step: &Step| !matches!(step, Step::Copied(_));
        let cut = world.mover.take(tenant, "b", &mut until_copied).await;
        assert!(matches!(cut, Err(MoveError::Stopped)));
        let other = world.mover.take(tenant, "c", &mut |_| true).await;
        assert!(matches!(other, Err(MoveError::OnItsWay(_))));
        let placement = world.mover.abort(tenant).await.expect("gives up");
        assert_eq!(
            (placement.place.as_str(), placement.phase),
            ("home", Phase::Settled)
        );
        accept(&world.placed, key).await;
        assert_eq!(world.rows("b", tenant).await, 0);
        let again = world.mover.abort(tenant).await;
        assert!(matches!(again, Err(MoveError::NotMoving(_))), "{again:?}");
        // A new move can be started, to another database and to the same one.
        let mut until_arrived = |step: &Step| *step != Step::Arrived;
        let cut = world.mover.take(tenant, "c", &mut until_arrived).await;
        assert!(matches!(cut, Err(MoveError::Stopped)), "{cut:?}");
        let late = world.mover.abort(tenant).await;
        assert!(matches!(late, Err(MoveError::TooLate)), "{late:?}");
        world.take(tenant, "c").await;
        world.take(tenant, "b").await;
        accept(&world.placed, key).await;
        let none = world.mover.abort(tenant).await;
        assert!(matches!(none, Err(MoveError::NotMoving(_))), "{none:?}");
        accept(&world.placed, key).await;
        assert!(world.rows("b", tenant).await > 0);
        world.assert_sound().await;
    })
    .await;
}

/// What others do to a move whose mover is suspended after its first step.
#[derive(Debug, Clone, Copy)]
enum Meanwhile {
    GivenUp,
    Finished,
    MovedBack,
}

async fn meanwhile(world: &World, tenant: TenantId, what: Meanwhile) {
    match what {
        Meanwhile::GivenUp => {
            world.mover.abort(tenant).await.expect("gives up");
        }
        Meanwhile::Finished => {
            world.take(tenant, "b").await;
        }
        Meanwhile::MovedBack => {
            world.take(tenant, "b").await;
            world.take(tenant, "home").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mover_that_is_late_leaves_no_tenant_without_writes() {
    with_world("late", async |world| {
        let tenant = world.tenant("nomad").await;
        let key = world.session(tenant).await;
        for what in [
            Meanwhile::GivenUp,
            Meanwhile::Finished,
            Meanwhile::MovedBack,
        ] {
            let mut stands_still = |step: &Step| {
                if *step == Step::Begun {
                    // Block the thread, as in a process that is suspended.
                    block_in_place(|| Handle::current().block_on(meanwhile(world, tenant, what)));
                }
                true
            };
            let late = world.mover.take(tenant, "b", &mut stands_still).await;
            assert!(
                matches!(late, Err(MoveError::Contended)),
                "{what:?}: {late:?}"
            );
            accept(&world.placed, key).await;
            world.take(tenant, "home").await;
        }
        // The mover dies before it checks again: moving the tenant to where it already is unblocks
        // writes.
        let row = world.mover.placement(tenant).await.expect("reads");
        let row = row.expect("has moved");
        let (home, boot) = (&world.stores["home"], world.boot().await);
        let closed = home.leave(tenant, row.began, false).await;
        closed.expect("is refused from now on");
        let refused = home.accept_sends(boot, vec![to(key)]).await;
        let refused = refused.expect_err("is refused");
        assert!(Elsewhere::is_cause_of(&refused));
        world.take(tenant, "home").await;
        accept(&world.placed, key).await;
        // An old mover cannot unblock what a later move has blocked.
        world.take(tenant, "c").await;
        let opened = home.arrive(tenant, row.began).await;
        opened.expect("is too late");
        assert_eq!(home.tenants_away().await.expect("reads"), [tenant]);
        accept(&world.placed, key).await;
        world.assert_sound().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_column_that_only_one_database_has_is_named_and_the_tenant_stays() {
    with_world("columns", async |world| {
        let tenant = world.tenant("nomad").await;
        let key = world.session(tenant).await;
        let mut connection = PgConnection::connect(&world.urls[0])
            .await
            .expect("connects");
        let add = "ALTER TABLE sessions ADD COLUMN of_later TEXT";
        connection.execute(add).await.expect("adds");
        connection.close().await.expect("closes");
        match world.mover.take(tenant, "b", &mut |_| true).await {
            Err(MoveError::Store(Error::Refused { source })) => {
                let said = source.to_string();
                assert!(said.contains(r#""of_later" of sessions"#), "{said}");
            }
            other => panic!("not refused: {other:?}"),
        }
        accept(&world.placed, key).await;
        assert_eq!(world.rows("b", tenant).await, 0);
    })
    .await;
}

/// Tables that do not move with a tenant: they are at home, on every database, or about databases.
const STAYS: [&str; 7] = [
    "api_keys",
    "idempotency_keys",
    "pauses",
    "placements",
    "provider_keys",
    "tenants",
    "tenants_away",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_table_with_rows_of_tenants_refuses_those_that_are_away() {
    with_world("tables", async |world| {
        let mut connection = PgConnection::connect(&world.urls[0])
            .await
            .expect("connects");
        let mut names = async |query: &'static str| {
            let rows = connection.fetch_all(query).await.expect("lists");
            let names = rows.iter().map(|row| row.get::<String, _>(0));
            names.collect::<BTreeSet<String>>()
        };
        let of_tenants = "SELECT c.table_name::text FROM information_schema.columns c
             WHERE c.table_schema = 'public' AND c.column_name = 'tenant'";
        let mut expected = names(of_tenants).await;
        for table in STAYS {
            assert!(expected.remove(table), "there is no table {table}");
        }
        let fenced = "SELECT t.tgrelid::regclass::text FROM pg_trigger t
             WHERE t.tgname LIKE 'mainspring_fence_%'
             GROUP BY t.tgrelid HAVING count(*) = 3";
        assert_eq!(names(fenced).await, expected);
        connection.close().await.expect("closes");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_being_written_when_a_move_began_goes_along() {
    with_world("drained", async |world| {
        let tenant = world.tenant("nomad").await;
        let key = world.session(tenant).await;
        let mut connection = PgConnection::connect(&world.urls[0])
            .await
            .expect("connects");
        let mut tx = connection.begin().await.expect("begins");
        let late = format!(
            "UPDATE sessions SET updated_at = 77 WHERE session_id = '{}'",
            key.session.0
        );
        tx.execute(AssertSqlSafe(late)).await.expect("writes");
        let (told, mut steps) = tokio::sync::mpsc::unbounded_channel();
        let mut watch = |step: &Step| told.send(step.clone()).is_ok();
        let moving = world.mover.take(tenant, "b", &mut watch);
        let ends = async {
            while steps.recv().await != Some(Step::Frozen) {}
            moment().await;
            assert!(steps.try_recv().is_err(), "it is waited for");
            tx.commit().await.expect("commits");
        };
        let (moved, ()) = tokio::join!(moving, ends);
        moved.expect("moves");
        let session = world.placed.get_session(key).await.expect("reads");
        assert_eq!(session.expect("is there").updated_at.0, 77);
    })
    .await;
}
