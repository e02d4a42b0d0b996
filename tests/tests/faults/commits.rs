//! A connection breaks while its statement waits for a lock: the statement continues in the server,
//! after its client has checked whether it took effect and found nothing. Each step still gets the
//! correct outcome, and is done once.

use std::fs::File;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::FutureExt as _;
use mainspring_benches::servers::Postgres;
use mainspring_shared::store::{
    AcceptOutcome, AfterSend, AppendOutcome, AuditOptions, CallBegin, CancelOutcome, ClaimOutcome,
    CompleteOutcome, Dump, IdempotencyKey, Inspect as _, ParkOutcome, ParkUntil,
};
use mainspring_shared::{id::TenantId, send::WaitingOn};
use mainspring_store_postgres::{PostgresStore, Settings};
use mainspring_tests::faults::{Cut, Proxy, RowLock, beside, blocking, pause, say, skipped};
use mainspring_tests::suites::store::prelude::*;
use mainspring_tests::suites::store::writes::{WRITES, Write, once_done};

/// Fields are dropped in order: connections before their servers.
struct World {
    store: PostgresStore,
    proxy: Proxy,
    postgres: Postgres,
    _turn: File,
}

impl World {
    async fn start() -> Result<Option<Self>> {
        if skipped() {
            return Ok(None);
        }
        let turn = blocking(beside)?;
        let postgres = blocking(Postgres::start)?;
        blocking(|| postgres.create_database("mainspring"))?;
        let proxy = Proxy::start(postgres.port()).await?;
        let store = PostgresStore::open(&Settings::new(proxy.url("mainspring"))).await?;
        Ok(Some(Self {
            store,
            proxy,
            postgres,
            _turn: turn,
        }))
    }

    /// Runs a step while every session is locked, and cuts its connection as soon as the server has
    /// the statement. Then the statement gets its locks.
    async fn with_lost_reply<T>(&self, step: impl Future<Output = T>) -> Result<T> {
        let rows = "SELECT FROM session_hot FOR UPDATE";
        let lock = RowLock::hold(&self.postgres, "mainspring", rows)?;
        let cut = async {
            let cut = self.proxy.cut(Cut::Behind, Duration::from_secs(2)).await;
            lock.release();
            cut
        };
        let (cut, done) = tokio::join!(cut, step);
        ensure!(cut, "nothing was cut");
        Ok(done)
    }

    /// Asserts that nothing is stored twice or by half.
    async fn audited(&self) -> Result<()> {
        let found = self
            .store
            .at(time(20))
            .audit(AuditOptions::default())
            .await?;
        ensure!(found.is_empty(), "{found:?}");
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_took_effect_unheard_is_granted() -> Result<()> {
    let Some(world) = World::start().await? else {
        return Ok(());
    };
    register(&world.store, 1).await;
    accept(&world.store, 0, opening(1, 1)).await;
    let claimed = world
        .with_lost_reply(try_claim(&world.store, 10, 1, 1, 1))
        .await?;
    ensure!(matches!(claimed, ClaimOutcome::Claimed(_)), "{claimed:?}");
    world.audited().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_completion_that_took_effect_unheard_brings_the_next_send() -> Result<()> {
    let Some(world) = World::start().await? else {
        return Ok(());
    };
    let claimed = running(&world.store).await;
    accept(&world.store, 11, sending(2, 1)).await;
    let items = vec![ending(&claimed, AfterSend::Continue)];
    let done = world
        .with_lost_reply(world.store.at(time(12)).complete_sends(items))
        .await??;
    let CompleteOutcome::Completed(completed) = one(done) else {
        anyhow::bail!("the lease was held all the time");
    };
    let (next, _) = completed.next.context("a next send")?;
    ensure!(next.record.id == send(2));
    world.audited().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_round_that_took_effect_unheard_is_stored_once() -> Result<()> {
    let Some(world) = World::start().await? else {
        return Ok(());
    };
    let claimed = running(&world.store).await;
    let items = vec![round(&claimed, 0)];
    let done = world
        .with_lost_reply(world.store.at(time(12)).append_rounds(items))
        .await??;
    let AppendOutcome::Appended {
        first_seq,
        counters,
        ..
    } = one(done)
    else {
        anyhow::bail!("the lease was held all the time");
    };
    ensure!(first_seq == 1 && counters.next_seq == 4, "{counters:?}");
    ensure!(transcript(&world.store, 1).await.len() == 3);
    world.audited().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_that_took_effect_unheard_are_stored_once() -> Result<()> {
    let Some(world) = World::start().await? else {
        return Ok(());
    };
    let claimed = running(&world.store).await;
    append(
        &world.store,
        11,
        asking(&claimed, 0, vec![CallBegin::Started]),
    )
    .await;
    let id = call(&claimed, 0, 0);
    let mut item = changing(&claimed, 0, vec![settling(&id, "seen")]);
    item.messages = vec![tool_result(&id, 0, 1)];
    item.lease.write = 1;
    let done = world
        .with_lost_reply(world.store.at(time(12)).append_rounds(vec![item]))
        .await??;
    let done = one(done);
    ensure!(
        matches!(done, AppendOutcome::Appended { first_seq: 3, .. }),
        "{done:?}"
    );
    ensure!(transcript(&world.store, 1).await.len() == 3);
    world.audited().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_park_that_took_effect_unheard_is_one() -> Result<()> {
    let Some(world) = World::start().await? else {
        return Ok(());
    };
    let claimed = running(&world.store).await;
    let wait = ParkUntil::After(millis(1_000));
    let item = waiting(&claimed, WaitingOn::Retry, wait);
    let parked = world.with_lost_reply(park(&world.store, 12, item)).await?;
    ensure!(matches!(parked, ParkOutcome::Parked { .. }), "{parked:?}");
    world.audited().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_took_effect_unheard_is_one() -> Result<()> {
    let Some(world) = World::start().await? else {
        return Ok(());
    };
    let claimed = running(&world.store).await;
    ensure!(
        world
            .with_lost_reply(release(&world.store, 12, &claimed))
            .await?
    );
    world.audited().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_accept_that_took_effect_unheard_is_one() -> Result<()> {
    let Some(world) = World::start().await? else {
        return Ok(());
    };
    accept(&world.store, 0, opening(1, 1)).await;
    for n in 2..4_u8 {
        let mut item = sending(u128::from(n), 1);
        // The last one is found by its key before it is found by its id.
        item.idempotency = (n == 3).then(|| IdempotencyKey {
            tenant: TenantId::DEFAULT,
            route: "POST /v1/sends".to_owned(),
            key: "once".to_owned(),
            body_hash: [n; 32],
        });
        let accepted = world
            .with_lost_reply(offer(&world.store, i64::from(n), item))
            .await?;
        let AcceptOutcome::Accepted(accepted) = accepted else {
            anyhow::bail!("{accepted:?}");
        };
        ensure!(accepted.position == Some(i64::from(n)), "{accepted:?}");
    }
    ensure!(dumped(&world.store, 1).await.sends.len() == 3);
    world.audited().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_that_took_effect_unheard_is_one() -> Result<()> {
    let Some(world) = World::start().await? else {
        return Ok(());
    };
    accept(&world.store, 0, opening(1, 1)).await;
    let cancelled = world.with_lost_reply(cancel(&world.store, 12, 1)).await?;
    ensure!(
        matches!(cancelled, CancelOutcome::Cancelled { .. }),
        "{cancelled:?}"
    );
    world.audited().await
}

/// Opens a store in a database of its own, bypassing the proxy.
async fn fresh(world: &World, name: &str) -> Result<(PostgresStore, String)> {
    let url = blocking(|| world.postgres.create_database(name))?;
    let settings = Settings {
        // Long enough that even on a slow machine a test lets go of its locks before that.
        lock_timeout: Duration::from_secs(5),
        ..Settings::new(url)
    };
    let store = PostgresStore::open(&settings).await?;
    Ok((store, name.to_owned()))
}

fn dropped(world: &World, name: &str) -> Result<()> {
    let drop = format!("DROP DATABASE {name} WITH (FORCE)");
    blocking(|| world.postgres.query("postgres", &drop))?;
    Ok(())
}

async fn assert_once(write: &Write, store: &PostgresStore, expected: &Dump) -> Result<()> {
    let stored = store.dump().await?;
    ensure!(
        stored == *expected,
        "{}: {stored:#?} instead of {expected:#?}",
        write.name
    );
    let found = store.at(time(2_000)).audit(AuditOptions::default()).await?;
    ensure!(found.is_empty(), "{}: {found:?}", write.name);
    Ok(())
}

/// How often a caller retries a write that found rows locked.
const ASKED_AGAIN: usize = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_write_that_is_made_twice_at_once_takes_effect_once() -> Result<()> {
    let Some(world) = World::start().await? else {
        return Ok(());
    };
    let (store, name) = fresh(&world, "written").await?;
    for write in WRITES {
        emptied(&world, &name)?;
        // The state that an undisturbed write leaves.
        let expected = once_done(write, &store).await;
        emptied(&world, &name)?;
        let claimed = (write.prepare)(&store).await;
        let rows = "SELECT FROM session_hot FOR UPDATE";
        let lock = RowLock::hold(&world.postgres, &name, rows)?;
        let call = || (write.call)(&store, claimed.as_ref());
        let both_wait = async {
            pause(Duration::from_millis(100)).await;
            lock.release();
        };
        tokio::join!(call(), call(), both_wait);
        if !write.adds {
            // If both found the session locked, the caller retries; and again if an abandoned
            // transaction is rolled back only then.
            for _ in 0..ASKED_AGAIN {
                call().await;
                if store.dump().await? == expected {
                    break;
                }
                pause(Duration::from_millis(50)).await;
            }
        }
        assert_once(write, &store, &expected).await?;
    }
    store.close().await;
    dropped(&world, &name)
}

/// Writes that remove things for good: each is a transaction of several statements, or one page of
/// such.
const REMOVALS: [&str; 14] = [
    "delete_session",
    "erase_session",
    "prune_session",
    "retire_sends",
    "sweep_retention",
    "delete_tenant",
    "begin_tenant_erasure",
    "erase_tenant_rows",
    "erase_memories",
    "expire_memories",
    "retire_blobs",
    "forget_blob",
    "remove_skill",
    "delete_webhook",
];

/// Waits until no connection through the proxy is active in a database any more.
async fn let_go(world: &World, name: &str) -> Result<()> {
    let at_work = format!("SELECT count(*) FROM pg_stat_activity WHERE usename = '{CUT_OFF}'");
    while blocking(|| world.postgres.query(name, &at_work))? != "0" {
        pause(Duration::from_millis(2)).await;
    }
    Ok(())
}

/// Runs a removal whose process dies at one of its statements, and then again in another process.
/// False if it has fewer statements than that.
async fn removed_by_two(
    world: &World,
    (direct, name): (&PostgresStore, &str),
    write: &Write,
    expected: &Dump,
    (behind, cut): (usize, Cut),
) -> Result<bool> {
    emptied(world, name)?;
    let claimed = (write.prepare)(direct).await;
    let before = direct.dump().await?;
    let proxied = PostgresStore::open(&Settings::new(cut_off_url(world, name))).await?;
    let died = tokio::select! {
        biased;
        cut = world.proxy.cut_behind(behind, cut, Duration::from_secs(5)) => cut,
        // A caller without a reply would retry, but this one is dead by then.
        _ = (write.call)(&proxied, claimed.as_ref()) => false,
    };
    proxied.close().await;
    let_go(world, name).await?;
    if died {
        let found = direct.dump().await?;
        ensure!(
            found == before || found == *expected,
            "{}: half of it is done: {found:#?}",
            write.name
        );
        (write.call)(direct, claimed.as_ref()).await;
    }
    assert_once(write, direct, expected).await?;
    Ok(died)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_removal_by_a_process_that_dies_at_any_statement_is_whole() -> Result<()> {
    let Some(world) = World::start().await? else {
        return Ok(());
    };
    let (direct, name) = cut_off_world(&world).await?;
    let mut count = 0;
    for removal in REMOVALS {
        let write = WRITES.iter().find(|write| write.name == removal);
        let write = write.with_context(|| format!("{removal} is no write"))?;
        emptied(&world, &name)?;
        let expected = once_done(write, &direct).await;
        let mut statements = 0;
        for cut in [Cut::Inside, Cut::Behind, Cut::Unheard] {
            let mut behind = 0;
            while removed_by_two(&world, (&direct, &name), write, &expected, (behind, cut))
                .await
                .with_context(|| format!("{removal}, {cut:?} behind {behind}"))?
            {
                behind += 1;
                count += 1;
            }
            ensure!(behind > 0, "{removal} writes nothing");
            statements = statements.max(behind);
        }
        say(&format!("{removal}: {statements} statements"));
    }
    ensure!(count > 3 * REMOVALS.len(), "{count} deaths");
    direct.close().await;
    dropped(&world, &name)
}

/// A step that finds nothing to do returns in the middle of its transaction, whose locks must not
/// outlive it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_write_leaves_a_transaction_open() -> Result<()> {
    let Some(world) = World::start().await? else {
        return Ok(());
    };
    let (direct, name) = cut_off_world(&world).await?;
    let open = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}' AND state LIKE 'idle in%'"
    );
    let mut left = Vec::new();
    for write in WRITES {
        // Once as a repeat, and once with the prepared data gone.
        for is_gone in [false, true] {
            emptied(&world, &name)?;
            let claimed = (write.prepare)(&direct).await;
            if is_gone {
                emptied(&world, &name)?;
            } else {
                (write.call)(&direct, claimed.as_ref()).await;
            }
            // Some writes first read what they are about to write, and panic without it.
            let call = AssertUnwindSafe((write.call)(&direct, claimed.as_ref()));
            let called = call.catch_unwind().await;
            ensure!(called.is_ok() || is_gone, "{} panicked", write.name);
            if blocking(|| world.postgres.query(&name, &open))? != "0" {
                left.push(write.name);
            }
        }
    }
    ensure!(left.is_empty(), "{left:?}");
    direct.close().await;
    dropped(&world, &name)
}

/// How often each write is cut in each way by default; `MAINSPRING_TEST_CASES` asks for more.
const CUTS: usize = 1;

fn cuts() -> usize {
    let asked = std::env::var_os("MAINSPRING_TEST_CASES").and_then(|text| text.into_string().ok());
    asked.map_or(CUTS, |text| {
        text.parse().expect("MAINSPRING_TEST_CASES is a number")
    })
}

/// The database user of connections through the proxy.
const CUT_OFF: &str = "cut_off";

/// Opens a store in a database of its own, and creates the user whose connections to it are cut.
async fn cut_off_world(world: &World) -> Result<(PostgresStore, String)> {
    let role = format!("CREATE ROLE {CUT_OFF} SUPERUSER LOGIN");
    blocking(|| world.postgres.query("postgres", &role))?;
    fresh(world, "written").await
}

/// The address of a database through the proxy.
fn cut_off_url(world: &World, name: &str) -> String {
    let url = world.proxy.url(name);
    url.replace("postgres@", &format!("{CUT_OFF}@"))
}

/// Empties a database, once no connection through the proxy is active in it any more.
fn emptied(world: &World, name: &str) -> Result<()> {
    let empty = format!(
        "DO $$
        DECLARE name TEXT;
        BEGIN
            LOOP
                PERFORM pg_stat_clear_snapshot();
                EXIT WHEN NOT EXISTS
                    (SELECT FROM pg_stat_activity WHERE usename = '{CUT_OFF}');
                PERFORM pg_sleep(0.002);
            END LOOP;
            -- TRUNCATE would make new files for each.
            SET LOCAL session_replication_role = replica;
            FOR name IN
                SELECT quote_ident(tablename) FROM pg_tables
                WHERE schemaname = 'public' AND tablename NOT IN ('_sqlx_migrations', 'tenants')
            LOOP
                EXECUTE 'DELETE FROM ' || name;
            END LOOP;
            PERFORM setval(quote_ident(sequencename), 1, false) FROM pg_sequences
            WHERE schemaname = 'public';
            -- The first tenant is the migrations'.
            DELETE FROM tenants WHERE tenant <> 1;
        END $$"
    );
    blocking(|| world.postgres.query(name, &empty))?;
    Ok(())
}

/// Makes a write through a connection that is cut, and retries it as a caller without a reply does.
async fn written_across_a_cut(
    world: &World,
    (direct, name): (&PostgresStore, &str),
    write: &Write,
    expected: &Dump,
    (cut, slow): (Cut, bool),
) -> Result<()> {
    emptied(world, name)?;
    let claimed = (write.prepare)(direct).await;
    let mut url = cut_off_url(world, name);
    if slow {
        // Each commit takes 50 ms, so that the retry comes while the first attempt is still
        // running.
        url.push_str("?options=-c%20commit_delay%3D50000%20-c%20commit_siblings%3D0");
    }
    let proxied = PostgresStore::open(&Settings::new(url)).await?;
    let done = world.proxy.cut(cut, Duration::from_secs(2));
    let (done, answered) = tokio::join!(done, (write.call)(&proxied, claimed.as_ref()));
    ensure!(done, "{}: nothing was cut", write.name);
    if !answered {
        // A caller without a reply retries.
        (write.call)(&proxied, claimed.as_ref()).await;
    }
    // A sweep skips what the broken connection's transaction still holds, and comes again; that
    // must not repeat what has already taken effect.
    for _ in 0..20 {
        if direct.dump().await? == *expected {
            break;
        }
        pause(Duration::from_millis(250)).await;
        (write.call)(&proxied, claimed.as_ref()).await;
    }
    assert_once(write, direct, expected).await?;
    proxied.close().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_write_whose_connection_is_cut_while_it_commits_takes_effect_once() -> Result<()> {
    let Some(world) = World::start().await? else {
        return Ok(());
    };
    let (direct, name) = cut_off_world(&world).await?;
    let mut count = 0;
    for write in WRITES.iter().filter(|write| !write.adds) {
        emptied(&world, &name)?;
        let expected = once_done(write, &direct).await;
        for n in 0..cuts() {
            let silent = Cut::Silent(Duration::from_millis(20));
            for (place, cut) in [Cut::Inside, Cut::Behind, Cut::Unheard, silent]
                .into_iter()
                .enumerate()
            {
                let how = (cut, (n + place) % 2 == 0);
                let case = written_across_a_cut(&world, (&direct, &name), write, &expected, how);
                case.await
                    .with_context(|| format!("{}, {how:?}", write.name))?;
                count += 1;
            }
        }
        say(&format!("cuts: {count}, the last of {}", write.name));
    }
    direct.close().await;
    dropped(&world, &name)
}
