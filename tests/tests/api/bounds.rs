//! Overload is refused early, and work under way continues.

use std::sync::Arc;

use serde_json::json;

use crate::faulty::Faulty;
use crate::world::World;

#[tokio::test]
async fn bodies_beyond_the_bound_are_refused_however_they_arrive() {
    let world = World::new().await;
    let api = world
        .scheduler_with(|config| {
            config.body_bytes_max = 10_000;
            config.batch_bytes_max = 20_000;
        })
        .await;
    api.until_ready().await;
    let fits = json!({ "input": "x".repeat(9_000) });
    let large = json!({ "input": "x".repeat(10_000) });
    api.post("/v1/sends", &fits).await.ok(202);
    api.call("POST", "/v1/sends")
        .json(&fits)
        .chunked()
        .send()
        .await
        .ok(202);
    let path = format!("/v1/sessions/{}", api.session().await);
    for (method, path) in [
        ("POST", "/v1/sends"),
        ("POST", "/v1/sessions"),
        ("PATCH", path.as_str()),
    ] {
        let call = api.call(method, path).json(&large);
        call.clone().send().await.problem(413, "request.too_large");
        call.chunked()
            .send()
            .await
            .problem(413, "request.too_large");
    }
    api.post("/v1/sends:batch", &json!({ "sends": [fits, fits] }))
        .await
        .ok(200);
    let refused = api
        .post("/v1/sends:batch", &json!({ "sends": [fits, fits, fits] }))
        .await;
    refused.problem(413, "request.too_large");
}

#[tokio::test]
async fn too_many_waiters_are_refused_and_others_are_served() {
    let world = World::new().await;
    let api = world.scheduler_with(|config| config.waiters_max = 1).await;
    api.until_ready().await;
    let id = api.session().await;
    let send = api.send(&id, "hi").await;
    let mut events = api.events(&format!("/v1/sends/{send}/events")).await;
    assert_eq!(events.names(1).await, ["send.queued"]);
    let refused = api.get(&format!("/v1/sends/{send}?wait=1s")).await;
    assert_eq!(refused.problem(429, "limit.exceeded")["retryable"], true);
    assert_eq!(refused.header("retry-after"), Some("1"));
    let refused = api.get(&format!("/v1/sessions/{id}/events")).await;
    refused.problem(429, "limit.exceeded");
    api.get(&format!("/v1/sends/{send}")).await.ok(200);

    // The stream's end frees its place.
    world.complete(&world.claim(&id).await, 0, "done").await;
    events.rest().await;
    while api.get(&format!("/v1/sends/{send}?wait=1s")).await.status == 429 {}
}

#[tokio::test]
async fn too_many_requests_are_refused_but_probes_are_answered() {
    let world = World::new().await;
    let api = world.scheduler_with(|config| config.requests_max = 0).await;
    api.until_ready().await;
    for path in ["/v1/sessions", "/v1/workers", "/v1/info"] {
        let refused = api.get(path).await;
        refused.problem(429, "limit.exceeded");
        assert_eq!(refused.header("retry-after"), Some("1"));
    }
    for path in ["/livez", "/readyz", "/metrics", "/openapi.json"] {
        assert_eq!(api.get(path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn sends_beyond_what_can_be_on_its_way_are_refused() {
    let world = World::new().await;
    let api = world
        .scheduler_with(|config| config.accepting_max = 2)
        .await;
    api.until_ready().await;
    let item = json!({ "input": "hi" });
    let sends = json!({ "sends": [item, item, item] });
    api.post("/v1/sends:batch", &sends)
        .await
        .problem(429, "limit.exceeded");
    api.post("/v1/sends:batch", &json!({ "sends": [item, item] }))
        .await
        .ok(200);
    api.post("/v1/sends", &item).await.ok(202);
}

#[tokio::test]
async fn what_waits_for_the_database_has_bulk_and_lists_refused_early() {
    let (world, faulty) = Faulty::world().await;
    let api = world
        .scheduler_with(|config| config.accepting_max = 1)
        .await;
    api.until_ready().await;
    let item = json!({ "input": "hi" });
    let batch = json!({ "sends": [item] });
    api.post("/v1/sends:batch", &batch).await.ok(200);
    // The send is retried over and over and occupies the only place meanwhile.
    faulty.lock_first(usize::MAX);
    let waits = tokio::spawn(api.call("POST", "/v1/sends").json(&item).send());
    let refused = loop {
        let list = api.get("/v1/sessions").await;
        if list.status == 429 {
            break list;
        }
        tokio::task::yield_now().await;
    };
    refused.problem(429, "limit.exceeded");
    assert_eq!(refused.header("retry-after"), Some("5"));
    let refused = api.post("/v1/sends:batch", &batch).await;
    refused.problem(429, "limit.exceeded");
    assert_eq!(refused.header("retry-after"), Some("10"));
    for path in ["/v1/info", "/v1/queue", "/v1/workers"] {
        assert_eq!(api.get(path).await.status, 200, "{path}");
    }
    faulty.lock_first(0);
    waits.await.expect("joins").ok(202);
    assert_eq!(api.get("/v1/sessions").await.status, 200);
}

#[tokio::test]
async fn many_concurrent_sends_are_all_accepted() {
    let world = Arc::new(World::new().await);
    let api = world.ready().await;
    let calls: Vec<_> = (0..100)
        .map(|n| {
            tokio::spawn(
                api.call("POST", "/v1/sends")
                    .json(&json!({ "input": format!("{n}") }))
                    .send(),
            )
        })
        .collect();
    let mut ids = std::collections::BTreeSet::new();
    for call in calls {
        ids.insert(call.await.expect("joins").ok(202)["id"].to_string());
    }
    assert_eq!(ids.len(), 100);
}

#[tokio::test]
async fn a_page_ends_early_where_its_items_are_large_and_nothing_is_missed() {
    let world = World::new().await;
    let api = world
        .scheduler_with(|config| config.page_bytes_max = 10_000)
        .await;
    api.until_ready().await;
    let session = api.session().await;
    let mut said = Vec::new();
    // One message is larger than a whole page.
    for (n, bytes) in [100, 4_000, 4_000, 30_000, 4_000, 100, 100]
        .iter()
        .enumerate()
    {
        api.send(&session, &format!("question {n}")).await;
        let claimed = world.claim(&session).await;
        said.push(format!("{n} {}", "x".repeat(*bytes)));
        world.complete(&claimed, 0, &said[n]).await;
    }
    let walk = async |path: String| {
        let (mut rows, mut sizes, mut cursor) = (Vec::new(), Vec::new(), String::new());
        loop {
            let answer = api.get(&format!("{path}limit=5{cursor}")).await;
            let size = answer.text.len();
            let page = answer.ok(200);
            let data = page["data"].as_array().expect("a list").clone();
            assert!((1..=5).contains(&data.len()), "{}", data.len());
            assert!(data.len() == 1 || size <= 10_100, "{size}");
            sizes.push(data.len());
            rows.extend(data);
            let Some(next) = page["next_cursor"].as_str() else {
                return (rows, sizes);
            };
            cursor = format!("&cursor={next}");
        }
    };
    let (messages, sizes) = walk(format!("/v1/sessions/{session}/messages?")).await;
    let seqs: Vec<_> = messages
        .iter()
        .filter_map(|row| row["seq"].as_i64())
        .collect();
    assert_eq!(seqs, (1..=14).collect::<Vec<_>>());
    assert!(
        sizes.contains(&5) && sizes.iter().any(|size| *size < 4),
        "{sizes:?}"
    );
    let (sends, sizes) = walk(format!("/v1/sends?session_id={session}&")).await;
    let mut answers: Vec<_> = sends.iter().map(|row| row["output_text"].clone()).collect();
    answers.reverse();
    assert_eq!(json!(answers), json!(said));
    assert!(
        sizes.contains(&1) && sizes.iter().any(|size| *size > 1),
        "{sizes:?}"
    );
}

#[tokio::test]
async fn a_page_may_have_more_items_than_are_read_at_once() {
    let world = World::new().await;
    let api = world.ready().await;
    let mut made = Vec::new();
    for _ in 0..120 {
        made.push(json!(api.session().await));
    }
    made.reverse();
    for (limit, rest) in [(119, 1), (120, 0), (200, 0), (50, 70)] {
        let page = api
            .get(&format!("/v1/sessions?limit={limit}"))
            .await
            .ok(200);
        let ids = page["data"].as_array().expect("a list").iter();
        let ids: Vec<_> = ids.map(|session| session["id"].clone()).collect();
        assert_eq!(ids, made[..120 - rest]);
        let next = if rest > 0 { ids.last().cloned() } else { None };
        assert_eq!(page["next_cursor"], json!(next));
    }
}
