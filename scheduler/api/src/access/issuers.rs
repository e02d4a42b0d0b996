//! Tokens signed by others: identity providers that speak OpenID Connect.

use std::fmt;

use async_trait::async_trait;
use mainspring_scheduler::error::Error;
use mainspring_shared::error::Code;
use mainspring_shared::tenant::Scopes;
use mainspring_shared::time::Timestamp;

/// The identity that a token stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The name of its tenant.
    pub tenant: String,
    /// The scopes that it grants.
    pub scopes: Scopes,
    /// The subject's name, which no key, no operator and no other issuer's user has.
    pub subject: String,
    /// When the token expires.
    pub expires_at: Timestamp,
}

/// Why a token is not accepted. The text never contains a part of the token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// No issuer signed it for this installation, or it has expired.
    Invalid(String),
    /// Its validity cannot be determined, because the issuer's keys are unknown and cannot be read.
    Unavailable(String),
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Invalid(why) => {
                Self::new(Code::AuthInvalid, format!("the token is refused: {why}"))
            }
            Refused::Unavailable(why) => Self::new(Code::AuthIssuerUnavailable, why),
        }
    }
}

/// Verifies tokens. Implementations check a token's signature, issuer, audience and times; the API
/// looks up the tenant.
#[async_trait]
pub trait Verifier: fmt::Debug + Send + Sync {
    /// The identity that a token stands for. Returns within seconds, even if the issuer does not
    /// respond.
    async fn verify(&self, token: &str) -> Result<Identity, Refused>;

    /// The addresses of the issuers, where clients that have no token may get one.
    fn issuers(&self) -> Vec<String>;
}

/// Whether a text has the form of a signed token: three parts separated by dots.
pub(super) fn is_signed(text: &str) -> bool {
    text.split('.').count() == 3
}
