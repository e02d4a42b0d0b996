use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, OnBusy, SendOptions};
use mainspring_shared::error::{Code, Failure};
use mainspring_shared::id::{LeaseToken, RunId, RunKey, SessionId, SessionKey, TenantId, TimerId};
use mainspring_shared::inbox::{Fate, ItemKind};
use mainspring_shared::lease::Lease;
use mainspring_shared::message::{ContentPart, NewMessage, ToolCall};
use mainspring_shared::send::{SendResult, StopReason};
use mainspring_shared::step::RoundRef;
use mainspring_shared::store::{
    AcceptSend, AppendRound, CallBegin, ClaimOutcome, ClaimSession, CompleteSend, DeliverItem,
    Delivery, NewBoot, NewCall, NewSession, NewTimer, Parent, Role, SendTotals, Target, Then,
    UsageRow,
};
use mainspring_shared::time::Span;
use mainspring_shared::timer::{
    CatchUp, First, Merge, Occurrence, Schedule, TimerRecord, TimerRule, TimerTarget,
};
use mainspring_shared::tool::{CallResult, Repeat};
use mainspring_shared::usage::Usage;
use mainspring_shared::workflow::run::{RunLeaf, RunStatus};
use serde_json::Map;
use uuid::Uuid;

use super::*;
use crate::state::State;
use crate::{boots, children, claim, inbox, leases, sends, timers};

const NOW: Timestamp = Timestamp(1_000_000);
const BOOT: BootId = BootId(Uuid::from_u128(0xb));
const KEY: SessionKey = SessionKey {
    tenant: TenantId::DEFAULT,
    session: SessionId(Uuid::from_u128(0x5)),
};
const CHILD: SessionKey = SessionKey {
    tenant: TenantId::DEFAULT,
    session: SessionId(Uuid::from_u128(0xc)),
};

fn send_id(n: u128) -> SendId {
    SendId(Uuid::from_u128(n))
}

fn assistant(round: i32, calls: &[&str]) -> NewMessage {
    let call = |id: &&str| ToolCall {
        id: (*id).to_owned(),
        name: "look".to_owned(),
        arguments: Value::Null,
    };
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

/// A session with a completed send of two rounds, one of them with a tool; a second send that
/// runs; and a third that is queued. The first one was steered; there are words for the second and
/// in the third. A child ended in the background and was reported.
fn healthy() -> Dump {
    let mut state = State::default();
    let boot = NewBoot {
        id: BOOT,
        role: Role::Worker,
        name: "one".to_owned(),
        pool: "default".to_owned(),
        concurrency: 1,
        ttl: Duration::from_secs(10),
    };
    boots::register(&mut state, NOW, boot);
    sends::accept(&mut state, NOW, BOOT, sending(1, creating(KEY, None)));
    for n in 2..=3 {
        sends::accept(&mut state, NOW, BOOT, sending(n, Target::Existing(KEY)));
    }
    let item = ClaimSession {
        key: KEY,
        token: LeaseToken(Uuid::from_u128(0x7)),
        cached_next_seq: 0,
        cached_from_seq: 0,
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
            arguments: Value::Null,
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
        totals: SendTotals::default(),
    };
    leases::append(state, NOW, item);
    let item = CompleteSend {
        key: KEY,
        lease,
        send_id: send_id(1),
        messages: vec![assistant(1, &[])],
        changes: Vec::new(),
        deliveries: Vec::new(),
        usage: paid(1),
        round: Some(round(1)),
        totals: SendTotals::default(),
        result: SendResult::completed(StopReason::End, "hm".to_owned()),
        unless: 0,
        then: Then::Continue,
    };
    leases::complete(state, NOW, item);
}

/// The message that asks for the call, the answer, and the row.
fn asked(dump: &mut Dump) -> &mut DumpSession {
    let session = &mut dump.sessions[0];
    assert_eq!(
        session.messages[1].tool_calls[0].id,
        session.calls[0].call_id
    );
    assert_eq!(session.messages[2].tool_call_id.as_deref(), Some("c1"));
    session
}

/// The items: delivered, pending, joined to a queued send, and the child's.
fn items(dump: &mut Dump) -> &mut [mainspring_shared::inbox::InboxItem] {
    let items = &mut dump.sessions[0].inbox;
    let fates: Vec<Fate> = items.iter().map(|item| item.fate).collect();
    let (delivered, pending) = (Fate::Delivered, Fate::Pending);
    assert_eq!(fates, [delivered, pending, delivered, pending]);
    items
}

/// The violations after `plant` changed a healthy content.
fn found(plant: impl FnOnce(&mut Dump)) -> Vec<String> {
    let mut dump = healthy();
    plant(&mut dump);
    let violations = audit(&dump, NOW, AuditOptions::default());
    violations.into_iter().map(|v| v.invariant).collect()
}

#[test]
fn a_healthy_content_violates_nothing() {
    assert_eq!(found(|_| {}), Vec::<String>::new());
}

#[test]
fn a_second_final_step_is_found() {
    let names = found(|dump| {
        let steps = &mut dump.sessions[0].steps;
        steps[0].kind = StepKind::Finished;
    });
    assert!(
        names.contains(&"send.one_final_step".to_owned()),
        "{names:?}"
    );
}

#[test]
fn a_final_send_without_a_final_step_is_found() {
    let names = found(|dump| {
        let steps = dump.sessions[0].steps.iter_mut();
        for step in steps.filter(|step| step.kind == StepKind::Finished) {
            step.kind = StepKind::Round;
        }
    });
    assert_eq!(names, ["send.one_final_step"]);
}

#[test]
fn a_message_behind_the_final_step_is_found() {
    let names = found(|dump| {
        let session = &mut dump.sessions[0];
        let mut late = session.messages[0].clone();
        late.seq = session.hot.next_seq;
        session.hot.next_seq += 1;
        session.messages.push(late);
    });
    assert_eq!(names, ["send.final_is_last"]);
}

#[test]
fn a_missing_message_is_found() {
    let names = found(|dump| {
        dump.sessions[0].messages.remove(0);
    });
    assert_eq!(names, ["session.seq_gap_free"]);
}

#[test]
fn a_missing_step_is_found() {
    let names = found(|dump| dump.sessions[0].hot.next_step += 1);
    assert_eq!(names, ["session.steps_gap_free"]);
}

#[test]
fn a_place_taken_twice_is_found() {
    let names = found(|dump| dump.sessions[0].sends[1].position = Some(1));
    assert_eq!(names, ["session.positions_unique"]);
}

#[test]
fn a_wrong_count_of_queued_sends_is_found() {
    let names = found(|dump| dump.sessions[0].hot.pending = 0);
    assert_eq!(names, ["session.pending_matches"]);
}

#[test]
fn work_that_nobody_would_hear_of_is_found() {
    let names = found(|dump| {
        let hot = &mut dump.sessions[0].hot;
        (hot.owner, hot.token, hot.ready_since) = (None, None, None);
    });
    assert_eq!(names, ["session.ready_iff_work"]);
}

#[test]
fn two_running_sends_are_found() {
    let names = found(|dump| {
        let session = &mut dump.sessions[0];
        let started = session.sends[1].clone();
        session.hot.pending = 0;
        let third = &mut session.sends[2];
        third.status = SendStatus::Running;
        (third.started_at, third.agent_version) = (started.started_at, started.agent_version);
    });
    assert_eq!(names, ["session.one_active_send"]);
}

#[test]
fn an_epoch_that_goes_back_is_found() {
    let names = found(|dump| {
        let session = &mut dump.sessions[0];
        session.hot.epoch = 2;
        session.messages[0].epoch = 2;
    });
    assert_eq!(names, ["epoch.never_decreases"]);
}

#[test]
fn two_boots_under_one_epoch_are_found() {
    let names = found(|dump| {
        let steps = &mut dump.sessions[0].steps;
        let last = steps.last_mut().expect("there are steps");
        last.boot = BootId(Uuid::from_u128(0xbb));
    });
    assert_eq!(names, ["epoch.one_boot"]);
}

#[test]
fn an_epoch_that_was_never_granted_is_found() {
    let names = found(|dump| dump.sessions[0].hot.epoch = 0);
    assert_eq!(names, ["epoch.granted"]);
}

#[test]
fn a_place_of_a_send_that_an_item_has_too_is_found() {
    let names = found(|dump| items(dump)[1].n = 1);
    assert_eq!(names, ["session.positions_unique"]);
}

#[test]
fn a_call_without_its_result_is_found() {
    let plants: [fn(&mut DumpSession); 5] = [
        |session| session.messages[2].tool_call_id = None,
        |session| session.messages[2].send_id = send_id(2),
        |session| session.messages[2].tool_call_id = Some("c2".to_owned()),
        |session| {
            session.messages[1].tool_calls.clear();
        },
        |session| session.calls.clear(),
    ];
    for (n, plant) in plants.into_iter().enumerate() {
        let names = found(|dump| plant(asked(dump)));
        assert!(
            names.contains(&"call.one_result".to_owned()),
            "{n}: {names:?}"
        );
    }
}

#[test]
fn answers_in_another_order_or_place_are_found() {
    let swapped = found(|dump| {
        let messages = &mut asked(dump).messages;
        let (answer, words) = (messages[2].clone(), messages[3].clone());
        messages[2] = Message { seq: 3, ..words };
        messages[3] = Message { seq: 4, ..answer };
    });
    assert_eq!(swapped, ["call.one_result"]);
    let twice = found(|dump| {
        let messages = &mut asked(dump).messages;
        let answer = messages[2].clone();
        messages[3] = Message { seq: 4, ..answer };
    });
    assert_eq!(twice, ["call.one_result"]);
}

#[test]
fn an_answered_call_that_is_not_settled_is_found() {
    let names = found(|dump| {
        let call = &mut asked(dump).calls[0];
        (call.result, call.settled_at) = (None, None);
    });
    assert_eq!(names, ["call.one_result"]);
}

#[test]
fn the_last_message_of_the_active_send_may_ask() {
    let ask = |dump: &mut Dump, send: SendId| {
        let session = asked(dump);
        let mut asking = session.messages[1].clone();
        asking.tool_calls[0].id = "c2".to_owned();
        (asking.seq, asking.send_id) = (session.hot.next_seq, send);
        session.hot.next_seq += 1;
        session.messages.push(asking);
        session.usage.push((send, 0, 1));
    };
    assert_eq!(found(|dump| ask(dump, send_id(2))), Vec::<String>::new());
    let names = found(|dump| ask(dump, send_id(1)));
    assert_eq!(names, ["send.final_is_last", "call.one_result"]);
}

#[test]
fn fields_of_a_call_that_do_not_fit_are_found() {
    let plants: [fn(&mut mainspring_shared::tool::CallRecord); 4] = [
        |call| call.settled_at = None,
        |call| call.waits_on = Some(mainspring_shared::send::WaitingOn::Tool),
        |call| call.attempt = 1,
        |call| call.started_epoch = Some(1),
    ];
    for (n, plant) in plants.into_iter().enumerate() {
        let names = found(|dump| plant(&mut asked(dump).calls[0]));
        assert_eq!(names, ["call.settled_shape"], "plant {n}");
    }
}

#[test]
fn an_item_without_one_fate_is_found() {
    let plants: [fn(&mut [mainspring_shared::inbox::InboxItem]); 6] = [
        |items| items[0].seq = None,
        |items| items[0].seq = Some(99),
        |items| items[0].settled_at = None,
        |items| items[1].seq = Some(1),
        |items| items[1].settled_at = Some(NOW),
        |items| items[2].seq = Some(1),
    ];
    for (n, plant) in plants.into_iter().enumerate() {
        let names = found(|dump| plant(items(dump)));
        assert_eq!(names, ["inbox.one_fate"], "plant {n}");
    }
}

#[test]
fn the_end_of_a_child_that_its_parent_does_not_know_is_found() {
    let names = |later: i64, plant: fn(&mut Dump)| {
        let mut dump = healthy();
        dump.boots[0].lease_until = Timestamp(NOW.0 + 1_000_000);
        plant(&mut dump);
        let now = Timestamp(NOW.0 + later);
        let violations = audit(&dump, now, AuditOptions::default());
        let names = violations.into_iter().map(|v| v.invariant);
        names.collect::<Vec<_>>()
    };
    let forget: fn(&mut Dump) = |dump| {
        dump.sessions[0].inbox.pop();
    };
    assert_eq!(names(60_001, |_| {}), Vec::<String>::new());
    assert_eq!(names(60_000, forget), Vec::<String>::new());
    assert_eq!(names(60_001, forget), ["child.reported"]);
    let parent_gone = names(60_001, |dump| {
        dump.sessions.remove(0);
    });
    assert_eq!(parent_gone, Vec::<String>::new());
}

#[test]
fn a_running_send_whose_owner_is_long_dead_is_found() {
    let bound = AuditOptions::default().takeover_bound.as_millis() as i64;
    let at_bound = found(|dump| dump.boots[0].lease_until = Timestamp(NOW.0 - bound));
    assert_eq!(at_bound, Vec::<String>::new());
    let names = found(|dump| dump.boots[0].lease_until = Timestamp(NOW.0 - bound - 1));
    assert_eq!(names, ["send.running_has_lease"]);
    let unknown = found(|dump| dump.boots.clear());
    assert_eq!(unknown, ["send.running_has_lease"]);
}

#[test]
fn a_round_that_nobody_paid_for_is_found() {
    let names = found(|dump| {
        dump.sessions[0].usage.remove(0);
    });
    assert_eq!(names, ["usage.matches_rounds"]);
}

#[test]
fn fields_that_do_not_fit_the_status_are_found() {
    let plants: [fn(&mut SendRecord); 6] = [
        |send| send.finished_at = None,
        |send| send.stop_reason = None,
        |send| send.waiting_on = Some(mainspring_shared::send::WaitingOn::Tool),
        |send| send.error = Some(Failure::new(Code::Internal, "x")),
        |send| send.alarm_at = Some(NOW),
        |send| send.agent_version = None,
    ];
    for (n, plant) in plants.into_iter().enumerate() {
        let names = found(|dump| plant(&mut dump.sessions[0].sends[0]));
        assert_eq!(names, ["send.shape"], "plant {n}");
    }
}

/// A sound dump with a timer that has three occurrences.
fn ticking() -> Dump {
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

#[test]
fn a_timer_that_did_not_fire_once_and_in_time_is_found() {
    type Plant = fn(&mut TimerRecord, &mut Vec<Occurrence>);
    let plants: [(&str, Plant); 8] = [
        ("timer.fired_once", |_, all| all.retain(|o| o.n != 2)),
        ("timer.fired_once", |_, all| all.truncate(2)),
        ("timer.fired_once", |timer, _| timer.state.next_n += 1),
        ("timer.fired_once", |_, all| all[2].send_id = all[0].send_id),
        ("timer.fired_once", |_, all| all[2].send_id = None),
        ("timer.never_early", |_, all| {
            all[1].due_at = NOW.after(Duration::from_hours(1));
        }),
        ("timer.shape", |timer, _| timer.state.fire_at = None),
        ("timer.shape", |timer, _| timer.state.ended_at = Some(NOW)),
    ];
    let options = AuditOptions::default();
    assert_eq!(audit(&ticking(), NOW, options), []);
    for (name, plant) in plants {
        let mut dump = ticking();
        let (timer, occurrences) = &mut dump.timers[0];
        assert_eq!(occurrences.len(), 3);
        plant(timer, occurrences);
        let names = audit(&dump, NOW, options).into_iter().map(|v| v.invariant);
        assert_eq!(names.collect::<Vec<_>>(), [name]);
    }
}

#[test]
fn every_invariant_of_the_list_has_a_plant_here() {
    let this_file = include_str!("tests.rs");
    for (name, _) in INVARIANTS {
        assert!(this_file.contains(&format!("\"{name}\"")), "{name}");
    }
}

#[test]
fn no_more_rows_are_shown_than_asked_for() {
    let mut dump = healthy();
    dump.sessions[0].usage.clear();
    let options = AuditOptions {
        rows_max: 1,
        ..AuditOptions::default()
    };
    let violations = audit(&dump, NOW, options);
    assert_eq!(violations.len(), 1);
    assert_eq!(violations[0].rows.len(), 1);
}

fn run_of(dump: &mut Dump) -> &mut mainspring_shared::store::DumpRun {
    let new = mainspring_shared::store::NewRun {
        key: RunKey {
            tenant: KEY.tenant,
            run: RunId(Uuid::from_u128(1)),
        },
        name: "r".to_owned(),
        spec: Value::Null,
        dsl_version: 1,
        input: Value::Null,
        options: mainspring_shared::workflow::run::RunOptions::default(),
        session: None,
        reports_to: None,
        depth: 1,
        idempotency: None,
    };
    dump.runs.push(mainspring_shared::store::DumpRun {
        run: new.record(NOW),
        owner: None,
        step: 0,
        nodes: Vec::new(),
        asks: Vec::new(),
        steps: Vec::new(),
    });
    &mut dump.runs[0]
}

fn leaf() -> RunLeaf {
    RunLeaf {
        run: RunId(Uuid::from_u128(1)),
        path: "/0".to_owned(),
        attempt: 1,
    }
}

#[test]
fn an_attempt_of_a_leaf_with_two_sends_is_found() {
    let names = found(|dump| {
        for send in &mut dump.sessions[0].sends[..2] {
            send.run = Some(leaf());
        }
    });
    assert_eq!(names, ["run.leaf_one_send"]);
}

#[test]
fn a_final_run_with_a_live_leaf_is_found() {
    let names = found(|dump| {
        run_of(dump).run.status = RunStatus::Completed;
        let mut sends = dump.sessions[0].sends.iter_mut();
        let live = sends.find(|send| send.status == SendStatus::Running);
        live.expect("one runs").run = Some(leaf());
    });
    assert_eq!(names, ["run.final_is_quiet"]);
}

#[test]
fn a_missing_advance_is_found() {
    let names = found(|dump| run_of(dump).step = 1);
    assert_eq!(names, ["run.steps_gap_free"]);
}
