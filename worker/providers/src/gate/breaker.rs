//! A circuit breaker: a provider that is down is called by one probe at a time, and other calls
//! wait.

use std::time::Duration;

/// How long other calls wait during a probe before they check again.
const PROBE_WAIT: Duration = Duration::from_millis(500);

/// The pause doubles with each failed probe, up to this multiple of the first one.
const PAUSE_FACTOR_MAX: u32 = 8;

/// What a call may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Go ahead.
    Go,
    /// Go ahead as the probe that finds out whether the provider is back.
    Probe,
    /// Wait this long, then ask again.
    Wait(Duration),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed { failures: u32 },
    Open { until: Duration, pause: Duration },
    HalfOpen { pause: Duration },
}

/// The breaker of one provider. Calls that began before it opened do not affect it when they end.
#[derive(Debug)]
pub(super) struct Breaker {
    /// The number of consecutive failures that open it; 0 disables it.
    failures_max: u32,
    pause: Duration,
    state: State,
}

impl Breaker {
    pub(super) fn new(failures_max: u32, pause: Duration) -> Self {
        Self {
            failures_max,
            pause,
            state: State::Closed { failures: 0 },
        }
    }

    /// A call is about to be made.
    pub(super) fn ask(&mut self, now: Duration) -> Turn {
        match self.state {
            State::Closed { .. } => Turn::Go,
            State::Open { until, .. } if now < until => Turn::Wait(until.saturating_sub(now)),
            State::Open { pause, .. } => {
                self.state = State::HalfOpen { pause };
                Turn::Probe
            }
            State::HalfOpen { .. } => Turn::Wait(PROBE_WAIT),
        }
    }

    /// How long a call would wait; `None` if it may go ahead, possibly as the probe.
    pub(super) fn wait(&self, now: Duration) -> Option<Duration> {
        match self.state {
            State::Open { until, .. } if now < until => Some(until.saturating_sub(now)),
            State::HalfOpen { .. } => Some(PROBE_WAIT),
            State::Open { .. } | State::Closed { .. } => None,
        }
    }

    /// The provider answered, even if with a refusal.
    pub(super) fn succeeded(&mut self, is_probe: bool) {
        match self.state {
            State::Closed { .. } => self.state = State::Closed { failures: 0 },
            State::HalfOpen { .. } if is_probe => self.state = State::Closed { failures: 0 },
            State::Open { .. } | State::HalfOpen { .. } => {}
        }
    }

    /// The provider was unreachable or failed.
    pub(super) fn failed(&mut self, is_probe: bool, now: Duration) {
        match self.state {
            State::Closed { failures } => {
                let failures = failures + 1;
                self.state = if self.failures_max > 0 && failures >= self.failures_max {
                    State::Open {
                        until: now + self.pause,
                        pause: self.pause,
                    }
                } else {
                    State::Closed { failures }
                };
            }
            State::HalfOpen { pause } if is_probe => {
                let pause = (pause * 2).min(self.pause * PAUSE_FACTOR_MAX);
                self.state = State::Open {
                    until: now + pause,
                    pause,
                };
            }
            State::Open { .. } | State::HalfOpen { .. } => {}
        }
    }

    /// The probe ended without an outcome because its caller is gone. The next call probes.
    pub(super) fn gave_up(&mut self) {
        if let State::HalfOpen { pause } = self.state {
            self.state = State::Open {
                until: Duration::ZERO,
                pause,
            };
        }
    }

    /// The state as a metric: 0 closed, 1 half-open, 2 open.
    pub(super) fn level(&self) -> u8 {
        match self.state {
            State::Closed { .. } => 0,
            State::HalfOpen { .. } => 1,
            State::Open { .. } => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn opened() -> Breaker {
        let mut breaker = Breaker::new(3, 10 * SECOND);
        for _ in 0..3 {
            assert_eq!(breaker.ask(SECOND), Turn::Go);
            breaker.failed(false, SECOND);
        }
        breaker
    }

    #[test]
    fn failures_in_a_row_open_it_and_a_success_in_between_does_not_let_them_add_up() {
        let mut breaker = Breaker::new(3, 10 * SECOND);
        for _ in 0..5 {
            breaker.failed(false, SECOND);
            breaker.failed(false, SECOND);
            breaker.succeeded(false);
        }
        assert_eq!(breaker.ask(SECOND), Turn::Go);
        assert_eq!(breaker.wait(SECOND), None);
        assert_eq!(opened().ask(2 * SECOND), Turn::Wait(9 * SECOND));
        assert_eq!(opened().wait(2 * SECOND), Some(9 * SECOND));
    }

    #[test]
    fn one_call_probes_while_the_others_wait_and_its_success_closes_it() {
        let mut breaker = opened();
        // Only looking does not take the turn.
        assert_eq!(breaker.wait(11 * SECOND), None);
        assert_eq!(breaker.ask(11 * SECOND), Turn::Probe);
        assert_eq!(breaker.wait(11 * SECOND), Some(PROBE_WAIT));
        assert_eq!(breaker.ask(11 * SECOND), Turn::Wait(PROBE_WAIT));
        // From a call that began before the breaker opened.
        breaker.succeeded(false);
        assert_eq!(breaker.ask(12 * SECOND), Turn::Wait(PROBE_WAIT));
        breaker.succeeded(true);
        assert_eq!(breaker.ask(12 * SECOND), Turn::Go);
    }

    #[test]
    fn each_probe_that_fails_doubles_the_pause_up_to_a_bound() {
        let mut breaker = opened();
        let mut now = 11 * SECOND;
        for wanted in [20, 40, 80, 80] {
            assert_eq!(breaker.ask(now), Turn::Probe);
            breaker.failed(true, now);
            assert_eq!(breaker.ask(now), Turn::Wait(wanted * SECOND));
            now += wanted * SECOND;
        }
    }

    #[test]
    fn a_probe_that_is_dropped_leaves_its_turn_to_the_next() {
        let mut breaker = opened();
        assert_eq!(breaker.ask(11 * SECOND), Turn::Probe);
        breaker.gave_up();
        assert_eq!(breaker.ask(11 * SECOND), Turn::Probe);
    }

    #[test]
    fn without_a_bound_it_never_opens() {
        let mut breaker = Breaker::new(0, SECOND);
        for _ in 0..100 {
            breaker.failed(false, SECOND);
        }
        assert_eq!(breaker.ask(SECOND), Turn::Go);
    }
}
