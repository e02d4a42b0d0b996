//! Builds chat completions requests.

mod messages;
mod parts;

use std::borrow::Cow;

use mainspring_shared::agent::{OutputSpec, ReasoningEffort, ToolChoice};
use serde::Serialize;
use serde_json::Value;

use self::messages::{WireMessage, messages};
pub(super) use self::parts::SOUNDS;
use crate::rules::{OutputLimit, ResponseFormat, Rules, ThinkingSwitch, ToolChoiceWord};
use crate::settings::Kind;
use crate::tools::{Tool, Tools};
use crate::transcript::Receiver;
use mainspring_worker::llm::{Error, Request};

/// Some servers only answer with a JSON object if the prompt has this word.
const JSON: &str = "Answer with a JSON object.";

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Vec<WireMessage<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<ReasoningEffort>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Typed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    enable_thinking: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<WireTool<'a>>,
    /// Left out where the model decides: that is the default, and some servers refuse it.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<WireChoice<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel_tool_calls: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_format: Option<WireFormat<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<&'a str>,
}

#[derive(Serialize)]
struct Typed {
    r#type: &'static str,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum WireFormat<'a> {
    JsonSchema { json_schema: &'a OutputSpec },
    JsonObject,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
struct WireTool<'a> {
    r#type: &'static str,
    function: FunctionSpec<'a>,
}

#[derive(Serialize)]
struct FunctionSpec<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<&'a Value>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum WireChoice<'a> {
    Word(&'static str),
    Named {
        r#type: &'static str,
        function: Name<'a>,
    },
}

#[derive(Serialize)]
struct Name<'a> {
    name: &'a str,
}

/// What a provider's requests have in common.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) host: &'a str,
    pub(super) rules: &'a Rules,
    /// Whether the provider is given the answer's schema.
    pub(super) native_schema: bool,
    pub(super) stream: bool,
}

/// The body of a request; the same request always gives the same bytes.
pub(super) fn body(request: &Request, place: Place<'_>) -> Result<Vec<u8>, Error> {
    let Place { rules, stream, .. } = place;
    let response_format = format(request, place);
    let system = request.system.as_deref().filter(|s| !s.trim().is_empty());
    let system = system.map(Cow::Borrowed);
    let system = match &response_format {
        Some(WireFormat::JsonObject) => Some(with_json(system, request)),
        Some(WireFormat::JsonSchema { .. }) | None => system,
    };
    let receiver = Receiver::new(rules, Kind::OpenAi.as_str(), place.host, &request.model);
    let effort = request.reasoning_effort;
    let effort = effort.and_then(|effort| rules.effort(effort));
    let temperature = rules.temperature(request.temperature, effort);
    let most = Some(request.max_tokens).filter(|max| *max > 0);
    let known = Tools::of(request, rules);
    let (tools, tool_choice) = offered(request, &known, rules);
    let body = Body {
        model: &request.model,
        messages: messages(request, system, (rules, &known), receiver)?,
        temperature,
        top_p: rules.top_p(request.top_p, temperature, effort),
        stop: if rules.stop { &request.stop } else { &[] },
        reasoning_effort: effort,
        thinking: thinking(request, rules),
        enable_thinking: enable_thinking(request, rules, stream),
        max_tokens: most.filter(|_| rules.output_limit == OutputLimit::MaxTokens),
        max_completion_tokens: most
            .filter(|_| rules.output_limit == OutputLimit::MaxCompletionTokens),
        stream,
        stream_options: (stream && rules.stream_options).then_some(StreamOptions {
            include_usage: true,
        }),
        // Refused without tools.
        parallel_tool_calls: request
            .parallel_tool_calls
            .filter(|_| rules.parallel_tool_calls && !tools.is_empty()),
        tools,
        tool_choice,
        response_format,
        prompt_cache_key: request
            .cache_key
            .as_deref()
            .filter(|_| rules.prompt_cache_key),
    };
    serde_json::to_vec(&body).map_err(|error| Error::InvalidRequest {
        message: format!("it is not JSON: {error}"),
    })
}

/// How the answer is held to its form. A schema that the endpoint doesn't enforce is in the prompt.
fn format<'a>(request: &'a Request, place: Place<'_>) -> Option<WireFormat<'a>> {
    let Place { rules, .. } = place;
    let tools = !request.tools.is_empty();
    let output = request.output.as_deref();
    let schema = output.filter(|_| place.native_schema && rules.enforces_schema(tools));
    if let Some(json_schema) = schema {
        return Some(WireFormat::JsonSchema { json_schema });
    }
    let instead = output.is_some()
        && place.native_schema
        && rules.response_format == ResponseFormat::JsonObject;
    let wanted = request.json_object || instead;
    (wanted && rules.json_object && (rules.schema_with_tools || !tools))
        .then_some(WireFormat::JsonObject)
}

/// The system prompt, which says that the answer is JSON unless something does.
fn with_json<'a>(system: Option<Cow<'a, str>>, request: &Request) -> Cow<'a, str> {
    let says = |text: &str| text.contains("JSON") || text.contains("json");
    let said = system.as_deref().is_some_and(says) || request.tail.as_deref().is_some_and(says);
    match system {
        Some(system) if said => system,
        Some(system) => Cow::Owned(format!("{system}\n\n{JSON}")),
        None => Cow::Borrowed(JSON),
    }
}

/// Whether the model is told to think, or not to; `None` if it is left to it.
fn thinks(request: &Request) -> Option<bool> {
    request
        .reasoning_effort
        .map(|effort| effort != ReasoningEffort::None)
}

fn thinking(request: &Request, rules: &Rules) -> Option<Typed> {
    let thinks = thinks(request).filter(|_| rules.thinking_switch == ThinkingSwitch::Thinking)?;
    Some(Typed {
        r#type: if thinks { "enabled" } else { "disabled" },
    })
}

fn enable_thinking(request: &Request, rules: &Rules, stream: bool) -> Option<bool> {
    if rules.thinking_switch != ThinkingSwitch::EnableThinking {
        return None;
    }
    // Thinking is refused unless the answer is streamed.
    if stream { thinks(request) } else { Some(false) }
}

/// The tools, and what is said about the choice among them. A choice that the endpoint doesn't accept is made by what
/// is on offer, as far as that is possible.
fn offered<'a>(
    request: &Request,
    tools: &'a Tools<'_>,
    rules: &Rules,
) -> (Vec<WireTool<'a>>, Option<WireChoice<'a>>) {
    let accepts = |word| rules.tool_choice.contains(&word);
    let thinking = request.reasoning_effort != Some(ReasoningEffort::None);
    let may_force = rules.forced_while_thinking || !thinking;
    let required = || {
        [ToolChoiceWord::Required, ToolChoiceWord::Any]
            .into_iter()
            .find(|word| may_force && accepts(*word))
            .map(|word| WireChoice::Word(word.as_str()))
    };
    let all = || tools.list().iter().map(tool).collect();
    if tools.is_empty() {
        return (Vec::new(), None);
    }
    match &request.tool_choice {
        ToolChoice::Auto => (all(), None),
        ToolChoice::None if accepts(ToolChoiceWord::None) => {
            (all(), Some(WireChoice::Word("none")))
        }
        ToolChoice::None => (Vec::new(), None),
        ToolChoice::Required => (all(), required()),
        ToolChoice::Tool(name) => {
            let name = tools.name(name);
            let Some(named) = tools.list().iter().find(|tool| tool.name == name) else {
                return (all(), required());
            };
            if may_force && accepts(ToolChoiceWord::Named) {
                let choice = WireChoice::Named {
                    r#type: "function",
                    function: Name { name: &named.name },
                };
                return (all(), Some(choice));
            }
            (vec![tool(named)], required())
        }
    }
}

fn tool<'a>(tool: &'a Tool<'_>) -> WireTool<'a> {
    WireTool {
        r#type: "function",
        function: FunctionSpec {
            name: &tool.name,
            description: &tool.description,
            parameters: tool.parameters(),
        },
    }
}

#[cfg(test)]
mod tests;
