//! A body that repeats until a condition holds.

use serde_json::{Map, Value, json};

use super::{Body, Node};
use crate::workflow::schema::{Object, object, of, variable, whole};
use crate::workflow::spec::{
    Binding, CONDITION_HINT, Condition, ITERATIONS_MAX, NodeIx, Ref, Spec,
};
use crate::workflow::validate::reader::{Reader, UseKind};
use crate::workflow::validate::tree::NodeAt;

const ITERATIONS_DEFAULT: u32 = 3;

/// A node that repeats its body until a condition holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Loop {
    /// The variable that holds the iteration, from 1.
    pub var: String,
    /// The body.
    pub body: NodeIx,
    /// The condition, evaluated after each iteration.
    pub until: Condition,
    /// Maximum number of iterations.
    pub max_iterations: u32,
    /// Whether the loop completes even if the condition does not hold after the last iteration.
    pub exhausted_ok: bool,
    /// Agents of the body that continue in the session of the previous iteration.
    pub continued: Vec<NodeIx>,
}

impl Node for Loop {
    fn object() -> Object {
        let var = json!({"anyOf": [variable("The variable that holds the iteration, from 1."),
            {"type": "null"}],
            "default": "iteration"});
        let continued = json!({"type": "array", "items": {"type": "string"},
            "description": "Agents of the body that continue in the previous iteration's \
             session."});
        object(
            "Its body until a condition holds.",
            &["id", "body", "until"],
        )
        .hinted("as", var, "name the variable that holds the iteration")
        .child("body")
        .hinted("until", of("condition"), CONDITION_HINT)
        .with(
            "max_iterations",
            whole(1, ITERATIONS_MAX.into(), json!(ITERATIONS_DEFAULT)),
        )
        .with(
            "on_exhausted",
            json!({"enum": ["fail", "continue"], "default": "fail"}),
        )
        .with("continue_nodes", continued)
    }

    fn read(reader: &mut Reader<'_>, at: NodeAt<'_>) -> Option<Self> {
        let members = at.members;
        let var = match members.given("as") {
            Some(_) => reader.label(members, "as"),
            None => Some("iteration".to_owned()),
        };
        if let Some(var) = &var {
            reader.variable(members, var);
        }
        if members.given("until").is_none() {
            reader.missing(members, "until");
        }
        let most = reader.whole(members, "max_iterations", (1, ITERATIONS_MAX.into()));
        let exhausted = reader.word(members, "on_exhausted", &["fail", "continue"]);
        let body = reader.child(at, "body");
        let continued = continued(reader, at);
        let until = Condition::read(reader, at, "until", UseKind::Until);
        Some(Self {
            var: var?,
            body: body?,
            until: until?,
            max_iterations: most.map_or(ITERATIONS_DEFAULT, |most| most as u32),
            exhausted_ok: exhausted == Some(1),
            continued,
        })
    }

    fn write(&self, spec: &Spec, out: &mut Map<String, Value>) {
        out.insert("as".into(), json!(self.var));
        out.insert("body".into(), spec.write(self.body));
        out.insert("until".into(), self.until.write());
        out.insert("max_iterations".into(), json!(self.max_iterations));
        let word = if self.exhausted_ok {
            "continue"
        } else {
            "fail"
        };
        out.insert("on_exhausted".into(), json!(word));
        if !self.continued.is_empty() {
            let ids = self.continued.iter().map(|ix| &spec.nodes[*ix].id);
            out.insert("continue_nodes".into(), json!(ids.collect::<Vec<_>>()));
        }
    }

    fn children(&self) -> Vec<NodeIx> {
        vec![self.body]
    }

    fn repeats(&self) -> bool {
        true
    }

    fn binding(&self, ix: NodeIx, name: &str) -> Option<Binding> {
        if self.var == name {
            return Some(Binding::Round(ix));
        }
        (name == "previous").then_some(Binding::Previous(ix))
    }

    fn names_read(&self) -> Vec<String> {
        vec![self.until.on.name.clone()]
    }

    fn decided_by(&self) -> Option<&Ref> {
        Some(&self.until.on)
    }

    fn declared(&self, spec: &Spec) -> u64 {
        let rounds = u64::from(self.max_iterations);
        spec.declared(self.body).saturating_mul(rounds)
    }
}

/// Reads which agents of a loop's body continue from iteration to iteration.
fn continued(reader: &mut Reader<'_>, at: NodeAt<'_>) -> Vec<NodeIx> {
    let ids = reader.texts(at.members, "continue_nodes");
    let mut found = Vec::new();
    for (index, id) in ids.unwrap_or_default().iter().enumerate() {
        let pointer = format!("{}/{index}", at.members.pointer("continue_nodes"));
        let inside = (at.ix + 1..reader.nodes.len()).find(|ix| {
            let node = &reader.nodes[*ix];
            node.id.as_ref() == Some(id) && node.scope == reader.nodes[at.ix].scope
        });
        match inside.filter(|ix| repeats_with(reader, *ix, at.ix)) {
            Some(ix) => {
                let body = &reader.nodes[ix].body;
                if matches!(body, Body::Agent(agent) if agent.spec.is_ephemeral()) {
                    reader.ephemeral_continues(&pointer);
                }
                found.push(ix);
            }
            // The node exists, but its own faults were already reported.
            None if inside.is_none() && reader.lost.contains(id) => {}
            None => {
                let message = format!("{id:?} is not an agent directly in this loop");
                let hint = "name agents of the body that are in no further loop or foreach";
                reader.problem(pointer, "unknown_reference", message, hint);
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Whether a node is an agent, and this loop is the innermost repeating node around it.
fn repeats_with(reader: &Reader<'_>, ix: NodeIx, around: NodeIx) -> bool {
    let parent = |ix: &NodeIx| reader.nodes[*ix].parent.map(|(parent, _)| parent);
    let between = std::iter::successors(parent(&ix), parent);
    let mut between = between.take_while(|ix| *ix != around);
    matches!(reader.nodes[ix].body, Body::Agent(_))
        && between.all(|ix| !reader.nodes[ix].body.node().repeats())
}
