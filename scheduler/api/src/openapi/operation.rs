//! The operations of the API, as described by the annotations of their handlers.

use std::collections::BTreeMap;

use mainspring_shared::error::Code;
use serde_json::Value;

use super::super::copies::LINES;
use super::PAGE;

/// The media type of arbitrary bytes.
pub(super) const BYTES: &str = "application/octet-stream";

/// The content of a response.
pub(super) enum ResponseContent {
    Nothing,
    Bytes,
    Text,
    /// Advice for people.
    Page,
    /// Events with this schema.
    Events(String),
    /// An archive of a session.
    Lines,
    Object,
    One(String),
    Many(String),
}

/// One operation.
pub(super) struct Operation {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) id: String,
    pub(super) summary: String,
    /// Query parameters and headers.
    pub(super) parameters: Vec<Value>,
    /// The name of a schema, or [`LINES`], and whether a body is required.
    pub(super) body: Option<(String, bool)>,
    pub(super) answers: Vec<String>,
    pub(super) content: ResponseContent,
    /// The codes of its own problems, by their statuses.
    pub(super) problems: BTreeMap<String, Vec<Code>>,
}

impl Operation {
    /// Whether it has a parameter of this name.
    pub(super) fn has_parameter(&self, name: &str) -> bool {
        self.parameters.iter().any(|one| one["name"] == name)
    }

    /// All operations of a document.
    pub(super) fn all(described: &Value) -> Vec<Self> {
        let paths = described["paths"].as_object().into_iter().flatten();
        let operations = paths.flat_map(|(path, item)| {
            let methods = item.as_object().into_iter().flatten();
            methods.map(|(method, operation)| Self::of(path, method, operation))
        });
        operations.collect()
    }

    fn of(path: &str, method: &str, described: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let parameters = described["parameters"].as_array().into_iter().flatten();
        let responses = described["responses"].as_object().into_iter().flatten();
        let (answers, problems): (Vec<_>, Vec<_>) =
            responses.partition(|(name, _)| Code::parse(name).is_none());
        let content = answers.first().map(|(_, answer)| &answer["content"]);
        let mut operation = Self {
            method: method.to_owned(),
            // `{*` is how the router marks a parameter that may contain slashes.
            path: path.replace("{*", "{"),
            id: text(&described["operationId"]),
            summary: text(&described["summary"]),
            parameters: parameters.cloned().collect(),
            body: body(&described["requestBody"]),
            content: response_content(content.unwrap_or(&Value::Null)),
            answers: answers
                .iter()
                .map(|(status, _)| (*status).clone())
                .collect(),
            problems: BTreeMap::new(),
        };
        let codes = problems.into_iter();
        let codes: Vec<Code> = codes.filter_map(|(name, _)| Code::parse(name)).collect();
        let repeats = operation.has_parameter("Idempotency-Key");
        for code in codes
            .into_iter()
            .chain(repeats.then_some(Code::IdempotencyMismatch))
        {
            let status = code.http_status().to_string();
            operation.problems.entry(status).or_default().push(code);
        }
        operation
    }
}

fn body(described: &Value) -> Option<(String, bool)> {
    let (kind, content) = described["content"].as_object()?.iter().next()?;
    if kind == LINES || kind == BYTES {
        return Some((kind.clone(), true));
    }
    let schema = &content["schema"];
    let optional = schema["oneOf"]
        .as_array()
        .into_iter()
        .flatten()
        .find_map(name);
    let required = name(schema).map(|name| (name, true));
    required.or_else(|| Some((optional?, false)))
}

fn response_content(content: &Value) -> ResponseContent {
    let Some((kind, content)) = content
        .as_object()
        .and_then(|content| content.iter().next())
    else {
        return ResponseContent::Nothing;
    };
    match (kind.as_str(), name(&content["schema"])) {
        ("text/event-stream", Some(name)) => ResponseContent::Events(name),
        ("text/markdown", _) => ResponseContent::Page,
        (LINES, _) => ResponseContent::Lines,
        (BYTES, _) => ResponseContent::Bytes,
        ("text/plain", _) => ResponseContent::Text,
        (_, None) => ResponseContent::Object,
        (_, Some(name)) => match name.strip_prefix(PAGE) {
            Some(item) => ResponseContent::Many(item.to_owned()),
            None => ResponseContent::One(name),
        },
    }
}

/// The name of the schema that is referred to.
fn name(schema: &Value) -> Option<String> {
    let name = schema["$ref"].as_str()?.rsplit('/').next()?;
    Some(name.to_owned())
}
