//! The port to tools: what a tool says of itself, how it is called, and what may come back.
//!
//! The crate `mainspring-tools` has those that ship.
//!
//! A tool of one's own is an implementation of [`Tool`] given to [`Tools::insert`]. It then can be
//! named by agents like a built-in one.

mod isolation;
mod offer;
mod registry;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::error::Code;
use mainspring_shared::id::{BootId, SendId, SessionKey};
use mainspring_shared::memory::Account;
use mainspring_shared::message::ContentPart;
use mainspring_shared::skill::AgentSkill;
use mainspring_shared::tool::{DeclaredTool, Repeat};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

pub use crate::llm::ToolSpec;

pub use isolation::{Cell, CellOwner, Isolator, NoCell};
pub use offer::{Executor, Offer, Offers};
pub use registry::{Tools, ToolsError};

/// How long a call may take unless its tool says otherwise.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_mins(2);

/// Characters of an output that the model is shown unless the tool says otherwise.
pub const OUTPUT_CHARS_DEFAULT: usize = 50_000;

/// Which calls of a round may run beside each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Concurrency {
    /// It may run beside other parallel calls.
    #[default]
    Parallel,
    /// It runs alone: after the calls before it, before those behind it.
    Exclusive,
}

/// What a message that interrupts does to a call under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnInterrupt {
    /// It finishes.
    #[default]
    Finish,
    /// It is told to stop; what it says then is its result.
    Stop,
}

/// What a tool promises and needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traits {
    /// What a second execution of the same call does.
    pub repeat: Repeat,
    /// How long one call may take.
    pub timeout: Duration,
    /// Beside which calls it may run.
    pub concurrency: Concurrency,
    /// What an interruption does to it.
    pub on_interrupt: OnInterrupt,
    /// How long it may take to stop once told to, before it is dropped.
    pub grace: Duration,
    /// Characters of its output that the model is shown: head and tail; the rest can be fetched.
    pub output_chars_max: usize,
    /// What the kernel does for its calls.
    pub effect: Effect,
    /// Whether it works with the files of the session's workspace.
    pub in_workspace: bool,
}

/// What the kernel does for a tool's calls. It asks for this and compares no names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing but make the call, or wait for its result.
    None,
    /// Before a send's first model call, read the session's notes into the prompt.
    Recall,
    /// The same with its to-do list, where something is left to do.
    RecallTodo,
    /// Offer it to every agent that remembers, and to no other.
    Remember,
    /// Give the call's task to another agent, whose result is the call's.
    Delegate,
    /// Start a run of a workflow, whose result is the call's.
    StartRun,
    /// Once the round's calls are over, end the send: the model has nothing to answer.
    PassTurn,
    /// Read its arguments as a question to a person, which may say how long it waits and what holds then.
    AskPerson,
    /// Offer it to each agent that has skills, which its calls read.
    ReadSkills,
    /// Offer it to each agent whose context shows less than the transcript, which its calls read.
    ReadBack,
}

impl Effect {
    /// Whether other agents work for the call, which the send's budget has to pay for.
    pub const fn is_agents_work(self) -> bool {
        matches!(self, Self::Delegate | Self::StartRun)
    }
}

impl Traits {
    /// Traits of a tool with this answer to a repeat, and the defaults for everything else.
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
    /// The call's id: the same whenever this call is repeated, never that of another.
    pub call_id: String,
    /// The arguments, which fit the tool's schema.
    pub arguments: Map<String, Value>,
    /// The session that asks.
    pub session: SessionKey,
    /// The send that asks.
    pub send_id: SendId,
    /// The life of the worker that makes it.
    pub boot: BootId,
    /// How often this call was begun, this time included.
    pub attempt: i32,
    /// Cancelled when the call is to stop. The tool may still say how far it came.
    pub stop: CancellationToken,
    /// The skills of the agent that asks.
    pub skills: Skills,
    /// Where model calls are entered that the call takes: the send pays for them.
    pub account: Account,
}

/// The skills of an agent in one send.
#[derive(Debug, Clone, Default)]
pub struct Skills {
    /// The versions that its agent has.
    pub of_agent: Arc<[AgentSkill]>,
    /// Whether the send is offered tools that work with files, which scripts are placed for.
    pub in_workspace: bool,
}

/// What a tool gave.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Output {
    /// For the model.
    pub content: Vec<ContentPart>,
    /// The same as a value, where the tool has one.
    pub value: Option<Value>,
    /// Whether it shows how the tool failed. What can be said in words is a [`ToolError`].
    pub failed: bool,
}

impl Output {
    /// An output in words.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            content: vec![ContentPart::text(text)],
            ..Self::default()
        }
    }

    /// The same with what is left of it once it is old: a line in place of the call and its output where an
    /// agent shows digests of older sends, or summaries of older results. It says what a reader would want
    /// to know of both, and is a function of them. It is cut at 256 bytes.
    #[must_use]
    pub fn with_digest(mut self, text: impl Into<String>) -> Self {
        self.content.push(ContentPart::Digest { text: text.into() });
        self
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

/// Why a tool gave nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// The model is told, and goes on.
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
    /// The process that made the call is gone, and nobody knows how far it came. The send is taken up anew,
    /// as after the death of a worker: what `repeat` says decides about the call.
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
    /// Its name, what the model is told of it, and the schema of its arguments. Always the same:
    /// the prompt prefix that providers cache begins with it.
    fn spec(&self) -> ToolSpec;

    /// What it promises and needs.
    fn traits(&self) -> Traits;

    /// Of which kind it is, for metrics: one of a few words, as names are whatever agents declare.
    fn kind(&self) -> &'static str {
        "built_in"
    }

    /// Makes the call. Arguments were checked against the schema. Called at most once per attempt;
    /// after a worker's death once more if `repeat` allows. Dropping the future ends the call as
    /// well as that is possible; a tool that starts processes ends them with it.
    async fn call(&self, invocation: Invocation) -> Result<Output, ToolError>;
}

/// Where tools come from that agents declare with all that they are, and not by a name alone.
#[async_trait]
pub trait ToolSource: Send + Sync + Debug {
    /// The tools that an entry of an agent's list stands for; none if entries of its kind are not
    /// this source's.
    async fn tools(&self, declared: &DeclaredTool) -> Option<Result<Vec<Arc<dyn Tool>>, Away>>;

    /// Servers by the names that agents give them.
    fn servers(&self) -> Vec<&str> {
        Vec::new()
    }
}

/// Why declared tools are not on offer now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Away {
    /// Which tools, for the model: `those of the MCP server x`.
    pub which: String,
    /// What happened, for the log.
    pub why: String,
}

/// Something that is kept for the calls of a send, as long as this worker has it.
pub trait PerSend: Send + Sync + Debug {
    /// The send is no longer this worker's: what was kept for its calls goes.
    fn left(&self, session: SessionKey, send: SendId);
}
