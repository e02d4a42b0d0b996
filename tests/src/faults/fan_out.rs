//! Runs that fan out, with every leaf labelled in the model's ledger, and checks of the outcome.

use anyhow::{Context as _, Result, bail, ensure};
use mainspring_shared::time::Timestamp;
use serde_json::{Value, json};

use super::caller::RetryingClient;
use super::evidence::{excuses, without_reason};
use super::fault_log::Fault;
use super::{Cluster, fault_duration, monotonic, pause};
use crate::fake_model::Entry;

/// How long a run may take once faults are no longer injected.
const END: std::time::Duration = std::time::Duration::from_mins(2);

/// A run that plans, looks at many things in parallel, and writes one page.
#[derive(Debug, Clone)]
pub struct FanOut {
    /// Prefix of its leaves' labels; of equal length for runs that are to be compared.
    pub mark: String,
    /// The number of things to look at.
    pub leaves: usize,
    /// How many are looked at concurrently.
    pub at_once: usize,
    /// The run's ID, once it is started.
    pub id: String,
}

impl FanOut {
    /// Starts the run.
    pub async fn start(
        caller: &mut RetryingClient,
        mark: &str,
        leaves: usize,
        at_once: usize,
    ) -> Result<Self> {
        let mut run = Self {
            mark: mark.to_owned(),
            leaves,
            at_once,
            id: String::new(),
        };
        let answer = caller
            .post("/v1/runs", &json!({ "spec": run.spec() }), mark)
            .await?;
        ensure!(answer.status == 202, "{} {:?}", answer.status, answer.body);
        let id = answer.json()?["id"].as_str().map(str::to_owned);
        run.id = id.context("a run has an id")?;
        Ok(run)
    }

    fn spec(&self) -> Value {
        let mark = &self.mark;
        let agent = |id: &str, input: String| {
            let spec = json!({ "name": id, "system_prompt": "Work.", "tools": [] });
            json!({ "type": "agent", "id": id, "spec": spec, "input": input })
        };
        let items = json!({ "items": (0..self.leaves).collect::<Vec<_>>() });
        let mut plan = agent("plan", format!("[[send {mark}-plan]] [[say {items}]] plan"));
        plan["output_schema"] = json!({ "name": "Plan", "schema": {
            "type": "object", "required": ["items"], "properties": { "items": { "type": "array" } },
        } });
        let leaf = format!("[[send {mark}-{{{{n}}}}]] [[say found {{{{n}}}}]] look");
        let mut write = agent(
            "write",
            format!("[[send {mark}-write]] [[say written]] write"),
        );
        write["inputs_from"] = json!(["all"]);
        json!({ "name": "fan out", "root": { "type": "sequence", "steps": [
            plan,
            { "type": "foreach", "id": "all", "as": "n", "items_from": "plan.items",
              "max_concurrency": self.at_once, "body": agent("leaf", leaf) },
            write,
        ]}})
    }

    /// The labels of all its sends.
    fn marks(&self) -> impl Iterator<Item = String> {
        let things = (0..self.leaves).map(|n| n.to_string());
        let all = ["plan".to_owned(), "write".to_owned()]
            .into_iter()
            .chain(things);
        all.map(|leaf| format!("{}-{leaf}", self.mark))
    }

    /// Whether the run has ended.
    pub async fn is_over(&self, caller: &mut RetryingClient) -> Result<bool> {
        let run = caller.get(&format!("/v1/runs/{}", self.id)).await?;
        Ok(run["finished_at"].is_string())
    }

    /// Waits for the run to end; returns the run and its nodes.
    pub async fn ended(&self, caller: &mut RetryingClient) -> Result<(Value, Vec<Value>)> {
        let limit = monotonic() + fault_duration() + END;
        while !self.is_over(caller).await? {
            if monotonic() > limit {
                bail!("{} does not end", self.id);
            }
            pause(std::time::Duration::from_millis(50)).await;
        }
        let path = format!("/v1/runs/{}", self.id);
        let nodes = caller.all(&format!("{path}/nodes")).await?;
        Ok((caller.get(&path).await?, nodes))
    }

    /// The parts of a finished run that do not depend on when and where it ran.
    pub fn essence(run: &Value, nodes: &[Value]) -> Value {
        let of = |value: &Value, members: &[&str]| {
            let members = members
                .iter()
                .map(|name| ((*name).to_owned(), value[*name].clone()));
            Value::Object(members.collect())
        };
        let mut nodes: Vec<Value> = nodes
            .iter()
            .map(|node| {
                let members = [
                    "path",
                    "kind",
                    "id",
                    "state",
                    "tolerated",
                    "attempt",
                    "text",
                    "output",
                    "error",
                    "usage",
                    "amended",
                    "earlier",
                ];
                of(node, &members)
            })
            .collect();
        nodes.sort_by_key(|node| node["path"].to_string());
        let members = ["status", "attempt", "result", "error", "usage", "counts"];
        json!({ "run": of(run, &members), "nodes": nodes })
    }

    /// Compares the model's ledger with a run whose leaves each ran once, apart from repeats that
    /// faults excuse. Returns all differences, and how often a leaf was asked again.
    pub fn asked(
        &self,
        nodes: &[Value],
        calls: &[Entry],
        faults: &[Fault],
    ) -> Result<(Vec<String>, usize)> {
        let mut found = Vec::new();
        let mut again = 0;
        for mark in self.marks() {
            let calls = calls
                .iter()
                .filter(|call| call.send.as_ref() == Some(&mark));
            let calls: Vec<&Entry> = calls.collect();
            if calls.is_empty() {
                found.push(format!("{mark} went past the model"));
            }
            again += calls.len().saturating_sub(1);
            for (first, second) in without_reason(&calls, &mut excuses(faults)) {
                found.push(format!(
                    "{mark} was asked at {first} and without reason again at {second}"
                ));
            }
            let leaf = mark.trim_start_matches(&self.mark);
            let node = nodes.iter().find(|node| {
                let path = node["path"].as_str().unwrap_or_default();
                match leaf.trim_start_matches('-').parse::<usize>() {
                    Ok(n) => path.ends_with(&format!("[{n}]/leaf")),
                    Err(_) => path.ends_with(&leaf.replace('-', ":")),
                }
            });
            let node = node.with_context(|| format!("{mark} has no node"))?;
            let settled: Timestamp = serde_json::from_value(node["settled_at"].clone())?;
            let late = calls.iter().find(|call| call.at > settled);
            if let Some(late) = late {
                found.push(format!(
                    "{mark} settled at {settled} and was asked at {}",
                    late.at
                ));
            }
        }
        Ok((found, again))
    }
}

impl Cluster {
    /// Fails unless every send completed.
    pub fn all_completed(&self) -> Result<()> {
        let rows = self.query("SELECT status, count(*) FROM sends GROUP BY status")?;
        let only = rows.lines().all(|row| row.starts_with("completed|"));
        if !only {
            let others = self.query(
                "SELECT send_id, status, crashes, left(error::text, 300) FROM sends \
                 WHERE status <> 'completed'",
            )?;
            bail!("sends ended otherwise: {rows}\n{others}");
        }
        Ok(())
    }
}
