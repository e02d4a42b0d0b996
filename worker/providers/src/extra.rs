//! Members that the configuration adds to every request.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::{Map, Value};

use mainspring_worker::llm::Error;

/// Members that are set by agents or relied on by the transports, and cannot be configured.
const RESERVED: &[&str] = &[
    "background",
    "conversation",
    "include",
    "input",
    "instructions",
    "max_completion_tokens",
    "max_output_tokens",
    "max_tokens",
    "messages",
    "model",
    "n",
    "previous_response_id",
    "prompt",
    "store",
    "stream",
    "system",
    "tools",
];

/// Why a text cannot be used as additional members.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExtraFault {
    /// It is not a JSON object.
    #[error("it is not a JSON object: {0}")]
    NotAnObject(String),
    /// A member must not be configured.
    #[error("the member {0:?} is reserved")]
    Reserved(String),
}

/// Additional members for all requests of a provider, and for requests to single models.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RequestExtra {
    all: Map<String, Value>,
    by_model: BTreeMap<String, Map<String, Value>>,
}

impl RequestExtra {
    /// Parses a JSON object of members for all requests.
    pub fn read(text: &str) -> Result<Self, ExtraFault> {
        Ok(Self {
            all: members(text)?,
            by_model: BTreeMap::new(),
        })
    }

    /// Adds a JSON object of members for requests to one model, which take precedence over those
    /// for all.
    pub fn insert(&mut self, model: &str, text: &str) -> Result<(), ExtraFault> {
        self.by_model.insert(model.to_owned(), members(text)?);
        Ok(())
    }

    /// Adds the members to a body, and those that the agent's author gave. Members of the request itself stay
    /// unchanged, and the configuration takes precedence over the author; objects are merged. The order is kept, so
    /// that requests with a common prefix still have one.
    pub(super) fn add(
        &self,
        model: &str,
        authors: Option<&Map<String, Value>>,
        body: Vec<u8>,
    ) -> Result<Vec<u8>, Error> {
        let own = self.by_model.get(model).into_iter().flatten();
        let authors = authors.into_iter().flatten();
        let mut extra: Map<String, Value> = authors
            .filter(|(name, _)| !RESERVED.contains(&name.as_str()))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        for (name, value) in self.all.iter().chain(own) {
            let merged = match extra.remove(name) {
                Some(general) => merge(value.clone(), general),
                None => value.clone(),
            };
            extra.insert(name.clone(), merged);
        }
        if extra.is_empty() {
            return Ok(body);
        }
        let broken = |error: serde_json::Error| Error::InvalidRequest {
            message: format!("its further members cannot be added: {error}"),
        };
        let mut text = Vec::with_capacity(body.len() + 256);
        text.push(b'{');
        for (name, value) in spans(&body) {
            let said: String = serde_json::from_slice(&body[name.clone()]).map_err(broken)?;
            member(&mut text, &body[name]);
            match extra.remove(&said) {
                Some(more) => {
                    let own: Value = serde_json::from_slice(&body[value]).map_err(broken)?;
                    serde_json::to_writer(&mut text, &merge(own, more)).map_err(broken)?;
                }
                None => text.extend_from_slice(&body[value]),
            }
        }
        for (name, value) in extra {
            member(&mut text, Value::String(name).to_string().as_bytes());
            serde_json::to_writer(&mut text, &value).map_err(broken)?;
        }
        text.push(b'}');
        Ok(text)
    }
}

/// Writes the name of a member.
fn member(text: &mut Vec<u8>, name: &[u8]) {
    if text.len() > 1 {
        text.push(b',');
    }
    text.extend_from_slice(name);
    text.push(b':');
}

/// The spans of an object's members, given JSON written by `serde_json`, which has no spaces.
/// Megabytes of messages need not be parsed for one or two members.
fn spans(body: &[u8]) -> Vec<(Range<usize>, Range<usize>)> {
    let mut spans = Vec::new();
    let mut at = 1;
    while at + 1 < body.len() {
        let name = at..end(body, at);
        let value = name.end + 1..end(body, name.end + 1);
        at = value.end + 1;
        spans.push((name, value));
    }
    spans
}

/// The end of the value that begins at `from`.
pub(crate) fn end(body: &[u8], from: usize) -> usize {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for (at, byte) in body.iter().enumerate().skip(from) {
        if quoted {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => quoted = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => quoted = true,
            b'{' | b'[' => depth += 1,
            b',' | b':' | b'}' | b']' if depth == 0 => return at,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
    }
    body.len()
}

fn members(text: &str) -> Result<Map<String, Value>, ExtraFault> {
    let members: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| ExtraFault::NotAnObject(error.to_string()))?;
    match members
        .keys()
        .find(|name| RESERVED.contains(&name.as_str()))
    {
        Some(name) => Err(ExtraFault::Reserved(name.clone())),
        None => Ok(members),
    }
}

/// Merges two values: `first` wins, and objects get the members that they lack from `second`.
fn merge(first: Value, second: Value) -> Value {
    match (first, second) {
        (Value::Object(mut first), Value::Object(second)) => {
            for (name, value) in second {
                let merged = match first.remove(&name) {
                    Some(own) => merge(own, value),
                    None => value,
                };
                first.insert(name, merged);
            }
            Value::Object(first)
        }
        (first, _) => first,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(extra: &RequestExtra, model: &str, body: &str) -> String {
        let body = extra.add(model, None, body.as_bytes().to_vec());
        String::from_utf8(body.expect("it is an object")).expect("text")
    }

    #[test]
    fn members_are_added_behind_those_of_the_request_which_win() {
        let extra = RequestExtra::read(
            r#"{"service_tier": "flex", "temperature": 1, "reasoning": {"effort": "high", "summary": "auto"}}"#,
        );
        let extra = extra.expect("members");
        let body = r#"{"model":"m","temperature":0.5,"reasoning":{"effort":"low"}}"#;
        assert_eq!(
            added(&extra, "m", body),
            concat!(
                r#"{"model":"m","temperature":0.5,"reasoning":{"effort":"low","summary":"auto"},"#,
                r#""service_tier":"flex"}"#
            )
        );
    }

    #[test]
    fn whatever_a_request_holds_stays_as_it_is() {
        let extra = RequestExtra::read(r#"{"z": [1, {"y": "}"}]}"#).expect("members");
        let body = serde_json::json!({
            "a": "\"},{\\",
            "b": [[], {}, {"c": "]"}, -1.5e3, true, null],
            "d\"e": {"f": [{"g": "\\\""}]},
        });
        let added: Value =
            serde_json::from_str(&added(&extra, "m", &body.to_string())).expect("it is JSON");
        let mut wanted = body;
        wanted["z"] = serde_json::json!([1, {"y": "}"}]);
        assert_eq!(added, wanted);
        let added = extra.add("m", None, b"{}".to_vec()).expect("members");
        assert_eq!(added, br#"{"z":[1,{"y":"}"}]}"#);
    }

    #[test]
    fn a_models_own_members_win_over_those_for_all() {
        let mut extra = RequestExtra::read(r#"{"a": {"x": 1, "y": 1}}"#).expect("members");
        extra.insert("m", r#"{"a": {"y": 2}}"#).expect("members");
        assert_eq!(
            added(&extra, "m", r#"{"b":1}"#),
            r#"{"b":1,"a":{"x":1,"y":2}}"#
        );
        assert_eq!(
            added(&extra, "n", r#"{"b":1}"#),
            r#"{"b":1,"a":{"x":1,"y":1}}"#
        );
        let none = RequestExtra::default();
        assert_eq!(added(&none, "m", "untouched"), "untouched");
    }

    #[test]
    fn an_author_adds_members_but_replaces_none_of_the_request_or_of_the_operator() {
        let extra = RequestExtra::read(r#"{"service_tier": "flex"}"#).expect("members");
        let authors = serde_json::json!({
            "service_tier": "priority", "seed": 7, "temperature": 1, "messages": [], "stream": false,
        });
        let body = br#"{"model":"m","temperature":0.5}"#.to_vec();
        let added = extra.add("m", authors.as_object(), body);
        let added = String::from_utf8(added.expect("an object")).expect("text");
        assert_eq!(
            added,
            r#"{"model":"m","temperature":0.5,"service_tier":"flex","seed":7}"#
        );
    }

    #[test]
    fn what_is_no_object_or_reserved_is_refused() {
        assert!(matches!(
            RequestExtra::read("[1]"),
            Err(ExtraFault::NotAnObject(_))
        ));
        let reserved = RequestExtra::read(r#"{"x": 1, "messages": []}"#);
        assert_eq!(reserved, Err(ExtraFault::Reserved("messages".to_owned())));
    }
}
