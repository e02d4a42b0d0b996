//! Sessions that this process owns and that nobody in it works on.
//!
//! None should be: but what was granted by a commit whose answer was lost, or was left by a run that
//! took its lease for lost, would be kept by the process's renewals for ever, and neither the sweep
//! nor another worker would look at it.

use std::sync::Arc;

use mainspring_shared::lease::Lease;
use mainspring_shared::store::ReleaseSession;

use crate::Kernel;

/// Ready sessions that one look goes through; the next one goes on behind them.
const PAGE: u32 = 1_000;

/// Compares what the process owns with what it runs, at the pace of the renewals, until the worker
/// has nothing left to do.
pub(crate) async fn watch(kernel: Arc<Kernel>) {
    let parts = &kernel.parts;
    let mut after = None;
    loop {
        tokio::select! {
            biased;
            () = kernel.tasks.done.cancelled() => return,
            () = parts.clock.sleep(parts.config.lease_ttl / 3) => {}
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
        for (key, token) in owned.sessions {
            // A session is entered before it is claimed, and left after it was given back: one that is
            // not entered now was given back since, or nobody works on it.
            if kernel.running.contains(key) {
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
                lost: true,
            };
            match kernel.writes.release(release).await {
                Ok(true) => {
                    tracing::warn!(session.id = %key.session, "nobody worked on it; given back");
                }
                Ok(false) => {}
                Err(error) => tracing::debug!(%error, "a session was not given back"),
            }
        }
    }
}
