//! Builds Responses requests: a list of items, of which messages are one kind.

use std::borrow::Cow;

use mainspring_shared::agent::{OutputSpec, ReasoningEffort};
use mainspring_shared::message::{ContentPart, FileSource, ImageSource, Message, ToolCall};
use serde::Serialize;
use serde_json::{Value, json};

use super::Wants;
use crate::rules::Rules;
use crate::signature::Signature;
use crate::tools::{Tool, Tools};
use crate::transcript::{PDF, ToolResult, Turn, file_text, has_media, not_taken, turns, wire_name};
use mainspring_worker::llm::{Error, Request};

/// The smallest `max_output_tokens` that the public API accepts.
const OUTPUT_TOKENS_MIN: u32 = 16;

/// Makes a response include its reasoning in encrypted form.
pub(super) const ENCRYPTED_REASONING: &str = "reasoning.encrypted_content";

/// Whatever changes from send to send comes after the items, so that all requests of a session
/// begin with the same bytes.
#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Function<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
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
struct Format<'a> {
    r#type: &'static str,
    #[serde(flatten)]
    spec: &'a OutputSpec,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Item<'a> {
    Message {
        role: WireRole,
        content: Vec<Part<'a>>,
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

/// The body of a request; the same request always gives the same bytes.
pub(super) fn body(request: &Request, rules: &Rules, wants: Wants) -> Result<Vec<u8>, Error> {
    let tools = Tools::of(request, rules);
    if !request.stop.is_empty() {
        return Err(Error::InvalidRequest {
            message: "the Responses API has no texts that end an answer (`stop`)".to_owned(),
        });
    }
    let mut input = Vec::with_capacity(request.messages.len());
    for turn in turns(&request.messages) {
        push(&mut input, turn, (&request.model, &tools))?;
    }
    if let Some(tail) = &request.tail {
        push_tail(&mut input, tail);
    }
    let output = request.output.as_deref().filter(|_| wants.native_schema);
    let system = request.system.as_deref();
    let body = Body {
        model: &request.model,
        tools: tools.list().iter().map(function).collect(),
        instructions: system.filter(|system| !system.trim().is_empty()),
        input,
        max_output_tokens: request.max_tokens.max(OUTPUT_TOKENS_MIN),
        temperature: request.temperature,
        top_p: request.top_p,
        reasoning: request.reasoning_effort.map(|effort| Reasoning { effort }),
        text: output.map(|spec| Text {
            format: Format {
                r#type: "json_schema",
                spec,
            },
        }),
        prompt_cache_key: request.cache_key.as_deref().filter(|_| wants.public),
        include: may_reason(&request.model).then_some([ENCRYPTED_REASONING]),
        store: wants.background,
        stream: wants.stream,
        background: wants.background,
    };
    serde_json::to_vec(&body).map_err(|error| Error::InvalidRequest {
        message: format!("it is not JSON: {error}"),
    })
}

/// Whether the model may reason. If a model does not, the public API refuses requests for encrypted
/// reasoning. The listed families do not; all of them are older than those that do.
pub(super) fn may_reason(model: &str) -> bool {
    let plain = ["gpt-4", "gpt-3.5", "chatgpt-", "ft:gpt-4", "ft:gpt-3.5"];
    !plain.iter().any(|family| model.starts_with(family)) && !model.contains("-chat")
}

fn push<'a>(
    input: &mut Vec<Item<'a>>,
    turn: Turn<'a>,
    (asked, tools): (&str, &Tools<'_>),
) -> Result<(), Error> {
    match turn {
        Turn::User { text, message } => input.push(Item::Message {
            role: WireRole::User,
            content: if has_media(message) {
                parts(message)?
            } else {
                vec![Part::InputText { text }]
            },
        }),
        Turn::Assistant { message, .. } => assistant(input, message, (asked, tools)),
        Turn::Results(results) => {
            for result in results {
                input.push(output(result)?);
            }
        }
    }
    Ok(())
}

/// Reasoning and text as they came, followed by the calls.
fn assistant<'a>(
    input: &mut Vec<Item<'a>>,
    message: &'a Message,
    (asked, tools): (&str, &Tools<'_>),
) {
    for part in &message.content {
        match part {
            ContentPart::Text { text } if text.trim().is_empty() => {}
            ContentPart::Text { text } => input.push(Item::Message {
                role: WireRole::Assistant,
                content: vec![Part::OutputText {
                    text: Cow::Borrowed(text),
                }],
            }),
            ContentPart::Reasoning {
                text, signature, ..
            } => {
                let signature = signature.as_deref().map(Signature::read);
                // Reasoning without encrypted content, with another provider's signature or from
                // another model would be refused.
                if let Some(Signature::Item {
                    id,
                    model,
                    encrypted,
                }) = signature
                    && model == asked
                {
                    let summary = Part::SummaryText {
                        text: Cow::Borrowed(text),
                    };
                    input.push(Item::Reasoning {
                        id,
                        summary: Some(summary)
                            .filter(|_| !text.is_empty())
                            .into_iter()
                            .collect(),
                        encrypted_content: encrypted,
                    });
                }
            }
            // Models do not produce these.
            ContentPart::Image { .. }
            | ContentPart::File { .. }
            | ContentPart::Digest { .. }
            | ContentPart::Attached(_) => {}
        }
    }
    input.extend(message.tool_calls.iter().map(|it| call(it, tools)));
}

/// Appends the tail to the user's turn.
fn push_tail<'a>(input: &mut Vec<Item<'a>>, tail: &'a str) {
    let part = Part::InputText {
        text: Cow::Borrowed(tail),
    };
    match input.last_mut() {
        Some(Item::Message {
            role: WireRole::User,
            content,
        }) => content.push(part),
        _ => input.push(Item::Message {
            role: WireRole::User,
            content: vec![part],
        }),
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
                        Cow::Owned(format!("data:{media_type};base64,{data}"))
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

fn call<'a>(call: &'a ToolCall, tools: &Tools<'_>) -> Item<'a> {
    Item::FunctionCall {
        call_id: wire_name(&call.id),
        name: tools.name(&call.name),
        arguments: tools.arguments(call).to_string(),
    }
}

fn output(result: ToolResult<'_>) -> Result<Item<'_>, Error> {
    let media = result.message.filter(|message| has_media(message));
    let output = match media {
        Some(message) => Output::Parts(parts(message)?),
        None => Output::Text(result.text),
    };
    Ok(Item::FunctionCallOutput {
        call_id: wire_name(&result.call.id),
        output,
    })
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
