//! Webhooks and their deliveries.

use std::sync::Arc;

use async_trait::async_trait;
use mainspring_runtime::{OsEntropy, Sealer};
use mainspring_scheduler::services::webhooks::WebhookParts;
use mainspring_shared::webhook::{Outgoing, Posted, Poster};
use serde_json::{Value, json};

use crate::access::{ROOT, ask, locked, tenant};
use crate::world::{Scheduler, World};

const NONE: Value = Value::Null;
const HOOK: &str = "https://a.example/hook";

/// A poster whose endpoints all answer 500, and which rejects one host.
#[derive(Debug)]
struct Failing;

#[async_trait]
impl Poster for Failing {
    fn check(&self, url: &str) -> Result<(), String> {
        if url.contains("inward") {
            Err("its address is in a range that is not allowed".to_owned())
        } else {
            Ok(())
        }
    }

    async fn post(&self, _: Outgoing) -> Posted {
        Posted::Answered {
            status: 500,
            retry_after: None,
        }
    }
}

/// A world whose schedulers can seal secrets, and whose webhook posts reach no real endpoint.
pub(crate) async fn sealing() -> World {
    let mut world = World::new().await;
    let sealer = Sealer::parse(&Sealer::new_key(&OsEntropy)).expect("a key");
    world.webhooks = WebhookParts {
        poster: Some(Arc::new(Failing)),
        sealer: Some(Arc::new(sealer)),
    };
    world
}

async fn created(api: &Scheduler, key: &str) -> Value {
    let body = json!({ "url": HOOK, "events": ["send.*"] });
    ask(api, key, "POST", "/v1/webhooks", &body).await.ok(201)
}

fn path_of(webhook: &Value) -> String {
    format!("/v1/webhooks/{}", webhook["id"].as_str().expect("an id"))
}

#[tokio::test]
async fn a_webhook_is_created_shown_changed_and_deleted() {
    let world = sealing().await;
    let api = locked(&world).await;
    let made = created(&api, ROOT).await;
    let secret = made["secret"].as_str().expect("the secret");
    assert!(
        secret.starts_with("whsec_") && secret.len() == 50,
        "{secret}"
    );
    let path = path_of(&made);
    let shown = ask(&api, ROOT, "GET", &path, &NONE).await.ok(200);
    assert_eq!(shown.get("secret"), None, "it is shown once");
    assert_eq!(
        (&shown["url"], &shown["events"]),
        (&json!(HOOK), &json!(["send.*"]))
    );
    assert_eq!(shown["disabled"], false);
    let list = ask(&api, ROOT, "GET", "/v1/webhooks", &NONE).await.ok(200);
    assert_eq!(list["data"], json!([shown]));
    let change = json!({ "events": ["run.failed", "*"], "disabled": true });
    let changed = ask(&api, ROOT, "PATCH", &path, &change).await.ok(200);
    assert_eq!(changed["events"], json!(["run.failed", "*"]));
    assert_eq!(changed["disabled_reason"], "disabled on request");
    let change = json!({ "disabled": false });
    let changed = ask(&api, ROOT, "PATCH", &path, &change).await.ok(200);
    assert_eq!(
        (&changed["disabled"], &changed["disabled_at"]),
        (&json!(false), &NONE)
    );
    let gone = ask(&api, ROOT, "DELETE", &path, &NONE).await;
    assert_eq!(gone.status, 204);
    for (method, body) in [("GET", NONE), ("PATCH", json!({})), ("DELETE", NONE)] {
        let answer = ask(&api, ROOT, method, &path, &body).await;
        answer.problem(404, "webhook.not_found");
    }
}

#[tokio::test]
async fn a_secret_is_rotated_with_an_overlap_or_brought_along() {
    let world = sealing().await;
    let api = locked(&world).await;
    let own = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let body = json!({ "url": HOOK, "events": ["*"], "secret": own });
    let made = ask(&api, ROOT, "POST", "/v1/webhooks", &body).await.ok(201);
    assert_eq!(made["secret"], own);
    let rotate = format!("{}/rotate", path_of(&made));
    let body = json!({ "overlap": "1h" });
    let rotated = ask(&api, ROOT, "POST", &rotate, &body).await.ok(200);
    assert_ne!(rotated["secret"], own);
    assert!(rotated["previous_until"].is_string(), "{rotated}");
    let at_once = json!({ "overlap": "0ms" });
    let rotated = ask(&api, ROOT, "POST", &rotate, &at_once).await.ok(200);
    assert_eq!(rotated["previous_until"], NONE);
    let long = json!({ "overlap": "31d" });
    let refused = ask(&api, ROOT, "POST", &rotate, &long).await;
    assert_eq!(
        refused.problem(400, "request.invalid")["errors"][0]["pointer"],
        "/overlap"
    );
}

#[tokio::test]
async fn all_that_is_wrong_with_a_webhook_is_pointed_at() {
    let world = sealing().await;
    let api = locked(&world).await;
    let body = json!({
        "url": "x".repeat(2_001), "events": ["send.completed", "sends.*"], "secret": "whsec_short",
    });
    let answer = ask(&api, ROOT, "POST", "/v1/webhooks", &body).await;
    let problem = answer.problem(400, "request.invalid");
    let errors = problem["errors"].as_array().expect("members");
    let mut pointers: Vec<&str> = errors
        .iter()
        .filter_map(|it| it["pointer"].as_str())
        .collect();
    pointers.sort_unstable();
    assert_eq!(pointers, ["/events/1", "/secret", "/url"]);
    let body = json!({ "url": "https://inward.example", "events": ["*"] });
    let answer = ask(&api, ROOT, "POST", "/v1/webhooks", &body).await;
    assert_eq!(
        answer.problem(400, "request.invalid")["errors"][0]["pointer"],
        "/url"
    );
    let body = json!({ "url": HOOK, "events": [] });
    let answer = ask(&api, ROOT, "POST", "/v1/webhooks", &body).await;
    assert_eq!(
        answer.problem(400, "request.invalid")["errors"][0]["pointer"],
        "/events"
    );
}

#[tokio::test]
async fn without_a_key_no_secret_is_kept_and_the_problem_says_how_to_set_one() {
    let mut world = World::new().await;
    world.webhooks = WebhookParts::default();
    let api = locked(&world).await;
    let body = json!({ "url": HOOK, "events": ["*"] });
    let answer = ask(&api, ROOT, "POST", "/v1/webhooks", &body).await;
    let problem = answer.problem(409, "webhook.no_key");
    let detail = problem["detail"].as_str().expect("a detail");
    assert!(detail.contains("MAINSPRING_SECRETS_KEY"), "{detail}");
}

#[tokio::test]
async fn a_repeated_request_creates_one_webhook_and_hides_its_secret() {
    let world = sealing().await;
    let api = locked(&world).await;
    let ask = |url: &'static str| {
        let call = api.call("POST", "/v1/webhooks");
        let call = call.header("authorization", &format!("Bearer {ROOT}"));
        let call = call.header("idempotency-key", "once");
        call.json(&json!({ "url": url, "events": ["*"] })).send()
    };
    let first = ask(HOOK).await.ok(201);
    let again = ask(HOOK).await.ok(201);
    assert_eq!((&again["id"], again.get("secret")), (&first["id"], None));
    let other = ask("https://b.example").await;
    other.problem(422, "idempotency.mismatch");
}

#[tokio::test]
async fn the_end_of_a_send_is_delivered_listed_and_delivered_again() {
    let world = sealing().await;
    let api = locked(&world).await;
    let path = path_of(&created(&api, ROOT).await);
    let session = ask(&api, ROOT, "POST", "/v1/sessions", &json!({}))
        .await
        .ok(201);
    let session = session["id"].as_str().expect("an id").to_owned();
    let send = json!({ "input": "hello" });
    let sends = format!("/v1/sessions/{session}/sends");
    let send = ask(&api, ROOT, "POST", &sends, &send).await.ok(202);
    let claimed = world.claim(&session).await;
    world.complete(&claimed, 0, "done").await;
    let list = format!("{path}/deliveries");
    let delivery = loop {
        let page = ask(&api, ROOT, "GET", &list, &NONE).await.ok(200);
        let found = page["data"][0].clone();
        if found["answer"] == 500 {
            break found;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(delivery["type"], "send.completed");
    assert_eq!(delivery["subject"], send["id"]);
    assert_eq!(
        (&delivery["status"], &delivery["attempts"]),
        (&json!("pending"), &json!(1))
    );
    assert_eq!(delivery["error"], "answered 500");
    let dead = format!("{list}?status=dead");
    let dead = ask(&api, ROOT, "GET", &dead, &NONE).await.ok(200);
    assert_eq!(dead["data"], json!([]));
    let id = delivery["id"].as_str().expect("an id");
    let again = format!("{list}/{id}/redeliver");
    let again = ask(&api, ROOT, "POST", &again, &NONE).await.ok(202);
    assert_eq!(
        (&again["id"], &again["status"]),
        (&delivery["id"], &json!("pending"))
    );
    let unknown = format!("{list}/evt_00000000000000000000000000000001/redeliver");
    let unknown = ask(&api, ROOT, "POST", &unknown, &NONE).await;
    unknown.problem(404, "webhook.delivery_not_found");
}

#[tokio::test]
async fn webhooks_take_their_scopes_and_are_nobody_elses() {
    let world = sealing().await;
    let api = locked(&world).await;
    let (_, blue) = tenant(&api, "blue", &["manage", "read"]).await;
    let (_, green) = tenant(&api, "green", &["manage", "read"]).await;
    let (_, reader) = tenant(&api, "red", &["read"]).await;
    let path = path_of(&created(&api, &blue).await);
    ask(&api, &blue, "GET", &path, &NONE).await.ok(200);
    ask(&api, &reader, "GET", "/v1/webhooks", &NONE)
        .await
        .ok(200);
    let body = json!({ "url": HOOK, "events": ["*"] });
    let refused = ask(&api, &reader, "POST", "/v1/webhooks", &body).await;
    refused.problem(403, "auth.forbidden");
    let event = "evt_00000000000000000000000000000001";
    for (method, path, body) in [
        ("GET", path.clone(), NONE),
        ("PATCH", path.clone(), json!({ "disabled": true })),
        ("DELETE", path.clone(), NONE),
        ("POST", format!("{path}/rotate"), json!({})),
        ("GET", format!("{path}/deliveries"), NONE),
        ("POST", format!("{path}/deliveries/{event}/redeliver"), NONE),
    ] {
        let answer = ask(&api, &green, method, &path, &body).await;
        answer.problem(404, "webhook.not_found");
    }
    let shown = ask(&api, &blue, "GET", &path, &NONE).await.ok(200);
    assert_eq!(
        (&shown["disabled"], &shown["previous_until"]),
        (&json!(false), &NONE)
    );
}
