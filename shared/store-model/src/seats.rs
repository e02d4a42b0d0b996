//! Seats of tenants with a limit of sends in flight.

use mainspring_shared::id::{SessionKey, TenantId};
use mainspring_shared::send::SendStatus;
use mainspring_shared::session::Lifecycle;
use mainspring_shared::store::CalledSeats;
use mainspring_shared::tenant::{
    InLine, LedgerLimits, Limits, Room, SEAT_CALLED_MS, SeatLimits, SeatsTaken,
};
use mainspring_shared::time::Timestamp;

use crate::state::State;

/// A session with a seat, or in the line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seat {
    leaf: bool,
    /// Since when it has had work, where it waits.
    waits_since: Option<Timestamp>,
    called_at: Option<Timestamp>,
}

impl State {
    /// Whether a session's send is running: only then its seat counts.
    fn runs(&self, key: SessionKey) -> bool {
        let session = self.sessions.get(&key);
        let active = session.and_then(|session| session.active());
        active.is_some_and(|send| send.status == SendStatus::Running)
    }

    /// Whether a session waits for a seat and was not called.
    pub(crate) fn waits_for_seat(&self, key: SessionKey) -> bool {
        let seat = self.seats.get(&key);
        seat.is_some_and(|seat| seat.waits_since.is_some() && seat.called_at.is_none())
    }

    fn room(&self, tenant: TenantId, now: Timestamp) -> Option<Room> {
        let (limits, _) = self.seat_limits.get(&tenant)?;
        let mut taken = SeatsTaken::default();
        let mut line = Vec::new();
        let seats = self.seats.iter().filter(|(key, _)| key.tenant == tenant);
        for (key, seat) in seats {
            let Some(since) = seat.waits_since else {
                let runs = u32::from(self.runs(*key));
                taken.sends += runs;
                taken.leaves += runs * u32::from(seat.leaf);
                continue;
            };
            let is_passed = |at: Timestamp| at.0 <= now.0 - SEAT_CALLED_MS;
            if self.has_work(*key) && !seat.called_at.is_some_and(is_passed) {
                line.push(InLine {
                    since,
                    session: key.session,
                    leaf: seat.leaf,
                });
            }
        }
        Some(Room::new(*limits, taken, line))
    }

    fn has_work(&self, key: SessionKey) -> bool {
        let session = self.sessions.get(&key).map(|session| &session.hot);
        session.is_some_and(|hot| hot.ready_since.is_some() && hot.lifecycle != Lifecycle::Deleted)
    }

    /// Takes a seat for a session that is about to be claimed; otherwise it waits in the line, and false.
    pub(crate) fn take_seat(&mut self, key: SessionKey, leaf: bool, now: Timestamp) -> bool {
        let Some(mut room) = self.room(key.tenant, now) else {
            return true;
        };
        let taken = room.take(key.session, leaf);
        let ready = self.sessions.get(&key).and_then(|it| it.hot.ready_since);
        let before = self.seats.get(&key).and_then(|seat| seat.waits_since);
        let seat = Seat {
            leaf,
            waits_since: before.or(ready).filter(|_| !taken),
            called_at: None,
        };
        self.seats.insert(key, seat);
        taken
    }

    /// Calls those that wait and can have a seat.
    pub(crate) fn call_seats(&mut self, only: Option<TenantId>, now: Timestamp) -> CalledSeats {
        let tenants = self.seat_limits.keys().copied();
        let tenants: Vec<TenantId> = tenants
            .filter(|id| only.is_none_or(|only| only == *id))
            .collect();
        let mut called = CalledSeats::default();
        for tenant in tenants {
            let keys: Vec<SessionKey> = self.seats.keys().copied().collect();
            for key in keys.into_iter().filter(|key| key.tenant == tenant) {
                let waits = self
                    .seats
                    .get(&key)
                    .is_some_and(|it| it.waits_since.is_some());
                if waits && !self.has_work(key) {
                    self.seats.remove(&key);
                }
            }
            let next = self.room(tenant, now).map(|room| room.next());
            for waiting in next.unwrap_or_default() {
                let key = SessionKey {
                    tenant,
                    session: waiting.session,
                };
                let Some(seat) = self.seats.get_mut(&key).filter(|it| it.called_at.is_none())
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
            .seats
            .values()
            .filter(|seat| seat.waits_since.is_some());
        called.waiting = waiting.count() as u64;
        called
    }

    /// Follows the limits of a tenant.
    pub(crate) fn follow_limits(&mut self, tenant: TenantId, limits: &Limits, now: Timestamp) {
        if LedgerLimits::of(limits).is_none() {
            self.lift_money(tenant);
        }
        let Some(limits) = SeatLimits::of(limits) else {
            self.seat_limits.remove(&tenant);
            self.seats.retain(|key, _| key.tenant != tenant);
            return;
        };
        let since = self
            .seat_limits
            .get(&tenant)
            .map_or(now, |(_, since)| *since);
        self.seat_limits.insert(tenant, (limits, since));
        let sessions = self.sessions.values().filter(|it| it.key.tenant == tenant);
        let running = sessions.filter_map(|session| {
            let send = session.active()?;
            let seat = Seat {
                leaf: send.run.is_some(),
                waits_since: None,
                called_at: None,
            };
            (send.status == SendStatus::Running).then_some((session.key, seat))
        });
        self.seats.extend(running);
    }

    pub(crate) fn dump_seats(&self) -> Vec<(SessionKey, Option<Timestamp>)> {
        let seats = self.seats.iter();
        let live = seats.filter(|(key, seat)| seat.waits_since.is_some() || self.runs(**key));
        live.map(|(key, seat)| (*key, seat.waits_since)).collect()
    }
}
