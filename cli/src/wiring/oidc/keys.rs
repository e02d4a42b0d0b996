//! The public keys of an issuer, read over HTTPS and cached.
//!
//! A key that was read within the last minutes is used at once, whatever the state of the issuer,
//! and refreshed in the background before it is old. A key that has become old because nobody asked
//! for it is refreshed before use, so that a withdrawn key is not trusted for long; while its
//! issuer is unavailable, it is used all the same. Keys are also read for a token whose key is
//! unknown. All of this is limited to one attempt every few seconds, so that made-up key names do
//! not cause requests.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures::StreamExt;
use jsonwebtoken::jwk::{Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use mainspring_shared::time::Clock;
use reqwest::{Client, Url};
use serde::Deserialize;
use serde_json::Value;

use super::Fault;
use crate::failure::causes;

/// Age at which keys are refreshed in the background.
const FRESH: Duration = Duration::from_mins(10);

/// Age at which keys must be refreshed before use unless their issuer is unavailable. Keys get this
/// old only if nobody asked for them.
const OLD: Duration = Duration::from_mins(20);

/// How long keys are used while their issuer is unavailable.
const USED_MAX: Duration = Duration::from_hours(24);

/// The shortest time between two attempts to read keys.
const PAUSE: Duration = Duration::from_secs(10);

/// How long reading keys may take, including the issuer's description; a request waits for it.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// Maximum bytes of a response; keys take a few thousand.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Maximum number of keys of an issuer; the rest is left out.
const KEYS_MAX: usize = 100;

/// Where an issuer publishes its keys.
#[derive(Debug, Clone)]
pub(super) struct Source {
    issuer: String,
    /// The URL of the issuer's description, or of its keys if the configuration gives that.
    url: Url,
    is_keys: bool,
}

impl Source {
    pub(super) fn new(issuer: &str, keys: Option<&str>) -> Result<Self, Fault> {
        let insecure = (
            "has an address that is not https",
            "keys fetched over plain http can be replaced in transit; http is for this machine \
             only",
        );
        let text = if let Some(keys) = keys {
            keys.to_owned()
        } else {
            let issuer = issuer.trim_end_matches('/');
            format!("{issuer}/.well-known/openid-configuration")
        };
        let url = Url::parse(&text).ok().filter(is_secure).ok_or(insecure)?;
        Ok(Self {
            issuer: issuer.to_owned(),
            url,
            is_keys: keys.is_some(),
        })
    }
}

/// Whether a URL protects what is read from it against tampering.
fn is_secure(url: &Url) -> bool {
    let is_here = match url.host_str() {
        Some("localhost") => true,
        Some(host) => {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            host.parse::<std::net::IpAddr>()
                .is_ok_and(|ip| ip.is_loopback())
        }
        None => false,
    };
    url.scheme() == "https" || (url.scheme() == "http" && is_here)
}

/// A key and the algorithm it is for.
#[derive(Clone)]
struct PublicKey {
    kid: Option<String>,
    algorithm: Option<Algorithm>,
    key: Arc<DecodingKey>,
}

/// The cached keys of an issuer. Times are readings of the monotonic clock.
#[derive(Default)]
struct Known {
    keys: Vec<PublicKey>,
    /// When they were last read successfully.
    read: Option<Duration>,
    /// When the last attempt to read them began.
    tried: Option<Duration>,
}

/// The outcome of a key lookup.
pub(super) enum Found {
    /// The key.
    Key(Arc<DecodingKey>),
    /// The issuer has no such key.
    Unknown,
    /// The issuer may have the key but is unavailable.
    Away,
}

pub(super) struct KeySet {
    inner: Arc<Inner>,
}

struct Inner {
    source: Source,
    clock: Arc<dyn Clock>,
    client: Client,
    known: RwLock<Known>,
    /// Held while keys are being read; others who need them wait for it.
    reading: Arc<tokio::sync::Mutex<()>>,
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = &self.inner.source;
        f.debug_struct("KeySet")
            .field("source", source)
            .finish_non_exhaustive()
    }
}

impl KeySet {
    pub(super) fn new(source: Source, clock: Arc<dyn Clock>) -> Result<Self, Fault> {
        // A redirect could lead to an insecure URL.
        let client = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .build();
        let client = client.map_err(|_| ("cannot be asked", "no HTTPS client could be created"))?;
        Ok(Self {
            inner: Arc::new(Inner {
                source,
                clock,
                client,
                known: RwLock::default(),
                reading: Arc::default(),
            }),
        })
    }

    /// The key with this name for this algorithm. If the token names no key, the only key that
    /// fits.
    pub(super) async fn find(&self, kid: Option<&str>, algorithm: Algorithm) -> Found {
        let inner = &self.inner;
        let now = inner.clock.monotonic();
        let known = inner.known_key(kid, algorithm, now);
        let age = inner.age(now);
        if let Some(key) = known.clone().filter(|_| age < OLD) {
            if age >= FRESH {
                inner.read_aside();
            }
            return Found::Key(key);
        }
        if !inner.try_read(now).await {
            return known.map_or_else(|| inner.without(now), Found::Key);
        }
        let now = inner.clock.monotonic();
        match inner.known_key(kid, algorithm, now) {
            Some(key) => Found::Key(key),
            None => inner.without(now),
        }
    }
}

impl Inner {
    fn known_key(
        &self,
        kid: Option<&str>,
        algorithm: Algorithm,
        now: Duration,
    ) -> Option<Arc<DecodingKey>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let read = known.read?;
        if now.saturating_sub(read) > USED_MAX {
            return None;
        }
        let mut fitting = known.keys.iter().filter(|key| {
            let is_named = kid.is_none() || key.kid.as_deref() == kid;
            let is_for = key.algorithm.is_none_or(|own| own == algorithm);
            is_named && is_for && key.key.family() == algorithm.family()
        });
        let first = fitting.next()?;
        // If the token names no key, picking one of several would be a guess.
        let is_only = kid.is_some() || fitting.next().is_none();
        is_only.then(|| first.key.clone())
    }

    /// The time since the keys were last read.
    fn age(&self, now: Duration) -> Duration {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let read = known.read.map(|read| now.saturating_sub(read));
        read.unwrap_or(Duration::MAX)
    }

    /// What a missing key means: that it does not exist, if the keys were read a moment ago.
    fn without(&self, now: Duration) -> Found {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let is_recent = |at: Duration| now.saturating_sub(at) <= PAUSE + PATIENCE;
        match known.read {
            Some(read) if is_recent(read) => Found::Unknown,
            _ => Found::Away,
        }
    }

    /// Reads the keys, unless that was tried a moment ago. Waits for an attempt in progress.
    /// Returns whether the keys may have changed.
    async fn try_read(self: &Arc<Self>, asked: Duration) -> bool {
        let reading = self.reading.clone().lock_owned().await;
        let now = self.clock.monotonic();
        {
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
            if known.read.is_some_and(|read| read >= asked) {
                return true;
            }
            if known
                .tried
                .is_some_and(|tried| now.saturating_sub(tried) < PAUSE)
            {
                return false;
            }
            known.tried = Some(now);
        }
        let inner = self.clone();
        // In a task of its own, because this uses up the attempt: a client that hangs up must not
        // cancel it for others.
        let read = tokio::spawn(async move {
            let _reading = reading;
            inner.read().await
        });
        read.await.unwrap_or(false)
    }

    /// Reads the keys; returns whether that succeeded.
    async fn read(&self) -> bool {
        let fetched = tokio::time::timeout(PATIENCE, self.fetch()).await;
        match fetched.unwrap_or(Err(FetchError::Late)) {
            Ok(keys) => {
                let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
                known.keys = keys;
                known.read = Some(self.clock.monotonic());
                true
            }
            Err(error) => {
                let (issuer, error) = (&self.source.issuer, causes(&error));
                tracing::warn!(oidc.issuer = %issuer, %error, "the keys of an issuer could not be read");
                false
            }
        }
    }

    /// Refreshes the keys in the background while the cached ones are in use.
    fn read_aside(self: &Arc<Self>) {
        let now = self.clock.monotonic();
        {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            let was_tried = known
                .tried
                .is_some_and(|tried| now.saturating_sub(tried) < PAUSE);
            if was_tried || self.reading.try_lock().is_err() {
                return;
            }
        }
        let inner = self.clone();
        // It ends on its own within seconds, and nobody waits for it.
        drop(tokio::spawn(async move { inner.try_read(now).await }));
    }

    async fn fetch(&self) -> Result<Vec<PublicKey>, FetchError> {
        if self.source.is_keys {
            return self.read_keys(self.source.url.clone()).await;
        }
        let found: Description = self.read_json(self.source.url.clone()).await?;
        if found.issuer != self.source.issuer {
            return Err(FetchError::Other);
        }
        let url = Url::parse(&found.jwks_uri).ok().filter(is_secure);
        self.read_keys(url.ok_or(FetchError::Insecure)?).await
    }

    async fn read_keys(&self, url: Url) -> Result<Vec<PublicKey>, FetchError> {
        let set: Set = self.read_json(url).await?;
        let keys: Vec<_> = set
            .keys
            .into_iter()
            .filter_map(public_key)
            .take(KEYS_MAX)
            .collect();
        // An issuer without keys cannot sign anything; more likely something else responded.
        if keys.is_empty() {
            return Err(FetchError::Empty);
        }
        Ok(keys)
    }

    async fn read_json<T: serde::de::DeserializeOwned>(&self, url: Url) -> Result<T, FetchError> {
        let answer = self.client.get(url).send().await?;
        if !answer.status().is_success() {
            return Err(FetchError::Status(answer.status().as_u16()));
        }
        let mut pieces = answer.bytes_stream();
        let mut bytes = Vec::new();
        while let Some(piece) = pieces.next().await {
            bytes.extend_from_slice(&piece?);
            if bytes.len() > ANSWER_BYTES_MAX {
                return Err(FetchError::TooLong);
            }
        }
        serde_json::from_slice(&bytes).map_err(FetchError::Json)
    }
}

/// An issuer's description of itself.
#[derive(Deserialize)]
struct Description {
    issuer: String,
    jwks_uri: String,
}

/// The issuer's keys, each parsed separately so that one of an unknown kind does not hide the
/// others.
#[derive(Deserialize)]
struct Set {
    keys: Vec<Value>,
}

/// Parses a key for verifying signatures.
fn public_key(json: Value) -> Option<PublicKey> {
    let jwk: Jwk = serde_json::from_value(json).ok()?;
    let is_for_signing = match &jwk.common.public_key_use {
        None | Some(PublicKeyUse::Signature) => true,
        Some(_) => false,
    };
    if !is_for_signing {
        return None;
    }
    let algorithm = match jwk.common.key_algorithm {
        None => None,
        Some(KeyAlgorithm::UNKNOWN_ALGORITHM) => return None,
        Some(named) => Some(Algorithm::try_from(named).ok()?),
    };
    let key = DecodingKey::from_jwk(&jwk).ok()?;
    // A shared secret that is published is not a secret.
    if key.family() == Algorithm::HS256.family() {
        return None;
    }
    Some(PublicKey {
        kid: jwk.common.key_id,
        algorithm,
        key: Arc::new(key),
    })
}

/// Why keys could not be read.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("the issuer cannot be reached")]
    Http(#[from] reqwest::Error),
    #[error("it did not answer in time")]
    Late,
    #[error("it answered {0}")]
    Status(u16),
    #[error("its answer is too long")]
    TooLong,
    #[error("its answer cannot be read")]
    Json(#[source] serde_json::Error),
    #[error("its discovery document names another issuer")]
    Other,
    #[error("its keys are at an address that is not https")]
    Insecure,
    #[error("it has no usable verification key")]
    Empty,
}
