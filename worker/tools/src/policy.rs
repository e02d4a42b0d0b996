//! A policy behind a URL.

use std::sync::Arc;

use async_trait::async_trait;
use mainspring_shared::id::BootId;
use mainspring_shared::memory::Account;
use mainspring_shared::memory::Recalled;
use mainspring_shared::message::{ContentPart, plain_text};
use mainspring_shared::stored::Extra;
use mainspring_shared::tool::schema::any_object;
use mainspring_shared::tool::{CallResult, HttpTool, Repeat};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::http::Caller;
use mainspring_worker::hook::{
    At, Decision, FiredTimer, FoldPart, Hook, HookError, HookTraits, ToolCall, Verdict,
};
use mainspring_worker::llm::{Reply, Request};
use mainspring_worker::tool::{Invocation, Output, Tool, ToolError};

/// Which point a policy is asked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Point {
    Model,
    Calls,
    Tool,
    End,
    Memory,
    Fold,
    Timer,
}

impl Point {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Model => "before_model",
            Self::Calls => "before_calls",
            Self::Tool => "before_tool",
            Self::End => "before_end",
            Self::Memory => "memory_recalled",
            Self::Fold => "before_fold",
            Self::Timer => "timer_fired",
        }
    }
}

/// A policy that another service decides. It is asked by one signed `POST` in the form of a tool's
/// call, named after its point, whose `arguments` say what is to happen; it answers
/// `{"action": "allow" | "deny" | "end" | "continue", "reason"?, "arguments"?, "message"?, "entries"?, "input"?}`. Anything
/// else, or no answer, is no decision: then what it was asked about does not happen. Only the end of a
/// send happens all the same.
#[derive(Debug)]
pub struct HttpPolicy {
    name: String,
    point: Point,
    tool: Arc<dyn Tool>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    Allow,
    Deny,
    End,
    Continue,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    action: Action,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    arguments: Option<Map<String, Value>>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    entries: Option<Vec<String>>,
    #[serde(default)]
    input: Option<String>,
}

impl HttpPolicy {
    /// A policy for model calls.
    pub fn before_model(name: impl Into<String>, url: &str, caller: &Caller) -> Self {
        Self::new(name.into(), Point::Model, url, caller)
    }

    /// A policy for calls of tools.
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

    /// A policy for what is shown of the memory.
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

    fn new(name: String, point: Point, url: &str, caller: &Caller) -> Self {
        let declared = HttpTool {
            name: point.as_str().to_owned(),
            description: String::new(),
            parameters: any_object(),
            url: url.to_owned(),
            // Deciding twice does no harm.
            repeat: Repeat::Safe,
            timeout: None,
            parallel: true,
            approval: false,
            pool: None,
            extra: Extra::default(),
        };
        Self {
            name,
            point,
            tool: caller.tool(&declared),
        }
    }

    async fn ask(&self, at: At, id: String, arguments: Value) -> Result<Answer, HookError> {
        let arguments = match arguments {
            Value::Object(members) => members,
            other => Map::from_iter([("value".to_owned(), other)]),
        };
        let invocation = Invocation {
            call_id: id,
            arguments,
            session: at.session,
            send_id: at.send,
            boot: BootId(Uuid::nil()),
            attempt: at.attempt,
            stop: CancellationToken::new(),
            skills: mainspring_worker::tool::Skills::default(),
            account: Account::default(),
        };
        let output = self
            .tool
            .call(invocation)
            .await
            .map_err(|error| match error {
                ToolError::Reply { message, .. } | ToolError::Abort { message } => {
                    HookError(message)
                }
            })?;
        read(&output)
    }
}

fn read(output: &Output) -> Result<Answer, HookError> {
    let parsed = match &output.value {
        Some(value) => serde_json::from_value(value.clone()),
        None => serde_json::from_str(&plain_text(&output.content)),
    };
    parsed.map_err(|error| HookError(format!("its answer is no decision: {error}")))
}

#[async_trait]
impl Hook for HttpPolicy {
    fn name(&self) -> &str {
        &self.name
    }

    fn traits(&self) -> HookTraits {
        HookTraits {
            fails_closed: true,
            ..HookTraits::default()
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
            "round": at.round,
        });
        let answer = self.ask(at, id, asked).await?;
        verdict(answer)
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
        verdict(answer)
    }

    async fn before_end(&self, at: At, reply: &Reply) -> Result<Option<String>, HookError> {
        if self.point != Point::End {
            return Ok(None);
        }
        let id = format!("end_{}_{}_{}", at.send, at.round, at.attempt);
        let asked = json!({ "content": reply.content, "model": reply.model, "round": at.round });
        let answer = self.ask(at, id, asked).await?;
        match (answer.action, answer.message) {
            (Action::Allow | Action::End, _) => Ok(None),
            (Action::Continue, Some(message)) if !message.trim().is_empty() => Ok(Some(message)),
            (Action::Continue | Action::Deny, _) => Err(HookError(
                "it has to say allow, or continue with a message".to_owned(),
            )),
        }
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
            _ => verdict(answer),
        }
    }

    async fn timer_fired(&self, at: At, fired: &FiredTimer) -> Decision<Vec<ContentPart>> {
        if self.point != Point::Timer {
            return Ok(Verdict::Go);
        }
        // The same for whoever asks again, so that the service may recognise it.
        let id = format!("timer_{}_{}", fired.timer, fired.n);
        let asked = json!({
            "timer_id": fired.timer, "n": fired.n, "due_at": fired.due_at, "input": fired.input,
        });
        let answer = self.ask(at, id, asked).await?;
        match (&answer.action, &answer.input) {
            (Action::Allow, Some(text)) if text.trim().is_empty() => {
                Err(HookError("its input is empty".to_owned()))
            }
            (Action::Allow, Some(text)) => Ok(Verdict::Instead(vec![ContentPart::text(text)])),
            _ => verdict(answer),
        }
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
        let answer = self.ask(at, id, asked).await?;
        verdict(answer)
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
        let answer = self.ask(at, call.call_id.clone(), asked).await?;
        match answer.action {
            Action::Allow => {
                if let Some(arguments) = answer.arguments {
                    call.arguments = arguments;
                }
                Ok(Verdict::Go)
            }
            Action::Deny | Action::End | Action::Continue => verdict(answer),
        }
    }
}

/// What an answer says where a call may happen or not.
fn verdict<T>(answer: Answer) -> Decision<T> {
    match answer.action {
        Action::Allow => Ok(Verdict::Go),
        Action::Deny => Ok(Verdict::Refuse(reason(answer.reason))),
        Action::End => Ok(Verdict::End),
        Action::Continue => Err(HookError("only a final answer can be continued".to_owned())),
    }
}

fn reason(given: Option<String>) -> String {
    given.unwrap_or_else(|| "the policy forbids it".to_owned())
}

#[cfg(test)]
mod tests;
