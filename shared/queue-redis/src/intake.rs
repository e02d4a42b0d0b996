//! Between apalis and the handler: what every job passes.

use std::sync::Arc;
use std::time::Duration;

use apalis_core::task::data::Data;
use mainspring_shared::agent::Priority;
use mainspring_shared::queue::{Activation, Disposition, Handler};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::lane::Line;
use crate::queue::Core;

/// How long background work lets the other go first. Bounded, so that it does move while
/// somebody always waits.
const PATIENCE: Duration = Duration::from_millis(250);
/// How long a job that a stopping worker turned away waits for the end of fetching.
const CLOSING_LIMIT: Duration = Duration::from_secs(5);

/// How many high jobs wait to be admitted in this process.
#[derive(Debug, Clone)]
pub(crate) struct Pressure(watch::Sender<usize>);

impl Default for Pressure {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl Pressure {
    fn enter(&self) -> Entered {
        self.0.send_modify(|waiting| *waiting += 1);
        Entered(self.0.clone())
    }

    async fn give_way(&self) {
        let mut waiting = self.0.subscribe();
        let clear = waiting.wait_for(|waiting| *waiting == 0);
        let _ = tokio::time::timeout(PATIENCE, clear).await;
    }
}

struct Entered(watch::Sender<usize>);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.send_modify(|waiting| *waiting -= 1);
    }
}

/// One line's way to the handler.
#[derive(Debug, Clone)]
pub(crate) struct Intake {
    handler: Callee,
    core: Arc<Core>,
    pub(crate) line: Line,
    pressure: Pressure,
    /// Cancelled once nothing more is fetched from this line.
    pub(crate) closed: CancellationToken,
}

#[derive(Clone)]
struct Callee(Arc<dyn Handler>);

impl std::fmt::Debug for Callee {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Handler")
    }
}

impl Intake {
    pub(crate) fn new(
        handler: Arc<dyn Handler>,
        core: Arc<Core>,
        line: Line,
        pressure: Pressure,
    ) -> Self {
        Self {
            handler: Callee(handler),
            core,
            line,
            pressure,
            closed: CancellationToken::new(),
        }
    }

    async fn take(&self, activation: Activation) {
        let _waiting = match self.line.lane.priority {
            Priority::High => Some(self.pressure.enter()),
            Priority::Low => {
                self.pressure.give_way().await;
                None
            }
        };
        self.core.counters.handled.add(1);
        let handler = &self.handler.0;
        let disposition = if self.line.ahead {
            let (disposition, sessions) = handler.handle_ahead(activation.clone()).await;
            if disposition == Disposition::Done && !sessions.is_empty() {
                // What does not fit there is found by the sweep.
                let behind = Line::of(&self.line.lane);
                self.core.push(&behind, &[Activation { sessions }]).await;
            }
            disposition
        } else {
            handler.handle(activation.clone()).await
        };
        match disposition {
            Disposition::Done => {}
            Disposition::Stopping => self.give_back(activation).await,
        }
    }

    /// Puts a job back for another worker, but not before this one has stopped fetching, or it
    /// would get it again at once. Behind the others, in case that no other one takes what goes ahead.
    async fn give_back(&self, activation: Activation) {
        let closed = tokio::time::timeout(CLOSING_LIMIT, self.closed.cancelled()).await;
        if closed.is_ok()
            && self
                .core
                .push(&Line::of(&self.line.lane), &[activation])
                .await
        {
            self.core.counters.returned.add(1);
        }
    }
}

/// What apalis calls. It never fails: apalis would run the job again up to 24 times.
pub(crate) async fn on_job(activation: Activation, intake: Data<Intake>) {
    if !activation.sessions.is_empty() {
        intake.take(activation).await;
    }
}
