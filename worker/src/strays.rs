//! Strays: sessions that this process owns but does not work on.
//!
//! There should be none. But a session that was granted by a commit whose answer was lost, or that
//! was left by a run which took its lease for lost, would be kept forever by the process's
//! renewals, and neither the sweep nor another worker would take it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::id::{LeaseToken, SessionId, SessionKey, TenantId};
use mainspring_shared::lease::Lease;
use mainspring_shared::store::{self, ReleaseLoss, ReleaseSession};
use mainspring_shared::time::Timestamp;
use uuid::Uuid;

use crate::Kernel;
use crate::boot::Life;
use crate::config::WorkerConfig;

/// How many ready sessions one check reads; the next check continues after them.
const PAGE: u32 = 1_000;

/// The time between two checks.
pub(crate) fn interval(config: &WorkerConfig) -> Duration {
    config.lease_ttl / 3
}

/// A session that the process owns, and the token of the grant.
type Grant = (SessionKey, LeaseToken);

/// Compares what the process owns with what it runs, at the pace of the renewals, until the worker
/// has nothing left to do.
///
/// Sessions that became ready lately are all looked at by each check: they may have been granted by
/// a message that was lost, and nobody else looks for them. The others are looked at a page at a
/// time.
pub(crate) async fn watch(kernel: Arc<Kernel>) {
    let parts = &kernel.parts;
    let mut after = None;
    // The strays of the previous check and of this one.
    let (mut seen, mut found) = (HashSet::new(), HashSet::new());
    let mut recent = HashSet::new();
    loop {
        tokio::select! {
            biased;
            () = kernel.tasks.done.cancelled() => return,
            () = parts.clock.sleep(interval(&parts.config)) => {}
        }
        let Some(life) = kernel.boot.current() else {
            continue;
        };
        match granted_lately(&kernel, &life).await {
            Ok(strays) => {
                let again = strays.intersection(&recent).copied();
                for stray in again.collect::<Vec<_>>() {
                    release(&kernel, &life, stray).await;
                }
                recent = strays;
            }
            Err(error) => {
                tracing::debug!(%error, "could not read which sessions this worker owns");
                continue;
            }
        }
        let owned = match parts.store.owned_sessions(life.id, after, PAGE).await {
            Ok(owned) => owned,
            Err(error) => {
                tracing::debug!(%error, "could not read which sessions this worker owns");
                continue;
            }
        };
        after = owned.next;
        for stray in strays(&kernel, owned.sessions) {
            if seen.contains(&stray) {
                release(&kernel, &life, stray).await;
            } else {
                found.insert(stray);
            }
        }
        if after.is_none() {
            seen = std::mem::take(&mut found);
        }
    }
}

/// Those of these sessions that no run works on. A session is entered before it is claimed, and
/// left after it was released. One that is not entered now has been released since, or is a stray,
/// or its worker is about to receive the dispatch that granted it.
fn strays(kernel: &Kernel, owned: Vec<Grant>) -> impl Iterator<Item = Grant> {
    let owned = owned.into_iter();
    owned.filter(|(key, _)| !kernel.running.contains(*key))
}

/// The strays among the sessions that became ready within the last checks, however many sessions of
/// others wait.
async fn granted_lately(kernel: &Kernel, life: &Life) -> store::Result<HashSet<Grant>> {
    let parts = &kernel.parts;
    let since = parts.config.lease_ttl + interval(&parts.config);
    let since = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
    let since = Timestamp(kernel.boot.database_time(parts).0.saturating_sub(since));
    let first = SessionKey {
        tenant: TenantId(i32::MIN),
        session: SessionId(Uuid::nil()),
    };
    let mut after = Some((since, first));
    let mut found = HashSet::new();
    while let Some(from) = after {
        let page = parts.store.owned_sessions(life.id, Some(from), PAGE);
        let owned = page.await?;
        found.extend(strays(kernel, owned.sessions));
        after = owned.next;
    }
    Ok(found)
}

async fn release(kernel: &Kernel, life: &Life, (key, token): Grant) {
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
