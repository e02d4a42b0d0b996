//! Follows how much of what providers allow is this worker's, from the workers that the database lists.

use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::store::Result;

use crate::llm::Share;
use crate::worker::Kernel;

/// How often the workers are counted, where it matters. One that comes begins with its part; until the others know of
/// it, all together may ask for as much more as that part.
const EVERY: Duration = Duration::from_secs(2);

/// How long a worker waits to be counted before it takes its first work.
const WITHIN: Duration = Duration::from_secs(1);

/// Counts the workers before the first work is taken. Where that fails, all of a limit is this worker's until it is
/// known better.
pub(crate) async fn begin(kernel: &Kernel) {
    tokio::select! {
        biased;
        read = read(kernel) => told(read),
        () = kernel.parts.clock.sleep(WITHIN) => tracing::warn!("the workers were not counted in time"),
    }
}

/// Counts them until the worker has nothing left to do.
pub(crate) async fn run(kernel: Arc<Kernel>) {
    let parts = &kernel.parts;
    loop {
        tokio::select! {
            biased;
            () = kernel.tasks.done.cancelled() => return,
            () = parts.clock.sleep(EVERY) => {}
        }
        if !parts.providers.share().is_used() {
            continue;
        }
        tokio::select! {
            biased;
            () = kernel.tasks.done.cancelled() => return,
            read = read(&kernel) => told(read),
        }
    }
}

async fn read(kernel: &Kernel) -> Result<()> {
    let boots = kernel.parts.store.list_boots().await?;
    if let Some(life) = kernel.boot.current() {
        let share = Share::of(&boots, life.id);
        kernel.parts.providers.share().set(share);
    }
    Ok(())
}

fn told(read: Result<()>) {
    if let Err(error) = read {
        tracing::debug!(%error, "the workers were not counted");
    }
}
