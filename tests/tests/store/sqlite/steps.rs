//! Building blocks of the tests: small ids, a timeline, and steps that must succeed.

use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, OnBusy, SendOptions};
use mainspring_shared::id::{BootId, LeaseToken, SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::inbox::ItemKind;
use mainspring_shared::lease::Lease;
use mainspring_shared::message::{ContentPart, Message, NewMessage, Role, ToolCall};
use mainspring_shared::send::{SendRecord, SendResult, StopReason, WaitingOn};
use mainspring_shared::step::RoundRef;
use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, Accepted, AfterSend, AppendOutcome, AppendRound, AuditOptions,
    CallBegin, CancelOutcome, ClaimOutcome, ClaimSession, Claimed, CompleteOutcome, CompleteSend,
    Completed, DeliverItem, DeliverOutcome, Inspect as _, NewBoot, NewCall, NewSession,
    ReadMessages, SendTotals, Target, UsageRow,
};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::{CallRecord, Repeat, call_id};
use mainspring_shared::usage::Usage;
use mainspring_store_core::SqlStore;
use serde_json::{Map, json};
use uuid::Uuid;

/// How long the leases of boots run.
pub(crate) const TTL: i64 = 10_000;

/// The process that accepts and sweeps.
pub(crate) const SCHEDULER: BootId = BootId(Uuid::from_u128(0x5c));

/// A point on a timeline far in the future, where no lease has expired by the database's own clock.
pub(crate) fn time(ms: i64) -> Timestamp {
    Timestamp(4_102_444_800_000 + ms)
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
        parent: None,
    }
}

pub(crate) fn sending(n: u128, session: u128) -> AcceptSend {
    AcceptSend {
        id: send(n),
        target: Target::Existing(key(session)),
        input: vec![ContentPart::text(format!("words of {n}"))],
        options: SendOptions::default(),
        reports_to: None,
        run: None,
        idempotency: None,
        queued_max: 100,
        keeper: None,
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
        cached_fold_end: 0,
        key: key(session),
        token: LeaseToken(Uuid::from_u128(token)),
        cached_next_seq: 0,
        cached_from_seq: 0,
        cached_version: 0,
        crashes_below: i32::MAX,
        orphans: true,
    }
}

pub(crate) fn answer(text: &str, round: i32) -> NewMessage {
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

pub(crate) fn round_ref(index: i32) -> RoundRef {
    RoundRef {
        index,
        model: "m".to_owned(),
        usage: Usage::default(),
        digest: None,
        folded: None,
        aged_to: None,
        recalled: None,
    }
}

/// A first round that stores the input and an answer, after which the send continues.
pub(crate) fn round(claimed: &Claimed) -> AppendRound {
    AppendRound {
        fold: None,
        key: claimed.key,
        lease: claimed.lease,
        send_id: claimed.send.record.id,
        messages: vec![
            NewMessage::user(claimed.send.record.input.clone(), 0),
            answer("let me see", 0),
        ],
        calls: Vec::new(),
        changes: Vec::new(),
        deliveries: Vec::new(),
        usage: usage(0),
        round: Some(round_ref(0)),
        totals: SendTotals {
            rounds: 1,
            attempts: 1,
            ..SendTotals::default()
        },
    }
}

/// The first round of a send, with a call for each of `begins`.
pub(crate) fn calling(claimed: &Claimed, begins: Vec<CallBegin>) -> AppendRound {
    let send = claimed.send.record.id;
    let calls = begins
        .into_iter()
        .enumerate()
        .map(|(place, begins)| NewCall {
            call_id: call_id(send, 0, place),
            round: 0,
            place: i32::try_from(place).expect("few calls"),
            name: format!("tool-{place}"),
            arguments: json!({ "n": place }).into(),
            repeat: Repeat::Once,
            begins,
        });
    let calls: Vec<NewCall> = calls.collect();
    let mut item = round(claimed);
    item.messages[1].tool_calls = calls
        .iter()
        .map(|call| {
            ToolCall::new(
                call.call_id.clone(),
                call.name.clone(),
                call.arguments.clone(),
            )
        })
        .collect();
    item.calls = calls;
    item
}

/// A call that waits without a deadline.
pub(crate) fn waits(on: WaitingOn) -> CallBegin {
    CallBegin::Waits {
        on,
        approval: false,
        deadline: None,
    }
}

/// The answers to a round's calls, to be written after the message that made them.
pub(crate) async fn answers(store: &SqlStore, n: u128, session: u128) -> Vec<NewMessage> {
    let calls = store.read_round(key(session), send(n), 0).await;
    mainspring_shared::tool::answers(&calls.expect("answers")).expect("every call is settled")
}

pub(crate) async fn call(store: &SqlStore, n: u128, place: usize) -> CallRecord {
    let ids = vec![(TenantId::DEFAULT, call_id(send(n), 0, place))];
    one(store.get_calls(ids).await.expect("answers")).expect("the call exists")
}

/// The end of a send that runs under the lease of `claimed`, in its first round.
pub(crate) fn ending(claimed: &Claimed, record: &SendRecord, then: AfterSend) -> CompleteSend {
    CompleteSend {
        key: claimed.key,
        lease: claimed.lease,
        send_id: record.id,
        messages: vec![NewMessage::user(record.input.clone(), 0), answer("done", 0)],
        changes: Vec::new(),
        deliveries: Vec::new(),
        usage: usage(0),
        round: Some(round_ref(0)),
        totals: SendTotals {
            rounds: 1,
            ..SendTotals::default()
        },
        projections: Vec::new(),
        result: SendResult::completed(StopReason::End, "done".to_owned()),
        unless: 0,
        then,
    }
}

pub(crate) async fn register(store: &SqlStore, ms: i64, n: u128) {
    let new = NewBoot {
        id: boot(n),
        role: mainspring_shared::store::Role::Worker,
        name: format!("worker-{n}"),
        pool: "default".to_owned(),
        concurrency: 4,
        ttl: Duration::from_millis(TTL.unsigned_abs()),
        protocol: mainspring_shared::store::PROTOCOL,
        tools: mainspring_shared::tool::Published::default(),
    };
    store
        .at(time(ms))
        .register_boot(new)
        .await
        .expect("registers");
}

pub(crate) async fn offer(store: &SqlStore, ms: i64, item: AcceptSend) -> AcceptOutcome {
    let outcomes = store.at(time(ms)).accept_sends(SCHEDULER, vec![item]).await;
    one(outcomes.expect("answers"))
}

pub(crate) async fn accept(store: &SqlStore, ms: i64, item: AcceptSend) -> Accepted {
    match offer(store, ms, item).await {
        AcceptOutcome::Accepted(accepted) => accepted,
        other => panic!("accepted was expected: {other:?}"),
    }
}

pub(crate) async fn try_claim(
    store: &SqlStore,
    ms: i64,
    n: u128,
    session: u128,
    token: u128,
) -> ClaimOutcome {
    let items = vec![claiming(session, token)];
    let outcomes = store.at(time(ms)).claim_sessions(boot(n), items).await;
    one(outcomes.expect("answers"))
}

pub(crate) async fn claim(
    store: &SqlStore,
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
pub(crate) async fn running(store: &SqlStore) -> Claimed {
    register(store, 0, 1).await;
    accept(store, 0, opening(1, 1)).await;
    claim(store, 10, 1, 1, 1).await
}

/// The lease as its next write carries it: the holder numbers its writes.
async fn numbered(store: &SqlStore, session: SessionKey, lease: Lease) -> Lease {
    let dump = store.dump().await.expect("answers");
    let found = dump.sessions.into_iter().find(|s| s.key == session);
    let held = found.filter(|found| found.hot.token == Some(lease.token));
    let write = held.map_or(lease.write, |found| found.hot.writes);
    Lease { write, ..lease }
}

/// The number of rounds that a send has closed, which is the index of its next one.
async fn closed(store: &SqlStore, session: SessionKey, send: SendId) -> i32 {
    let dump = store.dump().await.expect("answers");
    let found = dump.sessions.into_iter().find(|s| s.key == session);
    let steps = found.into_iter().flat_map(|found| found.steps);
    let rounds = steps.filter(|step| step.send_id == send && step.refs.round.is_some());
    i32::try_from(rounds.count()).expect("few rounds")
}

pub(crate) async fn append(store: &SqlStore, ms: i64, mut item: AppendRound) -> AppendOutcome {
    item.lease = numbered(store, item.key, item.lease).await;
    let closed = closed(store, item.key, item.send_id).await;
    item.round = item.round.map(|_| round_ref(closed));
    item.totals.rounds = closed + i32::from(item.round.is_some());
    one(store
        .at(time(ms))
        .append_rounds(vec![item])
        .await
        .expect("answers"))
}

/// The end as its holder would write it, by what is stored of its send.
pub(crate) async fn as_stored(store: &SqlStore, mut item: CompleteSend) -> CompleteSend {
    item.lease = numbered(store, item.key, item.lease).await;
    let closed = closed(store, item.key, item.send_id).await;
    item.round = item.round.map(|_| round_ref(closed));
    item.totals.rounds = closed + i32::from(item.round.is_some());
    item
}

pub(crate) async fn try_complete(store: &SqlStore, ms: i64, item: CompleteSend) -> CompleteOutcome {
    let item = as_stored(store, item).await;
    one(store
        .at(time(ms))
        .complete_sends(vec![item])
        .await
        .expect("answers"))
}

pub(crate) async fn complete(store: &SqlStore, ms: i64, item: CompleteSend) -> Completed {
    match try_complete(store, ms, item).await {
        CompleteOutcome::Completed(completed) => *completed,
        other => panic!("a final send was expected: {other:?}"),
    }
}

/// A user message to deliver to a session.
pub(crate) fn words(session: u128, id: &str, mode: OnBusy) -> DeliverItem {
    DeliverItem {
        key: key(session),
        item_id: id.to_owned(),
        kind: ItemKind::Message,
        mode,
        content: vec![ContentPart::text(format!("words of {id}"))],
        idempotency: None,
        items_max: 10,
    }
}

pub(crate) async fn deliver(store: &SqlStore, ms: i64, item: DeliverItem) -> DeliverOutcome {
    let outcomes = store
        .at(time(ms))
        .deliver_items(SCHEDULER, vec![item])
        .await;
    one(outcomes.expect("answers"))
}

pub(crate) async fn transcript(store: &SqlStore, session: u128) -> Vec<Message> {
    let query = ReadMessages {
        key: key(session),
        after: 0,
        limit: 100,
    };
    store.read_messages(query).await.expect("answers")
}

pub(crate) async fn cancel(store: &SqlStore, ms: i64, n: u128) -> CancelOutcome {
    let items = vec![(TenantId::DEFAULT, send(n))];
    let outcomes = store.at(time(ms)).cancel_sends(SCHEDULER, items).await;
    one(outcomes.expect("answers"))
}

pub(crate) async fn stored(store: &SqlStore, n: u128) -> SendRecord {
    let found = store.get_sends(vec![(TenantId::DEFAULT, send(n))]).await;
    one(found.expect("answers")).expect("the send exists")
}

/// Fails unless every invariant holds.
pub(crate) async fn assert_sound(store: &SqlStore, ms: i64) {
    let violations = store.at(time(ms)).audit(AuditOptions::default()).await;
    assert_eq!(violations.expect("answers"), []);
}

pub(crate) fn one<T>(mut outcomes: Vec<T>) -> T {
    assert_eq!(outcomes.len(), 1, "one item has one outcome");
    outcomes.remove(0)
}
