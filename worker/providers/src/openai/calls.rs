//! Assembles tool calls from fragments, which servers label in different ways.

use mainspring_shared::message::{Arguments, Origin, ToolCall};
use serde_json::{Map, Value};

use crate::answer::{self, ChunkSink};
use crate::exact;
use mainspring_worker::llm::Error;
use mainspring_worker::llm::json;

/// The members of a call that are read; any other is kept as it came, for its provider.
const KNOWN: &[&str] = &["index", "id", "type", "function", "name", "arguments"];

#[derive(Debug, Default)]
struct Draft {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    attached: Map<String, Value>,
}

impl Draft {
    /// Whether its arguments are whole, so that another function's name begins another call.
    fn is_whole(&self) -> bool {
        !self.name.is_empty()
            && json::parse(&self.arguments).is_some_and(|arguments| arguments.is_object())
    }
}

/// The calls of one answer, in the order of their first fragments.
#[derive(Debug, Default)]
pub(super) struct Calls {
    drafts: Vec<Draft>,
}

/// A piece of a call.
#[derive(Debug, Clone, Copy)]
struct Fragment<'a> {
    index: Option<u64>,
    id: &'a str,
    name: &'a str,
    arguments: Option<&'a Value>,
    /// The text of `arguments`, if they came as a value that does not say it whole.
    text: Option<&'a str>,
}

impl Fragment<'_> {
    /// Whether it says anything of a call itself; otherwise it only brings what is attached to one.
    fn says_anything(&self) -> bool {
        let has_arguments = match self.arguments {
            Some(Value::String(piece)) => !piece.is_empty(),
            Some(Value::Object(_)) => true,
            _ => false,
        };
        !self.id.is_empty() || !self.name.is_empty() || has_arguments
    }
}

impl Calls {
    pub(super) fn is_empty(&self) -> bool {
        self.drafts.is_empty()
    }

    /// Whether the arguments of some call broke off.
    pub(super) fn broke_off(&self) -> bool {
        self.drafts.iter().any(|draft| {
            !draft.arguments.trim().is_empty() && json::parse(&draft.arguments).is_none()
        })
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
        let fragment = Fragment {
            index: None,
            id: "",
            name,
            arguments: call.get("arguments"),
            text: exact::text(call, "arguments"),
        };
        self.extend(0, fragment, sink)
    }

    fn fragment(&mut self, item: &Value, sink: &mut ChunkSink<'_>) -> Result<(), Error> {
        let Value::Object(members) = item else {
            return Ok(());
        };
        let function = item
            .get("function")
            .filter(|f| f.is_object())
            .unwrap_or(item);
        let fragment = Fragment {
            index: item.get("index").and_then(Value::as_u64),
            id: text(item, "id"),
            name: text(function, "name"),
            arguments: function.get("arguments"),
            text: exact::text(function, "arguments"),
        };
        let at = match self.find(fragment) {
            Some(at) => at,
            // A signature may come by itself, before or behind its call; it makes no call.
            None if !fragment.says_anything() => match self.drafts.len().checked_sub(1) {
                Some(last) => last,
                None => return Ok(()),
            },
            None => self.open(sink)?,
        };
        let draft = &mut self.drafts[at];
        if draft.index.is_none() {
            draft.index = fragment.index;
        }
        if draft.id.is_empty() && !fragment.id.is_empty() {
            sink.silent(&mut draft.id, fragment.id)?;
        }
        for (name, value) in members {
            if !KNOWN.contains(&name.as_str()) && !exact::is_text(name) && !value.is_null() {
                draft.attached.insert(name.clone(), sink.kept(value)?);
            }
        }
        self.extend(at, fragment, sink)
    }

    /// The call that a fragment continues.
    ///
    /// An index tells more than an id, which some models repeat: it is the last call with this index, unless the
    /// fragment has another id and a name, or a name while that call is whole. Without an index it is the call with its
    /// id, unless both are whole and say different things, or else, if the fragment has no label and names no function,
    /// the latest one.
    fn find(&self, fragment: Fragment<'_>) -> Option<usize> {
        let Fragment {
            index, id, name, ..
        } = fragment;
        let is_other =
            |index_of: Option<u64>| index.is_some() && index_of.is_some_and(|of| Some(of) != index);
        if !id.is_empty() {
            let known = self
                .drafts
                .iter()
                .rposition(|draft| draft.id == id && !is_other(draft.index));
            if let Some(at) = known {
                let draft = &self.drafts[at];
                let begins = index.is_none() && !name.is_empty() && draft.is_whole();
                return (!(begins && fragment.differs(&draft.arguments))).then_some(at);
            }
        }
        if index.is_some() {
            let same = self.drafts.iter().rposition(|draft| draft.index == index)?;
            let draft = &self.drafts[same];
            let has_other_id = !id.is_empty() && !draft.id.is_empty();
            let begins =
                !name.is_empty() && (has_other_id || draft.is_whole() && fragment.begins());
            return (!begins).then_some(same);
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
        fragment: Fragment<'_>,
        sink: &mut ChunkSink<'_>,
    ) -> Result<(), Error> {
        let draft = &mut self.drafts[at];
        let name = fragment.name;
        // Most servers give a name once, some repeat it, some give it in pieces.
        if !name.is_empty() && name != draft.name {
            let is_piece = draft.arguments.is_empty() && !name.starts_with(&draft.name);
            if !is_piece {
                draft.name.clear();
            }
            sink.silent(&mut draft.name, name)?;
        }
        match fragment.arguments {
            Some(Value::String(piece)) => sink.arguments(&mut draft.arguments, piece),
            Some(whole @ Value::Object(_)) => {
                draft.arguments.clear();
                let text = fragment.text.map(str::to_owned);
                let text = text.unwrap_or_else(|| whole.to_string());
                sink.arguments(&mut draft.arguments, &text)
            }
            _ => Ok(()),
        }
    }

    /// The finished calls of this origin. A call with neither a name nor arguments is dropped.
    pub(super) fn finish(self, origin: &Origin) -> Vec<ToolCall> {
        let said = self
            .drafts
            .into_iter()
            .filter(|d| !d.name.is_empty() || !d.arguments.is_empty());
        said.enumerate()
            .map(|(place, d)| {
                let arguments = Arguments::read(once(&d.arguments));
                let mut call = answer::tool_call(place, &d.id, &d.name, arguments);
                answer::attach(&mut call, origin.clone(), &d.id, &d.attached);
                call
            })
            .collect()
    }
}

impl Fragment<'_> {
    /// Whether its arguments are whole, and others than these.
    fn differs(&self, known: &str) -> bool {
        let own = match self.arguments {
            Some(Value::String(text)) => json::parse(text),
            Some(object @ Value::Object(_)) => Some(object.clone()),
            _ => None,
        };
        own.is_some_and(|own| own.is_object() && Some(own) != json::parse(known))
    }

    /// Whether it may begin a call: servers that repeat a name in each fragment give no arguments with it, or the rest
    /// of them.
    fn begins(&self) -> bool {
        match self.arguments {
            Some(Value::String(piece)) => piece.trim_start().starts_with('{'),
            Some(Value::Object(_)) => true,
            _ => false,
        }
    }
}

/// The arguments without a repetition: some servers give them in pieces and then once more as a whole.
fn once(arguments: &str) -> &str {
    let (first, second) = match arguments.len() {
        len if len % 2 == 0 && arguments.is_char_boundary(len / 2) => arguments.split_at(len / 2),
        _ => return arguments,
    };
    let repeated = first.len() > 1 && first == second && json::parse(arguments).is_none();
    if repeated && json::parse(first).is_some_and(|value| value.is_object()) {
        first
    } else {
        arguments
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
        let origin = answer::tests::source().origin("m", None);
        calls.finish(&origin).into_iter().map(shown).collect()
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
    fn whole_calls_without_ids_under_one_index_are_told_apart_by_their_names() {
        let calls = gather(&[
            piece("", Some(0), "f", "{}"),
            piece("", Some(0), "g", "{\"y\":1}"),
            piece("", Some(0), "g", "{\"y\":2}"),
        ]);
        assert_eq!(
            calls,
            ["call_0 f {}", r#"call_1 g {"y":1}"#, r#"call_2 g {"y":2}"#]
        );
    }

    #[test]
    fn two_indexes_are_two_calls_whatever_their_ids() {
        let calls = gather(&[
            piece("grep:3", Some(0), "grep", "{\"x\":1}"),
            piece("grep:3", Some(1), "grep", "{\"x\""),
            piece("grep:3", Some(1), "", ":2}"),
        ]);
        assert_eq!(calls, [r#"grep:3 grep {"x":1}"#, r#"grep:3 grep {"x":2}"#]);
    }

    #[test]
    fn whole_calls_with_one_id_and_no_index_are_two_calls() {
        let calls = gather(&[json!([
            piece("grep:3", None, "grep", "{\"x\":1}"),
            piece("grep:3", None, "grep", "{\"x\":2}"),
        ])]);
        assert_eq!(calls, [r#"grep:3 grep {"x":1}"#, r#"grep:3 grep {"x":2}"#]);
    }

    #[test]
    fn a_signature_in_a_fragment_of_its_own_is_attached_to_its_call() {
        let mut ignore = |_: mainspring_worker::llm::Chunk<'_>| {};
        let mut sink = ChunkSink::new(&mut ignore);
        let mut calls = Calls::default();
        let signature = json!({"extra_content": {"google": {"thought_signature": "s1"}}});
        for fragment in [&signature, &piece("", None, "f", "{\"x\":1}"), &signature] {
            calls.read(fragment, &mut sink).expect("within the bound");
        }
        let origin = answer::tests::source().origin("m", None);
        let calls = calls.finish(&origin);
        assert_eq!(calls.len(), 1);
        let attached = calls[0].attached.as_ref().expect("it is signed");
        assert_eq!(attached.id, None);
        assert_eq!(attached.json.as_deref(), Some(&*signature.to_string()));
        assert_eq!(attached.origin.host, "models.example");
    }

    #[test]
    fn a_name_comes_once_or_again_or_in_pieces() {
        let calls = gather(&[
            piece("a", Some(0), "get_", ""),
            piece("", Some(0), "weather", ""),
            piece("", Some(0), "", "{\"x\""),
            piece("", Some(0), "get_weather", ":1}"),
            piece("", Some(0), "get_weather", ""),
        ]);
        assert_eq!(calls, [r#"a get_weather {"x":1}"#]);
    }

    #[test]
    fn arguments_that_are_repeated_as_a_whole_are_taken_once() {
        let calls = gather(&[
            piece("a", Some(0), "f", "{\"x\""),
            piece("", Some(0), "", ":1}"),
            piece("a", Some(0), "", "{\"x\":1}"),
        ]);
        assert_eq!(calls, [r#"a f {"x":1}"#]);
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
