//! Leaves: what a send is told, and what its end means.

use mainspring_shared::agent::{AgentSpec, SendOptions};
use mainspring_shared::budget::Budget;
use mainspring_shared::error::{Code, Failure};
use mainspring_shared::id::SessionId;
use mainspring_shared::message::ContentPart;
use mainspring_shared::send::{SendStatus, StopReason};
use mainspring_shared::tool::ToolEntry;
use mainspring_shared::workflow::run::{
    Attempt, DIRECT_MODEL, GoesOn, LeafEnd, LeafStart, NodeState,
};
use mainspring_shared::workflow::spec::{Body, Lifecycle, NodeIx, RetryOn};
use mainspring_shared::workflow::template::{render, render_value};
use serde_json::{Map, Value, json};

use super::budget::Slice;
use super::tree::SlotIx;
use super::{LIVE_MAX_DEFAULT, Run};

/// The tool that asks a person.
const ASK_TOOL: &str = "ask_person";

/// Under this name a leaf's frozen values count the further sends of one attempt.
pub(super) const CONTINUED: &str = "continued";

/// What a leaf is told that goes on.
const GO_ON: &str = "Your rounds were used up before you were done. Go on where you stopped.";

/// No pause between two attempts is longer.
const BACKOFF_MAX_MS: f64 = 60_000.0;

/// Leaves that are looked at in vain, per advance, for want of tokens.
const VAIN_MAX: usize = 64;

/// How one attempt ended.
enum Outcome {
    Good,
    Empty,
    RoundLimit(Failure),
    Failed(Failure),
    /// Another attempt would end in the same way, or nobody wants one.
    Over(NodeState, Failure),
}

impl Run {
    /// Starts what may start, in the order in which it was reached.
    pub(super) fn start_leaves(&mut self) {
        let begun = self.start.len();
        let own = self.record.options.max_concurrency;
        let own = own.unwrap_or(LIVE_MAX_DEFAULT).max(1);
        let most = own.min(self.live_max.unwrap_or(u32::MAX));
        let mut passed = (i64::MIN, 0);
        let mut vain = 0;
        while self.live < most && vain < VAIN_MAX {
            let behind = self.ready.range(passed..).find(|one| **one != passed);
            let Some(next) = behind.copied() else { break };
            self.looks += 1;
            let rivals = u64::from(most - self.live).min(self.ready.len() as u64);
            match self.slice(next.1, rivals) {
                Slice::Unlimited => self.start_leaf(next.1, None),
                Slice::Of(caps) => self.start_leaf(next.1, Some(caps.budget())),
                Slice::Later => {
                    passed = next;
                    vain += 1;
                }
                Slice::Spent(pool) => {
                    let why = Failure::new(Code::BudgetExceeded, "the budget is spent");
                    match self.pools[pool].of {
                        Some(workflow) => self.close(workflow, &why),
                        None => self.end(why),
                    }
                }
            }
            self.work_off();
        }
        let crowded = self.live >= most && self.live < own && !self.ready.is_empty();
        self.crowded = match crowded {
            true if self.start.len() == begun => self.crowded.saturating_add(1),
            true => 1,
            false => 0,
        };
    }

    fn start_leaf(&mut self, slot: SlotIx, budget: Option<Budget>) {
        match self.leaf_start(slot, budget) {
            Ok(start) => {
                self.leave(slot);
                self.slots[slot].record.state = NodeState::Queued;
                self.count_live(slot, true);
                let slice = budget.unwrap_or_default().slice();
                self.slots[slot].record.reserved = slice;
                self.note_reserved(slot, slice);
                self.dirty.insert(slot);
                self.start.push(start);
            }
            Err(failure) => {
                self.leave(slot);
                self.fail_leaf(slot, NodeState::Failed, failure);
            }
        }
    }

    fn leaf_start(&mut self, slot: SlotIx, budget: Option<Budget>) -> Result<LeafStart, Failure> {
        let names = self.names(slot);
        let policy = self.body(slot).policy();
        let options = SendOptions {
            budget,
            deadline: policy.and_then(|policy| policy.timeout),
            ..SendOptions::default()
        };
        let frozen = self.slots[slot].record.frozen.as_ref();
        let frozen = frozen
            .and_then(|frozen| frozen.get("input"))
            .and_then(Value::as_str);
        let (agent, input) = match self.body(slot) {
            Body::Agent(agent) => {
                let prompt = render(&agent.spec.system_prompt, &names)?;
                let input = if let Some(input) = frozen {
                    input.to_owned()
                } else {
                    let mut input = render(&agent.input, &names)?;
                    self.append_context(slot, &agent.inputs_from, &mut input);
                    input
                };
                (agent.session_agent(prompt, &self.record.options), input)
            }
            Body::Tool {
                tool, arguments, ..
            } => {
                let arguments = Value::Object(arguments.clone());
                let input = match frozen {
                    Some(input) => input.to_owned(),
                    None => direct(tool, &render_value(&arguments, &names)?),
                };
                (self.direct_agent(slot, tool), input)
            }
            Body::Approval { message, .. } => {
                let input = match frozen {
                    Some(input) => input.to_owned(),
                    None => direct(
                        ASK_TOOL,
                        &json!({"question": render(message, &names)?, "options": ["approve", "deny"]}),
                    ),
                };
                (self.direct_agent(slot, ASK_TOOL), input)
            }
            Body::Sequence { .. }
            | Body::Parallel { .. }
            | Body::Foreach { .. }
            | Body::Branch { .. }
            | Body::Loop { .. }
            | Body::Wait(_)
            | Body::Workflow { .. } => unreachable!("only leaves get ready"),
        };
        let record = &mut self.slots[slot].record;
        match &mut record.frozen {
            Some(frozen) => frozen["input"] = json!(input),
            None => record.frozen = Some(json!({ "input": input })),
        }
        let goes_on = self.goes_on(slot, &input);
        let record = &self.slots[slot].record;
        Ok(LeafStart {
            path: record.path.clone(),
            attempt: record.attempt,
            agent,
            input: vec![ContentPart::text(input)],
            options,
            metadata: self.metadata(slot),
            detached: matches!(self.body(slot), Body::Agent(agent)
                if agent.spec.lifecycle == Lifecycle::Detached),
            goes_on,
        })
    }

    /// The metadata of the workflows around a leaf, from the outermost in, and its own.
    fn metadata(&self, slot: SlotIx) -> Map<String, Value> {
        let ix = self.slots[slot].ix;
        let scope = |ix: &NodeIx| self.spec.node(*ix).scope;
        let around: Vec<NodeIx> = std::iter::successors(scope(&ix), scope).collect();
        let mut metadata = self.spec.envelope.metadata.clone();
        for workflow in around.into_iter().rev() {
            if let Body::Workflow { envelope, .. } = &self.spec.node(workflow).body {
                metadata.extend(envelope.metadata.clone());
            }
        }
        if let Body::Agent(agent) = self.body(slot) {
            metadata.extend(agent.spec.metadata.clone());
        }
        metadata
    }

    fn direct_agent(&self, slot: SlotIx, tool: &str) -> AgentSpec {
        let options = &self.record.options;
        let wanted = [ToolEntry::Named(tool.to_owned())];
        let mut agent = options.heir(Some(&wanted));
        // The question is the workflow's own, not a tool that its starter must have.
        if matches!(self.body(slot), Body::Approval { .. }) {
            agent.tools = wanted.to_vec();
            agent.allow = Some(vec![tool.to_owned()]);
        }
        AgentSpec {
            name: self.slots[slot].record.id.clone(),
            model: Some(DIRECT_MODEL.to_owned()),
            pool: options.pool.clone(),
            ..agent
        }
    }

    /// A send is final.
    pub(super) fn leaf_ended(&mut self, path: &str, attempt: i32, end: LeafEnd) {
        let Some(slot) = self.by_path.get(path).copied() else {
            return;
        };
        self.looks += 1;
        // Whatever it cost counts, also where its result comes too late.
        self.charge(slot, &end.usage, end.kept);
        if !self.is_live(slot) || self.slots[slot].record.attempt != attempt {
            return;
        }
        self.give_back(slot);
        // An earlier event of this advance may have asked for the end that is here already.
        self.cancel.retain(|send| *send != end.send);
        if let Some(why) = self.slots[slot].record.error.clone() {
            self.leave(slot);
            self.ended_while_closing(slot, end, why);
            return;
        }
        let todo_left = end.todo_left;
        let outcome = self.judge(slot, end);
        self.leave(slot);
        let retry = self
            .body(slot)
            .policy()
            .and_then(|policy| policy.retry.clone());
        let goes_on = match &outcome {
            Outcome::RoundLimit(failure) if self.may_go_on(slot, todo_left) => {
                Some(failure.clone())
            }
            _ => None,
        };
        if let Some(failure) = goes_on {
            self.continue_leaf(slot, failure);
            return;
        }
        let (on, failure) = match outcome {
            Outcome::Good => {
                if let Body::Agent(agent) = self.body(slot)
                    && agent.spec.is_ephemeral()
                {
                    self.forget.extend(self.slots[slot].record.session);
                }
                return self.settle(slot, NodeState::Completed, None);
            }
            Outcome::Over(state, failure) => return self.fail_leaf(slot, state, failure),
            Outcome::Empty => (RetryOn::Empty, None),
            Outcome::RoundLimit(failure) => (RetryOn::RoundLimit, Some(failure)),
            Outcome::Failed(failure) => (RetryOn::Failed, Some(failure)),
        };
        let done = self.attempts_since_entered(slot);
        if let Some(retry) =
            retry.filter(|retry| retry.on.contains(&on) && done < retry.max_attempts)
        {
            let doublings = i32::try_from(done - 1).unwrap_or(i32::MAX);
            let wait = retry.backoff.0.as_millis() as f64 * retry.backoff_factor.powi(doublings);
            let error =
                failure.unwrap_or_else(|| Failure::new(Code::OutputNoJson, "it said nothing"));
            self.again(slot, error, wait.min(BACKOFF_MAX_MS) as u64);
            return;
        }
        match failure {
            Some(failure) => self.fail_leaf(slot, NodeState::Failed, failure),
            None => self.settle(slot, NodeState::Completed, None),
        }
    }

    /// A leaf that is being ended keeps an answer that came first.
    fn ended_while_closing(&mut self, slot: SlotIx, end: LeafEnd, why: Failure) {
        self.slots[slot].record.error = None;
        match self.judge(slot, end) {
            Outcome::Good | Outcome::Empty => self.settle(slot, NodeState::Completed, None),
            Outcome::RoundLimit(_) | Outcome::Failed(_) | Outcome::Over(..) => {
                self.settle(slot, NodeState::Cancelled, Some(why));
            }
        }
    }

    /// Attempts that count for `retry`: those since the node was reached, or ran again by hand.
    fn attempts_since_entered(&self, slot: SlotIx) -> u32 {
        let record = &self.slots[slot].record;
        let first = record
            .frozen
            .as_ref()
            .and_then(|frozen| frozen.get("first"));
        let first = first.and_then(Value::as_i64).unwrap_or(1);
        u32::try_from(i64::from(record.attempt) - first + 1).unwrap_or(1)
    }

    fn again(&mut self, slot: SlotIx, error: Failure, wait_ms: u64) {
        let record = &mut self.slots[slot].record;
        record.earlier.push(Attempt {
            attempt: record.attempt,
            session_id: record.session.take(),
            send_id: record.send.take(),
            error: Some(error),
        });
        record.attempt += 1;
        record.text = None;
        record.payload = None;
        if let Some(Value::Object(frozen)) = &mut record.frozen {
            frozen.remove(CONTINUED);
        }
        if wait_ms == 0 {
            record.state = NodeState::Ready;
            self.ready.insert((self.slots[slot].record.n, slot));
        } else {
            record.state = NodeState::Waiting;
            let at = self.now.after(std::time::Duration::from_millis(wait_ms));
            self.set_due(slot, at);
        }
    }

    /// Whether a leaf that used up its rounds goes on in its session.
    fn may_go_on(&self, slot: SlotIx, todo_left: bool) -> bool {
        let Body::Agent(agent) = self.body(slot) else {
            return false;
        };
        let done = self.continued(slot);
        agent
            .continuation
            .is_some_and(|more| done < u64::from(more.max) && (todo_left || !more.needs_todo))
    }

    /// Whether the end of a leaf can only be judged by its list of things to do.
    pub fn needs_todo(&self, path: &str) -> bool {
        let slot = self.by_path.get(path).copied();
        slot.is_some_and(|slot| self.may_go_on(slot, true) && !self.may_go_on(slot, false))
    }

    /// Further sends of the attempt under way.
    fn continued(&self, slot: SlotIx) -> u64 {
        let frozen = self.slots[slot].record.frozen.as_ref();
        let done = frozen.and_then(|frozen| frozen.get(CONTINUED));
        done.and_then(Value::as_u64).unwrap_or_default()
    }

    /// The session that the leaf goes on in: its own, because its rounds were used up, or that of
    /// the round before.
    fn goes_on(&self, slot: SlotIx, input: &str) -> Option<GoesOn> {
        let Body::Agent(agent) = self.body(slot) else {
            return None;
        };
        if self.continued(slot) == 0 {
            return Some(GoesOn {
                session: self.round_before(slot)?,
                input: vec![ContentPart::text(input)],
                max_rounds: None,
            });
        }
        Some(GoesOn {
            session: self.slots[slot].record.earlier.last()?.session_id?,
            input: vec![ContentPart::text(GO_ON)],
            max_rounds: agent.continuation.map(|more| more.extra_rounds),
        })
    }

    /// The session of the same leaf in the round before, where its loop keeps it.
    fn round_before(&self, slot: SlotIx) -> Option<SessionId> {
        if self.attempts_since_entered(slot) > 1 {
            return None;
        }
        let chain = std::iter::successors(Some(slot), |slot| self.slots[*slot].parent);
        let mut pairs = chain.clone().zip(chain.skip(1));
        let (child, around) =
            pairs.find(|(_, above)| matches!(self.body(*above), Body::Loop { .. }))?;
        let Body::Loop { continued, .. } = self.body(around) else {
            return None;
        };
        let key = self.slots[child].key.checked_sub(1)?;
        if !continued.contains(&self.slots[slot].ix) {
            return None;
        }
        let before = self.slots[around].children.get(&key)?;
        let within = &self.slots[slot].record.path[self.slots[child].record.path.len()..];
        let path = format!("{}{within}", self.slots[*before].record.path);
        self.node(&path)?.session
    }

    /// Goes on in the same session.
    fn continue_leaf(&mut self, slot: SlotIx, failure: Failure) {
        let done = self.continued(slot) + 1;
        self.again(slot, failure, 0);
        let record = &mut self.slots[slot].record;
        if let Some(frozen) = &mut record.frozen {
            // It is no further attempt in the sense of `retry`.
            let first = frozen.get("first").and_then(Value::as_i64).unwrap_or(1);
            frozen["first"] = json!(first + 1);
            frozen[CONTINUED] = json!(done);
        }
        self.dirty.insert(slot);
    }

    /// A leaf failed for good: its fallback runs, or the failure stands.
    pub(super) fn fail_leaf(&mut self, slot: SlotIx, state: NodeState, failure: Failure) {
        let fallback = self.body(slot).policy().and_then(|policy| policy.fallback);
        if fallback.is_none() || state == NodeState::Cancelled {
            self.settle(slot, state, Some(failure));
            return;
        }
        self.give_back(slot);
        let record = &mut self.slots[slot].record;
        record.earlier.push(Attempt {
            attempt: record.attempt,
            session_id: record.session.take(),
            send_id: record.send.take(),
            error: Some(failure),
        });
        record.state = NodeState::Running;
        record.text = None;
        record.payload = None;
        self.dirty.insert(slot);
        self.enter(slot, 0);
    }

    /// What replaced a leaf is over, or is to go on.
    pub(super) fn fallback_ended(&mut self, slot: SlotIx) {
        if self.slots[slot].open > 0 {
            return;
        }
        match self.slots[slot].children.get(&0).copied() {
            Some(child) if self.is_good(child) => {
                self.settle(slot, NodeState::Completed, None);
            }
            Some(child) => {
                let (state, error) = self.failure_of(child);
                self.settle(slot, state, Some(error));
            }
            None => {}
        }
    }

    /// Takes over what the send said, and says what that means.
    fn judge(&mut self, slot: SlotIx, end: LeafEnd) -> Outcome {
        let failed = |code, detail: &str| {
            let known = end.error.clone();
            known.unwrap_or_else(|| Failure::new(code, detail))
        };
        match (end.status, end.stop_reason) {
            // One that was cut is a whole one only where its agent says so.
            (SendStatus::Completed, StopReason::End | StopReason::Length) => {}
            (SendStatus::Completed, StopReason::RoundLimit) => {
                let detail = "the leaf used up its rounds";
                return Outcome::RoundLimit(failed(Code::WorkflowRoundLimit, detail));
            }
            (SendStatus::Cancelled, _) => {
                let failure = failed(Code::WorkflowCancelled, "the send was cancelled");
                return Outcome::Over(NodeState::Cancelled, failure);
            }
            (_, StopReason::Budget) => {
                let failure = failed(Code::BudgetExceeded, "the leaf used up its tokens");
                return Outcome::Over(NodeState::Failed, failure);
            }
            (_, StopReason::Deadline) => {
                let detail = "the leaf took longer than its `timeout`";
                return Outcome::Failed(Failure::new(Code::WorkflowTimeout, detail));
            }
            _ => return Outcome::Failed(failed(Code::Internal, "the send did not succeed")),
        }
        match self.body(slot) {
            Body::Approval { .. } => self.judge_approval(slot, end),
            Body::Tool { .. } => {
                let text = end.text.unwrap_or_default();
                let value = end.value.or_else(|| serde_json::from_str(&text).ok());
                let record = &mut self.slots[slot].record;
                record.payload = value.filter(|value| value.is_object() || value.is_array());
                record.text = Some(text);
                Outcome::Good
            }
            _ => {
                let text = end.text.unwrap_or_default();
                let empty = text.trim().is_empty() && end.value.is_none();
                let record = &mut self.slots[slot].record;
                record.text = Some(text);
                record.payload = end.value;
                if empty { Outcome::Empty } else { Outcome::Good }
            }
        }
    }

    fn judge_approval(&mut self, slot: SlotIx, end: LeafEnd) -> Outcome {
        let text = end.text.unwrap_or_default();
        let value = end.value.or_else(|| serde_json::from_str(&text).ok());
        let (approved, note) = decision(value.as_ref(), &text);
        let decides = approved || self.spec.decides(self.slots[slot].ix, "approved");
        let record = &mut self.slots[slot].record;
        record.payload = Some(json!({ "approved": approved, "note": note }));
        record.text = Some(note.clone());
        if decides {
            return Outcome::Good;
        }
        let detail = match note.trim() {
            "" => "a person did not approve".to_owned(),
            note => format!("a person did not approve: {note}"),
        };
        Outcome::Over(NodeState::Failed, Failure::new(Code::ToolDenied, detail))
    }
}

fn direct(tool: &str, arguments: &Value) -> String {
    json!({ "tool": tool, "arguments": arguments }).to_string()
}

/// What a person's answer means; anything but a clear yes is a no.
fn decision(value: Option<&Value>, text: &str) -> (bool, String) {
    if let Some(Value::Object(map)) = value
        && let Some(approved) = map.get("approved").and_then(Value::as_bool)
    {
        let note = map.get("note").and_then(Value::as_str).unwrap_or_default();
        return (approved, note.to_owned());
    }
    let plain = match value {
        Some(Value::Bool(approved)) => return (*approved, String::new()),
        Some(Value::String(text)) => text.clone(),
        _ => text.to_owned(),
    };
    let trimmed = plain.trim();
    let (first, rest) = trimmed
        .split_once([' ', ',', '.', ':', ';', '\n'])
        .unwrap_or((trimmed, ""));
    let rest = rest.trim().to_owned();
    match first.to_ascii_lowercase().as_str() {
        "yes" | "y" | "ok" | "approve" | "approved" | "true" => (true, rest),
        "no" | "n" | "deny" | "denied" | "reject" | "rejected" | "false" => (false, rest),
        _ => (false, trimmed.to_owned()),
    }
}
