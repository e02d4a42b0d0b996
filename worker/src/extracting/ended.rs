//! The queue of sends that have just ended and need an extraction.

use mainspring_runtime::telemetry;
use mainspring_shared::id::{SendId, TenantId};
use tokio::sync::mpsc;

/// Maximum number of queued sends; further ones are found by polling.
const PENDING_MAX: usize = 1_024;

/// Notifies the extraction loop of sends that have ended.
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

    /// Enqueues a completed send whose agent extracts memories; must be called within its span.
    pub(crate) fn enqueue(&self, tenant: TenantId, send: SendId) {
        // If the queue is full, the send is found by polling.
        let _ = self.0.try_send(EndedSend {
            tenant,
            send,
            traceparent: telemetry::traceparent(),
        });
    }
}
