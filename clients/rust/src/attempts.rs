//! Whether and when a request is made again. Neither a clock nor chance is in here.

use std::time::{Duration, Instant, SystemTime};

use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};

use crate::error::Error;

const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// The repeats of one request or one stream.
#[derive(Debug, Clone)]
pub(crate) struct Attempts {
    /// So many at most.
    pub(crate) limit: Option<u32>,
    /// None later than so long after the first failure.
    pub(crate) within: Option<Duration>,
    /// A server that asks for more patience than this is not asked again.
    pub(crate) pause_max: Duration,
    /// The upper bound of the first pause, which doubles with each.
    pub(crate) first_pause: Duration,
    made: u32,
    failing_since: Option<Instant>,
}

/// What is known of a failure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Failed {
    /// When.
    pub(crate) now: Instant,
    /// A random number from 0 to 1.
    pub(crate) chance: f64,
    /// Whether the request may be repeated.
    pub(crate) may_repeat: bool,
    /// The pause that the server asks for.
    pub(crate) asked: Duration,
}

impl Attempts {
    pub(crate) fn new(
        limit: Option<u32>,
        within: Option<Duration>,
        pause_max: Duration,
        first_pause: Duration,
    ) -> Self {
        Self {
            limit,
            within,
            pause_max,
            first_pause,
            made: 0,
            failing_since: None,
        }
    }

    /// There was progress: the budget is whole again.
    pub(crate) fn succeeded(&mut self) {
        (self.made, self.failing_since) = (0, None);
    }

    /// The pause before the next attempt, or the error if there is to be none.
    pub(crate) fn pause(&mut self, failed: Failed, error: Error) -> Result<Duration, Error> {
        let Failed {
            now,
            chance,
            may_repeat,
            asked,
        } = failed;
        let since = *self.failing_since.get_or_insert(now);
        let late = self.within.is_some_and(|within| {
            now.saturating_duration_since(since).saturating_add(asked) > within
        });
        let often = self.limit.is_some_and(|limit| self.made >= limit);
        if !may_repeat || late || often || asked > self.pause_max {
            return Err(error);
        }
        let longest = self.first_pause * 2_u32.pow(self.made.min(10));
        let drawn = longest.min(LONGEST_PAUSE).mul_f64(chance.clamp(0.0, 1.0));
        self.made += 1;
        Ok(drawn.max(asked))
    }
}

/// The pause that an answer asks for; its date is judged by the server's clock, whatever this machine's says.
pub(crate) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Duration {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let Some(value) = text(RETRY_AFTER) else {
        return Duration::ZERO;
    };
    if let Ok(seconds) = value.parse() {
        return Duration::from_secs(seconds);
    }
    let date = text(DATE).and_then(|date| httpdate::parse_http_date(date).ok());
    let until = httpdate::parse_http_date(value).ok();
    let left = until.and_then(|until| until.duration_since(date.unwrap_or(now)).ok());
    left.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(now: Instant, asked: Duration) -> Failed {
        Failed {
            now,
            chance: 1.0,
            may_repeat: true,
            asked,
        }
    }

    fn error() -> Error {
        Error::Unreachable("gone".to_owned())
    }

    #[test]
    fn pauses_double_and_end_with_the_limit() {
        let now = crate::clock::now();
        let first = Duration::from_millis(200);
        let mut attempts = Attempts::new(Some(3), None, Duration::from_mins(1), first);
        let mut pause = || attempts.pause(failed(now, Duration::ZERO), error()).ok();
        let millis = |pause: Option<Duration>| pause.map(|it| it.as_millis());
        assert_eq!(millis(pause()), Some(200));
        assert_eq!(millis(pause()), Some(400));
        assert_eq!(millis(pause()), Some(800));
        assert_eq!(pause(), None);
    }

    #[test]
    fn a_server_is_heard_unless_it_asks_for_too_much() {
        let now = crate::clock::now();
        let max = Duration::from_secs(10);
        let mut attempts = Attempts::new(Some(3), None, max, Duration::from_millis(1));
        let mut pause = |asked| attempts.pause(failed(now, Duration::from_secs(asked)), error());
        assert_eq!(pause(9).ok(), Some(Duration::from_secs(9)));
        assert!(pause(11).is_err());
        // What no clock reaches is too much, too.
        let within = Some(Duration::from_secs(5));
        let mut attempts = Attempts::new(None, within, Duration::MAX, Duration::from_millis(1));
        let asked = Duration::from_secs(u64::MAX);
        assert!(attempts.pause(failed(now, asked), error()).is_err());
    }

    #[test]
    fn progress_makes_the_time_whole_again() {
        let begin = crate::clock::now();
        let within = Some(Duration::from_secs(5));
        let mut attempts = Attempts::new(
            None,
            within,
            Duration::from_mins(1),
            Duration::from_millis(1),
        );
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert!(
            attempts
                .pause(failed(at(0), Duration::ZERO), error())
                .is_ok()
        );
        assert!(
            attempts
                .pause(failed(at(6), Duration::ZERO), error())
                .is_err()
        );
        attempts.succeeded();
        assert!(
            attempts
                .pause(failed(at(6), Duration::ZERO), error())
                .is_ok()
        );
    }

    #[test]
    fn dates_are_judged_by_the_servers_clock() {
        let mut headers = HeaderMap::new();
        let far = SystemTime::UNIX_EPOCH;
        assert_eq!(retry_after(&headers, far), Duration::ZERO);
        let mut with =
            |name, value: &'static str| headers.insert(name, value.parse().expect("a value"));
        with(RETRY_AFTER, "Mon, 30 Nov 2026 10:00:07 GMT");
        with(DATE, "Mon, 30 Nov 2026 10:00:00 GMT");
        assert_eq!(retry_after(&headers, far), Duration::from_secs(7));
        headers.insert(RETRY_AFTER, "3".parse().expect("a value"));
        assert_eq!(retry_after(&headers, far), Duration::from_secs(3));
    }
}
