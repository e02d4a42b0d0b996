//! What the tests are made of: small ids, a time line, and steps that must succeed.

use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, SendOptions};
use mainspring_shared::id::{BootId, LeaseToken, SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::message::{ContentPart, NewMessage, Role};
use mainspring_shared::send::{SendRecord, SendResult, StopReason, WaitingOn};
use mainspring_shared::step::RoundRef;
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, Accepted, AppendOutcome, AppendRound, AuditOptions, CancelOutcome,
    ClaimOutcome, ClaimSession, Claimed, CompleteOutcome, CompleteSend, Completed, NewBoot,
    NewSession, ParkOutcome, ParkSend, ParkUntil, SendTotals, Store, Target, Then, UsageRow,
};
use mainspring_shared::time::Timestamp;
use mainspring_shared::usage::Usage;
use mainspring_store_sqlite::{SqliteOptions, SqliteStore};
use serde_json::Map;
use tempfile::TempDir;
use uuid::Uuid;

/// How long the leases of boots run.
pub(crate) const TTL: i64 = 10_000;

/// The process that accepts and sweeps.
pub(crate) const SCHEDULER: BootId = BootId(Uuid::from_u128(0x5c));

/// A store in a directory of its own, which is removed with it.
pub(crate) struct Opened {
    pub(crate) store: SqliteStore,
    pub(crate) dir: TempDir,
}

pub(crate) async fn open() -> Opened {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open_in(&dir).await;
    Opened { store, dir }
}

pub(crate) async fn open_in(dir: &TempDir) -> SqliteStore {
    let opened = SqliteStore::open(SqliteOptions::dir(dir.path())).await;
    opened.expect("opens")
}

/// A point of a time line far in the future, where no lease has ended by the database's own clock.
#[expect(
    clippy::unnecessary_wraps,
    reason = "the port's parameter is an Option"
)]
pub(crate) fn at(ms: i64) -> Option<Timestamp> {
    Some(Timestamp(4_102_444_800_000 + ms))
}

pub(crate) fn key(n: u128) -> SessionKey {
    SessionKey {
        tenant: TenantId::DEFAULT,
        session: SessionId(Uuid::from_u128(n)),
    }
}

pub(crate) fn send(n: u128) -> SendId {
    SendId(Uuid::from_u128(n))
}

pub(crate) fn boot(n: u128) -> BootId {
    BootId(Uuid::from_u128(n))
}

pub(crate) fn new_session(n: u128) -> NewSession {
    NewSession {
        key: key(n),
        agent: AgentSpec::default(),
        metadata: Map::new(),
    }
}

pub(crate) fn sending(n: u128, session: u128) -> AcceptSend {
    AcceptSend {
        id: send(n),
        target: Target::Existing(key(session)),
        input: vec![ContentPart::text(format!("words of {n}"))],
        options: SendOptions::default(),
        idempotency: None,
        queued_max: 100,
    }
}

pub(crate) fn opening(n: u128, session: u128) -> AcceptSend {
    AcceptSend {
        target: Target::New(Box::new(new_session(session))),
        ..sending(n, session)
    }
}

pub(crate) fn claiming(session: u128, token: u128) -> ClaimSession {
    ClaimSession {
        key: key(session),
        token: LeaseToken(Uuid::from_u128(token)),
        cached_next_seq: 0,
        cached_from_seq: 0,
    }
}

fn answer(text: &str, round: i32) -> NewMessage {
    NewMessage {
        role: Role::Assistant,
        ..NewMessage::user(vec![ContentPart::text(text)], round)
    }
}

fn usage(round: i32) -> Vec<UsageRow> {
    vec![UsageRow {
        round,
        attempt: round + 1,
        model: "m".to_owned(),
        usage: Usage::default(),
    }]
}

fn round_ref(index: i32) -> RoundRef {
    RoundRef {
        index,
        model: "m".to_owned(),
        usage: Usage::default(),
    }
}

/// A first round that stores the input and an answer, and goes on.
pub(crate) fn round(claimed: &Claimed) -> AppendRound {
    AppendRound {
        key: claimed.key,
        lease: claimed.lease,
        send_id: claimed.send.record.id,
        messages: vec![
            NewMessage::user(claimed.send.record.input.clone(), 0),
            answer("let me see", 0),
        ],
        calls: Vec::new(),
        usage: usage(0),
        round: round_ref(0),
        totals: SendTotals {
            rounds: 1,
            attempts: 1,
            ..SendTotals::default()
        },
    }
}

/// The end of a send that runs under the lease of `claimed`, in its first round.
pub(crate) fn ending(claimed: &Claimed, record: &SendRecord, then: Then) -> CompleteSend {
    CompleteSend {
        key: claimed.key,
        lease: claimed.lease,
        send_id: record.id,
        messages: vec![NewMessage::user(record.input.clone(), 0), answer("done", 0)],
        usage: usage(0),
        round: Some(round_ref(0)),
        totals: SendTotals::default(),
        result: SendResult::completed(StopReason::End, "done".to_owned()),
        then,
    }
}

pub(crate) async fn register(store: &SqliteStore, ms: i64, n: u128) {
    let new = NewBoot {
        id: boot(n),
        role: mainspring_shared::store::Role::Worker,
        name: format!("worker-{n}"),
        pool: "default".to_owned(),
        concurrency: 4,
        ttl: Duration::from_millis(TTL.unsigned_abs()),
    };
    store.register_boot(at(ms), new).await.expect("registers");
}

pub(crate) async fn offer(store: &SqliteStore, ms: i64, item: AcceptSend) -> AcceptOutcome {
    let outcomes = store.accept_sends(at(ms), SCHEDULER, vec![item]).await;
    one(outcomes.expect("answers"))
}

pub(crate) async fn accept(store: &SqliteStore, ms: i64, item: AcceptSend) -> Accepted {
    match offer(store, ms, item).await {
        AcceptOutcome::Accepted(accepted) => accepted,
        other => panic!("accepted was expected: {other:?}"),
    }
}

pub(crate) async fn try_claim(
    store: &SqliteStore,
    ms: i64,
    n: u128,
    session: u128,
    token: u128,
) -> ClaimOutcome {
    let items = vec![claiming(session, token)];
    let outcomes = store.claim_sessions(at(ms), boot(n), items).await;
    one(outcomes.expect("answers"))
}

pub(crate) async fn claim(
    store: &SqliteStore,
    ms: i64,
    n: u128,
    session: u128,
    token: u128,
) -> Claimed {
    match try_claim(store, ms, n, session, token).await {
        ClaimOutcome::Claimed(claimed) => *claimed,
        other => panic!("a claim was expected: {other:?}"),
    }
}

/// Boot 1, registered; send 1 in session 1, accepted at 0 and claimed at 10 with token 1.
pub(crate) async fn running(store: &SqliteStore) -> Claimed {
    register(store, 0, 1).await;
    accept(store, 0, opening(1, 1)).await;
    claim(store, 10, 1, 1, 1).await
}

pub(crate) async fn append(store: &SqliteStore, ms: i64, item: AppendRound) -> AppendOutcome {
    one(store
        .append_rounds(at(ms), vec![item])
        .await
        .expect("answers"))
}

pub(crate) async fn try_complete(
    store: &SqliteStore,
    ms: i64,
    item: CompleteSend,
) -> CompleteOutcome {
    one(store
        .complete_sends(at(ms), vec![item])
        .await
        .expect("answers"))
}

pub(crate) async fn complete(store: &SqliteStore, ms: i64, item: CompleteSend) -> Completed {
    match try_complete(store, ms, item).await {
        CompleteOutcome::Completed(completed) => *completed,
        CompleteOutcome::LeaseLost => panic!("the lease was expected to hold"),
    }
}

pub(crate) async fn park(
    store: &SqliteStore,
    ms: i64,
    claimed: &Claimed,
    on: WaitingOn,
    until: ParkUntil,
) -> ParkOutcome {
    let item = ParkSend {
        key: claimed.key,
        lease: claimed.lease,
        send_id: claimed.send.record.id,
        on,
        until,
        usage: Vec::new(),
        totals: SendTotals::default(),
    };
    one(store.park_sends(at(ms), vec![item]).await.expect("answers"))
}

pub(crate) async fn cancel(store: &SqliteStore, ms: i64, n: u128) -> CancelOutcome {
    let items = vec![(TenantId::DEFAULT, send(n))];
    let outcomes = store.cancel_sends(at(ms), SCHEDULER, items).await;
    one(outcomes.expect("answers"))
}

pub(crate) async fn stored(store: &SqliteStore, n: u128) -> SendRecord {
    let found = store.get_sends(vec![(TenantId::DEFAULT, send(n))]).await;
    one(found.expect("answers")).expect("the send exists")
}

/// Fails unless every invariant holds.
pub(crate) async fn assert_sound(store: &SqliteStore, ms: i64) {
    let violations = store.audit(at(ms), AuditOptions::default()).await;
    assert_eq!(violations.expect("answers"), []);
}

pub(crate) fn one<T>(mut outcomes: Vec<T>) -> T {
    assert_eq!(outcomes.len(), 1, "one item has one outcome");
    outcomes.remove(0)
}
