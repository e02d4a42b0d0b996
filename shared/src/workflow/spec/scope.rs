//! What a name means at a place of the tree.

use serde_json::Value;

use super::{Body, Items, NodeIx, Pause, Spec};
use crate::error::{Code, Failure};
use crate::tool::{pool_fault, pool_of};
use crate::workflow::run::RunOptions;
use crate::workflow::template::free_names;

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

impl Spec {
    /// The names that a node itself reads: in its templates, references and conditions.
    pub fn names_read(&self, at: NodeIx) -> Vec<String> {
        let node = &self.nodes[at];
        let mut names: Vec<String> = node.when.iter().map(|when| when.on.name.clone()).collect();
        let mut template = |source: &str| {
            names.extend(free_names(source).unwrap_or_default());
        };
        match &node.body {
            Body::Agent(agent) => {
                template(&agent.spec.system_prompt);
                template(&agent.input);
                names.extend(agent.inputs_from.iter().cloned());
            }
            Body::Approval { message, .. } => template(message),
            Body::Tool { arguments, .. } => {
                for value in arguments.values() {
                    texts_in(value, &mut template);
                }
            }
            Body::Wait(Pause::Until(source)) => template(source),
            Body::Workflow { input, .. } => input.iter().for_each(|source| template(source)),
            Body::Foreach { items, .. } => match items {
                Items::From(from) => names.push(from.name.clone()),
                Items::Here(_) => {}
            },
            Body::Branch { on, .. } => names.push(on.name.clone()),
            Body::Loop { until, .. } => names.push(until.on.name.clone()),
            Body::Sequence { .. } | Body::Parallel { .. } | Body::Wait(_) => {}
        }
        names
    }

    /// Whether a branch or a condition looks at this member of a node's value: then it decides
    /// what happens, and is no failure.
    pub fn decides(&self, target: NodeIx, key: &str) -> bool {
        self.nodes.iter().enumerate().any(|(at, node)| {
            let until = match &node.body {
                Body::Branch { on, .. } => Some((on, self.resolve(at, &on.name))),
                Body::Loop { until, .. } => {
                    Some((&until.on, self.resolve_until(at, &until.on.name)))
                }
                Body::Agent(_)
                | Body::Sequence { .. }
                | Body::Parallel { .. }
                | Body::Foreach { .. }
                | Body::Wait(_)
                | Body::Approval { .. }
                | Body::Tool { .. }
                | Body::Workflow { .. } => None,
            };
            let when = node
                .when
                .iter()
                .map(|when| (&when.on, self.resolve(at, &when.on.name)));
            until.into_iter().chain(when).any(|(on, binding)| {
                on.key.as_deref() == Some(key) && binding == Ok(Binding::Node(target))
            })
        })
    }

    /// Leaves below a node that there are in any case, as far as the spec alone tells.
    pub fn leaves(&self, at: NodeIx) -> u64 {
        let node = &self.nodes[at];
        match &node.body {
            Body::Agent(_) | Body::Approval { .. } | Body::Tool { .. } => 1,
            Body::Wait(_) => 0,
            Body::Sequence { steps } => steps.iter().map(|ix| self.leaves(*ix)).sum(),
            Body::Parallel { branches, .. } => branches.iter().map(|ix| self.leaves(*ix)).sum(),
            Body::Foreach { items, body, .. } => match items {
                Items::Here(list) => (list.len() as u64).saturating_mul(self.leaves(*body)),
                Items::From(_) => 0,
            },
            Body::Loop { body, .. } => self.leaves(*body),
            Body::Branch { cases, default, .. } => {
                let all = cases.iter().map(|(_, ix)| *ix).chain(*default);
                all.map(|ix| self.leaves(ix)).min().unwrap_or(0)
            }
            Body::Workflow { root, .. } => self.leaves(*root),
        }
    }

    /// The most that the declared budgets of all leaves add up to, every attempt counted: what is
    /// known before anything runs. Lists that are made later count as one item.
    pub fn declared_tokens(&self) -> u64 {
        self.declared(self.root)
    }

    /// Whether a run with these options can pay for what its steps declare, and has the workers
    /// that they need.
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
                format!("the steps declare {declared} tokens in all, the run has {limit}"),
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
                    "the agent {name:?} is to run in the pool {wanted}, and the run in {pool}"
                ));
            }
        }
        Ok(())
    }

    fn declared(&self, at: NodeIx) -> u64 {
        let node = &self.nodes[at];
        let own = match &node.body {
            Body::Agent(agent) => {
                let retry = agent.policy.retry.as_ref();
                let attempts = retry.map_or(1, |retry| retry.max_attempts);
                let further = agent.continuation.map_or(0, |more| more.max);
                let attempts = attempts.saturating_mul(further + 1);
                agent
                    .spec
                    .budget
                    .unwrap_or(0)
                    .saturating_mul(attempts.into())
            }
            Body::Sequence { .. }
            | Body::Parallel { .. }
            | Body::Foreach { .. }
            | Body::Branch { .. }
            | Body::Loop { .. }
            | Body::Wait(_)
            | Body::Approval { .. }
            | Body::Tool { .. }
            | Body::Workflow { .. } => 0,
        };
        let children = node.body.children().into_iter().map(|ix| self.declared(ix));
        let below = match &node.body {
            Body::Branch { .. } => children.max().unwrap_or(0),
            Body::Foreach {
                items: Items::Here(list),
                ..
            } => children
                .fold(0, u64::saturating_add)
                .saturating_mul(list.len() as u64),
            Body::Loop { max_iterations, .. } => children
                .sum::<u64>()
                .saturating_mul((*max_iterations).into()),
            Body::Agent(_)
            | Body::Sequence { .. }
            | Body::Parallel { .. }
            | Body::Foreach { .. }
            | Body::Wait(_)
            | Body::Approval { .. }
            | Body::Tool { .. }
            | Body::Workflow { .. } => children.fold(0, u64::saturating_add),
        };
        own.saturating_add(below)
    }
}

fn texts_in(value: &Value, each: &mut dyn FnMut(&str)) {
    match value {
        Value::String(text) => each(text),
        Value::Array(list) => list.iter().for_each(|one| texts_in(one, each)),
        Value::Object(map) => map.values().for_each(|one| texts_in(one, each)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
