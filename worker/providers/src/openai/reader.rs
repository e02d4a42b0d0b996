//! Reads an answer in the chat completions format, whole or as deltas, which have the same members.

use mainspring_shared::message::ContentPart;
use serde_json::Value;

use crate::answer::{self, ChunkSink};
use crate::http::{Endpoint, Reader};
use crate::status::ProviderSecrets;
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
pub(super) struct Answer<'a> {
    told: &'a ProviderSecrets,
    text: String,
    reasoning: String,
    refused: bool,
    calls: Calls,
    finish: Option<String>,
    counts: Counts,
    model: Option<String>,
    ended: bool,
}

impl<'a> Answer<'a> {
    pub(super) fn new(told: &'a ProviderSecrets) -> Self {
        Self {
            told,
            text: String::new(),
            reasoning: String::new(),
            refused: false,
            calls: Calls::default(),
            finish: None,
            counts: Counts::default(),
            model: None,
            ended: false,
        }
    }

    fn object(&mut self, value: &Value, sink: &mut ChunkSink<'_>) -> Result<(), Error> {
        if value.get("error").is_some_and(|error| !error.is_null()) {
            return Err(Endpoint::refusal(self.told, value));
        }
        for name in ["usage", "x_openai_usage", "x_usage"] {
            if let Some(usage) = value.get(name) {
                self.counts.read(usage, CacheCount::Included);
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
        let first = |c: &&Value| c.get("index").and_then(Value::as_u64).unwrap_or(0) == 0;
        choices
            .iter()
            .filter(first)
            .try_for_each(|choice| self.choice(choice, sink))
    }

    fn choice(&mut self, choice: &Value, sink: &mut ChunkSink<'_>) -> Result<(), Error> {
        if choice.get("error").is_some_and(|error| !error.is_null()) {
            return Err(Endpoint::refusal(self.told, choice));
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
        if let Some(piece) = REASONING.iter().find_map(text_of) {
            sink.reasoning(&mut self.reasoning, piece)?;
        }
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
                sink.reasoning(&mut self.reasoning, piece)?;
            } else {
                sink.text(&mut self.text, piece)?;
            }
        }
        Ok(())
    }

    /// The reply; only valid for a complete answer.
    pub(super) fn reply(self, request: &Request) -> Reply {
        let tool_calls = self.calls.finish();
        let finish = match self.finish.as_deref() {
            _ if self.refused => Finish::Refused,
            Some("content_filter" | "refusal") => Finish::Refused,
            Some("length" | "max_tokens" | "max_output_tokens" | "model_length") => Finish::Length,
            // Not every server sets this reason when it calls tools, or calls tools when it sets
            // it.
            None | Some("stop" | "tool_calls" | "function_call" | "end_turn" | "eos") => {
                if tool_calls.is_empty() {
                    Finish::Stop
                } else {
                    Finish::ToolCalls
                }
            }
            Some(reason) => answer::other(reason),
        };
        let mut content = Vec::new();
        if !self.reasoning.is_empty() {
            content.push(ContentPart::Reasoning {
                text: self.reasoning,
                signature: None,
                origin: None,
            });
        }
        if !self.text.is_empty() {
            content.push(ContentPart::Text { text: self.text });
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
            let said =
                !self.text.is_empty() || !self.reasoning.is_empty() || !self.calls.is_empty();
            return if said || self.finish.is_some() {
                Ok(())
            } else {
                Err(Error::bad("it is empty"))
            };
        }
        if data.is_empty() {
            return Ok(());
        }
        // Skipping an unreadable event would silently lose a part of the answer.
        let value = json::parse(data).ok_or_else(|| Error::bad("an event is not JSON"))?;
        if event == "error" {
            return Err(Endpoint::refusal(self.told, &value));
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
        // The reason comes with or after the last delta; usage and end marker may be missing.
        self.ended || self.finish.is_some()
    }
}
