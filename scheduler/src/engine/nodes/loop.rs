//! A body that repeats until a condition holds.

use mainspring_shared::error::{Code, Failure};
use mainspring_shared::workflow::nodes::Loop;
use mainspring_shared::workflow::path::{self, Step};
use mainspring_shared::workflow::run::NodeState;
use mainspring_shared::workflow::spec::NodeIx;
use serde_json::json;

use super::Node;
use crate::engine::Run;
use crate::engine::output::{Output, value_of};
use crate::engine::tree::{Slot, SlotIx};

impl Node for Loop {
    fn proceed(&self, run: &mut Run, slot: SlotIx) {
        if run.slots[slot].below.open > 0 {
            return;
        }
        let Some((round, child)) = last_round(run, slot) else {
            run.follow(slot, 0);
            return;
        };
        if !run.is_good(child) {
            run.follow(slot, round);
        } else if converged(self, run, slot, child) {
            run.settle(slot, NodeState::Completed, None);
        } else if round + 1 < self.max_iterations {
            run.follow(slot, round + 1);
        } else if self.exhausted_ok {
            run.settle(slot, NodeState::Completed, None);
        } else {
            let rounds = self.max_iterations;
            let detail = format!("{} does not hold after {rounds} rounds", self.until.on);
            let failure = Failure::new(Code::WorkflowLoopExhausted, detail);
            run.settle(slot, NodeState::Failed, Some(failure));
        }
    }

    fn output(&self, run: &Run, slot: SlotIx) -> Output {
        let last = last_round(run, slot);
        let rendered = last.map(|(_, child)| run.rendered(child));
        let text = rendered.as_ref().map(|rendered| rendered.text.clone());
        let payload = json!({
            "converged": last.is_some_and(|(_, child)| converged(self, run, slot, child)),
            "iterations": last.map_or(0, |(round, _)| round + 1),
            "last": rendered.map(|rendered| value_of(&rendered)),
        });
        (text, Some(payload))
    }

    fn caches_output(&self) -> bool {
        true
    }

    fn child(&self, _key: u32) -> Option<NodeIx> {
        Some(self.body)
    }

    fn step<'a>(&'a self, key: u32, id: Option<&'a str>) -> Step<'a> {
        Step::Round(key, id)
    }

    fn key_of(&self, path: &str, _is_at: &dyn Fn(u32) -> bool) -> Option<u32> {
        path::round(path)
    }

    fn width(&self, _slot: &Slot) -> u32 {
        self.max_iterations
    }
}

fn converged(node: &Loop, run: &Run, slot: SlotIx, round: SlotIx) -> bool {
    let value = run.until_value(slot, round, &node.until.on);
    node.until.holds(value.ok().as_ref())
}

/// The first round that is not over, else the last one.
fn last_round(run: &Run, slot: SlotIx) -> Option<(u32, SlotIx)> {
    let mut last = None;
    for (round, child) in &run.slots[slot].children {
        last = Some((*round, *child));
        if !run.is_good(*child) {
            break;
        }
    }
    last
}
