//! What a client speaks and can do.

use axum::http::{HeaderMap, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::faces::rpc::{self, Fault};
use crate::router::Api;

/// The version without a handshake.
const MODERN: &str = "2026-07-28";

/// The versions with one, newest first.
const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

const HEADER_MISMATCH: i64 = -32020;
const UNSUPPORTED_VERSION: i64 = -32022;

const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// The extension by which a client says that it polls tasks.
const TASKS: &str = "io.modelcontextprotocol/tasks";

/// How the ids of sessions of the transport begin.
const SESSION: &str = "mcp-";

/// A client.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one thing that a client says of itself"
)]
pub(super) struct Peer {
    pub(super) is_modern: bool,
    /// Whether events without data are understood.
    pub(super) primes: bool,
    /// Whether a person can fill in forms.
    pub(super) forms: bool,
    /// Whether a person can open addresses.
    pub(super) urls: bool,
    /// Whether it takes a task in place of any result.
    pub(super) tasks: bool,
    /// The id of its session of the transport.
    pub(super) session: Option<String>,
}

impl Peer {
    /// A client of which nothing is known.
    pub(super) fn legacy() -> Self {
        Self {
            is_modern: false,
            primes: false,
            forms: false,
            urls: false,
            tasks: false,
            session: None,
        }
    }

    /// Who sends a message.
    pub(super) fn of(headers: &HeaderMap, message: &Value) -> Result<Self, Fault> {
        let meta = &message["params"]["_meta"];
        let header = text(headers, "mcp-protocol-version");
        let is_legacy = header.is_none_or(|version| LEGACY.contains(&version));
        if meta.get(META_VERSION).is_none() && is_legacy {
            return Ok(Self::with_handshake(headers, message, header));
        }
        if message.get("method").is_none() || message.get("id").is_none() {
            // What is no request has no envelope.
            supported(header.unwrap_or_default())?;
            return Ok(Self {
                is_modern: true,
                ..Self::legacy()
            });
        }
        let missing = [META_VERSION, META_CAPABILITIES]
            .into_iter()
            .find(|name| meta.get(name).is_none());
        if let Some(name) = missing {
            let fault = format!("params._meta must have {name}");
            return Err(Fault::new(rpc::INVALID_PARAMS, fault));
        }
        let version = meta[META_VERSION].as_str().unwrap_or_default();
        if header != Some(version) {
            return Err(mismatch("mcp-protocol-version"));
        }
        if text(headers, "mcp-method") != message["method"].as_str() {
            return Err(mismatch("mcp-method"));
        }
        let named = match message["method"].as_str().unwrap_or_default() {
            "tools/call" | "prompts/get" => message["params"]["name"].as_str(),
            "resources/read" => message["params"]["uri"].as_str(),
            _ => None,
        };
        if named.is_some_and(|named| decoded(headers).as_deref() != Some(named)) {
            return Err(mismatch("mcp-name"));
        }
        supported(version)?;
        let can = &meta[META_CAPABILITIES];
        Ok(Self {
            is_modern: true,
            tasks: can["extensions"].get(TASKS).is_some(),
            ..Self::asked_by(can)
        })
    }

    fn with_handshake(headers: &HeaderMap, message: &Value, version: Option<&str>) -> Self {
        if message["method"] == "initialize" {
            return Self::asked_by(&message["params"]["capabilities"]);
        }
        let session = text(headers, "mcp-session-id").filter(|id| id.starts_with(SESSION));
        let can = session.and_then(|id| id[SESSION.len()..].split('-').next());
        let can = can.unwrap_or_default();
        Self {
            is_modern: false,
            primes: version == Some(LEGACY[0]),
            forms: can.contains('f'),
            urls: can.contains('u'),
            tasks: false,
            session: session.map(str::to_owned),
        }
    }

    /// What a client says that it can do.
    fn asked_by(can: &Value) -> Self {
        let elicitation = can.get("elicitation").filter(|can| can.is_object());
        let of = |mode: &str| elicitation.is_some_and(|can| can.get(mode).is_some());
        Self {
            forms: elicitation.is_some() && (of("form") || !of("url")),
            urls: of("url"),
            ..Self::legacy()
        }
    }

    /// An id for its session: what it can do, and something that no other session has.
    pub(super) fn session_id(&self, app: &Api) -> String {
        let forms = if self.forms { "f" } else { "" };
        let urls = if self.urls { "u" } else { "" };
        let id = app.entropy.random_id().simple().to_string();
        format!("{SESSION}{forms}{urls}-{id}")
    }

    /// The answer to `initialize`.
    pub(super) fn initialized(asked: &Value) -> Value {
        let asked = asked.as_str().unwrap_or_default();
        let version = LEGACY.into_iter().find(|version| *version == asked);
        json!({
            "protocolVersion": version.unwrap_or(LEGACY[0]),
            "capabilities": {
                "tools": {},
                "resources": {},
                "tasks": { "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } },
            },
            "serverInfo": server(),
            "instructions": INSTRUCTIONS,
        })
    }

    /// The answer to `server/discover`.
    pub(super) fn discovered() -> Value {
        let versions = [MODERN].into_iter().chain(LEGACY);
        json!({
            "supportedVersions": versions.collect::<Vec<_>>(),
            "capabilities": { "tools": {}, "resources": {}, "extensions": { TASKS: {} } },
            "_meta": { "io.modelcontextprotocol/serverInfo": server() },
            "instructions": INSTRUCTIONS,
            "ttlMs": 0,
            "cacheScope": "private",
        })
    }

    /// A result as this version has it.
    pub(super) fn completed(&self, mut result: Value) -> Value {
        if self.is_modern && result.get("resultType").is_none() {
            result["resultType"] = json!("complete");
        }
        result
    }

    /// A list as this version has it.
    pub(super) fn listed(&self, mut result: Value) -> Value {
        if self.is_modern {
            result["ttlMs"] = json!(0);
            result["cacheScope"] = json!("private");
        }
        result
    }

    /// The status of the response with an error.
    pub(super) fn status_of(&self, fault: &Fault) -> StatusCode {
        let forbidden = fault
            .data
            .as_ref()
            .is_some_and(|data| data["status"] == 403);
        match fault.code {
            _ if forbidden => StatusCode::FORBIDDEN,
            _ if !self.is_modern => StatusCode::OK,
            rpc::INVALID_PARAMS => StatusCode::BAD_REQUEST,
            rpc::NO_METHOD => StatusCode::NOT_FOUND,
            _ => StatusCode::OK,
        }
    }
}

const INSTRUCTIONS: &str =
    "Each tool is an agent. Its answer ends with the session_id by which a conversation goes on.";

fn server() -> Value {
    json!({ "name": "mainspring", "title": "Mainspring", "version": env!("CARGO_PKG_VERSION") })
}

fn supported(version: &str) -> Result<(), Fault> {
    if version == MODERN {
        return Ok(());
    }
    let versions: Vec<&str> = [MODERN].into_iter().chain(LEGACY).collect();
    let data = json!({ "supported": versions, "requested": version });
    Err(Fault::new(UNSUPPORTED_VERSION, "unsupported protocol version").with(data))
}

fn mismatch(header: &str) -> Fault {
    let detail = format!("the header {header} does not say what the body says");
    Fault::new(HEADER_MISMATCH, detail)
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// What the header says that a request is about. What is no plain ASCII is written in base64.
fn decoded(headers: &HeaderMap) -> Option<String> {
    let said = text(headers, "mcp-name")?;
    let inner = said
        .strip_prefix("=?base64?")
        .and_then(|rest| rest.strip_suffix("?="));
    match inner {
        Some(inner) => String::from_utf8(STANDARD.decode(inner).ok()?).ok(),
        None => Some(said.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| {
                let name = axum::http::HeaderName::from_static(name);
                (name, HeaderValue::from_static(value))
            })
            .collect()
    }

    fn modern(method: &str, can: &Value) -> Value {
        let meta = json!({ META_VERSION: MODERN, META_CAPABILITIES: can });
        json!({ "id": 1, "method": method, "params": { "name": "wörter", "_meta": meta } })
    }

    #[test]
    fn a_session_of_the_transport_says_what_its_client_can_do() {
        for (can, forms, urls) in [
            (json!({}), false, false),
            (json!({ "elicitation": {} }), true, false),
            (
                json!({ "elicitation": { "form": {}, "url": {} } }),
                true,
                true,
            ),
            (json!({ "elicitation": { "url": {} } }), false, true),
        ] {
            let hello =
                json!({ "id": 0, "method": "initialize", "params": { "capabilities": can } });
            let peer = Peer::of(&HeaderMap::new(), &hello).expect("a handshake");
            assert_eq!(
                (peer.forms, peer.urls, peer.is_modern),
                (forms, urls, false)
            );
        }
        let later = headers(&[
            ("mcp-session-id", "mcp-f-00ff"),
            ("mcp-protocol-version", "2025-11-25"),
        ]);
        let peer = Peer::of(&later, &json!({ "id": 1, "method": "ping" })).expect("a request");
        assert!(peer.forms && !peer.urls && peer.primes && peer.session.is_some());
        let foreign = headers(&[("mcp-session-id", "fu-00ff")]);
        let peer = Peer::of(&foreign, &json!({ "id": 1, "method": "ping" })).expect("a request");
        assert_eq!(peer, Peer::legacy());
    }

    #[test]
    fn an_envelope_and_its_headers_say_the_same() {
        let can = json!({ "elicitation": {}, "extensions": { TASKS: {} } });
        let good = headers(&[
            ("mcp-protocol-version", MODERN),
            ("mcp-method", "tools/call"),
            ("mcp-name", "=?base64?d8O2cnRlcg==?="),
        ]);
        let peer = Peer::of(&good, &modern("tools/call", &can)).expect("a request");
        assert!(peer.is_modern && peer.forms && peer.tasks);
        let code = |headers: &HeaderMap, message: &Value| {
            Peer::of(headers, message).expect_err("is refused").code
        };
        assert_eq!(code(&good, &modern("tools/list", &can)), HEADER_MISMATCH);
        for (name, value) in [
            ("mcp-name", "other"),
            ("mcp-protocol-version", "2027-01-01"),
        ] {
            let mut bad = good.clone();
            bad.insert(name, HeaderValue::from_static(value));
            assert_eq!(
                code(&bad, &modern("tools/call", &can)),
                HEADER_MISMATCH,
                "{name}"
            );
        }
        let bare = json!({ "id": 1, "method": "tools/list", "params": {} });
        assert_eq!(code(&good, &bare), rpc::INVALID_PARAMS);
        let mut newer = modern("tools/call", &can);
        newer["params"]["_meta"][META_VERSION] = json!("2027-01-01");
        let mut said = good.clone();
        said.insert(
            "mcp-protocol-version",
            HeaderValue::from_static("2027-01-01"),
        );
        let fault = Peer::of(&said, &newer).expect_err("is refused");
        assert_eq!(fault.code, UNSUPPORTED_VERSION);
        assert_eq!(fault.data.expect("data")["supported"][0], MODERN);
    }
}
