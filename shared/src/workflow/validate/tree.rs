//! Builds the tree of nodes.

use serde_json::Value;

use super::reader::{Members, Reader, UseKind};
use crate::words::nearest;
use crate::workflow::nodes::{Body, NodeKind, Sequence};
use crate::workflow::spec::{
    Condition, DEPTH_MAX, ENVELOPE, Envelope, NODES_MAX, Node, NodeIx, Spec,
};

/// Where a node belongs in the tree.
#[derive(Clone, Copy)]
pub(crate) struct TreePosition {
    parent: Option<(NodeIx, u32)>,
    scope: Option<NodeIx>,
    depth: usize,
}

/// The node that is being read.
#[derive(Clone, Copy)]
pub(crate) struct NodeAt<'v> {
    pub(crate) ix: NodeIx,
    pub(crate) members: Members<'v>,
    place: TreePosition,
}

impl NodeAt<'_> {
    /// The place of a child.
    pub(crate) fn below(&self, key: usize) -> TreePosition {
        TreePosition {
            parent: Some((self.ix, key as u32)),
            scope: self.place.scope,
            depth: self.place.depth + 1,
        }
    }

    /// The place of the root of a nested workflow.
    pub(crate) fn inside(&self) -> TreePosition {
        TreePosition {
            scope: Some(self.ix),
            ..self.below(0)
        }
    }
}

impl Reader<'_> {
    /// Reads the whole spec.
    pub(super) fn spec(&mut self, value: &Value) -> Option<Spec> {
        let Value::Object(map) = value else {
            let hint = "write an object with `name` and `root`";
            self.problem("", "not_object", "the spec is not an object", hint);
            return None;
        };
        let members = Members::new(map, "", &ENVELOPE);
        let envelope = Envelope::read(self, members);
        let place = TreePosition {
            parent: None,
            scope: None,
            depth: 1,
        };
        let root = self.root(members, place);
        if self.nodes.len() > NODES_MAX {
            let message = format!("the spec has more than {NODES_MAX} nodes");
            let hint = "use `foreach` over a list in place of written-out copies";
            self.problem("/root", "too_many_nodes", message, hint);
        }
        self.duplicates();
        let ids = self.ids.iter();
        let ids = ids.map(|(key, places)| (key.clone(), places[0].0));
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

    /// Reads the root of a workflow.
    pub(crate) fn root(&mut self, members: Members<'_>, place: TreePosition) -> Option<NodeIx> {
        let Some(value) = members.map.get("root") else {
            self.missing(members, "root");
            return None;
        };
        self.node(value, &members.pointer("root"), place)
    }

    /// Reads the only child of a node.
    pub(crate) fn child(&mut self, at: NodeAt<'_>, key: &str) -> Option<NodeIx> {
        let Some(value) = at.members.map.get(key) else {
            self.missing(at.members, key);
            return None;
        };
        self.node(value, &at.members.pointer(key), at.below(0))
    }

    /// Reads a list of children, at least one.
    pub(crate) fn nodes_of(&mut self, at: NodeAt<'_>, key: &str) -> Option<Vec<NodeIx>> {
        let pointer = at.members.pointer(key);
        match at.members.map.get(key) {
            Some(Value::Array(list)) if !list.is_empty() => {
                let nodes = list.iter().enumerate().map(|(index, value)| {
                    self.node(value, &format!("{pointer}/{index}"), at.below(index))
                });
                let nodes: Vec<_> = nodes.collect();
                Some(nodes.into_iter().flatten().collect())
            }
            _ => {
                let message = format!("`{key}` is not a list of nodes with at least one");
                let hint = format!("write {key}: [node, node]");
                self.problem(pointer, "not_a_list", message, hint);
                None
            }
        }
    }

    /// Reads a node and everything below it.
    pub(crate) fn node(
        &mut self,
        value: &Value,
        pointer: &str,
        place: TreePosition,
    ) -> Option<NodeIx> {
        if place.depth > DEPTH_MAX {
            let message = format!("the tree is deeper than {DEPTH_MAX} levels");
            let hint = "flatten sequences of sequences";
            self.problem(pointer, "too_deep", message, hint);
            return None;
        }
        // One node beyond the limit is enough to report that there are too many.
        if self.nodes.len() > NODES_MAX {
            return None;
        }
        let Value::Object(map) = value else {
            let hint = "write an object with a `type`";
            self.problem(pointer, "not_object", "this node is not an object", hint);
            return None;
        };
        let written = map.get("type").and_then(Value::as_str);
        let Some(kind) = written.and_then(NodeKind::parse) else {
            if let Some(Value::String(id)) = map.get("id") {
                self.lost.insert(id.clone());
            }
            self.wrong_kind(map.get("type"), pointer);
            return None;
        };
        let members = Members::new(map, pointer, kind.object());
        let ix = self.nodes.len();
        self.nodes.push(Node {
            id: None,
            when: None,
            body: Body::Sequence(Box::new(Sequence { steps: Vec::new() })),
            parent: place.parent,
            scope: place.scope,
        });
        let at = NodeAt { ix, members, place };
        let id = self.id(at);
        let when = Condition::read(self, at, "when", UseKind::Ref);
        self.nodes[ix].id.clone_from(&id);
        self.nodes[ix].when = when;
        self.only(members);
        if let Some(body) = kind.read(self, at) {
            self.nodes[ix].body = body;
        } else if let Some(id) = id {
            self.lost.insert(id);
        }
        Some(ix)
    }

    fn wrong_kind(&mut self, written: Option<&Value>, pointer: &str) {
        let kinds = NodeKind::ALL.iter().map(|kind| kind.as_str());
        let known = kinds.clone().collect::<Vec<_>>().join(", ");
        let Some(written) = written else {
            let hint = format!("write one of {known}");
            self.problem(pointer, "missing", "`type` is missing", hint);
            return;
        };
        let near = written.as_str().and_then(|kind| nearest(kind, kinds));
        let hint = match near {
            Some(near) => format!("write {near:?}"),
            None => format!("write one of {known}"),
        };
        let shown: String = written.to_string().chars().take(80).collect();
        let message = format!("unknown node type {shown}");
        self.problem(format!("{pointer}/type"), "unknown_type", message, hint);
    }

    /// Reads the node's id and records it for references.
    fn id(&mut self, at: NodeAt<'_>) -> Option<String> {
        if !at.members.requires("id") && at.members.given("id").is_none() {
            return None;
        }
        let id = self.label(at.members, "id")?;
        let nodes = self.ids.entry((at.place.scope, id.clone())).or_default();
        nodes.push((at.ix, at.members.pointer("id")));
        Some(id)
    }

    /// Reports duplicate ids.
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
}
