//! The HTTP client of one provider.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, Url};
use tokio::sync::Semaphore;

use crate::open::SetupError;
use crate::settings::ProviderSettings;

/// How many idle connections are kept per host.
const IDLE_CONNECTIONS_MAX: usize = 4_096;

/// How long an idle connection is kept; less than the minute after which proxies commonly close
/// theirs.
const IDLE_CONNECTION_TIMEOUT: Duration = Duration::from_secs(50);

/// How many names are looked up at once. Each lookup takes a thread.
const LOOKUPS_MAX: usize = 8;

/// A client without retries, redirects or timeouts other than the connect timeout.
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

/// The system's resolver with few lookups at a time, so that a burst of attempts does not take a
/// thread each.
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
