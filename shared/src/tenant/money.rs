//! Money and tokens: what the model calls of a tenant, or of one of its agents, may cost and take in a minute, a day
//! and a month, exactly.
//!
//! Before a call, the most that it can cost is set aside under the lock of the tenant's row, and only where it
//! fits besides what is spent and what other calls have set aside. So no limit is passed, however many calls
//! race. Behind the call what it cost takes the place of what was set aside.
//!
//! Money is counted in billionths of a US dollar, as in budgets: sums of whole numbers are exact.

use crate::tenant::{Limits, Usd};
use crate::time::Timestamp;

/// Days of which it is kept what was spent, from the last one with a call on: more than a year.
pub const MONEY_DAYS_KEPT: i64 = 400;

/// How long money stays set aside at most, in milliseconds: longer than any call takes. What is older counts as
/// spent, whoever set it aside.
pub const MONEY_ASIDE_MS: i64 = 24 * 60 * 60 * 1_000;

/// Of what is left under a limit, one of so many parts is set aside at once for calls that are only expected. It is what
/// a worker that dies can have counted as spent without having made a call for it.
pub const MONEY_AHEAD_PARTS: u64 = 1_024;

/// Milliseconds of a day.
const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

/// Milliseconds of a minute.
const MINUTE_MS: i64 = 60 * 1_000;

/// More dollars than any call costs.
const USD_MAX: f64 = 1e6;

/// What a tenant's calls may cost, in billionths of a dollar, or take, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MoneyLimits {
    /// By the calls that begin in a minute of the database's clock; unlimited when absent.
    pub minute: Option<u64>,
    /// In a day, in UTC; unlimited when absent.
    pub day: Option<u64>,
    /// In a calendar month; unlimited when absent.
    pub month: Option<u64>,
}

/// What counts against the limits at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MoneySpent {
    /// What those calls that began in this minute and have ended cost; kept where a minute is limited.
    pub minute: u64,
    /// What those that began in this minute and are under way have set aside.
    pub minute_aside: u64,
    /// What the calls of the day cost.
    pub day: u64,
    /// What those of the month cost, the day's included.
    pub month: u64,
    /// What calls under way have set aside, those of days before included: it is unknown how much of it is
    /// spent.
    pub aside: u64,
}

impl MoneySpent {
    pub(super) const fn with_aside(mut self, more: u64) -> Self {
        self.minute_aside = self.minute_aside.saturating_add(more);
        self.aside = self.aside.saturating_add(more);
        self
    }
}

/// A span of time that a limit is for.
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
    /// The word for it.
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
    /// So much is its own.
    Granted(u64),
    /// Not before other calls have ended: what they have set aside leaves no room.
    Busy,
    /// Not before this span ends or its limit, which is this, is raised.
    Spent(MoneySpan, u64),
}

impl MoneyLimits {
    /// The limits that a tenant has; none where nothing limits its money.
    pub fn of(limits: &Limits) -> Option<Self> {
        let nano = |usd: Usd| usd.nano().min(i64::MAX as u64);
        let of = Self {
            minute: limits.usd_per_minute.map(nano),
            day: limits.usd_per_day.map(nano),
            month: limits.usd_per_month.map(nano),
        };
        (of != Self::default()).then_some(of)
    }

    /// Whether there is room for a call that costs `most` at most, and is of no use for less than `least`. Where
    /// what is spent leaves less than `most`, it gets what is left, once that is not set aside for others. A minute is
    /// soon over: what is spent of it has a call wait, for all of the minute's money where it costs as much.
    pub fn room(&self, spent: MoneySpent, most: u64, least: u64) -> MoneyRoom {
        match self.wanted(spent, most, least) {
            Err((span, limit)) => MoneyRoom::Spent(span, limit),
            Ok(wanted) if self.fits(spent, wanted) => MoneyRoom::Granted(wanted),
            Ok(_) => MoneyRoom::Busy,
        }
    }

    /// How much of `most` a call may have by what is spent, whatever others have set aside; the limit that leaves less
    /// than `least`.
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

    /// Whether so much fits besides what is spent and what others have set aside.
    pub(super) fn fits(&self, spent: MoneySpent, wanted: u64) -> bool {
        let taken = spent.minute.saturating_add(spent.minute_aside);
        let aside = spent.aside.saturating_add(wanted);
        self.minute
            .is_none_or(|limit| taken.saturating_add(wanted) <= limit)
            && self
                .lasting(spent)
                .all(|(_, limit, spent)| spent.saturating_add(aside) <= limit)
    }

    /// The limits of spans that are not soon over, and what is spent of each.
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

/// When a day begins.
pub fn money_day_begin(day: i64) -> Timestamp {
    Timestamp(day.saturating_mul(DAY_MS))
}

/// The number of the minute of a time.
pub fn money_minute(at: Timestamp) -> i64 {
    at.0.div_euclid(MINUTE_MS)
}

/// When a minute begins.
pub fn money_minute_begin(minute: i64) -> Timestamp {
    Timestamp(minute.saturating_mul(MINUTE_MS))
}

/// The minute that calls begin in at a time, where the last one that was counted of its day is `kept`. Whoever waits
/// for the tenant's row may have read the time before those who counted the minute that has begun meanwhile. Any
/// other minute that is to come is one of a clock that was set back, and counts no more.
pub fn money_minute_of(now: Timestamp, kept: i64) -> i64 {
    let minute = money_minute(now);
    if kept == minute + 1 { kept } else { minute }
}

/// The first day of the month of a time.
pub fn money_month(at: Timestamp) -> i64 {
    money_day(at.month())
}

/// Billionths of a dollar, or tokens, as they are stored: none are as many as what cannot be.
pub fn stored_nano(nano: u64) -> i64 {
    i64::try_from(nano).unwrap_or(i64::MAX)
}

/// Billionths of a dollar that these dollars are, rounded up, but for what their binary fractions add to them. At
/// most a million dollars, so that sums have room.
pub fn nano_usd(dollars: f64) -> u64 {
    /// Of a billionth.
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
            // The rest, once nobody else has any of it.
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
            // What costs nothing has room as long as no limit is passed.
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
            // All of a minute, once it is its own.
            (now(0, 0, 0, 0), 70, 5, MoneyRoom::Granted(50)),
            (now(1, 0, 1, 0), 70, 5, MoneyRoom::Busy),
            (
                now(0, 0, 0, 0),
                70,
                51,
                MoneyRoom::Spent(MoneySpan::Minute, 50),
            ),
            // What calls of minutes before have set aside counts for the day.
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
        /// However calls come and whatever they cost up to what they were granted, no limit is passed, and
        /// whoever is told that all is spent meets less than the least.
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
