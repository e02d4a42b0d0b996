//! The port to hooks: an operator or an embedding program can observe, change or deny what happens at fixed points of a
//! send.
//!
//! | point | when | may |
//! |---|---|---|
//! | [`Moment::SendStarted`] | a worker starts running a send, once per grant | observe |
//! | [`Hook::timer_fired`] | before a timer's send starts, and before anything of it is stored | change the input, postpone, deny, end the send without an answer |
//! | [`Hook::memory_recalled`] | entries were recalled for a send, before anything of it is stored | change the shown entries, show none |
//! | [`Moment::RoundStarted`] | before the first model call of a round | observe |
//! | [`Hook::round_started`] | the same, once per grant | inject a message, deny, end the send |
//! | [`Hook::before_model`] | before each attempt of a model call | change the request, inject a message, answer instead, deny, end the send |
//! | [`Hook::after_model`] | after each answer, before anything of it is stored | change the answer, deny, end the send with it |
//! | [`Hook::before_calls`] | after an answer that requests calls, before any of them is stored | answer all of them instead, deny them all, end the send without them |
//! | [`Hook::before_tool`] | before each call is made, or waited for; again when a call is repeated after a worker crash | change the arguments, answer instead, deny |
//! | [`Hook::tool_failed`] | after each failed call that a worker made | have it repeated, answer instead |
//! | [`Hook::after_tool`] | after each call that a worker made | change the result, inject a message after the round's results, skip calls that have not started |
//! | [`Moment::CallsOver`] | once all calls of a round have results, before the model gets them; again when that is repeated after a worker crash | observe |
//! | [`Hook::before_end`] | before a send ends: with an answer, because the model has passed its turn, at the round limit or the end of the budget | continue it with a message |
//! | [`Hook::before_fold`] | before a part of the transcript is folded | write the fold instead, deny folding in this round |
//! | [`Moment::FoldStored`] | a fold is durable | observe |
//! | [`Moment::MessagesStored`] | messages of the send are durable | observe |
//! | [`Moment::RoundStored`] | after each round with calls is durable | observe |
//! | [`Moment::SendEnded`] | a send is final, as this worker stored it | observe |
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

use async_trait::async_trait;
use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::memory::Recalled;
use mainspring_shared::message::{ContentPart, NewMessage};
use mainspring_shared::send::SendStatus;
use mainspring_shared::session::fold::NewFold;
use mainspring_shared::tool::CallResult;
use serde_json::{Map, Value};

pub(crate) use self::chain::{Heard, Judged, Refusal, Words};
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
    /// The model call within the round, from 1; of a tool's call, how often it was begun.
    pub attempt: i32,
    /// The number of the worker's grant of the session: another one in each life of a send, and 0 where no send
    /// has a worker.
    pub life: i64,
}

/// A call that is about to be made.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// Its id: the same whenever it is repeated.
    pub call_id: String,
    /// The tool.
    pub name: String,
    /// The arguments. What a hook makes of them has to fit the tool's schema.
    pub arguments: Map<String, Value>,
}

/// What a hook decides.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict<T> {
    /// It may happen.
    Go,
    /// It does not happen; this is its outcome.
    Instead(T),
    /// It must not happen, for this reason, which the model or the caller is told.
    Refuse(String),
    /// It may happen once the model is told this, as the user's words. Where it was told so in this round
    /// already, it happens. Before a round or a model call only.
    Say(Vec<ContentPart>),
    /// The send ends here, completed. Before a model call: with what the model said last. After one, or
    /// before its calls: with what it said now, and none of its calls is made. Before a call of a tool
    /// it is a refusal, as the calls beside it may be under way.
    End,
}

/// What becomes of a call that failed.
#[derive(Debug, Clone, PartialEq)]
pub enum OnFailure {
    /// The model is told.
    Tell,
    /// It is made once more, if its tool may be asked twice and was not too often.
    Retry,
    /// This is its result.
    Instead(CallResult),
}

/// Times that hooks may have a call made again that failed, in one life of its worker.
pub const RETRIES_MAX: u32 = 3;

/// A part of a transcript that is about to be folded.
#[derive(Debug, Clone)]
pub struct FoldPart {
    /// What stands for messages, and the messages.
    pub part: Part,
    /// Its first message, also where an earlier fold stands for it.
    pub from_seq: i64,
    /// Its last message.
    pub to_seq: i64,
    /// What it has of tokens, expected.
    pub tokens: u64,
    /// Whether the send goes on meanwhile; otherwise its model is asked behind the fold.
    pub beside: bool,
}

/// What hooks are told of.
#[derive(Debug, Clone, Copy)]
pub enum Moment<'a> {
    /// A worker took the send.
    SendStarted,
    /// A round begins: its first model call is about to be made.
    RoundStarted,
    /// All calls of the last round have results, of which the model is about to be told.
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

/// When a hook is asked, and what a failure of it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HookTraits {
    /// Lower ones come first.
    pub order: i32,
    /// Whether what it cannot judge must not happen. Policies set it; observers do not.
    pub fails_closed: bool,
}

/// Something that is asked at fixed points of every send. All methods but the name have a default
/// that does nothing. What a method does to the world it may do twice: after a worker's death the
/// next one asks again.
#[async_trait]
pub trait Hook: fmt::Debug + Send + Sync {
    /// Its name, unique among a worker's hooks.
    fn name(&self) -> &str;

    /// When it is asked, and what a failure of it means.
    fn traits(&self) -> HookTraits {
        HookTraits::default()
    }

    /// Something happened of which hooks are told, and that they cannot change.
    async fn observe(&self, _at: At, _moment: Moment<'_>) -> Result<(), HookError> {
        Ok(())
    }

    /// A timer fired a send, which is about to begin. `Instead` is said or done in place of its input; `Refuse`
    /// fails it, and `End` ends it as completed without anything being said. What is decided is stored: a send
    /// that was let go is not asked about again once anything of it is durable.
    async fn timer_fired(&self, _at: At, _fired: &FiredTimer) -> Decision<OnFired> {
        Ok(Verdict::Go)
    }

    /// A round is about to begin. `Say` is told to the model first; `Refuse` and `End` end the send.
    async fn round_started(&self, _at: At) -> Decision<()> {
        Ok(Verdict::Go)
    }

    /// The memory has found entries for a send that begins. `Instead` is what is shown of them, the best
    /// first, and replaces them whole; `Refuse` and `End` let none be shown, and the send goes on. What is
    /// shown is stored with the send's first step and never asked about again; a worker that dies before
    /// that has the next one ask anew.
    async fn memory_recalled(&self, _at: At, _found: &[Recalled]) -> Decision<Vec<Recalled>> {
        Ok(Verdict::Go)
    }

    /// A part of the transcript is about to be folded. `Instead` is the text that stands for it; `Refuse`
    /// and `End` let nothing be folded in this round, whatever that means for the model's window. Asked
    /// again when a fold is repeated after a worker's death.
    async fn before_fold(&self, _at: At, _part: &FoldPart) -> Decision<String> {
        Ok(Verdict::Go)
    }

    /// The model is about to be asked.
    async fn before_model(&self, _at: At, _request: &mut Request) -> Decision<Reply> {
        Ok(Verdict::Go)
    }

    /// The model has answered. `Instead` replaces the answer whole.
    async fn after_model(&self, _at: At, _reply: &mut Reply) -> Decision<Reply> {
        Ok(Verdict::Go)
    }

    /// The model has asked for calls, all of which are here as it said them. `Instead` is the result
    /// of each; `Refuse` answers each with `tool.denied`. The send goes on with these results. `End`
    /// drops the calls: the send ends with what the model said beside them.
    async fn before_calls(&self, _at: At, _calls: &[ToolCall]) -> Decision<CallResult> {
        Ok(Verdict::Go)
    }

    /// A tool is about to be called.
    async fn before_tool(&self, _at: At, _call: &mut ToolCall) -> Decision<CallResult> {
        Ok(Verdict::Go)
    }

    /// A tool was called. What it adds to [`CallResult::said`] is told to the model as the user's words, behind
    /// the results of the round, and stored with the result. With [`CallResult::skips`] the calls of the round
    /// that nobody has begun are answered with `tool.denied` and that reason; those under way go on.
    async fn after_tool(
        &self,
        _at: At,
        _call: &ToolCall,
        _result: &mut CallResult,
    ) -> Result<(), HookError> {
        Ok(())
    }

    /// A call failed that this worker made. The first hook that wants anything is the last that is
    /// asked. They are asked again about a call that failed once more, until it was repeated
    /// [`RETRIES_MAX`] times.
    async fn tool_failed(
        &self,
        _at: At,
        _call: &ToolCall,
        _result: &CallResult,
    ) -> Result<OnFailure, HookError> {
        Ok(OnFailure::Tell)
    }

    /// A send is about to end. It goes on where a hook wants it: an answer becomes a round like any other, and
    /// the message is stored behind it. How often that may be, and how many rounds a send gets beyond its own, is
    /// configured, and counted with the send.
    async fn before_end(&self, _at: At, _ending: &Ending) -> Result<Option<GoOn>, HookError> {
        Ok(None)
    }
}
