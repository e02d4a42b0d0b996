//! The body of `POST /v1/chat/completions`.

use std::collections::BTreeMap;

use mainspring_shared::agent::OpenAiNote;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::extract::JsonBody;
use crate::openai::given::{self, Given, Item};
use crate::openai::listen::{Called, words};
use crate::openai::settings::{self, Settings};
use crate::openai::turn::{Asked, Mode, To};
use crate::validate::Checks;

/// A conversation to continue, in the form of OpenAI's Chat Completions API.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = OpenAiChatBody)]
#[expect(dead_code, reason = "members that change nothing are accepted")]
pub(in crate::openai) struct ChatBody {
    /// `agent/NAME`, `agent/NAME@VERSION` or `agent/NAME@ALIAS` for a published agent, otherwise a provider's model.
    model: Option<String>,
    /// All that was said so far.
    #[schema(value_type = Vec<Object>)]
    messages: Vec<Value>,
    /// Whether to answer with a stream of chunks.
    stream: Option<bool>,
    /// `{include_usage}`.
    #[schema(value_type = Option<Object>)]
    stream_options: Option<Value>,
    /// Functions that the client runs.
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<Vec<Value>>,
    /// `auto`, `none`, `required` or `{type: "function", function: {name}}`.
    #[schema(value_type = Option<Value>)]
    tool_choice: Option<Value>,
    /// Whether one answer may have several calls.
    parallel_tool_calls: Option<bool>,
    /// The most tokens of the answer.
    max_completion_tokens: Option<u32>,
    /// The same.
    max_tokens: Option<u32>,
    /// From 0 to 2.
    temperature: Option<f64>,
    /// From 0 to 1.
    top_p: Option<f64>,
    /// How much to think.
    reasoning_effort: Option<String>,
    /// `{type: "text"}`, `{type: "json_object"}` or `{type: "json_schema", json_schema: {name, schema, strict}}`.
    #[schema(value_type = Option<Object>)]
    response_format: Option<Value>,
    /// A text, or at most four, before which the answer ends.
    #[schema(value_type = Option<Value>)]
    stop: Option<Value>,
    /// Passed to the provider.
    seed: Option<i64>,
    /// Passed to the provider.
    presence_penalty: Option<f64>,
    /// Passed to the provider.
    frequency_penalty: Option<f64>,
    /// The sender's data: at most 16 texts.
    #[schema(value_type = Option<Object>)]
    metadata: Option<BTreeMap<String, String>>,
    /// Ignored: what is said is stored in either case.
    store: Option<bool>,
    /// Ignored.
    user: Option<String>,
    /// Ignored.
    safety_identifier: Option<String>,
    /// Ignored.
    prompt_cache_key: Option<String>,
    /// Ignored.
    #[schema(value_type = Option<Value>)]
    prompt_cache_retention: Option<Value>,
    /// Ignored.
    service_tier: Option<String>,
    /// Must be 1 if given.
    #[schema(value_type = Option<Value>)]
    n: Option<Value>,
    /// Not supported.
    #[schema(value_type = Option<Value>)]
    logprobs: Option<Value>,
    /// Not supported.
    #[schema(value_type = Option<Value>)]
    top_logprobs: Option<Value>,
    /// Not supported.
    #[schema(value_type = Option<Value>)]
    logit_bias: Option<Value>,
    /// Only text is answered.
    #[schema(value_type = Option<Value>)]
    modalities: Option<Value>,
    /// Not supported.
    #[schema(value_type = Option<Value>)]
    audio: Option<Value>,
    /// Not supported.
    #[schema(value_type = Option<Value>)]
    prediction: Option<Value>,
    /// Not supported: functions are in `tools`.
    #[schema(value_type = Option<Value>)]
    functions: Option<Value>,
    /// Not supported: see `tool_choice`.
    #[schema(value_type = Option<Value>)]
    function_call: Option<Value>,
    /// Not supported.
    #[schema(value_type = Option<Value>)]
    web_search_options: Option<Value>,
    /// Not supported.
    #[schema(value_type = Option<Value>)]
    verbosity: Option<Value>,
}

impl JsonBody for ChatBody {
    type Checked = Asked;

    fn checked(self, checks: &mut Checks) -> Asked {
        self.refused(checks);
        let items = messages(checks, &self.messages);
        let tools = self.tools.iter().flatten().enumerate();
        let tools = tools.filter_map(|(place, tool)| {
            settings::tool(checks, tool, &format!("/tools/{place}"), Some("function"))
        });
        let tools = tools.collect();
        let passed = [
            ("seed", self.seed.map(|seed| json!(seed))),
            (
                "presence_penalty",
                self.presence_penalty.map(|penalty| json!(penalty)),
            ),
            (
                "frequency_penalty",
                self.frequency_penalty.map(|penalty| json!(penalty)),
            ),
        ];
        let passed = passed
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)));
        let model_options: Map<String, Value> = passed.collect();
        let stop = match &self.stop {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::String(text)) => vec![text.clone()],
            Some(list) => serde_json::from_value(list.clone()).unwrap_or_else(|_| {
                checks.refuse("/stop", "must be a text or a list of texts");
                Vec::new()
            }),
        };
        let format = self.response_format.unwrap_or_default();
        let settings = Settings {
            model: self.model,
            instructions: given::instructions(None, &items),
            tools,
            tool_choice: self
                .tool_choice
                .and_then(|choice| settings::tool_choice(checks, &choice, Some("function"))),
            parallel_tool_calls: self.parallel_tool_calls,
            max_tokens: self.max_completion_tokens.or(self.max_tokens),
            temperature: self.temperature,
            top_p: self.top_p,
            effort: settings::effort(
                checks,
                self.reasoning_effort.as_deref(),
                "/reasoning_effort",
            ),
            output_schema: settings::output_schema(
                checks,
                &format,
                "/response_format",
                Some("json_schema"),
            ),
            stop,
            model_options,
        };
        let note = OpenAiNote {
            metadata: settings::metadata(checks, self.metadata),
            ..OpenAiNote::default()
        };
        let (answerer, options) = settings.checked(checks, note);
        let include_usage = self
            .stream_options
            .is_some_and(|options| options["include_usage"] == true);
        Asked {
            answerer,
            options,
            items,
            to: To::Fresh,
            mode: if self.stream == Some(true) {
                Mode::Stream { include_usage }
            } else {
                Mode::Wait
            },
        }
    }
}

impl ChatBody {
    /// Refuses what is not done here.
    fn refused(&self, checks: &mut Checks) {
        let refused = [
            ("n", &self.n, json!(1)),
            ("logprobs", &self.logprobs, json!(false)),
            ("top_logprobs", &self.top_logprobs, json!(0)),
            ("logit_bias", &self.logit_bias, json!({})),
            ("modalities", &self.modalities, json!(["text"])),
            ("audio", &self.audio, json!({})),
            ("prediction", &self.prediction, json!({})),
            ("functions", &self.functions, json!([])),
            ("function_call", &self.function_call, json!("none")),
            ("web_search_options", &self.web_search_options, json!({})),
            ("verbosity", &self.verbosity, json!("medium")),
        ];
        for (name, value, harmless) in refused {
            settings::refuse(checks, name, value.as_ref(), &[harmless]);
        }
    }
}

/// Reads messages.
fn messages(checks: &mut Checks, messages: &[Value]) -> Vec<Item> {
    let messages = messages.iter().enumerate();
    let given = messages.filter_map(|(place, message)| {
        let at = format!("/messages/{place}");
        match message["role"].as_str().unwrap_or_default() {
            "tool" => {
                let call = message["tool_call_id"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned();
                let parts = given::content(checks, &message["content"], &format!("{at}/content"));
                Some(Given::Output { call, parts, at })
            }
            "assistant" => {
                let said = given::content(checks, &message["content"], &format!("{at}/content"));
                let calls = message["tool_calls"].as_array().into_iter().flatten();
                let calls = calls.map(|call| {
                    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                    Called {
                        id: text(&call["id"]),
                        name: text(&call["function"]["name"]),
                        arguments: text(&call["function"]["arguments"]),
                    }
                });
                Some(Given::Assistant {
                    text: words(&said).1,
                    calls: calls.collect(),
                })
            }
            _ => given::message(checks, message, &at),
        }
    });
    given.map(Item::Said).collect()
}
