//! The body of `POST /v1/responses`.

use std::collections::BTreeMap;

use mainspring_shared::agent::OpenAiNote;
use serde::Deserialize;
use serde_json::{Value, json};

use super::given::{self, Given, Item};
use super::settings::{self, Settings};
use super::turn::{Asked, Mode, To};
use crate::extract::JsonBody;
use crate::validate::Checks;

/// What a model is to answer, in the form of OpenAI's Responses API.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = OpenAiResponseBody)]
#[expect(dead_code, reason = "members that change nothing are accepted")]
pub(super) struct ResponseBody {
    /// `agent/NAME`, `agent/NAME@VERSION` or `agent/NAME@ALIAS` for a published agent, otherwise a provider's model.
    model: Option<String>,
    /// A text, or a list of items.
    #[schema(value_type = Option<Value>)]
    input: Option<Value>,
    /// The system prompt of this response.
    instructions: Option<String>,
    /// A conversation to continue: its id, or `{id}`.
    #[schema(value_type = Option<Value>)]
    conversation: Option<Value>,
    /// A response to continue. If others follow it already, its conversation is copied up to it.
    previous_response_id: Option<String>,
    /// Whether to answer at once, with a response that is read later.
    background: Option<bool>,
    /// Whether to answer with a stream of events.
    stream: Option<bool>,
    /// Functions that the client runs.
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<Vec<Value>>,
    /// `auto`, `none`, `required` or `{type: "function", name}`.
    #[schema(value_type = Option<Value>)]
    tool_choice: Option<Value>,
    /// Whether one answer may have several calls.
    parallel_tool_calls: Option<bool>,
    /// The most tokens of one answer.
    max_output_tokens: Option<u32>,
    /// From 0 to 2.
    temperature: Option<f64>,
    /// From 0 to 1.
    top_p: Option<f64>,
    /// `{effort}`.
    #[schema(value_type = Option<Object>)]
    reasoning: Option<Value>,
    /// `{format}`: `{type: "text"}`, `{type: "json_object"}` or `{type: "json_schema", name, schema, strict}`.
    #[schema(value_type = Option<Object>)]
    text: Option<Value>,
    /// The sender's data: at most 16 texts.
    #[schema(value_type = Option<Object>)]
    metadata: Option<BTreeMap<String, String>>,
    /// Must be true if given: what is said is stored.
    store: Option<bool>,
    /// Ignored, but for log probabilities, which are refused.
    include: Option<Vec<String>>,
    /// Ignored.
    #[schema(value_type = Option<Value>)]
    stream_options: Option<Value>,
    /// Ignored: what a model has no room for is folded.
    truncation: Option<String>,
    /// Ignored.
    #[schema(value_type = Option<Value>)]
    background_options: Option<Value>,
    /// Ignored.
    prompt_cache_key: Option<String>,
    /// Ignored.
    #[schema(value_type = Option<Value>)]
    prompt_cache_retention: Option<Value>,
    /// Ignored.
    #[schema(value_type = Option<Value>)]
    prompt_cache_options: Option<Value>,
    /// Ignored.
    service_tier: Option<String>,
    /// Ignored.
    safety_identifier: Option<String>,
    /// Ignored.
    user: Option<String>,
    /// Not supported.
    #[schema(value_type = Option<Value>)]
    max_tool_calls: Option<Value>,
    /// Not supported.
    #[schema(value_type = Option<Value>)]
    top_logprobs: Option<Value>,
    /// Not supported.
    #[schema(value_type = Option<Value>)]
    prompt: Option<Value>,
    /// Not supported.
    #[schema(value_type = Option<Value>)]
    context_management: Option<Value>,
}

impl JsonBody for ResponseBody {
    type Checked = Asked;

    fn checked(self, checks: &mut Checks) -> Asked {
        self.ignored(checks);
        let items = match &self.input {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(items)) => given::items(checks, items, "/input"),
            Some(text) => {
                let said = given::content(checks, text, "/input");
                vec![Item::Said(Given::User(said))]
            }
        };
        let tools = self.tools.iter().flatten().enumerate();
        let tools = tools.filter_map(|(place, tool)| {
            settings::tool(checks, tool, &format!("/tools/{place}"), None)
        });
        let tools = tools.collect();
        let text = self.text.unwrap_or_default();
        let settings = Settings {
            model: self.model,
            instructions: given::instructions(self.instructions, &items),
            tools,
            tool_choice: self
                .tool_choice
                .and_then(|choice| settings::tool_choice(checks, &choice, None)),
            parallel_tool_calls: self.parallel_tool_calls,
            max_tokens: self.max_output_tokens,
            temperature: self.temperature,
            top_p: self.top_p,
            effort: settings::effort(
                checks,
                self.reasoning
                    .as_ref()
                    .and_then(|reasoning| reasoning["effort"].as_str()),
                "/reasoning/effort",
            ),
            output_schema: settings::output_schema(checks, &text["format"], "/text/format", None),
            ..Settings::default()
        };
        let conversation = match self.conversation {
            None | Some(Value::Null) => None,
            Some(Value::String(id)) => Some(id),
            Some(other) => {
                let id = other["id"].as_str().map(str::to_owned);
                if id.is_none() {
                    checks.refuse("/conversation", "must be an id, or an object with one");
                }
                id
            }
        };
        let background = self.background == Some(true);
        let note = OpenAiNote {
            metadata: settings::metadata(checks, self.metadata),
            previous: self.previous_response_id.clone(),
            in_conversation: conversation.is_some(),
            background,
            ..OpenAiNote::default()
        };
        let to = match (conversation, self.previous_response_id) {
            (Some(_), Some(_)) => {
                checks.refuse(
                    "/previous_response_id",
                    "cannot be combined with conversation",
                );
                To::Fresh
            }
            (Some(id), None) => To::Conversation(id),
            (None, Some(id)) => To::Behind(id),
            (None, None) => To::Fresh,
        };
        let (answerer, options) = settings.checked(checks, note);
        Asked {
            answerer,
            options,
            items,
            to,
            mode: if self.stream == Some(true) {
                Mode::Stream {
                    include_usage: false,
                }
            } else if background {
                Mode::Later
            } else {
                Mode::Wait
            },
        }
    }
}

impl ResponseBody {
    /// Refuses what is not done here.
    fn ignored(&self, checks: &mut Checks) {
        let refused = [
            ("max_tool_calls", &self.max_tool_calls),
            ("top_logprobs", &self.top_logprobs),
            ("prompt", &self.prompt),
            ("context_management", &self.context_management),
        ];
        for (name, value) in refused {
            settings::refuse(checks, name, value.as_ref(), &[json!(0)]);
        }
        if self.store == Some(false) {
            checks.refuse(
                "/store",
                "must be true: responses are stored until they are deleted",
            );
        }
        if self
            .include
            .iter()
            .flatten()
            .any(|name| name.contains("logprobs"))
        {
            checks.refuse(
                "/include",
                "has log probabilities, which are not supported here",
            );
        }
        let verbosity = self.text.as_ref().map(|text| &text["verbosity"]);
        settings::refuse(checks, "text/verbosity", verbosity, &[json!("medium")]);
    }
}
