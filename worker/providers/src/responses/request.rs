//! Builds Responses requests: a list of items, of which messages are one kind.

use std::borrow::Cow;

use mainspring_shared::agent::ReasoningEffort;
use mainspring_shared::message::{
    Attached, ContentPart, FileSource, ImageSource, Message, Piece, ToolCall, pieces,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::Wants;
use crate::rules::{ResponseFormat, Rules};
use crate::schema;
use crate::settings::Kind;
use crate::signature::Signature;
use crate::tools::{Choice, Tool, Tools};
use crate::transcript::{
    PDF, Receiver, ToolResult, Turn, file_text, has_media, image_type, not_taken, turns_with,
};
use mainspring_worker::llm::{Error, Request};

/// The smallest `max_output_tokens` that the public API accepts.
const OUTPUT_TOKENS_MIN: u32 = 16;

/// What the instructions say where the answer is to be an object: without the word the request is refused.
const JSON: &str = "Answer with one JSON object and nothing else.";

/// Members of a call that are written from the call itself, or that only mean something to whoever stores it.
const OF_CALL: [&str; 6] = ["type", "id", "status", "call_id", "name", "arguments"];

/// Makes a response include its reasoning in encrypted form.
pub(super) const ENCRYPTED_REASONING: &str = "reasoning.encrypted_content";

/// Whatever changes from send to send comes after the items, so that all requests of a session
/// begin with the same bytes.
#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Function<'a>>,
    /// Left out where the model decides, which is the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<WireChoice<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel_tool_calls: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<Cow<'a, str>>,
    input: Vec<Item<'a>>,
    max_output_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<Reasoning>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    include: Option<[&'static str; 1]>,
    /// The transcript is stored here. Only background answers are stored there, because they must
    /// be.
    store: bool,
    stream: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    background: bool,
}

#[derive(Serialize)]
struct Reasoning {
    effort: ReasoningEffort,
}

#[derive(Serialize)]
struct Text<'a> {
    format: Format<'a>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Format<'a> {
    JsonSchema {
        name: &'a str,
        schema: Cow<'a, Value>,
        strict: bool,
    },
    JsonObject,
}

#[derive(Serialize)]
#[serde(untagged)]
enum WireChoice<'a> {
    Word(&'static str),
    Function {
        r#type: &'static str,
        name: Cow<'a, str>,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
enum Item<'a> {
    Own(OwnItem<'a>),
    /// What the provider attached, as it came.
    Attached(&'a RawValue),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum OwnItem<'a> {
    Message {
        role: WireRole,
        content: Vec<Part<'a>>,
        /// What the text is for, as the provider said when it gave it.
        #[serde(skip_serializing_if = "Option::is_none")]
        phase: Option<String>,
    },
    Reasoning {
        #[serde(skip_serializing_if = "str::is_empty")]
        id: &'a str,
        summary: Vec<Part<'a>>,
        encrypted_content: &'a str,
    },
    FunctionCall {
        call_id: Cow<'a, str>,
        name: Cow<'a, str>,
        arguments: String,
        #[serde(flatten)]
        attached: Map<String, Value>,
    },
    FunctionCallOutput {
        call_id: Cow<'a, str>,
        output: Output<'a>,
    },
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum WireRole {
    User,
    Assistant,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Output<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<Part<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    InputText {
        text: Cow<'a, str>,
    },
    OutputText {
        text: Cow<'a, str>,
    },
    SummaryText {
        text: Cow<'a, str>,
    },
    InputImage {
        image_url: Cow<'a, str>,
    },
    InputFile {
        filename: &'a str,
        file_data: String,
    },
}

#[derive(Serialize)]
struct Function<'a> {
    r#type: &'static str,
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    parameters: Cow<'a, Value>,
    /// Strict is the API's default, and supports only some schemas.
    strict: bool,
}

/// What the requests to a provider have in common.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) host: &'a str,
    pub(super) rules: &'a Rules,
    pub(super) wants: Wants,
}

/// The body of a request; the same request always gives the same bytes. Texts that end an answer are left out: the API
/// has none.
pub(super) fn body(request: &Request, place: Place<'_>) -> Result<Vec<u8>, Error> {
    let Place { rules, wants, .. } = place;
    let tools = Tools::of(request, rules);
    let mut writer = Writer {
        tools: &tools,
        receiver: Receiver::new(
            rules,
            Kind::OpenAiResponses.as_str(),
            place.host,
            &request.model,
        ),
        rules,
        model: &request.model,
    };
    let mut input = writer.items(request)?;
    if let Some(tail) = request
        .tail
        .as_deref()
        .filter(|tail| !tail.trim().is_empty())
    {
        push_tail(&mut input, tail);
    }
    let effort = request.reasoning_effort;
    let effort = effort.and_then(|effort| rules.effort(effort));
    let temperature = rules.temperature(request.temperature, effort);
    let format = format(request, place, !tools.is_empty());
    let reasons = rules.encrypted_reasoning && may_reason(&request.model);
    let body = Body {
        model: &request.model,
        instructions: instructions(request, format.as_ref()),
        input,
        max_output_tokens: request.max_tokens.max(OUTPUT_TOKENS_MIN),
        temperature,
        top_p: rules.top_p(request.top_p, temperature, effort),
        reasoning: effort.map(|effort| Reasoning { effort }),
        text: format.map(|format| Text { format }),
        // Refused without tools.
        parallel_tool_calls: request
            .parallel_tool_calls
            .filter(|_| rules.parallel_tool_calls && !tools.is_empty()),
        tool_choice: choice(request, rules, &tools, effort),
        tools: tools.list().iter().map(function).collect(),
        prompt_cache_key: request
            .cache_key
            .as_deref()
            .filter(|_| rules.prompt_cache_key),
        include: reasons.then_some([ENCRYPTED_REASONING]),
        store: wants.background,
        stream: wants.stream,
        background: wants.background,
    };
    serde_json::to_vec(&body).map_err(|error| Error::InvalidRequest {
        message: format!("it is not JSON: {error}"),
    })
}

/// How the answer is held to its form.
fn format<'a>(request: &'a Request, place: Place<'_>, tools: bool) -> Option<Format<'a>> {
    let rules = place.rules;
    let native = place.wants.native_schema && rules.enforces_schema(tools);
    if let Some(output) = request.output.as_deref().filter(|_| native) {
        return Some(Format::JsonSchema {
            name: &output.name,
            schema: schema::output(output, rules.schema),
            strict: output.strict,
        });
    }
    let takes = rules.response_format != ResponseFormat::None;
    (request.json_object && takes && (rules.schema_with_tools || !tools))
        .then_some(Format::JsonObject)
}

/// The system prompt, which says that the answer is JSON if that is demanded and nothing else says so.
fn instructions<'a>(request: &'a Request, format: Option<&Format<'_>>) -> Option<Cow<'a, str>> {
    let system = request.system.as_deref();
    let system = system.filter(|system| !system.trim().is_empty());
    let says = |text: &str| text.contains("JSON") || text.contains("json");
    let said = system.is_some_and(says) || request.tail.as_deref().is_some_and(says);
    match (format, system) {
        (Some(Format::JsonObject), Some(system)) if !said => {
            Some(Cow::Owned(format!("{system}\n\n{JSON}")))
        }
        (Some(Format::JsonObject), None) if !said => Some(Cow::Borrowed(JSON)),
        (_, system) => system.map(Cow::Borrowed),
    }
}

/// What is said about the choice of tools.
fn choice<'a>(
    request: &Request,
    rules: &Rules,
    tools: &Tools<'a>,
    effort: Option<ReasoningEffort>,
) -> Option<WireChoice<'a>> {
    let thinks = effort != Some(ReasoningEffort::None);
    match tools.choice(&request.tool_choice, rules, thinks) {
        Choice::Auto => None,
        Choice::None => Some(WireChoice::Word("none")),
        Choice::Required => Some(WireChoice::Word("required")),
        Choice::Named(name) => Some(WireChoice::Function {
            r#type: "function",
            name,
        }),
    }
}

/// Whether the model may reason. If a model does not, the public API refuses requests for encrypted
/// reasoning. The listed families do not; all of them are older than those that do.
pub(super) fn may_reason(model: &str) -> bool {
    let plain = ["gpt-4", "gpt-3.5", "chatgpt-", "ft:gpt-4", "ft:gpt-3.5"];
    !plain.iter().any(|family| model.starts_with(family)) && !model.contains("-chat")
}

/// What is needed to write items.
struct Writer<'a, 't> {
    tools: &'t Tools<'a>,
    receiver: Receiver<'t>,
    rules: &'t Rules,
    model: &'t str,
}

impl<'a> Writer<'a, '_> {
    /// The conversation.
    fn items(&mut self, request: &'a Request) -> Result<Vec<Item<'a>>, Error> {
        let mut input = Vec::with_capacity(request.messages.len());
        let mut ids: Vec<Cow<'a, str>> = Vec::new();
        let receiver = &self.receiver;
        let attached = |message: &Message| {
            let mut parts = message.content.iter();
            parts.any(|part| matches!(part, ContentPart::Attached(it) if receiver.gave(&it.origin)))
        };
        for turn in turns_with(&request.messages, &attached) {
            match turn {
                Turn::User { text, message } => {
                    let content = if has_media(message) {
                        parts(message)?
                    } else {
                        let text = self.filled(text);
                        vec![Part::InputText { text }]
                    };
                    let role = WireRole::User;
                    let phase = None;
                    input.push(Item::Own(OwnItem::Message {
                        role,
                        content,
                        phase,
                    }));
                }
                Turn::Assistant { message, .. } => {
                    ids = self.receiver.ids(&message.tool_calls);
                    self.assistant(&mut input, message, &ids);
                }
                Turn::Results(results) => {
                    for (result, id) in results.into_iter().zip(ids.drain(..)) {
                        input.push(self.output(result, id)?);
                    }
                }
            }
        }
        Ok(input)
    }

    /// A text, or what stands for one that says nothing.
    fn filled(&self, text: Cow<'a, str>) -> Cow<'a, str> {
        if text.trim().is_empty() && !self.rules.empty_text.is_empty() {
            Cow::Owned(self.rules.empty_text.clone())
        } else {
            text
        }
    }

    /// An answer, in the order in which the model gave it. Reasoning must be directly followed by what it led to: of
    /// several in a row the last one is given, and none at the end.
    fn assistant(&self, input: &mut Vec<Item<'a>>, message: &'a Message, ids: &[Cow<'a, str>]) {
        let calls = &message.tool_calls;
        let mut thought = None;
        let mut phase = None;
        for piece in pieces(&message.content, calls) {
            if let Piece::Part(ContentPart::Attached(attached)) = piece
                && let Some(said) = self.phase(attached)
            {
                phase = Some(said);
                continue;
            }
            let item = match piece {
                Piece::Part(part) => self.part(part),
                Piece::Call(call) => {
                    let place = calls.iter().position(|it| std::ptr::eq(it, call));
                    place.and_then(|place| Some(self.call(call, ids.get(place)?.clone())))
                }
            };
            match item {
                None => {}
                Some(reasoning @ Item::Own(OwnItem::Reasoning { .. })) => thought = Some(reasoning),
                Some(mut item) => {
                    if let Item::Own(OwnItem::Message { phase: own, .. }) = &mut item {
                        *own = phase.take();
                    }
                    input.extend(thought.take());
                    input.push(item);
                }
            }
        }
    }

    /// What the text behind an attachment is for, if that is what the attachment says. Models that work long tell their
    /// remarks on the way from their answers by it, and work worse without it.
    fn phase(&self, attached: &Attached) -> Option<String> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Said {
            phase: String,
        }
        let own = self.receiver.gave(&attached.origin);
        let said = own.then(|| serde_json::from_str::<Said>(&attached.json).ok());
        said.flatten().map(|said| said.phase)
    }

    fn part(&self, part: &'a ContentPart) -> Option<Item<'a>> {
        match part {
            ContentPart::Text { text } if text.trim().is_empty() => None,
            ContentPart::Text { text } => Some(Item::Own(OwnItem::Message {
                role: WireRole::Assistant,
                content: vec![Part::OutputText {
                    text: Cow::Borrowed(text),
                }],
                phase: None,
            })),
            // Reasoning without encrypted content, with another provider's signature or from
            // another model would be refused.
            ContentPart::Reasoning {
                text,
                signature,
                origin,
            } => {
                let Signature::Item {
                    id,
                    model,
                    encrypted,
                } = Signature::read(signature.as_deref()?)
                else {
                    return None;
                };
                let own = origin.as_ref().is_none_or(|it| self.receiver.gave(it));
                if model != self.model || !own || !self.rules.encrypted_reasoning {
                    return None;
                }
                let summary = Part::SummaryText {
                    text: Cow::Borrowed(text),
                };
                let summary = Some(summary).filter(|_| !text.is_empty());
                Some(Item::Own(OwnItem::Reasoning {
                    id,
                    summary: summary.into_iter().collect(),
                    encrypted_content: encrypted,
                }))
            }
            ContentPart::Attached(attached) if self.receiver.gave(&attached.origin) => {
                let raw = serde_json::from_str::<&RawValue>(&attached.json).ok()?;
                raw.get().starts_with('{').then_some(Item::Attached(raw))
            }
            // Models do not produce these.
            ContentPart::Image { .. }
            | ContentPart::File { .. }
            | ContentPart::Digest { .. }
            | ContentPart::Attached(_) => None,
        }
    }

    fn call(&self, call: &'a ToolCall, call_id: Cow<'a, str>) -> Item<'a> {
        let json = self
            .receiver
            .attached(call)
            .and_then(|it| it.json.as_deref());
        let attached = json.and_then(|json| serde_json::from_str(json).ok());
        let mut attached: Map<String, Value> = attached.unwrap_or_default();
        attached.retain(|name, _| !OF_CALL.contains(&name.as_str()));
        Item::Own(OwnItem::FunctionCall {
            call_id,
            name: self.tools.name(&call.name),
            arguments: self.tools.arguments(call).into_owned(),
            attached,
        })
    }

    fn output(&self, result: ToolResult<'a>, call_id: Cow<'a, str>) -> Result<Item<'a>, Error> {
        let media = result.message.filter(|message| has_media(message));
        let output = match media {
            Some(message) => Output::Parts(parts(message)?),
            None => Output::Text(self.filled(result.text)),
        };
        Ok(Item::Own(OwnItem::FunctionCallOutput { call_id, output }))
    }
}

/// Appends the tail to the user's turn.
fn push_tail<'a>(input: &mut Vec<Item<'a>>, tail: &'a str) {
    let part = Part::InputText {
        text: Cow::Borrowed(tail),
    };
    match input.last_mut() {
        Some(Item::Own(OwnItem::Message {
            role: WireRole::User,
            content,
            ..
        })) => content.push(part),
        _ => input.push(Item::Own(OwnItem::Message {
            role: WireRole::User,
            content: vec![part],
            phase: None,
        })),
    }
}

/// The content of a message, in order.
fn parts(message: &Message) -> Result<Vec<Part<'_>>, Error> {
    let mut parts = Vec::with_capacity(message.content.len());
    for part in &message.content {
        parts.push(match part {
            ContentPart::Reasoning { .. }
            | ContentPart::Digest { .. }
            | ContentPart::Attached(_) => continue,
            ContentPart::Text { text } => Part::InputText {
                text: Cow::Borrowed(text),
            },
            ContentPart::Image { source } => Part::InputImage {
                image_url: match source {
                    ImageSource::Url { url } => Cow::Borrowed(url),
                    ImageSource::Blob { media_type, .. } => {
                        return Err(not_taken("image", media_type));
                    }
                    ImageSource::Base64 { media_type, data } => {
                        let kind = image_type(media_type, data);
                        Cow::Owned(format!("data:{kind};base64,{data}"))
                    }
                },
            },
            ContentPart::File { name, source } => match source {
                FileSource::Text { text } => Part::InputText {
                    text: Cow::Owned(file_text(name, text)),
                },
                FileSource::Base64 { media_type, data } if media_type == PDF => Part::InputFile {
                    filename: name,
                    file_data: format!("data:{media_type};base64,{data}"),
                },
                FileSource::Base64 { media_type, .. } | FileSource::Blob { media_type, .. } => {
                    return Err(not_taken(name, media_type));
                }
            },
        });
    }
    Ok(parts)
}

fn function<'a>(tool: &'a Tool<'_>) -> Function<'a> {
    let any_object = || Cow::Owned(json!({"type": "object", "properties": {}}));
    Function {
        r#type: "function",
        name: &tool.name,
        description: &tool.description,
        parameters: tool.parameters().map_or_else(any_object, Cow::Borrowed),
        strict: false,
    }
}

#[cfg(test)]
mod tests;
