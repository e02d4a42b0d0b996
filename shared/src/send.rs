//! A send: one accepted input to a session and all the work it causes until a final answer.

pub mod machine;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::agent::{AgentRef, SendOptions};
use crate::budget::{Held, Spent};
use crate::error::Failure;
use crate::id::{SendId, SessionId, SessionKey};
use crate::memory::Namespace;
use crate::message::ContentPart;
use crate::named::named;
use crate::session::shown::{Shown, ShownMemory};
use crate::store::{SendTotals, UsageRow};
use crate::time::Timestamp;
use crate::tool::ToolFault;
use crate::usage::Usage;
use crate::workflow::run::RunLeaf;

/// Where a send stands.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum SendStatus {
    /// Accepted, but not started.
    Queued,
    /// A worker holds its session and is running it.
    Running,
    /// It is waiting for something outside and occupies no worker.
    Waiting,
    /// Final: the model answered.
    Completed,
    /// Final: it could not be answered.
    Failed,
    /// Final: it was cancelled.
    Cancelled,
}

impl SendStatus {
    /// Every status.
    pub const ALL: [Self; 6] = [
        Self::Queued,
        Self::Running,
        Self::Waiting,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
    ];

    /// The name on the wire and in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The status with this name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// Whether the status is final.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

named! {
    /// Why a final send ended.
    StopReason {
        /// The model finished its answer.
        End = "end",
        /// The answer was truncated at `max_tokens`.
        Length = "length",
        /// The send used up its rounds.
        RoundLimit = "round_limit",
        /// The send used up its budget.
        Budget = "budget",
        /// A policy forbade it.
        Policy = "policy",
        /// Its deadline passed.
        Deadline = "deadline",
        /// It was cancelled.
        Cancelled = "cancelled",
        /// The model could not be called, or declined.
        ProviderError = "provider_error",
        /// The request does not fit the model's window.
        Context = "context",
        /// A tool or a person stopped it.
        ToolAbort = "tool_abort",
        /// Too many workers died while running it.
        WorkerCrashLimit = "worker_crash_limit",
        /// Messages interrupted one round's model calls too often.
        AttemptLimit = "attempt_limit",
        /// A bug in the system, or in a provider within the worker's process.
        Internal = "internal",
    }
}

named! {
    /// What a waiting send waits for.
    WaitingOn {
        /// An external tool's result.
        Tool = "tool",
        /// A person's answer.
        Human = "human",
        /// A child agent.
        Agent = "agent",
        /// A workflow run.
        Run = "run",
        /// A timer.
        Timer = "timer",
        /// The next attempt of a model call, at a time beyond a worker's in-memory wait.
        Retry = "retry",
        /// `resume` or `abort`, after a worker's death.
        Recovery = "recovery",
    }
}

/// A send as stored.
#[derive(Debug, Clone, PartialEq)]
pub struct SendRecord {
    /// Its identity.
    pub id: SendId,
    /// Its session and owner.
    pub key: SessionKey,
    /// Its position in the session; `None` for a delayed send until it is due.
    pub position: Option<i64>,
    /// Where it stands.
    pub status: SendStatus,
    /// What it waits for; set exactly while `status` is `waiting`.
    pub waiting_on: Option<WaitingOn>,
    /// Why it ended; set exactly when it is final.
    pub stop_reason: Option<StopReason>,
    /// The user's words.
    pub input: Vec<ContentPart>,
    /// The options of the send.
    pub options: SendOptions,
    /// The agent version that it is pinned to; `None` until it starts.
    pub agent_version: Option<i32>,
    /// The final answer's text.
    pub output_text: Option<String>,
    /// The final answer's value, if there is an output schema.
    pub output: Option<Value>,
    /// What went wrong; set exactly on a failed send.
    pub error: Option<Failure>,
    /// The total usage of its model calls.
    pub usage: Usage,
    /// Budget reserved for children that have not reported yet.
    pub held: Held,
    /// Number of durable rounds.
    pub rounds: i32,
    /// Model calls started in its current round, as of the last durable step.
    pub attempts: i32,
    /// Those of `attempts` whose cost is in `usage`; the others may have been made by workers that died.
    pub counted: i32,
    /// Those of `attempts` that a message interrupted or that returned a partial answer.
    pub not_failed: i32,
    /// What its rounds are shown besides the transcript, if anything; `None` before its first step.
    pub shown: Option<Shown>,
    /// Takeovers from dead workers since its last durable step.
    pub crashes: i32,
    /// Whether a cancel was requested.
    pub cancel_requested: bool,
    /// The parent's call that is settled when it ends.
    pub reports_to: Option<String>,
    /// The run leaf that it belongs to, if any.
    pub run: Option<RunLeaf>,
    /// Its deadline.
    pub deadline_at: Option<Timestamp>,
    /// When the sweep must check it: the end of a delay, a retry or the deadline, whichever is first.
    pub alarm_at: Option<Timestamp>,
    /// The number of the step that accepted it: where its event stream begins.
    pub first_step: i64,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When a worker first started it.
    pub started_at: Option<Timestamp>,
    /// When it became final.
    pub finished_at: Option<Timestamp>,
}

impl SendRecord {
    /// The input shown to the model: its own, or the one that hooks substituted.
    pub fn effective_input(&self) -> &[ContentPart] {
        let shown = self.shown.as_ref();
        let other = shown.and_then(|shown| shown.input.as_deref());
        other.unwrap_or(&self.input)
    }

    /// What it used besides tokens: its rounds, and the reservations that are still held.
    pub fn kept(&self) -> Spent {
        let rounds = u64::from(self.rounds.unsigned_abs());
        let answers = Spent {
            rounds,
            ..Spent::default()
        };
        answers.plus(self.held.sum())
    }

    /// Adds to its totals [what a dead worker left unpaid](Shown::take_unpaid), for a send that
    /// ends without another worker that would do it. Returns the usage row to store with the end.
    pub fn bill_crashed_call(&mut self) -> Option<UsageRow> {
        let row = self.shown.as_mut()?.take_unpaid()?;
        self.usage.add(&row.usage);
        self.counted += 1;
        Some(row)
    }

    /// Its current totals, to be stored. `spent` is what its session has spent.
    pub fn totals(&self, spent: Option<Spent>) -> SendTotals {
        SendTotals {
            usage: self.usage,
            held: self.held.clone(),
            session: spent,
            rounds: self.rounds,
            attempts: self.attempts,
            counted: self.counted,
            not_failed: self.not_failed,
            shown: self.shown.clone(),
        }
    }
}

/// A send as the API shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SendView {
    /// Its identity.
    #[schema(value_type = String)]
    pub id: SendId,
    /// Its session.
    #[schema(value_type = String)]
    pub session_id: SessionId,
    /// Where it stands.
    pub status: SendStatus,
    /// Why it ended.
    pub stop_reason: Option<StopReason>,
    /// The final answer's text.
    pub output_text: Option<String>,
    /// The final answer's value, if there is an output schema.
    #[schema(value_type = Option<Object>)]
    pub output: Option<Value>,
    /// What went wrong.
    pub error: Option<Failure>,
    /// The sum over its model calls.
    pub usage: Usage,
    /// Rounds that are durable.
    pub rounds: i32,
    /// Model calls started in its current round.
    pub attempts: i32,
    /// What it waits for.
    pub waiting_on: Option<WaitingOn>,
    /// The published agent that it uses instead of its session's; absent if it names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub agent_ref: Option<AgentRef>,
    /// What its sender noted about it; absent if nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object, required = false)]
    pub metadata: Option<Box<Map<String, Value>>>,
    /// What was recalled from the memory for it; absent if its agent recalls nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub memory: Option<MemoryView>,
    /// Its position in the session.
    pub position: Option<i64>,
    /// When it was accepted.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When a worker first took it.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Timestamp>,
    /// When it became final.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished_at: Option<Timestamp>,
    /// Names in the `tools` of the session's agent that no worker of its pool has; only for a session that is
    /// created with the send.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub warnings: Vec<ToolFault>,
}

/// The options that a send is shown with.
#[derive(Debug, Clone, Default)]
pub struct ShownOptions {
    /// As [`SendView::agent_ref`].
    pub agent_ref: Option<AgentRef>,
    /// As [`SendView::metadata`].
    pub metadata: Option<Box<Map<String, Value>>>,
}

impl From<&SendOptions> for ShownOptions {
    fn from(options: &SendOptions) -> Self {
        Self {
            agent_ref: options.agent_ref().cloned(),
            metadata: options.metadata.clone(),
        }
    }
}

impl From<SendRecord> for SendView {
    fn from(record: SendRecord) -> Self {
        Self {
            id: record.id,
            session_id: record.key.session,
            status: record.status,
            stop_reason: record.stop_reason,
            output_text: record.output_text,
            output: record.output,
            error: record.error,
            usage: record.usage,
            rounds: record.rounds,
            attempts: record.attempts,
            waiting_on: record.waiting_on,
            agent_ref: record.options.agent_ref().cloned(),
            metadata: record.options.metadata,
            memory: record
                .shown
                .and_then(|shown| shown.memory)
                .map(MemoryView::from),
            position: record.position,
            created_at: record.created_at,
            started_at: record.started_at,
            finished_at: record.finished_at,
            warnings: Vec::new(),
        }
    }
}

/// The memory that a send uses, as the API shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct MemoryView {
    /// Who keeps it.
    pub provider: String,
    /// The namespace; null if it could not be rendered, and the send had no memory.
    #[schema(value_type = Option<String>)]
    pub namespace: Option<Namespace>,
    /// The entries that the model was shown, the best first.
    pub entries: Vec<String>,
    /// Tokens of them, estimated.
    pub tokens: u64,
    /// Why there are no entries, if something failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl From<ShownMemory> for MemoryView {
    fn from(shown: ShownMemory) -> Self {
        Self {
            provider: shown.provider,
            namespace: shown.namespace,
            entries: shown.entries,
            tokens: shown.tokens,
            note: shown.note,
        }
    }
}

/// How a send ends, as decided by its worker. The transaction that stores it may find that it was
/// cancelled in the meantime.
#[derive(Debug, Clone, PartialEq)]
pub struct SendResult {
    /// A final status.
    pub status: SendStatus,
    /// Why it ended.
    pub stop_reason: StopReason,
    /// The final answer's text.
    pub output_text: Option<String>,
    /// The final answer's value.
    pub output: Option<Value>,
    /// What went wrong.
    pub error: Option<Failure>,
}

impl SendResult {
    /// The model answered.
    pub fn completed(stop_reason: StopReason, output_text: String) -> Self {
        Self {
            status: SendStatus::Completed,
            stop_reason,
            output_text: Some(output_text),
            output: None,
            error: None,
        }
    }

    /// It could not be answered.
    pub fn failed(stop_reason: StopReason, failure: Failure) -> Self {
        Self {
            status: SendStatus::Failed,
            stop_reason,
            output_text: None,
            output: None,
            error: Some(failure),
        }
    }

    /// It was cancelled.
    pub fn cancelled() -> Self {
        Self {
            status: SendStatus::Cancelled,
            stop_reason: StopReason::Cancelled,
            output_text: None,
            output: None,
            error: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for status in SendStatus::ALL {
            assert_eq!(SendStatus::parse(status.as_str()), Some(status));
        }
        for reason in StopReason::ALL {
            assert_eq!(StopReason::parse(reason.as_str()), Some(*reason));
        }
        for waiting in WaitingOn::ALL {
            assert_eq!(WaitingOn::parse(waiting.as_str()), Some(*waiting));
        }
    }
}
