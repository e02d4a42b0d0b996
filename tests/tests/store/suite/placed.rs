//! The store suite on a store over two databases: the first tenant, which most cases use, is on the
//! second database, and all others are at home. Each test has databases of its own on the server
//! that `MAINSPRING_TEST_POSTGRES_URL` names.
//!
//! By default only the modules in [`MERGED`] run; `MAINSPRING_TEST_PLACED=all` runs every case.
//! Unlike on a single database, random steps are not compared with the model: they leave processes
//! that are dead on only one of the two databases, while the model declares them dead altogether.
//! See `placed_test`.

mod both;

use async_trait::async_trait;
use mainspring_shared::id::TenantId;
use mainspring_shared::store::Inspect;
use mainspring_shared::store::placements::{ChangePlacement, Phase, Placements as _};
use mainspring_store_postgres::{PostgresStore, Settings};
use mainspring_tests::databases::{Lent, Server};
use mainspring_tests::suites::store::harness::{Opened, environment};
use mainspring_tests::suites::store::writes::assert_written_once;

use crate::suite::placed::both::{AWAY, Both};

struct Placed {
    both: Both,
    _lent: [Lent; 2],
}

#[async_trait]
impl Opened for Placed {
    fn store(&self) -> &dyn Inspect {
        &self.both
    }

    async fn close(self) {
        self.both.close().await;
    }
}

fn settings(url: &str) -> Settings {
    Settings {
        fenced: true,
        ..Settings::new(url.to_owned())
    }
}

async fn database() -> Option<(PostgresStore, Lent)> {
    let migrated = async |url: &str| {
        let store = PostgresStore::open(&settings(url)).await;
        store.expect("a fresh database").close().await;
    };
    let lent = Server::Postgres.lend(migrated).await?;
    let store = PostgresStore::open(&settings(lent.url())).await;
    Some((store.expect("the store opens"), lent))
}

/// Puts a tenant in the state that a move leaves, without the time that a move takes.
async fn take_away(home: &PostgresStore, there: &PostgresStore, tenant: TenantId) {
    let change = ChangePlacement {
        tenant,
        from: None,
        place: AWAY.to_owned(),
        other: None,
        phase: Phase::Settled,
    };
    let placed = home.change_placement(change).await.expect("is written");
    let version = placed.expect("is the first one").version;
    let left = home.leave(tenant, version, false).await;
    left.expect("is refused from now on");
    assert!(there.put_tenant(home, tenant).await.expect("is entered"));
}

async fn open() -> Option<Placed> {
    let (home, first) = database().await?;
    let (there, second) = database().await?;
    take_away(&home, &there, TenantId::DEFAULT).await;
    Some(Placed {
        both: Both::new(home, there),
        _lent: [first, second],
    })
}

/// Modules whose cases cover what the store merges from several databases' answers. Most cases of
/// the other modules go to one database unchanged.
const MERGED: &[&str] = &[
    "alarms",
    "boots",
    "clocks",
    "firing",
    "ready",
    "run_batches",
    "seats",
];

fn is_everything_run() -> bool {
    environment("MAINSPRING_TEST_PLACED").as_deref() == Some("all")
}

async fn open_for(module: &str) -> Option<Placed> {
    if MERGED.contains(&module) || is_everything_run() {
        open().await
    } else {
        None
    }
}

/// Defines one test per case, except for cases that a store over several databases does not pass.
macro_rules! placed_test {
    // A process lives as long as its lease is renewed on one database. If another declares it dead,
    // because its lease expired there or that database's clock was set, it keeps what it holds
    // elsewhere and starts a new lease there. These cases declare it dead on one database and
    // expect that its renewal tells it so. It still loses what it held there: see
    // `a_process_has_its_lease_everywhere_and_where_it_died_a_new_one` in the tests of the crate.
    (alarms a_running_send_whose_worker_is_dead_fails_at_its_deadline) => {};
    (cancel a_running_send_of_a_dead_worker_ends_at_once) => {};
    (claim an_expired_boot_loses_its_session_and_is_declared_dead) => {};
    (clocks a_dead_process_is_found_although_the_clock_was_set_back) => {};
    (clocks a_clock_that_is_set_forward_costs_leases_and_nothing_else) => {};
    // Each database has its own row for a process, kept as long as something there refers to it;
    // the case counts rows.
    (boots retention_removes_ended_boots_that_nothing_names) => {};
    ($module:ident $case:ident) => {
        #[tokio::test]
        async fn $case() {
            use mainspring_tests::suites::store::{harness, $module};
            let name = concat!(stringify!($module), "::", stringify!($case));
            let opened = crate::suite::placed::open_for(stringify!($module)).await;
            harness::run(opened, name, $module::$case).await;
        }
    };
}

macro_rules! placed_tests {
    ($($module:ident { $($case:ident,)* })*) => {
        $(mod $module {
            $(placed_test! { $module $case })*
        })*
    };
}

mainspring_tests::session_cases!(placed_tests);
mainspring_tests::installation_cases!(placed_tests);

#[test]
fn every_write_takes_effect_once_and_none_by_a_stale_writer() {
    if is_everything_run() {
        assert_written_once(open);
    }
}

#[test]
fn postgres_is_there_or_was_skipped() {
    if environment("MAINSPRING_TEST_POSTGRES_URL").is_some() {
        return;
    }
    let required = environment("REQUIRE_STORES").as_deref() == Some("all");
    assert!(!required, "MAINSPRING_TEST_POSTGRES_URL is not set");
}
