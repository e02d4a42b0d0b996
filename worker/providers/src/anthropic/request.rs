//! Builds Messages requests: roles alternate, the user comes first, and no text is blank.

use std::borrow::Cow;

use mainspring_shared::agent::{ReasoningEffort, THINKING_TOKENS_MIN};
use mainspring_shared::message::{ContentPart, FileSource, ImageSource, Message, ToolCall};
use serde::Serialize;
use serde_json::{Value, json};

use crate::rules::Rules;
use crate::signature::Signature;
use crate::tools::{Tool, Tools};
use crate::transcript::{PDF, ToolResult, Turn, has_media, not_taken, turns, wire_name};
use mainspring_worker::llm::{Error, Request};

/// The smallest `top_p` that is allowed together with thinking.
const THINKING_TOP_P_MIN: f64 = 0.95;

/// Models whose thinking blocks are bound to everything before them. The tail of a request is not
/// part of the next request, and folds replace messages; thinking after such a change must then be
/// dropped, or else the request is refused
/// (<https://platform.claude.com/docs/build-with-claude/preserved-thinking>).
const BOUND: [&str; 4] = [
    "claude-fable-5-1",
    "claude-opus-5-5",
    "claude-sonnet-5-5",
    "claude-haiku-5-5",
];

/// The header that lets the API drop such blocks.
pub(super) const BINDING_BETA: (&str, &str) =
    ("anthropic-beta", "thinking-binding-controls-2026-08-01");

/// Placeholder at the start of a window that does not start with the user.
const OMITTED: &str = "[earlier messages are omitted]";

/// Placeholder for a user message without text.
const EMPTY: &str = "[empty message]";

/// Whatever changes from send to send comes after the messages, so that all requests of a session
/// begin with the same bytes.
#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Marked<WireTool<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<[Marked<Block<'a>>; 1]>,
    messages: Vec<WireMessage<'a>>,
    max_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Thinking>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop_sequences: &'a [String],
    stream: bool,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Thinking {
    /// At most this many tokens.
    Enabled { budget_tokens: u32 },
    /// As many as the model sees fit. Without `display` it does not show its thinking.
    Adaptive {
        display: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        block_binding: Option<BlockBinding>,
    },
}

#[derive(Serialize)]
struct BlockBinding {
    prefix_mismatch_behavior: &'static str,
}

#[derive(Serialize)]
struct OutputConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<Format<'a>>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Format<'a> {
    JsonSchema { schema: &'a Value },
}

/// An element up to which the provider may cache the request.
#[derive(Serialize)]
struct Marked<T> {
    #[serde(flatten)]
    inner: T,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

impl<T> From<T> for Marked<T> {
    fn from(inner: T) -> Self {
        Self {
            inner,
            cache_control: None,
        }
    }
}

/// Uses the provider's default lifetime, five minutes since the last use.
#[derive(Serialize)]
struct CacheControl {
    r#type: &'static str,
}

impl CacheControl {
    const EPHEMERAL: Self = Self {
        r#type: "ephemeral",
    };
}

#[derive(Serialize)]
struct WireMessage<'a> {
    role: WireRole,
    content: Vec<Marked<Block<'a>>>,
}

#[derive(Serialize, PartialEq, Eq, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum WireRole {
    User,
    Assistant,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text {
        text: Cow<'a, str>,
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
        input: Cow<'a, Value>,
    },
    Image {
        source: Source<'a>,
    },
    Document {
        source: Source<'a>,
        title: &'a str,
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
enum Source<'a> {
    Base64 { media_type: &'a str, data: &'a str },
    Url { url: &'a str },
    Text { media_type: &'a str, data: &'a str },
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(Cow<'a, str>),
    Blocks(Vec<Block<'a>>),
}

#[derive(Serialize)]
struct WireTool<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    input_schema: Cow<'a, Value>,
}

/// The capabilities used in requests to a provider.
#[derive(Debug, Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a capability of its own"
)]
pub(super) struct Capabilities {
    /// Whether requests contain cache marks.
    pub(super) caches: bool,
    pub(super) streams: bool,
    /// Whether it accepts [`BINDING_BETA`].
    pub(super) binding: bool,
    /// Whether it enforces a schema on answers.
    pub(super) native_schema: bool,
}

/// The body of a request; the same request always gives the same bytes.
pub(super) fn body(
    request: &Request,
    rules: &Rules,
    capabilities: Capabilities,
) -> Result<Vec<u8>, Error> {
    let tools = Tools::of(request, rules);
    let (thinking, effort) = if request.adaptive {
        (adaptive(request, capabilities.binding), effort(request))
    } else {
        (thinking(request), None)
    };
    let output = request
        .output
        .as_deref()
        .filter(|_| capabilities.native_schema);
    let format = output.map(|output| Format::JsonSchema {
        schema: &output.schema,
    });
    let is_sampled = thinking.is_none() && !request.adaptive;
    let system = request.system.as_deref().filter(|s| !s.trim().is_empty());
    let (messages, places) = messages(request, &tools)?;
    let mut body = Body {
        model: &request.model,
        tools: tools.list().iter().map(|it| tool(it).into()).collect(),
        system: system.map(|system| [text(system).into()]),
        messages,
        max_tokens: request.max_tokens.max(1),
        // A thinking model accepts no temperature but its own.
        temperature: request.temperature.filter(|_| is_sampled),
        top_p: request
            .top_p
            .filter(|p| is_sampled || (!request.adaptive && *p >= THINKING_TOP_P_MIN)),
        thinking,
        output_config: (effort.is_some() || format.is_some())
            .then_some(OutputConfig { effort, format }),
        stop_sequences: &request.stop,
        stream: capabilities.streams,
    };
    if capabilities.caches {
        mark(&mut body, places);
    }
    if let Some(tail) = &request.tail {
        push_tail(&mut body.messages, tail);
    }
    serde_json::to_vec(&body).map_err(|error| Error::InvalidRequest {
        message: format!("it is not JSON: {error}"),
    })
}

/// The thinking budget. Thinking counts towards the answer, for which some tokens must be left; if
/// the send's budget leaves less than the minimum for thinking, there is none.
fn thinking(request: &Request) -> Option<Thinking> {
    let most = request.max_tokens;
    let wanted = request.thinking_tokens.or_else(|| {
        let quarters = match request.reasoning_effort? {
            ReasoningEffort::None | ReasoningEffort::Minimal => return None,
            ReasoningEffort::Low => 1,
            ReasoningEffort::Medium => 2,
            ReasoningEffort::High | ReasoningEffort::XHigh | ReasoningEffort::Max => 3,
        };
        Some(most / 4 * quarters)
    })?;
    let budget_tokens = wanted.min(most.saturating_sub(1));
    (budget_tokens >= THINKING_TOKENS_MIN).then_some(Thinking::Enabled { budget_tokens })
}

/// Whether a model that decides by itself how much to think should think: if thinking tokens or a
/// sufficient effort are set.
fn adaptive(request: &Request, binding: bool) -> Option<Thinking> {
    let effort = request.reasoning_effort;
    let is_bound = binding && BOUND.iter().any(|model| request.model.starts_with(model));
    let is_little = |effort| matches!(effort, ReasoningEffort::None | ReasoningEffort::Minimal);
    let thinks = effort.map_or(request.thinking_tokens.is_some(), |effort| {
        !is_little(effort)
    });
    // Models with bound thinking always think.
    (thinks || is_bound).then_some(Thinking::Adaptive {
        display: "summarized",
        block_binding: is_bound.then_some(BlockBinding {
            prefix_mismatch_behavior: "drop_block",
        }),
    })
}

/// The effort that such a model is to spend on its answer.
fn effort(request: &Request) -> Option<&'static str> {
    Some(match request.reasoning_effort? {
        ReasoningEffort::None | ReasoningEffort::Minimal | ReasoningEffort::Low => "low",
        ReasoningEffort::Medium => "medium",
        ReasoningEffort::High => "high",
        ReasoningEffort::XHigh => "xhigh",
        ReasoningEffort::Max => "max",
    })
}

/// Sets the cache marks: at the end of the agent's part, at the end of the settled messages (whose
/// form no longer changes), where the previous request ended and was cached, and at the end of the
/// messages for the next request. If more is settled than in the previous request, the place up to
/// which that one was settled is cached together with the agent's part, and is marked instead of
/// it. Four marks are allowed. A provider looks back twenty blocks from a mark, which a round with
/// many calls exceeds, and so do digests; therefore the end of the previous request has a mark of
/// its own.
fn mark(body: &mut Body<'_>, places: Places) {
    match (&mut body.system, body.tools.last_mut()) {
        _ if places.before.is_some() => {}
        (Some([system]), _) => system.cache_control = Some(CacheControl::EPHEMERAL),
        (None, Some(tool)) => tool.cache_control = Some(CacheControl::EPHEMERAL),
        (None, None) => {}
    }
    for (turn, block) in [places.settled, places.before].into_iter().flatten() {
        let turn = body.messages.get_mut(turn);
        if let Some(block) = turn.and_then(|turn| turn.content.get_mut(block)) {
            block.cache_control = Some(CacheControl::EPHEMERAL);
        }
    }
    let turns = body.messages.iter_mut().rev();
    for turn in turns.filter(|turn| turn.role == WireRole::User).take(2) {
        if let Some(last) = turn.content.last_mut() {
            last.cache_control = Some(CacheControl::EPHEMERAL);
        }
    }
}

/// Appends the tail to the user's turn.
fn push_tail<'a>(messages: &mut Vec<WireMessage<'a>>, tail: &'a str) {
    match messages.last_mut() {
        Some(turn) if turn.role == WireRole::User => turn.content.push(text(tail).into()),
        _ => messages.push(WireMessage {
            role: WireRole::User,
            content: vec![text(tail).into()],
        }),
    }
}

/// The position of a block: its turn, and its index in that turn.
type BlockIndex = (usize, usize);

/// Where the settled messages end.
#[derive(Clone, Copy, Default)]
struct Places {
    settled: Option<BlockIndex>,
    /// The same in the previous request, if it was elsewhere.
    before: Option<BlockIndex>,
}

/// The messages, and the last blocks of the settled ones.
fn messages<'a>(
    request: &'a Request,
    tools: &Tools<'_>,
) -> Result<(Vec<WireMessage<'a>>, Places), Error> {
    let mut messages: Vec<WireMessage<'a>> = Vec::with_capacity(request.messages.len());
    let last = |count: usize| request.messages.get(count.checked_sub(1)?);
    let settled = last(request.settled);
    let before = request.settled_before.and_then(last);
    let mut places = Places::default();
    for turn in turns(&request.messages) {
        let [settled, before] = [settled, before].map(|last| turn.behind(last?));
        let (role, blocks) = match turn {
            Turn::User { text, message } => (WireRole::User, user(text, message)?),
            Turn::Assistant { message, .. } => (WireRole::Assistant, assistant(message, tools)),
            Turn::Results(results) => {
                let results = results.into_iter().map(result);
                (WireRole::User, results.collect::<Result<_, _>>()?)
            }
        };
        if messages.is_empty() && role == WireRole::Assistant {
            messages.push(WireMessage {
                role: WireRole::User,
                content: vec![text(OMITTED).into()],
            });
        }
        match messages.last_mut().filter(|last| last.role == role) {
            Some(last) => last.content.extend(blocks.into_iter().map(Marked::from)),
            None => messages.push(WireMessage {
                role,
                content: blocks.into_iter().map(Marked::from).collect(),
            }),
        }
        let place = |behind: usize| {
            let block = messages.last()?.content.len().checked_sub(behind + 1)?;
            Some((messages.len() - 1, block))
        };
        places.settled = settled.and_then(place).or(places.settled);
        places.before = before.and_then(place).or(places.before);
    }
    if messages.is_empty() {
        messages.push(WireMessage {
            role: WireRole::User,
            content: vec![text(OMITTED).into()],
        });
    }
    Ok((messages, places))
}

fn text(text: &str) -> Block<'_> {
    Block::Text {
        text: Cow::Borrowed(text),
    }
}

fn user<'a>(content: Cow<'a, str>, message: &'a Message) -> Result<Vec<Block<'a>>, Error> {
    if has_media(message) {
        return shown(message);
    }
    Ok(vec![if content.trim().is_empty() {
        text(EMPTY)
    } else {
        Block::Text { text: content }
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
            ContentPart::Image { source } => Block::Image {
                source: match source {
                    ImageSource::Base64 { media_type, data } => Source::Base64 { media_type, data },
                    ImageSource::Url { url } => Source::Url { url },
                    ImageSource::Blob { media_type, .. } => {
                        return Err(not_taken("image", media_type));
                    }
                },
            },
            ContentPart::File { name, source } => {
                let source = match source {
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
                };
                Block::Document {
                    source,
                    title: name,
                }
            }
        });
    }
    Ok(blocks)
}

/// Reasoning and text as they came, followed by the calls.
fn assistant<'a>(message: &'a Message, tools: &Tools<'_>) -> Vec<Block<'a>> {
    let parts = message.content.iter().filter_map(|part| match part {
        ContentPart::Text { text: said } if said.trim().is_empty() => None,
        ContentPart::Text { text: said } => Some(text(said)),
        ContentPart::Reasoning {
            text,
            signature: Some(signature),
            ..
        } => match Signature::read(signature) {
            Signature::Redacted(data) => Some(Block::RedactedThinking { data }),
            Signature::Thinking(signature) => Some(Block::Thinking {
                thinking: text,
                signature,
            }),
            Signature::Item { .. } => None,
        },
        // Reasoning without a signature is from another provider and would be refused. Models do
        // not produce images or files.
        ContentPart::Reasoning {
            signature: None, ..
        }
        | ContentPart::Image { .. }
        | ContentPart::File { .. }
        | ContentPart::Digest { .. }
        | ContentPart::Attached(_) => None,
    });
    let calls = message.tool_calls.iter().map(|it| call(it, tools));
    parts.chain(calls).collect()
}

fn call<'a>(call: &'a ToolCall, tools: &Tools<'_>) -> Block<'a> {
    Block::ToolUse {
        id: wire_name(&call.id),
        name: tools.name(&call.name),
        input: tools.arguments(call),
    }
}

fn result(result: ToolResult<'_>) -> Result<Block<'_>, Error> {
    let media = result.message.filter(|message| has_media(message));
    let content = match media {
        Some(message) => Some(Content::Blocks(shown(message)?)),
        None => Some(result.text)
            .filter(|text| !text.trim().is_empty())
            .map(Content::Text),
    };
    Ok(Block::ToolResult {
        tool_use_id: wire_name(&result.call.id),
        content,
        // A result with `is_error` may only contain text, so failed results with media say so in
        // text.
        is_error: media.is_none() && result.message.is_some_and(|message| message.failed),
    })
}

fn tool<'a>(tool: &'a Tool<'_>) -> WireTool<'a> {
    let any_object = || Cow::Owned(json!({"type": "object"}));
    WireTool {
        name: &tool.name,
        description: &tool.description,
        input_schema: tool.parameters().map_or_else(any_object, Cow::Borrowed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinking_behind_what_changed_is_dropped_where_it_is_bound() {
        let thinking = |model: &str, binding| {
            let request = Request {
                model: model.to_owned(),
                adaptive: true,
                ..crate::answer::tests::request()
            };
            let capabilities = Capabilities {
                caches: true,
                streams: true,
                binding,
                native_schema: false,
            };
            let body = body(&request, &Rules::default(), capabilities).expect("JSON");
            let body: Value = serde_json::from_slice(&body).expect("JSON");
            body["thinking"].clone()
        };
        let bound = json!({
            "type": "adaptive",
            "display": "summarized",
            "block_binding": { "prefix_mismatch_behavior": "drop_block" },
        });
        assert_eq!(thinking("claude-opus-5-5-20260901", true), bound);
        assert_eq!(thinking("claude-opus-5-5", false), Value::Null);
        assert_eq!(thinking("claude-opus-5", true), Value::Null);
    }
}
