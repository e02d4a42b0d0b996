//! Reads a Responses answer: items, either whole or as a start, deltas and an end.

use mainspring_shared::message::{ContentPart, ToolCall};
use serde_json::Value;

use crate::answer::{self, ChunkSink};
use crate::http::{Endpoint, Reader};
use crate::signature::Signature;
use crate::status::ProviderSecrets;
use crate::usage::{CacheCount, Counts};
use mainspring_worker::llm::Error;
use mainspring_worker::llm::{Finish, Reply, Request, json};

/// Longer ids are rejected.
const ID_BYTES_MAX: usize = 200;

/// Separates two paragraphs of a summary.
const BLANK_LINE: &str = "\n\n";

#[derive(Debug)]
enum Item {
    Text(String),
    Reasoning {
        id: String,
        text: String,
        /// The summary part that the last delta belonged to.
        part: u64,
        encrypted: String,
    },
    Call {
        id: String,
        name: String,
        arguments: String,
    },
    /// An item of a tool that the provider runs itself, or of an unknown kind.
    Unknown,
}

/// The part of an answer that has been read.
#[derive(Debug)]
pub(super) struct Answer<'a> {
    told: &'a ProviderSecrets,
    items: Vec<(u64, Item)>,
    refused: bool,
    /// The response's status, once it is final.
    status: Option<String>,
    /// Why it is incomplete.
    reason: Option<String>,
    counts: Counts,
    model: Option<String>,
    ended: bool,
    background: Option<Background>,
}

/// The state of an answer in the background.
#[derive(Debug, Default)]
pub(super) struct Background {
    /// The provider's id of the answer.
    pub(super) id: Option<String>,
    /// The number of the last event that was read.
    pub(super) read: Option<u64>,
    /// Whether it ended without an answer.
    pub(super) gave_up: bool,
}

impl<'a> Answer<'a> {
    pub(super) fn new(told: &'a ProviderSecrets, background: bool) -> Self {
        Self {
            told,
            background: background.then(Background::default),
            items: Vec::new(),
            refused: false,
            status: None,
            reason: None,
            counts: Counts::default(),
            model: None,
            ended: false,
        }
    }

    /// Its state as a background answer.
    pub(super) fn background(&mut self) -> &mut Background {
        self.background.get_or_insert_default()
    }

    /// Whether it was read completely.
    pub(super) fn is_final(&self) -> bool {
        self.ended
    }

    /// Reads a response: a whole one, or the one in a stream's first and last events.
    fn response(&mut self, response: &Value, sink: &mut ChunkSink<'_>) -> Result<(), Error> {
        if response.get("error").is_some_and(|error| !error.is_null()) {
            if let Some(background) = &mut self.background {
                background.gave_up = true;
            }
            return Err(Endpoint::refusal(self.told, response));
        }
        let id = text_of(response, "id");
        if let Some(background) = &mut self.background
            && background.id.is_none()
            && is_id(id)
        {
            background.id = Some(id.to_owned());
            sink.background(id);
        }
        if let Some(usage) = response.get("usage") {
            self.counts.read(usage, CacheCount::Included);
        }
        let model = text_of(response, "model");
        if !model.is_empty() {
            self.model = Some(json::clean(model).into_owned());
        }
        let items = response.get("output").and_then(Value::as_array);
        for (index, item) in (0..).zip(items.into_iter().flatten()) {
            self.item(index, item, sink)?;
        }
        let status = text_of(response, "status");
        if let ("failed" | "cancelled", Some(background)) = (status, &mut self.background) {
            background.gave_up = true;
        }
        match status {
            "failed" => return Err(Error::unavailable("it gave up inside the answer")),
            "cancelled" => return Err(Error::unavailable("the response was cancelled")),
            "completed" | "incomplete" => self.status = Some(status.to_owned()),
            // In progress, or only the event's type tells the status.
            _ => {}
        }
        if let Some(details) = response.get("incomplete_details") {
            let reason = text_of(details, "reason");
            self.reason = Some(reason.to_owned()).filter(|reason| !reason.is_empty());
        }
        Ok(())
    }

    /// Reads an item, whole or just begun; streams what was not streamed yet.
    fn item(&mut self, index: u64, item: &Value, sink: &mut ChunkSink<'_>) -> Result<(), Error> {
        let at = match self.items.iter().position(|(i, _)| *i == index) {
            Some(at) => at,
            None => self.open(index, empty(text_of(item, "type")), sink)?,
        };
        let parts = |name: &str| {
            let parts = item.get(name).and_then(Value::as_array);
            parts.map_or(&[][..], Vec::as_slice)
        };
        match &mut self.items[at].1 {
            Item::Text(text) => {
                if text.is_empty() {
                    for part in parts("content") {
                        let refusal = text_of(part, "refusal");
                        self.refused |= !refusal.is_empty();
                        sink.text(text, text_of(part, "text"))?;
                        sink.text(text, refusal)?;
                    }
                }
            }
            Item::Reasoning {
                id,
                text,
                encrypted,
                ..
            } => {
                replace(id, text_of(item, "id"), sink)?;
                replace(encrypted, text_of(item, "encrypted_content"), sink)?;
                if text.is_empty() {
                    let thoughts = parts("summary").iter().chain(parts("content"));
                    for thought in thoughts {
                        let thought = text_of(thought, "text");
                        if !text.is_empty() && !thought.is_empty() {
                            sink.reasoning(text, BLANK_LINE)?;
                        }
                        sink.reasoning(text, thought)?;
                    }
                }
            }
            Item::Call {
                id,
                name,
                arguments,
            } => {
                replace(id, text_of(item, "call_id"), sink)?;
                replace(name, text_of(item, "name"), sink)?;
                replace(arguments, text_of(item, "arguments"), sink)?;
            }
            Item::Unknown => {}
        }
        Ok(())
    }

    fn open(&mut self, index: u64, item: Item, sink: &mut ChunkSink<'_>) -> Result<usize, Error> {
        sink.block()?;
        self.items.push((index, item));
        Ok(self.items.len() - 1)
    }

    /// Reads a delta of an item. Some compatible servers omit the item's start.
    fn delta(&mut self, kind: &str, event: &Value, sink: &mut ChunkSink<'_>) -> Result<(), Error> {
        let index = event
            .get("output_index")
            .and_then(Value::as_u64)
            .unwrap_or(0);
        let at = match self.items.iter().rposition(|(i, _)| *i == index) {
            Some(at) => at,
            None => self.open(index, empty(opens(kind)), sink)?,
        };
        let piece = text_of(event, "delta");
        match (kind, &mut self.items[at].1) {
            ("response.output_text.delta", Item::Text(text)) => sink.text(text, piece),
            ("response.refusal.delta", Item::Text(text)) => {
                self.refused = true;
                sink.text(text, piece)
            }
            ("response.function_call_arguments.delta", Item::Call { arguments, .. }) => {
                sink.silent(arguments, piece)
            }
            (
                "response.reasoning_summary_text.delta" | "response.reasoning_text.delta",
                Item::Reasoning { text, part, .. },
            ) => {
                let place = ["summary_index", "content_index"];
                let heard = place.iter().find_map(|name| event.get(name)?.as_u64());
                let heard = heard.unwrap_or(0);
                if heard != *part && !text.is_empty() {
                    sink.reasoning(text, BLANK_LINE)?;
                }
                *part = heard;
                sink.reasoning(text, piece)
            }
            // The delta belongs to an item of another kind.
            _ => Ok(()),
        }
    }

    /// The reply; only valid for a complete answer.
    pub(super) fn reply(self, request: &Request) -> Reply {
        let mut content: Vec<ContentPart> = Vec::new();
        let mut tool_calls: Vec<ToolCall> = Vec::new();
        for (_, item) in self.items {
            match item {
                Item::Text(text) if text.is_empty() => {}
                Item::Text(text) => content.push(ContentPart::Text { text }),
                Item::Reasoning {
                    id,
                    text,
                    encrypted,
                    ..
                } => {
                    let item = Signature::Item {
                        id: &id,
                        model: &request.model,
                        encrypted: &encrypted,
                    };
                    let signature = (!encrypted.is_empty()).then(|| item.store());
                    if signature.is_some() || !text.is_empty() {
                        content.push(ContentPart::Reasoning {
                            text,
                            signature,
                            origin: None,
                        });
                    }
                }
                Item::Call {
                    id,
                    name,
                    arguments,
                } => {
                    let arguments = json::arguments(&arguments);
                    tool_calls.push(answer::tool_call(tool_calls.len(), &id, &name, arguments));
                }
                Item::Unknown => {}
            }
        }
        let incomplete = self.status.as_deref() == Some("incomplete");
        let finish = match self.reason.as_deref().filter(|_| incomplete) {
            _ if self.refused => Finish::Refused,
            Some("content_filter") => Finish::Refused,
            Some("max_output_tokens" | "max_tokens") => Finish::Length,
            Some(reason) => answer::other(reason),
            None if incomplete => answer::other("incomplete"),
            None if tool_calls.is_empty() => Finish::Stop,
            None => Finish::ToolCalls,
        };
        let usage = self.counts.usage(CacheCount::Included);
        answer::reply(request, content, tool_calls, finish, usage, self.model)
    }
}

impl Reader for Answer<'_> {
    #[expect(
        clippy::case_sensitive_file_extension_comparisons,
        reason = "a kind of event, no file"
    )]
    fn event(&mut self, event: &str, data: &str, sink: &mut ChunkSink<'_>) -> Result<(), Error> {
        let data = data.trim();
        if data.is_empty() || data == "[DONE]" {
            return Ok(());
        }
        // Skipping an unreadable event would silently lose a part of the answer.
        let value = json::parse(data).ok_or_else(|| Error::bad("an event is not JSON"))?;
        let kind = Some(text_of(&value, "type"))
            .filter(|kind| !kind.is_empty())
            .unwrap_or(event);
        let number = value.get("sequence_number").and_then(Value::as_u64);
        if let (Some(background), Some(number)) = (&mut self.background, number) {
            if background.read.is_some_and(|read| number <= read) {
                return Ok(());
            }
            background.read = Some(number);
        }
        let null = &Value::Null;
        let response = value.get("response").unwrap_or(null);
        match kind {
            "response.output_item.added" | "response.output_item.done" => {
                let index = value.get("output_index").and_then(Value::as_u64);
                let item = value.get("item").unwrap_or(null);
                self.item(index.unwrap_or(0), item, sink)
            }
            "response.completed" | "response.incomplete" => {
                self.response(response, sink)?;
                let status = kind.trim_start_matches("response.");
                self.status.get_or_insert_with(|| status.to_owned());
                self.ended = true;
                let nothing = self.items.is_empty() && self.reason.is_none();
                if nothing {
                    Err(Error::bad("it is empty"))
                } else {
                    Ok(())
                }
            }
            "response.failed" => {
                self.response(response, sink)?;
                Err(Error::unavailable("it gave up inside the answer"))
            }
            "error" => Err(Endpoint::refusal(self.told, &value)),
            _ if kind.ends_with(".delta") => self.delta(kind, &value, sink),
            "response.created" | "response.in_progress" => self.response(response, sink),
            // Ends of items that were streamed, keep-alives, and unknown events.
            _ => Ok(()),
        }
    }

    fn whole(&mut self, body: &Value, sink: &mut ChunkSink<'_>) -> Result<(), Error> {
        if !body.get("output").is_some_and(Value::is_array)
            && body.get("error").is_none_or(Value::is_null)
        {
            return Err(Error::bad("it has no output"));
        }
        if self.background.is_some() {
            // The body repeats everything that was read from events.
            self.items.clear();
        }
        self.response(body, sink)?;
        if self.background.is_some() && matches!(text_of(body, "status"), "queued" | "in_progress")
        {
            return Ok(());
        }
        if self.items.is_empty() && self.reason.is_none() {
            return Err(Error::bad("it is empty"));
        }
        self.ended = true;
        Ok(())
    }

    fn ended(&self) -> bool {
        self.ended
    }

    fn complete(&self) -> bool {
        // Usage and status come only with the last event.
        self.ended
    }
}

/// Whether this may be a response's id; ids are used in URLs.
fn is_id(id: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    !id.is_empty() && id.len() <= ID_BYTES_MAX && id.chars().all(fits)
}

/// An item of this type before any of it was read.
fn empty(kind: &str) -> Item {
    match kind {
        "message" => Item::Text(String::new()),
        "reasoning" => Item::Reasoning {
            id: String::new(),
            text: String::new(),
            part: 0,
            encrypted: String::new(),
        },
        "function_call" => Item::Call {
            id: String::new(),
            name: String::new(),
            arguments: String::new(),
        },
        _ => Item::Unknown,
    }
}

/// The type of the item that a delta of this kind belongs to.
fn opens(kind: &str) -> &'static str {
    match kind {
        "response.output_text.delta" | "response.refusal.delta" => "message",
        "response.function_call_arguments.delta" => "function_call",
        "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => "reasoning",
        _ => "",
    }
}

/// Replaces a member with its latest value, if it has one.
fn replace(kept: &mut String, said: &str, sink: &mut ChunkSink<'_>) -> Result<(), Error> {
    if said.is_empty() || said == kept {
        return Ok(());
    }
    kept.clear();
    sink.silent(kept, said)
}

fn text_of<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}
