//! Work under a lease: each step first looks whether the lease still holds.

use async_trait::async_trait;
use mainspring_shared::agent::OnBusy;
use mainspring_shared::id::BootId;
use mainspring_shared::inbox::Fate;
use mainspring_shared::send::{SendResult, SendStatus};
use mainspring_shared::session::{SIGNAL_CANCEL, SIGNAL_INBOX, SIGNAL_INTERRUPT, SIGNAL_RESULT};
use mainspring_shared::step::{StepKind, StepRefs};
use mainspring_shared::store::{
    AppendOutcome, AppendRound, ClaimOutcome, ClaimSession, CompleteOutcome, CompleteSend,
    Completed, Leases, ParkOutcome, ParkSend, ParkUntil, ReleaseSession, Result, Then,
};
use mainspring_shared::time::Timestamp;

use crate::claim;
use crate::memory::ModelStore;
use crate::session::Session;
use crate::state::State;

#[async_trait]
impl Leases for ModelStore {
    async fn claim_sessions(
        &self,
        at: Option<Timestamp>,
        boot: BootId,
        items: Vec<ClaimSession>,
    ) -> Result<Vec<ClaimOutcome>> {
        let (mut state, now) = self.begin(at);
        let outcomes = items
            .iter()
            .map(|item| claim::claim(&mut state, now, boot, item));
        Ok(outcomes.collect())
    }

    async fn append_rounds(
        &self,
        at: Option<Timestamp>,
        items: Vec<AppendRound>,
    ) -> Result<Vec<AppendOutcome>> {
        let (mut state, now) = self.begin(at);
        let outcomes = items.into_iter().map(|item| append(&mut state, now, item));
        Ok(outcomes.collect())
    }

    async fn complete_sends(
        &self,
        at: Option<Timestamp>,
        items: Vec<CompleteSend>,
    ) -> Result<Vec<CompleteOutcome>> {
        let (mut state, now) = self.begin(at);
        let outcomes = items
            .into_iter()
            .map(|item| complete(&mut state, now, item));
        Ok(outcomes.collect())
    }

    async fn park_sends(
        &self,
        at: Option<Timestamp>,
        items: Vec<ParkSend>,
    ) -> Result<Vec<ParkOutcome>> {
        let (mut state, now) = self.begin(at);
        let outcomes = items.into_iter().map(|item| park(&mut state, now, item));
        Ok(outcomes.collect())
    }

    async fn release_sessions(
        &self,
        _at: Option<Timestamp>,
        items: Vec<ReleaseSession>,
    ) -> Result<Vec<bool>> {
        let (mut state, _) = self.begin(None);
        let outcomes = items.into_iter().map(|item| release(&mut state, item));
        Ok(outcomes.collect())
    }
}

pub(crate) fn append(state: &mut State, now: Timestamp, item: AppendRound) -> AppendOutcome {
    let session = state.sessions.get_mut(&item.key);
    let Some(session) = session.filter(|session| session.obeys(item.lease)) else {
        return AppendOutcome::LeaseLost;
    };
    if !session.admits(item.lease) {
        return repeated(session, &item);
    }
    session.hot.writes += 1;
    let id = item.send_id;
    // That more model calls were begun is no progress.
    let begun = session.sends.get(&id).is_some_and(|send| {
        send.rounds == item.totals.rounds && send.attempts < item.totals.attempts
    });
    let stored = session.write_messages(id, item.messages, item.lease.epoch, now);
    session.begin_calls(id, item.calls, item.lease.epoch, now);
    session.change_calls(item.changes, item.lease.epoch, now);
    session.deliver(id, &item.deliveries, stored.first_seq, now);
    session.write_usage(id, item.usage);
    session.write_totals(id, item.totals);
    if let Some(send) = session.sends.get_mut(&id).filter(|_| !begun) {
        send.crashes = 0;
    }
    let kind = if item.round.is_some() {
        StepKind::Round
    } else {
        StepKind::Calls
    };
    let refs = stored.refs(item.round);
    let step = session.write_step(id, kind, item.lease.into(), now, refs);
    let counters = session.counters();
    session.hot.signals &= SIGNAL_CANCEL;
    AppendOutcome::Appended {
        first_seq: stored.first_seq,
        step,
        at: now,
        counters,
    }
}

/// Answers what the fence kept out: a repeat of what its lease stored last is told what the first
/// was, with the signals that it may have told of.
fn repeated(session: &Session, item: &AppendRound) -> AppendOutcome {
    let is_last = session.hot.writes == item.lease.write + 1;
    let steps = session.steps.values().rev();
    let mut steps = steps.filter(|step| {
        (step.send_id, step.epoch) == (item.send_id, item.lease.epoch)
            && step.kind != StepKind::Resumed
    });
    let Some(step) = steps.next().filter(|_| is_last) else {
        return AppendOutcome::LeaseLost;
    };
    let mut counters = session.counters();
    let waiting = session.inbox.values();
    let waiting = waiting.filter(|found| found.fate == Fate::Pending);
    counters.signals |= SIGNAL_RESULT;
    for found in waiting {
        counters.signals |= match found.mode {
            OnBusy::Interrupt => SIGNAL_INBOX | SIGNAL_INTERRUPT,
            OnBusy::Enqueue | OnBusy::Coalesce | OnBusy::Steer | OnBusy::Reject => SIGNAL_INBOX,
        };
    }
    AppendOutcome::Appended {
        first_seq: step.refs.first_seq.unwrap_or(counters.next_seq),
        step: step.n,
        at: step.at,
        counters,
    }
}

/// The signals that keep a send from what it is about to do, which are lowered with that; a cancel
/// goes before them.
fn kept_by(session: &mut Session, unless: i32) -> Option<i32> {
    let signals = session.hot.signals;
    if signals & SIGNAL_CANCEL != 0 || signals & unless == 0 {
        return None;
    }
    session.hot.signals = 0;
    Some(signals)
}

pub(crate) fn complete(state: &mut State, now: Timestamp, item: CompleteSend) -> CompleteOutcome {
    let session = state.sessions.get_mut(&item.key);
    let Some(session) = session.filter(|session| session.admits(item.lease)) else {
        return CompleteOutcome::LeaseLost;
    };
    session.hot.writes += 1;
    if kept_by(session, item.unless).is_some() {
        return CompleteOutcome::Undelivered;
    }
    let result = if session.hot.signals & SIGNAL_CANCEL == 0 {
        item.result
    } else {
        SendResult::cancelled()
    };
    session.forget_signals();
    let status = result.status;
    let stored = session.write_messages(item.send_id, item.messages, item.lease.epoch, now);
    session.change_calls(item.changes, item.lease.epoch, now);
    session.deliver(item.send_id, &item.deliveries, stored.first_seq, now);
    session.write_usage(item.send_id, item.usage);
    session.write_totals(item.send_id, item.totals);
    let refs = stored.refs(item.round);
    let step = session.finish(item.send_id, result, item.lease.into(), now, refs);
    let goes_on = session.hot.pending > 0 && item.then == Then::Continue;
    let next = goes_on.then(|| session.start_head(now)).flatten();
    let next = next.map(|started| (started, session.counters()));
    let ring = if next.is_some() {
        None
    } else {
        session.give_back(now)
    };
    CompleteOutcome::Completed(Box::new(Completed {
        status,
        first_seq: stored.first_seq,
        step,
        at: now,
        next,
        ring,
    }))
}

pub(crate) fn park(state: &mut State, now: Timestamp, item: ParkSend) -> ParkOutcome {
    let session = state.sessions.get_mut(&item.key);
    let Some(session) = session.filter(|session| session.admits(item.lease)) else {
        return ParkOutcome::LeaseLost;
    };
    session.hot.writes += 1;
    if let Some(signals) = kept_by(session, item.unless) {
        return ParkOutcome::Woken { signals };
    }
    let id = item.send_id;
    session.write_usage(id, item.usage);
    session.write_totals(id, item.totals);
    if session.hot.signals & SIGNAL_CANCEL != 0 {
        session.forget_signals();
        let answers = session.end_calls(id, now);
        let stored = session.write_messages(id, answers, item.lease.epoch, now);
        let end = SendResult::cancelled();
        let step = session.finish(id, end, item.lease.into(), now, stored.refs(None));
        let ring = session.give_back(now);
        return ParkOutcome::Cancelled { step, ring };
    }
    if let Some(send) = session.sends.get_mut(&id) {
        let due = match item.until {
            ParkUntil::After(wait) => Some(now.after(wait)),
            ParkUntil::Asked => None,
        };
        send.status = SendStatus::Waiting;
        send.waiting_on = Some(item.on);
        send.alarm_at = [due, send.deadline_at].into_iter().flatten().min();
        send.crashes = 0;
    }
    session.hot.owner = None;
    session.hot.token = None;
    session.hot.ready_since = None;
    let refs = StepRefs {
        reason: Some(item.on.as_str().to_owned()),
        ..StepRefs::default()
    };
    let step = session.write_step(id, StepKind::Waiting, item.lease.into(), now, refs);
    ParkOutcome::Parked { step }
}

pub(crate) fn release(state: &mut State, item: ReleaseSession) -> bool {
    let session = state.sessions.get_mut(&item.key);
    let Some(session) = session.filter(|session| session.obeys(item.lease)) else {
        return false;
    };
    session.hot.owner = None;
    session.hot.token = None;
    if item.lost {
        session.count_lost();
    }
    true
}
