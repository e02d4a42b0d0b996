//! Token calibrations that all workers share.
//!
//! Each worker starts with the stored calibrations, and exchanges its own once a minute and when it
//! stops. If the database is down, only accuracy is lost: no send waits for any of this.

use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::store::Result;

use crate::Kernel;
use crate::llm::MODELS_MAX;
use crate::worker::Parts;

/// How often calibrations are exchanged. Ratios change slowly, and a worker that takes a send over
/// soon after a crash knows most of what the crashed worker knew.
const EVERY: Duration = Duration::from_mins(1);

/// How long a worker waits for the exchange when it starts and when it stops.
const WITHIN: Duration = Duration::from_secs(1);

/// Loads stored calibrations before the first model is asked.
pub(crate) async fn begin(parts: &Parts) {
    tokio::select! {
        biased;
        read = learn(parts) => told(read),
        () = parts.clock.sleep(WITHIN) => tracing::debug!("could not read calibrations in time"),
    }
}

/// Exchanges calibrations until the worker has nothing left to do.
pub(crate) async fn run(kernel: Arc<Kernel>) {
    let parts = &kernel.parts;
    loop {
        tokio::select! {
            biased;
            () = kernel.tasks.done.cancelled() => break,
            () = parts.clock.sleep(EVERY) => {}
        }
        tokio::select! {
            biased;
            exchanged = exchange(parts) => told(exchanged),
            () = kernel.tasks.done.cancelled() => break,
        }
    }
    tokio::select! {
        biased;
        saved = save(parts) => told(saved),
        () = parts.clock.sleep(WITHIN) => {}
    }
}

fn told(result: Result<()>) {
    if let Err(error) = result {
        tracing::debug!(%error, "could not exchange calibrations");
    }
}

async fn exchange(parts: &Parts) -> Result<()> {
    save(parts).await?;
    learn(parts).await
}

/// Stores the calibrations that changed since the last time.
async fn save(parts: &Parts) -> Result<()> {
    let calibrations = parts.providers.calibrations();
    let changed = calibrations.changed();
    if !changed.is_empty() {
        parts.store.save_calibrations(changed.clone()).await?;
        calibrations.stored(changed);
    }
    Ok(())
}

async fn learn(parts: &Parts) -> Result<()> {
    let limit = u32::try_from(MODELS_MAX).unwrap_or(u32::MAX);
    let stored = parts.store.list_calibrations(limit).await?;
    parts.providers.calibrations().learn(stored);
    Ok(())
}
