//! Runs another workflow in its own scope. Its input is frozen when the node is entered.

use mainspring_shared::error::{Code, Failure};
use mainspring_shared::workflow::nodes::Workflow;
use mainspring_shared::workflow::path::Step;
use mainspring_shared::workflow::run::NodeState;
use mainspring_shared::workflow::spec::NodeIx;
use serde_json::json;

use super::Node;
use crate::engine::Run;
use crate::engine::output::Output;
use crate::engine::tree::{Slot, SlotIx};

impl Node for Workflow {
    fn open(&self, run: &mut Run, slot: SlotIx) -> Result<(), Failure> {
        if run.slots[slot].record.frozen.is_none() {
            let input = match &self.input {
                Some(template) => run.render(slot, template)?,
                None => self.envelope.input.clone(),
            };
            run.slots[slot].record.frozen = Some(json!({ "input": input }));
        }
        if let Some(timeout) = self.envelope.timeout {
            run.set_due(slot, run.now.after(timeout.0));
        }
        Ok(())
    }

    fn proceed(&self, run: &mut Run, slot: SlotIx) {
        run.run_only_child(slot, 0);
    }

    fn due(&self, run: &mut Run, slot: SlotIx) {
        if run.state(slot) == NodeState::Running {
            let detail = "the nested workflow took longer than its `timeout`";
            run.close(slot, &Failure::new(Code::WorkflowTimeout, detail));
        }
    }

    fn output(&self, run: &Run, slot: SlotIx) -> Output {
        run.output_of(run.slots[slot].children.get(&0).copied())
    }

    fn child(&self, key: u32) -> Option<NodeIx> {
        (key == 0).then_some(self.root)
    }

    fn step<'a>(&'a self, _key: u32, id: Option<&'a str>) -> Step<'a> {
        Step::Only(id)
    }

    fn key_of(&self, _path: &str, _is_at: &dyn Fn(u32) -> bool) -> Option<u32> {
        Some(0)
    }

    fn width(&self, _slot: &Slot) -> u32 {
        1
    }
}
