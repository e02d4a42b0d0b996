//! Keeps foreign web pages from using the API. A browser sends requests on behalf of its user from
//! any page that the user opens. Such a page must not be able to use this server, nor to read
//! responses by pointing a host name of its own at this server.
//!
//! Programs other than browsers do not send an origin, and are let in.

use std::net::IpAddr;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, HOST,
    ORIGIN, VARY,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use mainspring_scheduler::SchedulerConfig;
use mainspring_scheduler::error::Error;
use mainspring_shared::error::Code;

use crate::problem::Problem;

/// The header in which a browser says from where the page is that sends a request.
pub(crate) const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Suffixes that cannot be registered publicly, so no foreign page can be served under them.
const PRIVATE_ENDS: [&str; 4] = [".localhost", ".local", ".internal", ".svc"];

/// The request headers that a page of an allowed origin may send.
const MAY_SAY: HeaderValue = HeaderValue::from_static(
    "a2a-version, authorization, content-type, idempotency-key, last-event-id, mainspring-tenant, mcp-method, \
     mcp-name, mcp-protocol-version, mcp-session-id, x-request-id",
);

/// The response headers that it may read.
const MAY_READ: HeaderValue = HeaderValue::from_static(
    "content-disposition, idempotency-replayed, location, mcp-session-id, retry-after, www-authenticate, \
     x-request-id",
);

/// The outcome of the check of a request's origin.
pub(super) enum Visit {
    /// The request may proceed.
    Welcome(Option<Cors>),
    /// It is a preflight request for a page of an allowed origin; this is the response.
    Preflight(Box<Response>),
}

/// The origin whose pages may read the response.
pub(super) struct Cors(HeaderValue);

impl Cors {
    /// Adds the CORS headers to a response.
    pub(super) fn mark(self, headers: &mut HeaderMap) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, self.0);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, MAY_READ);
        headers.append(VARY, HeaderValue::from_static("origin"));
    }
}

/// Turns away what [`receive`] refuses, on a port that serves nothing to web pages.
pub(super) async fn turn_away(request: Request, next: Next) -> Response {
    match receive(&SchedulerConfig::default(), &request, false) {
        Ok(Visit::Welcome(_)) => next.run(request).await,
        Ok(Visit::Preflight(answer)) => *answer,
        Err(error) => Problem::from(error).into_response(),
    }
}

/// Checks where a request comes from; `is_open` says that requests need no key. The error says why
/// it is refused.
pub(super) fn receive(
    config: &SchedulerConfig,
    request: &Request,
    is_open: bool,
) -> Result<Visit, Error> {
    let headers = request.headers();
    let authority = authority(request)?;
    // Probes may use any name, since their responses reveal nothing.
    let is_probe = matches!(request.uri().path(), "/livez" | "/readyz");
    if let Some(authority) = authority
        && !is_probe
        && !may_be_called(config, name_of(authority), is_open)
    {
        let name = name_of(authority);
        return Err(Error::new(
            Code::RequestHostNotAllowed,
            format!(
                "{name:?} is not a known name of this server; scheduler.allowed_hosts lists additional ones"
            ),
        ));
    }
    let mut origins = headers.get_all(ORIGIN).iter();
    let Some(origin) = origins.next() else {
        return same_site(request).map(|()| Visit::Welcome(None));
    };
    let text = origin.to_str().unwrap_or_default();
    if origins.next().is_some() {
        return Err(from_elsewhere("two origins"));
    }
    if allows(config, text) {
        let cors = Cors(origin.clone());
        let asks = headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        if request.method() == Method::OPTIONS && asks {
            return Ok(Visit::Preflight(Box::new(yes(cors))));
        }
        return Ok(Visit::Welcome(Some(cors)));
    }
    let is_own = text
        .split_once("://")
        .zip(authority)
        .is_some_and(|((_, theirs), ours)| plain(theirs) == plain(ours));
    if is_own {
        Ok(Visit::Welcome(None))
    } else {
        Err(from_elsewhere(text))
    }
}

fn from_elsewhere(origin: &str) -> Error {
    Error::new(
        Code::RequestOriginNotAllowed,
        format!(
            "requests from {origin:?} are not allowed; scheduler.allowed_origins lists allowed origins"
        ),
    )
}

/// Checks a request without an origin, for which a browser at least says whether it comes from
/// another site. Following a link is harmless, because the linking page does not see the response.
fn same_site(request: &Request) -> Result<(), Error> {
    let text = |name| request.headers().get(name).map(HeaderValue::as_bytes);
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    match text(FETCH_SITE) {
        None | Some(b"same-origin" | b"none") => Ok(()),
        Some(_) if is_read && text(FETCH_MODE) == Some(b"navigate") => Ok(()),
        Some(_) => Err(from_elsewhere("another site")),
    }
}

/// The response to a preflight request for a page of an allowed origin.
fn yes(cors: Cors) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    cors.mark(headers);
    let methods = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE");
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, MAY_SAY);
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    response
}

/// The name and port under which the request addresses this server.
fn authority(request: &Request) -> Result<Option<&str>, Error> {
    if let Some(authority) = request.uri().authority() {
        return Ok(Some(authority.as_str()));
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    let Some(host) = hosts.next() else {
        // Only clients older than any browser omit it.
        return Ok(None);
    };
    let text = host.to_str().ok().filter(|_| hosts.next().is_none());
    let text =
        text.ok_or_else(|| Error::invalid("#host", "the request must have exactly one host name"))?;
    Ok(Some(text))
}

/// The name without the port.
fn name_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        Some(_) | None => authority,
    }
}

/// An authority in the form used for comparison: browsers omit the default ports.
fn plain(authority: &str) -> String {
    let lower = authority.to_ascii_lowercase();
    let short = lower.strip_suffix(":80").or(lower.strip_suffix(":443"));
    short.map_or_else(|| lower.clone(), str::to_owned)
}

/// Whether a request may use this name for the server. An IP address and this machine's own name
/// cannot belong to a foreign page. Neither can a name without a dot or with a private suffix, as
/// far as the internet goes; but whoever answers for names on the local network can serve a page
/// under it and then point it here. So those count only where a request needs a key, which such a
/// page does not have. Any other name has to be configured.
fn may_be_called(config: &SchedulerConfig, name: &str, is_open: bool) -> bool {
    let lower = name.to_ascii_lowercase();
    let name = lower.strip_suffix('.').unwrap_or(&lower);
    let bare = name.strip_prefix('[').and_then(|n| n.strip_suffix(']'));
    if bare.unwrap_or(name).parse::<IpAddr>().is_ok() {
        return true;
    }
    let usual = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if name.is_empty() || !name.bytes().all(usual) {
        return false;
    }
    if name == "localhost" || name.ends_with(".localhost") {
        return true;
    }
    let private = PRIVATE_ENDS.iter().any(|end| name.ends_with(end));
    if !is_open && (private || !name.contains('.')) {
        return true;
    }
    config.allowed_hosts.iter().any(|allowed| {
        let allowed = allowed.to_ascii_lowercase();
        // A leading dot stands for every name with that suffix.
        allowed == "*" || allowed == name || (allowed.starts_with('.') && name.ends_with(&allowed))
    })
}

/// Whether pages of this origin may use this server.
fn allows(config: &SchedulerConfig, origin: &str) -> bool {
    let mut allowed = config.allowed_origins.iter();
    allowed
        .any(|allowed| allowed == "*" || allowed.trim_end_matches('/').eq_ignore_ascii_case(origin))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(hosts: &[&str], origins: &[&str]) -> SchedulerConfig {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        SchedulerConfig {
            allowed_hosts: owned(hosts),
            allowed_origins: owned(origins),
            ..SchedulerConfig::default()
        }
    }

    #[test]
    fn names_that_a_stranger_could_own_have_to_be_configured() {
        let called = |config: &SchedulerConfig, host| may_be_called(config, name_of(host), false);
        let none = config(&[], &[]);
        for host in [
            "localhost:7464",
            "LOCALHOST",
            "127.0.0.1:7464",
            "[::1]:7464",
            "10.1.2.3",
            "0.0.0.0:1",
            "scheduler:7464",
            "mainspring.localhost",
            "mainspring-scheduler.agents.svc",
            "mainspring-scheduler.agents.svc.cluster.local:7464",
            "box.internal.",
        ] {
            assert!(called(&none, host), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:7464",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "local.evil.example.",
            "evil.example/localhost",
            "evil.example#.local",
            "user@localhost",
            "",
            ":7464",
        ] {
            assert!(!called(&none, host), "{host}");
        }
        let some = config(&["api.example.com", ".agents.example.org"], &[]);
        for host in [
            "api.example.com:443",
            "API.example.com",
            "a.b.agents.example.org",
        ] {
            assert!(called(&some, host), "{host}");
        }
        for host in [
            "example.com",
            "xapi.example.com",
            "agents.example.org.evil.example",
        ] {
            assert!(!called(&some, host), "{host}");
        }
        assert!(called(&config(&["*"], &[]), "evil.example"));
    }

    #[test]
    fn without_keys_only_names_count_that_no_network_can_give_to_a_page() {
        let called = |host| may_be_called(&config(&["box.example"], &[]), name_of(host), true);
        for host in [
            "localhost:7464",
            "mainspring.localhost",
            "127.0.0.1:7464",
            "[::1]:7464",
            "10.1.2.3",
            "box.example",
        ] {
            assert!(called(host), "{host}");
        }
        for host in [
            "x.local:7464",
            "x.internal",
            "scheduler:7464",
            "wpad",
            "mainspring.agents.svc",
            "localhost.x.local",
        ] {
            assert!(!called(host), "{host}");
        }
    }

    fn visit(
        config: &SchedulerConfig,
        method: &str,
        headers: &[(&str, &str)],
    ) -> Result<bool, Code> {
        let mut request = Request::builder().method(method).uri("/v1/sends");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).expect("a request");
        match receive(config, &request, false) {
            Ok(Visit::Welcome(cors)) => Ok(cors.is_some()),
            Ok(Visit::Preflight(answer)) => Ok(answer.status() == StatusCode::NO_CONTENT),
            Err(error) => Err(error.code()),
        }
    }

    #[test]
    fn pages_come_from_here_or_from_a_configured_origin() {
        let none = config(&[], &[]);
        let post = |headers: &[(&str, &str)]| visit(&none, "POST", headers);
        let refused = Err(Code::RequestOriginNotAllowed);
        let here = ("host", "localhost:7464");
        assert_eq!(post(&[here]), Ok(false));
        assert_eq!(
            post(&[here, ("origin", "http://localhost:7464")]),
            Ok(false)
        );
        assert_eq!(post(&[here, ("origin", "http://localhost:3000")]), refused);
        assert_eq!(post(&[here, ("origin", "https://evil.example")]), refused);
        assert_eq!(post(&[here, ("origin", "null")]), refused);
        assert_eq!(post(&[here, ("origin", "")]), refused);
        assert_eq!(post(&[here, ("sec-fetch-site", "same-origin")]), Ok(false));
        assert_eq!(post(&[here, ("sec-fetch-site", "cross-site")]), refused);
        assert_eq!(post(&[here, ("sec-fetch-site", "same-site")]), refused);
        let followed = [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
        ];
        assert_eq!(visit(&none, "GET", &followed), Ok(false));
        assert_eq!(visit(&none, "POST", &followed), refused);
        let picture = [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "no-cors"),
        ];
        assert_eq!(visit(&none, "GET", &picture), refused);

        let one = config(&[], &["https://app.example.com/"]);
        let app = ("origin", "https://app.example.com");
        assert_eq!(visit(&one, "POST", &[here, app]), Ok(true));
        let asked = [here, app, ("access-control-request-method", "POST")];
        assert_eq!(visit(&one, "OPTIONS", &asked), Ok(true));
        let evil = ("origin", "https://app.example.com.evil.example");
        assert_eq!(visit(&one, "POST", &[here, evil]), refused);
        // Pointing a host name at this server does not help a page.
        let rebound = [
            ("host", "evil.example:7464"),
            ("origin", "http://evil.example:7464"),
        ];
        assert_eq!(
            visit(&one, "GET", &rebound),
            Err(Code::RequestHostNotAllowed)
        );
    }
}
