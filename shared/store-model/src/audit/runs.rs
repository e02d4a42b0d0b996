//! What must hold of runs.

use std::collections::BTreeMap;

use mainspring_shared::id::RunKey;
use mainspring_shared::store::Dump;
use serde_json::json;

use super::Findings;

pub(super) fn check(findings: &mut Findings, dump: &Dump) {
    let mut attempts: BTreeMap<_, u32> = BTreeMap::new();
    let mut open: BTreeMap<RunKey, u32> = BTreeMap::new();
    for session in &dump.sessions {
        for send in &session.sends {
            let Some(leaf) = &send.run else { continue };
            let key = RunKey {
                tenant: session.key.tenant,
                run: leaf.run,
            };
            *attempts.entry((key, leaf)).or_default() += 1;
            *open.entry(key).or_default() += u32::from(!send.status.is_final());
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
        let live = open.get(&key).copied().unwrap_or(0);
        if run.run.status.is_final() && live > 0 {
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
