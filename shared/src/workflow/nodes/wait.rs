//! A durable pause.

use serde_json::{Map, Value, json};

use super::Node;
use crate::time::{Span, Timestamp};
use crate::wording::plain;
use crate::workflow::schema::{Object, maybe, object};
use crate::workflow::spec::{Spec, TIME_MAX, names_in};
use crate::workflow::validate::reader::Reader;
use crate::workflow::validate::tree::NodeAt;

const LENGTHS: [&str; 3] = ["seconds", "duration", "until"];
const HINT: &str =
    "write one of `seconds`: 30, `duration`: \"5m\", `until`: \"2030-01-01T00:00:00Z\"";

/// How long a pause lasts.
#[derive(Debug, Clone, PartialEq)]
pub enum Wait {
    /// This long after the node is entered.
    For(Span),
    /// Until this time.
    At(Timestamp),
    /// Until the time that this template renders to.
    Until(String),
}

impl Node for Wait {
    fn object() -> Object {
        let until = json!({"type": ["string", "null"],
            "description": "A time like 2030-01-01T00:00:00Z, or a template that gives one."});
        let seconds = json!({"type": ["number", "null"], "minimum": 0});
        object(
            "A durable pause: exactly one of `seconds`, `duration` and `until`.",
            &[],
        )
        .hinted("seconds", seconds, HINT)
        .hinted("duration", maybe("duration"), HINT)
        .hinted("until", until, HINT)
    }

    fn read(reader: &mut Reader<'_>, at: NodeAt<'_>) -> Option<Self> {
        let members = at.members;
        let given = LENGTHS.iter().filter(|key| members.given(key).is_some());
        if given.count() != 1 {
            let message = "a pause has exactly one of `seconds`, `duration` and `until`";
            reader.problem(members.at, "pause", message, HINT);
            return None;
        }
        if let Some(Value::String(_)) = members.given("seconds") {
            let message = "`seconds` is not a number";
            reader.member_problem(members, "seconds", "not_in_range", message);
            return None;
        }
        for key in ["seconds", "duration"] {
            if members.given(key).is_some() {
                return reader.span(members, key, TIME_MAX).map(Self::For);
            }
        }
        let until = reader.label(members, "until")?;
        if until.contains("{{") {
            reader.template(at.ix, &until, &members.pointer("until"));
            return Some(Self::Until(until));
        }
        match serde_json::from_value::<Timestamp>(Value::String(until)) {
            Ok(time) => Some(Self::At(time)),
            Err(error) => {
                let message = format!("`until` {}", plain(&error.to_string()));
                reader.member_problem(members, "until", "not_a_time", message);
                None
            }
        }
    }

    fn write(&self, _spec: &Spec, out: &mut Map<String, Value>) {
        match self {
            Self::For(span) => out.insert("duration".into(), json!(span)),
            Self::At(time) => out.insert("until".into(), json!(time)),
            Self::Until(template) => out.insert("until".into(), json!(template)),
        };
    }

    fn hides_children(&self) -> bool {
        false
    }

    fn names_read(&self) -> Vec<String> {
        match self {
            Self::Until(template) => names_in(template),
            Self::For(_) | Self::At(_) => Vec::new(),
        }
    }
}
