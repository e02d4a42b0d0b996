//! Limits on requests per second of each tenant and each key: this process's share of them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mainspring_scheduler::error::{Error, Quota};
use mainspring_shared::error::Code;
use mainspring_shared::id::{KeyId, TenantId};

/// The owner of a limit on requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Payer {
    /// A tenant.
    Tenant(TenantId),
    /// A key.
    Key(KeyId),
}

/// How many requests per second an owner may send to all schedulers together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rate {
    pub(super) of: Payer,
    pub(super) requests: u32,
}

impl Rate {
    fn quota(self, left: f64, reset: Duration) -> Quota {
        Quota {
            name: match self.of {
                Payer::Tenant(_) => "requests",
                Payer::Key(_) => "key-requests",
            },
            unit: None,
            quota: u64::from(self.requests),
            window: Some(Duration::from_secs(1)),
            left: left.max(0.0) as u64,
            reset,
        }
    }

    fn refusal(self, wait: Duration) -> Error {
        let whose = match self.of {
            Payer::Tenant(_) => "tenant",
            Payer::Key(_) => "API key",
        };
        let detail = format!(
            "the {whose} may send at most {} requests per second",
            self.requests
        );
        Error::new(Code::LimitRequests, detail)
            .after(wait)
            .with_quota(self.quota(0.0, wait))
    }
}

/// Token buckets, each of which holds one second's worth of requests.
#[derive(Debug, Default)]
pub(super) struct Rates {
    buckets: Mutex<HashMap<Payer, Bucket>>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    /// The number of requests that may be sent at once.
    level: f64,
    /// The time of that level, on the monotonic clock.
    at: Duration,
}

impl Bucket {
    /// Refills it up to this time, at `gain` requests per second and to at most `most`.
    fn refill(&mut self, gain: f64, most: f64, now: Duration) {
        let gained = now.saturating_sub(self.at).as_secs_f64() * gain;
        self.level = (self.level + gained).min(most);
        self.at = now;
    }
}

impl Rates {
    /// Takes one request from all of these limits. If one is exhausted, takes none and fails with
    /// the time of the next request. Returns the limits.
    pub(super) fn take(
        &self,
        rates: &[Rate],
        schedulers: u32,
        now: Duration,
    ) -> Result<Vec<Quota>, Error> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        for rate in rates {
            let (gain, most) = part(rate.requests, schedulers);
            let new = Bucket {
                level: most,
                at: now,
            };
            let bucket = buckets.entry(rate.of).or_insert(new);
            bucket.refill(gain, most, now);
            if bucket.level < 1.0 {
                return Err(rate.refusal(time((1.0 - bucket.level) / gain)));
            }
        }
        let taken = rates.iter().map(|rate| {
            let (gain, most) = part(rate.requests, schedulers);
            let level = buckets.get_mut(&rate.of).map_or(most, |bucket| {
                bucket.level -= 1.0;
                bucket.level
            });
            rate.quota(level, time((most - level).max(0.0) / gain))
        });
        Ok(taken.collect())
    }

    /// Forgets an owner without a limit.
    pub(super) fn forget(&self, of: Payer) {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        buckets.remove(&of);
    }
}

/// This scheduler's share of a limit on requests per second, and how many of them may come at once.
/// The burst is at least one: with more schedulers than requests per second, each scheduler still
/// admits a request now and then.
fn part(requests: u32, schedulers: u32) -> (f64, f64) {
    let gain = f64::from(requests.max(1)) / f64::from(schedulers.max(1));
    (gain, gain.max(1.0))
}

/// This many seconds, at most a minute.
fn time(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.clamp(0.0, 60.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: Payer = Payer::Tenant(TenantId(7));

    fn rate(of: Payer, requests: u32) -> Rate {
        Rate { of, requests }
    }

    fn taken(rates: &Rates, requests: u32, schedulers: u32, at_ms: u64, count: u32) -> u32 {
        let now = Duration::from_millis(at_ms);
        let limits = [rate(TENANT, requests)];
        let taken = (0..count).filter(|_| rates.take(&limits, schedulers, now).is_ok());
        taken.map(|_| 1).sum()
    }

    #[test]
    fn a_second_admits_as_many_as_the_limit_says() {
        let rates = Rates::default();
        assert_eq!(taken(&rates, 10, 1, 0, 25), 10);
        assert_eq!(taken(&rates, 10, 1, 500, 25), 5);
        assert_eq!(taken(&rates, 10, 1, 60_000, 25), 10);
    }

    #[test]
    fn schedulers_divide_the_limit_however_many_they_are() {
        for (rate, schedulers) in [(100, 1), (100, 2), (100, 3), (7, 2), (2, 5)] {
            let fleet: Vec<Rates> = (0..schedulers).map(|_| Rates::default()).collect();
            let mut admitted = 0;
            for at in (0..60_000).step_by(20) {
                let each = fleet.iter().map(|one| taken(one, rate, schedulers, at, 9));
                admitted += each.sum::<u32>();
            }
            // The first burst, and then a minute's worth.
            let expected = rate.max(schedulers) + 60 * rate;
            let most = expected + expected / 10;
            assert!(admitted <= most, "{rate} {schedulers}: {admitted}");
            let least = expected - expected / 10;
            assert!(admitted >= least, "{rate} {schedulers}: {admitted}");
        }
    }

    #[test]
    fn what_a_scheduler_has_saved_up_is_cut_when_another_one_comes() {
        let rates = Rates::default();
        assert_eq!(taken(&rates, 10, 1, 0, 1), 1);
        assert_eq!(taken(&rates, 10, 2, 1_000, 25), 5);
        assert_eq!(taken(&rates, 10, 1, 2_000, 25), 10);
    }

    #[test]
    fn tenants_do_not_share_a_bucket() {
        let rates = Rates::default();
        assert_eq!(taken(&rates, 1, 1, 0, 2), 1);
        let other = [rate(Payer::Tenant(TenantId(8)), 1)];
        assert!(rates.take(&other, 1, Duration::ZERO).is_ok());
        rates.forget(TENANT);
        assert_eq!(taken(&rates, 1, 1, 0, 2), 1);
    }

    #[test]
    fn a_request_counts_among_all_limits_or_none() {
        let rates = Rates::default();
        let key = |n| Payer::Key(KeyId(uuid::Uuid::from_u128(n)));
        let both = [rate(TENANT, 5), rate(key(1), 2)];
        let names = |quotas: Vec<Quota>| -> Vec<(&str, u64)> {
            quotas.iter().map(|it| (it.name, it.left)).collect()
        };
        let take = |limits: &[Rate]| rates.take(limits, 1, Duration::ZERO);
        let first = take(&both).expect("there is room");
        assert_eq!(names(first), [("requests", 4), ("key-requests", 1)]);
        assert!(take(&both).is_ok());
        let refused = take(&both).expect_err("the key has sent two");
        assert_eq!(refused.quota().map(|it| it.name), Some("key-requests"));
        // Requests refused because of the key are left for the tenant's other keys.
        let other = [rate(TENANT, 5), rate(key(2), 100)];
        let admitted = (0..9).filter(|_| take(&other).is_ok()).count();
        assert_eq!(admitted, 3);
        let refused = take(&other).expect_err("the tenant has sent five");
        assert_eq!(refused.quota().map(|it| it.name), Some("requests"));
    }

    #[test]
    fn the_refusal_says_when_the_next_request_is_admitted() {
        let rates = Rates::default();
        assert_eq!(taken(&rates, 2, 1, 0, 3), 2);
        let refused = rates.take(&[rate(TENANT, 2)], 1, Duration::ZERO);
        let wait = refused.expect_err("is refused").retry_after();
        assert_eq!(wait, Some(Duration::from_millis(500)));
        assert_eq!(taken(&rates, 2, 1, 500, 2), 1);
        assert_eq!(taken(&rates, 2, 4, 1_000, 2), 0);
        assert_eq!(taken(&rates, 2, 4, 2_500, 2), 1);
    }
}
