//! Lists of sends and runs by what they say.

use serde_json::{Value, json};

use crate::runs::{agent, started};
use crate::world::{Scheduler, World};

async fn ids(api: &Scheduler, path: &str) -> Vec<Value> {
    let page = api.get(path).await.ok(200);
    let items = page["data"].as_array().expect("a list").iter();
    items.map(|item| item["id"].clone()).collect()
}

/// A send with these words and metadata, in a new session whose agent has this name.
async fn said(api: &Scheduler, name: &str, input: &str, metadata: &Value) -> Value {
    let body = json!({
        "input": input,
        "session": { "agent": { "name": name, "system_prompt": "Be brief." } },
        "options": { "metadata": metadata },
    });
    let made = api.post("/v1/sends", &body).await.ok(202);
    let shown = made.get("metadata").cloned();
    assert_eq!(&shown.unwrap_or_else(|| json!({})), metadata);
    made["id"].clone()
}

#[tokio::test]
async fn sends_are_found_by_agent_metadata_and_text() {
    let world = World::new().await;
    let api = world.ready().await;
    let weather = said(
        &api,
        "guide",
        "Weather in PARIS?",
        &json!({ "batch": "7", "n": 1 }),
    )
    .await;
    let bill = said(&api, "clerk", "The bill", &json!({ "batch": "7" })).await;
    let other = said(&api, "clerk", "Straße", &json!({ "batch": "8" })).await;
    for (query, found) in [
        ("agent=guide", vec![&weather]),
        ("agent=clerk", vec![&other, &bill]),
        ("agent=nobody", vec![]),
        ("metadata.batch=7", vec![&bill, &weather]),
        ("metadata%5Bbatch%5D=8", vec![&other]),
        ("metadata.n=1", vec![]),
        ("text=paris", vec![&weather]),
        ("text=STRASSE", vec![]),
        ("text=stra%C3%9FE", vec![&other]),
        ("text=bill&metadata.batch=8", vec![]),
        (
            "text=bill&metadata.batch=7&agent=clerk&status=queued",
            vec![&bill],
        ),
    ] {
        let ids = ids(&api, &format!("/v1/sends?{query}")).await;
        assert_eq!(ids.iter().collect::<Vec<_>>(), found, "{query}");
    }
    let id = bill.as_str().expect("an id");
    let shown = api.get(&format!("/v1/sends/{id}")).await.ok(200);
    assert_eq!(shown["metadata"], json!({ "batch": "7" }));
    let answered = said(&api, "guide", "hello", &json!({})).await;
    let answered = answered.as_str().expect("an id");
    let shown = api.get(&format!("/v1/sends/{answered}")).await.ok(200);
    assert_eq!(shown.get("metadata"), None, "it has none");
    let session = shown["session_id"].as_str().expect("a session");
    let claimed = world.claim(session).await;
    world.complete(&claimed, 0, "The answer is 42.").await;
    assert_eq!(ids(&api, "/v1/sends?text=is%2042").await, [answered]);
    for query in ["text=", "text=%00", &format!("text={}", "x".repeat(201))] {
        let refused = api.get(&format!("/v1/sends?{query}")).await;
        refused.problem(400, "request.invalid");
    }
    let target = "/v1/sends:cancel?metadata.batch=7";
    let cancelled = api.post(target, &json!({})).await.ok(200);
    let done = |id: &Value| json!({ "id": id, "done": true });
    assert_eq!(cancelled["results"], json!([done(&bill), done(&weather)]));
}

#[tokio::test]
async fn the_metadata_of_a_send_are_bounded() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    for (metadata, pointer) in [
        (json!({ "x": "y".repeat(16 << 10) }), "/options/metadata"),
        (json!({ "x": "a\0" }), "/options/metadata/x"),
    ] {
        let body = json!({
            "session_id": session, "input": "hi", "options": { "metadata": metadata },
        });
        let refused = api.post("/v1/sends", &body).await;
        let problem = refused.problem(400, "request.invalid");
        assert_eq!(problem["errors"][0]["pointer"], pointer);
    }
}

#[tokio::test]
async fn runs_are_found_by_the_name_and_metadata_of_their_workflow() {
    let world = World::new().await;
    let api = world.ready().await;
    let mut made = Vec::new();
    for (name, team) in [("one", "x"), ("one", "y"), ("two", "x")] {
        let root = agent("a", "hi");
        let spec = json!({ "name": name, "metadata": { "team": team }, "root": root });
        let run = started(&api, &json!({ "spec": spec })).await;
        made.push(json!(run.trim_start_matches("/v1/runs/")));
    }
    let [first, second, third] = &made[..] else {
        panic!("{made:?}");
    };
    for (query, found) in [
        ("name=one", vec![second, first]),
        ("metadata.team=x", vec![third, first]),
        ("name=one&metadata.team=x", vec![first]),
        ("name=three", vec![]),
        ("metadata.colour=red", vec![]),
    ] {
        let ids = ids(&api, &format!("/v1/runs?{query}")).await;
        assert_eq!(ids.iter().collect::<Vec<_>>(), found, "{query}");
    }
    let cancelled = api.post("/v1/runs:cancel?name=two", &json!({})).await;
    let results = &cancelled.ok(200)["results"];
    assert_eq!(results, &json!([{ "id": third, "done": true }]));
}
