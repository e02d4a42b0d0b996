//! Named objects of tenants, and whether their tenants exist.

use std::collections::{BTreeMap, BTreeSet};

use mainspring_shared::id::TenantId;
use mainspring_shared::store::Dump;
use mainspring_shared::timer::TimerStatus;
use serde_json::{Value, json};

use super::Findings;

fn add(findings: &mut Findings, invariant: &'static str, row: Value) {
    findings.entry(invariant).or_default().push(row);
}

/// The versions of published agents are complete, and their aliases point at existing ones.
pub(super) fn agents(findings: &mut Findings, dump: &Dump) {
    for (agent, versions) in &dump.agents {
        let numbers: Vec<i32> = versions.iter().map(|version| version.n).collect();
        let (tenant, name) = (agent.key.tenant, &agent.key.name);
        let row = |n: i32| json!({ "tenant": tenant, "agent": name, "version": n });
        if !numbers.iter().copied().eq(1..=agent.version) {
            add(findings, "agent.versions", row(agent.version));
        }
        for n in agent.aliases.values().filter(|n| !numbers.contains(n)) {
            add(findings, "agent.versions", row(*n));
        }
    }
}

/// Listed skills refer to existing versions, and versions have all their files.
pub(super) fn skills(findings: &mut Findings, dump: &Dump) {
    for skill in &dump.skills {
        let hashes: BTreeSet<_> = skill.versions.iter().map(|(of, _)| of.hash).collect();
        if let Some(hash) = skill.current.filter(|hash| !hashes.contains(hash)) {
            let row = json!({ "tenant": skill.tenant, "skill": skill.name, "hash": hash });
            add(findings, "skill.complete", row);
        }
        for (version, kept) in &skill.versions {
            let listed = version.manifest.files.iter();
            let listed: BTreeMap<_, _> =
                listed.map(|file| (file.path.clone(), file.bytes)).collect();
            if listed != *kept {
                let row =
                    json!({ "tenant": skill.tenant, "skill": skill.name, "hash": version.hash });
                add(findings, "skill.complete", row);
            }
        }
    }
}

/// Every tenant that has something in use exists.
pub(super) fn tenants(findings: &mut Findings, dump: &Dump) {
    let mut used: BTreeSet<TenantId> = BTreeSet::new();
    let sessions = dump.sessions.iter();
    let sessions = sessions.filter(|session| session.agent_version.is_some());
    used.extend(sessions.map(|session| session.key.tenant));
    used.extend(dump.runs.iter().map(|run| run.run.key.tenant));
    let timers = dump.timers.iter().map(|(timer, _)| timer);
    let timers = timers
        .filter(|timer| matches!(timer.state.status, TimerStatus::Armed | TimerStatus::Paused));
    used.extend(timers.map(|timer| timer.tenant));
    used.extend(dump.agents.iter().map(|(agent, _)| agent.key.tenant));
    used.extend(dump.skills.iter().map(|skill| skill.tenant));
    used.extend(dump.memories.iter().map(|(tenant, _)| *tenant));
    used.remove(&TenantId::DEFAULT);
    for tenant in used.iter().filter(|tenant| !dump.tenants.contains(tenant)) {
        add(findings, "tenant.exists", json!({ "tenant": tenant }));
    }
}
