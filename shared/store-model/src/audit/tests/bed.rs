//! Healthy content in which tests plant violations.

use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, OnBusy, SendOptions};
use mainspring_shared::id::{BootId, LeaseToken, SessionId, SessionKey, TenantId, TimerId};
use mainspring_shared::inbox::{Fate, ItemKind};
use mainspring_shared::lease::Lease;
use mainspring_shared::message::{ContentPart, NewMessage, ToolCall};
use mainspring_shared::send::{SendResult, StopReason};
use mainspring_shared::step::RoundRef;
use mainspring_shared::store::{
    AcceptSend, AfterSend, AppendRound, CallBegin, ClaimOutcome, ClaimSession, CompleteSend,
    DeliverItem, Delivery, NewBoot, NewCall, NewSession, NewTimer, Parent, Role, SendTotals,
    Target, UsageRow,
};
use mainspring_shared::time::Span;
use mainspring_shared::timer::{CatchUp, First, Merge, Schedule, TimerRule, TimerTarget};
use mainspring_shared::tool::{CallResult, Repeat};
use mainspring_shared::usage::Usage;
use serde_json::Map;
use uuid::Uuid;

use super::super::*;
use crate::state::State;
use crate::{boots, children, claim, inbox, leases, sends, timers};

pub(super) const NOW: Timestamp = Timestamp(1_000_000);
const BOOT: BootId = BootId(Uuid::from_u128(0xb));
pub(super) const KEY: SessionKey = SessionKey {
    tenant: TenantId::DEFAULT,
    session: SessionId(Uuid::from_u128(0x5)),
};
const CHILD: SessionKey = SessionKey {
    tenant: TenantId::DEFAULT,
    session: SessionId(Uuid::from_u128(0xc)),
};

pub(super) fn send_id(n: u128) -> SendId {
    SendId(Uuid::from_u128(n))
}

fn assistant(round: i32, calls: &[&str]) -> NewMessage {
    let call = |id: &&str| ToolCall::new(*id, "look", Value::Null);
    NewMessage {
        role: mainspring_shared::message::Role::Assistant,
        tool_calls: calls.iter().map(call).collect(),
        ..NewMessage::user(vec![ContentPart::text("hm")], round)
    }
}

fn answer(call: &str) -> NewMessage {
    NewMessage {
        role: mainspring_shared::message::Role::Tool,
        tool_call_id: Some(call.to_owned()),
        name: Some("look".to_owned()),
        asked_back: Some(1),
        ..NewMessage::user(vec![ContentPart::text("here")], 0)
    }
}

fn paid(round: i32) -> Vec<UsageRow> {
    vec![UsageRow {
        round,
        attempt: round + 1,
        model: "m".to_owned(),
        usage: Usage::default(),
    }]
}

fn round(index: i32) -> RoundRef {
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

fn totals(rounds: i32) -> SendTotals {
    SendTotals {
        rounds,
        ..SendTotals::default()
    }
}

fn sending(n: u128, target: Target) -> AcceptSend {
    AcceptSend {
        id: send_id(n),
        target,
        input: vec![ContentPart::text("hello")],
        options: SendOptions::default(),
        reports_to: None,
        run: None,
        idempotency: None,
        queued_max: 10,
        keeper: None,
    }
}

fn creating(key: SessionKey, parent: Option<Parent>) -> Target {
    Target::New(Box::new(NewSession {
        key,
        agent: AgentSpec::default(),
        metadata: Map::new(),
        parent,
    }))
}

fn words(id: &str, mode: OnBusy) -> DeliverItem {
    DeliverItem {
        key: KEY,
        item_id: id.to_owned(),
        kind: ItemKind::Message,
        mode,
        content: vec![ContentPart::text("and this")],
        idempotency: None,
        items_max: 10,
    }
}

/// A session with a completed send of two rounds, one of them with a tool; a running send; and a
/// queued one. The first send was steered; an item is pending for the second, and another was
/// merged into the third. A child ended in the background and was reported.
pub(super) fn healthy() -> Dump {
    let mut state = State::default();
    let boot = NewBoot {
        id: BOOT,
        role: Role::Worker,
        name: "one".to_owned(),
        pool: "default".to_owned(),
        concurrency: 1,
        ttl: Duration::from_secs(10),
        protocol: mainspring_shared::store::PROTOCOL,
        tools: mainspring_shared::tool::Published::default(),
    };
    boots::register(&mut state, NOW, boot);
    sends::accept(&mut state, NOW, BOOT, sending(1, creating(KEY, None)));
    for n in 2..=3 {
        sends::accept(&mut state, NOW, BOOT, sending(n, Target::Existing(KEY)));
    }
    let item = ClaimSession {
        cached_fold_end: 0,
        key: KEY,
        token: LeaseToken(Uuid::from_u128(0x7)),
        cached_next_seq: 0,
        cached_from_seq: 0,
        cached_version: 0,
        crashes_below: i32::MAX,
        orphans: true,
    };
    let ClaimOutcome::Claimed(claimed) = claim::claim(&mut state, NOW, BOOT, &item) else {
        panic!("the session has work");
    };
    inbox::deliver(&mut state, NOW, words("said", OnBusy::Steer));
    work(&mut state, claimed.lease);
    inbox::deliver(&mut state, NOW, words("to say", OnBusy::Steer));
    inbox::deliver(&mut state, NOW, words("joined", OnBusy::Coalesce));
    let parent = Parent {
        session: KEY.session,
        call_id: "c1".to_owned(),
        root: KEY.session,
        depth: 1,
    };
    let child = AcceptSend {
        reports_to: Some("c1".to_owned()),
        run: None,
        ..sending(4, creating(CHILD, Some(parent)))
    };
    sends::accept(&mut state, NOW, BOOT, child);
    sends::cancel(&mut state, NOW, BOOT, TenantId::DEFAULT, send_id(4));
    assert_eq!(children::report(&mut state, NOW, None, 10).len(), 1);
    state.dump()
}

fn work(state: &mut State, lease: Lease) {
    let item = AppendRound {
        fold: None,
        key: KEY,
        lease,
        send_id: send_id(1),
        messages: vec![
            NewMessage::user(vec![ContentPart::text("hello")], 0),
            assistant(0, &["c1"]),
            answer("c1"),
            NewMessage::user(vec![ContentPart::text("and this")], 0),
        ],
        calls: vec![NewCall {
            call_id: "c1".to_owned(),
            round: 0,
            place: 0,
            name: "look".to_owned(),
            arguments: Value::Null.into(),
            repeat: Repeat::Safe,
            begins: CallBegin::Settled(CallResult::text("here")),
        }],
        changes: Vec::new(),
        deliveries: vec![Delivery {
            item_id: "said".to_owned(),
            message: 3,
        }],
        usage: paid(0),
        round: Some(round(0)),
        totals: totals(1),
    };
    leases::append(state, NOW, item);
    let item = CompleteSend {
        key: KEY,
        lease: Lease { write: 1, ..lease },
        send_id: send_id(1),
        messages: vec![assistant(1, &[])],
        changes: Vec::new(),
        deliveries: Vec::new(),
        usage: paid(1),
        round: Some(round(1)),
        totals: totals(2),
        projections: Vec::new(),
        result: SendResult::completed(StopReason::End, "hm".to_owned()),
        unless: 0,
        then: AfterSend::Continue,
    };
    leases::complete(state, NOW, item);
}

/// The session, with the message that requests the call, the answer, and the call's row.
pub(super) fn asked(dump: &mut Dump) -> &mut DumpSession {
    let session = &mut dump.sessions[0];
    assert_eq!(
        session.messages[1].tool_calls[0].id,
        session.calls[0].call_id
    );
    assert_eq!(session.messages[2].tool_call_id.as_deref(), Some("c1"));
    session
}

/// The items: delivered, pending, merged into a queued send, and the child's.
pub(super) fn items(dump: &mut Dump) -> &mut [mainspring_shared::inbox::InboxItem] {
    let items = &mut dump.sessions[0].inbox;
    let fates: Vec<Fate> = items.iter().map(|item| item.fate).collect();
    let (delivered, pending) = (Fate::Delivered, Fate::Pending);
    assert_eq!(fates, [delivered, pending, delivered, pending]);
    items
}

/// The violations after `plant` changed healthy content.
pub(super) fn found(plant: impl FnOnce(&mut Dump)) -> Vec<String> {
    let mut dump = healthy();
    plant(&mut dump);
    let violations = audit(&dump, NOW, AuditOptions::default());
    violations.into_iter().map(|v| v.invariant).collect()
}

/// A healthy dump with a timer that has three occurrences.
pub(super) fn ticking() -> Dump {
    let mut state = State::default();
    let session = NewSession {
        key: KEY,
        agent: AgentSpec::default(),
        metadata: Map::new(),
        parent: None,
    };
    crate::sessions::create(&mut state, NOW, session, None);
    let every = Schedule::Every {
        every: Span(Duration::from_secs(1)),
        first: Some(First::At(NOW)),
    };
    let timer = NewTimer {
        id: TimerId(Uuid::from_u128(0x70)),
        tenant: KEY.tenant,
        target: TimerTarget::Send {
            session: KEY.session,
            input: vec![ContentPart::text("tick")],
            options: Box::default(),
        },
        rule: TimerRule {
            on_busy: Merge::Enqueue,
            catch_up: CatchUp::All,
            ..TimerRule::new(every)
        },
        armed_max: None,
    };
    timers::create(&mut state, NOW, timer, None);
    timers::fire(&mut state, NOW.after(Duration::from_secs(2)), BOOT, 10);
    state.dump()
}
