//! Processes that die under load.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use mainspring_benches::client::Client;
use mainspring_tests::faults::{
    Cluster, Effect, Load, Machine, Recipe, RetryingClient, Shape, any_of, between, blocking,
    fault_duration, kills, monotonic, pause, say, settle,
};
use serde_json::json;

const MS: Duration = Duration::from_millis(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_workers_lose_nothing_and_repeat_only_what_was_under_way() -> Result<()> {
    let Some(mut cluster) = Cluster::start(Recipe::default()).await? else {
        return Ok(());
    };
    let load = Load::start(cluster.urls(), Shape::default()).await?;
    let hit = cluster.kill_in_a_call().await?;
    cluster.replace_worker(hit)?;
    cluster.all_ready()?;
    let end = monotonic() + fault_duration();
    while monotonic() < end {
        pause(between(200 * MS, 1_000 * MS)).await;
        // Half of them die while busy, the others in any state: starting, taking over, idle.
        let victim = if any_of(2) == 0 {
            any_of(cluster.workers.len())
        } else {
            cluster.busy_worker().await?
        };
        let fault_log = cluster.fault_log.clone();
        fault_log.during("a worker is killed", Effect::Repeats, || {
            cluster.kill_worker(victim);
        });
        cluster.replace_worker(victim)?;
        cluster.all_ready()?;
    }
    let report = settle("killed workers", &mut cluster, load).await?;
    ensure!(report.repeated > 0, "no kill hit anything: {report:?}");
    cluster.passed();
    Ok(())
}

/// Each kill hits a worker that owns sessions: before its first step of a send that it was handed,
/// in the middle of one, or while it keeps them for the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_owners_leave_what_they_were_handed_to_others() -> Result<()> {
    // With so many deaths, the same send may be hit by many of them.
    let environment = [("MAINSPRING_WORKER_CRASHES_MAX", "1000")];
    let recipe = Recipe {
        script: "[[stream 2x10ms]]",
        environment: &environment,
        ..Recipe::default()
    };
    let Some(mut cluster) = Cluster::start(recipe).await? else {
        return Ok(());
    };
    let shape = Shape {
        clients: 6,
        sessions: 24,
        ..Shape::default()
    };
    let load = Load::start(cluster.urls(), shape).await?;
    for kill in 1..=kills() {
        pause(between(20 * MS, 400 * MS)).await;
        let owner = cluster.busy_worker().await?;
        let fault_log = cluster.fault_log.clone();
        fault_log.during("an owner is killed", Effect::Repeats, || {
            cluster.kill_worker(owner);
        });
        cluster.replace_worker(owner)?;
        cluster.all_ready()?;
        if kill % 100 == 0 {
            say(&format!(
                "{kill} owners killed, {} sends ended",
                load.done()
            ));
        }
    }
    let handed = handed(&cluster).await?;
    let report = settle("killed owners", &mut cluster, load).await?;
    ensure!(handed > 0, "no owner was handed a send: {report:?}");
    // A few kills may all hit idle owners.
    ensure!(
        kills() < 100 || report.repeated > 0,
        "no kill hit a send: {report:?}"
    );
    say(&format!(
        "{handed} sends were handed to the owners of their sessions"
    ));
    cluster.passed();
    Ok(())
}

/// Number of sends that schedulers dispatched directly to the workers that own their sessions.
async fn handed(cluster: &Cluster) -> Result<u64> {
    let mut handed = 0;
    for url in cluster.urls() {
        let mut client = Client::connect(&url).await?;
        let metrics = client.request("GET", "/metrics", Bytes::new()).await?;
        let metrics = String::from_utf8(metrics.body.to_vec())?;
        let value = metrics
            .lines()
            .find_map(|line| line.strip_prefix("mainspring_sessions_dispatched_total "));
        // The metric has no line before the first dispatch.
        handed += value.unwrap_or("0").parse::<u64>()?;
    }
    Ok(handed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_schedulers_lose_nothing_that_they_answered() -> Result<()> {
    let Some(mut cluster) = Cluster::start(Recipe::default()).await? else {
        return Ok(());
    };
    let load = Load::start(cluster.urls(), Shape::default()).await?;
    let end = monotonic() + fault_duration();
    let mut turn = 0;
    while monotonic() < end {
        pause(between(100 * MS, 800 * MS)).await;
        // One, the other, then both at once.
        let victims = [vec![0], vec![1], vec![0, 1]][turn % 3].clone();
        turn += 1;
        let fault_log = cluster.fault_log.clone();
        // A scheduler makes no model calls: not one answer may be lost with it.
        fault_log.during("schedulers are killed", Effect::None, || {
            for victim in &victims {
                blocking(|| cluster.schedulers[*victim].kill());
            }
        });
        for victim in victims {
            cluster.replace_scheduler(victim)?;
        }
        cluster.all_ready()?;
    }
    let report = settle("killed schedulers", &mut cluster, load).await?;
    ensure!(report.repeated == 0, "answers were lost: {report:?}");
    cluster.passed();
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_killed_at_once_and_started_again_goes_on() -> Result<()> {
    let Some(mut cluster) = Cluster::start(Recipe::default()).await? else {
        return Ok(());
    };
    let load = Load::start(cluster.urls(), Shape::default()).await?;
    let end = monotonic() + fault_duration();
    let mut times = 0;
    while monotonic() < end || times < 2 {
        times += 1;
        pause(between(800 * MS, 2_500 * MS)).await;
        let fault_log = cluster.fault_log.clone();
        let place = fault_log.begin("everything is killed", Effect::Repeats);
        blocking(|| {
            cluster.postgres.stop();
            cluster.redis.stop();
            for process in cluster.workers.iter_mut().chain(&mut cluster.schedulers) {
                process.kill();
            }
        });
        fault_log.end(place);
        // The order in which things come back must not matter.
        let servers_first = any_of(2) == 0;
        if servers_first {
            blocking(|| {
                cluster
                    .postgres
                    .restart()
                    .and_then(|()| cluster.redis.restart())
            })?;
        }
        start_all(&mut cluster)?;
        if !servers_first {
            blocking(|| {
                cluster
                    .redis
                    .restart()
                    .and_then(|()| cluster.postgres.restart())
            })?;
        }
    }
    settle("everything killed", &mut cluster, load).await?;
    cluster.passed();
    Ok(())
}

fn start_all(cluster: &mut Cluster) -> Result<()> {
    for n in 0..cluster.workers.len() {
        cluster.replace_worker(n)?;
    }
    for n in 0..cluster.schedulers.len() {
        cluster.replace_scheduler(n)?;
    }
    Ok(())
}

/// With the default leases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_send_of_a_killed_worker_is_taken_over_within_the_lease() -> Result<()> {
    let environment = [
        ("MAINSPRING_LEASE_TTL", "10s"),
        ("MAINSPRING_SWEEP_INTERVAL", "1s"),
    ];
    let recipe = Recipe {
        schedulers: 1,
        workers: 2,
        machine: Machine::Own,
        environment: &environment,
        ..Recipe::default()
    };
    let Some(mut cluster) = Cluster::start(recipe).await? else {
        return Ok(());
    };
    let mut caller = RetryingClient::new(cluster.urls(), 0);
    let body = json!({ "input": "[[send one]] [[stream 20x100ms]] a long answer, told slowly" });
    let send = caller.post("/v1/sends", &body, "one").await?.json()?;
    let id = send["id"].as_str().context("an id")?.to_owned();
    cluster
        .until("a call", 5_000 * MS, async |cluster| {
            Ok(cluster.model.ledger().stats().in_flight == 1)
        })
        .await?;
    let victim = cluster.busy_worker().await?;
    cluster.kill_worker(victim);
    let killed = monotonic();
    cluster
        .until("a takeover", 15_000 * MS, async |cluster| {
            Ok(cluster.model.ledger().of_send("one").len() == 2)
        })
        .await?;
    let took = monotonic().saturating_sub(killed);
    // Not before the lease has expired: until then its owner may be alive. Renewals come every
    // third of the lease, so at least two thirds of it are left.
    ensure!(took > 6_000 * MS, "taken over after {took:?}");
    ensure!(took < 12_000 * MS, "taken over after {took:?}");
    let ended = caller.get(&format!("/v1/sends/{id}?wait=10s")).await?;
    ensure!(ended["status"] == "completed", "{ended}");
    ensure!(cluster.model.ledger().of_send("one").len() == 2);
    cluster.audit()?;
    cluster.passed();
    Ok(())
}
