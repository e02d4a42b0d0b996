//! Calls of APIs that know nothing of tools: the request is made of the arguments and the tenant's secrets.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use mainspring_shared::id::TenantId;
use mainspring_shared::secrets::Secrets;
use mainspring_shared::tool::request::{
    Arguments, HeaderSource, HttpAuth, HttpRequest, KeyPlace, Rendered, render,
};
use mainspring_shared::tool::secret::Held;
use mainspring_shared::tool::{HttpTool, Repeat};
use mainspring_worker::llm::Secret;
use mainspring_worker::tool::{Invocation, Output};
use reqwest::Url;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use tokio::task::spawn_blocking;

use super::Shared;
use super::answer::Body;
use super::call::target;
use super::fault::Fault;
use super::tokens::Credentials;
use super::vault::NoSecret;
use crate::mcp::NoToken;

/// A request as the tool declares it.
#[derive(Debug)]
pub(super) struct Direct {
    request: HttpRequest,
    url: String,
    repeat: Repeat,
}

/// A request that lacks only what lets it in.
#[derive(Debug)]
pub(super) struct Prepared {
    url: Url,
    headers: HeaderMap,
    body: Option<Bytes>,
}

/// A request with its secrets.
struct Armed {
    url: Url,
    headers: HeaderMap,
    /// What must not come back.
    secrets: Secrets,
    /// The token that an authorization server gave for it.
    token: Option<Secret>,
}

impl Direct {
    pub(super) fn of(declared: &HttpTool) -> Option<Self> {
        let request = declared.request.as_deref()?.clone();
        Some(Self {
            request,
            url: declared.url.clone(),
            repeat: declared.repeat(),
        })
    }

    /// The request for these arguments; why there is none.
    pub(super) fn prepare(
        &self,
        invocation: &Invocation,
        shared: &Shared,
    ) -> Result<Prepared, String> {
        let said = invocation.said.as_deref().map(Cow::Borrowed);
        let said = said.map_or_else(
            || serde_json::to_string(&invocation.arguments).map(Cow::Owned),
            Ok,
        );
        let arguments = said.and_then(|said| serde_json::from_str::<Arguments>(&said));
        let arguments = arguments.map_err(|_| "its arguments are no object")?;
        let Rendered { url, headers, body } = render(&self.request, &self.url, &arguments)?;
        let base = target(&self.url, &shared.addresses)?;
        let url = target(&url, &shared.addresses)?;
        if url.origin() != base.origin() {
            return Err("its arguments lead to another host".to_owned());
        }
        let mut own = HeaderMap::new();
        own.insert(
            ACCEPT,
            HeaderValue::from_static("application/json, */*;q=0.5"),
        );
        let (kind, body) = body.unzip();
        if let Some(kind) = kind {
            own.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        if self.repeat == Repeat::Keyed {
            let id = HeaderValue::from_str(&invocation.call_id);
            own.insert(
                "idempotency-key",
                id.map_err(|_| "its call has no usable id")?,
            );
        }
        for (name, value) in headers {
            own.insert(header_name(&name)?, header_value(&value, false)?);
        }
        Ok(Prepared {
            url,
            headers: own,
            body: body.map(Bytes::from),
        })
    }

    /// One attempt. A token that is refused is asked for once more.
    pub(super) async fn exchange(
        &self,
        prepared: &Prepared,
        tenant: TenantId,
        shared: &Shared,
    ) -> Result<Output, Fault> {
        let armed = self.armed(prepared, tenant, shared, None).await?;
        let mut answer = self.send(prepared, &armed, shared).await?;
        let mut secrets = armed.secrets;
        if answer.status().as_u16() == 401
            && let Some(stale) = armed.token
        {
            let armed = self.armed(prepared, tenant, shared, Some(&stale)).await?;
            answer = self.send(prepared, &armed, shared).await?;
            // The answer may quote the old one, too.
            secrets = armed.secrets.and_encoded(stale.expose());
        }
        if !answer.status().is_success() {
            return Err(Fault::answered(answer, &secrets, shared.clock.now()).await);
        }
        let body = Body::read(answer, shared.answer_bytes_max).await;
        let body = body.map_err(|error| Fault::of(&error))?;
        // A large answer takes long to look through.
        let body = spawn_blocking(move || body.without(&secrets)).await;
        let body = body.map_err(|_| Fault::Unfit("it cannot be read".to_owned()))?;
        let Some(pointer) = &self.request.pointer else {
            return Ok(body.output());
        };
        body.picked(pointer).map_err(Fault::Unfit)
    }

    async fn send(
        &self,
        prepared: &Prepared,
        armed: &Armed,
        shared: &Shared,
    ) -> Result<reqwest::Response, Fault> {
        let client = super::call::client(shared)?;
        let method = reqwest::Method::from_bytes(self.request.method.as_str().as_bytes());
        let method = method.map_err(|_| Fault::Refused("its method is unknown".to_owned()))?;
        let mut request = client
            .request(method, armed.url.clone())
            .headers(armed.headers.clone());
        if let Some(body) = &prepared.body {
            request = request.body(body.clone());
        }
        request.send().await.map_err(|error| Fault::of(&error))
    }

    async fn armed(
        &self,
        prepared: &Prepared,
        tenant: TenantId,
        shared: &Shared,
        stale: Option<&Secret>,
    ) -> Result<Armed, Fault> {
        let mut armed = Armed {
            url: prepared.url.clone(),
            headers: prepared.headers.clone(),
            secrets: Secrets::default(),
            token: None,
        };
        for (name, source) in &self.request.headers {
            let HeaderSource::Secret(own) = source else {
                continue;
            };
            let held = held(shared, tenant, &own.secret, &armed.url).await?;
            armed.secrets = armed.secrets.and_encoded(&held.value);
            let value = format!("{}{}", own.prefix, held.value);
            armed.insert(name, &value).map_err(Fault::Refused)?;
        }
        let Some(auth) = &self.request.auth else {
            return Ok(armed);
        };
        let held = held(shared, tenant, auth.secret(), &armed.url).await?;
        armed.secrets = armed.secrets.and_encoded(&held.value);
        let by = match auth {
            HttpAuth::Bearer { .. } => format!("Bearer {}", held.value),
            HttpAuth::Basic { user, .. } => {
                let login = match user {
                    Some(user) => format!("{user}:{}", held.value),
                    None => held.value.clone(),
                };
                armed.secrets = armed.secrets.and_encoded(after_colon(&held.value));
                format!("Basic {}", STANDARD.encode(login))
            }
            HttpAuth::ApiKey { name, place, .. } => {
                match place {
                    KeyPlace::Header => armed.insert(name, &held.value).map_err(Fault::Refused)?,
                    KeyPlace::Query => {
                        let mut query = armed.url.query_pairs_mut();
                        query.append_pair(name, &held.value);
                    }
                }
                return Ok(armed);
            }
            HttpAuth::OAuth { .. } => {
                armed.secrets = armed.secrets.and_encoded(after_colon(&held.value));
                let token = token(auth, &held, tenant, shared, stale).await?;
                armed.secrets = armed.secrets.and_encoded(token.expose());
                let by = format!("Bearer {}", token.expose());
                armed.token = Some(token);
                by
            }
        };
        armed
            .insert(AUTHORIZATION.as_str(), &by)
            .map_err(Fault::Refused)?;
        Ok(armed)
    }
}

impl Armed {
    fn insert(&mut self, name: &str, value: &str) -> Result<(), String> {
        self.headers
            .insert(header_name(name)?, header_value(value, true)?);
        Ok(())
    }
}

/// The password of a login that is one secret.
fn after_colon(value: &str) -> &str {
    value.split_once(':').map_or(value, |(_, behind)| behind)
}

async fn token(
    auth: &HttpAuth,
    held: &Held,
    tenant: TenantId,
    shared: &Shared,
    stale: Option<&Secret>,
) -> Result<Secret, Fault> {
    let HttpAuth::OAuth {
        token_url,
        client_id,
        secret,
        scopes,
        audience,
    } = auth
    else {
        return Err(Fault::Refused("it asks for no token".to_owned()));
    };
    let token_url = target(token_url, &shared.addresses).map_err(Fault::Refused)?;
    permitted(held, secret, &token_url)?;
    let (client_id, client_secret) = match client_id {
        Some(id) => (id.as_str(), held.value.as_str()),
        None => held.value.split_once(':').ok_or_else(|| {
            Fault::Refused(format!(
                "the secret {secret:?} is not of the form id:secret"
            ))
        })?,
    };
    let credentials = Credentials {
        tenant,
        token_url: &token_url,
        client_id,
        client_secret,
        scopes,
        audience: audience.as_deref(),
    };
    let own = (
        super::call::client(shared)?,
        &shared.addresses,
        &*shared.clock,
    );
    let token = shared.tokens.token(&credentials, stale, own).await;
    token.map_err(|NoToken { why, is_refused }| {
        let why = format!("there is no token for it: {why}");
        if is_refused {
            Fault::Refused(why)
        } else {
            Fault::Unreached(why)
        }
    })
}

/// The secret of this name, if it may be sent there.
async fn held(shared: &Shared, tenant: TenantId, name: &str, to: &Url) -> Result<Held, Fault> {
    let held = shared.vault.get(tenant, name).await;
    let held = held.map_err(|error| match error {
        NoSecret::Never(why) => Fault::Refused(why),
        NoSecret::Away(why) => Fault::Unreached(why),
    })?;
    permitted(&held, name, to)?;
    Ok(held)
}

/// Refuses to send a secret anywhere but to its own hosts: whoever writes a tool chooses its URL.
fn permitted(held: &Held, name: &str, to: &Url) -> Result<(), Fault> {
    let origin = to.origin().ascii_serialization();
    if held.hosts.contains(&origin) {
        return Ok(());
    }
    Err(Fault::Refused(format!(
        "the secret {name:?} may not be sent to {origin}, which is not one of its hosts"
    )))
}

fn header_name(name: &str) -> Result<HeaderName, String> {
    HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| "one of its headers has no usable name".to_owned())
}

fn header_value(value: &str, is_secret: bool) -> Result<HeaderValue, String> {
    let value = HeaderValue::from_str(value);
    let mut value = value.map_err(|_| "one of its headers has no usable value")?;
    value.set_sensitive(is_secret);
    Ok(value)
}
