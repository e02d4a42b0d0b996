//! Tenants and the API keys that act for them.
//!
//! Every row belongs to a tenant, and a request sees and changes only rows of its key's tenant. The
//! default tenant exists from the first migration on; an installation for one tenant never needs
//! another one.

mod binding;
mod erasure;
mod ledger;
mod money;
mod pools;
mod retention;
mod scopes;
mod seats;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::id::{KeyId, TenantId};
use crate::stored::Extra;
use crate::time::Timestamp;

pub use binding::{AGENTS_MAX, Binding, Narrowed, Outside, PAIRS_MAX, SESSIONS_MAX};
pub use erasure::{ErasureProgress, TenantErasure};
pub use ledger::{
    Amount, LedgerAccount, LedgerLimits, LedgerRequest, LedgerRoom, LedgerSpent, Payer,
    check_ledger,
};
pub use money::{
    MONEY_AHEAD_PARTS, MONEY_ASIDE_MS, MONEY_DAYS_KEPT, MoneyLimits, MoneyRoom, MoneySpan,
    MoneySpent, money_day, money_day_begin, money_minute, money_minute_begin, money_minute_of,
    money_month, nano_usd, stored_nano,
};
pub use pools::Pools;
pub use retention::Retention;
pub use scopes::{Right, Scope, Scopes};
pub use seats::{
    InLine, Room, SEAT_CALLED_MS, SEAT_LINE_MAX, SeatCount, SeatKind, SeatLimits, SeatsTaken,
};

/// Maximum length of the name of a tenant or of a key, in characters.
pub const NAME_CHARS_MAX: usize = 100;

/// The prefix of all API key tokens.
const TOKEN_PREFIX: &str = "msk_";

/// What a tenant may use.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Limits {
    /// Maximum requests per second, over all schedulers, which divide them evenly; unlimited when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u32>,
    /// Maximum unfinished sends created by its requests; unlimited when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sends_open: Option<u32>,
    /// Maximum sends in flight on all workers together, leaves of runs included; others wait. Unlimited when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sends_running: Option<u32>,
    /// Maximum leaves of runs in flight; others wait. Unlimited when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaves_running: Option<u32>,
    /// Tokens that its model calls may take in a minute before its sends are refused; unlimited when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_minute: Option<u64>,
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
    /// Bytes of its blobs; unlimited when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Fields that this release does not know.
    #[serde(flatten, skip_serializing_if = "Extra::is_empty")]
    #[schema(ignore)]
    pub extra: Extra,
}

/// Limits of an API key, in addition to those of its tenant.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub struct KeyLimits {
    /// Maximum requests per second with this key, over all schedulers, which divide them evenly; unlimited when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u32>,
    /// Maximum open sends created with this key; unlimited when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sends_open: Option<u32>,
    /// Fields that this release does not know.
    #[serde(flatten, skip_serializing_if = "Extra::is_empty")]
    #[schema(ignore)]
    pub extra: Extra,
}

impl KeyLimits {
    /// The limits to store; `None` if nothing is limited.
    pub fn stored(&self) -> Option<&Self> {
        (*self != Self::default()).then_some(self)
    }
}

/// An amount in millionths of a US dollar; a number of dollars in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Usd(pub u64);

impl Usd {
    /// Millionths of a dollar.
    const PARTS: f64 = 1_000_000.0;

    /// Billionths in a millionth.
    const NANO: u64 = 1_000;

    /// The amount in billionths of a dollar, as sums of costs are counted.
    pub const fn nano(self) -> u64 {
        self.0.saturating_mul(Self::NANO)
    }

    /// The amount of this many billionths of a dollar, rounded up.
    pub const fn of_nano(nano: u64) -> Self {
        Self(nano.div_ceil(Self::NANO))
    }

    /// The amount of this many dollars; `None` if it is negative, not a number or out of range.
    pub fn of(dollars: f64) -> Option<Self> {
        let parts = (dollars * Self::PARTS).round();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is in the range"
        )]
        (0.0..1e18).contains(&parts).then_some(Self(parts as u64))
    }

    /// The amount in dollars.
    pub fn dollars(self) -> f64 {
        #[expect(
            clippy::cast_precision_loss,
            reason = "nobody counts millionths of billions"
        )]
        let parts = self.0 as f64;
        parts / Self::PARTS
    }
}

impl Serialize for Usd {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.dollars())
    }
}

impl<'de> Deserialize<'de> for Usd {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let dollars = f64::deserialize(deserializer)?;
        Self::of(dollars).ok_or_else(|| {
            serde::de::Error::custom("must be an amount in US dollars, not negative")
        })
    }
}

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Its number.
    pub id: TenantId,
    /// Its name, unique among tenants.
    pub name: String,
    /// Its limits.
    pub limits: Limits,
    /// Scheduling weight relative to other tenants, 1 to 1000.
    pub weight: u32,
    /// How long its data is kept.
    pub retention: Retention,
    /// The worker pools that it may use.
    pub pools: Pools,
    /// When its erasure began; nothing can act on its behalf since then.
    pub erasing_at: Option<Timestamp>,
    /// When it was created.
    pub created_at: Timestamp,
}

/// A tenant's number in the form in which idempotency keys refer to created resources.
pub fn resource(tenant: TenantId) -> Uuid {
    Uuid::from_u128(u128::from(tenant.0.unsigned_abs()))
}

/// The tenant that [`resource`] refers to.
pub fn tenant_of(resource: Uuid) -> Option<TenantId> {
    i32::try_from(resource.as_u128()).ok().map(TenantId)
}

/// An API key as stored: of its secret, only a hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    /// Its id, which is part of its token.
    pub id: KeyId,
    /// The tenant that it acts for.
    pub tenant: TenantId,
    /// A label for people.
    pub name: String,
    /// What it allows.
    pub scopes: Scopes,
    /// What it is bound to, if anything.
    pub binding: Option<Binding>,
    /// Its limits, in addition to those of its tenant.
    pub limits: KeyLimits,
    /// SHA-256 of its secret.
    pub hash: [u8; 32],
    /// The secret before the last rotation: until when it is accepted, and its hash.
    pub previous: Option<(Timestamp, [u8; 32])>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it expires; never when absent.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// When it was last used, to the minute or so.
    pub last_used_at: Option<Timestamp>,
}

impl KeyRecord {
    /// The stored form of a key's scopes.
    pub fn stored_scopes(scopes: &Scopes, binding: Option<&Binding>) -> String {
        match binding {
            Some(_) => scopes.to_bound_text(),
            None => scopes.to_text(),
        }
    }

    /// Parses the output of [`Self::stored_scopes`].
    pub fn read_scopes(text: &str, binding: Option<&Binding>) -> Scopes {
        match binding {
            Some(_) => Scopes::from_bound_text(text),
            None => Scopes::from_text(text),
        }
    }

    /// Whether a secret is valid for this key at this time.
    pub fn accepts(&self, secret: &Secret, now: Timestamp) -> bool {
        if !self.is_live(now) {
            return false;
        }
        let hash = secret.hash();
        let before = self
            .previous
            .filter(|(until, _)| now < *until)
            .is_some_and(|(_, before)| before == hash);
        self.hash == hash || before
    }

    /// Whether it is an operator's: it belongs to the first tenant, all of it, and was made as one.
    pub fn operates(&self) -> bool {
        self.tenant == TenantId::DEFAULT && self.binding.is_none() && self.scopes.operate()
    }

    /// Whether it is neither revoked nor expired at this time.
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|at| now < at)
    }
}

/// The secret half of a token. It is never stored and never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Makes a secret from random numbers.
    pub fn new(random: [Uuid; 2]) -> Self {
        let [first, second] = random;
        Self(format!("{}{}", first.as_simple(), second.as_simple()))
    }

    /// The hash that is stored. A fast hash suffices, since the secret is random and too long to guess.
    pub fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// What a client sends: `msk_<id>_<secret>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The key that it names.
    pub id: KeyId,
    /// The secret.
    pub secret: Secret,
}

impl Token {
    /// The token in the form given to its owner. The only function that exposes a secret.
    pub fn reveal(&self) -> String {
        format!("{TOKEN_PREFIX}{}_{}", self.id.0.as_simple(), self.secret.0)
    }
}

/// A text that is not an API key token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an API key has the form msk_<id>_<secret>")]
pub struct ParseTokenError;

impl FromStr for Token {
    type Err = ParseTokenError;

    fn from_str(text: &str) -> Result<Self, ParseTokenError> {
        let rest = text.strip_prefix(TOKEN_PREFIX).ok_or(ParseTokenError)?;
        let (id, secret) = rest.split_once('_').ok_or(ParseTokenError)?;
        let is_hex = |text: &str| text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if id.len() != 32 || secret.len() != 64 || !is_hex(id) || !is_hex(secret) {
            return Err(ParseTokenError);
        }
        let id = Uuid::try_parse(id).map_err(|_| ParseTokenError)?;
        Ok(Self {
            id: KeyId(id),
            secret: Secret(secret.to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn token(n: u128) -> Token {
        Token {
            id: KeyId(Uuid::from_u128(n)),
            secret: Secret::new([Uuid::from_u128(n + 1), Uuid::from_u128(n + 2)]),
        }
    }

    fn record(token: &Token) -> KeyRecord {
        KeyRecord {
            id: token.id,
            tenant: TenantId::DEFAULT,
            name: "ci".into(),
            scopes: Scopes::all(),
            binding: None,
            limits: KeyLimits::default(),
            hash: token.secret.hash(),
            previous: None,
            created_at: Timestamp(0),
            expires_at: None,
            revoked_at: None,
            last_used_at: None,
        }
    }

    #[test]
    fn a_revealed_token_parses_back() {
        let token = token(7);
        assert_eq!(token.reveal().parse(), Ok(token));
    }

    #[test]
    fn what_is_no_token_is_refused() {
        let good = token(1).reveal();
        let cut = &good[..good.len() - 1];
        let upper = good.to_uppercase();
        for bad in ["", "msk_", "msk_1_2", cut, &upper, &format!("{good}0")] {
            assert_eq!(bad.parse::<Token>(), Err(ParseTokenError), "{bad}");
        }
    }

    #[test]
    fn the_scopes_of_a_bound_key_mean_nothing_without_its_binding() {
        let scopes = Scopes(BTreeSet::from([Scope::Read, Scope::Send]));
        let binding = Binding::default();
        let stored = KeyRecord::stored_scopes(&scopes, Some(&binding));
        assert_eq!(KeyRecord::read_scopes(&stored, Some(&binding)), scopes);
        assert_eq!(KeyRecord::read_scopes(&stored, None), Scopes::default());
        let stored = KeyRecord::stored_scopes(&scopes, None);
        assert_eq!(KeyRecord::read_scopes(&stored, None), scopes);
        assert_eq!(
            KeyRecord::read_scopes(&stored, Some(&binding)),
            Scopes::default()
        );
    }

    #[test]
    fn debug_output_shows_no_secret() {
        let token = token(1);
        let secret = token.reveal();
        let secret = &secret[secret.len() - 64..];
        assert!(!format!("{token:?}").contains(secret));
    }

    #[test]
    fn a_secret_is_accepted_while_its_key_lives() {
        let token = token(1);
        let key = record(&token);
        assert!(key.accepts(&token.secret, Timestamp(5)));
        assert!(!key.accepts(&self::token(9).secret, Timestamp(5)));
        let expired = KeyRecord {
            expires_at: Some(Timestamp(5)),
            ..key.clone()
        };
        assert!(expired.accepts(&token.secret, Timestamp(4)));
        assert!(!expired.accepts(&token.secret, Timestamp(5)));
        let revoked = KeyRecord {
            revoked_at: Some(Timestamp(1)),
            ..key
        };
        assert!(!revoked.accepts(&token.secret, Timestamp(0)));
    }

    #[test]
    fn after_a_rotation_both_secrets_are_accepted_until_the_overlap_ends() {
        let (old, new) = (token(1), token(10));
        let key = KeyRecord {
            hash: new.secret.hash(),
            previous: Some((Timestamp(100), old.secret.hash())),
            ..record(&old)
        };
        assert!(key.accepts(&old.secret, Timestamp(99)));
        assert!(!key.accepts(&old.secret, Timestamp(100)));
        assert!(key.accepts(&new.secret, Timestamp(100)));
    }
}
