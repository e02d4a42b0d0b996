//! The suite of stores, on one over two databases: the first tenant, which most cases are about, is on the second one, and
//! all others are at home. Each test has databases of its own on the server of `MAINSPRING_TEST_POSTGRES_URL`.

mod both;

use async_trait::async_trait;
use mainspring_shared::id::TenantId;
use mainspring_shared::store::Inspect;
use mainspring_shared::store::placements::{ChangePlacement, Phase, Placements as _};
use mainspring_store_postgres::{PostgresStore, Settings};
use mainspring_tests::databases::{Lent, Server};
use mainspring_tests::store_suite;
use mainspring_tests::suites::store::agreement::assert_agrees;
use mainspring_tests::suites::store::harness::{Opened, environment};
use mainspring_tests::suites::store::writes::assert_written_once;

use crate::both::{AWAY, Both};

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

/// What a move leaves behind, without the time that it takes.
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

store_suite!(open);

#[test]
fn every_write_takes_effect_once_and_none_by_a_stale_writer() {
    assert_written_once(open);
}

#[test]
fn several_databases_agree_with_the_model() {
    assert_agrees(open);
}

#[test]
fn postgres_is_there_or_was_skipped() {
    if environment("MAINSPRING_TEST_POSTGRES_URL").is_some() {
        return;
    }
    let required = environment("REQUIRE_STORES").as_deref() == Some("all");
    assert!(!required, "MAINSPRING_TEST_POSTGRES_URL is not set");
}
