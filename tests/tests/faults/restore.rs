//! The database is restored to a point in time: what was accepted before it completes, what came
//! later never existed.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use mainspring_benches::client::Client;
use mainspring_benches::process::Process;
use mainspring_benches::servers::{BaseBackup, Postgres};
use mainspring_tests::faults::{Cluster, Recipe, RetryingClient, blocking, monotonic, pause};
use serde_json::{Value, json};

/// Name of the restore point.
const POINT: &str = "before_the_mistake";

/// How long accepted sends may take to end.
const LIMIT: Duration = Duration::from_mins(1);

/// An answer that takes longer than it takes to see that it has begun.
const LONG: &str = "[[stream 40x100ms]]";

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
    // The point is between accept and answer: some run, and others are queued, since the workers
    // stand still until it is made.
    let mut under_way = accepted(&mut caller, "long", LONG, 8).await?;
    cluster
        .until("sends that run", LIMIT, async |cluster| {
            Ok(statuses(cluster)?.contains_key("running"))
        })
        .await?;
    for worker in &cluster.workers {
        worker.pause()?;
    }
    under_way.extend(accepted(&mut caller, "queued", LONG, 8).await?);
    let at_point = statuses(&cluster)?;
    let has = |status: &str| at_point.get(status).is_some_and(|count| *count > 0);
    ensure!(has("running") && has("queued"), "{at_point:?}");
    blocking(|| cluster.postgres.restore_point(POINT))?;
    for worker in &cluster.workers {
        worker.resume()?;
    }
    let later = accepted(&mut caller, "later", "", 5).await?;
    ended(&mut caller, &later).await?;
    ended(&mut caller, &under_way).await?;

    disaster(&mut cluster, backup)?;
    let found = statuses(&cluster)?;
    ensure!(found == at_point, "{found:?}, not {at_point:?}");
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
    let mut same = accepted(&mut caller, "long", LONG, 8).await?;
    same.extend(accepted(&mut caller, "queued", LONG, 8).await?);
    ensure!(same == under_way, "{same:?} {under_way:?}");
    cluster.audit()?;
    cluster.passed();
    Ok(())
}

/// Sessions whose windows a worker has in its cache when the database goes back.
const WARM: usize = 6;

/// How soon each worker has to notice that the database went back.
const NOTICED_WITHIN: Duration = Duration::from_secs(10);

/// Sends to each session, one after the other, and waits for the answers.
async fn each(caller: &mut RetryingClient, sessions: &[String], name: &str) -> Result<()> {
    for (n, session) in sessions.iter().enumerate() {
        let body = json!({ "input": format!("[[send {name}-{n}]] {name} {n}") });
        let path = format!("/v1/sessions/{session}/sends");
        let key = format!("{name}-{n}");
        let answer = caller.post(&path, &body, &key).await?;
        ensure!(answer.status == 202, "{} {:?}", answer.status, answer.body);
        let id = answer.json()?["id"].as_str().map(str::to_owned);
        ended(caller, &[id.context("a send has an id")?]).await?;
    }
    Ok(())
}

/// Whether a process has noticed that the database went back.
async fn has_noticed(url: &str) -> Result<bool> {
    let mut client = Client::connect(url).await?;
    let answer = client.request("GET", "/metrics", Bytes::new()).await?;
    let text = String::from_utf8(answer.body.to_vec())?;
    let counted = text
        .lines()
        .filter_map(|line| line.strip_prefix("mainspring_database_went_back_total "))
        .filter_map(|count| count.parse::<f64>().ok());
    Ok(counted.sum::<f64>() > 0.0)
}

/// Nothing is restarted: the workers keep what they know of sessions, and the server behind their
/// connections is another one all at once, as after a failover that lost commits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_model_is_shown_what_a_database_that_went_back_has_lost() -> Result<()> {
    let recipe = Recipe {
        workers: 2,
        schedulers: 1,
        proxied: true,
        keep_bodies: true,
        ..Recipe::default()
    };
    let Some(mut cluster) = Cluster::start(recipe).await? else {
        return Ok(());
    };
    blocking(|| cluster.postgres.archive())?;
    cluster.all_ready()?;
    let mut caller = RetryingClient::new(cluster.urls(), 0);
    let mut sessions = Vec::new();
    for n in 0..WARM {
        let answer = caller
            .post("/v1/sessions", &json!({}), &format!("session-{n}"))
            .await?;
        let id = answer.json()?["id"].as_str().map(str::to_owned);
        sessions.push(id.context("a session has an id")?);
    }
    each(&mut caller, &sessions, "kept").await?;
    let backup = blocking(|| cluster.postgres.base_backup())?;
    blocking(|| cluster.postgres.restore_point(POINT))?;
    // Each worker has the lost messages of some of the sessions in its cache.
    each(&mut caller, &sessions, "lost").await?;
    each(&mut caller, &sessions, "gone").await?;
    // A loss is told by renewals that are missing, and less than a second of them proves nothing.
    let leases = "SELECT min(lease_until) FROM boots WHERE dead_at IS NULL";
    let at_point: i64 = cluster.query(leases)?.parse()?;
    cluster
        .until("renewals that will be lost", LIMIT, async |cluster| {
            Ok(cluster.query(leases)?.parse::<i64>()? > at_point + 2_000)
        })
        .await?;
    let restored = blocking(|| {
        cluster.postgres.stop();
        cluster.postgres.restored(backup, POINT)
    })?;
    let proxy = cluster.proxy.as_ref().context("there is a proxy")?;
    proxy.lead_to(restored.port());
    cluster.postgres = restored;
    let mut urls: Vec<String> = cluster.workers.iter().map(Process::url).collect();
    // One of the workers does nothing while the other one gives the numbers of the lost messages to
    // other ones.
    cluster.workers[0].pause()?;
    each(&mut caller, &sessions, "other").await?;
    cluster.workers[0].resume()?;
    cluster.workers[1].pause()?;
    each(&mut caller, &sessions, "again").await?;
    cluster.workers[1].resume()?;
    let awake = monotonic();
    while let Some(url) = urls.last().cloned() {
        // By its lease; or, if that ended while it stood still, by the sessions that it knows.
        if has_noticed(&url).await.unwrap_or(false) {
            urls.pop();
        }
        let took = monotonic().saturating_sub(awake);
        ensure!(
            took < NOTICED_WITHIN,
            "{url} has noticed nothing after {took:?}"
        );
        pause(Duration::from_millis(50)).await;
    }
    let calls = cluster.model.ledger().entries();
    for (n, _) in sessions.iter().enumerate() {
        for (name, seen) in [
            ("other", ["kept"].as_slice()),
            ("again", &["kept", "other"]),
        ] {
            let mark = format!("{name}-{n}");
            let mut mine = calls
                .iter()
                .filter(|call| call.send.as_ref() == Some(&mark));
            let body = mine.next_back().and_then(|call| call.body.clone());
            let body = body.with_context(|| format!("{mark} was not asked"))?;
            for seen in seen {
                ensure!(
                    body.contains(&format!("{seen} {n}")),
                    "{mark} lacks {seen}: {body}"
                );
            }
            for lost in ["lost", "gone"] {
                ensure!(
                    !body.contains(lost),
                    "{mark} is shown what is {lost}: {body}"
                );
            }
        }
    }
    cluster.audit()?;
    cluster.passed();
    Ok(())
}
