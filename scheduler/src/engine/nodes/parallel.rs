//! Runs children concurrently.

use mainspring_shared::error::{Code, Failure};
use mainspring_shared::workflow::nodes::{Fan, Parallel};
use mainspring_shared::workflow::run::NodeState;
use mainspring_shared::workflow::spec::NodeIx;

use super::Node;
use crate::engine::Run;
use crate::engine::output::Output;
use crate::engine::tree::SlotIx;

impl Node for Parallel {
    fn proceed(&self, run: &mut Run, slot: SlotIx) {
        run.fill(slot, self.fan.max_concurrency);
    }

    fn output(&self, run: &Run, slot: SlotIx) -> Output {
        run.output_of(run.last(slot, |state| state == NodeState::Completed))
    }

    fn steps(&self) -> &[NodeIx] {
        &self.branches
    }

    fn fan(&self) -> Option<Fan> {
        Some(self.fan)
    }
}

impl Run {
    /// Enters children of a fan-out until `most` are open. Settles the fan-out when none is left.
    pub(super) fn fill(&mut self, slot: SlotIx, most: u32) {
        while self.slots[slot].below.bad == 0
            && !self.is_closing(slot)
            && self.slots[slot].below.open < most
            && let Some(key) = self.slots[slot].below.todo.pop_first()
        {
            if let Some(body) = self.node_of(slot).item_body()
                && !self.slots[slot].children.contains_key(&key)
            {
                let weight = self.weight(body);
                self.leaves.unreached = self.leaves.unreached.saturating_sub(weight);
            }
            self.enter(slot, key);
        }
        if self.slots[slot].below.open > 0 {
            return;
        }
        if let Some(why) = self.closing_reason(slot) {
            if self.slots[slot].below.bad == 0 && self.is_whole(slot) {
                self.settle(slot, NodeState::Completed, None);
            } else {
                self.settle(slot, NodeState::Cancelled, Some(why));
            }
        } else if self.slots[slot].below.bad > 0 {
            let failed = self.first_failed(slot).map(|child| self.failure_of(child));
            let (state, error) = failed.unwrap_or_else(|| {
                let error = Failure::new(Code::Internal, "a child failed");
                (NodeState::Failed, error)
            });
            self.settle(slot, state, Some(error));
        } else {
            self.settle(slot, NodeState::Completed, None);
        }
    }

    /// Whether every child of a fan-out was entered and is good.
    fn is_whole(&self, slot: SlotIx) -> bool {
        let own = &self.slots[slot];
        let known = own.items.is_some() || self.node_of(slot).item_body().is_none();
        let good = |key: u32| {
            let child = own.children.get(&key);
            child.is_some_and(|child| self.is_good(*child))
        };
        known && (0..self.width(slot)).all(good)
    }

    /// The first child, in spec order, that itself failed; else the first that was cancelled.
    fn first_failed(&self, slot: SlotIx) -> Option<SlotIx> {
        let own = &self.slots[slot];
        let children = || {
            own.children
                .range(..self.width(slot))
                .map(|(_, child)| *child)
        };
        let bad = |child: &SlotIx| self.state(*child).is_settled() && !self.is_good(*child);
        children()
            .find(|child| bad(child) && self.state(*child) == NodeState::Failed)
            .or_else(|| children().find(bad))
    }
}
