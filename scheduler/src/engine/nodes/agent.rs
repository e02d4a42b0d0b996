//! A send to a model in a session of its own.

use mainspring_shared::agent::prompt::bind;
use mainspring_shared::agent::{AgentSpec, PromptFault};
use mainspring_shared::error::{Code, Failure};
use mainspring_shared::id::SessionId;
use mainspring_shared::message::ContentPart;
use mainspring_shared::workflow::nodes::{Agent, Body, Lifecycle, NamedLeaf};
use mainspring_shared::workflow::run::{LeafEnd, ResumeIn};
use mainspring_shared::workflow::spec::NodeIx;
use serde_json::{Map, Value};

use super::Leaf;
use crate::engine::Run;
use crate::engine::leaf::Outcome;
use crate::engine::tree::SlotIx;

/// The failure for variables that do not fit a published agent's prompt, or for its templates.
fn unfit(faults: &[PromptFault]) -> Failure {
    let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
    Failure::new(Code::WorkflowTemplate, faults.join("; "))
}

/// The message of another send in a session whose rounds were used up.
const GO_ON: &str = "Your rounds were used up before you were done. Continue where you stopped.";

impl Leaf for Agent {
    fn agent(&self, run: &Run, slot: SlotIx) -> Result<AgentSpec, Failure> {
        if let Some(named) = &self.named {
            return self.published(named, run, slot);
        }
        let prompt = run.render(slot, &self.spec.system_prompt)?;
        Ok(self.session_agent(prompt, &run.record.options))
    }

    fn input(&self, run: &Run, slot: SlotIx) -> Result<String, Failure> {
        let mut input = run.render(slot, &self.input)?;
        run.append_context(slot, &self.inputs_from, &mut input);
        Ok(input)
    }

    fn judge(&self, run: &mut Run, slot: SlotIx, end: LeafEnd) -> Outcome {
        let text = end.text.unwrap_or_default();
        let empty = text.trim().is_empty() && end.value.is_none();
        let record = &mut run.slots[slot].record;
        record.text = Some(text);
        record.payload = end.value;
        if empty {
            Outcome::Empty
        } else {
            Outcome::Succeeded
        }
    }

    fn wanted(&self) -> Option<(Option<u64>, u32)> {
        Some((self.spec.budget, self.spec.max_tokens))
    }

    fn continues(&self, run: &Run, slot: SlotIx, todo_left: bool) -> bool {
        let done = run.continued(slot);
        self.continuation
            .is_some_and(|more| done < u64::from(more.max) && (todo_left || !more.needs_todo))
    }

    fn resume_in(&self, run: &Run, slot: SlotIx, input: &str) -> Option<ResumeIn> {
        if run.continued(slot) == 0 {
            return Some(ResumeIn {
                session: run.previous_session(slot)?,
                input: vec![ContentPart::text(input)],
                max_rounds: None,
            });
        }
        Some(ResumeIn {
            session: run.slots[slot].record.earlier.last()?.session_id?,
            input: vec![ContentPart::text(GO_ON)],
            max_rounds: self.continuation.map(|more| more.extra_rounds),
        })
    }

    fn metadata(&self) -> Map<String, Value> {
        self.spec.metadata.clone()
    }

    fn is_detached(&self) -> bool {
        self.spec.lifecycle == Lifecycle::Detached
    }

    fn is_ephemeral(&self) -> bool {
        self.spec.is_ephemeral()
    }

    fn fallback(&self) -> Option<NodeIx> {
        self.policy.fallback
    }
}

trait Published {
    /// The published agent that the leaf names, at the version pinned by the run.
    fn published(&self, named: &NamedLeaf, run: &Run, slot: SlotIx) -> Result<AgentSpec, Failure>;
}

impl Published for Agent {
    fn published(&self, named: &NamedLeaf, run: &Run, slot: SlotIx) -> Result<AgentSpec, Failure> {
        let options = &run.record.options;
        let Some(pinned) = options.agents.get(&named.agent) else {
            let detail = format!("the run has no agent {}", named.agent);
            return Err(Failure::new(Code::AgentNotFound, detail));
        };
        let variables = Value::Object(named.variables.clone());
        let variables = match run.render_value(slot, &variables)? {
            Value::Object(variables) => variables,
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_) => Map::new(),
        };
        let agent = self.named_agent(pinned.spec.clone(), options);
        let metadata = run.metadata(slot, self);
        bind(agent, Some(pinned.agent.clone()), variables, &metadata)
            .map_err(|faults| unfit(&faults))
    }
}

impl Run {
    /// The session of the same leaf in the previous round, if its loop continues sessions.
    fn previous_session(&self, slot: SlotIx) -> Option<SessionId> {
        if self.attempts_since_entered(slot) > 1 {
            return None;
        }
        let chain = std::iter::successors(Some(slot), |slot| self.slots[*slot].parent);
        let mut pairs = chain.clone().zip(chain.skip(1));
        let (child, around) =
            pairs.find(|(_, above)| matches!(self.body(*above), Body::Loop(_)))?;
        let Body::Loop(node) = self.body(around) else {
            return None;
        };
        let key = self.slots[child].key.checked_sub(1)?;
        if !node.continued.contains(&self.slots[slot].ix) {
            return None;
        }
        let before = self.slots[around].children.get(&key)?;
        let within = &self.slots[slot].record.path[self.slots[child].record.path.len()..];
        let path = format!("{}{within}", self.slots[*before].record.path);
        self.node(&path)?.session
    }
}
