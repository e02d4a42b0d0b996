//! Money and token limits of the model calls of a tenant, or of one of its agents, per minute, day
//! and month. They are enforced exactly.
//!
//! Before a call, its maximum cost is reserved under the lock of the tenant's row, and only if it
//! fits in addition to what is spent and reserved by other calls. So no limit is exceeded, however
//! many calls race. After the call, its actual cost replaces the reservation.
//!
//! Money is counted in billionths of a US dollar, as in budgets: sums of integers are exact.

use crate::tenant::{Limits, Usd};
use crate::time::Timestamp;

/// How many days of spending are kept, counted back from the last day with a call; more than a year.
pub const MONEY_DAYS_KEPT: i64 = 400;

/// Maximum age of a reservation, in milliseconds: longer than any call takes. An older one counts
/// as spent, whoever made it.
pub const MONEY_ASIDE_MS: i64 = 24 * 60 * 60 * 1_000;

/// At most one of this many parts of what is left under a limit is reserved at once for calls that
/// are only expected. This bounds what counts as spent without a call if a worker dies.
pub const MONEY_AHEAD_PARTS: u64 = 1_024;

/// Milliseconds of a day.
const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

/// Milliseconds of a minute.
const MINUTE_MS: i64 = 60 * 1_000;

/// An upper bound for the cost of a call in dollars.
const USD_MAX: f64 = 1e6;

/// Limits of money, in billionths of a dollar, or of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MoneyLimits {
    /// For calls that start within a minute of the database's clock; unlimited when absent.
    pub minute: Option<u64>,
    /// Per day in UTC; unlimited when absent.
    pub day: Option<u64>,
    /// Per calendar month; unlimited when absent.
    pub month: Option<u64>,
}

/// What currently counts against the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MoneySpent {
    /// Cost of finished calls that started in this minute; kept only if there is a limit per minute.
    pub minute: u64,
    /// Reservations of calls in flight that started in this minute.
    pub minute_aside: u64,
    /// Cost of the day's calls.
    pub day: u64,
    /// Cost of the month's calls, including the day's.
    pub month: u64,
    /// Reservations of all calls in flight, including those of earlier days: how much of them is
    /// spent is unknown.
    pub aside: u64,
}

impl MoneySpent {
    pub(super) const fn with_aside(mut self, more: u64) -> Self {
        self.minute_aside = self.minute_aside.saturating_add(more);
        self.aside = self.aside.saturating_add(more);
        self
    }
}

/// The time span of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoneySpan {
    /// A minute of the database's clock.
    Minute,
    /// A day in UTC.
    Day,
    /// A calendar month in UTC.
    Month,
}

impl MoneySpan {
    /// The name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Day => "day",
            Self::Month => "month",
        }
    }
}

/// Whether there is money for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoneyRoom {
    /// This much may be reserved.
    Granted(u64),
    /// Not before other calls have ended: their reservations leave no room.
    Busy,
    /// Not before this span ends or its limit, given here, is raised.
    Spent(MoneySpan, u64),
}

impl MoneyLimits {
    /// The money limits of a tenant; `None` if it has none.
    pub fn of(limits: &Limits) -> Option<Self> {
        let nano = |usd: Usd| usd.nano().min(i64::MAX as u64);
        let of = Self {
            minute: limits.usd_per_minute.map(nano),
            day: limits.usd_per_day.map(nano),
            month: limits.usd_per_month.map(nano),
        };
        (of != Self::default()).then_some(of)
    }

    /// Whether there is room for a call that costs at most `most`, and is useless with less than `least`.
    ///
    /// If spending leaves less than `most`, the call gets what is left, once others have no
    /// reservation on it. A minute is soon over, so what is spent of it only makes a call wait, if
    /// necessary for a whole minute's money.
    pub fn room(&self, spent: MoneySpent, most: u64, least: u64) -> MoneyRoom {
        match self.wanted(spent, most, least) {
            Err((span, limit)) => MoneyRoom::Spent(span, limit),
            Ok(wanted) if self.fits(spent, wanted) => MoneyRoom::Granted(wanted),
            Ok(_) => MoneyRoom::Busy,
        }
    }

    /// How much of `most` a call may have, judging by what is spent, regardless of others'
    /// reservations; or the limit that leaves less than `least`.
    pub(super) fn wanted(
        &self,
        spent: MoneySpent,
        most: u64,
        least: u64,
    ) -> Result<u64, (MoneySpan, u64)> {
        let mut wanted = most;
        for (span, limit, spent) in self.lasting(spent) {
            let left = limit.saturating_sub(spent);
            if left < least || spent > limit {
                return Err((span, limit));
            }
            wanted = wanted.min(left);
        }
        match self.minute {
            Some(limit) if limit < least => Err((MoneySpan::Minute, limit)),
            Some(limit) => Ok(wanted.min(limit)),
            None => Ok(wanted),
        }
    }

    /// Whether this much fits in addition to what is spent and reserved by others.
    pub(super) fn fits(&self, spent: MoneySpent, wanted: u64) -> bool {
        let taken = spent.minute.saturating_add(spent.minute_aside);
        let aside = spent.aside.saturating_add(wanted);
        self.minute
            .is_none_or(|limit| taken.saturating_add(wanted) <= limit)
            && self
                .lasting(spent)
                .all(|(_, limit, spent)| spent.saturating_add(aside) <= limit)
    }

    /// The limits of the longer spans (day and month), and what is spent of each.
    fn lasting(&self, spent: MoneySpent) -> impl Iterator<Item = (MoneySpan, u64, u64)> {
        let limits = [
            (MoneySpan::Day, self.day, spent.day),
            (MoneySpan::Month, self.month, spent.month),
        ];
        let limits = limits.into_iter();
        limits.filter_map(|(span, limit, spent)| Some((span, limit?, spent)))
    }
}

/// The number of the day of a time.
pub fn money_day(at: Timestamp) -> i64 {
    at.0.div_euclid(DAY_MS)
}

/// The start of a day.
pub fn money_day_begin(day: i64) -> Timestamp {
    Timestamp(day.saturating_mul(DAY_MS))
}

/// The number of the minute of a time.
pub fn money_minute(at: Timestamp) -> i64 {
    at.0.div_euclid(MINUTE_MS)
}

/// The start of a minute.
pub fn money_minute_begin(minute: i64) -> Timestamp {
    Timestamp(minute.saturating_mul(MINUTE_MS))
}

/// The minute to which calls at a time belong, if `kept` is the last minute counted on its day.
///
/// A transaction that waited for the tenant's row may have read the clock before the ones that
/// already counted the next minute; it then uses that minute. Any other minute in the future stems
/// from a clock that was set back, and is ignored.
pub fn money_minute_of(now: Timestamp, kept: i64) -> i64 {
    let minute = money_minute(now);
    if kept == minute + 1 { kept } else { minute }
}

/// The first day of the month of a time.
pub fn money_month(at: Timestamp) -> i64 {
    money_day(at.month())
}

/// Billionths of a dollar or tokens in the stored form, capped at its maximum.
pub fn stored_nano(nano: u64) -> i64 {
    i64::try_from(nano).unwrap_or(i64::MAX)
}

/// Converts dollars to billionths of a dollar, rounded up, ignoring the error of their binary
/// fractions. At most a million dollars, so that sums cannot overflow.
pub fn nano_usd(dollars: f64) -> u64 {
    /// The error to ignore, as a fraction of a billionth.
    const NOISE: f64 = 1e-3;
    (dollars.clamp(0.0, USD_MAX) * 1e9 - NOISE).ceil() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limits(day: Option<u64>, month: Option<u64>) -> MoneyLimits {
        MoneyLimits {
            minute: None,
            day,
            month,
        }
    }

    fn spent(day: u64, month: u64, aside: u64) -> MoneySpent {
        MoneySpent {
            day,
            month,
            aside,
            ..MoneySpent::default()
        }
    }

    #[test]
    fn a_call_gets_what_it_needs_or_the_rest_or_waits_or_is_refused() {
        let of = limits(Some(100), Some(150));
        for (spent, most, least, expected) in [
            (spent(0, 0, 0), 60, 10, MoneyRoom::Granted(60)),
            (spent(0, 0, 40), 60, 10, MoneyRoom::Granted(60)),
            (spent(0, 0, 41), 60, 10, MoneyRoom::Busy),
            // The rest, once nothing of it is reserved by others.
            (spent(70, 70, 0), 60, 10, MoneyRoom::Granted(30)),
            (spent(70, 70, 1), 60, 10, MoneyRoom::Busy),
            (
                spent(91, 91, 0),
                60,
                10,
                MoneyRoom::Spent(MoneySpan::Day, 100),
            ),
            (
                spent(0, 141, 0),
                60,
                10,
                MoneyRoom::Spent(MoneySpan::Month, 150),
            ),
            (spent(0, 120, 0), 60, 10, MoneyRoom::Granted(30)),
            // A call without cost has room as long as no limit is exceeded.
            (spent(100, 100, 0), 0, 0, MoneyRoom::Granted(0)),
            (
                spent(101, 101, 0),
                0,
                0,
                MoneyRoom::Spent(MoneySpan::Day, 100),
            ),
        ] {
            assert_eq!(of.room(spent, most, least), expected, "{spent:?} {most}");
        }
        let none = limits(None, None).room(spent(9, 9, 9), 7, 7);
        assert_eq!(none, MoneyRoom::Granted(7));
    }

    #[test]
    fn a_minute_has_calls_wait_for_the_next_one() {
        let of = MoneyLimits {
            minute: Some(50),
            day: Some(100),
            month: None,
        };
        let now = |minute: u64, minute_aside: u64, day: u64, aside: u64| MoneySpent {
            minute,
            minute_aside,
            ..spent(day, day, aside)
        };
        for (spent, most, least, expected) in [
            (now(0, 0, 0, 0), 30, 5, MoneyRoom::Granted(30)),
            (now(10, 10, 10, 10), 30, 5, MoneyRoom::Granted(30)),
            (now(10, 11, 10, 11), 30, 5, MoneyRoom::Busy),
            (now(50, 0, 50, 0), 1, 1, MoneyRoom::Busy),
            (now(50, 0, 50, 0), 0, 0, MoneyRoom::Granted(0)),
            // A whole minute's money, once nothing of it is used or reserved.
            (now(0, 0, 0, 0), 70, 5, MoneyRoom::Granted(50)),
            (now(1, 0, 1, 0), 70, 5, MoneyRoom::Busy),
            (
                now(0, 0, 0, 0),
                70,
                51,
                MoneyRoom::Spent(MoneySpan::Minute, 50),
            ),
            // Reservations of earlier minutes count for the day.
            (now(0, 0, 60, 10), 30, 5, MoneyRoom::Granted(30)),
            (now(0, 0, 60, 11), 30, 5, MoneyRoom::Busy),
            (now(0, 0, 80, 0), 30, 5, MoneyRoom::Granted(20)),
            (
                now(0, 0, 96, 0),
                30,
                5,
                MoneyRoom::Spent(MoneySpan::Day, 100),
            ),
        ] {
            assert_eq!(of.room(spent, most, least), expected, "{spent:?} {most}");
        }
        let noon = Timestamp(12 * 60 * MINUTE_MS);
        for (kept, minute) in [(0, 720), (720, 720), (721, 721), (722, 720)] {
            assert_eq!(money_minute_of(noon, kept), minute, "{kept}");
        }
        assert_eq!(money_minute_begin(720), noon);
    }

    #[test]
    fn limits_are_of_dollars_and_days_of_utc() {
        let of = Limits {
            usd_per_day: Usd::of(1.5),
            usd_per_month: Some(Usd(u64::MAX)),
            ..Limits::default()
        };
        let limits = limits(Some(1_500_000_000), Some(i64::MAX as u64));
        assert_eq!(MoneyLimits::of(&of), Some(limits));
        assert_eq!(MoneyLimits::of(&Limits::default()), None);
        let noon = Timestamp(45 * DAY_MS + DAY_MS / 2);
        assert_eq!((money_day(noon), money_month(noon)), (45, 31));
        assert_eq!(money_day_begin(45), Timestamp(45 * DAY_MS));
        assert_eq!((nano_usd(1e-9), nano_usd(-1.0)), (1, 0));
        assert_eq!((nano_usd(0.1 + 0.2), nano_usd(1.1e-9)), (300_000_000, 2));
        assert_eq!(nano_usd(f64::INFINITY), 1_000_000_000_000_000);
    }

    proptest! {
        /// However calls come and whatever they cost up to what they were granted, no limit is
        /// exceeded, and a call that is told that all is spent finds less than its minimum left.
        #[test]
        fn no_limit_is_passed(
            (day, month) in (0_u64..200, 0_u64..400),
            calls in prop::collection::vec((0_u64..80, 0_u64..80, any::<bool>()), 0..60),
        ) {
            let of = limits(Some(day), Some(month));
            let mut now = spent(0, 0, 0);
            let mut open: Vec<u64> = Vec::new();
            for (most, cost, ends) in calls {
                let least = most / 4;
                match of.room(now, most, least) {
                    MoneyRoom::Granted(granted) => {
                        prop_assert!(granted <= most && granted >= least);
                        now.aside += granted;
                        open.push(granted);
                    }
                    MoneyRoom::Busy => prop_assert!(!open.is_empty()),
                    MoneyRoom::Spent(MoneySpan::Minute, _) => prop_assert!(false, "unlimited"),
                    MoneyRoom::Spent(MoneySpan::Day, _) => prop_assert!(now.day + least > day),
                    MoneyRoom::Spent(MoneySpan::Month, _) => prop_assert!(now.month + least > month),
                }
                if ends && let Some(granted) = open.pop() {
                    let cost = cost.min(granted);
                    now.aside -= granted;
                    now.day += cost;
                    now.month += cost;
                }
                prop_assert!(now.day + now.aside <= day && now.month + now.aside <= month);
            }
        }
    }
}
