//! When a timer is due: once, at a fixed rate, or by a calendar.
//!
//! Instants are whole milliseconds of UTC. A calendar counts whole seconds on the wall clock of its
//! time zone, from the time zone database built into this program. When clocks change:
//!
//! - a job with fixed hours, minutes and seconds whose time is skipped runs at the first instant
//!   after the gap, and one whose time occurs twice runs once, at the earlier one;
//! - a job with a `*` or a step among them follows the wall clock: it does not run at times that
//!   are skipped, and runs twice at times that occur twice.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::str::FromStr as _;
use std::time::Duration;

use croner::{Cron, Weekday};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::time::{Span, Timestamp};
use crate::words::nearest;

/// The shortest interval.
pub const EVERY_MIN: Duration = Duration::from_secs(1);

/// The last instant that can be printed: the end of the year 9999.
const LAST: Timestamp = Timestamp(253_402_207_200_000);

/// When a timer is due.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// Once, at a time.
    At(Timestamp),
    /// Once, this long after the timer was created.
    After(Span),
    /// At a fixed rate: each occurrence is due one interval after the previous one was due, however
    /// late that one fired.
    Every {
        /// The interval.
        every: Span,
        /// The first occurrence; when absent, one interval after the timer was created.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        first: Option<First>,
    },
    /// By a calendar.
    Cron {
        /// Five fields, starting with minutes; six with leading seconds; seven with a trailing year.
        expression: String,
        /// The name of a time zone, such as `Europe/Berlin`.
        timezone: String,
    },
}

/// The first occurrence of a fixed-rate schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum First {
    /// At a time.
    At(Timestamp),
    /// This long after the timer was created.
    After(Span),
}

/// Why a schedule is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleFault {
    /// The interval is too short.
    #[error("must be at least 1s")]
    TooOften,
    /// The expression is invalid.
    #[error("is not a cron expression: {detail}")]
    Expression {
        /// What is wrong.
        detail: String,
    },
    /// No zone has this name.
    #[error("is not a known time zone{}", meant(.near.as_deref()))]
    Timezone {
        /// The name that was probably meant.
        near: Option<String>,
    },
    /// Nothing is ever due.
    #[error("is never due: no such day exists, or none that is still to come")]
    Never,
}

fn meant(near: Option<&str>) -> String {
    near.map_or(String::new(), |near| format!("; did you mean {near}?"))
}

impl Schedule {
    /// Whether it may be due more than once.
    pub fn is_recurring(&self) -> bool {
        matches!(self, Self::Every { .. } | Self::Cron { .. })
    }

    /// The schedule of a timer created at `created_at`, ready to compute instants.
    pub fn course(&self, created_at: Timestamp) -> Result<Course, ScheduleFault> {
        let start = |first: First| match first {
            First::At(at) => at,
            First::After(span) => created_at.after(span.0),
        };
        Ok(Course(match self {
            Self::At(at) => Kind::Once(*at),
            Self::After(span) => Kind::Once(created_at.after(span.0)),
            Self::Every { every, .. } if every.0 < EVERY_MIN => {
                return Err(ScheduleFault::TooOften);
            }
            Self::Every { every, first } => Kind::Every {
                first: start(first.unwrap_or(First::After(*every))),
                step: i64::try_from(every.0.as_millis()).unwrap_or(i64::MAX),
            },
            Self::Cron {
                expression,
                timezone,
            } => Kind::Cron {
                cron: Box::new(parse(expression)?),
                zone: zone(timezone)?,
                created_at,
            },
        }))
    }
}

fn parse(expression: &str) -> Result<Cron, ScheduleFault> {
    let cron = Cron::from_str(expression).map_err(|_| ScheduleFault::Expression {
        detail: wrong_field(expression),
    })?;
    if has_a_day(&cron) {
        Ok(cron)
    } else {
        Err(ScheduleFault::Never)
    }
}

/// The fields of an expression: the name of each, and its values.
const FIELDS: [(&str, &str); 7] = [
    ("second", "0 to 59"),
    ("minute", "0 to 59"),
    ("hour", "0 to 23"),
    ("day of the month", "1 to 31, or L for the last one"),
    ("month", "1 to 12, or JAN to DEC"),
    (
        "day of the week",
        "0 to 7, where 0 and 7 are Sunday, or SUN to SAT",
    ),
    ("year", "a year of four digits"),
];

/// What is wrong with an expression that cannot be read: the first of its fields that is wrong by itself.
fn wrong_field(expression: &str) -> String {
    let given: Vec<&str> = expression.split_whitespace().collect();
    let fields = match given.len() {
        5 => &FIELDS[1..6],
        6 => &FIELDS[..6],
        7 => &FIELDS[..],
        count => {
            return format!(
                "it has {count} fields; there are five (minute, hour, day of the month, month, day of the week), \
                 six with the second before them, or seven with the year after them"
            );
        }
    };
    let is_wrong = |place: usize| {
        let alone: Vec<&str> = (0..given.len())
            .map(|n| if n == place { given[n] } else { "*" })
            .collect();
        Cron::from_str(&alone.join(" ")).is_err()
    };
    let wrong = (0..given.len()).find(|place| is_wrong(*place));
    wrong.map_or_else(
        || "its fields do not fit together".to_owned(),
        |place| {
            let (name, values) = fields[place];
            let given: String = given[place].chars().take(100).collect();
            format!("the {name} {given:?} is not {values}, nor a list, range or step of such")
        },
    )
}

/// Years in which the calendar takes every course that it can: each kind of year, by the day of the
/// week on which it begins and whether it has a February 29, is among them. Outside centuries that
/// are no leap years they repeat every 28 years, so what has a day has one within 40 years.
const KINDS_OF_YEARS: RangeInclusive<i16> = 2001..=2028;

/// Whether any of the years has any of the days. A search for one that does not exist, such as
/// February 30 or a last working day that is a Sunday, would go through thousands of years.
fn has_a_day(cron: &Cron) -> bool {
    let pattern = &cron.pattern;
    let begin = |year: i16| Date::new(year, 1, 1).ok();
    let kind = |first: Date| {
        (
            first.weekday().to_monday_zero_offset(),
            first.in_leap_year(),
        )
    };
    let kinds: Option<BTreeSet<(i8, bool)>> = (!pattern.years.from_wildcard).then(|| {
        let years = pattern.years.values().into_iter();
        let years = years.filter_map(|year| begin(i16::try_from(year).ok()?));
        years.map(kind).collect()
    });
    let mut years = KINDS_OF_YEARS.filter_map(begin).filter(|first| {
        kinds
            .as_ref()
            .is_none_or(|kinds| kinds.contains(&kind(*first)))
    });
    years.any(|first| {
        let months = pattern.months.values().into_iter();
        let months = months.filter_map(|month| i8::try_from(month).ok());
        let months = months.filter_map(|month| Date::new(first.year(), month, 1).ok());
        let mut days = months.flat_map(|month| {
            (1..=month.days_in_month())
                .filter_map(move |day| Date::new(month.year(), month.month(), day).ok())
        });
        days.any(|day| {
            let weekday = day.weekday().to_sunday_zero_offset().unsigned_abs().into();
            let (month, n) = (day.month().unsigned_abs(), day.day().unsigned_abs());
            let weekday = Weekday::from_days_from_sunday(weekday);
            let matches = pattern.day_match(day.year().into(), month.into(), n.into(), weekday);
            matches.unwrap_or_default()
        })
    })
}

fn zone(name: &str) -> Result<TimeZone, ScheduleFault> {
    TimeZone::get(name).map_err(|_| ScheduleFault::Timezone { near: near(name) })
}

/// The time zone that was probably meant: one of that city, or one with nearly that name.
fn near(name: &str) -> Option<String> {
    let known: Vec<String> = jiff::tz::db()
        .available()
        .map(|name| name.to_string())
        .collect();
    let city = |known: &&String| {
        let city = known.rsplit('/').next().unwrap_or_default();
        city.eq_ignore_ascii_case(&name.trim().replace(' ', "_"))
    };
    let found = known.iter().find(city).map(String::as_str);
    found
        .or_else(|| nearest(name, known.iter().map(String::as_str)))
        .map(str::to_owned)
}

/// A schedule that can compute its instants.
#[derive(Debug, Clone)]
pub struct Course(Kind);

#[derive(Debug, Clone)]
enum Kind {
    Once(Timestamp),
    Every {
        first: Timestamp,
        /// At least one second.
        step: i64,
    },
    Cron {
        cron: Box<Cron>,
        zone: TimeZone,
        created_at: Timestamp,
    },
}

impl Course {
    /// The first instant.
    pub fn first(&self) -> Option<Timestamp> {
        match &self.0 {
            Kind::Once(at) | Kind::Every { first: at, .. } => printable(*at),
            Kind::Cron { created_at, .. } => self.next(*created_at),
        }
    }

    /// The first instant after `after`.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match &self.0 {
            Kind::Once(at) => (*at > after).then_some(*at).and_then(printable),
            Kind::Every { first, .. } if *first > after => printable(*first),
            Kind::Every { first, step } => {
                let steps = (after.0 - first.0) / step + 1;
                let offset = steps.checked_mul(*step)?;
                printable(Timestamp(first.0.checked_add(offset)?))
            }
            Kind::Cron { cron, zone, .. } => {
                let from = jiff::Timestamp::from_millisecond(after.0).ok()?;
                let next = cron.find_next_occurrence(&from.to_zoned(zone.clone()), false);
                printable(Timestamp(next.ok()?.timestamp().as_millisecond()))
                    .filter(|next| *next > after)
            }
        }
    }

    /// The last instant at or before `upto`.
    pub fn latest(&self, upto: Timestamp) -> Option<Timestamp> {
        match &self.0 {
            Kind::Once(at) => (*at <= upto).then_some(*at),
            Kind::Every { first, .. } if *first > upto => None,
            Kind::Every { first, step } => {
                Some(Timestamp(first.0 + (upto.0 - first.0) / step * step))
            }
            Kind::Cron {
                cron,
                zone,
                created_at,
            } => {
                // The search works in whole seconds and would round a fraction up.
                let from = jiff::Timestamp::from_second(upto.0.div_euclid(1_000)).ok()?;
                let last = cron.find_previous_occurrence(&from.to_zoned(zone.clone()), true);
                let last = Timestamp(last.ok()?.timestamp().as_millisecond());
                (last > *created_at).then_some(last)
            }
        }
    }
}

fn printable(at: Timestamp) -> Option<Timestamp> {
    (at <= LAST).then_some(at)
}

#[cfg(test)]
mod tests;
