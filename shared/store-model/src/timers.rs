//! Timers and their occurrences.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::id::{BootId, SessionId, SessionKey, TenantId, TimerId};
use mainspring_shared::session::Lifecycle;
use mainspring_shared::store::{
    AcceptOutcome, ChangeTimer, ChangeTimerOutcome, CreateRunOutcome, CreateTimerOutcome, Fired,
    FiredRun, FiredSend, IdempotencyKey, ListOccurrences, ListTimers, NewTimer, Page, RefuseTimer,
    Result, TimerDelivery, Timers, WebhookNews, deliveries, refusal, run_refusal,
};
use mainspring_shared::time::Timestamp;
use mainspring_shared::timer::{
    Event, Occurrence, Refusal, Step, TimerChange, TimerRecord, TimerState, TimerStatus,
    TimerTarget, transition,
};

use crate::memory::ModelStore;
use crate::state::{Seen, State};
use crate::{runs, sends};

#[async_trait]
impl Timers for ModelStore {
    async fn create_timers(
        &self,
        items: Vec<(NewTimer, Option<IdempotencyKey>)>,
    ) -> Result<Vec<CreateTimerOutcome>> {
        let (mut state, now) = self.begin();
        let outcomes = items
            .into_iter()
            .map(|(new, key)| create(&mut state, now, new, key.as_ref()));
        Ok(outcomes.collect())
    }

    async fn change_timers(&self, items: Vec<ChangeTimer>) -> Result<Vec<ChangeTimerOutcome>> {
        let (mut state, now) = self.begin();
        let outcomes = items.iter().map(|item| change(&mut state, now, item));
        Ok(outcomes.collect())
    }

    async fn fire_timers(&self, boot: BootId, limit: u32) -> Result<Fired> {
        let (mut state, now) = self.begin();
        Ok(fire(&mut state, now, boot, limit))
    }

    async fn sweep_timers(&self, keep: Duration) -> Result<u64> {
        let (mut state, now) = self.begin();
        Ok(retention(&mut state, now, keep))
    }

    async fn get_timers(&self, ids: Vec<(TenantId, TimerId)>) -> Result<Vec<Option<TimerRecord>>> {
        let (state, _) = self.begin();
        let found = ids
            .into_iter()
            .map(|id| state.timers.get(&id).map(|timer| timer.record.clone()));
        Ok(found.collect())
    }

    async fn list_timers(&self, query: ListTimers) -> Result<Page<TimerRecord>> {
        let (state, _) = self.begin();
        Ok(list(&state, &query))
    }

    async fn list_occurrences(&self, query: ListOccurrences) -> Result<Page<Occurrence>> {
        let (state, _) = self.begin();
        Ok(occurrences(&state, &query))
    }
}

/// A timer with its occurrences.
#[derive(Debug)]
pub(crate) struct Timer {
    pub(crate) record: TimerRecord,
    pub(crate) occurrences: BTreeMap<i64, Occurrence>,
}

impl Timer {
    fn take(&mut self, step: Step, now: Timestamp) {
        self.record.state = step.next;
        self.record.updated_at = now;
        for occurrence in step.occurrences {
            self.occurrences.insert(occurrence.n, occurrence);
        }
    }
}

pub(crate) fn create(
    state: &mut State,
    now: Timestamp,
    new: NewTimer,
    key: Option<&IdempotencyKey>,
) -> CreateTimerOutcome {
    match state.seen(key) {
        Seen::Before(timer) => return CreateTimerOutcome::Replayed(TimerId(timer)),
        Seen::Mismatch => return CreateTimerOutcome::Mismatch,
        Seen::Never => {}
    }
    if let Some(reason) = refuse(state, &new) {
        return CreateTimerOutcome::Refused(reason);
    }
    let armed = match TimerState::armed(new.id, &new.rule, now) {
        Ok(armed) => armed,
        Err(fault) => return CreateTimerOutcome::Refused(RefuseTimer::Schedule(fault)),
    };
    state.remember(key, new.id.0, now);
    let record = TimerRecord {
        id: new.id,
        tenant: new.tenant,
        target: new.target,
        rule: new.rule,
        state: armed,
        created_at: now,
        updated_at: now,
    };
    let timer = Timer {
        record: record.clone(),
        occurrences: BTreeMap::new(),
    };
    state.timers.insert((new.tenant, new.id), timer);
    CreateTimerOutcome::Created(Box::new(record))
}

fn refuse(state: &State, new: &NewTimer) -> Option<RefuseTimer> {
    let session = new.target.session()?;
    let key = SessionKey {
        tenant: new.tenant,
        session,
    };
    match state
        .sessions
        .get(&key)
        .map(|session| session.hot.lifecycle)
    {
        None | Some(Lifecycle::Deleted) => return Some(RefuseTimer::SessionNotFound),
        Some(Lifecycle::Closed) => return Some(RefuseTimer::SessionClosed),
        Some(Lifecycle::Open) => {}
    }
    let armed = of_session(state, new.tenant, session)
        .filter(|timer| timer.record.state.status == TimerStatus::Armed);
    let max = new.armed_max?;
    (armed.count() >= max as usize).then_some(RefuseTimer::TooMany)
}

fn of_session(state: &State, tenant: TenantId, session: SessionId) -> impl Iterator<Item = &Timer> {
    let timers = state.timers.values();
    timers.filter(move |timer| {
        timer.record.tenant == tenant && timer.record.target.session() == Some(session)
    })
}

pub(crate) fn change(state: &mut State, now: Timestamp, item: &ChangeTimer) -> ChangeTimerOutcome {
    let timer = state.timers.get_mut(&(item.tenant, item.id));
    let mine = |timer: &&mut Timer| {
        item.session
            .is_none_or(|session| timer.record.target.session() == Some(session))
    };
    let Some(timer) = timer.filter(mine) else {
        return ChangeTimerOutcome::NotFound;
    };
    match item.change.apply(&timer.record, now) {
        Ok(next) => timer.record = next,
        Err(why) => return ChangeTimerOutcome::refused(timer.record.clone(), why),
    }
    ChangeTimerOutcome::Changed(Box::new(timer.record.clone()))
}

/// Ends the timers of a deleted session.
pub(crate) fn cancel_all(state: &mut State, now: Timestamp, key: SessionKey) {
    let ids: Vec<_> = of_session(state, key.tenant, key.session)
        .map(|timer| timer.record.id)
        .collect();
    for id in ids {
        let item = ChangeTimer {
            tenant: key.tenant,
            id,
            session: None,
            change: TimerChange::Cancel,
        };
        change(state, now, &item);
        if let Some(timer) = state.timers.get_mut(&(key.tenant, id)) {
            timer.record.target = TimerTarget::emptied(key.session);
        }
    }
}

pub(crate) fn fire(state: &mut State, now: Timestamp, boot: BootId, limit: u32) -> Fired {
    let mut due: Vec<_> = state
        .timers
        .iter()
        .filter_map(|(key, timer)| Some((timer.record.state.fire_at?, *key)))
        .filter(|(fire_at, _)| *fire_at <= now)
        .collect();
    due.sort_unstable();
    let mut fired = Fired {
        now,
        more: due.len() >= limit as usize,
        ..Fired::default()
    };
    for (_, key) in due.into_iter().take(limit as usize) {
        fire_one(state, now, boot, key, &mut fired);
    }
    let armed = state.timers.values();
    let next = armed.filter_map(|timer| timer.record.state.fire_at);
    fired.next_due_at = next.filter(|fire_at| *fire_at > now).min();
    fired
}

fn fire_one(
    state: &mut State,
    now: Timestamp,
    boot: BootId,
    key: (TenantId, TimerId),
    fired: &mut Fired,
) {
    let Some(record) = state.timers.get(&key).map(|timer| timer.record.clone()) else {
        return;
    };
    let queued = record.state.last_send.filter(|id| {
        let send = state.send(key.0, *id);
        send.is_some_and(|send| send.status == mainspring_shared::send::SendStatus::Queued)
    });
    let due = |refused: Option<Refusal>| Event::Due { queued, refused };
    let Ok(mut step) = transition(&record, &due(None), now) else {
        return;
    };
    let mut refused = None;
    for (occurrence, delivery) in deliveries(&record, &step) {
        refused = match delivery {
            TimerDelivery::Send(item) => {
                let (session, send) = (item.target.key(), item.id);
                let outcome = sends::accept(state, now, boot, *item);
                if let AcceptOutcome::Accepted(accepted) = &outcome {
                    fired.enqueue.extend(accepted.enqueue.clone());
                    fired.sends.push(FiredSend {
                        key: session,
                        send,
                        step: accepted.step,
                        due_at: occurrence.due_at,
                    });
                }
                refusal(occurrence.n, &outcome)
            }
            TimerDelivery::Run(new) => {
                let outcome = runs::create(state, now, &new);
                if let CreateRunOutcome::Created(run) = &outcome {
                    let due_at = occurrence.due_at;
                    fired.runs.push(FiredRun {
                        key: run.key,
                        due_at,
                    });
                }
                run_refusal(occurrence.n, &outcome)
            }
        };
        if refused.is_some() {
            break;
        }
    }
    let is_refused = refused.is_some();
    if is_refused && let Ok(less) = transition(&record, &due(refused), now) {
        step = less;
    }
    fired.count(&step, is_refused);
    let news = WebhookNews::of_firing(&record, &step, now);
    state.webhooks.news.extend(news);
    if let Some(timer) = state.timers.get_mut(&key) {
        timer.take(step, now);
    }
}

pub(crate) fn list(state: &State, query: &ListTimers) -> Page<TimerRecord> {
    let wanted = state.timers.values().rev().map(|timer| &timer.record);
    let wanted = wanted.filter(|record| {
        record.tenant == query.tenant
            && query
                .session
                .is_none_or(|session| record.target.session() == Some(session))
            && query.status.is_none_or(|s| record.state.status == s)
            && query.before.is_none_or(|before| record.id < before)
    });
    page(wanted.cloned(), query.limit)
}

pub(crate) fn occurrences(state: &State, query: &ListOccurrences) -> Page<Occurrence> {
    let timer = state.timers.get(&(query.tenant, query.timer));
    let all = timer.into_iter().flat_map(|t| t.occurrences.values().rev());
    let wanted = all.filter(|o| query.before.is_none_or(|before| o.n < before));
    page(wanted.cloned(), query.limit)
}

fn page<T>(items: impl Iterator<Item = T>, limit: u32) -> Page<T> {
    let mut data: Vec<T> = items.take(limit as usize + 1).collect();
    let more = data.len() > limit as usize;
    data.truncate(limit as usize);
    Page { data, more }
}

/// Removes rows that are old enough.
pub(crate) fn retention(state: &mut State, now: Timestamp, keep: Duration) -> u64 {
    let is_old = |time: Timestamp| time.after(keep) < now;
    let mut removed = 0;
    for timer in state.timers.values_mut() {
        let before = timer.occurrences.len();
        timer.occurrences.retain(|_, o| !is_old(o.fired_at));
        removed += before - timer.occurrences.len();
    }
    let before = state.timers.len();
    state.timers.retain(|_, timer| {
        !timer.occurrences.is_empty() || !timer.record.state.ended_at.is_some_and(is_old)
    });
    (removed + before - state.timers.len()) as u64
}
