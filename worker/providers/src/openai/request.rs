//! Builds chat completions requests.

use std::borrow::Cow;

use mainspring_shared::agent::{OutputSpec, ReasoningEffort};
use mainspring_shared::message::{ContentPart, FileSource, ImageSource, Message, ToolCall};
use serde::Serialize;
use serde_json::Value;

use crate::rules::{OutputLimit, ReasoningBack, Rules};
use crate::tools::{Tool, Tools};
use crate::transcript::{PDF, Turn, file_text, has_media, not_taken, turns, wire_name};
use mainspring_worker::llm::{Error, Request};

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
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Typed<FunctionSpec<'a>>>,
    /// Some servers refuse this member if there are no tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_format: Option<ResponseFormat<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<&'a str>,
}

#[derive(Serialize)]
struct ResponseFormat<'a> {
    r#type: &'static str,
    json_schema: &'a OutputSpec,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum WireMessage<'a> {
    System {
        content: &'a str,
    },
    User {
        content: Content<'a>,
    },
    Assistant {
        /// Always present, even if empty: some servers require the member.
        content: Option<Cow<'a, str>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning_content: Option<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<CallWithId<'a>>,
    },
    Tool {
        tool_call_id: Cow<'a, str>,
        content: Cow<'a, str>,
    },
}

/// Serializes text-only content as a string, which servers accept that know of nothing else.
#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<Part<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    Text { text: Cow<'a, str> },
    ImageUrl { image_url: ImageUrl<'a> },
    File { file: FileData<'a> },
    InputAudio { input_audio: Sound<'a> },
}

#[derive(Serialize)]
struct Sound<'a> {
    data: &'a str,
    format: &'static str,
}

/// The media types of audio that the protocol supports.
pub(super) const SOUNDS: &[&str] = &["audio/wav", "audio/x-wav", "audio/mpeg", "audio/mp3"];

/// The protocol's name for audio of this type.
fn sound(media_type: &str) -> Option<&'static str> {
    match media_type {
        "audio/wav" | "audio/x-wav" => Some("wav"),
        "audio/mpeg" | "audio/mp3" => Some("mp3"),
        _ => None,
    }
}

#[derive(Serialize)]
struct ImageUrl<'a> {
    url: Cow<'a, str>,
}

#[derive(Serialize)]
struct FileData<'a> {
    filename: &'a str,
    file_data: String,
}

#[derive(Serialize)]
struct CallWithId<'a> {
    id: Cow<'a, str>,
    #[serde(flatten)]
    call: Typed<FunctionCall<'a>>,
}

#[derive(Serialize)]
struct Typed<T> {
    r#type: &'static str,
    function: T,
}

#[derive(Serialize)]
struct FunctionCall<'a> {
    name: Cow<'a, str>,
    arguments: String,
}

#[derive(Serialize)]
struct FunctionSpec<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<&'a Value>,
}

/// The body of a request; the same request always gives the same bytes.
pub(super) fn body(
    request: &Request,
    rules: &Rules,
    native_schema: bool,
    stream: bool,
) -> Result<Vec<u8>, Error> {
    let tools = Tools::of(request, rules);
    let mut messages = Vec::with_capacity(request.messages.len() + 1);
    if let Some(content) = request.system.as_deref().filter(|s| !s.trim().is_empty()) {
        messages.push(WireMessage::System { content });
    }
    for turn in turns(&request.messages) {
        push(&mut messages, turn, (rules, &tools))?;
    }
    if let Some(tail) = &request.tail {
        push_tail(&mut messages, tail);
    }
    let cache_key = request.cache_key.as_deref();
    let most = Some(request.max_tokens).filter(|max| *max > 0);
    let output = request.output.as_deref().filter(|_| native_schema);
    let effort = request.reasoning_effort;
    let effort = effort.and_then(|effort| rules.effort(effort));
    let temperature = rules.temperature(request.temperature, effort);
    let body = Body {
        model: &request.model,
        messages,
        temperature,
        top_p: rules.top_p(request.top_p, temperature, effort),
        stop: if rules.stop { &request.stop } else { &[] },
        reasoning_effort: effort,
        max_tokens: most.filter(|_| rules.output_limit == OutputLimit::MaxTokens),
        max_completion_tokens: most
            .filter(|_| rules.output_limit == OutputLimit::MaxCompletionTokens),
        stream,
        stream_options: (stream && rules.stream_options).then_some(StreamOptions {
            include_usage: true,
        }),
        tools: tools.list().iter().map(tool).collect(),
        tool_choice: (!tools.is_empty()).then_some("auto"),
        response_format: output.map(|json_schema| ResponseFormat {
            r#type: "json_schema",
            json_schema,
        }),
        prompt_cache_key: cache_key.filter(|_| rules.prompt_cache_key),
    };
    serde_json::to_vec(&body).map_err(|error| Error::InvalidRequest {
        message: format!("it is not JSON: {error}"),
    })
}

fn push<'a>(
    messages: &mut Vec<WireMessage<'a>>,
    turn: Turn<'a>,
    (rules, tools): (&Rules, &Tools<'_>),
) -> Result<(), Error> {
    match turn {
        Turn::User { text, message } => {
            let content = if has_media(message) {
                Content::Parts(parts(&message.content)?)
            } else {
                Content::Text(text)
            };
            messages.push(WireMessage::User { content });
        }
        Turn::Assistant { text, message } => messages.push(WireMessage::Assistant {
            content: Some(text).filter(|text| !text.is_empty()),
            reasoning_content: reasoning(message)
                .filter(|_| rules.reasoning_back != ReasoningBack::None),
            tool_calls: message
                .tool_calls
                .iter()
                .map(|it| call(it, tools))
                .collect(),
        }),
        Turn::Results(results) => {
            // A tool message only takes text; other content follows after all of them.
            let mut shown = Vec::new();
            for result in results {
                let message = result.message.filter(|message| has_media(message));
                let mut content = result.text;
                if let Some(message) = message {
                    let id = wire_name(&result.call.id);
                    let text = Cow::Owned(format!("[non-text output of the call {id}]"));
                    shown.push(Part::Text { text });
                    let media = message.content.iter();
                    let media = media.filter(|part| !matches!(part, ContentPart::Text { .. }));
                    shown.extend(parts(media)?);
                    if content.trim().is_empty() {
                        content = Cow::Borrowed("[see the next message]");
                    }
                }
                messages.push(WireMessage::Tool {
                    tool_call_id: wire_name(&result.call.id),
                    content,
                });
            }
            if !shown.is_empty() {
                let content = Content::Parts(shown);
                messages.push(WireMessage::User { content });
            }
        }
    }
    Ok(())
}

/// Appends the tail to the user's turn. Tool messages only take results, so a new turn is begun
/// after them.
fn push_tail<'a>(messages: &mut Vec<WireMessage<'a>>, tail: &'a str) {
    match messages.last_mut() {
        Some(WireMessage::User {
            content: Content::Text(text),
        }) => {
            let text = text.to_mut();
            text.push_str("\n\n");
            text.push_str(tail);
        }
        Some(WireMessage::User {
            content: Content::Parts(parts),
        }) => parts.push(Part::Text {
            text: Cow::Borrowed(tail),
        }),
        _ => messages.push(WireMessage::User {
            content: Content::Text(Cow::Borrowed(tail)),
        }),
    }
}

/// The content parts, in order.
fn parts<'a>(content: impl IntoIterator<Item = &'a ContentPart>) -> Result<Vec<Part<'a>>, Error> {
    let mut parts = Vec::new();
    for part in content {
        parts.push(match part {
            ContentPart::Reasoning { .. }
            | ContentPart::Digest { .. }
            | ContentPart::Attached(_) => continue,
            ContentPart::Text { text } => Part::Text {
                text: Cow::Borrowed(text),
            },
            ContentPart::Image { source } => Part::ImageUrl {
                image_url: ImageUrl {
                    url: match source {
                        ImageSource::Url { url } => Cow::Borrowed(url),
                        ImageSource::Blob { media_type, .. } => {
                            return Err(not_taken("image", media_type));
                        }
                        ImageSource::Base64 { media_type, data } => {
                            Cow::Owned(format!("data:{media_type};base64,{data}"))
                        }
                    },
                },
            },
            ContentPart::File { name, source } => match source {
                FileSource::Text { text } => Part::Text {
                    text: Cow::Owned(file_text(name, text)),
                },
                FileSource::Base64 { media_type, data } if media_type == PDF => Part::File {
                    file: FileData {
                        filename: name,
                        file_data: format!("data:{media_type};base64,{data}"),
                    },
                },
                FileSource::Base64 { media_type, data } => match sound(media_type) {
                    Some(format) => Part::InputAudio {
                        input_audio: Sound { data, format },
                    },
                    None => return Err(not_taken(name, media_type)),
                },
                FileSource::Blob { media_type, .. } => return Err(not_taken(name, media_type)),
            },
        });
    }
    Ok(parts)
}

/// The reasoning of a model with this protocol. Signed reasoning is from another protocol.
fn reasoning(message: &Message) -> Option<String> {
    let thoughts = message.content.iter().filter_map(|part| match part {
        ContentPart::Reasoning {
            text,
            signature: None,
            ..
        } => Some(text.as_str()),
        ContentPart::Reasoning { .. }
        | ContentPart::Text { .. }
        | ContentPart::Image { .. }
        | ContentPart::File { .. }
        | ContentPart::Digest { .. }
        | ContentPart::Attached(_) => None,
    });
    Some(thoughts.collect::<Vec<_>>().join("\n\n")).filter(|text| !text.is_empty())
}

fn call<'a>(call: &'a ToolCall, tools: &Tools<'_>) -> CallWithId<'a> {
    let function = FunctionCall {
        name: tools.name(&call.name),
        arguments: tools.arguments(call).to_string(),
    };
    CallWithId {
        id: wire_name(&call.id),
        call: Typed {
            r#type: "function",
            function,
        },
    }
}

fn tool<'a>(tool: &'a Tool<'_>) -> Typed<FunctionSpec<'a>> {
    let function = FunctionSpec {
        name: &tool.name,
        description: &tool.description,
        parameters: tool.parameters(),
    };
    Typed {
        r#type: "function",
        function,
    }
}
