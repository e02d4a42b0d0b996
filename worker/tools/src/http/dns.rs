//! Name resolution that lets connections go only to permitted addresses.

use std::fmt::Debug;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::Semaphore;

use super::address::{Addresses, Refused};

/// Names resolved at once. Each lookup occupies a thread.
const LOOKUPS_MAX: usize = 8;

/// Resolves names to addresses.
#[async_trait]
pub(super) trait Lookup: Send + Sync + Debug {
    /// The addresses of `host`.
    async fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The system's resolver, limited to a few lookups at a time so that a burst of calls does not take
/// a thread each.
#[derive(Debug)]
pub(super) struct System {
    turns: Semaphore,
}

impl System {
    pub(super) fn new() -> Self {
        Self {
            turns: Semaphore::new(LOOKUPS_MAX),
        }
    }
}

#[async_trait]
impl Lookup for System {
    async fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let _turn = self.turns.acquire().await.map_err(io::Error::other)?;
        let found = tokio::net::lookup_host((host, 0)).await?;
        Ok(found.map(|address| address.ip()).collect())
    }
}

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
        Box::pin(async move {
            let found = lookup.lookup(name.as_str()).await?;
            let permitted = permitted(&addresses, &found).inspect_err(|refused| {
                tracing::warn!(
                    host = name.as_str(),
                    refused.range,
                    "a host name resolves to an address that is not allowed"
                );
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
