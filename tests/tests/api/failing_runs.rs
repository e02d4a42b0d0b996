//! Runs with failing leaves.

use mainspring_shared::error::Code;
use serde_json::{Value, json};

use crate::runs::{agent, answer, finished, queued, started, two_steps};
use crate::world::{Scheduler, World};

/// Fails a leaf, in place of a worker.
async fn fail(world: &World, api: &Scheduler, run: &str, name: &str, code: Code) {
    let node = queued(api, run, name).await;
    let session = node["session_id"].as_str().expect("a session");
    let claimed = world.claim(session).await;
    world.fail(&claimed, code, "nobody answers").await;
}

#[tokio::test]
async fn a_leaf_that_fails_fails_its_run_until_it_is_retried() {
    let world = World::new().await;
    let api = world.ready().await;
    let run = started(&api, &json!({ "spec": two_steps(), "input": "tea" })).await;
    fail(&world, &api, &run, "first", Code::LlmAuth).await;
    let shown = finished(&api, &run).await;
    assert_eq!(shown["status"], "failed");
    assert_eq!(shown["result"], Value::Null);
    assert_eq!(shown["error"]["code"], "llm.auth", "{shown}");
    assert_eq!(shown["counts"]["failed"], 1, "{shown}");
    let nodes = api.get(&format!("{run}/nodes")).await.ok(200);
    let nodes = nodes["data"].as_array().expect("nodes").clone();
    // The steps after it were never started.
    let states: Vec<_> = nodes
        .iter()
        .map(|node| (&node["id"], &node["state"]))
        .collect();
    assert_eq!(
        states,
        [
            (&Value::Null, &json!("failed")),
            (&json!("first"), &json!("failed"))
        ]
    );
    assert_eq!(nodes[1]["error"]["code"], "llm.auth");
    let send = nodes[1]["send_id"].as_str().expect("a send");
    let send = api.get(&format!("/v1/sends/{send}")).await.ok(200);
    assert_eq!(
        (&send["status"], &send["error"]),
        (&json!("failed"), &nodes[1]["error"])
    );
    let failed = api.get("/v1/runs?status=failed").await.ok(200);
    assert_eq!(failed["data"].as_array().map(Vec::len), Some(1));

    api.call("POST", &format!("{run}/retry"))
        .send()
        .await
        .ok(202);
    answer(&world, &api, &run, "first", "green").await;
    answer(&world, &api, &run, "second", "black").await;
    let shown = finished(&api, &run).await;
    assert_eq!(
        (&shown["status"], &shown["error"], &shown["result"]["text"]),
        (&json!("completed"), &Value::Null, &json!("black"))
    );
    let nodes = api.get(&format!("{run}/nodes")).await.ok(200);
    let first = &nodes["data"][1];
    assert_eq!(first["attempt"], 2);
    assert_eq!(first["earlier"][0]["error"]["code"], "llm.auth");
    assert_eq!(first["earlier"][0]["send_id"], send["id"]);
    assert_ne!(first["send_id"], send["id"]);
}

#[tokio::test]
async fn a_leaf_may_fail_where_that_is_tolerated_and_its_place_stays_empty() {
    let world = World::new().await;
    let api = world.ready().await;
    let spec = json!({ "name": "some", "root": {
        "type": "foreach", "id": "all", "as": "n", "items": [0, 1, 2], "parallel": false,
        "on_error": "continue", "body": agent("leaf", "look at {{n}}"),
    } });
    let run = started(&api, &json!({ "spec": spec })).await;
    answer(&world, &api, &run, "[0]/leaf", "zero").await;
    fail(&world, &api, &run, "[1]/leaf", Code::LlmRefused).await;
    answer(&world, &api, &run, "[2]/leaf", "two").await;
    let shown = finished(&api, &run).await;
    assert_eq!(
        (&shown["status"], &shown["error"]),
        (&json!("completed"), &Value::Null)
    );
    let payload = &shown["result"]["payload"];
    assert_eq!(payload["items"], json!(["zero", null, "two"]));
    assert_eq!(payload["errors"][0]["index"], 1, "{payload}");
    assert_eq!(payload["errors"][0]["code"], "llm.refused", "{payload}");
    assert_eq!(
        (&shown["counts"]["completed"], &shown["counts"]["failed"]),
        (&json!(2), &json!(1))
    );
}
