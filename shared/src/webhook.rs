//! Webhooks: external endpoints that receive events, following the Standard Webhooks specification.
//!
//! An event belongs to a committed step and its id is derived from that step, so deriving it again
//! gives the same id.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::id::{RunId, SendId, TenantId, TimerId, WebhookEventId, WebhookId};
use crate::named::named;
use crate::time::Timestamp;

/// The prefix of a secret, before its base64.
pub const SECRET_PREFIX: &str = "whsec_";

/// Allowed length of a secret, in bytes.
pub const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// Maximum length of an endpoint's URL, in characters.
pub const URL_CHARS_MAX: usize = 2_000;

/// Maximum number of filters of an endpoint.
pub const FILTERS_MAX: usize = 20;

/// The waits between attempts, in seconds: short ones at first to bridge a restart, then
/// increasingly longer ones for a day.
const WAITS: [u64; 10] = [5, 30, 120, 600, 1_800, 3_600, 7_200, 14_400, 21_600, 28_800];

/// Maximum number of attempts of a delivery.
pub const ATTEMPTS_MAX: u32 = WAITS.len() as u32 + 1;

/// The longest wait that an endpoint may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_hours(2);

/// The wait after `failed` failed attempts, plus or minus a fifth by `fraction`, which is drawn
/// from `[0, 1)`; `None` if no attempts are left. An endpoint may ask for a longer wait.
pub fn retry_wait(failed: u32, retry_after: Option<Duration>, fraction: f64) -> Option<Duration> {
    let wait = WAITS.get(failed.saturating_sub(1) as usize)?;
    let wait = Duration::from_secs(*wait).mul_f64(0.8 + 0.4 * fraction.clamp(0.0, 1.0));
    let asked = retry_after.map(|asked| asked.min(RETRY_AFTER_MAX));
    Some(asked.map_or(wait, |asked| asked.max(wait)))
}

named! {
    /// What endpoints are told of.
    EventType {
        /// A send completed.
        SendCompleted = "send.completed",
        /// A send failed.
        SendFailed = "send.failed",
        /// A send was cancelled.
        SendCancelled = "send.cancelled",
        /// A send waits for someone: a person, an external tool, or a decision about its recovery.
        SendWaiting = "send.waiting",
        /// A run completed.
        RunCompleted = "run.completed",
        /// A run failed.
        RunFailed = "run.failed",
        /// A run was cancelled.
        RunCancelled = "run.cancelled",
        /// A timer gave an occurrence up, and fires no more until it is resumed.
        TimerDead = "timer.dead",
    }
}

named! {
    /// The status of a delivery.
    DeliveryStatus {
        /// It is being attempted or will be.
        Pending = "pending",
        /// The endpoint accepted it.
        Delivered = "delivered",
        /// No attempt is left; it can be delivered again on request.
        Dead = "dead",
    }
}

/// An event filter of an endpoint: one type, all with a prefix (`send.*`), or all (`*`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Filter(String);

/// A text that is not a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not an event type like send.completed, a prefix like send.*, or *")]
pub struct ParseFilterError;

impl Filter {
    /// Whether it matches events of this type.
    pub fn matches(&self, event_type: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(prefix) => event_type.starts_with(prefix),
            None => self.0 == event_type,
        }
    }

    /// The filter as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A stored filter, without validation: a type that this release does not know matches events
    /// of that name.
    pub fn stored(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl std::str::FromStr for Filter {
    type Err = ParseFilterError;

    fn from_str(text: &str) -> Result<Self, ParseFilterError> {
        let known = |filter: &Self| {
            let mut types = EventType::ALL.iter();
            types.any(|of| filter.matches(of.as_str()))
        };
        let is_prefix = text == "*" || text.ends_with(".*") || !text.contains('*');
        let filter = Self(text.to_owned());
        (is_prefix && known(&filter))
            .then_some(filter)
            .ok_or(ParseFilterError)
    }
}

impl Serialize for Filter {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Filter {
    /// Reads a stored filter, see [`Filter::stored`].
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self)
    }
}

/// Why an endpoint is disabled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disabled {
    /// When it was disabled.
    pub at: Timestamp,
    /// The reason, for people.
    pub reason: String,
}

/// An endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookRecord {
    /// The owner.
    pub tenant: TenantId,
    /// Its id.
    pub id: WebhookId,
    /// Where deliveries go.
    pub url: String,
    /// Its event filters.
    pub events: Vec<Filter>,
    /// Its secret, sealed under the operator's key.
    pub secret: String,
    /// Until when the secret before the last rotation also signs, and that secret, sealed.
    pub previous: Option<(Timestamp, String)>,
    /// Set while it is disabled.
    pub disabled: Option<Disabled>,
    /// When it was created.
    pub created_at: Timestamp,
}

impl WebhookRecord {
    /// Whether it receives events of this type.
    pub fn wants(&self, event_type: &str) -> bool {
        let mut filters = self.events.iter();
        self.disabled.is_none() && filters.any(|filter| filter.matches(event_type))
    }

    /// The sealed secrets that sign at this time, the current one first.
    pub fn signing(&self, now: Timestamp) -> impl Iterator<Item = &str> {
        let before = self.previous.as_ref().filter(|(until, _)| now < *until);
        let before = before.map(|(_, secret)| secret.as_str());
        std::iter::once(self.secret.as_str()).chain(before)
    }
}

/// The context that a sealed secret is bound to: it cannot be opened for another endpoint.
pub fn seal_context(tenant: TenantId, id: WebhookId) -> String {
    format!("webhook:{tenant}:{id}")
}

/// The delivery of one event to one endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryRecord {
    /// The owner.
    pub tenant: TenantId,
    /// The endpoint.
    pub webhook: WebhookId,
    /// The event.
    pub event: WebhookEventId,
    /// Its type.
    pub event_type: String,
    /// The send, run or timer that it is about.
    pub resource: Uuid,
    /// When it happened.
    pub event_at: Timestamp,
    /// Its status.
    pub status: DeliveryStatus,
    /// Attempts so far; the last one's number fences the settlement.
    pub attempts: u32,
    /// Attempts since a redelivery was last requested.
    pub tried: u32,
    /// When the next attempt is due; `None` once it is settled.
    pub due_at: Option<Timestamp>,
    /// The HTTP status of the last response.
    pub answer: Option<u16>,
    /// The last error.
    pub error: Option<String>,
    /// When it was settled.
    pub settled_at: Option<Timestamp>,
}

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// A send.
    Send(SendId),
    /// A run.
    Run(RunId),
    /// A timer.
    Timer(TimerId),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Send(id) => id.fmt(f),
            Self::Run(id) => id.fmt(f),
            Self::Timer(id) => id.fmt(f),
        }
    }
}

impl DeliveryRecord {
    /// What its event is about.
    pub fn subject(&self) -> Subject {
        match self.event_type.split('.').next() {
            Some("run") => Subject::Run(RunId(self.resource)),
            Some("timer") => Subject::Timer(TimerId(self.resource)),
            _ => Subject::Send(SendId(self.resource)),
        }
    }
}

/// The id of the event of step `n` of `source`, a session, a run or a timer, committed at `at`. Later events
/// have greater ids, at millisecond resolution.
pub fn event_id(tenant: TenantId, source: Uuid, n: i64, at: Timestamp) -> WebhookEventId {
    let mut hash = Sha256::new();
    hash.update(tenant.0.to_be_bytes());
    hash.update(source.as_bytes());
    hash.update(n.to_be_bytes());
    let digest = hash.finalize();
    let mut bytes = [0; 16];
    bytes[..6].copy_from_slice(&at.0.to_be_bytes()[2..]);
    bytes[6..].copy_from_slice(&digest[..10]);
    // UUID version 8: custom bits.
    bytes[6] = (bytes[6] & 0x0f) | 0x80;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    WebhookEventId(Uuid::from_bytes(bytes))
}

/// A secret of an endpoint, as bytes. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKey(Vec<u8>);

/// A text that is not a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be whsec_ and the base64 of 24 to 64 bytes")]
pub struct ParseSecretError;

impl SigningKey {
    /// A secret from its bytes.
    pub fn new(bytes: Vec<u8>) -> Option<Self> {
        SECRET_BYTES.contains(&bytes.len()).then_some(Self(bytes))
    }

    /// The secret's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The secret in the form given to its owner.
    pub fn reveal(&self) -> String {
        use base64::Engine as _;
        let encoded = base64::engine::general_purpose::STANDARD.encode(&self.0);
        format!("{SECRET_PREFIX}{encoded}")
    }
}

impl std::str::FromStr for SigningKey {
    type Err = ParseSecretError;

    fn from_str(text: &str) -> Result<Self, ParseSecretError> {
        use base64::Engine as _;
        let encoded = text.strip_prefix(SECRET_PREFIX).ok_or(ParseSecretError)?;
        let bytes = base64::engine::general_purpose::STANDARD.decode(encoded);
        let bytes = bytes.map_err(|_| ParseSecretError)?;
        Self::new(bytes).ok_or(ParseSecretError)
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(…)")
    }
}

/// A message to an endpoint.
#[derive(Debug, Clone)]
pub struct Outgoing {
    /// Where it goes.
    pub url: String,
    /// Its id, the same at every attempt.
    pub id: String,
    /// The body.
    pub body: Vec<u8>,
    /// The keys that sign it, each of them.
    pub keys: Vec<SigningKey>,
    /// The trace context of the work that it is about, for the header of this name.
    pub traceparent: Option<String>,
}

/// The outcome of posting a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Posted {
    /// The endpoint answered.
    Answered {
        /// The HTTP status.
        status: u16,
        /// How long it asks us to wait.
        retry_after: Option<Duration>,
    },
    /// It did not answer, or may not be called.
    Failed {
        /// Why, for the endpoint's owner.
        why: String,
    },
}

/// Posts messages. It contacts only permitted addresses, follows no redirects, and has its own time limit.
#[async_trait]
pub trait Poster: Send + Sync + fmt::Debug {
    /// Checks whether messages may go to this URL, as far as that is known without a lookup.
    fn check(&self, url: &str) -> Result<(), String>;

    /// Posts a message once.
    async fn post(&self, message: Outgoing) -> Posted;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(text: &str) -> Filter {
        text.parse().expect("a filter")
    }

    #[test]
    fn a_filter_is_a_type_or_a_prefix_of_types() {
        assert!(filter("send.completed").matches("send.completed"));
        assert!(!filter("send.completed").matches("send.completed2"));
        assert!(filter("run.*").matches("run.failed"));
        assert!(!filter("run.*").matches("send.failed"));
        assert!(filter("*").matches("send.waiting"));
    }

    #[test]
    fn what_no_event_can_have_is_no_filter() {
        for text in [
            "",
            "send",
            "send.",
            "sends.*",
            "*.completed",
            "send.c*",
            "send.**",
            "Send.*",
        ] {
            assert_eq!(text.parse::<Filter>(), Err(ParseFilterError), "{text}");
        }
    }

    #[test]
    fn the_id_of_an_event_follows_from_its_step_and_grows_with_time() {
        let source = Uuid::from_u128(7);
        let of = |n, at| event_id(TenantId(1), source, n, Timestamp(at));
        assert_eq!(of(3, 1_000), of(3, 1_000));
        assert_ne!(of(3, 1_000), of(4, 1_000));
        assert!(of(9, 1_000) < of(1, 1_001));
        assert_ne!(
            of(3, 1_000),
            event_id(TenantId(2), source, 3, Timestamp(1_000))
        );
        assert_eq!(of(3, 1_000).0.get_version_num(), 8);
    }

    #[test]
    fn a_secret_has_24_to_64_bytes_and_is_not_printed() {
        let key = SigningKey::new(vec![7; 24]).expect("a secret");
        assert_eq!(key.reveal().parse(), Ok(key.clone()));
        assert_eq!(format!("{key:?}"), "SigningKey(…)");
        assert!(SigningKey::new(vec![7; 23]).is_none() && SigningKey::new(vec![7; 65]).is_none());
        for text in [
            "",
            "whsec_",
            "whsec_!!!!",
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        ] {
            assert_eq!(text.parse::<SigningKey>(), Err(ParseSecretError), "{text}");
        }
    }

    #[test]
    fn the_attempts_at_a_delivery_take_about_a_day() {
        let waits = |fraction: f64| (1..).map_while(move |n| retry_wait(n, None, fraction));
        let hours = |fraction| waits(fraction).sum::<Duration>().as_secs() / 3_600;
        assert_eq!(waits(0.5).count() as u32, ATTEMPTS_MAX - 1);
        assert_eq!((hours(0.0), hours(0.5), hours(1.0)), (17, 21, 26));
    }

    #[test]
    fn an_endpoint_that_asks_for_a_longer_wait_gets_it_within_bounds() {
        let wait = |asked| retry_wait(1, Some(Duration::from_secs(asked)), 0.5);
        assert_eq!(wait(1), Some(Duration::from_secs(5)));
        assert_eq!(wait(60), Some(Duration::from_mins(1)));
        assert_eq!(wait(1 << 40), Some(Duration::from_hours(2)));
    }
}
