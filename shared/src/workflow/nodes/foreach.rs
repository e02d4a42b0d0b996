//! Runs a body for each item of a list.

use serde_json::{Map, Value, json};

use super::{Fan, Node};
use crate::workflow::schema::{Object, object, variable};
use crate::workflow::spec::{Binding, ITEMS_MAX, NodeIx, Ref, Spec};
use crate::workflow::validate::reader::{Reader, UseKind};
use crate::workflow::validate::tree::NodeAt;

const ITEMS_HINT: &str = "write either `items`: [..] or `items_from`: \"node.key\"";

/// A node that runs its body for each item of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Foreach {
    /// The variable that holds the item.
    pub var: String,
    /// The list.
    pub items: Items,
    /// What runs for each item.
    pub body: NodeIx,
    /// Whether several items run at once.
    pub parallel: bool,
    /// How many run at once, and what a failure means.
    pub fan: Fan,
}

/// The list of a fan-out.
#[derive(Debug, Clone, PartialEq)]
pub enum Items {
    /// A literal in the spec.
    Here(Vec<Value>),
    /// The value of another node or a variable.
    From(Ref),
}

impl Node for Foreach {
    fn object() -> Object {
        let var = "The variable that holds the item; `NAME_index` holds its index, from 0.";
        let items = json!({"anyOf": [{"type": "null"}, {"type": "array", "maxItems": ITEMS_MAX}],
            "description": "The list, as a literal."});
        let from = json!({"type": ["string", "null"],
            "description": "The list, from an earlier node: `node.key`."});
        let own = object("One body for each item of a list.", &["as", "body"])
            .hinted("as", variable(var), "name the variable that holds the item")
            .hinted("items", items, ITEMS_HINT)
            .hinted("items_from", from, ITEMS_HINT)
            .child("body")
            .with("parallel", json!({"type": "boolean", "default": true}));
        Fan::declare(own).one_of(json!([
            {"required": ["items"], "properties": {"items": {"type": "array"}, "items_from": {"type": "null"}}},
            {"required": ["items_from"], "properties": {"items_from": {"type": "string"}, "items": {"type": "null"}}},
        ]))
    }

    fn read(reader: &mut Reader<'_>, at: NodeAt<'_>) -> Option<Self> {
        let members = at.members;
        let var = reader.label(members, "as");
        if let Some(var) = &var {
            reader.variable(members, var);
        }
        let items = Items::read(reader, at);
        let parallel = reader.flag(members, "parallel").unwrap_or(true);
        let fan = Fan::read(reader, members);
        let body = reader.child(at, "body");
        Some(Self {
            // Use placeholders for invalid members, so that the body's references are still checked.
            var: var.unwrap_or_default(),
            items: items.unwrap_or_else(|| Items::Here(Vec::new())),
            body: body?,
            parallel,
            fan,
        })
    }

    fn write(&self, spec: &Spec, out: &mut Map<String, Value>) {
        out.insert("as".into(), json!(self.var));
        match &self.items {
            Items::Here(list) => out.insert("items".into(), json!(list)),
            Items::From(from) => out.insert("items_from".into(), json!(from.to_string())),
        };
        out.insert("body".into(), spec.write(self.body));
        out.insert("parallel".into(), json!(self.parallel));
        self.fan.write(out);
    }

    fn children(&self) -> Vec<NodeIx> {
        vec![self.body]
    }

    fn repeats(&self) -> bool {
        true
    }

    fn binding(&self, ix: NodeIx, name: &str) -> Option<Binding> {
        if self.var == name {
            return Some(Binding::Item(ix));
        }
        (name.strip_suffix("_index") == Some(&self.var)).then_some(Binding::Index(ix))
    }

    fn names_read(&self) -> Vec<String> {
        match &self.items {
            Items::From(from) => vec![from.name.clone()],
            Items::Here(_) => Vec::new(),
        }
    }

    fn leaves(&self, spec: &Spec) -> u64 {
        match &self.items {
            Items::Here(list) => (list.len() as u64).saturating_mul(spec.leaves(self.body)),
            Items::From(_) => 0,
        }
    }

    fn declared(&self, spec: &Spec) -> u64 {
        let times = match &self.items {
            Items::Here(list) => list.len() as u64,
            Items::From(_) => 1,
        };
        spec.declared(self.body).saturating_mul(times)
    }
}

impl Items {
    fn read(reader: &mut Reader<'_>, at: NodeAt<'_>) -> Option<Self> {
        let members = at.members;
        let from = members.given("items_from");
        let here = members.given("items");
        let fault = match (from, here) {
            (None, None) => Some("`items` and `items_from` are both missing"),
            (Some(_), Some(_)) => Some("`items` and `items_from` are both given"),
            _ => None,
        };
        if let Some(fault) = fault {
            reader.problem(members.at, "items", fault, ITEMS_HINT);
        }
        let from = match from {
            Some(Value::String(text)) if !text.trim().is_empty() => {
                let from = Ref::parse(text);
                let pointer = members.pointer("items_from");
                reader.reads(at.ix, &from.name, pointer, UseKind::Ref);
                Some(Self::From(from))
            }
            Some(_) => {
                let message = "`items_from` is not a reference";
                reader.member_problem(members, "items_from", "not_text", message);
                None
            }
            None => None,
        };
        let here = match here {
            Some(Value::Array(list)) => {
                if list.len() > ITEMS_MAX {
                    let message = format!("`items` has more than {ITEMS_MAX} items");
                    let hint = "split the list over several runs";
                    reader.problem(members.pointer("items"), "too_many_items", message, hint);
                }
                Some(Self::Here(list.clone()))
            }
            Some(_) => {
                reader.member_problem(members, "items", "not_a_list", "`items` is not a list");
                None
            }
            None => None,
        };
        from.or(here)
    }
}
