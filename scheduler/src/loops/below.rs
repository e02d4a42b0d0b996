//! Ends of what works for sends that ended.
//!
//! Whoever ends a send ends what works for it right after, in transactions of their own. A process that
//! dies between the two, an outage or a locked session leaves children and runs behind that report to
//! nobody: the sweep finds them in the database.

use mainspring_shared::id::{BootId, SendId, SessionKey, TenantId};
use mainspring_shared::store::{self, SweepOrphans, cancel_below};
use uuid::Uuid;

use super::causes;
use crate::app::App;

/// Sends and runs that are looked at in one read.
const PAGE: u32 = 256;

/// Reads of one pass.
const PAGES_MAX: u32 = 10;

/// Where the next pass of the sweep goes on, behind the last send or run that was looked at.
pub(super) type Place = Option<(TenantId, Uuid)>;

/// Cancels what works for these sends. What cannot be cancelled now, the sweep cancels later.
pub(super) async fn end(
    app: &App,
    boot: BootId,
    sends: impl IntoIterator<Item = (SessionKey, SendId)>,
) -> Result<(), store::Error> {
    for (key, send) in sends {
        match cancel_below(app.store.as_ref(), boot, key, send).await {
            Ok(outcomes) => {
                app.notifier.ends(outcomes);
            }
            // The others are not kept waiting.
            Err(error) if error.is_of_data() => {
                let error = causes(&error);
                tracing::warn!(send.id = %send, error, "what works for a send goes on");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Looks for what works for sends that ended, from `place` on, and cancels it. True when more is to be
/// looked at.
pub(super) async fn sweep(app: &App, place: &mut Place) -> Result<bool, store::Error> {
    let Some(boot) = app.registration.id() else {
        return Ok(false);
    };
    for _ in 0..PAGES_MAX {
        let query = SweepOrphans {
            older_than: app.config.sweep_age,
            after: *place,
            limit: PAGE,
        };
        let found = app.store.sweep_orphans(None, query).await?;
        end(app, boot, found.of).await?;
        *place = found.next;
        if place.is_none() || app.lifecycle.is_stopping() {
            return Ok(false);
        }
    }
    Ok(true)
}
