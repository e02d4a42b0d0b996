//! Retry policies.

use std::time::Duration;

use crate::time::Timestamp;

/// Full-jitter exponential backoff: the wait before attempt n is drawn uniformly from
/// `[0, min(cap, base * 2^(n-1)))`.
///
/// The algorithm is "full jitter" of Marc Brooker, "Exponential Backoff And Jitter" (2015): of the
/// variants compared there it needs the least work and spreads the load best.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Maximum number of calls, including the first; at least 1.
    pub attempts_max: u32,
    /// The upper bound of the first wait.
    pub base: Duration,
    /// The maximum drawn wait.
    pub cap: Duration,
    /// The maximum wait of any kind, even if a provider asks for more.
    pub retry_after_max: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            attempts_max: 5,
            base: Duration::from_millis(500),
            cap: Duration::from_secs(30),
            retry_after_max: Duration::from_mins(10),
        }
    }
}

impl Policy {
    /// The wait after `failed` failed attempts, or `None` if no attempts are left. `fraction` is
    /// drawn from `[0, 1)`. A wait that the other side asks for overrides the draw.
    pub fn wait(
        &self,
        failed: u32,
        retry_after: Option<Duration>,
        fraction: f64,
    ) -> Option<Duration> {
        if failed >= self.attempts_max {
            return None;
        }
        if let Some(asked) = retry_after {
            return Some(asked.min(self.retry_after_max));
        }
        let doublings = failed.saturating_sub(1).min(20);
        let bound = self.base.saturating_mul(1 << doublings).min(self.cap);
        Some(bound.mul_f64(fraction.clamp(0.0, 1.0)))
    }
}

/// How long the other side asks us to wait. A date is compared with the response's own `Date`, so
/// that neither clock has to be right; `now` is used if the response has none. `header` looks up a
/// response header by its lower-case name.
///
/// `Retry-After` is RFC 9110, section 10.2.3; `retry-after-ms` is sent by model providers in addition.
pub fn retry_after<'h>(
    header: impl Fn(&str) -> Option<&'h str>,
    now: Timestamp,
) -> Option<Duration> {
    let text = |name: &str| header(name).map(str::trim);
    if let Some(millis) = text("retry-after-ms").and_then(positive) {
        return Some(duration(millis / 1000.0));
    }
    let asked = text("retry-after")?;
    if let Some(seconds) = positive(asked) {
        return Some(duration(seconds));
    }
    let at = http_date(asked)?;
    let from = text("date").and_then(http_date).unwrap_or(now);
    Some(at.since(from))
}

fn positive(text: &str) -> Option<f64> {
    text.parse()
        .ok()
        .filter(|n: &f64| n.is_finite() && *n >= 0.0)
}

fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

fn http_date(text: &str) -> Option<Timestamp> {
    let time = jiff::fmt::rfc2822::parse(text).ok()?;
    Some(Timestamp(time.timestamp().as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_wait_never_passes_its_bounds(
            failed in 0u32..100, fraction in 0.0f64..1.0, asked in proptest::option::of(0u64..10_000),
        ) {
            let policy = Policy::default();
            let wait = policy.wait(failed, asked.map(Duration::from_secs), fraction);
            match wait {
                None => prop_assert!(failed >= policy.attempts_max),
                Some(wait) => {
                    prop_assert!(failed < policy.attempts_max);
                    let bound = if asked.is_some() { policy.retry_after_max } else { policy.cap };
                    prop_assert!(wait <= bound);
                }
            }
        }
    }

    #[test]
    fn the_bound_doubles_with_each_failure() {
        let policy = Policy {
            attempts_max: 10,
            ..Policy::default()
        };
        let bounds: Vec<_> = (1..9)
            .map(|n| policy.wait(n, None, 1.0).expect("attempts are left"))
            .collect();
        let millis: Vec<_> = bounds.iter().map(Duration::as_millis).collect();
        assert_eq!(millis, [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]);
    }

    #[test]
    fn what_the_provider_asks_for_wins_over_the_draw() {
        let policy = Policy::default();
        let asked = Some(Duration::from_secs(7));
        assert_eq!(policy.wait(1, asked, 0.0), asked);
    }

    #[test]
    fn a_provider_may_ask_to_wait_in_seconds_milliseconds_or_by_a_date() {
        let now = Timestamp(784_111_770_000);
        let asked = |pairs: &[(&'static str, &'static str)]| {
            let value = |name: &str| {
                let pair = pairs.iter().find(|pair| pair.0 == name);
                pair.map(|pair| pair.1)
            };
            retry_after(value, now).map(|d| d.as_millis())
        };
        assert_eq!(asked(&[]), None);
        assert_eq!(asked(&[("retry-after", "7")]), Some(7_000));
        assert_eq!(asked(&[("retry-after", "0.25")]), Some(250));
        assert_eq!(
            asked(&[("retry-after", "7"), ("retry-after-ms", "1500")]),
            Some(1_500)
        );
        assert_eq!(
            asked(&[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")]),
            Some(7_000)
        );
        let date = ("date", "Sun, 06 Nov 1994 08:49:35 GMT");
        assert_eq!(
            asked(&[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT"), date]),
            Some(2_000)
        );
        assert_eq!(
            asked(&[("retry-after", "Sun, 06 Nov 1994 08:49:30 GMT"), date]),
            Some(0)
        );
        for nonsense in ["soon", "-1", "NaN"] {
            assert_eq!(asked(&[("retry-after", nonsense)]), None, "{nonsense}");
        }
        assert!(asked(&[("retry-after", "1e300")]).is_some());
    }
}
