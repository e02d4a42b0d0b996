//! Tokens for HTTP tools, by client credentials: kept till they expire, and asked for by one call at a time.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lru::LruCache;
use mainspring_shared::id::TenantId;
use mainspring_shared::time::Clock;
use mainspring_worker::llm::Secret;
use reqwest::{Client, Url};
use sha2::{Digest as _, Sha256};

use super::Guard;
use super::address::Addresses;
use crate::mcp::{KnownSecrets, NoToken, OAuth, OAuthSettings};

/// How many credentials have tokens at a time.
const KNOWN_MAX: NonZeroUsize = NonZeroUsize::new(1_024).expect("it is not 0");

/// How long a token is used whose server does not say how long it may be.
const LASTS: Duration = Duration::from_mins(10);

/// The client's credentials. They have no `Debug`: one of them is secret.
pub(super) struct Credentials<'a> {
    pub(super) tenant: TenantId,
    pub(super) token_url: &'a Url,
    pub(super) client_id: &'a str,
    pub(super) client_secret: &'a str,
    pub(super) scopes: &'a [String],
    pub(super) audience: Option<&'a str>,
}

/// The tokens of all credentials.
#[derive(Debug)]
pub(super) struct Tokens(Mutex<LruCache<[u8; 32], Arc<Slot>>>);

#[derive(Debug)]
struct Slot {
    oauth: OAuth,
    /// Held while one call asks; the others then have its token.
    held: tokio::sync::Mutex<Option<Given>>,
}

struct Given {
    token: Secret,
    until: Duration,
}

impl std::fmt::Debug for Given {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Given").finish_non_exhaustive()
    }
}

impl Default for Tokens {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(KNOWN_MAX)))
    }
}

impl Tokens {
    /// A token for these credentials, and not the `stale` one, which was refused.
    pub(super) async fn token(
        &self,
        of: &Credentials<'_>,
        stale: Option<&Secret>,
        (client, addresses, clock): (&Client, &Addresses, &dyn Clock),
    ) -> Result<Secret, NoToken> {
        let slot = self.slot(of, client, addresses);
        let mut held = slot.held.lock().await;
        if let Some(given) = held.as_ref() {
            let is_stale = stale.is_some_and(|stale| stale.expose() == given.token.expose());
            if !is_stale && clock.monotonic() < given.until {
                return Ok(given.token.clone());
            }
        }
        *held = None;
        let token = slot.oauth.token(None).await?;
        let given = Given {
            token: Secret::new(&token.access),
            until: clock
                .monotonic()
                .saturating_add(token.lasts.unwrap_or(LASTS)),
        };
        Ok(held.insert(given).token.clone())
    }

    fn slot(&self, of: &Credentials<'_>, client: &Client, addresses: &Addresses) -> Arc<Slot> {
        let made = || {
            let settings = OAuthSettings {
                client_id: of.client_id.to_owned(),
                client_secret: Some(Secret::new(of.client_secret)),
                scopes: of.scopes.to_vec(),
                token_url: Some(of.token_url.to_string()),
                ..OAuthSettings::default()
            };
            let guard = Guard {
                addresses: addresses.clone(),
            };
            let audience = of.audience.map(str::to_owned);
            let own = (client.clone(), guard);
            Arc::new(Slot {
                oauth: OAuth::of_tool(settings, audience, KnownSecrets::default(), own),
                held: tokio::sync::Mutex::default(),
            })
        };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get_or_insert(of.key(), made).clone()
    }
}

impl Credentials<'_> {
    /// What they are kept by; another secret under the same name is another key.
    fn key(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        let tenant = self.tenant.0.to_string();
        let audience = self.audience.unwrap_or_default();
        let own = [
            tenant.as_str(),
            self.token_url.as_str(),
            self.client_id,
            self.client_secret,
            audience,
        ];
        for part in own
            .into_iter()
            .chain(self.scopes.iter().map(String::as_str))
        {
            hash.update(part.len().to_be_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }
}
