//! A node is over: what that means for what is around it, and how nodes are ended early.

use mainspring_shared::error::{Code, Failure};
use mainspring_shared::workflow::run::{NodeKind, NodeState};
use mainspring_shared::workflow::spec::Body;
use serde_json::Value;

use super::Run;
use super::tree::{SlotIx, is_leaf};

impl Run {
    /// Ends a node. Its parent is told when the work is gone through.
    pub(super) fn settle(&mut self, slot: SlotIx, state: NodeState, error: Option<Failure>) {
        self.leave(slot);
        self.give_back(slot);
        self.clear_due(slot);
        let kind = self.slots[slot].record.kind;
        let lenient = self
            .body(slot)
            .policy()
            .is_some_and(|policy| policy.continue_on_error);
        let record = &mut self.slots[slot].record;
        record.state = state;
        record.error = error;
        record.settled_at = Some(self.now);
        // What was ended early is to run again with a retry.
        record.tolerated = state == NodeState::Failed && lenient;
        if is_leaf(kind) {
            self.tally(state, true);
        }
        self.dirty.insert(slot);
        self.work.push_back(slot);
    }

    /// Counts a settled leaf in or out.
    pub(super) fn tally(&mut self, state: NodeState, more: bool) {
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

    /// Takes a leaf out of those that may start or are under way.
    pub(super) fn leave(&mut self, slot: SlotIx) {
        if self.is_live(slot) {
            self.count_live(slot, false);
        }
        self.ready.remove(&(self.slots[slot].record.n, slot));
    }

    /// Tells parents of their children's ends until nothing is left to tell.
    pub(super) fn work_off(&mut self) {
        while let Some(slot) = self.work.pop_front() {
            self.looks += 1;
            self.keep_shown(slot);
            if let Some(parent) = self.slots[slot].parent {
                self.child_settled(parent, slot);
            }
        }
    }

    fn child_settled(&mut self, parent: SlotIx, child: SlotIx) {
        self.slots[parent].open = self.slots[parent].open.saturating_sub(1);
        if self.state(parent).is_settled() {
            return;
        }
        if !self.is_good(child) {
            self.child_failed(parent, child);
        }
        self.go_on(parent);
    }

    fn child_failed(&mut self, parent: SlotIx, child: SlotIx) {
        let (Body::Parallel { fan, .. } | Body::Foreach { fan, .. }) = self.body(parent) else {
            return;
        };
        if !fan.halt && !self.is_closing(parent) {
            self.slots[child].record.tolerated = true;
            self.dirty.insert(child);
            return;
        }
        self.slots[parent].bad += 1;
        if self.slots[parent].bad == 1 && !self.is_closing(parent) {
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

    /// Ends a node that has not settled, and everything below it. Leaves under way are asked to
    /// end, and settle when they have.
    pub(super) fn close(&mut self, slot: SlotIx, why: &Failure) {
        self.looks += 1;
        let state = self.state(slot);
        if state.is_settled() || self.is_closing(slot) {
            return;
        }
        if state == NodeState::Blocked {
            // It was to run again: its parent does not count it as open.
            self.slots[slot].open = 0;
            self.settle(slot, NodeState::Cancelled, Some(why.clone()));
            self.work.pop_back();
            if let Some(parent) = self.slots[slot].parent
                && self.is_fan(parent)
            {
                self.slots[parent].bad += 1;
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
        if open.is_empty() && self.slots[slot].open == 0 {
            self.settle(slot, NodeState::Cancelled, Some(why.clone()));
            return;
        }
        self.slots[slot].record.error = Some(why.clone());
        self.dirty.insert(slot);
        self.forget_todo(slot);
        for child in open {
            self.close(child, why);
        }
        if self.slots[slot].open == 0 {
            self.go_on(slot);
        }
    }

    fn close_live(&mut self, slot: SlotIx, why: &Failure) {
        if let Some(send) = self.slots[slot].record.send {
            self.slots[slot].record.error = Some(why.clone());
            self.dirty.insert(slot);
            self.cancel.push(send);
        } else {
            // It was to start with this very advance.
            let path = self.slots[slot].record.path.clone();
            self.start.retain(|start| start.path != path);
            self.settle(slot, NodeState::Cancelled, Some(why.clone()));
        }
    }

    /// Takes the next step of a container: enters children, or settles.
    pub(super) fn go_on(&mut self, slot: SlotIx) {
        self.looks += 1;
        match self.body(slot) {
            Body::Sequence { steps } => {
                let width = steps.len() as u32;
                self.next_step(slot, width);
            }
            Body::Parallel { fan, .. } => {
                let most = fan.max_concurrency;
                self.fill(slot, most);
            }
            Body::Foreach { fan, parallel, .. } => {
                let most = if *parallel { fan.max_concurrency } else { 1 };
                self.fill(slot, most);
            }
            Body::Branch { .. } => {
                if let Some(key) = self.case_key(slot) {
                    self.only_child(slot, key);
                }
            }
            Body::Workflow { .. } => self.only_child(slot, 0),
            Body::Loop { .. } => self.next_round(slot),
            Body::Agent(_) | Body::Approval { .. } | Body::Tool { .. } => self.fallback_ended(slot),
            Body::Wait(_) => {}
        }
    }

    /// The chosen child of a branch.
    pub(super) fn case_key(&self, slot: SlotIx) -> Option<u32> {
        let Body::Branch { cases, .. } = self.body(slot) else {
            return None;
        };
        let frozen = self.slots[slot].record.frozen.as_ref()?;
        let key = match frozen.get("case").and_then(Value::as_str) {
            Some(chosen) => cases.iter().position(|(key, _)| key == chosen)?,
            None => cases.len(),
        };
        Some(key as u32)
    }

    fn next_step(&mut self, slot: SlotIx, width: u32) {
        let mut cursor = self.slots[slot].cursor;
        while let Some(child) = self.slots[slot].children.get(&cursor).copied()
            && self.is_good(child)
        {
            cursor += 1;
        }
        self.slots[slot].cursor = cursor;
        if self.slots[slot].open > 0 {
            return;
        }
        if cursor == width {
            self.settle(slot, NodeState::Completed, None);
            return;
        }
        self.follow(slot, cursor);
    }

    fn only_child(&mut self, slot: SlotIx, key: u32) {
        if self.slots[slot].open > 0 {
            return;
        }
        match self.slots[slot].children.get(&key).copied() {
            Some(child) if self.is_good(child) => self.settle(slot, NodeState::Completed, None),
            _ => self.follow(slot, key),
        }
    }

    /// Enters a child that has not run, or fails as it failed.
    fn follow(&mut self, slot: SlotIx, key: u32) {
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

    fn closing_reason(&self, slot: SlotIx) -> Option<Failure> {
        let record = &self.slots[slot].record;
        record.error.clone().filter(|_| !record.state.is_settled())
    }

    /// What a container takes over from a child that failed.
    pub(super) fn failure_of(&self, child: SlotIx) -> (NodeState, Failure) {
        let record = &self.slots[child].record;
        let error = record.error.clone();
        let error = error.unwrap_or_else(|| Failure::new(Code::Internal, "it failed"));
        (record.state, error)
    }

    fn fill(&mut self, slot: SlotIx, most: u32) {
        while self.slots[slot].bad == 0
            && !self.is_closing(slot)
            && self.slots[slot].open < most
            && let Some(key) = self.slots[slot].todo.pop_first()
        {
            if let Body::Foreach { body, .. } = self.body(slot)
                && !self.slots[slot].children.contains_key(&key)
            {
                let weight = self.weight(*body);
                self.unreached = self.unreached.saturating_sub(weight);
            }
            self.enter(slot, key);
        }
        if self.slots[slot].open > 0 {
            return;
        }
        if let Some(why) = self.closing_reason(slot) {
            let whole = self.slots[slot].bad == 0 && self.is_whole(slot);
            if whole {
                self.settle(slot, NodeState::Completed, None);
            } else {
                self.settle(slot, NodeState::Cancelled, Some(why));
            }
        } else if self.slots[slot].bad > 0 {
            let child = self.first_failed(slot);
            let (state, error) = child.map_or_else(
                || {
                    (
                        NodeState::Failed,
                        Failure::new(Code::Internal, "a child failed"),
                    )
                },
                |child| self.failure_of(child),
            );
            self.settle(slot, state, Some(error));
        } else {
            self.settle(slot, NodeState::Completed, None);
        }
    }

    /// Whether every child of a fan-out has been there.
    fn is_whole(&self, slot: SlotIx) -> bool {
        let width = self.width(slot);
        let good = |key: u32| {
            self.slots[slot]
                .children
                .get(&key)
                .is_some_and(|child| self.is_good(*child))
        };
        let known =
            self.slots[slot].items.is_some() || !matches!(self.body(slot), Body::Foreach { .. });
        known && (0..width).all(good)
    }

    /// The first child, in the order of the spec, that failed by itself; else the first that was
    /// ended.
    fn first_failed(&self, slot: SlotIx) -> Option<SlotIx> {
        let width = self.width(slot);
        let children = || {
            self.slots[slot]
                .children
                .range(..width)
                .map(|(_, child)| *child)
        };
        let bad = |child: &SlotIx| self.state(*child).is_settled() && !self.is_good(*child);
        children()
            .find(|child| bad(child) && self.state(*child) == NodeState::Failed)
            .or_else(|| children().find(bad))
    }

    fn next_round(&mut self, slot: SlotIx) {
        if self.slots[slot].open > 0 {
            return;
        }
        let Body::Loop {
            until,
            max_iterations,
            exhausted_ok,
            ..
        } = self.body(slot)
        else {
            return;
        };
        let (max, exhausted_ok) = (*max_iterations, *exhausted_ok);
        let Some((round, child)) = self.last_round(slot) else {
            self.follow(slot, 0);
            return;
        };
        if !self.is_good(child) {
            self.follow(slot, round);
            return;
        }
        let value = self.until_value(slot, child, &until.on);
        if until.holds(value.ok().as_ref()) {
            self.settle(slot, NodeState::Completed, None);
        } else if round + 1 < max {
            self.follow(slot, round + 1);
        } else if exhausted_ok {
            self.settle(slot, NodeState::Completed, None);
        } else {
            let detail = format!("{} does not hold after {max} rounds", until.on);
            let failure = Failure::new(Code::WorkflowLoopExhausted, detail);
            self.settle(slot, NodeState::Failed, Some(failure));
        }
    }

    /// The first round that is not over, else the last one.
    pub(super) fn last_round(&self, slot: SlotIx) -> Option<(u32, SlotIx)> {
        let mut last = None;
        for (round, child) in &self.slots[slot].children {
            last = Some((*round, *child));
            if !self.is_good(*child) {
                break;
            }
        }
        last
    }

    /// What a node is called in messages.
    pub(super) fn name_of(&self, slot: SlotIx) -> String {
        let record = &self.slots[slot].record;
        match &record.id {
            Some(id) => format!("{} {id:?}", record.kind.as_str()),
            None => format!("{} {}", record.kind.as_str(), record.path),
        }
    }

    /// A time that a node waited for has come.
    pub(super) fn node_due(&mut self, slot: SlotIx) {
        self.slots[slot].record.due_at = None;
        self.dirty.insert(slot);
        let record = &self.slots[slot].record;
        match (record.kind, record.state) {
            (NodeKind::Wait, NodeState::Waiting) => self.settle(slot, NodeState::Completed, None),
            (NodeKind::Workflow, NodeState::Running) => {
                let detail = "the nested workflow took longer than its `timeout`";
                self.close(slot, &Failure::new(Code::WorkflowTimeout, detail));
            }
            (NodeKind::Agent | NodeKind::Tool | NodeKind::Approval, NodeState::Waiting) => {
                self.slots[slot].record.state = NodeState::Ready;
                self.ready.insert((self.slots[slot].record.n, slot));
            }
            // It settled or was closed while its time came.
            _ => {}
        }
    }
}
