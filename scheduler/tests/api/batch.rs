//! Batches: each send accepted or refused on its own, in order.

use serde_json::{Value, json};

use crate::world::{World, nothing};

fn results(json: &Value) -> &Vec<Value> {
    json["results"].as_array().expect("results")
}

#[tokio::test]
async fn each_item_is_accepted_or_refused_on_its_own() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = api.session().await;
    let body = json!({ "sends": [
        { "session_id": id, "input": "one" },
        { "session_id": nothing("ses_"), "input": "two" },
        { "session_id": id, "input": "" },
        { "session_id": id, "input": "four", "colour": "red" },
        "five",
        { "session": { "agent": { "max_rounds": 0 } }, "input": "six" },
        { "session": { "metadata": { "a": 1 } }, "input": [{ "type": "text", "text": "seven" }] },
        { "session_id": "nonsense", "input": "eight" },
        { "session_id": id, "input": "nine" },
    ]});
    let answer = api.post("/v1/sends:batch", &body).await.ok(200);
    let statuses: Vec<_> = results(&answer)
        .iter()
        .map(|r| r["status"].as_u64())
        .collect();
    let expected = [202, 404, 400, 400, 400, 400, 202, 404, 202].map(Some);
    assert_eq!(statuses, expected);
    let pointer = |n: usize| results(&answer)[n]["problem"]["errors"][0]["pointer"].clone();
    assert_eq!(pointer(2), "/sends/2/input");
    assert_eq!(pointer(3), "/sends/3/colour");
    assert_eq!(pointer(4), "/sends/4");
    assert_eq!(pointer(5), "/sends/5/session/agent/max_rounds");
    assert_eq!(results(&answer)[1]["problem"]["code"], "session.not_found");
    for n in [0, 6, 8] {
        let send = &results(&answer)[n]["send"];
        let path = format!("/v1/sends/{}", send["id"].as_str().expect("an id"));
        assert_eq!(&api.get(&path).await.ok(200), send);
    }
    assert!(results(&answer)[0].get("problem").is_none());
}

#[tokio::test]
async fn sends_to_one_session_keep_their_order() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = api.session().await;
    let item = |n| json!({ "session_id": id, "input": format!("{n}") });
    let sends: Vec<_> = (0..1_000).map(item).collect();
    let answer = api
        .post("/v1/sends:batch", &json!({ "sends": sends }))
        .await
        .ok(200);
    let places: Vec<_> = results(&answer)
        .iter()
        .map(|r| r["send"]["position"].as_i64())
        .collect();
    assert_eq!(places.len(), 1_000);
    assert!(places.is_sorted() && places[0].is_some());
    assert!(places.windows(2).all(|pair| pair[0] != pair[1]));
    let claimed = world.claim(&id).await;
    assert_eq!(
        claimed.send.record.id.to_string(),
        results(&answer)[0]["send"]["id"]
    );
}

#[tokio::test]
async fn a_batch_has_its_bound_and_may_be_empty() {
    let world = World::new().await;
    let api = world.ready().await;
    let sends: Vec<_> = (0..1_001).map(|_| json!({ "input": "hi" })).collect();
    let refused = api
        .post("/v1/sends:batch", &json!({ "sends": sends }))
        .await;
    assert_eq!(
        refused.problem(400, "request.invalid")["errors"][0]["pointer"],
        "/sends"
    );
    let empty = api
        .post("/v1/sends:batch", &json!({ "sends": [] }))
        .await
        .ok(200);
    assert_eq!(empty, json!({ "results": [] }));
    for (body, pointer) in [
        (json!({}), "/sends"),
        (json!({ "sends": 1 }), "/sends"),
        (json!({ "sends": [], "more": 1 }), "/more"),
    ] {
        let problem = api
            .post("/v1/sends:batch", &body)
            .await
            .problem(400, "request.invalid");
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{body}");
    }
    let call = api.call("POST", "/v1/sends:batch").body("{\"sends\":[{]}");
    call.send().await.problem(400, "request.invalid");
}

#[tokio::test]
async fn an_item_with_its_own_key_is_accepted_once() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = api.session().await;
    let body = json!({ "sends": [
        { "session_id": id, "input": "one", "idempotency_key": "a" },
        { "session_id": id, "input": "two", "idempotency_key": "b" },
        { "session_id": id, "input": "three", "idempotency_key": "not a key" },
    ]});
    let first = api.post("/v1/sends:batch", &body).await.ok(200);
    assert_eq!(first, api.post("/v1/sends:batch", &body).await.ok(200));
    let changed = json!({ "sends": [
        { "session_id": id, "input": "one", "idempotency_key": "a" },
        { "session_id": id, "input": "other", "idempotency_key": "b" },
    ]});
    let answer = api.post("/v1/sends:batch", &changed).await.ok(200);
    assert_eq!(results(&answer)[0], results(&first)[0]);
    assert_eq!(
        results(&answer)[1]["problem"]["code"],
        "idempotency.mismatch"
    );
    assert_eq!(results(&first)[2]["status"], 400);
}

#[tokio::test]
async fn a_whole_batch_with_a_key_is_accepted_once() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = api.session().await;
    let item = |n: u32| json!({ "session_id": id, "input": format!("{n}") });
    let body = json!({ "sends": (0..300).map(item).collect::<Vec<_>>() });
    let post = |body: &Value| {
        api.call("POST", "/v1/sends:batch")
            .header("idempotency-key", "k")
            .json(body)
            .send()
    };
    let first = post(&body).await;
    assert_eq!(first.header("idempotency-replayed"), None);
    let again = post(&body).await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(first.ok(200), again.ok(200));
    // Another body under the key stores nothing, not even what goes beyond the first.
    let longer = json!({ "sends": (0..301).map(item).collect::<Vec<_>>() });
    post(&longer).await.problem(422, "idempotency.mismatch");
    let claimed = world.claim(&id).await;
    assert_eq!(claimed.counters.pending, 299);
}
