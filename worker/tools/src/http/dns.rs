//! Name resolution that lets connections go only to permitted addresses.

use std::fmt::Debug;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainspring_runtime::Shares;
use mainspring_shared::id::TenantId;
use mainspring_shared::store::scope;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::time::timeout;

use super::address::{Addresses, Refused};

/// Names resolved at once. Each lookup occupies a thread.
const LOOKUPS_MAX: usize = 32;

/// How many times what is left for the others one tenant's lookups may take.
const LOOKUPS_PARTS: usize = 3;

/// How long a lookup may take, and how long one may wait for its turn. Both fit into the time to
/// connect.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(4);

/// Resolves names to addresses.
#[async_trait]
pub(super) trait Lookup: Send + Sync + Debug {
    /// The addresses of `host`, looked up on behalf of a tenant.
    async fn lookup(&self, host: &str, tenant: Option<TenantId>) -> io::Result<Vec<IpAddr>>;
}

/// The system's resolver, limited to some lookups at a time, so that a burst of calls does not take
/// a thread each, and so that the slow name servers of one tenant delay no other.
#[derive(Debug)]
pub(super) struct System {
    turns: Shares<Option<TenantId>>,
}

impl System {
    pub(super) fn new() -> Self {
        Self {
            turns: Shares::new(LOOKUPS_MAX, LOOKUPS_PARTS),
        }
    }
}

#[async_trait]
impl Lookup for System {
    async fn lookup(&self, host: &str, tenant: Option<TenantId>) -> io::Result<Vec<IpAddr>> {
        let host = host.to_owned();
        in_turn(&self.turns, tenant, LOOKUP_TIMEOUT, async move {
            let found = tokio::net::lookup_host((host, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
        .await
    }
}

/// Does a lookup in its tenant's turn. The system's resolver cannot be stopped, so a lookup that
/// takes too long keeps its place until it ends.
async fn in_turn<T: Send + 'static>(
    turns: &Shares<Option<TenantId>>,
    tenant: Option<TenantId>,
    limit: Duration,
    looking: impl Future<Output = io::Result<T>> + Send + 'static,
) -> io::Result<T> {
    let slow = |_| io::Error::new(io::ErrorKind::TimedOut, "the name servers are too slow");
    let turn = timeout(limit, turns.wait(tenant)).await;
    let turn = turn.map_err(slow)?;
    let found = tokio::spawn(async move {
        let found = looking.await;
        drop(turn);
        found
    });
    let found = timeout(limit, found).await.map_err(slow)?;
    found.map_err(io::Error::other)?
}

/// Why a name leads nowhere: in the same words whatever the reason, since whoever writes the URL must
/// not find out by them which names there are in the operator's network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its name is not known, or leads to addresses that are not allowed")]
pub(super) struct Nowhere;

/// Returns permitted addresses only. The connection is made to one of them without a second lookup,
/// so a name that changes between check and use gains nothing.
#[derive(Debug)]
pub(super) struct Guarded {
    lookup: Arc<dyn Lookup>,
    addresses: Addresses,
}

impl Guarded {
    pub(super) fn new(lookup: Arc<dyn Lookup>, addresses: Addresses) -> Self {
        Self { lookup, addresses }
    }
}

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let (lookup, addresses) = (self.lookup.clone(), self.addresses.clone());
        // Known only while the request is being polled on behalf of its tenant, as it is here; the
        // lookup may go on without it.
        let tenant = scope();
        Box::pin(async move {
            let found = lookup.lookup(name.as_str(), tenant).await;
            let found = found.map_err(|error| {
                tracing::debug!(host = name.as_str(), %error, "a host name was not resolved");
                Nowhere
            })?;
            let permitted = permitted(&addresses, &found).map_err(|refused| {
                tracing::warn!(
                    host = name.as_str(),
                    refused.range,
                    refused.setting,
                    "a host name resolves to an address that is not allowed"
                );
                Nowhere
            })?;
            Ok(Box::new(permitted.into_iter()) as Addrs)
        })
    }
}

/// The addresses of `found` that may be called, or the reason if there are none.
fn permitted(addresses: &Addresses, found: &[IpAddr]) -> Result<Vec<SocketAddr>, Refused> {
    let mut permitted = Vec::new();
    let mut refused = None;
    for &address in found {
        match addresses.check(address) {
            Ok(()) => permitted.push(SocketAddr::new(address, 0)),
            Err(range) => refused = refused.or(Some(range)),
        }
    }
    match refused {
        Some(refused) if permitted.is_empty() => Err(refused),
        _ => Ok(permitted),
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn slow_name_servers_of_one_tenant_delay_no_other() {
        let turns = Shares::new(LOOKUPS_MAX, LOOKUPS_PARTS);
        let (bad, good) = (Some(TenantId(2)), Some(TenantId(1)));
        let (soon, never) = (Duration::from_millis(50), Duration::from_mins(10));
        // A hundred times as many as it may have, none of which is ever answered.
        let mut hung = tokio::task::JoinSet::new();
        for _ in 0..LOOKUPS_MAX * 100 {
            let turns = turns.clone();
            let looking = pending::<io::Result<()>>();
            hung.spawn(async move { in_turn(&turns, bad, soon, looking).await });
        }
        while turns.take(bad).is_some() {
            tokio::task::yield_now().await;
        }
        for place in 0..100 {
            let found = in_turn(&turns, good, never, async move { Ok(place) }).await;
            assert_eq!(found.ok(), Some(place));
        }
        // None of them waits for longer than the time to connect. Those that have begun keep their
        // places, and only those.
        while let Some(ended) = hung.join_next().await {
            let error = ended.expect("ends").expect_err("is too slow");
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        }
        assert!(turns.take(bad).is_none());
        assert!(in_turn(&turns, good, never, async { Ok(()) }).await.is_ok());
    }
}
