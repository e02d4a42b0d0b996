//! Ends of what works for sends that ended without a worker.

use std::collections::BTreeSet;

use mainspring_shared::id::{BootId, SendId, SessionKey};
use mainspring_shared::store::{self, cancel_below};

use crate::app::App;

/// Sends that are come back to; of more, what works below them reports to nobody.
const WAITING_MAX: usize = 4_096;

/// Sends of which not all below was asked to end, because a session was locked by someone else or the
/// database was away: they are come back to.
#[derive(Debug, Default)]
pub(super) struct Below(BTreeSet<(SessionKey, SendId)>);

impl Below {
    /// Ends what works for these sends, and for those that are to be come back to.
    pub(super) async fn end(
        &mut self,
        app: &App,
        boot: BootId,
        sends: impl IntoIterator<Item = (SessionKey, SendId)>,
    ) -> Result<(), store::Error> {
        self.0.extend(sends);
        let asked = self.ask(app, boot).await;
        while self.0.len() > WAITING_MAX {
            self.0.pop_last();
        }
        asked
    }

    async fn ask(&mut self, app: &App, boot: BootId) -> Result<(), store::Error> {
        for (key, send) in self.0.clone() {
            let is_done = match cancel_below(app.store.as_ref(), boot, key, send).await {
                Ok(outcomes) => app.notifier.ends(outcomes),
                // The next look would find the same, and the others wait for it.
                Err(error) if error.is_of_data() => {
                    tracing::error!(send.id = %send, %error, "what works for a send goes on");
                    true
                }
                Err(error) => return Err(error),
            };
            if is_done {
                self.0.remove(&(key, send));
            }
        }
        Ok(())
    }
}
