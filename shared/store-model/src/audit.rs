//! Every invariant as a plain loop over a dump.

mod blobs;
mod calls;
mod named;
mod numbers;
mod owners;
pub(crate) mod pieces;
mod runs;
mod timers;

use std::collections::{BTreeMap, BTreeSet};

use mainspring_shared::id::SendId;
use mainspring_shared::invariants::INVARIANTS;
use mainspring_shared::message::{Message, Role};
use mainspring_shared::send::{SendRecord, SendStatus};
use mainspring_shared::session::Lifecycle;
use mainspring_shared::step::{Step, StepKind};
use mainspring_shared::store::{AuditOptions, Dump, DumpSession, Violation};
use mainspring_shared::time::Timestamp;
use serde_json::{Value, json};

/// Checks the content of a store at `now` against every invariant of `shared::invariants`. Returns
/// the violated ones in the order of that list, each with at most `rows_max` rows.
pub fn audit(dump: &Dump, now: Timestamp, options: AuditOptions) -> Vec<Violation> {
    let mut findings = Findings::default();
    for session in &dump.sessions {
        let mut found = Found {
            session,
            findings: &mut findings,
        };
        sends(&mut found);
        finals(&mut found);
        numbering(&mut found);
        hot_row(&mut found);
        epochs(&mut found);
        erased(&mut found, dump);
        if session.hot.lifecycle != Lifecycle::Deleted {
            // The rest of a deleted session is removed in no particular order, so nothing can be
            // said about it.
            calls::transcript(&mut found);
            usage(&mut found);
            numbers::asked(&mut found);
            numbers::folds(&mut found);
            numbers::projections(&mut found);
        }
        calls::rows(&mut found);
        calls::inbox(&mut found);
        calls::reports(&mut found, dump, now);
        owners::leases(&mut found, dump, now, options);
        numbers::earned(&mut found);
        numbers::grants(&mut found);
        numbers::written(&mut found);
        numbers::rounds(&mut found);
        numbers::sums(&mut found);
        numbers::budgets(&mut found);
    }
    owners::in_flight(&mut findings, dump, now, options);
    owners::tenants(&mut findings, dump);
    owners::seats(&mut findings, dump);
    owners::money(&mut findings, dump, now);
    named::agents(&mut findings, dump);
    named::skills(&mut findings, dump);
    named::tenants(&mut findings, dump);
    blobs::held(&mut findings, dump);
    blobs::named(&mut findings, dump);
    runs::check(&mut findings, dump);
    timers::timers(&mut findings, dump);
    let named = INVARIANTS.iter().filter_map(|(name, _)| {
        let mut rows = findings.remove(name)?;
        rows.truncate(options.rows_max as usize);
        Some(Violation {
            invariant: (*name).to_owned(),
            rows,
        })
    });
    named.collect()
}

type Findings = BTreeMap<&'static str, Vec<Value>>;

/// A session under audit and the findings so far.
struct Found<'a> {
    session: &'a DumpSession,
    findings: &'a mut Findings,
}

impl Found<'_> {
    fn add(&mut self, invariant: &'static str, mut row: Value) {
        row["session"] = json!(self.session.key.session);
        self.findings.entry(invariant).or_default().push(row);
    }
}

fn final_steps(session: &DumpSession, id: SendId) -> impl Iterator<Item = &Step> {
    let steps = session.steps.iter();
    steps.filter(move |step| step.send_id == id && step.kind == StepKind::Finished)
}

fn sends(found: &mut Found<'_>) {
    let session = found.session;
    for send in &session.sends {
        let count = final_steps(session, send.id).count();
        if count != usize::from(send.status.is_final()) {
            let row = json!({ "send": send.id, "status": send.status, "final_steps": count });
            found.add("send.one_final_step", row);
        }
        if !fits(send) {
            found.add(
                "send.shape",
                json!({ "send": send.id, "status": send.status }),
            );
        }
    }
    let sent = session
        .sends
        .iter()
        .filter_map(|send| Some((json!({ "send": send.id }), send.position?)));
    let said = session
        .inbox
        .iter()
        .map(|item| (json!({ "item": item.id }), item.n));
    let mut places = BTreeSet::new();
    for (mut row, position) in sent.chain(said) {
        if !places.insert(position) || position >= session.hot.next_position {
            row["position"] = json!(position);
            found.add("session.positions_unique", row);
        }
    }
}

/// Whether a send's fields are consistent with its status.
fn fits(send: &SendRecord) -> bool {
    let is_final = send.status.is_final();
    let begun = send.started_at.is_some() && send.agent_version.is_some();
    let placed = send.position.is_some();
    let by_status = match send.status {
        SendStatus::Queued => send.started_at.is_none() && (placed || send.alarm_at.is_some()),
        SendStatus::Running | SendStatus::Waiting | SendStatus::Completed => begun && placed,
        SendStatus::Failed | SendStatus::Cancelled => true,
    };
    by_status
        && send.finished_at.is_some() == is_final
        && send.stop_reason.is_some() == is_final
        && send.waiting_on.is_some() == (send.status == SendStatus::Waiting)
        && send.error.is_some() == (send.status == SendStatus::Failed)
        && !(is_final && send.alarm_at.is_some())
}

/// Nothing of a send comes after its final step: no step with a higher number, except for folds of
/// its idle session, and no message that neither this step nor an earlier one wrote. Copied
/// messages, of epoch 0, have no step.
fn finals(found: &mut Found<'_>) {
    let session = found.session;
    for send in &session.sends {
        let Some(last) = final_steps(session, send.id).map(|step| step.n).min() else {
            continue;
        };
        for step in &session.steps {
            if step.send_id == send.id && step.n > last && step.kind != StepKind::Folded {
                found.add(
                    "send.final_is_last",
                    json!({ "send": send.id, "step": step.n }),
                );
            }
        }
        for message in &session.messages {
            let wrote = |step: &&Step| step.n <= last && writes(step, message);
            if message.send_id == send.id
                && message.epoch > 0
                && !session.steps.iter().any(|step| wrote(&step))
            {
                let row = json!({ "send": send.id, "seq": message.seq });
                found.add("send.final_is_last", row);
            }
        }
    }
}

fn writes(step: &Step, message: &Message) -> bool {
    let count = i64::from(step.refs.messages);
    let first = step.refs.first_seq;
    first.is_some_and(|first| (first..first + count).contains(&message.seq))
}

fn numbering(found: &mut Found<'_>) {
    let session = found.session;
    let seqs = session.messages.iter().map(|message| message.seq);
    let transcript_is_gone = session.hot.lifecycle == Lifecycle::Deleted;
    if !transcript_is_gone && !seqs.eq(session.first_seq..session.hot.next_seq) {
        let row = json!({ "messages": session.messages.len(), "next_seq": session.hot.next_seq });
        found.add("session.seq_gap_free", row);
    }
    let (count, next) = (session.steps.len() as i64, session.hot.next_step);
    let in_bounds = session.steps.iter().all(|step| (1..next).contains(&step.n));
    if !in_bounds || count + session.retired_steps != next - 1 {
        let row = json!({ "steps": session.steps.len(), "next_step": session.hot.next_step });
        found.add("session.steps_gap_free", row);
    }
}

/// Nothing is left of a deleted session whose removal has ended, and no session below it is alive.
fn erased(found: &mut Found<'_>, dump: &Dump) {
    let session = found.session;
    let is_over =
        |session: &DumpSession| session.hot.lifecycle == Lifecycle::Deleted && !session.erasing;
    let left = session.messages.len()
        + session.calls.len()
        + session.inbox.len()
        + session.usage.len()
        + session.folds.len()
        + session.projections.len();
    if is_over(session) && left > 0 {
        found.add("session.erased", json!({ "left": left }));
    }
    if let Some(parent) = &session.parent {
        let mut others = dump.sessions.iter();
        let above = |other: &&DumpSession| {
            other.key.tenant == session.key.tenant && other.key.session == parent.session
        };
        if others.find(above).is_some_and(is_over) {
            found.add("session.erased", json!({ "parent": parent.session }));
        }
    }
}

fn hot_row(found: &mut Found<'_>) {
    let hot = &found.session.hot;
    let sends = &found.session.sends;
    let count = |status| sends.iter().filter(|send| send.status == status).count();
    let placed = sends
        .iter()
        .filter(|send| send.status == SendStatus::Queued && send.position.is_some())
        .count();
    if i64::try_from(placed) != Ok(hot.pending) {
        let row = json!({ "pending": hot.pending, "queued": placed });
        found.add("session.pending_matches", row);
    }
    let running = count(SendStatus::Running);
    let waiting = count(SendStatus::Waiting);
    if running + waiting > 1 {
        let row = json!({ "running": running, "waiting": waiting });
        found.add("session.one_active_send", row);
    }
    // A dump does not show whether a waiting send has got what it waits for, so its session may be
    // ready or not.
    let has_work = running > 0 || placed > 0;
    let is_ready = hot.ready_since.is_some();
    if hot.owner.is_none() && waiting == 0 && is_ready != has_work {
        let row = json!({ "ready_since": hot.ready_since, "running": running, "queued": placed });
        found.add("session.ready_iff_work", row);
    }
}

fn epochs(found: &mut Found<'_>) {
    let session = found.session;
    let messages = session.messages.iter().map(|m| ("seq", m.seq, m.epoch));
    let steps = session.steps.iter().map(|s| ("step", s.n, s.epoch));
    for written in [messages.collect::<Vec<_>>(), steps.collect()] {
        let mut highest = 0;
        for (what, n, epoch) in written {
            let row = || json!({ what: n, "epoch": epoch, "granted": session.hot.epoch });
            // Epoch 0 is not a grant: it belongs to an accept, a cancel of a queued send, or a
            // copy.
            if epoch != 0 && epoch < highest {
                found.add("epoch.never_decreases", row());
            }
            if epoch > session.hot.epoch || epoch < 0 {
                found.add("epoch.granted", row());
            }
            highest = highest.max(epoch);
        }
    }
    let boots = numbers::holders(session);
    for (epoch, boots) in boots.into_iter().filter(|(_, boots)| boots.len() > 1) {
        found.add(
            "epoch.one_boot",
            json!({ "epoch": epoch, "boots": boots.len() }),
        );
    }
}

fn usage(found: &mut Found<'_>) {
    let session = found.session;
    for message in &session.messages {
        let paid = session
            .usage
            .iter()
            .any(|(send, round, _)| *send == message.send_id && *round == message.round);
        // A message whose send was removed cannot be compared.
        let kept = found
            .session
            .sends
            .iter()
            .any(|send| send.id == message.send_id);
        if message.role == Role::Assistant && message.epoch > 0 && kept && !paid {
            let row = json!({ "send": message.send_id, "round": message.round });
            found.add("usage.matches_rounds", row);
        }
    }
}

#[cfg(test)]
mod tests;
