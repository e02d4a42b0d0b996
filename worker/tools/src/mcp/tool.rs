//! One tool of an MCP server.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::error::Code;
use mainspring_shared::tool::schema::{self, Schema};
use mainspring_shared::tool::{INQUIRIES_MAX, Inquiry, Repeat, Wants};
use rmcp::model::JsonObject;
use serde_json::Value;
use tokio::time::timeout;

use super::client::Limits;
use super::connection::CallAsks;
use super::fault::Fault;
use super::inquiring::{self, Questions};
use super::listing::{Described, Tasks};
use super::output;
use super::server::Server;
use super::tasks::{self, Task};
use mainspring_worker::tool::{Invocation, Output, Tool, ToolError, ToolSpec, Traits};

/// How much later than the tool itself the kernel times out, because the tool's own error is more
/// precise.
const MARGIN: Duration = Duration::from_secs(5);

/// Maximum characters of a description: a page, more than a model needs to choose.
const DESCRIPTION_CHARS_MAX: usize = 8_000;

/// Attempts of one call: if the server died during the first, it is restarted and called once more.
const ATTEMPTS_MAX: u32 = 2;

/// How many times as long as a call may take a server is asked to keep its task: another worker may
/// begin to wait for it when the first one dies.
const TASK_KEPT_TIMES: u32 = 4;

/// A tool.
pub(super) struct McpTool {
    server: Arc<Server>,
    /// Its name on the server.
    remote: String,
    /// Whether calls can be tasks.
    tasks: Tasks,
    /// The schema that the server gives for its structured results.
    promised: Option<Value>,
    compiled: OnceLock<Option<Schema>>,
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
    pub(super) fn new(server: Arc<Server>, name: String, described: &Described) -> Self {
        let settings = &server.settings;
        let waits = settings.start_timeout.saturating_mul(ATTEMPTS_MAX);
        let traits = Traits {
            timeout: (settings.timeout.max(settings.timeout_max))
                .saturating_add(waits)
                .saturating_add(MARGIN),
            ..Traits::new(described.repeat)
        };
        let remote = described.name.clone();
        let description = match &described.words {
            Some(words) => words.chars().take(DESCRIPTION_CHARS_MAX).collect(),
            None => format!("The tool {remote} of {}.", server.name()),
        };
        let spec = ToolSpec {
            name,
            description,
            parameters: described.parameters.clone(),
        };
        Self {
            server,
            remote,
            tasks: described.tasks,
            promised: described.output.clone(),
            compiled: OnceLock::new(),
            spec,
            traits,
        }
    }

    async fn attempts(
        &self,
        invocation: &Invocation,
        task: &OnceLock<String>,
    ) -> Result<Output, ToolError> {
        let mut attempt = 1;
        loop {
            let fault = match self.attempt(invocation, task).await {
                Ok(done) => return done,
                Err(fault) => fault,
            };
            let harmless = match &fault {
                Fault::Unreached(_) => true,
                Fault::Broken(_) => self.traits.repeat != Repeat::Once,
                Fault::Failed(_)
                | Fault::Refused(..)
                | Fault::Opens(..)
                | Fault::Asks(_)
                | Fault::Silent(_)
                | Fault::Away(_) => false,
            };
            if !harmless || attempt == ATTEMPTS_MAX {
                return Err(self.reply(fault));
            }
            attempt += 1;
        }
    }

    /// Makes the call; the outer error is a failure to reach the server, not one of the tool.
    async fn attempt(
        &self,
        invocation: &Invocation,
        task: &OnceLock<String>,
    ) -> Result<Result<Output, ToolError>, Fault> {
        let mut questions = Questions::of(&invocation.inquiring);
        let answer = match task.get() {
            Some(id) => self.follow(invocation, id, &mut questions).await,
            None => self.begin(invocation, task, &mut questions).await,
        };
        match answer {
            Ok(answer) => {
                self.compare(&answer);
                Ok(output::read(answer))
            }
            Err(Fault::Silent(limit)) => Ok(Err(self.slow(limit))),
            Err(Fault::Away(why)) => Ok(Err(ToolError::reply(why))),
            Err(fault) => Err(fault),
        }
    }

    fn limits(&self) -> Limits {
        let settings = &self.server.settings;
        Limits {
            idle: settings.timeout,
            total: settings.timeout.max(settings.timeout_max),
        }
    }

    /// Asks the server to make the call. If that answers with a task, its handle is stored, and its
    /// result is waited for.
    async fn begin(
        &self,
        invocation: &Invocation,
        task: &OnceLock<String>,
        questions: &mut Questions,
    ) -> Result<Value, Fault> {
        let connection = self.server.connection().await;
        let connection = connection.map_err(|error| Fault::Away(error.to_string()))?;
        let as_task = self.tasks != Tasks::Never && connection.has_tasks();
        let limits = self.limits();
        let as_task = as_task.then_some(limits.total.saturating_mul(TASK_KEPT_TIMES));
        let mut again = JsonObject::new();
        let mut times = 0;
        let answer = loop {
            let asks = CallAsks {
                as_task,
                again,
                questions: &mut *questions,
            };
            let answer = connection.call(&self.remote, invocation, limits, asks);
            let answer = answer.await;
            if matches!(answer, Err(Fault::Unreached(_) | Fault::Broken(_)))
                || (matches!(answer, Err(Fault::Silent(_))) && connection.was_silent())
            {
                self.server.give_up(&connection).await;
            }
            let answer = match answer {
                Err(Fault::Opens(pages, said)) => return Err(self.opens(pages, said, questions)),
                answer => answer?,
            };
            match inquiring::wanted(&answer, questions, self.server.secrets())? {
                None => break answer,
                Some(_) if times == INQUIRIES_MAX => {
                    let said = "it asks for the same input again and again";
                    return Err(Fault::Refused(Code::ToolFailed, said.to_owned()));
                }
                Some(members) => again = members,
            }
            times += 1;
        };
        let Some(begun) = Task::begun(&answer) else {
            return Ok(answer);
        };
        let id = task.get_or_init(|| begun.id.clone());
        if !invocation.kept.keep(begun.handle()).await {
            tracing::debug!(
                mcp.server = self.server.name(),
                "the handle of a task is not stored; if this worker dies, the task is lost"
            );
        }
        self.follow(invocation, id, questions).await
    }

    /// How a call ends that is refused until a person has opened these addresses: it asks for the first that nobody was
    /// asked to open.
    fn opens(&self, pages: Vec<Inquiry>, said: String, questions: &mut Questions) -> Fault {
        for page in pages {
            let page = Inquiry {
                message: self.server.hidden(&page.message),
                wants: match page.wants {
                    Wants::Url(url) => Wants::Url(self.server.hidden(&url)),
                    form @ Wants::Form(_) => form,
                },
            };
            if let Err(asks @ Fault::Asks(_)) = questions.answer(&page) {
                return asks;
            }
        }
        Fault::Refused(Code::ToolFailed, said)
    }

    async fn follow(
        &self,
        invocation: &Invocation,
        id: &str,
        questions: &mut Questions,
    ) -> Result<Value, Fault> {
        let limits = self.limits();
        let followed = tasks::follow(&self.server, invocation, id, (limits, questions));
        if let Ok(answer) = timeout(limits.total, followed).await {
            return answer;
        }
        tasks::cancel(&self.server, invocation, id).await;
        Err(Fault::Silent(limits.total))
    }

    fn slow(&self, limit: Duration) -> ToolError {
        let message = format!("the tool did not answer within {limit:?}");
        self.doubtful(Code::ToolTimeout, message)
    }

    /// Warns if a structured result does not match the schema that the server gives for it. The
    /// result is used all the same: the tool has acted.
    fn compare(&self, result: &Value) {
        let is_error = result.get("isError") == Some(&Value::Bool(true));
        let Some(promised) = self.promised.as_ref().filter(|_| !is_error) else {
            return;
        };
        let said = result.get("structuredContent").unwrap_or(&Value::Null);
        // A schema that takes noticeable time to compile is not worth it here.
        let compile = || (!schema::is_heavy(promised)).then(|| Schema::compile(promised).ok())?;
        let schema = self.compiled.get_or_init(compile);
        let schema = schema.as_ref().filter(|schema| schema.is_small_for(said));
        if schema.is_some_and(|schema| !schema.faults(said).is_empty()) {
            tracing::warn!(
                mcp.server = self.server.name(),
                tool.name = self.remote,
                "a structured result of an MCP server does not match the tool's output schema"
            );
        }
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
            // Its secrets were hidden when it was read.
            asks @ ToolError::Asks(_) => asks,
            ToolError::Lost { message } => ToolError::Lost {
                message: self.server.hidden(&message),
            },
        }
    }

    fn reply(&self, fault: Fault) -> ToolError {
        match fault {
            Fault::Unreached(said) => ToolError::reply(format!("the tool was not reached: {said}")),
            Fault::Asks(inquiry) => ToolError::Asks(inquiry),
            Fault::Opens(_, said) => self.reply(Fault::Refused(Code::ToolFailed, said)),
            Fault::Refused(code, said) => ToolError::Reply {
                code,
                message: format!("the tool refuses: {said}"),
            },
            Fault::Away(why) => ToolError::reply(why),
            Fault::Silent(limit) => self.slow(limit),
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
        let task = OnceLock::new();
        if let Some(id) = tasks::taken_up(&invocation) {
            task.get_or_init(|| id);
        }
        let over = tokio::select! {
            biased;
            () = invocation.stop.cancelled() => None,
            done = self.attempts(&invocation, &task) => Some(done),
        };
        if let Some(done) = over {
            return done.map_err(|error| self.presentable(error));
        }
        if let Some(id) = task.get() {
            tasks::cancel(&self.server, &invocation, id).await;
        }
        Err(ToolError::Reply {
            code: Code::ToolInterrupted,
            message: "the call was stopped before the tool answered".to_owned(),
        })
    }
}
