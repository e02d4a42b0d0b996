//! Runs of workflows that a send's calls start: awaited ones settle their calls when they end.

use mainspring_shared::error::Code;
use mainspring_shared::id::RunKey;
use mainspring_shared::send::WaitingOn;
use mainspring_shared::send::machine::Event;
use mainspring_shared::store::{CreateRunOutcome, IdempotencyKey, NewRun};
use mainspring_shared::tool::{CallRecord, CallResult, CallState};
use mainspring_shared::workflow::run::{DSL_VERSION, RunOptions, Starter};
use mainspring_shared::workflow::validate::validate_with;
use serde_json::{Value, json};

use super::Run;
use super::persist::Outage;
use crate::checks::off_thread;
use crate::send::children::{self, DEPTH_MAX, depth_of};
use crate::tool::Effect;
use crate::tools::workflow;

impl Run<'_> {
    /// Creates the runs that the open round's calls ask for, where they do not exist yet. An event
    /// when that did not work.
    pub(super) async fn start_runs(&mut self) -> Option<Event> {
        for place in 0..self.records.len() {
            let record = &self.records[place];
            let waits = record.state() == CallState::Waits(WaitingOn::Run);
            if self.effect(record) != Effect::StartRun || !waits {
                continue;
            }
            let run = children::run_id(record);
            if self.made.contains(&run.0) {
                if is_detached(record) {
                    let key = RunKey {
                        tenant: self.key.tenant,
                        run,
                    };
                    self.settle(place, receipt(key));
                }
                continue;
            }
            let mut outage = Outage::default();
            let started = loop {
                match self.try_start(place).await {
                    Ok(started) => break started,
                    Err(error) => {
                        if !self.outlast(&error.into(), &mut outage).await {
                            return Some(self.release_as_lost().await);
                        }
                    }
                }
            };
            match started {
                Ok(Some(receipt)) => self.settle(place, receipt),
                Ok(None) => {}
                Err(refused) => self.settle(place, refused),
            }
        }
        None
    }

    /// Creates the run that a call asks for; one that a crash left behind is found again by its key.
    /// A receipt where the caller does not wait.
    async fn try_start(
        &mut self,
        place: usize,
    ) -> Result<Result<Option<CallResult>, CallResult>, mainspring_shared::store::Error> {
        let store = self.kernel.parts.store.clone();
        let record = &self.records[place];
        let refuse = |code, text: String| Ok(Err(CallResult::error(code, text)));
        let detached = is_detached(record);
        let spec = record.arguments.get("spec").unwrap_or(&Value::Null);
        let delegation = self.offers.delegation(&self.send);
        let granted = delegation.clone();
        let clock = self.kernel.parts.clock.clone();
        let spec = spec.clone();
        let spec =
            match off_thread(clock.as_ref(), move || validate_with(&spec, Some(&granted))).await {
                Some(Ok(spec)) => spec,
                Some(Err(problems)) => {
                    return refuse(Code::SpecInvalid, workflow::problems(&problems));
                }
                None => {
                    let text = "error: the spec could not be checked in time".to_owned();
                    return refuse(Code::SpecInvalid, text);
                }
            };
        let options = RunOptions {
            allow: Some(delegation.names().map(str::to_owned).collect()),
            // A model cannot leave the sandbox that it is in.
            pool: Some(self.send.agent.pool().to_owned()),
            starter: Some(Box::new(Starter {
                call_id: record.call_id.clone(),
                delegation,
                budget: self.child_budget(&record.call_id),
                used: None,
            })),
            ..RunOptions::default()
        };
        if let Err(failure) = spec.admitted(&options) {
            return refuse(failure.code, format!("error: {}", failure.message));
        }
        let session = store.get_session(self.key).await?;
        let depth = session.as_ref().map_or(0, depth_of) + 1;
        if depth > DEPTH_MAX {
            let text =
                format!("error: agents may stand {DEPTH_MAX} steps below the first one, not more");
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
        let mut outcomes = store.create_runs(None, vec![new]).await?;
        match outcomes.pop() {
            Some(CreateRunOutcome::Created(_) | CreateRunOutcome::Replayed(_)) => {
                workflow::publish(self.kernel.parts.bus.as_ref(), key);
                Ok(Ok(detached.then(|| receipt(key))))
            }
            Some(CreateRunOutcome::Mismatch | CreateRunOutcome::SessionNotFound) | None => {
                let text = "error: this conversation takes no more work".to_owned();
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
        value: Some(json!({ "run_id": key.run, "status": "accepted" })),
        ..CallResult::text(format!(
            "The workflow runs as {}. Its result will be told to you when it is there; \
             `workflow_status` shows how far it is. Go on with something else, or end your turn.",
            key.run
        ))
    }
}
