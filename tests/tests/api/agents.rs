//! Agents by name: publishing, versions, aliases and archiving.

use serde_json::{Value, json};

use crate::client::Answer;
use crate::world::{Scheduler, World};

pub(crate) async fn publish(api: &Scheduler, name: &str, spec: &Value) -> Answer {
    let body = json!({ "name": name, "spec": spec });
    api.post("/v1/agents", &body).await
}

pub(crate) async fn point(api: &Scheduler, alias: &str, version: i32) -> Answer {
    let path = format!("/v1/agents/reviewer/aliases/{alias}");
    let call = api.call("PUT", &path).json(&json!({ "version": version }));
    call.send().await
}

pub(crate) async fn create(api: &Scheduler, body: &Value) -> Answer {
    api.post("/v1/sessions", body).await
}

/// Publishes two versions of an agent, of which the first is live.
pub(crate) async fn published(api: &Scheduler) {
    publish(api, "reviewer", &json!({ "system_prompt": "Review." }))
        .await
        .ok(201);
    let second = json!({ "system_prompt": "Review well.", "tools": ["core"] });
    publish(api, "reviewer", &second).await.ok(201);
    point(api, "live", 1).await.ok(200);
}

pub(crate) fn pointers(problem: &Value) -> Vec<&str> {
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
    // Repeating the agent's own name in the spec makes no new version.
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
    // A session that uses it keeps it.
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
