//! A worker that is suspended for longer than its lease and resumes in the middle of its work; and
//! an outside transaction that keeps a session's row locked.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mainspring_benches::stats::percentile;
use mainspring_shared::time::Timestamp;
use mainspring_tests::faults::{
    Caught, Cluster, Effect, Load, Machine, Recipe, RetryingClient, RowLock, Shape, fault_duration,
    monotonic, now, pause, say, settle,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

const MS: Duration = Duration::from_millis(1);

/// Everything that a late write could change.
const EVERYTHING: &str = "SELECT 'message', session_id, seq, send_id, role, content, epoch FROM messages
    UNION ALL SELECT 'step', session_id, n, send_id, kind, refs, epoch FROM steps
    UNION ALL SELECT 'send', session_id, position, send_id, status, output_text || usage, rounds FROM sends
    UNION ALL SELECT 'usage', session_id, round, send_id, model, usage, attempt FROM usage_rows
    UNION ALL SELECT 'hot', session_id, next_seq, token, 'hot', concat(next_step, '/', pending), epoch
        FROM session_hot
    ORDER BY 1, 2, 3, 4, 5, 6, 7";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_wakes_up_with_an_answer_changes_nothing() -> Result<()> {
    let recipe = Recipe {
        schedulers: 1,
        workers: 1,
        ..Recipe::default()
    };
    let Some(mut cluster) = Cluster::start(recipe).await? else {
        return Ok(());
    };
    let mut caller = RetryingClient::new(cluster.urls(), 0);
    let body = json!({ "input": "[[send one]] [[stream 10x100ms]] a long answer, told slowly" });
    let send = caller.post("/v1/sends", &body, "one").await?.json()?;
    let id = send["id"].as_str().context("an id")?.to_owned();
    cluster
        .until("a call", 5_000 * MS, async |cluster| {
            Ok(cluster.model.ledger().stats().in_flight == 1)
        })
        .await?;
    pause(200 * MS).await;
    cluster.workers[0].pause()?;
    cluster.add_worker()?;
    let ended = caller.get(&format!("/v1/sends/{id}?wait=20s")).await?;
    ensure!(ended["status"] == "completed", "{ended}");
    ensure!(cluster.model.ledger().of_send("one").len() == 2);
    let before = cluster.query(EVERYTHING)?;
    // The first answer has been waiting, complete, in the suspended worker's connection: the worker
    // tries to store it at once.
    cluster.workers[0].resume()?;
    cluster
        .until("a new life of the sleeper", 10_000 * MS, async |cluster| {
            let sql = "SELECT count(*), count(dead_at) FROM boots WHERE name = 'worker-0'";
            Ok(cluster.query(sql)? == "2|1")
        })
        .await?;
    pause(500 * MS).await;
    ensure!(
        cluster.query(EVERYTHING)? == before,
        "a late write changed something"
    );
    let again = caller.get(&format!("/v1/sends/{id}")).await?;
    ensure!(again == ended, "told {ended}, now {again}");
    cluster.audit()?;
    cluster.passed();
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_that_sleep_in_turn_are_replaced_meanwhile() -> Result<()> {
    let Some(mut cluster) = Cluster::start(Recipe::default()).await? else {
        return Ok(());
    };
    let load = Load::start(cluster.urls(), Shape::default()).await?;
    let end = monotonic() + fault_duration();
    loop {
        let Caught { worker, place } = cluster.catch("a worker sleeps", Effect::Sleeps).await?;
        // Until others have its sessions.
        let name = &cluster.workers[worker].name;
        let last = format!(
            "SELECT dead_at IS NOT NULL FROM boots WHERE name = '{name}' \
             ORDER BY started_at DESC LIMIT 1"
        );
        cluster
            .until("a takeover", 30_000 * MS, async |cluster| {
                Ok(cluster.query(&last)? == "t")
            })
            .await?;
        cluster.workers[worker].resume()?;
        cluster.fault_log.end(place);
        if monotonic() > end {
            break;
        }
        pause(500 * MS).await;
    }
    let report = settle("sleeping workers", &mut cluster, load).await?;
    ensure!(
        report.repeated > 0,
        "nobody slept with anything: {report:?}"
    );
    cluster.passed();
    Ok(())
}

/// Number of clients that are measured.
const NEIGHBOURS: usize = 8;

/// Limit for the 99th percentile of other sessions' steps while one is locked.
const NEIGHBOUR_MAX: Duration = Duration::from_millis(500);

/// Measured durations: each accept, from there to the model call, and from the model's last byte to
/// the client.
#[derive(Debug, Default)]
struct Waits {
    accepts: Vec<Duration>,
    claims: Vec<Duration>,
    completions: Vec<Duration>,
}

/// Creates something; returns its id.
async fn created(
    caller: &mut RetryingClient,
    path: &str,
    body: &Value,
    key: &str,
) -> Result<String> {
    let answer = caller.post(path, body, key).await?;
    let made = matches!(answer.status, 201 | 202);
    ensure!(made, "{} {:?}", answer.status, answer.body);
    Ok(answer.json()?["id"].as_str().context("an id")?.to_owned())
}

/// Makes one send after the other to a session until `end`.
async fn neighbour(urls: Vec<String>, number: usize, end: Duration) -> Result<Vec<[Timestamp; 3]>> {
    let mut caller = RetryingClient::new(urls, number);
    let key = format!("neighbour-{number}");
    let session = created(&mut caller, "/v1/sessions", &json!({ "agent": {} }), &key).await?;
    let path = format!("/v1/sessions/{session}/sends");
    let mut seen = Vec::new();
    while monotonic() < end {
        let mark = format!("n{number}-{}", seen.len());
        let body = json!({ "input": format!("[[send {mark}]] say it") });
        let begun = now();
        let id = created(&mut caller, &path, &body, &mark).await?;
        let accepted = now();
        let ended = caller.get(&format!("/v1/sends/{id}?wait=20s")).await?;
        ensure!(ended["status"] == "completed", "{ended}");
        seen.push([begun, accepted, now()]);
    }
    Ok(seen)
}

/// Runs the clients for this long; returns their measurements.
async fn neighbours(cluster: &Cluster, length: Duration) -> Result<Waits> {
    let mut clients = JoinSet::new();
    let end = monotonic() + length;
    for number in 0..NEIGHBOURS {
        let urls = cluster.urls();
        clients.spawn(async move { (number, neighbour(urls, number, end).await) });
    }
    let mut waits = Waits::default();
    while let Some(client) = clients.join_next().await {
        let (number, seen) = client?;
        for (n, [begun, accepted, told]) in seen?.into_iter().enumerate() {
            let calls = cluster.model.ledger().of_send(&format!("n{number}-{n}"));
            ensure!(calls.len() == 1, "{} calls of {number}-{n}", calls.len());
            let ended = calls[0].ended_at.context("a call that goes on")?;
            waits.accepts.push(accepted.since(begun));
            // A worker may have started before the client is told.
            waits.claims.push(calls[0].at.since(accepted));
            waits.completions.push(told.since(ended));
        }
    }
    Ok(waits)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_locked_from_outside_delays_no_other() -> Result<()> {
    let recipe = Recipe {
        machine: Machine::Own,
        ..Recipe::default()
    };
    let Some(cluster) = Cluster::start(recipe).await? else {
        return Ok(());
    };
    let mut caller = RetryingClient::new(cluster.urls(), 0);
    let agent = json!({ "agent": {} });
    let mut sessions = Vec::new();
    for key in ["locked", "timed"] {
        sessions.push(created(&mut caller, "/v1/sessions", &agent, key).await?);
    }
    // While it is locked, a worker owns it, a timer is due for it, and a client sends to it.
    let path = format!("/v1/sessions/{}/sends", sessions[0]);
    let slowly = json!({ "input": "[[send held]] [[stream 20x100ms]] slowly" });
    let held = created(&mut caller, &path, &slowly, "held").await?;
    cluster
        .until("a call", 5_000 * MS, async |cluster| {
            Ok(cluster.model.ledger().stats().in_flight == 1)
        })
        .await?;
    for (n, session) in sessions.iter().enumerate() {
        let timer = json!({
            "session_id": session, "every": "1s", "input": "[[send timed]] ring",
            "on_busy": "enqueue", "catch_up": "once",
        });
        created(&mut caller, "/v1/timers", &timer, &format!("timer-{n}")).await?;
    }
    let row = sessions[0].trim_start_matches("ses_").to_owned();
    let locked = format!("SELECT FROM session_hot WHERE session_id = '{row}' FOR UPDATE");
    let lock = RowLock::hold(&cluster.postgres, "mainspring", &locked)?;
    let from = now().0;
    let mut other = RetryingClient::new(cluster.urls(), 1);
    let words = json!({ "input": "[[send more]] more" });
    let measured = async {
        let waits = neighbours(&cluster, fault_duration()).await;
        lock.release();
        waits
    };
    let (waits, more) = tokio::join!(
        measured,
        // Retried until there is an answer, as every careful client does.
        created(&mut other, &path, &words, "more"),
    );
    let (mut waits, more) = (waits?, more?);
    let late = cluster.query(&format!(
        "SELECT coalesce(max(o.fired_at - o.due_at), -1) FROM timer_occurrences o \
         JOIN timers t USING (tenant, timer_id) \
         WHERE t.session_id <> '{row}' AND o.due_at BETWEEN {from} AND {}",
        now().0
    ))?;
    // Negative if none of the neighbours' timers was due, or none has fired.
    let late: i64 = late.parse()?;
    let measured = [
        ("accepts", percentile(&mut waits.accepts, 99.0)),
        ("claims", percentile(&mut waits.claims, 99.0)),
        ("completions", percentile(&mut waits.completions, 99.0)),
        ("timers", Duration::from_millis(late.try_into()?)),
    ];
    let text = format!("{} sends of others: {measured:?}", waits.accepts.len());
    say(&text);
    ensure!(!waits.accepts.is_empty(), "nobody was measured");
    for (what, wait) in measured {
        ensure!(wait <= NEIGHBOUR_MAX, "{what}: {text}");
    }
    // The session proceeds once the lock is released.
    for id in [held, more] {
        let ended = caller.get(&format!("/v1/sends/{id}?wait=20s")).await?;
        ensure!(ended["status"] == "completed", "{ended}");
    }
    cluster.audit()?;
    cluster.passed();
    Ok(())
}
