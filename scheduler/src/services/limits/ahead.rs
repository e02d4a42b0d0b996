//! Places that are taken before anybody asks for them.
//!
//! Of a tenant that sends much, some are reserved under ids that its next sends get, so that most of its requests find
//! one here and need no statement of their own. None stays here for long: the id of a send begins with the
//! time, and a place that lies here is missing elsewhere.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mainspring_shared::id::{SendId, TenantId};

/// What the next requests need is what came in a time as long as this.
const PERIOD: Duration = Duration::from_millis(100);

/// Requests in such a time from which on places are taken ahead.
const MANY: usize = 4;

/// Of the places that a tenant may have, each scheduler takes at most one in so many ahead.
const SHARE: u32 = 64;

/// Places that are taken ahead at once, at most: what a statement takes well.
const BLOCK_MAX: usize = 512;

/// How long a place lies here. Ids of sends may be behind the clock by seconds, as clocks of schedulers are.
const KEPT: Duration = Duration::from_secs(1);

/// When others may ask in place of one that was never answered.
const GIVEN_UP: Duration = Duration::from_secs(5);

/// Places that were taken ahead, of all tenants.
#[derive(Debug, Default)]
pub(super) struct Ahead(Mutex<HashMap<TenantId, Spares>>);

/// Those of one tenant.
#[derive(Debug, Default)]
struct Spares {
    /// When each was taken, oldest first.
    places: VecDeque<(Duration, SendId)>,
    /// When the current period began, and the requests in it.
    period: (Duration, usize),
    /// The requests in the one before.
    before: usize,
    /// When somebody set out to take more.
    asked: Option<Duration>,
}

/// What a request finds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// A place for its send, under the id that the send gets.
    pub(super) place: Option<SendId>,
    /// How many more are to be taken ahead now. Whoever is told so reports what came of it with [`Ahead::put`].
    pub(super) more: usize,
    /// Places that have been here for too long, to be given back.
    pub(super) old: Vec<SendId>,
}

impl Ahead {
    /// Notes a request of a tenant that may have `max` open sends, and finds a place for it if there is one.
    pub(super) fn next(&self, tenant: TenantId, max: u32, now: Duration) -> Found {
        let most = usize::try_from(max / SHARE).unwrap_or(usize::MAX);
        let most = most.min(BLOCK_MAX);
        if most == 0 {
            return Found::default();
        }
        let mut tenants = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tenants.entry(tenant).or_default().next(most, now)
    }

    /// Puts places here that were taken ahead, and lets others ask again.
    pub(super) fn put(
        &self,
        tenant: TenantId,
        places: impl IntoIterator<Item = SendId>,
        now: Duration,
    ) {
        let mut tenants = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let spares = tenants.entry(tenant).or_default();
        spares
            .places
            .extend(places.into_iter().map(|place| (now, place)));
        spares.asked = None;
    }
}

impl Spares {
    fn next(&mut self, most: usize, now: Duration) -> Found {
        self.count(now);
        let is_old = |(at, _): &(Duration, SendId)| now.saturating_sub(*at) >= KEPT;
        let old = self.places.iter().take_while(|place| is_old(place)).count();
        let old = self.places.drain(..old).map(|(_, place)| place).collect();
        let place = self.places.pop_front().map(|(_, place)| place);
        let needed = self.before.max(self.period.1).min(most);
        let is_asked = |at: Duration| now.saturating_sub(at) < GIVEN_UP;
        let is_low = self.places.len() <= needed / 2;
        let more = if needed >= MANY && is_low && !self.asked.is_some_and(is_asked) {
            self.asked = Some(now);
            needed - self.places.len()
        } else {
            0
        };
        Found { place, more, old }
    }

    fn count(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.period.0);
        if passed >= PERIOD {
            let is_next = passed < 2 * PERIOD;
            self.before = if is_next { self.period.1 } else { 0 };
            self.period = (now, 0);
        }
        self.period.1 += 1;
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const TENANT: TenantId = TenantId(7);

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn ids(range: std::ops::Range<u128>) -> Vec<SendId> {
        range.map(|n| SendId(Uuid::from_u128(n))).collect()
    }

    /// How many are to be taken ahead after so many requests at a time.
    fn asked(ahead: &Ahead, max: u32, now: Duration, requests: usize) -> Vec<usize> {
        let found = (0..requests).map(|_| ahead.next(TENANT, max, now));
        found
            .map(|found| found.more)
            .filter(|more| *more > 0)
            .collect()
    }

    #[test]
    fn one_takes_more_once_there_are_many_and_others_wait_for_it() {
        let ahead = Ahead::default();
        assert_eq!(asked(&ahead, 100_000, at(0), 50), [MANY]);
        ahead.put(TENANT, ids(0..4), at(1));
        // By now 50 came, and 54 with these.
        assert_eq!(asked(&ahead, 100_000, at(2), 1), [48]);
        ahead.put(TENANT, ids(4..52), at(3));
        assert!(asked(&ahead, 100_000, at(4), 16).is_empty());
        assert_eq!(asked(&ahead, 100_000, at(4), 1).len(), 1);
    }

    #[test]
    fn places_are_found_in_the_order_of_their_ids() {
        let ahead = Ahead::default();
        ahead.put(TENANT, ids(0..3), at(0));
        ahead.put(TENANT, ids(3..5), at(1));
        let found: Vec<_> = (0..6)
            .map(|_| ahead.next(TENANT, 100_000, at(2)).place)
            .collect();
        let mut expected: Vec<_> = ids(0..5).into_iter().map(Some).collect();
        expected.push(None);
        assert_eq!(found, expected);
    }

    #[test]
    fn no_more_are_taken_than_a_share_of_the_limit() {
        for (max, most) in [
            (63, None),
            (64 * 3, None),
            (64 * 10, Some(10)),
            (u32::MAX, Some(BLOCK_MAX)),
        ] {
            let ahead = Ahead::default();
            asked(&ahead, max, at(0), 10_000);
            ahead.put(TENANT, [], at(1));
            assert_eq!(asked(&ahead, max, at(1), 1).first().copied(), most, "{max}");
        }
    }

    #[test]
    fn what_nobody_needed_is_given_back() {
        let ahead = Ahead::default();
        ahead.put(TENANT, ids(0..2), at(0));
        ahead.put(TENANT, ids(2..4), at(500));
        let found = ahead.next(TENANT, 100_000, at(1_000));
        assert_eq!(found.old, ids(0..2));
        assert_eq!(found.place, ids(2..3).pop());
        assert_eq!(found.more, 0, "it sends little");
    }

    #[test]
    fn a_question_without_an_answer_is_asked_again() {
        let ahead = Ahead::default();
        assert_eq!(asked(&ahead, 100_000, at(0), 8).len(), 1);
        assert_eq!(asked(&ahead, 100_000, at(4_999), 8).len(), 0);
        assert_eq!(asked(&ahead, 100_000, at(5_000), 8).len(), 1);
    }

    #[test]
    fn tenants_have_their_own() {
        let ahead = Ahead::default();
        ahead.put(TENANT, ids(0..1), at(0));
        assert_eq!(ahead.next(TenantId(8), 100_000, at(1)).place, None);
    }
}
