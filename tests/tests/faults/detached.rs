//! Agents that start detached runs, end their turns, and are told of the runs' ends, while
//! processes die.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mainspring_tests::faults::{
    Cluster, Effect, Recipe, RetryingClient, any_of, between, blocking, fault_duration, monotonic,
    pause,
};
use serde_json::{Value, json};

const MS: Duration = Duration::from_millis(1);

/// Number of concurrent agents.
const AGENTS: usize = 6;

/// Number of leaves of each run, of which three run at once.
const LEAVES: usize = 9;

/// How long an agent may wait once no more faults are injected.
const END: Duration = Duration::from_mins(1);

fn text(value: &Value, member: &str) -> Result<String> {
    let text = value[member].as_str();
    Ok(text
        .with_context(|| format!("{member} of {value}"))?
        .to_owned())
}

/// Starts an agent that starts a detached run; returns its session.
async fn begin(caller: &mut RetryingClient, mark: &str) -> Result<String> {
    let spec = json!({ "name": mark, "root": {
        "type": "foreach", "id": "all", "as": "n", "items": (0..LEAVES).collect::<Vec<_>>(),
        "max_concurrency": 3,
        "body": {
            "type": "agent", "id": "leaf", "input": "[[say found {{n}}]] look",
            "spec": { "name": "a", "system_prompt": "Work.", "tools": [] },
        },
    }});
    let call = json!({ "spec": spec, "detached": true });
    let body = json!({
        "input": format!("[[send {mark}]] [[tool create_workflow {call}]] begin"),
        "session": { "agent": { "tools": ["create_workflow"] } },
    });
    let send = caller.post("/v1/sends", &body, mark).await?.json()?;
    text(&send, "session_id")
}

/// Waits until the session's only run has ended; returns its name and the session's messages.
async fn ended(caller: &mut RetryingClient, session: &str) -> Result<(String, Vec<Value>)> {
    let limit = monotonic() + fault_duration() + END;
    let messages = format!("/v1/sessions/{session}/messages");
    loop {
        let runs = caller
            .get(&format!("/v1/runs?session_id={session}"))
            .await?;
        let said = caller.all(&messages).await?;
        let last = said.last().map(|message| &message["role"]);
        let run = &runs["data"][0];
        if run["finished_at"].is_string() && last == Some(&json!("assistant")) && told(&said) > 0 {
            ensure!(runs["data"].as_array().map(Vec::len) == Some(1), "{runs}");
            ensure!(run["status"] == "completed", "{run}");
            return Ok((text(run, "id")?, said));
        }
        ensure!(
            monotonic() < limit,
            "{session} is not told: {runs} {said:?}"
        );
        pause(50 * MS).await;
    }
}

/// How often the session was told of the end of a run.
fn told(said: &[Value]) -> usize {
    let users = said.iter().filter(|message| message["role"] == "user");
    let words = users.filter_map(|message| message["content"][0]["text"].as_str());
    words
        .filter(|words| words.contains(") has ended: completed."))
        .count()
}

async fn kill_one(cluster: &mut Cluster) -> Result<()> {
    pause(between(150 * MS, 700 * MS)).await;
    let fault_log = cluster.fault_log.clone();
    if any_of(2) == 0 {
        let victim = any_of(cluster.schedulers.len());
        fault_log.during("a scheduler is killed", Effect::None, || {
            blocking(|| cluster.schedulers[victim].kill());
        });
        cluster.replace_scheduler(victim)?;
    } else {
        let victim = cluster.busy_worker().await.unwrap_or_default();
        fault_log.during("a worker is killed", Effect::Repeats, || {
            cluster.kill_worker(victim);
        });
        cluster.replace_worker(victim)?;
    }
    cluster.all_ready()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_are_told_of_the_ends_of_their_runs_once_whatever_dies() -> Result<()> {
    let Some(mut cluster) = Cluster::start(Recipe::default()).await? else {
        return Ok(());
    };
    let mut caller = RetryingClient::new(cluster.urls(), 0);
    let end = monotonic() + fault_duration();
    let mut sessions = Vec::new();
    while monotonic() < end {
        for _ in 0..AGENTS {
            let mark = format!("a{}", sessions.len());
            sessions.push(begin(&mut caller, &mark).await?);
        }
        for _ in 0..4 {
            kill_one(&mut cluster).await?;
        }
    }
    for (n, session) in sessions.iter().enumerate() {
        let (run, said) = ended(&mut caller, session).await?;
        ensure!(
            told(&said) == 1,
            "{session} was told {} times: {said:?}",
            told(&said)
        );
        let word = said
            .iter()
            .filter_map(|message| message["content"][0]["text"].as_str());
        let mut word = word.filter(|word| word.starts_with("The workflow "));
        let word = word.next_back().context("the word of its end")?;
        ensure!(
            word.starts_with(&format!("The workflow a{n} ({run}) ")),
            "{word}"
        );
        let found = (0..LEAVES).map(|n| format!("found {n}"));
        ensure!(
            found.into_iter().all(|found| word.contains(&found)),
            "{word}"
        );
    }
    // Nothing more arrives later.
    let quiet = async |cluster: &Cluster| {
        let open = "SELECT count(*) FROM sends WHERE finished_at IS NULL";
        Ok(cluster.query(open)? == "0")
    };
    cluster.until("quiet", END, quiet).await?;
    for session in &sessions {
        let (_, said) = ended(&mut caller, session).await?;
        ensure!(told(&said) == 1, "{session} was told again: {said:?}");
    }
    cluster.all_completed()?;
    cluster.audit()?;
    let fallen = cluster.fallen();
    ensure!(fallen.is_empty(), "ended by themselves: {fallen:?}");
    cluster.passed();
    Ok(())
}
