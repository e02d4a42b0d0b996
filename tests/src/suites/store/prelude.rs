//! Building blocks of cases: small IDs, a timeline, and steps that must succeed.

mod calls;

use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, SendOptions};
use mainspring_shared::id::{BootId, LeaseToken, SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::lease::Lease;
use mainspring_shared::message::{ContentPart, Message, NewMessage, Role, ToolCall};
use mainspring_shared::send::{SendRecord, SendResult, StopReason, WaitingOn};
use mainspring_shared::step::{RoundRef, Step};
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, Accepted, AfterSend, AppendOutcome, AppendRound, CancelOutcome,
    ClaimOutcome, ClaimSession, Claimed, CompleteOutcome, CompleteSend, Completed, Counters,
    DumpSession, Inspect, NewBoot, NewSession, ParkOutcome, ParkSend, ParkUntil, ReadMessages,
    ReleaseLoss, ReleaseSession, SendTotals, Target, UsageRow,
};
use mainspring_shared::time::{Span, Timestamp};
use mainspring_shared::tool::call_id;
use mainspring_shared::usage::Usage;
use serde_json::Map;
use uuid::Uuid;

pub use calls::*;

/// Start of the timeline of every case: far in the future, so that by the database's own clock no
/// lease of a case has expired.
pub const START: Timestamp = Timestamp(4_102_444_800_000);

/// Lease duration of boots, in milliseconds.
pub const TTL: i64 = 10_000;

/// The process that accepts and sweeps. It is never registered, because it owns nothing for long.
pub const SCHEDULER: u128 = 0x5c;

/// A point on the timeline.
pub fn time(ms: i64) -> Timestamp {
    Timestamp(START.0 + ms)
}

/// A point on the timeline, for an optional column.
pub fn at(ms: i64) -> Option<Timestamp> {
    Some(time(ms))
}

/// A duration.
pub fn millis(ms: i64) -> Duration {
    Duration::from_millis(ms.unsigned_abs())
}

/// A duration, for an option of a send.
pub fn span(ms: i64) -> Option<Span> {
    Some(Span(millis(ms)))
}

/// The n-th session of the default tenant.
pub fn key(n: u128) -> SessionKey {
    SessionKey {
        tenant: TenantId::DEFAULT,
        session: SessionId(Uuid::from_u128(n)),
    }
}

/// The n-th send.
pub fn send(n: u128) -> SendId {
    SendId(Uuid::from_u128(n))
}

/// The n-th process.
pub fn boot(n: u128) -> BootId {
    BootId(Uuid::from_u128(n))
}

/// The n-th lease token.
pub fn token(n: u128) -> LeaseToken {
    LeaseToken(Uuid::from_u128(n))
}

/// A session to create.
pub fn new_session(n: u128) -> NewSession {
    NewSession {
        key: key(n),
        agent: AgentSpec {
            name: Some("helper".to_owned()),
            ..AgentSpec::default()
        },
        metadata: Map::new(),
        parent: None,
    }
}

/// The input of the n-th send.
pub fn words(n: u128) -> Vec<ContentPart> {
    vec![ContentPart::text(format!("words of {n}"))]
}

/// A send to an existing session.
pub fn sending(n: u128, session: u128) -> AcceptSend {
    AcceptSend {
        id: send(n),
        target: Target::Existing(key(session)),
        input: words(n),
        options: SendOptions::default(),
        reports_to: None,
        run: None,
        idempotency: None,
        queued_max: 100,
        keeper: None,
    }
}

/// A send that creates its session.
pub fn opening(n: u128, session: u128) -> AcceptSend {
    AcceptSend {
        target: Target::New(Box::new(new_session(session))),
        ..sending(n, session)
    }
}

/// A send with these options.
pub fn with(item: AcceptSend, options: SendOptions) -> AcceptSend {
    AcceptSend { options, ..item }
}

/// The options of a delayed send.
pub fn delayed(ms: i64) -> SendOptions {
    SendOptions {
        delay: span(ms),
        ..SendOptions::default()
    }
}

/// The options of a send with a deadline.
pub fn until(ms: i64) -> SendOptions {
    SendOptions {
        deadline: span(ms),
        ..SendOptions::default()
    }
}

/// An assistant message that makes these calls.
pub fn answer(text: &str, round: i32, calls: &[&str]) -> NewMessage {
    let calls = calls
        .iter()
        .map(|id| ToolCall::new(*id, "look", arguments(id)));
    NewMessage {
        role: Role::Assistant,
        tool_calls: calls.collect(),
        ..NewMessage::user(vec![ContentPart::text(text)], round)
    }
}

/// The result of a call, `back` messages after the one that made it.
pub fn tool_result(call: &str, round: i32, back: u32) -> NewMessage {
    NewMessage {
        role: Role::Tool,
        tool_call_id: Some(call.to_owned()),
        name: Some("look".to_owned()),
        asked_back: Some(back),
        ..NewMessage::user(vec![ContentPart::text("seen")], round)
    }
}

/// The usage of a round.
pub fn cost(tokens: u64) -> Usage {
    Usage {
        input_tokens: tokens,
        output_tokens: 2,
        cache_read_tokens: 1,
        cache_write_tokens: 3,
        reasoning_tokens: 0,
        cost_usd: Some(0.25),
        estimated: false,
    }
}

/// The usage row of one response.
pub fn usage_row(round: i32, attempt: i32) -> UsageRow {
    UsageRow {
        round,
        attempt,
        model: "m".to_owned(),
        usage: cost(10),
    }
}

/// The usage of this many responses.
pub fn costs(responses: u64) -> Usage {
    let mut sum = Usage::default();
    (0..responses).for_each(|_| sum.add(&cost(10)));
    sum
}

/// A round as recorded in its step.
pub fn round_ref(index: i32) -> RoundRef {
    RoundRef {
        index,
        model: "m".to_owned(),
        usage: cost(10),
        digest: None,
        folded: None,
        aged_to: None,
        recalled: None,
    }
}

/// The totals after `rounds` rounds of one attempt each.
pub fn totals(rounds: i32) -> SendTotals {
    SendTotals {
        usage: costs(u64::from(rounds.unsigned_abs())),
        rounds,
        attempts: rounds,
        ..SendTotals::default()
    }
}

/// The round `index` of a claimed send: the input if it is the first, a call and its result.
pub fn round(claimed: &Claimed, index: i32) -> AppendRound {
    let id = call_id(claimed.send.record.id, index, 0);
    let mut messages = Vec::new();
    if index == 0 {
        let input = claimed.send.record.input.clone();
        messages.push(NewMessage::user(input, 0));
    }
    messages.push(answer("let me look", index, &[&id]));
    messages.push(tool_result(&id, index, 1));
    AppendRound {
        fold: None,
        key: claimed.key,
        lease: claimed.lease,
        send_id: claimed.send.record.id,
        messages,
        calls: vec![new_call(claimed, index, 0, settled())],
        changes: Vec::new(),
        deliveries: Vec::new(),
        usage: vec![usage_row(index, index + 1)],
        round: Some(round_ref(index)),
        totals: totals(index + 1),
    }
}

/// The end of a claimed send that answers in its first round.
pub fn ending(claimed: &Claimed, then: AfterSend) -> CompleteSend {
    ending_of(claimed, &claimed.send.record, then)
}

/// The end of `record`, which runs under the lease in `claimed`.
pub fn ending_of(claimed: &Claimed, record: &SendRecord, then: AfterSend) -> CompleteSend {
    CompleteSend {
        key: claimed.key,
        lease: claimed.lease,
        send_id: record.id,
        messages: vec![
            NewMessage::user(record.input.clone(), 0),
            answer("done", 0, &[]),
        ],
        changes: Vec::new(),
        deliveries: Vec::new(),
        usage: vec![usage_row(0, 1)],
        round: Some(round_ref(0)),
        totals: totals(1),
        projections: Vec::new(),
        result: SendResult::completed(StopReason::End, "done".to_owned()),
        unless: 0,
        then,
    }
}

/// The parking of a claimed send that has called the model once, in vain.
pub fn waiting(claimed: &Claimed, on: WaitingOn, until: ParkUntil) -> ParkSend {
    ParkSend {
        key: claimed.key,
        lease: claimed.lease,
        send_id: claimed.send.record.id,
        on,
        until,
        unless: 0,
        usage: Vec::new(),
        totals: SendTotals {
            attempts: 1,
            ..SendTotals::default()
        },
    }
}

// Steps that must succeed -----------------------------------------------------------------------

/// Registers the n-th process at the start of the time line.
pub async fn register(store: &dyn Inspect, n: u128) {
    register_at(store, 0, n).await;
}

/// Registers the n-th process at this time.
pub async fn register_at(store: &dyn Inspect, ms: i64, n: u128) {
    let new = NewBoot {
        id: boot(n),
        role: mainspring_shared::store::Role::Worker,
        name: format!("worker-{n}"),
        pool: "default".to_owned(),
        concurrency: 4,
        ttl: millis(TTL),
        protocol: mainspring_shared::store::PROTOCOL,
        tools: mainspring_shared::tool::Published::default(),
    };
    let registered = store.at(time(ms)).register_boot(new).await;
    registered.expect("the store answers");
}

/// Tries to accept a send.
pub async fn offer(store: &dyn Inspect, ms: i64, item: AcceptSend) -> AcceptOutcome {
    let outcomes = store
        .at(time(ms))
        .accept_sends(boot(SCHEDULER), vec![item])
        .await
        .expect("the store answers");
    one(outcomes)
}

/// Accepts a send.
pub async fn accept(store: &dyn Inspect, ms: i64, item: AcceptSend) -> Accepted {
    match offer(store, ms, item).await {
        AcceptOutcome::Accepted(accepted) => accepted,
        other => panic!("accepted was expected: {other:?}"),
    }
}

/// A claim that may take any session, with nothing cached.
pub fn cold_claim(session: u128, token_n: u128) -> ClaimSession {
    ClaimSession {
        cached_fold_end: 0,
        key: key(session),
        token: token(token_n),
        cached_next_seq: 0,
        cached_from_seq: 0,
        cached_version: 0,
        crashes_below: i32::MAX,
        orphans: true,
    }
}

/// Tries to claim a session with nothing cached.
pub async fn try_claim(
    store: &dyn Inspect,
    ms: i64,
    boot_n: u128,
    session: u128,
    token_n: u128,
) -> ClaimOutcome {
    let outcomes = store
        .at(time(ms))
        .claim_sessions(boot(boot_n), vec![cold_claim(session, token_n)])
        .await
        .expect("the store answers");
    one(outcomes)
}

/// Claims a session with nothing cached.
pub async fn claim(
    store: &dyn Inspect,
    ms: i64,
    boot_n: u128,
    session: u128,
    token_n: u128,
) -> Claimed {
    match try_claim(store, ms, boot_n, session, token_n).await {
        ClaimOutcome::Claimed(claimed) => *claimed,
        other => panic!("a claim was expected: {other:?}"),
    }
}

/// Process 1 is registered; send 1 in session 1 was accepted at 0 and claimed at 10 with token 1.
pub async fn running(store: &dyn Inspect) -> Claimed {
    register(store, 1).await;
    accept(store, 0, opening(1, 1)).await;
    claim(store, 10, 1, 1, 1).await
}

/// The lease as its next write must carry it, with the holder's write count.
pub async fn numbered(store: &dyn Inspect, session: SessionKey, lease: Lease) -> Lease {
    let dump = store.dump().await.expect("the store answers");
    let mut sessions = dump.sessions.into_iter();
    let hot = sessions.find(|found| found.key == session).map(|s| s.hot);
    let held = hot.filter(|hot| hot.token == Some(lease.token));
    let write = held.map_or(lease.write, |hot| hot.writes);
    Lease { write, ..lease }
}

/// Stores a round; returns its first seq, its step, and the counters after it.
pub async fn append(store: &dyn Inspect, ms: i64, mut item: AppendRound) -> (i64, i64, Counters) {
    item.lease = numbered(store, item.key, item.lease).await;
    let outcomes = store.at(time(ms)).append_rounds(vec![item]).await;
    match one(outcomes.expect("the store answers")) {
        AppendOutcome::Appended {
            first_seq,
            step,
            at,
            counters,
        } => {
            assert_eq!(at, time(ms));
            (first_seq, step, counters)
        }
        other @ (AppendOutcome::LeaseLost | AppendOutcome::Locked) => {
            panic!("the lease was expected to hold: {other:?}")
        }
    }
}

/// Completes a send.
pub async fn complete(store: &dyn Inspect, ms: i64, item: CompleteSend) -> Completed {
    match try_complete(store, ms, item).await {
        CompleteOutcome::Completed(completed) => *completed,
        other => panic!("an end was expected: {other:?}"),
    }
}

/// Tries to complete a send.
pub async fn try_complete(store: &dyn Inspect, ms: i64, mut item: CompleteSend) -> CompleteOutcome {
    item.lease = numbered(store, item.key, item.lease).await;
    let outcomes = store.at(time(ms)).complete_sends(vec![item]).await;
    one(outcomes.expect("the store answers"))
}

/// Parks a send, or finds it cancelled.
pub async fn park(store: &dyn Inspect, ms: i64, mut item: ParkSend) -> ParkOutcome {
    item.lease = numbered(store, item.key, item.lease).await;
    let outcomes = store.at(time(ms)).park_sends(vec![item]).await;
    one(outcomes.expect("the store answers"))
}

/// Releases a lease; returns whether it was still held.
pub async fn release(store: &dyn Inspect, ms: i64, claimed: &Claimed) -> bool {
    let item = ReleaseSession {
        key: claimed.key,
        lease: claimed.lease,
        lost: ReleaseLoss::Nothing,
    };
    let outcomes = store.at(time(ms)).release_sessions(vec![item]).await;
    one(outcomes.expect("the store answers"))
}

/// Cancels a send of the default tenant.
pub async fn cancel(store: &dyn Inspect, ms: i64, n: u128) -> CancelOutcome {
    let outcomes = store
        .at(time(ms))
        .cancel_sends(boot(SCHEDULER), vec![(TenantId::DEFAULT, send(n))])
        .await
        .expect("the store answers");
    one(outcomes)
}

/// The only element of a vector.
pub fn one<T>(mut outcomes: Vec<T>) -> T {
    assert_eq!(outcomes.len(), 1, "one item has one outcome");
    outcomes.remove(0)
}

// What is stored --------------------------------------------------------------------------------

/// The record of a send of the default tenant.
pub async fn stored(store: &dyn Inspect, n: u128) -> SendRecord {
    let found = store.get_sends(vec![(TenantId::DEFAULT, send(n))]).await;
    one(found.expect("the store answers")).expect("the send exists")
}

/// A session with everything in it.
pub async fn dumped(store: &dyn Inspect, session: u128) -> DumpSession {
    let dump = store.dump().await.expect("the store answers");
    let mut sessions = dump.sessions.into_iter();
    sessions
        .find(|found| found.key == key(session))
        .expect("the session was there once")
}

/// Every step of a session.
pub async fn steps(store: &dyn Inspect, session: u128) -> Vec<Step> {
    let steps = store.read_steps(key(session), 0, 1_000).await;
    steps.expect("the store answers")
}

/// The last step of a session.
pub async fn last_step(store: &dyn Inspect, session: u128) -> Step {
    let mut steps = steps(store, session).await;
    steps.pop().expect("the session has steps")
}

/// The whole transcript of a session.
pub async fn transcript(store: &dyn Inspect, session: u128) -> Vec<Message> {
    let query = ReadMessages {
        key: key(session),
        after: 0,
        limit: 1_000,
    };
    store.read_messages(query).await.expect("the store answers")
}

/// The sequence numbers of messages.
pub fn seqs(messages: &[Message]) -> Vec<i64> {
    messages.iter().map(|message| message.seq).collect()
}
