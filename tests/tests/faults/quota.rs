//! A provider with a request quota per account, which the workers of an installation share.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mainspring_tests::faults::{
    Cluster, Machine, Recipe, RetryingClient, fault_duration, monotonic, pause, say,
};
use serde_json::json;

const WORKERS: usize = 8;

/// The quota in requests per minute, and per second.
const QUOTA: u32 = 3_000;
const PER_SECOND: u32 = QUOTA / 60;

const SESSIONS: usize = 200;

/// Time for workers to learn of each other and of the quota.
const WARM_UP: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_workers_at_95_percent_of_a_quota_are_hardly_ever_refused() -> Result<()> {
    at(95).await
}

/// The excess waits, parked as rows if it takes long, and nothing fails because of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_workers_that_are_asked_for_twice_a_quota_use_it_and_are_hardly_ever_refused()
-> Result<()> {
    at(200).await
}

/// Runs sends at this percentage of the quota, each with one model call.
async fn at(percent: u32) -> Result<()> {
    let recipe = Recipe {
        schedulers: 1,
        workers: WORKERS,
        script: "[[stream 2x150ms]]",
        machine: Machine::Own,
        ..Recipe::default()
    };
    let Some(cluster) = Cluster::start(recipe).await? else {
        return Ok(());
    };
    let mut caller = RetryingClient::new(cluster.urls(), 0);
    let mut sessions = Vec::new();
    for n in 0..SESSIONS {
        let answer = caller
            .post("/v1/sessions", &json!({}), &format!("session-{n}"))
            .await?;
        let session = answer.json()?;
        sessions.push(session["id"].as_str().context("an id")?.to_owned());
    }
    cluster.model.set_requests_per_minute(Some(QUOTA));
    let start = monotonic();
    let end = start + WARM_UP + fault_duration();
    let gap = Duration::from_secs(1) * 100 / (PER_SECOND * percent);
    let (mut sent, mut warm) = (0, None);
    while monotonic() < end {
        if warm.is_none() && monotonic().saturating_sub(start) >= WARM_UP {
            warm = Some((monotonic(), cluster.model.counted(), sent));
        }
        let path = format!("/v1/sessions/{}/sends", sessions[sent as usize % SESSIONS]);
        let answer = caller
            .post(&path, &json!({ "input": "hello" }), &format!("send-{sent}"))
            .await?;
        ensure!(answer.status == 202, "{} {:?}", answer.status, answer.body);
        sent += 1;
        pause((start + gap * sent).saturating_sub(monotonic())).await;
    }
    let (since, before, sent_before) = warm.context("it was warm")?;
    let (took, counted) = (monotonic().saturating_sub(since), cluster.model.counted());
    let answered = (counted.answered - before.answered) as f64;
    let used = answered / took.as_secs_f64() / f64::from(PER_SECOND);
    let calls = (counted.answered + counted.refused) as f64;
    let refused = counted.refused as f64 / calls;
    say(&format!(
        "{percent} % of the quota by {WORKERS} workers: {counted:?}, {refused:.4} refused; {used:.3} of it used"
    ));
    // In a short run there are too few calls for a meaningful share.
    ensure!(
        counted.refused <= 3 || refused < 0.005,
        "{refused:.4} of the calls were refused"
    );
    // A slow machine generates less load than intended.
    let offered = f64::from(sent - sent_before) / took.as_secs_f64() / f64::from(PER_SECOND);
    let expected = offered.min(1.0);
    ensure!(used > expected - 0.1, "{used:.3} of {expected:.3} was used");
    // Sends that wait for the quota complete once it is lifted.
    cluster.model.set_requests_per_minute(None);
    let ended = format!("SELECT count(*) = {sent} FROM sends WHERE status = 'completed'");
    cluster
        .until(
            "the end of all sends",
            Duration::from_mins(5),
            async |cluster| Ok(cluster.query(&ended)? == "t"),
        )
        .await?;
    cluster.audit()?;
    cluster.passed();
    Ok(())
}
