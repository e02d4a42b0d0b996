//! Conversations with every feature of context and memory: folds during sends and inside them,
//! extractions, outputs that go into blobs, recalls, and vectors; while workers are killed with
//! signal 9. In the end the transcripts are those of an undisturbed conversation, and each answer
//! that the provider billed has at most one usage row, or exactly one if its worker survived.

mod provider;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mainspring_tests::faults::{
    Cluster, Recipe, RetryingClient, any_of, between, monotonic, pause,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use self::provider::{Bill, Provider};

const MS: Duration = Duration::from_millis(1);

/// The tasks of a conversation, in order.
const TASKS: [&str; 5] = ["amber", "birch", "cedar", "delta", "ember"];

/// Number of calls in each task.
const STEPS: usize = 3;

/// Number of concurrent conversations while workers die.
const SESSIONS: usize = 3;

/// Maximum number of workers that are killed.
const KILLS: usize = 14;

/// How long one send, or the work after its end, may take, including deaths.
const END: Duration = Duration::from_mins(1);

fn text(value: &Value, member: &str) -> Result<String> {
    let text = value[member].as_str();
    Ok(text
        .with_context(|| format!("{member} of {value}"))?
        .to_owned())
}

fn agent(provider: &Provider) -> Value {
    json!({
        "tools": [{"type": "http", "name": "look", "url": provider.tool_url("look"), "repeat": "safe"}],
        "max_tokens": 500,
        "memory": {"namespace": "user/{{metadata.user_id}}", "extract": "after_send"},
        "context": {"fold": {"strategy": "summary", "soft": 0.003, "hard": 0.012, "keep_sends": 1}},
    })
}

/// Runs a whole conversation; returns its session.
async fn talk(mut caller: RetryingClient, agent: Value, who: String) -> Result<String> {
    let mut session = None;
    for task in TASKS {
        let words = "what was decided about it and why. ".repeat(20);
        let input = format!("task {task} steps {STEPS}\n{words}");
        let key = format!("{who}-{task}");
        let (path, body) = match &session {
            None => {
                let new = json!({"agent": agent, "metadata": {"user_id": who}});
                (
                    "/v1/sends".to_owned(),
                    json!({"input": input, "session": new}),
                )
            }
            Some(session) => (
                format!("/v1/sessions/{session}/sends"),
                json!({ "input": input }),
            ),
        };
        let send = caller.post(&path, &body, &key).await?.json()?;
        session = Some(text(&send, "session_id")?);
        let id = text(&send, "id")?;
        let end = monotonic() + END;
        loop {
            let send = caller.get(&format!("/v1/sends/{id}")).await?;
            if send["finished_at"].is_string() {
                ensure!(send["status"] == "completed", "{send}");
                break;
            }
            ensure!(monotonic() < end, "it hangs: {send}");
            pause(30 * MS).await;
        }
        // Leave some time for the work after a send's end, such as folds written between two sends.
        pause(between(50 * MS, 500 * MS)).await;
    }
    session.context("it was told of tasks")
}

/// A transcript's lines, with calls by their positions; fails if a call is separated from its
/// result.
async fn said(caller: &mut RetryingClient, session: &str) -> Result<Vec<String>> {
    let messages = caller
        .all(&format!("/v1/sessions/{session}/messages"))
        .await?;
    let mut open: Vec<String> = Vec::new();
    let mut said = Vec::new();
    for message in &messages {
        let role = text(message, "role")?;
        let parts = message["content"].as_array().into_iter().flatten();
        let mut line = parts
            .filter_map(|part| part["text"].as_str())
            .collect::<Vec<_>>()
            .join("|");
        if role == "tool" {
            let call = text(message, "tool_call_id")?;
            ensure!(open.first() == Some(&call), "{call} is no call of {open:?}");
            open.remove(0);
            // The reference to the rest of a long output differs.
            line = line.chars().take(60).collect();
        } else {
            ensure!(open.is_empty(), "{open:?} have no results");
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            open.push(text(call, "id")?);
            let asked = format!(" {}{}", call["name"], call["arguments"]);
            line.push_str(&asked);
        }
        said.push(format!("{role}: {line}"));
    }
    ensure!(open.is_empty(), "{open:?} have no results");
    Ok(said)
}

/// Entries reserved by a worker that died or got no answer become available to others after five
/// minutes: pretends that these have passed.
fn hurry(cluster: &Cluster) -> Result<()> {
    cluster
        .query("UPDATE memories SET embed_at = 0 WHERE embedding IS NULL")
        .map(drop)
}

/// Waits until no work after the ends of sends is pending any more.
async fn quiet(cluster: &Cluster) -> Result<()> {
    hurry(cluster)?;
    let end = monotonic() + END;
    loop {
        let owed = cluster.query(
            "SELECT (SELECT count(*) FROM extractions) \
             + (SELECT count(*) FROM memories WHERE embedding IS NULL) \
             + (SELECT count(*) FROM session_hot WHERE owner_boot IS NOT NULL)",
        )?;
        if owed.trim() == "0" {
            return Ok(());
        }
        ensure!(monotonic() < end, "{owed} are still owed");
        pause(200 * MS).await;
    }
}

/// Matches the usage rows with the bills; returns the bills without a row, and the number of
/// estimated rows.
fn unpaid(cluster: &Cluster, provider: &Provider) -> Result<(Vec<Bill>, usize)> {
    let of = |table: &str, purpose: &str| {
        format!(
            "SELECT concat_ws(' ', {purpose}, usage::json->>'input_tokens', \
             usage::json->>'output_tokens', coalesce(usage::json->>'estimated', 'false')) FROM {table}"
        )
    };
    let rows = cluster.query(&format!(
        "{} UNION ALL {}",
        of("usage_rows", "coalesce(purpose, 'round')"),
        of("memory_usage", "'embed'")
    ))?;
    let mut bills = provider.bills();
    let mut estimates = 0;
    for row in rows.lines().filter(|row| !row.trim().is_empty()) {
        let parts: Vec<&str> = row.split_whitespace().collect();
        let [purpose, read, written, estimated] = parts[..] else {
            anyhow::bail!("{row:?}");
        };
        if estimated == "true" {
            estimates += 1;
            continue;
        }
        let (read, written): (u64, u64) = (read.parse()?, written.parse()?);
        let its_own = bills.iter().position(|bill| {
            bill.purpose == purpose && bill.read == read && bill.written == written
        });
        let place = its_own.with_context(|| format!("nobody billed {row:?}: {bills:?}"))?;
        bills.remove(place);
    }
    Ok((bills, estimates))
}

fn environment(provider: &Provider) -> Vec<(&'static str, String)> {
    [
        ("MAINSPRING_LLM_BASE_URL", provider.base_url().as_str()),
        ("MAINSPRING_TOOLS_ALLOW_PRIVATE", "127.0.0.1"),
        ("MAINSPRING_BLOBS_SPILL_BYTES", "2048"),
        ("MAINSPRING_MEMORY_EMBEDDINGS_MODEL", "vectors"),
        ("MAINSPRING_MEMORY_EMBED_INTERVAL", "500ms"),
        ("MAINSPRING_MEMORY_EXTRACT_INTERVAL", "500ms"),
        ("MAINSPRING_MEMORY_EXTRACT_TIMEOUT", "2s"),
        ("MAINSPRING_MEMORY_EXTRACT_ATTEMPTS_MAX", "9"),
        // More than `KILLS`: chance may pick the worker of the same send each time.
        ("MAINSPRING_WORKER_CRASHES_MAX", "20"),
    ]
    .map(|(name, value)| (name, value.to_owned()))
    .into()
}

async fn cluster(provider: &Provider, workers: usize) -> Result<Option<Cluster>> {
    let environment = environment(provider);
    let environment: Vec<_> = environment.iter().map(|(n, v)| (*n, v.as_str())).collect();
    Cluster::start(Recipe {
        schedulers: 1,
        workers,
        environment: &environment,
        ..Recipe::default()
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversations_that_fold_and_remember_survive_deaths_of_their_workers() -> Result<()> {
    let provider = Provider::start()?;
    let Some(mut cluster) = cluster(&provider, 2).await? else {
        return Ok(());
    };
    let mut caller = RetryingClient::new(cluster.urls(), 0);
    let sound = talk(
        RetryingClient::new(cluster.urls(), 0),
        agent(&provider),
        "sound".to_owned(),
    )
    .await?;
    quiet(&cluster).await?;
    let expected = said(&mut caller, &sound).await?;
    ensure!(
        expected.len() == TASKS.len() * (2 + 2 * STEPS),
        "{expected:#?}"
    );
    let (lost, estimates) = unpaid(&cluster, &provider)?;
    ensure!(
        lost.is_empty() && estimates == 0,
        "nothing died, and {lost:?} have no rows, {estimates} are estimates"
    );
    let purposes: BTreeSet<_> = provider.bills().iter().map(|bill| bill.purpose).collect();
    ensure!(
        purposes == BTreeSet::from(["embed", "extract", "fold", "round"]),
        "{purposes:?}"
    );
    // Rounds of a running send were folded, too.
    let inside = cluster.query(
        "SELECT count(*) FROM folds f JOIN messages m USING (tenant, session_id) \
         JOIN messages n USING (tenant, session_id) \
         WHERE m.seq = f.to_seq AND n.seq = f.to_seq + 1 AND m.send_id = n.send_id",
    )?;
    ensure!(inside.trim() != "0", "no fold ends inside a send");
    let blobs = cluster.query("SELECT count(*) FROM blobs")?;
    ensure!(blobs.trim() != "0", "nothing went into a blob");

    let mut talks = JoinSet::new();
    for n in 0..SESSIONS {
        let caller = RetryingClient::new(cluster.urls(), n);
        talks.spawn(talk(caller, agent(&provider), format!("mortal{n}")));
    }
    let mut kills = 0;
    let mut sessions = Vec::new();
    while sessions.len() < SESSIONS {
        pause(between(300 * MS, 1_200 * MS)).await;
        while let Some(done) = talks.try_join_next() {
            sessions.push(done??);
        }
        if kills < KILLS && sessions.len() < SESSIONS {
            let victim = match any_of(3) {
                0 => any_of(cluster.workers.len()),
                _ => cluster.busy_worker().await.unwrap_or_default(),
            };
            cluster.kill_worker(victim);
            cluster.replace_worker(victim)?;
            cluster.all_ready()?;
            kills += 1;
        }
    }
    quiet(&cluster).await?;
    for session in &sessions {
        let said = said(&mut caller, session).await?;
        ensure!(
            said == expected,
            "{session}: {said:#?} is not {expected:#?}"
        );
    }
    // Each fact is remembered once, whatever was retried.
    for who in (0..SESSIONS).map(|n| format!("mortal{n}")) {
        let page = caller
            .get(&format!("/v1/memories?namespace=user%2F{who}&limit=100"))
            .await?;
        let entries = page["data"].as_array().context("a page")?;
        ensure!(entries.len() == TASKS.len(), "{who}: {page}");
        let entries: BTreeSet<String> = entries
            .iter()
            .map(|entry| text(entry, "text"))
            .collect::<Result<_>>()?;
        let all = TASKS.map(|name| format!("{name}wood {name}stone {name}leaf"));
        ensure!(entries == BTreeSet::from(all), "{who}: {entries:?}");
    }
    let (lost, estimates) = unpaid(&cluster, &provider)?;
    // Calls that a dead worker had made: for each session an answer, a fold, an extraction and
    // vectors.
    let most = kills * SESSIONS * 4;
    ensure!(
        lost.len() <= most,
        "{} of {most} are lost: {lost:?}",
        lost.len()
    );
    let broken = provider.broken();
    ensure!(
        estimates <= broken + lost.len(),
        "{estimates} estimates of {broken} broken answers"
    );
    ensure!(broken + lost.len() > 0, "no kill hit anything: {kills}");
    cluster.audit()?;
    let fallen = cluster.fallen();
    ensure!(fallen.is_empty(), "ended by themselves: {fallen:?}");
    cluster.passed();
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn embeddings_that_hang_delay_a_send_by_their_timeout_and_vectors_come_later() -> Result<()> {
    let provider = Provider::start()?;
    let Some(cluster) = cluster(&provider, 1).await? else {
        return Ok(());
    };
    let mut caller = RetryingClient::new(cluster.urls(), 0);
    provider.silence(true);
    let entry = json!({"namespace": "user/ann", "text": "Ann drinks green tea"});
    caller.post("/v1/memories", &entry, "entry").await?.json()?;
    let agent = json!({"memory": {"namespace": "user/{{metadata.user_id}}"}});
    let body = json!({
        "input": "task tea steps 0", "session": {"agent": agent, "metadata": {"user_id": "ann"}},
    });
    let began = monotonic();
    let send = caller.post("/v1/sends", &body, "send").await?.json()?;
    let id = text(&send, "id")?;
    let send = caller.get(&format!("/v1/sends/{id}?wait=20s")).await?;
    let took = monotonic().saturating_sub(began);
    ensure!(send["status"] == "completed", "{send}");
    // `memory.embeddings_timeout` is half a second; the answer itself takes a quarter of one.
    ensure!(took < Duration::from_secs(4), "it took {took:?}");
    let note = text(&send["memory"], "note")?;
    ensure!(note.contains("only words were searched"), "{note}");
    ensure!(
        send["memory"]["entries"].as_array().map(Vec::len) == Some(1),
        "found by its words: {send}"
    );
    let without = "SELECT count(*) FROM memories WHERE embedding IS NULL";
    ensure!(
        cluster.query(without)?.trim() == "1",
        "it has no vector yet"
    );
    provider.silence(false);
    // Wait until the worker has given up on the hanging call, and retries.
    pause(Duration::from_secs(31).saturating_sub(monotonic().saturating_sub(began))).await;
    hurry(&cluster)?;
    let end = monotonic() + END;
    while cluster.query(without)?.trim() != "0" {
        ensure!(monotonic() < end, "the vector does not come");
        pause(100 * MS).await;
    }
    cluster.audit()?;
    cluster.passed();
    Ok(())
}
