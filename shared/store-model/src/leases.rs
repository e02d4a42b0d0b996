//! Work under a lease: each step first checks that the lease still holds.

use async_trait::async_trait;
use mainspring_shared::id::BootId;
use mainspring_shared::inbox::Fate;
use mainspring_shared::session::SIGNAL_RESULT;
use mainspring_shared::session::fold;
use mainspring_shared::session::transition::{self, Complete, Completion, Park, Parking};
use mainspring_shared::step::StepKind;
use mainspring_shared::store::{
    AppendOutcome, AppendRound, ClaimOutcome, ClaimSession, CompleteOutcome, CompleteSend,
    Completed, Counters, Leases, ParkOutcome, ParkSend, ReleaseSession, Result,
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
        boot: BootId,
        items: Vec<ClaimSession>,
    ) -> Result<Vec<ClaimOutcome>> {
        let (mut state, now) = self.begin();
        let outcomes = items
            .iter()
            .map(|item| claim::claim(&mut state, now, boot, item));
        Ok(outcomes.collect())
    }

    async fn append_rounds(&self, items: Vec<AppendRound>) -> Result<Vec<AppendOutcome>> {
        let (mut state, now) = self.begin();
        let outcomes = items.into_iter().map(|item| append(&mut state, now, item));
        Ok(outcomes.collect())
    }

    async fn complete_sends(&self, items: Vec<CompleteSend>) -> Result<Vec<CompleteOutcome>> {
        let (mut state, now) = self.begin();
        let outcomes = items
            .into_iter()
            .map(|item| complete(&mut state, now, item));
        Ok(outcomes.collect())
    }

    async fn park_sends(&self, items: Vec<ParkSend>) -> Result<Vec<ParkOutcome>> {
        let (mut state, now) = self.begin();
        let outcomes = items.into_iter().map(|item| park(&mut state, now, item));
        Ok(outcomes.collect())
    }

    async fn release_sessions(&self, items: Vec<ReleaseSession>) -> Result<Vec<bool>> {
        let (mut state, _) = self.begin();
        let outcomes = items.into_iter().map(|item| release(&mut state, item));
        Ok(outcomes.collect())
    }
}

pub(crate) fn append(state: &mut State, now: Timestamp, item: AppendRound) -> AppendOutcome {
    let id = item.send_id;
    let session = state.sessions.get_mut(&item.key);
    let found = session.and_then(|session| Some((session.send_state(id)?, session)));
    let Some((send, session)) = found else {
        return AppendOutcome::LeaseLost;
    };
    let before = session.hot.counters();
    let change = transition::append(
        &session.hot,
        &send,
        item.lease,
        item.refs(),
        &item.totals,
        now,
    );
    let Some(change) = change else {
        return repeated(session, &item);
    };
    let step = change.step_n();
    session.commit(change, item.messages);
    if let Some(fold) = item.fold {
        let fold = fold.at(session.hot.context_version, id, now);
        fold::attach(&mut session.transcript.folds, fold);
    }
    session.begin_calls(id, item.calls, item.lease.epoch, now);
    session.change_calls(item.changes, item.lease.epoch, now);
    session.deliver(id, &item.deliveries, before.next_seq, now);
    session.write_usage(id, item.usage);
    session.write_totals(id, item.totals);
    AppendOutcome::Appended {
        first_seq: before.next_seq,
        step,
        at: now,
        counters: Counters {
            signals: before.signals,
            ..session.hot.counters()
        },
    }
}

/// Answers a write that the fence refused. A repeat of the lease's last write gets the first one's
/// answer again, with the signals that it may have reported.
fn repeated(session: &Session, item: &AppendRound) -> AppendOutcome {
    let is_last = transition::is_repeat(&session.hot, item.lease);
    let steps = session.journal.steps.values().rev();
    let mut steps = steps.filter(|step| {
        (step.send_id, step.epoch) == (item.send_id, item.lease.epoch)
            && step.kind != StepKind::Resumed
    });
    let Some(step) = steps.next().filter(|_| is_last) else {
        return AppendOutcome::LeaseLost;
    };
    let mut counters = session.hot.counters();
    let waiting = session.inbox.values();
    let waiting = waiting.filter(|found| found.fate == Fate::Pending);
    counters.signals |= SIGNAL_RESULT;
    for found in waiting {
        counters.signals |= transition::item_signals(found.mode);
    }
    AppendOutcome::Appended {
        first_seq: step.refs.first_seq.unwrap_or(counters.next_seq),
        step: step.n,
        at: step.at,
        counters,
    }
}

pub(crate) fn complete(state: &mut State, now: Timestamp, item: CompleteSend) -> CompleteOutcome {
    let id = item.send_id;
    let session = state.sessions.get_mut(&item.key);
    let found = session.and_then(|session| Some((session.send_state(id)?, session)));
    let Some((send, session)) = found else {
        return CompleteOutcome::LeaseLost;
    };
    let completion = Completion {
        result: item.result,
        round: item.round,
        totals: &item.totals,
        unless: item.unless,
        then: item.then,
    };
    let first_seq = session.hot.next_seq;
    let (change, continues) =
        match transition::complete(&session.hot, &send, item.lease, completion, now) {
            Complete::LeaseLost => return CompleteOutcome::LeaseLost,
            Complete::Undelivered(change) => {
                session.commit(change, Vec::new());
                return CompleteOutcome::Undelivered;
            }
            Complete::Ended(change) => (change, false),
            Complete::Continues(change) => (change, true),
        };
    let step = change.step_n();
    let mut enqueue = session.commit(change, item.messages).ready;
    session.change_calls(item.changes, item.lease.epoch, now);
    session.deliver(id, &item.deliveries, first_seq, now);
    session.write_usage(id, item.usage);
    session.write_totals(id, item.totals);
    let projections = item.projections.into_iter();
    session
        .transcript
        .projections
        .extend(projections.map(|it| (it.from_seq, it)));
    let mut next = None;
    if continues {
        let head = session.head_state();
        let change = transition::start_next(&session.hot, head.as_ref(), now);
        enqueue = session.commit(change, Vec::new()).ready;
        let started = head.and_then(|head| {
            session.pin(head.id);
            session.started(head.id, None)
        });
        next = started.map(|started| (started, session.hot.counters()));
    }
    CompleteOutcome::Completed(Box::new(Completed {
        status: session.sends[&id].status,
        first_seq,
        step,
        at: now,
        next,
        enqueue,
    }))
}

pub(crate) fn park(state: &mut State, now: Timestamp, item: ParkSend) -> ParkOutcome {
    let id = item.send_id;
    let session = state.sessions.get_mut(&item.key);
    let found = session.and_then(|session| Some((session.send_state(id)?, session)));
    let Some((send, session)) = found else {
        return ParkOutcome::LeaseLost;
    };
    let parking = Parking {
        on: item.on,
        until: item.until,
        unless: item.unless,
        totals: &item.totals,
    };
    let signals = session.hot.signals;
    let outcome = match transition::park(&session.hot, &send, item.lease, parking, now) {
        Park::LeaseLost => return ParkOutcome::LeaseLost,
        Park::Woken(change) => {
            session.commit(change, Vec::new());
            return ParkOutcome::Woken { signals };
        }
        Park::Cancelled(change) => {
            let step = change.step_n();
            let answers = session.end_calls(id, now);
            let enqueue = session.commit(change, answers).ready;
            ParkOutcome::Cancelled { step, enqueue }
        }
        Park::Parked(change) => {
            let step = change.step_n();
            session.commit(change, Vec::new());
            ParkOutcome::Parked { step }
        }
    };
    session.write_usage(id, item.usage);
    session.write_totals(id, item.totals);
    outcome
}

pub(crate) fn release(state: &mut State, item: ReleaseSession) -> bool {
    let Some(session) = state.sessions.get_mut(&item.key) else {
        return false;
    };
    let head = session.head_state();
    let change = transition::release(&session.hot, head.as_ref(), item.lease, item.lost);
    let Some(change) = change else {
        return false;
    };
    session.commit(change, Vec::new());
    true
}
