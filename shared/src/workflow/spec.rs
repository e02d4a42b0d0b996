//! A validated workflow: a tree of nodes, stored in one list.
//!
//! Only the validator creates a [`Spec`], so it is known to follow the rules: references resolve,
//! ids are unique in their scope, the tree is bounded.

mod condition;
mod envelope;
mod policy;
mod scope;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::nodes::{Agent, Body};
use super::template::free_names;
use crate::agent::AgentQuery;
use crate::time::Span;
use crate::tool::pool_of;

pub use self::condition::{Condition, Op, Ref, text_of};
pub use self::envelope::{Budget, Envelope};
pub use self::policy::{Policy, Retry, RetryOn};
pub use self::scope::{Binding, Unresolved};

pub(super) use self::condition::{CONDITION, CONDITION_HINT};
pub(super) use self::envelope::ENVELOPE;
pub(super) use self::policy::RETRY;

/// Maximum nesting of nodes.
pub const DEPTH_MAX: usize = 64;
/// Maximum nesting of a spec as JSON. Every parser involved accepts this much, including the
/// request around it.
pub const JSON_DEPTH_MAX: usize = 112;
/// Maximum bytes of a spec as JSON.
pub const BYTES_MAX: usize = 1 << 20;
/// Maximum number of nodes of a spec.
pub const NODES_MAX: usize = 2_000;
/// Largest number of children in flight that a node may ask for.
pub const CONCURRENCY_MAX: u32 = 64;
/// Maximum number of items of a fan-out.
pub const ITEMS_MAX: usize = 4_096;
/// Maximum number of leaves of a run.
pub const LEAVES_MAX: u64 = 10_000;
/// Maximum number of iterations of a loop.
pub const ITERATIONS_MAX: u32 = 100;
/// Default maximum number of children in flight.
pub const CONCURRENCY_DEFAULT: u32 = 5;

/// The longest time that a run, a leaf or a wait may take.
pub(super) const TIME_MAX: Span = Span(Duration::from_hours(366 * 24));

/// A node's index in the list of its spec.
pub type NodeIx = usize;

/// A validated workflow.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// Everything except the tree.
    pub envelope: Envelope,
    /// The root's index.
    pub root: NodeIx,
    pub(super) nodes: Vec<Node>,
    /// Ids by the nested workflow that they are in.
    pub(super) ids: BTreeMap<(Option<NodeIx>, String), NodeIx>,
}

/// One node.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Its name for references.
    pub id: Option<String>,
    /// The node is skipped unless this holds.
    pub when: Option<Condition>,
    /// What it does.
    pub body: Body,
    /// Its parent, and its index among the parent's children.
    pub parent: Option<(NodeIx, u32)>,
    /// The nested workflow that it is in.
    pub scope: Option<NodeIx>,
}

impl Spec {
    /// The node at an index.
    pub fn node(&self, ix: NodeIx) -> &Node {
        &self.nodes[ix]
    }

    /// The published agents that its leaves name.
    pub fn agents(&self) -> BTreeSet<AgentQuery> {
        let named = self.agent_nodes().filter_map(|agent| agent.named.as_ref());
        named.map(|leaf| leaf.agent.clone()).collect()
    }

    /// Whether it defines an agent itself, or calls a tool that no published agent chose to have.
    pub fn defines(&self) -> bool {
        self.nodes.iter().any(|node| match &node.body {
            Body::Agent(agent) => agent.named.is_none(),
            Body::Tool(_) => true,
            Body::Sequence(_)
            | Body::Parallel(_)
            | Body::Foreach(_)
            | Body::Loop(_)
            | Body::Branch(_)
            | Body::Wait(_)
            | Body::Approval(_)
            | Body::Workflow(_) => false,
        })
    }

    /// The pools that its leaves ask for, except those of published agents. `None` stands for a
    /// leaf that asks for none, such as a tool or an approval, which runs where the run does.
    pub fn pools(&self) -> BTreeSet<Option<&str>> {
        let pools = self.nodes.iter().filter_map(|node| match &node.body {
            Body::Agent(agent) if agent.named.is_some() => None,
            Body::Agent(agent) => {
                let tools = agent.spec.tools.as_deref().unwrap_or_default();
                Some(agent.spec.pool.as_deref().or_else(|| pool_of(tools)))
            }
            Body::Approval(_) | Body::Tool(_) => Some(None),
            Body::Sequence(_)
            | Body::Parallel(_)
            | Body::Foreach(_)
            | Body::Loop(_)
            | Body::Branch(_)
            | Body::Wait(_)
            | Body::Workflow(_) => None,
        });
        pools.collect()
    }

    /// The nodes that are agents.
    pub(super) fn agent_nodes(&self) -> impl Iterator<Item = &Agent> {
        self.nodes.iter().filter_map(|node| match &node.body {
            Body::Agent(agent) => Some(&**agent),
            Body::Sequence(_)
            | Body::Parallel(_)
            | Body::Foreach(_)
            | Body::Loop(_)
            | Body::Branch(_)
            | Body::Wait(_)
            | Body::Approval(_)
            | Body::Tool(_)
            | Body::Workflow(_) => None,
        })
    }

    /// Every node, parents before their children.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The canonical form that is stored with a run; reading it gives an equal spec.
    pub fn to_value(&self) -> Value {
        self.envelope.write(self.write(self.root))
    }

    pub(super) fn write(&self, ix: NodeIx) -> Value {
        let node = &self.nodes[ix];
        let mut out = Map::new();
        out.insert("type".into(), json!(node.body.kind().as_str()));
        if let Some(id) = &node.id {
            out.insert("id".into(), json!(id));
        }
        if let Some(when) = &node.when {
            out.insert("when".into(), when.write());
        }
        node.body.node().write(self, &mut out);
        if let Some(policy) = node.body.policy() {
            policy.write(self, &mut out);
        }
        Value::Object(out)
    }

    pub(super) fn write_all(&self, nodes: &[NodeIx]) -> Value {
        nodes.iter().map(|ix| self.write(*ix)).collect()
    }
}

/// The names that a template reads; empty if it cannot be parsed, which the validator reports.
pub(super) fn names_in(template: &str) -> Vec<String> {
    free_names(template).unwrap_or_default()
}
