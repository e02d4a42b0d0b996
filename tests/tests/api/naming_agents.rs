//! Sessions, sends and workflow leaves that name an agent.

use serde_json::{Value, json};

use crate::agents::{create, point, pointers, publish, published};
use crate::world::{World, nothing};

#[tokio::test]
async fn a_session_names_its_agent_and_keeps_the_version_that_was_meant() {
    let world = World::new().await;
    let api = world.ready().await;
    published(&api).await;
    for (reference, version, prompt) in [
        ("reviewer", 2, "Review well."),
        ("reviewer@1", 1, "Review."),
        ("reviewer@live", 1, "Review."),
    ] {
        let session = create(&api, &json!({ "agent": reference })).await.ok(201);
        let expected = json!({ "name": "reviewer", "version": version });
        assert_eq!(session["agent_ref"], expected);
        assert_eq!(session["agent"]["name"], "reviewer");
        assert_eq!(session["agent"]["system_prompt"], prompt);
        assert_eq!(session["agent"].get("bound"), None);
    }
    let session = create(&api, &json!({ "agent": "reviewer@live" }))
        .await
        .ok(201);
    point(&api, "live", 2).await.ok(200);
    let id = session["id"].as_str().expect("an id");
    let path = format!("/v1/sessions/{id}");
    assert_eq!(api.get(&path).await.ok(200), session);
    // The session keeps its version until it is changed explicitly.
    let moved = api
        .call("PATCH", &path)
        .json(&json!({ "agent": "reviewer@live" }));
    let moved = moved.send().await.ok(200);
    assert_eq!(moved["agent_ref"]["version"], 2);
    assert_eq!(moved["agent_version"], 2);
    let own = api
        .call("PATCH", &path)
        .json(&json!({ "agent": { "model": "demo/x" } }));
    assert_eq!(own.send().await.ok(200).get("agent_ref"), None);
    let listed = api.get("/v1/sessions?agent=reviewer").await.ok(200);
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(3));
}

#[tokio::test]
async fn names_that_mean_nothing_are_refused() {
    let world = World::new().await;
    let api = world.ready().await;
    published(&api).await;
    for reference in ["nobody", "reviewer@3", "reviewer@beta"] {
        let body = json!({ "agent": reference });
        let problem = create(&api, &body).await.problem(404, "agent.not_found");
        assert!(
            problem["detail"]
                .as_str()
                .is_some_and(|text| text.contains(reference))
        );
        let body = json!({ "input": "hi", "session": { "agent": reference } });
        let refused = api.post("/v1/sends", &body).await;
        refused.problem(404, "agent.not_found");
    }
    let id = api.session().await;
    let path = format!("/v1/sessions/{id}");
    let moved = api.call("PATCH", &path).json(&json!({ "agent": "nobody" }));
    moved.send().await.problem(404, "agent.not_found");
    let absent = format!("/v1/sessions/{}", nothing("ses_"));
    let moved = api
        .call("PATCH", &absent)
        .json(&json!({ "agent": "reviewer" }));
    moved.send().await.problem(404, "session.not_found");
    for (body, pointer) in [
        (json!({ "agent": "a b" }), "/agent"),
        (json!({ "agent": "a@0" }), "/agent"),
        (json!({ "agent": 7 }), "/agent"),
        (json!({ "agent": ["reviewer"] }), "/agent"),
        (json!({ "agent": { "bound": {} } }), "/agent/bound"),
        (json!({ "agent": { "colour": 1 } }), "/agent/colour"),
    ] {
        let problem = create(&api, &body).await.problem(400, "request.invalid");
        assert_eq!(pointers(&problem), [pointer], "{body}");
    }
}

#[tokio::test]
async fn a_send_and_the_items_of_a_batch_name_agents() {
    let world = World::new().await;
    let api = world.ready().await;
    published(&api).await;
    let body = json!({ "input": "hi", "session": { "agent": "reviewer@live" } });
    let send = api.post("/v1/sends", &body).await.ok(202);
    let id = send["session_id"].as_str().expect("an id");
    let claimed = world.claim(id).await;
    let agent = &claimed.send.agent;
    assert_eq!(agent.system_prompt.as_deref(), Some("Review."));
    let sends: Vec<Value> = ["reviewer", "nobody", "reviewer@1"]
        .into_iter()
        .map(|reference| json!({ "input": "hi", "session": { "agent": reference } }))
        .collect();
    let answer = api
        .post("/v1/sends:batch", &json!({ "sends": sends }))
        .await;
    let results = answer.ok(200);
    let statuses = [0, 1, 2].map(|n| results["results"][n]["status"].clone());
    assert_eq!(statuses, [json!(202), json!(404), json!(202)]);
    assert_eq!(results["results"][1]["problem"]["code"], "agent.not_found");
}

#[tokio::test]
async fn a_repeat_is_answered_whatever_has_become_of_the_agent() {
    let world = World::new().await;
    let api = world.ready().await;
    published(&api).await;
    let keyed = async |path: &str, body: &Value| {
        let call = api.call("POST", path).header("idempotency-key", "k");
        call.json(body).send().await
    };
    let session = json!({ "agent": "reviewer@live" });
    let send = json!({ "input": "hi", "session": { "agent": "reviewer@live" } });
    let first = keyed("/v1/sessions", &session).await.ok(201);
    let sent = keyed("/v1/sends", &send).await.ok(202);
    let gone = api.call("DELETE", "/v1/agents/reviewer").send().await;
    gone.ok(200);
    let again = keyed("/v1/sessions", &session).await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.ok(201), first);
    assert_eq!(keyed("/v1/sends", &send).await.ok(202)["id"], sent["id"]);
    let other = keyed("/v1/sessions", &json!({ "agent": "nobody" })).await;
    other.problem(422, "idempotency.mismatch");
}

/// An agent whose prompt has sections.
fn with_prompt() -> Value {
    json!({
        "system_prompt": "You review code.",
        "prompt": {
            "sections": [
                { "name": "style", "text": "Be {{ tone }}." },
                { "name": "who", "text": "You work for {{ metadata.user }}." },
            ],
            "variables": { "tone": { "default": "kind" }, "rules": { "required": true } },
        },
    })
}

/// The sections of a session's prompt after the system prompt.
async fn sections(world: &World, id: &str) -> Vec<String> {
    let key = crate::world::key(id);
    let found = world.store.get_session(key).await.expect("answers");
    let bound = found.expect("it exists").agent.bound.unwrap_or_default();
    let texts = bound
        .sections
        .into_iter()
        .filter_map(|section| section.text);
    texts.collect()
}

#[tokio::test]
async fn variables_and_metadata_are_pinned_when_a_session_takes_its_agent() {
    let world = World::new().await;
    let api = world.ready().await;
    publish(&api, "reviewer", &with_prompt()).await.ok(201);
    let body = json!({
        "agent": "reviewer", "metadata": { "user": "Ada" },
        "variables": { "rules": "none", "tone": "strict" },
    });
    let session = create(&api, &body).await.ok(201);
    assert_eq!(session["variables"], body["variables"]);
    let id = session["id"].as_str().expect("an id");
    let shown = ["Be strict.", "You work for Ada."];
    assert_eq!(sections(&world, id).await, shown);
    let path = format!("/v1/sessions/{id}");
    let patch = async |body: Value| api.call("PATCH", &path).json(&body).send().await;
    // Changing only the metadata does not render the sections again.
    patch(json!({ "metadata": { "user": "Bob" } }))
        .await
        .ok(200);
    assert_eq!(sections(&world, id).await, shown);
    let changed = patch(json!({ "variables": { "rules": "all" } }))
        .await
        .ok(200);
    assert_eq!(changed["agent_ref"]["version"], 1);
    assert_eq!(changed["variables"], json!({ "rules": "all" }));
    assert_eq!(
        sections(&world, id).await,
        ["Be kind.", "You work for Bob."]
    );
    // Setting the same agent again keeps the variables.
    let changed = patch(json!({ "agent": "reviewer@1" })).await.ok(200);
    assert_eq!(changed["variables"], json!({ "rules": "all" }));
    let refused = patch(json!({ "variables": {} })).await;
    let problem = refused.problem(400, "request.invalid");
    assert_eq!(pointers(&problem), ["/variables/rules"]);
    // A fork keeps the sections; with other variables they are rendered anew.
    let fork = api.post(&format!("{path}/fork"), &json!({})).await.ok(201);
    assert_eq!(fork["agent_ref"], changed["agent_ref"]);
    let fork_id = fork["id"].as_str().expect("an id");
    assert_eq!(sections(&world, fork_id).await, sections(&world, id).await);
    let body = json!({ "variables": { "rules": "", "tone": "dry" } });
    let fork = api.post(&format!("{path}/fork"), &body).await.ok(201);
    let fork_id = fork["id"].as_str().expect("an id");
    assert_eq!(sections(&world, fork_id).await[0], "Be dry.");
}

#[tokio::test]
async fn variables_that_do_not_fit_are_refused() {
    let world = World::new().await;
    let api = world.ready().await;
    publish(&api, "reviewer", &with_prompt()).await.ok(201);
    let wrong = json!({ "colour": "red" });
    let body = json!({ "agent": "reviewer", "variables": wrong });
    let problem = create(&api, &body).await.problem(400, "request.invalid");
    assert_eq!(
        pointers(&problem),
        ["/variables/colour", "/variables/rules"]
    );
    let body = json!({ "input": "hi", "session": { "agent": "reviewer", "variables": wrong } });
    let refused = api.post("/v1/sends", &body).await;
    let problem = refused.problem(400, "request.invalid");
    let expected = ["/session/variables/colour", "/session/variables/rules"];
    assert_eq!(pointers(&problem), expected);
    // The metadata that a section reads is missing.
    let body = json!({ "agent": "reviewer", "variables": { "rules": "x" } });
    let problem = create(&api, &body).await.problem(400, "request.invalid");
    assert_eq!(pointers(&problem), ["/agent"]);
    let body = json!({ "agent": {}, "variables": { "rules": "x" } });
    let problem = create(&api, &body).await.problem(400, "request.invalid");
    assert_eq!(pointers(&problem), ["/variables/rules"]);
    // An inline agent of a session may have sections as well.
    let body = json!({
        "agent": with_prompt(), "metadata": { "user": "Ada" }, "variables": { "rules": "x" },
    });
    let session = create(&api, &body).await.ok(201);
    assert_eq!(session.get("agent_ref"), None);
    let id = session["id"].as_str().expect("an id");
    assert_eq!(sections(&world, id).await[0], "Be kind.");
}

#[tokio::test]
async fn an_archive_keeps_the_reference_and_what_was_shown() {
    let world = World::new().await;
    let api = world.ready().await;
    publish(&api, "reviewer", &with_prompt()).await.ok(201);
    let body = json!({
        "agent": "reviewer", "metadata": { "user": "Ada" }, "variables": { "rules": "x" },
    });
    let session = create(&api, &body).await.ok(201);
    let id = session["id"].as_str().expect("an id");
    let archive = crate::copies::export(&api, id).await;
    let imported = crate::copies::import(&api, &archive.text).await.ok(201);
    assert_eq!(imported["agent_ref"], session["agent_ref"]);
    assert_eq!(imported["variables"], session["variables"]);
    let copy = imported["id"].as_str().expect("an id");
    assert_eq!(sections(&world, copy).await, sections(&world, id).await);
}

/// A workflow with one leaf that names an agent.
fn workflow(leaf: &Value) -> Value {
    let mut root = json!({ "type": "agent", "id": "review", "input": "hello" });
    for (name, value) in leaf.as_object().expect("an object") {
        root[name] = value.clone();
    }
    json!({ "name": "reviews", "root": root })
}

#[tokio::test]
async fn a_leaf_names_an_agent_and_its_run_keeps_the_version() {
    let world = World::new().await;
    let api = world.ready().await;
    publish(&api, "reviewer", &with_prompt()).await.ok(201);
    point(&api, "live", 1).await.ok(200);
    let leaf = json!({
        "agent": "reviewer@live", "variables": { "rules": "{{ input }}", "tone": "calm" },
    });
    let mut spec = workflow(&leaf);
    spec["metadata"] = json!({ "user": "Ada" });
    let body = json!({ "spec": spec });
    let run = api.post("/v1/runs", &body).await.ok(202);
    let expected = json!({ "reviewer@live": { "name": "reviewer", "version": 1 } });
    assert_eq!(run["agents"], expected);
    assert_eq!(run["options"].get("agents"), None);
    while world.open_leaves().await == 0 {
        tokio::task::yield_now().await;
    }
    let listed = api.get("/v1/sessions?agent=reviewer").await.ok(200);
    let leaf = &listed["data"][0];
    assert_eq!(leaf["agent_ref"], expected["reviewer@live"]);
    let id = leaf["id"].as_str().expect("an id");
    let shown = ["Be calm.", "You work for Ada."];
    assert_eq!(sections(&world, id).await, shown);

    let spec = workflow(&json!({ "agent": "nobody" }));
    let refused = api.post("/v1/runs", &json!({ "spec": spec })).await;
    refused.problem(404, "agent.not_found");
    let options = json!({ "spec": body["spec"], "options": { "agents": {
        "x": { "agent": { "name": "x", "version": 1 }, "spec": {} },
    } } });
    let refused = api.post("/v1/runs", &options).await;
    refused.problem(400, "request.invalid");
    for leaf in [
        json!({ "agent": "a b" }),
        json!({ "agent": "reviewer", "spec": { "name": "x", "system_prompt": "y" } }),
        json!({ "agent": "reviewer", "variables": { "x": "{{ unknown_node }}" } }),
        json!({ "spec": { "name": "x", "system_prompt": "y" }, "variables": {} }),
        json!({}),
    ] {
        let body = json!({ "spec": workflow(&leaf) });
        let refused = api.post("/v1/workflows:validate", &body).await;
        refused.problem(422, "spec.invalid");
    }
}

#[tokio::test]
async fn the_runs_of_a_timer_have_the_versions_that_were_meant_when_it_was_made() {
    let world = World::new().await;
    let api = world.ready().await;
    publish(&api, "reviewer", &json!({ "system_prompt": "Review." }))
        .await
        .ok(201);
    point(&api, "live", 1).await.ok(200);
    let spec = workflow(&json!({ "agent": "reviewer@live" }));
    let timer = |spec: &Value| json!({ "after": "300ms", "run": { "spec": spec } });
    let made = api.post("/v1/timers", &timer(&spec)).await.ok(201);
    publish(&api, "reviewer", &json!({ "system_prompt": "Other." }))
        .await
        .ok(201);
    point(&api, "live", 2).await.ok(200);
    while world.open_leaves().await == 0 {
        tokio::task::yield_now().await;
    }
    let listed = api.get("/v1/sessions?agent=reviewer").await.ok(200);
    assert_eq!(listed["data"][0]["agent_ref"]["version"], 1, "{made}");
    let refused = timer(&workflow(&json!({ "agent": "nobody" })));
    let refused = api.post("/v1/timers", &refused).await;
    refused.problem(404, "agent.not_found");
}
