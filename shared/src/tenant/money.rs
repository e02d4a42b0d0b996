//! Money and tokens: what the model calls of a tenant may cost and take in a minute, a day and a month, exactly.
//!
//! Before a call, the most that it can cost is set aside under the lock of the tenant's row, and only where it
//! fits besides what is spent and what other calls have set aside. So no limit is passed, however many calls
//! race. Behind the call what it cost takes the place of what was set aside.
//!
//! Money is counted in billionths of a US dollar, as in budgets: sums of whole numbers are exact.

use crate::tenant::{Limits, Usd};
use crate::time::Timestamp;
use crate::usage::Usage;

/// Days of which it is kept what was spent, from the last one with a call on: more than a year.
pub const MONEY_DAYS_KEPT: i64 = 400;

/// How long money stays set aside at most, in milliseconds: longer than any call takes. What is older counts as
/// spent, whoever set it aside.
pub const MONEY_ASIDE_MS: i64 = 24 * 60 * 60 * 1_000;

/// Milliseconds of a day.
const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

/// Milliseconds of a minute.
const MINUTE_MS: i64 = 60 * 1_000;

/// More dollars than any call costs.
const USD_MAX: f64 = 1e6;

/// What a call costs, or some calls together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amount {
    /// In billionths of a dollar.
    pub nano_usd: u64,
    /// In tokens, of input and output.
    pub tokens: u64,
}

impl Amount {
    /// So much money and so many tokens.
    pub const fn new(nano_usd: u64, tokens: u64) -> Self {
        Self { nano_usd, tokens }
    }

    /// What this usage is.
    pub fn of(usage: &Usage) -> Self {
        Self {
            nano_usd: nano_usd(usage.cost_usd.unwrap_or_default()),
            tokens: usage.input_tokens.saturating_add(usage.output_tokens),
        }
    }

    /// Both together.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            nano_usd: self.nano_usd.saturating_add(other.nano_usd),
            tokens: self.tokens.saturating_add(other.tokens),
        }
    }

    /// So many times as much.
    #[must_use]
    pub const fn times(self, times: u64) -> Self {
        Self {
            nano_usd: self.nano_usd.saturating_mul(times),
            tokens: self.tokens.saturating_mul(times),
        }
    }
}

/// What a tenant's calls may cost and take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LedgerLimits {
    /// In billionths of a dollar.
    pub money: MoneyLimits,
    /// In tokens.
    pub tokens: MoneyLimits,
}

/// What counts against these limits at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LedgerSpent {
    /// In billionths of a dollar.
    pub money: MoneySpent,
    /// In tokens.
    pub tokens: MoneySpent,
}

impl LedgerSpent {
    /// What the calls of the minute, the day or the month that have ended are.
    pub const fn of(&self, span: MoneySpan) -> Amount {
        match span {
            MoneySpan::Minute => Amount::new(self.money.minute, self.tokens.minute),
            MoneySpan::Day => Amount::new(self.money.day, self.tokens.day),
            MoneySpan::Month => Amount::new(self.money.month, self.tokens.month),
        }
    }

    /// The same with more set aside, for calls that begin now.
    #[must_use]
    pub const fn with_aside(self, more: Amount) -> Self {
        Self {
            money: self.money.with_aside(more.nano_usd),
            tokens: self.tokens.with_aside(more.tokens),
        }
    }
}

/// Whether there is room for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LedgerRoom {
    /// So much is its own.
    Granted(Amount),
    /// Not before other calls have ended: what they have set aside leaves no room.
    Busy,
    /// Not before this span ends or its limit of money, so many billionths of a dollar, is raised.
    Spent(MoneySpan, u64),
    /// The same of a limit of tokens.
    TokensSpent(MoneySpan, u64),
}

impl LedgerLimits {
    /// The limits that a tenant has; none where nothing limits its money and its tokens.
    pub fn of(limits: &Limits) -> Option<Self> {
        let tokens = |tokens: u64| tokens.min(i64::MAX as u64);
        let of = Self {
            money: MoneyLimits::of(limits).unwrap_or_default(),
            tokens: MoneyLimits {
                // Sends are refused by what was used in the last minute: no call waits.
                minute: None,
                day: limits.tokens_per_day.map(tokens),
                month: limits.tokens_per_month.map(tokens),
            },
        };
        (of != Self::default()).then_some(of)
    }

    /// Whether there is room for a call that costs and takes `most` at most, and is of no use for less than `least`,
    /// as [`MoneyLimits::room`] says of each: it gets both or neither.
    pub fn room(&self, spent: LedgerSpent, most: Amount, least: Amount) -> LedgerRoom {
        let money = self.money.room(spent.money, most.nano_usd, least.nano_usd);
        let tokens = self.tokens.room(spent.tokens, most.tokens, least.tokens);
        match (money, tokens) {
            (MoneyRoom::Spent(span, limit), _) => LedgerRoom::Spent(span, limit),
            (_, MoneyRoom::Spent(span, limit)) => LedgerRoom::TokensSpent(span, limit),
            (MoneyRoom::Granted(nano_usd), MoneyRoom::Granted(tokens)) => {
                LedgerRoom::Granted(Amount::new(nano_usd, tokens))
            }
            (MoneyRoom::Busy, _) | (_, MoneyRoom::Busy) => LedgerRoom::Busy,
        }
    }
}

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
    const fn with_aside(mut self, more: u64) -> Self {
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
        let limits = [
            (MoneySpan::Day, self.day, spent.day),
            (MoneySpan::Month, self.month, spent.month),
        ];
        let mut left = u64::MAX;
        for (span, limit, spent) in limits {
            let Some(limit) = limit else { continue };
            let here = limit.saturating_sub(spent);
            if here < least || spent > limit {
                return MoneyRoom::Spent(span, limit);
            }
            left = left.min(here);
        }
        let mut wanted = most.min(left);
        if let Some(limit) = self.minute {
            if limit < least {
                return MoneyRoom::Spent(MoneySpan::Minute, limit);
            }
            wanted = wanted.min(limit);
            let taken = spent.minute.saturating_add(spent.minute_aside);
            if taken.saturating_add(wanted) > limit {
                return MoneyRoom::Busy;
            }
        }
        if spent.aside.saturating_add(wanted) <= left {
            MoneyRoom::Granted(wanted)
        } else {
            MoneyRoom::Busy
        }
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
    fn a_call_gets_money_and_tokens_or_neither() {
        let of = LedgerLimits {
            money: limits(Some(100), None),
            tokens: limits(None, Some(50)),
        };
        let now = |money: u64, tokens: u64| LedgerSpent {
            money: spent(money, money, 0),
            tokens: spent(0, tokens, 0),
        };
        let amount = Amount::new;
        let (most, least) = (amount(60, 30), amount(10, 5));
        for (spent, expected) in [
            (now(0, 0), LedgerRoom::Granted(most)),
            (now(70, 0), LedgerRoom::Granted(amount(30, 30))),
            (now(70, 41), LedgerRoom::Granted(amount(30, 9))),
            (now(70, 46), LedgerRoom::TokensSpent(MoneySpan::Month, 50)),
            (now(91, 46), LedgerRoom::Spent(MoneySpan::Day, 100)),
            (now(0, 0).with_aside(amount(0, 21)), LedgerRoom::Busy),
            (now(0, 0).with_aside(amount(41, 0)), LedgerRoom::Busy),
        ] {
            assert_eq!(of.room(spent, most, least), expected, "{spent:?}");
        }
        let tokens = Limits {
            tokens_per_day: Some(7),
            ..Limits::default()
        };
        let expected = LedgerLimits {
            tokens: limits(Some(7), None),
            ..LedgerLimits::default()
        };
        assert_eq!(LedgerLimits::of(&tokens), Some(expected));
        assert_eq!(LedgerLimits::of(&Limits::default()), None);
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
