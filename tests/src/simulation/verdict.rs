//! The end of a world: whether it came to rest, and whether everything is as it should be.

use std::collections::{BTreeMap, BTreeSet};

use mainspring_shared::agent::OnBusy;
use mainspring_shared::error::Code;
use mainspring_shared::message::plain_text;
use mainspring_shared::send::SendStatus;
use mainspring_shared::store::{AuditOptions, Dump};
use mainspring_shared::timer::TimerStatus;

use super::clients::{Known, locked};
use super::plan::{Fault, Harm, What};
use super::system::Core;
use crate::history::{History, Op, Told, violations};

/// How long after the last trouble and the last request everything may take to finish, in virtual
/// milliseconds.
const REST_MS: u64 = 300_000;

/// Sends, runs and timers that are not finished.
fn open(dump: &Dump) -> Vec<String> {
    let mut open = Vec::new();
    for session in &dump.sessions {
        for send in &session.sends {
            if !send.status.is_final() {
                let (status, on) = (send.status, send.waiting_on);
                open.push(format!("{} is {status:?}, {on:?}", send.id));
            }
        }
        for call in session.calls.iter().filter(|call| call.result.is_none()) {
            open.push(format!("{call:?}"));
        }
        let hot = &session.hot;
        if hot.owner.is_some() || hot.ready_since.is_some() || hot.pending != 0 {
            open.push(format!("{} is at work: {hot:?}", session.key.session));
        }
    }
    for run in &dump.runs {
        if !run.run.status.is_final() {
            open.push(format!("{:?} is {:?}", run.run.key, run.run.status));
        }
    }
    for aside in &dump.money_aside {
        open.push(format!("{aside:?} is not settled"));
    }
    for (timer, _) in &dump.timers {
        if matches!(timer.state.status, TimerStatus::Armed) {
            open.push(format!("{} is armed", timer.id));
        }
    }
    open
}

/// Waits until everything is finished; if the time runs out, fails with what is not.
pub(super) async fn rest(core: &Core, since_ms: u64) -> Result<(), String> {
    loop {
        let dump = core.read(core.store.dump()).await;
        let open = open(&dump);
        if open.is_empty() {
            return Ok(());
        }
        if core.time.ms() > since_ms.max(core.over_ms()) + REST_MS {
            return Err(format!("it does not come to rest: {open:#?}"));
        }
        core.time.sleep(1_000).await;
    }
}

/// All violations found.
pub(super) async fn judged(known: &Known) -> Vec<String> {
    let core = &known.core;
    let mut found = Vec::new();
    let options = AuditOptions::default();
    let audited = core.made(core.store.at(core.now()).audit(options)).await;
    match audited {
        Ok(violations) => found.extend(violations.iter().map(|one| format!("audit: {one:?}"))),
        Err(error) => found.push(format!("the audit fails: {error}")),
    }
    let dump = core.read(core.store.dump()).await;
    found.extend(open(&dump));
    fates(known, &dump, &mut found);
    if core.plan.priced {
        money(&dump, &mut found);
    }
    ledgers(known, &dump, &mut found);
    let history = History {
        entries: known.book.entries(),
        readings: locked(&known.readings).clone(),
    };
    found.extend(violations(&history));
    found.append(&mut locked(&known.strange));
    found
}

/// Exactly what was accepted is stored, and every failure had a reason.
fn fates(known: &Known, dump: &Dump, found: &mut Vec<String>) {
    let plan = &known.core.plan;
    let is_unlucky = |fault: &Fault| {
        matches!(
            fault,
            Fault::Call {
                harm: Harm::Refused(_) | Harm::Unreadable(_),
                ..
            }
        )
    };
    let unlucky = plan.faults.iter().any(is_unlucky);
    let mut sends = BTreeMap::new();
    for session in &dump.sessions {
        for send in &session.sends {
            sends.insert(send.id.to_string(), send);
            let code = send.error.as_ref().map(|error| error.code);
            let expected = match code {
                None | Some(Code::SendDeadline) => true,
                Some(Code::Internal) => unlucky,
                // When several messages join one round, their scripted failures add up.
                Some(Code::LlmUnavailable) => failures_add_up(known),
                Some(_) => false,
            };
            if !expected {
                found.push(format!("{} failed: {:?}", send.id, send.error));
            }
            if send.status == SendStatus::Cancelled && plan_without_ends(known) {
                found.push(format!("nobody cancelled {}", send.id));
            }
        }
    }
    let mut accepted = BTreeSet::new();
    let mut doubtful = BTreeSet::new();
    for entry in known.book.entries() {
        let Op::Send { key, .. } = &entry.op else {
            continue;
        };
        let send = match &entry.told {
            Told::Yes(send) => send,
            Told::Unknown => {
                doubtful.insert(key.clone());
                continue;
            }
            Told::No(_) => continue,
        };
        let id = send["id"].as_str().unwrap_or_default();
        accepted.insert(id.to_owned());
        if !sends.contains_key(id) {
            found.push(format!("{key} was accepted as {id}, which is not stored"));
        }
    }
    let timers = dump.timers.iter().flat_map(|(_, fired)| fired);
    accepted.extend(timers.filter_map(|one| Some(one.send_id?.to_string())));
    for (id, send) in sends {
        let mine = send.reports_to.is_none() && send.run.is_none();
        let text = plain_text(&send.input);
        let mark = text.split(' ').next().unwrap_or_default();
        if mine && !accepted.contains(&id) && !doubtful.contains(mark) {
            found.push(format!("{id} is stored, and nobody was told of it"));
        }
    }
}

/// No less was entered than the calls cost whose usage is known.
fn money(dump: &Dump, found: &mut Vec<String>) {
    let calls = dump.sessions.iter().flat_map(|session| &session.paid);
    let cost: f64 = calls.filter_map(|usage| usage.cost_usd).sum();
    let entered: u64 = dump.money_days.iter().map(|(_, _, spent)| spent).sum();
    // Usages are sums of fractions of a dollar.
    if (entered as f64) < cost * 1e9 - 1.0 {
        found.push(format!("{entered} was entered for calls of ${cost}"));
    }
}

/// Whether messages may join so that one round fails more often than any one message says.
fn failures_add_up(known: &Known) -> bool {
    let ops = known.core.plan.ops.iter();
    let fails = |what: &What| match what {
        What::Send {
            session,
            words,
            mode,
            ..
        } if words["fail"] != 0 => Some((*session, *mode)),
        _ => None,
    };
    let failing: Vec<_> = ops.filter_map(|op| fails(&op.what)).collect();
    let joins = |mode| !matches!(mode, OnBusy::Enqueue | OnBusy::Reject);
    let sessions = known.core.plan.sessions;
    failing.iter().enumerate().any(|(n, (session, mode))| {
        let mut others = failing.iter().enumerate().filter(|(other, _)| *other != n);
        joins(*mode) && others.any(|(_, (other, _))| other % sessions == session % sessions)
    })
}

/// Whether nothing in the plan ends a send early.
fn plan_without_ends(known: &Known) -> bool {
    // If the database refuses a step of a run, the run ends as broken together with its leaves; if
    // it refuses a send's answer, the send fails and its children end with it.
    let breaks = |fault: &Fault| {
        matches!(
            fault,
            Fault::Call {
                method: "advance_runs" | "claim_runs" | "read_nodes" | "complete_sends",
                harm: Harm::Refused(_) | Harm::Unreadable(_),
                ..
            }
        )
    };
    if known.core.plan.faults.iter().any(breaks) {
        return false;
    }

    let ends = |what: &What| matches!(what, What::Cancel(_) | What::CancelRun(_));
    let early = |what: &What| {
        matches!(
            what,
            What::Send {
                deadline_ms: Some(_),
                ..
            }
        )
    };
    let mut ops = known.core.plan.ops.iter();
    !ops.any(|op| ends(&op.what) || early(&op.what))
}

/// The model and the tools were asked only for what someone sent, with valid requests, and calls
/// that may be made only once were made once.
fn ledgers(known: &Known, dump: &Dump, found: &mut Vec<String>) {
    let marks = locked(&known.marks).clone();
    let asked = known.core.ledger.all();
    for asked in &asked {
        // The mark of a child's input comes from the arguments of its parent's call.
        let child = asked.mark.starts_with('c');
        // The text that tells an agent that another one, for which it did not wait, has ended.
        let told = asked.mark == "The";
        if !child && !told && !marks.contains(&asked.mark) {
            found.push(format!("the model was asked for {:?}", asked.mark));
        }
        if let Some(fault) = &asked.fault {
            found.push(format!(
                "at {} the model was asked badly: {fault}",
                asked.at_ms
            ));
        }
    }
    let calls = dump.sessions.iter().flat_map(|session| &session.calls);
    let calls: BTreeMap<&str, _> = calls.map(|call| (call.call_id.as_str(), call)).collect();
    let mut times: BTreeMap<(&str, String), usize> = BTreeMap::new();
    for act in known.core.acts.all() {
        if !calls.contains_key(act.call_id.as_str()) {
            found.push(format!("{act:?} is in nobody's transcript"));
        }
        *times.entry((act.tool, act.call_id)).or_default() += 1;
    }
    let sound = known.core.plan.faults.is_empty();
    for ((tool, call), times) in times {
        if times > 1 && (tool == "act" || sound) {
            found.push(format!("{tool} acted {times} times for {call}"));
        }
    }
    for call in calls.values() {
        if call.result.is_none() {
            found.push(format!("{} has no result", call.call_id));
        }
    }
    if sound {
        let rounds = dump.sessions.iter().flat_map(|session| &session.messages);
        let said = rounds.filter(|m| m.role == mainspring_shared::message::Role::Assistant);
        // Failed, interrupted and cancelled model calls leave no message.
        if asked.len() < said.count() {
            found.push(format!("the model was asked only {} times", asked.len()));
        }
    }
}
