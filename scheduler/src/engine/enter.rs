//! Entering nodes: containers open, and leaves become ready.

use mainspring_shared::budget::Spent;
use mainspring_shared::stored::Extra;
use mainspring_shared::time::Timestamp;
use mainspring_shared::usage::Usage;
use mainspring_shared::workflow::path;
use mainspring_shared::workflow::run::{Attempt, NodeRecord, NodeState};
use mainspring_shared::workflow::spec::NodeIx;
use serde_json::json;

use super::Run;
use super::leaf::CONTINUED;
use super::tree::SlotIx;

impl Run {
    pub(super) fn enter_root(&mut self) {
        let root = match self.root() {
            Some(root) => root,
            None => self.create(None, 0, self.spec.root, path::ROOT.to_owned()),
        };
        self.arrive(root);
    }

    /// Enters a container's child, whether for the first time or again.
    pub(super) fn enter(&mut self, parent: SlotIx, key: u32) {
        self.slots[parent].below.open += 1;
        let known = self.slots[parent].children.get(&key).copied();
        let slot = if let Some(slot) = known {
            slot
        } else {
            let ix = self.child_ix(self.slots[parent].ix, key);
            let ix = ix.expect("a container enters only children that its spec has");
            let path = self.child_path(parent, key, ix);
            self.create(Some(parent), key, ix, path)
        };
        self.arrive(slot);
    }

    fn create(&mut self, parent: Option<SlotIx>, key: u32, ix: NodeIx, path: String) -> SlotIx {
        let node = self.spec.node(ix);
        let record = NodeRecord {
            path,
            n: self.slots.last().map_or(1, |last| last.record.n + 1),
            kind: node.body.kind(),
            id: node.id.clone(),
            state: NodeState::Blocked,
            tolerated: false,
            attempt: 1,
            session: None,
            send: None,
            frozen: None,
            text: None,
            payload: None,
            error: None,
            usage: Usage::default(),
            kept: Spent::default(),
            reserved: Spent::default(),
            due_at: None,
            amended: false,
            steered: Vec::new(),
            earlier: Vec::new(),
            started_at: self.now,
            settled_at: None,
            extra: Extra::default(),
        };
        self.push(record, ix, parent, key)
    }

    /// Starts a blocked node, or skips it.
    fn arrive(&mut self, slot: SlotIx) {
        self.visits += 1;
        self.changes.dirty.insert(slot);
        self.renew(slot);
        let ix = self.slots[slot].ix;
        if let Some(when) = &self.spec.node(ix).when {
            let value = self.value_of(slot, &when.on);
            if !when.holds(value.ok().as_ref()) {
                self.settle(slot, NodeState::Skipped, None);
                return;
            }
        }
        if self.leaf(slot).is_none() {
            self.slots[slot].record.state = NodeState::Running;
        }
        self.with_node(slot, |node, run| node.enter(run, slot));
    }

    /// Clears the results of an earlier pass. A leaf that had already been started begins a new
    /// attempt.
    fn renew(&mut self, slot: SlotIx) {
        let own = &mut self.slots[slot];
        own.rendered.take();
        let record = &mut own.record;
        let replaced = record.earlier.last().map(|last| last.attempt) == Some(record.attempt);
        if record.session.is_some() || record.amended || replaced {
            if !replaced {
                record.earlier.push(Attempt {
                    attempt: record.attempt,
                    session_id: record.session.take(),
                    send_id: record.send.take(),
                    error: record.error.take(),
                });
            }
            record.attempt += 1;
            // Attempts for `retry` are counted from here.
            let mut frozen = record.frozen.take().unwrap_or_else(|| json!({}));
            frozen["first"] = json!(record.attempt);
            if let Some(frozen) = frozen.as_object_mut() {
                frozen.remove(CONTINUED);
            }
            record.frozen = Some(frozen);
        }
        record.amended = false;
        record.error = None;
        record.text = None;
        record.payload = None;
        record.tolerated = false;
        record.settled_at = None;
        record.due_at = None;
    }

    pub(super) fn set_due(&mut self, slot: SlotIx, at: Timestamp) {
        self.clear_due(slot);
        self.slots[slot].record.due_at = Some(at);
        self.leaves.due.insert((at, slot));
        self.changes.dirty.insert(slot);
    }

    pub(super) fn clear_due(&mut self, slot: SlotIx) {
        if let Some(at) = self.slots[slot].record.due_at.take() {
            self.leaves.due.remove(&(at, slot));
        }
    }
}
