//! Timers: many that are due at once, a steady stream of them, and how fast they are created.

use std::time::Duration;

use anyhow::{Result, ensure};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::client::Client;
use crate::cluster::{Cluster, Options, sessions};
use crate::load::{now, pause};
use crate::stats::measurement;

/// Connections that create timers concurrently.
const CLIENTS: usize = 4;
const BATCH: usize = 1_000;
const SESSIONS: usize = 1_000;

/// Timers per second of the steady stream.
const STEADY: usize = 500;

/// The database's clock in milliseconds.
const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

pub(super) async fn run(options: &Options, emit: &mut dyn FnMut(Value)) -> Result<()> {
    arming(options, emit).await?;
    for (count, name, bar) in [
        (10_000, "timers.burst_10k", "<= 1.5"),
        (100_000, "timers.burst_100k", "<= 12"),
    ] {
        let count = options.size(count, count / 50);
        let (mut took, mut ended) = (Vec::new(), Vec::new());
        for _ in 0..options.runs {
            let one = burst(options, count).await?;
            took.push(one.fired);
            ended.push(one.ended);
        }
        emit(measurement(name, "s", &took, bar));
        let name = format!("{name}.sends_ended");
        emit(measurement(&name, "s", &ended, "reference"));
    }
    let (mut p50, mut p99) = (Vec::new(), Vec::new());
    for _ in 0..options.runs {
        let late = steady(options).await?;
        p50.push(late.0);
        p99.push(late.1);
    }
    emit(measurement("timers.lateness_p50", "ms", &p50, ""));
    emit(measurement("timers.lateness_p99", "ms", &p99, "<= 100"));
    Ok(())
}

/// Timers created per second through the API.
async fn arming(options: &Options, emit: &mut dyn FnMut(Value)) -> Result<()> {
    let cluster = Cluster::start(options, 0, &[])?;
    let ids = sessions(&mut cluster.client().await?, SESSIONS, &json!({})).await?;
    let count = options.size(100_000, 4_000);
    let mut rates = Vec::new();
    for _ in 0..options.runs {
        let start = now();
        arm(&cluster, &ids, count, |_| json!({ "after": "1d" })).await?;
        rates.push(count as f64 / start.elapsed().as_secs_f64());
    }
    cluster.audit()?;
    emit(measurement("timers.armed", "timers/s", &rates, ">= 10000"));
    Ok(())
}

/// Creates timers over the sessions in turn; `when` says when the n-th is due.
async fn arm(
    cluster: &Cluster,
    ids: &[String],
    count: usize,
    when: impl Fn(usize) -> Value,
) -> Result<()> {
    let timers = (0..count).map(|n| {
        let mut timer = when(n);
        timer["session_id"] = json!(ids[n % ids.len()]);
        timer["input"] = json!("b".repeat(100));
        timer
    });
    let timers: Vec<Value> = timers.collect();
    let bodies = timers.chunks(BATCH).map(|timers| {
        let body = serde_json::to_vec(&json!({ "timers": timers }))?;
        Ok((timers.len(), Bytes::from(body)))
    });
    let bodies = bodies.collect::<Result<Vec<_>>>()?;
    let mut tasks = Vec::new();
    for mine in bodies.chunks(bodies.len().div_ceil(CLIENTS)) {
        let (mine, base) = (mine.to_vec(), cluster.scheduler.url());
        tasks.push(tokio::spawn(async move {
            let mut client = Client::connect(&base).await?;
            for (count, body) in mine {
                let answer = client.request("POST", "/v1/timers:batch", body).await?;
                ensure!(answer.status == 200, "{} {:?}", answer.status, answer.body);
                let results = answer.json()?;
                let all = results["results"].as_array().is_some_and(|all| {
                    all.len() == count && all.iter().all(|item| item["status"] == 201)
                });
                ensure!(all, "a timer of a batch was refused");
            }
            anyhow::Ok(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    Ok(())
}

/// Seconds from the moment at which many timers are due at once.
struct Burst {
    /// Until the sends of all timers are committed.
    fired: f64,
    /// Until all these sends have ended.
    ended: f64,
}

/// Fires many timers at once, while two workers run the resulting sends.
async fn burst(options: &Options, count: usize) -> Result<Burst> {
    let cluster = Cluster::start(options, 2, &[])?;
    let ids = sessions(&mut cluster.client().await?, SESSIONS, &json!({})).await?;
    let due = clock(&cluster)? + 4_000 + (count / 4) as i64;
    arm(&cluster, &ids, count, |_| json!({ "at": time(due) })).await?;
    ensure!(clock(&cluster)? < due, "the timers were not made in time");
    let left = format!(
        "SELECT CASE WHEN EXISTS (SELECT FROM timers WHERE fire_at IS NOT NULL) THEN 0 ELSE {NOW} END"
    );
    pause((due - clock(&cluster)?).max(0).unsigned_abs()).await;
    let start = now();
    let fired = loop {
        let fired = cluster.number(&left)?;
        if fired > 0 {
            break fired;
        }
        ensure!(start.elapsed() < Duration::from_mins(2), "timers are left");
        pause(25).await;
    };
    let open = "SELECT count(*) FROM sends WHERE finished_at IS NULL";
    while cluster.number(open)? > 0 {
        ensure!(start.elapsed() < Duration::from_mins(5), "sends are left");
        pause(100).await;
    }
    let ended = cluster.number("SELECT max(finished_at) FROM sends")?;
    once(&cluster, count)?;
    Ok(Burst {
        fired: (fired - due) as f64 / 1e3,
        ended: (ended - due) as f64 / 1e3,
    })
}

/// Lateness of timers while five hundred are due each second: from each due time to the database's
/// clock in the transaction that fires the timer.
async fn steady(options: &Options) -> Result<(f64, f64)> {
    let cluster = Cluster::start(options, 2, &[])?;
    let ids = sessions(&mut cluster.client().await?, SESSIONS, &json!({})).await?;
    let count = STEADY * options.size(20, 2);
    let first = clock(&cluster)? + 5_000;
    let gap = 1_000 / STEADY as i64;
    arm(
        &cluster,
        &ids,
        count,
        |n| json!({ "at": time(first + gap * n as i64) }),
    )
    .await?;
    ensure!(clock(&cluster)? < first, "the timers were not made in time");
    let left = "SELECT count(*) FROM timers WHERE fire_at IS NOT NULL";
    pause(5_000 + (gap * count as i64).unsigned_abs()).await;
    while cluster.number(left)? > 0 {
        pause(100).await;
    }
    once(&cluster, count)?;
    let late = |percent: f64| {
        let sql = format!(
            "SELECT (percentile_cont({percent}) WITHIN GROUP (ORDER BY fired_at - due_at) * 1000)::bigint
             FROM timer_occurrences"
        );
        Ok::<_, anyhow::Error>(cluster.number(&sql)? as f64 / 1e3)
    };
    Ok((late(0.5)?, late(0.99)?))
}

/// Checks that every timer fired once, none fired early, and the invariants hold.
fn once(cluster: &Cluster, count: usize) -> Result<()> {
    let sql = "SELECT count(DISTINCT (timer_id, send_id)) FROM timer_occurrences
        WHERE fate = 'fired' AND fired_at >= due_at";
    let fired = cluster.number(sql)?;
    ensure!(fired == count as i64, "{fired} of {count} fired");
    let sends = cluster.number("SELECT count(*) FROM sends")?;
    ensure!(sends == count as i64, "{sends} sends of {count} timers");
    cluster.audit()
}

/// The database's clock.
fn clock(cluster: &Cluster) -> Result<i64> {
    cluster.number(&format!("SELECT {NOW}"))
}

fn time(millis: i64) -> Value {
    let time = jiff::Timestamp::from_millisecond(millis);
    json!(time.unwrap_or_default().to_string())
}
