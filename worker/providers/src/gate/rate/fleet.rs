//! Simulates workers that divide the limits of one account, and a provider that enforces them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::*;

const WORKERS: usize = 8;

/// The provider's limit in requests per minute, and per second.
const LIMIT: u32 = 6_000;
const PER_SECOND: u64 = LIMIT as u64 / 60;

const MINUTES: u64 = 4;

/// How long the provider takes to answer.
const LATENCY: Duration = Duration::from_millis(700);

/// How the provider's limit refills.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Counts {
    /// It refills evenly.
    Evenly,
    /// It is full again at the start of each minute.
    ByMinute,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A worker has one more call to make.
    Call(usize),
    /// A worker checks again whether it may make a call.
    Look(usize),
    /// A worker is told what the provider has left, in thousandths, and how long to wait after a
    /// refusal.
    Answer(usize, u64, Option<Duration>),
}

struct Worker {
    rates: Rates,
    /// Calls that are waiting.
    calls: u64,
    looks_at: Duration,
}

struct Provider {
    counts: Counts,
    level: f64,
    at: Duration,
}

impl Provider {
    /// Whether it answers the request.
    fn ask(&mut self, now: Duration) -> bool {
        let limit = f64::from(LIMIT);
        match self.counts {
            Counts::Evenly => {
                let passed = now.saturating_sub(self.at).as_secs_f64();
                self.level = (self.level + limit * passed / MINUTE).min(limit);
            }
            Counts::ByMinute if now.as_secs() / 60 != self.at.as_secs() / 60 => {
                self.level = limit;
            }
            Counts::ByMinute => {}
        }
        self.at = now;
        let answers = self.level >= 1.0;
        self.level -= if answers { 1.0 } else { 0.0 };
        answers
    }

    fn wait(&self) -> Duration {
        match self.counts {
            Counts::Evenly => {
                let lacks = (f64::from(LIMIT) - self.level).max(0.0);
                Duration::from_secs_f64(lacks / PER_SECOND as f64)
            }
            Counts::ByMinute => {
                let minute = Duration::from_mins(1);
                let passed = self.at.as_nanos() % minute.as_nanos();
                minute.saturating_sub(Duration::from_nanos(passed as u64))
            }
        }
    }
}

/// The numbers of answered and refused calls, with `offered` calls per second.
fn run(counts: Counts, configured: bool, told: bool, offered: u64) -> (u64, u64) {
    let limit = NonZeroU32::new(LIMIT).filter(|_| configured);
    let worker = |_| Worker {
        rates: Rates::new(limit, None, Duration::ZERO),
        calls: 0,
        looks_at: Duration::MAX,
    };
    let mut workers: Vec<Worker> = (0..WORKERS).map(worker).collect();
    let mut provider = Provider {
        counts,
        level: f64::from(LIMIT),
        at: Duration::ZERO,
    };
    let mut events = BinaryHeap::new();
    let mut random = 1_u64;
    for call in 0..offered * MINUTES * 60 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let worker = (random >> 33) as usize % WORKERS;
        let at = Duration::from_secs(call) / offered as u32;
        events.push(Reverse((at, Event::Call(worker))));
    }
    let (mut answered, mut refused) = (0, 0);
    while let Some(Reverse((now, event))) = events.pop() {
        if now >= Duration::from_secs(MINUTES * 60) {
            break;
        }
        let (Event::Call(name) | Event::Look(name) | Event::Answer(name, ..)) = event;
        let worker = &mut workers[name];
        match event {
            Event::Call(_) => worker.calls += 1,
            Event::Look(_) => worker.looks_at = Duration::MAX,
            Event::Answer(_, left, refused) => {
                if told {
                    let window = Window {
                        limit: Some(f64::from(LIMIT)),
                        remaining: left as f64 / 1_000.0,
                        reset: provider.wait(),
                    };
                    let (requests, tokens) = (Some(window), None);
                    worker.rates.learn("m", Windows { requests, tokens }, now);
                }
                if let Some(wait) = refused {
                    worker.rates.close("m", now + wait);
                    worker.calls += 1;
                }
            }
        }
        while worker.calls > 0 {
            worker.rates.divide(1.0 / WORKERS as f64, now);
            if let Some(wait) = worker.rates.wait("m", 1, now) {
                if now + wait < worker.looks_at {
                    worker.looks_at = now + wait;
                    events.push(Reverse((now + wait, Event::Look(name))));
                }
                break;
            }
            worker.rates.take("m", 1, now);
            worker.calls -= 1;
            let answers = provider.ask(now);
            let left = (provider.level * 1_000.0) as u64;
            // A bucket has room for one more in a moment.
            let wait = (!answers).then(|| match counts {
                Counts::Evenly => Duration::from_millis(1_000 / PER_SECOND),
                Counts::ByMinute => provider.wait(),
            });
            events.push(Reverse((now + LATENCY, Event::Answer(name, left, wait))));
            if answers {
                answered += 1;
            } else {
                refused += 1;
            }
        }
    }
    (answered, refused)
}

#[test]
fn eight_workers_are_hardly_ever_refused_and_use_what_there_is() {
    for counts in [Counts::Evenly, Counts::ByMinute] {
        for (configured, told) in [(true, false), (true, true), (false, true)] {
            for percent in [95, 200] {
                let (answered, refused) = run(counts, configured, told, PER_SECOND * percent / 100);
                let share = refused as f64 / (answered + refused) as f64;
                let used = answered as f64 / (PER_SECOND * 60 * MINUTES) as f64;
                let case = format!("{counts:?}, {configured}, {told}, {percent} %");
                assert!(share < 0.005, "{case}: {share:.4} were refused");
                let expected = percent.min(100) as f64 / 100.0;
                assert!(used > expected - 0.02, "{case}: {used:.3} was used");
            }
        }
    }
}
