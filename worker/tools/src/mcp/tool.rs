//! One tool of an MCP server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::error::Code;
use mainspring_shared::tool::Repeat;
use rmcp::model::ToolAnnotations;
use serde_json::Value;
use tokio::time::timeout;

use super::fault::Fault;
use super::output;
use super::server::Server;
use mainspring_worker::tool::{Invocation, Output, Tool, ToolError, ToolSpec, Traits};

/// How much later than the tool itself the kernel times out, because the tool's own error is more
/// precise.
const MARGIN: Duration = Duration::from_secs(5);

/// Maximum characters of a description: a page, more than a model needs to choose.
const DESCRIPTION_CHARS_MAX: usize = 8_000;

/// Attempts of one call: if the server died during the first, it is restarted and called once more.
const ATTEMPTS_MAX: u32 = 2;

/// A tool.
pub(super) struct McpTool {
    server: Arc<Server>,
    /// Its name on the server.
    remote: String,
    spec: ToolSpec,
    traits: Traits,
}

impl fmt::Debug for McpTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpTool")
            .field("server", &self.server.name())
            .field("remote", &self.remote)
            .finish_non_exhaustive()
    }
}

impl McpTool {
    /// The tool that `server` describes, under our own name for it.
    pub(super) fn new(server: Arc<Server>, name: String, described: &rmcp::model::Tool) -> Self {
        let settings = &server.settings;
        let waits = settings.start_timeout.saturating_mul(ATTEMPTS_MAX);
        let traits = Traits {
            timeout: settings
                .timeout
                .saturating_add(waits)
                .saturating_add(MARGIN),
            ..Traits::new(repeat(described.annotations.as_ref()))
        };
        let remote = described.name.to_string();
        let words = described
            .description
            .as_deref()
            .or(described.title.as_deref());
        let description = match words.map(str::trim).filter(|words| !words.is_empty()) {
            Some(words) => words.chars().take(DESCRIPTION_CHARS_MAX).collect(),
            None => format!("The tool {remote} of {}.", server.name()),
        };
        let spec = ToolSpec {
            name,
            description,
            parameters: Value::Object(described.input_schema.as_ref().clone()),
        };
        Self {
            server,
            remote,
            spec,
            traits,
        }
    }

    async fn attempts(&self, invocation: &Invocation) -> Result<Output, ToolError> {
        let mut attempt = 1;
        loop {
            let fault = match self.attempt(invocation).await {
                Ok(done) => return done,
                Err(fault) => fault,
            };
            let harmless = match &fault {
                Fault::Unreached(_) => true,
                Fault::Broken(_) => self.traits.repeat != Repeat::Once,
                Fault::Failed(_) | Fault::Refused(..) => false,
            };
            if !harmless || attempt == ATTEMPTS_MAX {
                return Err(self.reply(fault));
            }
            attempt += 1;
        }
    }

    /// Makes the call; the outer error is a failure to reach the server, not one of the tool.
    async fn attempt(&self, invocation: &Invocation) -> Result<Result<Output, ToolError>, Fault> {
        let connection = match self.server.connection().await {
            Ok(connection) => connection,
            Err(error) => return Ok(Err(ToolError::reply(error.to_string()))),
        };
        let limit = self.server.settings.timeout;
        let (tool, arguments) = (self.remote.clone(), invocation.arguments.clone());
        let call = connection.call(tool, &invocation.call_id, arguments);
        let Ok(answer) = timeout(limit, call).await else {
            if connection.was_silent() {
                self.server.give_up(&connection).await;
            }
            return Ok(Err(self.slow(limit)));
        };
        if matches!(answer, Err(Fault::Unreached(_) | Fault::Broken(_))) {
            self.server.give_up(&connection).await;
        }
        answer.map(output::read)
    }

    fn slow(&self, limit: Duration) -> ToolError {
        let message = format!("the tool did not answer within {limit:?}");
        self.doubtful(Code::ToolTimeout, message)
    }

    /// An error with secrets hidden in what the server said.
    fn presentable(&self, error: ToolError) -> ToolError {
        match error {
            ToolError::Reply { code, message } => ToolError::Reply {
                code,
                message: self.server.hidden(&message),
            },
            ToolError::Abort { message } => ToolError::Abort {
                message: self.server.hidden(&message),
            },
            ToolError::Lost { message } => ToolError::Lost {
                message: self.server.hidden(&message),
            },
        }
    }

    fn reply(&self, fault: Fault) -> ToolError {
        match fault {
            Fault::Unreached(said) => ToolError::reply(format!("the tool was not reached: {said}")),
            Fault::Refused(code, said) => ToolError::Reply {
                code,
                message: format!("the tool refuses: {said}"),
            },
            Fault::Broken(said) | Fault::Failed(said) => {
                self.doubtful(Code::ToolFailed, format!("the tool gave no answer: {said}"))
            }
        }
    }

    /// An error after which the outcome is known only if the tool can safely be repeated.
    fn doubtful(&self, code: Code, message: String) -> ToolError {
        match self.traits.repeat {
            Repeat::Safe | Repeat::Keyed => ToolError::Reply { code, message },
            Repeat::Once => ToolError::Reply {
                code: Code::ToolUnknownOutcome,
                message: format!("{message}; whether it took effect is not known"),
            },
        }
    }
}

/// What the server says about repeating a call: only a hint, trusted because the operator chose the
/// server.
fn repeat(annotations: Option<&ToolAnnotations>) -> Repeat {
    let hint = |hint: Option<bool>| hint == Some(true);
    match annotations {
        Some(said) if hint(said.read_only_hint) => Repeat::Safe,
        Some(said) if hint(said.idempotent_hint) => Repeat::Keyed,
        _ => Repeat::Once,
    }
}

#[async_trait]
impl Tool for McpTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn traits(&self) -> Traits {
        self.traits
    }

    fn kind(&self) -> &'static str {
        "mcp"
    }

    async fn call(&self, invocation: Invocation) -> Result<Output, ToolError> {
        tokio::select! {
            biased;
            () = invocation.stop.cancelled() => Err(ToolError::Reply {
                code: Code::ToolInterrupted,
                message: "the call was stopped before the tool answered".to_owned(),
            }),
            done = self.attempts(&invocation) => done.map_err(|error| self.presentable(error)),
        }
    }
}
