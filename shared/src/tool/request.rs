//! Requests of HTTP tools to APIs that know nothing of this project.
//!
//! An argument never leaves the place that its template gives it: it cannot add a segment to the path, a parameter to
//! the query, a header or a line. What a template cannot hold is refused before anything is sent.

mod place;
mod render;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use self::place::Template;
pub use self::render::{Arguments, Rendered, render};
use super::call::Repeat;
use super::secret::is_name;
use crate::stored::Extra;

/// Maximum number of parameters, and of headers.
const ENTRIES_MAX: usize = 50;

/// Maximum bytes of a template, a name, a URL or a pointer.
const BYTES_MAX: usize = 2_000;

/// Headers that belong to the connection, or that say where a request goes and how long it is.
const HEADERS_RESERVED: [&str; 14] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "accept-encoding",
];

/// How a tool asks an API, in place of the `POST` that describes the call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct HttpRequest {
    /// The method; `GET` when absent.
    #[serde(default)]
    pub method: Method,
    /// Parameters of the query: by name, a text with `{argument}` in it. One whose argument is missing or null is left
    /// out; an array is a parameter for each of its items.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub query: BTreeMap<String, String>,
    /// Headers: by name, a text with `{argument}` in it, or a secret.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, HeaderSource>,
    /// What the body is; by default `json` for `POST`, `PUT` and `PATCH`, otherwise `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<BodyForm>,
    /// The argument that is the whole body. When absent, the body is an object of the arguments that stand nowhere else;
    /// without a body, they are parameters of the query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_argument: Option<String>,
    /// What lets the tool in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<HttpAuth>,
    /// A JSON pointer to the part of the answer that the model gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
    /// Fields that this release does not know.
    #[serde(flatten, skip_serializing_if = "Extra::is_empty")]
    #[schema(ignore)]
    pub extra: Extra,
}

/// The method of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    /// Reads.
    #[default]
    Get,
    /// Does anything.
    Post,
    /// Replaces something.
    Put,
    /// Changes something.
    Patch,
    /// Removes something.
    Delete,
}

impl Method {
    /// Every value.
    pub const ALL: [Self; 5] = [Self::Get, Self::Post, Self::Put, Self::Patch, Self::Delete];

    /// Its name in a request.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    /// What a second execution does by the meaning of the method (RFC 9110, section 9.2): `GET` only reads, and a second
    /// `PUT` or `DELETE` leaves what the first one left. Nothing is promised of the others.
    pub const fn repeat(self) -> Repeat {
        match self {
            Self::Get => Repeat::Safe,
            Self::Put | Self::Delete => Repeat::Keyed,
            Self::Post | Self::Patch => Repeat::Once,
        }
    }

    const fn body(self) -> BodyForm {
        match self {
            Self::Get | Self::Delete => BodyForm::None,
            Self::Post | Self::Put | Self::Patch => BodyForm::Json,
        }
    }
}

/// What the body of a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BodyForm {
    /// JSON.
    Json,
    /// A form, `application/x-www-form-urlencoded`.
    Form,
    /// There is none.
    None,
}

/// The value of a header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum HeaderSource {
    /// A text with `{argument}` in it.
    Text(String),
    /// A secret.
    Secret(HeaderSecret),
}

/// A secret as the value of a header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HeaderSecret {
    /// Its name.
    pub secret: String,
    /// Put before it, like `token `.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
}

/// What lets a tool into an API. `secret` always names a secret of the tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum HttpAuth {
    /// `Authorization: Bearer …`.
    Bearer {
        /// The token.
        secret: String,
    },
    /// `Authorization: Basic …`.
    Basic {
        /// The name. When absent, the secret is `name:password`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<String>,
        /// The password.
        secret: String,
    },
    /// A key in a header or in the query.
    ApiKey {
        /// The name of the header or parameter.
        name: String,
        /// Where it stands.
        #[serde(default, rename = "in")]
        place: KeyPlace,
        /// The key.
        secret: String,
    },
    /// A token that an authorization server gives for the client's credentials (RFC 6749, section 4.4).
    #[serde(rename = "oauth")]
    OAuth {
        /// Where tokens are given.
        token_url: String,
        /// The client's id. When absent, the secret is `id:secret`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        client_id: Option<String>,
        /// The client's secret.
        secret: String,
        /// The scopes to ask for.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        scopes: Vec<String>,
        /// The audience to ask for, where the server wants one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        audience: Option<String>,
    },
}

/// Where a key stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyPlace {
    /// In a header.
    #[default]
    Header,
    /// In the query.
    Query,
}

impl HttpAuth {
    /// The name of its secret.
    pub fn secret(&self) -> &str {
        match self {
            Self::Bearer { secret }
            | Self::Basic { secret, .. }
            | Self::ApiKey { secret, .. }
            | Self::OAuth { secret, .. } => secret,
        }
    }
}

impl HttpRequest {
    /// What the body is.
    pub fn body(&self) -> BodyForm {
        self.body.unwrap_or(self.method.body())
    }

    /// The names of the secrets that it needs.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        let headers = self.headers.values().filter_map(|source| match source {
            HeaderSource::Secret(own) => Some(own.secret.as_str()),
            HeaderSource::Text(_) => None,
        });
        headers.chain(self.auth.as_ref().map(HttpAuth::secret))
    }

    /// What is wrong with it and with the template of its URL, with pointers below the tool.
    pub(super) fn faults(&self, url: &str) -> Vec<(String, String)> {
        let mut faults = Vec::new();
        let mut fault = |pointer: &str, detail: String| faults.push((pointer.to_owned(), detail));
        if let Err(detail) = place::of_url(url) {
            fault("/url", detail);
        }
        if self.query.len() > ENTRIES_MAX {
            fault("/request/query", too_many());
        }
        for (name, text) in &self.query {
            let is_name = !name.is_empty() && name.len() <= BYTES_MAX;
            if let Some(detail) = (!is_name).then(unnamed).or_else(|| Template::fault(text)) {
                fault(&format!("/request/query/{}", escaped(name)), detail);
            }
        }
        if self.headers.len() > ENTRIES_MAX {
            fault("/request/headers", too_many());
        }
        for (name, source) in &self.headers {
            let detail = match source {
                HeaderSource::Text(text) => Template::fault(text),
                HeaderSource::Secret(own) if !is_name(&own.secret) => Some(no_secret()),
                HeaderSource::Secret(own) if !place::is_header_text(&own.prefix) => {
                    Some("the prefix must be visible ASCII".to_owned())
                }
                HeaderSource::Secret(_) => None,
            };
            if let Some(detail) = header_fault(name).or(detail) {
                fault(&format!("/request/headers/{}", escaped(name)), detail);
            }
        }
        if self.body_argument.is_some() && self.body() == BodyForm::None {
            fault("/request/body_argument", "there is no body".to_owned());
        }
        let pointer = self.pointer.as_deref().unwrap_or_default();
        if pointer.len() > BYTES_MAX || !(pointer.is_empty() || pointer.starts_with('/')) {
            let detail = "must be a JSON pointer like /data/items".to_owned();
            fault("/request/pointer", detail);
        }
        if let Some((member, detail)) = self.auth.as_ref().and_then(auth_fault) {
            fault(&format!("/request/auth/{member}"), detail);
        }
        faults
    }
}

fn auth_fault(auth: &HttpAuth) -> Option<(&'static str, String)> {
    if !is_name(auth.secret()) {
        return Some(("secret", no_secret()));
    }
    match auth {
        HttpAuth::Bearer { .. } => None,
        HttpAuth::Basic { user, .. } => {
            let user = user.as_deref().unwrap_or_default();
            let fits = user.len() <= BYTES_MAX && !user.contains([':', '\r', '\n']);
            (!fits).then(|| ("user", "must be a name without a colon".to_owned()))
        }
        HttpAuth::ApiKey { name, place, .. } => match place {
            KeyPlace::Header => header_fault(name).map(|detail| ("name", detail)),
            KeyPlace::Query => {
                let fits = (1..=BYTES_MAX).contains(&name.len());
                (!fits).then(|| ("name", unnamed()))
            }
        },
        HttpAuth::OAuth {
            token_url, scopes, ..
        } => {
            if let Some(detail) = super::url_fault(token_url) {
                return Some(("token_url", detail));
            }
            (scopes.len() > ENTRIES_MAX).then(|| ("scopes", too_many()))
        }
    }
}

/// What is wrong with the name of a header that a tool sets.
fn header_fault(name: &str) -> Option<String> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || name.len() > 200 || !name.bytes().all(is_token) {
        return Some("must be the name of a header".to_owned());
    }
    let reserved = HEADERS_RESERVED
        .iter()
        .any(|taken| name.eq_ignore_ascii_case(taken));
    reserved.then(|| "must not be a header of the connection".to_owned())
}

fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn unnamed() -> String {
    format!("must have a name of at most {BYTES_MAX} bytes")
}

fn too_many() -> String {
    format!("must have at most {ENTRIES_MAX} entries")
}

fn no_secret() -> String {
    "must name a secret: 1 to 64 letters, digits, `_`, `-` or `.`".to_owned()
}

#[cfg(test)]
mod tests;
