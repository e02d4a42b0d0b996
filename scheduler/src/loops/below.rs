//! Ends of what works for a send that ended without a worker.

use std::collections::BTreeSet;

use mainspring_shared::id::{BootId, SendId, SessionKey};
use mainspring_shared::store::{self, CancelOutcome, cancel_below};

use crate::accept::signal;
use crate::app::App;

/// Sends that are come back to; of more, what works below them reports to nobody.
const WAITING_MAX: usize = 4_096;

/// Sends below which a session was locked by someone else: they are come back to.
#[derive(Debug, Default)]
pub(super) struct Below(BTreeSet<(SessionKey, SendId)>);

impl Below {
    /// Ends what works for a send.
    pub(super) async fn end(
        &mut self,
        app: &App,
        boot: BootId,
        key: SessionKey,
        send: SendId,
    ) -> Result<(), store::Error> {
        let below = cancel_below(app.store.as_ref(), boot, key, send).await?;
        self.0.remove(&(key, send));
        for outcome in below {
            match outcome {
                CancelOutcome::Signalled { send, .. } => signal(app, send.key, 0),
                CancelOutcome::Cancelled { ring, .. } => app.ringer.ring(ring),
                CancelOutcome::Locked if self.0.len() < WAITING_MAX => {
                    self.0.insert((key, send));
                }
                CancelOutcome::Locked
                | CancelOutcome::AlreadyFinal(_)
                | CancelOutcome::NotFound => {}
            }
        }
        Ok(())
    }

    /// Comes back to what was locked.
    pub(super) async fn again(&mut self, app: &App, boot: BootId) -> Result<(), store::Error> {
        for (key, send) in self.0.clone() {
            self.end(app, boot, key, send).await?;
        }
        Ok(())
    }
}
