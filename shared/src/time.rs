//! Time as the system stores it: whole milliseconds of UTC, the same in every database.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Milliseconds since the Unix epoch, UTC. Printed as RFC 3339.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The instant `duration` later, saturating at the maximum.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)),
        )
    }

    /// The beginning of its month in UTC.
    #[must_use]
    pub fn month(self) -> Self {
        let time = jiff::Timestamp::from_millisecond(self.0).unwrap_or_default();
        let day = time
            .to_zoned(jiff::tz::TimeZone::UTC)
            .date()
            .first_of_month();
        let begin = day.to_zoned(jiff::tz::TimeZone::UTC);
        begin.map_or(self, |begin| Self(begin.timestamp().as_millisecond()))
    }

    /// The duration since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(time) => write!(f, "{time:.3}"),
            Err(_) => write!(f, "{}ms", self.0),
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        let time: Result<jiff::Timestamp, _> = text.parse();
        let time = time.map_err(|_| {
            D::Error::custom(
                "must be a time like 2030-01-31T08:00:00Z, not after 9999-12-30T22:00:00Z",
            )
        })?;
        Ok(Self(time.as_millisecond()))
    }
}

/// The source of time. Pure logic is passed time values; only the code around it has a clock.
#[async_trait]
pub trait Clock: Send + Sync + fmt::Debug {
    /// The wall clock's time. Only for display: leases and due times are judged by the database's clock.
    fn now(&self) -> Timestamp;

    /// Monotonic time from an arbitrary start.
    fn monotonic(&self) -> Duration;

    /// Returns once `duration` has passed on the monotonic clock.
    async fn sleep(&self, duration: Duration);
}

/// A duration as users write it: `250ms`, `30s`, `5m`, `2h`, `1d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub Duration);

/// A duration that could not be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseSpanError {
    /// It is not a number and a unit.
    #[error("a duration is a whole number and a unit of ms, s, m, h or d, like 250ms or 30s")]
    Form,
    /// It is longer than any that can be kept.
    #[error("a duration is at most {DAYS_MAX}d")]
    TooLong,
}

/// More than a century: far beyond any time that a timestamp must represent.
const DAYS_MAX: u64 = 46_296;

const MILLIS_MAX: u64 = DAYS_MAX * 86_400_000;

impl std::str::FromStr for Span {
    type Err = ParseSpanError;

    fn from_str(text: &str) -> Result<Self, ParseSpanError> {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        if number.is_empty() {
            return Err(ParseSpanError::Form);
        }
        // Only digits: what does not fit is too long in any unit.
        let number: u64 = number.parse().unwrap_or(u64::MAX);
        let scale = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(ParseSpanError::Form),
        };
        let millis = number.checked_mul(scale).filter(|ms| *ms <= MILLIS_MAX);
        millis
            .map(|ms| Self(Duration::from_millis(ms)))
            .ok_or(ParseSpanError::TooLong)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        let units = [
            (86_400_000, "d"),
            (3_600_000, "h"),
            (60_000, "m"),
            (1_000, "s"),
        ];
        for (scale, unit) in units {
            if millis != 0 && millis.is_multiple_of(scale) {
                return write!(f, "{}{unit}", millis / scale);
            }
        }
        write!(f, "{millis}ms")
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_prints_as_rfc_3339_and_parses_back() {
        let time = Timestamp(1_700_000_000_123);
        assert_eq!(time.to_string(), "2023-11-14T22:13:20.123Z");
        let json = serde_json::to_string(&time).expect("serializes");
        assert_eq!(
            serde_json::from_str::<Timestamp>(&json).expect("parses"),
            time
        );
    }

    #[test]
    fn spans_are_read_as_they_are_written() {
        for text in ["250ms", "30s", "5m", "2h", "1d", "0ms"] {
            assert_eq!(text.parse::<Span>().expect(text).to_string(), text);
        }
        for text in ["", "30", "s", "-1s", "1.5s", "1 s", "1267y"] {
            assert_eq!(text.parse::<Span>(), Err(ParseSpanError::Form), "{text}");
        }
        for text in ["99999999999999999999s", "100000d", "46297d"] {
            assert_eq!(text.parse::<Span>(), Err(ParseSpanError::TooLong), "{text}");
        }
        text_is_kept("46296d");
    }

    fn text_is_kept(text: &str) {
        assert_eq!(text.parse::<Span>().expect(text).to_string(), text);
    }

    #[test]
    fn what_is_no_time_is_told_how_to_write_one() {
        for text in [
            "9999-12-31T23:59:59Z",
            "tomorrow",
            "2030-02-30T00:00:00Z",
            "",
        ] {
            let read = serde_json::from_value::<Timestamp>(text.into());
            let error = read.expect_err(text).to_string();
            assert!(error.contains("2030-01-31T08:00:00Z"), "{text}: {error}");
        }
        let last = serde_json::from_str::<Timestamp>("\"9999-12-30T00:00:00Z\"");
        assert!(last.is_ok());
    }
}
