//! What a tool says of a call while it makes it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mainspring_shared::time::Clock;

/// The shortest time between two reports that are shown: as often as a person can read them.
const INTERVAL: Duration = Duration::from_millis(250);

/// How far a call is.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgressReport {
    /// What is done, in a unit of the tool's own.
    pub progress: f64,
    /// All that is to be done, in the same unit, if that is known.
    pub total: Option<f64>,
    /// What the tool says of it.
    pub message: Option<String>,
}

type Show = Box<dyn Fn(ProgressReport) + Send + Sync>;

/// Where a tool reports how far a call is. Reports are shown to current readers of the send's
/// events and are not stored; those that follow another too closely are dropped.
#[derive(Clone, Default)]
pub struct Progress(Option<Arc<Shown>>);

struct Shown {
    show: Show,
    clock: Arc<dyn Clock>,
    last: Mutex<Option<Duration>>,
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Progress").field(&self.0.is_some()).finish()
    }
}

impl Progress {
    /// Reports that are passed on to `show`.
    pub fn new(
        clock: Arc<dyn Clock>,
        show: impl Fn(ProgressReport) + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(Shown {
            show: Box::new(show),
            clock,
            last: Mutex::default(),
        })))
    }

    /// Reports how far the call is. Numbers that JSON does not have are dropped.
    pub fn report(&self, mut report: ProgressReport) {
        let Some(shown) = &self.0 else { return };
        if !report.progress.is_finite() {
            return;
        }
        report.total = report.total.filter(|total| total.is_finite());
        let now = shown.clock.monotonic();
        {
            let mut last = shown.last.lock().unwrap_or_else(PoisonError::into_inner);
            if last.is_some_and(|last| now.saturating_sub(last) < INTERVAL) {
                return;
            }
            *last = Some(now);
        }
        (shown.show)(report);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manual_clock::ManualClock;

    #[test]
    fn reports_are_shown_now_and_then_and_only_with_numbers() {
        let clock = Arc::new(ManualClock::default());
        let shown = Arc::new(Mutex::new(Vec::new()));
        let show = {
            let shown = shown.clone();
            move |report: ProgressReport| shown.lock().expect("no panic").push(report.progress)
        };
        let progress = Progress::new(clock.clone(), show);
        let report = |done: f64| {
            progress.report(ProgressReport {
                progress: done,
                total: Some(f64::INFINITY),
                message: None,
            });
        };
        report(f64::NAN);
        report(1.0);
        report(2.0);
        clock.pass(INTERVAL);
        report(3.0);
        assert_eq!(*shown.lock().expect("no panic"), [1.0, 3.0]);
        Progress::default().report(ProgressReport {
            progress: 1.0,
            total: None,
            message: None,
        });
    }
}
