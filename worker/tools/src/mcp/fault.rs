//! The ways in which a request to an MCP server can fail.

use std::io;

use mainspring_shared::error::Code;
use rmcp::model::ErrorCode;
use rmcp::service::{ClientInitializeError, ServiceError};
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::StreamableHttpError;

const CLOSED: &str = "it closed the connection";

/// Characters of a server's message that are put into our own error.
const SAID_CHARS_MAX: usize = 500;

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
}

impl Fault {
    pub(super) fn of(error: ServiceError) -> Self {
        match error {
            ServiceError::McpError(error) => {
                let code = if error.code == ErrorCode::INVALID_PARAMS {
                    Code::ToolInvalidArguments
                } else {
                    Code::ToolFailed
                };
                Self::Refused(code, error.message.into_owned())
            }
            ServiceError::TransportSend(error) => of_transport(&error),
            ServiceError::TransportClosed => {
                Self::Broken("the connection to its server ended".to_owned())
            }
            ServiceError::UnexpectedResponse => {
                Self::Failed("its server answered something else than was asked".to_owned())
            }
            other => Self::Failed(other.to_string()),
        }
    }
}

fn of_transport(error: &DynamicTransportError) -> Fault {
    type Http = StreamableHttpError<reqwest::Error>;
    match error.error.downcast_ref::<Http>() {
        Some(Http::Client(error)) if error.is_connect() => {
            Fault::Unreached("there is no connection to its server".to_owned())
        }
        Some(Http::AuthRequired(_) | Http::InsufficientScope(_)) => {
            let said = "its server asks for authorization";
            Fault::Refused(Code::ToolFailed, said.to_owned())
        }
        Some(Http::HttpStatus(status)) => {
            let said = format!("its server answered {}", status.status);
            if status.status == 429 {
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
            Fault::Unreached(_) => "there is no connection to it".to_owned(),
            Fault::Refused(_, said) | Fault::Failed(said) => said,
            Fault::Broken(_) => "it does not answer as an MCP server".to_owned(),
        },
        ClientInitializeError::NoCompatibleProtocolVersion { .. } => {
            "it speaks another version of the protocol".to_owned()
        }
        _ => "it does not answer as an MCP server".to_owned(),
    }
}
