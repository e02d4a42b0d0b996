//! Children of a send: its calls create them, their ends are reported to it, and it ends them.

use mainspring_shared::agent::Delegation;
use mainspring_shared::budget::Budget;
use mainspring_shared::error::Code;
use mainspring_shared::id::{BootId, RunKey, SessionKey};
use mainspring_shared::send::WaitingOn;
use mainspring_shared::send::machine::Event;
use mainspring_shared::session::SIGNAL_INBOX;
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, CancelOutcome, DeleteOutcome, RefuseReason, StartedSend, Store,
    cancel_below,
};
use mainspring_shared::tool::{Approval, CallRecord, CallResult, CallState};
use serde_json::json;

use super::children::{self, CHILDREN_MAX, ParentSend};
use super::run::Run;
use crate::db_retry::{Outage, StoreResult};
use crate::tool::Effect;
use crate::{Parts, signals, writes};

/// How often to retry ending children whose sessions are locked: for about seven seconds.
const CHILDREN_ASKED_MAX: u32 = 10;

/// What is to be done for a call, or the result that refuses it.
type Granted<T> = Result<T, CallResult>;

impl Run<'_> {
    /// The effect of a call's tool, whether or not the tool is still offered.
    pub(super) fn effect(&self, call: &CallRecord) -> Effect {
        self.kernel.parts.tools.effect(&call.name)
    }

    /// Finds the children and runs that the open round's calls created under an earlier worker.
    /// Looks them up by id, because a round may stay open for longer than idempotency keys are
    /// kept. Returns false if the database does not answer.
    pub(super) async fn find_made(&mut self) -> bool {
        let tenant = self.send.record.key.tenant;
        let (mut sends, mut runs) = (Vec::new(), Vec::new());
        for record in &self.round.records {
            match self.effect(record) {
                Effect::Delegate => sends.push((tenant, children::send_id(record))),
                Effect::StartRun => {
                    let run = children::run_id(record);
                    runs.push(RunKey { tenant, run });
                }
                Effect::None
                | Effect::Recall
                | Effect::RecallTodo
                | Effect::Remember
                | Effect::PassTurn
                | Effect::AskPerson
                | Effect::ReadSkills
                | Effect::ReadBack => {}
            }
        }
        if sends.is_empty() && runs.is_empty() {
            return true;
        }
        let store = &self.kernel.parts.store;
        let found = self.db_retry().ask(|| async {
            let sends = if sends.is_empty() {
                Vec::new()
            } else {
                store.get_sends(sends.clone()).await?
            };
            let runs = if runs.is_empty() {
                Vec::new()
            } else {
                store.get_runs(runs.clone()).await?
            };
            Ok((sends, runs))
        });
        let Some((sends, runs)) = found.await else {
            return false;
        };
        let sends = sends.into_iter().flatten().map(|send| send.id.0);
        let runs = runs.into_iter().flatten().map(|run| run.key.run.0);
        self.round.made = sends.chain(runs).collect();
        true
    }

    /// Creates the children that the open round's calls ask for, unless they exist already. Returns
    /// an event if that failed.
    pub(super) async fn spawn_children(&mut self) -> Option<Event> {
        let makes =
            |call: &CallRecord| matches!(self.effect(call), Effect::Delegate | Effect::StartRun);
        if !self.round.records.iter().any(makes) {
            return None;
        }
        // Boxed: most rounds have no such calls.
        Box::pin(self.make_children()).await
    }

    async fn make_children(&mut self) -> Option<Event> {
        if let Some(event) = self.start_runs().await {
            return Some(event);
        }
        for place in 0..self.round.records.len() {
            let record = &self.round.records[place];
            if self.effect(record) != Effect::Delegate || record.waits_on == Some(WaitingOn::Human)
            {
                continue;
            }
            let background = children::is_background(record);
            let waits = record.state() == CallState::Waits(WaitingOn::Agent);
            // A stored receipt does not prove that the child was created. What a person answered
            // instead of permitting the call is no receipt.
            let permitted = record.approval != Approval::Asked;
            let has_receipt = permitted && record.result.as_ref().is_some_and(|r| !r.failed);
            if !(waits || background && has_receipt) {
                continue;
            }
            let made = self.round.made.contains(&children::send_id(record).0);
            let child = if made {
                None
            } else {
                let request = ChildRequest {
                    store: self.kernel.parts.store.as_ref(),
                    key: self.send.record.key,
                    send: &self.send,
                    call: record,
                    delegation: self.delegation(),
                    budget: self.bill.child_budget(&record.call_id, self.time_left()),
                };
                match self.db_retry().ask(|| request.child()).await {
                    Some(Ok(child)) => Some(child),
                    Some(Err(refused)) => {
                        self.settle(place, refused);
                        continue;
                    }
                    None => return Some(self.release_as_lost().await),
                }
            };
            if background && waits {
                // Settled before the child exists, so that the child's end reaches the inbox
                // however soon.
                let receipt = self.receipt(place);
                self.settle(place, receipt);
                let changes = self.round.fresh_changes(self.now());
                if let Some(event) = self.store_changes(changes).await {
                    return Some(event);
                }
            }
            let Some(child) = child else { continue };
            let (parts, boot) = (&self.kernel.parts, self.lease_state.lease.boot);
            let accept = || accept_child(parts, boot, child.clone());
            match self.db_retry().ask(accept).await {
                Some(Ok(())) => drop(self.round.made.insert(child.id.0)),
                Some(Err(refused)) => self.settle(place, refused),
                None => return Some(self.release_as_lost().await),
            }
        }
        None
    }

    /// Deletes ephemeral children that have answered. This happens before their answers are stored
    /// as told: a worker that takes over before that is told again and deletes them again.
    pub(super) async fn forget_children(&mut self) {
        let boot = self.lease_state.lease.boot;
        let store = self.kernel.parts.store.clone();
        while let Some(key) = self.round.answered.last().copied() {
            let deleted = self.db_retry().ask(|| async {
                let below = store.list_children(key).await?;
                Ok((below, store.delete_session(key, boot).await?))
            });
            match deleted.await {
                Some((_, DeleteOutcome::Ending { .. })) => {}
                Some((below, deleted)) => {
                    self.round.answered.pop();
                    self.round.answered.extend(below);
                    if matches!(deleted, DeleteOutcome::Deleted { owner: Some(_), .. }) {
                        signals::publish(&self.kernel.parts, key, 0);
                    }
                }
                None => {
                    tracing::warn!(
                        session.id = %key.session,
                        "could not delete an ephemeral child session; keeping it"
                    );
                    self.round.answered.pop();
                }
            }
        }
    }

    /// Ends the children that are still working, because this send ends without their results.
    /// Those whose sessions are locked are retried for some seconds, which delays this session's
    /// next send. If that fails they keep running; they will report to a call that is already
    /// settled.
    pub(super) async fn end_children(&mut self) {
        let mut outage = Outage::default();
        for _ in 0..CHILDREN_ASKED_MAX {
            if self.ask_children_to_end().await || !self.db_retry().pause(&mut outage).await {
                return;
            }
        }
        tracing::warn!(
            send.id = %self.send.record.id,
            "could not cancel children whose sessions are locked; they keep running"
        );
    }

    /// Returns false if a child's session is locked by someone else.
    async fn ask_children_to_end(&mut self) -> bool {
        let parts = &self.kernel.parts;
        let below = cancel_below(
            parts.store.as_ref(),
            self.lease_state.lease.boot,
            self.send.record.key,
            self.send.record.id,
        );
        let outcomes = match below.await {
            Ok(outcomes) => outcomes,
            Err(error) => {
                tracing::warn!(
                    send.id = %self.send.record.id,
                    %error,
                    "could not cancel the children of a send; they keep running"
                );
                return true;
            }
        };
        let mut all = true;
        for outcome in outcomes {
            match outcome {
                CancelOutcome::Signalled { send, .. } => signals::publish(parts, send.key, 0),
                CancelOutcome::Cancelled {
                    enqueue: Some(ready),
                    ..
                } => writes::enqueue(parts, ready),
                CancelOutcome::Locked => all = false,
                CancelOutcome::Cancelled { enqueue: None, .. }
                | CancelOutcome::AlreadyFinal(_)
                | CancelOutcome::NotFound => {}
            }
        }
        all
    }

    /// Tells the parent that this send is final. If the worker crashes before this, a scheduler
    /// does it.
    pub(super) async fn report(&mut self) {
        if let Some(leaf) = &self.send.record.run {
            let key = RunKey {
                tenant: self.send.record.key.tenant,
                run: leaf.run,
            };
            signals::publish_run(&self.kernel.parts, key);
        }
        if self.send.record.reports_to.is_none() {
            return;
        }
        let parts = &self.kernel.parts;
        let ids = vec![(self.send.record.key.tenant, self.send.record.id)];
        match parts.store.report_children(Some(ids), 1).await {
            Ok(reported) => {
                for outcome in reported {
                    if let Some(ready) = outcome.enqueue {
                        writes::enqueue(parts, ready);
                    }
                    if outcome.owner.is_some() {
                        signals::publish(parts, outcome.parent, SIGNAL_INBOX);
                    }
                }
            }
            Err(error) => tracing::debug!(%error, "could not report to the parent; the sweep will"),
        }
    }

    /// The receipt of a child that works in the background.
    pub(super) fn receipt(&self, place: usize) -> CallResult {
        let record = &self.round.records[place];
        let send = children::send_id(record);
        let value = json!({ "send_id": send, "status": "accepted" });
        CallResult {
            value: Some(Box::new(value)),
            ..CallResult::text(format!(
                "The agent works in the background as {send}. You will receive its result when it \
                 finishes; continue with something else or end your turn."
            ))
        }
    }
}

/// The inputs for creating the child that a call asks for.
struct ChildRequest<'a> {
    store: &'a dyn Store,
    key: SessionKey,
    send: &'a StartedSend,
    call: &'a CallRecord,
    delegation: Delegation,
    budget: Option<Budget>,
}

impl ChildRequest<'_> {
    /// The child that a call asks for, unless it is refused.
    async fn child(&self) -> StoreResult<Granted<AcceptSend>> {
        let refuse = |code, text: &str| Ok(Err(CallResult::error(code, format!("error: {text}"))));
        let Some(session) = self.store.get_session(self.key).await? else {
            return refuse(
                Code::SessionNotFound,
                "this conversation accepts no more work",
            );
        };
        let parent = ParentSend {
            key: self.key,
            session: &session,
            send: self.send,
            delegation: &self.delegation,
            budget: self.budget,
        };
        let named = match children::named(self.call, &self.delegation) {
            Ok(None) => None,
            Ok(Some(query)) => {
                let text = query.to_string();
                let found = self.store.find_agents(self.key.tenant, vec![query]).await?;
                let Some(found) = found.into_iter().next().flatten() else {
                    let text = format!("{text:?} matches no active published agent");
                    return refuse(Code::AgentNotFound, &text);
                };
                Some(found)
            }
            Err(refused) => return Ok(Err(refused)),
        };
        let child = children::child(self.call, parent, named);
        let mut child = match child {
            Ok(child) => child,
            Err(refused) => return Ok(Err(refused)),
        };
        let there = self.store.get_session(child.item.target.key()).await?;
        let parent = there.as_ref().and_then(|there| there.parent.as_ref());
        if child.existing.is_some()
            && parent.is_none_or(|parent| parent.session != self.key.session)
        {
            return refuse(
                Code::SessionNotFound,
                "that session is not a child of this one",
            );
        }
        if child.existing.is_some()
            && let Some(there) = &there
        {
            child.narrow(&self.delegation, &there.agent);
        }
        // A child that a crash left behind is already counted.
        if there.is_none() && self.store.open_children(self.key).await? >= CHILDREN_MAX {
            let text = format!(
                "{CHILDREN_MAX} agents of this session are already working; wait for some of them \
                 to finish"
            );
            return refuse(Code::LimitExceeded, &text);
        }
        Ok(Ok(child.item))
    }
}

/// Accepts a child's send; a child left behind by a crash is found by its idempotency key.
async fn accept_child(parts: &Parts, boot: BootId, item: AcceptSend) -> StoreResult<Granted<()>> {
    let refuse = |code, text: &str| Ok(Err(CallResult::error(code, format!("error: {text}"))));
    let mut outcomes = parts.store.accept_sends(boot, vec![item]).await?;
    match outcomes.pop() {
        Some(AcceptOutcome::Accepted(accepted)) => {
            if let Some(ready) = accepted.enqueue {
                writes::enqueue(parts, ready);
            }
            Ok(Ok(()))
        }
        Some(AcceptOutcome::Replayed(_)) => Ok(Ok(())),
        Some(AcceptOutcome::Locked) => Err(mainspring_shared::store::Error::Unavailable {
            source: "the child's session is locked".into(),
        }),
        Some(AcceptOutcome::Refused(RefuseReason::QueueFull)) => refuse(
            Code::LimitExceeded,
            "that session already has too much queued",
        ),
        Some(AcceptOutcome::Mismatch | AcceptOutcome::Refused(_)) | None => {
            refuse(Code::SessionNotFound, "that session accepts no more work")
        }
    }
}
