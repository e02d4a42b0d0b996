//! Verifies tokens of identity providers: who signed them, for whom, and what they claim.

mod keys;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use mainspring_api::{Identity, Refused, Verifier};
use mainspring_shared::tenant::{Scope, Scopes};
use mainspring_shared::time::{Clock, Timestamp};
use serde::Deserialize;
use serde_json::Value;

use self::keys::{Found, KeySet, Source};
use crate::config::{Config, OidcIssuer};
use crate::failure::{Failure, usage_text};

/// Maximum clock skew, in seconds, between an issuer and this machine.
const LEEWAY_SECONDS: u64 = 30;

/// Maximum bytes of a token: what fits into the head of a request with room for the rest of it.
const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// Characters of a subject that are kept: as many as the narrowest column for it holds.
const SUBJECT_CHARS_MAX: usize = 700;

/// The default claim that names the tenant.
const TENANT_CLAIM: &str = "tenant";

/// Signature algorithms with a private and a public key only. With a shared secret, everyone who
/// can read the public key could issue tokens.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// The issuers that a configuration names; `None` if it names none.
pub(crate) fn verifier(
    config: &Config,
    clock: &Arc<dyn Clock>,
) -> Result<Option<Arc<dyn Verifier>>, Failure> {
    if config.oidc.is_empty() {
        return Ok(None);
    }
    let mut issuers: Vec<Issuer> = Vec::new();
    for (name, settings) in &config.oidc {
        let issuer = Issuer::new(name, settings, clock.clone());
        let issuer = issuer
            .map_err(|(fault, advice)| usage_text(format!("[oidc.{name}] {fault}"), advice))?;
        if let Some(first) = issuers.iter().find(|first| first.name == issuer.name) {
            let fault = format!("[oidc.{name}] has the issuer of [oidc.{}]", first.section);
            let advice = "an issuer must have only one section: merge the two, with both audiences";
            return Err(usage_text(fault, advice));
        }
        issuers.push(issuer);
    }
    Ok(Some(Arc::new(Issuers(issuers))))
}

/// All issuers whose tokens are accepted.
#[derive(Debug)]
struct Issuers(Vec<Issuer>);

/// An issuer.
#[derive(Debug)]
struct Issuer {
    /// The name of its section in the configuration.
    section: String,
    /// The `iss` claim of its tokens.
    name: String,
    /// The accepted audiences; a token must be for one of them.
    audience: Vec<String>,
    tenant_claim: String,
    /// The claim with the scopes; if there is none, `scopes` apply.
    scope_claim: Option<String>,
    scopes: Scopes,
    keys: KeySet,
}

/// The only claim that is read before the signature is checked, to find the issuer's key.
#[derive(Deserialize)]
struct Claimed {
    iss: String,
}

/// What is wrong with a section of the configuration, and how to fix it.
type Fault = (&'static str, &'static str);

impl Issuer {
    fn new(section: &str, settings: &OidcIssuer, clock: Arc<dyn Clock>) -> Result<Self, Fault> {
        let issuer = settings.issuer.clone();
        let issuer = issuer.ok_or(("has to say who signs", "give its issuer"))?;
        if settings.audience.is_empty() {
            let advice = "set the audience: the `aud` claim of tokens for this installation";
            return Err(("must contain the intended audience of tokens", advice));
        }
        let named = settings.scopes.iter().map(|name| {
            let scope = Scope::parse(name);
            // Tokens never operate the installation.
            scope.filter(|scope| *scope != Scope::Operate)
        });
        let scopes: Option<_> = named.collect();
        let unknown = (
            "names an unknown scope",
            "scopes are read, use, define, answer, manage and admin",
        );
        let scopes = Scopes(scopes.ok_or(unknown)?);
        if settings.scope_claim.is_some() != scopes.0.is_empty() {
            let advice = "give one of scope_claim and scopes";
            return Err(("set exactly one of scope_claim and scopes", advice));
        }
        let source = Source::new(&issuer, settings.jwks_url.as_deref())?;
        Ok(Self {
            section: section.to_owned(),
            keys: KeySet::new(source, clock)?,
            name: issuer,
            audience: settings.audience.clone(),
            tenant_claim: settings
                .tenant_claim
                .clone()
                .unwrap_or_else(|| TENANT_CLAIM.to_owned()),
            scope_claim: settings.scope_claim.clone(),
            scopes,
        })
    }

    async fn verify(&self, token: &str) -> Result<Identity, Refused> {
        let header = decode_header(token).map_err(|_| invalid("it cannot be read"))?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err(invalid("it is not signed with a private key"));
        }
        if header.crit.is_some() {
            return Err(invalid("it requires an unsupported extension"));
        }
        let kid = header.kid.as_deref();
        let key = match self.keys.find(kid, header.alg).await {
            Found::Key(key) => key,
            Found::Unknown => return Err(invalid("its issuer has no such key")),
            Found::Away => {
                let why = "the keys of the token's issuer are currently unavailable";
                return Err(Refused::Unavailable(why.to_owned()));
            }
        };
        let claims = self.claims(token, header.alg, &key)?;
        let tenant = text(&claims, &self.tenant_claim);
        let tenant = tenant.ok_or_else(|| invalid("it names no tenant"))?;
        let scopes = match &self.scope_claim {
            Some(claim) => scopes_of(at(&claims, claim)),
            None => self.scopes.clone(),
        };
        let subject = text(&claims, "sub");
        let subject = subject.ok_or_else(|| invalid("it has no sub"))?;
        // On its own it could be the name of a key, of the operator, or of another issuer's user.
        let subject = format!("{}#{subject}", self.section);
        let expires = claims
            .get("exp")
            .and_then(Value::as_f64)
            .unwrap_or_default();
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a time beyond all times is one"
        )]
        let expires = (expires * 1_000.0) as i64;
        Ok(Identity {
            tenant: tenant.to_owned(),
            scopes,
            subject: subject.chars().take(SUBJECT_CHARS_MAX).collect(),
            expires_at: Timestamp(expires.saturating_add(LEEWAY_SECONDS as i64 * 1_000)),
        })
    }

    fn claims(
        &self,
        token: &str,
        algorithm: Algorithm,
        key: &DecodingKey,
    ) -> Result<Value, Refused> {
        // Only the algorithm that the key is for, so that a header cannot choose another family.
        let mut validation = Validation::new(algorithm);
        validation.leeway = LEEWAY_SECONDS;
        validation.validate_nbf = true;
        validation.set_audience(&self.audience);
        validation.set_issuer(&[&self.name]);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        let decoded = decode::<Value>(token, key, &validation);
        decoded
            .map(|token| token.claims)
            .map_err(|error| invalid(why(&error)))
    }
}

#[async_trait]
impl Verifier for Issuers {
    async fn verify(&self, token: &str) -> Result<Identity, Refused> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(invalid("it is too long"));
        }
        let claimed = jsonwebtoken::dangerous::insecure_decode_claims::<Claimed>(token);
        let claimed = claimed.map_err(|_| invalid("it cannot be read"))?;
        let issuer = self.0.iter().find(|issuer| issuer.name == claimed.iss);
        let issuer = issuer.ok_or_else(|| invalid("its issuer is unknown"))?;
        issuer.verify(token).await
    }

    fn issuers(&self) -> Vec<String> {
        self.0.iter().map(|issuer| issuer.name.clone()).collect()
    }
}

fn invalid(why: &str) -> Refused {
    Refused::Invalid(why.to_owned())
}

/// Why a token was refused, without quoting any of it.
fn why(error: &jsonwebtoken::errors::Error) -> &'static str {
    use jsonwebtoken::errors::ErrorKind;

    match error.kind() {
        ErrorKind::ExpiredSignature => "it has expired",
        ErrorKind::ImmatureSignature => "it is not valid yet",
        ErrorKind::InvalidAudience => "it is for another audience",
        ErrorKind::InvalidIssuer => "it is another issuer's",
        ErrorKind::InvalidSignature => "its signature is wrong",
        ErrorKind::MissingRequiredClaim(_) => "it lacks exp, iss or aud",
        _ => "it cannot be verified",
    }
}

/// Looks up a claim by its name, or by a JSON pointer to it.
fn at<'a>(claims: &'a Value, claim: &str) -> Option<&'a Value> {
    if claim.starts_with('/') {
        claims.pointer(claim)
    } else {
        claims.get(claim)
    }
}

fn text<'a>(claims: &'a Value, claim: &str) -> Option<&'a str> {
    let text = at(claims, claim)?.as_str();
    text.filter(|text| !text.is_empty())
}

/// Parses a claim with scopes: names in a list, or in a text separated by spaces. Unknown names
/// belong to other services and are ignored.
fn scopes_of(claim: Option<&Value>) -> Scopes {
    let names: Vec<&str> = match claim {
        Some(Value::String(text)) => text.split_whitespace().collect(),
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    Scopes(names.into_iter().filter_map(Scope::parse).collect())
}
