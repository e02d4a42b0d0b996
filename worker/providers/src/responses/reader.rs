//! Reads a Responses answer: items, either whole or as a start, deltas and an end.

mod items;

use mainspring_shared::message::{Arguments, ContentPart, ToolCall};
use serde_json::{Value, json};

use self::items::{Body, Delta, Items};
use crate::answer::{self, ChunkSink, Source};
use crate::http::{Endpoint, Reader};
use crate::signature::Signature;
use crate::usage::{CacheCount, Counts};
use mainspring_worker::llm::Error;
use mainspring_worker::llm::{Finish, Reply, Request, json};

/// Longer ids are rejected.
const ID_BYTES_MAX: usize = 200;

/// Separates two paragraphs of a summary.
const BLANK_LINE: &str = "\n\n";

/// The part of an answer that has been read.
#[derive(Debug)]
pub(crate) struct Answer<'a> {
    source: Source<'a>,
    items: Items,
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
    pub(crate) fn new(source: Source<'a>, background: bool) -> Self {
        Self {
            source,
            background: background.then(Background::default),
            items: Items::default(),
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
            return Err(Endpoint::refusal(self.source.told, response));
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
            sink.counted(self.counts.usage(CacheCount::Included));
        }
        let model = text_of(response, "model");
        if !model.is_empty() {
            self.model = Some(json::clean(model).into_owned());
        }
        if let Some(items) = response.get("output").and_then(Value::as_array) {
            self.items.read_all(items, sink)?;
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

    /// The reply; only valid for a complete answer.
    pub(crate) fn reply(self, request: &Request) -> Reply {
        let origin = || self.source.origin(&request.model, None);
        let refused = self.items.refused;
        let mut content: Vec<ContentPart> = Vec::new();
        let mut tool_calls: Vec<ToolCall> = Vec::new();
        for item in self.items.in_order() {
            match item.body {
                Body::Text { text, .. } if text.is_empty() => {}
                Body::Text { text, phase, .. } => {
                    if !phase.is_empty() {
                        content.push(answer::attached(origin(), &json!({ "phase": phase })));
                    }
                    content.push(ContentPart::Text { text });
                }
                Body::Reasoning {
                    text, encrypted, ..
                } => {
                    let signature = Signature::Item {
                        id: &item.id,
                        model: &request.model,
                        encrypted: &encrypted,
                    };
                    let signature = (!encrypted.is_empty()).then(|| signature.store());
                    if signature.is_some() || !text.is_empty() {
                        content.push(ContentPart::Reasoning {
                            text,
                            signature,
                            origin: Some(Box::new(origin())),
                        });
                    }
                }
                Body::Call {
                    call_id,
                    name,
                    arguments,
                    attached,
                } => {
                    let arguments = Arguments::read(&arguments);
                    let mut call = answer::tool_call(tool_calls.len(), &call_id, &name, arguments);
                    answer::attach(&mut call, origin(), &call_id, &attached);
                    call.after = u32::try_from(content.len()).ok();
                    tool_calls.push(call);
                }
                Body::Other(Value::Null) => {}
                Body::Other(item) => content.push(answer::attached(origin(), &item)),
            }
        }
        let incomplete = self.status.as_deref() == Some("incomplete");
        let reason = self.reason.as_deref().or(Some("incomplete"));
        let finish = if refused {
            Finish::Refused
        } else {
            answer::finish(reason.filter(|_| incomplete), !tool_calls.is_empty())
        };
        let usage = self.counts.usage(CacheCount::Included);
        answer::reply(request, content, tool_calls, finish, usage, self.model)
    }
}

impl Reader for Answer<'_> {
    fn event(&mut self, event: &str, data: &str, sink: &mut ChunkSink<'_>) -> Result<(), Error> {
        let data = data.trim();
        if answer::is_silent(data) || data == "[DONE]" {
            return Ok(());
        }
        // Skipping an unreadable event would silently lose a part of the answer.
        let Some(value) = sink.parse(data) else {
            return Err(answer::unreadable(event, data, self.source.told));
        };
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
                let ends = kind == "response.output_item.done";
                self.items.read(index, item, ends, sink)
            }
            "response.completed" | "response.incomplete" => {
                self.response(response, sink)?;
                let status = kind.trim_start_matches("response.");
                self.status.get_or_insert_with(|| status.to_owned());
                self.ended = true;
                // An answer of no items is an empty one, as any other protocol has it.
                Ok(())
            }
            "response.failed" => {
                self.response(response, sink)?;
                Err(Error::unavailable("it gave up inside the answer"))
            }
            "error" => Err(Endpoint::refusal(self.source.told, &value)),
            "response.created" | "response.in_progress" => self.response(response, sink),
            _ => match Delta::of(kind) {
                Some(delta) => self.items.delta(delta, &value, sink),
                // Keep-alives, beginnings and ends of parts, and unknown events.
                None => answer::error_in(&value).map_or(Ok(()), |error| {
                    Err(Endpoint::refusal(self.source.told, &error))
                }),
            },
        }
    }

    fn whole(&mut self, body: &Value, sink: &mut ChunkSink<'_>) -> Result<(), Error> {
        if !body.get("output").is_some_and(Value::is_array)
            && body.get("error").is_none_or(Value::is_null)
        {
            return Err(match answer::error_in(body) {
                Some(error) => Endpoint::refusal(self.source.told, &error),
                None => Error::bad("it has no output"),
            });
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

fn text_of<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}
