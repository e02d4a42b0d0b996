//! Reads a Messages answer: blocks, either whole or as a start, deltas and an end.

use mainspring_shared::message::{ContentPart, ToolCall};
use serde_json::Value;

use crate::answer::{self, ChunkSink};
use crate::http::{Endpoint, Reader};
use crate::signature::Signature;
use crate::status::ProviderSecrets;
use crate::usage::{CacheCount, Counts};
use mainspring_worker::llm::Error;
use mainspring_worker::llm::{Finish, Reply, Request, json};

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
        json: String,
    },
    /// A block of a tool that the provider runs itself, or of an unknown kind.
    Unknown,
}

/// The part of an answer that has been read.
#[derive(Debug)]
pub(super) struct Answer<'a> {
    told: &'a ProviderSecrets,
    blocks: Vec<(u64, Block)>,
    stop_reason: Option<String>,
    counts: Counts,
    model: Option<String>,
    ended: bool,
}

impl<'a> Answer<'a> {
    pub(super) fn new(told: &'a ProviderSecrets) -> Self {
        Self {
            told,
            blocks: Vec::new(),
            stop_reason: None,
            counts: Counts::default(),
            model: None,
            ended: false,
        }
    }

    /// Reads a message: a whole one, or the start of a stream.
    fn message(&mut self, message: &Value, sink: &mut ChunkSink<'_>) -> Result<(), Error> {
        self.usage(message);
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

    fn usage(&mut self, holder: &Value) {
        if let Some(usage) = holder.get("usage") {
            self.counts.read(usage, CacheCount::OnTop);
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
                let (mut id, mut name) = (String::new(), String::new());
                sink.silent(&mut id, text_of(block, "id"))?;
                sink.silent(&mut name, text_of(block, "name"))?;
                Block::Call {
                    id,
                    name,
                    input: block.get("input").cloned(),
                    json: String::new(),
                }
            }
            _ => Block::Unknown,
        };
        self.blocks.push((index, block));
        Ok(())
    }

    fn delta(&mut self, index: u64, delta: &Value, sink: &mut ChunkSink<'_>) -> Result<(), Error> {
        let kind = text_of(delta, "type");
        let at = match self.blocks.iter().rposition(|(i, _)| *i == index) {
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
            ("input_json_delta", Block::Call { json, .. }) => {
                sink.silent(json, text_of(delta, "partial_json"))
            }
            // Citations, and unknown kinds.
            _ => Ok(()),
        }
    }

    fn open(&mut self, index: u64, block: Block, sink: &mut ChunkSink<'_>) -> Result<usize, Error> {
        sink.block()?;
        self.blocks.push((index, block));
        Ok(self.blocks.len() - 1)
    }

    /// The reply; only valid for a complete answer.
    pub(super) fn reply(self, request: &Request) -> Reply {
        let mut content: Vec<ContentPart> = Vec::new();
        let mut tool_calls: Vec<ToolCall> = Vec::new();
        for (_, block) in self.blocks {
            match block {
                // Citations split one text into several blocks.
                Block::Text(more) => match content.last_mut() {
                    _ if more.is_empty() => {}
                    Some(ContentPart::Text { text }) => text.push_str(&more),
                    _ => content.push(ContentPart::Text { text: more }),
                },
                Block::Thinking { text, signature } => {
                    if !(text.is_empty() && signature.is_empty()) {
                        let signature = Some(signature).filter(|s| !s.is_empty());
                        let signature = signature.map(|s| Signature::Thinking(&s).store());
                        content.push(ContentPart::Reasoning {
                            text,
                            signature,
                            origin: None,
                        });
                    }
                }
                Block::Redacted(data) => {
                    content.push(ContentPart::Reasoning {
                        text: String::new(),
                        signature: Some(Signature::Redacted(&data).store()),
                        origin: None,
                    });
                }
                Block::Call {
                    id,
                    name,
                    input,
                    json: text,
                } => {
                    let arguments = match input {
                        Some(input) if text.trim().is_empty() && !input.is_null() => {
                            json::clean_value(input)
                        }
                        _ => json::arguments(&text),
                    };
                    tool_calls.push(answer::tool_call(tool_calls.len(), &id, &name, arguments));
                }
                Block::Unknown => {}
            }
        }
        let finish = match self.stop_reason.as_deref() {
            Some("refusal") => Finish::Refused,
            Some("max_tokens" | "model_context_window_exceeded") => Finish::Length,
            None | Some("end_turn" | "stop_sequence" | "tool_use") => {
                if tool_calls.is_empty() {
                    Finish::Stop
                } else {
                    Finish::ToolCalls
                }
            }
            Some(reason) => answer::other(reason),
        };
        let usage = self.counts.usage(CacheCount::OnTop);
        answer::reply(request, content, tool_calls, finish, usage, self.model)
    }
}

impl Reader for Answer<'_> {
    fn event(&mut self, event: &str, data: &str, sink: &mut ChunkSink<'_>) -> Result<(), Error> {
        if data.trim().is_empty() {
            return Ok(());
        }
        // Skipping an unreadable event would silently lose a part of the answer.
        let value = json::parse(data).ok_or_else(|| Error::bad("an event is not JSON"))?;
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
                self.usage(&value);
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
            "error" => Err(Endpoint::refusal(self.told, &value)),
            // The end of a block, a keep-alive, or an unknown event.
            _ => Ok(()),
        }
    }

    fn whole(&mut self, body: &Value, sink: &mut ChunkSink<'_>) -> Result<(), Error> {
        if body.get("error").is_some_and(|error| !error.is_null()) {
            return Err(Endpoint::refusal(self.told, body));
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
