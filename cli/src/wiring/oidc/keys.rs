//! The public keys of an issuer, read over HTTPS and kept.
//!
//! A key that was read within the last minutes is used at once, whatever the issuer does, and read again behind that
//! before it is old. One that nobody asked for since is read again first, so that a key that was withdrawn is not
//! believed for long; it is used all the same while its issuer is away. For a token with a key that is not known, keys
//! are read too. None of this happens more often than every few seconds: whoever invents names of keys does not make
//! requests.

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

/// Keys are read again when they are this old.
const FRESH: Duration = Duration::from_mins(10);

/// Nothing is believed of keys that are this old unless their issuer cannot be asked: nobody wanted them for a while.
const OLD: Duration = Duration::from_mins(20);

/// Keys are used for so long while their issuer cannot be reached.
const USED_MAX: Duration = Duration::from_hours(24);

/// The shortest time between two attempts to read keys.
const PAUSE: Duration = Duration::from_secs(10);

/// How long keys may take, with the description that says where they are: a request waits for them.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// Bytes of an answer; keys take a few thousand.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Keys of an issuer; more are left out.
const KEYS_MAX: usize = 100;

/// Where an issuer publishes its keys.
#[derive(Debug, Clone)]
pub(super) struct Source {
    issuer: String,
    /// Where the description of the issuer is; the keys where the configuration says so.
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

/// Whether what is read from an address is what its owner wrote.
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

/// A key, and what it is for.
#[derive(Clone)]
struct PublicKey {
    kid: Option<String>,
    algorithm: Option<Algorithm>,
    key: Arc<DecodingKey>,
}

/// What is known of an issuer's keys. Times are of the monotonic clock.
#[derive(Default)]
struct Known {
    keys: Vec<PublicKey>,
    /// When they were read.
    read: Option<Duration>,
    /// When someone last set out to read them.
    tried: Option<Duration>,
}

/// The outcome of a look for a key.
pub(super) enum Found {
    /// The key.
    Key(Arc<DecodingKey>),
    /// The issuer has no such key.
    Unknown,
    /// It may have one, but cannot be asked.
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
    /// Held by whoever reads the keys; those who need them meanwhile wait for it.
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
        // Redirects could lead to an address that is not secure.
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

    /// The key with this name for this algorithm; one without a name where the token has none and there is just one
    /// that fits.
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
        // Without a name, one of several would be a guess.
        let is_only = kid.is_some() || fitting.next().is_none();
        is_only.then(|| first.key.clone())
    }

    /// For how long the keys are known.
    fn age(&self, now: Duration) -> Duration {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let read = known.read.map(|read| now.saturating_sub(read));
        read.unwrap_or(Duration::MAX)
    }

    /// What it means that a key is not known: that there is none, if the keys were read a moment ago.
    fn without(&self, now: Duration) -> Found {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let is_recent = |at: Duration| now.saturating_sub(at) <= PAUSE + PATIENCE;
        match known.read {
            Some(read) if is_recent(read) => Found::Unknown,
            _ => Found::Away,
        }
    }

    /// Reads the keys, unless that was tried a moment ago. Waits for whoever reads them already. Whether they may be
    /// others now.
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
        // In a task, for the attempt is used up: a client that hangs up must not take it from the others.
        let read = tokio::spawn(async move {
            let _reading = reading;
            inner.read().await
        });
        read.await.unwrap_or(false)
    }

    /// Reads the keys. Whether that went well.
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

    /// Reads the keys again while those that are known are used.
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
        // It ends by itself within seconds, and nobody waits for it.
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
        // One that publishes none signs nothing: more likely something else answered.
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

/// What an issuer says of itself.
#[derive(Deserialize)]
struct Description {
    issuer: String,
    jwks_uri: String,
}

/// Its keys, each read by itself: one of a kind that nobody knows here must not hide the others.
#[derive(Deserialize)]
struct Set {
    keys: Vec<Value>,
}

/// A key that signatures are verified with.
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
    // A shared secret in a public place is none.
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
