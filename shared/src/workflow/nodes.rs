//! The kinds of nodes. Each kind has a file here with its part of the language, and a file of the
//! same name in the scheduler's engine with its behaviour in a run.

mod agent;
mod approval;
mod branch;
mod foreach;
mod r#loop;
mod parallel;
mod sequence;
mod tool;
mod wait;
mod workflow;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::schema::Object;
use super::spec::{Binding, NodeIx, Policy, Ref, Spec};
use super::validate::reader::Reader;
use super::validate::tree::NodeAt;
use crate::named::named;

pub use self::agent::{
    Agent, Continuation, LeafAgent, Lifecycle, MAX_ROUNDS_DEFAULT, MAX_ROUNDS_MAX,
    MAX_TOKENS_DEFAULT, MAX_TOKENS_MAX, NamedLeaf,
};
pub use self::approval::Approval;
pub use self::branch::{Branch, is_case};
pub use self::foreach::{Foreach, Items};
pub use self::r#loop::Loop;
pub use self::parallel::{Fan, Parallel};
pub use self::sequence::Sequence;
pub use self::tool::Tool;
pub use self::wait::Wait;
pub use self::workflow::Workflow;

pub(super) use self::agent::{AGENT_SPEC, CONTINUATION, output_schema};

/// Passes the list of kinds to a macro: the name of a kind's files, its type and its name in specs.
///
/// The language and the engine both build their dispatch from this list, so that a kind missing
/// from one of them does not compile.
#[macro_export]
macro_rules! node_kinds {
    ($build:ident) => {
        $build! {
            /// A send in a session of its own.
            agent: Agent = "agent",
            /// Its children in order.
            sequence: Sequence = "sequence",
            /// Its children, concurrently.
            parallel: Parallel = "parallel",
            /// One body for each item of a list.
            foreach: Foreach = "foreach",
            /// One of its children.
            branch: Branch = "branch",
            /// Its body until a condition holds.
            r#loop: Loop = "loop",
            /// A durable pause.
            wait: Wait = "wait",
            /// A person's decision.
            approval: Approval = "approval",
            /// A tool call without a model.
            tool: Tool = "tool",
            /// Another workflow in its own scope.
            workflow: Workflow = "workflow",
        }
    };
}

/// What the language requires of a kind of node.
pub(super) trait Node {
    /// Its members, from which its JSON Schema, the list of known members and the hints are derived.
    fn object() -> Object
    where
        Self: Sized;

    /// Reads its own members. Reports every fault, and returns `None` if it cannot continue.
    fn read(reader: &mut Reader<'_>, at: NodeAt<'_>) -> Option<Self>
    where
        Self: Sized;

    /// Writes its own members in canonical form: reading them gives an equal node.
    fn write(&self, spec: &Spec, out: &mut Map<String, Value>);

    /// Its leaf policy; `None` for a node that starts no send.
    fn policy(&self) -> Option<&Policy> {
        None
    }

    /// Its children in order.
    fn children(&self) -> Vec<NodeIx> {
        let fallback = self.policy().and_then(|policy| policy.fallback);
        fallback.into_iter().collect()
    }

    /// Whether references to its id give its result.
    fn has_result(&self) -> bool {
        true
    }

    /// Whether nodes outside cannot refer to nodes below it.
    fn hides_children(&self) -> bool {
        true
    }

    /// Whether each child settles before the next one is entered.
    fn is_ordered(&self) -> bool {
        false
    }

    /// Whether a child may run several times, as items or iterations.
    fn repeats(&self) -> bool {
        false
    }

    /// What this node, at `ix`, binds a name to for the nodes below it, if it binds it.
    fn binding(&self, _ix: NodeIx, _name: &str) -> Option<Binding> {
        None
    }

    /// The names that its templates and references read.
    fn names_read(&self) -> Vec<String> {
        Vec::new()
    }

    /// The value that decides which child runs.
    fn decided_by(&self) -> Option<&Ref> {
        None
    }

    /// The number of leaves at and below it that every run has, as far as the spec alone tells.
    fn leaves(&self, spec: &Spec) -> u64 {
        match self.policy() {
            Some(_) => 1,
            None => self.children().into_iter().map(|ix| spec.leaves(ix)).sum(),
        }
    }

    /// The maximum sum of declared token budgets at and below it.
    fn declared(&self, spec: &Spec) -> u64 {
        let children = self.children().into_iter().map(|ix| spec.declared(ix));
        children.fold(0, u64::saturating_add)
    }
}

macro_rules! language {
    ($($(#[$doc:meta])* $file:ident: $Kind:ident = $name:literal,)*) => {
        named! {
            /// What a node does.
            NodeKind { $($(#[$doc])* $Kind = $name,)* }
        }

        /// What a node does, with the members of its kind.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Body {
            $($(#[$doc])* $Kind(Box<$Kind>),)*
        }

        impl Body {
            /// Its kind.
            pub const fn kind(&self) -> NodeKind {
                match self { $(Self::$Kind(_) => NodeKind::$Kind,)* }
            }

            pub(super) fn node(&self) -> &dyn Node {
                match self { $(Self::$Kind(node) => node.as_ref(),)* }
            }
        }

        impl NodeKind {
            pub(super) fn read(self, reader: &mut Reader<'_>, at: NodeAt<'_>) -> Option<Body> {
                match self {
                    $(Self::$Kind => $Kind::read(reader, at).map(|node| Body::$Kind(Box::new(node))),)*
                }
            }

            fn declare(self) -> Object {
                match self { $(Self::$Kind => $Kind::object().node(self),)* }
            }
        }
    };
}

node_kinds!(language);

impl NodeKind {
    /// The members of a node of this kind.
    pub(super) fn object(self) -> &'static Object {
        static OBJECTS: LazyLock<BTreeMap<NodeKind, Object>> = LazyLock::new(|| {
            let kinds = NodeKind::ALL.iter();
            kinds.map(|kind| (*kind, kind.declare())).collect()
        });
        &OBJECTS[&self]
    }
}

impl Body {
    /// Its policy, if it is a leaf.
    pub fn policy(&self) -> Option<&Policy> {
        self.node().policy()
    }

    /// Its children, in order.
    pub fn children(&self) -> Vec<NodeIx> {
        self.node().children()
    }

    /// Whether references to its id give its result.
    pub fn is_referenceable(&self) -> bool {
        self.node().has_result()
    }
}
