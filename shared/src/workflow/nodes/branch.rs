//! Runs one of several children, chosen by a value.

use serde_json::{Map, Value, json};

use super::Node;
use crate::workflow::schema::{Object, label, maybe, object, of};
use crate::workflow::spec::{NodeIx, Ref, Spec, text_of};
use crate::workflow::validate::limits;
use crate::workflow::validate::reader::{Reader, UseKind};
use crate::workflow::validate::tree::NodeAt;

/// A node that runs one of its children.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branch {
    /// The value that decides.
    pub on: Ref,
    /// The children by the text of the value, sorted.
    pub cases: Vec<(String, NodeIx)>,
    /// The child when no case matches.
    pub default: Option<NodeIx>,
}

impl Node for Branch {
    fn object() -> Object {
        let cases = json!({"type": "object", "minProperties": 1, "additionalProperties": of("node"),
            "description": "By the text of the value; JSON true is the case `true`."});
        object("One of several nodes, by a value.", &["on", "cases"])
            .hinted(
                "on",
                label("The value to branch on: `node` or `node.key`."),
                "name the value to branch on: \"node\" or \"node.key\"",
            )
            .hinted("cases", cases, "write cases: {\"yes\": node, \"no\": node}")
            .with("default", maybe("node"))
    }

    fn read(reader: &mut Reader<'_>, at: NodeAt<'_>) -> Option<Self> {
        let members = at.members;
        let on = reader.reference(at.ix, members, "on", UseKind::Ref);
        let empty = Map::new();
        let written = match members.map.get("cases") {
            Some(Value::Object(map)) if !map.is_empty() => map,
            _ => {
                let message = "`cases` is not an object with at least one node";
                reader.member_problem(members, "cases", "not_object", message);
                &empty
            }
        };
        let pointer = members.pointer("cases");
        let mut sorted: Vec<_> = written.iter().collect();
        sorted.sort_by_key(|(key, _)| *key);
        let mut cases = Vec::new();
        for (index, (key, value)) in sorted.into_iter().enumerate() {
            let node = reader.node(value, &limits::at(&pointer, key), at.below(index));
            cases.extend(node.map(|node| (key.clone(), node)));
        }
        let default = members.given("default");
        let default = default.and_then(|value| {
            reader.node(value, &members.pointer("default"), at.below(written.len()))
        });
        Some(Self {
            on: on?,
            cases,
            default,
        })
    }

    fn write(&self, spec: &Spec, out: &mut Map<String, Value>) {
        out.insert("on".into(), json!(self.on.to_string()));
        let cases = self.cases.iter();
        let cases = cases.map(|(key, ix)| (key.clone(), spec.write(*ix)));
        out.insert("cases".into(), Value::Object(cases.collect()));
        if let Some(default) = self.default {
            out.insert("default".into(), spec.write(default));
        }
    }

    fn children(&self) -> Vec<NodeIx> {
        let cases = self.cases.iter().map(|(_, ix)| *ix);
        cases.chain(self.default).collect()
    }

    fn has_result(&self) -> bool {
        false
    }

    fn hides_children(&self) -> bool {
        false
    }

    fn names_read(&self) -> Vec<String> {
        vec![self.on.name.clone()]
    }

    fn decided_by(&self) -> Option<&Ref> {
        Some(&self.on)
    }

    fn leaves(&self, spec: &Spec) -> u64 {
        let children = self.children().into_iter();
        children.map(|ix| spec.leaves(ix)).min().unwrap_or(0)
    }

    fn declared(&self, spec: &Spec) -> u64 {
        let children = self.children().into_iter();
        children.map(|ix| spec.declared(ix)).max().unwrap_or(0)
    }
}

/// Whether a branch's value selects the case with this key. A text and its JSON form are equal;
/// `True`, `False` and `None` are read as their JSON forms.
pub fn is_case(key: &str, value: &Value) -> bool {
    let text = text_of(value);
    if key == text {
        return true;
    }
    if let Value::Number(number) = value
        && let (Ok(key), Some(number)) = (key.parse::<f64>(), number.as_f64())
    {
        return key.total_cmp(&number).is_eq();
    }
    let legacy = match key {
        "True" => "true",
        "False" => "false",
        "None" => "null",
        _ => return false,
    };
    !value.is_string() && legacy == text
}
