//! The in-memory tree of nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use mainspring_shared::budget::Spent;
use mainspring_shared::usage::Usage;
use mainspring_shared::workflow::nodes::{Body, NodeKind};
use mainspring_shared::workflow::path;
use mainspring_shared::workflow::run::{NodeRecord, NodeState};
use mainspring_shared::workflow::spec::NodeIx;
use mainspring_shared::workflow::template::NodeText;
use serde_json::Value;

use super::nodes::{Leaf, Node, behaviour};
use super::{LoadError, Run};

pub(super) type SlotIx = usize;

/// A node, with values derived from it and its children.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) record: NodeRecord,
    pub(super) ix: NodeIx,
    pub(super) parent: Option<SlotIx>,
    /// Its key among the parent's children: the index of a step, item, round or case.
    pub(super) key: u32,
    pub(super) children: BTreeMap<u32, SlotIx>,
    pub(super) below: Below,
    /// Whether it has a send in flight, or one that this advance starts.
    pub(super) live: bool,
    pub(super) pool: usize,
    /// The items of a fan-out.
    pub(super) items: Option<Arc<Vec<Value>>>,
    /// Its output, cached.
    pub(super) rendered: OnceLock<Arc<NodeText>>,
}

/// The progress of a node's children.
#[derive(Debug, Default)]
pub(super) struct Below {
    /// Children that were entered and have not settled.
    pub(super) open: u32,
    /// Children that failed and whose failure is not tolerated.
    pub(super) bad: u32,
    /// Children of a fan-out that are still to be entered.
    pub(super) todo: BTreeSet<u32>,
    /// The first step of a sequence that has not succeeded.
    pub(super) cursor: u32,
}

impl Run {
    pub(super) fn root(&self) -> Option<SlotIx> {
        self.by_path.get(path::ROOT).copied()
    }

    pub(super) fn body(&self, slot: SlotIx) -> &Body {
        &self.spec.node(self.slots[slot].ix).body
    }

    /// The behaviour of a node's kind.
    pub(super) fn node_of(&self, slot: SlotIx) -> &dyn Node {
        behaviour(self.body(slot))
    }

    /// The node as a leaf, if it starts a send.
    pub(super) fn leaf(&self, slot: SlotIx) -> Option<&dyn Leaf> {
        self.node_of(slot).leaf()
    }

    /// Lets a node's kind modify the run.
    pub(super) fn with_node<T>(
        &mut self,
        slot: SlotIx,
        act: impl FnOnce(&dyn Node, &mut Self) -> T,
    ) -> T {
        let spec = Arc::clone(&self.spec);
        act(behaviour(&spec.node(self.slots[slot].ix).body), self)
    }

    pub(super) fn state(&self, slot: SlotIx) -> NodeState {
        self.slots[slot].record.state
    }

    /// Whether the nodes after it may run.
    pub(super) fn is_good(&self, slot: SlotIx) -> bool {
        let record = &self.slots[slot].record;
        match record.state {
            NodeState::Completed | NodeState::Skipped => true,
            NodeState::Failed | NodeState::Cancelled => record.tolerated,
            NodeState::Blocked
            | NodeState::Ready
            | NodeState::Queued
            | NodeState::Running
            | NodeState::Waiting => false,
        }
    }

    /// Whether it was entered and has not settled.
    pub(super) fn is_open(&self, slot: SlotIx) -> bool {
        let state = self.state(slot);
        !state.is_settled() && state != NodeState::Blocked
    }

    /// Whether it is being cancelled.
    pub(super) fn is_closing(&self, slot: SlotIx) -> bool {
        let record = &self.slots[slot].record;
        record.error.is_some() && !record.state.is_settled()
    }

    /// Whether a leaf has a send in flight.
    pub(super) fn is_live(&self, slot: SlotIx) -> bool {
        self.slots[slot].live
    }

    fn is_stored_live(&self, slot: SlotIx) -> bool {
        let record = &self.slots[slot].record;
        self.leaf(slot).is_some()
            && match record.state {
                NodeState::Queued => true,
                NodeState::Running | NodeState::Waiting => record.send.is_some(),
                NodeState::Blocked
                | NodeState::Ready
                | NodeState::Completed
                | NodeState::Failed
                | NodeState::Cancelled
                | NodeState::Skipped => false,
            }
    }

    /// The spec's node of the child with this key.
    pub(super) fn child_ix(&self, ix: NodeIx, key: u32) -> Option<NodeIx> {
        behaviour(&self.spec.node(ix).body).child(key)
    }

    /// The path of a child.
    pub(super) fn child_path(&self, parent: SlotIx, key: u32, child: NodeIx) -> String {
        let id = self.spec.node(child).id.as_deref();
        let step = self.node_of(parent).step(key, id);
        path::child(&self.slots[parent].record.path, &step)
    }

    /// The key of a child, parsed from its path.
    fn key_of(&self, parent: SlotIx, own: &str) -> Option<u32> {
        let is_at = |key| self.is_at(parent, key, own);
        self.node_of(parent).key_of(own, &is_at)
    }

    fn is_at(&self, parent: SlotIx, key: u32, own: &str) -> bool {
        let child = self.child_ix(self.slots[parent].ix, key);
        child.is_some_and(|child| self.child_path(parent, key, child) == own)
    }

    /// Builds the tree from stored nodes, and derives everything that is not stored.
    pub(super) fn attach(&mut self, mut nodes: Vec<NodeRecord>) -> Result<(), LoadError> {
        nodes.sort_by_key(|node| node.n);
        for node in nodes {
            let misfit = || LoadError::Node(node.path.clone());
            let (parent, key, ix) = match path::parent(&node.path) {
                None => (None, 0, self.spec.root),
                Some(above) => {
                    let parent = *self.by_path.get(above).ok_or_else(misfit)?;
                    let key = self.key_of(parent, &node.path).ok_or_else(misfit)?;
                    if !self.is_at(parent, key, &node.path) {
                        return Err(misfit());
                    }
                    let ix = self
                        .child_ix(self.slots[parent].ix, key)
                        .ok_or_else(misfit)?;
                    (Some(parent), key, ix)
                }
            };
            if self.spec.node(ix).body.kind() != node.kind {
                return Err(misfit());
            }
            let spent = Spent::of(&node.usage, 0).plus(node.kept);
            let slot = self.push(node, ix, parent, key);
            self.note_spent(slot, spent);
        }
        for slot in 0..self.slots.len() {
            self.derive(slot);
        }
        for slot in 0..self.slots.len() {
            self.cache_rendered(slot);
        }
        Ok(())
    }

    /// Adds a node to the tree.
    pub(super) fn push(
        &mut self,
        record: NodeRecord,
        ix: NodeIx,
        parent: Option<SlotIx>,
        key: u32,
    ) -> SlotIx {
        let slot = self.slots.len();
        let above = parent.map_or(0, |parent| self.slots[parent].pool);
        self.by_path.insert(record.path.clone(), slot);
        if let Some(parent) = parent {
            self.slots[parent].children.insert(key, slot);
        }
        if self.spec.node(ix).body.policy().is_some() {
            self.leaves.reached += 1;
        }
        self.slots.push(Slot {
            record,
            ix,
            parent,
            key,
            children: BTreeMap::new(),
            below: Below::default(),
            live: false,
            pool: above,
            items: None,
            rendered: OnceLock::new(),
        });
        self.slots[slot].pool = self.own_pool(slot, above);
        slot
    }

    /// Derives the values of a stored node from its record and its children.
    fn derive(&mut self, slot: SlotIx) {
        let record = &self.slots[slot].record;
        let (n, reserved, due_at, settled) = (
            record.n,
            record.reserved,
            record.due_at,
            record.state.is_settled(),
        );
        if record.state == NodeState::Queued && record.send.is_none() {
            // Its ids were not stored, so neither was its send.
            self.slots[slot].record.state = NodeState::Ready;
        }
        if self.is_stored_live(slot) {
            self.count_live(slot, true);
            self.note_reserved(slot, reserved);
        }
        if self.state(slot) == NodeState::Ready {
            self.leaves.ready.insert((n, slot));
        }
        if let Some(at) = due_at.filter(|_| !settled) {
            self.leaves.due.insert((at, slot));
        }
        if settled {
            self.thaw(slot);
        } else {
            self.recount(slot);
        }
    }

    /// Reads a fan-out's items from its frozen values.
    pub(super) fn thaw(&mut self, slot: SlotIx) {
        if self.node_of(slot).item_body().is_some() {
            let frozen = self.slots[slot].record.frozen.as_ref();
            let items = frozen
                .and_then(|frozen| frozen.get("items"))
                .and_then(Value::as_array);
            self.slots[slot].items = items.cloned().map(Arc::new);
        }
    }

    /// Recounts a container's children.
    pub(super) fn recount(&mut self, slot: SlotIx) {
        self.thaw(slot);
        self.forget_todo(slot);
        let children: Vec<_> = self.slots[slot]
            .children
            .iter()
            .map(|(key, child)| (*key, *child))
            .collect();
        self.visits += children.len() as u64;
        let width = self.width(slot);
        let (mut open, mut bad) = (0, 0);
        for (key, child) in &children {
            if self.is_open(*child) {
                open += 1;
            } else if *key < width && self.state(*child).is_settled() && !self.is_good(*child) {
                bad += 1;
            }
        }
        let todo = if bad == 0 && self.is_fan(slot) && !self.is_closing(slot) {
            let waits = |key: &u32| match self.slots[slot].children.get(key) {
                None => true,
                Some(child) => self.state(*child) == NodeState::Blocked,
            };
            (0..width).filter(waits).collect()
        } else {
            BTreeSet::new()
        };
        self.slots[slot].below = Below {
            open,
            bad,
            todo,
            cursor: 0,
        };
        if self.state(slot).is_settled() {
            self.slots[slot].below.todo.clear();
        } else {
            self.leaves.unreached += self.todo_weight(slot);
        }
    }

    pub(super) fn is_fan(&self, slot: SlotIx) -> bool {
        self.node_of(slot).fan().is_some()
    }

    /// The final number of a container's children. For a fan-out it is known once its items are.
    pub(super) fn width(&self, slot: SlotIx) -> u32 {
        self.node_of(slot).width(&self.slots[slot])
    }

    /// Leaves below the children that are still to be entered, as far as the spec shows.
    pub(super) fn todo_weight(&self, slot: SlotIx) -> u64 {
        let Some(body) = self.node_of(slot).item_body() else {
            return 0;
        };
        let own = &self.slots[slot];
        let known = |key: &&u32| !own.children.contains_key(key);
        own.below.todo.iter().filter(known).count() as u64 * self.weight(body)
    }

    /// Drops the children that a fan-out has not entered yet.
    pub(super) fn forget_todo(&mut self, slot: SlotIx) {
        if self.slots[slot].below.todo.is_empty() {
            return;
        }
        let weight = self.todo_weight(slot);
        self.leaves.unreached = self.leaves.unreached.saturating_sub(weight);
        self.slots[slot].below.todo.clear();
    }

    /// A lower bound on the leaves below a node of the spec, at least one.
    pub(super) fn weight(&self, ix: NodeIx) -> u64 {
        self.spec.leaves(ix).max(1)
    }

    pub(super) fn count_live(&mut self, slot: SlotIx, begins: bool) {
        let person = self.slots[slot].record.kind == NodeKind::Approval;
        self.slots[slot].live = begins;
        if begins {
            self.leaves.live += 1;
            self.leaves.live_people += u32::from(person);
        } else {
            self.leaves.live -= 1;
            self.leaves.live_people -= u32::from(person);
        }
    }

    /// Adds an attempt's usage to its leaf, to the run and to their budgets.
    pub(super) fn charge(&mut self, slot: SlotIx, usage: &Usage, kept: Spent) {
        let record = &mut self.slots[slot].record;
        record.usage.add(usage);
        record.kept = record.kept.plus(kept);
        self.record.usage.add(usage);
        self.note_spent(slot, Spent::of(usage, 0).plus(kept));
        self.changes.dirty.insert(slot);
    }
}
