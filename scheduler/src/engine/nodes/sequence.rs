//! Children in order.

use mainspring_shared::workflow::nodes::Sequence;
use mainspring_shared::workflow::path::{self, Step};
use mainspring_shared::workflow::run::NodeState;
use mainspring_shared::workflow::spec::NodeIx;

use super::Node;
use crate::engine::Run;
use crate::engine::output::Output;
use crate::engine::tree::{Slot, SlotIx};

impl Node for Sequence {
    fn go_on(&self, run: &mut Run, slot: SlotIx) {
        let mut cursor = run.slots[slot].cursor;
        while let Some(child) = run.slots[slot].children.get(&cursor).copied()
            && run.is_good(child)
        {
            cursor += 1;
        }
        run.slots[slot].cursor = cursor;
        if run.slots[slot].open > 0 {
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

    fn child(&self, key: u32) -> Option<NodeIx> {
        self.steps.get(key as usize).copied()
    }

    fn step<'a>(&'a self, key: u32, id: Option<&'a str>) -> Step<'a> {
        Step::At(key, id)
    }

    fn key_of(&self, path: &str, _is_at: &dyn Fn(u32) -> bool) -> Option<u32> {
        path::index(path)
    }

    fn width(&self, _slot: &Slot) -> u32 {
        self.steps.len() as u32
    }
}
