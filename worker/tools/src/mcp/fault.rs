//! The ways in which a request to an MCP server can fail.

use std::error::Error as StdError;
use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use mainspring_shared::error::Code;
use mainspring_shared::tool::{Inquiry, Wants};
use rmcp::model::{ErrorCode, ErrorData};
use rmcp::service::{ClientInitializeError, ServiceError};
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::StreamableHttpError;

use super::credentials::KnownSecrets;
use super::http::NoCredentials;
use super::inquiring;
use super::post::SESSION_UNKNOWN;

const CLOSED: &str = "it closed the connection";
const UNREACHED: &str = "there is no connection to its server";
const NO_SESSION: &str = "its server does not know the session";

/// Characters of a server's message that are put into our own error.
const SAID_CHARS_MAX: usize = 500;

/// The error of a call that needs a person to open an address first.
const URL_NEEDED: ErrorCode = ErrorCode(-32042);

/// Addresses of such an error that are told, and characters of each.
const URLS_MAX: usize = 5;
const URL_CHARS_MAX: usize = 2_000;

/// Why a request got no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// The server has not seen the request.
    Unreached(String),
    /// The server may have seen it; the connection is broken or suspect.
    Broken(String),
    /// Something between us and the server failed; the connection is still good.
    Failed(String),
    /// The server refused the request.
    Refused(Code, String),
    /// It refused the request, as it says, until a person has opened these addresses.
    Opens(Vec<Inquiry>, String),
    /// It needs an answer of a person, and gets it when the request is made again.
    Asks(Box<Inquiry>),
    /// There was no answer for this long.
    Silent(Duration),
    /// There is no connection to the server, and it is not tried again at once.
    Away(String),
}

impl Fault {
    pub(super) fn of(error: ServiceError) -> Self {
        match error {
            ServiceError::McpError(error) if knows_no_session(&error) => {
                Self::Unreached(NO_SESSION.to_owned())
            }
            ServiceError::McpError(error) => {
                let code = if error.code == ErrorCode::INVALID_PARAMS {
                    Code::ToolInvalidArguments
                } else {
                    Code::ToolFailed
                };
                let opens = opens(&error);
                if opens.is_empty() {
                    Self::Refused(code, said(&error))
                } else {
                    Self::Opens(opens, said(&error))
                }
            }
            ServiceError::TransportSend(error) => of_transport(&error),
            ServiceError::TransportClosed => Self::closed(),
            ServiceError::UnexpectedResponse => {
                Self::Failed("its server answered something else than was asked".to_owned())
            }
            other => Self::Failed(other.to_string()),
        }
    }

    /// The connection ended before the answer came.
    pub(super) fn closed() -> Self {
        Self::Broken("the connection to its server ended".to_owned())
    }
}

/// Whether the server has not looked at the request because of its session.
fn knows_no_session(error: &ErrorData) -> bool {
    let data = error.data.as_ref();
    data.is_some_and(|data| data.get(SESSION_UNKNOWN).is_some())
}

/// The addresses that a person must open first.
fn opens(error: &ErrorData) -> Vec<Inquiry> {
    if error.code != URL_NEEDED {
        return Vec::new();
    }
    let wanted = error
        .data
        .as_ref()
        .and_then(|data| data.get("elicitations"));
    let wanted = wanted.and_then(serde_json::Value::as_array);
    let wanted = wanted.into_iter().flatten().take(URLS_MAX);
    let none = KnownSecrets::default();
    let opens = wanted.filter_map(|one| inquiring::read(one, &none).ok());
    opens
        .filter(|one| matches!(one.wants, Wants::Url(_)))
        .collect()
}

/// What an error says, with the addresses that a person must open first.
fn said(error: &ErrorData) -> String {
    let message = error.message.trim();
    let mut said = if message.is_empty() {
        format!("error {}", error.code.0)
    } else {
        message.to_owned()
    };
    if error.code != URL_NEEDED {
        return said;
    }
    let wanted = error
        .data
        .as_ref()
        .and_then(|data| data.get("elicitations"));
    let wanted = wanted.and_then(serde_json::Value::as_array);
    for one in wanted.into_iter().flatten().take(URLS_MAX) {
        let word = |name: &str| one.get(name).and_then(serde_json::Value::as_str);
        let Some(url) = word("url") else { continue };
        let url: String = url.chars().take(URL_CHARS_MAX).collect();
        let why: String = word("message")
            .unwrap_or_default()
            .chars()
            .take(SAID_CHARS_MAX)
            .collect();
        // Writing to a string cannot fail.
        let _ = write!(said, "\na person must open {url} first, then call again");
        if !why.is_empty() {
            let _ = write!(said, " ({why})");
        }
    }
    said
}

/// Whether there were no headers for the request, so that it was not made.
fn is_credentials(error: &io::Error) -> bool {
    let why: Option<&(dyn StdError + Send + Sync)> = error.get_ref();
    why.is_some_and(<dyn StdError + Send + Sync>::is::<NoCredentials>)
}

fn of_transport(error: &DynamicTransportError) -> Fault {
    type Http = StreamableHttpError<reqwest::Error>;
    match error.error.downcast_ref::<Http>() {
        Some(Http::Client(error)) if error.is_connect() => Fault::Unreached(UNREACHED.to_owned()),
        Some(Http::Io(error)) if is_credentials(error) => Fault::Unreached(error.to_string()),
        // The server has not looked at the request.
        Some(Http::SessionExpired) => Fault::Unreached(NO_SESSION.to_owned()),
        Some(Http::AuthRequired(_) | Http::InsufficientScope(_)) => {
            let said = "its server asks for authorization";
            Fault::Refused(Code::ToolFailed, said.to_owned())
        }
        Some(Http::HttpStatus(status)) => {
            let said = format!("its server answered {}", status.status);
            if matches!(status.status, 403 | 429) {
                Fault::Refused(Code::ToolFailed, said)
            } else {
                Fault::Failed(said)
            }
        }
        // Their text may contain the URL, which may contain a key.
        _ => Fault::Broken("the connection to its server broke".to_owned()),
    }
}

/// Why a connection could not be opened, without addresses.
pub(super) fn describe(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::ConnectionClosed(_) => CLOSED.to_owned(),
        // Either reading or writing may be the first to notice that a child is gone.
        ClientInitializeError::TransportError { error, .. } if error.error.is::<io::Error>() => {
            CLOSED.to_owned()
        }
        ClientInitializeError::JsonRpcError(error) => {
            let said: String = error.message.chars().take(SAID_CHARS_MAX).collect();
            format!("it refuses: {said}")
        }
        ClientInitializeError::TransportError { error, .. } => match of_transport(error) {
            Fault::Unreached(said) if said == UNREACHED => {
                "there is no connection to it".to_owned()
            }
            Fault::Unreached(said) | Fault::Refused(_, said) | Fault::Failed(said) => said,
            Fault::Broken(_)
            | Fault::Silent(_)
            | Fault::Away(_)
            | Fault::Opens(..)
            | Fault::Asks(_) => "it does not answer as an MCP server".to_owned(),
        },
        ClientInitializeError::NoCompatibleProtocolVersion { .. } => {
            "it speaks another version of the protocol".to_owned()
        }
        _ => "it does not answer as an MCP server".to_owned(),
    }
}
