//! An account's quota of requests per minute: a token bucket that refills evenly, as providers have
//! it, with its level reported in every response.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Shared;

const MINUTE: f64 = 60.0;

/// Seconds' worth of requests available at the start: an account that is already in use.
const LEFT_AT_FIRST: f64 = 1.0;

/// Requests answered and refused so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    /// Requests within the quota.
    pub answered: u64,
    /// Requests beyond the quota, each answered with 429.
    pub refused: u64,
}

/// The account's quota; unlimited by default.
#[derive(Debug, Default)]
pub(super) struct Quota(Mutex<Option<Bucket>>);

#[derive(Debug)]
struct Bucket {
    per_minute: f64,
    level: f64,
    at: Duration,
    counted: Counted,
}

/// The state of the bucket as a request found it.
#[derive(Debug, PartialEq)]
struct Found {
    answered: bool,
    per_minute: f64,
    left: f64,
    full_in: f64,
}

impl Bucket {
    fn ask(&mut self, now: Duration) -> Found {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.level = (self.level + self.per_minute * passed / MINUTE).min(self.per_minute);
        self.at = now;
        let answered = self.level >= 1.0;
        if answered {
            self.level -= 1.0;
            self.counted.answered += 1;
        } else {
            self.counted.refused += 1;
        }
        Found {
            answered,
            per_minute: self.per_minute,
            left: self.level,
            full_in: (self.per_minute - self.level) * MINUTE / self.per_minute,
        }
    }
}

impl Quota {
    pub(super) fn set(&self, per_minute: Option<u32>, now: Duration) {
        let bucket = per_minute.map(f64::from).map(|per_minute| Bucket {
            per_minute,
            level: per_minute / MINUTE * LEFT_AT_FIRST,
            at: now,
            counted: Counted::default(),
        });
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = bucket;
    }

    pub(super) fn counted(&self) -> Counted {
        let bucket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        bucket
            .as_ref()
            .map(|bucket| bucket.counted)
            .unwrap_or_default()
    }

    fn ask(&self, now: Duration) -> Option<Found> {
        let mut bucket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        bucket.as_mut().map(|bucket| bucket.ask(now))
    }
}

/// Refuses requests beyond the quota, and adds the remaining quota to every response.
pub(super) async fn limit(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Response {
    let Some(found) = shared.quota.ask(shared.clock.monotonic()) else {
        return next.run(request).await;
    };
    let mut response = if found.answered {
        next.run(request).await
    } else {
        let body = r#"{"error":{"message":"too many requests","type":"requests"}}"#;
        let wait = format!("{:.3}", MINUTE / found.per_minute);
        (
            StatusCode::TOO_MANY_REQUESTS,
            [
                ("retry-after", wait),
                ("content-type", "application/json".to_owned()),
            ],
            body,
        )
            .into_response()
    };
    for (name, value) in [
        (
            "x-ratelimit-limit-requests",
            format!("{}", found.per_minute),
        ),
        (
            "x-ratelimit-remaining-requests",
            format!("{:.0}", found.left.floor()),
        ),
        (
            "x-ratelimit-reset-requests",
            format!("{:.3}s", found.full_in),
        ),
    ] {
        if let Ok(value) = HeaderValue::try_from(value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_fills_evenly_and_answers_no_more_than_it_holds() {
        let quota = Quota::default();
        assert_eq!(quota.ask(Duration::ZERO), None);
        quota.set(Some(60), Duration::ZERO);
        let ask = |seconds| quota.ask(Duration::from_secs(seconds)).expect("a bucket");
        let answered: Vec<bool> = (0..2).map(|_| ask(0).answered).collect();
        assert_eq!(answered, [true, false]);
        let found = ask(2);
        assert_eq!(
            (found.answered, found.left, found.full_in),
            (true, 1.0, 59.0)
        );
        let left = ask(1_000).left;
        assert!(
            (left - 59.0).abs() < 1e-9,
            "never more than a minute's: {left}"
        );
        let counted = Counted {
            answered: 3,
            refused: 1,
        };
        assert_eq!(quota.counted(), counted);
        quota.set(None, Duration::ZERO);
        assert_eq!(quota.ask(Duration::ZERO), None);
    }
}
