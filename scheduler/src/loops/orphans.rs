//! Ends of what works for sends that ended while nobody lived to end it.
//!
//! Whoever ends a send ends what works for it right after, in transactions of their own. A process
//! that dies between the two leaves children and runs behind that report to nobody.

use mainspring_shared::id::TenantId;
use mainspring_shared::store::{self, SweepOrphans, cancel_below};
use uuid::Uuid;

use super::causes;
use crate::app::App;

/// Sends and runs that are looked at in one read.
const PAGE: u32 = 256;

/// Reads of one pass.
const PAGES_MAX: u32 = 10;

/// Where the next pass goes on, behind the last send or run that was looked at.
pub(super) type Place = Option<(TenantId, Uuid)>;

/// Looks for what works for sends that ended, from `place` on, and asks it to end. True when more is
/// to be looked at. What is locked by someone else is found again by the next round of passes.
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
        for (key, send) in found.of {
            match cancel_below(app.store.as_ref(), boot, key, send).await {
                Ok(outcomes) => {
                    app.notifier.ends(outcomes);
                }
                // It is looked at again; the others are not kept waiting.
                Err(error) if error.is_of_data() => {
                    let error = causes(&error);
                    tracing::warn!(send.id = %send, error, "what works for a send goes on");
                }
                Err(error) => return Err(error),
            }
        }
        *place = found.next;
        if place.is_none() || app.lifecycle.is_stopping() {
            return Ok(false);
        }
    }
    Ok(true)
}
