//! What the other protocols of this API have in common: MCP, A2A and AG-UI.
//!
//! Each is another view of the same rows and events. A message becomes a send to a published agent, in a new session or
//! an existing one; what a call asks of a person is answered like everywhere else. Nothing is stored for them besides.
//! What they need of a key is what the native operations need that they stand for.

pub(crate) mod asks;
pub(crate) mod rpc;
pub(crate) mod sent;
pub(crate) mod start;

use axum::http::{HeaderMap, Method, Uri};

/// Whether a path belongs to one of these protocols.
pub(crate) fn is_ours(path: &str) -> bool {
    path == "/mcp" || path.starts_with("/a2a/") || path.starts_with("/ag-ui/")
}

/// Whether a request may be answered with a stream, or not before something ends.
pub(crate) fn lasts(method: &Method, uri: &Uri) -> bool {
    let path = uri.path();
    let Some(below) = path.strip_prefix("/a2a/") else {
        return is_ours(path);
    };
    match below.split_once('/') {
        None => *method == Method::POST,
        Some((_, operation)) => {
            operation.starts_with("message:") || operation.ends_with(":subscribe")
        }
    }
}

/// The address under which a request reached this server.
pub(crate) fn base(uri: &Uri, headers: &HeaderMap) -> String {
    let said = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let host = uri.authority().map(axum::http::uri::Authority::as_str);
    let host = host.or_else(|| said("host")).unwrap_or("localhost");
    // A proxy that ends TLS says so. Whoever else does only deceives itself.
    let scheme = match said("x-forwarded-proto") {
        Some("https") => "https",
        _ => "http",
    };
    format!("{scheme}://{host}")
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn what_lasts_is_known_by_its_path() {
        for (method, path, expected) in [
            (Method::POST, "/mcp", true),
            (Method::GET, "/mcp", true),
            (Method::POST, "/a2a/mine", true),
            (Method::POST, "/a2a/tasks/message:send", true),
            (Method::GET, "/a2a/mine/tasks/snd_1:subscribe", true),
            (Method::POST, "/a2a/mine/tasks/snd_1:cancel", false),
            (Method::GET, "/a2a/mine/.well-known/agent-card.json", false),
            (Method::POST, "/ag-ui/mine", true),
            (Method::POST, "/v1/sends", false),
        ] {
            let uri: Uri = path.parse().expect("a path");
            assert_eq!(lasts(&method, &uri), expected, "{method} {path}");
        }
    }

    #[test]
    fn an_address_is_the_one_that_was_asked() {
        let mut headers = HeaderMap::new();
        let uri: Uri = "/mcp".parse().expect("a path");
        headers.insert("host", HeaderValue::from_static("example.com:8443"));
        assert_eq!(base(&uri, &headers), "http://example.com:8443");
        headers.insert("x-forwarded-proto", HeaderValue::from_static("https"));
        assert_eq!(base(&uri, &headers), "https://example.com:8443");
        headers.insert("x-forwarded-proto", HeaderValue::from_static("gopher"));
        assert_eq!(base(&uri, &headers), "http://example.com:8443");
    }
}
