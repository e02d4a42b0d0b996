//! A worker that sleeps for longer than its lease, and wakes up in the middle of what it did.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mainspring_tests::faults::{
    Caller, Effect, Load, Recipe, Shape, Stand, dose, monotonic, pause, settle,
};
use serde_json::json;

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
    let Some(mut stand) = Stand::start(recipe).await? else {
        return Ok(());
    };
    let mut caller = Caller::new(stand.urls(), 0);
    let body = json!({ "input": "[[send one]] [[stream 10x100ms]] a long answer, told slowly" });
    let send = caller.post("/v1/sends", &body, "one").await?.json()?;
    let id = send["id"].as_str().context("an id")?.to_owned();
    stand
        .until("a call", 5_000 * MS, async |stand| {
            Ok(stand.model.ledger().stats().in_flight == 1)
        })
        .await?;
    pause(200 * MS).await;
    stand.workers[0].pause()?;
    stand.add_worker()?;
    let ended = caller.get(&format!("/v1/sends/{id}?wait=20s")).await?;
    ensure!(ended["status"] == "completed", "{ended}");
    ensure!(stand.model.ledger().of_send("one").len() == 2);
    let before = stand.query(EVERYTHING)?;
    // The first answer has been waiting in the sleeper's connection, whole: it stores it at once.
    stand.workers[0].resume()?;
    stand
        .until("a new life of the sleeper", 10_000 * MS, async |stand| {
            let sql = "SELECT count(*), count(dead_at) FROM boots WHERE name = 'worker-0'";
            Ok(stand.query(sql)? == "2|1")
        })
        .await?;
    pause(500 * MS).await;
    ensure!(
        stand.query(EVERYTHING)? == before,
        "a late write changed something"
    );
    let again = caller.get(&format!("/v1/sends/{id}")).await?;
    ensure!(again == ended, "told {ended}, now {again}");
    stand.audit()?;
    stand.passed();
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_that_sleep_in_turn_are_replaced_meanwhile() -> Result<()> {
    let Some(mut stand) = Stand::start(Recipe::default()).await? else {
        return Ok(());
    };
    let load = Load::start(stand.urls(), Shape::default()).await?;
    let end = monotonic() + dose();
    while monotonic() < end {
        pause(500 * MS).await;
        let sleeper = stand.busy_worker().await?;
        let place = stand.harm.begin("a worker sleeps", Effect::Sleeps);
        stand.workers[sleeper].pause()?;
        // Longer than the lease, so that others have its sessions when it wakes up.
        pause(3_500 * MS).await;
        stand.workers[sleeper].resume()?;
        stand.harm.end(place);
    }
    let report = settle("sleeping workers", &mut stand, load).await?;
    ensure!(
        report.repeated > 0,
        "nobody slept with anything: {report:?}"
    );
    stand.passed();
    Ok(())
}
