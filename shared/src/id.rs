//! Identifiers: newtypes over UUIDs, each with one printed form.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use crate::time::Timestamp;

/// The lowest id of a time; ids of earlier times are lower, since they begin with the milliseconds.
pub fn first_id(at: Timestamp) -> Uuid {
    Uuid::from_u128(u128::from(at.0.max(0).unsigned_abs()) << 80)
}

/// The owner of everything a request can reach; the first column of every key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TenantId(pub i32);

impl TenantId {
    /// The default tenant, of installations without others.
    pub const DEFAULT: Self = Self(1);

    /// The prefix of the printed form.
    pub const PREFIX: &'static str = "ten_";
}

impl fmt::Display for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Self::PREFIX, self.0)
    }
}

impl FromStr for TenantId {
    type Err = ParseTenantIdError;

    fn from_str(text: &str) -> Result<Self, ParseTenantIdError> {
        let digits = text.strip_prefix(Self::PREFIX).ok_or(ParseTenantIdError)?;
        let number: i32 = digits.parse().map_err(|_| ParseTenantIdError)?;
        // Accept only the printed form: no sign, no leading zero.
        let is_printed = number > 0 && number.to_string() == digits;
        is_printed.then_some(Self(number)).ok_or(ParseTenantIdError)
    }
}

/// A tenant's id that does not have its printed form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an id of the form ten_<number> is expected")]
pub struct ParseTenantIdError;

/// An identifier that does not have its printed form: the right prefix and 32 hex digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an id of the form {prefix}<32 hex digits> is expected")]
pub struct ParseIdError {
    /// The prefix of the kind of id, with its underscore.
    pub prefix: &'static str,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub Uuid);

        impl $name {
            /// The prefix of the printed form.
            pub const PREFIX: &'static str = $prefix;
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{}", Self::PREFIX, self.0.as_simple())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                text.strip_prefix(Self::PREFIX)
                    .filter(|hex| hex.len() == 32)
                    .filter(|hex| hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')))
                    .and_then(|hex| Uuid::try_parse(hex).ok())
                    .map(Self)
                    .ok_or(ParseIdError { prefix: Self::PREFIX })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(D::Error::custom)
            }
        }
    };
}

id!(
    /// A session: a durable conversation, the unit of ordering and of ownership.
    SessionId,
    "ses_"
);
id!(
    /// A send: one accepted input and all the work it causes.
    SendId,
    "snd_"
);
id!(
    /// A run: one execution of a workflow.
    RunId,
    "run_"
);
id!(
    /// A timer: a durable schedule that creates a send or starts a run, once or repeatedly.
    TimerId,
    "tmr_"
);
id!(
    /// A memory entry.
    MemoryId,
    "mem_"
);
id!(
    /// An erasure of a memory namespace.
    ErasureId,
    "era_"
);
id!(
    /// A boot: one lifetime of a process. Random, so that a configured name is only a label.
    BootId,
    "bot_"
);
id!(
    /// An API key.
    KeyId,
    "key_"
);
id!(
    /// A webhook: an endpoint that receives events.
    WebhookId,
    "whk_"
);
id!(
    /// A webhook event: the same id for every endpoint and every attempt.
    WebhookEventId,
    "evt_"
);
id!(
    /// The fencing token of one grant of a lease: random, so that it is never issued twice.
    LeaseToken,
    "tok_"
);

/// The full key of a session, tenant first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionKey {
    /// The owner.
    pub tenant: TenantId,
    /// The session, unique in the whole system.
    pub session: SessionId,
}

/// The full key of a run, tenant first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RunKey {
    /// The owner.
    pub tenant: TenantId,
    /// The run, unique in the whole system.
    pub run: RunId,
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.tenant.0, self.session)
    }
}

impl fmt::Display for RunKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.tenant.0, self.run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_id_parses_back() {
        let id = SessionId(Uuid::from_u128(0x0123_4567_89ab_cdef));
        assert_eq!(id.to_string(), "ses_00000000000000000123456789abcdef");
        assert_eq!(id.to_string().parse(), Ok(id));
    }

    #[test]
    fn a_tenants_id_has_one_printed_form() {
        assert_eq!(TenantId(12).to_string().parse(), Ok(TenantId(12)));
        for text in [
            "12",
            "ten_",
            "ten_0",
            "ten_-1",
            "ten_+1",
            "ten_012",
            "ten_99999999999",
        ] {
            assert_eq!(text.parse::<TenantId>(), Err(ParseTenantIdError), "{text}");
        }
    }

    #[test]
    fn another_prefix_or_form_is_refused() {
        for text in [
            "snd_00000000000000000123456789abcdef",
            "ses_0123",
            "ses_00000000000000000123456789ABCDEF",
            "ses_00000000-0000-0000-0123-456789abcdef",
            "",
        ] {
            assert!(text.parse::<SessionId>().is_err(), "{text}");
        }
    }
}
