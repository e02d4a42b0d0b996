//! The daily report agent, with days of five seconds, while processes die.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mainspring_tests::faults::{
    Cluster, Recipe, RetryingClient, SideEffects, any_of, between, blocking, monotonic, pause,
};
use serde_json::{Value, json};

const MS: Duration = Duration::from_millis(1);

/// A day, in seconds: the shortest interval that wake-ups allow.
const DAY: u64 = 5;

/// Number of reports that are delivered before the agent is asked to stop.
const REPORTS: usize = 2;

/// The example's session, with its receiver in this process.
fn session(side_effects: &SideEffects) -> Result<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/daily_report/agent.json");
    let mut session: Value = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    let tools = session["agent"]["tools"].as_array_mut().context("tools")?;
    let deliver = tools
        .iter_mut()
        .find(|tool| tool["name"] == "deliver_report");
    deliver.context("the tool that delivers")?["url"] = json!(side_effects.url("deliver_report"));
    Ok(session)
}

fn text(value: &Value, member: &str) -> Result<String> {
    let text = value[member].as_str();
    Ok(text
        .with_context(|| format!("{member} of {value}"))?
        .to_owned())
}

/// Asks the agent for something and waits for the end of its turn.
async fn ask(caller: &mut RetryingClient, session: &str, words: &str, key: &str) -> Result<Value> {
    let path = format!("/v1/sessions/{session}/sends");
    let send = caller.post(&path, &json!({ "input": words }), key).await?;
    let id = text(&send.json()?, "id")?;
    let send = caller.get(&format!("/v1/sends/{id}?wait=15s")).await?;
    ensure!(send["status"] == "completed", "{send}");
    Ok(send)
}

/// Kills one process with signal 9 and starts it again.
async fn kill_one(cluster: &mut Cluster) -> Result<()> {
    pause(between(300 * MS, 1_200 * MS)).await;
    if any_of(2) == 0 {
        let victim = any_of(cluster.schedulers.len());
        blocking(|| cluster.schedulers[victim].kill());
        cluster.replace_scheduler(victim)?;
    } else {
        let victim = any_of(cluster.workers.len());
        cluster.kill_worker(victim);
        cluster.replace_worker(victim)?;
    }
    cluster.all_ready()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_schedules_its_daily_report_and_delivers_each_once() -> Result<()> {
    let recipe = Recipe {
        workers: 2,
        environment: &[("MAINSPRING_TOOLS_ALLOW_PRIVATE", "127.0.0.1")],
        ..Recipe::default()
    };
    let Some(mut cluster) = Cluster::start(recipe).await? else {
        return Ok(());
    };
    let side_effects = SideEffects::start()?;
    let mut caller = RetryingClient::new(cluster.urls(), 0);
    let body = session(&side_effects)?;
    let made = caller.post("/v1/sessions", &body, "session").await?;
    let session = text(&made.json()?, "id")?;
    let report = json!({ "title": "the day", "text": "All is well." });
    let note = format!("[[send day]] [[tool deliver_report {report}]] report");
    let wake_up = json!({ "delay_seconds": DAY, "every_seconds": DAY, "note": note });
    let words = format!("[[send begin]] [[tool schedule_wakeup {wake_up}]] every day, please");
    let begun = ask(&mut caller, &session, &words, "begin").await?;
    ensure!(
        text(&begun, "output_text")?.contains("Scheduled as tmr_"),
        "{begun}"
    );
    let timers = format!("/v1/timers?session_id={session}");
    let timer = text(&caller.get(&timers).await?["data"][0], "id")?;

    let path = format!("/v1/timers/{timer}/occurrences");
    let limit = monotonic() + Duration::from_mins(1);
    loop {
        kill_one(&mut cluster).await?;
        if side_effects.times().len() >= REPORTS && caller.all(&path).await?.len() >= REPORTS {
            break;
        }
        ensure!(
            monotonic() < limit,
            "nothing is delivered: {:?}",
            side_effects.times()
        );
    }
    let stop = json!({ "timer_id": timer });
    let words = format!("[[send stop]] [[tool cancel_wakeup {stop}]] no more, please");
    ask(&mut caller, &session, &words, "stop").await?;
    let ended = caller.get(&format!("/v1/timers/{timer}")).await?;
    ensure!(ended["status"] == "cancelled", "{ended}");

    // Every wake-up is a send of its own, with one delivery.
    let fired = caller.all(&path).await?;
    let mut delivered = Vec::new();
    for one in &fired {
        ensure!(one["fate"] == "fired", "{one}");
        let send = text(one, "send_id")?;
        let send = caller.get(&format!("/v1/sends/{send}?wait=15s")).await?;
        ensure!(send["status"] == "completed", "{send}");
        ensure!(send["session_id"] == session.as_str(), "{send}");
        ensure!(
            send["output_text"] == "results: deliver_report did the day",
            "{send}"
        );
        delivered.push(text(&send, "id")?);
    }
    delivered.sort_unstable();
    delivered.dedup();
    let side_effects = side_effects.times();
    ensure!(delivered.len() == fired.len(), "{fired:?}");
    ensure!(
        side_effects.len() == fired.len(),
        "{side_effects:?} of {fired:?}"
    );
    let marks = side_effects
        .keys()
        .all(|side_effect| side_effect.mark == "the day");
    ensure!(marks, "{side_effects:?}");
    cluster.all_completed()?;
    cluster.audit()?;
    let fallen = cluster.fallen();
    ensure!(fallen.is_empty(), "ended by themselves: {fallen:?}");
    cluster.passed();
    Ok(())
}
