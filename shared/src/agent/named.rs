//! Published agents: specs published under a name as numbered, immutable versions, and aliases that
//! point at one of them.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

use super::AgentSpec;
use crate::id::{KeyId, TenantId};
use crate::json::Sorted;
use crate::stored::Extra;
use crate::tenant::{LedgerLimits, Limits, Usd};
use crate::time::Timestamp;

/// Maximum length of a name or an alias, in characters.
const NAME_CHARS_MAX: usize = 64;

/// A text that is not a valid agent name, alias or agent reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameFault {
    /// Not a name.
    #[error(
        "an agent's name has 1 to 64 of the characters a-z, A-Z, 0-9, ., _ and -, and begins with a \
         letter or a digit"
    )]
    Name,
    /// Not an alias.
    #[error(
        "an alias has 1 to 64 of the characters a-z, A-Z, 0-9, ., _ and -, and begins with a letter"
    )]
    Alias,
    /// Not a reference.
    #[error("an agent is named NAME, NAME@VERSION with a version from 1, or NAME@ALIAS")]
    Reference,
}

fn is_name(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    let begins = |b: &u8| b.is_ascii_alphanumeric();
    text.len() <= NAME_CHARS_MAX
        && text.bytes().all(fits)
        && text.as_bytes().first().is_some_and(begins)
}

fn is_alias(text: &str) -> bool {
    is_name(text) && text.as_bytes()[0].is_ascii_alphabetic()
}

macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident, $check:ident, $fault:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = NameFault;

            fn from_str(text: &str) -> Result<Self, NameFault> {
                $check(text).then(|| Self(text.to_owned())).ok_or(NameFault::$fault)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        }
    )*};
}

texts! {
    /// The name of an agent, unique in its tenant.
    AgentName, is_name, Name;
    /// A name for one version of an agent; it can be moved to another version.
    Alias, is_alias, Alias;
}

/// Which version of an agent a reference selects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pick {
    /// The newest version.
    Newest,
    /// The version with this number.
    Version(i32),
    /// The version that this alias points at.
    Alias(Alias),
}

/// A reference to an agent as written: `NAME`, `NAME@3` or `NAME@live`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AgentQuery {
    /// The agent.
    pub name: AgentName,
    /// Its version.
    pub pick: Pick,
}

impl fmt::Display for AgentQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pick {
            Pick::Newest => write!(f, "{}", self.name),
            Pick::Version(n) => write!(f, "{}@{n}", self.name),
            Pick::Alias(alias) => write!(f, "{}@{alias}", self.name),
        }
    }
}

impl FromStr for AgentQuery {
    type Err = NameFault;

    fn from_str(text: &str) -> Result<Self, NameFault> {
        let (name, pick) = match text.split_once('@') {
            None => (text, Pick::Newest),
            Some((name, pick)) => match pick.parse::<i32>() {
                Ok(n) if n > 0 && pick.bytes().all(|b| b.is_ascii_digit()) => {
                    (name, Pick::Version(n))
                }
                Ok(_) | Err(_) => (
                    name,
                    Pick::Alias(pick.parse().map_err(|_| NameFault::Reference)?),
                ),
            },
        };
        let name = name.parse().map_err(|_| NameFault::Reference)?;
        Ok(Self { name, pick })
    }
}

impl AgentQuery {
    /// Whether this entry of a list of allowed agents allows another reference. An entry without a
    /// version allows all versions.
    pub fn covers(&self, other: &Self) -> bool {
        self.name == other.name && (self.pick == Pick::Newest || self.pick == other.pick)
    }
}

impl Serialize for AgentQuery {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for AgentQuery {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

/// A version of an agent that something took.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema,
)]
pub struct AgentRef {
    /// The agent.
    #[schema(value_type = String)]
    pub name: AgentName,
    /// The number of its version.
    pub version: i32,
}

impl fmt::Display for AgentRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.version)
    }
}

/// The key of a published agent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AgentKey {
    /// The owner.
    pub tenant: TenantId,
    /// Its name.
    pub name: AgentName,
}

impl AgentName {
    /// The id under which the places of its open sends and its money account are stored, like those
    /// of an API key. No key has such an id.
    pub fn holder(&self) -> KeyId {
        let digest = Sha256::new().chain_update(b"agent\0").chain_update(&self.0);
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest.finalize()[..16]);
        KeyId(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }
}

/// Limits of a published agent, in any version, in addition to those of its tenant.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AgentLimits {
    /// Maximum unfinished sends of this agent created by requests; unlimited when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sends_open: Option<u32>,
    /// Maximum sends of this agent in flight on all workers together; others wait. Unlimited when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sends_running: Option<u32>,
    /// Tokens, input and output, that its model calls may use per day (UTC); unlimited when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_day: Option<u64>,
    /// The same of a calendar month.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_month: Option<u64>,
    /// US dollars that the model calls that it begins in a minute may cost; others wait. Unlimited when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    pub usd_per_minute: Option<Usd>,
    /// US dollars that its model calls of a day, in UTC, may cost; unlimited when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    pub usd_per_day: Option<Usd>,
    /// The same of a calendar month.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    pub usd_per_month: Option<Usd>,
    /// Fields that this release does not know.
    #[serde(flatten, skip_serializing_if = "Extra::is_empty")]
    #[schema(ignore)]
    pub extra: Extra,
}

impl AgentLimits {
    /// The limits to store; `None` if nothing is limited.
    pub fn stored(&self) -> Option<&Self> {
        (*self != Self::default()).then_some(self)
    }

    /// Its limits of money and tokens, as tenant limits.
    pub fn spending(&self) -> Limits {
        Limits {
            tokens_per_day: self.tokens_per_day,
            tokens_per_month: self.tokens_per_month,
            usd_per_minute: self.usd_per_minute,
            usd_per_day: self.usd_per_day,
            usd_per_month: self.usd_per_month,
            ..Limits::default()
        }
    }

    /// The limits of its account in the ledger; `None` if it has no account.
    pub fn ledger(&self) -> Option<LedgerLimits> {
        LedgerLimits::of(&self.spending())
    }
}

/// A published agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedAgent {
    /// Its key.
    pub key: AgentKey,
    /// The number of its newest version, from 1.
    pub version: i32,
    /// The versions that its aliases point at.
    pub aliases: BTreeMap<Alias, i32>,
    /// When it was first published.
    pub created_at: Timestamp,
    /// When a version was added, an alias or a limit changed, or it was archived or restored.
    pub updated_at: Timestamp,
    /// Its limits.
    pub limits: AgentLimits,
    /// When it was archived, which prevents new use.
    pub archived_at: Option<Timestamp>,
}

/// A version of an agent. It never changes.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentVersion {
    /// The agent.
    pub key: AgentKey,
    /// Its number, from 1.
    pub n: i32,
    /// Its spec.
    pub spec: AgentSpec,
    /// SHA-256 of its spec's canonical JSON, as 64 hex digits.
    pub hash: String,
    /// When it was published.
    pub created_at: Timestamp,
}

impl AgentVersion {
    /// The reference that a session stores when it takes this version.
    pub fn reference(&self) -> AgentRef {
        AgentRef {
            name: self.key.name.clone(),
            version: self.n,
        }
    }
}

impl AgentSpec {
    /// SHA-256 of its JSON with the members of every object sorted, as 64 hex digits.
    pub fn hash(&self) -> String {
        let value = serde_json::to_value(self).unwrap_or_default();
        let canonical = serde_json::to_vec(&Sorted(&value)).unwrap_or_default();
        let digest = Sha256::digest(canonical);
        digest.iter().fold(String::new(), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

/// An agent, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = NamedAgent)]
pub struct NamedAgentView {
    /// Its name.
    #[schema(value_type = String)]
    pub name: AgentName,
    /// The number of its newest version.
    pub version: i32,
    /// The versions that its aliases point at.
    #[schema(value_type = BTreeMap<String, i32>)]
    pub aliases: BTreeMap<Alias, i32>,
    /// When it was published first.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When a version was added, an alias or a limit changed, or it was archived or restored.
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
    /// When it was archived; null while it can be used.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub archived_at: Option<Timestamp>,
    /// Its limits.
    #[serde(default)]
    pub limits: AgentLimits,
}

impl From<NamedAgent> for NamedAgentView {
    fn from(agent: NamedAgent) -> Self {
        Self {
            name: agent.key.name,
            version: agent.version,
            aliases: agent.aliases,
            created_at: agent.created_at,
            updated_at: agent.updated_at,
            archived_at: agent.archived_at,
            limits: agent.limits,
        }
    }
}

/// A version of an agent, as it is shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = AgentVersion)]
pub struct AgentVersionView {
    /// The agent.
    #[schema(value_type = String)]
    pub name: AgentName,
    /// Its number, from 1.
    pub version: i32,
    /// What it is.
    pub spec: AgentSpec,
    /// SHA-256 of its spec's canonical JSON, as 64 hex digits.
    pub hash: String,
    /// When it was published.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

impl From<AgentVersion> for AgentVersionView {
    fn from(version: AgentVersion) -> Self {
        Self {
            name: version.key.name,
            version: version.n,
            spec: version.spec,
            hash: version.hash,
            created_at: version.created_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_read_as_they_are_written() {
        for text in [
            "reviewer",
            "reviewer@3",
            "reviewer@live",
            "a.b_c-1@v2",
            "7@7",
        ] {
            let query: AgentQuery = text.parse().expect("a reference");
            assert_eq!(query.to_string(), text);
        }
        let query: AgentQuery = "r@03".parse().expect("a reference");
        assert_eq!(query.pick, Pick::Version(3));
    }

    #[test]
    fn other_texts_are_no_references() {
        let long = "x".repeat(65);
        for text in [
            "",
            "@",
            "a@",
            "@live",
            "a@0",
            "a@-1",
            "a@+1",
            "a@b@c",
            "a b",
            "ä",
            ".a",
            "a@.x",
            "a@1x",
            "a/b",
            "a@99999999999",
            &long,
        ] {
            let read = text.parse::<AgentQuery>();
            assert_eq!(read, Err(NameFault::Reference), "{text:?}");
        }
    }

    #[test]
    fn equal_specs_have_equal_hashes_and_others_do_not() {
        let spec = |prompt: &str| AgentSpec {
            system_prompt: Some(prompt.to_owned()),
            ..AgentSpec::default()
        };
        assert_eq!(spec("a").hash(), spec("a").hash());
        assert_ne!(spec("a").hash(), spec("b").hash());
        assert_eq!(spec("a").hash().len(), 64);
    }
}
