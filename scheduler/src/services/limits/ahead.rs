//! Places that are reserved ahead of demand.
//!
//! For a tenant that sends a lot, some places are reserved under the ids that its next sends will
//! get, so that most of its requests find a place here and need no statement of their own. Requests
//! that find none wait for the next batch, so that later requests get later ids. No place is kept
//! for long, because the id of a send begins with the time, and a place that is kept here cannot be
//! used elsewhere.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mainspring_shared::id::{SendId, TenantId};
use tokio::sync::oneshot;

/// The demand of the next requests is estimated from the requests within this time.
const PERIOD: Duration = Duration::from_millis(100);

/// The number of requests in a period from which places are reserved ahead.
const MANY: usize = 4;

/// Each scheduler reserves at most one in this many of a tenant's places ahead.
const SHARE: u32 = 64;

/// Maximum number of places that are reserved at once: some databases need a statement for each.
const BLOCK_MAX: usize = 256;

/// How long a place is kept. Ids of sends may lag behind the clock by seconds, since the clocks of
/// schedulers may.
pub(super) const KEPT: Duration = Duration::from_secs(1);

/// The places of all tenants that were reserved ahead.
#[derive(Debug, Default)]
pub(super) struct SparePlaces(Mutex<HashMap<TenantId, Spares>>);

/// A reserved place that is not used yet.
#[derive(Debug, Clone, Copy)]
struct Spare {
    id: SendId,
    /// When its id was generated.
    at: Duration,
    /// The limit under which it was reserved.
    max: u32,
}

/// The spare places of one tenant.
#[derive(Debug, Default)]
struct Spares {
    /// Ordered by id.
    places: VecDeque<Spare>,
    /// Requests that found no place, in order.
    waiters: VecDeque<oneshot::Sender<Option<SendId>>>,
    /// When the current period began, and the number of requests in it.
    period: (Duration, usize),
    /// The number of requests in the period before.
    before: usize,
    /// The most recent limit.
    max: u32,
    /// Whether a task is reserving more.
    is_filling: bool,
    /// When spares were last discarded: places that were requested before then go only to waiting
    /// requests.
    discarded: Option<Duration>,
}

/// What a request finds.
#[derive(Debug)]
pub(super) enum Found {
    /// A place for its send, under the id that the send gets.
    Place(SendId),
    /// Places are being reserved; the request is told which one it gets, or none if it has to
    /// reserve one itself.
    Wait(oneshot::Receiver<Option<SendId>>),
    /// Nothing: the request has to reserve a place itself.
    Nothing,
}

/// Places to be reserved now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fill {
    pub(super) count: usize,
    pub(super) max: u32,
    /// When that was decided.
    pub(super) at: Duration,
}

impl SparePlaces {
    fn with<T>(&self, tenant: TenantId, what: impl FnOnce(&mut Spares) -> T) -> T {
        let mut tenants = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        what(tenants.entry(tenant).or_default())
    }

    /// Counts a request of a tenant that may have `max` open sends, and finds a place for its send.
    /// Also returns whether the caller has to call [`SparePlaces::fill`], and repeat it until it
    /// returns none.
    pub(super) fn next(&self, tenant: TenantId, max: u32, now: Duration) -> (Found, bool) {
        self.with(tenant, |spares| spares.next(max, now))
    }

    /// A spare place, if one has become available after all.
    pub(super) fn left(&self, tenant: TenantId, now: Duration) -> Option<SendId> {
        self.with(tenant, |spares| spares.pop(now))
    }

    /// How many places to reserve now, if any are needed. The caller reports them to
    /// [`SparePlaces::put`].
    pub(super) fn fill(&self, tenant: TenantId, now: Duration) -> Option<Fill> {
        self.with(tenant, |spares| spares.fill(now))
    }

    /// Hands out reserved places, first to waiting requests. If there are fewer than were
    /// requested, there are no more, and the requests that still wait are told so. Returns the
    /// places to give back.
    pub(super) fn put(&self, tenant: TenantId, fill: Fill, places: &[SendId]) -> Vec<SendId> {
        self.with(tenant, |spares| spares.put(fill, places))
    }

    /// Removes the places that are too old or unusable, to be given back.
    pub(super) fn expired(&self, tenant: TenantId, now: Duration) -> Vec<SendId> {
        self.with(tenant, |spares| {
            spares.remove(|it, max| !it.is_usable(max, now))
        })
    }

    /// Removes all spare places, to be given back, because sends with later ids come first. Places
    /// being reserved go only to waiting requests.
    pub(super) fn discard_spares(&self, tenant: TenantId, now: Duration) -> Vec<SendId> {
        let mut tenants = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(spares) = tenants.get_mut(&tenant) else {
            return Vec::new();
        };
        spares.discarded = Some(now);
        spares.remove(|_, _| true)
    }
}

impl Spare {
    fn is_usable(&self, max: u32, now: Duration) -> bool {
        self.max <= max && now.saturating_sub(self.at) < KEPT
    }
}

impl Spares {
    fn next(&mut self, max: u32, now: Duration) -> (Found, bool) {
        self.count(now);
        self.max = max;
        let found = if let Some(place) = self.pop(now) {
            Found::Place(place)
        } else if self.is_filling || self.needed() >= MANY {
            let (waiter, place) = oneshot::channel();
            self.waiters.push_back(waiter);
            Found::Wait(place)
        } else {
            Found::Nothing
        };
        let begins = !self.is_filling && self.missing() > 0;
        self.is_filling |= begins;
        (found, begins)
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

    /// Places that requests need in a period, up to the number that may be kept here.
    fn needed(&self) -> usize {
        let most = usize::try_from(self.max / SHARE).unwrap_or(usize::MAX);
        self.before.max(self.period.1).min(most).min(BLOCK_MAX)
    }

    /// How many places to reserve, for waiting requests and for those to come.
    fn missing(&self) -> usize {
        let (needed, lie) = (self.needed(), self.places.len());
        let others = if needed >= MANY && lie <= needed / 2 {
            needed - lie
        } else {
            0
        };
        self.waiters.len() + others
    }

    fn pop(&mut self, now: Duration) -> Option<SendId> {
        let max = self.max;
        let usable = self.places.iter().position(|it| it.is_usable(max, now))?;
        self.places.remove(usable).map(|spare| spare.id)
    }

    fn fill(&mut self, now: Duration) -> Option<Fill> {
        let count = self.missing();
        self.is_filling = count > 0;
        let max = self.max;
        let fill = Fill {
            count,
            max,
            at: now,
        };
        (count > 0).then_some(fill)
    }

    fn put(&mut self, fill: Fill, places: &[SendId]) -> Vec<SendId> {
        let mut left = VecDeque::new();
        for id in places {
            // A waiter that gave up leaves its place to the next one.
            let mut place = Some(*id);
            while let Some(waiter) = place.and_then(|_| self.waiters.pop_front()) {
                place = waiter.send(place).err().flatten();
            }
            left.extend(place);
        }
        if places.len() < fill.count {
            for waiter in self.waiters.drain(..) {
                let _ = waiter.send(None);
            }
            // There are no more places, or the reservation failed. The next requests reserve for
            // themselves, and nothing is reserved ahead until enough of them have come.
            (self.before, self.period.1) = (0, 0);
        }
        if self.discarded.is_some_and(|discarded| fill.at <= discarded) {
            return left.into();
        }
        let (at, max) = (fill.at, fill.max);
        let spares = left.into_iter().map(|id| Spare { id, at, max });
        self.places.extend(spares);
        Vec::new()
    }

    fn remove(&mut self, which: impl Fn(&Spare, u32) -> bool) -> Vec<SendId> {
        let spares = self.places.iter().copied();
        let (removed, kept): (VecDeque<Spare>, _) = spares.partition(|it| which(it, self.max));
        self.places = kept;
        removed.into_iter().map(|spare| spare.id).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use uuid::Uuid;

    use super::*;

    const TENANT: TenantId = TenantId(7);

    const MAX: u32 = 100_000;

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn ids(range: Range<u128>) -> Vec<SendId> {
        range.map(|n| SendId(Uuid::from_u128(n))).collect()
    }

    /// Makes `count` requests. Returns what they found, and how many of them are to fill up.
    fn requests(
        spares: &SparePlaces,
        max: u32,
        now: Duration,
        count: usize,
    ) -> (Vec<Found>, usize) {
        let found = (0..count).map(|_| spares.next(TENANT, max, now));
        let (found, begins): (Vec<_>, Vec<_>) = found.unzip();
        (found, begins.into_iter().filter(|it| *it).count())
    }

    fn placed(found: Found) -> Option<SendId> {
        match found {
            Found::Place(place) => Some(place),
            Found::Wait(mut waiter) => waiter.try_recv().expect("was told"),
            Found::Nothing => None,
        }
    }

    fn count(spares: &SparePlaces, now: Duration) -> Option<usize> {
        spares.fill(TENANT, now).map(|fill| fill.count)
    }

    /// A `SparePlaces` with these spare places, of a tenant that sends a lot.
    fn with(places: Range<u128>, now: Duration) -> SparePlaces {
        let spares = SparePlaces::default();
        let (_waiting, begins) = requests(&spares, MAX, now, MANY);
        assert_eq!(begins, 1);
        let fill = spares.fill(TENANT, now).expect("somebody waits");
        assert_eq!(fill.count, 1 + MANY);
        let fill = Fill { count: 0, ..fill };
        let waits = places.start.checked_sub(1).expect("one is for who waits");
        assert!(spares.put(TENANT, fill, &ids(waits..places.end)).is_empty());
        spares
    }

    #[test]
    fn a_few_take_their_own_and_many_wait_for_one_that_takes_for_all() {
        let spares = SparePlaces::default();
        let (found, begins) = requests(&spares, MAX, at(0), 50);
        assert_eq!(begins, 1);
        let own = |found: &&Found| matches!(found, Found::Nothing);
        assert_eq!(found.iter().take_while(own).count(), MANY - 1);
        let waiting = found.len() - (MANY - 1);
        let fill = spares.fill(TENANT, at(0)).expect("many wait");
        assert_eq!(fill.count, waiting + 50);
        let taken = ids(0..fill.count as u128);
        assert!(spares.put(TENANT, fill, &taken).is_empty());
        let got: Vec<_> = found.into_iter().filter_map(placed).collect();
        assert_eq!(got, taken[..waiting]);
        assert_eq!(spares.fill(TENANT, at(1)), None);
        // There are enough places, in the order of their ids, until half of them are used.
        let (found, begins) = requests(&spares, MAX, at(2), 16);
        assert_eq!(begins, 0);
        let got: Vec<_> = found.into_iter().filter_map(placed).collect();
        assert_eq!(got, taken[waiting..waiting + 16]);
        assert_eq!(requests(&spares, MAX, at(2), 1).1, 1);
        assert_eq!(count(&spares, at(2)), Some(67 - 33));
    }

    #[test]
    fn no_more_lie_here_than_a_share_of_the_limit() {
        let most = [
            (MANY as u32 * SHARE - 1, None),
            (64 * 10, Some(10)),
            (u32::MAX, Some(BLOCK_MAX)),
        ];
        for (max, most) in most {
            let spares = SparePlaces::default();
            let (found, _) = requests(&spares, max, at(0), 10_000);
            let waiting = found
                .iter()
                .filter(|it| matches!(it, Found::Wait(_)))
                .count();
            assert_eq!(
                count(&spares, at(0)),
                most.map(|most| waiting + most),
                "{max}"
            );
        }
    }

    #[test]
    fn who_waits_is_told_that_there_are_no_more() {
        let spares = SparePlaces::default();
        let (found, _) = requests(&spares, MAX, at(0), MANY + 2);
        let fill = spares.fill(TENANT, at(0)).expect("three wait");
        assert!(spares.put(TENANT, fill, &ids(0..1)).is_empty());
        let got: Vec<_> = found.into_iter().map(placed).collect();
        assert_eq!(got[MANY - 1], ids(0..1).pop());
        assert_eq!(got[MANY..], [None, None]);
        // Nothing is reserved ahead until enough requests have come.
        assert_eq!(spares.fill(TENANT, at(1)), None);
        let (found, begins) = requests(&spares, MAX, at(2), MANY - 1);
        assert_eq!(begins, 0);
        assert!(found.iter().all(|it| matches!(it, Found::Nothing)));
        assert_eq!(requests(&spares, MAX, at(3), 1).1, 1);
    }

    #[test]
    fn who_gave_up_leaves_the_place_to_the_next() {
        let spares = SparePlaces::default();
        let (mut found, _) = requests(&spares, MAX, at(0), MANY + 1);
        let last = found.pop().expect("is last");
        drop(found);
        let fill = spares.fill(TENANT, at(0)).expect("two wait");
        let fill = Fill { count: 1, ..fill };
        assert!(spares.put(TENANT, fill, &ids(0..1)).is_empty());
        assert_eq!(placed(last), ids(0..1).pop());
    }

    #[test]
    fn what_nobody_needed_is_given_back() {
        let spares = with(1..3, at(0));
        assert!(spares.expired(TENANT, at(999)).is_empty());
        assert!(spares.left(TENANT, at(1_000)).is_none());
        assert_eq!(spares.expired(TENANT, at(1_000)), ids(1..3));
        assert!(spares.expired(TENANT, at(1_000)).is_empty());
    }

    #[test]
    fn what_was_taken_under_a_higher_limit_is_given_back() {
        let spares = with(1..3, at(0));
        let found = spares.next(TENANT, MAX - 1, at(1)).0;
        assert!(matches!(found, Found::Wait(_)));
        assert_eq!(spares.expired(TENANT, at(1)), ids(1..3));
    }

    #[test]
    fn what_is_renounced_is_for_nobody_but_those_who_wait() {
        let spares = with(1..3, at(0));
        assert_eq!(spares.discard_spares(TENANT, at(1)), ids(1..3));
        let waits = spares.next(TENANT, MAX, at(1)).0;
        let fill = spares.fill(TENANT, at(1)).expect("one waits");
        assert!(spares.discard_spares(TENANT, at(1)).is_empty());
        assert_eq!(spares.put(TENANT, fill, &ids(3..8)), ids(4..8));
        assert_eq!(placed(waits), ids(3..4).pop());
        // Places that are requested later are kept as usual.
        let later = Fill { at: at(2), ..fill };
        assert!(spares.put(TENANT, later, &ids(8..9)).is_empty());
        assert_eq!(spares.left(TENANT, at(2)), ids(8..9).pop());
    }

    #[test]
    fn tenants_have_their_own() {
        let spares = with(1..3, at(0));
        assert!(spares.left(TenantId(8), at(0)).is_none());
        assert!(spares.left(TENANT, at(0)).is_some());
    }
}
