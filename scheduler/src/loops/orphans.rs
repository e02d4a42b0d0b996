//! Cancels the work below sends that have ended.
//!
//! The process that ends a send cancels its children and runs right afterwards, in separate
//! transactions. If it dies in between, or if the database is unavailable or a session locked, that
//! work is orphaned until the sweep finds it in the database.

use mainspring_shared::id::{BootId, SendId, SessionKey, TenantId};
use mainspring_shared::store::{self, SweepOrphans, cancel_below};
use uuid::Uuid;

use super::causes;
use crate::app::App;

/// Sends and runs per read.
const PAGE: u32 = 256;

/// Reads per pass.
const PAGES_MAX: u32 = 10;

/// The last send or run that was checked; the next pass of the sweep continues after it.
pub(super) type Cursor = Option<(TenantId, Uuid)>;

/// Cancels the work below these sends. The sweep retries what could not be cancelled.
pub(super) async fn cancel_work_of(
    app: &App,
    boot: BootId,
    sends: impl IntoIterator<Item = (SessionKey, SendId)>,
) -> Result<(), store::Error> {
    for (key, send) in sends {
        match cancel_below(app.store.as_ref(), boot, key, send).await {
            Ok(outcomes) => {
                app.notifier.cancelled(outcomes);
            }
            // One failure must not delay the others.
            Err(error) if error.is_of_data() => {
                let error = causes(&error);
                tracing::warn!(
                    send.id = %send,
                    error,
                    "could not cancel the work below a send; the sweep will retry"
                );
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Cancels orphaned work, starting at `cursor`. Returns true if there is more to check.
pub(super) async fn sweep(app: &App, cursor: &mut Cursor) -> Result<bool, store::Error> {
    let Some(boot) = app.process.registration.id() else {
        return Ok(false);
    };
    for _ in 0..PAGES_MAX {
        let query = SweepOrphans {
            older_than: app.config.sweep_age,
            after: *cursor,
            limit: PAGE,
        };
        let found = app.store.sweep_orphans(query).await?;
        cancel_work_of(app, boot, found.of).await?;
        *cursor = found.next;
        if cursor.is_none() || app.process.lifecycle.is_stopping() {
            return Ok(false);
        }
    }
    Ok(true)
}
