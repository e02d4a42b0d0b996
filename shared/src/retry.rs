//! When to try again.

use std::time::Duration;

/// Full-jitter exponential backoff: the wait before attempt n is drawn evenly from
/// `[0, min(cap, base * 2^(n-1)))`.
///
/// The algorithm is "full jitter" of Marc Brooker, "Exponential Backoff And Jitter" (2015): of the
/// variants compared there it needs the least work and spreads the load best.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Calls in all, the first included; at least 1.
    pub attempts_max: u32,
    /// The upper bound of the first wait.
    pub base: Duration,
    /// No drawn wait is longer.
    pub cap: Duration,
    /// No wait at all is longer, not even one that a provider asks for.
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
    /// The wait after `failed` failed attempts, or `None` when they were all. `fraction` is drawn
    /// from `[0, 1)`. What the other side asked for wins over the draw.
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
}
