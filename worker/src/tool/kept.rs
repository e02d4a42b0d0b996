//! What a tool keeps of a call beyond the life of its worker.

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

/// Bytes of a handle as JSON: enough for any id, and little enough to be stored with each step.
const HANDLE_BYTES_MAX: usize = 4 << 10;

/// A handle to store, and whom to tell that it is durable.
#[derive(Debug)]
pub(crate) struct Keep {
    pub(crate) call_id: String,
    pub(crate) handle: Value,
    pub(crate) stored: oneshot::Sender<()>,
}

/// The handle of a call: what a tool needs to take up work that goes on elsewhere, whichever worker
/// makes the call. Kept until the call has its result.
#[derive(Debug, Clone, Default)]
pub struct Kept {
    call_id: String,
    handle: Option<Value>,
    keeper: Option<mpsc::Sender<Keep>>,
}

impl Kept {
    /// The handle of a call, which an earlier attempt may have left, and who stores a new one.
    pub(crate) fn new(call_id: &str, handle: Option<Value>, keeper: mpsc::Sender<Keep>) -> Self {
        Self {
            call_id: call_id.to_owned(),
            handle,
            keeper: Some(keeper),
        }
    }

    /// A call that an earlier attempt has left with this handle, outside of a run: nobody stores
    /// another one.
    pub fn left(handle: Value) -> Self {
        Self {
            handle: Some(handle),
            ..Self::default()
        }
    }

    /// What an earlier attempt has kept. A call with a handle is made again after a crash, whatever
    /// the tool says of repeating: it must take up that work, and not begin it anew.
    pub fn handle(&self) -> Option<&Value> {
        self.handle.as_ref()
    }

    /// Stores a handle. Returns whether it is durable; if it is not, nothing is known of it after a
    /// crash. Handles of more than 4 KiB are not stored.
    pub async fn keep(&self, handle: Value) -> bool {
        let Some(keeper) = &self.keeper else {
            return false;
        };
        if handle.to_string().len() > HANDLE_BYTES_MAX {
            return false;
        }
        let (stored, told) = oneshot::channel();
        let keep = Keep {
            call_id: self.call_id.clone(),
            handle,
            stored,
        };
        keeper.send(keep).await.is_ok() && told.await.is_ok()
    }
}
