//! The invariants of runs.

use std::collections::BTreeMap;

use mainspring_shared::error::Code;
use mainspring_shared::id::RunKey;
use mainspring_shared::store::Dump;
use mainspring_shared::workflow::run::NodeState;
use serde_json::json;

use super::Findings;

pub(super) fn check(findings: &mut Findings, dump: &Dump) {
    let mut attempts: BTreeMap<_, u32> = BTreeMap::new();
    let mut open: BTreeMap<RunKey, Vec<bool>> = BTreeMap::new();
    for session in &dump.sessions {
        for send in &session.sends {
            let Some(leaf) = &send.run else { continue };
            let key = RunKey {
                tenant: session.key.tenant,
                run: leaf.run,
            };
            *attempts.entry((key, leaf)).or_default() += 1;
            if !send.status.is_final() {
                open.entry(key).or_default().push(send.cancel_requested);
            }
        }
    }
    for ((key, leaf), count) in attempts {
        if count > 1 {
            let row = json!({
                "run": key.run, "path": leaf.path, "attempt": leaf.attempt, "sends": count,
            });
            findings.entry("run.leaf_one_send").or_default().push(row);
        }
    }
    for run in &dump.runs {
        let key = run.run.key;
        let error = run.run.error.as_ref();
        // A run that could not be advanced leaves its nodes as they were and asks its sends to end.
        let broken = error.is_some_and(|error| error.code == Code::Internal);
        let live = open.get(&key).into_iter().flatten();
        let live = live
            .filter(|asked_to_end| !(broken && **asked_to_end))
            .count();
        let is_open = |state| {
            let open = [NodeState::Queued, NodeState::Running, NodeState::Waiting];
            open.contains(&state)
        };
        let nodes = run
            .nodes
            .iter()
            .filter(|node| !broken && is_open(node.state));
        let nodes = nodes.count();
        let awake = run.run.alarm_at.is_some() || run.run.counts.live > 0;
        if run.run.status.is_final() && (live > 0 || nodes > 0 || awake) {
            let row = json!({ "run": key.run, "status": run.run.status, "live": live });
            findings.entry("run.final_is_quiet").or_default().push(row);
        }
        let numbers = run.steps.iter().map(|step| step.n);
        if !numbers.eq(1..=run.step) {
            let row = json!({ "run": key.run, "steps": run.steps.len(), "step": run.step });
            findings.entry("run.steps_gap_free").or_default().push(row);
        }
    }
}
