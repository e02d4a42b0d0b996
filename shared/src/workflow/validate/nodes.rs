//! The tree: each kind of node.

use serde_json::{Map, Value};

use super::limits::at;
use super::reader::{Members, Reader, UseKind};
use crate::words::nearest;
use crate::workflow::spec::{
    Agent, Body, CONCURRENCY_DEFAULT, CONCURRENCY_MAX, DEPTH_MAX, Fan, ITEMS_MAX, ITERATIONS_MAX,
    Items, LeafAgent, NODES_MAX, Node, NodeIx, Ref, Spec,
};

const KINDS: &[&str] = &[
    "agent", "sequence", "parallel", "foreach", "branch", "loop", "wait", "approval", "tool",
    "workflow",
];

/// A node's members besides its own.
const COMMON: [&str; 3] = ["type", "id", "when"];
const LEAF: [&str; 4] = ["retry", "timeout", "fallback", "continue_on_error"];

/// Where a node stands.
#[derive(Clone, Copy)]
pub(super) struct Place {
    parent: Option<(NodeIx, u32)>,
    scope: Option<NodeIx>,
    depth: usize,
}

impl Place {
    fn below(self, parent: NodeIx, key: usize) -> Self {
        Self {
            parent: Some((parent, key as u32)),
            scope: self.scope,
            depth: self.depth + 1,
        }
    }
}

impl Reader<'_> {
    /// The whole spec.
    pub(super) fn spec(&mut self, value: &Value) -> Option<Spec> {
        let Value::Object(map) = value else {
            let hint = "write an object with `name` and `root`";
            self.problem("", "not_object", "the spec is not an object", hint);
            return None;
        };
        let members = Members { map, at: "" };
        let envelope = self.envelope(members);
        let place = Place {
            parent: None,
            scope: None,
            depth: 1,
        };
        let root = self.child(members, "root", place);
        if self.nodes.len() > NODES_MAX {
            let message = format!("the spec has more than {NODES_MAX} nodes");
            let hint = "use `foreach` over a list in place of written-out copies";
            self.problem("/root", "too_many_nodes", message, hint);
        }
        self.duplicates();
        let first = |places: &Vec<(NodeIx, String)>| places[0].0;
        let ids = self
            .ids
            .iter()
            .map(|(key, places)| (key.clone(), first(places)));
        let spec = Spec {
            envelope,
            root: root.unwrap_or_default(),
            ids: ids.collect(),
            nodes: std::mem::take(&mut self.nodes),
        };
        if !spec.nodes.is_empty() {
            self.references(&spec);
        }
        root.map(|_| spec)
    }

    fn child(&mut self, members: Members<'_>, key: &str, place: Place) -> Option<NodeIx> {
        if let Some(value) = members.map.get(key) {
            return self.node(value, &members.pointer(key), place);
        }
        let hint = "write a node, an object with a `type`";
        self.problem(members.at, "missing", format!("`{key}` is missing"), hint);
        None
    }

    fn node(&mut self, value: &Value, pointer: &str, place: Place) -> Option<NodeIx> {
        if place.depth > DEPTH_MAX {
            let message = format!("the tree is deeper than {DEPTH_MAX} levels");
            self.problem(
                pointer,
                "too_deep",
                message,
                "flatten sequences of sequences",
            );
            return None;
        }
        // One more is noticed; what is beyond it is not looked at.
        if self.nodes.len() > NODES_MAX {
            return None;
        }
        let Value::Object(map) = value else {
            let hint = "write an object with a `type`";
            self.problem(pointer, "not_object", "this node is not an object", hint);
            return None;
        };
        let members = Members { map, at: pointer };
        let Some(kind) = map
            .get("type")
            .and_then(Value::as_str)
            .filter(|kind| KINDS.contains(kind))
        else {
            self.wrong_kind(members);
            return None;
        };
        let ix = self.nodes.len();
        self.nodes.push(Node {
            id: None,
            when: None,
            body: Body::Sequence { steps: Vec::new() },
            parent: place.parent,
            scope: place.scope,
        });
        let id = self.id(kind, members);
        if let Some(id) = &id {
            let key = (place.scope, id.clone());
            self.ids
                .entry(key)
                .or_default()
                .push((ix, members.pointer("id")));
        }
        let when = self.condition(ix, members, "when", UseKind::Ref);
        self.nodes[ix].id.clone_from(&id);
        self.nodes[ix].when = when;
        let body = match kind {
            "agent" => self.agent(ix, members, place),
            "sequence" => self.sequence(ix, members, place),
            "parallel" => self.parallel(ix, members, place),
            "foreach" => self.foreach(ix, members, place),
            "branch" => self.branch(ix, members, place),
            "loop" => self.repeat(ix, members, place),
            "wait" => self.wait(ix, members),
            "approval" => self.approval(ix, members, place),
            "tool" => self.tool(ix, members, place),
            _ => self.workflow(ix, members, place),
        };
        if let Some(body) = body {
            self.nodes[ix].body = body;
        } else if let Some(id) = id {
            self.lost.insert(id);
        }
        Some(ix)
    }

    fn wrong_kind(&mut self, members: Members<'_>) {
        let known = KINDS.join(", ");
        if let Some(Value::String(id)) = members.map.get("id") {
            self.lost.insert(id.clone());
        }
        match members.map.get("type") {
            None => {
                let hint = format!("write one of {known}");
                self.problem(members.at, "missing", "`type` is missing", hint);
            }
            Some(kind) => {
                let near = kind
                    .as_str()
                    .and_then(|kind| nearest(kind, KINDS.iter().copied()));
                let hint = near.map_or(format!("write one of {known}"), |near| {
                    format!("write {near:?}")
                });
                let shown: String = kind.to_string().chars().take(80).collect();
                let message = format!("there is no node of type {shown}");
                self.problem(members.pointer("type"), "unknown_type", message, hint);
            }
        }
    }

    fn id(&mut self, kind: &str, members: Members<'_>) -> Option<String> {
        let needed = matches!(kind, "agent" | "loop" | "approval" | "tool" | "workflow");
        if !needed && members.given("id").is_none() {
            return None;
        }
        self.label(members, "id", "give the node a name that no other node has")
    }

    /// One problem for every id that more than one node has.
    fn duplicates(&mut self) {
        let ids = std::mem::take(&mut self.ids);
        for ((_, id), places) in &ids {
            if let [_, again, ..] = places.as_slice() {
                let message = format!("{} nodes have the id {id:?}", places.len());
                let hint = "give each node its own; bodies and cases count too";
                self.problem(again.1.as_str(), "duplicate_id", message, hint);
            }
        }
        self.ids = ids;
    }

    pub(super) fn known(&mut self, members: Members<'_>, own: &[&str], leaf: bool) {
        let leaf: &[&str] = if leaf { &LEAF } else { &[] };
        let known: Vec<_> = COMMON.iter().chain(own).chain(leaf).copied().collect();
        self.only(members, &known);
    }

    fn agent(&mut self, ix: NodeIx, members: Members<'_>, place: Place) -> Option<Body> {
        self.known(
            members,
            &[
                "spec",
                "input",
                "inputs_from",
                "output_schema",
                "continuation",
            ],
            true,
        );
        let spec = self.leaf_agent(ix, members);
        let input = self
            .text(members, "input")
            .unwrap_or_else(|| "{{input}}".to_owned());
        self.template(ix, &input, &members.pointer("input"));
        let inputs_from = self.texts(members, "inputs_from").unwrap_or_default();
        for (index, id) in inputs_from.iter().enumerate() {
            let pointer = format!("{}/{index}", members.pointer("inputs_from"));
            self.reads(ix, id, pointer, UseKind::Context);
        }
        if members
            .map
            .get("output_schema")
            .is_some_and(|value| !value.is_object() && !value.is_null())
        {
            let hint = "write {\"name\": …, \"schema\": {JSON Schema}}";
            let pointer = members.pointer("output_schema");
            self.problem(
                pointer,
                "output_schema",
                "`output_schema` is not an object",
                hint,
            );
        }
        let output_schema = members
            .map
            .get("output_schema")
            .filter(|value| value.is_object());
        let output_schema = output_schema.and_then(|_| self.output_schema(members));
        let continuation = self.continuation(members);
        if continuation.is_some() && spec.as_ref().is_some_and(LeafAgent::is_ephemeral) {
            self.goes_on_and_ends(&members.pointer("continuation"));
        }
        let mut policy = self.policy(members);
        policy.fallback = self.fallback(ix, members, place);
        Some(Body::Agent(Box::new(Agent {
            spec: spec?,
            input,
            inputs_from,
            output_schema,
            continuation,
            policy,
        })))
    }

    pub(super) fn fallback(
        &mut self,
        ix: NodeIx,
        members: Members<'_>,
        place: Place,
    ) -> Option<NodeIx> {
        let value = members.given("fallback")?;
        let pointer = members.pointer("fallback");
        if value.get("fallback").is_some_and(|own| !own.is_null()) {
            let hint = "a fallback has none of its own: use `retry`, or a sequence";
            self.problem(
                at(&pointer, "fallback"),
                "fallback",
                "a fallback has a fallback",
                hint,
            );
        }
        self.node(value, &pointer, place.below(ix, 0))
    }

    fn list(
        &mut self,
        ix: NodeIx,
        members: Members<'_>,
        key: &str,
        place: Place,
    ) -> Option<Vec<NodeIx>> {
        match members.map.get(key) {
            Some(Value::Array(list)) if !list.is_empty() => {
                let pointer = members.pointer(key);
                let nodes = list.iter().enumerate().map(|(index, value)| {
                    self.node(value, &format!("{pointer}/{index}"), place.below(ix, index))
                });
                let nodes: Vec<_> = nodes.collect();
                Some(nodes.into_iter().flatten().collect())
            }
            _ => {
                let message = format!("`{key}` is not a list of nodes with at least one");
                let hint = format!("write {key}: [node, node]");
                self.problem(members.pointer(key), "not_a_list", message, hint);
                None
            }
        }
    }

    fn sequence(&mut self, ix: NodeIx, members: Members<'_>, place: Place) -> Option<Body> {
        self.known(members, &["steps"], false);
        let steps = self.list(ix, members, "steps", place)?;
        Some(Body::Sequence { steps })
    }

    fn fan(&mut self, members: Members<'_>) -> Fan {
        let most = self.whole(members, "max_concurrency", (1, CONCURRENCY_MAX.into()));
        let on_error = self.word(members, "on_error", &["halt", "continue"]);
        Fan {
            max_concurrency: most.map_or(CONCURRENCY_DEFAULT, |most| most as u32),
            halt: on_error != Some(1),
        }
    }

    fn parallel(&mut self, ix: NodeIx, members: Members<'_>, place: Place) -> Option<Body> {
        self.known(members, &["branches", "max_concurrency", "on_error"], false);
        let fan = self.fan(members);
        let branches = self.list(ix, members, "branches", place)?;
        Some(Body::Parallel { branches, fan })
    }

    fn foreach(&mut self, ix: NodeIx, members: Members<'_>, place: Place) -> Option<Body> {
        let own = [
            "as",
            "items",
            "items_from",
            "body",
            "parallel",
            "max_concurrency",
            "on_error",
        ];
        self.known(members, &own, false);
        let var = self.label(members, "as", "name the variable that holds the item");
        if let Some(var) = &var {
            self.variable(members, var);
        }
        let items = self.items(ix, members);
        let parallel = self.flag(members, "parallel").unwrap_or(true);
        let fan = self.fan(members);
        // A placeholder that binds the variable, so that the body's references are judged.
        let body = self.child(members, "body", place.below(ix, 0));
        Some(Body::Foreach {
            var: var.unwrap_or_default(),
            items: items.unwrap_or_else(|| Items::Here(Vec::new())),
            body: body?,
            parallel,
            fan,
        })
    }

    /// A variable must be a name that templates can say.
    fn variable(&mut self, members: Members<'_>, name: &str) {
        let mut chars = name.chars();
        let first = chars
            .next()
            .is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
        let reserved = [
            "loop", "previous", "true", "false", "none", "True", "False", "None",
        ];
        let word = ["and", "or", "not", "in", "is", "if", "else"];
        if !first
            || !chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
            || reserved.contains(&name)
            || word.contains(&name)
        {
            let message = format!("`as` is {name:?}, which templates cannot use as a name");
            let hint = "write letters, digits and _, beginning with a letter, like `item`";
            self.problem(members.pointer("as"), "not_a_name", message, hint);
        }
    }

    fn items(&mut self, ix: NodeIx, members: Members<'_>) -> Option<Items> {
        let from = members.given("items_from");
        let here = members.given("items");
        let hint = "write either `items`: [..] or `items_from`: \"node.key\"";
        match (from, here) {
            (None, None) => {
                let message = "neither `items` nor `items_from` is there";
                self.problem(members.at, "items", message, hint);
            }
            (Some(_), Some(_)) => {
                let message = "both `items` and `items_from` are there";
                self.problem(members.at, "items", message, hint);
            }
            _ => {}
        }
        let from = match from {
            Some(Value::String(text)) if !text.trim().is_empty() => {
                let from = Ref::parse(text);
                self.reads(ix, &from.name, members.pointer("items_from"), UseKind::Ref);
                Some(Items::From(from))
            }
            Some(_) => {
                let message = "`items_from` is not a reference";
                self.problem(members.pointer("items_from"), "not_text", message, hint);
                None
            }
            None => None,
        };
        let here = match here {
            Some(Value::Array(list)) => {
                if list.len() > ITEMS_MAX {
                    let message = format!("`items` has more than {ITEMS_MAX} items");
                    let hint = "split the list over several runs";
                    self.problem(members.pointer("items"), "too_many_items", message, hint);
                }
                Some(Items::Here(list.clone()))
            }
            Some(_) => {
                let message = "`items` is not a list";
                self.problem(members.pointer("items"), "not_a_list", message, hint);
                None
            }
            None => None,
        };
        from.or(here)
    }

    fn branch(&mut self, ix: NodeIx, members: Members<'_>, place: Place) -> Option<Body> {
        self.known(members, &["on", "cases", "default"], false);
        let hint = "name what decides: \"node\" or \"node.key\"";
        let on = self
            .label(members, "on", hint)
            .map(|text| Ref::parse(&text));
        if let Some(on) = &on {
            self.reads(ix, &on.name, members.pointer("on"), UseKind::Ref);
        }
        let empty = Map::new();
        let written = match members.map.get("cases") {
            Some(Value::Object(map)) if !map.is_empty() => map,
            _ => {
                let message = "`cases` is not an object with at least one node";
                let hint = "write cases: {\"yes\": node, \"no\": node}";
                self.problem(members.pointer("cases"), "not_object", message, hint);
                &empty
            }
        };
        let pointer = members.pointer("cases");
        let mut sorted: Vec<_> = written.iter().collect();
        sorted.sort_by_key(|(key, _)| *key);
        let mut cases = Vec::new();
        for (index, (key, value)) in sorted.into_iter().enumerate() {
            let node = self.node(value, &at(&pointer, key), place.below(ix, index));
            cases.extend(node.map(|node| (key.clone(), node)));
        }
        let default = members.given("default");
        let default = default.and_then(|value| {
            let key = written.len();
            self.node(value, &members.pointer("default"), place.below(ix, key))
        });
        Some(Body::Branch {
            on: on?,
            cases,
            default,
        })
    }

    fn repeat(&mut self, ix: NodeIx, members: Members<'_>, place: Place) -> Option<Body> {
        let own = [
            "as",
            "body",
            "until",
            "max_iterations",
            "on_exhausted",
            "continue_nodes",
        ];
        self.known(members, &own, false);
        let var = if members.given("as").is_some() {
            self.label(members, "as", "name the variable that holds the round")
        } else {
            Some("iteration".to_owned())
        };
        if let Some(var) = &var {
            self.variable(members, var);
        }
        if members.given("until").is_none() {
            let hint = "write {\"ref\": \"node.key\", \"op\": \"eq\", \"value\": …}";
            self.problem(members.at, "missing", "`until` is missing", hint);
        }
        let most = self.whole(members, "max_iterations", (1, ITERATIONS_MAX.into()));
        let exhausted = self.word(members, "on_exhausted", &["fail", "continue"]);
        let body = self.child(members, "body", place.below(ix, 0));
        let continued = self.continued(ix, members);
        let until = self.condition(ix, members, "until", UseKind::Until);
        Some(Body::Loop {
            var: var?,
            body: body?,
            until: until?,
            max_iterations: most.map_or(3, |most| most as u32),
            exhausted_ok: exhausted == Some(1),
            continued,
        })
    }

    /// A session cannot both go on and be gone.
    fn goes_on_and_ends(&mut self, pointer: &str) {
        let message = "an `ephemeral` session is gone once its leaf succeeded, and cannot go on";
        let hint = "write `lifecycle`: \"linked\", or leave it out";
        self.problem(pointer, "lifecycle", message, hint);
    }

    /// Agents of a loop's body that go on from round to round.
    fn continued(&mut self, ix: NodeIx, members: Members<'_>) -> Vec<NodeIx> {
        let ids = self.texts(members, "continue_nodes").unwrap_or_default();
        let mut found = Vec::new();
        for (index, id) in ids.iter().enumerate() {
            let inside = (ix + 1..self.nodes.len()).find(|at| {
                let node = &self.nodes[*at];
                node.id.as_ref() == Some(id) && node.scope == self.nodes[ix].scope
            });
            match inside.filter(|at| self.goes_on(*at, ix)) {
                Some(at) => {
                    let agent = &self.nodes[at].body;
                    if matches!(agent, Body::Agent(agent) if agent.spec.is_ephemeral()) {
                        let pointer = format!("{}/{index}", members.pointer("continue_nodes"));
                        self.goes_on_and_ends(&pointer);
                    }
                    found.push(at);
                }
                // It is there, but could not be read: that was told already.
                None if inside.is_none() && self.lost.contains(id) => {}
                None => {
                    let pointer = format!("{}/{index}", members.pointer("continue_nodes"));
                    let message = format!("{id:?} is no agent that this loop repeats by itself");
                    let hint = "name agents of the body that are in no further loop or foreach";
                    self.problem(pointer, "unknown_reference", message, hint);
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Whether a node is an agent, and the next loop or fan-out over a list around it is this one.
    fn goes_on(&self, at: NodeIx, around: NodeIx) -> bool {
        let parent = |at: &NodeIx| self.nodes[*at].parent.map(|(parent, _)| parent);
        let between = std::iter::successors(parent(&at), parent);
        let mut between = between.take_while(|at| *at != around);
        matches!(self.nodes[at].body, Body::Agent(_))
            && between.all(|at| {
                !matches!(
                    self.nodes[at].body,
                    Body::Foreach { .. } | Body::Loop { .. }
                )
            })
    }

    fn workflow(&mut self, ix: NodeIx, members: Members<'_>, place: Place) -> Option<Body> {
        self.known(members, &["spec", "input"], false);
        let input = self.text(members, "input");
        if let Some(input) = &input {
            self.template(ix, input, &members.pointer("input"));
        }
        let Some(Value::Object(map)) = members.map.get("spec") else {
            let hint = "write a whole workflow: {\"name\": …, \"root\": node}";
            self.problem(
                members.pointer("spec"),
                "not_object",
                "`spec` is not an object",
                hint,
            );
            return None;
        };
        let pointer = members.pointer("spec");
        let inner = Members { map, at: &pointer };
        let envelope = Box::new(self.envelope(inner));
        let place = Place {
            scope: Some(ix),
            ..place.below(ix, 0)
        };
        let root = self.child(inner, "root", place);
        Some(Body::Workflow {
            envelope,
            input,
            root: root?,
        })
    }
}
