//! Leaves: starting their sends, and interpreting how the sends end.

use mainspring_shared::agent::{AgentSpec, SendOptions};
use mainspring_shared::budget::Budget;
use mainspring_shared::error::{Code, Failure};
use mainspring_shared::message::ContentPart;
use mainspring_shared::send::{SendStatus, StopReason};
use mainspring_shared::tool::ToolEntry;
use mainspring_shared::workflow::nodes::Body;
use mainspring_shared::workflow::run::{Attempt, DIRECT_MODEL, LeafEnd, LeafStart, NodeState};
use mainspring_shared::workflow::spec::{LEAVES_MAX, NodeIx, RetryOn};
use serde_json::{Map, Value, json};

use super::budget::Slice;
use super::nodes::Leaf;
use super::tree::SlotIx;
use super::{ADVANCE_WORK, LIVE_MAX_DEFAULT, Run};

/// The key of the frozen value that counts the additional sends of a leaf's attempt.
pub(super) const CONTINUED: &str = "continued";

/// The longest pause between two attempts.
const BACKOFF_MAX_MS: f64 = 60_000.0;

/// How many leaves per advance may be passed over because the budget cannot fund them yet.
const UNFUNDED_MAX: usize = 64;

/// How one attempt ended.
pub(super) enum Outcome {
    Succeeded,
    Empty,
    RoundLimit(Failure),
    Failed(Failure),
    /// Final: another attempt would end the same way, or is not wanted.
    Final(NodeState, Failure),
}

impl Run {
    /// Starts ready leaves, in the order in which they were entered.
    pub(super) fn start_leaves(&mut self) {
        if self.is_paused() {
            self.leaves.slot_retries = 0;
            return;
        }
        let begun = self.changes.start.len();
        let own = self.record.options.max_concurrency;
        let own = own.unwrap_or(LIVE_MAX_DEFAULT).max(1);
        let most = own.min(self.leaves.live_max.unwrap_or(u32::MAX));
        let mut passed = (i64::MIN, 0);
        let mut unfunded = 0;
        while self.leaves.live < most && unfunded < UNFUNDED_MAX {
            if self.worked() >= ADVANCE_WORK && !self.leaves.ready.is_empty() {
                self.leaves.put_off = true;
                break;
            }
            let behind = self
                .leaves
                .ready
                .range(passed..)
                .find(|one| **one != passed);
            let Some(next) = behind.copied() else { break };
            self.visits += 1;
            let rivals = u64::from(most - self.leaves.live).min(self.leaves.ready.len() as u64);
            match self.slice(next.1, rivals) {
                Slice::Unlimited => self.start_leaf(next.1, None),
                Slice::Of(caps) => self.start_leaf(next.1, Some(caps.budget())),
                Slice::Later => {
                    passed = next;
                    unfunded += 1;
                }
                Slice::Spent(pool) => {
                    let why = Failure::new(Code::BudgetExceeded, "the budget is spent");
                    match self.pools[pool].of {
                        Some(workflow) => self.close(workflow, &why),
                        None => self.end(why),
                    }
                }
            }
            self.propagate();
        }
        let slot_retries =
            self.leaves.live >= most && self.leaves.live < own && !self.leaves.ready.is_empty();
        self.leaves.slot_retries = match slot_retries {
            true if self.changes.start.len() == begun => self.leaves.slot_retries.saturating_add(1),
            true => 1,
            false => 0,
        };
    }

    fn start_leaf(&mut self, slot: SlotIx, budget: Option<Budget>) {
        match self.leaf_start(slot, budget) {
            Ok(start) => {
                self.remove_pending(slot);
                self.slots[slot].record.state = NodeState::Queued;
                self.count_live(slot, true);
                let slice = budget.unwrap_or_default().slice();
                self.slots[slot].record.reserved = slice;
                self.note_reserved(slot, slice);
                self.changes.dirty.insert(slot);
                self.changes.start.push(start);
            }
            Err(failure) => {
                self.remove_pending(slot);
                self.fail_leaf(slot, NodeState::Failed, failure);
            }
        }
    }

    fn leaf_start(&mut self, slot: SlotIx, budget: Option<Budget>) -> Result<LeafStart, Failure> {
        let leaf = self.leaf(slot).expect("only leaves get ready");
        let options = SendOptions {
            budget,
            deadline: self.body(slot).policy().and_then(|policy| policy.timeout),
            ..SendOptions::default()
        };
        let agent = leaf.agent(self, slot)?;
        let frozen = self.slots[slot].record.frozen.as_ref();
        let frozen = frozen.and_then(|frozen| frozen.get("input"));
        let input = match frozen.and_then(Value::as_str) {
            Some(input) => input.to_owned(),
            None => leaf.input(self, slot)?,
        };
        let record = &self.slots[slot].record;
        let start = LeafStart {
            path: record.path.clone(),
            attempt: record.attempt,
            agent,
            input: vec![ContentPart::text(&input)],
            options,
            metadata: self.metadata(slot, leaf),
            detached: leaf.is_detached(),
            resume_in: leaf.resume_in(self, slot, &input),
        };
        let frozen = &mut self.slots[slot].record.frozen;
        frozen.get_or_insert_with(|| json!({}))["input"] = json!(input);
        Ok(start)
    }

    /// The metadata of the workflows around a leaf, outermost first, and then its own.
    pub(super) fn metadata(&self, slot: SlotIx, leaf: &dyn Leaf) -> Map<String, Value> {
        let ix = self.slots[slot].ix;
        let scope = |ix: &NodeIx| self.spec.node(*ix).scope;
        let around: Vec<NodeIx> = std::iter::successors(scope(&ix), scope).collect();
        let mut metadata = self.spec.envelope.metadata.clone();
        for workflow in around.into_iter().rev() {
            if let Body::Workflow(workflow) = &self.spec.node(workflow).body {
                metadata.extend(workflow.envelope.metadata.clone());
            }
        }
        metadata.extend(leaf.metadata());
        metadata
    }

    /// The agent of a leaf that calls this tool directly, without a model.
    pub(super) fn direct_agent(&self, slot: SlotIx, tool: &str) -> AgentSpec {
        let options = &self.record.options;
        AgentSpec {
            name: self.slots[slot].record.id.clone(),
            model: Some(DIRECT_MODEL.to_owned()),
            pool: options.pool.clone(),
            ..options.heir(Some(&[ToolEntry::Named(tool.to_owned())]))
        }
    }

    /// Makes an entered leaf ready, or fails it if the run has too many leaves.
    pub(super) fn enter_leaf(&mut self, slot: SlotIx) {
        if self.leaves.known() > LEAVES_MAX {
            let detail = format!("the run has more than {LEAVES_MAX} leaves");
            let failure = Failure::new(Code::WorkflowTooLarge, detail);
            self.settle(slot, NodeState::Failed, Some(failure));
        } else {
            self.make_ready(slot);
        }
    }

    /// Lets a leaf start as soon as there is a free slot and enough budget.
    pub(super) fn make_ready(&mut self, slot: SlotIx) {
        self.slots[slot].record.state = NodeState::Ready;
        self.leaves.ready.insert((self.slots[slot].record.n, slot));
    }

    /// Handles a leaf's final send.
    pub(super) fn leaf_ended(&mut self, path: &str, attempt: i32, end: LeafEnd) {
        let Some(slot) = self.by_path.get(path).copied() else {
            return;
        };
        self.visits += 1;
        // Its usage counts even if its result arrives too late.
        self.charge(slot, &end.usage, end.kept);
        if !self.is_live(slot) || self.slots[slot].record.attempt != attempt {
            return;
        }
        self.release_slice(slot);
        // An earlier event of this advance may have asked to cancel this send.
        self.changes.cancel.retain(|send| *send != end.send);
        if let Some(why) = self.slots[slot].record.error.clone() {
            self.remove_pending(slot);
            self.ended_while_cancelling(slot, end, why);
            return;
        }
        let todo_left = end.todo_left;
        let outcome = self.judge(slot, end);
        self.remove_pending(slot);
        let retry = self
            .body(slot)
            .policy()
            .and_then(|policy| policy.retry.clone());
        let goes_on = match &outcome {
            Outcome::RoundLimit(failure) if self.continues(slot, todo_left) => {
                Some(failure.clone())
            }
            _ => None,
        };
        if let Some(failure) = goes_on {
            self.continue_leaf(slot, failure);
            return;
        }
        let (on, failure) = match outcome {
            Outcome::Succeeded => {
                if self.leaf(slot).is_some_and(Leaf::is_ephemeral) {
                    self.changes.forget.extend(self.slots[slot].record.session);
                }
                return self.settle(slot, NodeState::Completed, None);
            }
            Outcome::Final(state, failure) => return self.fail_leaf(slot, state, failure),
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
            self.retry_leaf(slot, error, wait.min(BACKOFF_MAX_MS) as u64);
            return;
        }
        match failure {
            Some(failure) => self.fail_leaf(slot, NodeState::Failed, failure),
            None => self.settle(slot, NodeState::Completed, None),
        }
    }

    /// Ends a leaf that is being cancelled. An answer that arrived first is kept.
    fn ended_while_cancelling(&mut self, slot: SlotIx, end: LeafEnd, why: Failure) {
        self.slots[slot].record.error = None;
        match self.judge(slot, end) {
            Outcome::Succeeded | Outcome::Empty => self.settle(slot, NodeState::Completed, None),
            Outcome::RoundLimit(_) | Outcome::Failed(_) | Outcome::Final(..) => {
                self.settle(slot, NodeState::Cancelled, Some(why));
            }
        }
    }

    /// Attempts that count towards `retry`: those since the node was entered or retried by a
    /// person.
    pub(super) fn attempts_since_entered(&self, slot: SlotIx) -> u32 {
        let record = &self.slots[slot].record;
        let first = record
            .frozen
            .as_ref()
            .and_then(|frozen| frozen.get("first"));
        let first = first.and_then(Value::as_i64).unwrap_or(1);
        u32::try_from(i64::from(record.attempt) - first + 1).unwrap_or(1)
    }

    fn retry_leaf(&mut self, slot: SlotIx, error: Failure, wait_ms: u64) {
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
            self.make_ready(slot);
        } else {
            record.state = NodeState::Waiting;
            let at = self.now.after(std::time::Duration::from_millis(wait_ms));
            self.set_due(slot, at);
        }
    }

    /// Whether a leaf that used up its rounds gets another send in the same session.
    fn continues(&self, slot: SlotIx, todo_left: bool) -> bool {
        let leaf = self.leaf(slot);
        leaf.is_some_and(|leaf| leaf.continues(self, slot, todo_left))
    }

    /// Whether the outcome of a leaf depends on its session's to-do list.
    pub fn needs_todo(&self, path: &str) -> bool {
        let slot = self.by_path.get(path).copied();
        slot.is_some_and(|slot| self.continues(slot, true) && !self.continues(slot, false))
    }

    /// Additional sends of the current attempt.
    pub(super) fn continued(&self, slot: SlotIx) -> u64 {
        let frozen = self.slots[slot].record.frozen.as_ref();
        let done = frozen.and_then(|frozen| frozen.get(CONTINUED));
        done.and_then(Value::as_u64).unwrap_or_default()
    }

    /// Starts another send in the same session.
    fn continue_leaf(&mut self, slot: SlotIx, failure: Failure) {
        let done = self.continued(slot) + 1;
        self.retry_leaf(slot, failure, 0);
        let record = &mut self.slots[slot].record;
        if let Some(frozen) = &mut record.frozen {
            // It does not count as an attempt towards `retry`.
            let first = frozen.get("first").and_then(Value::as_i64).unwrap_or(1);
            frozen["first"] = json!(first + 1);
            frozen[CONTINUED] = json!(done);
        }
        self.changes.dirty.insert(slot);
    }

    /// Handles the final failure of a leaf: enters its fallback, or settles the leaf with the
    /// failure.
    pub(super) fn fail_leaf(&mut self, slot: SlotIx, state: NodeState, failure: Failure) {
        let fallback = self.body(slot).policy().and_then(|policy| policy.fallback);
        if fallback.is_none() || state == NodeState::Cancelled {
            self.settle(slot, state, Some(failure));
            return;
        }
        self.release_slice(slot);
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
        self.changes.dirty.insert(slot);
        self.enter(slot, 0);
    }

    /// Settles a leaf with the result of its fallback.
    pub(super) fn fallback_ended(&mut self, slot: SlotIx) {
        if self.slots[slot].below.open > 0 {
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

    /// Stores the answer of a send, and determines how the attempt ended.
    fn judge(&mut self, slot: SlotIx, end: LeafEnd) -> Outcome {
        let failed = |code, detail: &str| {
            let known = end.error.clone();
            known.unwrap_or_else(|| Failure::new(code, detail))
        };
        match (end.status, end.stop_reason) {
            // A truncated answer completes a send only if its agent accepts truncated answers.
            (SendStatus::Completed, StopReason::End | StopReason::Length) => {}
            (SendStatus::Completed, StopReason::RoundLimit) => {
                let detail = "the leaf used up its rounds";
                return Outcome::RoundLimit(failed(Code::WorkflowRoundLimit, detail));
            }
            (SendStatus::Cancelled, _) => {
                let failure = failed(Code::WorkflowCancelled, "the send was cancelled");
                return Outcome::Final(NodeState::Cancelled, failure);
            }
            (_, StopReason::Budget) => {
                let failure = failed(Code::BudgetExceeded, "the leaf used up its tokens");
                return Outcome::Final(NodeState::Failed, failure);
            }
            (_, StopReason::Deadline) => {
                let detail = "the leaf took longer than its `timeout`";
                return Outcome::Failed(Failure::new(Code::WorkflowTimeout, detail));
            }
            _ => return Outcome::Failed(failed(Code::Internal, "the send did not succeed")),
        }
        self.with_node(slot, |node, run| match node.leaf() {
            Some(leaf) => leaf.judge(run, slot, end),
            None => Outcome::Succeeded,
        })
    }
}

/// The message of a leaf that is a tool call.
pub(super) fn direct_input(tool: &str, arguments: &Value) -> String {
    json!({ "tool": tool, "arguments": arguments }).to_string()
}
