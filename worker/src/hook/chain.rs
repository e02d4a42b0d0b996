//! The hooks of a worker, called one after the other.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use mainspring_shared::error::Code;
use mainspring_shared::memory::Recalled;
use mainspring_shared::message::ContentPart;
use mainspring_shared::time::Clock;
use mainspring_shared::tool::CallResult;

use super::{At, Decision, FoldPart, Hook, HookError, Moment, OnFailure, ToolCall, Verdict};
use crate::llm::{Reply, Request};

/// Prefix of names that are reserved for the kernel.
const RESERVED: &str = "builtin.";

/// Why a hook cannot have a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It is empty, or reserved.
    #[error("{name:?} cannot be a hook's name")]
    Name {
        /// The name.
        name: String,
    },
    /// Another hook has this name.
    #[error("there is a hook named {name:?} already")]
    Twice {
        /// The name.
        name: String,
    },
}

/// An action that a policy did not allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// `policy.denied` or `policy.unavailable`.
    pub(crate) code: Code,
    /// The hook and its reason.
    pub(crate) message: String,
}

/// The combined decision of hooks.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum CombinedVerdict<T> {
    /// It may happen.
    Go,
    /// It does not happen; this is its outcome instead.
    Instead(T),
    /// The send ends.
    End,
}

/// Messages injected by hooks, each with an id that does not depend on the worker.
pub(crate) type Words = Vec<(String, Vec<ContentPart>)>;

/// The combined decision of hooks at a point where they may inject messages.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum VerdictOrMessages<T> {
    /// A decision without messages.
    Verdict(CombinedVerdict<T>),
    /// These messages are told first.
    Messages(Words),
}

/// The result of a call that a policy does not allow.
fn denied(refusal: &Refusal) -> CallResult {
    let text = format!("error: this call is not permitted: {}", refusal.message);
    CallResult::error(Code::ToolDenied, text)
}

/// The hooks of a worker, in their order.
#[derive(Debug, Clone, Default)]
pub struct Hooks {
    pub(super) list: Vec<Arc<dyn Hook>>,
    /// How long each may take at one point; `None` means without limit.
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

    /// The same hooks with a time limit per point; exceeding it counts as a failure.
    #[must_use]
    pub fn within(&self, (clock, limit): (Arc<dyn Clock>, Duration)) -> Self {
        Self {
            list: self.list.clone(),
            limit: Some((clock, limit)),
        }
    }

    /// Removes a hook; true if it existed.
    pub fn remove(&mut self, name: &str) -> bool {
        let before = self.list.len();
        self.list.retain(|hook| hook.name() != name);
        self.list.len() < before
    }

    /// Whether there is a hook of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.list.iter().any(|hook| hook.name() == name)
    }

    /// Whether there are no hooks.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Notifies all hooks.
    pub(crate) async fn observe(&self, at: At, moment: Moment<'_>) {
        for hook in &self.list {
            self.noted(hook.as_ref(), hook.observe(at, moment)).await;
        }
    }

    /// The recalled entries to show, or the reason why none is shown.
    pub(crate) async fn memory_recalled(
        &self,
        at: At,
        mut found: Vec<Recalled>,
    ) -> Result<Vec<Recalled>, String> {
        for hook in &self.list {
            let decided = hook.memory_recalled(at, &found);
            match self.verdict_of(hook.as_ref(), decided).await {
                Ok(CombinedVerdict::Go) => {}
                Ok(CombinedVerdict::Instead(other)) => found = other,
                Ok(CombinedVerdict::End) => {
                    return Err(format!("{}: nothing is to be shown", hook.name()));
                }
                Err(refusal) => return Err(refusal.message),
            }
        }
        Ok(found)
    }

    /// The text of a fold if a hook wrote one, or the reason why nothing may be folded.
    pub(crate) async fn before_fold(
        &self,
        at: At,
        part: &FoldPart,
    ) -> Result<Option<String>, String> {
        for hook in &self.list {
            let decided = hook.before_fold(at, part);
            match self.verdict_of(hook.as_ref(), decided).await {
                Ok(CombinedVerdict::Go) => {}
                Ok(CombinedVerdict::Instead(text)) => return Ok(Some(text)),
                Ok(CombinedVerdict::End) => {
                    return Err(format!("{}: nothing is to be folded", hook.name()));
                }
                Err(refusal) => return Err(refusal.message),
            }
        }
        Ok(None)
    }

    /// What all calls of an answer get instead of being made, if hooks decide so.
    pub(crate) async fn before_calls(
        &self,
        at: At,
        calls: &[ToolCall],
    ) -> CombinedVerdict<CallResult> {
        for hook in &self.list {
            let decided = hook.before_calls(at, calls);
            match self.verdict_of(hook.as_ref(), decided).await {
                Ok(CombinedVerdict::Go) => {}
                Ok(verdict) => return verdict,
                Err(refusal) => return CombinedVerdict::Instead(denied(&refusal)),
            }
        }
        CombinedVerdict::Go
    }

    /// What to do about a failed call.
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

    /// The decision before a model call outside the conversation, where no message can be injected.
    pub(crate) async fn before_model(
        &self,
        at: At,
        request: &mut Request,
    ) -> Result<CombinedVerdict<Reply>, Refusal> {
        match self.before_round_call(at, request, &[]).await? {
            VerdictOrMessages::Verdict(verdict) => Ok(verdict),
            VerdictOrMessages::Messages(_) => Ok(CombinedVerdict::Go),
        }
    }

    /// The decision before a model call of a round in which the messages `said` were injected
    /// before.
    pub(crate) async fn before_round_call(
        &self,
        at: At,
        request: &mut Request,
        said: &[String],
    ) -> Result<VerdictOrMessages<Reply>, Refusal> {
        let mut words = Vec::new();
        for hook in &self.list {
            let decided = hook.before_model(at, request);
            let decided = heard(decided, &mut words, said, (at, "before_model", hook.name()));
            match self.verdict_of(hook.as_ref(), decided).await? {
                CombinedVerdict::Go => {}
                verdict => return Ok(VerdictOrMessages::Verdict(verdict)),
            }
        }
        // A hook may have removed the tool that was to be called.
        request.drop_lost_choice();
        Ok(said_or_go(words))
    }

    /// The decision about a round that begins.
    pub(crate) async fn round_started(
        &self,
        at: At,
        said: &[String],
    ) -> Result<VerdictOrMessages<()>, Refusal> {
        let mut words = Vec::new();
        for hook in &self.list {
            let decided = hook.round_started(at);
            let decided = heard(
                decided,
                &mut words,
                said,
                (at, "round_started", hook.name()),
            );
            match self.verdict_of(hook.as_ref(), decided).await? {
                CombinedVerdict::Go => {}
                verdict => return Ok(VerdictOrMessages::Verdict(verdict)),
            }
        }
        Ok(said_or_go(words))
    }

    /// The answer to use, and whether the send ends with it whatever it requests.
    pub(crate) async fn after_model(
        &self,
        at: At,
        mut reply: Reply,
    ) -> Result<(Reply, bool), Refusal> {
        for hook in &self.list {
            let decided = hook.after_model(at, &mut reply);
            match self.verdict_of(hook.as_ref(), decided).await? {
                CombinedVerdict::Go => {}
                CombinedVerdict::Instead(other) => return Ok((other, false)),
                CombinedVerdict::End => return Ok((reply, true)),
            }
        }
        Ok((reply, false))
    }

    /// A result that is used instead of calling; `None` if the tool is to be called.
    pub(crate) async fn before_tool(&self, at: At, call: &mut ToolCall) -> Option<CallResult> {
        for hook in &self.list {
            let decided = hook.before_tool(at, call);
            match self.verdict_of(hook.as_ref(), decided).await {
                Ok(CombinedVerdict::Go) => {}
                Ok(CombinedVerdict::Instead(result)) => return Some(result),
                Ok(CombinedVerdict::End) => {
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
                *result = CallResult {
                    said: std::mem::take(&mut result.said),
                    skips: result.skips.take(),
                    ..CallResult::error(Code::ToolDenied, text)
                };
                return;
            }
        }
    }

    /// Whether an observer succeeded; its failure affects nobody else.
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

    /// The decision of one hook.
    pub(super) async fn verdict_of<T>(
        &self,
        hook: &dyn Hook,
        decided: impl Future<Output = Decision<T>>,
    ) -> Result<CombinedVerdict<T>, Refusal> {
        let refusal = |code, message: String| Refusal {
            code,
            message: format!("{}: {message}", hook.name()),
        };
        let error = match self.asked(decided).await {
            Ok(Verdict::Go) => return Ok(CombinedVerdict::Go),
            Ok(Verdict::Instead(outcome)) => return Ok(CombinedVerdict::Instead(outcome)),
            Ok(Verdict::End) => return Ok(CombinedVerdict::End),
            Ok(Verdict::Refuse(why)) => return Err(refusal(Code::PolicyDenied, why)),
            Ok(Verdict::Say(_)) => "nothing can be said at this point".to_owned(),
            Err(error) => error,
        };
        tracing::warn!(hook.name = hook.name(), error, "a hook failed");
        if hook.traits().fails_closed {
            return Err(refusal(Code::PolicyUnavailable, error));
        }
        Ok(CombinedVerdict::Go)
    }

    /// The result of a hook call within its time limit.
    pub(super) async fn asked<T>(
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

/// A decision without `Say`: its message is collected in `say`, unless it was injected before.
async fn heard<T>(
    decided: impl Future<Output = Decision<T>>,
    say: &mut Words,
    said: &[String],
    (at, point, hook): (At, &str, &str),
) -> Decision<T> {
    match decided.await? {
        Verdict::Say(words) => {
            let id = format!("{}_{}_{point}_{hook}", at.send, at.round);
            if !said.contains(&id) && !words.is_empty() {
                say.push((id, words));
            }
            Ok(Verdict::Go)
        }
        verdict => Ok(verdict),
    }
}

fn said_or_go<T>(words: Words) -> VerdictOrMessages<T> {
    if words.is_empty() {
        VerdictOrMessages::Verdict(CombinedVerdict::Go)
    } else {
        VerdictOrMessages::Messages(words)
    }
}

#[cfg(test)]
mod tests;
