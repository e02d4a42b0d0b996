//! Three databases for one test, and the helpers that tests are written with.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use mainspring_shared::agent::{AgentSpec, SendOptions};
use mainspring_shared::id::{BootId, LeaseToken, SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::message::{ContentPart, NewMessage, Role};
use mainspring_shared::send::{SendResult, SendStatus, StopReason};
use mainspring_shared::step::RoundRef;
use mainspring_shared::store::placements::HOME;
use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, AfterSend, AuditOptions, ClaimOutcome, ClaimSession, Claimed,
    CompleteOutcome, CompleteSend, CreateOutcome, CreateTenantOutcome, Inspect as _, NewBoot,
    NewSession, NewTenant, PROTOCOL, Role as BootRole, SendTotals, Target, UsageRow,
};
use mainspring_shared::tenant::{Limits, Pools, Retention};
use mainspring_shared::tool::Published;
use mainspring_shared::usage::Usage;
use mainspring_store_placed::{Database, Moved, Mover, PlacedStore};
use mainspring_store_postgres::{PostgresStore, Settings};
use mainspring_tests::databases::Server;
use serde_json::Map;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use uuid::Uuid;

pub(crate) const TTL: Duration = Duration::from_secs(30);
pub(crate) const NAMES: [&str; 3] = [HOME, "b", "c"];

static NEXT: AtomicU64 = AtomicU64::new(1);

/// An id that is unique in this process; later ones are greater.
pub(crate) fn id() -> Uuid {
    Uuid::from_u128(u128::from(NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// The databases of one test.
pub(crate) struct World {
    /// The store of each database alone, by name.
    pub(crate) stores: BTreeMap<&'static str, PostgresStore>,
    pub(crate) urls: Vec<String>,
    /// One store over all of them.
    pub(crate) placed: Arc<PlacedStore>,
    pub(crate) mover: Mover,
}

#[expect(
    clippy::disallowed_methods,
    reason = "tests are configured by their environment"
)]
fn server() -> Option<String> {
    std::env::var("MAINSPRING_TEST_POSTGRES_URL").ok()
}

#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn skipped(name: &str) {
    eprintln!("SKIPPED {name}: MAINSPRING_TEST_POSTGRES_URL is not set");
}

async fn admin(server: &str, statement: String) {
    let mut connection = PgConnection::connect(server).await.expect("connects");
    let done = connection.execute(AssertSqlSafe(statement)).await;
    done.expect("the server takes the statement");
    connection.close().await.expect("closes");
}

/// Settings of a database that is one of several.
pub(crate) fn settings(url: &str) -> Settings {
    Settings {
        fenced: true,
        writers: 3,
        claimers: 2,
        streamers: 1,
        readers: 1,
        acquire_timeout: Duration::from_secs(2),
        ..Settings::new(url)
    }
}

/// Runs a test over three databases of its own.
pub(crate) async fn with_world(name: &str, test: impl AsyncFnOnce(&World)) {
    with_world_of(name, settings, test).await;
}

/// Like [`with_world`], but opened with other settings.
pub(crate) async fn with_world_of(
    name: &str,
    settings: fn(&str) -> Settings,
    test: impl AsyncFnOnce(&World),
) {
    let Some(server) = server() else {
        return skipped(name);
    };
    let (base, _) = server.rsplit_once('/').expect("the URL names a database");
    let databases = NAMES.map(|part| format!("placed_{name}_{part}_{}", std::process::id()));
    let migrated = async |url: &str| {
        let store = PostgresStore::open(&Settings::new(url)).await;
        store.expect("opens").close().await;
    };
    let template = Server::template(migrated).await;
    let template = template.expect("there is a server");
    for database in &databases {
        admin(
            &server,
            format!("CREATE DATABASE {database} TEMPLATE {template}"),
        )
        .await;
    }
    let urls: Vec<String> = databases.iter().map(|it| format!("{base}/{it}")).collect();
    let ended = AssertUnwindSafe(async {
        let world = World::open(urls, settings).await;
        test(&world).await;
        world.close().await;
    });
    let ended = ended.catch_unwind().await;
    for database in &databases {
        admin(&server, format!("DROP DATABASE {database} WITH (FORCE)")).await;
    }
    if let Err(panic) = ended {
        std::panic::resume_unwind(panic);
    }
}

/// Opens one store over these databases.
pub(crate) fn together(stores: &BTreeMap<&'static str, PostgresStore>) -> PlacedStore {
    let mut databases: Vec<Database> = NAMES
        .into_iter()
        .map(|name| {
            let store = Arc::new(stores[name].clone());
            Database {
                name: name.to_owned(),
                store: store.clone(),
                placements: store,
            }
        })
        .collect();
    let home = databases.remove(0);
    PlacedStore::new(home, databases)
}

impl World {
    async fn open(urls: Vec<String>, settings: fn(&str) -> Settings) -> Self {
        let mut stores = BTreeMap::new();
        for (name, url) in NAMES.into_iter().zip(&urls) {
            let opened = PostgresStore::open(&settings(url)).await;
            stores.insert(name, opened.expect("opens"));
        }
        let places = stores.iter();
        let places = places.map(|(name, store)| ((*name).to_owned(), store.clone()));
        Self {
            placed: Arc::new(together(&stores)),
            mover: Mover::new(places.collect()),
            stores,
            urls,
        }
    }

    async fn close(&self) {
        for store in self.stores.values() {
            store.close().await;
        }
    }

    /// Creates a tenant at home.
    pub(crate) async fn tenant(&self, name: &str) -> TenantId {
        let new = NewTenant {
            name: name.to_owned(),
            limits: Limits::default(),
            weight: 1,
            retention: Retention::default(),
            pools: Pools::default(),
        };
        match self.placed.create_tenant(new, None).await.expect("creates") {
            CreateTenantOutcome::Created(tenant) => tenant.id,
            other => panic!("not created: {other:?}"),
        }
    }

    /// Moves a tenant without interruption.
    pub(crate) async fn take(&self, tenant: TenantId, to: &str) -> Moved {
        let moved = self.mover.take(tenant, to, &mut |_| true).await;
        moved.expect("moves")
    }

    /// Registers a worker with all databases.
    pub(crate) async fn boot(&self) -> BootId {
        let boot = new_boot();
        let id = boot.id;
        self.placed.register_boot(boot).await.expect("registers");
        id
    }

    pub(crate) async fn session(&self, tenant: TenantId) -> SessionKey {
        let new = new_session(tenant);
        let key = new.key;
        let created = self.placed.create_sessions(vec![(new, None)]).await;
        let created = created.expect("creates");
        assert!(matches!(created[..], [CreateOutcome::Created(_)]));
        key
    }

    /// Counts a tenant's rows on a database, without those of tables that stay at home.
    pub(crate) async fn rows(&self, place: &str, tenant: TenantId) -> u64 {
        let rows = self.stores[place].rows_of(tenant).await.expect("counts");
        let at_home = ["api_keys", "provider_keys", "pauses", "idempotency_keys"];
        let moved = rows
            .iter()
            .filter(|(table, _)| !at_home.contains(&table.as_str()));
        moved.map(|(_, count)| count).sum()
    }

    /// Asserts that every invariant holds on every database and that each tenant is on exactly one.
    pub(crate) async fn assert_sound(&self) {
        let violations = self.placed.audit(AuditOptions::default()).await;
        assert_eq!(violations.expect("audits"), []);
    }
}

pub(crate) fn new_boot() -> NewBoot {
    NewBoot {
        id: BootId(id()),
        role: BootRole::Worker,
        name: "w".to_owned(),
        pool: "default".to_owned(),
        concurrency: 64,
        ttl: TTL,
        protocol: PROTOCOL,
        tools: Published::default(),
    }
}

pub(crate) fn new_session(tenant: TenantId) -> NewSession {
    NewSession {
        key: SessionKey {
            tenant,
            session: SessionId(id()),
        },
        agent: AgentSpec::default(),
        metadata: Map::new(),
        parent: None,
    }
}

pub(crate) fn to(key: SessionKey) -> AcceptSend {
    AcceptSend {
        id: SendId(id()),
        target: Target::Existing(key),
        input: vec![ContentPart::text("hello")],
        options: SendOptions::default(),
        reports_to: None,
        run: None,
        idempotency: None,
        queued_max: 100,
        keeper: None,
    }
}

pub(crate) fn cold(key: SessionKey) -> ClaimSession {
    ClaimSession {
        cached_fold_end: 0,
        key,
        token: LeaseToken(id()),
        cached_next_seq: 0,
        cached_from_seq: 0,
        cached_version: 0,
        crashes_below: i32::MAX,
        orphans: true,
    }
}

fn usage() -> Usage {
    Usage {
        input_tokens: 3,
        output_tokens: 5,
        ..Usage::default()
    }
}

/// The final answer to a claimed send, which also releases the session.
pub(crate) fn answer(claimed: &Claimed) -> CompleteSend {
    let record = &claimed.send.record;
    let says = NewMessage {
        role: Role::Assistant,
        ..NewMessage::user(vec![ContentPart::text("hi")], 0)
    };
    CompleteSend {
        key: claimed.key,
        lease: claimed.lease,
        send_id: record.id,
        messages: vec![NewMessage::user(record.input.clone(), 0), says],
        changes: Vec::new(),
        deliveries: Vec::new(),
        usage: vec![UsageRow {
            round: 0,
            attempt: 1,
            model: "m".to_owned(),
            usage: usage(),
        }],
        round: Some(RoundRef {
            index: 0,
            model: "m".to_owned(),
            usage: usage(),
            digest: None,
            folded: None,
            aged_to: None,
            recalled: None,
        }),
        totals: SendTotals {
            usage: usage(),
            rounds: 1,
            attempts: 1,
            ..SendTotals::default()
        },
        projections: Vec::new(),
        result: SendResult {
            status: SendStatus::Completed,
            stop_reason: StopReason::End,
            output_text: Some("hi".to_owned()),
            output: None,
            error: None,
        },
        unless: 0,
        then: AfterSend::Release,
    }
}

/// Accepts one send at a store, which must succeed.
pub(crate) async fn accept(store: &PlacedStore, key: SessionKey) -> SendId {
    let item = to(key);
    let send = item.id;
    let accepted = store.accept_sends(BootId(id()), vec![item]).await;
    match accepted.expect("accepts").remove(0) {
        AcceptOutcome::Accepted(_) => send,
        other => panic!("not accepted: {other:?}"),
    }
}

/// Claims one session, which must succeed.
pub(crate) async fn claim(store: &PlacedStore, boot: BootId, key: SessionKey) -> Claimed {
    let claimed = store.claim_sessions(boot, vec![cold(key)]).await;
    match claimed.expect("claims").remove(0) {
        ClaimOutcome::Claimed(claimed) => *claimed,
        other => panic!("not claimed: {other:?}"),
    }
}

/// Ends a claimed send, which must succeed.
pub(crate) async fn complete(store: &PlacedStore, claimed: &Claimed) {
    let completed = store.complete_sends(vec![answer(claimed)]).await;
    let outcome = completed.expect("completes").remove(0);
    assert!(
        matches!(outcome, CompleteOutcome::Completed(_)),
        "{outcome:?}"
    );
}

/// Sleeps briefly before a retry.
pub(crate) async fn moment() {
    tokio::time::sleep_until(tokio::time::Instant::now() + Duration::from_millis(20)).await;
}
