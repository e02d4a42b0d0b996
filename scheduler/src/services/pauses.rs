//! Pauses and resumes work.

use mainspring_shared::pause::{PauseKey, PauseRecord};
use mainspring_shared::store::NewPause;

use crate::app::App;
use crate::error::Error;
use crate::loops::sweep::WOKEN;

/// Pauses something. Workers hold it back within a second.
pub async fn pause(app: &App, item: NewPause) -> Result<PauseRecord, Error> {
    let record = app.store.pause(item).await?;
    tracing::info!(pause = %record.key, "paused");
    app.notifier.pauses_changed();
    Ok(record)
}

/// Ends a pause. The first sends that waited for it are woken at once, the others by the sweep.
pub async fn resume(app: &App, key: PauseKey) -> Result<(), Error> {
    app.store.resume(key.clone()).await?;
    tracing::info!(pause = %key, "resumed");
    // Workers are told before the sends are woken: one that still believes in the pause would park
    // them again.
    app.notifier.pauses_changed();
    if let Err(error) = app.store.wake_paused(WOKEN).await {
        tracing::debug!(%error, "could not wake paused sends; the sweep will");
    }
    Ok(())
}
