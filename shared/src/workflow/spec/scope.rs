//! What a name means at a place of the tree.

use super::{Body, NodeIx, Spec};

/// What a name is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// The input of the run, or of the nested workflow at this place.
    Input(Option<NodeIx>),
    /// The item of this fan-out.
    Item(NodeIx),
    /// The item's place in this fan-out, from 0.
    Index(NodeIx),
    /// The round of this loop, from 1.
    Round(NodeIx),
    /// What the body of this loop gave in the round before.
    Previous(NodeIx),
    /// The result of this node.
    Node(NodeIx),
}

/// Why a name means nothing at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unresolved {
    /// Nothing has this name.
    Unknown,
    /// It is inside the body of a fan-out, a loop or a fallback.
    Inside,
    /// Nodes of its kind have no result of their own.
    NoResult,
    /// It has not settled when this place is reached.
    NotBefore,
}

impl Spec {
    /// What `name` means to the node `at`.
    pub fn resolve(&self, at: NodeIx, name: &str) -> Result<Binding, Unresolved> {
        if let Some(variable) = self.variable(at, name) {
            return Ok(variable);
        }
        let target = self.target(at, name)?;
        self.before(at, target)
    }

    /// What `name` means to the condition that ends the loop `at`: its body's nodes count too.
    pub fn resolve_until(&self, at: NodeIx, name: &str) -> Result<Binding, Unresolved> {
        if let Body::Loop { body, .. } = &self.nodes[at].body {
            if let Some(variable) = self.variable(*body, name) {
                return Ok(variable);
            }
            let target = self.target(at, name)?;
            if self.exported(target, at) {
                return Ok(Binding::Node(target));
            }
        }
        self.resolve(at, name)
    }

    /// Every id in the scope of `at` that has a result, for hints.
    pub fn known(&self, at: NodeIx) -> Vec<&str> {
        let scope = self.nodes[at].scope;
        let ids = self.ids.iter().filter(|((of, _), _)| *of == scope);
        ids.filter(|(_, ix)| self.resolve_node(at, **ix).is_ok())
            .map(|((_, id), _)| id.as_str())
            .collect()
    }

    fn resolve_node(&self, at: NodeIx, target: NodeIx) -> Result<Binding, Unresolved> {
        if self.nodes[target].body.is_referenceable() {
            self.before(at, target)
        } else {
            Err(Unresolved::NoResult)
        }
    }

    fn target(&self, at: NodeIx, name: &str) -> Result<NodeIx, Unresolved> {
        let key = (self.nodes[at].scope, name.to_owned());
        let target = *self.ids.get(&key).ok_or(Unresolved::Unknown)?;
        if self.nodes[target].body.is_referenceable() {
            Ok(target)
        } else {
            Err(Unresolved::NoResult)
        }
    }

    /// The innermost variable with this name around a node.
    fn variable(&self, at: NodeIx, name: &str) -> Option<Binding> {
        let mut place = at;
        while let Some((parent, _)) = self.nodes[place].parent {
            match &self.nodes[parent].body {
                Body::Foreach { var, .. } => {
                    if var == name {
                        return Some(Binding::Item(parent));
                    }
                    if name.strip_suffix("_index") == Some(var) {
                        return Some(Binding::Index(parent));
                    }
                }
                Body::Loop { var, .. } => {
                    if var == name {
                        return Some(Binding::Round(parent));
                    }
                    if name == "previous" {
                        return Some(Binding::Previous(parent));
                    }
                }
                Body::Workflow { .. } => {
                    return (name == "input").then_some(Binding::Input(Some(parent)));
                }
                Body::Agent(_)
                | Body::Sequence { .. }
                | Body::Parallel { .. }
                | Body::Branch { .. }
                | Body::Wait(_)
                | Body::Approval { .. }
                | Body::Tool { .. } => {}
            }
            place = parent;
        }
        (name == "input").then_some(Binding::Input(None))
    }

    /// Whether `target` has settled, in the same iteration, whenever `at` is reached.
    fn before(&self, at: NodeIx, target: NodeIx) -> Result<Binding, Unresolved> {
        let above: Vec<(NodeIx, u32)> = self.ancestors(at).collect();
        let mut place = target;
        let mut inside = false;
        while let Some((parent, key)) = self.nodes[place].parent {
            if let Some((_, own)) = above.iter().find(|(ix, _)| *ix == parent) {
                if inside {
                    return Err(Unresolved::Inside);
                }
                let ordered = matches!(self.nodes[parent].body, Body::Sequence { .. });
                return if ordered && key < *own {
                    Ok(Binding::Node(target))
                } else {
                    Err(Unresolved::NotBefore)
                };
            }
            inside |= self.nodes[parent].body.hides();
            place = parent;
        }
        // The target is the node itself or stands around it.
        Err(Unresolved::NotBefore)
    }

    /// Whether `target` is below `above` and can be seen from there.
    fn exported(&self, target: NodeIx, above: NodeIx) -> bool {
        let mut place = target;
        while let Some((parent, _)) = self.nodes[place].parent {
            if parent == above {
                return true;
            }
            if self.nodes[parent].body.hides() {
                return false;
            }
            place = parent;
        }
        false
    }

    /// The nodes around one, the nearest first, each with the place of the child that leads to it.
    pub fn ancestors(&self, at: NodeIx) -> impl Iterator<Item = (NodeIx, u32)> + '_ {
        std::iter::successors(self.nodes[at].parent, |(ix, _)| self.nodes[*ix].parent)
    }
}

impl Body {
    /// Whether what is below it cannot be seen from outside.
    const fn hides(&self) -> bool {
        match self {
            Self::Foreach { .. }
            | Self::Loop { .. }
            | Self::Workflow { .. }
            | Self::Agent(_)
            | Self::Approval { .. }
            | Self::Tool { .. } => true,
            Self::Sequence { .. } | Self::Parallel { .. } | Self::Branch { .. } | Self::Wait(_) => {
                false
            }
        }
    }
}
