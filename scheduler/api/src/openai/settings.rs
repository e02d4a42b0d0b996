//! How a request wants its answer: the members that both APIs have, checked.

use std::collections::BTreeMap;

use mainspring_shared::agent::{
    AgentQuery, AgentSpec, ContextSpec, OnTruncation, OpenAiNote, ReasoningEffort, SendOptions,
    ToolChoice,
};
use mainspring_shared::tool::{DeclaredTool, ExternalTool, ToolEntry};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::turn::Answerer;
use crate::bodies::Options;
use crate::validate::Checks;

/// Limits on metadata, as documented by OpenAI.
const METADATA_MAX: usize = 16;
const METADATA_NAME_MAX: usize = 64;
const METADATA_TEXT_MAX: usize = 512;

/// How an answer is wanted.
#[derive(Debug, Default)]
pub(super) struct Settings {
    pub(super) model: Option<String>,
    pub(super) instructions: Option<String>,
    pub(super) tools: Vec<ToolEntry>,
    pub(super) tool_choice: Option<ToolChoice>,
    pub(super) parallel_tool_calls: Option<bool>,
    pub(super) max_tokens: Option<u32>,
    pub(super) temperature: Option<f64>,
    pub(super) top_p: Option<f64>,
    pub(super) effort: Option<ReasoningEffort>,
    pub(super) output_schema: Option<Value>,
    pub(super) stop: Vec<String>,
    pub(super) model_options: Map<String, Value>,
}

impl Settings {
    /// Who is to answer, and the options of the send.
    pub(super) fn checked(self, checks: &mut Checks, note: OpenAiNote) -> (Answerer, SendOptions) {
        let openai = (note != OpenAiNote::default()).then(|| Box::new(note));
        let model = self.model.clone().unwrap_or_default();
        let model_options =
            (!self.model_options.is_empty()).then(|| Value::Object(self.model_options.clone()));
        let model_options = model_options.and_then(|options| serde_json::from_value(options).ok());
        if let Some(name) = model.strip_prefix("agent/") {
            let query = match name.parse::<AgentQuery>() {
                Ok(query) => query,
                Err(fault) => {
                    checks.refuse("/model", &fault.to_string());
                    return (Answerer::Model(Box::default()), SendOptions::default());
                }
            };
            if !self.tools.is_empty() {
                checks.refuse(
                    "/tools",
                    "must be empty: a published agent has its own tools",
                );
            }
            if !self.stop.is_empty() {
                checks.refuse("/stop", "must be absent: a published agent has its own");
            }
            let options = Options {
                system_prompt: self.instructions,
                output_schema: self.output_schema,
                max_tokens: self.max_tokens,
                temperature: self.temperature,
                top_p: self.top_p,
                reasoning_effort: self.effort,
                tool_choice: self.tool_choice,
                parallel_tool_calls: self.parallel_tool_calls,
                model_options,
                ..Options::default()
            };
            let options = checks.options(Some(options)).options;
            return (Answerer::Named(query), SendOptions { openai, ..options });
        }
        if model.is_empty() {
            checks.refuse("/model", "is needed: agent/NAME, or a provider's model");
        }
        let agent = AgentSpec {
            model: Some(model),
            system_prompt: self.instructions,
            tools: self.tools,
            tool_choice: self.tool_choice,
            parallel_tool_calls: self.parallel_tool_calls,
            max_tokens: self.max_tokens,
            temperature: self.temperature,
            top_p: self.top_p,
            reasoning_effort: self.effort,
            output_schema: self.output_schema,
            stop: self.stop,
            model_options,
            context: ContextSpec {
                // Whoever asks for so many tokens gets so many, and is told that there was more.
                on_truncation: OnTruncation::Accept,
                ..ContextSpec::default()
            },
            ..AgentSpec::default()
        };
        checks.own_agent("/agent", &agent);
        (
            Answerer::Model(Box::new(agent)),
            SendOptions {
                openai,
                ..SendOptions::default()
            },
        )
    }
}

/// A function as a request declares it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Function {
    name: String,
    description: Option<String>,
    parameters: Option<Value>,
    /// Schemas are passed on as they are.
    #[serde(rename = "strict")]
    _strict: Option<bool>,
}

/// Reads a tool. Functions are declared in the tool itself, or in a member of it.
pub(super) fn tool(
    checks: &mut Checks,
    tool: &Value,
    at: &str,
    member: Option<&str>,
) -> Option<ToolEntry> {
    let kind = tool["type"].as_str().unwrap_or_default();
    if kind != "function" {
        checks.refuse(
            &format!("{at}/type"),
            &format!("{kind:?} is not supported here: only functions are"),
        );
        return None;
    }
    let (declared, at) = if let Some(member) = member {
        (tool[member].clone(), format!("{at}/{member}"))
    } else {
        let mut declared = tool.clone();
        if let Some(members) = declared.as_object_mut() {
            members.remove("type");
        }
        (declared, at.to_owned())
    };
    let function: Function = match serde_json::from_value(declared) {
        Ok(function) => function,
        Err(error) => {
            checks.refuse(&at, &error.to_string());
            return None;
        }
    };
    let tool = ExternalTool {
        name: function.name,
        description: function.description.unwrap_or_default(),
        parameters: function
            .parameters
            .filter(|one| !one.is_null())
            .unwrap_or_else(|| json!({ "type": "object" })),
        repeat: None,
        deadline: None,
        approval: false,
        pool: None,
        extra: mainspring_shared::stored::Extra::default(),
    };
    Some(ToolEntry::Declared(DeclaredTool::External(tool)))
}

/// Reads whether tools must be called. The name of a function is in the choice itself, or in a member of it.
pub(super) fn tool_choice(
    checks: &mut Checks,
    choice: &Value,
    member: Option<&str>,
) -> Option<ToolChoice> {
    match choice {
        Value::Null => return None,
        Value::String(word) => match word.as_str() {
            "auto" => return Some(ToolChoice::Auto),
            "none" => return Some(ToolChoice::None),
            "required" => return Some(ToolChoice::Required),
            _ => {}
        },
        Value::Object(members) if members.get("type").is_some_and(|kind| kind == "function") => {
            let holder = member.map_or(choice, |member| &choice[member]);
            if let Some(name) = holder["name"].as_str() {
                return Some(ToolChoice::Tool(name.to_owned()));
            }
        }
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {}
    }
    checks.refuse("/tool_choice", "must be auto, none, required or a function");
    None
}

/// Reads the format of the answer. Its schema is in the format itself, or in a member of it.
pub(super) fn output_schema(
    checks: &mut Checks,
    format: &Value,
    at: &str,
    member: Option<&str>,
) -> Option<Value> {
    match format["type"].as_str().unwrap_or("text") {
        "text" => None,
        "json_object" => Some(json!({ "type": "json_object" })),
        "json_schema" => {
            let holder = member.map_or(format, |member| &format[member]);
            let name = holder["name"].as_str().unwrap_or("answer");
            Some(
                json!({ "name": name, "schema": holder["schema"], "strict": holder["strict"] == true }),
            )
        }
        other => {
            checks.refuse(
                &format!("{at}/type"),
                &format!("{other:?} is not supported here"),
            );
            None
        }
    }
}

/// Reads how much a model is to think.
pub(super) fn effort(checks: &mut Checks, text: Option<&str>, at: &str) -> Option<ReasoningEffort> {
    let text = text?;
    let found = ReasoningEffort::ALL
        .into_iter()
        .find(|effort| effort.as_str() == text);
    if found.is_none() {
        checks.refuse(at, &format!("{text:?} is not supported here"));
    }
    found
}

/// Checks the sender's data.
pub(super) fn metadata(
    checks: &mut Checks,
    metadata: Option<BTreeMap<String, String>>,
) -> BTreeMap<String, String> {
    let metadata = metadata.unwrap_or_default();
    let is_long = |(name, text): (&String, &String)| {
        name.chars().count() > METADATA_NAME_MAX || text.chars().count() > METADATA_TEXT_MAX
    };
    if metadata.len() > METADATA_MAX || metadata.iter().any(is_long) {
        let detail = format!(
            "must have at most {METADATA_MAX} members, with names of {METADATA_NAME_MAX} and texts of \
             {METADATA_TEXT_MAX} characters"
        );
        checks.refuse("/metadata", &detail);
    }
    if metadata
        .iter()
        .any(|(name, text)| name.contains('\0') || text.contains('\0'))
    {
        checks.refuse("/metadata", "must not contain U+0000");
    }
    metadata
}

/// Refuses a member that has anything but a value which says nothing.
pub(super) fn refuse(checks: &mut Checks, name: &str, value: Option<&Value>, harmless: &[Value]) {
    if let Some(value) = value
        && !value.is_null()
        && !harmless.contains(value)
    {
        checks.refuse(&format!("/{name}"), "is not supported here");
    }
}
