//! Signatures as in Standard Webhooks: HMAC-SHA256 over `id.timestamp.body`.
//!
//! No request is signed with a configured secret itself. Each kind of request, each recipient and
//! each tenant has its own key, derived from the secret: what one recipient is sent proves nothing
//! to another, and what a tenant has the platform say is never taken for what the platform says on
//! its own.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hkdf::Hkdf;
use hmac::{Hmac, Mac};
use mainspring_shared::id::TenantId;
use mainspring_shared::time::Timestamp;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use sha2::Sha256;

use super::SetupError;
use mainspring_worker::llm::Secret;

/// The prefix of a secret in the form of the standard.
const PREFIX: &str = "whsec_";

const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// The salt of every derived key.
const SALT: &[u8] = b"mainspring";

/// The form of the derivation, so that another one can follow.
const FORM: &str = "v1";

/// Bytes of a derived key.
const KEY_BYTES: usize = 32;

/// What a request asks its recipient for. Only the worker says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A call of a tool that an agent declares, or a fold by its service.
    Tool,
    /// A question to a memory provider that the operator configured.
    Memory,
    /// A question to a policy that the operator configured.
    Policy,
    /// Something that happened, told to an observer that the operator configured.
    Event,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Tool, Self::Memory, Self::Policy, Self::Event];

    /// Its name in requests, and in what its keys are derived from.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Memory => "memory",
            Self::Policy => "policy",
            Self::Event => "event",
        }
    }

    /// Whether the recipient's URL is an agent's author's choice, not the operator's.
    const fn is_declared(self) -> bool {
        match self {
            Self::Tool => true,
            Self::Memory | Self::Policy | Self::Event => false,
        }
    }
}

/// The configured secrets, from which the keys are derived.
#[derive(Clone, Default)]
pub(super) struct Secrets(Vec<Vec<u8>>);

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.0.len())
    }
}

impl Secrets {
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

    /// The keys for requests of this kind to this recipient: of one tenant, or of all if `None`.
    pub(super) fn keys(&self, kind: Kind, url: &Url, tenant: Option<TenantId>) -> Keys {
        let recipient = origin(url);
        let tenant = tenant.map_or_else(|| "*".to_owned(), |tenant| tenant.to_string());
        let info = format!("{FORM} {} {recipient} {tenant}", kind.as_str());
        let derived = self.0.iter().map(|secret| {
            let mut key = vec![0; KEY_BYTES];
            Hkdf::<Sha256>::new(Some(SALT), secret)
                .expand(info.as_bytes(), &mut key)
                .expect("HKDF gives far more bytes than that");
            key
        });
        Keys(derived.collect())
    }
}

/// The recipient that a key is for: scheme, host and port.
pub(super) fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// What requests are signed with.
#[derive(Debug, Clone)]
pub(super) enum Signer {
    /// Keys are derived from secrets.
    Deriving {
        secrets: Secrets,
        /// Hosts of declared tools that are the operator's own; all if empty.
        hosts: Vec<String>,
    },
    /// The keys of one tenant's declared tools, by recipient.
    Given(BTreeMap<String, Keys>),
}

impl Signer {
    /// The keys that sign a request: the tenant's own, and, for a recipient that the operator
    /// named, those that are the same for all tenants. Nothing signs for a host that is not listed.
    pub(super) fn keys(&self, kind: Kind, url: &Url, tenant: TenantId) -> Keys {
        match self {
            Self::Given(keys) => match kind {
                Kind::Tool => keys.get(&origin(url)).cloned().unwrap_or_default(),
                Kind::Memory | Kind::Policy | Kind::Event => Keys::default(),
            },
            Self::Deriving { secrets, hosts } => {
                let host = url.host_str().unwrap_or_default();
                let mut listed = hosts.iter();
                let is_named = !kind.is_declared() || listed.any(|l| l.eq_ignore_ascii_case(host));
                if !is_named && !hosts.is_empty() {
                    return Keys::default();
                }
                let mut keys = secrets.keys(kind, url, Some(tenant));
                if is_named {
                    keys.0.extend(secrets.keys(kind, url, None).0);
                }
                keys
            }
        }
    }
}

/// The keys that a request is signed with.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Keys(Vec<Vec<u8>>);

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({})", self.0.len())
    }
}

impl Keys {
    /// The keys in the form that libraries for Standard Webhooks take.
    pub(crate) fn reveal(&self) -> Vec<String> {
        let keys = self.0.iter();
        keys.map(|key| format!("{PREFIX}{}", STANDARD.encode(key)))
            .collect()
    }

    /// Keys as [`Self::reveal`] gives them; others are left out.
    pub(crate) fn of_revealed<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let keys = texts.into_iter();
        Self(
            keys.filter_map(|text| STANDARD.decode(text.strip_prefix(PREFIX)?).ok())
                .collect(),
        )
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

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn secrets(texts: &[&str]) -> Secrets {
        let secrets: Vec<Secret> = texts.iter().map(Secret::new).collect();
        Secrets::new(&secrets).expect("they are secrets")
    }

    fn signed(texts: &[&str]) -> HeaderMap {
        // As the example of the standard does it, with the secrets themselves.
        Keys(secrets(texts).0).headers(ID_SENT, SENT_AT, BODY)
    }

    fn url(text: &str) -> Url {
        text.parse().expect("a URL")
    }

    fn signatures(headers: &HeaderMap) -> Vec<String> {
        let Some(value) = headers.get(SIGNATURE) else {
            return Vec::new();
        };
        let value = value.to_str().expect("ASCII");
        value.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn every_kind_recipient_and_tenant_has_its_own_key() {
        let secrets = secrets(&[SECRET]);
        let mut seen = std::collections::BTreeSet::new();
        let urls = [
            "https://a.example/x",
            "http://a.example/",
            "https://a.example:8443/",
        ];
        for kind in Kind::ALL {
            for recipient in urls.into_iter().chain(["https://b.example/"]) {
                for tenant in [None, Some(TenantId(1)), Some(TenantId(2))] {
                    let keys = secrets.keys(kind, &url(recipient), tenant);
                    assert!(
                        seen.insert(keys.reveal()),
                        "{kind:?} {recipient} {tenant:?}"
                    );
                }
            }
        }
        // The path is not part of it, and the secret itself is no key.
        let one = |at| secrets.keys(Kind::Tool, &url(at), None);
        assert_eq!(one("https://a.example/x"), one("https://A.example:443/y?z"));
        assert!(!seen.contains(&vec![SECRET.to_owned()]));
    }

    #[test]
    fn a_key_can_be_derived_elsewhere_by_what_the_page_about_signatures_says() {
        // python: HKDF(SHA256, 32, b"mainspring", b"v1 memory https://mem.example *")
        let keys = secrets(&["plain text"]).keys(Kind::Memory, &url("https://mem.example/m"), None);
        assert_eq!(
            keys.reveal(),
            ["whsec_BMt/mI0ihnWAtQN9NiMEqXJF8hP5F1F4FQ6OAFjcmmE="]
        );
    }

    #[test]
    fn what_an_agent_declares_is_never_signed_as_what_the_operator_configured() {
        let deriving = |hosts: &[&str]| Signer::Deriving {
            secrets: secrets(&[SECRET]),
            hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
        };
        let at = url("https://mem.example/memory");
        let (mine, all) = (Some(TenantId(2)), None);
        let of = |kind, tenant| secrets(&[SECRET]).keys(kind, &at, tenant).0;
        let tool = |hosts: &[&str]| deriving(hosts).keys(Kind::Tool, &at, TenantId(2)).0;
        // By default only the tenant's own key signs, a listed host is the operator's.
        assert_eq!(tool(&[]), of(Kind::Tool, mine));
        let both = [of(Kind::Tool, mine), of(Kind::Tool, all)].concat();
        assert_eq!(tool(&["MEM.example"]), both);
        assert!(tool(&["other.example"]).is_empty());
        for kind in [Kind::Memory, Kind::Policy, Kind::Event] {
            let both = [of(kind, mine), of(kind, all)].concat();
            for hosts in [&[][..], &["mem.example"], &["other.example"]] {
                let keys = deriving(hosts).keys(kind, &at, TenantId(2)).0;
                assert_eq!(keys, both, "{kind:?} {hosts:?}");
            }
            let declared = tool(&["mem.example"]);
            assert!(declared.iter().all(|key| !both.contains(key)), "{kind:?}");
        }
    }

    #[test]
    fn a_process_that_was_given_keys_has_those_alone() {
        let at = url("https://tools.example/look");
        let keys = secrets(&[SECRET]).keys(Kind::Tool, &at, Some(TenantId(2)));
        let revealed = keys.reveal();
        let told = Keys::of_revealed(revealed.iter().map(String::as_str));
        let signer = Signer::Given(BTreeMap::from([(origin(&at), told)]));
        assert_eq!(signer.keys(Kind::Tool, &at, TenantId(2)), keys);
        let elsewhere = url("https://tools.example:8443/look");
        assert_eq!(
            signer.keys(Kind::Tool, &elsewhere, TenantId(2)),
            Keys::default()
        );
        assert_eq!(signer.keys(Kind::Memory, &at, TenantId(2)), Keys::default());
    }

    #[test]
    fn the_example_of_the_standard_has_its_signature() {
        let headers = signed(&[SECRET]);
        assert_eq!(headers[ID], ID_SENT);
        assert_eq!(headers[TIMESTAMP], "1614265330");
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(headers[SIGNATURE], expected);
    }

    #[test]
    fn while_a_secret_is_replaced_both_sign() {
        let both = signatures(&signed(&[SECRET, "plain text"]));
        let first = signatures(&signed(&[SECRET]));
        let second = signatures(&signed(&["plain text"]));
        assert_eq!(both, [first.clone(), second.clone()].concat());
        assert_ne!(first, second);
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
            let error = Secrets::new(&secrets).expect_err(wrong);
            assert_eq!(error, SetupError::Secret { place: 2 });
        }
        let hidden = secrets(&["hidden"]);
        assert_eq!(format!("{hidden:?}"), "Secrets(1)");
        let keys = hidden.keys(Kind::Tool, &url("https://a.example/"), None);
        assert_eq!(format!("{keys:?}"), "Keys(1)");
    }
}
