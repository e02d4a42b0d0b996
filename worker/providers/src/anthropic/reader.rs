//! Reads a Messages answer: blocks, either whole or as a start, deltas and an end.

use mainspring_shared::message::{Arguments, ContentPart, ToolCall};
use serde_json::{Map, Value};

use crate::answer::{self, ChunkSink, Source};
use crate::exact;
use crate::http::{Endpoint, Reader};
use crate::signature::Signature;
use crate::usage::{CacheCount, Counts};
use mainspring_worker::llm::Error;
use mainspring_worker::llm::{Reply, Request, json};

#[derive(Debug)]
enum Block {
    Text(String),
    Thinking {
        text: String,
        signature: String,
    },
    Redacted(String),
    Call {
        id: String,
        name: String,
        input: Option<Value>,
        /// The text of `input`, if it came as a value that does not say it whole.
        text: Option<String>,
        json: String,
        /// Further members.
        attached: Map<String, Value>,
    },
    /// A block of a tool that the provider runs itself, or of an unknown kind: it goes back as it came.
    Other {
        block: Value,
        json: String,
    },
}

impl Block {
    /// Whether a delta of this kind continues it.
    fn takes(&self, kind: &str) -> bool {
        match self {
            Self::Text(_) => matches!(kind, "text_delta" | "citations_delta"),
            Self::Thinking { .. } => matches!(kind, "thinking_delta" | "signature_delta"),
            Self::Call { .. } | Self::Other { .. } => kind == "input_json_delta",
            Self::Redacted(_) => false,
        }
    }
}

/// The members of a call that are read; any other is kept as it came.
const OF_CALL: &[&str] = &["type", "id", "name", "input"];

/// The part of an answer that has been read.
#[derive(Debug)]
pub(crate) struct Answer<'a> {
    source: Source<'a>,
    blocks: Vec<(u64, Block)>,
    stop_reason: Option<String>,
    counts: Counts,
    model: Option<String>,
    ended: bool,
}

impl<'a> Answer<'a> {
    pub(crate) fn new(source: Source<'a>) -> Self {
        Self {
            source,
            blocks: Vec::new(),
            stop_reason: None,
            counts: Counts::default(),
            model: None,
            ended: false,
        }
    }

    /// Reads a message: a whole one, or the start of a stream.
    fn message(&mut self, message: &Value, sink: &mut ChunkSink<'_>) -> Result<(), Error> {
        self.usage(message, sink);
        let model = text_of(message, "model");
        if !model.is_empty() {
            self.model = Some(json::clean(model).into_owned());
        }
        let blocks = message.get("content").and_then(Value::as_array);
        for (index, block) in (0..).zip(blocks.into_iter().flatten()) {
            self.start(index, block, sink)?;
        }
        self.stop(message);
        Ok(())
    }

    fn usage(&mut self, holder: &Value, sink: &mut ChunkSink<'_>) {
        if let Some(usage) = holder.get("usage") {
            self.counts.read(usage, CacheCount::OnTop);
            sink.counted(self.counts.usage(CacheCount::OnTop));
        }
    }

    fn stop(&mut self, holder: &Value) {
        let reason = text_of(holder, "stop_reason");
        if !reason.is_empty() {
            self.stop_reason = Some(reason.to_owned());
        }
    }

    fn start(&mut self, index: u64, block: &Value, sink: &mut ChunkSink<'_>) -> Result<(), Error> {
        sink.block()?;
        let block = match text_of(block, "type") {
            "text" => {
                let mut text = String::new();
                sink.text(&mut text, text_of(block, "text"))?;
                Block::Text(text)
            }
            "thinking" | "reasoning" => {
                let (mut text, mut signature) = (String::new(), String::new());
                let thought = [text_of(block, "thinking"), text_of(block, "text")].concat();
                sink.reasoning(&mut text, &thought)?;
                sink.silent(&mut signature, text_of(block, "signature"))?;
                Block::Thinking { text, signature }
            }
            "redacted_thinking" => {
                let mut data = String::new();
                sink.silent(&mut data, text_of(block, "data"))?;
                Block::Redacted(data)
            }
            "tool_use" => {
                let text = exact::text(block, "input").map(str::to_owned);
                let block = &sink.kept(block)?;
                let (mut id, mut name) = (String::new(), String::new());
                sink.silent(&mut id, text_of(block, "id"))?;
                sink.silent(&mut name, text_of(block, "name"))?;
                let members = block.as_object().into_iter().flatten();
                let attached: Map<String, Value> = members
                    .filter(|(name, value)| !OF_CALL.contains(&name.as_str()) && !value.is_null())
                    .map(|(name, value)| (name.clone(), value.clone()))
                    .collect();
                Block::Call {
                    id,
                    name,
                    input: block.get("input").cloned(),
                    text,
                    json: String::new(),
                    attached,
                }
            }
            "" => return Ok(()),
            _ => Block::Other {
                block: sink.kept(block)?,
                json: String::new(),
            },
        };
        self.blocks.push((index, block));
        Ok(())
    }

    fn delta(&mut self, index: u64, delta: &Value, sink: &mut ChunkSink<'_>) -> Result<(), Error> {
        let kind = text_of(delta, "type");
        let fits = |(of, block): &(u64, Block)| *of == index && block.takes(kind);
        let at = match self.blocks.iter().rposition(fits) {
            Some(at) => at,
            // Some compatible servers omit the start of a block if it adds nothing.
            None => match kind {
                "text_delta" => self.open(index, Block::Text(String::new()), sink)?,
                "thinking_delta" => {
                    let block = Block::Thinking {
                        text: String::new(),
                        signature: String::new(),
                    };
                    self.open(index, block, sink)?
                }
                _ => return Ok(()),
            },
        };
        match (kind, &mut self.blocks[at].1) {
            ("text_delta", Block::Text(text)) => sink.text(text, text_of(delta, "text")),
            ("thinking_delta", Block::Thinking { text, .. }) => {
                sink.reasoning(text, text_of(delta, "thinking"))
            }
            ("signature_delta", Block::Thinking { signature, .. }) => {
                sink.silent(signature, text_of(delta, "signature"))
            }
            ("input_json_delta", Block::Call { json, .. } | Block::Other { json, .. }) => {
                sink.arguments(json, text_of(delta, "partial_json"))
            }
            // Citations.
            _ => Ok(()),
        }
    }

    fn open(&mut self, index: u64, block: Block, sink: &mut ChunkSink<'_>) -> Result<usize, Error> {
        sink.block()?;
        self.blocks.push((index, block));
        Ok(self.blocks.len() - 1)
    }

    /// The reply; only valid for a complete answer.
    pub(crate) fn reply(self, request: &Request) -> Reply {
        let origin = || self.source.origin(&request.model, None);
        let mut content: Vec<ContentPart> = Vec::new();
        let mut tool_calls: Vec<ToolCall> = Vec::new();
        // Whether the last block was text: citations split one text into several blocks.
        let mut in_text = false;
        for (_, block) in self.blocks {
            let goes_on = std::mem::replace(&mut in_text, matches!(block, Block::Text(_)));
            match block {
                Block::Text(more) => match content.last_mut() {
                    _ if more.is_empty() => in_text = goes_on,
                    Some(ContentPart::Text { text }) if goes_on => text.push_str(&more),
                    _ => content.push(ContentPart::Text { text: more }),
                },
                Block::Thinking { text, signature } => {
                    if !(text.is_empty() && signature.is_empty()) {
                        let signature = Some(signature).filter(|s| !s.is_empty());
                        let signature = signature.map(|s| Signature::Thinking(&s).store());
                        content.push(ContentPart::Reasoning {
                            text,
                            signature,
                            origin: Some(Box::new(origin())),
                        });
                    }
                }
                Block::Redacted(data) => content.push(ContentPart::Reasoning {
                    text: String::new(),
                    signature: Some(Signature::Redacted(&data).store()),
                    origin: Some(Box::new(origin())),
                }),
                Block::Call {
                    id,
                    name,
                    input,
                    text,
                    json,
                    attached,
                } => {
                    let arguments = arguments(text.map(Value::String).or(input), &json);
                    let mut call = answer::tool_call(tool_calls.len(), &id, &name, arguments);
                    answer::attach(&mut call, origin(), &id, &attached);
                    call.after = u32::try_from(content.len()).ok();
                    tool_calls.push(call);
                }
                Block::Other { mut block, json } => {
                    if let Some(input) = json::parse(&json) {
                        block["input"] = input;
                    }
                    content.push(answer::attached(origin(), &block));
                }
            }
        }
        let finish = answer::finish(self.stop_reason.as_deref(), !tool_calls.is_empty());
        let usage = self.counts.usage(CacheCount::OnTop);
        answer::reply(request, content, tool_calls, finish, usage, self.model)
    }
}

/// A call's arguments: those of its deltas, or else of its start, where some gateways give them as the text of JSON.
fn arguments(input: Option<Value>, deltas: &str) -> Arguments {
    match input {
        Some(Value::String(text)) if deltas.trim().is_empty() => Arguments::read(&text),
        Some(input) if deltas.trim().is_empty() && !input.is_null() => {
            Arguments::read(&input.to_string())
        }
        _ => Arguments::read(deltas),
    }
}

impl Reader for Answer<'_> {
    fn event(&mut self, event: &str, data: &str, sink: &mut ChunkSink<'_>) -> Result<(), Error> {
        if answer::is_silent(data) {
            return Ok(());
        }
        // Gateways to other protocols end a stream with this, or append it.
        if data.trim() == "[DONE]" && self.complete() {
            self.ended = true;
            return Ok(());
        }
        // Skipping an unreadable event would silently lose a part of the answer.
        let Some(value) = sink.parse(data) else {
            return Err(answer::unreadable(event, data, self.source.told));
        };
        let kind = Some(text_of(&value, "type"))
            .filter(|t| !t.is_empty())
            .unwrap_or(event);
        let index = value.get("index").and_then(Value::as_u64).unwrap_or(0);
        let null = &Value::Null;
        let member = |name: &str| value.get(name).unwrap_or(null);
        match kind {
            "message_start" => self.message(member("message"), sink),
            "content_block_start" => self.start(index, member("content_block"), sink),
            "content_block_delta" => self.delta(index, member("delta"), sink),
            "message_delta" => {
                self.usage(&value, sink);
                self.stop(member("delta"));
                Ok(())
            }
            "message_stop" => {
                self.ended = true;
                let empty = self.blocks.is_empty() && self.stop_reason.is_none();
                if empty {
                    Err(Error::bad("it is empty"))
                } else {
                    Ok(())
                }
            }
            "error" => Err(Endpoint::refusal(self.source.told, &value)),
            // The end of a block, a keep-alive, or an unknown event.
            _ => answer::error_in(&value).map_or(Ok(()), |error| {
                Err(Endpoint::refusal(self.source.told, &error))
            }),
        }
    }

    fn whole(&mut self, body: &Value, sink: &mut ChunkSink<'_>) -> Result<(), Error> {
        if let Some(error) = answer::error_in(body) {
            return Err(Endpoint::refusal(self.source.told, &error));
        }
        if !body.get("content").is_some_and(Value::is_array) {
            return Err(Error::bad("it has no content"));
        }
        self.message(body, sink)?;
        self.ended = true;
        Ok(())
    }

    fn ended(&self) -> bool {
        self.ended
    }

    fn complete(&self) -> bool {
        // The reason comes after every block; only the end marker may be missing.
        self.ended || self.stop_reason.is_some()
    }
}

fn text_of<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}
