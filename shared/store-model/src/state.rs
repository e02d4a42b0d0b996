//! The whole content of a store, as maps.

use std::collections::BTreeMap;

use bytes::Bytes;
use mainspring_shared::agent::AgentKey;
use mainspring_shared::blob::{BlobHash, BlobPlace};
use mainspring_shared::id::{
    BootId, ErasureId, KeyId, MemoryId, RunKey, SendId, SessionKey, TenantId, TimerId,
    WebhookEventId, WebhookId,
};
use mainspring_shared::memory::PaidCall;
use mainspring_shared::pause::PauseKey;
use mainspring_shared::provider_key::ProviderKeyRecord;
use mainspring_shared::send::SendRecord;
use mainspring_shared::skill::BrokenSkill;
use mainspring_shared::store::{
    BootRecord, Dump, Erasure, IdempotencyKey, KeyOutcome, WebhookNews,
};
use mainspring_shared::tenant::{KeyRecord, SeatLimits, TenantErasure};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::{CallRecord, Published};
use mainspring_shared::webhook::{DeliveryRecord, WebhookRecord};
use uuid::Uuid;

use crate::blobs::{self, Blob};
use crate::lists::{self, StoredList};
use crate::memories;
use crate::runs::Run;
use crate::seats::Seat;
use crate::session::Session;
use crate::skills::{self, Named};
use crate::tenants;
use crate::timers::Timer;
use crate::webhooks::News;
use crate::{agents, calibrations, extractions, money, pauses};

/// Everything that a database would hold.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) agents: BTreeMap<AgentKey, agents::StoredAgent>,
    pub(crate) boots: BTreeMap<BootId, BootRecord>,
    /// The tools that boots offer to agents.
    pub(crate) tools: BTreeMap<BootId, Published>,
    /// What workers learned about providers' token counts, by provider and model.
    pub(crate) calibrations: BTreeMap<(String, String), calibrations::Known>,
    /// Including tombstones.
    pub(crate) sessions: BTreeMap<SessionKey, Session>,
    /// The session of each send.
    pub(crate) homes: BTreeMap<(TenantId, SendId), SessionKey>,
    /// By tenant, route and key.
    pub(crate) requests: BTreeMap<(TenantId, String, String), Request>,
    pub(crate) blobs: BTreeMap<(TenantId, BlobHash), Blob>,
    /// Pieces of blobs' bytes.
    pub(crate) chunks: BTreeMap<(BlobPlace, i32), Bytes>,
    /// By tenant and key.
    pub(crate) lists: BTreeMap<(TenantId, String), StoredList>,
    /// By tenant and name.
    pub(crate) skills: BTreeMap<(TenantId, String), Named>,
    /// By tenant and folder.
    pub(crate) broken_skills: BTreeMap<(TenantId, String), BrokenSkill>,
    pub(crate) memories: BTreeMap<(TenantId, MemoryId), memories::StoredMemory>,
    pub(crate) extractions: BTreeMap<(TenantId, SendId), extractions::Owed>,
    pub(crate) memory_erasures: BTreeMap<(TenantId, ErasureId), Erasure>,
    /// The cost of vectors that was not charged to a send.
    pub(crate) memory_usage: BTreeMap<(TenantId, Uuid), PaidCall>,
    pub(crate) runs: BTreeMap<RunKey, Run>,
    /// Number of requests to runs so far.
    pub(crate) asks: i64,
    pub(crate) timers: BTreeMap<(TenantId, TimerId), Timer>,
    pub(crate) tenants: tenants::StoredTenants,
    /// Including those that have ended.
    pub(crate) tenant_erasures: BTreeMap<TenantId, TenantErasure>,
    pub(crate) api_keys: BTreeMap<KeyId, KeyRecord>,
    pub(crate) webhooks: BTreeMap<(TenantId, WebhookId), WebhookRecord>,
    /// Events since the last step; those for tenants without endpoints are then dropped.
    pub(crate) news: News,
    /// Events that no fan-out has turned into deliveries yet.
    pub(crate) events: Vec<WebhookNews>,
    pub(crate) deliveries: BTreeMap<(TenantId, WebhookId, WebhookEventId), DeliveryRecord>,
    /// Places among a tenant's open sends, with the time at which they were taken.
    pub(crate) open_sends: BTreeMap<(TenantId, SendId), Timestamp>,
    /// Places among an API key's open sends, with the time at which they were taken.
    pub(crate) key_sends: BTreeMap<(TenantId, (KeyId, SendId)), Timestamp>,
    /// Limits of tenants' seats, and since when they apply.
    pub(crate) seat_limits: BTreeMap<TenantId, (SeatLimits, Timestamp)>,
    pub(crate) seats: BTreeMap<SessionKey, Seat>,
    /// The reservations and spending of calls under limits of money or tokens.
    pub(crate) money: money::Accounts,
    pub(crate) pauses: BTreeMap<PauseKey, pauses::StoredPause>,
    pub(crate) provider_keys: BTreeMap<(TenantId, String), ProviderKeyRecord>,
    /// The pauses for which sends wait.
    pub(crate) pause_waits: BTreeMap<(TenantId, SendId), PauseKey>,
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
        let boot = self.boots.get(&boot);
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
        let pool = self.boots.get(&keeper).map(|boot| &boot.pool);
        let serves = |session: &Session| Some(&session.hot.pool) == pool;
        self.is_live(keeper, now)
            && !self.seat_limits.contains_key(&key.tenant)
            && self.sessions.get(&key).is_some_and(serves)
    }

    /// Adds a session, replacing any that has its key.
    pub(crate) fn add_session(&mut self, mut session: Session) {
        session.news = self.news.clone();
        self.sessions.insert(session.key, session);
    }

    /// A send by id.
    pub(crate) fn send(&self, tenant: TenantId, id: SendId) -> Option<&SendRecord> {
        let home = self.homes.get(&(tenant, id))?;
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
        match self.requests.get(&slot(key)) {
            None => Seen::Never,
            Some(request) if request.body_hash == key.body_hash => Seen::Before(request.resource),
            Some(_) => Seen::Mismatch,
        }
    }

    /// Stores the resource that a request created.
    pub(crate) fn remember(&mut self, key: Option<&IdempotencyKey>, made: Uuid, now: Timestamp) {
        if let Some(key) = key {
            let request = Request {
                body_hash: key.body_hash,
                resource: made,
                created_at: now,
            };
            self.requests.insert(slot(key), request);
        }
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
        let money = money::dump(&self.money);
        Dump {
            boots: self.boots.values().cloned().collect(),
            sessions: self.sessions.values().map(Session::dump).collect(),
            blobs: blobs::dump(self),
            lists: lists::dump(self),
            memories: memories::dump(self),
            memory_erasures: memories::dump_erasures(self),
            extractions: extractions::dump(self),
            runs: self.runs.values().map(Run::dump).collect(),
            agents: agents::dump(self),
            skills: skills::dump(self),
            tenants: self.tenants.dump(),
            seat_limits: self
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
