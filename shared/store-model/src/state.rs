//! The whole content of a store, as maps.

use std::collections::BTreeMap;

use mainspring_shared::id::{BootId, SendId, SessionId, SessionKey, TenantId, TimerId};
use mainspring_shared::send::SendRecord;
use mainspring_shared::store::{Dump, IdempotencyKey, KeyOutcome};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::CallRecord;
use uuid::Uuid;

use crate::agents::{self, AgentTables};
use crate::blobs::{self, BlobTables};
use crate::boots::ProcessTables;
use crate::memories::{self, MemoryTables};
use crate::runs::{Run, RunTables};
use crate::sends::SendTables;
use crate::session::Session;
use crate::tenants::TenantTables;
use crate::timers::Timer;
use crate::webhooks::WebhookTables;
use crate::{extractions, lists, money, skills};

/// Everything that a database would hold, by noun.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) processes: ProcessTables,
    pub(crate) agents: AgentTables,
    /// Including tombstones.
    pub(crate) sessions: BTreeMap<SessionKey, Session>,
    pub(crate) sends: SendTables,
    pub(crate) runs: RunTables,
    pub(crate) timers: BTreeMap<(TenantId, TimerId), Timer>,
    pub(crate) memory: MemoryTables,
    pub(crate) blobs: BlobTables,
    pub(crate) tenants: TenantTables,
    pub(crate) webhooks: WebhookTables,
}

/// A request that was served under an idempotency key.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) body_hash: [u8; 32],
    /// The resource that it created.
    pub(crate) resource: Uuid,
    pub(crate) created_at: Timestamp,
}

/// What is known about a request's idempotency key.
pub(crate) enum Seen {
    /// No request had the key, or there is no key.
    Never,
    /// The request was served and created this.
    Before(Uuid),
    /// A different request had the key.
    Mismatch,
}

impl State {
    /// Whether a boot may own sessions: it is known, not declared dead, and its lease has not
    /// expired.
    pub(crate) fn is_live(&self, boot: BootId, now: Timestamp) -> bool {
        let boot = self.processes.boots.get(&boot);
        boot.is_some_and(|boot| boot.dead_at.is_none() && boot.lease_until >= now)
    }

    /// Whether a live boot owns the session.
    pub(crate) fn is_held(&self, session: &Session, now: Timestamp) -> bool {
        session
            .hot
            .owner
            .is_some_and(|boot| self.is_live(boot, now))
    }

    /// Whether a worker may be granted a session when a send is accepted.
    pub(crate) fn may_keep(&self, key: SessionKey, keeper: BootId, now: Timestamp) -> bool {
        let pool = self.processes.boots.get(&keeper).map(|boot| &boot.pool);
        let serves = |session: &Session| Some(&session.hot.pool) == pool;
        self.is_live(keeper, now)
            && !self.tenants.seat_limits.contains_key(&key.tenant)
            && self.sessions.get(&key).is_some_and(serves)
    }

    /// Adds a session, replacing any that has its key.
    pub(crate) fn add_session(&mut self, mut session: Session) {
        session.journal.news = self.webhooks.news.clone();
        self.sessions.insert(session.key, session);
    }

    /// A send by id.
    pub(crate) fn send(&self, tenant: TenantId, id: SendId) -> Option<&SendRecord> {
        let home = self.sends.homes.get(&(tenant, id))?;
        self.sessions.get(home)?.sends.get(&id)
    }

    /// A call by id.
    pub(crate) fn call(&self, tenant: TenantId, id: &str) -> Option<&CallRecord> {
        let sessions = self.sessions.values();
        // Calls of deleted sessions are not found.
        let mut mine =
            sessions.filter(|session| session.key.tenant == tenant && session.cold.is_some());
        mine.find_map(|session| session.calls.get(id))
    }

    /// Looks up an idempotency key.
    pub(crate) fn seen(&self, key: Option<&IdempotencyKey>) -> Seen {
        let Some(key) = key else {
            return Seen::Never;
        };
        if key.names_session() {
            let named = self.tenants.names.get(&(key.tenant, key.key.clone()));
            return named.map_or(Seen::Never, |session| Seen::Before(session.0));
        }
        match self.tenants.requests.get(&slot(key)) {
            None => Seen::Never,
            Some(request) if request.body_hash == key.body_hash => Seen::Before(request.resource),
            Some(_) => Seen::Mismatch,
        }
    }

    /// Stores the resource that a request created.
    pub(crate) fn remember(&mut self, key: Option<&IdempotencyKey>, made: Uuid, now: Timestamp) {
        if let Some(key) = key.filter(|key| key.names_session()) {
            let place = (key.tenant, key.key.clone());
            self.tenants.names.insert(place, SessionId(made));
        } else if let Some(key) = key {
            let request = Request {
                body_hash: key.body_hash,
                resource: made,
                created_at: now,
            };
            self.tenants.requests.insert(slot(key), request);
        }
    }

    /// What a key was taken for.
    pub(crate) fn keyed_resource(&self, key: &IdempotencyKey) -> Option<Uuid> {
        if key.names_session() {
            let named = self.tenants.names.get(&(key.tenant, key.key.clone()));
            return named.map(|session| session.0);
        }
        let request = self.tenants.requests.get(&slot(key));
        request.map(|request| request.resource)
    }

    /// Takes a key for a request that does not itself create a resource.
    pub(crate) fn take_key(&mut self, key: &IdempotencyKey, now: Timestamp) -> KeyOutcome {
        match self.seen(Some(key)) {
            Seen::Never => {
                self.remember(Some(key), Uuid::nil(), now);
                KeyOutcome::Taken
            }
            Seen::Before(_) => KeyOutcome::Known,
            Seen::Mismatch => KeyOutcome::Mismatch,
        }
    }

    /// The content in the fixed order of the maps.
    pub(crate) fn dump(&self) -> Dump {
        let money = money::dump(&self.tenants.money);
        Dump {
            boots: self.processes.boots.values().cloned().collect(),
            sessions: self.sessions.values().map(Session::dump).collect(),
            blobs: blobs::dump(self),
            lists: lists::dump(self),
            memories: memories::dump(self),
            memory_erasures: memories::dump_erasures(self),
            extractions: extractions::dump(self),
            runs: self.runs.rows.values().map(Run::dump).collect(),
            agents: agents::dump(self),
            skills: skills::dump(self),
            tenants: self.tenants.rows.dump(),
            seat_limits: self
                .tenants
                .seat_limits
                .iter()
                .map(|(id, (_, since))| (*id, *since))
                .collect(),
            seats: self.dump_seats(),
            money_aside: money.aside,
            money_days: money.days,
            agent_money_aside: money.agent_aside,
            agent_money_days: money.agent_days,
            timers: self
                .timers
                .values()
                .map(|t| (t.record.clone(), t.occurrences.values().cloned().collect()))
                .collect(),
        }
    }
}

fn slot(key: &IdempotencyKey) -> (TenantId, String, String) {
    (key.tenant, key.route.clone(), key.key.clone())
}
