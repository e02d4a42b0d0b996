//! Background work: finding ready sessions, serving alarms, removing old rows.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::id::{BootId, RunKey, SendId, SessionKey};
use mainspring_shared::send::{SendRecord, SendStatus};
use mainspring_shared::session::transition;
use mainspring_shared::store::{
    API_KEY_KEEP, AlarmSweep, Orphans, ReadySession, Result, RetireSends, Retired, SweepOrphans,
    SweepReady, Sweeps, Swept,
};
use mainspring_shared::time::Timestamp;

use crate::boots;
use crate::memory::ModelStore;
use crate::session::Session;
use crate::state::State;

#[async_trait]
impl Sweeps for ModelStore {
    async fn sweep_ready(&self, query: SweepReady) -> Result<Swept> {
        let (state, now) = self.begin();
        Ok(ready(&state, now, &query))
    }

    async fn sweep_alarms(&self, boot: BootId, limit: u32) -> Result<AlarmSweep> {
        let (mut state, now) = self.begin();
        Ok(alarms(&mut state, now, boot, limit))
    }

    async fn sweep_orphans(&self, query: SweepOrphans) -> Result<Orphans> {
        let (state, now) = self.begin();
        Ok(orphans(&state, now, query))
    }

    async fn sweep_retention(&self, keep: Duration) -> Result<u64> {
        let (mut state, now) = self.begin();
        Ok(retention(&mut state, now, keep))
    }
}

/// Sends that ended without completing while work below them continues.
pub(crate) fn orphans(state: &State, now: Timestamp, query: SweepOrphans) -> Orphans {
    let sends = state.sessions.values().flat_map(|session| {
        let parent = session.cold.as_ref().and_then(|cold| cold.parent.as_ref());
        let parent = parent.map(|parent| parent.session);
        let open = session
            .sends
            .values()
            .filter(|send| !send.status.is_final());
        open.map(move |send| (session.key.tenant, send.id.0, &send.reports_to, parent))
    });
    let open = state.runs.rows.values().map(|run| &run.record);
    let runs = open
        .filter(|run| !run.status.is_final())
        .map(|run| (run.key.tenant, run.key.run.0, &run.reports_to, run.session));
    let mut page: Vec<_> = sends.chain(runs).collect();
    page.retain(|(tenant, id, call, _)| {
        call.is_some() && query.after.is_none_or(|after| (*tenant, *id) > after)
    });
    page.sort_unstable_by_key(|(tenant, id, ..)| (*tenant, *id));
    page.truncate(query.limit as usize);
    let last = page.last().map(|(tenant, id, ..)| (*tenant, *id));
    let full = page.len() == query.limit as usize;
    let ended = page.iter().filter_map(|(tenant, _, call, parent)| {
        let session = (*parent)?;
        let key = SessionKey {
            tenant: *tenant,
            session,
        };
        let home = state.sessions.get(&key)?;
        let send = home.calls.get(call.as_deref()?)?.send_id;
        let ended = home.sends.get(&send)?;
        let is_old = ended.finished_at?.after(query.older_than) < now;
        (is_old && ended.status != SendStatus::Completed).then_some((key, send))
    });
    let of: BTreeSet<_> = ended.collect();
    Orphans {
        of: of.into_iter().collect(),
        next: last.filter(|_| full),
    }
}

/// Ready sessions without a live owner, oldest first.
pub(crate) fn ready(state: &State, now: Timestamp, query: &SweepReady) -> Swept {
    let mut found: Vec<ReadySession> = state
        .sessions
        .values()
        .filter(|session| !state.is_held(session, now))
        .filter(|session| !state.waits_for_seat(session.key))
        .filter_map(|session| session.hot.ready())
        .filter(|ready| query.pool.as_ref().is_none_or(|pool| *pool == ready.pool))
        .filter(|ready| {
            let is_old = ready.ready_since.0 + query.older_than_ms <= now.0;
            // Or the clock was set back.
            is_old || ready.ready_since > now
        })
        .filter(|ready| query.after.is_none_or(|after| place(ready) > after))
        .collect();
    found.sort_by_key(place);
    let more = found.len() > query.limit as usize;
    found.truncate(query.limit as usize);
    let next = found.last().map(place).filter(|_| more);
    Swept {
        sessions: found,
        next,
    }
}

fn place(ready: &ReadySession) -> (Timestamp, SessionKey) {
    (ready.ready_since, ready.key)
}

/// Serves due alarms, oldest first.
pub(crate) fn alarms(state: &mut State, now: Timestamp, boot: BootId, limit: u32) -> AlarmSweep {
    let mut due: Vec<(Timestamp, SessionKey, SendId)> = armed(state)
        .filter(|(alarm_at, _)| *alarm_at <= now)
        .map(|(alarm_at, send)| (alarm_at, send.key, send.id))
        .collect();
    due.sort_by_key(|(alarm_at, _, id)| (*alarm_at, *id));
    due.truncate(limit as usize);
    let mut sweep = AlarmSweep {
        now,
        ..AlarmSweep::default()
    };
    for (_, key, id) in due {
        let runs = state.send(key.tenant, id).map(|send| send.status) == Some(SendStatus::Running);
        let owner = state
            .sessions
            .get(&key)
            .and_then(|session| session.hot.owner);
        let lease = runs.then(|| boots::lease_of(state, now, owner)).flatten();
        if let Some(session) = state.sessions.get_mut(&key) {
            serve(session, id, boot, lease, &mut sweep);
        }
    }
    sweep.next_alarm_at = armed(state).map(|(alarm_at, _)| alarm_at).min();
    sweep
}

fn armed(state: &State) -> impl Iterator<Item = (Timestamp, &SendRecord)> {
    let sends = state.sessions.values().flat_map(|s| s.sends.values());
    sends.filter_map(|send| send.alarm_at.map(|alarm_at| (alarm_at, send)))
}

/// Serves the alarm of a send. `lease` is the time until which its worker's lease is valid; none if
/// nobody runs it.
fn serve(
    session: &mut Session,
    id: SendId,
    boot: BootId,
    lease: Option<Timestamp>,
    sweep: &mut AlarmSweep,
) {
    let now = sweep.now;
    let Some(send) = session.send_state(id) else {
        return;
    };
    sweep.served += 1;
    let head = session.head_status();
    let mut change = transition::expire(&session.hot, &send, head, lease, boot, now);
    session.bill_crashed_call(id, &mut change);
    let mut unsaid = Vec::new();
    if change.end.is_some() {
        sweep.finished.push((session.key, id, change.step_n()));
        if send.is_active() {
            sweep.begun.push((session.key, id));
            unsaid = session.unsaid(id, now);
        }
    }
    sweep.enqueue.extend(session.commit(change, unsaid).ready);
}

/// Removes rows that are old enough. Ended boots are removed once they are old and no session names
/// them.
pub(crate) fn retention(state: &mut State, now: Timestamp, keep: Duration) -> u64 {
    let is_old = |time: Timestamp| time.after(keep) < now;
    let (tenants, boots) = (&mut state.tenants, &mut state.processes.boots);
    let before = tenants.requests.len() + boots.len() + tenants.api_keys.len();
    let key_keep = keep.max(API_KEY_KEEP);
    tenants.api_keys.retain(|_, key| {
        let over = [key.revoked_at, key.expires_at].into_iter().flatten().min();
        over.is_none_or(|over| over.after(key_keep) >= now)
    });
    tenants
        .requests
        .retain(|_, request| !is_old(request.created_at));
    let sessions = &state.sessions;
    boots.retain(|id, boot| {
        let ended = boot.dead_at.unwrap_or(boot.lease_until);
        !is_old(ended) || sessions.values().any(|s| s.hot.owner == Some(*id))
    });
    (before - tenants.requests.len() - boots.len() - tenants.api_keys.len()) as u64
}

/// Removes the sends of a page that are old enough, with everything that belongs only to them.
pub(crate) fn retire_sends(state: &mut State, now: Timestamp, query: RetireSends) -> Retired {
    let is_old = |time: Timestamp| time.after(query.keep) < now;
    let mut page: Vec<(SendId, SessionKey)> = state
        .sessions
        .values()
        .filter(|session| session.key.tenant == query.tenant)
        .flat_map(|session| session.sends.keys().map(|id| (*id, session.key)))
        .filter(|(id, _)| query.after.is_none_or(|after| *id > after))
        .collect();
    page.sort_unstable();
    page.truncate(query.limit as usize);
    let full = page.len() == query.limit as usize;
    let mut retired = Retired::default();
    let mut rounds = 0;
    for (id, key) in page {
        if rounds >= i64::from(query.limit) {
            return retired;
        }
        let Some(session) = state.sessions.get_mut(&key) else {
            continue;
        };
        let send = &session.sends[&id];
        let is_young = send.created_at.after(query.young) >= now;
        retired.next = Some(id).filter(|_| !is_young);
        rounds += i64::from(send.rounds);
        let is_told = send.reports_to.is_none() || session.journal.reported.contains(&id);
        let may_go = match &send.run {
            Some(at) => {
                let (tenant, run) = (query.tenant, at.run);
                send.finished_at.is_some() && !state.runs.rows.contains_key(&RunKey { tenant, run })
            }
            None => send.finished_at.is_some_and(is_old),
        };
        let has_aged = is_old(send.created_at) && send.finished_at.is_none_or(is_old);
        if may_go && is_told {
            retired.rows += session.retire(id);
        } else if has_aged {
            retired.skipped += 1;
        }
    }
    retired.next = retired.next.filter(|_| full);
    retired
}
