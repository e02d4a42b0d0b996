//! Tokens that someone else signs: identity providers that speak OpenID Connect.

use std::fmt;

use async_trait::async_trait;
use mainspring_scheduler::error::Error;
use mainspring_shared::error::Code;
use mainspring_shared::tenant::Scopes;
use mainspring_shared::time::Timestamp;

/// Whom a token stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The name of its tenant.
    pub tenant: String,
    /// What it allows.
    pub scopes: Scopes,
    /// Who it is, in a name that no key, no operator and no other issuer's user has.
    pub subject: String,
    /// From when on it is refused.
    pub expires_at: Timestamp,
}

/// Why a token is not accepted. What it says never contains a part of the token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// It is none that an issuer signed for this installation, or no longer.
    Invalid(String),
    /// Whether it is cannot be told, since the issuer's keys are not known and cannot be read.
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

/// Verifies tokens. Whoever implements it checks the signature, the issuer, the audience and the times of a token; the
/// API finds the tenant.
#[async_trait]
pub trait Verifier: fmt::Debug + Send + Sync {
    /// Whom a token stands for. Answers within seconds, also while its issuer does not.
    async fn verify(&self, token: &str) -> Result<Identity, Refused>;
}

/// Whether a text has the form of a signed token: three parts with dots between them.
pub(super) fn is_signed(text: &str) -> bool {
    text.split('.').count() == 3
}
