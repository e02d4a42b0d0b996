//! Building blocks of cases about calls, the inbox and children.

use mainspring_shared::agent::OnBusy;
use mainspring_shared::id::{BootId, SendId, TenantId};
use mainspring_shared::inbox::{InboxItem, ItemKind};
use mainspring_shared::message::{Arguments, ContentPart, NewMessage};
use mainspring_shared::send::WaitingOn;
use mainspring_shared::store::{
    AcceptSend, AppendRound, CallAnswer, CallBegin, CallChange, CallStep, Claimed, DeliverItem,
    DeliverOutcome, Delivery, Inspect, NewCall, NewSession, Parent, ParkOutcome, ParkUntil,
    PostOutcome, PostResult, ReadInbox, ReadySession, ReportOutcome, Target,
};
use mainspring_shared::tool::{
    Asked, CallRecord, CallResult, Inquiry, Repeat, Wants, answers, call_id,
};
use serde_json::json;

use super::{
    SCHEDULER, answer, append, boot, key, millis, new_session, one, park, round_ref, sending, time,
    totals, usage_row, waiting,
};

/// The ID of a call of a claimed send.
pub fn call(claimed: &Claimed, round: i32, place: usize) -> String {
    call_id(claimed.send.record.id, round, place)
}

/// A call that is settled at once.
pub fn settled() -> CallBegin {
    CallBegin::Settled(CallResult::text("seen"))
}

/// A call that waits for someone outside, without a deadline.
pub fn waits(on: WaitingOn) -> CallBegin {
    CallBegin::Waits {
        on,
        approval: false,
        deadline: None,
    }
}

/// A call that waits for approval, at most this long.
pub fn asks(ms: i64) -> CallBegin {
    CallBegin::Waits {
        on: WaitingOn::Human,
        approval: true,
        deadline: Some(millis(ms)),
    }
}

/// The arguments of a call in the words of a model that writes on several lines: every store returns them to the byte.
pub fn arguments(call_id: &str) -> Arguments {
    Arguments::read(&format!(
        "{{\r\n  \"at\": \"{call_id}\",\"a\":[1.50, 1e2]\n}}"
    ))
}

/// The row of a call.
pub fn new_call(claimed: &Claimed, round: i32, place: i32, begins: CallBegin) -> NewCall {
    let call_id = call(claimed, round, place.unsigned_abs() as usize);
    NewCall {
        arguments: arguments(&call_id),
        call_id,
        round,
        place,
        name: "look".to_owned(),
        repeat: Repeat::Keyed,
        begins,
    }
}

/// The round `index` of a claimed send, whose calls have these initial states and no answers yet.
pub fn asking(claimed: &Claimed, index: i32, begins: Vec<CallBegin>) -> AppendRound {
    let ids: Vec<_> = (0..begins.len()).map(|n| call(claimed, index, n)).collect();
    let ids: Vec<_> = ids.iter().map(String::as_str).collect();
    let mut messages = Vec::new();
    if index == 0 {
        let input = claimed.send.record.input.clone();
        messages.push(NewMessage::user(input, 0));
    }
    messages.push(answer("let me look", index, &ids));
    let calls = (0..).zip(begins);
    AppendRound {
        fold: None,
        key: claimed.key,
        lease: claimed.lease,
        send_id: claimed.send.record.id,
        messages,
        calls: calls
            .map(|(place, begins)| new_call(claimed, index, place, begins))
            .collect(),
        changes: Vec::new(),
        deliveries: Vec::new(),
        usage: vec![usage_row(index, index + 1)],
        round: Some(round_ref(index)),
        totals: totals(index + 1),
    }
}

/// Changes to the calls of the round `index`, without a new round.
pub fn changing(claimed: &Claimed, index: i32, changes: Vec<CallChange>) -> AppendRound {
    AppendRound {
        messages: Vec::new(),
        calls: Vec::new(),
        changes,
        usage: Vec::new(),
        round: None,
        ..asking(claimed, index, Vec::new())
    }
}

/// A step of a call.
pub fn change(call_id: impl Into<String>, change: CallStep) -> CallChange {
    CallChange {
        call_id: call_id.into(),
        change,
    }
}

/// A question that the given start of a call asked.
pub fn question(message: &str, attempt: i32) -> Asked {
    Asked {
        inquiry: Inquiry {
            message: message.to_owned(),
            wants: Wants::Form(json!({"type": "object", "properties": {}})),
        },
        attempt,
        reply: None,
    }
}

/// Settles a call with this result.
pub fn settling(call_id: impl Into<String>, text: &str) -> CallChange {
    change(call_id, CallStep::Settled(CallResult::text(text)))
}

/// The delivery of an item with the message at this index.
pub fn delivery(item_id: &str, message: u32) -> Delivery {
    Delivery {
        item_id: item_id.to_owned(),
        message,
    }
}

/// The n-th send, for a call of a parent, in a new child session.
pub fn child(n: u128, session: u128, parent: u128, call_id: &str) -> AcceptSend {
    AcceptSend {
        target: Target::New(Box::new(NewSession {
            parent: Some(Parent {
                session: key(parent).session,
                call_id: call_id.to_owned(),
                root: key(parent).session,
                depth: 1,
            }),
            ..new_session(session)
        })),
        reports_to: Some(call_id.to_owned()),
        run: None,
        ..sending(n, session)
    }
}

/// The content of an item.
pub fn news(item_id: &str) -> Vec<ContentPart> {
    vec![ContentPart::text(format!("news of {item_id}"))]
}

/// A message for a busy session.
pub fn item(item_id: &str, session: u128, mode: OnBusy) -> DeliverItem {
    DeliverItem {
        key: key(session),
        item_id: item_id.to_owned(),
        kind: ItemKind::Message,
        mode,
        content: news(item_id),
        idempotency: None,
        items_max: 100,
    }
}

// Steps that must succeed -----------------------------------------------------------------------

/// Stores a round whose calls have these initial states at `ms`, and parks its send a millisecond later.
pub async fn wait_for_calls(
    store: &dyn Inspect,
    ms: i64,
    claimed: &Claimed,
    on: WaitingOn,
    begins: Vec<CallBegin>,
) {
    append(store, ms, asking(claimed, 0, begins)).await;
    let mut item = waiting(claimed, on, ParkUntil::Asked);
    item.totals = totals(1);
    let parked = park(store, ms + 1, item).await;
    assert!(matches!(parked, ParkOutcome::Parked { .. }), "{parked:?}");
}

/// Posts an answer on behalf of a session.
pub async fn post(
    store: &dyn Inspect,
    ms: i64,
    session: u128,
    call_id: &str,
    answer: CallAnswer,
) -> PostOutcome {
    let item = PostResult {
        key: key(session),
        call_id: call_id.to_owned(),
        answer,
    };
    let outcomes = store.at(time(ms)).post_results(vec![item]).await;
    one(outcomes.expect("the store answers"))
}

/// Posts a result on behalf of a session.
pub async fn post_text(
    store: &dyn Inspect,
    ms: i64,
    session: u128,
    call_id: &str,
    text: &str,
) -> PostOutcome {
    let answer = CallAnswer::Result(CallResult::text(text));
    post(store, ms, session, call_id, answer).await
}

/// What to enqueue and whom to notify of an accepted answer.
pub fn told(outcome: PostOutcome) -> (Option<ReadySession>, Option<BootId>) {
    match outcome {
        PostOutcome::Accepted { enqueue, owner, .. } => (enqueue, owner),
        other => panic!("an accepted answer was expected: {other:?}"),
    }
}

/// Delivers a message to a session.
pub async fn deliver(store: &dyn Inspect, ms: i64, item: DeliverItem) -> DeliverOutcome {
    let outcomes = store
        .at(time(ms))
        .deliver_items(boot(SCHEDULER), vec![item])
        .await;
    one(outcomes.expect("the store answers"))
}

/// A message that was accepted.
#[derive(Debug, Clone, PartialEq)]
pub struct Taken {
    /// The send that absorbs it.
    pub send_id: SendId,
    /// The item.
    pub item: InboxItem,
    /// The session to enqueue, if any.
    pub enqueue: Option<ReadySession>,
    /// The process to notify, if any.
    pub owner: Option<BootId>,
}

/// Delivers a message to a session that accepts it.
pub async fn delivered(store: &dyn Inspect, ms: i64, item: DeliverItem) -> Taken {
    match deliver(store, ms, item).await {
        DeliverOutcome::Accepted {
            send_id,
            item,
            enqueue,
            owner,
        } => Taken {
            send_id,
            item: *item,
            enqueue,
            owner,
        },
        other => panic!("words were expected to be taken: {other:?}"),
    }
}

/// Reports the ends of children.
pub async fn report(store: &dyn Inspect, ms: i64) -> Vec<ReportOutcome> {
    let reported = store.at(time(ms)).report_children(None, 100).await;
    reported.expect("the store answers")
}

// What is stored --------------------------------------------------------------------------------

/// A call of the default tenant.
pub async fn call_of(store: &dyn Inspect, call_id: &str) -> CallRecord {
    let ids = vec![(TenantId::DEFAULT, call_id.to_owned())];
    let found = store.get_calls(ids).await.expect("the store answers");
    one(found).expect("the call exists")
}

/// The calls of a round.
pub async fn calls_of(store: &dyn Inspect, claimed: &Claimed, round: i32) -> Vec<CallRecord> {
    let id = claimed.send.record.id;
    let calls = store.read_round(claimed.key, id, round).await;
    calls.expect("the store answers")
}

/// The messages that answer a round whose calls are all settled.
pub async fn answers_of(store: &dyn Inspect, claimed: &Claimed, round: i32) -> Vec<NewMessage> {
    let calls = calls_of(store, claimed, round).await;
    answers(&calls).expect("every call is settled")
}

/// The inbox of a session.
pub async fn inbox(store: &dyn Inspect, session: u128) -> Vec<InboxItem> {
    let query = ReadInbox {
        key: key(session),
        pending: false,
        after: 0,
        limit: 1_000,
    };
    store.read_inbox(query).await.expect("the store answers")
}

/// The raised signals of a session.
pub async fn signals(store: &dyn Inspect, session: u128) -> i32 {
    super::dumped(store, session).await.hot.signals
}
