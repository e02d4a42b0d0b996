//! Idempotency keys, which make repeated requests harmless.

use axum::http::HeaderMap;
use mainspring_scheduler::error::Error;
use mainspring_shared::json::Sorted;
use mainspring_shared::store::IdempotencyKey;
use serde_json::Value;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::extract::{BLOCKING_MIN_BYTES, parse, run_blocking_if};
use crate::access::Caller;

/// Maximum number of characters of a key.
const KEY_MAX: usize = 255;

/// The error for an invalid key.
const EXPECTED: &str = "an idempotency key has 1 to 255 visible ASCII characters";

/// Whether a key has a valid form.
pub(super) fn is_key(text: &str) -> bool {
    (1..=KEY_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
}

/// The `Idempotency-Key` header.
pub(super) fn header(headers: &HeaderMap) -> Result<Option<&str>, Error> {
    let mut given = headers.get_all("idempotency-key").iter();
    let Some(value) = given.next() else {
        return Ok(None);
    };
    if given.next().is_some() {
        let detail = "the header Idempotency-Key must be given only once";
        return Err(Error::invalid("#idempotency-key", detail));
    }
    let text = value.to_str().ok().filter(|text| is_key(text));
    text.map(Some)
        .ok_or_else(|| Error::invalid("#idempotency-key", EXPECTED))
}

/// Checks a key in a body.
pub(super) fn check(text: &str, pointer: &str) -> Result<(), Error> {
    if is_key(text) {
        Ok(())
    } else {
        Err(Error::invalid(pointer, EXPECTED))
    }
}

/// The idempotency key of a caller's request with this body.
pub(super) fn key(caller: &Caller, route: &str, key: &str, body_hash: [u8; 32]) -> IdempotencyKey {
    IdempotencyKey {
        tenant: caller.tenant,
        route: caller.route(route),
        key: key.to_owned(),
        body_hash,
    }
}

/// A name for what a request with this key creates: the same for every repetition.
pub(super) fn digest(key: &IdempotencyKey) -> Uuid {
    let mut hash = Sha256::new();
    for part in [&key.route, "\n", &key.key] {
        hash.update(part.as_bytes());
    }
    let digest = hash.finalize();
    let half: [u8; 16] = std::array::from_fn(|n| digest[n]);
    Uuid::from_bytes(half)
}

/// The idempotency key of a request, if it has the header.
pub(super) fn of_request(
    caller: &Caller,
    headers: &HeaderMap,
    route: &str,
    body: &[u8],
) -> Result<Option<IdempotencyKey>, Error> {
    let Some(text) = header(headers)? else {
        return Ok(None);
    };
    Ok(Some(key(caller, route, text, body_hash(body)?)))
}

/// SHA-256 of the body's canonical JSON: members sorted, no whitespace.
pub(super) fn body_hash(body: &[u8]) -> Result<[u8; 32], Error> {
    let body = body.trim_ascii();
    run_blocking_if(body.len() > BLOCKING_MIN_BYTES, || {
        let value: Value = if body.is_empty() {
            Value::Null
        } else {
            parse(body, "")?
        };
        let canonical = serde_json::to_vec(&Sorted(&value)).map_err(|_| Error::internal())?;
        Ok(Sha256::digest(canonical).into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_ignores_blanks_and_order_and_nothing_else() {
        let hash = |body: &str| body_hash(body.as_bytes()).expect("parses");
        let one = hash(r#"{"a":1,"b":{"c":[1,2],"d":"x"}}"#);
        assert_eq!(one, hash(r#" { "b": {"d":"x", "c":[1, 2]}, "a": 1 } "#));
        assert_eq!(one, hash(r#"{"a":1,"b":{"c":[1,2],"d":"\u0078"}}"#));
        assert_ne!(one, hash(r#"{"a":1,"b":{"c":[2,1],"d":"x"}}"#));
        assert_ne!(one, hash(r#"{"a":1,"b":{"c":[1,2],"d":"X"}}"#));
    }

    #[test]
    fn keys_are_visible_ascii() {
        for good in ["a", "order-42", "!~", &"k".repeat(255)] {
            assert!(is_key(good), "{good}");
        }
        for bad in ["", "a b", "a\tb", "ä", &"k".repeat(256)] {
            assert!(!is_key(bad), "{bad}");
        }
    }
}
