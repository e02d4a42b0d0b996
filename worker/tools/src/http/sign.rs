//! Signatures as in Standard Webhooks: HMAC-SHA256 over `id.timestamp.body`.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use mainspring_shared::time::Timestamp;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use sha2::Sha256;

use super::SetupError;
use mainspring_worker::llm::Secret;

/// The prefix of a secret in the form of the standard.
const PREFIX: &str = "whsec_";

const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// The keys that requests are signed with.
#[derive(Clone, Default)]
pub(super) struct Keys(Vec<Vec<u8>>);

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({})", self.0.len())
    }
}

impl Keys {
    pub(super) fn new(secrets: &[Secret]) -> Result<Self, SetupError> {
        let filled = secrets
            .iter()
            .zip(1..)
            .filter(|(secret, _)| !secret.is_empty());
        let keys = filled.map(|(secret, place)| {
            let secret = secret.expose();
            match secret.strip_prefix(PREFIX) {
                None => Ok(secret.as_bytes().to_vec()),
                Some(encoded) => match STANDARD.decode(encoded) {
                    Ok(key) if !key.is_empty() => Ok(key),
                    _ => Err(SetupError::Secret { place }),
                },
            }
        });
        Ok(Self(keys.collect::<Result<_, _>>()?))
    }

    /// Keys given as raw bytes.
    pub(super) fn of_bytes(keys: impl IntoIterator<Item = Vec<u8>>) -> Self {
        Self(keys.into_iter().collect())
    }

    /// The headers of a request with this id and body, sent at `now`. `id` is printable ASCII.
    pub(super) fn headers(&self, id: &str, now: Timestamp, body: &[u8]) -> HeaderMap {
        let timestamp = now.0.div_euclid(1000).to_string();
        let mut headers = HeaderMap::new();
        let mut insert = |name, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        };
        insert(ID, id);
        insert(TIMESTAMP, &timestamp);
        let each = self
            .0
            .iter()
            .map(|key| signature(key, id, &timestamp, body));
        let all: Vec<String> = each.collect();
        if !all.is_empty() {
            insert(SIGNATURE, &all.join(" "));
        }
        headers
    }
}

fn signature(key: &[u8], id: &str, timestamp: &str, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
        mac.update(part);
    }
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID_SENT: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const SENT_AT: Timestamp = Timestamp(1_614_265_330_999);

    fn signed(secrets: &[&str]) -> HeaderMap {
        let secrets: Vec<Secret> = secrets.iter().map(Secret::new).collect();
        let keys = Keys::new(&secrets).expect("they are secrets");
        keys.headers(ID_SENT, SENT_AT, BODY)
    }

    #[test]
    fn the_example_of_the_standard_has_its_signature() {
        let headers = signed(&["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]);
        assert_eq!(headers[ID], ID_SENT);
        assert_eq!(headers[TIMESTAMP], "1614265330");
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(headers[SIGNATURE], expected);
    }

    #[test]
    fn while_a_secret_is_replaced_both_sign() {
        let both = signed(&["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "plain text"]);
        let (first, second) = (
            signed(&["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]),
            signed(&["plain text"]),
        );
        let text = |headers: &HeaderMap| headers[SIGNATURE].to_str().expect("ASCII").to_owned();
        assert_eq!(text(&both), format!("{} {}", text(&first), text(&second)));
        assert_ne!(text(&first), text(&second));
    }

    #[test]
    fn without_a_secret_there_is_an_id_and_no_signature() {
        let headers = signed(&["", "  "]);
        assert_eq!(headers[ID], ID_SENT);
        assert!(!headers.contains_key(SIGNATURE));
    }

    #[test]
    fn a_secret_that_is_not_base64_is_named_by_its_place_and_not_shown() {
        for wrong in ["whsec_", "whsec_not base64!"] {
            let secrets = [Secret::new("fine"), Secret::new(wrong)];
            let error = Keys::new(&secrets).expect_err(wrong);
            assert_eq!(error, SetupError::Secret { place: 2 });
        }
        let keys = Keys::new(&[Secret::new("hidden")]).expect("a secret");
        assert_eq!(format!("{keys:?}"), "Keys(1)");
    }
}
