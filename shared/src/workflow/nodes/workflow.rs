//! A nested workflow with its own scope.

use serde_json::{Map, Value, json};

use super::Node;
use crate::workflow::schema::{Object, object, text};
use crate::workflow::spec::{Binding, ENVELOPE, Envelope, NodeIx, Spec, names_in};
use crate::workflow::validate::reader::{Members, Reader};
use crate::workflow::validate::tree::NodeAt;

/// A nested workflow with its own scope.
#[derive(Debug, Clone, PartialEq)]
pub struct Workflow {
    /// Its name, input, budget, metadata and time limit.
    pub envelope: Envelope,
    /// Its input, a template; the envelope's when absent.
    pub input: Option<String>,
    /// Its root.
    pub root: NodeIx,
}

impl Node for Workflow {
    fn object() -> Object {
        let mut inner = ENVELOPE.to_value();
        inner["description"] = json!("A whole workflow, with its own ids and its own `input`.");
        object("Another workflow in its own scope.", &["id", "spec"])
            .hinted(
                "spec",
                inner,
                "write a whole workflow: {\"name\": …, \"root\": node}",
            )
            .with(
                "input",
                text("Its input, a template; that of its spec when absent."),
            )
    }

    fn read(reader: &mut Reader<'_>, at: NodeAt<'_>) -> Option<Self> {
        let members = at.members;
        let input = reader.text(members, "input");
        if let Some(input) = &input {
            reader.template(at.ix, input, &members.pointer("input"));
        }
        let Some(Value::Object(map)) = members.map.get("spec") else {
            reader.member_problem(members, "spec", "not_object", "`spec` is not an object");
            return None;
        };
        let pointer = members.pointer("spec");
        let inner = Members::new(map, &pointer, &ENVELOPE);
        let envelope = Envelope::read(reader, inner);
        let root = reader.root(inner, at.inside());
        Some(Self {
            envelope,
            input,
            root: root?,
        })
    }

    fn write(&self, spec: &Spec, out: &mut Map<String, Value>) {
        let inner = self.envelope.write(spec.write(self.root));
        out.insert("spec".into(), inner);
        if let Some(input) = &self.input {
            out.insert("input".into(), json!(input));
        }
    }

    fn children(&self) -> Vec<NodeIx> {
        vec![self.root]
    }

    fn binding(&self, ix: NodeIx, name: &str) -> Option<Binding> {
        (name == "input").then_some(Binding::Input(Some(ix)))
    }

    fn names_read(&self) -> Vec<String> {
        self.input.as_deref().map(names_in).unwrap_or_default()
    }
}
