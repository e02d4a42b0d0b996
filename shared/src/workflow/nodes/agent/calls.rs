//! How the model of a leaf is called: the members of its agent that are left to the provider unless its
//! author writes them.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::agent::{CallSettings, ReasoningEffort, TEMPERATURE_MAX, ToolChoice};
use crate::tool::ToolEntry;
use crate::workflow::validate::reader::{Members, Reader};

pub(super) const CHOICE_HINT: &str = "write \"auto\", \"none\", \"required\" or {\"name\": a tool}";

/// The first version of the language in which a leaf's temperature is absent unless it is written.
/// Specs of earlier versions were stored with the default of that time, 0, which many models refuse.
const ABSENT_SINCE: i32 = 4;

pub(super) fn temperature() -> Value {
    json!({"type": ["number", "null"], "minimum": 0, "maximum": TEMPERATURE_MAX,
        "description": "The provider's default when absent; many models accept no other."})
}

pub(super) fn top_p() -> Value {
    json!({"type": ["number", "null"], "minimum": 0, "maximum": 1})
}

pub(super) fn reasoning_effort() -> Value {
    let words = ReasoningEffort::ALL.iter().map(|effort| json!(effort));
    let words: Vec<Value> = words.chain([Value::Null]).collect();
    json!({"enum": words, "description": "How much it is to think."})
}

pub(super) fn tool_choice() -> Value {
    json!({"description": "Whether it must call tools; \"required\" and a name apply to its first round.",
        "anyOf": [{"type": "null"}, {"enum": ["auto", "none", "required"]},
            {"type": "object", "properties": {"name": {"type": "string", "minLength": 1}},
                "required": ["name"], "additionalProperties": false}]})
}

pub(super) fn parallel_tool_calls() -> Value {
    json!({"type": ["boolean", "null"], "description": "Whether one answer may have several calls."})
}

pub(super) fn model_options() -> Value {
    json!({"type": ["object", "null"],
        "description": "Further members of model requests, for what only some providers offer."})
}

/// Reads these members; null counts as absent.
pub(super) fn read(reader: &mut Reader<'_>, members: Members<'_>) -> CallSettings {
    let temperature = members.given("temperature");
    let temperature =
        temperature.and_then(|_| reader.number(members, "temperature", (0.0, TEMPERATURE_MAX)));
    let unwritten = |heat: &f64| reader.version < ABSENT_SINCE && *heat == 0.0;
    let temperature = temperature.filter(|heat| !unwritten(heat));
    let top_p = members.given("top_p");
    let top_p = top_p.and_then(|_| reader.number(members, "top_p", (0.0, 1.0)));
    let parallel = members.given("parallel_tool_calls");
    let parallel = parallel.and_then(|_| reader.flag(members, "parallel_tool_calls"));
    let efforts = ReasoningEffort::ALL.map(ReasoningEffort::as_str);
    let effort = members.given("reasoning_effort");
    let effort = effort.and_then(|_| reader.word(members, "reasoning_effort", &efforts));
    let settings = CallSettings {
        max_tokens: None,
        temperature,
        top_p,
        reasoning_effort: effort.map(|place| ReasoningEffort::ALL[place]),
        tool_choice: of(
            reader,
            members,
            "tool_choice",
            "is not \"auto\", \"none\", \"required\" or {\"name\": a tool}",
        ),
        parallel_tool_calls: parallel,
        model_options: of(reader, members, "model_options", "is not an object"),
    };
    for (pointer, detail) in settings.faults() {
        let at = format!("{}{pointer}", members.at);
        reader.problem(
            at,
            "call_settings",
            detail,
            "write another value, or leave it out",
        );
    }
    settings
}

/// Checks that the tool that must be called is among the leaf's own, if it has a list of its own.
pub(super) fn offered(
    reader: &mut Reader<'_>,
    members: Members<'_>,
    settings: &CallSettings,
    tools: Option<&[ToolEntry]>,
) {
    let (Some(choice), Some(tools)) = (&settings.tool_choice, tools) else {
        return;
    };
    let fault = match choice {
        ToolChoice::Auto | ToolChoice::None => None,
        ToolChoice::Required => (tools.is_empty() && members.given("skills").is_none())
            .then(|| "a tool must be called, but the leaf has none".to_owned()),
        ToolChoice::Tool(name) => {
            let is_there = tools.iter().any(|tool| tool.may_be(name));
            (!is_there && members.given("skills").is_none())
                .then(|| format!("{name:?} must be called, but is none of the leaf's tools"))
        }
    };
    if let Some(fault) = fault {
        reader.member_problem(members, "tool_choice", "tool_choice", fault);
    }
}

/// Reads a member by its type.
fn of<T: DeserializeOwned>(
    reader: &mut Reader<'_>,
    members: Members<'_>,
    key: &str,
    fault: &str,
) -> Option<T> {
    let read = serde_json::from_value(members.given(key)?.clone());
    if read.is_err() {
        reader.member_problem(members, key, "not_a_setting", format!("`{key}` {fault}"));
    }
    read.ok()
}

/// Writes what is set.
pub(super) fn write(settings: &CallSettings, out: &mut Value) {
    let CallSettings {
        max_tokens: _,
        temperature,
        top_p,
        reasoning_effort,
        tool_choice,
        parallel_tool_calls,
        model_options,
    } = settings;
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            out[name] = value;
        }
    };
    put("temperature", temperature.map(|heat| json!(heat)));
    put("top_p", top_p.map(|p| json!(p)));
    put(
        "reasoning_effort",
        reasoning_effort.map(|effort| json!(effort)),
    );
    put(
        "tool_choice",
        tool_choice.as_ref().map(|choice| json!(choice)),
    );
    put(
        "parallel_tool_calls",
        parallel_tool_calls.map(|many| json!(many)),
    );
    put(
        "model_options",
        model_options.as_ref().map(|more| json!(more)),
    );
}
