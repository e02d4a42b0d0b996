//! A policy behind a URL: hooks that another service decides.

mod answer;
mod observing;

use std::sync::Arc;

use async_trait::async_trait;
use mainspring_shared::error::Code;
use mainspring_shared::id::BootId;
use mainspring_shared::memory::Account;
use mainspring_shared::memory::Recalled;
use mainspring_shared::message::{Arguments, ContentPart};
use mainspring_shared::stored::Extra;
use mainspring_shared::tool::schema::any_object;
use mainspring_shared::tool::{CallResult, HttpTool, Repeat};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::answer::{Action, Answer};
use crate::http::{Caller, Kind};
use mainspring_worker::hook::{
    At, Decision, Ending, FiredTimer, FoldPart, GoOn, Hook, HookError, HookTraits, Moment,
    OnFailure, OnFired, ToolCall, Verdict,
};
use mainspring_worker::llm::{Reply, Request};
use mainspring_worker::tool::{Invocation, Output, Tool, ToolError};

/// The point at which a policy is consulted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Point {
    Round,
    Model,
    Answer,
    Calls,
    Tool,
    Failed,
    Result,
    End,
    Memory,
    Fold,
    Timer,
    SendStarted,
    SendEnded,
    MessagesStored,
    FoldStored,
}

impl Point {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Round => "round_started",
            Self::Model => "before_model",
            Self::Answer => "after_model",
            Self::Calls => "before_calls",
            Self::Tool => "before_tool",
            Self::Failed => "tool_failed",
            Self::Result => "after_tool",
            Self::End => "before_end",
            Self::Memory => "memory_recalled",
            Self::Fold => "before_fold",
            Self::Timer => "timer_fired",
            Self::SendStarted => "send_started",
            Self::SendEnded => "send_ended",
            Self::MessagesStored => "messages_stored",
            Self::FoldStored => "fold_stored",
        }
    }

    /// What its requests are signed as.
    const fn kind(self) -> Kind {
        if self.is_observed() {
            Kind::Event
        } else {
            Kind::Policy
        }
    }

    /// Whether the policy is only notified at this point and decides nothing.
    const fn is_observed(self) -> bool {
        matches!(
            self,
            Self::SendStarted | Self::SendEnded | Self::MessagesStored | Self::FoldStored
        )
    }
}

/// A policy that another service decides. It is called with one signed `POST` in the form of a tool
/// call, named after its point, whose `arguments` describe what is about to happen; it responds
/// with an `action` and the members that belong to this point. Any other response, or none, is not
/// a decision, and the action in question does not happen. There are two exceptions: the end of a
/// send still happens, and a call that failed stays failed. A policy that is only notified need not
/// respond, and its response changes nothing.
#[derive(Debug)]
pub struct HttpPolicy {
    name: String,
    point: Point,
    tool: Arc<dyn Tool>,
}

impl HttpPolicy {
    /// A policy for rounds that start.
    pub fn round_started(name: impl Into<String>, url: &str, caller: &Caller) -> Self {
        Self::new(name.into(), Point::Round, url, caller)
    }

    /// A policy for model answers.
    pub fn after_model(name: impl Into<String>, url: &str, caller: &Caller) -> Self {
        Self::new(name.into(), Point::Answer, url, caller)
    }

    /// A policy for calls that failed.
    pub fn tool_failed(name: impl Into<String>, url: &str, caller: &Caller) -> Self {
        Self::new(name.into(), Point::Failed, url, caller)
    }

    /// A policy for call results.
    pub fn after_tool(name: impl Into<String>, url: &str, caller: &Caller) -> Self {
        Self::new(name.into(), Point::Result, url, caller)
    }

    /// A policy for model calls.
    pub fn before_model(name: impl Into<String>, url: &str, caller: &Caller) -> Self {
        Self::new(name.into(), Point::Model, url, caller)
    }

    /// A policy for tool calls.
    pub fn before_tool(name: impl Into<String>, url: &str, caller: &Caller) -> Self {
        Self::new(name.into(), Point::Tool, url, caller)
    }

    /// A policy for all calls of an answer together.
    pub fn before_calls(name: impl Into<String>, url: &str, caller: &Caller) -> Self {
        Self::new(name.into(), Point::Calls, url, caller)
    }

    /// A policy for final answers.
    pub fn before_end(name: impl Into<String>, url: &str, caller: &Caller) -> Self {
        Self::new(name.into(), Point::End, url, caller)
    }

    /// A policy for what the model is shown of the memory.
    pub fn memory_recalled(name: impl Into<String>, url: &str, caller: &Caller) -> Self {
        Self::new(name.into(), Point::Memory, url, caller)
    }

    /// A policy for folds.
    pub fn before_fold(name: impl Into<String>, url: &str, caller: &Caller) -> Self {
        Self::new(name.into(), Point::Fold, url, caller)
    }

    /// A policy for sends that timers fire.
    pub fn timer_fired(name: impl Into<String>, url: &str, caller: &Caller) -> Self {
        Self::new(name.into(), Point::Timer, url, caller)
    }

    /// Notified of sends that a worker took.
    pub fn send_started(name: impl Into<String>, url: &str, caller: &Caller) -> Self {
        Self::new(name.into(), Point::SendStarted, url, caller)
    }

    /// Notified of sends that ended.
    pub fn send_ended(name: impl Into<String>, url: &str, caller: &Caller) -> Self {
        Self::new(name.into(), Point::SendEnded, url, caller)
    }

    /// Notified of messages once they are durable.
    pub fn messages_stored(name: impl Into<String>, url: &str, caller: &Caller) -> Self {
        Self::new(name.into(), Point::MessagesStored, url, caller)
    }

    /// Notified of folds once they are durable.
    pub fn fold_stored(name: impl Into<String>, url: &str, caller: &Caller) -> Self {
        Self::new(name.into(), Point::FoldStored, url, caller)
    }

    fn new(name: String, point: Point, url: &str, caller: &Caller) -> Self {
        let declared = HttpTool {
            name: point.as_str().to_owned(),
            description: String::new(),
            parameters: any_object(),
            url: url.to_owned(),
            // Asking twice is harmless.
            repeat: Some(Repeat::Safe),
            request: None,
            timeout: None,
            parallel: true,
            approval: false,
            digest: None,
            pool: None,
            extra: Extra::default(),
        };
        Self {
            name,
            point,
            tool: caller.asking(point.kind(), &declared),
        }
    }

    async fn ask(&self, at: At, id: String, arguments: Value) -> Result<Answer, HookError> {
        let output = self.tell(at, id, arguments, None).await?;
        answer::read(self.point, &output)
    }

    /// `said` is the JSON text of the arguments, where that has to arrive to the byte.
    async fn tell(
        &self,
        at: At,
        id: String,
        arguments: Value,
        said: Option<Arc<str>>,
    ) -> Result<Output, HookError> {
        let arguments = match arguments {
            Value::Object(members) => members,
            other => Map::from_iter([("value".to_owned(), other)]),
        };
        let invocation = Invocation {
            call_id: id,
            arguments,
            said,
            session: at.session,
            send_id: at.send,
            boot: BootId(Uuid::nil()),
            attempt: at.attempt,
            stop: CancellationToken::new(),
            skills: mainspring_worker::tool::Skills::default(),
            account: Account::default(),
            progress: mainspring_worker::tool::Progress::default(),
            kept: mainspring_worker::tool::Kept::default(),
            inquiring: mainspring_worker::tool::Inquiring::default(),
        };
        let output = self.tool.call(invocation).await;
        output.map_err(|error| match error {
            ToolError::Reply { message, .. }
            | ToolError::Abort { message }
            | ToolError::Lost { message } => HookError(message),
            asks @ ToolError::Asks(_) => HookError(asks.to_string()),
        })
    }
}

/// What a policy is asked of a call, with the arguments as the model wrote them; `None` if they were changed since.
fn exactly(call: &ToolCall, asked: &Value) -> Option<Arc<str>> {
    let said = call.said.as_deref()?;
    if Arguments::read(said).value().as_object() != Some(&call.arguments) {
        return None;
    }
    let mut rest = asked.as_object()?.clone();
    rest.shift_remove("arguments");
    let mut text = Value::Object(rest).to_string();
    text.insert_str(1, &format!("\"arguments\":{said},"));
    Some(text.into())
}

/// How a call and its result are presented to a policy.
fn of_result(call: &ToolCall, result: &CallResult, round: i32) -> Value {
    json!({
        "call_id": call.call_id,
        "name": call.name,
        "arguments": call.arguments,
        "content": result.content,
        "value": result.value,
        "failed": result.failed,
        "code": result.code,
        "round": round,
    })
}

#[async_trait]
impl Hook for HttpPolicy {
    fn name(&self) -> &str {
        &self.name
    }

    fn traits(&self) -> HookTraits {
        HookTraits {
            fails_closed: !self.point.is_observed(),
            ..HookTraits::default()
        }
    }

    async fn observe(&self, at: At, moment: Moment<'_>) -> Result<(), HookError> {
        match observing::told(self.point, at, &moment) {
            Some((id, arguments)) => self.tell(at, id, arguments, None).await.map(drop),
            None => Ok(()),
        }
    }

    async fn before_model(&self, at: At, request: &mut Request) -> Decision<Reply> {
        if self.point != Point::Model {
            return Ok(Verdict::Go);
        }
        let id = format!("model_{}_{}_{}", at.send, at.round, at.attempt);
        let tools: Vec<&str> = request.tools.iter().map(|t| t.name.as_str()).collect();
        let asked = json!({
            "model": request.model,
            "system_prompt": request.system,
            "messages": request.messages.iter().map(|m| json!({
                "role": m.role, "content": m.content, "tool_calls": m.tool_calls,
            })).collect::<Vec<_>>(),
            "tail": request.tail,
            "tools": tools,
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "round": at.round,
        });
        let mut answer = self.ask(at, id, asked).await?;
        answer.change(request)?;
        match answer.action {
            Action::Answer => Ok(Verdict::Instead(answer.reply(&request.model)?)),
            _ => answer.or_inject(),
        }
    }

    async fn round_started(&self, at: At) -> Decision<()> {
        if self.point != Point::Round {
            return Ok(Verdict::Go);
        }
        let id = format!("round_{}_{}", at.send, at.round);
        let answer = self.ask(at, id, json!({ "round": at.round })).await?;
        answer.or_inject()
    }

    async fn after_model(&self, at: At, reply: &mut Reply) -> Decision<Reply> {
        if self.point != Point::Answer {
            return Ok(Verdict::Go);
        }
        let id = format!("answer_{}_{}_{}", at.send, at.round, at.attempt);
        let calls = reply.tool_calls.iter();
        let calls: Vec<_> = calls
            .map(|call| json!({ "name": call.name, "arguments": call.arguments }))
            .collect();
        let asked = json!({
            "content": reply.content, "calls": calls, "model": reply.model, "round": at.round,
        });
        let mut answer = self.ask(at, id, asked).await?;
        if let Some(text) = answer.rewritten()? {
            reply.content = vec![ContentPart::text(text)];
        }
        answer.verdict()
    }

    async fn before_calls(&self, at: At, calls: &[ToolCall]) -> Decision<CallResult> {
        if self.point != Point::Calls {
            return Ok(Verdict::Go);
        }
        let id = format!("calls_{}_{}_{}", at.send, at.round, at.attempt);
        let calls: Vec<_> = calls
            .iter()
            .map(|call| {
                json!({
                    "call_id": call.call_id, "name": call.name, "arguments": call.arguments,
                })
            })
            .collect();
        let answer = self
            .ask(at, id, json!({ "calls": calls, "round": at.round }))
            .await?;
        instead_of_tool(answer)
    }

    async fn before_end(&self, at: At, ending: &Ending) -> Result<Option<GoOn>, HookError> {
        if self.point != Point::End {
            return Ok(None);
        }
        let id = format!("end_{}_{}_{}", at.send, at.round, at.attempt);
        let reply = ending.reply.as_ref();
        let asked = json!({
            "why": ending.why.as_str(),
            "content": reply.map_or(&[][..], |reply| &reply.content),
            "model": reply.map(|reply| &reply.model),
            "round": at.round,
            "rounds_left": ending.rounds_left,
            "sent_back": ending.sent_back,
        });
        self.ask(at, id, asked).await?.go_on()
    }

    async fn memory_recalled(&self, at: At, found: &[Recalled]) -> Decision<Vec<Recalled>> {
        if self.point != Point::Memory {
            return Ok(Verdict::Go);
        }
        let id = format!("memory_{}", at.send);
        let answer = self.ask(at, id, json!({ "entries": found })).await?;
        match (&answer.action, &answer.entries) {
            (Action::Allow, Some(ids)) => {
                let kept = ids.iter();
                let kept = kept.filter_map(|id| found.iter().find(|entry| entry.id == *id));
                Ok(Verdict::Instead(kept.cloned().collect()))
            }
            _ => answer.verdict(),
        }
    }

    async fn timer_fired(&self, at: At, fired: &FiredTimer) -> Decision<OnFired> {
        if self.point != Point::Timer {
            return Ok(Verdict::Go);
        }
        // Every retry of the request has the same id, so that the service can dedupe it.
        let id = format!("timer_{}_{}", fired.timer, fired.n);
        let asked = json!({
            "timer_id": fired.timer, "n": fired.n, "due_at": fired.due_at, "input": fired.input,
        });
        self.ask(at, id, asked).await?.fired()
    }

    async fn before_fold(&self, at: At, part: &FoldPart) -> Decision<String> {
        if self.point != Point::Fold {
            return Ok(Verdict::Go);
        }
        let id = format!("fold_{}_{}_{}", at.send, part.from_seq, part.to_seq);
        let asked = json!({
            "from_seq": part.from_seq,
            "to_seq": part.to_seq,
            "tokens": part.tokens,
            "beside": part.beside,
            "round": at.round,
        });
        self.ask(at, id, asked).await?.fold()
    }

    async fn before_tool(&self, at: At, call: &mut ToolCall) -> Decision<CallResult> {
        if self.point != Point::Tool {
            return Ok(Verdict::Go);
        }
        let asked = json!({
            "call_id": call.call_id,
            "name": call.name,
            "arguments": call.arguments,
            "round": at.round,
        });
        let said = exactly(call, &asked);
        let output = self.tell(at, call.call_id.clone(), asked, said).await?;
        let mut answer = answer::read(self.point, &output)?;
        let arguments = answer.arguments.take();
        if let Some(arguments) = arguments.filter(|_| answer.action == Action::Allow) {
            call.arguments = arguments;
        }
        instead_of_tool(answer)
    }

    async fn tool_failed(
        &self,
        at: At,
        call: &ToolCall,
        result: &CallResult,
    ) -> Result<OnFailure, HookError> {
        if self.point != Point::Failed {
            return Ok(OnFailure::Tell);
        }
        // A new id for each failure, whichever worker's life saw it.
        let id = format!("failed_{}_{}_{}", call.call_id, at.life, at.attempt);
        let asked = of_result(call, result, at.round);
        let mut answer = self.ask(at, id, asked).await?;
        match answer.action {
            Action::Allow => Ok(OnFailure::Tell),
            Action::Retry => Ok(OnFailure::Retry),
            Action::Answer => Ok(OnFailure::Instead(answer.needed_output()?)),
            Action::Deny | Action::End | Action::Continue | Action::Postpone | Action::Skip => Err(
                HookError("expected allow, retry, or answer with an output".to_owned()),
            ),
        }
    }

    async fn after_tool(
        &self,
        at: At,
        call: &ToolCall,
        result: &mut CallResult,
    ) -> Result<(), HookError> {
        if self.point != Point::Result {
            return Ok(());
        }
        let id = format!("result_{}_{}", call.call_id, at.attempt);
        let asked = of_result(call, result, at.round);
        let mut answer = self.ask(at, id, asked).await?;
        let said = answer.injected()?;
        match answer.action {
            Action::Allow | Action::Skip => {
                if answer.action == Action::Skip {
                    result.skips = Some(answer.reason());
                }
                if let Some(output) = answer.output() {
                    *result = CallResult {
                        said: std::mem::take(&mut result.said),
                        skips: result.skips.take(),
                        ..output
                    };
                }
            }
            Action::Deny => {
                let text = format!("error: this result was withheld: {}", answer.reason());
                *result = CallResult {
                    said: std::mem::take(&mut result.said),
                    skips: result.skips.take(),
                    ..CallResult::error(Code::ToolDenied, text)
                };
            }
            Action::End | Action::Continue | Action::Answer | Action::Retry | Action::Postpone => {
                return Err(HookError("expected allow, skip or deny".to_owned()));
            }
        }
        result.said.extend(said);
        Ok(())
    }
}

/// What the decision puts in place of a tool call.
fn instead_of_tool(mut answer: Answer) -> Decision<CallResult> {
    match answer.action {
        Action::Answer => Ok(Verdict::Instead(answer.needed_output()?)),
        _ => answer.verdict(),
    }
}

#[cfg(test)]
mod tests;
