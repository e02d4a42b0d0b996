//! The messages of a request: roles alternate, the user comes first, no text is blank, and an answer is in the order
//! in which the model gave it.

use std::borrow::Cow;

use mainspring_shared::message::{
    ContentPart, FileSource, ImageSource, Message, Piece, ToolCall, pieces,
};
use mainspring_worker::llm::{Error, Request};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::Marked;
use super::thinking::Back;
use crate::signature::Signature;
use crate::tools::Tools;
use crate::transcript::{
    PDF, Receiver, ToolResult, Turn, has_media, image_type, not_taken, turns_with,
};

/// Placeholder at the start of a window that does not start with the user.
const OMITTED: &str = "[earlier messages are omitted]";

/// Placeholder for a user message without text.
const EMPTY: &str = "[empty message]";

/// Members of a call that are written from the call itself.
const OF_CALL: [&str; 4] = ["type", "id", "name", "input"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum WireRole {
    User,
    Assistant,
}

#[derive(Serialize)]
pub(super) struct WireMessage<'a> {
    pub(super) role: WireRole,
    pub(super) content: Vec<Marked<Block<'a>>>,
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Block<'a> {
    Own(OwnBlock<'a>),
    /// What the provider attached, as it came.
    Attached(&'a RawValue),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum OwnBlock<'a> {
    Text {
        text: Cow<'a, str>,
    },
    Image {
        source: Source<'a>,
    },
    Document {
        source: Source<'a>,
        #[serde(skip_serializing_if = "str::is_empty")]
        title: &'a str,
    },
    Thinking {
        thinking: &'a str,
        signature: &'a str,
    },
    RedactedThinking {
        data: &'a str,
    },
    ToolUse {
        id: Cow<'a, str>,
        name: Cow<'a, str>,
        input: Box<RawValue>,
        #[serde(flatten)]
        attached: Map<String, Value>,
    },
    ToolResult {
        tool_use_id: Cow<'a, str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<Content<'a>>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Source<'a> {
    Base64 { media_type: &'a str, data: &'a str },
    Url { url: &'a str },
    Text { media_type: &'a str, data: &'a str },
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Content<'a> {
    Text(Cow<'a, str>),
    Blocks(Vec<Block<'a>>),
}

impl Block<'_> {
    /// Whether the provider takes a cache mark on it: it doesn't on thinking.
    pub(super) fn takes_mark(&self) -> bool {
        match self {
            Self::Own(OwnBlock::Thinking { .. } | OwnBlock::RedactedThinking { .. })
            | Self::Attached(_) => false,
            Self::Own(_) => true,
        }
    }
}

impl WireMessage<'_> {
    /// Whether it has results of tools.
    pub(super) fn has_results(&self) -> bool {
        let is_result =
            |it: &Marked<Block<'_>>| matches!(it.inner, Block::Own(OwnBlock::ToolResult { .. }));
        self.content.iter().any(is_result)
    }
}

/// The position of a block: its turn, and its index in that turn.
type BlockIndex = (usize, usize);

/// Where the settled messages end.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Places {
    pub(super) settled: Option<BlockIndex>,
    /// The same in the previous request, if it was elsewhere.
    pub(super) before: Option<BlockIndex>,
}

/// What is needed to write messages.
pub(super) struct Writer<'a, 't> {
    pub(super) tools: &'t Tools<'a>,
    pub(super) receiver: Receiver<'t>,
    pub(super) back: Back,
}

impl<'a> Writer<'a, '_> {
    /// The messages, and the last blocks of the settled ones.
    pub(super) fn messages(
        &mut self,
        request: &'a Request,
    ) -> Result<(Vec<WireMessage<'a>>, Places), Error> {
        let mut messages: Vec<WireMessage<'a>> = Vec::with_capacity(request.messages.len());
        let last = |count: usize| request.messages.get(count.checked_sub(1)?);
        let settled = last(request.settled);
        let before = request.settled_before.and_then(last);
        let mut places = Places::default();
        let mut ids: Vec<Cow<'a, str>> = Vec::new();
        let receiver = &self.receiver;
        let attached = |message: &Message| {
            let mut parts = message.content.iter();
            parts.any(|part| matches!(part, ContentPart::Attached(it) if receiver.gave(&it.origin)))
        };
        for turn in turns_with(&request.messages, &attached) {
            let [settled, before] = [settled, before].map(|last| turn.behind(last?));
            let (role, blocks) = match turn {
                Turn::User { text, message } => (WireRole::User, user(text, message)?),
                Turn::Assistant { message, .. } => {
                    ids = self.receiver.ids(&message.tool_calls);
                    (WireRole::Assistant, self.assistant(message, &ids))
                }
                Turn::Results(results) => {
                    let results = results.into_iter().zip(ids.drain(..));
                    let results = results.map(|(it, id)| result(it, id));
                    (WireRole::User, results.collect::<Result<_, _>>()?)
                }
            };
            if blocks.is_empty() {
                continue;
            }
            push(&mut messages, role, blocks);
            let place = |behind: usize| {
                let block = messages.last()?.content.len().checked_sub(behind + 1)?;
                Some((messages.len() - 1, block))
            };
            places.settled = settled.and_then(place).or(places.settled);
            places.before = before.and_then(place).or(places.before);
        }
        if messages.is_empty() {
            push(&mut messages, WireRole::User, vec![text(OMITTED)]);
        }
        Ok((messages, places))
    }

    /// An answer, in the order in which the model gave it.
    fn assistant(&self, message: &'a Message, ids: &[Cow<'a, str>]) -> Vec<Block<'a>> {
        let calls = &message.tool_calls;
        let block = |piece: Piece<'a>| match piece {
            Piece::Part(part) => self.part(message, part),
            Piece::Call(call) => {
                let place = calls.iter().position(|it| std::ptr::eq(it, call))?;
                Some(self.call(call, ids.get(place)?.clone()))
            }
        };
        pieces(&message.content, calls).filter_map(block).collect()
    }

    fn part(&self, message: &Message, part: &'a ContentPart) -> Option<Block<'a>> {
        match part {
            ContentPart::Text { text: said } if said.trim().is_empty() => None,
            ContentPart::Text { text: said } => Some(text(said)),
            ContentPart::Reasoning {
                text,
                signature: Some(signature),
                origin,
            } => {
                let own = origin.as_ref().is_none_or(|it| self.receiver.gave(it));
                if !own || !self.back.holds(message) {
                    return None;
                }
                Some(Block::Own(match Signature::read(signature) {
                    Signature::Redacted(data) => OwnBlock::RedactedThinking { data },
                    Signature::Thinking(signature) => OwnBlock::Thinking {
                        thinking: text,
                        signature,
                    },
                    Signature::Item { .. } => return None,
                }))
            }
            ContentPart::Attached(attached) if self.receiver.gave(&attached.origin) => {
                let raw = serde_json::from_str::<&RawValue>(&attached.json).ok()?;
                raw.get().starts_with('{').then_some(Block::Attached(raw))
            }
            // Reasoning without a signature is from another provider and would be refused. Models do
            // not produce images or files.
            ContentPart::Reasoning { .. }
            | ContentPart::Image { .. }
            | ContentPart::File { .. }
            | ContentPart::Digest { .. }
            | ContentPart::Attached(_) => None,
        }
    }

    fn call(&self, call: &'a ToolCall, id: Cow<'a, str>) -> Block<'a> {
        let json = self
            .receiver
            .attached(call)
            .and_then(|it| it.json.as_deref());
        let attached = json.and_then(|json| serde_json::from_str(json).ok());
        let mut attached: Map<String, Value> = attached.unwrap_or_default();
        attached.retain(|name, _| !OF_CALL.contains(&name.as_str()));
        Block::Own(OwnBlock::ToolUse {
            id,
            name: self.tools.name(&call.name),
            input: raw(&self.tools.arguments(call)),
            attached,
        })
    }
}

/// Adds blocks to the turn of the role, which begins if it isn't its turn.
fn push<'a>(messages: &mut Vec<WireMessage<'a>>, role: WireRole, blocks: Vec<Block<'a>>) {
    if messages.is_empty() && role == WireRole::Assistant {
        push(messages, WireRole::User, vec![text(OMITTED)]);
    }
    match messages.last_mut().filter(|last| last.role == role) {
        Some(last) => last.content.extend(blocks.into_iter().map(Marked::from)),
        None => messages.push(WireMessage {
            role,
            content: blocks.into_iter().map(Marked::from).collect(),
        }),
    }
}

/// Appends the tail to the user's turn. An answer that its provider paused goes on where it ended.
pub(super) fn push_tail<'a>(messages: &mut Vec<WireMessage<'a>>, tail: &'a str) {
    let paused = messages.last().is_some_and(|last| {
        let mut blocks = last.content.iter();
        last.role == WireRole::Assistant && blocks.any(|it| matches!(it.inner, Block::Attached(_)))
    });
    if !paused {
        push(messages, WireRole::User, vec![text(tail)]);
    }
}

/// Whether the last answer called tools and did not begin with thinking.
pub(super) fn acts_without_thinking(messages: &[WireMessage<'_>]) -> bool {
    let answer = messages
        .iter()
        .rev()
        .find(|it| it.role == WireRole::Assistant);
    let Some(blocks) = answer.map(|answer| &answer.content) else {
        return false;
    };
    let is = |block: &Block<'_>, what: fn(&OwnBlock<'_>) -> bool| match block {
        Block::Own(own) => what(own),
        Block::Attached(_) => false,
    };
    let thinks = |own: &OwnBlock<'_>| {
        matches!(
            own,
            OwnBlock::Thinking { .. } | OwnBlock::RedactedThinking { .. }
        )
    };
    let calls = |own: &OwnBlock<'_>| matches!(own, OwnBlock::ToolUse { .. });
    let begins = blocks.first().is_some_and(|first| is(&first.inner, thinks));
    !begins && blocks.iter().any(|block| is(&block.inner, calls))
}

/// A text block.
pub(super) fn text(text: &str) -> Block<'_> {
    Block::Own(OwnBlock::Text {
        text: Cow::Borrowed(text),
    })
}

fn user<'a>(content: Cow<'a, str>, message: &'a Message) -> Result<Vec<Block<'a>>, Error> {
    if has_media(message) {
        return shown(message);
    }
    Ok(vec![if content.trim().is_empty() {
        text(EMPTY)
    } else {
        Block::Own(OwnBlock::Text { text: content })
    }])
}

/// The content of a message, in order.
fn shown(message: &Message) -> Result<Vec<Block<'_>>, Error> {
    let mut blocks = Vec::with_capacity(message.content.len());
    for part in &message.content {
        blocks.push(match part {
            ContentPart::Reasoning { .. }
            | ContentPart::Digest { .. }
            | ContentPart::Attached(_) => continue,
            ContentPart::Text { text: said } if said.trim().is_empty() => continue,
            ContentPart::Text { text: said } => text(said),
            ContentPart::Image { source } => Block::Own(OwnBlock::Image {
                source: image(source)?,
            }),
            ContentPart::File { name, source } => Block::Own(OwnBlock::Document {
                source: document(name, source)?,
                title: name,
            }),
        });
    }
    Ok(blocks)
}

fn image(source: &ImageSource) -> Result<Source<'_>, Error> {
    Ok(match source {
        ImageSource::Base64 { media_type, data } => Source::Base64 {
            media_type: image_type(media_type, data),
            data,
        },
        ImageSource::Url { url } => Source::Url { url },
        ImageSource::Blob { media_type, .. } => return Err(not_taken("image", media_type)),
    })
}

fn document<'a>(name: &str, source: &'a FileSource) -> Result<Source<'a>, Error> {
    Ok(match source {
        // Empty documents are refused.
        FileSource::Text { text } if text.trim().is_empty() => Source::Text {
            media_type: "text/plain",
            data: EMPTY,
        },
        FileSource::Text { text } => Source::Text {
            media_type: "text/plain",
            data: text,
        },
        FileSource::Base64 { media_type, data } if media_type == PDF => {
            Source::Base64 { media_type, data }
        }
        FileSource::Base64 { media_type, .. } | FileSource::Blob { media_type, .. } => {
            return Err(not_taken(name, media_type));
        }
    })
}

fn result<'a>(result: ToolResult<'a>, id: Cow<'a, str>) -> Result<Block<'a>, Error> {
    let media = result.message.filter(|message| has_media(message));
    let content = match media {
        Some(message) => Some(Content::Blocks(shown(message)?)),
        None => Some(result.text)
            .filter(|text| !text.trim().is_empty())
            .map(Content::Text),
    };
    Ok(Block::Own(OwnBlock::ToolResult {
        tool_use_id: id,
        content,
        // A result with `is_error` may only contain text, so failed results with media say so in
        // text.
        is_error: media.is_none() && result.message.is_some_and(|message| message.failed),
    }))
}

/// The JSON of a call's arguments, as it was said.
fn raw(arguments: &str) -> Box<RawValue> {
    let said = RawValue::from_string(arguments.to_owned());
    said.unwrap_or_else(|_| RawValue::from_string("{}".to_owned()).expect("it is JSON"))
}
