//! Seats, for tenants that limit their sends in flight or have agents that do.

use std::collections::BTreeMap;

use mainspring_shared::agent::{AgentKey, AgentName};
use mainspring_shared::id::{SendId, SessionKey, TenantId};
use mainspring_shared::send::{SendRecord, SendStatus};
use mainspring_shared::session::Lifecycle;
use mainspring_shared::store::CalledSeats;
use mainspring_shared::tenant::{
    InLine, LedgerLimits, Limits, Room, SEAT_CALLED_MS, SeatKind, SeatLimits, SeatsTaken,
};
use mainspring_shared::time::Timestamp;

use crate::agents;
use crate::session::Session;
use crate::state::State;

/// What a session needs a seat for.
#[derive(Debug, Clone)]
pub(crate) struct SeatRequest {
    /// The send, and the version of the session's agent to which it is, or would be, pinned.
    of: (SendId, Option<i32>),
    agent: Option<AgentName>,
    leaf: bool,
}

impl SeatRequest {
    pub(crate) fn new(session: &Session, send: &SendRecord) -> Self {
        let version = version(session, send);
        let cold = session.cold.as_ref();
        let spec = cold.and_then(|cold| cold.agents.get(&version?));
        let agent = spec.and_then(|spec| send.options.published_in(spec));
        Self {
            of: (send.id, version),
            agent: agent.cloned(),
            leaf: send.run.is_some(),
        }
    }
}

/// The version of its session's agent to which a send is, or would be, pinned.
fn version(session: &Session, send: &SendRecord) -> Option<i32> {
    let current = session.cold.as_ref().map(|cold| cold.agent_version);
    send.agent_version.or(current)
}

/// A session that has a seat or waits in the line.
#[derive(Debug, Clone)]
pub(crate) struct Seat {
    kind: SeatKind,
    /// The send that it runs or waits for, if that is known.
    of: Option<(SendId, Option<i32>)>,
    /// If it waits, since when it has had work.
    waits_since: Option<Timestamp>,
    called_at: Option<Timestamp>,
}

impl State {
    /// Whether a session's send is running; its seat counts only then.
    fn runs(&self, key: SessionKey) -> bool {
        let session = self.sessions.get(&key);
        let active = session.and_then(|session| session.active());
        active.is_some_and(|send| send.status == SendStatus::Running)
    }

    /// Whether a session waits for a seat and has not been called.
    pub(crate) fn waits_for_seat(&self, key: SessionKey) -> bool {
        let seat = self.tenants.seats.get(&key);
        seat.is_some_and(|seat| seat.waits_since.is_some() && seat.called_at.is_none())
    }

    fn room(&self, tenant: TenantId, now: Timestamp) -> Option<Room> {
        let (limits, _) = self.tenants.seat_limits.get(&tenant)?;
        let mut taken = SeatsTaken::default();
        let mut line = Vec::new();
        let seats = self
            .tenants
            .seats
            .iter()
            .filter(|(key, _)| key.tenant == tenant);
        for (key, seat) in seats {
            let Some(since) = seat.waits_since else {
                taken.add(&seat.kind, u32::from(self.runs(*key)));
                continue;
            };
            let is_passed = |at: Timestamp| at.0 <= now.0 - SEAT_CALLED_MS;
            if self.has_work(*key) && !seat.called_at.is_some_and(is_passed) {
                line.push(InLine {
                    since,
                    session: key.session,
                    kind: seat.kind.clone(),
                });
            }
        }
        Some(Room::new(limits.clone(), taken, line))
    }

    fn has_work(&self, key: SessionKey) -> bool {
        let session = self.sessions.get(&key).map(|session| &session.hot);
        session.is_some_and(|hot| hot.ready_since.is_some() && hot.lifecycle != Lifecycle::Deleted)
    }

    /// Takes a seat for a session that is about to be claimed. If none is free, the session joins
    /// the line, and false is returned.
    pub(crate) fn take_seat(
        &mut self,
        key: SessionKey,
        wants: &SeatRequest,
        now: Timestamp,
    ) -> bool {
        let Some(mut room) = self.room(key.tenant, now) else {
            return true;
        };
        let kind = room.kind(wants.agent.as_ref(), wants.leaf);
        let taken = room.take(key.session, &kind);
        let ready = self.sessions.get(&key).and_then(|it| it.hot.ready_since);
        let before = self
            .tenants
            .seats
            .get(&key)
            .and_then(|seat| seat.waits_since);
        let seat = Seat {
            kind,
            of: Some(wants.of),
            waits_since: before.or(ready).filter(|_| !taken),
            called_at: None,
        };
        self.tenants.seats.insert(key, seat);
        taken
    }

    /// Calls waiting sessions that can have a seat.
    pub(crate) fn call_seats(&mut self, only: Option<TenantId>, now: Timestamp) -> CalledSeats {
        let tenants = self.tenants.seat_limits.keys().copied();
        let tenants: Vec<TenantId> = tenants
            .filter(|id| only.is_none_or(|only| only == *id))
            .collect();
        let mut called = CalledSeats::default();
        for tenant in tenants {
            let keys: Vec<SessionKey> = self.tenants.seats.keys().copied().collect();
            for key in keys.into_iter().filter(|key| key.tenant == tenant) {
                let waits = self
                    .tenants
                    .seats
                    .get(&key)
                    .is_some_and(|it| it.waits_since.is_some());
                if waits && !self.has_work(key) {
                    self.tenants.seats.remove(&key);
                }
            }
            if only.is_none() {
                self.ask_again(tenant);
            }
            let next = self.room(tenant, now).map(|room| room.next());
            for waiting in next.unwrap_or_default() {
                let key = SessionKey {
                    tenant,
                    session: waiting.session,
                };
                let Some(seat) = self
                    .tenants
                    .seats
                    .get_mut(&key)
                    .filter(|it| it.called_at.is_none())
                else {
                    continue;
                };
                seat.called_at = Some(now);
                let ready = self
                    .sessions
                    .get(&key)
                    .and_then(|session| session.hot.ready());
                called.enqueue.extend(ready);
            }
        }
        let waiting = self
            .tenants
            .seats
            .values()
            .filter(|seat| seat.waits_since.is_some());
        called.waiting = waiting.count() as u64;
        called
    }

    /// Makes sessions that wait for an agent's seat, but whose next send has another agent by now,
    /// wait for any seat: the agent is determined when they are called.
    fn ask_again(&mut self, tenant: TenantId) {
        let seats = self.tenants.seats.iter().filter(|(key, seat)| {
            key.tenant == tenant && seat.waits_since.is_some() && seat.kind.agent.is_some()
        });
        let stale = seats.filter(|(key, seat)| !self.is_still(**key, seat));
        let stale: Vec<SessionKey> = stale.map(|(key, _)| *key).collect();
        for key in stale {
            if let Some(seat) = self.tenants.seats.get_mut(&key) {
                seat.kind.agent = None;
                seat.of = None;
            }
        }
    }

    /// Whether a session still has to run the send for which it requested a seat, with the same
    /// version of its agent.
    fn is_still(&self, key: SessionKey, seat: &Seat) -> bool {
        let Some((session, (id, wanted))) = self.sessions.get(&key).zip(seat.of) else {
            return false;
        };
        let send = session.sends.get(&id).filter(|it| !it.status.is_final());
        send.is_some_and(|send| session.cold.is_some() && version(session, send) == wanted)
    }

    /// Adapts seats and money to changed limits of a tenant.
    pub(crate) fn apply_limits(&mut self, tenant: TenantId, limits: &Limits, now: Timestamp) {
        if LedgerLimits::of(limits).is_none() {
            self.lift_money(tenant);
        }
        let own = SeatLimits::of(limits);
        let is_limited = own.is_some();
        let limits = SeatLimits {
            agents: agents::running(self, tenant),
            ..own.unwrap_or_default()
        };
        self.set_seats(tenant, limits, now);
        if is_limited {
            self.seed(tenant);
        }
    }

    /// Adapts the seats to an agent's stored limit.
    pub(crate) fn apply_agent_limits(&mut self, key: &AgentKey, now: Timestamp) {
        let tenant = key.tenant;
        let agents: BTreeMap<AgentName, u32> = agents::running(self, tenant);
        let is_limited = agents.contains_key(&key.name);
        let known = self.tenants.seat_limits.get(&tenant);
        let limits = SeatLimits {
            agents,
            ..known.map(|(limits, _)| limits.clone()).unwrap_or_default()
        };
        self.set_seats(tenant, limits, now);
        if is_limited {
            self.seed(tenant);
        }
        let sessions = &self.sessions;
        let seats = self
            .tenants
            .seats
            .iter_mut()
            .filter(|(of, _)| of.tenant == tenant);
        for (of, seat) in seats {
            if !is_limited {
                seat.kind.agent = seat.kind.agent.take().filter(|name| *name != key.name);
                continue;
            }
            let session = sessions.get(of).filter(|session| session.cold.is_some());
            let wants = session.and_then(|it| Some(SeatRequest::new(it, it.head()?)));
            if let Some(wants) = wants.filter(|wants| wants.agent.as_ref() == Some(&key.name)) {
                seat.kind.agent = wants.agent;
                seat.of = Some(wants.of);
            }
        }
    }

    fn set_seats(&mut self, tenant: TenantId, limits: SeatLimits, now: Timestamp) {
        if limits == SeatLimits::default() {
            self.tenants.seat_limits.remove(&tenant);
            self.tenants.seats.retain(|key, _| key.tenant != tenant);
            return;
        }
        let since = self
            .tenants
            .seat_limits
            .get(&tenant)
            .map_or(now, |(_, since)| *since);
        self.tenants.seat_limits.insert(tenant, (limits, since));
    }

    /// Gives seats to running sends.
    fn seed(&mut self, tenant: TenantId) {
        let sessions = self.sessions.values().filter(|it| it.key.tenant == tenant);
        for session in sessions {
            let running = session.active();
            let Some(send) = running.filter(|send| send.status == SendStatus::Running) else {
                continue;
            };
            let seat = self
                .tenants
                .seats
                .entry(session.key)
                .or_insert_with(|| Seat {
                    kind: SeatKind::default(),
                    of: None,
                    waits_since: None,
                    called_at: None,
                });
            seat.kind.leaf = send.run.is_some();
            (seat.waits_since, seat.called_at) = (None, None);
        }
    }

    pub(crate) fn dump_seats(&self) -> Vec<(SessionKey, Option<Timestamp>)> {
        let seats = self.tenants.seats.iter();
        let live = seats.filter(|(key, seat)| seat.waits_since.is_some() || self.runs(**key));
        live.map(|(key, seat)| (*key, seat.waits_since)).collect()
    }
}
