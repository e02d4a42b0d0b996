//! A durable pause.

use mainspring_shared::error::{Code, Failure};
use mainspring_shared::time::Timestamp;
use mainspring_shared::workflow::nodes::Wait;
use mainspring_shared::workflow::run::NodeState;
use serde_json::Value;

use super::Node;
use crate::engine::Run;
use crate::engine::output::Output;
use crate::engine::tree::SlotIx;

impl Node for Wait {
    fn enter(&self, run: &mut Run, slot: SlotIx) {
        match until(self, run, slot) {
            Ok(until) if until <= run.now => run.settle(slot, NodeState::Completed, None),
            Ok(until) => {
                run.slots[slot].record.state = NodeState::Waiting;
                run.set_due(slot, until);
            }
            Err(failure) => run.settle(slot, NodeState::Failed, Some(failure)),
        }
    }

    fn proceed(&self, _run: &mut Run, _slot: SlotIx) {}

    fn due(&self, run: &mut Run, slot: SlotIx) {
        if run.state(slot) == NodeState::Waiting {
            run.settle(slot, NodeState::Completed, None);
        }
    }

    fn output(&self, _run: &Run, _slot: SlotIx) -> Output {
        (Some(String::new()), None)
    }
}

fn until(wait: &Wait, run: &Run, slot: SlotIx) -> Result<Timestamp, Failure> {
    let template = match wait {
        Wait::For(span) => return Ok(run.now.after(span.0)),
        Wait::At(time) => return Ok(*time),
        Wait::Until(template) => template,
    };
    let text = run.render(slot, template)?;
    serde_json::from_value(Value::String(text.trim().into())).map_err(|_| {
        let rendered: String = text.chars().take(100).collect();
        Failure::new(
            Code::WorkflowTemplate,
            format!("{rendered:?} is not a time"),
        )
    })
}
