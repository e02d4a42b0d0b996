//! A tenant with a money limit while its workers die: the provider's bill never exceeds it.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mainspring_tests::faults::{
    Cluster, Effect, Recipe, RetryingClient, any_of, between, fault_duration, leaves, monotonic,
    pause, say,
};
use serde_json::{Value, json};

const MS: Duration = Duration::from_millis(1);

/// From this fault duration on the test uses the full number of leaves.
const WHOLE: Duration = Duration::from_mins(1);

/// Price of an input or output token in billionths of a dollar: ten dollars per million.
const TOKEN: u64 = 10_000;
const PRICES: &str = "fake=10/10";

/// Words of an answer, and its maximum tokens.
const WORDS: usize = 40;
const TOKENS_MAX: usize = 64;

/// Leaves of one run that may be ready at once.
const AT_ONCE_MAX: usize = 64;

/// Billionths of a dollar in a dollar.
const DOLLAR: f64 = 1e9;

/// The size of the test: leaves, how many of them run at once, and the tenant's limit in dollars,
/// which is less than all leaves cost, and much more than a few deaths do. If `leaves()` sets the
/// number, all leaves are ready at once.
fn amount() -> (usize, usize, f64) {
    match leaves() {
        Some(leaves) => (leaves, AT_ONCE_MAX, leaves as f64 * 0.000_9),
        None if fault_duration() < WHOLE => (80, 16, 0.04),
        None => (1_000, 24, 0.9),
    }
}

/// The leaves of each run: a single run unless all leaves are to be ready at once.
fn runs(leaves: usize, at_once: usize) -> Vec<Range<usize>> {
    let each = if at_once == AT_ONCE_MAX {
        at_once
    } else {
        leaves
    };
    let begins = (0..leaves).step_by(each);
    begins
        .map(|begin| begin..leaves.min(begin + each))
        .collect()
}

/// Starts the runs; returns their paths.
async fn begin(caller: &mut RetryingClient, leaves: usize, at_once: usize) -> Result<Vec<String>> {
    let mut begun = Vec::new();
    for (n, leaves) in runs(leaves, at_once).into_iter().enumerate() {
        let body = json!({ "spec": spec(leaves, at_once) });
        let answer = caller
            .post("/v1/runs", &body, &format!("crowd-{n}"))
            .await?;
        ensure!(answer.status == 202, "{} {:?}", answer.status, answer.body);
        let run = answer.json()?["id"].as_str().map(str::to_owned);
        begun.push(format!("/v1/runs/{}", run.context("a run has an id")?));
    }
    Ok(begun)
}

fn spec(leaves: Range<usize>, at_once: usize) -> Value {
    let items: Vec<usize> = leaves.collect();
    let words = vec!["word"; WORDS].join(" ");
    let agent = json!({
        "name": "leaf", "system_prompt": "Work.", "tools": [], "max_tokens": TOKENS_MAX,
    });
    let input = format!("[[send m-{{{{n}}}}]] [[say {words}]] look");
    let body = json!({ "type": "agent", "id": "leaf", "spec": agent, "input": input });
    json!({ "name": "a crowd", "root": {
        "type": "foreach", "id": "all", "as": "n", "items": items, "max_concurrency": at_once,
        "on_error": "continue", "body": body,
    }})
}

/// The provider's bill, in billionths of a dollar.
fn billed(cluster: &Cluster) -> u64 {
    let entries = cluster.model.ledger().entries();
    let words = entries.iter().filter_map(|entry| entry.billed);
    words
        .map(|(read, written)| (read + written) as u64 * TOKEN)
        .sum()
}

fn number(cluster: &Cluster, sql: &str) -> Result<u64> {
    let found = cluster.query(sql)?;
    found
        .trim()
        .parse()
        .with_context(|| format!("{sql}: {found}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_of_money_holds_while_workers_die() -> Result<()> {
    let recipe = Recipe {
        workers: 4,
        schedulers: 1,
        script: "[[stream 4x120ms]] [[bounded]]",
        environment: &[("MAINSPRING_PRICES", PRICES)],
        ..Recipe::default()
    };
    let Some(mut cluster) = Cluster::start(recipe).await? else {
        return Ok(());
    };
    let (leaves, at_once, dollars) = amount();
    let limit = (dollars * DOLLAR) as u64;
    let mut caller = RetryingClient::new(cluster.urls(), 0);
    let limits = json!({ "limits": { "usd_per_day": dollars } });
    let answer = caller.patch("/v1/tenants/ten_1", &limits).await?;
    ensure!(answer.status == 200, "{} {:?}", answer.status, answer.body);
    let mut runs_open = begin(&mut caller, leaves, at_once).await?;
    let runs = runs_open.clone();
    let hit = cluster.kill_in_a_call().await?;
    cluster.replace_worker(hit)?;
    cluster.all_ready()?;
    let end = monotonic() + fault_duration();
    let mut deaths = 1;
    while !runs_open.is_empty() {
        pause(between(200 * MS, 900 * MS)).await;
        ensure!(billed(&cluster) <= limit, "{} of {limit}", billed(&cluster));
        if monotonic() < end {
            // Towards the end there may be no busy worker.
            let busy = cluster.busy_worker().await;
            let victim = match busy {
                Ok(busy) if any_of(3) > 0 => busy,
                Ok(_) | Err(_) => any_of(cluster.workers.len()),
            };
            let fault_log = cluster.fault_log.clone();
            fault_log.during("a worker is killed", Effect::Repeats, || {
                cluster.kill_worker(victim);
            });
            cluster.replace_worker(victim)?;
            cluster.all_ready()?;
            deaths += 1;
        }
        while let Some(run) = runs_open.last()
            && caller.get(run).await?["finished_at"].is_string()
        {
            runs_open.pop();
        }
        ensure!(monotonic() < end + 60_000 * MS, "a run does not end");
    }
    let mut nodes = Vec::new();
    for run in &runs {
        nodes.extend(caller.all(&format!("{run}/nodes")).await?);
    }
    let of = |state: &str| {
        let mine = nodes
            .iter()
            .filter(|node| node["id"] == "leaf" && node["state"] == state);
        mine.cloned().collect::<Vec<Value>>()
    };
    let (done, spent) = (of("completed"), of("failed"));
    ensure!(
        done.len() + spent.len() == leaves,
        "{} {}",
        done.len(),
        spent.len()
    );
    for node in &spent {
        let said = node["error"]["message"].as_str().unwrap_or_default();
        ensure!(node["error"]["code"] == "budget.exceeded", "{node}");
        ensure!(said.contains("usd_per_day"), "{node}");
    }
    ensure!(
        !done.is_empty() && !spent.is_empty(),
        "the limit was met by some"
    );
    let left =
        async |cluster: &Cluster| Ok(number(cluster, "SELECT count(*) FROM money_aside")? == 0);
    cluster
        .until("the end of all that was set aside", 20_000 * MS, left)
        .await?;
    let entered = number(&cluster, "SELECT sum(spent) FROM money_days")?;
    let billed = billed(&cluster);
    ensure!(
        billed <= entered && entered <= limit,
        "{billed} {entered} {limit}"
    );
    say(&format!(
        "{deaths} deaths, {} answered, {} without money: {billed} billed of {entered} entered of {limit}",
        done.len(),
        spent.len()
    ));
    ensure!(billed < entered, "no death hit a call");
    cluster.audit()?;
    let fallen = cluster.fallen();
    ensure!(fallen.is_empty(), "ended by themselves: {fallen:?}");
    cluster.passed();
    Ok(())
}
