//! Tokens for pages of browsers: each for one session and for a while. They are sealed by the operator's key, so that any
//! scheduler can open one, and none is stored.

use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::webhooks::WebhookParts;
use mainspring_shared::entropy::Entropy;
use mainspring_shared::error::Code;
use mainspring_shared::id::{KeyId, TenantId};
use mainspring_shared::tenant::{Binding, Scopes};
use mainspring_shared::time::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// How each of them begins.
const PREFIX: &str = "mst_";

/// What they are sealed for: nothing else that the same key has sealed opens as one.
const CONTEXT: &str = "session token";

/// What a token allows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Grant {
    /// The tenant.
    pub(crate) tenant: TenantId,
    /// The key that it was made with, and without which it is void; none if that is in no database.
    pub(crate) key: Option<KeyId>,
    /// Who made it.
    pub(crate) by: String,
    /// What it allows.
    pub(crate) scopes: Scopes,
    /// What it reaches.
    pub(crate) binding: Binding,
    /// From when on it is refused.
    pub(crate) expires_at: Timestamp,
}

impl Grant {
    /// The token.
    pub(crate) fn seal(
        &self,
        parts: &WebhookParts,
        entropy: &dyn Entropy,
    ) -> Result<String, Error> {
        let sealed = sealed(parts, entropy, CONTEXT, self)?;
        Ok(format!("{PREFIX}{sealed}"))
    }

    /// What a text allows that says it is a token; none if it says no such thing.
    pub(super) fn open(parts: &WebhookParts, text: &str) -> Option<Result<Self, Error>> {
        let sealed = text.strip_prefix(PREFIX)?;
        Some(opened(parts, CONTEXT, sealed).ok_or_else(refused))
    }
}

/// A value, sealed by the operator's key for one context.
pub(super) fn sealed(
    parts: &WebhookParts,
    entropy: &dyn Entropy,
    context: &str,
    value: &impl Serialize,
) -> Result<String, Error> {
    let sealer = parts.sealer.as_deref().ok_or_else(|| {
        let detail = "the server has no key to seal tokens with: set MAINSPRING_SECRETS_KEY, or \
                      MAINSPRING_SECRETS_KEY_FILE, on every scheduler";
        Error::new(Code::SecretNoSeal, detail)
    })?;
    let json = serde_json::to_vec(value).map_err(|_| Error::internal())?;
    Ok(sealer.seal(entropy, context, &json))
}

/// What was sealed for this context; none if it was not, was changed, or is of another key.
pub(super) fn opened<T: DeserializeOwned>(
    parts: &WebhookParts,
    context: &str,
    sealed: &str,
) -> Option<T> {
    let json = parts.sealer.as_deref()?.open(context, sealed).ok()?;
    serde_json::from_slice(&json).ok()
}

/// The response to a token that is not, or no longer, one.
pub(super) fn refused() -> Error {
    let detail = "the token is unknown or expired, or was made with a key that is gone";
    Error::new(Code::AuthInvalid, detail)
}
