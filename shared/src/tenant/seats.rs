//! Seats: how many sends of a tenant, and of each of its published agents, may be in flight at
//! once, over all workers.
//!
//! A session of a tenant with such a limit takes a seat in the transaction that starts its send, or
//! resumes it after a wait; the seat is free as soon as the send has ended or is parked. Sessions
//! that find no seat wait in a line, in the order in which their work arrived. A leaf of a run
//! needs a seat among all sends and one among the leaves; a send of a limited agent also needs one
//! among that agent's. A session that lacks a seat only among the leaves or its agent's does not
//! block others.

use std::collections::BTreeMap;

use crate::agent::AgentName;
use crate::id::SessionId;
use crate::tenant::Limits;
use crate::time::Timestamp;

/// How long a called session keeps its place in the line, in milliseconds. After that others may
/// pass it: its pool may have no worker.
pub const SEAT_CALLED_MS: i64 = 5_000;

/// Maximum number of sessions of a line that are considered, per kind.
pub const SEAT_LINE_MAX: u32 = 1_000;

/// The kinds of seats that a send needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct SeatKind {
    /// Whether it is a leaf of a run.
    pub leaf: bool,
    /// The published agent that it runs with, if that has its own limit.
    pub agent: Option<AgentName>,
}

/// How many seats a tenant has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SeatLimits {
    /// For all sends, including leaves; unlimited when absent.
    pub sends: Option<u32>,
    /// For leaves; unlimited when absent.
    pub leaves: Option<u32>,
    /// For sends of these agents; unlimited for others.
    pub agents: BTreeMap<AgentName, u32>,
}

impl SeatLimits {
    /// The seats from a tenant's own limits; `None` if they limit nothing.
    pub fn of(limits: &Limits) -> Option<Self> {
        let of = Self {
            sends: limits.sends_running,
            leaves: limits.leaves_running,
            agents: BTreeMap::new(),
        };
        (of != Self::default()).then_some(of)
    }

    /// The kind of a send of this agent.
    pub fn kind(&self, agent: Option<&AgentName>, leaf: bool) -> SeatKind {
        let limited = agent.filter(|agent| self.agents.contains_key(*agent));
        SeatKind {
            leaf,
            agent: limited.cloned(),
        }
    }

    /// The maximum number of sends of a kind that can get a seat.
    pub fn places(&self, taken: &SeatsTaken, kind: &SeatKind) -> u32 {
        let free = |limit: Option<u32>, taken: u32| {
            limit.map_or(SEAT_LINE_MAX, |limit| limit.saturating_sub(taken))
        };
        let mut places = free(self.sends, taken.sends).min(SEAT_LINE_MAX);
        if kind.leaf {
            places = places.min(free(self.leaves, taken.leaves));
        }
        if let Some(agent) = &kind.agent {
            let limit = self.agents.get(agent).copied();
            places = places.min(free(limit, taken.of_agent(agent)));
        }
        places
    }
}

/// How many seats are taken.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SeatsTaken {
    /// By all sends.
    pub sends: u32,
    /// By leaves.
    pub leaves: u32,
    /// By sends of agents with limits.
    pub agents: BTreeMap<AgentName, u32>,
}

impl SeatsTaken {
    /// Adds sends of a kind that have seats.
    pub fn add(&mut self, kind: &SeatKind, seats: u32) {
        self.sends = self.sends.saturating_add(seats);
        if kind.leaf {
            self.leaves = self.leaves.saturating_add(seats);
        }
        let Some(agent) = &kind.agent else { return };
        if let Some(taken) = self.agents.get_mut(agent) {
            *taken = taken.saturating_add(seats);
        } else {
            self.agents.insert(agent.clone(), seats);
        }
    }

    fn of_agent(&self, agent: &AgentName) -> u32 {
        self.agents.get(agent).copied().unwrap_or_default()
    }
}

/// How many sends of a kind have a seat, and how many sessions wait for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeatCount {
    /// The kind.
    pub kind: SeatKind,
    /// Number that have a seat, or had one until they ended a moment ago.
    pub taken: u32,
    /// Number that wait, or waited as long as they had work.
    pub waiting: u32,
}

impl SeatCount {
    /// The seats taken in total.
    pub fn sum(counts: &[Self]) -> SeatsTaken {
        let mut taken = SeatsTaken::default();
        for count in counts {
            taken.add(&count.kind, count.taken);
        }
        taken
    }
}

/// A session in the line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct InLine {
    /// When its work arrived.
    pub since: Timestamp,
    /// The session.
    pub session: SessionId,
    /// The kind of its send.
    pub kind: SeatKind,
}

/// The free seats, and the sessions that wait for them. Decisions based on it require the lock of
/// the tenant's seats.
#[derive(Debug, Clone)]
pub struct Room {
    limits: SeatLimits,
    taken: SeatsTaken,
    line: Vec<InLine>,
}

impl Room {
    /// The seats of a tenant, and the first sessions of the line: of each kind as many as
    /// [`SeatLimits::places`] says, or all.
    pub fn new(limits: SeatLimits, taken: SeatsTaken, mut line: Vec<InLine>) -> Self {
        line.sort_unstable();
        Self {
            limits,
            taken,
            line,
        }
    }

    /// The kind of a send of this agent.
    pub fn kind(&self, agent: Option<&AgentName>, leaf: bool) -> SeatKind {
        self.limits.kind(agent, leaf)
    }

    fn fits(&self, taken: &SeatsTaken, kind: &SeatKind) -> bool {
        self.limits.places(taken, kind) > 0
    }

    /// Takes a seat for a session; false if all are taken, or go to those before it in the line. A
    /// session that is not in the line comes after all of it.
    pub fn take(&mut self, session: SessionId, kind: &SeatKind) -> bool {
        let mut taken = self.taken.clone();
        for before in &self.line {
            if before.session == session {
                break;
            }
            if self.fits(&taken, &before.kind) {
                taken.add(&before.kind, 1);
            }
        }
        if !self.fits(&taken, kind) {
            // It keeps waiting, but for the kind that it needs now.
            let own = self.line.iter_mut().find(|own| own.session == session);
            if let Some(own) = own {
                own.kind = kind.clone();
            }
            return false;
        }
        self.taken.add(kind, 1);
        self.line.retain(|other| other.session != session);
        true
    }

    /// The sessions of the line that can have a seat now, in order.
    pub fn next(&self) -> Vec<InLine> {
        let mut taken = self.taken.clone();
        let mut next = self.line.clone();
        next.retain(|waiting| {
            let fits = self.fits(&taken, &waiting.kind);
            if fits {
                taken.add(&waiting.kind, 1);
            }
            fits
        });
        next
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    const SEND: SeatKind = SeatKind {
        leaf: false,
        agent: None,
    };

    const LEAF: SeatKind = SeatKind {
        leaf: true,
        agent: None,
    };

    fn session(n: u32) -> SessionId {
        SessionId(Uuid::from_u128(u128::from(n)))
    }

    fn waiting(n: u32, kind: SeatKind) -> InLine {
        InLine {
            since: Timestamp(i64::from(n)),
            session: session(n),
            kind,
        }
    }

    fn limits(sends: u32, leaves: u32) -> SeatLimits {
        SeatLimits {
            sends: Some(sends),
            leaves: Some(leaves),
            agents: BTreeMap::new(),
        }
    }

    fn taken(sends: u32, leaves: u32) -> SeatsTaken {
        SeatsTaken {
            sends,
            leaves,
            agents: BTreeMap::new(),
        }
    }

    fn agent() -> AgentName {
        "support".parse().expect("a name")
    }

    /// A send of the limited agent.
    fn of_agent() -> SeatKind {
        SeatKind {
            leaf: false,
            agent: Some(agent()),
        }
    }

    #[test]
    fn a_newcomer_stands_behind_the_line_and_the_first_of_it_does_not() {
        let line = vec![waiting(1, SEND), waiting(2, SEND)];
        let mut room = Room::new(limits(3, 3), taken(1, 0), line);
        assert!(!room.take(session(9), &SEND), "both seats are spoken for");
        assert!(room.take(session(1), &SEND));
        assert!(!room.take(session(9), &SEND));
        assert!(room.take(session(2), &SEND));
        assert!(!room.take(session(9), &SEND), "all are taken");
    }

    #[test]
    fn leaves_without_a_seat_among_leaves_keep_nobody_waiting() {
        let mut room = Room::new(limits(2, 1), taken(1, 1), vec![waiting(1, LEAF)]);
        assert!(!room.take(session(1), &LEAF));
        assert_eq!(room.next(), []);
        assert!(room.take(session(9), &SEND));
    }

    #[test]
    fn a_lowered_limit_frees_nothing_until_seats_are_given_back() {
        let mut room = Room::new(limits(2, 2), taken(5, 0), vec![waiting(1, SEND)]);
        assert!(!room.take(session(1), &SEND));
        assert_eq!(room.next(), []);
        assert_eq!(limits(2, 2).places(&taken(5, 0), &SEND), 0);
    }

    #[test]
    fn only_limits_that_are_set_count() {
        let only = SeatLimits {
            leaves: Some(1),
            ..SeatLimits::default()
        };
        let mut room = Room::new(only, SeatsTaken::default(), Vec::new());
        assert!((0..100).all(|n| room.take(session(n), &SEND)));
        assert!(room.take(session(200), &LEAF));
        assert!(!room.take(session(201), &LEAF));
        assert_eq!(SeatLimits::of(&Limits::default()), None);
    }

    #[test]
    fn sends_of_a_limited_agent_need_a_seat_among_its_own_and_among_all() {
        let limits = SeatLimits {
            sends: Some(3),
            agents: BTreeMap::from([(agent(), 1)]),
            ..SeatLimits::default()
        };
        let other: AgentName = "triage".parse().expect("a name");
        assert_eq!(limits.kind(Some(&agent()), false), of_agent());
        assert_eq!(limits.kind(Some(&other), false), SEND);
        assert_eq!(limits.kind(None, true), LEAF);
        let line = vec![
            waiting(1, of_agent()),
            waiting(2, of_agent()),
            waiting(3, SEND),
        ];
        let mut room = Room::new(limits, SeatsTaken::default(), line);
        let next = room.next().into_iter().map(|it| it.session);
        assert_eq!(next.collect::<Vec<_>>(), [session(1), session(3)]);
        assert!(room.take(session(1), &of_agent()));
        assert!(!room.take(session(2), &of_agent()));
        // Sessions that wait for the agent do not block others until all seats are taken.
        assert!(room.take(session(3), &SEND));
        assert!(room.take(session(9), &SEND));
        assert!(!room.take(session(10), &SEND));
    }

    #[test]
    fn who_waits_for_any_seat_and_needs_one_of_an_agent_keeps_none_for_itself() {
        let limits = SeatLimits {
            sends: Some(2),
            agents: BTreeMap::from([(agent(), 1)]),
            ..SeatLimits::default()
        };
        let mut have = SeatsTaken::default();
        have.add(&of_agent(), 1);
        let mut room = Room::new(limits, have, vec![waiting(1, SEND)]);
        assert!(!room.take(session(9), &SEND), "it is spoken for");
        // The session's send needs another agent's seat by now.
        assert!(!room.take(session(1), &of_agent()));
        assert!(room.take(session(9), &SEND));
    }

    fn kind() -> impl Strategy<Value = SeatKind> {
        (any::<bool>(), any::<bool>()).prop_map(|(leaf, limited)| SeatKind {
            leaf,
            agent: limited.then(agent),
        })
    }

    proptest! {
        /// However sessions come, no limit is exceeded, and no session is refused while a seat is
        /// free that no session before it can use.
        #[test]
        fn no_limit_is_exceeded_and_no_seat_stays_empty(
            (sends, leaves, of_agent) in (0_u32..6, 0_u32..4, 0_u32..4),
            line in prop::collection::vec(kind(), 0..8),
            come in prop::collection::vec((0_u32..16, kind()), 0..20),
        ) {
            let line: Vec<InLine> =
                (0..).zip(line).map(|(n, kind)| waiting(n, kind)).collect();
            let limits = SeatLimits {
                agents: BTreeMap::from([(agent(), of_agent)]),
                ..limits(sends, leaves)
            };
            let mut room = Room::new(limits, SeatsTaken::default(), line.clone());
            let mut have = SeatsTaken::default();
            for (n, kind) in come {
                let known = line.iter().find(|it| it.session == session(n));
                let kind = known.map_or(kind, |it| it.kind.clone());
                let next = room.next();
                let is_next = next.iter().any(|it| it.session == session(n));
                let took = room.take(session(n), &kind);
                if took {
                    have.add(&kind, 1);
                }
                prop_assert!(have.sends <= sends && have.leaves <= leaves);
                prop_assert!(have.of_agent(&agent()) <= of_agent);
                prop_assert!(took || !is_next, "who is called finds a seat");
            }
            // The called sessions get seats, in order, and then nothing is left for the line.
            for waiting in room.next() {
                prop_assert!(room.take(waiting.session, &waiting.kind));
            }
            prop_assert_eq!(room.next(), []);
        }
    }
}
