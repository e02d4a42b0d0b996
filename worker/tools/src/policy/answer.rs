//! The response of a policy.

use std::num::NonZeroU32;
use std::time::Duration;

use mainspring_shared::error::Code;
use mainspring_shared::message::{ContentPart, plain_text};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::CallResult;
use mainspring_shared::wording::plain;
use mainspring_worker::hook::{Decision, GoOn, HookError, OnFired, Verdict};
use mainspring_worker::llm::{Finish, Reply, Request};
use mainspring_worker::tool::Output;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::Point;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Action {
    Allow,
    Deny,
    End,
    Continue,
    Answer,
    Retry,
    Postpone,
    Skip,
}

/// A decision. Which members it may have besides the first two depends on the point.
#[derive(Debug, Deserialize)]
pub(super) struct Answer {
    pub(super) action: Action,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    pub(super) arguments: Option<Map<String, Value>>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    rounds: u32,
    #[serde(default)]
    pub(super) entries: Option<Vec<String>>,
    #[serde(default)]
    input: Option<String>,
    #[serde(default)]
    seconds: Option<u32>,
    #[serde(default)]
    until: Option<Timestamp>,
    #[serde(default)]
    pub(super) text: Option<String>,
    #[serde(default)]
    pub(super) content: Option<String>,
    #[serde(default)]
    output: Option<Value>,
    #[serde(default)]
    failed: bool,
    #[serde(default)]
    inject: Option<String>,
    #[serde(default)]
    system_prompt: Option<String>,
    #[serde(default)]
    tools: Option<Vec<String>>,
    #[serde(default)]
    max_tokens: Option<NonZeroU32>,
    #[serde(default)]
    temperature: Option<f64>,
}

impl Point {
    /// The members that a response at this point may have besides its action and a reason.
    const fn members(self) -> &'static [&'static str] {
        match self {
            Self::Round => &["inject"],
            Self::Model => &[
                "content",
                "inject",
                "system_prompt",
                "tools",
                "max_tokens",
                "temperature",
            ],
            Self::Answer => &["content"],
            Self::Tool => &["arguments", "output", "failed"],
            Self::Calls | Self::Failed => &["output", "failed"],
            Self::Result => &["output", "failed", "inject"],
            Self::End => &["message", "rounds"],
            Self::Memory => &["entries"],
            Self::Fold => &["text"],
            Self::Timer => &["input", "seconds", "until"],
            Self::SendStarted | Self::SendEnded | Self::MessagesStored | Self::FoldStored => &[],
        }
    }
}

/// Parses the decision in the output of a policy at this point.
pub(super) fn read(point: Point, output: &Output) -> Result<Answer, HookError> {
    let wrong =
        |why: &dyn std::fmt::Display| HookError(format!("its response is not a decision: {why}"));
    let value = match &output.value {
        Some(value) => value.clone(),
        None => {
            serde_json::from_str(&plain_text(&output.content)).map_err(|error| wrong(&error))?
        }
    };
    let unknown = |name: &&String| {
        let known = ["action", "reason"];
        !known.contains(&name.as_str()) && !point.members().contains(&name.as_str())
    };
    if let Some(name) = value.as_object().and_then(|it| it.keys().find(unknown)) {
        let point = point.as_str();
        return Err(wrong(&format_args!(
            "{point} does not support the member {name:?}"
        )));
    }
    serde_json::from_value(without_nul(value)).map_err(|error| wrong(&plain(&error.to_string())))
}

/// Removes U+0000 from every text; not every database can store it.
fn without_nul(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(text.replace('\0', "")),
        Value::Array(list) => list.into_iter().map(without_nul).collect(),
        Value::Object(members) => {
            let members = members.into_iter();
            let members = members.map(|(name, it)| (name.replace('\0', ""), without_nul(it)));
            Value::Object(members.collect())
        }
        other => other,
    }
}

/// Rejects a text that is present but blank.
fn words(text: Option<String>, name: &str) -> Result<Option<String>, HookError> {
    match text {
        Some(text) if text.trim().is_empty() => Err(HookError(format!("its {name} is empty"))),
        text => Ok(text),
    }
}

fn needed(text: Option<String>, name: &str) -> Result<String, HookError> {
    words(text, name)?.ok_or_else(|| HookError(format!("its {name} is missing")))
}

impl Answer {
    /// The verdict at a point where something is either allowed or not.
    pub(super) fn verdict<T>(self) -> Decision<T> {
        match self.action {
            Action::Allow => Ok(Verdict::Go),
            Action::Deny => Ok(Verdict::Refuse(self.reason())),
            Action::End => Ok(Verdict::End),
            Action::Continue => Err(HookError("only an end can be continued".to_owned())),
            Action::Answer | Action::Retry | Action::Postpone | Action::Skip => {
                let action = format!("{:?}", self.action).to_lowercase();
                Err(HookError(format!("{action} is not allowed at this point")))
            }
        }
    }

    pub(super) fn reason(&self) -> String {
        let given = self.reason.clone();
        given.unwrap_or_else(|| "the policy forbids it".to_owned())
    }

    /// The same at a point where a message may be injected first.
    pub(super) fn or_inject<T>(mut self) -> Decision<T> {
        match (self.action, words(self.inject.take(), "inject")?) {
            (Action::Allow, Some(text)) => Ok(Verdict::Say(vec![ContentPart::text(text)])),
            (_, Some(_)) => Err(HookError("inject requires allow".to_owned())),
            (_, None) => self.verdict(),
        }
    }

    /// The text to inject after a result.
    pub(super) fn injected(&mut self) -> Result<Option<String>, HookError> {
        words(self.inject.take(), "inject")
    }

    /// Applies the changes to a model request. Tools can only be removed from it: the agent decides
    /// which tools a model may call, and those have been vetted.
    pub(super) fn change(&mut self, request: &mut Request) -> Result<(), HookError> {
        let system = words(self.system_prompt.take(), "system_prompt")?;
        let (tools, most) = (self.tools.take(), self.max_tokens.take());
        let warmth = self.temperature.take();
        let changes = system.is_some() || tools.is_some() || most.is_some() || warmth.is_some();
        if changes && self.action != Action::Allow {
            return Err(HookError("changing the request requires allow".to_owned()));
        }
        if warmth.is_some_and(|warmth| !(0.0..=2.0).contains(&warmth)) {
            return Err(HookError("its temperature is not from 0 to 2".to_owned()));
        }
        if let Some(names) = &tools {
            let unknown = |name: &&String| !request.tools.iter().any(|tool| tool.name == **name);
            if let Some(name) = names.iter().find(unknown) {
                return Err(HookError(format!("the request has no tool {name:?}")));
            }
            request.tools.retain(|tool| names.contains(&tool.name));
        }
        request.system = system.or(request.system.take());
        request.temperature = warmth.or(request.temperature);
        if let Some(most) = most {
            request.max_tokens = request.max_tokens.min(most.get());
        }
        Ok(())
    }

    /// The reply that replaces the model's.
    pub(super) fn reply(self, model: &str) -> Result<Reply, HookError> {
        Ok(Reply {
            content: vec![ContentPart::text(needed(self.content, "content")?)],
            tool_calls: Vec::new(),
            finish: Finish::Stop,
            usage: mainspring_shared::usage::Usage::default(),
            model: model.to_owned(),
        })
    }

    /// The text that replaces what the model said.
    pub(super) fn rewritten(&mut self) -> Result<Option<String>, HookError> {
        words(self.content.take(), "content")
    }

    /// The result that replaces a tool call, if the response gives one.
    pub(super) fn output(&mut self) -> Option<CallResult> {
        let result = match self.output.take()? {
            Value::String(text) => CallResult::text(text),
            value => CallResult {
                value: Some(Box::new(value.clone())),
                ..CallResult::text(value.to_string())
            },
        };
        Some(CallResult {
            failed: self.failed,
            code: self.failed.then_some(Code::ToolFailed),
            ..result
        })
    }

    /// The same where a result is required.
    pub(super) fn needed_output(&mut self) -> Result<CallResult, HookError> {
        let output = self.output();
        output.ok_or_else(|| HookError("its output is missing".to_owned()))
    }

    /// Whether a send that was about to end continues instead.
    pub(super) fn go_on(self) -> Result<Option<GoOn>, HookError> {
        match self.action {
            Action::Allow | Action::End => Ok(None),
            Action::Continue => Ok(Some(GoOn {
                message: needed(self.message, "message")?,
                rounds: self.rounds,
            })),
            Action::Deny | Action::Answer | Action::Retry | Action::Postpone | Action::Skip => Err(
                HookError("expected allow, or continue with a message".to_owned()),
            ),
        }
    }

    /// What happens to a timer's send.
    pub(super) fn fired(self) -> Decision<OnFired> {
        match (self.action, self.seconds, self.until) {
            (Action::Postpone, Some(seconds), None) => {
                let wait = Duration::from_secs(u64::from(seconds));
                Ok(Verdict::Instead(OnFired::After(wait)))
            }
            (Action::Postpone, None, Some(at)) => Ok(Verdict::Instead(OnFired::At(at))),
            (Action::Postpone, ..) => Err(HookError("expected seconds or until".to_owned())),
            (Action::Allow, ..) if self.input.is_some() => {
                let text = needed(self.input, "input")?;
                Ok(Verdict::Instead(OnFired::Input(vec![ContentPart::text(
                    text,
                )])))
            }
            _ => self.verdict(),
        }
    }

    /// The text that replaces a part of a transcript.
    pub(super) fn fold(mut self) -> Decision<String> {
        match (self.action, words(self.text.take(), "text")?) {
            (Action::Allow, Some(text)) => Ok(Verdict::Instead(text)),
            _ => self.verdict(),
        }
    }
}
