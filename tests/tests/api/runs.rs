//! Workflow runs. The tests answer their leaves by hand.

use mainspring_scheduler::SchedulerConfig;
use mainspring_shared::id::RunId;
use serde_json::{Value, json};

use crate::client::Answer;
use crate::events::assert_rest;
use crate::world::{Scheduler, World, nothing};

pub(crate) fn agent(id: &str, input: &str) -> Value {
    json!({ "type": "agent", "id": id, "spec": { "name": id, "system_prompt": "Do it.", "tools": [] },
            "input": input })
}

/// A workflow of two steps, the second of which reads the first's result.
pub(crate) fn two_steps() -> Value {
    json!({ "name": "two", "root": { "type": "sequence", "steps": [
        agent("first", "{{input}}"), agent("second", "again: {{first}}"),
    ] } })
}

pub(crate) async fn started(api: &Scheduler, body: &Value) -> String {
    let answer = api.post("/v1/runs", body).await;
    let run = answer.ok(202);
    let path = format!("/v1/runs/{}", id(&run));
    assert_eq!(answer.header("location"), Some(path.as_str()));
    path
}

fn id(value: &Value) -> &str {
    value["id"].as_str().expect("an id")
}

/// Waits until the leaf of the node with this name, or at this path, is queued; returns the node.
pub(crate) async fn queued(api: &Scheduler, run: &str, name: &str) -> Value {
    loop {
        let nodes = api.get(&format!("{run}/nodes")).await.ok(200);
        let nodes = nodes["data"].as_array().expect("nodes").iter();
        let named = |node: &Value| {
            node["id"] == name
                || node["path"]
                    .as_str()
                    .is_some_and(|path| path.ends_with(name))
        };
        let mut found = nodes.filter(|node| named(node) && node["state"] == "queued");
        if let Some(node) = found.next() {
            return node.clone();
        }
        tokio::task::yield_now().await;
    }
}

/// Answers a leaf, in place of a worker.
pub(crate) async fn answer(world: &World, api: &Scheduler, run: &str, name: &str, text: &str) {
    let node = queued(api, run, name).await;
    let session = node["session_id"].as_str().expect("a session");
    let claimed = world.claim(session).await;
    world.complete(&claimed, 0, text).await;
}

pub(crate) async fn finished(api: &Scheduler, run: &str) -> Value {
    let shown = api.get(&format!("{run}?wait=20s")).await.ok(200);
    assert!(shown["finished_at"].is_string(), "{shown}");
    shown
}

#[tokio::test]
async fn a_run_goes_through_its_leaves_to_its_result() {
    let world = World::new().await;
    let api = world.ready().await;
    let body = json!({ "spec": two_steps(), "input": "tea" });
    let run = started(&api, &body).await;
    let early = api.get(&format!("{run}?wait=1ms")).await.ok(200);
    assert!(matches!(
        early["status"].as_str(),
        Some("queued" | "running" | "waiting")
    ));
    assert_eq!(
        (&early["name"], &early["input"]),
        (&json!("two"), &json!("tea"))
    );
    let first = queued(&api, &run, "first").await;
    let leaf = api
        .get(&format!(
            "/v1/sends/{}",
            first["send_id"].as_str().expect("a send")
        ))
        .await
        .ok(200);
    assert_eq!(leaf["session_id"], first["session_id"]);
    answer(&world, &api, &run, "first", "green").await;
    answer(&world, &api, &run, "second", "black").await;
    let shown = finished(&api, &run).await;
    assert_eq!(
        (&shown["status"], &shown["result"]["text"], &shown["error"]),
        (&json!("completed"), &json!("black"), &Value::Null)
    );
    assert_eq!(shown["usage"]["input_tokens"], 20);
    let nodes = api.get(&format!("{run}/nodes")).await.ok(200);
    let states = nodes["data"].as_array().expect("nodes").iter();
    let states: Vec<_> = states
        .map(|n| {
            (
                n["kind"].as_str().unwrap_or(""),
                n["state"].as_str().unwrap_or(""),
            )
        })
        .collect();
    let expected = [
        ("sequence", "completed"),
        ("agent", "completed"),
        ("agent", "completed"),
    ];
    assert_eq!(states, expected);
    assert_eq!(nodes["data"][1]["text"], "green");
    // The first step's answer is part of the second's input.
    let session = nodes["data"][2]["session_id"].as_str().expect("a session");
    let said = api
        .get(&format!("/v1/sessions/{session}/messages"))
        .await
        .ok(200);
    assert!(
        said["data"][0].to_string().contains("again: green"),
        "{said}"
    );
    let exported = api.get(&format!("{run}/export")).await.ok(200);
    assert_eq!(exported["format"], "mainspring.run.1");
    assert_eq!(exported["run"]["id"], shown["id"]);
    assert_eq!(exported["spec"]["name"], "two");
    assert_eq!(exported["nodes"], nodes["data"]);
    assert!(
        exported["steps"]
            .as_array()
            .is_some_and(|steps| !steps.is_empty())
    );
}

#[tokio::test]
async fn a_waiting_request_returns_with_the_end() {
    let world = World::new().await;
    let api = world.ready().await;
    let spec = json!({ "name": "one", "root": agent("only", "go") });
    let request = api
        .call("POST", "/v1/runs?wait=20s")
        .json(&json!({ "spec": spec }));
    let work = async {
        let run = loop {
            let all = api.get("/v1/runs").await.ok(200);
            if let Some(run) = all["data"][0]["id"].as_str() {
                break format!("/v1/runs/{run}");
            }
            tokio::task::yield_now().await;
        };
        answer(&world, &api, &run, "only", "done").await;
    };
    let (ended, ()) = tokio::join!(request.send(), work);
    let ended = ended.ok(200);
    assert_eq!(
        (&ended["status"], &ended["result"]["text"]),
        (&json!("completed"), &json!("done"))
    );
    let body = json!({ "spec": spec });
    let open = api.post("/v1/runs?wait=1ms", &body).await.ok(202);
    assert_eq!(open["finished_at"], Value::Null);
    api.post("/v1/runs?wait=soon", &body)
        .await
        .problem(400, "request.invalid");
}

#[tokio::test]
async fn a_repeat_starts_nothing_new() {
    let world = World::new().await;
    let api = world.ready().await;
    let body = json!({ "spec": two_steps() });
    let post = |body: &Value| {
        let call = api.call("POST", "/v1/runs").header("idempotency-key", "k1");
        call.json(body).send()
    };
    let first = post(&body).await;
    let again = post(&body).await;
    assert_eq!(first.ok(202)["id"], again.ok(202)["id"]);
    assert_eq!(first.header("idempotency-replayed"), None);
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    post(&json!({ "spec": two_steps(), "input": "x" }))
        .await
        .problem(422, "idempotency.mismatch");
    assert_eq!(
        api.get("/v1/runs").await.ok(200)["data"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
}

#[tokio::test]
async fn runs_are_listed_by_status_and_session() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    let home = started(&api, &json!({ "spec": two_steps(), "session_id": session })).await;
    let other = started(&api, &json!({ "spec": two_steps() })).await;
    api.post(
        &format!("{other}/cancel?wait=20s"),
        &json!({ "reason": "enough" }),
    )
    .await
    .ok(200);
    let ids = async |query: &str| -> Vec<String> {
        let page = api.get(&format!("/v1/runs{query}")).await.ok(200);
        let runs = page["data"].as_array().expect("runs").iter();
        runs.map(|run| format!("/v1/runs/{}", id(run))).collect()
    };
    assert_eq!(ids("").await, [other.clone(), home.clone()]);
    assert_eq!(ids("?status=cancelled").await, std::slice::from_ref(&other));
    assert_eq!(
        ids(&format!("?session_id={session}")).await,
        std::slice::from_ref(&home)
    );
    let unknown = format!("?session_id={}", nothing("ses_"));
    assert_eq!(ids(&unknown).await, Vec::<String>::new());
    let page = api.get("/v1/runs?limit=1").await.ok(200);
    let cursor = page["next_cursor"].as_str().expect("a cursor");
    assert_eq!(ids(&format!("?cursor={cursor}")).await, [home]);
    for query in ["?status=asleep", "?cursor=x", "?limit=0", "?colour=red"] {
        let problem = api.get(&format!("/v1/runs{query}")).await;
        problem.problem(400, "request.invalid");
    }
}

#[tokio::test]
async fn a_cancelled_run_is_retried_and_keeps_what_succeeded() {
    let world = World::new().await;
    let api = world.ready().await;
    let run = started(&api, &json!({ "spec": two_steps() })).await;
    let act = |verb: &str| api.call("POST", &format!("{run}/{verb}?wait=20s")).send();
    act("retry").await.problem(409, "workflow.not_resumable");
    answer(&world, &api, &run, "first", "kept").await;
    let second = queued(&api, &run, "second").await;
    let ended = act("cancel").await.ok(200);
    assert_eq!(ended["status"], "cancelled");
    let send = format!("/v1/sends/{}", second["send_id"].as_str().expect("a send"));
    assert_eq!(api.get(&send).await.ok(200)["status"], "cancelled");
    assert_eq!(act("cancel").await.ok(200)["status"], "cancelled");
    let retried = api.call("POST", &format!("{run}/retry")).send().await;
    // Clients see the run as running even before a scheduler has picked it up.
    for shown in [
        retried.ok(202),
        api.get(&format!("{run}?wait=1ms")).await.ok(200),
    ] {
        let status = shown["status"].as_str();
        assert!(matches!(status, Some("queued" | "running")), "{shown}");
        assert_eq!(shown["finished_at"], json!(null));
    }
    answer(&world, &api, &run, "second", "at last").await;
    let shown = finished(&api, &run).await;
    assert_eq!(
        (
            &shown["status"],
            &shown["result"]["text"],
            &shown["attempt"]
        ),
        (&json!("completed"), &json!("at last"), &json!(2))
    );
    let nodes = api.get(&format!("{run}/nodes")).await.ok(200);
    assert_eq!(
        (&nodes["data"][1]["text"], &nodes["data"][1]["attempt"]),
        (&json!("kept"), &json!(1))
    );
    act("cancel").await.problem(409, "workflow.not_resumable");
    act("retry").await.problem(409, "workflow.not_resumable");
}

#[tokio::test]
async fn a_paused_run_starts_no_leaf_until_it_is_resumed() {
    let world = World::new().await;
    let api = world.ready().await;
    let with = json!({ "spec": two_steps(), "options": { "paused_at": 1 } });
    let refused = api.post("/v1/runs", &with).await;
    refused.problem(400, "request.invalid");
    let run = started(&api, &json!({ "spec": two_steps() })).await;
    let act = |verb: &str| api.call("POST", &format!("{run}/{verb}")).send();
    assert_eq!(act("resume").await.ok(200)["paused_at"], json!(null));
    queued(&api, &run, "first").await;
    let paused = act("pause").await.ok(202);
    assert!(paused["paused_at"].is_string(), "{paused}");
    let again = act("pause").await.ok(200);
    assert_eq!(again["paused_at"], paused["paused_at"]);
    answer(&world, &api, &run, "first", "one").await;
    let second = loop {
        let nodes = api.get(&format!("{run}/nodes")).await.ok(200);
        let nodes = nodes["data"].as_array().expect("nodes").clone();
        let of = |id: &str| nodes.iter().find(|node| node["id"] == id).cloned();
        if of("first").is_some_and(|first| first["state"] == "completed") {
            break of("second").expect("is reached");
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(second["state"], "ready");
    let shown = api.get(&run).await.ok(200);
    assert_eq!(
        (&shown["status"], &shown["paused_at"]),
        (&json!("waiting"), &paused["paused_at"])
    );
    assert_eq!(act("resume").await.ok(202)["paused_at"], json!(null));
    answer(&world, &api, &run, "second", "two").await;
    assert_eq!(finished(&api, &run).await["status"], "completed");
    for verb in ["pause", "resume"] {
        act(verb).await.problem(409, "workflow.not_resumable");
    }
}

#[tokio::test]
async fn one_node_is_steered_amended_and_ended() {
    let world = World::new().await;
    let api = world.ready().await;
    let run = started(&api, &json!({ "spec": two_steps() })).await;
    let first = queued(&api, &run, "first").await;
    let path = first["path"]
        .as_str()
        .expect("a path")
        .trim_start_matches('/')
        .to_owned();
    let at = |path: &str, verb: &str| format!("{run}/nodes/{}/{verb}", path.replace('/', "%2F"));
    for body in [
        json!({}),
        json!({ "text": " " }),
        json!({ "text": "x", "loud": true }),
    ] {
        api.post(&at(&path, "steer"), &body)
            .await
            .problem(400, "request.invalid");
    }
    api.post(&at(&path, "amend"), &json!({}))
        .await
        .problem(400, "request.invalid");
    let retried = api.call("POST", &at(&path, "retry")).send().await;
    retried.problem(409, "workflow.not_resumable");
    for verb in ["cancel", "retry"] {
        let unknown = api.call("POST", &at("nowhere", verb)).send().await;
        unknown.problem(404, "workflow.node_not_found");
    }
    for _ in 0..2 {
        let steer = api.call("POST", &at(&path, "steer"));
        let steer = steer.header("idempotency-key", "brief");
        let steer = steer.json(&json!({ "text": "be brief" })).send().await;
        steer.ok(202);
    }
    let other = api.call("POST", &at(&path, "steer"));
    let other = other.header("idempotency-key", "brief");
    let other = other.json(&json!({ "text": "be long" })).send().await;
    other.problem(422, "idempotency.mismatch");
    answer(&world, &api, &run, "first", "too long").await;
    queued(&api, &run, "second").await;
    let amended = api
        .post(&at(&path, "amend"), &json!({ "text": "short" }))
        .await;
    amended.ok(202);
    // The nodes that depend on it are run again with the new text.
    loop {
        let node = queued(&api, &run, "second").await;
        let send = format!("/v1/sends/{}", node["send_id"].as_str().expect("a send"));
        let exported = api.get(&format!("{run}/nodes")).await.ok(200);
        let amended = exported["data"][1]["amended"] == json!(true);
        if amended && api.get(&send).await.ok(200)["status"] == "queued" {
            break;
        }
        tokio::task::yield_now().await;
    }
    answer(&world, &api, &run, "second", "fine").await;
    let shown = finished(&api, &run).await;
    assert_eq!(
        (&shown["status"], &shown["result"]["text"]),
        (&json!("completed"), &json!("fine"))
    );
    let nodes = api
        .get(&format!("{run}/nodes?prefix=/{path}&limit=1"))
        .await
        .ok(200);
    let node = &nodes["data"][0];
    assert_eq!(node["text"], "short");
    // Recorded once, although it was requested twice.
    assert_eq!(node["steered"].as_array().map(Vec::len), Some(1), "{node}");
    assert_eq!(node["steered"][0]["text"], "be brief");
}

#[tokio::test]
async fn a_stream_tells_of_every_advance_and_goes_on_where_it_was_left() {
    let world = World::new().await;
    let api = world.ready().await;
    let run = started(&api, &json!({ "spec": two_steps() })).await;
    let events = format!("{run}/events");
    let mut live = api.events(&events).await;
    answer(&world, &api, &run, "first", "a").await;
    answer(&world, &api, &run, "second", "b").await;
    let all = live.rest().await;
    let last = all.last().expect("events");
    assert_eq!(
        (last.name.as_str(), &last.data["status"]),
        ("run.completed", &json!("completed"))
    );
    assert!(all.iter().any(|event| event.name == "node.queued"));
    assert_eq!(
        all.iter()
            .filter(|event| event.name == "node.completed")
            .count(),
        3
    );
    let ids: Vec<_> = all
        .iter()
        .map(|event| event.id.clone().expect("an id"))
        .collect();
    // Read again from the start, and from after each event.
    assert_eq!(api.events(&events).await.rest().await, all);
    for (n, id) in ids.iter().enumerate() {
        assert_rest(&api, &events, id, &all[n + 1..]).await;
    }
    let bad = api
        .call("GET", &events)
        .header("last-event-id", "soon")
        .send()
        .await;
    bad.problem(400, "request.invalid");
}

#[tokio::test]
async fn what_is_not_there_says_so() {
    let world = World::new().await;
    let api = world.ready().await;
    let unknown = nothing("run_");
    assert!(unknown.parse::<RunId>().is_ok());
    for id in [unknown.as_str(), "run_1", &nothing("ses_")] {
        for path in ["", "/nodes", "/events", "/export"] {
            let answer = api.get(&format!("/v1/runs/{id}{path}")).await;
            answer.problem(404, "run.not_found");
        }
        for path in ["cancel", "retry", "nodes/0/cancel", "nodes/0/retry"] {
            let call = api.call("POST", &format!("/v1/runs/{id}/{path}"));
            call.send().await.problem(404, "run.not_found");
        }
        let amend = format!("/v1/runs/{id}/nodes/0/amend");
        api.post(&amend, &json!({ "text": "x" }))
            .await
            .problem(404, "run.not_found");
    }
    let refused: Answer = api
        .call("DELETE", &format!("/v1/runs/{unknown}"))
        .send()
        .await;
    refused.problem(405, "request.method_not_allowed");
}

#[tokio::test]
async fn a_bound_over_all_runs_holds_across_schedulers() {
    let world = World::new().await;
    let bound = |config: &mut SchedulerConfig| config.leaves_max = std::num::NonZeroU32::new(2);
    let api = world.scheduler_with(bound).await;
    let other = world.scheduler_with(bound).await;
    api.until_ready().await;
    other.until_ready().await;
    let leaf = json!({ "type": "agent", "id": "leaf", "spec": { "name": "a", "system_prompt": "Do it.", "tools": [] } });
    let root =
        json!({ "type": "foreach", "id": "all", "as": "n", "items": [1, 2, 3], "body": leaf });
    let body = json!({ "spec": { "name": "wide", "root": root } });
    let runs = [
        started(&api, &body).await,
        started(&other, &body).await,
        started(&api, &body).await,
    ];
    let mut done = Vec::new();
    while done.len() < 9 {
        // Wait for the leaves under way, of which there are never more than the limit.
        let live = loop {
            let mut live = Vec::new();
            for run in &runs {
                let nodes = api.get(&format!("{run}/nodes")).await.ok(200);
                let nodes = nodes["data"].as_array().expect("nodes").clone();
                let fresh = nodes.into_iter().filter(|node| {
                    node["state"] == "queued" && !done.contains(&node["session_id"])
                });
                live.extend(fresh);
            }
            if !live.is_empty() {
                break live;
            }
            tokio::task::yield_now().await;
        };
        let open = world.open_leaves().await;
        assert!(open <= 2, "{open} leaves are under way");
        let session = live[0]["session_id"].as_str().expect("a session");
        let claimed = world.claim(session).await;
        world.complete(&claimed, 0, "done").await;
        done.push(live[0]["session_id"].clone());
    }
    for run in &runs {
        assert_eq!(finished(&api, run).await["status"], "completed");
    }
}
