//! Bearer tokens from an authorization server: by client credentials or a refresh token. The server
//! is found by the metadata of the protected resource, or named by the operator. Tokens are kept in
//! memory only and never shown.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use mainspring_worker::llm::Secret;
use reqwest::{Client, Response, StatusCode, Url};
use serde_json::Value;

use super::credentials::KnownSecrets;
use super::settings::is_loopback;
use crate::http::Guard;

/// How long one request to an authorization server may take.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Bytes of an answer.
const BYTES_MAX: usize = 256 << 10;

/// Bytes of a token: all headers of a request together have little more room with most servers.
const TOKEN_BYTES_MAX: usize = 16 << 10;

/// How long before its end a token counts as over.
const MARGIN: Duration = Duration::from_secs(30);

/// Characters of an error's code that are shown.
const CODE_CHARS_MAX: usize = 60;

/// How to get tokens for a server.
#[derive(Debug, Clone, Default)]
pub struct OAuthSettings {
    /// The client's id.
    pub client_id: String,
    /// Its secret, if it has one.
    pub client_secret: Option<Secret>,
    /// A refresh token; without one, the client's own credentials get tokens.
    pub refresh_token: Option<Secret>,
    /// The scopes to ask for; those that the server names if empty.
    pub scopes: Vec<String>,
    /// Where tokens are given; looked up if absent.
    pub token_url: Option<String>,
    /// The only authorization server that the client's secret may be sent to; the one that the
    /// server names if absent.
    pub issuer: Option<String>,
    /// Private addresses that may be called.
    pub allow_private: Vec<String>,
}

/// A token.
pub(crate) struct Token {
    pub(crate) access: String,
    /// How long it may be used.
    pub(crate) lasts: Option<Duration>,
}

/// The tokens of one server.
#[derive(Debug)]
pub(crate) struct OAuth {
    target: Url,
    /// Whether a token is asked for the target: the servers of other tools may not know what that is.
    is_resource: bool,
    /// The audience to ask for.
    audience: Option<String>,
    settings: OAuthSettings,
    secrets: KnownSecrets,
    /// Built by the first request: building it reads the system's certificates.
    client: OnceLock<Option<Client>>,
    guard: Option<Guard>,
    /// The refresh token, which the authorization server may replace.
    refresh: Mutex<Option<Secret>>,
    /// Looked up again when no token is given there any longer.
    found: Mutex<Option<Arc<Found>>>,
}

/// Where and how tokens are given.
#[derive(Debug)]
struct Found {
    token_url: Url,
    /// Whether the client's secret goes into the body.
    in_body: AtomicBool,
    /// Whether the authorization server has said so.
    is_told: bool,
    scopes: Vec<String>,
}

/// Why there is no token.
#[derive(Debug)]
pub(crate) struct NoToken {
    pub(crate) why: String,
    /// Whether the authorization server has refused the client, which it would do again.
    pub(crate) is_refused: bool,
}

impl<S: Into<String>> From<S> for NoToken {
    fn from(why: S) -> Self {
        Self {
            why: why.into(),
            is_refused: false,
        }
    }
}

/// Why no token was given.
struct Refusal {
    status: StatusCode,
    /// The code of the error.
    code: String,
}

impl OAuth {
    pub(super) fn new(target: Url, settings: OAuthSettings, secrets: KnownSecrets) -> Self {
        let secret = [&settings.client_secret, &settings.refresh_token];
        for secret in secret.into_iter().flatten() {
            secrets.add(secret.expose());
        }
        let mut allowed = settings.allow_private.clone();
        if is_loopback(&target) {
            // A server on this machine may have its authorization server there, too.
            allowed.extend(["127.0.0.0/8", "::1"].map(str::to_owned));
        }
        let guard = Guard::allowing(&allowed, "tools.allow_private").ok();
        let refresh = settings.refresh_token.clone();
        Self {
            client: OnceLock::new(),
            guard,
            target,
            is_resource: true,
            audience: None,
            settings,
            secrets,
            refresh: Mutex::new(refresh),
            found: Mutex::default(),
        }
    }

    /// The tokens of an HTTP tool, whose settings name the address that gives them.
    pub(crate) fn of_tool(
        settings: OAuthSettings,
        audience: Option<String>,
        secrets: KnownSecrets,
        (client, guard): (Client, Guard),
    ) -> Self {
        let none = || Url::parse("https://none.invalid").expect("a URL was written");
        let token_url = settings.token_url.as_deref().map(Url::parse);
        if let Some(secret) = &settings.client_secret {
            secrets.add(secret.expose());
        }
        Self {
            client: OnceLock::from(Some(client)),
            guard: Some(guard),
            target: token_url.and_then(Result::ok).unwrap_or_else(none),
            is_resource: false,
            audience,
            settings,
            secrets,
            refresh: Mutex::default(),
            found: Mutex::default(),
        }
    }

    /// A new token. `challenge` is what the server said when it refused the last one.
    pub(crate) async fn token(&self, challenge: Option<&str>) -> Result<Token, NoToken> {
        let known = self.known().clone();
        let found = match known {
            Some(found) => found,
            None => Arc::new(self.find(challenge).await?),
        };
        *self.known() = None;
        let in_body = found.in_body.load(Ordering::Relaxed);
        let mut answer = self.asked(&found, challenge, in_body).await?;
        // Many servers take the secret in one place only, and do not say in which.
        let is_elsewhere = !found.is_told && self.settings.client_secret.is_some();
        if matches!(&answer, Err(refusal) if is_elsewhere && refusal.code == "invalid_client") {
            let other = self.asked(&found, challenge, !in_body).await?;
            if other.is_ok() {
                found.in_body.store(!in_body, Ordering::Relaxed);
                answer = other;
            }
        }
        match answer {
            Ok(token) => {
                *self.known() = Some(found);
                Ok(token)
            }
            Err(Refusal { status, code }) => {
                // Whoever refuses the client is the right one.
                if matches!(status, StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED) {
                    *self.known() = Some(found);
                }
                let text = format!("the authorization server refuses: {status} {code}");
                Err(NoToken {
                    why: text.trim().to_owned(),
                    // By RFC 6749, section 5.2; some refuse with the status of a success.
                    is_refused: !matches!(status.as_u16(), 408 | 429 | 500..),
                })
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, Option<Arc<Found>>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn asked(
        &self,
        found: &Found,
        challenge: Option<&str>,
        in_body: bool,
    ) -> Result<Result<Token, Refusal>, String> {
        let kept = self
            .refresh
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let mut form = Vec::new();
        if self.is_resource {
            form.push(("resource", self.resource()));
        }
        form.extend(self.audience.clone().map(|audience| ("audience", audience)));
        match &kept {
            Some(token) => {
                form.push(("grant_type", "refresh_token".to_owned()));
                form.push(("refresh_token", token.expose().to_owned()));
            }
            None => form.push(("grant_type", "client_credentials".to_owned())),
        }
        let asked = asked_scopes(challenge);
        let scopes = [&self.settings.scopes, &asked, &found.scopes];
        if let Some(scopes) = scopes.into_iter().find(|scopes| !scopes.is_empty()) {
            form.push(("scope", scopes.join(" ")));
        }
        let client = self.client()?;
        let mut request = client.post(found.token_url.clone());
        let id = &self.settings.client_id;
        match &self.settings.client_secret {
            Some(secret) if !in_body => {
                request = request.basic_auth(id, Some(secret.expose()));
            }
            Some(secret) => {
                form.push(("client_id", id.clone()));
                form.push(("client_secret", secret.expose().to_owned()));
            }
            None => form.push(("client_id", id.clone())),
        }
        let body = request.body(encoded(&form)).header(
            reqwest::header::CONTENT_TYPE,
            "application/x-www-form-urlencoded",
        );
        let answer = body
            .header(reqwest::header::ACCEPT, "application/json")
            .timeout(TIMEOUT)
            .send()
            .await;
        let answer = answer.map_err(|_| "the authorization server does not answer".to_owned())?;
        self.granted(answer).await
    }

    async fn granted(&self, answer: Response) -> Result<Result<Token, Refusal>, String> {
        let status = answer.status();
        let body = json(answer).await.unwrap_or_default();
        let word = |name: &str| body.get(name).and_then(Value::as_str);
        // Some refuse with the status of a success.
        if !status.is_success() || word("error").is_some() {
            let code = word("error").unwrap_or_default();
            let code: String = code.chars().take(CODE_CHARS_MAX).collect();
            let code = self.secrets.hidden(&code);
            return Ok(Err(Refusal { status, code }));
        }
        let access = word("access_token").filter(|token| !token.is_empty());
        let access = access
            .filter(|token| token.len() <= TOKEN_BYTES_MAX)
            .ok_or("the authorization server gives no token")?
            .to_owned();
        // The calls of an HTTP tool hide the token that each has sent.
        let add = |secret: &str| {
            if self.is_resource {
                self.secrets.add(secret);
            }
        };
        add(&access);
        let refresh = word("refresh_token").filter(|token| token.len() <= TOKEN_BYTES_MAX);
        if let Some(refresh) = refresh {
            add(refresh);
            let mut kept = self.refresh.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.is_some() {
                *kept = Some(Secret::new(refresh));
            }
        }
        let lasts = body.get("expires_in");
        // Some write the number as a text.
        let lasts = lasts.and_then(|said| said.as_f64().or_else(|| said.as_str()?.parse().ok()));
        let lasts = lasts.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Ok(Ok(Token {
            access,
            lasts: lasts.map(|lasts| lasts.saturating_sub(MARGIN.min(lasts / 2))),
        }))
    }

    fn client(&self) -> Result<&Client, String> {
        let build = || self.guard.as_ref()?.client(TIMEOUT);
        let client = self.client.get_or_init(build).as_ref();
        client.ok_or_else(|| "this worker has no HTTP client".to_owned())
    }

    /// The server as the token's audience.
    fn resource(&self) -> String {
        let mut url = self.target.clone();
        // Neither belongs to the resource, and both may be secret.
        url.set_query(None);
        let _ = url.set_password(None);
        let _ = url.set_username("");
        url.set_fragment(None);
        url.to_string()
    }

    async fn find(&self, challenge: Option<&str>) -> Result<Found, String> {
        if let Some(url) = &self.settings.token_url {
            return Ok(Found {
                token_url: self.permitted(url)?,
                in_body: AtomicBool::new(false),
                is_told: false,
                scopes: Vec::new(),
            });
        }
        let about = self.about(challenge).await?;
        let named = about
            .get("authorization_servers")
            .and_then(|named| named.get(0));
        let issuer = match (&self.settings.issuer, named.and_then(Value::as_str)) {
            (Some(pinned), Some(named)) if !same(pinned, named) => {
                let text = "the server names another authorization server than the settings allow";
                return Err(text.to_owned());
            }
            (Some(issuer), _) => issuer.clone(),
            (None, Some(issuer)) => issuer.to_owned(),
            // Servers of the first versions were their own authorization servers.
            (None, None) => self.target.origin().ascii_serialization(),
        };
        let metadata = self.metadata(&issuer).await?;
        let token_url = metadata.get("token_endpoint").and_then(Value::as_str);
        let token_url = token_url.ok_or("the authorization server names no token endpoint")?;
        let ways = metadata.get("token_endpoint_auth_methods_supported");
        let ways = ways.and_then(Value::as_array);
        let has = |way: &str| ways.is_some_and(|ways| ways.iter().any(|one| one == way));
        Ok(Found {
            token_url: self.permitted(token_url)?,
            in_body: AtomicBool::new(has("client_secret_post") && !has("client_secret_basic")),
            is_told: has("client_secret_post") != has("client_secret_basic"),
            scopes: words(about.get("scopes_supported")),
        })
    }

    /// What the server says of itself as a protected resource; nothing if it says nothing.
    async fn about(&self, challenge: Option<&str>) -> Result<Value, String> {
        let told = challenge.and_then(|said| parameter(said, "resource_metadata"));
        let path = self.target.path().trim_end_matches('/');
        let base = self.target.origin().ascii_serialization();
        let well_known = format!("{base}/.well-known/oauth-protected-resource");
        let mut places: Vec<String> = told.into_iter().collect();
        places.push(format!("{well_known}{path}"));
        if !path.is_empty() {
            places.push(well_known);
        }
        for place in places {
            let Some(about) = self.get(&place).await? else {
                continue;
            };
            let resource = about.get("resource").and_then(Value::as_str);
            let is_its = |resource: &str| {
                Url::parse(resource).is_ok_and(|url| url.origin() == self.target.origin())
            };
            if !resource.is_none_or(is_its) {
                return Err("the server's metadata are those of another resource".to_owned());
            }
            return Ok(about);
        }
        Ok(Value::Null)
    }

    async fn metadata(&self, issuer: &str) -> Result<Value, String> {
        let parsed = self.permitted(issuer)?;
        let (base, path) = (
            parsed.origin().ascii_serialization(),
            parsed.path().trim_end_matches('/'),
        );
        let places = [
            format!("{base}/.well-known/oauth-authorization-server{path}"),
            format!("{base}/.well-known/openid-configuration{path}"),
            format!("{base}{path}/.well-known/openid-configuration"),
        ];
        for place in places {
            let Some(metadata) = self.get(&place).await? else {
                continue;
            };
            let said = metadata.get("issuer").and_then(Value::as_str);
            if !said.is_some_and(|said| same(said, issuer)) {
                return Err("the authorization server's metadata are another one's".to_owned());
            }
            return Ok(metadata);
        }
        Err("the authorization server does not describe itself".to_owned())
    }

    /// The JSON at an address, if there is any.
    async fn get(&self, url: &str) -> Result<Option<Value>, String> {
        let url = self.permitted(url)?;
        let client = self.client()?;
        let answer = client
            .get(url)
            .header(reqwest::header::ACCEPT, "application/json");
        let answer = answer.send().await;
        let answer = answer.map_err(|_| "the authorization metadata cannot be read".to_owned())?;
        if !answer.status().is_success() {
            return Ok(None);
        }
        Ok(json(answer).await.filter(Value::is_object))
    }

    /// The address, if it may be called. A server may name any, and requests to it carry secrets.
    fn permitted(&self, url: &str) -> Result<Url, String> {
        let refused = |why: &str| format!("an address for authorization may not be called: {why}");
        let url = Url::parse(url).map_err(|_| refused("it is none"))?;
        let here = is_loopback(&self.target) && is_loopback(&url);
        if url.scheme() != "https" && !(url.scheme() == "http" && here) {
            return Err(refused("it is not one of https"));
        }
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        if let Ok(address) = host.parse::<IpAddr>()
            && let Some(guard) = &self.guard
        {
            guard.check(address).map_err(|why| refused(&why))?;
        }
        Ok(url)
    }
}

fn same(one: &str, other: &str) -> bool {
    one.trim_end_matches('/') == other.trim_end_matches('/')
}

fn words(list: Option<&Value>) -> Vec<String> {
    let list = list.and_then(Value::as_array);
    let words = list.into_iter().flatten().filter_map(Value::as_str);
    words.map(str::to_owned).collect()
}

/// The scopes that a challenge asks for.
fn asked_scopes(challenge: Option<&str>) -> Vec<String> {
    let asked = challenge.and_then(|said| parameter(said, "scope"));
    let asked = asked.unwrap_or_default();
    asked.split_whitespace().map(str::to_owned).collect()
}

/// A parameter of a challenge such as `Bearer realm="x", scope="a b"`.
fn parameter(challenge: &str, name: &str) -> Option<String> {
    let mut rest = challenge;
    while let Some(at) = rest.find(name) {
        let before = rest[..at].chars().next_back();
        let after = rest[at + name.len()..].trim_start();
        rest = &rest[at + name.len()..];
        let starts = before.is_none_or(|c| c == ' ' || c == ',');
        let Some(value) = after.strip_prefix('=').filter(|_| starts) else {
            continue;
        };
        let value = value.trim_start();
        return Some(match value.strip_prefix('"') {
            Some(quoted) => quoted.split('"').next().unwrap_or_default().to_owned(),
            None => value
                .split([',', ' '])
                .next()
                .unwrap_or_default()
                .to_owned(),
        });
    }
    None
}

fn encoded(form: &[(&str, String)]) -> String {
    // Its query is encoded as a form is.
    let mut url = Url::parse("http://form/").expect("a URL was written");
    url.query_pairs_mut().extend_pairs(form);
    url.query().unwrap_or_default().to_owned()
}

async fn json(mut answer: Response) -> Option<Value> {
    let mut body = Vec::new();
    while let Ok(Some(piece)) = answer.chunk().await {
        if body.len() + piece.len() > BYTES_MAX {
            return None;
        }
        body.extend_from_slice(&piece);
    }
    serde_json::from_slice(&body).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_challenges_are_found_by_their_whole_names() {
        let said = r#"Bearer realm="x", xscope="no", resource_metadata="https://a.example/m", scope="a b", error=invalid_token"#;
        assert_eq!(parameter(said, "scope").as_deref(), Some("a b"));
        assert_eq!(
            parameter(said, "resource_metadata").as_deref(),
            Some("https://a.example/m")
        );
        assert_eq!(parameter(said, "error").as_deref(), Some("invalid_token"));
        assert_eq!(parameter(said, "nothing"), None);
        assert_eq!(asked_scopes(Some(said)), ["a", "b"]);
    }

    #[test]
    fn a_server_cannot_have_secrets_sent_to_private_addresses_or_in_the_clear() {
        let oauth = |target: &str| {
            let target = Url::parse(target).expect("a URL");
            OAuth::new(target, OAuthSettings::default(), KnownSecrets::default())
        };
        let public = oauth("https://mcp.example/mcp?key=x");
        assert_eq!(public.resource(), "https://mcp.example/mcp");
        assert!(public.permitted("https://login.example/token").is_ok());
        for refused in [
            "http://login.example/token",
            "http://127.0.0.1/token",
            "https://127.0.0.1/token",
            "https://169.254.169.254/latest",
            "https://[::1]/token",
            "https://10.0.0.1/token",
            "file:///etc/passwd",
            "no address",
        ] {
            assert!(public.permitted(refused).is_err(), "{refused}");
        }
        let here = oauth("http://127.0.0.1:1/mcp");
        assert!(here.permitted("http://127.0.0.1:2/token").is_ok());
        assert!(here.permitted("http://10.0.0.1/token").is_err());
    }

    #[test]
    fn forms_are_encoded() {
        let form = [
            ("scope", "a b".to_owned()),
            ("resource", "https://x/?a&b".to_owned()),
        ];
        assert_eq!(
            encoded(&form),
            "scope=a+b&resource=https%3A%2F%2Fx%2F%3Fa%26b"
        );
    }
}
