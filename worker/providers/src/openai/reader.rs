//! Reads an answer in the chat completions format, whole or as deltas, which have the same members.

mod attachments;

use mainspring_shared::message::ContentPart;
use serde_json::Value;

use self::attachments::Attachments;
use crate::answer::{self, ChunkSink, Source};
use crate::http::{Endpoint, Reader};
use crate::usage::{CacheCount, Counts};
use mainspring_worker::llm::Error;
use mainspring_worker::llm::{Finish, Reply, Request, json};

use super::calls::Calls;

/// Members in which servers put reasoning; the first one with any text is used.
const REASONING: &[&str] = &[
    "reasoning_content",
    "reasoning",
    "thinking",
    "thinking_content",
    "reasoning_text",
    "thought",
];

/// The part of an answer that has been read.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own about what was read"
)]
pub(crate) struct Answer<'a> {
    source: Source<'a>,
    text: String,
    reasoning: String,
    /// The member that the reasoning came in.
    reasoning_member: Option<&'static str>,
    attachments: Attachments,
    refused: bool,
    calls: Calls,
    finish: Option<String>,
    counts: Counts,
    model: Option<String>,
    ended: bool,
    /// Whether tokens were counted behind everything else, in a chunk without a choice.
    counted_last: bool,
    /// Whether something came that is no part of an answer.
    strange: bool,
    /// Whether only the total counts thoughts.
    thoughts_only_in_total: bool,
    /// Whether a text with thoughts in it is to go back as it came.
    keeps_text: bool,
}

impl<'a> Answer<'a> {
    pub(crate) fn new(source: Source<'a>, thoughts_only_in_total: bool) -> Self {
        Self {
            source,
            text: String::new(),
            reasoning: String::new(),
            reasoning_member: None,
            attachments: Attachments::default(),
            refused: false,
            calls: Calls::default(),
            finish: None,
            counts: Counts::default(),
            model: None,
            ended: false,
            counted_last: false,
            strange: false,
            thoughts_only_in_total,
            keeps_text: false,
        }
    }

    /// Keeps a text with thoughts in it for its provider, besides what is made of it.
    pub(crate) fn keeping_text(self, keeps_text: bool) -> Self {
        Self { keeps_text, ..self }
    }

    fn object(&mut self, value: &Value, sink: &mut ChunkSink<'_>) -> Result<(), Error> {
        if let Some(refusal) = answer::error_in(value) {
            return Err(Endpoint::refusal(self.source.told, &refusal));
        }
        self.strange |= value.get("choices").is_none()
            && ["message", "detail", "code", "msg"]
                .iter()
                .any(|name| value.get(name).is_some());
        for name in ["usage", "x_openai_usage", "x_usage"] {
            if let Some(usage) = value.get(name).filter(|usage| usage.is_object()) {
                self.counts.read(usage, CacheCount::Included);
                sink.counted(self.counts.usage(CacheCount::Included));
            }
        }
        if self.model.is_none() {
            let model = value
                .get("model")
                .and_then(Value::as_str)
                .filter(|m| !m.is_empty());
            self.model = model.map(|model| json::clean(model).into_owned());
        }
        // Absent or empty choices are legal: usage only, or a keep-alive.
        let choices = value
            .get("choices")
            .and_then(Value::as_array)
            .map_or(&[][..], Vec::as_slice);
        self.counted_last = match value.get("choices") {
            Some(Value::Array(choices)) if choices.is_empty() => {
                self.counted_last || value.get("usage").is_some_and(Value::is_object)
            }
            _ => false,
        };
        let first = |c: &&Value| c.get("index").and_then(Value::as_u64).unwrap_or(0) == 0;
        choices
            .iter()
            .filter(first)
            .try_for_each(|choice| self.choice(choice, sink))
    }

    fn choice(&mut self, choice: &Value, sink: &mut ChunkSink<'_>) -> Result<(), Error> {
        if choice.get("error").is_some_and(|error| !error.is_null()) {
            return Err(Endpoint::refusal(self.source.told, choice));
        }
        // Moonshot counts in the choice.
        if let Some(usage) = choice.get("usage") {
            self.counts.read(usage, CacheCount::Included);
        }
        if let Some(delta) = ["delta", "message"]
            .iter()
            .find_map(|name| choice.get(name).filter(|d| d.is_object()))
        {
            self.delta(delta, sink)?;
        }
        if let Some(reason) = choice
            .get("finish_reason")
            .and_then(Value::as_str)
            .filter(|r| !r.is_empty())
        {
            if reason == "error" {
                return Err(Error::unavailable("it gave up inside the answer"));
            }
            self.finish = Some(reason.to_owned());
        }
        Ok(())
    }

    fn delta(&mut self, delta: &Value, sink: &mut ChunkSink<'_>) -> Result<(), Error> {
        let text_of = |name: &&str| {
            delta
                .get(name)
                .and_then(Value::as_str)
                .filter(|t| !t.is_empty())
        };
        let thought = REASONING
            .iter()
            .find_map(|name| Some((*name, text_of(name)?)));
        match thought {
            Some((name, piece)) => {
                self.reasoning_member.get_or_insert(name);
                sink.reasoning(&mut self.reasoning, piece)?;
            }
            None => {
                for piece in Attachments::thoughts(delta) {
                    sink.reasoning(&mut self.reasoning, piece)?;
                }
            }
        }
        self.attachments.read(delta, sink)?;
        match delta.get("content") {
            Some(Value::String(piece)) => sink.text(&mut self.text, piece)?,
            Some(Value::Array(blocks)) => {
                for block in blocks {
                    self.block(block, sink)?;
                }
            }
            _ => {
                if let Some(piece) = text_of(&"text") {
                    sink.text(&mut self.text, piece)?;
                }
            }
        }
        if let Some(piece) = text_of(&"refusal") {
            self.refused = true;
            sink.text(&mut self.text, piece)?;
        }
        if let Some(calls) = delta.get("tool_calls") {
            self.calls.read(calls, sink)?;
        }
        if let Some(call) = delta.get("function_call") {
            self.calls.read_legacy(call, sink)?;
        }
        Ok(())
    }

    /// Reads one of a list of blocks, whose type tells reasoning from text.
    fn block(&mut self, block: &Value, sink: &mut ChunkSink<'_>) -> Result<(), Error> {
        if let Some(piece) = block.as_str() {
            return sink.text(&mut self.text, piece);
        }
        let text_of = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
        let thought = ["type", "role"].iter().any(|name| {
            let kind = text_of(name);
            ["reason", "think", "thought"]
                .iter()
                .any(|part| kind.contains(part))
        });
        let names = if thought {
            &["thinking", "reasoning", "text", "content"][..]
        } else {
            &["text"][..]
        };
        // Mistral's reasoning is again a list of blocks.
        let nested = block
            .get("thinking")
            .filter(|_| thought)
            .and_then(Value::as_array);
        let inner = nested
            .into_iter()
            .flatten()
            .filter_map(|b| b.get("text")?.as_str());
        let own = names
            .iter()
            .map(|name| text_of(name))
            .find(|text| !text.is_empty());
        for piece in own.into_iter().chain(inner) {
            if thought {
                self.reasoning_member.get_or_insert("content");
                sink.reasoning(&mut self.reasoning, piece)?;
            } else {
                sink.text(&mut self.text, piece)?;
            }
        }
        Ok(())
    }

    /// The reply; only valid for a complete answer.
    pub(crate) fn reply(mut self, request: &Request) -> Reply {
        let origin = |member: Option<&str>| self.source.origin(&request.model, member);
        let tool_calls = self.calls.finish(&origin(None));
        let finish = if self.refused {
            Finish::Refused
        } else {
            answer::finish(self.finish.as_deref(), !tool_calls.is_empty())
        };
        let mut content = Vec::new();
        let members = self.attachments.into_members();
        content.extend(members.map(|(name, value)| answer::attached(origin(Some(&name)), &value)));
        if self.keeps_text && self.text.trim_start().starts_with("<think") {
            let text = Value::String(self.text.clone());
            content.push(answer::attached(origin(Some("content")), &text));
        }
        if !self.reasoning.is_empty() {
            content.push(ContentPart::Reasoning {
                text: self.reasoning,
                signature: None,
                origin: Some(Box::new(origin(self.reasoning_member))),
            });
        }
        if !self.text.is_empty() {
            content.push(ContentPart::Text { text: self.text });
        }
        if self.thoughts_only_in_total {
            self.counts.count_thoughts_in_total();
        }
        let usage = self.counts.usage(CacheCount::Included);
        answer::reply(request, content, tool_calls, finish, usage, self.model)
    }
}

impl Reader for Answer<'_> {
    fn event(&mut self, event: &str, data: &str, sink: &mut ChunkSink<'_>) -> Result<(), Error> {
        let data = data.trim();
        if data == "[DONE]" {
            self.ended = true;
            if self.finish.is_some() {
                return Ok(());
            }
            // Some servers never give a reason. Whatever else came may have been one for an end too soon.
            if self.strange || self.calls.broke_off() {
                return Err(Error::unavailable("it broke off inside the answer"));
            }
            let said =
                !self.text.is_empty() || !self.reasoning.is_empty() || !self.calls.is_empty();
            return if said {
                Ok(())
            } else {
                Err(Error::bad("it is empty"))
            };
        }
        if answer::is_silent(data) {
            return Ok(());
        }
        // Skipping an unreadable event would silently lose a part of the answer.
        let Some(value) = sink.parse(data) else {
            return Err(answer::unreadable(event, data, self.source.told));
        };
        if event == "error" {
            return Err(Endpoint::refusal(self.source.told, &value));
        }
        self.object(&value, sink)
    }

    fn whole(&mut self, body: &Value, sink: &mut ChunkSink<'_>) -> Result<(), Error> {
        self.object(body, sink)?;
        if body
            .get("choices")
            .and_then(Value::as_array)
            .is_none_or(Vec::is_empty)
        {
            return Err(Error::bad("it has no choices"));
        }
        self.ended = true;
        Ok(())
    }

    fn ended(&self) -> bool {
        self.ended
    }

    fn complete(&self) -> bool {
        // The reason comes with or after the last delta; usage and end marker may be missing. Some gateways never give
        // a reason, but count an answer when it is whole.
        let counted = self.counted_last && !self.text.is_empty() && !self.calls.broke_off();
        self.ended || self.finish.is_some() || counted
    }
}
