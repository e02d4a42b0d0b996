//! Seats: how many sends of a tenant may be in flight at once, over all workers.
//!
//! A session of a tenant with such a limit takes a seat in the transaction that starts its send, or lets it go
//! on after a wait; the seat is free as soon as the send has ended or is parked. Sessions that find none wait in a
//! line, in the order in which their work came. A leaf of a run needs a seat among all sends, and one among the
//! leaves: one that finds no seat among the leaves keeps nobody else waiting.

use crate::id::SessionId;
use crate::tenant::Limits;
use crate::time::Timestamp;

/// How long a session that was called keeps its place in the line for itself, in milliseconds. Later others may
/// pass it: its pool may have no worker.
pub const SEAT_CALLED_MS: i64 = 5_000;

/// Sessions of a line that are looked at, of each kind.
pub const SEAT_LINE_MAX: u32 = 1_000;

/// How many seats a tenant has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SeatLimits {
    /// Of all sends, leaves included; unlimited when absent.
    pub sends: Option<u32>,
    /// Of leaves; unlimited when absent.
    pub leaves: Option<u32>,
}

impl SeatLimits {
    /// The seats that a tenant has; none where nothing limits them.
    pub fn of(limits: &Limits) -> Option<Self> {
        let of = Self {
            sends: limits.sends_running,
            leaves: limits.leaves_running,
        };
        (of != Self::default()).then_some(of)
    }
}

/// How many of them are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SeatsTaken {
    /// By all sends.
    pub sends: u32,
    /// By leaves.
    pub leaves: u32,
}

impl SeatsTaken {
    fn add(&mut self, leaf: bool) {
        self.sends = self.sends.saturating_add(1);
        self.leaves = self.leaves.saturating_add(u32::from(leaf));
    }
}

/// A session in the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct InLine {
    /// Since when it has had work.
    pub since: Timestamp,
    /// The session.
    pub session: SessionId,
    /// Whether its send is a leaf.
    pub leaf: bool,
}

/// What is free at a moment, and for whom. Whoever decides by it holds the lock of the tenant's seats.
#[derive(Debug, Clone)]
pub struct Room {
    limits: SeatLimits,
    taken: SeatsTaken,
    line: Vec<InLine>,
}

impl Room {
    /// The seats of a tenant, and the first of those that wait for one: of each kind as many as [`Self::places`]
    /// says, or all.
    pub fn new(limits: SeatLimits, taken: SeatsTaken, mut line: Vec<InLine>) -> Self {
        line.sort_unstable();
        Self {
            limits,
            taken,
            line,
        }
    }

    /// How many of a line, of leaves or of others, can find a seat at most.
    pub fn places(limits: SeatLimits, taken: SeatsTaken, leaf: bool) -> u32 {
        let free = |limit: Option<u32>, taken: u32| {
            limit.map_or(SEAT_LINE_MAX, |limit| limit.saturating_sub(taken))
        };
        let sends = free(limits.sends, taken.sends);
        let leaves = free(limits.leaves, taken.leaves);
        let most = if leaf { sends.min(leaves) } else { sends };
        most.min(SEAT_LINE_MAX)
    }

    fn fits(&self, taken: SeatsTaken, leaf: bool) -> bool {
        let is_free = |limit: Option<u32>, taken: u32| limit.is_none_or(|limit| taken < limit);
        is_free(self.limits.sends, taken.sends)
            && (!leaf || is_free(self.limits.leaves, taken.leaves))
    }

    /// Takes a seat for a session; false where all are taken, or left to those before it in the line. One
    /// that is not in the line stands behind it.
    pub fn take(&mut self, session: SessionId, leaf: bool) -> bool {
        let mut taken = self.taken;
        for before in &self.line {
            if before.session == session {
                break;
            }
            if self.fits(taken, before.leaf) {
                taken.add(before.leaf);
            }
        }
        if !self.fits(taken, leaf) {
            return false;
        }
        self.taken.add(leaf);
        self.line.retain(|other| other.session != session);
        true
    }

    /// Those of the line that can have a seat now, in its order.
    pub fn next(&self) -> Vec<InLine> {
        let mut taken = self.taken;
        let mut next = self.line.clone();
        next.retain(|waiting| {
            let fits = self.fits(taken, waiting.leaf);
            if fits {
                taken.add(waiting.leaf);
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

    fn session(n: u32) -> SessionId {
        SessionId(Uuid::from_u128(u128::from(n)))
    }

    fn waiting(n: u32, leaf: bool) -> InLine {
        InLine {
            since: Timestamp(i64::from(n)),
            session: session(n),
            leaf,
        }
    }

    fn limits(sends: u32, leaves: u32) -> SeatLimits {
        SeatLimits {
            sends: Some(sends),
            leaves: Some(leaves),
        }
    }

    #[test]
    fn a_newcomer_stands_behind_the_line_and_the_first_of_it_does_not() {
        let taken = SeatsTaken {
            sends: 1,
            leaves: 0,
        };
        let line = vec![waiting(1, false), waiting(2, false)];
        let mut room = Room::new(limits(3, 3), taken, line);
        assert!(!room.take(session(9), false), "both seats are spoken for");
        assert!(room.take(session(1), false));
        assert!(!room.take(session(9), false));
        assert!(room.take(session(2), false));
        assert!(!room.take(session(9), false), "all are taken");
    }

    #[test]
    fn leaves_without_a_seat_among_leaves_keep_nobody_waiting() {
        let taken = SeatsTaken {
            sends: 1,
            leaves: 1,
        };
        let mut room = Room::new(limits(2, 1), taken, vec![waiting(1, true)]);
        assert!(!room.take(session(1), true));
        assert_eq!(room.next(), []);
        assert!(room.take(session(9), false));
    }

    #[test]
    fn a_lowered_limit_frees_nothing_until_seats_are_given_back() {
        let taken = SeatsTaken {
            sends: 5,
            leaves: 0,
        };
        let mut room = Room::new(limits(2, 2), taken, vec![waiting(1, false)]);
        assert!(!room.take(session(1), false));
        assert_eq!(room.next(), []);
        assert_eq!(Room::places(limits(2, 2), taken, false), 0);
    }

    #[test]
    fn only_limits_that_are_set_count() {
        let only = SeatLimits {
            sends: None,
            leaves: Some(1),
        };
        let mut room = Room::new(only, SeatsTaken::default(), Vec::new());
        assert!((0..100).all(|n| room.take(session(n), false)));
        assert!(room.take(session(200), true));
        assert!(!room.take(session(201), true));
        assert_eq!(SeatLimits::of(&Limits::default()), None);
    }

    proptest! {
        /// However sessions come, no limit is exceeded, and nobody is refused while a seat is free that
        /// nobody before them can use.
        #[test]
        fn no_limit_is_exceeded_and_no_seat_stays_empty(
            (sends, leaves) in (0_u32..6, 0_u32..4),
            line in prop::collection::vec(any::<bool>(), 0..8),
            come in prop::collection::vec((0_u32..16, any::<bool>()), 0..20),
        ) {
            let line: Vec<InLine> =
                (0..).zip(&line).map(|(n, leaf)| waiting(n, *leaf)).collect();
            let mut room = Room::new(limits(sends, leaves), SeatsTaken::default(), line.clone());
            let mut have = SeatsTaken::default();
            for (n, leaf) in come {
                let leaf = line.iter().find(|it| it.session == session(n)).map_or(leaf, |it| it.leaf);
                let next = room.next();
                let is_next = next.iter().any(|it| it.session == session(n));
                let took = room.take(session(n), leaf);
                if took {
                    have.add(leaf);
                }
                prop_assert!(have.sends <= sends && have.leaves <= leaves);
                prop_assert!(took || !is_next, "who is called finds a seat");
            }
            // Whoever is called finds a seat, in order, and then nothing is left for the line.
            for waiting in room.next() {
                prop_assert!(room.take(waiting.session, waiting.leaf));
            }
            prop_assert_eq!(room.next(), []);
        }
    }
}
