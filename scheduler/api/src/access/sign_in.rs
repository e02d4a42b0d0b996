//! Signing in to the console: the cookie that stands for a key. The key is sealed in it by the operator's key, so that any
//! scheduler can open it, none stores it, and no script can read it.

use std::time::Duration;

use axum::http::header::COOKIE;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use mainspring_scheduler::App;
use mainspring_scheduler::error::Error;
use mainspring_shared::error::Code;
use mainspring_shared::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::tokens::{opened, sealed};
use crate::browsers::FETCH_SITE;

/// The header with which the console's page says that it is the one that asks. Another page cannot send it without
/// asking first, and is told no.
const CONSOLE: HeaderName = HeaderName::from_static("mainspring-console");

/// The name of the cookie. Browsers accept this prefix only from the host itself, for all of it, and never over a
/// connection that others can read.
const NAME: &str = "__Host-mainspring";

/// How browsers keep it: for the page's own requests, and from its scripts.
const KEPT: &str = "Path=/; HttpOnly; Secure; SameSite=Strict";

/// What it is sealed for: no token opens as a cookie, nor the other way round.
const CONTEXT: &str = "console session";

/// How long it is accepted.
const TTL: Duration = Duration::from_hours(12);

/// Bytes of the name and the value of a cookie that every browser keeps.
const COOKIE_BYTES_MAX: usize = 4_096;

/// What makes a browser forget the cookie.
pub(crate) const FORGET: HeaderValue = HeaderValue::from_static(
    "__Host-mainspring=; Path=/; HttpOnly; Secure; SameSite=Strict; Max-Age=0",
);

/// What the cookie contains.
#[derive(Serialize, Deserialize)]
pub(crate) struct SignIn {
    /// The key, as it would be sent as a bearer token.
    pub(super) key: String,
    /// From when on it is refused, by the database's clock.
    pub(super) expires_at: Timestamp,
}

impl SignIn {
    /// The cookie for a key that was verified, as the value of `Set-Cookie`.
    pub(crate) async fn cookie(app: &App, key: String) -> Result<HeaderValue, Error> {
        let signed_in = Self {
            key,
            expires_at: app.database_time().await.after(TTL),
        };
        let entropy = app.entropy.as_ref();
        let sealed = sealed(&app.outside.webhooks, entropy, CONTEXT, &signed_in)?;
        if NAME.len() + 1 + sealed.len() > COOKIE_BYTES_MAX {
            return Err(Error::invalid("/key", "is too long for a cookie"));
        }
        let text = format!("{NAME}={sealed}; {KEPT}; Max-Age={}", TTL.as_secs());
        let mut value = HeaderValue::try_from(text).map_err(|_| Error::internal())?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// What a cookie contains that has not expired.
    pub(super) async fn open(app: &App, sealed: &str) -> Result<Self, Error> {
        let signed_in: Self =
            opened(&app.outside.webhooks, CONTEXT, sealed).ok_or_else(sign_in_again)?;
        if app.database_time().await >= signed_in.expires_at {
            return Err(sign_in_again());
        }
        Ok(signed_in)
    }
}

/// Whether a request comes from the console's own page: it says so, and so does the browser.
pub(crate) fn is_of_console(headers: &HeaderMap) -> bool {
    let says = |name, what: &str| headers.get(name).is_some_and(|value| value == what);
    says(CONSOLE, "1") && says(FETCH_SITE, "same-origin")
}

/// The cookie of a request, sealed, if the console's own page sent it.
pub(super) fn sent(headers: &HeaderMap) -> Option<&str> {
    if !is_of_console(headers) {
        return None;
    }
    let lines = headers.get_all(COOKIE).iter();
    let pairs = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'));
    let mut named = pairs.filter_map(|pair| pair.trim().split_once('='));
    named.find_map(|(name, value)| (name == NAME).then_some(value))
}

/// The response to a cookie that is not, or no longer, one.
fn sign_in_again() -> Error {
    let detail = "the console's cookie has expired or cannot be read: sign in again";
    Error::new(Code::AuthInvalid, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn a_cookie_counts_only_with_what_no_other_page_can_send() {
        let cookie = ("cookie", "a=b; __Host-mainspring=v1.x.y=.z+/=; c=d");
        let (says, same) = (
            ("mainspring-console", "1"),
            ("sec-fetch-site", "same-origin"),
        );
        assert_eq!(sent(&headers(&[cookie, says, same])), Some("v1.x.y=.z+/="));
        // HTTP/2 sends each in a line of its own.
        let apart = [("cookie", "a=b"), cookie, says, same];
        assert_eq!(sent(&headers(&apart)), Some("v1.x.y=.z+/="));
        let other = ("cookie", "mainspring=x; X__Host-mainspring=y");
        assert_eq!(sent(&headers(&[other, says, same])), None);
        for given in [
            [says, says],
            [same, same],
            [("mainspring-console", ""), same],
            [says, ("sec-fetch-site", "same-site")],
            [says, ("sec-fetch-site", "cross-site")],
            [says, ("sec-fetch-site", "none")],
        ] {
            assert_eq!(
                sent(&headers(&[cookie, given[0], given[1]])),
                None,
                "{given:?}"
            );
        }
    }

    #[test]
    fn what_is_forgotten_is_what_was_kept() {
        assert_eq!(FORGET, format!("{NAME}=; {KEPT}; Max-Age=0"));
    }
}
