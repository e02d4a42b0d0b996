//! The address of Redis, with a form that can be shown, and the installation's prefix there.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::{Client, ConnectionInfo, IntoConnectionInfo, TlsCertificates};

use crate::prefix::Prefix;

/// If sent bytes stay unacknowledged for this long, the other end is gone.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// The URL of a Redis server: `redis://`, `rediss://` (TLS) or `unix://`. Shown without its
/// secrets.
#[derive(Clone)]
pub struct Address {
    info: ConnectionInfo,
    /// The authorities, as PEM, that a server's certificate must come from, instead of the public
    /// ones.
    authorities: Option<Vec<u8>>,
    prefix: Prefix,
}

/// The URL is not that of a Redis server. Does not repeat the URL, which may hold a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a URL of the form redis://[user:password@]host[:port][/db] is expected")]
pub struct AddressError;

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(url: &str) -> Result<Self, AddressError> {
        let info = url.into_connection_info().map_err(|_| AddressError)?;
        // Every command waits for its answer, so delaying small writes to merge packets only adds
        // latency.
        let tcp = TcpSettings::default().set_nodelay(true);
        #[cfg(target_os = "linux")]
        let tcp = tcp.set_user_timeout(SILENCE_MAX);
        Ok(Self {
            info: info.set_tcp_settings(tcp),
            authorities: None,
            prefix: Prefix::default(),
        })
    }
}

impl Address {
    /// Trusts only the certificate authorities in `pem`, instead of the public ones. This only
    /// affects `rediss://`, where the server's certificate and name are always verified.
    #[must_use]
    pub fn trusting(self, pem: Vec<u8>) -> Self {
        Self {
            authorities: Some(pem),
            ..self
        }
    }

    /// Uses only keys and channels that begin with `prefix`.
    #[must_use]
    pub fn under(self, prefix: Prefix) -> Self {
        Self { prefix, ..self }
    }

    /// The prefix of the keys and channels.
    pub(crate) fn prefix(&self) -> Prefix {
        self.prefix.clone()
    }

    /// A client that has not connected yet.
    pub(crate) fn client(&self) -> Result<Client, AddressError> {
        let Some(pem) = &self.authorities else {
            return Client::open(self.info.clone()).map_err(|_| AddressError);
        };
        let trusted = TlsCertificates {
            client_tls: None,
            root_cert: Some(pem.clone()),
        };
        Client::build_with_tls(self.info.clone(), trusted).map_err(|_| AddressError)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{}",
            self.info.addr(),
            self.info.redis_settings().db()
        )
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_password() {
        let address: Address = "redis://someone:hush@localhost:6380/2".parse().unwrap();
        assert_eq!(address.to_string(), "localhost:6380/2");
        assert_eq!(format!("{address:?}"), "localhost:6380/2");
    }

    #[test]
    fn a_refused_url_is_not_repeated() {
        let error = "http://someone:hush@localhost"
            .parse::<Address>()
            .unwrap_err();
        assert!(!error.to_string().contains("hush"));
    }
}
