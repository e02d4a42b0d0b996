//! Workers that are killed while agents fold their transcripts and extract what is worth remembering: each model
//! call has its row of usage, once and to the token; one without a row was under way when a worker died.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mainspring_shared::time::Timestamp;
use mainspring_tests::faults::{Caller, Cluster, Effect, Recipe, between, dose, monotonic, pause};
use serde_json::{Value, json};

const MS: Duration = Duration::from_millis(1);

/// Sessions that are talked to at once.
const SESSIONS: usize = 4;

/// From the end of an answer until its row is stored, at most, on a busy machine.
const STORED_WITHIN: Duration = Duration::from_secs(3);

/// Attempts at an extraction must not outlast the test.
const ENVIRONMENT: [(&str, &str); 3] = [
    ("MAINSPRING_MEMORY_EXTRACT_ATTEMPTS_MAX", "50"),
    ("MAINSPRING_MEMORY_EXTRACT_TIMEOUT", "3s"),
    ("MAINSPRING_MEMORY_EXTRACT_INTERVAL", "500ms"),
];

fn agent(n: usize) -> Value {
    json!({
        "memory": { "namespace": format!("user/{n}"), "extract": "after_send" },
        "context": { "fold": {
            "strategy": "summary", "soft": 0.02, "hard": 0.9, "keep_sends": 1,
        }},
    })
}

/// What the model bills and the database does not know, in words read and written, with when that was.
fn unpaid(cluster: &Cluster) -> Result<Vec<(Timestamp, Option<Timestamp>)>> {
    let rows = cluster.query(
        "SELECT json_agg(json_build_array(coalesce(purpose, 'round'), usage::json)) FROM usage_rows",
    )?;
    let rows: Vec<(String, Value)> = serde_json::from_str(&rows)?;
    for purpose in ["round", "fold", "extract"] {
        let there = rows.iter().any(|(of, _)| of == purpose);
        ensure!(there, "no row of a {purpose}");
    }
    let mut billed: Vec<_> = cluster
        .model
        .ledger()
        .entries()
        .into_iter()
        .filter_map(|entry| Some((entry.usage?, entry.at, entry.ended_at)))
        .collect();
    for (purpose, usage) in rows {
        ensure!(usage["estimated"] != json!(true), "{purpose}: {usage}");
        let words = |member: &str| usage[member].as_u64().context("a count");
        let words = (words("input_tokens")?, words("output_tokens")?);
        let its_own = billed
            .iter()
            .position(|((read, written), ..)| (*read as u64, *written as u64) == words);
        let place = its_own.with_context(|| format!("nobody billed {purpose} {usage}"))?;
        billed.remove(place);
    }
    Ok(billed.into_iter().map(|(_, at, end)| (at, end)).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_folds_and_extractions_cost_is_known_to_the_token_whoever_is_killed() -> Result<()> {
    let recipe = Recipe {
        environment: &ENVIRONMENT,
        ..Recipe::default()
    };
    let Some(mut cluster) = Cluster::start(recipe).await? else {
        return Ok(());
    };
    let mut caller = Caller::new(cluster.urls(), 0);
    let words = "what was decided about it and why ".repeat(60);
    let end = monotonic() + dose();
    let mut sessions: Vec<String> = Vec::new();
    let mut said = 0;
    while monotonic() < end || said < 5 * SESSIONS {
        let mut open = Vec::new();
        for n in 0..SESSIONS {
            let found = json!({ "memories": [{ "text": format!("m{said} is what was said") }] });
            let input = format!("[[send m{said}]] [[say {found}]] {words}");
            let mut body = json!({ "input": input });
            match sessions.get(n) {
                Some(session) => body["session_id"] = json!(session),
                None => body["session"] = json!({ "agent": agent(n) }),
            }
            let send = caller
                .post("/v1/sends", &body, &format!("m{said}"))
                .await?
                .json()?;
            said += 1;
            let text = |member: &str| {
                let text = send[member].as_str().map(str::to_owned);
                text.with_context(|| format!("{member} of {send}"))
            };
            if sessions.len() == n {
                sessions.push(text("session_id")?);
            }
            open.push(text("id")?);
        }
        pause(between(20 * MS, 400 * MS)).await;
        let victim = cluster.busy_worker().await.unwrap_or_default();
        let fault_log = cluster.fault_log.clone();
        fault_log.during("a worker is killed", Effect::Repeats, || {
            cluster.kill_worker(victim);
        });
        cluster.replace_worker(victim)?;
        cluster.all_ready()?;
        for id in open {
            let path = format!("/v1/sends/{id}?wait=15s");
            let ended = caller.get(&path).await?;
            ensure!(ended["status"] == "completed", "{ended}");
        }
    }
    let owed = "SELECT count(*) FROM extractions";
    let limit = Duration::from_mins(1);
    let extracted = async |cluster: &Cluster| Ok(cluster.query(owed)? == "0");
    cluster
        .until("the last extraction", limit, extracted)
        .await?;
    let quiet = async |cluster: &Cluster| Ok(cluster.model.ledger().stats().in_flight == 0);
    cluster.until("quiet", limit, quiet).await?;
    pause(STORED_WITHIN).await;
    // Each fact is remembered once, whatever became of the attempts before.
    let facts = cluster.query("SELECT count(*), count(DISTINCT text) FROM memories")?;
    ensure!(facts == format!("{said}|{said}"), "{facts} of {said}");
    let kills = cluster.fault_log.faults();
    let lost = unpaid(&cluster)?;
    for (at, end) in &lost {
        let end = end.context("it is over")?.after(STORED_WITHIN);
        let excused = kills
            .iter()
            .any(|kill| kill.from >= *at && kill.from <= end);
        ensure!(excused, "paid by nobody: {at} to {end}, {kills:?}");
    }
    // An answer of each session's send, and what stood beside it.
    ensure!(lost.len() <= kills.len() * 2 * SESSIONS, "{lost:?}");
    cluster.all_completed()?;
    cluster.audit()?;
    let fallen = cluster.fallen();
    ensure!(fallen.is_empty(), "ended by themselves: {fallen:?}");
    cluster.passed();
    Ok(())
}
