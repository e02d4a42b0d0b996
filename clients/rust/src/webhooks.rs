//! Webhooks: whether a message is from the server, and what it says. By the Standard Webhooks specification.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac as _};
use serde::Deserialize;
use serde_json::Value;
use sha2::Sha256;

use crate::clock;

/// How old a message may be, and how far from the future: machines' clocks differ.
const TOLERANCE: Duration = Duration::from_mins(5);

/// Why a message is not to be believed: answer 400 and forget it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Forged {
    /// It has no signature, or what belongs to one is missing.
    #[error("the message is not signed")]
    Unsigned,
    /// It is more than five minutes old, or from the future.
    #[error("the message is too old, or from the future")]
    Time,
    /// No signature is of one of these secrets.
    #[error("no signature is of these secrets")]
    Signature,
    /// It is signed, and not a message that this release knows.
    #[error("the message is not one of a webhook")]
    Body,
}

/// A message. It may come more than once, with the same `id`.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct WebhookEvent {
    /// The message's id.
    pub id: String,
    /// What happened: `send.completed`, for instance.
    pub event: String,
    /// When it happened, as RFC 3339 has it.
    pub timestamp: String,
    /// A [`SendView`](crate::types::SendView) for `send.…`, a [`RunView`](crate::types::RunView) for `run.…`, a
    /// [`TimerView`](crate::types::TimerView) for `timer.…`.
    pub data: Value,
}

impl WebhookEvent {
    /// The data as one of the types that it is said to be.
    pub fn read<T: serde::de::DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_value(self.data.clone())
    }
}

#[derive(Deserialize)]
struct Said {
    r#type: String,
    timestamp: String,
    data: Value,
}

/// The message with this body, if it was signed with one of the secrets. While one is rotated there are two.
///
/// `header` gives a header by its name in lower case. `body` is what was received, to the byte.
pub fn verify<'a>(
    body: &[u8],
    header: impl Fn(&str) -> Option<&'a str>,
    secrets: &[&str],
) -> Result<WebhookEvent, Forged> {
    verify_at(body, header, secrets, clock::wall())
}

fn verify_at<'a>(
    body: &[u8],
    header: impl Fn(&str) -> Option<&'a str>,
    secrets: &[&str],
    now: SystemTime,
) -> Result<WebhookEvent, Forged> {
    let given = |name| header(name).ok_or(Forged::Unsigned);
    let (id, sent) = (given("webhook-id")?, given("webhook-timestamp")?);
    let signatures = given("webhook-signature")?;
    let seconds: u64 = sent.parse().map_err(|_| Forged::Unsigned)?;
    let sent_at = SystemTime::UNIX_EPOCH
        .checked_add(Duration::from_secs(seconds))
        .ok_or(Forged::Time)?;
    let apart = now
        .duration_since(sent_at)
        .unwrap_or_else(|future| future.duration());
    if apart > TOLERANCE {
        return Err(Forged::Time);
    }
    let fits = |secret: &&str| {
        let mut mac = mac(secret)?;
        mac.update(format!("{id}.{sent}.").as_bytes());
        mac.update(body);
        let given = signatures
            .split_ascii_whitespace()
            .filter_map(|one| one.strip_prefix("v1,"));
        let mut given = given.filter_map(|one| STANDARD.decode(one).ok());
        given
            .any(|one| mac.clone().verify_slice(&one).is_ok())
            .then_some(())
    };
    secrets.iter().find_map(fits).ok_or(Forged::Signature)?;
    let said: Said = serde_json::from_slice(body).map_err(|_| Forged::Body)?;
    Ok(WebhookEvent {
        id: id.to_owned(),
        event: said.r#type,
        timestamp: said.timestamp,
        data: said.data,
    })
}

fn mac(secret: &str) -> Option<Hmac<Sha256>> {
    let key = STANDARD
        .decode(secret.strip_prefix("whsec_").unwrap_or(secret))
        .ok()?;
    Hmac::new_from_slice(&key).ok()
}

#[cfg(test)]
mod tests {
    use standardwebhooks::Webhook;

    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const OTHER: &str = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    const BODY: &[u8] =
        br#"{"type":"send.completed","timestamp":"2026-01-01T00:00:00Z","data":{"id":"snd_1"}}"#;

    fn verified(
        body: &[u8],
        at: i64,
        signature: &str,
        secrets: &[&str],
    ) -> Result<WebhookEvent, Forged> {
        let sent = at.to_string();
        let header = |name: &str| match name {
            "webhook-id" => Some("msg_1"),
            "webhook-timestamp" => Some(sent.as_str()),
            "webhook-signature" => Some(signature),
            _ => None,
        };
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        verify_at(body, header, secrets, now)
    }

    #[test]
    fn what_the_standards_own_library_signs_is_believed_and_nothing_else() {
        let webhook = Webhook::new(SECRET).expect("a secret");
        let signed = |at| webhook.sign("msg_1", at, BODY).expect("signed");
        let good = signed(1_000_000);
        let event = verified(BODY, 1_000_000, &good, &[OTHER, SECRET]).expect("it is signed");
        assert_eq!(
            (event.id.as_str(), event.event.as_str()),
            ("msg_1", "send.completed")
        );
        let two = format!("v1,bm8= v2,x {good}");
        assert!(verified(BODY, 1_000_000, &two, &[SECRET]).is_ok());
        assert_eq!(
            verified(BODY, 1_000_000, &good, &[OTHER]),
            Err(Forged::Signature)
        );
        assert_eq!(
            verified(b"{}", 1_000_000, &good, &[SECRET]),
            Err(Forged::Signature)
        );
        assert_eq!(
            verified(BODY, 1_000_001, &good, &[SECRET]),
            Err(Forged::Signature)
        );
        for late in [999_600, 1_000_400] {
            assert_eq!(
                verified(BODY, late, &signed(late), &[SECRET]),
                Err(Forged::Time)
            );
        }
        assert_eq!(
            verify_at(BODY, |_| None, &[SECRET], SystemTime::UNIX_EPOCH),
            Err(Forged::Unsigned)
        );
    }
}
