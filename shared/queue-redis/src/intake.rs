//! Between apalis and the handler: what every job passes.

use std::sync::Arc;
use std::time::Duration;

use apalis_core::task::data::Data;
use mainspring_shared::agent::Priority;
use mainspring_shared::queue::{Activation, Disposition, Handler, Lane};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

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

/// One lane's way to the handler.
#[derive(Debug, Clone)]
pub(crate) struct Intake {
    handler: Callee,
    core: Arc<Core>,
    pub(crate) lane: Lane,
    pressure: Pressure,
    /// Cancelled once nothing more is fetched from this lane.
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
        lane: Lane,
        pressure: Pressure,
    ) -> Self {
        Self {
            handler: Callee(handler),
            core,
            lane,
            pressure,
            closed: CancellationToken::new(),
        }
    }

    async fn take(&self, activation: Activation) {
        let _waiting = match self.lane.priority {
            Priority::High => Some(self.pressure.enter()),
            Priority::Low => {
                self.pressure.give_way().await;
                None
            }
        };
        self.core.counters.handled.add(1);
        match self.handler.0.handle(activation.clone()).await {
            Disposition::Done => {}
            Disposition::Stopping => self.give_back(activation).await,
        }
    }

    /// Puts a job back for another worker, but not before this one has stopped fetching, or it
    /// would get it again at once.
    async fn give_back(&self, activation: Activation) {
        let closed = tokio::time::timeout(CLOSING_LIMIT, self.closed.cancelled()).await;
        if closed.is_ok() && self.core.push(&self.lane, &[activation]).await {
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
