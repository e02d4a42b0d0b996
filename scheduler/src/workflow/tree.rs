//! The nodes in memory, and how they hang together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mainspring_shared::budget::Spent;
use mainspring_shared::usage::Usage;
use mainspring_shared::workflow::path::{self, Step};
use mainspring_shared::workflow::run::{NodeKind, NodeRecord, NodeState};
use mainspring_shared::workflow::spec::{Body, NodeIx};
use mainspring_shared::workflow::template::NodeText;
use serde_json::Value;

use super::{LoadError, Run};

pub(super) type SlotIx = usize;

/// A node with what is derived from it and its children.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) record: NodeRecord,
    pub(super) ix: NodeIx,
    pub(super) parent: Option<SlotIx>,
    /// Its place among the parent's children: an index, an item, a round, a case.
    pub(super) key: u32,
    pub(super) children: BTreeMap<u32, SlotIx>,
    /// Children that were entered and have not settled.
    pub(super) open: u32,
    /// Whether it has a send that is not final, or is about to.
    pub(super) live: bool,
    /// Children that failed, and nobody tolerated it.
    pub(super) bad: u32,
    /// Children of a fan-out that are still to be entered.
    pub(super) todo: BTreeSet<u32>,
    /// Every step of a sequence before this one is done.
    pub(super) cursor: u32,
    pub(super) pool: usize,
    /// The items of a fan-out.
    pub(super) items: Option<Arc<Vec<Value>>>,
    /// Its result, once someone asked for it.
    pub(super) shown: Option<Arc<NodeText>>,
}

/// Whether nodes of this kind are sends.
pub(super) const fn is_leaf(kind: NodeKind) -> bool {
    matches!(kind, NodeKind::Agent | NodeKind::Approval | NodeKind::Tool)
}

impl Run {
    pub(super) fn root(&self) -> Option<SlotIx> {
        self.by_path.get(path::ROOT).copied()
    }

    pub(super) fn body(&self, slot: SlotIx) -> &Body {
        &self.spec.node(self.slots[slot].ix).body
    }

    pub(super) fn state(&self, slot: SlotIx) -> NodeState {
        self.slots[slot].record.state
    }

    /// Whether what comes after it may go on.
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

    /// Whether someone or something is ending it.
    pub(super) fn is_closing(&self, slot: SlotIx) -> bool {
        let record = &self.slots[slot].record;
        record.error.is_some() && !record.state.is_settled()
    }

    /// Whether a leaf has a send that is not final.
    pub(super) fn is_live(&self, slot: SlotIx) -> bool {
        self.slots[slot].live
    }

    fn is_stored_live(&self, slot: SlotIx) -> bool {
        let record = &self.slots[slot].record;
        is_leaf(record.kind)
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

    /// The spec's node for a child.
    pub(super) fn child_ix(&self, ix: NodeIx, key: u32) -> Option<NodeIx> {
        let place = key as usize;
        match &self.spec.node(ix).body {
            Body::Foreach { body, .. } | Body::Loop { body, .. } => Some(*body),
            Body::Branch { cases, default, .. } => match cases.get(place) {
                Some((_, ix)) => Some(*ix),
                None => default.filter(|_| place == cases.len()),
            },
            other => other.children().get(place).copied(),
        }
    }

    /// The path of a child.
    pub(super) fn child_path(&self, parent: SlotIx, key: u32, child: NodeIx) -> String {
        let id = self.spec.node(child).id.as_deref();
        let step = match self.body(parent) {
            Body::Sequence { .. } | Body::Parallel { .. } => Step::At(key, id),
            Body::Foreach { .. } | Body::Loop { .. } => Step::Round(key, id),
            Body::Branch { cases, .. } => match cases.get(key as usize) {
                Some((case, _)) => Step::Case(case),
                None => Step::Default,
            },
            Body::Workflow { .. } | Body::Wait(_) => Step::Only(id),
            Body::Agent(_) | Body::Approval { .. } | Body::Tool { .. } => Step::Fallback,
        };
        path::child(&self.slots[parent].record.path, &step)
    }

    /// The child's place, read from its path.
    fn key_of(&self, parent: SlotIx, own: &str) -> Option<u32> {
        match self.body(parent) {
            Body::Sequence { .. } | Body::Parallel { .. } => path::index(own),
            Body::Foreach { .. } | Body::Loop { .. } => path::round(own),
            Body::Branch { cases, .. } => {
                (0..=cases.len() as u32).find(|key| self.is_at(parent, *key, own))
            }
            Body::Workflow { .. }
            | Body::Wait(_)
            | Body::Agent(_)
            | Body::Approval { .. }
            | Body::Tool { .. } => Some(0),
        }
    }

    fn is_at(&self, parent: SlotIx, key: u32, own: &str) -> bool {
        let child = self.child_ix(self.slots[parent].ix, key);
        child.is_some_and(|child| self.child_path(parent, key, child) == own)
    }

    /// Puts stored nodes into the tree, and derives everything that is not stored.
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
            self.n_next = self.n_next.max(node.n + 1);
            let spent = Spent::of(&node.usage, 0).plus(node.kept);
            let slot = self.push(node, ix, parent, key);
            self.note_spent(slot, spent);
        }
        for slot in 0..self.slots.len() {
            self.derive(slot);
        }
        for slot in 0..self.slots.len() {
            self.keep_shown(slot);
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
        if is_leaf(record.kind) {
            self.reached += 1;
        }
        self.slots.push(Slot {
            record,
            ix,
            parent,
            key,
            children: BTreeMap::new(),
            open: 0,
            live: false,
            bad: 0,
            todo: BTreeSet::new(),
            cursor: 0,
            pool: above,
            items: None,
            shown: None,
        });
        self.slots[slot].pool = self.own_pool(slot, above);
        slot
    }

    /// Fills in what follows from a stored node and its children.
    fn derive(&mut self, slot: SlotIx) {
        let record = &self.slots[slot].record;
        let (n, reserved, due_at, settled) = (
            record.n,
            record.reserved,
            record.due_at,
            record.state.is_settled(),
        );
        if record.state == NodeState::Queued && record.send.is_none() {
            // Its ids were never stored, so its send never was.
            self.slots[slot].record.state = NodeState::Ready;
        }
        if self.is_stored_live(slot) {
            self.count_live(slot, true);
            self.note_reserved(slot, reserved);
        }
        if self.state(slot) == NodeState::Ready {
            self.ready.insert((n, slot));
        }
        if let Some(at) = due_at.filter(|_| !settled) {
            self.due.insert((at, slot));
        }
        if settled {
            self.thaw(slot);
        } else {
            self.recount(slot);
        }
    }

    /// Takes a fan-out's items out of what was frozen.
    pub(super) fn thaw(&mut self, slot: SlotIx) {
        if self.slots[slot].record.kind == NodeKind::Foreach {
            let frozen = self.slots[slot].record.frozen.as_ref();
            let items = frozen
                .and_then(|frozen| frozen.get("items"))
                .and_then(Value::as_array);
            self.slots[slot].items = items.cloned().map(Arc::new);
        }
    }

    /// Counts a container's children anew.
    pub(super) fn recount(&mut self, slot: SlotIx) {
        self.thaw(slot);
        self.forget_todo(slot);
        let children: Vec<_> = self.slots[slot]
            .children
            .iter()
            .map(|(key, child)| (*key, *child))
            .collect();
        self.looks += children.len() as u64;
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
        let own = &mut self.slots[slot];
        own.open = open;
        own.bad = bad;
        own.cursor = 0;
        own.todo = todo;
        if self.state(slot).is_settled() {
            self.slots[slot].todo.clear();
        } else {
            self.unreached += self.todo_weight(slot);
        }
    }

    pub(super) fn is_fan(&self, slot: SlotIx) -> bool {
        matches!(
            self.body(slot),
            Body::Parallel { .. } | Body::Foreach { .. }
        )
    }

    /// How many children a container has in the end; of a fan-out, once its items are known.
    pub(super) fn width(&self, slot: SlotIx) -> u32 {
        match self.body(slot) {
            Body::Foreach { .. } => self.slots[slot]
                .items
                .as_ref()
                .map_or(0, |items| items.len() as u32),
            Body::Loop { max_iterations, .. } => *max_iterations,
            Body::Branch { cases, .. } => cases.len() as u32 + 1,
            other => other.children().len() as u32,
        }
    }

    /// Leaves that the children still to be entered will have, as far as the spec tells.
    pub(super) fn todo_weight(&self, slot: SlotIx) -> u64 {
        let own = &self.slots[slot];
        match self.body(slot) {
            Body::Foreach { body, .. } => {
                let fresh = own
                    .todo
                    .iter()
                    .filter(|key| !own.children.contains_key(key))
                    .count();
                fresh as u64 * self.weight(*body)
            }
            _ => 0,
        }
    }

    /// Drops what a fan-out still had to enter.
    pub(super) fn forget_todo(&mut self, slot: SlotIx) {
        if self.slots[slot].todo.is_empty() {
            return;
        }
        let weight = self.todo_weight(slot);
        self.unreached = self.unreached.saturating_sub(weight);
        self.slots[slot].todo.clear();
    }

    /// Leaves below a node of the spec that will be there at least, one in any case.
    pub(super) fn weight(&self, ix: NodeIx) -> u64 {
        self.spec.leaves(ix).max(1)
    }

    pub(super) fn count_live(&mut self, slot: SlotIx, begins: bool) {
        let person = self.slots[slot].record.kind == NodeKind::Approval;
        self.slots[slot].live = begins;
        if begins {
            self.live += 1;
            self.live_people += u32::from(person);
        } else {
            self.live -= 1;
            self.live_people -= u32::from(person);
        }
    }

    /// Adds what an attempt used to its leaf and to everything that it counts towards.
    pub(super) fn charge(&mut self, slot: SlotIx, usage: &Usage, kept: Spent) {
        let record = &mut self.slots[slot].record;
        record.usage.add(usage);
        record.kept = record.kept.plus(kept);
        self.record.usage.add(usage);
        self.note_spent(slot, Spent::of(usage, 0).plus(kept));
        self.dirty.insert(slot);
    }
}
