//! An example of each operation: a request, and what a process answered. A test asks for them again.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

const EXAMPLES: &str = include_str!("examples.json");

/// An example of an operation.
#[derive(Debug, Deserialize)]
pub(super) struct Example {
    #[serde(default)]
    path: BTreeMap<String, String>,
    #[serde(default)]
    query: BTreeMap<String, String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<Value>,
    status: u16,
    answer: Value,
}

/// The examples, by the ids of their operations.
pub(super) fn all() -> BTreeMap<String, Example> {
    serde_json::from_str(EXAMPLES).unwrap_or_default()
}

impl Example {
    /// Puts the example into the description of its operation.
    pub(super) fn add_to(self, described: &mut Value) {
        for parameter in described["parameters"].as_array_mut().into_iter().flatten() {
            let name = parameter["name"].as_str().unwrap_or_default();
            let given = self.path.get(name).or_else(|| self.query.get(name));
            if let Some(value) = given.or_else(|| self.headers.get(name)) {
                let is_text = parameter["schema"]["type"] == "string";
                let number = serde_json::from_str(value).ok().filter(|_| !is_text);
                parameter["example"] = number.unwrap_or_else(|| value.as_str().into());
            }
        }
        // What has no content, such as a 204, has no example of it either.
        let set = |content: Option<&mut Value>, example: Value| {
            let kinds = content.and_then(Value::as_object_mut);
            if let Some((_, content)) = kinds.into_iter().flatten().next() {
                content["example"] = example;
            }
        };
        if let Some(body) = self.body {
            set(described.pointer_mut("/requestBody/content"), body);
        }
        let own = format!("/responses/{}/content", self.status);
        let is_own = described.pointer(&own).is_some();
        let answer = if is_own {
            &own
        } else {
            "/responses/default/content"
        };
        if self.answer != "" {
            set(described.pointer_mut(answer), self.answer);
        }
    }
}
