//! The meaning of names at a node of the tree.

use super::{NodeIx, Spec};
use crate::error::{Code, Failure};
use crate::tool::{pool_fault, pool_of};
use crate::workflow::nodes::Body;
use crate::workflow::run::RunOptions;

/// What a name is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// The input of the run, or of this nested workflow.
    Input(Option<NodeIx>),
    /// The item of this fan-out.
    Item(NodeIx),
    /// The item's index in this fan-out, from 0.
    Index(NodeIx),
    /// The iteration of this loop, from 1.
    Round(NodeIx),
    /// The result of this loop's body in the previous iteration.
    Previous(NodeIx),
    /// The result of this node.
    Node(NodeIx),
}

/// Why a name cannot be resolved at a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unresolved {
    /// Nothing has this name.
    Unknown,
    /// The node is inside the body of a fan-out, a loop or a fallback.
    Inside,
    /// Nodes of its kind have no result of their own.
    NoResult,
    /// The node may not have settled when this node is entered.
    NotBefore,
}

impl Spec {
    /// What `name` refers to at the node `at`.
    pub fn resolve(&self, at: NodeIx, name: &str) -> Result<Binding, Unresolved> {
        if let Some(variable) = self.variable(at, name) {
            return Ok(variable);
        }
        let target = self.target(at, name)?;
        self.before(at, target)
    }

    /// What `name` refers to in the condition that ends the loop `at`, which can also see the
    /// body's nodes.
    pub fn resolve_until(&self, at: NodeIx, name: &str) -> Result<Binding, Unresolved> {
        if let Body::Loop(node) = &self.nodes[at].body {
            if let Some(variable) = self.variable(node.body, name) {
                return Ok(variable);
            }
            let target = self.target(at, name)?;
            if self.exported(target, at) {
                return Ok(Binding::Node(target));
            }
        }
        self.resolve(at, name)
    }

    /// Every id that can be referenced at `at`, for hints.
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
        for (above, _) in self.ancestors(at) {
            let body = &self.nodes[above].body;
            let found = body.node().binding(above, name);
            if found.is_some() || matches!(body, Body::Workflow(_)) {
                return found;
            }
        }
        (name == "input").then_some(Binding::Input(None))
    }

    /// Whether `target` has settled, in the same iteration, whenever `at` is entered.
    fn before(&self, at: NodeIx, target: NodeIx) -> Result<Binding, Unresolved> {
        let above: Vec<(NodeIx, u32)> = self.ancestors(at).collect();
        let mut place = target;
        let mut inside = false;
        while let Some((parent, key)) = self.nodes[place].parent {
            if let Some((_, own)) = above.iter().find(|(ix, _)| *ix == parent) {
                if inside {
                    return Err(Unresolved::Inside);
                }
                let ordered = self.nodes[parent].body.node().is_ordered();
                return if ordered && key < *own {
                    Ok(Binding::Node(target))
                } else {
                    Err(Unresolved::NotBefore)
                };
            }
            inside |= self.nodes[parent].body.node().hides_children();
            place = parent;
        }
        // The target is the node itself or an ancestor.
        Err(Unresolved::NotBefore)
    }

    /// Whether `target` is below `above` and visible from there.
    fn exported(&self, target: NodeIx, above: NodeIx) -> bool {
        let mut place = target;
        while let Some((parent, _)) = self.nodes[place].parent {
            if parent == above {
                return true;
            }
            if self.nodes[parent].body.node().hides_children() {
                return false;
            }
            place = parent;
        }
        false
    }

    /// The ancestors of a node, innermost first, each with the index of the child that leads to the node.
    pub fn ancestors(&self, at: NodeIx) -> impl Iterator<Item = (NodeIx, u32)> + '_ {
        std::iter::successors(self.nodes[at].parent, |(ix, _)| self.nodes[*ix].parent)
    }
}

impl Spec {
    /// The names that a node itself reads: in its templates, references and conditions.
    pub fn names_read(&self, at: NodeIx) -> Vec<String> {
        let node = &self.nodes[at];
        let when = node.when.iter().map(|when| when.on.name.clone());
        when.chain(node.body.node().names_read()).collect()
    }

    /// Whether a branch or a condition reads this member of a node's value. The member then chooses
    /// what runs next, and a refusal in it is not a failure.
    pub fn decides(&self, target: NodeIx, key: &str) -> bool {
        self.nodes.iter().enumerate().any(|(at, node)| {
            let own = node.body.node().decided_by();
            let own = own.map(|on| (on, self.resolve_until(at, &on.name)));
            let when = node.when.as_ref().map(|when| &when.on);
            let when = when.map(|on| (on, self.resolve(at, &on.name)));
            own.into_iter().chain(when).any(|(on, binding)| {
                on.key.as_deref() == Some(key) && binding == Ok(Binding::Node(target))
            })
        })
    }

    /// The number of leaves at and below a node that every run has, as far as the spec alone tells.
    pub fn leaves(&self, at: NodeIx) -> u64 {
        self.nodes[at].body.node().leaves(self)
    }

    /// The maximum sum of the declared token budgets of all leaves, counting every attempt, as far
    /// as it is known before the run. A list that is computed later counts as one item.
    pub fn declared_tokens(&self) -> u64 {
        self.declared(self.root)
    }

    /// Checks that a run with these options can pay for its declared budgets and has the workers
    /// that it needs.
    pub fn admitted(&self, options: &RunOptions) -> Result<(), Failure> {
        if let Some(pool) = options.pool.as_deref() {
            self.fits_pool(pool)?;
        }
        let declared = self.declared_tokens();
        let own = self.envelope.budget.map(|budget| budget.max_tokens);
        let set_aside = options
            .starter
            .as_ref()
            .and_then(|starter| starter.caps().tokens);
        let given = options.max_tokens.into_iter().chain(set_aside);
        let limit = own.into_iter().chain(given).min();
        match limit.filter(|limit| declared > *limit) {
            None => Ok(()),
            Some(limit) => Err(Failure::new(
                Code::BudgetExceeded,
                format!("the nodes declare {declared} tokens in all, the run has {limit}"),
            )),
        }
    }

    fn fits_pool(&self, pool: &str) -> Result<(), Failure> {
        let invalid = |text: String| Err(Failure::new(Code::SpecInvalid, text));
        if let Some(fault) = pool_fault(pool, &[]) {
            return invalid(format!("the pool of the run {fault}"));
        }
        for node in &self.nodes {
            let Body::Agent(agent) = &node.body else {
                continue;
            };
            let tools = agent.spec.tools.as_deref().unwrap_or_default();
            let wanted = agent.spec.pool.as_deref().or_else(|| pool_of(tools));
            if let Some(wanted) = wanted.filter(|wanted| *wanted != pool) {
                let name = &agent.spec.name;
                return invalid(format!(
                    "the agent {name:?} requires the pool {wanted}, and the run the pool {pool}"
                ));
            }
        }
        Ok(())
    }

    pub(in crate::workflow) fn declared(&self, at: NodeIx) -> u64 {
        self.nodes[at].body.node().declared(self)
    }
}
