//! Helpers for tests with calls, items and children.

use mainspring_shared::agent::OnBusy;
use mainspring_shared::id::{BootId, SendId, SessionKey};
use mainspring_shared::inbox::{InboxItem, ItemKind};
use mainspring_shared::message::{ContentPart, NewMessage, Role, ToolCall};
use mainspring_shared::send::WaitingOn;
use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{
    AppendOutcome, AppendRound, CallAnswer, CallBegin, Claimed, Counters, DeliverItem,
    DeliverOutcome, Inspect as _, ParkOutcome, ParkSend, ParkUntil, PostOutcome, PostResult,
    ReadInbox,
};
use mainspring_shared::tool::{CallRecord, CallResult, Repeat, call_id};
use serde_json::json;

use crate::postgres::world::{TENANT, World, first_round, id, says, totals};

/// A call that waits for an external tool.
pub(crate) fn outside() -> CallBegin {
    waits(WaitingOn::Tool, false)
}

pub(crate) fn waits(on: WaitingOn, approval: bool) -> CallBegin {
    CallBegin::Waits {
        on,
        approval,
        deadline: None,
    }
}

/// The first round of a claimed send, in which the model asks for calls that begin like this.
pub(crate) fn asking(
    claimed: &Claimed,
    begins: impl IntoIterator<Item = CallBegin>,
) -> AppendRound {
    let mut round = first_round(claimed);
    let send = claimed.send.record.id;
    for (place, begins) in begins.into_iter().enumerate() {
        let arguments = json!({ "at": place });
        round.messages[1].tool_calls.push(ToolCall::new(
            call_id(send, 0, place),
            "look",
            arguments.clone(),
        ));
        round.calls.push(mainspring_shared::store::NewCall {
            call_id: call_id(send, 0, place),
            round: 0,
            place: place as i32,
            name: "look".to_owned(),
            arguments: arguments.into(),
            repeat: Repeat::Safe,
            begins,
        });
    }
    round
}

/// The answers to the calls of a message.
pub(crate) fn answered(asking: &NewMessage) -> Vec<NewMessage> {
    let calls = asking.tool_calls.iter().zip(1..);
    let answers = calls.map(|(call, back)| NewMessage {
        tool_call_id: Some(call.id.clone()),
        name: Some(call.name.clone()),
        asked_back: Some(back),
        ..says(Role::Tool, "seen", asking.round)
    });
    answers.collect()
}

/// A step that stores only what became of calls, without a model's answer.
pub(crate) fn only_calls(claimed: &Claimed) -> AppendRound {
    AppendRound {
        messages: Vec::new(),
        usage: Vec::new(),
        round: None,
        ..first_round(claimed)
    }
}

/// A park of the claimed send that no signal prevents.
pub(crate) fn park_on(claimed: &Claimed, on: WaitingOn) -> ParkSend {
    ParkSend {
        key: claimed.key,
        lease: claimed.lease,
        send_id: claimed.send.record.id,
        on,
        until: ParkUntil::Asked,
        unless: 0,
        usage: Vec::new(),
        totals: totals(1),
    }
}

pub(crate) fn words(key: SessionKey, item_id: &str, mode: OnBusy) -> DeliverItem {
    DeliverItem {
        key,
        item_id: item_id.to_owned(),
        kind: ItemKind::Message,
        mode,
        content: vec![ContentPart::text(item_id)],
        idempotency: None,
        items_max: 100,
    }
}

pub(crate) fn result(key: SessionKey, call_id: &str, text: &str) -> PostResult {
    PostResult {
        key,
        call_id: call_id.to_owned(),
        answer: CallAnswer::Result(CallResult::text(text)),
    }
}

pub(crate) fn approval(key: SessionKey, call_id: &str) -> PostResult {
    PostResult {
        answer: CallAnswer::Approve,
        ..result(key, call_id, "")
    }
}

impl World {
    pub(crate) async fn try_append(&self, at: i64, mut item: AppendRound) -> AppendOutcome {
        item.lease = self.numbered(item.lease);
        let lease = item.lease;
        let appended = self.store.at(self.time(at)).append_rounds(vec![item]).await;
        let outcome = appended.expect("appends").remove(0);
        if outcome != AppendOutcome::LeaseLost {
            self.wrote(lease);
        }
        outcome
    }

    /// Stores a round, which must succeed; returns the first `seq` and the counters.
    pub(crate) async fn append(&self, at: i64, item: AppendRound) -> (i64, Counters) {
        match self.try_append(at, item).await {
            AppendOutcome::Appended {
                first_seq,
                counters,
                ..
            } => (first_seq, counters),
            other @ (AppendOutcome::LeaseLost | AppendOutcome::Locked) => {
                panic!("not stored: {other:?}")
            }
        }
    }

    pub(crate) async fn park(&self, at: i64, mut item: ParkSend) -> ParkOutcome {
        item.lease = self.numbered(item.lease);
        let lease = item.lease;
        let parked = self.store.at(self.time(at)).park_sends(vec![item]).await;
        let outcome = parked.expect("parks").remove(0);
        if outcome != ParkOutcome::LeaseLost {
            self.wrote(lease);
        }
        outcome
    }

    /// Creates a session whose send waits for these calls; also returns the worker that claimed it.
    pub(crate) async fn waiting(
        &self,
        on: WaitingOn,
        begins: impl IntoIterator<Item = CallBegin>,
    ) -> (Claimed, BootId) {
        let worker = self.boot(0).await;
        let key = self.session().await;
        self.send(1, crate::postgres::world::to(key)).await;
        let claimed = self.claim(2, worker, key).await;
        self.append(3, asking(&claimed, begins)).await;
        let parked = self.park(4, park_on(&claimed, on)).await;
        assert!(matches!(parked, ParkOutcome::Parked { .. }), "{parked:?}");
        (claimed, worker)
    }

    pub(crate) async fn deliver(&self, at: i64, items: Vec<DeliverItem>) -> Vec<DeliverOutcome> {
        let delivered = self
            .store
            .at(self.time(at))
            .deliver_items(BootId(id()), items)
            .await;
        delivered.expect("delivers")
    }

    pub(crate) async fn post(&self, at: i64, items: Vec<PostResult>) -> Vec<PostOutcome> {
        let posted = self.store.at(self.time(at)).post_results(items).await;
        posted.expect("posts")
    }

    pub(crate) async fn call(&self, call_id: &str) -> CallRecord {
        let calls = self.store.get_calls(vec![(TENANT, call_id.to_owned())]);
        let found = calls.await.expect("reads").remove(0);
        found.expect("the call exists")
    }

    pub(crate) async fn inbox(&self, key: SessionKey, pending: bool) -> Vec<InboxItem> {
        let query = ReadInbox {
            key,
            pending,
            after: 0,
            limit: 100,
        };
        self.store.read_inbox(query).await.expect("reads")
    }

    /// The raised signals of a session.
    pub(crate) async fn signals(&self, key: SessionKey) -> i32 {
        let dump = self.store.dump().await.expect("dumps");
        let session = dump.sessions.iter().find(|session| session.key == key);
        session.expect("the session exists").hot.signals
    }
}

/// The ids of a claimed send's first calls.
pub(crate) fn ids(claimed: &Claimed, calls: usize) -> Vec<String> {
    let send: SendId = claimed.send.record.id;
    (0..calls).map(|place| call_id(send, 0, place)).collect()
}
