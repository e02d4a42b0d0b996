//! The port to tools: what a tool declares, how it is called, and what it may return.
//!
//! The crate `mainspring-tools` contains the built-in ones.
//!
//! A custom tool is an implementation of [`Tool`] that is passed to [`Tools::insert`]. Agents can
//! then name it like a built-in one.

mod gathered;
mod inquiring;
mod isolation;
mod kept;
mod offer;
mod progress;
mod registry;
pub(crate) mod repair;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::error::Code;
use mainspring_shared::id::{BootId, SendId, SessionKey};
use mainspring_shared::memory::Account;
use mainspring_shared::message::{ContentPart, numbers};
use mainspring_shared::skill::AgentSkill;
use mainspring_shared::tool::{DeclaredTool, Inquiry, Repeat};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

pub use crate::llm::ToolSpec;

pub use inquiring::Inquiring;
pub use isolation::{Cell, CellOwner, Isolator, NoCell};
pub(crate) use kept::Keep;
pub use kept::Kept;
pub use offer::{Executor, Offer, Offers};
pub use progress::{Progress, ProgressReport};
pub use registry::{Tools, ToolsError};

/// How long a call may take unless its tool says otherwise.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_mins(2);

/// Characters of an output that the model is shown unless the tool says otherwise.
pub const OUTPUT_CHARS_DEFAULT: usize = 50_000;

/// Which calls of a round may run concurrently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Concurrency {
    /// It may run beside other parallel calls.
    #[default]
    Parallel,
    /// It runs alone: after the calls before it and before those after it.
    Exclusive,
}

/// What an interrupting message does to a call in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnInterrupt {
    /// It finishes.
    #[default]
    Finish,
    /// It is told to stop; what it then returns is its result.
    Stop,
}

/// The properties of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traits {
    /// What a second execution of the same call does.
    pub repeat: Repeat,
    /// How long one call may take.
    pub timeout: Duration,
    /// Whether it may run concurrently with other calls.
    pub concurrency: Concurrency,
    /// What an interruption does to it.
    pub on_interrupt: OnInterrupt,
    /// How long it may take to stop once told to, before it is dropped.
    pub grace: Duration,
    /// Characters of its output that the model is shown, split into head and tail; the rest can be
    /// fetched.
    pub output_chars_max: usize,
    /// What the kernel does for its calls.
    pub effect: Effect,
    /// Whether it works with the files of the session's workspace.
    pub in_workspace: bool,
}

/// What the kernel does for a tool's calls. The kernel checks this instead of comparing names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Just make the call, or wait for its result.
    None,
    /// Before a send's first model call, read the session's notes into the prompt.
    Recall,
    /// The same with its to-do list, if an item is left to do.
    RecallTodo,
    /// Offer it only to agents that have memory.
    Remember,
    /// Give the call's task to another agent, whose result is the call's.
    Delegate,
    /// Start a run of a workflow, whose result is the call's.
    StartRun,
    /// Once the round's calls are over, end the send: the model has nothing to add.
    PassTurn,
    /// Treat its arguments as a question to a person, which may say how long it waits and which
    /// default answer then applies.
    AskPerson,
    /// Offer it to each agent with skills, which its calls read.
    ReadSkills,
    /// Offer it to each agent whose context shows less than the transcript, which its calls read.
    ReadBack,
}

impl Effect {
    /// Whether other agents work for the call, which the send's budget must pay for.
    pub const fn is_agents_work(self) -> bool {
        matches!(self, Self::Delegate | Self::StartRun)
    }
}

impl Traits {
    /// Traits with this repeat policy, and defaults for everything else.
    pub const fn new(repeat: Repeat) -> Self {
        Self {
            repeat,
            timeout: TIMEOUT_DEFAULT,
            concurrency: Concurrency::Parallel,
            on_interrupt: OnInterrupt::Finish,
            grace: Duration::from_secs(5),
            output_chars_max: OUTPUT_CHARS_DEFAULT,
            effect: Effect::None,
            in_workspace: false,
        }
    }
}

/// One call to make.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// The call's id, unique, and the same whenever this call is repeated.
    pub call_id: String,
    /// The arguments, which match the tool's schema.
    pub arguments: Map<String, Value>,
    /// The JSON text of the arguments as the model wrote it, if nobody changed them: for whoever passes them on, whose
    /// receiver is to get what the model said, to the byte.
    pub said: Option<Arc<str>>,
    /// The session that asks.
    pub session: SessionKey,
    /// The send that asks.
    pub send_id: SendId,
    /// The boot of the worker that makes it.
    pub boot: BootId,
    /// How often this call was begun, this time included.
    pub attempt: i32,
    /// Cancelled when the call is to stop. The tool may still return how far it got.
    pub stop: CancellationToken,
    /// The skills of the agent that asks.
    pub skills: Skills,
    /// Where model calls made by the tool are entered, so that the send pays for them.
    pub account: Account,
    /// Where the tool may report how far the call is.
    pub progress: Progress,
    /// What the tool keeps of the call beyond the life of this worker.
    pub kept: Kept,
    /// Whether the tool may ask a person, and the answers to what it has asked.
    pub inquiring: Inquiring,
}

/// The skills of an agent in one send.
#[derive(Debug, Clone, Default)]
pub struct Skills {
    /// The versions that its agent has.
    pub of_agent: Arc<[AgentSkill]>,
    /// Whether the send is offered tools that work with files; only then are scripts placed for
    /// them.
    pub in_workspace: bool,
}

/// The result of a tool.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Output {
    /// The content for the model.
    pub content: Vec<ContentPart>,
    /// The same as a value, if the tool has one.
    pub value: Option<Value>,
    /// Whether it describes a failure of the tool. A failure that is only text is a [`ToolError`].
    pub failed: bool,
}

impl Output {
    /// A plain text output.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            content: vec![ContentPart::text(text)],
            ..Self::default()
        }
    }

    /// Adds a digest, which replaces the call and its output in old sends of agents that show
    /// digests, or old results of agents that summarize them. It should say what a reader would
    /// want to know of both, and depend on nothing else. It is truncated to 256 bytes.
    #[must_use]
    pub fn with_digest(mut self, text: impl Into<String>) -> Self {
        self.content.push(ContentPart::Digest { text: text.into() });
        self
    }

    /// An output that is JSON already. The model reads the text, without the blanks between its values; there is
    /// no value if reading it would change a whole number. None if it is not JSON.
    pub fn of_json(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        Some(Self {
            content: vec![ContentPart::text(numbers::compact(text))],
            value: numbers::unfit(text).is_none().then_some(value),
            failed: false,
        })
    }

    /// An output as a value, which the model reads as JSON.
    pub fn json(value: Value) -> Self {
        Self {
            content: vec![ContentPart::text(value.to_string())],
            value: Some(value),
            failed: false,
        }
    }
}

/// Why a tool gave no output.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// The model is told, and the send continues.
    #[error("{message}")]
    Reply {
        /// The kind of failure.
        code: Code,
        /// What the model is told.
        message: String,
    },
    /// The send ends.
    #[error("{message}")]
    Abort {
        /// What the client is told.
        message: String,
    },
    /// The tool needs an answer of a person. The send waits for it without a worker; then the call is made again, with
    /// all answers so far in [`Invocation::inquiring`]. Only for calls that may ask; any other gets it as an error.
    #[error("the tool asks a person, which this call cannot")]
    Asks(Box<Inquiry>),
    /// The process that made the call died, and how far it got is unknown. The send is taken up
    /// again, as after a worker crash: `repeat` decides what happens to the call.
    #[error("{message}")]
    Lost {
        /// What happened, for the log.
        message: String,
    },
}

impl ToolError {
    /// A failure that the model is told.
    pub fn reply(message: impl Into<String>) -> Self {
        Self::Reply {
            code: Code::ToolFailed,
            message: message.into(),
        }
    }
}

/// A tool that workers run.
#[async_trait]
pub trait Tool: Send + Sync + Debug {
    /// Its name, what the model is told of it, and the schema of its arguments. Must never change:
    /// the prompt prefix that providers cache begins with it.
    fn spec(&self) -> ToolSpec;

    /// Its properties.
    fn traits(&self) -> Traits;

    /// Its kind, for metrics: one of a few fixed words, because tool names are chosen by agents.
    fn kind(&self) -> &'static str {
        "built_in"
    }

    /// Makes the call. Arguments were checked against the schema. Called at most once per attempt;
    /// after a worker crash once more if `repeat` allows it. Dropping the future should end the
    /// call as far as possible; a tool that starts processes must end them with it.
    async fn call(&self, invocation: Invocation) -> Result<Output, ToolError>;
}

/// A source of tools that agents declare in full rather than by name.
#[async_trait]
pub trait ToolSource: Send + Sync + Debug {
    /// The tools that an entry of an agent's tool list stands for; `None` if this source does not
    /// handle entries of its kind.
    async fn tools(&self, declared: &DeclaredTool) -> Option<Result<Vec<Arc<dyn Tool>>, Away>>;

    /// The servers, by the names that agents give them.
    fn servers(&self) -> Vec<&str> {
        Vec::new()
    }
}

/// Why declared tools are unavailable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Away {
    /// Which tools, for the model: `those of the MCP server x`.
    pub which: String,
    /// What happened, for the log.
    pub why: String,
}

/// State kept for the calls of a send for as long as this worker runs it.
pub trait PerSend: Send + Sync + Debug {
    /// The send has left this worker; its state can be dropped.
    fn left(&self, session: SessionKey, send: SendId);
}
