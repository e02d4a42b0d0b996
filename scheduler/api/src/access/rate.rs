//! Requests per second of each tenant, in this process: its part of what the tenant may send.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mainspring_scheduler::error::{Error, Quota};
use mainspring_shared::error::Code;
use mainspring_shared::id::TenantId;

/// Token buckets, each as large as a second's worth of requests.
#[derive(Debug, Default)]
pub(super) struct Rates {
    buckets: Mutex<HashMap<TenantId, Bucket>>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    /// Requests that may be sent at once.
    level: f64,
    /// When that was so, by the monotonic clock.
    at: Duration,
}

impl Bucket {
    /// What it holds at this time, where it gains so many a second and holds so many at most.
    fn refill(&mut self, gain: f64, most: f64, now: Duration) {
        let gained = now.saturating_sub(self.at).as_secs_f64() * gain;
        self.level = (self.level + gained).min(most);
        self.at = now;
    }
}

impl Rates {
    /// Takes one request of a tenant that may send `rate` a second to all of the schedulers, or says when the next one
    /// may be sent. Returns the limit that it counts among.
    pub(super) fn take(
        &self,
        tenant: TenantId,
        rate: u32,
        schedulers: u32,
        now: Duration,
    ) -> Result<Quota, Error> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let quota = |left: f64, reset: Duration| Quota {
            name: "requests",
            unit: None,
            quota: u64::from(rate),
            window: Some(Duration::from_secs(1)),
            left: left.max(0.0) as u64,
            reset,
        };
        let gain = f64::from(rate) / f64::from(schedulers.max(1));
        // A part of a request is none: where there are more schedulers than requests, one fits still, and comes seldom.
        let most = gain.max(1.0);
        let bucket = buckets.entry(tenant).or_insert(Bucket {
            level: most,
            at: now,
        });
        bucket.refill(gain, most, now);
        if bucket.level < 1.0 {
            let wait = (1.0 - bucket.level) / gain.max(f64::MIN_POSITIVE);
            let wait = Duration::try_from_secs_f64(wait).unwrap_or(Duration::MAX);
            let wait = wait.min(Duration::from_mins(1));
            let detail = format!("the tenant may send {rate} requests per second");
            return Err(Error::new(Code::LimitRequests, detail)
                .after(wait)
                .with_quota(quota(0.0, wait)));
        }
        bucket.level -= 1.0;
        let whole = (most - bucket.level).max(0.0) / gain.max(f64::MIN_POSITIVE);
        let whole = Duration::try_from_secs_f64(whole).unwrap_or(Duration::MAX);
        Ok(quota(bucket.level, whole.min(Duration::from_mins(1))))
    }

    /// Forgets a tenant that has no limit.
    pub(super) fn forget(&self, tenant: TenantId) {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        buckets.remove(&tenant);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: TenantId = TenantId(7);

    fn taken(rates: &Rates, rate: u32, schedulers: u32, at_ms: u64, count: u32) -> u32 {
        let now = Duration::from_millis(at_ms);
        let taken = (0..count).filter(|_| rates.take(TENANT, rate, schedulers, now).is_ok());
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
            // The first burst, and then what a minute admits.
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
        assert!(rates.take(TenantId(8), 1, 1, Duration::ZERO).is_ok());
        rates.forget(TENANT);
        assert_eq!(taken(&rates, 1, 1, 0, 2), 1);
    }

    #[test]
    fn the_refusal_says_when_the_next_request_is_admitted() {
        let rates = Rates::default();
        assert_eq!(taken(&rates, 2, 1, 0, 3), 2);
        let refused = rates.take(TENANT, 2, 1, Duration::ZERO);
        let wait = refused.expect_err("is refused").retry_after();
        assert_eq!(wait, Some(Duration::from_millis(500)));
        assert_eq!(taken(&rates, 2, 1, 500, 2), 1);
        assert_eq!(taken(&rates, 2, 4, 1_000, 2), 0);
        assert_eq!(taken(&rates, 2, 4, 2_500, 2), 1);
    }
}
