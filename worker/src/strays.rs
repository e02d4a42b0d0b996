//! Sessions that this process owns and that nobody in it works on.
//!
//! None should be: but what was granted by a commit whose answer was lost, or was left by a run that
//! took its lease for lost, would be kept by the process's renewals for ever, and neither the sweep
//! nor another worker would look at it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::lease::Lease;
use mainspring_shared::store::{Lost, ReleaseSession};

use crate::Kernel;
use crate::config::WorkerConfig;

/// Ready sessions that one look goes through; the next one goes on behind them.
const PAGE: u32 = 1_000;

/// Between two looks.
pub(crate) fn interval(config: &WorkerConfig) -> Duration {
    config.lease_ttl / 3
}

/// Compares what the process owns with what it runs, at the pace of the renewals, until the worker
/// has nothing left to do.
pub(crate) async fn watch(kernel: Arc<Kernel>) {
    let parts = &kernel.parts;
    let mut after = None;
    // Of the look before this one, and of this.
    let (mut seen, mut found) = (HashSet::new(), HashSet::new());
    loop {
        tokio::select! {
            biased;
            () = kernel.tasks.done.cancelled() => return,
            () = parts.clock.sleep(interval(&parts.config)) => {}
        }
        let Some(life) = kernel.boot.current() else {
            continue;
        };
        let owned = match parts.store.owned_sessions(life.id, after, PAGE).await {
            Ok(owned) => owned,
            Err(error) => {
                tracing::debug!(%error, "what this process owns could not be read");
                continue;
            }
        };
        after = owned.next;
        let owned = owned.sessions.into_iter();
        // A session is entered before it is claimed, and left after it was given back: one that is
        // not entered now was given back since, or nobody works on it, or its worker is about to hear that it was
        // granted with a send. Who hears that later than between two looks does not begin.
        let strays = owned.filter(|(key, _)| !kernel.running.contains(*key));
        for stray in strays {
            let (key, token) = stray;
            if !seen.contains(&stray) {
                found.insert(stray);
                continue;
            }
            let lease = Lease {
                boot: life.id,
                token,
                epoch: 0,
                write: 0,
            };
            let release = ReleaseSession {
                key,
                lease,
                lost: Lost::ModelCall,
            };
            match kernel.writes.release(release).await {
                Ok(true) => {
                    tracing::warn!(session.id = %key.session, "nobody worked on it; given back");
                }
                Ok(false) => {}
                Err(error) => tracing::debug!(%error, "a session was not given back"),
            }
        }
        if after.is_none() {
            seen = std::mem::take(&mut found);
        }
    }
}
