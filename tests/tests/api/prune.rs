//! Pruning: removing a session's old messages.

use serde_json::{Value, json};

use crate::world::{World, nothing};

async fn seqs(api: &crate::world::Scheduler, session: &str) -> Vec<i64> {
    let path = format!("/v1/sessions/{session}/messages");
    let listed = api.get(&path).await.ok(200);
    let messages = listed["data"].as_array().expect("a list");
    messages.iter().filter_map(|m| m["seq"].as_i64()).collect()
}

#[tokio::test]
async fn a_pruned_session_goes_on_with_its_numbers_and_can_be_copied() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = crate::copies::source(&world).await;
    let prune = format!("/v1/sessions/{session}/prune");
    let asked = json!({ "before_seq": 4, "dry_run": true });
    let dry = api.post(&prune, &asked).await.ok(200);
    // Messages 3 and 4 are the results of a call at 2, so pruning stops before it.
    assert_eq!(
        dry,
        json!({ "removed": 1, "first_seq": 2, "dry_run": true })
    );
    assert_eq!(seqs(&api, &session).await, [1, 2, 3, 4, 5, 6, 7, 8]);
    let done = api.post(&prune, &json!({ "keep_last": 4 })).await.ok(200);
    assert_eq!(
        done,
        json!({ "removed": 4, "first_seq": 5, "dry_run": false })
    );
    assert_eq!(seqs(&api, &session).await, [5, 6, 7, 8]);
    let path = format!("/v1/sessions/{session}");
    let shown = api.get(&path).await.ok(200);
    assert_eq!([&shown["messages"], &shown["first_seq"]], [4, 5]);
    let archive = api.get(&format!("{path}/export")).await.text;
    let call = api.call("POST", "/v1/sessions:import");
    let call = call.header("content-type", "application/x-ndjson");
    let imported = call.body(archive.into_bytes()).send().await.ok(201);
    let forked = api
        .post(&format!("{path}/fork"), &json!({ "seq": 6 }))
        .await
        .ok(201);
    for (copy, expected) in [(imported, vec![1, 2, 3, 4]), (forked, vec![1, 2])] {
        let id = copy["id"].as_str().expect("an id");
        assert_eq!(seqs(&api, id).await, expected);
    }
    let refused = api
        .post(&format!("{path}/fork"), &json!({ "seq": 3 }))
        .await;
    refused.problem(400, "request.invalid");
}

#[tokio::test]
async fn what_makes_no_sense_prunes_nothing() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = crate::copies::source(&world).await;
    let prune = format!("/v1/sessions/{session}/prune");
    for (body, pointer) in [
        (json!({}), ""),
        (json!({ "before_seq": 2, "keep_last": 2 }), ""),
        (json!({ "before_seq": 0 }), "/before_seq"),
        (json!({ "keep_last": 0 }), "/keep_last"),
        (json!({ "keep_last": 1, "x": 1 }), "/x"),
    ] {
        let problem = api
            .post(&prune, &body)
            .await
            .problem(400, "request.invalid");
        assert_eq!(
            problem["errors"][0]["pointer"],
            Value::from(pointer),
            "{problem}"
        );
    }
    assert_eq!(seqs(&api, &session).await.len(), 8);
    let missing = format!("/v1/sessions/{}/prune", nothing("ses_"));
    let missing = api.post(&missing, &json!({ "keep_last": 1 })).await;
    missing.problem(404, "session.not_found");
}
