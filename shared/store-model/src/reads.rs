//! Reads.

use std::collections::BTreeMap;

use async_trait::async_trait;
use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::inbox::{Fate, InboxItem};
use mainspring_shared::message::Message;
use mainspring_shared::send::SendRecord;
use mainspring_shared::session::SessionRecord;
use mainspring_shared::session::fold::Fold;
use mainspring_shared::step::Step;
use mainspring_shared::store::{
    AuditOptions, AuditPiece, Audited, FindMessages, FindSteps, FoundSteps, ListSends,
    ListSessions, ModelUsage, Page, QueueStats, ReadInbox, ReadMessages, Reads, Result,
    ScalingStats, SchemaFault, ServerInfo, SessionUsage, Violation,
};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::CallRecord;
use mainspring_shared::usage::{Purpose, Usage};

use crate::audit::audit;
use crate::audit::pieces::audit_piece;
use crate::memory::ModelStore;
use crate::session::Session;
use crate::sessions::record;
use crate::state::State;

#[async_trait]
impl Reads for ModelStore {
    async fn now(&self) -> Result<Timestamp> {
        Ok(self.time())
    }

    async fn check(&self) -> Result<ServerInfo> {
        Ok(ServerInfo {
            is_read_only: false,
            connections_short: None,
            server: "model".to_owned(),
            schema: 5,
            now: self.time(),
        })
    }

    async fn schema_faults(&self) -> Result<Vec<SchemaFault>> {
        Ok(Vec::new())
    }

    async fn last_steps(&self, keys: Vec<SessionKey>) -> Result<Vec<i64>> {
        let (state, _) = self.begin();
        Ok(last_steps(&state, &keys))
    }

    async fn read_messages(&self, query: ReadMessages) -> Result<Vec<Message>> {
        let (state, _) = self.begin();
        Ok(messages(&state, query))
    }

    async fn read_folds(&self, key: SessionKey) -> Result<Vec<Fold>> {
        let (state, _) = self.begin();
        let session = state.sessions.get(&key).filter(|it| it.cold.is_some());
        Ok(session.map_or_else(Vec::new, |session| session.transcript.folds.clone()))
    }

    async fn find_messages(&self, query: FindMessages) -> Result<Vec<Message>> {
        let (state, _) = self.begin();
        Ok(find(&state, query))
    }

    async fn read_steps(&self, key: SessionKey, after: i64, limit: u32) -> Result<Vec<Step>> {
        let (state, _) = self.begin();
        Ok(steps(&state, key, after, limit))
    }

    async fn index_steps(&self) -> Result<()> {
        Ok(())
    }

    async fn find_steps(&self, query: FindSteps) -> Result<Vec<FoundSteps>> {
        let (state, _) = self.begin();
        Ok(find_steps(&state, &query))
    }

    async fn queue_stats(&self) -> Result<Vec<QueueStats>> {
        let (state, now) = self.begin();
        Ok(queue_stats(&state, now))
    }

    async fn scaling(&self, pool: &str) -> Result<ScalingStats> {
        let (state, now) = self.begin();
        Ok(scaling(&state, now, pool))
    }

    async fn audit(&self, options: AuditOptions) -> Result<Vec<Violation>> {
        let (state, now) = self.begin();
        Ok(audit(&state.dump(), now, options))
    }

    async fn audit_piece(&self, piece: AuditPiece) -> Result<Audited> {
        let (state, now) = self.begin();
        let erasing = state.tenants.erasures.values();
        let erasing: Vec<_> = erasing.map(|erasure| erasure.tenant).collect();
        Ok(audit_piece(state.dump(), &erasing, now, piece))
    }
}

pub(crate) fn session(state: &State, now: Timestamp, key: SessionKey) -> Option<SessionRecord> {
    record(state, state.sessions.get(&key)?, now)
}

pub(crate) fn sessions(state: &State, now: Timestamp, query: &ListSessions) -> Page<SessionRecord> {
    let newest_first = state.sessions.values().rev();
    let found = newest_first
        .filter(|session| session.key.tenant == query.tenant)
        .filter(|session| query.before.is_none_or(|id| session.key.session < id))
        .filter_map(|session| record(state, session, now))
        .filter(|record| query.status.is_none_or(|status| status == record.status))
        .filter(|record| query.agent.is_none() || query.agent == record.agent.name)
        .filter(|record| {
            let mut wanted = query.metadata.iter();
            wanted.all(|(name, text)| {
                let member = record.metadata.get(name);
                member.and_then(|value| value.as_str()) == Some(text.as_str())
            })
        });
    page(found, query.limit)
}

pub(crate) fn sends(state: &State, query: &ListSends) -> Page<SendRecord> {
    let newest_first = state.sends.homes.iter().rev();
    let found = newest_first
        .filter(|((tenant, _), _)| *tenant == query.tenant)
        .filter(|(_, home)| query.session.is_none_or(|id| home.session == id))
        .filter(|((_, id), _)| query.before.is_none_or(|before| *id < before))
        .filter_map(|((tenant, id), _)| state.send(*tenant, *id))
        .filter(|send| query.status.is_none_or(|status| status == send.status))
        .cloned();
    page(found, query.limit)
}

pub(crate) fn page<T>(found: impl Iterator<Item = T>, limit: u32) -> Page<T> {
    let mut data: Vec<T> = found.take(limit as usize + 1).collect();
    let more = data.len() > limit as usize;
    data.truncate(limit as usize);
    Page { data, more }
}

pub(crate) fn last_steps(state: &State, keys: &[SessionKey]) -> Vec<i64> {
    let last = |key| state.sessions.get(key).map_or(0, |s| s.hot.next_step - 1);
    keys.iter().map(last).collect()
}

pub(crate) fn round(state: &State, key: SessionKey, send: SendId, round: i32) -> Vec<CallRecord> {
    let session = live(state, key);
    session.map_or_else(Vec::new, |session| session.round(send, round))
}

/// A session that is not deleted.
fn live(state: &State, key: SessionKey) -> Option<&Session> {
    let session = state.sessions.get(&key);
    session.filter(|session| session.cold.is_some())
}

pub(crate) fn inbox(state: &State, query: ReadInbox) -> Vec<InboxItem> {
    let session = live(state, query.key);
    let items = session.into_iter().flat_map(|s| s.inbox.values());
    let found = items
        .filter(|item| item.n > query.after)
        .filter(|item| !query.pending || item.fate == Fate::Pending);
    found.take(query.limit as usize).cloned().collect()
}

/// The children of a session by id, as sessions are listed.
pub(crate) fn children(state: &State, key: SessionKey) -> Vec<SessionKey> {
    let sessions = state.sessions.values();
    let children = sessions.filter(|session| {
        let parent = session.cold.as_ref().and_then(|cold| cold.parent.as_ref());
        session.key.tenant == key.tenant && parent.is_some_and(|p| p.session == key.session)
    });
    children.map(|session| session.key).collect()
}

pub(crate) fn usage(state: &State, key: SessionKey) -> Option<SessionUsage> {
    state.sessions.get(&key)?.cold.as_ref()?;
    let mut below = children(state, key);
    let mut sessions = 1;
    let mut parts = BTreeMap::new();
    while let Some(child) = below.pop() {
        sessions += 1;
        below.extend(children(state, child));
        add_usage(state, child, &mut parts);
    }
    let mut own = BTreeMap::new();
    add_usage(state, key, &mut own);
    Some(SessionUsage {
        sessions,
        own: own.into_values().collect(),
        below: parts.into_values().collect(),
    })
}

fn add_usage(state: &State, key: SessionKey, parts: &mut BTreeMap<(String, Purpose), ModelUsage>) {
    let rows = state
        .sessions
        .get(&key)
        .map(|session| session.usage.values());
    for row in rows.into_iter().flatten() {
        let slot = (row.model.clone(), row.purpose());
        let part = parts.entry(slot).or_insert_with(|| ModelUsage {
            model: row.model.clone(),
            purpose: row.purpose(),
            calls: 0,
            usage: Usage::default(),
        });
        part.calls += 1;
        part.usage.add(&row.usage);
    }
}

pub(crate) fn open_children(state: &State, key: SessionKey) -> u64 {
    let children = children(state, key);
    let open = children.iter().filter(|child| {
        let session = state.sessions.get(child);
        session.is_some_and(|session| {
            let mut sends = session.sends.values();
            sends.any(|send| send.finished_at.is_none() && send.position.is_some())
        })
    });
    open.count() as u64
}

pub(crate) fn messages(state: &State, query: ReadMessages) -> Vec<Message> {
    let session = live(state, query.key);
    let transcript = session
        .into_iter()
        .flat_map(|s| s.transcript.messages.values());
    let behind = transcript.filter(|message| message.seq > query.after);
    behind.take(query.limit as usize).cloned().collect()
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the port passes queries by value"
)]
pub(crate) fn find(state: &State, query: FindMessages) -> Vec<Message> {
    let session = live(state, query.key);
    let transcript = session
        .into_iter()
        .flat_map(|s| s.transcript.messages.values().rev());
    let found = transcript.filter(|message| {
        message.seq > query.after
            && message.seq < query.before
            && query.send.is_none_or(|send| send == message.send_id)
            && (query.call.is_none() || query.call == message.tool_call_id)
    });
    found.take(query.limit as usize).cloned().collect()
}

pub(crate) fn steps(state: &State, key: SessionKey, after: i64, limit: u32) -> Vec<Step> {
    let session = state.sessions.get(&key);
    let steps = session.into_iter().flat_map(|s| s.journal.steps.values());
    let behind = steps.filter(|step| step.n > after);
    behind.take(limit as usize).cloned().collect()
}

pub(crate) fn find_steps(state: &State, query: &FindSteps) -> Vec<FoundSteps> {
    let begin = query.begin();
    let behind = state.sessions.values().filter(|it| it.key > begin);
    let within = |at: Timestamp| query.from <= at && at < query.until;
    let found = behind.filter_map(|session| {
        let steps = session
            .journal
            .steps
            .values()
            .filter(|step| within(step.at));
        let numbers = steps.map(|step| step.n);
        Some(FoundSteps {
            key: session.key,
            first: numbers.clone().min()?,
            last: numbers.max()?,
        })
    });
    let mut found: Vec<FoundSteps> = found.collect();
    found.sort_unstable();
    found.truncate(query.limit as usize);
    found
}

/// Pools with ready or running sessions, by name.
pub(crate) fn queue_stats(state: &State, now: Timestamp) -> Vec<QueueStats> {
    let mut pools: BTreeMap<&str, QueueStats> = BTreeMap::new();
    for session in state.sessions.values() {
        let Some(ready_since) = session.hot.ready_since else {
            continue;
        };
        if state.waits_for_seat(session.key) {
            continue;
        }
        let stats = pools
            .entry(&session.hot.pool)
            .or_insert_with(|| QueueStats {
                pool: session.hot.pool.clone(),
                ready: 0,
                running: 0,
                oldest_ready_ms: 0,
            });
        if state.is_held(session, now) {
            stats.running += 1;
        } else {
            stats.ready += 1;
            let waited = now.since(ready_since).as_millis() as u64;
            stats.oldest_ready_ms = stats.oldest_ready_ms.max(waited);
        }
    }
    pools.into_values().collect()
}

pub(crate) fn scaling(state: &State, now: Timestamp, pool: &str) -> ScalingStats {
    let stats = queue_stats(state, now);
    let stats = stats.into_iter().find(|stats| stats.pool == pool);
    let (ready, running) = stats.map_or((0, 0), |stats| (stats.ready, stats.running));
    ScalingStats {
        ready,
        running,
        demand: ready + running,
    }
}
