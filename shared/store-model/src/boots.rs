//! The lifetimes of processes.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::id::{BootId, SessionKey};
use mainspring_shared::session::transition;
use mainspring_shared::store::{
    BootRecord, Boots, NewBoot, Owned, PoolTools, Renewal, Result, Role,
};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::Published;

use crate::calibrations::Known;
use crate::memory::ModelStore;
use crate::state::State;

/// The lifetimes of processes, and what workers report.
#[derive(Debug, Default)]
pub(crate) struct ProcessTables {
    pub(crate) boots: BTreeMap<BootId, BootRecord>,
    /// The tools that boots offer to agents.
    pub(crate) tools: BTreeMap<BootId, Published>,
    /// What workers learned about providers' token counts, by provider and model.
    pub(crate) calibrations: BTreeMap<(String, String), Known>,
    /// The last lists of MCP servers.
    pub(crate) mcp_lists: BTreeMap<String, String>,
}

#[async_trait]
impl Boots for ModelStore {
    async fn register_boot(&self, boot: NewBoot) -> Result<()> {
        let (mut state, now) = self.begin();
        register(&mut state, now, boot);
        Ok(())
    }

    async fn renew_boot(&self, boot: BootId, ttl: Duration, in_flight: u32) -> Result<Renewal> {
        let (mut state, now) = self.begin();
        Ok(renew(&mut state, now, boot, ttl, in_flight))
    }

    async fn stop_boot(&self, boot: BootId) -> Result<()> {
        let (mut state, now) = self.begin();
        stop(&mut state, now, boot);
        Ok(())
    }

    async fn owned_sessions(
        &self,
        boot: BootId,
        after: Option<(Timestamp, SessionKey)>,
        limit: u32,
    ) -> Result<Owned> {
        let (state, _) = self.begin();
        Ok(owned(&state, boot, after, limit))
    }

    async fn list_boots(&self) -> Result<Vec<BootRecord>> {
        let (state, now) = self.begin();
        Ok(list(&state, now))
    }

    async fn list_tools(&self) -> Result<Vec<PoolTools>> {
        let (state, now) = self.begin();
        Ok(tools(&state, now))
    }
}

/// How long an ended boot remains in the list.
const SHOWN_FOR: Duration = Duration::from_mins(10);

pub(crate) fn register(state: &mut State, now: Timestamp, boot: NewBoot) {
    let record = BootRecord {
        id: boot.id,
        role: boot.role,
        name: boot.name,
        pool: boot.pool,
        concurrency: boot.concurrency,
        in_flight: 0,
        started_at: now,
        lease_until: now.after(boot.ttl),
        ttl: boot.ttl,
        protocol: boot.protocol,
        dead_at: None,
    };
    state.processes.tools.insert(record.id, boot.tools);
    state.processes.boots.insert(record.id, record);
}

/// Renews a lease. Only a declared death is final: a boot that is late continues if nobody has
/// noticed.
pub(crate) fn renew(
    state: &mut State,
    now: Timestamp,
    boot: BootId,
    ttl: Duration,
    in_flight: u32,
) -> Renewal {
    // A lease that is too long for any renewal by the current clock is left from before the clock
    // was set back. It is cut to what a renewal would give.
    for other in state.processes.boots.values_mut() {
        if other.dead_at.is_none() && other.lease_until > now.after(2 * other.ttl) {
            other.lease_until = now.after(other.ttl);
        }
    }
    let Some(record) = state.processes.boots.get_mut(&boot) else {
        return Renewal::Dead;
    };
    if record.dead_at.is_some() {
        return Renewal::Dead;
    }
    record.ttl = ttl;
    record.lease_until = now.after(ttl);
    record.in_flight = in_flight;
    let signalled = state
        .sessions
        .values()
        .filter(|session| session.hot.owner == Some(boot) && session.hot.signals != 0);
    Renewal::Renewed {
        at: now,
        signals: signalled.map(|s| (s.key, s.hot.signals)).collect(),
    }
}

pub(crate) fn stop(state: &mut State, now: Timestamp, boot: BootId) {
    if let Some(record) = state.processes.boots.get_mut(&boot)
        && record.dead_at.is_none()
    {
        record.dead_at = Some(now);
        record.lease_until = now;
    }
    for session in state.sessions.values_mut() {
        if session.hot.owner == Some(boot) && session.hot.ready_since.is_some() {
            let head = session.head_state();
            let change = transition::abandon(&session.hot, head.as_ref());
            session.commit(change, Vec::new());
        }
    }
}

/// Reads a page of ready sessions and returns those that the boot owns.
pub(crate) fn owned(
    state: &State,
    boot: BootId,
    after: Option<(Timestamp, SessionKey)>,
    limit: u32,
) -> Owned {
    let sessions = state.sessions.values();
    let mut ready: Vec<_> = sessions
        .filter_map(|session| Some((session.hot.ready_since?, session)))
        .filter(|(since, session)| after.is_none_or(|after| (*since, session.key) > after))
        .collect();
    ready.sort_by_key(|(since, session)| (*since, session.key));
    ready.truncate(limit as usize);
    let full = ready.len() == limit as usize;
    let last = ready.last().map(|(since, session)| (*since, session.key));
    let mine = ready.iter().filter(|(_, s)| s.hot.owner == Some(boot));
    Owned {
        sessions: mine
            .filter_map(|(_, s)| Some((s.key, s.hot.token?)))
            .collect(),
        next: last.filter(|_| full),
    }
}

/// Marks a boot as dead once its lease was found to have expired.
pub(crate) fn declare_dead(state: &mut State, now: Timestamp, boot: BootId) {
    if let Some(record) = state.processes.boots.get_mut(&boot) {
        record.dead_at = record.dead_at.or(Some(now));
    }
}

/// The time until which the lease of a session's owner is valid. An owner whose lease has expired
/// is declared dead and owns nothing: none.
pub(crate) fn lease_of(
    state: &mut State,
    now: Timestamp,
    owner: Option<BootId>,
) -> Option<Timestamp> {
    let record = state.processes.boots.get(&owner?)?;
    if record.dead_at.is_none() && record.lease_until < now {
        declare_dead(state, now, owner?);
        return None;
    }
    record.dead_at.is_none().then_some(record.lease_until)
}

pub(crate) fn list(state: &State, now: Timestamp) -> Vec<BootRecord> {
    shown(state, now).cloned().collect()
}

/// The tools of the workers that are alive or ended a short while ago.
pub(crate) fn tools(state: &State, now: Timestamp) -> Vec<PoolTools> {
    let workers = shown(state, now).filter(|boot| boot.role == Role::Worker);
    PoolTools::of(workers.map(|boot| {
        let tools = state.processes.tools.get(&boot.id).cloned();
        (boot.pool.clone(), tools.unwrap_or_default())
    }))
}

fn shown(state: &State, now: Timestamp) -> impl Iterator<Item = &BootRecord> {
    state.processes.boots.values().filter(move |boot| {
        let until = boot.dead_at.unwrap_or(boot.lease_until);
        until.after(SHOWN_FOR) >= now
    })
}
