//! Requests by people: cancel, retry, amend, steer.

use mainspring_shared::error::{Code, Failure};
use mainspring_shared::workflow::run::{NodeState, RunAsk, RunStatus, Steered};
use mainspring_shared::workflow::spec::{Binding, NodeIx};
use serde_json::Value;

use super::Run;
use super::tree::SlotIx;

impl Run {
    pub(super) fn handle_ask(&mut self, ask: RunAsk) -> Result<(), Failure> {
        match ask {
            RunAsk::Cancel { reason } => self.cancel(reason),
            RunAsk::Pause { .. } | RunAsk::Resume => self.pause(&ask),
            RunAsk::Retry { max_tokens } => self.retry(max_tokens),
            RunAsk::CancelNode { path } => {
                let slot = self.find(&path)?;
                if self.state(slot).is_settled() || self.record.status.is_final() {
                    return Err(not_now(format!(
                        "the node is {}",
                        self.state(slot).as_str()
                    )));
                }
                let why = Failure::new(
                    Code::WorkflowCancelled,
                    "the node was cancelled by \
                                                                 request",
                );
                self.close(slot, &why);
                Ok(())
            }
            RunAsk::RetryNode { path } => {
                let slot = self.find(&path)?;
                if !self.state(slot).is_settled() {
                    return Err(not_now(format!(
                        "the node is {}",
                        self.state(slot).as_str()
                    )));
                }
                self.reopen(slot)?;
                self.reset(slot, true);
                self.recount_above(slot);
                match self.slots[slot].parent {
                    Some(parent) => {
                        let key = self.slots[slot].key;
                        self.slots[parent].below.todo.remove(&key);
                        self.enter(parent, key);
                    }
                    None => self.enter_root(),
                }
                Ok(())
            }
            RunAsk::AmendNode {
                path,
                text,
                payload,
            } => self.amend(&path, text, payload),
            RunAsk::Steered {
                path,
                item_id,
                text,
            } => {
                let slot = self.find(&path)?;
                let told = &mut self.slots[slot].record.steered;
                // The request may be a retry whose first response was lost.
                if told.iter().all(|word| word.item_id != item_id) {
                    let at = self.now;
                    told.push(Steered { item_id, text, at });
                    self.changes.dirty.insert(slot);
                }
                Ok(())
            }
        }
    }

    fn find(&self, path: &str) -> Result<SlotIx, Failure> {
        self.by_path.get(path).copied().ok_or_else(|| {
            let detail = format!("the run has no node {path:?}, or has not reached it");
            Failure::new(Code::WorkflowNodeNotFound, detail)
        })
    }

    fn cancel(&mut self, reason: Option<String>) -> Result<(), Failure> {
        if self.record.status.is_final() {
            return Err(not_now(format!(
                "the run is {}",
                self.record.status.as_str()
            )));
        }
        let reason = reason.unwrap_or_else(|| "the run was cancelled".to_owned());
        self.end(Failure::new(Code::WorkflowCancelled, reason));
        Ok(())
    }

    fn pause(&mut self, ask: &RunAsk) -> Result<(), Failure> {
        if self.record.status.is_final() {
            return Err(not_now(format!(
                "the run is {}",
                self.record.status.as_str()
            )));
        }
        self.record.options.pause(ask);
        Ok(())
    }

    /// Reruns every node that failed, was cancelled or was never reached.
    fn retry(&mut self, max_tokens: Option<u64>) -> Result<(), Failure> {
        if !matches!(self.record.status, RunStatus::Failed | RunStatus::Cancelled) {
            return Err(not_now(format!(
                "the run is {}",
                self.record.status.as_str()
            )));
        }
        if max_tokens.is_some() {
            self.record.options.raised_tokens = max_tokens;
            self.raise();
        }
        self.revive();
        if let Some(root) = self.root() {
            self.block_failed(root);
        }
        self.enter_root();
        Ok(())
    }

    /// Makes a final run active again.
    fn revive(&mut self) {
        if self.record.status.is_final() {
            self.record.status = RunStatus::Running;
            self.record.attempt += 1;
            self.record.started_at = Some(self.now);
            self.record.finished_at = None;
            self.record.result = None;
            self.record.error = None;
            // However it ended, its pause ended with it.
            self.record.options.paused_at = None;
        }
    }

    /// Blocks a node that did not succeed, and those below it that did not, so that they run again.
    fn block_failed(&mut self, slot: SlotIx) {
        if self.is_good(slot) || self.state(slot) == NodeState::Blocked {
            return;
        }
        let children: Vec<_> = self.slots[slot].children.values().copied().collect();
        for child in children {
            self.block_failed(child);
        }
        self.block(slot);
    }

    fn block(&mut self, slot: SlotIx) {
        if self.leaf(slot).is_some() {
            self.count_settled(self.state(slot), false);
        }
        self.slots[slot].record.state = NodeState::Blocked;
        self.slots[slot].below.open = 0;
        self.slots[slot].below.bad = 0;
        self.slots[slot].rendered.take();
        self.changes.dirty.insert(slot);
    }

    /// Blocks everything below a node, and with `with_own` the settled node itself, to run again
    /// from the start.
    fn reset(&mut self, slot: SlotIx, with_own: bool) {
        let children: Vec<_> = self.slots[slot].children.values().copied().collect();
        for child in children {
            self.reset(child, true);
        }
        if with_own && self.state(slot).is_settled() {
            self.block(slot);
            self.slots[slot].record.frozen = None;
            self.slots[slot].items = None;
        }
    }

    /// Reopens the nodes around a settled node that is about to change, and resets its dependants.
    fn reopen(&mut self, slot: SlotIx) -> Result<(), Failure> {
        let closing = std::iter::successors(Some(slot), |slot| self.slots[*slot].parent);
        if closing.into_iter().any(|slot| self.is_closing(slot)) {
            return Err(not_now("the node is being cancelled".to_owned()));
        }
        for above in self.above(slot) {
            if self.state(above) == NodeState::Blocked || self.state(above) == NodeState::Skipped {
                return Err(not_now("the node's parent has not run".to_owned()));
            }
        }
        self.revive();
        for dependant in self.dependants(slot) {
            self.reset(dependant, true);
            for above in self.above(dependant) {
                if self.above(slot).contains(&above) {
                    break;
                }
                if self.state(above).is_settled() {
                    self.block(above);
                }
            }
        }
        for above in self.above(slot) {
            if self.state(above).is_settled() {
                if self.leaf(above).is_some() {
                    self.count_settled(self.state(above), false);
                }
                let own = &mut self.slots[above];
                own.record.state = NodeState::Running;
                own.record.error = None;
                own.record.settled_at = None;
                own.record.tolerated = false;
                own.rendered.take();
                self.changes.dirty.insert(above);
            }
        }
        Ok(())
    }

    fn recount_above(&mut self, slot: SlotIx) {
        for above in self.above(slot) {
            self.recount(above);
        }
    }

    fn above(&self, slot: SlotIx) -> Vec<SlotIx> {
        let parents =
            std::iter::successors(self.slots[slot].parent, |slot| self.slots[*slot].parent);
        parents.collect()
    }

    /// Settled nodes that read the result of this node or of a node around it, transitively.
    fn dependants(&self, slot: SlotIx) -> Vec<SlotIx> {
        let mut found = Vec::new();
        let mut changed: Vec<NodeIx> = vec![self.slots[slot].ix];
        changed.extend(self.above(slot).into_iter().map(|slot| self.slots[slot].ix));
        let mut next = 0;
        while next < changed.len() {
            let read = changed[next];
            next += 1;
            for (at, one) in self.slots.iter().enumerate() {
                let settled = one.record.state.is_settled();
                if !settled || at == slot || found.contains(&at) || !self.reads(one.ix, read) {
                    continue;
                }
                // Nodes in other iterations read the results of their own iteration.
                if !self.same_iteration(slot, at, read) {
                    continue;
                }
                found.push(at);
                for ix in std::iter::once(at)
                    .chain(self.above(at))
                    .map(|slot| self.slots[slot].ix)
                {
                    if !changed.contains(&ix) {
                        changed.push(ix);
                    }
                }
            }
        }
        found
    }

    fn reads(&self, at: NodeIx, what: NodeIx) -> bool {
        self.spec
            .names_read(at)
            .iter()
            .any(|name| matches!(self.spec.resolve(at, name), Ok(Binding::Node(ix)) if ix == what))
    }

    /// Whether both nodes are in the same iteration of every node around the one that is read.
    fn same_iteration(&self, slot: SlotIx, other: SlotIx, read: NodeIx) -> bool {
        let chain =
            |slot: SlotIx| std::iter::successors(Some(slot), |slot| self.slots[*slot].parent);
        let around: Vec<NodeIx> = self.spec.ancestors(read).map(|(ix, _)| ix).collect();
        let of = |from: SlotIx| -> Vec<SlotIx> {
            chain(from)
                .filter(|slot| around.contains(&self.slots[*slot].ix))
                .collect()
        };
        let (a, b) = (of(slot), of(other));
        b.iter().all(|slot| {
            let ix = self.slots[*slot].ix;
            a.iter().all(|own| self.slots[*own].ix != ix || own == slot)
        })
    }

    fn amend(
        &mut self,
        path: &str,
        text: Option<String>,
        payload: Option<Value>,
    ) -> Result<(), Failure> {
        let slot = self.find(path)?;
        if self.leaf(slot).is_none() {
            let detail = "only leaves can be amended: a container's result is computed";
            return Err(not_now(detail.to_owned()));
        }
        match self.state(slot) {
            NodeState::Blocked => return Err(not_now("the node waits to run again".to_owned())),
            NodeState::Completed
            | NodeState::Failed
            | NodeState::Cancelled
            | NodeState::Skipped => {
                self.reopen(slot)?;
                self.reset(slot, false);
                self.count_settled(self.state(slot), false);
                // As a running leaf, it is counted by `settle` like any other.
                self.slots[slot].record.state = NodeState::Running;
                self.slots[slot].record.send = None;
                self.recount_above(slot);
            }
            NodeState::Ready | NodeState::Queued | NodeState::Running | NodeState::Waiting => {
                if let Some(send) = self.slots[slot].record.send.filter(|_| self.is_live(slot)) {
                    self.changes.cancel.push(send);
                }
            }
        }
        let record = &mut self.slots[slot].record;
        record.amended = true;
        record.text = Some(text.unwrap_or_default());
        record.payload = payload;
        self.slots[slot].rendered.take();
        self.settle(slot, NodeState::Completed, None);
        Ok(())
    }
}

fn not_now(detail: String) -> Failure {
    Failure::new(Code::WorkflowNotResumable, detail)
}
