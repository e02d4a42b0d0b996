//! The port to hooks: an operator or an embedding program can observe, change or deny what happens at fixed points of a
//! send.
//!
//! The points at which hooks are called, and what they may do there besides observing:
//!
//! - [`Moment::SendStarted`]: a worker starts running a send, once per grant.
//! - [`Hook::timer_fired`]: before a timer's send starts, and before any of it is stored. May
//!   change the input, postpone, deny, or end the send without an answer.
//! - [`Hook::memory_recalled`]: entries were recalled for a send, before any of it is stored. May
//!   change the shown entries, or show none.
//! - [`Moment::RoundStarted`]: before the first model call of a round.
//! - [`Hook::round_started`]: the same, once per grant. May inject a message, deny, or end the
//!   send.
//! - [`Hook::before_model`]: before each attempt of a model call. May change the request, inject a
//!   message, answer instead, deny, or end the send.
//! - [`Hook::after_model`]: after each answer, before any of it is stored. May change the answer,
//!   deny, or end the send with it.
//! - [`Hook::before_calls`]: after an answer that requests calls, before any of them is stored. May
//!   answer all of them instead, deny them all, or end the send without them.
//! - [`Hook::before_tool`]: before each call is made, or waited for; again when a call is repeated
//!   after a worker crash. May change the arguments, answer instead, or deny.
//! - [`Hook::tool_failed`]: after each failed call that a worker made. May have it repeated, or
//!   answer instead.
//! - [`Hook::after_tool`]: after each call that a worker made. May change the result, inject a
//!   message after the round's results, or skip calls that have not started.
//! - [`Moment::CallsOver`]: once all calls of a round have results, before the model gets them;
//!   again when that is repeated after a worker crash.
//! - [`Hook::before_end`]: before a send ends: with an answer, because the model has passed its
//!   turn, at the round limit or the end of the budget. May continue it with a message.
//! - [`Hook::before_fold`]: before a part of the transcript is folded. May write the fold instead,
//!   or deny folding in this round.
//! - [`Moment::FoldStored`]: a fold is durable.
//! - [`Moment::MessagesStored`]: messages of the send are durable.
//! - [`Moment::RoundStored`]: a round with calls is durable.
//! - [`Moment::SendEnded`]: a send is final, as this worker stored it.
//!
//! Hooks run one after the other, by [`HookTraits::order`], those of equal order as they were registered. The first
//! that answers instead or denies is the last that is called. A hook that fails or panics is skipped, unless it [fails
//! closed](HookTraits::fails_closed): then the action in question does not happen. A call that a policy denies gets
//! `tool.denied`; a denied model call ends its send as `policy.denied`, one without a decision is retried as
//! `policy.unavailable`.
//!
//! An injected message ([`Verdict::Say`]) is a user message of the transcript, stored with the step that stores what it
//! led to. Its id is derived from the send, the round, the point and the hook: if a hook is called again, by any
//! worker, the message is added once.

mod chain;
mod ending;
mod fired;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::memory::Recalled;
use mainspring_shared::message::{ContentPart, NewMessage};
use mainspring_shared::send::SendStatus;
use mainspring_shared::session::fold::NewFold;
use mainspring_shared::tool::CallResult;
use serde_json::{Map, Value};

pub(crate) use self::chain::{CombinedVerdict, Refusal, VerdictOrMessages, Words};
pub use self::chain::{Hooks, NameError};
pub use self::ending::{EndReason, Ending, GoOn};
pub(crate) use self::fired::Fate;
pub use self::fired::{FiredTimer, OnFired};
use crate::fold::Part;
use crate::llm::{Reply, Request};

/// Where in a session a hook is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At {
    /// The session.
    pub session: SessionKey,
    /// The send.
    pub send: SendId,
    /// The round, from 0.
    pub round: i32,
    /// The model call within the round, from 1; for a tool's call, how often it was begun.
    pub attempt: i32,
    /// The number of the worker's grant of the session. It changes with each grant during a send,
    /// and is 0 if the send has no worker.
    pub life: i64,
}

/// A call that is about to be made.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// Its id, which stays the same when the call is repeated.
    pub call_id: String,
    /// The tool.
    pub name: String,
    /// The arguments. If a hook changes them, they must still match the tool's schema.
    pub arguments: Map<String, Value>,
    /// The JSON text of the arguments, as the model wrote it; it does not follow changes.
    pub said: Option<Arc<str>>,
}

/// What a hook decides.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict<T> {
    /// Let it happen.
    Go,
    /// It does not happen; this is its outcome instead.
    Instead(T),
    /// It is denied for this reason, which the model or the caller is told.
    Refuse(String),
    /// The model is told this first, as a user message; then it may happen. If the model was
    /// already told so in this round, it happens at once. Only before a round or a model call.
    Say(Vec<ContentPart>),
    /// The send ends here, completed. Before a model call: with the model's last text. After a
    /// model call, or before its calls: with this answer, and none of its calls is made. Before a
    /// tool's call it is a denial, because other calls may be in flight.
    End,
}

/// What to do about a failed call.
#[derive(Debug, Clone, PartialEq)]
pub enum OnFailure {
    /// Tell the model.
    Tell,
    /// Repeat it, if its tool allows repeats and there have not been too many.
    Retry,
    /// Use this as its result.
    Instead(CallResult),
}

/// How often hooks may have a failed call repeated, per call and worker.
pub const RETRIES_MAX: u32 = 3;

/// A part of a transcript that is about to be folded.
#[derive(Debug, Clone)]
pub struct FoldPart {
    /// The folds and the messages of the part.
    pub part: Part,
    /// Its first message, even if an earlier fold stands for it.
    pub from_seq: i64,
    /// Its last message.
    pub to_seq: i64,
    /// Its expected tokens.
    pub tokens: u64,
    /// Whether the send continues meanwhile; otherwise its model is asked after the fold.
    pub beside: bool,
}

/// An event that hooks are told of.
#[derive(Debug, Clone, Copy)]
pub enum Moment<'a> {
    /// A worker took the send.
    SendStarted,
    /// A round begins: its first model call is about to be made.
    RoundStarted,
    /// All calls of the last round have results, which the model is about to be told.
    CallsOver(&'a [(ToolCall, CallResult)]),
    /// A fold is durable.
    FoldStored(&'a NewFold),
    /// Messages are durable.
    MessagesStored {
        /// The `seq` of the first of them.
        first_seq: i64,
        /// The messages.
        messages: &'a [NewMessage],
    },
    /// A round with calls is durable.
    RoundStored,
    /// The send is final.
    SendEnded(SendStatus),
}

/// A hook could not decide.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HookError(pub String);

/// What a hook's method returns.
pub type Decision<T> = Result<Verdict<T>, HookError>;

/// The order of a hook, and what a failure of it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HookTraits {
    /// Hooks with lower values are called first.
    pub order: i32,
    /// Whether an action is denied if the hook fails to judge it. Policies set this; observers do
    /// not.
    pub fails_closed: bool,
}

/// Code that is called at fixed points of every send. All methods except the name have a default
/// that does nothing. Side effects of a method may happen twice: after a worker crash the next
/// worker calls it again.
#[async_trait]
pub trait Hook: fmt::Debug + Send + Sync {
    /// Its name, unique among a worker's hooks.
    fn name(&self) -> &str;

    /// Its order, and what a failure of it means.
    fn traits(&self) -> HookTraits {
        HookTraits::default()
    }

    /// Something happened that hooks are told of but cannot change.
    async fn observe(&self, _at: At, _moment: Moment<'_>) -> Result<(), HookError> {
        Ok(())
    }

    /// A timer fired a send, which is about to begin. `Instead` replaces its input or puts it off;
    /// `Refuse` fails the send, and `End` completes it without asking the model. The decision is
    /// stored: a send that was let run is not asked about again once anything of it is durable.
    async fn timer_fired(&self, _at: At, _fired: &FiredTimer) -> Decision<OnFired> {
        Ok(Verdict::Go)
    }

    /// A round is about to begin. `Say` is told to the model first; `Refuse` and `End` end the
    /// send.
    async fn round_started(&self, _at: At) -> Decision<()> {
        Ok(Verdict::Go)
    }

    /// Memory entries were found for a send that begins. `Instead` replaces the whole list of
    /// entries to show, best first; with `Refuse` and `End` none is shown, and the send continues.
    /// What is shown is stored with the send's first step and not asked about again; if a worker
    /// crashes before that, the next one asks anew.
    async fn memory_recalled(&self, _at: At, _found: &[Recalled]) -> Decision<Vec<Recalled>> {
        Ok(Verdict::Go)
    }

    /// A part of the transcript is about to be folded. `Instead` is the text of the fold; `Refuse`
    /// and `End` forbid folding in this round, whatever that means for the model's window. Asked
    /// again when a fold is repeated after a worker crash.
    async fn before_fold(&self, _at: At, _part: &FoldPart) -> Decision<String> {
        Ok(Verdict::Go)
    }

    /// The model is about to be asked.
    async fn before_model(&self, _at: At, _request: &mut Request) -> Decision<Reply> {
        Ok(Verdict::Go)
    }

    /// The model has answered. `Instead` replaces the whole answer.
    async fn after_model(&self, _at: At, _reply: &mut Reply) -> Decision<Reply> {
        Ok(Verdict::Go)
    }

    /// The model has requested calls, all of which are passed as it wrote them. `Instead` is the
    /// result of each call; `Refuse` answers each with `tool.denied`. The send continues with these
    /// results. `End` drops the calls: the send ends with the text of the same answer.
    async fn before_calls(&self, _at: At, _calls: &[ToolCall]) -> Decision<CallResult> {
        Ok(Verdict::Go)
    }

    /// A tool is about to be called.
    async fn before_tool(&self, _at: At, _call: &mut ToolCall) -> Decision<CallResult> {
        Ok(Verdict::Go)
    }

    /// A tool was called. Text added to [`CallResult::said`] is told to the model as a user message
    /// after the results of the round, and stored with the result. [`CallResult::skips`] answers
    /// the calls of the round that have not started with `tool.denied` and that reason; those in
    /// flight continue.
    async fn after_tool(
        &self,
        _at: At,
        _call: &ToolCall,
        _result: &mut CallResult,
    ) -> Result<(), HookError> {
        Ok(())
    }

    /// A call that this worker made has failed. The first hook that decides anything is the last
    /// one asked. Hooks are asked again if the repeated call fails too, until it was repeated
    /// [`RETRIES_MAX`] times.
    async fn tool_failed(
        &self,
        _at: At,
        _call: &ToolCall,
        _result: &CallResult,
    ) -> Result<OnFailure, HookError> {
        Ok(OnFailure::Tell)
    }

    /// A send is about to end. It continues if a hook wants it to: its answer becomes a round like
    /// any other, followed by the message. How often this may happen, and how many rounds a send
    /// gets beyond its own limit, is configured, and counted with the send.
    async fn before_end(&self, _at: At, _ending: &Ending) -> Result<Option<GoOn>, HookError> {
        Ok(None)
    }
}
