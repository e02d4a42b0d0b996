//! Passing jobs from apalis to the handler.

use std::sync::Arc;
use std::time::Duration;

use apalis_core::task::data::Data;
use mainspring_shared::agent::Priority;
use mainspring_shared::queue::{Activation, Disposition, Handler};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::lane::Line;
use crate::queue::Core;

/// How long a low job yields to waiting high ones. Bounded, so that low jobs make progress even
/// while high ones always wait.
const PATIENCE: Duration = Duration::from_millis(250);
/// How long a job that a stopping worker turned away waits until the worker has stopped fetching.
const CLOSING_LIMIT: Duration = Duration::from_secs(5);

/// Number of high jobs that wait to be admitted in this process.
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

/// The path of one line's jobs to the handler.
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
                // Sessions that do not fit there are found by the sweep.
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

    /// Puts a job back for another worker, but only after this one has stopped fetching, or it
    /// would get the job again at once. The job goes to the lane's normal line, since there may be
    /// no other worker that takes from the line ahead.
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

/// The function that apalis calls. It never fails, since apalis would run the job again up to 24
/// times.
pub(crate) async fn on_job(activation: Activation, intake: Data<Intake>) {
    if !activation.sessions.is_empty() {
        intake.take(activation).await;
    }
}
