//! The database is restored to a point in time: what was accepted before it completes, what came
//! later never existed.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mainspring_benches::servers::{BaseBackup, Postgres};
use mainspring_tests::faults::{Cluster, Recipe, RetryingClient, blocking, monotonic, pause};
use serde_json::{Value, json};

/// Name of the restore point.
const POINT: &str = "before_the_mistake";

/// How long accepted sends may take to end.
const LIMIT: Duration = Duration::from_secs(30);

/// Makes sends to new sessions without waiting for them; returns their ids.
async fn accepted(
    caller: &mut RetryingClient,
    name: &str,
    input: &str,
    count: usize,
) -> Result<Vec<String>> {
    let mut ids = Vec::new();
    for n in 0..count {
        let body = json!({ "input": format!("{input} {name} {n}"), "session": {} });
        let answer = caller
            .post("/v1/sends", &body, &format!("{name}-{n}"))
            .await?;
        ensure!(answer.status == 202, "{} {:?}", answer.status, answer.body);
        let id = answer.json()?["id"].as_str().map(str::to_owned);
        ids.push(id.context("a send has an id")?);
    }
    Ok(ids)
}

/// Waits until these sends have ended; returns them.
async fn ended(caller: &mut RetryingClient, ids: &[String]) -> Result<Vec<Value>> {
    let limit = monotonic() + LIMIT;
    let mut sends = Vec::new();
    for id in ids {
        let send = loop {
            let send = caller.get(&format!("/v1/sends/{id}")).await?;
            if send["finished_at"].is_string() {
                break send;
            }
            ensure!(monotonic() < limit, "it does not end: {send}");
            pause(Duration::from_millis(50)).await;
        };
        ensure!(send["status"] == "completed", "{send}");
        sends.push(send);
    }
    Ok(sends)
}

/// The number of sends of each status, from the database.
fn statuses(cluster: &Cluster) -> Result<BTreeMap<String, usize>> {
    let found = cluster.query("SELECT status, count(*) FROM sends GROUP BY status")?;
    let rows = found.lines().map(|line| {
        let (status, count) = line.split_once('|').context("two columns")?;
        Ok((status.to_owned(), count.parse()?))
    });
    rows.collect()
}

/// The machine is lost. A server with the database as of the restore point takes its place, and
/// every process is restarted on it; the queue has forgotten everything.
fn disaster(cluster: &mut Cluster, backup: BaseBackup) -> Result<()> {
    let restored: Postgres = blocking(|| {
        for process in cluster.workers.iter_mut().chain(&mut cluster.schedulers) {
            process.kill();
        }
        cluster.postgres.stop();
        cluster.redis.restart()?;
        cluster.postgres.restored(backup, POINT)
    })?;
    let url = restored.url("mainspring");
    for (name, value) in &mut cluster.program.environment {
        if name == "MAINSPRING_DATABASE_URL" {
            value.clone_from(&url);
        }
    }
    cluster.postgres = restored;
    Ok(())
}

fn start_all(cluster: &mut Cluster) -> Result<()> {
    for n in 0..cluster.schedulers.len() {
        cluster.replace_scheduler(n)?;
    }
    for n in 0..cluster.workers.len() {
        cluster.replace_worker(n)?;
    }
    cluster.all_ready()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_accepted_before_the_point_ends_on_a_restored_database() -> Result<()> {
    let recipe = Recipe {
        workers: 2,
        environment: &[("MAINSPRING_WORKER_CONCURRENCY", "4")],
        ..Recipe::default()
    };
    let Some(mut cluster) = Cluster::start(recipe).await? else {
        return Ok(());
    };
    blocking(|| cluster.postgres.archive())?;
    cluster.all_ready()?;
    let mut caller = RetryingClient::new(cluster.urls(), 0);
    let mut before = accepted(&mut caller, "old", "", 10).await?;
    ended(&mut caller, &before).await?;
    let backup = blocking(|| cluster.postgres.base_backup())?;
    before.extend(accepted(&mut caller, "behind", "", 10).await?);
    let answered = ended(&mut caller, &before).await?;
    // As many as the workers run at once, and as many again that wait for a seat.
    let under_way = accepted(&mut caller, "long", "[[stream 40x50ms]]", 16).await?;
    cluster
        .until(
            "a point between accept and answer",
            LIMIT,
            async |cluster| {
                let found = statuses(cluster)?;
                let has = |status: &str| found.get(status).is_some_and(|count| *count > 0);
                Ok(has("running") && has("queued"))
            },
        )
        .await?;
    blocking(|| cluster.postgres.restore_point(POINT))?;
    let later = accepted(&mut caller, "later", "", 5).await?;
    ended(&mut caller, &later).await?;
    ended(&mut caller, &under_way).await?;

    disaster(&mut cluster, backup)?;
    let found = statuses(&cluster)?;
    let count: usize = found.values().sum();
    ensure!(count == before.len() + under_way.len(), "{found:?}");
    ensure!(found.get("completed") == Some(&before.len()), "{found:?}");
    start_all(&mut cluster)?;
    // Answered sends are unchanged, and those that were running are answered once more.
    for (known, id) in answered.iter().zip(&before) {
        let send = caller.get(&format!("/v1/sends/{id}")).await?;
        ensure!(send == *known, "{send}, once {known}");
    }
    ended(&mut caller, &under_way).await?;
    for id in &later {
        let status = caller.status(&format!("/v1/sends/{id}")).await?;
        ensure!(status == 404, "{id} is still there: {status}");
    }
    // A client that repeats a lost request creates the send again.
    let again = accepted(&mut caller, "later", "", 5).await?;
    ensure!(again.iter().all(|id| !later.contains(id)), "{again:?}");
    ended(&mut caller, &again).await?;
    // A client that repeats a request that was kept does not.
    let same = accepted(&mut caller, "long", "[[stream 40x50ms]]", 16).await?;
    ensure!(same == under_way, "{same:?} {under_way:?}");
    cluster.audit()?;
    cluster.passed();
    Ok(())
}
