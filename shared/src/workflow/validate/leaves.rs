//! Pauses, decisions of people and tool calls.

use serde_json::Value;

use super::limits::at;
use super::nodes::Place;
use super::policy::TIME_MAX;
use super::reader::{Members, Reader};
use crate::time::Timestamp;
use crate::tool::ToolEntry;
use crate::workflow::spec::{Body, NodeIx, Pause};

impl Reader<'_> {
    pub(super) fn wait(&mut self, ix: NodeIx, members: Members<'_>) -> Option<Body> {
        self.known(members, &["seconds", "duration", "until"], false);
        let hint =
            "write one of `seconds`: 30, `duration`: \"5m\", `until`: \"2030-01-01T00:00:00Z\"";
        let given = ["seconds", "duration", "until"]
            .iter()
            .filter(|key| members.given(key).is_some());
        if given.count() != 1 {
            let message = "a pause has exactly one of `seconds`, `duration` and `until`";
            self.problem(members.at, "pause", message, hint);
            return None;
        }
        if let Some(Value::String(_)) = members.given("seconds") {
            let message = "`seconds` is not a number";
            self.problem(members.pointer("seconds"), "not_in_range", message, hint);
            return None;
        }
        for key in ["seconds", "duration"] {
            if members.given(key).is_some() {
                return self
                    .span(members, key, TIME_MAX)
                    .map(|span| Body::Wait(Pause::For(span)));
            }
        }
        let until = self.label(members, "until", hint)?;
        let pointer = members.pointer("until");
        if until.contains("{{") {
            self.template(ix, &until, &pointer);
            return Some(Body::Wait(Pause::Until(until)));
        }
        match serde_json::from_value::<Timestamp>(Value::String(until)) {
            Ok(time) => Some(Body::Wait(Pause::At(time))),
            Err(error) => {
                self.problem(
                    pointer,
                    "not_a_time",
                    format!("`until` is no time: {error}"),
                    hint,
                );
                None
            }
        }
    }

    pub(super) fn approval(
        &mut self,
        ix: NodeIx,
        members: Members<'_>,
        place: Place,
    ) -> Option<Body> {
        self.known(members, &["message"], true);
        let message = self.label(members, "message", "say what a person is to decide");
        if let Some(message) = &message {
            self.template(ix, message, &members.pointer("message"));
        }
        let mut policy = self.policy(members);
        policy.fallback = self.fallback(ix, members, place);
        Some(Body::Approval {
            message: message?,
            policy,
        })
    }

    pub(super) fn tool(&mut self, ix: NodeIx, members: Members<'_>, place: Place) -> Option<Body> {
        self.known(members, &["tool", "arguments"], true);
        let tool = self.label(members, "tool", "name a tool that the workers have");
        if let Some(tool) = &tool {
            let entry = ToolEntry::Named(tool.clone());
            self.granted(&entry, &members.pointer("tool"));
        }
        let arguments = self
            .object(members, "arguments")
            .cloned()
            .unwrap_or_default();
        let pointer = members.pointer("arguments");
        for (key, value) in &arguments {
            self.templates(ix, value, &at(&pointer, key));
        }
        let mut policy = self.policy(members);
        policy.fallback = self.fallback(ix, members, place);
        Some(Body::Tool {
            tool: tool?,
            arguments,
            policy,
        })
    }

    fn templates(&mut self, ix: NodeIx, value: &Value, pointer: &str) {
        match value {
            Value::String(text) => self.template(ix, text, pointer),
            Value::Array(list) => {
                for (index, one) in list.iter().enumerate() {
                    self.templates(ix, one, &format!("{pointer}/{index}"));
                }
            }
            Value::Object(map) => {
                for (key, one) in map {
                    self.templates(ix, one, &at(pointer, key));
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}
