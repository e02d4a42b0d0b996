//! Requests per second of each tenant, in this process.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mainspring_scheduler::error::{Error, Quota};
use mainspring_shared::error::Code;
use mainspring_shared::id::TenantId;
use mainspring_shared::tenant::Limits;

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

impl Rates {
    /// Takes one request of a tenant's, or says when the next one may be sent. Returns the limit that it counts
    /// among, where there is one.
    pub(super) fn take(
        &self,
        tenant: TenantId,
        limits: &Limits,
        now: Duration,
    ) -> Result<Option<Quota>, Error> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(rate) = limits.requests_per_second else {
            buckets.remove(&tenant);
            return Ok(None);
        };
        let quota = |left: f64, reset: Duration| Quota {
            name: "requests",
            unit: None,
            quota: u64::from(rate),
            window: Some(Duration::from_secs(1)),
            left: left.max(0.0) as u64,
            reset,
        };
        let rate = f64::from(rate);
        let bucket = buckets.entry(tenant).or_insert(Bucket {
            level: rate,
            at: now,
        });
        let gained = now.saturating_sub(bucket.at).as_secs_f64() * rate;
        bucket.level = (bucket.level + gained).min(rate);
        bucket.at = now;
        if bucket.level < 1.0 {
            let wait = Duration::from_secs_f64((1.0 - bucket.level) / rate.max(f64::MIN_POSITIVE));
            return Err(Error::new(
                Code::LimitRequests,
                format!("the tenant may send {rate} requests per second"),
            )
            .after(wait.min(Duration::from_mins(1)))
            .with_quota(quota(0.0, wait)));
        }
        bucket.level -= 1.0;
        let whole = Duration::from_secs_f64((rate - bucket.level).max(0.0) / rate);
        Ok(Some(quota(bucket.level, whole)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: TenantId = TenantId(7);

    fn limits(rate: Option<u32>) -> Limits {
        Limits {
            requests_per_second: rate,
            ..Limits::default()
        }
    }

    fn taken(rates: &Rates, limits: &Limits, at_ms: u64, count: u32) -> usize {
        let now = Duration::from_millis(at_ms);
        (0..count)
            .filter(|_| rates.take(TENANT, limits, now).is_ok())
            .count()
    }

    #[test]
    fn a_second_admits_as_many_as_the_limit_says() {
        let (rates, limits) = (Rates::default(), limits(Some(10)));
        assert_eq!(taken(&rates, &limits, 0, 25), 10);
        assert_eq!(taken(&rates, &limits, 500, 25), 5);
        assert_eq!(taken(&rates, &limits, 60_000, 25), 10);
    }

    #[test]
    fn tenants_do_not_share_a_bucket() {
        let (rates, limits) = (Rates::default(), limits(Some(1)));
        assert_eq!(taken(&rates, &limits, 0, 2), 1);
        assert!(rates.take(TenantId(8), &limits, Duration::ZERO).is_ok());
    }

    #[test]
    fn without_a_limit_everything_is_admitted() {
        let rates = Rates::default();
        assert_eq!(taken(&rates, &limits(None), 0, 1_000), 1_000);
    }

    #[test]
    fn the_refusal_says_when_the_next_request_is_admitted() {
        let (rates, limits) = (Rates::default(), limits(Some(2)));
        assert_eq!(taken(&rates, &limits, 0, 3), 2);
        let refused = rates.take(TENANT, &limits, Duration::ZERO);
        let wait = refused.expect_err("is refused").retry_after();
        assert_eq!(wait, Some(Duration::from_millis(500)));
        assert_eq!(taken(&rates, &limits, 500, 2), 1);
    }
}
