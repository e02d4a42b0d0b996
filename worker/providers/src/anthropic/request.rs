//! Builds Messages requests.

mod messages;
mod thinking;

use std::borrow::Cow;

use mainspring_worker::llm::{Error, Request};
use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use self::messages::{
    Block, OwnBlock, Places, WireMessage, WireRole, Writer, acts_without_thinking, push_tail,
};
use self::thinking::{Asked, Back, Thinking};
use crate::rules::Rules;
use crate::schema;
use crate::settings::Kind;
use crate::tools::{Choice, Tool, Tools};
use crate::transcript::Receiver;

/// The smallest `top_p` that is allowed together with thinking.
const THINKING_TOP_P_MIN: f64 = 0.95;

/// The header that lets the API drop thinking whose place has changed: the tail of a request is not part of the next
/// request, and folds replace messages
/// (<https://platform.claude.com/docs/build-with-claude/preserved-thinking>).
pub(super) const BINDING_BETA: (&str, &str) =
    ("anthropic-beta", "thinking-binding-controls-2026-08-01");

/// What the system prompt says where the answer is to be an object, which the protocol has no member for.
const JSON: &str = "Answer with one JSON object and nothing else.";

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
    tool_choice: Option<WireChoice<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop_sequences: &'a [String],
    stream: bool,
}

#[derive(Serialize)]
struct WireChoice<'a> {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disable_parallel_tool_use: Option<bool>,
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
    JsonSchema { schema: Cow<'a, Value> },
}

/// An element up to which the provider may cache the request.
struct Marked<T> {
    inner: T,
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

impl<T: Serialize> Serialize for Marked<T> {
    /// The mark is put behind the members, which stay as they are to the byte.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::Error as _;
        let Some(mark) = &self.cache_control else {
            return self.inner.serialize(serializer);
        };
        let whole = to_raw_value(&self.inner).map_err(S::Error::custom)?;
        let mark = to_raw_value(mark).map_err(S::Error::custom)?;
        let members = whole.get().strip_suffix('}').unwrap_or(whole.get());
        let comma = if members.ends_with('{') { "" } else { "," };
        let marked = format!("{members}{comma}\"cache_control\":{}}}", mark.get());
        let marked = RawValue::from_string(marked).map_err(S::Error::custom)?;
        marked.serialize(serializer)
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
struct WireTool<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    input_schema: Cow<'a, Value>,
}

/// What the requests to a provider have in common.
#[derive(Debug, Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a capability of its own"
)]
pub(super) struct Place<'a> {
    pub(super) host: &'a str,
    pub(super) rules: &'a Rules,
    /// Whether requests contain cache marks.
    pub(super) caches: bool,
    pub(super) streams: bool,
    /// Whether it is sent [`BINDING_BETA`].
    pub(super) binding: bool,
    /// Whether it is given the answer's schema.
    pub(super) native_schema: bool,
}

/// The body of a request; the same request always gives the same bytes.
pub(super) fn body(request: &Request, place: Place<'_>) -> Result<Vec<u8>, Error> {
    let rules = place.rules;
    let tools = Tools::of(request, rules);
    let mut asked = Asked::of(request, rules, place.binding);
    let protocol = Kind::Anthropic.as_str();
    let mut writer = Writer {
        tools: &tools,
        receiver: Receiver::new(rules, protocol, place.host, &request.model),
        back: Back::of(request, rules, &asked),
    };
    let (messages, places) = writer.messages(request)?;
    if acts_without_thinking(&messages) && messages.last().is_some_and(WireMessage::has_results) {
        asked.not_within_an_answer();
    }
    let native = place.native_schema && rules.enforces_schema(!tools.is_empty());
    let output = request.output.as_deref().filter(|_| native);
    let format = output.map(|output| Format::JsonSchema {
        schema: schema::output(output, rules.schema),
    });
    let is_sampled = asked.thinking.is_none() && !asked.is_adaptive;
    // A thinking model accepts no temperature but its own.
    let temperature = request.temperature.filter(|_| is_sampled);
    let temperature = rules.temperature(temperature, None);
    let top_p = request
        .top_p
        .filter(|p| is_sampled || (!asked.is_adaptive && *p >= THINKING_TOP_P_MIN));
    let system = system(request, native);
    let mut body = Body {
        model: &request.model,
        tools: tools.list().iter().map(|it| tool(it).into()).collect(),
        system: system.map(|text| [Block::Own(OwnBlock::Text { text }).into()]),
        messages,
        max_tokens: request.max_tokens.max(1),
        tool_choice: choice(request, rules, &tools, asked.thinks),
        temperature,
        top_p: rules.top_p(top_p, temperature, None),
        output_config: (asked.effort.is_some() || format.is_some()).then_some(OutputConfig {
            effort: asked.effort,
            format,
        }),
        thinking: asked.thinking,
        stop_sequences: if rules.stop { &request.stop } else { &[] },
        stream: place.streams,
    };
    if place.caches {
        mark(&mut body, places);
    }
    if let Some(tail) = request
        .tail
        .as_deref()
        .filter(|tail| !tail.trim().is_empty())
    {
        push_tail(&mut body.messages, tail);
    }
    serde_json::to_vec(&body).map_err(|error| Error::InvalidRequest {
        message: format!("it is not JSON: {error}"),
    })
}

/// The system prompt, which also asks for an object if one is wanted and nothing else says so.
fn system(request: &Request, native: bool) -> Option<Cow<'_, str>> {
    let system = request.system.as_deref().filter(|s| !s.trim().is_empty());
    let says = |text: &str| text.contains("JSON") || text.contains("json");
    let said = system.is_some_and(says) || request.tail.as_deref().is_some_and(says);
    if !request.json_object || said || (native && request.output.is_some()) {
        return system.map(Cow::Borrowed);
    }
    Some(match system {
        Some(system) => Cow::Owned(format!("{system}\n\n{JSON}")),
        None => Cow::Borrowed(JSON),
    })
}

/// What is said about the choice of tools, and whether there may be several calls.
fn choice<'a>(
    request: &Request,
    rules: &Rules,
    tools: &Tools<'a>,
    thinks: bool,
) -> Option<WireChoice<'a>> {
    if tools.is_empty() {
        return None;
    }
    let single = request.parallel_tool_calls == Some(false) && rules.parallel_tool_calls;
    let disable_parallel_tool_use = single.then_some(true);
    let (r#type, name) = match tools.choice(&request.tool_choice, rules, thinks) {
        Choice::Auto if !single => return None,
        Choice::Auto => ("auto", None),
        Choice::None => {
            return Some(WireChoice {
                r#type: "none",
                name: None,
                disable_parallel_tool_use: None,
            });
        }
        Choice::Required => ("any", None),
        Choice::Named(name) => ("tool", Some(name)),
    };
    Some(WireChoice {
        r#type,
        name,
        disable_parallel_tool_use,
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
        let blocks = turn.map_or(&mut [][..], |turn| turn.content.as_mut_slice());
        let up_to = blocks.iter_mut().take(block + 1).rev();
        if let Some(block) = up_to.into_iter().find(|it| it.inner.takes_mark()) {
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

fn tool<'a>(tool: &'a Tool<'_>) -> WireTool<'a> {
    let any_object = || Cow::Owned(json!({"type": "object"}));
    WireTool {
        name: &tool.name,
        description: &tool.description,
        input_schema: tool.parameters().map_or_else(any_object, Cow::Borrowed),
    }
}

#[cfg(test)]
mod tests;
