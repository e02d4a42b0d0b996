//! Strays: sessions that this process owns but does not work on.
//!
//! There should be none. But a session that was granted by a commit whose answer was lost, or that
//! was left by a run which took its lease for lost, would be kept forever by the process's
//! renewals, and neither the sweep nor another worker would take it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::lease::Lease;
use mainspring_shared::store::{ReleaseLoss, ReleaseSession};

use crate::Kernel;
use crate::config::WorkerConfig;

/// How many ready sessions one check reads; the next check continues after them.
const PAGE: u32 = 1_000;

/// The time between two checks.
pub(crate) fn interval(config: &WorkerConfig) -> Duration {
    config.lease_ttl / 3
}

/// Compares what the process owns with what it runs, at the pace of the renewals, until the worker
/// has nothing left to do.
pub(crate) async fn watch(kernel: Arc<Kernel>) {
    let parts = &kernel.parts;
    let mut after = None;
    // The strays of the previous check and of this one.
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
                tracing::debug!(%error, "could not read which sessions this worker owns");
                continue;
            }
        };
        after = owned.next;
        let owned = owned.sessions.into_iter();
        // A session is entered before it is claimed, and left after it was released. One that is
        // not entered now has been released since, or is a stray, or its worker is about to receive
        // the dispatch that granted it. A dispatch older than half the time between two checks is
        // not started.
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
                lost: ReleaseLoss::ModelCall,
            };
            match kernel.writes.release(release).await {
                Ok(true) => {
                    tracing::warn!(
                        session.id = %key.session,
                        "released a session that no run was working on"
                    );
                }
                Ok(false) => {}
                Err(error) => tracing::debug!(%error, "could not release a stray session"),
            }
        }
        if after.is_none() {
            seen = std::mem::take(&mut found);
        }
    }
}
