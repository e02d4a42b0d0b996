//! The pauses, and the tenants with money limits, as known to this worker: read at its start, then
//! at an interval and whenever a change is announced. While the database is down, the last known
//! state stays in force.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use mainspring_shared::bus::{Notice, Topic};
use mainspring_shared::pause::PauseSet;
use mainspring_shared::store::{ListPauses, Result};
use tokio::sync::watch;

use crate::Kernel;
use crate::llm::Share;
use crate::worker::Parts;

/// How long a worker waits for the first read.
const WITHIN: Duration = Duration::from_secs(1);

/// Page size of pauses.
const PAGE: u32 = 500;

/// The known pauses.
#[derive(Debug, Default)]
pub(crate) struct Known(watch::Sender<Arc<PauseSet>>);

impl Known {
    /// The pauses as of the last read.
    pub(crate) fn now(&self) -> Arc<PauseSet> {
        self.0.borrow().clone()
    }

    /// Returns once the workers of a pool may take work.
    pub(crate) async fn pool_open(&self, pool: &str) {
        let mut seen = self.0.subscribe();
        // The sender lives as long as this borrow.
        let _ = seen.wait_for(|set| !set.holds_pool(pool)).await;
    }

    async fn read(&self, parts: &Parts) -> Result<()> {
        let mut keys = Vec::new();
        loop {
            let query = ListPauses {
                tenant: None,
                after: keys.last().cloned(),
                limit: PAGE,
            };
            let page = parts.store.list_pauses(query).await?;
            let is_last = !page.more || page.data.is_empty();
            keys.extend(page.data.into_iter().map(|record| record.key));
            if is_last {
                break;
            }
        }
        let set: PauseSet = keys.into_iter().collect();
        self.0.send_if_modified(|known| {
            let changes = **known != set;
            if changes {
                *known = Arc::new(set);
            }
            changes
        });
        Ok(())
    }
}

/// Reads the pauses before the first work is taken, and always counts the workers: others may have
/// used up what a provider allows.
pub(crate) async fn begin(kernel: &Kernel) {
    let parts = &kernel.parts;
    // A failure of one must not prevent the other.
    let first = async {
        let (held, counted) = tokio::join!(held(kernel), count_workers(kernel));
        held.and(counted)
    };
    tokio::select! {
        biased;
        read = first => told(read),
        () = parts.clock.sleep(WITHIN) => {
            tracing::warn!("could not read the pauses, spending limits and worker count in time");
        }
    }
}

/// Reads everything that holds calls back: the pauses, the tenants with limits, and this worker's
/// share of what providers allow.
async fn read(kernel: &Kernel) -> Result<()> {
    held(kernel).await?;
    if kernel.parts.providers.share().is_wanted() {
        count_workers(kernel).await?;
    }
    Ok(())
}

async fn held(kernel: &Kernel) -> Result<()> {
    kernel.money.close_blocks();
    kernel.pauses.read(&kernel.parts).await?;
    kernel.money.read().await
}

/// Divides what providers allow among the workers that the database lists.
async fn count_workers(kernel: &Kernel) -> Result<()> {
    let boots = kernel.parts.store.list_boots().await?;
    if let Some(life) = kernel.boot.current() {
        let share = Share::of(&boots, life.id);
        kernel.parts.providers.share().set(share);
    }
    Ok(())
}

/// Keeps the pauses current until the worker has nothing left to do.
pub(crate) async fn run(kernel: Arc<Kernel>) {
    let parts = &kernel.parts;
    let mut notices = parts.bus.subscribe(Topic::Pauses).await;
    loop {
        let mut notice = None;
        tokio::select! {
            biased;
            () = kernel.tasks.done.cancelled() => return,
            heard = notices.next() => notice = Some(heard),
            () = parts.clock.sleep(parts.config.pause_interval) => {}
        }
        if matches!(notice, Some(None)) {
            // The bus drops a listener only when it ends; the interval continues.
            notices = futures::stream::pending::<Notice>().boxed();
        }
        tokio::select! {
            biased;
            () = kernel.tasks.done.cancelled() => return,
            read = read(&kernel) => told(read),
        }
    }
}

fn told(read: Result<()>) {
    if let Err(error) = read {
        tracing::debug!(%error, "could not refresh the pauses, spending limits or worker count");
    }
}
