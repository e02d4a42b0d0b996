//! Runs and timers while processes die and Redis forgets.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mainspring_tests::faults::{
    Alarms, Cluster, Effect, FanOut, Recipe, RetryingClient, any_of, between, blocking,
    fault_duration, monotonic, pause, say,
};
use serde_json::{Value, json};

const MS: Duration = Duration::from_millis(1);

/// From this fault duration on the test uses the amounts for a nightly run.
const WHOLE: Duration = Duration::from_mins(1);

/// The amount of concurrent work.
struct Amount {
    runs: usize,
    leaves: usize,
    at_once: usize,
    timers: usize,
    sessions: usize,
    /// The time span over which timers come due.
    over: Duration,
}

fn amount() -> Amount {
    if fault_duration() < WHOLE {
        Amount {
            runs: 4,
            leaves: 40,
            at_once: 4,
            timers: 300,
            sessions: 60,
            over: fault_duration().saturating_sub(2_000 * MS),
        }
    } else {
        Amount {
            runs: 20,
            leaves: 200,
            at_once: 8,
            timers: 5_000,
            sessions: 500,
            over: 30_000 * MS,
        }
    }
}

async fn sessions(caller: &mut RetryingClient, count: usize) -> Result<Vec<String>> {
    let mut sessions = Vec::new();
    for n in 0..count {
        let key = format!("session-{n}");
        let answer = caller.post("/v1/sessions", &json!({}), &key).await?;
        let id = answer.json()?["id"].as_str().map(str::to_owned);
        sessions.push(id.context("a session has an id")?);
    }
    Ok(sessions)
}

/// The essence of an undisturbed run.
async fn undisturbed(cluster: &Cluster, amount: &Amount) -> Result<Value> {
    let mut caller = RetryingClient::new(cluster.urls(), 0);
    let run = FanOut::start(&mut caller, "r0n00", amount.leaves, amount.at_once).await?;
    let (run, nodes) = run.ended(&mut caller).await?;
    let essence = FanOut::essence(&run, &nodes);
    ensure!(essence["run"]["status"] == "completed", "{run}");
    let counts = &essence["run"]["counts"];
    ensure!(counts["completed"] == amount.leaves + 2, "{counts}");
    Ok(essence)
}

/// Kills one process with signal 9, at random or where it hurts most, and restarts it.
async fn kill_one(cluster: &mut Cluster) -> Result<()> {
    let fault_log = cluster.fault_log.clone();
    match any_of(5) {
        0 | 1 => {
            let victims = [vec![0], vec![1], vec![0, 1]][any_of(3)].clone();
            // A scheduler makes no model calls: not one answer may be lost with it.
            fault_log.during("schedulers are killed", Effect::None, || {
                for victim in &victims {
                    blocking(|| cluster.schedulers[*victim].kill());
                }
            });
            for victim in victims {
                cluster.replace_scheduler(victim)?;
            }
        }
        kind => {
            // Towards the end there may be no busy one.
            let busy = cluster.busy_worker().await;
            let victim = busy
                .ok()
                .filter(|_| kind > 2)
                .unwrap_or_else(|| any_of(cluster.workers.len()));
            fault_log.during("a worker is killed", Effect::Repeats, || {
                cluster.kill_worker(victim);
            });
            cluster.replace_worker(victim)?;
        }
    }
    cluster.all_ready()
}

/// Runs one round of runs and timers while processes die, then compares everything. Returns how
/// often the model was asked again.
async fn round(
    cluster: &mut Cluster,
    number: usize,
    sound: &Value,
    sessions: &[String],
    until: Duration,
) -> Result<usize> {
    let amount = amount();
    let mut caller = RetryingClient::new(cluster.urls(), number);
    let begun = cluster.fault_log.faults().len();
    let mark = format!("t{number}");
    let alarms = Alarms::arm(&mut caller, &mark, sessions, amount.timers, amount.over).await?;
    let mut runs = Vec::new();
    for n in 0..amount.runs {
        let mark = format!("r{number}n{n:02}");
        runs.push(FanOut::start(&mut caller, &mark, amount.leaves, amount.at_once).await?);
    }
    let hit = cluster.kill_in_a_call().await?;
    cluster.replace_worker(hit)?;
    cluster.all_ready()?;
    let mut over = false;
    while !over {
        pause(between(200 * MS, 1_000 * MS)).await;
        kill_one(cluster).await?;
        // At least this often, even if the runs are quicker or time is up: there are still timers
        // to fire.
        over = cluster.fault_log.faults().len() - begun > 2;
        if over && monotonic() < until {
            for run in &runs {
                over = over && run.is_over(&mut caller).await?;
            }
        }
    }
    let mut ended = Vec::new();
    for run in &runs {
        ended.push(run.ended(&mut caller).await?);
    }
    let all = alarms.occurrences();
    let fired = async |cluster: &Cluster| {
        let open = "SELECT count(*) FROM timers WHERE status = 'armed'";
        let left = "SELECT count(*) FROM sends WHERE finished_at IS NULL";
        Ok(cluster.query(open)? == "0" && cluster.query(left)? == "0")
    };
    cluster
        .until("the end of all timers", 120_000 * MS, fired)
        .await?;
    let calls = cluster.model.ledger().entries();
    let faults = cluster.fault_log.faults().split_off(begun);
    let (mut found, mut again) = alarms.fired(cluster, &calls, &faults)?;
    for (run, (record, nodes)) in runs.iter().zip(&ended) {
        ensure!(
            FanOut::essence(record, nodes) == *sound,
            "{record}\n{nodes:?}\nnot\n{sound}"
        );
        let (differ, repeated) = run.asked(nodes, &calls, &faults)?;
        found.extend(differ);
        again += repeated;
    }
    ensure!(
        found.is_empty(),
        "{}",
        found[..found.len().min(20)].join("\n")
    );
    ensure!(faults.len() > 2, "only {} deaths", faults.len());
    cluster.all_completed()?;
    cluster.audit()?;
    say(&format!(
        "{} deaths, {all} occurrences, {again} repeats",
        faults.len()
    ));
    Ok(again)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_and_timers_survive_the_deaths_of_schedulers_and_workers() -> Result<()> {
    // This much load can starve a process for longer than short leases last, and a process that
    // doubts its lease calls the model again.
    let longer = [("MAINSPRING_LEASE_TTL", "6s")];
    let recipe = Recipe {
        environment: if fault_duration() < WHOLE {
            &[]
        } else {
            &longer
        },
        ..Recipe::default()
    };
    let Some(mut cluster) = Cluster::start(recipe).await? else {
        return Ok(());
    };
    let amount = amount();
    let sound = undisturbed(&cluster, &amount).await?;
    let mut caller = RetryingClient::new(cluster.urls(), 0);
    let sessions = sessions(&mut caller, amount.sessions).await?;
    let end = monotonic() + fault_duration();
    let mut again = 0;
    let mut number = 0;
    while monotonic() < end {
        number += 1;
        again += round(&mut cluster, number, &sound, &sessions, end).await?;
    }
    ensure!(again > 0, "no death hit anything");
    let fallen = cluster.fallen();
    ensure!(fallen.is_empty(), "ended by themselves: {fallen:?}");
    cluster.passed();
    Ok(())
}

/// Number of leaves of the run during which Redis forgets everything.
const LEAVES: usize = 120;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fan_out_without_its_redis_runs_every_leaf_once() -> Result<()> {
    let Some(mut cluster) = Cluster::start(Recipe::default()).await? else {
        return Ok(());
    };
    let mut caller = RetryingClient::new(cluster.urls(), 0);
    let end = monotonic() + fault_duration();
    let mut number = 0;
    let mut times = [0; 2];
    while monotonic() < end || times.contains(&0) {
        number += 1;
        let mark = format!("r{number}");
        let run = FanOut::start(&mut caller, &mark, LEAVES, 16).await?;
        while !run.is_over(&mut caller).await? {
            pause(between(20 * MS, 200 * MS)).await;
            let fault_log = cluster.fault_log.clone();
            let place = fault_log.begin("redis forgets", Effect::None);
            if times[0] % 8 == 7 {
                blocking(|| cluster.redis.stop());
                pause(between(100 * MS, 1_500 * MS)).await;
                blocking(|| cluster.redis.restart())?;
                times[1] += 1;
            } else {
                blocking(|| cluster.redis.command(&["FLUSHALL"]))?;
            }
            times[0] += 1;
            fault_log.end(place);
        }
        let (record, nodes) = run.ended(&mut caller).await?;
        ensure!(record["status"] == "completed", "{record}");
        let items = record["counts"]["completed"].as_u64();
        ensure!(items == Some(LEAVES as u64 + 2), "{record}");
        ensure!(nodes.iter().all(|node| node["attempt"] == 1), "{nodes:?}");
        let calls = cluster.model.ledger().entries();
        let (found, again) = run.asked(&nodes, &calls, &cluster.fault_log.faults())?;
        ensure!(
            found.is_empty() && again == 0,
            "{again} again: {}",
            found.join("\n")
        );
    }
    say(&format!(
        "{number} runs, redis forgot {} times and was away {} times",
        times[0], times[1]
    ));
    cluster.all_completed()?;
    cluster.audit()?;
    let fallen = cluster.fallen();
    ensure!(fallen.is_empty(), "ended by themselves: {fallen:?}");
    cluster.passed();
    Ok(())
}
