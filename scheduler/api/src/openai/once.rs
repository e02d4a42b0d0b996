//! Makes repeats harmless for clients that send no idempotency key.
//!
//! OpenAI's clients repeat a request by themselves after a timeout, a lost connection or an answer that allows it, and
//! mark it with `x-stainless-retry-count`. They send no key, so one is derived from what they do send: the caller, the
//! route and the body, with a number that counts equal requests. A request that is not marked as a repeat takes the
//! next number, since the same words may well be said twice. One that is takes the last number of the last half hour,
//! and so gets the send that was accepted then; if there is none, the first attempt never arrived.
//!
//! What can go wrong: two equal requests of one key are in flight at once and the earlier one is repeated. Then it gets
//! the answer to the other, which was asked the same.

use axum::http::HeaderMap;
use mainspring_scheduler::error::Error;
use mainspring_shared::error::Code;
use mainspring_shared::store::{AcceptSend, IdempotencyKey};

use super::ids::ResponseId;
use super::turn::accept;
use crate::access::Caller;
use crate::idempotency;
use crate::router::Api;

/// How long numbers are counted before they begin again, and in how many such times a repeat looks.
const BUCKET_MS: i64 = 600_000;
const BUCKETS: i64 = 4;

/// How often a number is tried that others take at the same moment.
const TRIES: u64 = 64;

const ROUTE: &str = "POST openai";

/// How often a request takes effect.
#[derive(Debug)]
pub(super) enum Once {
    /// Once per key that the client sent.
    Key(IdempotencyKey),
    /// Once per request, of which there may be repeats.
    Attempt {
        /// What repeats have in common.
        digest: String,
        body_hash: [u8; 32],
        /// Whether it is a repeat.
        again: bool,
    },
}

impl Once {
    pub(super) fn of(
        caller: &Caller,
        headers: &HeaderMap,
        path: &str,
        body: &[u8],
    ) -> Result<Self, Error> {
        let body_hash = idempotency::body_hash(body)?;
        if let Some(key) = idempotency::header(headers)? {
            return Ok(Self::Key(idempotency::key(
                caller,
                &format!("{ROUTE} {path}"),
                key,
                body_hash,
            )));
        }
        let hash = body_hash.map(|byte| format!("{byte:02x}")).concat();
        Ok(Self::Attempt {
            digest: format!("{}:{hash}", caller.name()),
            body_hash,
            again: is_repeat(headers),
        })
    }

    fn key(
        caller: &Caller,
        digest: &str,
        body_hash: [u8; 32],
        (bucket, n): (i64, u64),
    ) -> IdempotencyKey {
        let text = format!("{bucket}:{n}:{digest}");
        // Names of callers may be long.
        let text = super::given::hex(text.as_bytes());
        idempotency::key(caller, ROUTE, &text, body_hash)
    }

    /// Whether it is a repeat of a request that was accepted.
    pub(super) async fn is_known(&self, app: &Api, caller: &Caller) -> Result<bool, Error> {
        match self {
            Self::Key(key) => Ok(app.store.keyed_resource(key.clone()).await?.is_some()),
            Self::Attempt { again: false, .. } => Ok(false),
            Self::Attempt {
                digest, body_hash, ..
            } => Ok(last(app, caller, digest, *body_hash).await?.is_some()),
        }
    }

    /// Accepts a send, or finds the one that an earlier attempt led to.
    pub(super) async fn accept(
        &self,
        app: &Api,
        caller: &Caller,
        item: AcceptSend,
    ) -> Result<ResponseId, Error> {
        let (digest, body_hash, again) = match self {
            Self::Key(key) => {
                let item = AcceptSend {
                    idempotency: Some(key.clone()),
                    ..item
                };
                return Ok(accept(app, caller, item).await?.0);
            }
            Self::Attempt {
                digest,
                body_hash,
                again,
            } => (digest, *body_hash, *again),
        };
        if again && let Some(key) = last(app, caller, digest, body_hash).await? {
            let item = AcceptSend {
                idempotency: Some(key),
                ..item
            };
            return Ok(accept(app, caller, item).await?.0);
        }
        let bucket = bucket(app).await;
        let first = taken(app, |n| Self::key(caller, digest, body_hash, (bucket, n))).await?;
        for n in first..first + TRIES {
            let key = Self::key(caller, digest, body_hash, (bucket, n));
            let item = AcceptSend {
                idempotency: Some(key),
                ..item.clone()
            };
            if let (id, false) = accept(app, caller, item).await? {
                return Ok(id);
            }
        }
        Err(Error::new(
            Code::LimitExceeded,
            "too many equal requests at the same moment",
        ))
    }
}

/// Whether a client says that it repeats a request.
pub(super) fn is_repeat(headers: &HeaderMap) -> bool {
    let count = headers.get("x-stainless-retry-count");
    let count = count.and_then(|value| value.to_str().ok()?.parse::<u32>().ok());
    count.is_some_and(|count| count > 0)
}

async fn bucket(app: &Api) -> i64 {
    app.database_time().await.0 / BUCKET_MS
}

/// The last key that was taken in the last half hour.
async fn last(
    app: &Api,
    caller: &Caller,
    digest: &str,
    body_hash: [u8; 32],
) -> Result<Option<IdempotencyKey>, Error> {
    let now = bucket(app).await;
    for bucket in (now - BUCKETS + 1..=now).rev() {
        let key = |n| Once::key(caller, digest, body_hash, (bucket, n));
        if let Some(n) = taken(app, key).await?.checked_sub(1) {
            return Ok(Some(key(n)));
        }
    }
    Ok(None)
}

/// How many keys are taken. They are taken in order, so few have to be asked for.
async fn taken(app: &Api, key: impl Fn(u64) -> IdempotencyKey) -> Result<u64, Error> {
    let is_taken = async |n| {
        app.store
            .keyed_resource(key(n))
            .await
            .map(|found| found.is_some())
    };
    if !is_taken(0).await? {
        return Ok(0);
    }
    let (mut known, mut free) = (0_u64, 1_u64);
    while is_taken(free).await? {
        (known, free) = (free, free * 2);
    }
    while free - known > 1 {
        let between = known.midpoint(free);
        if is_taken(between).await? {
            known = between;
        } else {
            free = between;
        }
    }
    Ok(free)
}
