//! Identity providers whose tokens are accepted instead of API keys.

use mainspring_runtime::{Key, settings};

use super::HTTP;

settings! {
    /// An issuer of tokens.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct OidcIssuer {
        /// What its tokens say in `iss`; its description is below this address.
        issuer: Option<String> => Key::url("oidc.*.issuer", HTTP);
        /// Whom tokens are for: `aud` has one of these.
        audience: Vec<String> = Vec::new() => Key::list("oidc.*.audience");
        /// The claim that names the tenant; `tenant` when none.
        tenant_claim: Option<String> => Key::text("oidc.*.tenant_claim");
        /// The claim that lists the scopes.
        scope_claim: Option<String> => Key::text("oidc.*.scope_claim");
        /// What each of its tokens allows, in place of a claim.
        scopes: Vec<String> = Vec::new() => Key::list("oidc.*.scopes");
        /// Where its keys are; where its description says when none.
        jwks_url: Option<String> => Key::url("oidc.*.jwks_url", HTTP);
    }
}
