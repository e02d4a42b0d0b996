//! Workers that die during sends with parallel tools, a child, a question and a message in between,
//! while an outside ledger counts what the tools really did.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mainspring_tests::faults::{
    Cluster, Recipe, RetryingClient, SideEffect, SideEffects, any_of, between, fault_duration,
    monotonic, pause,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const MS: Duration = Duration::from_millis(1);

/// Number of clients, each with one send at a time.
const CLIENTS: usize = 4;

/// How long a send may take, including deaths.
const END: Duration = Duration::from_mins(1);

/// Each tool, and its repeat mode.
const TOOLS: [(&str, &str); 3] = [("look", "safe"), ("put", "keyed"), ("act", "once")];

/// What the model is told of a call whose outcome is unknown.
const UNKNOWN: &str = "whether it took effect is not known";

/// A send that has ended.
struct Done {
    mark: String,
    id: String,
    messages: Vec<Value>,
}

/// Runs one send: it is accepted, waits for a person, is steered, is answered, and ends.
async fn one(caller: &mut RetryingClient, side_effects: &SideEffects, mark: &str) -> Result<Done> {
    let mut tools = vec![json!("spawn_agent"), json!("ask_person")];
    tools.extend(TOOLS.map(|(name, repeat)| {
        json!({ "type": "http", "name": name, "url": side_effects.url(name), "repeat": repeat })
    }));
    let called = |whose: &str| {
        let call = |(name, _)| format!("[[tool {name} {}]] ", json!({ "mark": whose }));
        TOOLS.map(call).concat()
    };
    let task = format!(
        "[[send {mark}-child]] {}part",
        called(&format!("{mark}-child"))
    );
    let words = format!(
        "[[send {mark}]] {}[[tool spawn_agent {}]] [[tool ask_person {}]] work",
        called(mark),
        json!({ "task": task }),
        json!({ "question": "go on?" }),
    );
    let body = json!({ "input": words, "session": { "agent": { "tools": tools } } });
    let send = caller.post("/v1/sends", &body, mark).await?.json()?;
    let (id, session) = (text(&send, "id")?, text(&send, "session_id")?);
    until(caller, &id, |send| send["status"] == "waiting").await?;

    // A waiting send gets the message at its next round: after the answer, whenever that is posted.
    let steer = json!({ "input": steer(mark), "options": { "on_busy": "steer" } });
    let path = format!("/v1/sessions/{session}/sends");
    let key = format!("{mark}-steer");
    let absorbed = caller.post(&path, &steer, &key).await?.json()?;
    ensure!(absorbed["id"] == id.as_str(), "{absorbed}");
    let question = format!("call_{}_0_4", id.trim_start_matches("snd_"));
    let answer = json!({ "results": [{ "call_id": question, "output": "yes" }] });
    let path = format!("/v1/sessions/{session}/tool-results");
    let key = format!("{mark}-answer");
    let posted = caller.post(&path, &answer, &key).await?.json()?;
    let outcome = &posted["results"][0]["status"];
    ensure!(
        outcome == "accepted" || outcome == "already_settled",
        "{posted}"
    );

    let ended = until(caller, &id, |send| send["finished_at"].is_string()).await?;
    ensure!(
        ended["status"] == "completed" && ended["rounds"] == 2,
        "{ended}"
    );
    let messages = caller
        .all(&format!("/v1/sessions/{session}/messages"))
        .await?;
    Ok(Done {
        mark: mark.to_owned(),
        id,
        messages,
    })
}

fn steer(mark: &str) -> String {
    format!("[[send {mark}-steer]] and this")
}

async fn until(
    caller: &mut RetryingClient,
    id: &str,
    so: impl Fn(&Value) -> bool,
) -> Result<Value> {
    let end = monotonic() + fault_duration() + END;
    loop {
        let send = caller.get(&format!("/v1/sends/{id}")).await?;
        if so(&send) {
            return Ok(send);
        }
        ensure!(monotonic() < end, "it hangs: {send}");
        pause(20 * MS).await;
    }
}

fn text(value: &Value, member: &str) -> Result<String> {
    let text = value[member].as_str();
    Ok(text
        .with_context(|| format!("{member} of {value}"))?
        .to_owned())
}

/// Asserts that the transcript is that of an undisturbed send, except for `once` calls whose
/// outcome is unknown; returns how many of those there are.
fn transcript(done: &Done) -> Result<usize> {
    let mark = &done.mark;
    let said: Vec<(&str, &str)> = done
        .messages
        .iter()
        .map(|message| {
            let role = message["role"].as_str().unwrap_or_default();
            (
                role,
                message["content"][0]["text"].as_str().unwrap_or_default(),
            )
        })
        .collect();
    ensure!(said.len() == 9, "{mark}: {said:#?}");
    let call = |place: usize| format!("call_{}_0_{place}", done.id.trim_start_matches("snd_"));
    let asked = done.messages[1]["tool_calls"].as_array();
    let asked: Vec<String> = asked
        .into_iter()
        .flatten()
        .map(|call| text(call, "id"))
        .collect::<Result<_>>()?;
    ensure!(
        asked == (0..5).map(call).collect::<Vec<_>>(),
        "{mark}: {asked:?}"
    );
    for place in 0..5 {
        let answered = &done.messages[2 + place]["tool_call_id"];
        ensure!(*answered == call(place), "{mark}: {answered} at {place}");
    }
    let echo = format!("echo: {}", steer(mark));
    let exact = [
        (2, ("tool", format!("look did {mark}"))),
        (3, ("tool", format!("put did {mark}"))),
        (6, ("tool", "yes".to_owned())),
        (7, ("user", steer(mark))),
        (8, ("assistant", echo)),
    ];
    for (place, (role, text)) in exact {
        ensure!(
            said[place] == (role, text.as_str()),
            "{mark} at {place}: {:?}",
            said[place]
        );
    }
    let own = outcome(mark, said[4].1)?;
    let child = format!("{mark}-child");
    let part = format!("results: look did {child}; put did {child}; ");
    let rest = said[5].1.strip_prefix(&part);
    let theirs = outcome(
        &child,
        rest.with_context(|| format!("{mark}: {:?}", said[5]))?,
    )?;
    Ok(own + theirs)
}

/// Returns 1 if a `once` call's outcome is unknown, 0 if it did its work.
fn outcome(mark: &str, said: &str) -> Result<usize> {
    if said == format!("act did {mark}") {
        return Ok(0);
    }
    ensure!(said.contains(UNKNOWN), "{mark}: {said}");
    Ok(1)
}

/// Asserts that each tool's side effects match its repeat mode; returns the number of repeats of
/// repeatable calls.
fn outside(done: &[Done], times: &BTreeMap<SideEffect, usize>) -> Result<usize> {
    let mut by_call: BTreeMap<(String, String), Vec<(&str, usize)>> = BTreeMap::new();
    for (side_effect, times) in times {
        let call = (side_effect.tool.clone(), side_effect.mark.clone());
        by_call
            .entry(call)
            .or_default()
            .push((&side_effect.key, *times));
    }
    let mut repeats = 0;
    for one in done {
        for mark in [one.mark.clone(), format!("{}-child", one.mark)] {
            for (tool, repeat) in TOOLS {
                let calls = by_call.remove(&(tool.to_owned(), mark.clone()));
                let calls = calls.unwrap_or_default();
                // A service that honours keys acts once, however often it is called.
                ensure!(
                    calls.len() <= 1,
                    "{mark}: {tool} has several keys: {calls:?}"
                );
                let times = calls.first().map_or(0, |(_, times)| *times);
                match repeat {
                    "once" => ensure!(times <= 1, "{mark}: {tool} was done {times} times"),
                    _ => ensure!(times >= 1, "{mark}: {tool} was never done"),
                }
                repeats += times.saturating_sub(1);
            }
        }
    }
    ensure!(by_call.is_empty(), "nobody asked for {by_call:?}");
    Ok(repeats)
}

async fn client(
    urls: Vec<String>,
    number: usize,
    side_effects: Arc<SideEffects>,
    stop: CancellationToken,
) -> Result<Vec<Done>> {
    let mut caller = RetryingClient::new(urls, number);
    let mut done = Vec::new();
    while !stop.is_cancelled() {
        let mark = format!("c{number}n{}", done.len());
        done.push(one(&mut caller, &side_effects, &mark).await?);
    }
    Ok(done)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_workers_act_once_and_repeat_only_what_may_be_repeated() -> Result<()> {
    let recipe = Recipe {
        environment: &[("MAINSPRING_TOOLS_ALLOW_PRIVATE", "127.0.0.1")],
        ..Recipe::default()
    };
    let Some(mut cluster) = Cluster::start(recipe).await? else {
        return Ok(());
    };
    let side_effects = Arc::new(SideEffects::start()?);
    let stop = CancellationToken::new();
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        clients.spawn(client(
            cluster.urls(),
            number,
            side_effects.clone(),
            stop.clone(),
        ));
    }
    let hit = cluster.kill_in_a_call().await?;
    cluster.replace_worker(hit)?;
    cluster.all_ready()?;
    let end = monotonic() + fault_duration();
    let mut kills = 1;
    while monotonic() < end {
        pause(between(200 * MS, 1_000 * MS)).await;
        // All sends may be waiting for their clients.
        let busy = cluster.busy_worker().await;
        let victim = busy
            .ok()
            .filter(|_| any_of(2) > 0)
            .unwrap_or_else(|| any_of(cluster.workers.len()));
        cluster.kill_worker(victim);
        cluster.replace_worker(victim)?;
        cluster.all_ready()?;
        kills += 1;
    }
    stop.cancel();
    let mut done = Vec::new();
    while let Some(client) = clients.join_next().await {
        done.extend(client??);
    }
    let mut unknown = 0;
    for one in &done {
        unknown += transcript(one)?;
    }
    let sessions = cluster.query("SELECT count(*) FROM session_hot")?;
    ensure!(
        sessions == (2 * done.len()).to_string(),
        "{sessions} of {}",
        2 * done.len()
    );
    let repeats = outside(&done, &side_effects.times())?;
    // Two rounds of each send and of its child.
    let asked = cluster.model.ledger().entries().len();
    let wanted = 4 * done.len();
    ensure!(asked >= wanted, "{asked} model calls for {wanted} rounds");
    let report = format!(
        "{kills} kills, {} sends, {unknown} unknown, {repeats} repeats, {asked} of {wanted}",
        done.len()
    );
    ensure!(
        unknown + repeats + asked - wanted > 0,
        "no kill hit anything: {report}"
    );
    cluster.audit()?;
    let fallen = cluster.fallen();
    ensure!(fallen.is_empty(), "ended by themselves: {fallen:?}");
    cluster.passed();
    Ok(())
}
