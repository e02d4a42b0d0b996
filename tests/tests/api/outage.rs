//! A database outage: it is reported and waited out, and work continues afterwards.

use mainspring_runtime::OsEntropy;
use mainspring_shared::agent::{AgentSpec, SendOptions};
use mainspring_shared::entropy::Entropy;
use mainspring_shared::id::SendId;
use mainspring_shared::message::ContentPart;
use mainspring_shared::send::WaitingOn;
use mainspring_shared::store::{AcceptOutcome, AcceptSend, NewSession, Parent, Target};
use serde_json::{Map, json};

use crate::faulty::Faulty;
use crate::world::{Scheduler, World, key};

#[tokio::test]
async fn every_request_says_that_the_database_is_away() {
    let (world, store) = Faulty::world().await;
    let api = world.ready().await;
    let session = api.session().await;
    let send = api.send(&session, "hi").await;
    store.set_unavailable(true);
    for (method, path) in [
        ("GET", "/readyz".to_owned()),
        ("GET", "/v1/info".to_owned()),
        ("GET", "/v1/sessions".to_owned()),
        ("POST", "/v1/sessions".to_owned()),
        ("GET", format!("/v1/sessions/{session}")),
        ("PATCH", format!("/v1/sessions/{session}")),
        ("DELETE", format!("/v1/sessions/{session}")),
        ("GET", format!("/v1/sessions/{session}/messages")),
        ("GET", format!("/v1/sessions/{session}/events")),
        ("POST", format!("/v1/sessions/{session}/resume")),
        ("POST", format!("/v1/sessions/{session}/abort")),
        ("GET", "/v1/sends".to_owned()),
        ("GET", format!("/v1/sends/{send}")),
        ("GET", format!("/v1/sends/{send}?wait=1s")),
        ("GET", format!("/v1/sends/{send}/events")),
        ("POST", format!("/v1/sends/{send}/cancel")),
        ("GET", "/v1/workers".to_owned()),
        ("GET", "/v1/queue".to_owned()),
        ("GET", "/v1/scaling/default".to_owned()),
    ] {
        let call = api.call(method, &path);
        let call = if method == "PATCH" {
            call.json(&json!({}))
        } else {
            call
        };
        let refused = call.send().await;
        assert_eq!(
            refused.problem(503, "store.unavailable")["retryable"],
            true,
            "{method} {path}"
        );
        assert_eq!(refused.header("retry-after"), Some("1"), "{method} {path}");
        assert!(
            !refused.text.contains("cable"),
            "the driver's words stay inside"
        );
    }
    for path in [
        format!("/v1/sessions/{session}/sends"),
        "/v1/sends".to_owned(),
    ] {
        let refused = api.post(&path, &json!({ "input": "hi" })).await;
        refused.problem(503, "store.unavailable");
    }
    let batch = api
        .post("/v1/sends:batch", &json!({ "sends": [{ "input": "hi" }] }))
        .await;
    assert_eq!(
        batch.ok(200)["results"][0]["problem"]["code"],
        "store.unavailable"
    );
    assert_eq!(api.get("/livez").await.status, 200);

    store.set_unavailable(false);
    api.until_ready().await;
    api.send(&session, "again").await;
}

#[tokio::test]
async fn who_waits_and_who_reads_outlast_an_outage() {
    let (world, store) = Faulty::world().await;
    let api = world.ready().await;
    let session = api.session().await;
    let path = format!("/v1/sessions/{session}/sends?wait=20s");
    let call = api.call("POST", &path).json(&json!({ "input": "hi" }));
    let waiting = tokio::spawn(call.send());
    // The waiting request is already set up when the send appears.
    let claimed = loop {
        let sends = api.get("/v1/sends").await.ok(200);
        if sends["data"]
            .as_array()
            .is_some_and(|sends| !sends.is_empty())
        {
            break world.claim(&session).await;
        }
    };
    let send = claimed.send.record.id;
    let mut events = api.events(&format!("/v1/sends/{send}/events")).await;
    assert_eq!(events.names(1).await, ["send.queued"]);
    let (_, step) = world.complete_silently(&claimed, 0, "hello").await;
    store.set_unavailable(true);
    world.publish(&claimed, step, true);
    api.get(&format!("/v1/sends/{send}"))
        .await
        .problem(503, "store.unavailable");
    store.set_unavailable(false);
    let answer = waiting.await.expect("joins").ok(200);
    assert_eq!(answer["output_text"], "hello");
    assert_eq!(
        events.rest().await.last().expect("events").name,
        "send.completed"
    );
}

#[tokio::test]
async fn a_scheduler_starts_before_its_database() {
    let (world, store) = Faulty::world().await;
    store.set_unavailable(true);
    let api = world.scheduler().await;
    assert_eq!(api.get("/livez").await.status, 200);
    api.get("/readyz").await.problem(503, "store.unavailable");
    store.set_unavailable(false);
    // Until it has registered, it reports that it cannot accept.
    loop {
        let answer = api.post("/v1/sends", &json!({ "input": "hi" })).await;
        if answer.status == 202 {
            break;
        }
        answer.problem(503, "store.unavailable");
    }
    api.until_ready().await;
}

/// A send that waits past its deadline, and the send of a child that works for one of its calls.
async fn late_with_child(world: &World, api: &Scheduler, ms: u64) -> (String, String) {
    let above = api.session().await;
    let path = format!("/v1/sessions/{above}/sends");
    let body = json!({ "input": "go", "options": { "deadline": format!("{ms}ms") } });
    api.post(&path, &body).await.ok(202);
    let claimed = world.claim(&above).await;
    let call = world.ask(&claimed, WaitingOn::Agent, false).await;
    let child = AcceptSend {
        id: SendId(OsEntropy.random_id()),
        target: Target::New(Box::new(NewSession {
            key: key(&format!("ses_{}", OsEntropy.random_id().simple())),
            agent: AgentSpec::default(),
            metadata: Map::new(),
            parent: Some(Parent {
                session: key(&above).session,
                call_id: call.clone(),
                root: key(&above).session,
                depth: 1,
            }),
        })),
        input: vec![ContentPart::text("help")],
        options: SendOptions::default(),
        reports_to: Some(call),
        run: None,
        idempotency: None,
        queued_max: 10,
        keeper: None,
    };
    let (above, below) = (claimed.send.record.id, child.id);
    let accepted = world.store.accept_sends(world.boot, vec![child]);
    let accepted = accepted.await.expect("the store answers");
    assert!(matches!(accepted[0], AcceptOutcome::Accepted(_)));
    (above.to_string(), below.to_string())
}

async fn until(api: &Scheduler, send: &str, status: &str) {
    let path = format!("/v1/sends/{send}?wait=20s");
    assert_eq!(api.get(&path).await.ok(200)["status"], status);
}

#[tokio::test]
async fn what_works_for_a_send_that_is_late_ends_once_the_database_is_back() {
    let (world, store) = Faulty::world().await;
    let api = world.ready().await;
    store.fail_next("list_children", 5);
    let (above, below) = late_with_child(&world, &api, 100).await;
    until(&api, &above, "failed").await;
    until(&api, &below, "cancelled").await;
    assert!(store.calls("list_children") > 5);
}

#[tokio::test]
async fn a_session_that_cannot_be_read_keeps_no_other_from_its_end() {
    let (world, store) = Faulty::world().await;
    let api = world.ready().await;
    store.corrupt_next("list_children", 1);
    let (above, _) = late_with_child(&world, &api, 50).await;
    until(&api, &above, "failed").await;
    let (above, below) = late_with_child(&world, &api, 50).await;
    until(&api, &above, "failed").await;
    until(&api, &below, "cancelled").await;
}
