//! Isolation: where the tools of isolated agents run.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use mainspring_shared::agent::AgentSpec;
use mainspring_shared::error::Code;
use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::tool::DeclaredTool;

use super::{Away, Tool};

/// The send that owns a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CellOwner {
    /// Its session.
    pub session: SessionKey,
    /// The send.
    pub send: SendId,
}

/// Gives each send of an isolated agent a process of its own.
///
/// Nothing of such an agent that reaches beyond the database runs anywhere else: tools that a cell
/// does not have are not offered, and without a cell the send fails.
#[async_trait]
pub trait Isolator: Send + Sync + Debug {
    /// The cell of a send, with its process running. It ends when the worker leaves the send, at
    /// the latest with the worker.
    async fn cell(&self, owner: CellOwner, agent: &AgentSpec) -> Result<Arc<dyn Cell>, NoCell>;
}

/// The process of a send, from which its tools are made. A call that is in flight when the process
/// ends is [`ToolError::Lost`](super::ToolError::Lost).
#[async_trait]
pub trait Cell: Send + Sync + Debug {
    /// The worker's tool of this name, made in the cell; `None` if there is no such tool.
    fn named(&self, name: &str) -> Option<Arc<dyn Tool>>;

    /// The tools that an entry of the agent's list stands for, made in the cell; `None` if the cell
    /// does not handle entries of that kind.
    async fn declared(&self, declared: &DeclaredTool) -> Option<Result<Vec<Arc<dyn Tool>>, Away>>;
}

/// Why a send has no cell.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoCell {
    /// No launcher is configured.
    #[error(
        "the worker has neither `tools.isolation_launcher` nor `tools.launcher`, so that it cannot isolate \
         an agent: set one of them, or run the agent in a pool whose workers have it"
    )]
    Unconfigured,
    /// The worker has as many cells as it may have, and all are busy.
    #[error("all processes that the worker may have for isolated agents are in use")]
    Busy,
    /// Its process does not start.
    #[error("the process for the agent's tools does not start: {detail}")]
    Start {
        /// What happened.
        detail: String,
    },
}

impl NoCell {
    /// The code that the send fails with.
    pub const CODE: Code = Code::IsolationUnavailable;

    /// Whether it cannot change while the worker runs.
    pub const fn is_permanent(&self) -> bool {
        matches!(self, Self::Unconfigured)
    }
}
