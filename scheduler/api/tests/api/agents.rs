//! Agents by name: publishing, versions, aliases, archiving, and what names them.

use serde_json::{Value, json};

use crate::client::Answer;
use crate::world::{Scheduler, World, nothing};

async fn publish(api: &Scheduler, name: &str, spec: &Value) -> Answer {
    let body = json!({ "name": name, "spec": spec });
    api.post("/v1/agents", &body).await
}

async fn point(api: &Scheduler, alias: &str, version: i32) -> Answer {
    let path = format!("/v1/agents/reviewer/aliases/{alias}");
    let call = api.call("PUT", &path).json(&json!({ "version": version }));
    call.send().await
}

async fn create(api: &Scheduler, body: &Value) -> Answer {
    api.post("/v1/sessions", body).await
}

/// Two versions of an agent, of which the first is live.
async fn published(api: &Scheduler) {
    publish(api, "reviewer", &json!({ "system_prompt": "Review." }))
        .await
        .ok(201);
    let second = json!({ "system_prompt": "Review well.", "tools": ["core"] });
    publish(api, "reviewer", &second).await.ok(201);
    point(api, "live", 1).await.ok(200);
}

fn pointers(problem: &Value) -> Vec<&str> {
    let errors = problem["errors"].as_array().expect("a list");
    let pointers = errors.iter().map(|one| one["pointer"].as_str());
    pointers.map(|pointer| pointer.expect("a text")).collect()
}

#[tokio::test]
async fn a_spec_is_published_as_a_version_and_the_same_spec_as_the_same() {
    let world = World::new().await;
    let api = world.ready().await;
    let spec = json!({ "system_prompt": "Review.", "tools": ["core"] });
    let answer = publish(&api, "reviewer", &spec).await;
    let first = answer.ok(201);
    assert_eq!(
        answer.header("location"),
        Some("/v1/agents/reviewer/versions/1")
    );
    assert_eq!(
        (&first["name"], &first["version"]),
        (&json!("reviewer"), &json!(1))
    );
    assert_eq!(first["spec"]["system_prompt"], "Review.");
    assert_eq!(first["hash"].as_str().map(str::len), Some(64));
    assert_eq!(publish(&api, "reviewer", &spec).await.ok(200), first);
    // Its own name in the spec says nothing new.
    let named = json!({ "name": "reviewer", "system_prompt": "Review.", "tools": ["core"] });
    assert_eq!(publish(&api, "reviewer", &named).await.ok(200), first);
    let other = json!({ "system_prompt": "Review well." });
    assert_eq!(
        publish(&api, "reviewer", &other).await.ok(201)["version"],
        2
    );
    assert_eq!(
        api.get("/v1/agents/reviewer/versions/1").await.ok(200),
        first
    );
    let list = api
        .get("/v1/agents/reviewer/versions?limit=1")
        .await
        .ok(200);
    assert_eq!(list["data"][0]["version"], 2);
    assert_eq!(list["next_cursor"], "2");
    let list = api
        .get("/v1/agents/reviewer/versions?limit=1&cursor=2")
        .await
        .ok(200);
    assert_eq!(list, json!({ "data": [first], "next_cursor": null }));
}

#[tokio::test]
async fn a_repeat_publishes_nothing() {
    let world = World::new().await;
    let api = world.ready().await;
    let keyed = async |body: Value| {
        let call = api
            .call("POST", "/v1/agents")
            .header("idempotency-key", "k");
        call.json(&body).send().await
    };
    let body = json!({ "name": "reviewer", "spec": { "system_prompt": "Review." } });
    let first = keyed(body.clone()).await;
    assert_eq!(first.header("idempotency-replayed"), None);
    publish(&api, "reviewer", &json!({ "system_prompt": "Other." }))
        .await
        .ok(201);
    let again = keyed(body).await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.ok(201), first.ok(201));
    let other = keyed(json!({ "name": "reviewer", "spec": {} })).await;
    other.problem(422, "idempotency.mismatch");
    let agent = api.get("/v1/agents/reviewer").await.ok(200);
    assert_eq!(agent["version"], 2);
}

#[tokio::test]
async fn what_cannot_be_published_is_pointed_at() {
    let world = World::new().await;
    let api = world.ready().await;
    let spec = json!({
        "name": "other",
        "temperature": 3,
        "allow_agents": ["x"],
        "bound": {},
        "prompt": { "sections": [{ "name": "a", "text": "{{ nobody }}" }, { "name": "b" }] },
    });
    let refused = publish(&api, "reviewer", &spec).await;
    let problem = refused.problem(400, "request.invalid");
    let mut found = pointers(&problem);
    found.sort_unstable();
    assert_eq!(
        found,
        [
            "/spec/bound",
            "/spec/name",
            "/spec/prompt/sections/0/text",
            "/spec/prompt/sections/1",
            "/spec/temperature"
        ]
    );
    for (body, pointer) in [
        (json!({ "name": "a b", "spec": {} }), "/name"),
        (json!({ "name": "a" }), "/spec"),
        (
            json!({ "name": "a", "spec": { "colour": "red" } }),
            "/spec/colour",
        ),
        (
            json!({ "name": "a", "spec": { "allow_agents": ["x@"] } }),
            "/spec/allow_agents/0",
        ),
        (
            json!({ "name": "a", "spec": { "prompt": { "sections": [{ "text": "x" }] } } }),
            "/spec/prompt/sections/0/name",
        ),
    ] {
        let refused = api.post("/v1/agents", &body).await;
        let problem = refused.problem(400, "request.invalid");
        assert!(pointers(&problem)[0].starts_with(pointer), "{problem}");
    }
}

#[tokio::test]
async fn aliases_move_and_go() {
    let world = World::new().await;
    let api = world.ready().await;
    point(&api, "live", 1).await.problem(404, "agent.not_found");
    published(&api).await;
    let agent = api.get("/v1/agents/reviewer").await.ok(200);
    assert_eq!(agent["aliases"], json!({ "live": 1 }));
    assert_eq!(point(&api, "live", 2).await.ok(200)["aliases"]["live"], 2);
    let refused = point(&api, "live", 3).await;
    let problem = refused.problem(400, "request.invalid");
    assert_eq!(pointers(&problem), ["/version"]);
    point(&api, "7up", 1).await.problem(400, "request.invalid");
    let path = "/v1/agents/reviewer/aliases/live";
    let gone = api.call("DELETE", path).send().await.ok(200);
    assert_eq!(gone["aliases"], json!({}));
}

#[tokio::test]
async fn an_archived_agent_is_kept_and_not_used() {
    let world = World::new().await;
    let api = world.ready().await;
    published(&api).await;
    let body = json!({ "agent": "reviewer@live" });
    let session = create(&api, &body).await.ok(201);
    let archived = api.call("DELETE", "/v1/agents/reviewer").send().await;
    assert!(archived.ok(200)["archived_at"].is_string());
    let refused = create(&api, &body).await.problem(404, "agent.not_found");
    assert_eq!(refused["retryable"], false);
    point(&api, "live", 2).await.problem(404, "agent.not_found");
    let none = json!({ "data": [], "next_cursor": null });
    assert_eq!(api.get("/v1/agents").await.ok(200), none);
    let all = api.get("/v1/agents?archived=true").await.ok(200);
    assert_eq!(all["data"][0]["name"], "reviewer");
    api.get("/v1/agents/reviewer/versions/2").await.ok(200);
    // Who has it keeps it.
    let id = session["id"].as_str().expect("an id");
    let kept = api.get(&format!("/v1/sessions/{id}")).await.ok(200);
    assert_eq!(kept, session);
    publish(&api, "reviewer", &json!({ "system_prompt": "Again." }))
        .await
        .ok(201);
    create(&api, &body).await.ok(201);
}

#[tokio::test]
async fn agents_are_listed_by_name() {
    let world = World::new().await;
    let api = world.ready().await;
    for name in ["b", "a", "c"] {
        publish(&api, name, &json!({})).await.ok(201);
    }
    let page = api.get("/v1/agents?limit=2").await.ok(200);
    assert_eq!(page["data"][0]["name"], "a");
    assert_eq!(page["next_cursor"], "b");
    let page = api.get("/v1/agents?limit=2&cursor=b").await.ok(200);
    assert_eq!(page["data"][0]["name"], "c");
    assert_eq!(page["next_cursor"], Value::Null);
    for query in ["cursor=a%20b", "archived=yes", "colour=red", "limit=0"] {
        let refused = api.get(&format!("/v1/agents?{query}")).await;
        refused.problem(400, "request.invalid");
    }
}

#[tokio::test]
async fn versions_are_compared() {
    let world = World::new().await;
    let api = world.ready().await;
    published(&api).await;
    let diff = api.get("/v1/agents/reviewer/diff").await.ok(200);
    assert_eq!(
        diff,
        json!({
            "name": "reviewer", "from": 1, "to": 2,
            "changes": [
                { "pointer": "/system_prompt", "before": "Review.", "after": "Review well." },
                { "pointer": "/tools", "after": ["core"] },
            ],
        })
    );
    let diff = api.get("/v1/agents/reviewer/diff?from=2&to=live").await;
    let diff = diff.ok(200);
    assert_eq!(
        diff["changes"][1],
        json!({ "pointer": "/tools", "before": ["core"] })
    );
    let same = api.get("/v1/agents/reviewer/diff?from=1&to=1").await;
    assert_eq!(same.ok(200)["changes"], json!([]));
    for (query, status, code) in [
        ("to=3", 404, "agent.not_found"),
        ("from=beta", 404, "agent.not_found"),
        ("from=a%20b", 400, "request.invalid"),
    ] {
        let refused = api.get(&format!("/v1/agents/reviewer/diff?{query}")).await;
        refused.problem(status, code);
    }
}

#[tokio::test]
async fn what_publishing_would_change_is_shown_without_publishing() {
    let world = World::new().await;
    let api = world.ready().await;
    let preview = async |spec: Value| {
        let body = json!({ "name": "reviewer", "spec": spec });
        api.post("/v1/agents:diff", &body).await
    };
    let new = preview(json!({ "system_prompt": "Review." })).await.ok(200);
    assert_eq!((&new["from"], &new["to"]), (&json!(0), &json!(1)));
    let none = json!({ "data": [], "next_cursor": null });
    assert_eq!(api.get("/v1/agents").await.ok(200), none);
    published(&api).await;
    let same = json!({ "system_prompt": "Review well.", "tools": ["core"] });
    let same = preview(same).await.ok(200);
    assert_eq!((&same["from"], &same["to"]), (&json!(2), &json!(2)));
    assert_eq!(same["changes"], json!([]));
    let other = preview(json!({ "system_prompt": "Review well." })).await;
    let expected = json!({
        "name": "reviewer", "from": 2, "to": 3,
        "changes": [{ "pointer": "/tools", "before": ["core"] }],
    });
    assert_eq!(other.ok(200), expected);
    let wrong = preview(json!({ "temperature": 3 })).await;
    wrong.problem(400, "request.invalid");
    assert_eq!(api.get("/v1/agents/reviewer").await.ok(200)["version"], 2);
}

#[tokio::test]
async fn what_is_unknown_is_not_found() {
    let world = World::new().await;
    let api = world.ready().await;
    for path in [
        "/v1/agents/nobody",
        "/v1/agents/a%20b",
        "/v1/agents/nobody/versions",
        "/v1/agents/nobody/versions/1",
        "/v1/agents/nobody/diff",
    ] {
        api.get(path).await.problem(404, "agent.not_found");
    }
    let gone = api.call("DELETE", "/v1/agents/nobody").send().await;
    gone.problem(404, "agent.not_found");
    published(&api).await;
    for n in ["3", "0", "-1", "x", "99999999999"] {
        let path = format!("/v1/agents/reviewer/versions/{n}");
        api.get(&path).await.problem(404, "agent.not_found");
    }
}

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
    // Until it is told otherwise.
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

/// What stands in a session's prompt behind the system prompt.
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
    // Metadata alone changes nothing of what was made.
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
    // The same agent once more keeps the values that were set.
    let changed = patch(json!({ "agent": "reviewer@1" })).await.ok(200);
    assert_eq!(changed["variables"], json!({ "rules": "all" }));
    let refused = patch(json!({ "variables": {} })).await;
    let problem = refused.problem(400, "request.invalid");
    assert_eq!(pointers(&problem), ["/variables/rules"]);
    // A fork is shown the same; with other values it is made anew.
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
    // An agent that a session brings may have sections as well.
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

/// A workflow of one leaf that names an agent.
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
