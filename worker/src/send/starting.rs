//! Workflow runs that a send's calls start. An awaited run settles its call when it ends.

use std::collections::BTreeMap;

use mainspring_runtime::telemetry;
use mainspring_shared::agent::Delegation;
use mainspring_shared::budget::Budget;
use mainspring_shared::error::Code;
use mainspring_shared::id::{RunKey, SessionKey};
use mainspring_shared::send::WaitingOn;
use mainspring_shared::send::machine::Event;
use mainspring_shared::store::{CreateRunOutcome, IdempotencyKey, NewRun, StartedSend};
use mainspring_shared::tool::{CallRecord, CallResult, CallState};
use mainspring_shared::workflow::run::{DSL_VERSION, RunOptions, Starter};
use mainspring_shared::workflow::validate::{listed, validate_with};
use serde_json::{Value, json};

use super::children::{self, DEPTH_MAX, depth_of};
use super::run::Run;
use crate::Parts;
use crate::checks::off_thread;
use crate::signals::publish_run;
use crate::tool::Effect;

impl Run<'_> {
    /// What the send delegates to the agents that it starts.
    pub(super) fn delegation(&self) -> Delegation {
        let delegation = self.prompt.offers.delegation(&self.send);
        let shown = self.bill.totals.shown.as_ref();
        let own = shown.and_then(|shown| shown.memory.as_ref()?.namespace.as_ref());
        let spec = self.send.agent.memory.as_ref();
        let granted = spec.zip(own).map(|(spec, own)| spec.granted(own));
        delegation.with_memory(granted.and_then(Result::ok).flatten())
    }

    /// Creates the runs that the open round's calls ask for, unless they exist already. Returns an
    /// event if that failed.
    pub(super) async fn start_runs(&mut self) -> Option<Event> {
        for place in 0..self.round.records.len() {
            let record = &self.round.records[place];
            let waits = record.state() == CallState::Waits(WaitingOn::Run);
            if self.effect(record) != Effect::StartRun || !waits {
                continue;
            }
            let run = children::run_id(record);
            if self.round.made.contains(&run.0) {
                if is_detached(record) {
                    let key = RunKey {
                        tenant: self.send.record.key.tenant,
                        run,
                    };
                    self.settle(place, receipt(key));
                }
                continue;
            }
            let request = RunRequest {
                parts: &self.kernel.parts,
                key: self.send.record.key,
                send: &self.send,
                call: record,
                delegation: self.delegation(),
                budget: self.bill.child_budget(&record.call_id, self.time_left()),
            };
            let Some(started) = self.db_retry().ask(|| request.create()).await else {
                return Some(self.release_as_lost().await);
            };
            match started {
                Ok(Some(receipt)) => self.settle(place, receipt),
                Ok(None) => {}
                Err(refused) => self.settle(place, refused),
            }
        }
        None
    }
}

/// A call that asks for a run.
struct RunRequest<'a> {
    parts: &'a Parts,
    key: SessionKey,
    send: &'a StartedSend,
    call: &'a CallRecord,
    delegation: Delegation,
    budget: Option<Budget>,
}

impl RunRequest<'_> {
    /// Creates the run that a call asks for; a run left behind by a crash is found by its
    /// idempotency key. Returns a receipt if the caller does not wait.
    async fn create(
        &self,
    ) -> Result<Result<Option<CallResult>, CallResult>, mainspring_shared::store::Error> {
        let (store, record) = (&self.parts.store, self.call);
        let refuse = |code, text: String| Ok(Err(CallResult::error(code, text)));
        let detached = is_detached(record);
        let spec = record.arguments.get("spec").unwrap_or(&Value::Null);
        let delegation = self.delegation.clone();
        let granted = delegation.clone();
        let clock = self.parts.clock.clone();
        let spec = spec.clone();
        let spec =
            match off_thread(clock.as_ref(), move || validate_with(&spec, Some(&granted))).await {
                Some(Ok(spec)) => spec,
                Some(Err(problems)) => {
                    return refuse(Code::SpecInvalid, listed(&problems));
                }
                None => {
                    let text = "error: the spec could not be checked in time".to_owned();
                    return refuse(Code::SpecInvalid, text);
                }
            };
        let names: Vec<_> = spec.agents().into_iter().collect();
        let found = store.find_agents(self.key.tenant, names.clone()).await?;
        let mut agents = BTreeMap::new();
        for (query, found) in names.into_iter().zip(found) {
            let Some(version) = found else {
                let text = format!("error: \"{query}\" matches no active published agent");
                return refuse(Code::AgentNotFound, text);
            };
            agents.insert(query, version.into());
        }
        let options = RunOptions {
            agents,
            allow: Some(delegation.names().map(str::to_owned).collect()),
            // A model cannot leave the sandbox that it runs in.
            pool: Some(self.send.agent.pool().to_owned()),
            starter: Some(Box::new(Starter {
                call_id: record.call_id.clone(),
                delegation,
                budget: self.budget,
                used: None,
            })),
            traceparent: telemetry::traceparent(),
            ..RunOptions::default()
        };
        if let Err(failure) = spec.admitted(&options) {
            return refuse(failure.code, format!("error: {}", failure.message));
        }
        let session = store.get_session(self.key).await?;
        let depth = session.as_ref().map_or(0, depth_of) + 1;
        if depth > DEPTH_MAX {
            let text = format!("error: sub-agents can be nested at most {DEPTH_MAX} levels deep");
            return refuse(Code::LimitExceeded, text);
        }
        let input = record
            .arguments
            .get("input")
            .filter(|input| !input.is_null());
        let key = RunKey {
            tenant: self.key.tenant,
            run: children::run_id(record),
        };
        let new = NewRun {
            key,
            name: spec.envelope.name.clone(),
            spec: spec.to_value(),
            dsl_version: DSL_VERSION,
            input: input
                .cloned()
                .unwrap_or_else(|| Value::String(spec.envelope.input.clone())),
            options,
            session: Some(self.key.session),
            reports_to: (!detached).then(|| record.call_id.clone()),
            depth,
            idempotency: Some(IdempotencyKey {
                tenant: self.key.tenant,
                route: "run".to_owned(),
                key: record.call_id.clone(),
                body_hash: [0; 32],
            }),
        };
        let mut outcomes = store.create_runs(vec![new]).await?;
        match outcomes.pop() {
            Some(CreateRunOutcome::Created(_) | CreateRunOutcome::Replayed(_)) => {
                publish_run(self.parts, key);
                Ok(Ok(detached.then(|| receipt(key))))
            }
            Some(CreateRunOutcome::Mismatch | CreateRunOutcome::SessionNotFound) | None => {
                let text = "error: this conversation accepts no more work".to_owned();
                refuse(Code::SessionNotFound, text)
            }
        }
    }
}

/// Whether the caller goes on without the run's result.
fn is_detached(call: &CallRecord) -> bool {
    call.arguments.get("detached") == Some(&Value::Bool(true))
}

fn receipt(key: RunKey) -> CallResult {
    CallResult {
        value: Some(Box::new(json!({ "run_id": key.run, "status": "accepted" }))),
        ..CallResult::text(format!(
            "The workflow runs as {}. You will receive its result when it finishes; \
             `workflow_status` shows its progress. Continue with something else or end your turn.",
            key.run
        ))
    }
}
