//! Rate limits: of requests and tokens, as configured and as reported by the provider.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU32;
use std::time::Duration;

/// The length of a limit's window, in seconds.
const MINUTE: f64 = 60.0;

/// The assumed refill rate of a window until the provider reports more, as a fraction of a rate
/// that fills it in a minute: some windows refill evenly, others all at once at their end.
const FILLS: f64 = 0.5;

/// How much faster than evenly a window may be used up. A provider's report is as old as its answer
/// took, and if all processes used up their share at once, each would be told what the others have
/// used.
const PACE: f64 = 4.0;

/// The burst that is allowed at once.
const BURST: Duration = Duration::from_secs(1);

/// A request older than this is assumed to be counted in what a response reports: it has usually
/// begun to be answered itself.
const UNTOLD: Duration = Duration::from_secs(1);

/// With several processes, one starts with what refills in this many seconds.
const BEGIN: f64 = 0.5;

/// The shortest wait, so that rounding never causes a busy loop.
const WAIT_MIN: Duration = Duration::from_millis(1);

/// How many models' limits are kept; more than one process asks in practice.
const MODELS_MAX: usize = 1_000;

/// What a response reported about one limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Window {
    /// The limit per window, in requests or tokens, if known.
    pub(super) limit: Option<f64>,
    /// How much is left.
    pub(super) remaining: f64,
    /// The time until it is full again.
    pub(super) reset: Duration,
}

/// What a response reported about both limits.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Windows {
    pub(super) requests: Option<Window>,
    pub(super) tokens: Option<Window>,
}

impl Windows {
    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_none() && self.tokens.is_none()
    }
}

/// A token bucket that refills evenly to its limit within a minute.
#[derive(Debug)]
struct Bucket {
    /// The limit of all processes together.
    whole: f64,
    per_minute: f64,
    level: f64,
    at: Duration,
    /// Whether it has never been divided.
    is_new: bool,
}

impl Bucket {
    fn new(per_minute: NonZeroU32, now: Duration) -> Self {
        let per_minute = f64::from(per_minute.get());
        Self {
            whole: per_minute,
            per_minute,
            level: per_minute,
            at: now,
            is_new: true,
        }
    }

    /// Limits the bucket to a share. A process that has others beside it from the start begins with
    /// little: they may have used up the minute's limit.
    fn divide(&mut self, share: f64, now: Duration) {
        self.fill(now);
        self.per_minute = self.whole * share;
        if self.is_new && share < 1.0 {
            self.level = (self.per_minute * BEGIN / MINUTE).max(1.0);
        }
        self.level = self.level.min(self.per_minute.max(1.0));
        self.is_new = false;
    }

    fn fill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        let full = self.per_minute.max(1.0);
        self.level = (self.level + self.per_minute * passed / MINUTE).min(full);
        self.at = now;
    }

    /// A need beyond the whole bucket counts as the whole bucket.
    fn wait(&mut self, need: f64, now: Duration) -> Duration {
        self.fill(now);
        let lacks = need.min(self.per_minute.max(1.0)) - self.level;
        seconds(lacks / self.per_minute * MINUTE)
    }
}

/// What the provider last reported about a limit, minus what was used since.
#[derive(Debug)]
struct Learned {
    limit: Option<f64>,
    remaining: f64,
    /// When `remaining` was valid.
    at: Duration,
    reset_at: Duration,
    /// When the used amount would have been used at the allowed pace.
    paced_to: Duration,
}

impl Learned {
    fn wait(&mut self, need: f64, now: Duration) -> Duration {
        if now >= self.reset_at {
            // A new window, until a response reports more; without a limit, nothing is known about
            // it.
            match self.limit {
                Some(limit) => self.remaining = limit,
                None => return Duration::ZERO,
            }
            self.reset_at = now + Duration::from_secs_f64(MINUTE);
        } else if let Some(limit) = self.limit {
            let passed = now.saturating_sub(self.at).as_secs_f64();
            self.remaining = (self.remaining + limit * passed * FILLS / MINUTE).min(limit);
        }
        self.at = now;
        // A large request need not wait until a whole window is free; those after it do.
        let enough = self
            .limit
            .map_or(f64::INFINITY, |limit| (limit / 2.0).max(1.0));
        let lacks = need.min(enough) - self.remaining;
        if lacks <= 0.0 {
            return self.paced_to.saturating_sub(now + BURST);
        }
        // Until the reset at the latest.
        let fills = self
            .limit
            .map(|limit| seconds(lacks / limit / FILLS * MINUTE));
        let reset = self.reset_at.saturating_sub(now);
        fills.map_or(reset, |fills| fills.min(reset))
    }

    fn pace(&mut self, now: Duration) {
        if let Some(limit) = self.limit {
            self.paced_to = self.paced_to.max(now) + seconds(MINUTE / limit / PACE);
        }
    }
}

/// What a provider reported about one model; it limits each model separately.
#[derive(Debug, Default)]
struct ModelRates {
    requests: Option<Learned>,
    tokens: Option<Learned>,
    /// When requests were made within [`UNTOLD`]; the provider's last report may not have counted
    /// them.
    made: VecDeque<Duration>,
    /// Until when the provider asked not to be called.
    closed_until: Duration,
}

impl ModelRates {
    fn forget_told(&mut self, now: Duration) {
        while self
            .made
            .front()
            .is_some_and(|at| now.saturating_sub(*at) >= UNTOLD)
        {
            self.made.pop_front();
        }
    }
}

/// The rates of one provider: the configured ones for all of its models together, and the reported
/// ones for each model.
#[derive(Debug)]
pub(super) struct Rates {
    requests: Option<Bucket>,
    tokens: Option<Bucket>,
    said: BTreeMap<String, ModelRates>,
    /// This process's share of the reported limits.
    share: f64,
}

impl Rates {
    pub(super) fn new(
        requests: Option<NonZeroU32>,
        tokens: Option<NonZeroU32>,
        now: Duration,
    ) -> Self {
        Self {
            requests: requests.map(|limit| Bucket::new(limit, now)),
            tokens: tokens.map(|limit| Bucket::new(limit, now)),
            said: BTreeMap::new(),
            share: 1.0,
        }
    }

    /// Limits this process to a share of each limit. Reported limits are divided when they are next
    /// reported.
    pub(super) fn divide(&mut self, share: f64, now: Duration) {
        for bucket in [&mut self.requests, &mut self.tokens].into_iter().flatten() {
            bucket.divide(share, now);
        }
        self.share = share;
    }

    /// Whether the number of a request's tokens matters.
    pub(super) fn counts_tokens(&self, model: &str) -> bool {
        let said = self.said.get(model);
        self.tokens.is_some() || said.is_some_and(|said| said.tokens.is_some())
    }

    /// How long a request must wait, if at all.
    pub(super) fn wait(&mut self, model: &str, tokens: u64, now: Duration) -> Option<Duration> {
        let tokens = tokens as f64;
        let mut longest = Duration::ZERO;
        for (bucket, need) in [(&mut self.requests, 1.0), (&mut self.tokens, tokens)] {
            if let Some(bucket) = bucket {
                longest = longest.max(bucket.wait(need, now));
            }
        }
        if let Some(said) = self.said.get_mut(model) {
            longest = longest.max(said.closed_until.saturating_sub(now));
            for (window, need) in [(&mut said.requests, 1.0), (&mut said.tokens, tokens)] {
                if let Some(window) = window {
                    longest = longest.max(window.wait(need, now));
                }
            }
        }
        (!longest.is_zero()).then(|| longest.max(WAIT_MIN))
    }

    /// Records that a request is made.
    pub(super) fn take(&mut self, model: &str, tokens: u64, now: Duration) {
        let tokens = tokens as f64;
        for (bucket, need) in [(&mut self.requests, 1.0), (&mut self.tokens, tokens)] {
            if let Some(bucket) = bucket {
                bucket.fill(now);
                bucket.level -= need;
            }
        }
        if let Some(said) = self.said.get_mut(model) {
            said.forget_told(now);
            said.made.push_back(now);
            for (window, need) in [(&mut said.requests, 1.0), (&mut said.tokens, tokens)] {
                if let Some(window) = window {
                    window.remaining -= need;
                }
            }
            // Tokens served from the provider's cache may not count, so pace by requests.
            if let Some(window) = &mut said.requests {
                window.pace(now);
            }
        }
    }

    /// Corrects an estimated number of tokens.
    pub(super) fn correct(&mut self, thought: u64, counted: u64) {
        if let Some(bucket) = &mut self.tokens {
            bucket.level = (bucket.level + thought as f64 - counted as f64).min(bucket.per_minute);
        }
    }

    /// Records what a response reported, which counts everything up to it.
    pub(super) fn learn(&mut self, model: &str, windows: Windows, now: Duration) {
        let share = self.share;
        // The limit is never below one request; the rest is a matter of waiting.
        let learned = |window: Window, others: f64, before: Option<&Learned>| Learned {
            limit: window.limit.map(|limit| (limit * share).max(1.0)),
            remaining: window.remaining * share - others,
            at: now,
            reset_at: now + window.reset,
            paced_to: before.map_or(now, |before| before.paced_to),
        };
        let Some(said) = self.of(model) else { return };
        said.forget_told(now);
        if let Some(window) = windows.requests {
            // The request that is being answered is already counted.
            let others = said.made.len().saturating_sub(1) as f64;
            said.requests = Some(learned(window, others, said.requests.as_ref()));
        }
        if let Some(window) = windows.tokens {
            said.tokens = Some(learned(window, 0.0, said.tokens.as_ref()));
        }
    }

    /// The provider asked not to be called for this model until then.
    pub(super) fn close(&mut self, model: &str, until: Duration) {
        if let Some(said) = self.of(model) {
            said.closed_until = said.closed_until.max(until);
        }
    }

    fn of(&mut self, model: &str) -> Option<&mut ModelRates> {
        if self.said.len() >= MODELS_MAX && !self.said.contains_key(model) {
            return None;
        }
        Some(self.said.entry(model.to_owned()).or_default())
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod fleet;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn requests_are_spread_once_the_minutes_burst_is_used_up() {
        let mut rates = Rates::new(NonZeroU32::new(60), None, SECOND);
        for _ in 0..60 {
            assert_eq!(rates.wait("m", 1, SECOND), None);
            rates.take("m", 1, SECOND);
        }
        assert_eq!(rates.wait("m", 1, SECOND), Some(SECOND));
        assert_eq!(rates.wait("m", 1, 2 * SECOND), None);
    }

    #[test]
    fn tokens_are_charged_as_thought_and_then_as_counted() {
        let mut rates = Rates::new(None, NonZeroU32::new(6_000), SECOND);
        rates.take("m", 6_000, SECOND);
        assert_eq!(rates.wait("m", 100, SECOND), Some(SECOND));
        rates.correct(6_000, 5_000);
        assert_eq!(rates.wait("m", 100, SECOND), None);
        // A request of more than a minute's limit waits until the bucket is full, and no longer.
        assert_eq!(rates.wait("m", 1_000_000, SECOND), Some(50 * SECOND));
    }

    #[test]
    fn what_the_provider_says_is_kept_to() {
        let mut rates = Rates::new(None, None, SECOND);
        assert!(!rates.counts_tokens("m"));
        let tokens = Window {
            limit: Some(6_000.0),
            remaining: 50.0,
            reset: 30 * SECOND,
        };
        let windows = Windows {
            requests: None,
            tokens: Some(tokens),
        };
        rates.learn("m", windows, SECOND);
        assert!(rates.counts_tokens("m"));
        assert_eq!(rates.wait("m", 50, SECOND), None);
        assert_eq!(rates.wait("m", 150, SECOND), Some(2 * SECOND));
        assert_eq!(rates.wait("m", 6_000, SECOND), Some(30 * SECOND));
        // It refills while nothing is requested, and does not affect other models.
        assert_eq!(rates.wait("m", 150, 3 * SECOND), None);
        assert_eq!(rates.wait("other", 6_000, SECOND), None);
        // Without a limit, the reset is all that is known.
        let unlimited = Window {
            limit: None,
            ..tokens
        };
        let windows = Windows {
            requests: None,
            tokens: Some(unlimited),
        };
        rates.learn("m", windows, SECOND);
        assert_eq!(rates.wait("m", 51, SECOND), Some(30 * SECOND));
        assert_eq!(rates.wait("m", 51, 31 * SECOND), None);
    }

    #[test]
    fn nobody_asks_while_the_provider_asked_to_wait() {
        let mut rates = Rates::new(None, None, SECOND);
        rates.close("m", 5 * SECOND);
        assert_eq!(rates.wait("m", 1, 2 * SECOND), Some(3 * SECOND));
        assert_eq!(rates.wait("other", 1, 2 * SECOND), None);
        assert_eq!(rates.wait("m", 1, 5 * SECOND), None);
    }

    #[test]
    fn one_that_is_not_alone_keeps_to_its_part_and_begins_with_little() {
        let mut rates = Rates::new(NonZeroU32::new(600), NonZeroU32::new(6_000), SECOND);
        rates.divide(0.5, SECOND);
        for _ in 0..2 {
            assert_eq!(rates.wait("m", 1, SECOND), None);
            rates.take("m", 1, SECOND);
        }
        assert_eq!(rates.wait("m", 1, SECOND), Some(SECOND / 10));
        // The level stays when others come and go, as far as it fits.
        let later = 61 * SECOND;
        rates.divide(1.0, later);
        assert_eq!(rates.wait("m", 3_000, later), None);
        rates.divide(0.25, later);
        let waits = rates.wait("m", 6_000, later);
        assert_eq!(waits, None, "more than its part is its part");
        rates.take("m", 6_000, later);
        assert!(
            rates
                .wait("m", 1, later)
                .is_some_and(|wait| wait > 2 * 60 * SECOND)
        );
        // Even the smallest share allows a request now and then.
        let mut rates = Rates::new(NonZeroU32::new(6), None, SECOND);
        rates.divide(0.01, SECOND);
        assert_eq!(rates.wait("m", 1, SECOND), None);
        rates.take("m", 1, SECOND);
        assert_eq!(rates.wait("m", 1, SECOND), Some(1_000 * SECOND));
        assert_eq!(rates.wait("m", 1, 1_002 * SECOND), None);
    }
}
