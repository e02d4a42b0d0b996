//! Members of model requests that an author adds, for what a vendor offers and no setting covers.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Maximum bytes of the JSON.
const BYTES_MAX: usize = 16 << 10;

/// Maximum depth of the JSON.
const DEPTH_MAX: usize = 16;

/// Members that have a setting of their own, which knows what each vendor calls it.
const SETTINGS: &[(&str, &str)] = &[
    ("function_call", "tool_choice"),
    ("functions", "tools"),
    ("instructions", "system_prompt"),
    ("max_completion_tokens", "max_tokens"),
    ("max_output_tokens", "max_tokens"),
    ("max_tokens", "max_tokens"),
    ("model", "model"),
    ("models", "fallback"),
    ("parallel_tool_calls", "parallel_tool_calls"),
    ("reasoning_effort", "reasoning_effort"),
    ("response_format", "output_schema"),
    ("stop", "stop"),
    ("stop_sequences", "stop"),
    ("system", "system_prompt"),
    ("temperature", "temperature"),
    ("tool_choice", "tool_choice"),
    ("tools", "tools"),
    ("top_p", "top_p"),
];

/// Members on which the conversation itself, its storage or its cost depends.
const RESERVED: &[&str] = &[
    "background",
    "betas",
    "container",
    "context_management",
    "conversation",
    "include",
    "input",
    "mcp_servers",
    "messages",
    "n",
    "previous_response_id",
    "prompt",
    "store",
    "stream",
    "stream_options",
];

/// Further members of a model's requests, as the author of an agent, a send or a leaf gave them: a
/// bounded JSON object. They never replace a member that a request has anyway.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ModelOptions(pub Box<Map<String, Value>>);

/// What is wrong with members of requests, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionFault {
    /// A JSON pointer into the object.
    pub pointer: String,
    /// What is wrong.
    pub detail: String,
}

impl ModelOptions {
    /// What is wrong with them.
    pub fn faults(&self) -> Vec<OptionFault> {
        let whole = |detail: String| OptionFault {
            pointer: String::new(),
            detail,
        };
        let bytes = serde_json::to_vec(&self.0).map_or(usize::MAX, |json| json.len());
        if bytes > BYTES_MAX {
            return vec![whole(format!(
                "must have at most {BYTES_MAX} bytes of JSON"
            ))];
        }
        let values = || self.0.values();
        if values().any(|value| depth(value) >= DEPTH_MAX) {
            return vec![whole(format!(
                "must be nested at most {DEPTH_MAX} levels deep"
            ))];
        }
        if self.0.keys().any(|name| name.contains('\0')) || values().any(has_nul) {
            return vec![whole("must not contain U+0000".to_owned())];
        }
        let faults = self.0.keys().filter_map(|name| {
            Some(OptionFault {
                pointer: format!("/{}", name.replace('~', "~0").replace('/', "~1")),
                detail: refusal(name)?,
            })
        });
        faults.collect()
    }
}

/// Why a member must not be set, if it must not.
fn refusal(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("is not a member's name".to_owned());
    }
    let own = SETTINGS.iter().find(|(member, _)| *member == name);
    if let Some((_, setting)) = own {
        return Some(format!("is reserved: use the setting `{setting}`"));
    }
    RESERVED
        .contains(&name)
        .then(|| "is reserved: requests depend on it".to_owned())
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_nul),
        Value::Object(members) => members.iter().any(|(k, v)| k.contains('\0') || has_nul(v)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn faults(value: Value) -> Vec<(String, String)> {
        let options: ModelOptions = serde_json::from_value(value).expect("an object");
        let faults = options.faults().into_iter();
        faults.map(|fault| (fault.pointer, fault.detail)).collect()
    }

    #[test]
    fn what_no_setting_covers_is_free() {
        let free = json!({"service_tier": "flex", "provider": {"order": ["a", "b"]},
            "reasoning": {"summary": "auto"}, "seed": 7, "thinking": {"type": "disabled"}});
        assert_eq!(faults(free), []);
        assert_eq!(faults(json!({})), []);
    }

    #[test]
    fn reserved_members_are_pointed_at_with_the_setting_to_use() {
        let found =
            faults(json!({"messages": [], "temperature": 1, "max_completion_tokens": 1, "a/b": 1}));
        let found: Vec<_> = found
            .iter()
            .map(|(at, why)| (at.as_str(), why.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                ("/messages", "is reserved: requests depend on it"),
                ("/temperature", "is reserved: use the setting `temperature`"),
                (
                    "/max_completion_tokens",
                    "is reserved: use the setting `max_tokens`"
                ),
            ]
        );
    }

    #[test]
    fn they_are_bounded() {
        assert_eq!(faults(json!({"a": "x".repeat(BYTES_MAX)})).len(), 1);
        let deep = (0..DEPTH_MAX).fold(json!(1), |inner, _| json!([inner]));
        assert_eq!(faults(json!({ "a": deep })).len(), 1);
        assert_eq!(faults(json!({"a": {"b": "\0"}})).len(), 1);
        assert!(serde_json::from_value::<ModelOptions>(json!([1])).is_err());
    }
}
