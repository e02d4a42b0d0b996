//! Assembles tool calls from fragments, which servers label in different ways.

use mainspring_shared::message::ToolCall;
use serde_json::Value;

use crate::answer::{self, ChunkSink};
use mainspring_worker::llm::Error;
use mainspring_worker::llm::json;

#[derive(Debug, Default)]
struct Draft {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

/// The calls of one answer, in the order of their first fragments.
#[derive(Debug, Default)]
pub(super) struct Calls {
    drafts: Vec<Draft>,
}

impl Calls {
    pub(super) fn is_empty(&self) -> bool {
        self.drafts.is_empty()
    }

    /// Reads `tool_calls` of a delta or a message: a list, or a single call.
    pub(super) fn read(&mut self, calls: &Value, sink: &mut ChunkSink<'_>) -> Result<(), Error> {
        match calls {
            Value::Array(items) => items.iter().try_for_each(|item| self.fragment(item, sink)),
            Value::Object(_) => self.fragment(calls, sink),
            _ => Ok(()),
        }
    }

    /// Reads the `function_call` of older servers; an answer has at most one.
    pub(super) fn read_legacy(
        &mut self,
        call: &Value,
        sink: &mut ChunkSink<'_>,
    ) -> Result<(), Error> {
        if !call.is_object() {
            return Ok(());
        }
        let name = text(call, "name");
        if self.drafts.is_empty() {
            self.open(sink)?;
        }
        self.extend(0, name, call.get("arguments"), sink)
    }

    fn fragment(&mut self, item: &Value, sink: &mut ChunkSink<'_>) -> Result<(), Error> {
        if !item.is_object() {
            return Ok(());
        }
        let function = item
            .get("function")
            .filter(|f| f.is_object())
            .unwrap_or(item);
        let (id, name) = (text(item, "id"), text(function, "name"));
        let index = item.get("index").and_then(Value::as_u64);
        let at = match self.find(id, name, index) {
            Some(at) => at,
            None => self.open(sink)?,
        };
        let draft = &mut self.drafts[at];
        if draft.index.is_none() {
            draft.index = index;
        }
        if draft.id.is_empty() && !id.is_empty() {
            sink.silent(&mut draft.id, id)?;
        }
        self.extend(at, name, function.get("arguments"), sink)
    }

    /// The call that a fragment continues: the one with its id, or else the last one with its
    /// index, or else, if the fragment has no label and names no function, the latest one. Two ids
    /// with the same index are two calls if the second one names a function; otherwise the server
    /// invents ids as it goes.
    fn find(&self, id: &str, name: &str, index: Option<u64>) -> Option<usize> {
        if !id.is_empty() {
            let known = self.drafts.iter().rposition(|d| d.id == id);
            if known.is_some() {
                return known;
            }
        }
        if index.is_some() {
            let same = self.drafts.iter().rposition(|d| d.index == index)?;
            let other = !id.is_empty() && !self.drafts[same].id.is_empty() && !name.is_empty();
            return (!other).then_some(same);
        }
        let continues = id.is_empty() && name.is_empty();
        continues
            .then(|| self.drafts.len().checked_sub(1))
            .flatten()
    }

    fn open(&mut self, sink: &mut ChunkSink<'_>) -> Result<usize, Error> {
        sink.block()?;
        self.drafts.push(Draft::default());
        Ok(self.drafts.len() - 1)
    }

    fn extend(
        &mut self,
        at: usize,
        name: &str,
        arguments: Option<&Value>,
        sink: &mut ChunkSink<'_>,
    ) -> Result<(), Error> {
        let draft = &mut self.drafts[at];
        if !name.is_empty() {
            draft.name.clear();
            sink.silent(&mut draft.name, name)?;
        }
        match arguments {
            Some(Value::String(piece)) => sink.silent(&mut draft.arguments, piece),
            Some(whole @ Value::Object(_)) => {
                draft.arguments.clear();
                sink.silent(&mut draft.arguments, &whole.to_string())
            }
            _ => Ok(()),
        }
    }

    /// The finished calls. A call with neither a name nor arguments is dropped.
    pub(super) fn finish(self) -> Vec<ToolCall> {
        let said = self
            .drafts
            .into_iter()
            .filter(|d| !d.name.is_empty() || !d.arguments.is_empty());
        said.enumerate()
            .map(|(place, d)| {
                answer::tool_call(place, &d.id, &d.name, json::arguments(&d.arguments))
            })
            .collect()
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn gather(fragments: &[Value]) -> Vec<String> {
        let mut ignore = |_: mainspring_worker::llm::Chunk<'_>| {};
        let mut sink = ChunkSink::new(&mut ignore);
        let mut calls = Calls::default();
        for fragment in fragments {
            calls.read(fragment, &mut sink).expect("within the bound");
        }
        let shown = |c: ToolCall| format!("{} {} {}", c.id, c.name, c.arguments);
        calls.finish().into_iter().map(shown).collect()
    }

    fn piece(id: &str, index: Option<u64>, name: &str, arguments: &str) -> Value {
        let mut value = json!({"function": {"arguments": arguments}});
        if !id.is_empty() {
            value["id"] = json!(id);
        }
        if let Some(index) = index {
            value["index"] = json!(index);
        }
        if !name.is_empty() {
            value["function"]["name"] = json!(name);
        }
        value
    }

    #[test]
    fn fragments_of_parallel_calls_may_interleave_by_index() {
        let calls = gather(&[
            json!([piece("a", Some(0), "f", ""), piece("b", Some(1), "g", "")]),
            json!([piece("", Some(1), "", "{\"y\"")]),
            json!([piece("", Some(0), "", "{\"x\":1}")]),
            json!([piece("", Some(1), "", ":2}")]),
        ]);
        assert_eq!(calls, [r#"a f {"x":1}"#, r#"b g {"y":2}"#]);
    }

    #[test]
    fn calls_without_any_label_are_told_apart_by_their_names() {
        let calls = gather(&[
            piece("", None, "f", "{"),
            piece("", None, "", "}"),
            piece("", None, "g", ""),
            piece("", None, "", "{\"y\":2}"),
        ]);
        assert_eq!(calls, ["call_0 f {}", r#"call_1 g {"y":2}"#]);
    }

    #[test]
    fn an_id_that_comes_late_is_taken_and_one_that_changes_is_not() {
        let calls = gather(&[
            piece("", Some(0), "f", "{"),
            piece("a", Some(0), "", ""),
            piece("made-up", Some(0), "", "}"),
        ]);
        assert_eq!(calls, ["a f {}"]);
    }

    #[test]
    fn two_ids_with_names_under_one_index_are_two_calls() {
        let calls = gather(&[
            piece("a", Some(0), "f", "{\"x\":1}"),
            piece("b", Some(0), "f", "{\"x\""),
            piece("", Some(0), "", ":2}"),
        ]);
        assert_eq!(calls, [r#"a f {"x":1}"#, r#"b f {"x":2}"#]);
    }

    #[test]
    fn arguments_may_be_an_object_cut_off_or_absent() {
        let calls = gather(&[
            json!({"id": "a", "function": {"name": "f", "arguments": {"x": 1}}}),
            json!({"id": "b", "function": {"name": "g", "arguments": "{\"x\": \"unfini"}}),
            json!({"id": "c", "name": "flat"}),
            json!({"id": "d", "function": {}}),
            json!(null),
        ]);
        assert_eq!(
            calls,
            [r#"a f {"x":1}"#, r#"b g "{\"x\": \"unfini""#, "c flat {}"]
        );
    }
}
