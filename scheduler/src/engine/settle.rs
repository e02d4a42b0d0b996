//! Settling nodes: how a parent proceeds, and how nodes are ended early.

use mainspring_shared::error::{Code, Failure};
use mainspring_shared::workflow::run::NodeState;

use super::Run;
use super::tree::SlotIx;

impl Run {
    /// Settles a node. Its parent reacts in [`Self::propagate`].
    pub(super) fn settle(&mut self, slot: SlotIx, state: NodeState, error: Option<Failure>) {
        self.remove_pending(slot);
        self.release_slice(slot);
        self.clear_due(slot);
        let lenient = self
            .body(slot)
            .policy()
            .is_some_and(|policy| policy.continue_on_error);
        let record = &mut self.slots[slot].record;
        record.state = state;
        record.error = error;
        record.settled_at = Some(self.now);
        // A cancelled node is not tolerated, so that a retry runs it again.
        record.tolerated = state == NodeState::Failed && lenient;
        if self.leaf(slot).is_some() {
            self.count_settled(state, true);
        }
        self.changes.dirty.insert(slot);
        self.work.push_back(slot);
    }

    /// Adds a settled leaf to the run's counts, or removes it from them.
    pub(super) fn count_settled(&mut self, state: NodeState, more: bool) {
        let counts = &mut self.record.counts;
        let count = match state {
            NodeState::Completed => &mut counts.completed,
            NodeState::Failed => &mut counts.failed,
            NodeState::Cancelled => &mut counts.cancelled,
            NodeState::Skipped => &mut counts.skipped,
            NodeState::Blocked
            | NodeState::Ready
            | NodeState::Queued
            | NodeState::Running
            | NodeState::Waiting => return,
        };
        *count = if more {
            *count + 1
        } else {
            count.saturating_sub(1)
        };
    }

    /// Removes a leaf from those that are ready or in flight.
    pub(super) fn remove_pending(&mut self, slot: SlotIx) {
        if self.is_live(slot) {
            self.count_live(slot, false);
        }
        self.leaves.ready.remove(&(self.slots[slot].record.n, slot));
    }

    /// Lets parents react to settled children until none is left.
    pub(super) fn propagate(&mut self) {
        while let Some(slot) = self.work.pop_front() {
            self.visits += 1;
            self.cache_rendered(slot);
            if let Some(parent) = self.slots[slot].parent {
                self.child_settled(parent, slot);
            }
        }
    }

    fn child_settled(&mut self, parent: SlotIx, child: SlotIx) {
        self.slots[parent].below.open = self.slots[parent].below.open.saturating_sub(1);
        if self.state(parent).is_settled() {
            return;
        }
        if !self.is_good(child) {
            self.child_failed(parent, child);
        }
        self.proceed(parent);
    }

    fn child_failed(&mut self, parent: SlotIx, child: SlotIx) {
        let Some(fan) = self.node_of(parent).fan() else {
            return;
        };
        if !fan.halt && !self.is_closing(parent) {
            self.slots[child].record.tolerated = true;
            self.changes.dirty.insert(child);
            return;
        }
        self.slots[parent].below.bad += 1;
        if self.slots[parent].below.bad == 1 && !self.is_closing(parent) {
            let id = self.name_of(child);
            let detail = format!("{id} failed, and `on_error` is `halt`");
            let why = Failure::new(Code::WorkflowCancelled, detail);
            self.forget_todo(parent);
            let open: Vec<_> = self.slots[parent].children.values().copied().collect();
            for sibling in open {
                self.close(sibling, &why);
            }
        }
    }

    /// Cancels an unsettled node and everything below it. Leaves in flight are asked to stop, and
    /// settle when their sends have ended.
    pub(super) fn close(&mut self, slot: SlotIx, why: &Failure) {
        self.visits += 1;
        let state = self.state(slot);
        if state.is_settled() || self.is_closing(slot) {
            return;
        }
        if state == NodeState::Blocked {
            // It was waiting to run again, so its parent does not count it as open.
            self.slots[slot].below.open = 0;
            self.settle(slot, NodeState::Cancelled, Some(why.clone()));
            self.work.pop_back();
            if let Some(parent) = self.slots[slot].parent
                && self.is_fan(parent)
            {
                self.slots[parent].below.bad += 1;
            }
            return;
        }
        if self.is_live(slot) {
            self.close_live(slot, why);
            return;
        }
        let children: Vec<_> = self.slots[slot].children.values().copied().collect();
        let open: Vec<_> = children
            .into_iter()
            .filter(|child| !self.state(*child).is_settled())
            .collect();
        if open.is_empty() && self.slots[slot].below.open == 0 {
            self.settle(slot, NodeState::Cancelled, Some(why.clone()));
            return;
        }
        self.slots[slot].record.error = Some(why.clone());
        self.changes.dirty.insert(slot);
        self.forget_todo(slot);
        for child in open {
            self.close(child, why);
        }
        if self.slots[slot].below.open == 0 {
            self.proceed(slot);
        }
    }

    fn close_live(&mut self, slot: SlotIx, why: &Failure) {
        if let Some(send) = self.slots[slot].record.send {
            self.slots[slot].record.error = Some(why.clone());
            self.changes.dirty.insert(slot);
            self.changes.cancel.push(send);
        } else {
            // Its send has not been stored yet: this advance was going to start it.
            let path = self.slots[slot].record.path.clone();
            self.changes.start.retain(|start| start.path != path);
            self.settle(slot, NodeState::Cancelled, Some(why.clone()));
        }
    }

    /// Takes the next step of a container: enters children, or settles.
    pub(super) fn proceed(&mut self, slot: SlotIx) {
        self.visits += 1;
        self.with_node(slot, |node, run| node.proceed(run, slot));
    }

    /// Runs the only child of a container, and settles the container when the child has settled.
    pub(super) fn run_only_child(&mut self, slot: SlotIx, key: u32) {
        if self.slots[slot].below.open > 0 {
            return;
        }
        match self.slots[slot].children.get(&key).copied() {
            Some(child) if self.is_good(child) => self.settle(slot, NodeState::Completed, None),
            _ => self.follow(slot, key),
        }
    }

    /// Enters a child that has not run, or settles with the failure of one that has.
    pub(super) fn follow(&mut self, slot: SlotIx, key: u32) {
        let child = self.slots[slot].children.get(&key).copied();
        let failed = child.filter(|child| self.state(*child).is_settled());
        if let Some(child) = failed {
            let (state, error) = self.failure_of(child);
            let error = self.closing_reason(slot).unwrap_or(error);
            self.settle(slot, state, Some(error));
        } else if let Some(why) = self.closing_reason(slot) {
            self.settle(slot, NodeState::Cancelled, Some(why));
        } else {
            self.enter(slot, key);
        }
    }

    pub(super) fn closing_reason(&self, slot: SlotIx) -> Option<Failure> {
        let record = &self.slots[slot].record;
        record.error.clone().filter(|_| !record.state.is_settled())
    }

    /// The state and error that a container takes from a failed child.
    pub(super) fn failure_of(&self, child: SlotIx) -> (NodeState, Failure) {
        let record = &self.slots[child].record;
        let error = record.error.clone();
        let error = error.unwrap_or_else(|| Failure::new(Code::Internal, "it failed"));
        (record.state, error)
    }

    /// The node's name for messages.
    pub(super) fn name_of(&self, slot: SlotIx) -> String {
        let record = &self.slots[slot].record;
        match &record.id {
            Some(id) => format!("{} {id:?}", record.kind.as_str()),
            None => format!("{} {}", record.kind.as_str(), record.path),
        }
    }

    /// Handles a node whose `due_at` has passed.
    pub(super) fn node_due(&mut self, slot: SlotIx) {
        self.slots[slot].record.due_at = None;
        self.changes.dirty.insert(slot);
        self.with_node(slot, |node, run| node.due(run, slot));
    }
}
