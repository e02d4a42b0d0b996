//! Runs children in order.

use mainspring_shared::workflow::nodes::Sequence;
use mainspring_shared::workflow::run::NodeState;
use mainspring_shared::workflow::spec::NodeIx;

use super::Node;
use crate::engine::Run;
use crate::engine::output::Output;
use crate::engine::tree::SlotIx;

impl Node for Sequence {
    fn proceed(&self, run: &mut Run, slot: SlotIx) {
        let mut cursor = run.slots[slot].below.cursor;
        while let Some(child) = run.slots[slot].children.get(&cursor).copied()
            && run.is_good(child)
        {
            cursor += 1;
        }
        run.slots[slot].below.cursor = cursor;
        if run.slots[slot].below.open > 0 {
            return;
        }
        if cursor as usize == self.steps.len() {
            run.settle(slot, NodeState::Completed, None);
        } else {
            run.follow(slot, cursor);
        }
    }

    fn output(&self, run: &Run, slot: SlotIx) -> Output {
        let ran = |state: NodeState| state.is_settled() && state != NodeState::Skipped;
        run.output_of(run.last(slot, ran))
    }

    fn steps(&self) -> &[NodeIx] {
        &self.steps
    }
}
