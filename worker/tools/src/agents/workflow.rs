//! Tools for workflow runs. The tool that starts a run is not among them: it is part of the send
//! itself, because the send may wait for the run to end.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use mainspring_shared::bus::{Bus, RunNotice, Topic};
use mainspring_shared::id::{RunId, RunKey, SessionKey};
use mainspring_shared::store::{self, ListRuns, ReadNodes, Store};
use mainspring_shared::tool::Repeat;
use mainspring_shared::workflow::run::{NodeState, RunAsk, RunRecord};
use mainspring_shared::workflow::validate::{listed, validate};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use crate::catalogue::{Listed, NOTHING, insert_all, tool};
use mainspring_worker::tool::{
    Invocation, Output, Tool, ToolError, ToolSpec, Tools, ToolsError, Traits,
};

/// Maximum number of runs listed.
const RUNS_MAX: u32 = 20;

/// Maximum number of nodes shown for one run.
const NODES_MAX: u32 = 200;

/// Maximum number of characters shown of a node's output.
const TEXT_MAX: usize = 300;

/// Registers the tools.
pub fn register(
    store: &Arc<dyn Store>,
    bus: &Arc<dyn Bus>,
    tools: &mut Tools,
) -> Result<(), ToolsError> {
    let (store, bus) = (store.clone(), bus.clone());
    insert_all(&TOOLS, &Workflows { store, bus }, tools)
}

/// State that the tools share.
pub(crate) struct Workflows {
    store: Arc<dyn Store>,
    bus: Arc<dyn Bus>,
}

pub(crate) const TOOLS: [Listed<Workflows>; 3] = [
    tool(
        "validate_workflow",
        NOTHING,
        "validates a workflow without running it",
        |_| Arc::new(ValidateWorkflow),
    ),
    tool(
        "workflow_status",
        NOTHING,
        "shows the conversation's workflow runs",
        |all| {
            Arc::new(WorkflowStatus {
                store: all.store.clone(),
            })
        },
    ),
    tool(
        "cancel_workflow",
        NOTHING,
        "cancels a workflow run",
        |all| {
            let (store, bus) = (all.store.clone(), all.bus.clone());
            Arc::new(CancelWorkflow { store, bus })
        },
    ),
];

fn failed(error: &store::Error) -> ToolError {
    ToolError::reply(format!("the database does not answer: {error}"))
}

#[derive(Debug)]
struct ValidateWorkflow;

#[async_trait]
impl Tool for ValidateWorkflow {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "validate_workflow".into(),
            description: "Validates a workflow without running it: returns a summary, or all its \
                          problems together."
                .into(),
            parameters: json!({
                "type": "object",
                "required": ["spec"],
                "additionalProperties": false,
                "properties": { "spec": {"type": ["object", "string"]} },
            }),
        }
    }

    fn traits(&self) -> Traits {
        Traits::new(Repeat::Safe)
    }

    async fn call(&self, invocation: Invocation) -> Result<Output, ToolError> {
        let spec = invocation.arguments.get("spec").cloned();
        // Compiling schemas may take a while.
        let checked = spawn_blocking(move || validate(&spec.unwrap_or_default())).await;
        match checked.map_err(|error| ToolError::reply(error.to_string()))? {
            Ok(spec) => {
                let ids = spec.nodes().iter().filter_map(|node| node.id.as_deref());
                let ids: Vec<&str> = ids.collect();
                Ok(Output::json(json!({
                    "valid": true, "name": spec.envelope.name, "nodes": spec.nodes().len(),
                    "ids": ids,
                })))
            }
            Err(found) => Ok(Output::text(listed(&found))),
        }
    }
}

#[derive(Debug)]
struct WorkflowStatus {
    store: Arc<dyn Store>,
}

#[async_trait]
impl Tool for WorkflowStatus {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "workflow_status".into(),
            description: "Lists the workflow runs of this conversation; with `run_id` shows one \
                          run: its status, nodes and result."
                .into(),
            parameters: json!({
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "run_id": {"type": "string"},
                    "path": {"type": "string", "description": "Only nodes whose path starts with this."},
                },
            }),
        }
    }

    fn traits(&self) -> Traits {
        Traits::new(Repeat::Safe)
    }

    async fn call(&self, invocation: Invocation) -> Result<Output, ToolError> {
        let text = |name: &str| invocation.arguments.get(name).and_then(Value::as_str);
        let Some(run) = text("run_id") else {
            return self.list(invocation.session).await;
        };
        let run = find(self.store.as_ref(), invocation.session, run).await?;
        let query = ReadNodes {
            key: run.key,
            prefix: text("path").map(ToOwned::to_owned),
            after: 0,
            limit: NODES_MAX,
        };
        let nodes = self.store.read_nodes(query).await;
        let nodes = nodes.map_err(|error| failed(&error))?;
        let nodes = nodes.into_iter().map(|node| {
            let mut shown = json!({ "path": node.path, "state": node.state });
            if let Some(text) = node.text {
                shown["text"] = json!(text.chars().take(TEXT_MAX).collect::<String>());
            }
            if let Some(error) = node.error {
                shown["error"] = json!(error);
            }
            if node.state == NodeState::Waiting {
                shown["due_at"] = json!(node.due_at);
            }
            shown
        });
        Ok(Output::json(json!({
            "run_id": run.key.run, "name": run.name, "status": run.status, "counts": run.counts,
            "usage": run.usage, "error": run.error, "result": run.result,
            "nodes": nodes.collect::<Vec<_>>(),
        })))
    }
}

impl WorkflowStatus {
    async fn list(&self, key: SessionKey) -> Result<Output, ToolError> {
        let query = ListRuns {
            tenant: key.tenant,
            status: None,
            session: Some(key.session),
            before: None,
            limit: RUNS_MAX,
        };
        let page = self.store.list_runs(query).await;
        let page = page.map_err(|error| failed(&error))?;
        if page.data.is_empty() {
            return Ok(Output::text("This conversation has no workflow runs."));
        }
        let runs = page.data.into_iter().map(|run| {
            json!({ "run_id": run.key.run, "name": run.name, "status": run.status,
                    "counts": run.counts })
        });
        Ok(Output::json(json!({ "runs": runs.collect::<Vec<_>>() })))
    }
}

/// Finds a run of the session; an agent can neither see nor cancel other runs.
async fn find(store: &dyn Store, key: SessionKey, text: &str) -> Result<RunRecord, ToolError> {
    let unknown = || ToolError::reply(format!("this conversation has no run {text:?}"));
    let run: RunId = text.parse().map_err(|_| unknown())?;
    let tenant = key.tenant;
    let found = store.get_runs(vec![RunKey { tenant, run }]).await;
    let found = found.map_err(|error| failed(&error))?;
    let run = found.into_iter().flatten().next();
    run.filter(|run| run.session == Some(key.session))
        .ok_or_else(unknown)
}

#[derive(Debug)]
struct CancelWorkflow {
    store: Arc<dyn Store>,
    bus: Arc<dyn Bus>,
}

#[async_trait]
impl Tool for CancelWorkflow {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "cancel_workflow".into(),
            description: "Cancels a workflow run of this conversation and everything it started."
                .into(),
            parameters: json!({
                "type": "object",
                "required": ["run_id"],
                "additionalProperties": false,
                "properties": {
                    "run_id": {"type": "string"},
                    "reason": {"type": "string"},
                },
            }),
        }
    }

    fn traits(&self) -> Traits {
        Traits::new(Repeat::Safe)
    }

    async fn call(&self, invocation: Invocation) -> Result<Output, ToolError> {
        let text = |name: &str| invocation.arguments.get(name).and_then(Value::as_str);
        let run = text("run_id").unwrap_or_default();
        let run = find(self.store.as_ref(), invocation.session, run).await?;
        if run.status.is_final() {
            let status = run.status.as_str();
            return Ok(Output::text(format!("The run is already {status}.")));
        }
        let ask = RunAsk::Cancel {
            reason: text("reason").map(ToOwned::to_owned),
        };
        let asked = self.store.ask_runs(vec![(run.key, ask)]).await;
        asked.map_err(|error| failed(&error))?;
        publish(self.bus.as_ref(), run.key);
        Ok(Output::text("The run is being ended."))
    }
}

/// Tells the schedulers that something happened in a run.
fn publish(bus: &dyn Bus, key: RunKey) {
    match serde_json::to_vec(&[RunNotice { key, step: None }]) {
        Ok(json) => bus.publish(Topic::Runs, Bytes::from(json)),
        Err(error) => tracing::error!(%error, "could not serialize a run's notice"),
    }
}
