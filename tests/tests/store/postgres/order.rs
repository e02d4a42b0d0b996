//! Operations that lock several sessions lock them in the same order.

use mainspring_shared::agent::OnBusy;
use mainspring_shared::id::{BootId, RunId, RunKey, SendId, SessionKey};
use mainspring_shared::message::ContentPart;
use mainspring_shared::send::WaitingOn;
use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{
    AdvanceOutcome, AdvanceRun, AfterSend, ClaimOutcome, ClaimRuns, Inspect as _, NewRun,
    RunReport, RunWords,
};
use mainspring_shared::workflow::run::{DSL_VERSION, RunOptions, RunRecord, RunStatus};
use serde_json::json;
use sqlx::{Connection, Executor, PgConnection, Row};

use crate::postgres::tools::{park_on, words};
use crate::postgres::world::{TENANT, World, answer, cold, first_round, id, to, with_world};

fn run_key(n: u128) -> RunKey {
    RunKey {
        tenant: TENANT,
        run: RunId(uuid::Uuid::from_u128(0xf00 + n)),
    }
}

/// Creates runs and claims them for a process.
async fn runs(world: &World, boot: BootId, count: u128) -> Vec<RunRecord> {
    let new = |n| NewRun {
        key: run_key(n),
        name: "run".to_owned(),
        spec: json!({ "name": "run", "root": {} }),
        dsl_version: DSL_VERSION,
        input: json!(1),
        options: RunOptions::default(),
        session: None,
        reports_to: None,
        depth: 1,
        idempotency: None,
    };
    let made = world
        .store
        .at(world.time(0))
        .create_runs((0..count).map(new).collect())
        .await;
    made.expect("creates");
    let claim = ClaimRuns {
        boot,
        limit: 100,
        ends_max: 10,
        leaves_max: None,
        dsl_max: DSL_VERSION,
        aside: Vec::new(),
    };
    let claimed = world
        .store
        .at(world.time(1))
        .claim_runs(claim)
        .await
        .expect("claims");
    assert_eq!(claimed.runs.len() as u128, count);
    let keys = (0..count).map(run_key).collect();
    let found = world.store.get_runs(keys).await.expect("reads");
    found.into_iter().map(|run| run.expect("a run")).collect()
}

/// The end of a run that delivers words to a session.
fn telling(run: &RunRecord, step: i64, session: SessionKey) -> AdvanceRun {
    AdvanceRun {
        step,
        run: RunRecord {
            status: RunStatus::Running,
            alarm_at: None,
            ..run.clone()
        },
        nodes: Vec::new(),
        start: Vec::new(),
        ends: Vec::new(),
        asks: Vec::new(),
        changes: json!({}),
        report: Some(RunReport {
            session,
            call: None,
            words: Some(RunWords {
                item_id: format!("words {}", id()),
                send: SendId(id()),
                content: vec![ContentPart::text("it ended")],
                wake: true,
                ended_run: None,
            }),
        }),
        release: false,
        leaves_max: None,
    }
}

#[tokio::test]
async fn ends_of_runs_lock_all_their_sessions_in_order_first() {
    with_world("order_runs", async |world| {
        let boot = world.boot(0).await;
        let (low, high) = (world.session().await, world.session().await);
        assert!(low < high);
        let runs = runs(world, boot, 2).await;
        let items = vec![telling(&runs[0], 0, high), telling(&runs[1], 0, low)];
        let connect = || PgConnection::connect(&world.settings.url);
        let mut other = connect().await.expect("connects");
        let mut watcher = connect().await.expect("connects");
        let lock = "SELECT FROM session_hot WHERE session_id = $1 FOR UPDATE NOWAIT";
        other.execute("BEGIN").await.expect("begins");
        let locks = sqlx::query(lock).bind(low.session.0).execute(&mut other);
        locks.await.expect("locks");
        let then = world.store.at(world.time(2));
        let advance = then.advance_runs(boot, items);
        let goes_on = async {
            loop {
                let waits = watcher.fetch_one(
                    "SELECT count(*) FROM pg_stat_activity
                     WHERE datname = current_database() AND wait_event_type = 'Lock'",
                );
                let waiting: i64 = waits.await.expect("looks").get(0);
                if waiting > 0 {
                    break;
                }
            }
            // The holder of the first lock can take the second: nobody holds the second while
            // waiting for the first.
            let locks = sqlx::query(lock).bind(high.session.0).execute(&mut other);
            locks.await.expect("it is free");
            other.execute("COMMIT").await.expect("commits");
        };
        let (advanced, ()) = futures::future::join(advance, goes_on).await;
        let advanced = advanced.expect("advances");
        let is_stored = |o: &AdvanceOutcome| matches!(o, AdvanceOutcome::Advanced { .. });
        assert!(advanced.iter().all(is_stored), "{advanced:?}");
    })
    .await;
}

#[tokio::test]
async fn who_holds_a_tenants_bound_keeps_only_starts_of_leaves_waiting() {
    with_world("order_bound", async |world| {
        let boot = world.boot(0).await;
        let runs = runs(world, boot, 3).await;
        let keys = [world.session().await, world.session().await];
        let mut starts = AdvanceRun {
            report: None,
            leaves_max: Some(9),
            start: vec![to(keys[0])],
            ..telling(&runs[0], 0, keys[0])
        };
        starts.run.counts.live = 1;
        let unbounded = AdvanceRun {
            report: None,
            start: vec![to(keys[1])],
            ..telling(&runs[1], 0, keys[1])
        };
        let items = vec![starts, unbounded, telling(&runs[2], 0, keys[1])];
        let mut other = world.connection().await;
        other.execute("BEGIN").await.expect("begins");
        sqlx::query("SELECT pg_advisory_xact_lock(7221, $1)")
            .bind(TENANT.0)
            .execute(&mut other)
            .await
            .expect("locks");
        let lock_timeout = world.settings.lock_timeout;
        let begun = tokio::time::Instant::now();
        let advanced = world
            .store
            .at(world.time(2))
            .advance_runs(boot, items.clone())
            .await;
        let advanced = advanced.expect("answers");
        // The lock timeout was spent only once.
        assert!(begun.elapsed() < lock_timeout * 2, "{:?}", begun.elapsed());
        assert_eq!(advanced[0], AdvanceOutcome::Locked);
        let is_stored = |o: &AdvanceOutcome| matches!(o, AdvanceOutcome::Advanced { .. });
        assert!(advanced[1..].iter().all(is_stored), "{advanced:?}");
        other.execute("ROLLBACK").await.expect("ends");
        let advanced = world
            .store
            .at(world.time(3))
            .advance_runs(boot, items[..1].to_vec())
            .await;
        let advanced = advanced.expect("answers");
        assert!(is_stored(&advanced[0]), "{advanced:?}");
    })
    .await;
}

/// The same things in a different order each turn.
fn shuffled<T: Clone>(things: &[T], turn: usize) -> Vec<T> {
    let mut things = things.to_vec();
    let count = things.len();
    for n in (1..count).rev() {
        things.swap(n, (turn * 31 + n * 17) % (n + 1));
    }
    // There is nothing to rotate when others hold everything.
    things.rotate_left(turn % count.max(1));
    things
}

/// Claims whatever is ready and does something with each session, in groups.
async fn work(world: &World, keys: &[SessionKey], turn: usize) {
    let worker = world.boot_now().await;
    let items = shuffled(keys, turn).into_iter().map(cold).collect();
    let claimed = world.store.claim_sessions(worker, items).await;
    let held = claimed.expect("claims").into_iter();
    let held: Vec<_> = held
        .filter_map(|outcome| match outcome {
            ClaimOutcome::Claimed(claimed) => Some(*claimed),
            ClaimOutcome::Busy
            | ClaimOutcome::Idle
            | ClaimOutcome::Suspect
            | ClaimOutcome::Waits => None,
        })
        .collect();
    let held = shuffled(&held, turn);
    let (fresh, begun): (Vec<_>, Vec<_>) =
        held.into_iter().partition(|c| c.send.record.rounds == 0);
    let third = fresh.len() / 3;
    let rounds = fresh[..third].iter().map(first_round).collect();
    let ends = fresh[third..2 * third].iter();
    let ends = ends.map(|c| answer(c, AfterSend::Continue)).collect();
    let parks = fresh[2 * third..].iter();
    let parks = parks.map(|c| park_on(c, WaitingOn::Retry)).collect();
    let (rounds, ends, parks) = futures::future::join3(
        world.store.append_rounds(rounds),
        world.store.complete_sends(ends),
        world.store.park_sends(parks),
    )
    .await;
    rounds.expect("stores");
    ends.expect("ends");
    parks.expect("parks");
    drop(begun);
    world.store.stop_boot(worker).await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_writes_to_several_sessions_meets_in_a_deadlock() {
    with_world("order_all", async |world| {
        const TURNS: usize = 30;
        let mut raw = world.connection().await;
        let name: String = raw
            .fetch_one("SELECT current_database()::text")
            .await
            .expect("says its name")
            .get(0);
        // Detect deadlocks at once, before anyone's lock timeout expires.
        let soon = format!("ALTER DATABASE {name} SET deadlock_timeout = '10ms'");
        raw.execute(sqlx::AssertSqlSafe(soon))
            .await
            .expect("is set");
        let world = &world.another().await;
        let boot = world.boot_now().await;
        let mut keys = Vec::new();
        for _ in 0..8 {
            keys.push(world.session().await);
        }
        let runs = runs(world, boot, 6).await;
        let accepts = async {
            for turn in 0..TURNS {
                let items = shuffled(&keys, turn).into_iter().map(to).collect();
                world
                    .store
                    .accept_sends(boot, items)
                    .await
                    .expect("accepts");
            }
        };
        let delivers = async {
            for turn in 0..TURNS {
                let modes = [OnBusy::Steer, OnBusy::Interrupt, OnBusy::Coalesce];
                let items = shuffled(&keys, turn + 3).into_iter();
                let items = items.map(|key| words(key, &id().to_string(), modes[turn % 3]));
                let told = world.store.deliver_items(boot, items.collect()).await;
                told.expect("delivers");
            }
        };
        let works = async {
            for turn in 0..TURNS {
                work(world, &keys, turn + 5).await;
            }
        };
        let cancels = async {
            for turn in 0..TURNS {
                let dump = world.store.dump().await.expect("dumps");
                let open = dump
                    .sessions
                    .iter()
                    .filter_map(|session| session.sends.last());
                let ids: Vec<_> = open.map(|send| (TENANT, send.id)).collect();
                if ids.is_empty() {
                    continue;
                }
                let ids = shuffled(&ids, turn + 7);
                world.store.cancel_sends(boot, ids).await.expect("cancels");
                world.store.sweep_alarms(boot, 100).await.expect("sweeps");
                world
                    .store
                    .report_children(None, 100)
                    .await
                    .expect("reports");
                world.store.fire_timers(boot, 100).await.expect("fires");
            }
        };
        let advances = async {
            for turn in 0..TURNS {
                let told = shuffled(&keys, turn + 11);
                let items = runs.iter().zip(told);
                let items = items.map(|(run, key)| telling(run, turn as i64, key));
                let items = shuffled(&items.collect::<Vec<_>>(), turn);
                let advanced = world.store.advance_runs(boot, items).await;
                advanced.expect("advances");
            }
        };
        futures::future::join5(accepts, delivers, works, cancels, advances).await;
        world.store.close().await;
        // A server process reports its counters at the latest when it ends.
        let ends = "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid()";
        raw.fetch_one(ends).await.expect("they end");
        let counted = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
        let deadlocks: i64 = raw.fetch_one(counted).await.expect("counts").get(0);
        assert_eq!(deadlocks, 0);
    })
    .await;
}
