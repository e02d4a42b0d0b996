//! The port to hooks: what an operator or an embedding program wants to see, change or forbid at
//! fixed points of a send.
//!
//! | point | when | may |
//! |---|---|---|
//! | [`Hook::send_started`] | a worker takes a send, once per life | observe |
//! | [`Hook::timer_fired`] | before a send that a timer fired begins, and before anything of it is stored | say something else, refuse, end the send without a word |
//! | [`Hook::memory_recalled`] | entries were found for a send, before anything of it is stored | change what is shown, show nothing |
//! | [`Hook::round_started`] | before the first model call of a round | observe |
//! | [`Hook::before_model`] | before each model call, attempts counted singly | change the request, answer instead, refuse, end the send |
//! | [`Hook::after_model`] | after each answer, before anything of it is stored | change the answer, refuse, end the send with it |
//! | [`Hook::before_calls`] | after an answer that asks for calls, before any of them is stored | answer all of them instead, refuse them all, end the send without them |
//! | [`Hook::before_tool`] | before each call is made, or waited for; again when a call is repeated after a worker's death | change the arguments, answer instead, refuse |
//! | [`Hook::tool_failed`] | after each call that failed, where a worker made it | have it made once more, answer instead |
//! | [`Hook::after_tool`] | after each call that a worker made | change the result |
//! | [`Hook::calls_over`] | once all calls of a round have results, before the model is asked with them; again when that is repeated after a worker's death | observe |
//! | [`Hook::before_end`] | before a final answer ends its send | send the model back with a message |
//! | [`Hook::before_fold`] | before a part of the transcript is folded | write the fold instead, let nothing be folded in this round |
//! | [`Hook::fold_stored`] | a fold is durable | observe |
//! | [`Hook::messages_stored`] | messages of the send are durable | observe |
//! | [`Hook::round_stored`] | after each round with calls is durable | observe |
//! | [`Hook::send_ended`] | a send is final, as this worker stored it | observe |
//!
//! Hooks run one after the other, by [`HookTraits::order`], those of one order as they were registered. The
//! first that answers instead or refuses is the last that is asked. A hook that fails or panics is
//! passed over, unless it [fails closed](HookTraits::fails_closed): then what it was to judge does not
//! happen. A call that a policy refuses is answered with `tool.denied`; a model call that it refuses
//! ends its send as `policy.denied`, one that it could not judge is tried again as
//! `policy.unavailable`.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use mainspring_shared::error::Code;
use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::memory::Recalled;
use mainspring_shared::message::{ContentPart, NewMessage};
use mainspring_shared::send::SendStatus;
use mainspring_shared::session::fold::NewFold;
use mainspring_shared::time::Clock;
use mainspring_shared::tool::CallResult;
use serde_json::{Map, Value};

mod fired;

pub use self::fired::FiredTimer;

use crate::fold::Part;
use crate::llm::{Reply, Request};

/// Names that begin so are the kernel's own.
const RESERVED: &str = "builtin.";

/// Where in a session a hook is asked.
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
    /// It is made once more, if its tool may be asked twice.
    Retry,
    /// This is its result.
    Instead(CallResult),
}

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

    /// A worker took the send.
    async fn send_started(&self, _at: At) -> Result<(), HookError> {
        Ok(())
    }

    /// A timer fired a send, which is about to begin. `Instead` is said in place of its input; `Refuse`
    /// fails it, and `End` ends it as completed without anything being said. What is decided is stored: a send
    /// that was let go is not asked about again once anything of it is durable.
    async fn timer_fired(&self, _at: At, _fired: &FiredTimer) -> Decision<Vec<ContentPart>> {
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

    /// A fold is durable.
    async fn fold_stored(&self, _at: At, _fold: &NewFold) -> Result<(), HookError> {
        Ok(())
    }

    /// A round begins: its first model call is about to be made.
    async fn round_started(&self, _at: At) -> Result<(), HookError> {
        Ok(())
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

    /// A tool was called.
    async fn after_tool(
        &self,
        _at: At,
        _call: &ToolCall,
        _result: &mut CallResult,
    ) -> Result<(), HookError> {
        Ok(())
    }

    /// A call failed that this worker made. The first hook that wants anything is the last that is
    /// asked; of one call, none is asked a second time.
    async fn tool_failed(
        &self,
        _at: At,
        _call: &ToolCall,
        _result: &CallResult,
    ) -> Result<OnFailure, HookError> {
        Ok(OnFailure::Tell)
    }

    /// All calls of the last round have results, of which the model is about to be told.
    async fn calls_over(
        &self,
        _at: At,
        _results: &[(ToolCall, CallResult)],
    ) -> Result<(), HookError> {
        Ok(())
    }

    /// The model gave a final answer. A text is said to the model as the user's, after the answer,
    /// which is stored as a round like any other; the send goes on, as long as rounds are left.
    async fn before_end(&self, _at: At, _reply: &Reply) -> Result<Option<String>, HookError> {
        Ok(None)
    }

    /// Messages are durable, the first of them under this `seq`.
    async fn messages_stored(
        &self,
        _at: At,
        _first_seq: i64,
        _messages: &[NewMessage],
    ) -> Result<(), HookError> {
        Ok(())
    }

    /// A round with calls is durable.
    async fn round_stored(&self, _at: At) -> Result<(), HookError> {
        Ok(())
    }

    /// The send is final.
    async fn send_ended(&self, _at: At, _status: SendStatus) -> Result<(), HookError> {
        Ok(())
    }
}

/// A hook's name that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It is empty, or reserved.
    #[error("{name:?} cannot be a hook's name")]
    Name {
        /// The name.
        name: String,
    },
    /// Another hook has it.
    #[error("there is a hook named {name:?} already")]
    Twice {
        /// The name.
        name: String,
    },
}

/// What a policy did not let happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// `policy.denied` or `policy.unavailable`.
    pub(crate) code: Code,
    /// Which hook, and why.
    pub(crate) message: String,
}

/// What hooks make of something.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Judged<T> {
    /// It happens.
    Go,
    /// This is its outcome.
    Instead(T),
    /// The send ends.
    End,
}

/// What a call gets that a policy does not permit.
fn denied(refusal: &Refusal) -> CallResult {
    let text = format!("error: this call is not permitted: {}", refusal.message);
    CallResult::error(Code::ToolDenied, text)
}

/// The hooks of a worker, in their order.
#[derive(Debug, Clone, Default)]
pub struct Hooks {
    list: Vec<Arc<dyn Hook>>,
    /// How long each may take at one point; without it for ever.
    limit: Option<(Arc<dyn Clock>, Duration)>,
}

impl Hooks {
    /// Adds a hook.
    pub fn register(&mut self, hook: Arc<dyn Hook>) -> Result<(), NameError> {
        let name = hook.name();
        if name.trim().is_empty() || name.starts_with(RESERVED) {
            return Err(NameError::Name {
                name: name.to_owned(),
            });
        }
        if self.contains(name) {
            return Err(NameError::Twice {
                name: name.to_owned(),
            });
        }
        let at = self
            .list
            .partition_point(|other| other.traits().order <= hook.traits().order);
        self.list.insert(at, hook);
        Ok(())
    }

    /// The same hooks, none of which may take longer than this at one point: then it has failed.
    #[must_use]
    pub fn within(&self, (clock, limit): (Arc<dyn Clock>, Duration)) -> Self {
        Self {
            list: self.list.clone(),
            limit: Some((clock, limit)),
        }
    }

    /// Takes a hook away; true when it was there.
    pub fn remove(&mut self, name: &str) -> bool {
        let before = self.list.len();
        self.list.retain(|hook| hook.name() != name);
        self.list.len() < before
    }

    /// Whether there is a hook of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.list.iter().any(|hook| hook.name() == name)
    }

    /// Whether there is none at all.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) async fn send_started(&self, at: At) {
        for hook in &self.list {
            self.noted(hook.as_ref(), hook.send_started(at)).await;
        }
    }

    pub(crate) async fn send_ended(&self, at: At, status: SendStatus) {
        for hook in &self.list {
            self.noted(hook.as_ref(), hook.send_ended(at, status)).await;
        }
    }

    /// What of the memory is shown; none with the reason why.
    pub(crate) async fn memory_recalled(
        &self,
        at: At,
        mut found: Vec<Recalled>,
    ) -> Result<Vec<Recalled>, String> {
        for hook in &self.list {
            let decided = hook.memory_recalled(at, &found);
            match self.judged(hook.as_ref(), decided).await {
                Ok(Judged::Go) => {}
                Ok(Judged::Instead(other)) => found = other,
                Ok(Judged::End) => return Err(format!("{}: nothing is to be shown", hook.name())),
                Err(refusal) => return Err(refusal.message),
            }
        }
        Ok(found)
    }

    /// The text of a fold that a hook wrote, if one did; the reason where nothing may be folded.
    pub(crate) async fn before_fold(
        &self,
        at: At,
        part: &FoldPart,
    ) -> Result<Option<String>, String> {
        for hook in &self.list {
            let decided = hook.before_fold(at, part);
            match self.judged(hook.as_ref(), decided).await {
                Ok(Judged::Go) => {}
                Ok(Judged::Instead(text)) => return Ok(Some(text)),
                Ok(Judged::End) => return Err(format!("{}: nothing is to be folded", hook.name())),
                Err(refusal) => return Err(refusal.message),
            }
        }
        Ok(None)
    }

    pub(crate) async fn fold_stored(&self, at: At, fold: &NewFold) {
        for hook in &self.list {
            self.noted(hook.as_ref(), hook.fold_stored(at, fold)).await;
        }
    }

    pub(crate) async fn round_started(&self, at: At) {
        for hook in &self.list {
            self.noted(hook.as_ref(), hook.round_started(at)).await;
        }
    }

    pub(crate) async fn calls_over(&self, at: At, results: &[(ToolCall, CallResult)]) {
        for hook in &self.list {
            let looks = hook.calls_over(at, results);
            self.noted(hook.as_ref(), looks).await;
        }
    }

    pub(crate) async fn messages_stored(&self, at: At, first_seq: i64, messages: &[NewMessage]) {
        for hook in &self.list {
            let looks = hook.messages_stored(at, first_seq, messages);
            self.noted(hook.as_ref(), looks).await;
        }
    }

    /// What each call of an answer gets instead of being made, if they may not be.
    pub(crate) async fn before_calls(&self, at: At, calls: &[ToolCall]) -> Judged<CallResult> {
        for hook in &self.list {
            let decided = hook.before_calls(at, calls);
            match self.judged(hook.as_ref(), decided).await {
                Ok(Judged::Go) => {}
                Ok(judged) => return judged,
                Err(refusal) => return Judged::Instead(denied(&refusal)),
            }
        }
        Judged::Go
    }

    pub(crate) async fn round_stored(&self, at: At) {
        for hook in &self.list {
            self.noted(hook.as_ref(), hook.round_stored(at)).await;
        }
    }

    /// What becomes of a call that failed.
    pub(crate) async fn tool_failed(
        &self,
        at: At,
        call: &ToolCall,
        result: &CallResult,
    ) -> OnFailure {
        for hook in &self.list {
            match self.asked(hook.tool_failed(at, call, result)).await {
                Ok(OnFailure::Tell) => {}
                Ok(wanted) => return wanted,
                Err(error) => {
                    tracing::warn!(hook.name = hook.name(), error, "a hook failed");
                }
            }
        }
        OnFailure::Tell
    }

    /// What the model is told instead of ending; none when the answer ends the send.
    pub(crate) async fn before_end(&self, at: At, reply: &Reply) -> Option<String> {
        for hook in &self.list {
            match self.asked(hook.before_end(at, reply)).await {
                Ok(None) => {}
                Ok(Some(text)) => return Some(text),
                Err(error) => {
                    tracing::warn!(hook.name = hook.name(), error, "a hook failed");
                }
            }
        }
        None
    }

    /// An answer that is used instead of asking, if the model is not to be asked.
    pub(crate) async fn before_model(
        &self,
        at: At,
        request: &mut Request,
    ) -> Result<Judged<Reply>, Refusal> {
        for hook in &self.list {
            let decided = hook.before_model(at, request);
            match self.judged(hook.as_ref(), decided).await? {
                Judged::Go => {}
                judged => return Ok(judged),
            }
        }
        Ok(Judged::Go)
    }

    /// The answer that is used, and whether the send ends with it whatever it asks for.
    pub(crate) async fn after_model(
        &self,
        at: At,
        mut reply: Reply,
    ) -> Result<(Reply, bool), Refusal> {
        for hook in &self.list {
            let decided = hook.after_model(at, &mut reply);
            match self.judged(hook.as_ref(), decided).await? {
                Judged::Go => {}
                Judged::Instead(other) => return Ok((other, false)),
                Judged::End => return Ok((reply, true)),
            }
        }
        Ok((reply, false))
    }

    /// A result that is used instead of calling; none when the tool is to be called.
    pub(crate) async fn before_tool(&self, at: At, call: &mut ToolCall) -> Option<CallResult> {
        for hook in &self.list {
            let decided = hook.before_tool(at, call);
            match self.judged(hook.as_ref(), decided).await {
                Ok(Judged::Go) => {}
                Ok(Judged::Instead(result)) => return Some(result),
                Ok(Judged::End) => {
                    return Some(denied(&Refusal {
                        code: Code::PolicyDenied,
                        message: format!("{}: the work is to end", hook.name()),
                    }));
                }
                Err(refusal) => return Some(denied(&refusal)),
            }
        }
        None
    }

    pub(crate) async fn after_tool(&self, at: At, call: &ToolCall, result: &mut CallResult) {
        for hook in &self.list {
            let mut changed = result.clone();
            let done = hook.after_tool(at, call, &mut changed);
            if self.noted(hook.as_ref(), done).await {
                *result = changed;
            } else if hook.traits().fails_closed {
                let text = format!(
                    "error: the hook {} could not look at the result",
                    hook.name()
                );
                *result = CallResult::error(Code::ToolDenied, text);
                return;
            }
        }
    }

    /// Whether an observer did what it wanted to; what it did not concerns nobody else.
    async fn noted(
        &self,
        hook: &dyn Hook,
        done: impl Future<Output = Result<(), HookError>>,
    ) -> bool {
        let Err(error) = self.asked(done).await else {
            return true;
        };
        tracing::warn!(hook.name = hook.name(), error, "a hook failed");
        false
    }

    /// What a hook makes of what it was asked about.
    async fn judged<T>(
        &self,
        hook: &dyn Hook,
        decided: impl Future<Output = Decision<T>>,
    ) -> Result<Judged<T>, Refusal> {
        let refusal = |code, message: String| Refusal {
            code,
            message: format!("{}: {message}", hook.name()),
        };
        let error = match self.asked(decided).await {
            Ok(Verdict::Go) => return Ok(Judged::Go),
            Ok(Verdict::Instead(outcome)) => return Ok(Judged::Instead(outcome)),
            Ok(Verdict::End) => return Ok(Judged::End),
            Ok(Verdict::Refuse(why)) => return Err(refusal(Code::PolicyDenied, why)),
            Err(error) => error,
        };
        tracing::warn!(hook.name = hook.name(), error, "a hook failed");
        if hook.traits().fails_closed {
            return Err(refusal(Code::PolicyUnavailable, error));
        }
        Ok(Judged::Go)
    }

    /// What a hook says within its time.
    async fn asked<T>(
        &self,
        says: impl Future<Output = Result<T, HookError>>,
    ) -> Result<T, String> {
        let says = AssertUnwindSafe(says).catch_unwind();
        let late = async {
            match &self.limit {
                Some((clock, limit)) => clock.sleep(*limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            said = says => match said {
                Ok(said) => said.map_err(|error| error.to_string()),
                Err(_) => Err("it panicked".to_owned()),
            },
            () = late => Err("it did not answer in time".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests;
