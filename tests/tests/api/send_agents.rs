//! Sends that name their own agent.

use mainspring_shared::agent::AgentSpec;
use mainspring_shared::message::plain_text;
use serde_json::{Value, json};

use crate::client::Answer;
use crate::world::{Scheduler, World};

async fn publish(api: &Scheduler, name: &str, spec: &Value) -> Answer {
    let body = json!({ "name": name, "spec": spec });
    api.post("/v1/agents", &body).await
}

async fn point(api: &Scheduler, version: i32) {
    let call = api.call("PUT", "/v1/agents/reviewer/aliases/live");
    let body = json!({ "version": version });
    call.json(&body).send().await.ok(200);
}

/// Publishes two versions of an agent, of which the first is live.
async fn published(api: &Scheduler) {
    let first = json!({ "system_prompt": "Review.", "budget": { "rounds": 3 } });
    publish(api, "reviewer", &first).await.ok(201);
    let second = json!({ "system_prompt": "Review well." });
    publish(api, "reviewer", &second).await.ok(201);
    point(api, 1).await;
}

/// Creates a session with an inline agent.
async fn session(api: &Scheduler) -> String {
    let agent = json!({ "system_prompt": "Help.", "budget": { "tokens": 1000 } });
    let body = json!({ "agent": agent, "metadata": { "user": "Ada" } });
    let made = api.post("/v1/sessions", &body).await.ok(201);
    made["id"].as_str().expect("an id").to_owned()
}

async fn send(api: &Scheduler, session: &str, options: &Value) -> Answer {
    let body = json!({ "input": "hello", "options": options });
    let path = format!("/v1/sessions/{session}/sends");
    api.post(&path, &body).await
}

/// Claims a session's next send; returns the agent and round budget that it runs with.
async fn run_with(world: &World, session: &str) -> (AgentSpec, Option<u32>) {
    let claimed = world.claim(session).await;
    let send = &claimed.send;
    let rounds = send.record.options.budget.and_then(|budget| budget.rounds);
    let found = (send.agent.clone(), rounds);
    world.complete(&claimed, 0, "done").await;
    found
}

fn pointer(problem: &Value) -> &str {
    problem["errors"][0]["pointer"].as_str().expect("a pointer")
}

#[tokio::test]
async fn a_send_is_run_with_the_agent_that_it_names_and_the_session_keeps_its_own() {
    let world = World::new().await;
    let api = world.ready().await;
    published(&api).await;
    let session = session(&api).await;
    let options = json!({ "agent": "reviewer@live", "budget": { "rounds": 9 } });
    let made = send(&api, &session, &options).await.ok(202);
    let first = json!({ "name": "reviewer", "version": 1 });
    assert_eq!(made["agent_ref"], first);
    // An accepted send keeps its version.
    point(&api, 2).await;
    let id = made["id"].as_str().expect("an id");
    let shown = api.get(&format!("/v1/sends/{id}")).await.ok(200);
    assert_eq!(shown["agent_ref"], first);
    let newest = send(&api, &session, &json!({ "agent": "reviewer" }))
        .await
        .ok(202);
    assert_eq!(newest["agent_ref"]["version"], 2);
    let own = send(&api, &session, &json!({})).await.ok(202);
    assert_eq!(own.get("agent_ref"), None);
    let (agent, rounds) = run_with(&world, &session).await;
    assert_eq!(agent.system_prompt.as_deref(), Some("Review."));
    assert_eq!(rounds, Some(3), "the agent's budget is the tighter one");
    // The budget for all sends together is still the session's own.
    assert_eq!(agent.budget.and_then(|budget| budget.tokens), Some(1000));
    let (agent, rounds) = run_with(&world, &session).await;
    assert_eq!(agent.system_prompt.as_deref(), Some("Review well."));
    assert_eq!(rounds, None);
    let (agent, _) = run_with(&world, &session).await;
    assert_eq!(agent.system_prompt.as_deref(), Some("Help."));
    let shown = api.get(&format!("/v1/sessions/{session}")).await.ok(200);
    assert_eq!(shown["agent"]["system_prompt"], "Help.");
    assert_eq!(shown.get("agent_ref"), None);
}

#[tokio::test]
async fn an_agent_that_cannot_be_taken_is_pointed_at() {
    let world = World::new().await;
    let api = world.ready().await;
    published(&api).await;
    let prompt = json!({ "sections": [{ "name": "a", "text": "{{ tone }}, {{ metadata.user }}" }],
                         "variables": { "tone": { "required": true } } });
    publish(&api, "toned", &json!({ "prompt": prompt }))
        .await
        .ok(201);
    publish(&api, "elsewhere", &json!({ "pool": "gpu" }))
        .await
        .ok(201);
    let session = session(&api).await;
    for (options, status, code, at) in [
        (
            json!({ "agent": "nobody" }),
            404,
            "agent.not_found",
            "/options/agent",
        ),
        (
            json!({ "agent": "reviewer@9" }),
            404,
            "agent.not_found",
            "/options/agent",
        ),
        (
            json!({ "agent": "a b" }),
            400,
            "request.invalid",
            "/options/agent",
        ),
        (
            json!({ "agent": "elsewhere" }),
            400,
            "request.invalid",
            "/options/agent",
        ),
        (
            json!({ "agent": "toned" }),
            400,
            "request.invalid",
            "/options/variables/tone",
        ),
        (
            json!({ "agent": "toned", "variables": { "tone": "a", "x": 1 } }),
            400,
            "request.invalid",
            "/options/variables/x",
        ),
        (
            json!({ "variables": {} }),
            400,
            "request.invalid",
            "/options/variables",
        ),
    ] {
        let problem = send(&api, &session, &options).await.problem(status, code);
        assert_eq!(pointer(&problem), at, "{options}");
    }
    let options = json!({ "agent": "toned", "variables": { "tone": "Kind" } });
    send(&api, &session, &options).await.ok(202);
    let (agent, _) = run_with(&world, &session).await;
    let bound = agent.bound.expect("it was published");
    assert_eq!(bound.sections[0].text.as_deref(), Some("Kind, Ada"));
    let nowhere = crate::world::nothing("ses");
    let refused = send(&api, &nowhere, &json!({ "agent": "reviewer" })).await;
    refused.problem(404, "session.not_found");
}

#[tokio::test]
async fn items_of_a_batch_and_sends_that_bring_their_session_name_agents_too() {
    let world = World::new().await;
    let api = world.ready().await;
    published(&api).await;
    let known = session(&api).await;
    let item =
        |agent: &str| json!({ "input": "hi", "session_id": known, "options": { "agent": agent } });
    let fresh = json!({ "input": "hi", "session": { "agent": { "system_prompt": "Help." } },
                        "options": { "agent": "reviewer@1" } });
    let body = json!({ "sends": [item("reviewer@2"), item("nobody"), fresh] });
    let results = api.post("/v1/sends:batch", &body).await.ok(200)["results"].clone();
    assert_eq!(results[0]["send"]["agent_ref"]["version"], 2);
    let problem = &results[1]["problem"];
    assert_eq!(problem["code"], "agent.not_found");
    assert_eq!(pointer(problem), "/sends/1/options/agent");
    assert_eq!(results[2]["send"]["agent_ref"]["version"], 1);
    let made = results[2]["send"]["session_id"]
        .as_str()
        .expect("a session");
    let (agent, _) = run_with(&world, made).await;
    assert_eq!(agent.system_prompt.as_deref(), Some("Review."));
    let single = api.post("/v1/sends", &fresh).await.ok(202);
    assert_eq!(single["agent_ref"]["version"], 1);
}

#[tokio::test]
async fn a_repeat_gets_what_was_accepted_whatever_has_become_of_the_agent() {
    let world = World::new().await;
    let api = world.ready().await;
    published(&api).await;
    let session = session(&api).await;
    let again = async || {
        let path = format!("/v1/sessions/{session}/sends");
        let call = api.call("POST", &path).header("idempotency-key", "k");
        let body = json!({ "input": "hi", "options": { "agent": "reviewer@live" } });
        call.json(&body).send().await.ok(202)
    };
    let first = again().await;
    api.call("DELETE", "/v1/agents/reviewer").send().await;
    let refused = send(&api, &session, &json!({ "agent": "reviewer" })).await;
    refused.problem(404, "agent.not_found");
    let second = again().await;
    assert_eq!(
        (&second["id"], &second["agent_ref"]),
        (&first["id"], &first["agent_ref"])
    );
}

#[tokio::test]
async fn the_sends_of_a_timer_keep_the_version_that_was_meant_when_it_was_made() {
    let world = World::new().await;
    let api = world.ready().await;
    published(&api).await;
    let session = session(&api).await;
    let timer = |agent: &str| {
        json!({ "session_id": session, "after": "10ms", "input": "tick",
                "options": { "agent": agent } })
    };
    let refused = api.post("/v1/timers", &timer("nobody")).await;
    let problem = refused.problem(404, "agent.not_found");
    assert_eq!(pointer(&problem), "/options/agent");
    let made = api
        .post("/v1/timers", &timer("reviewer@live"))
        .await
        .ok(201);
    assert_eq!(
        made["agent_ref"],
        json!({ "name": "reviewer", "version": 1 })
    );
    // The timer as shown does not repeat the whole agent.
    assert_eq!(made["options"].get("agent"), None);
    point(&api, 2).await;
    let path = format!("/v1/sends?session_id={session}");
    let fired = loop {
        let sends = api.get(&path).await.ok(200);
        if let Some(send) = sends["data"].as_array().and_then(|list| list.first()) {
            break send.clone();
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(fired["agent_ref"]["version"], 1);
    let claimed = world.claim(&session).await;
    assert_eq!(claimed.send.agent.system_prompt.as_deref(), Some("Review."));
    assert_eq!(plain_text(&claimed.send.record.input), "tick");
}
