//! A workflow as it was checked: a tree of nodes, kept in one list.
//!
//! Only the validator makes one, so whatever holds a [`Spec`] may rely on its rules: references
//! resolve, ids are unique in their scope, the tree is bounded.

mod agent;
mod emit;
mod scope;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::run::NodeKind;
use crate::time::{Span, Timestamp};

pub use self::agent::{
    LeafAgent, Lifecycle, MAX_ROUNDS_DEFAULT, MAX_ROUNDS_MAX, MAX_TOKENS_DEFAULT, MAX_TOKENS_MAX,
};
pub use self::scope::{Binding, Unresolved};

/// Levels of nodes below one another.
pub const DEPTH_MAX: usize = 64;
/// Levels of a spec as JSON: what every parser on the way takes, with what stands around a spec.
pub const JSON_DEPTH_MAX: usize = 112;
/// Bytes of a spec as JSON.
pub const BYTES_MAX: usize = 1 << 20;
/// Nodes of a spec.
pub const NODES_MAX: usize = 2_000;
/// Children of one node that are under way at once.
pub const CONCURRENCY_MAX: u32 = 64;
/// Items of one fan-out.
pub const ITEMS_MAX: usize = 4_096;
/// Leaves of one run.
pub const LEAVES_MAX: u64 = 10_000;
/// Rounds of one loop.
pub const ITERATIONS_MAX: u32 = 100;
/// Children under way at once unless the node says otherwise.
pub const CONCURRENCY_DEFAULT: u32 = 5;

/// A node's place in its spec.
pub type NodeIx = usize;

/// A workflow that may run.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// What stands around the tree.
    pub envelope: Envelope,
    /// The root's place.
    pub root: NodeIx,
    pub(super) nodes: Vec<Node>,
    /// Ids by the nested workflow that they are in.
    pub(super) ids: BTreeMap<(Option<NodeIx>, String), NodeIx>,
}

/// What stands around a tree.
#[derive(Debug, Clone, PartialEq)]
pub struct Envelope {
    /// For people and lists.
    pub name: String,
    /// The value of `input` unless the starter gives one.
    pub input: String,
    /// What all leaves together may use.
    pub budget: Option<Budget>,
    /// Carried along.
    pub metadata: Map<String, Value>,
    /// How long the whole may take.
    pub timeout: Option<Span>,
}

/// What all leaves of a tree together may use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budget {
    /// Tokens, read and written.
    pub max_tokens: u64,
    /// The part that is never given out, in percent.
    pub stop_at_remaining_pct: f64,
}

/// One node.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Its name for references.
    pub id: Option<String>,
    /// It is skipped unless this holds.
    pub when: Option<Condition>,
    /// What it does.
    pub body: Body,
    /// Its parent, and its place among the parent's children.
    pub parent: Option<(NodeIx, u32)>,
    /// The nested workflow that it is in.
    pub scope: Option<NodeIx>,
}

/// What a node does.
#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    /// A send in a session of its own.
    Agent(Box<Agent>),
    /// Its children in order.
    Sequence {
        /// At least one.
        steps: Vec<NodeIx>,
    },
    /// Its children at once.
    Parallel {
        /// At least one.
        branches: Vec<NodeIx>,
        /// How.
        fan: Fan,
    },
    /// One body over a list.
    Foreach {
        /// The variable that holds the item.
        var: String,
        /// The list.
        items: Items,
        /// What is done for each.
        body: NodeIx,
        /// Whether more than one is under way.
        parallel: bool,
        /// How.
        fan: Fan,
    },
    /// One of its children.
    Branch {
        /// The value that decides.
        on: Ref,
        /// By the text of the value, in order.
        cases: Vec<(String, NodeIx)>,
        /// Where no case fits.
        default: Option<NodeIx>,
    },
    /// Its body until a condition holds.
    Loop {
        /// The variable that holds the round, from 1.
        var: String,
        /// What is repeated.
        body: NodeIx,
        /// Looked at after each round.
        until: Condition,
        /// At most so often.
        max_iterations: u32,
        /// Whether the last round stands though the condition does not hold.
        exhausted_ok: bool,
        /// Agents of the body that go on in the session of the round before.
        continued: Vec<NodeIx>,
    },
    /// A durable pause.
    Wait(Pause),
    /// A person's decision.
    Approval {
        /// The question, a template.
        message: String,
        /// What else holds for it.
        policy: Policy,
    },
    /// A tool call without a model.
    Tool {
        /// Its name.
        tool: String,
        /// What it is called with; texts are templates.
        arguments: Map<String, Value>,
        /// What else holds for it.
        policy: Policy,
    },
    /// Another workflow in its own scope.
    Workflow {
        /// What stands around it.
        envelope: Box<Envelope>,
        /// Its input, a template; the envelope's when absent.
        input: Option<String>,
        /// Its root.
        root: NodeIx,
    },
}

/// A leaf that asks a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Agent {
    /// Who.
    pub spec: LeafAgent,
    /// What it is told, a template.
    pub input: String,
    /// Nodes whose texts are put behind that.
    pub inputs_from: Vec<String>,
    /// The shape of its answer; goes before the one of `spec`.
    pub output_schema: Option<Value>,
    /// Whether it goes on when its rounds are used up.
    pub continuation: Option<Continuation>,
    /// What else holds for it.
    pub policy: Policy,
}

/// Further sends in the same session, after one that used up its rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Continuation {
    /// At most so many in one session.
    pub max: u32,
    /// The rounds of each.
    pub extra_rounds: u32,
    /// Only while its list of things to do has open ones.
    pub needs_todo: bool,
}

/// How children run at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fan {
    /// At most so many.
    pub max_concurrency: u32,
    /// Whether a failed child ends the others.
    pub halt: bool,
}

/// The list of a fan-out.
#[derive(Debug, Clone, PartialEq)]
pub enum Items {
    /// Written down.
    Here(Vec<Value>),
    /// Made by another node.
    From(Ref),
}

/// How long a pause lasts.
#[derive(Debug, Clone, PartialEq)]
pub enum Pause {
    /// From when it is reached.
    For(Span),
    /// Until then.
    At(Timestamp),
    /// Until the time that this template gives.
    Until(String),
}

/// What holds for a leaf besides what it does.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Policy {
    /// Further attempts.
    pub retry: Option<Retry>,
    /// How long one attempt may take.
    pub timeout: Option<Span>,
    /// What runs instead when it failed.
    pub fallback: Option<NodeIx>,
    /// Its failure does not fail what is around it.
    pub continue_on_error: bool,
}

/// Further attempts of a leaf.
#[derive(Debug, Clone, PartialEq)]
pub struct Retry {
    /// All attempts, the first included.
    pub max_attempts: u32,
    /// After which ends.
    pub on: Vec<RetryOn>,
    /// The pause before the second attempt.
    pub backoff: Span,
    /// What each further pause is longer by.
    pub backoff_factor: f64,
}

/// Ends of a leaf that another attempt may follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RetryOn {
    /// It failed.
    Failed,
    /// It said nothing.
    Empty,
    /// It used up its rounds.
    RoundLimit,
}

impl RetryOn {
    /// Every end.
    pub const ALL: [Self; 3] = [Self::Failed, Self::Empty, Self::RoundLimit];

    /// The word in a spec.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Empty => "empty",
            Self::RoundLimit => "hit_round_limit",
        }
    }
}

/// A value of another node or of a variable: `name`, or `name.key`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ref {
    /// A node's id or a variable.
    pub name: String,
    /// A member of its value, looked up as it is.
    pub key: Option<String>,
}

impl Ref {
    /// Reads a reference: the name ends at the first dot.
    pub fn parse(text: &str) -> Self {
        match text.split_once('.') {
            Some((name, key)) => Self {
                name: name.to_owned(),
                key: Some(key.to_owned()),
            },
            None => Self {
                name: text.to_owned(),
                key: None,
            },
        }
    }
}

impl std::fmt::Display for Ref {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.key {
            Some(key) => write!(f, "{}.{key}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// Something that holds or does not.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// The value that is looked at.
    pub on: Ref,
    /// How.
    pub op: Op,
    /// What it is compared with.
    pub value: Value,
}

/// How a condition looks at a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// It equals the other.
    Eq,
    /// It does not.
    Ne,
    /// It is one of a list.
    In,
    /// It is neither empty, false nor zero.
    Truthy,
    /// It is.
    Falsy,
}

impl Op {
    /// Every way.
    pub const ALL: [Self; 5] = [Self::Eq, Self::Ne, Self::In, Self::Truthy, Self::Falsy];

    /// The word in a spec.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Eq => "eq",
            Self::Ne => "ne",
            Self::In => "in",
            Self::Truthy => "truthy",
            Self::Falsy => "falsy",
        }
    }
}

impl Condition {
    /// Whether it holds; false for a value that does not exist.
    pub fn holds(&self, value: Option<&Value>) -> bool {
        let Some(value) = value.map(plain) else {
            return false;
        };
        match self.op {
            Op::Eq => same(&value, &plain(&self.value)),
            Op::Ne => !same(&value, &plain(&self.value)),
            Op::In => {
                let list = self.value.as_array();
                list.is_some_and(|list| list.iter().any(|one| same(&value, &plain(one))))
            }
            Op::Truthy => truthy(&value),
            Op::Falsy => !truthy(&value),
        }
    }
}

/// Texts that mean a boolean, in any of the usual spellings, are one.
fn plain(value: &Value) -> Value {
    let text = value.as_str().map(|text| text.trim().to_ascii_lowercase());
    match text.as_deref() {
        Some("true") => Value::Bool(true),
        Some("false") => Value::Bool(false),
        _ => value.clone(),
    }
}

fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (a, b) => a == b,
    }
}

fn truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(yes) => *yes,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.trim().is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
    }
}

/// Whether a value that decides a branch means the case with this key. Texts and JSON forms are
/// the same thing; `True`, `False` and `None` are read as their JSON forms.
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

/// A value as text: a text as it is, everything else as JSON.
pub fn text_of(value: &Value) -> String {
    match value.as_str() {
        Some(text) => text.to_owned(),
        None => value.to_string(),
    }
}

impl Spec {
    /// The node at a place.
    pub fn node(&self, ix: NodeIx) -> &Node {
        &self.nodes[ix]
    }

    /// Every node, parents before their children.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }
}

impl Body {
    /// What kind of node it is.
    pub const fn kind(&self) -> NodeKind {
        match self {
            Self::Agent(_) => NodeKind::Agent,
            Self::Sequence { .. } => NodeKind::Sequence,
            Self::Parallel { .. } => NodeKind::Parallel,
            Self::Foreach { .. } => NodeKind::Foreach,
            Self::Branch { .. } => NodeKind::Branch,
            Self::Loop { .. } => NodeKind::Loop,
            Self::Wait(_) => NodeKind::Wait,
            Self::Approval { .. } => NodeKind::Approval,
            Self::Tool { .. } => NodeKind::Tool,
            Self::Workflow { .. } => NodeKind::Workflow,
        }
    }

    /// What holds for it, where it is a leaf.
    pub fn policy(&self) -> Option<&Policy> {
        match self {
            Self::Agent(agent) => Some(&agent.policy),
            Self::Approval { policy, .. } | Self::Tool { policy, .. } => Some(policy),
            Self::Sequence { .. }
            | Self::Parallel { .. }
            | Self::Foreach { .. }
            | Self::Branch { .. }
            | Self::Loop { .. }
            | Self::Wait(_)
            | Self::Workflow { .. } => None,
        }
    }

    /// Its children, in order.
    pub fn children(&self) -> Vec<NodeIx> {
        match self {
            Self::Sequence { steps } => steps.clone(),
            Self::Parallel { branches, .. } => branches.clone(),
            Self::Foreach { body, .. } | Self::Loop { body, .. } => vec![*body],
            Self::Branch { cases, default, .. } => {
                cases.iter().map(|(_, ix)| *ix).chain(*default).collect()
            }
            Self::Workflow { root, .. } => vec![*root],
            Self::Agent(_) | Self::Approval { .. } | Self::Tool { .. } | Self::Wait(_) => self
                .policy()
                .and_then(|policy| policy.fallback)
                .into_iter()
                .collect(),
        }
    }

    /// Whether references to its id give its result.
    pub const fn is_referenceable(&self) -> bool {
        match self {
            Self::Sequence { .. } | Self::Parallel { .. } | Self::Branch { .. } => false,
            Self::Agent(_)
            | Self::Foreach { .. }
            | Self::Loop { .. }
            | Self::Wait(_)
            | Self::Approval { .. }
            | Self::Tool { .. }
            | Self::Workflow { .. } => true,
        }
    }
}
