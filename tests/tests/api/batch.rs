//! Batches: each send is accepted or refused on its own, in order.

use serde_json::{Value, json};

use crate::client::Answer;
use crate::world::{Scheduler, World, nothing};

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
    let call = api
        .call("POST", "/v1/sends:batch")
        .header("content-type", "application/json")
        .body("{\"sends\":[{]}");
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
    // A different body with the same key stores nothing, not even the items beyond the first
    // body's.
    let longer = json!({ "sends": (0..301).map(item).collect::<Vec<_>>() });
    post(&longer).await.problem(422, "idempotency.mismatch");
    let claimed = world.claim(&id).await;
    assert_eq!(claimed.counters.pending, 299);
}

async fn keyed(api: &Scheduler, path: &str, body: &Value) -> Answer {
    let call = api.call("POST", path).header("idempotency-key", "k");
    call.json(body).send().await
}

#[tokio::test]
async fn another_batch_under_a_key_makes_nothing_even_when_items_of_the_first_were_refused() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = api.session().await;
    let made = async |path: &str| api.get(path).await.ok(200)["data"].as_array().map(Vec::len);
    let timer = |input: &str| json!({ "session_id": id, "after": "1h", "input": input });
    let send = |input: &str| json!({ "session_id": id, "input": input });
    let lost = nothing("ses_");
    for (path, member, listed, item, bad) in [
        (
            "/v1/sends:batch",
            "sends",
            "/v1/sends",
            &send as &dyn Fn(&str) -> Value,
            json!({ "session_id": lost, "input": "bad" }),
        ),
        (
            "/v1/timers:batch",
            "timers",
            "/v1/timers",
            &timer,
            json!({ "session_id": lost, "after": "1h", "input": "bad" }),
        ),
    ] {
        let body = json!({ member: [bad, item("good")] });
        let first = keyed(&api, path, &body).await;
        assert_eq!(first.header("idempotency-replayed"), None);
        let first = first.ok(200);
        assert_eq!(results(&first)[0]["status"], 404, "{first}");
        assert_eq!(made(listed).await, Some(1));
        let other = json!({ member: [item("other0"), item("other1")] });
        keyed(&api, path, &other)
            .await
            .problem(422, "idempotency.mismatch");
        assert_eq!(made(listed).await, Some(1), "{path}");
        // The first batch still gets its original answer.
        let again = keyed(&api, path, &body).await;
        assert_eq!(again.header("idempotency-replayed"), Some("true"));
        assert_eq!(again.ok(200), first);
    }
}

#[tokio::test]
async fn a_batch_that_made_nothing_takes_its_key_all_the_same() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = api.session().await;
    let refused = json!({ "sends": [{ "session_id": nothing("ses_"), "input": "bad" }] });
    for nothing in [json!({ "sends": [] }), refused] {
        let key = nothing.to_string().len().to_string();
        let post = |body: &Value| {
            let call = api.call("POST", "/v1/sends:batch");
            call.header("idempotency-key", &key).json(body).send()
        };
        let first = post(&nothing).await;
        assert_eq!(first.header("idempotency-replayed"), None);
        let again = post(&nothing).await;
        assert_eq!(again.header("idempotency-replayed"), Some("true"));
        assert_eq!(first.ok(200), again.ok(200));
        let other = json!({ "sends": [{ "session_id": id, "input": "hi" }] });
        post(&other).await.problem(422, "idempotency.mismatch");
    }
    assert_eq!(api.get("/v1/sends").await.ok(200)["data"], json!([]));
}

#[tokio::test]
async fn a_key_of_an_item_is_another_key_than_that_of_a_batch() {
    let world = World::new().await;
    let api = world.ready().await;
    let item = json!({ "sends": [{ "input": "one", "idempotency_key": "k" }] });
    api.post("/v1/sends:batch", &item).await.ok(200);
    let body = json!({ "sends": [{ "input": "two" }] });
    let other = keyed(&api, "/v1/sends:batch", &body).await.ok(200);
    assert_eq!(results(&other)[0]["status"], 202);
}

#[tokio::test]
async fn items_go_to_what_is_under_way_where_they_ask_for_it() {
    let world = World::new().await;
    let api = world.ready().await;
    let (busy, idle) = (api.session().await, api.session().await);
    let running = api.send(&busy, "first").await;
    world.claim(&busy).await;
    let item = |session: &str, input: &str, on_busy: &str| {
        let options = json!({ "on_busy": on_busy });
        json!({ "session_id": session, "input": input, "options": options })
    };
    let body = json!({ "sends": [
        item(&busy, "steer", "steer"),
        item(&busy, "interrupt", "interrupt"),
        item(&busy, "reject", "reject"),
        item(&busy, "queued", "enqueue"),
        // Joins the send before it.
        item(&busy, "and more", "coalesce"),
        // The session is idle: this becomes a send of its own, which the next one joins.
        item(&idle, "alone", "coalesce"),
        item(&idle, "joined", "coalesce"),
        item(&nothing("ses_"), "nowhere", "steer"),
    ]});
    let first = keyed(&api, "/v1/sends:batch", &body).await.ok(200);
    let statuses: Vec<_> = results(&first)
        .iter()
        .map(|r| r["status"].as_u64().unwrap_or_default())
        .collect();
    assert_eq!(statuses, [202, 202, 409, 202, 202, 202, 202, 404]);
    let result = |n: usize| &results(&first)[n]["send"];
    for n in [0, 1] {
        assert_eq!(result(n)["id"], json!(running));
        assert_eq!(result(n)["inbox_item"]["fate"], "pending", "{}", result(n));
    }
    assert_eq!(result(4)["id"], result(3)["id"]);
    assert_eq!(result(6)["id"], result(5)["id"]);
    assert!(result(3).get("inbox_item").is_none());
    let inbox = api.get(&format!("/v1/sessions/{busy}/inbox")).await.ok(200);
    let told = inbox["data"].as_array().expect("items");
    let fates: Vec<_> = told.iter().map(|item| item["fate"].as_str()).collect();
    assert_eq!(fates.len(), 3, "{inbox}");
    assert_eq!(&fates[..2], [Some("pending"), Some("pending")]);

    // A repeat delivers nothing twice.
    keyed(&api, "/v1/sends:batch", &body).await.ok(200);
    let inbox = api.get(&format!("/v1/sessions/{busy}/inbox")).await.ok(200);
    assert_eq!(inbox["data"].as_array().map(Vec::len), Some(3));
    assert_eq!(
        api.get("/v1/sends").await.ok(200)["data"]
            .as_array()
            .map(Vec::len),
        Some(3)
    );
}
