//! A database for one test, and the helpers that tests are written with.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use mainspring_shared::agent::{AgentSpec, SendOptions};
use mainspring_shared::id::{BootId, LeaseToken, SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::lease::Lease;
use mainspring_shared::message::{ContentPart, NewMessage, Role};
use mainspring_shared::send::{SendRecord, SendResult, SendStatus, StopReason};
use mainspring_shared::step::RoundRef;
use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, Accepted, AfterSend, AppendRound, AuditOptions, ClaimOutcome,
    ClaimSession, Claimed, CompleteOutcome, CompleteSend, Completed, CreateOutcome, Inspect as _,
    NewBoot, NewSession, SendTotals, Target, UsageRow,
};
use mainspring_shared::time::Timestamp;
use mainspring_shared::usage::Usage;
use mainspring_store_postgres::{PostgresStore, Settings};
use mainspring_tests::databases::Server;
use serde_json::Map;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use uuid::Uuid;

pub(crate) const TENANT: TenantId = TenantId(1);
pub(crate) const TTL: Duration = Duration::from_secs(10);

static NEXT: AtomicU64 = AtomicU64::new(1);

/// An id that is unique in this process; later ones are greater.
pub(crate) fn id() -> Uuid {
    Uuid::from_u128(u128::from(NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// The store and database of one test.
pub(crate) struct World {
    pub(crate) store: PostgresStore,
    pub(crate) settings: Settings,
    /// When the test began; tests give times relative to this.
    pub(crate) t0: Timestamp,
    /// Number of the next write under each lease, by its token.
    pub(crate) writes: Mutex<BTreeMap<Uuid, i64>>,
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

/// Runs a statement on the server, outside the test's database.
async fn admin(server: &str, statement: String) {
    let mut connection = PgConnection::connect(server).await.expect("connects");
    let done = connection.execute(AssertSqlSafe(statement)).await;
    done.expect("the server takes the statement");
    connection.close().await.expect("closes");
}

/// Runs a statement on the test server, outside the tests' databases.
pub(crate) async fn at_server(statement: String) {
    let server = server().expect("a test that runs has a server");
    admin(&server, statement).await;
}

/// Runs a test in an empty database of its own.
pub(crate) async fn with_database(name: &str, test: impl AsyncFnOnce(String)) {
    with_copy_of("template1", name, test).await;
}

async fn with_copy_of(template: &str, name: &str, test: impl AsyncFnOnce(String)) {
    let Some(server) = server() else {
        return skipped(name);
    };
    let database = format!("pgit_{name}_{}", std::process::id());
    let (base, _) = server.rsplit_once('/').expect("the URL names a database");
    let url = format!("{base}/{database}");
    admin(
        &server,
        format!("CREATE DATABASE {database} TEMPLATE {template}"),
    )
    .await;
    let ended = AssertUnwindSafe(test(url)).catch_unwind().await;
    admin(&server, format!("DROP DATABASE {database} WITH (FORCE)")).await;
    if let Err(panic) = ended {
        std::panic::resume_unwind(panic);
    }
}

/// Runs a test with a store in a database of its own.
pub(crate) async fn with_world(name: &str, test: impl AsyncFnOnce(&World)) {
    // Long enough that even on a slow machine a test lets go of its locks before that.
    with_patient_world(name, Duration::from_secs(2), test).await;
}

/// Like [`with_world`], with a store that waits up to `lock_timeout` for locks.
pub(crate) async fn with_patient_world(
    name: &str,
    lock_timeout: Duration,
    test: impl AsyncFnOnce(&World),
) {
    let migrated = async |url: &str| {
        let store = PostgresStore::open(&Settings::new(url.to_owned())).await;
        store.expect("opens").close().await;
    };
    let Some(template) = Server::template(migrated).await else {
        return skipped(name);
    };
    with_copy_of(template, name, async |url| {
        let settings = Settings {
            lock_timeout,
            ..Settings::new(url)
        };
        let world = World::open(settings).await;
        let ended = AssertUnwindSafe(test(&world)).catch_unwind().await;
        world.store.close().await;
        if let Err(panic) = ended {
            std::panic::resume_unwind(panic);
        }
    })
    .await;
}

impl World {
    pub(crate) async fn open(settings: Settings) -> Self {
        let store = PostgresStore::open(&settings).await.expect("opens");
        let t0 = store.now().await.expect("has a clock");
        Self {
            store,
            settings,
            t0,
            writes: Mutex::default(),
        }
    }

    /// Another store over the same database.
    pub(crate) async fn another(&self) -> Self {
        let store = PostgresStore::open(&self.settings).await.expect("opens");
        Self {
            store,
            settings: self.settings.clone(),
            t0: self.t0,
            writes: Mutex::default(),
        }
    }

    /// A connection besides the store's own.
    pub(crate) async fn connection(&self) -> PgConnection {
        PgConnection::connect(&self.settings.url)
            .await
            .expect("connects")
    }

    /// A time in this test, in milliseconds since its start.
    pub(crate) fn time(&self, millis: i64) -> Timestamp {
        Timestamp(self.t0.0 + millis)
    }

    pub(crate) async fn boot(&self, at: i64) -> BootId {
        let id = BootId(id());
        let boot = NewBoot {
            id,
            role: mainspring_shared::store::Role::Worker,
            name: "w".to_owned(),
            pool: "default".to_owned(),
            concurrency: 4,
            ttl: TTL,
            protocol: mainspring_shared::store::PROTOCOL,
            tools: mainspring_shared::tool::Published::default(),
        };
        let registered = self.store.at(self.time(at)).register_boot(boot).await;
        registered.expect("registers");
        id
    }

    /// A boot whose lease starts now, for tests that use the server's clock.
    pub(crate) async fn boot_now(&self) -> BootId {
        let now = self.store.now().await.expect("has a clock");
        // A busy machine may keep a test from renewing for a while.
        self.boot(now.0 - self.t0.0 + 100_000).await
    }

    pub(crate) async fn session(&self) -> SessionKey {
        self.session_of(AgentSpec::default()).await
    }

    pub(crate) async fn session_of(&self, agent: AgentSpec) -> SessionKey {
        let new = new_session(agent);
        let key = new.key;
        let created = self
            .store
            .at(self.time(0))
            .create_sessions(vec![(new, None)])
            .await;
        let created = created.expect("creates");
        assert!(matches!(created[..], [CreateOutcome::Created(_)]));
        key
    }

    pub(crate) async fn accept(&self, at: i64, items: Vec<AcceptSend>) -> Vec<AcceptOutcome> {
        let accepted = self
            .store
            .at(self.time(at))
            .accept_sends(BootId(id()), items)
            .await;
        accepted.expect("accepts")
    }

    /// Accepts one send, which must succeed.
    pub(crate) async fn send(&self, at: i64, item: AcceptSend) -> (SendId, Accepted) {
        let send_id = item.id;
        match self.accept(at, vec![item]).await.remove(0) {
            AcceptOutcome::Accepted(accepted) => (send_id, accepted),
            other => panic!("not accepted: {other:?}"),
        }
    }

    pub(crate) async fn try_claim(&self, at: i64, boot: BootId, key: SessionKey) -> ClaimOutcome {
        let claimed = self
            .store
            .at(self.time(at))
            .claim_sessions(boot, vec![cold(key)])
            .await;
        claimed.expect("claims").remove(0)
    }

    /// Claims one session with an empty cache, which must succeed.
    pub(crate) async fn claim(&self, at: i64, boot: BootId, key: SessionKey) -> Claimed {
        match self.try_claim(at, boot, key).await {
            ClaimOutcome::Claimed(claimed) => *claimed,
            other => panic!("not claimed: {other:?}"),
        }
    }

    /// The lease as its next write carries it: the holder numbers its writes.
    pub(crate) fn numbered(&self, lease: Lease) -> Lease {
        let writes = self.writes.lock().expect("no test panicked");
        let write = writes.get(&lease.token.0).copied();
        Lease {
            write: write.unwrap_or(lease.write),
            ..lease
        }
    }

    /// Counts a write under the lease.
    pub(crate) fn wrote(&self, lease: Lease) {
        let mut writes = self.writes.lock().expect("no test panicked");
        writes.insert(lease.token.0, lease.write + 1);
    }

    pub(crate) async fn try_complete(&self, at: i64, mut item: CompleteSend) -> CompleteOutcome {
        item.lease = self.numbered(item.lease);
        let lease = item.lease;
        let completed = self
            .store
            .at(self.time(at))
            .complete_sends(vec![item])
            .await;
        let outcome = completed.expect("completes").remove(0);
        if outcome != CompleteOutcome::LeaseLost {
            self.wrote(lease);
        }
        outcome
    }

    pub(crate) async fn complete(&self, at: i64, item: CompleteSend) -> Completed {
        match self.try_complete(at, item).await {
            CompleteOutcome::Completed(completed) => *completed,
            other @ (CompleteOutcome::Undelivered
            | CompleteOutcome::LeaseLost
            | CompleteOutcome::Locked) => {
                panic!("not completed: {other:?}")
            }
        }
    }

    pub(crate) async fn record(&self, id: SendId) -> SendRecord {
        let sends = self.store.get_sends(vec![(TENANT, id)]).await;
        sends.expect("reads").remove(0).expect("the send exists")
    }

    /// Asserts that every invariant holds, using the store's own audit.
    pub(crate) async fn assert_sound(&self, at: i64) {
        let violations = self
            .store
            .at(self.time(at))
            .audit(AuditOptions::default())
            .await;
        assert_eq!(violations.expect("audits"), []);
    }
}

/// The newest schema version that the program knows.
pub(crate) fn newest() -> i64 {
    let ddl = mainspring_store_postgres::ddl();
    let titles = ddl.lines().filter_map(|line| line.strip_prefix("-- "));
    let versions = titles.filter_map(|title| title.get(..4)?.parse().ok());
    versions.max().expect("there are migrations")
}

pub(crate) fn new_session(agent: AgentSpec) -> NewSession {
    NewSession {
        key: SessionKey {
            tenant: TENANT,
            session: SessionId(id()),
        },
        agent,
        metadata: Map::new(),
        parent: None,
    }
}

pub(crate) fn to(key: SessionKey) -> AcceptSend {
    to_target(Target::Existing(key))
}

pub(crate) fn to_target(target: Target) -> AcceptSend {
    AcceptSend {
        id: SendId(id()),
        target,
        input: vec![ContentPart::text("hello")],
        options: SendOptions::default(),
        reports_to: None,
        run: None,
        idempotency: None,
        queued_max: 100,
        keeper: None,
    }
}

/// A claim by a worker that has nothing of the session cached.
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

pub(crate) fn says(role: Role, text: &str, round: i32) -> NewMessage {
    NewMessage {
        role,
        ..NewMessage::user(vec![ContentPart::text(text)], round)
    }
}

fn usage_row(round: i32) -> UsageRow {
    UsageRow {
        round,
        attempt: round + 1,
        model: "m".to_owned(),
        usage: usage(),
    }
}

fn usage() -> Usage {
    Usage {
        input_tokens: 3,
        output_tokens: 5,
        ..Usage::default()
    }
}

pub(crate) fn round_ref(index: i32) -> RoundRef {
    RoundRef {
        index,
        model: "m".to_owned(),
        usage: usage(),
        digest: None,
        folded: None,
        aged_to: None,
        recalled: None,
    }
}

pub(crate) fn totals(rounds: i32) -> SendTotals {
    SendTotals {
        usage: Usage {
            input_tokens: 3 * u64::from(rounds.unsigned_abs()),
            output_tokens: 5 * u64::from(rounds.unsigned_abs()),
            ..usage()
        },
        rounds,
        attempts: rounds,
        ..SendTotals::default()
    }
}

/// Changes the end of a send so that it is in the second round.
pub(crate) fn in_second_round(item: &mut CompleteSend) {
    item.usage[0].round = 1;
    (item.round, item.totals) = (Some(round_ref(1)), totals(2));
}

/// The answer to a claimed send: the user's message and the model's, in its first round.
pub(crate) fn answer(claimed: &Claimed, then: AfterSend) -> CompleteSend {
    let record = &claimed.send.record;
    CompleteSend {
        key: claimed.key,
        lease: claimed.lease,
        send_id: record.id,
        messages: vec![
            NewMessage::user(record.input.clone(), 0),
            says(Role::Assistant, "hi", 0),
        ],
        changes: Vec::new(),
        deliveries: Vec::new(),
        usage: vec![usage_row(0)],
        round: Some(round_ref(0)),
        totals: totals(1),
        projections: Vec::new(),
        result: SendResult {
            status: SendStatus::Completed,
            stop_reason: StopReason::End,
            output_text: Some("hi".to_owned()),
            output: None,
            error: None,
        },
        unless: 0,
        then,
    }
}

/// The first round of a claimed send that continues afterwards.
pub(crate) fn first_round(claimed: &Claimed) -> AppendRound {
    let record = &claimed.send.record;
    AppendRound {
        fold: None,
        key: claimed.key,
        lease: claimed.lease,
        send_id: record.id,
        messages: vec![
            NewMessage::user(record.input.clone(), 0),
            says(Role::Assistant, "thinking", 0),
        ],
        calls: Vec::new(),
        changes: Vec::new(),
        deliveries: Vec::new(),
        usage: vec![usage_row(0)],
        round: Some(round_ref(0)),
        totals: totals(1),
    }
}
