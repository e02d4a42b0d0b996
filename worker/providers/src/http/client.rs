//! The HTTP client of one provider.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, Url};
use tokio::sync::Semaphore;

use crate::open::SetupError;
use crate::settings::ProviderSettings;

/// Connections that are kept for the next attempt.
const IDLE_CONNECTIONS_MAX: usize = 4_096;

/// How long a connection is kept; below the minute after which proxies commonly close theirs.
const IDLE_CONNECTION_TIMEOUT: Duration = Duration::from_secs(50);

/// Names looked up at once. Each lookup takes a thread.
const LOOKUPS_MAX: usize = 8;

/// A client that asks once, goes where it is sent only, and leaves timeouts to the attempt.
pub(crate) fn client(settings: &ProviderSettings, url: &Url) -> Result<Client, SetupError> {
    let mut builder = Client::builder()
        .http1_only()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .user_agent(concat!("mainspring/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(settings.connect_timeout)
        .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
        .pool_idle_timeout(IDLE_CONNECTION_TIMEOUT)
        .dns_resolver(Arc::new(Resolver {
            turns: Arc::new(Semaphore::new(LOOKUPS_MAX)),
        }));
    if is_loopback(url) {
        builder = builder.no_proxy();
    }
    builder.build().map_err(|source| SetupError::Client {
        provider: settings.name.clone(),
        source,
    })
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

/// The system's resolver, a few lookups at a time: a burst of attempts must not take a thread
/// each.
#[derive(Debug)]
struct Resolver {
    turns: Arc<Semaphore>,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let turns = Arc::clone(&self.turns);
        Box::pin(async move {
            let _turn = turns.acquire_owned().await?;
            let found: Vec<_> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}
