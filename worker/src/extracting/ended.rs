//! Sends that have just ended, from which entries are to be extracted.

use mainspring_runtime::telemetry;
use mainspring_shared::id::{SendId, TenantId};
use tokio::sync::mpsc;

/// Sends that wait to be looked at; those that find no room are found by polling.
const PENDING_MAX: usize = 1_024;

/// Tells the loop of sends that have ended.
#[derive(Debug, Clone)]
pub(crate) struct Ended(mpsc::Sender<EndedSend>);

/// A send that has ended.
#[derive(Debug)]
pub(crate) struct EndedSend {
    pub(super) tenant: TenantId,
    pub(super) send: SendId,
    /// The span of the work on it.
    pub(super) traceparent: Option<String>,
}

impl Ended {
    pub(crate) fn new() -> (Self, mpsc::Receiver<EndedSend>) {
        let (sender, receiver) = mpsc::channel(PENDING_MAX);
        (Self(sender), receiver)
    }

    /// A send whose agent has entries extracted has completed; told within its span.
    pub(crate) fn enqueue(&self, tenant: TenantId, send: SendId) {
        // One that finds no room is found by polling.
        let _ = self.0.try_send(EndedSend {
            tenant,
            send,
            traceparent: telemetry::traceparent(),
        });
    }
}
