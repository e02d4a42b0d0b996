//! A tool call without a model.

use mainspring_shared::agent::AgentSpec;
use mainspring_shared::error::Failure;
use mainspring_shared::message::numbers;
use mainspring_shared::tool::{CREATE_WORKFLOW, SPAWN_AGENT};
use mainspring_shared::workflow::nodes::{MAX_TOKENS_DEFAULT, Tool};
use mainspring_shared::workflow::run::LeafEnd;
use mainspring_shared::workflow::spec::NodeIx;
use serde_json::Value;

use super::Leaf;
use crate::engine::Run;
use crate::engine::leaf::{Outcome, direct_input};
use crate::engine::tree::SlotIx;

/// Tools whose calls start agents and therefore use tokens.
const SPAWNING: [&str; 2] = [SPAWN_AGENT, CREATE_WORKFLOW];

impl Leaf for Tool {
    fn agent(&self, run: &Run, slot: SlotIx) -> Result<AgentSpec, Failure> {
        Ok(run.direct_agent(slot, &self.tool))
    }

    fn input(&self, run: &Run, slot: SlotIx) -> Result<String, Failure> {
        let arguments = Value::Object(self.arguments.clone());
        let arguments = run.render_value(slot, &arguments)?;
        Ok(direct_input(&self.tool, &arguments))
    }

    fn judge(&self, run: &mut Run, slot: SlotIx, end: LeafEnd) -> Outcome {
        let text = end.text.unwrap_or_default();
        let value = end.value.or_else(|| numbers::value(&text));
        let record = &mut run.slots[slot].record;
        record.payload = value.filter(|value| value.is_object() || value.is_array());
        record.text = Some(text);
        Outcome::Succeeded
    }

    fn wanted(&self) -> Option<(Option<u64>, u32)> {
        let spawns = SPAWNING.contains(&self.tool.as_str());
        spawns.then_some((None, MAX_TOKENS_DEFAULT))
    }

    fn fallback(&self) -> Option<NodeIx> {
        self.policy.fallback
    }
}
