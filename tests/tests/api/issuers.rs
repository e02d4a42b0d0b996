//! Tokens signed by identity providers, used in place of API keys.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainspring_api::{Access, Identity, Refused, RootKey, Verifier};
use mainspring_runtime::SystemClock;
use mainspring_shared::tenant::Scopes;
use mainspring_shared::time::{Clock, Timestamp};
use serde_json::{Value, json};

use crate::access::{ROOT, ask, tenant};
use crate::world::{Scheduler, World};

const NONE: Value = Value::Null;

/// Trusts any token of the form `TENANT.SCOPE.SECONDS`.
#[derive(Debug)]
struct Trusting;

#[async_trait]
impl Verifier for Trusting {
    async fn verify(&self, token: &str) -> Result<Identity, Refused> {
        let parts: Vec<&str> = token.split('.').collect();
        let &[tenant, scope, seconds] = parts.as_slice() else {
            return Err(Refused::Invalid("it has another form".to_owned()));
        };
        match tenant {
            "away" => return Err(Refused::Unavailable("nobody answers".to_owned())),
            "bad" => return Err(Refused::Invalid("it is bad".to_owned())),
            _ => {}
        }
        let left: i64 = seconds.parse().unwrap_or(60);
        Ok(Identity {
            tenant: tenant.to_owned(),
            scopes: Scopes::from_text(&scope.replace('+', " ")),
            subject: "ann".to_owned(),
            expires_at: Timestamp(SystemClock::new().now().0 + left * 1_000),
        })
    }

    fn issuers(&self) -> Vec<String> {
        vec!["https://issuer.example".to_owned()]
    }
}

pub(crate) async fn trusting(world: &World) -> Scheduler {
    let access = Access::Keys {
        root: Some(RootKey::new(ROOT)),
        issuers: Some(Arc::new(Trusting)),
    };
    world.ready_for(access).await
}

#[tokio::test]
async fn a_token_acts_for_the_tenant_that_it_names() {
    let world = World::new().await;
    let api = trusting(&world).await;
    let (_, key) = tenant(&api, "blue", &["admin"]).await;
    let (_, red) = tenant(&api, "red", &["admin"]).await;
    let session = ask(&api, &key, "POST", "/v1/sessions", &json!({}))
        .await
        .ok(201);
    let path = format!("/v1/sessions/{}", session["id"].as_str().expect("an id"));
    ask(&api, "blue.read.60", "GET", &path, &NONE).await.ok(200);
    let other = ask(&api, "red.read.60", "GET", &path, &NONE).await;
    other.problem(404, "session.not_found");
    let lacking = ask(&api, "blue.read.60", "POST", "/v1/sessions", &json!({})).await;
    lacking.problem(403, "auth.forbidden");
    // A credential is still required, and API keys are still accepted as such.
    ask(&api, &red, "GET", "/v1/sessions", &NONE).await.ok(200);
    api.get("/v1/sessions").await.problem(401, "auth.missing");
}

#[tokio::test]
async fn what_is_wrong_with_a_token_is_said() {
    let world = World::new().await;
    let api = trusting(&world).await;
    let get = async |token: &str| ask(&api, token, "GET", "/v1/sessions", &NONE).await;
    let unknown = get("green.read.60").await;
    unknown.problem(403, "auth.tenant_unknown");
    let refused = get("bad.read.60").await;
    let problem = refused.problem(401, "auth.invalid");
    assert_eq!(problem["detail"], "the token is refused: it is bad");
    let away = get("away.read.60").await;
    let problem = away.problem(503, "auth.issuer_unavailable");
    assert_eq!(problem["retryable"], true);
    assert!(away.header("retry-after").is_some());
    // The tenant is found within seconds of being created.
    tenant(&api, "green", &["read"]).await;
    for _ in 0..100 {
        if get("green.read.60").await.status == 200 {
            return;
        }
        SystemClock::new().sleep(Duration::from_millis(100)).await;
    }
    panic!("the new tenant is not found");
}

#[tokio::test]
async fn a_token_never_operates_the_system() {
    let world = World::new().await;
    let api = trusting(&world).await;
    let (id, _) = tenant(&api, "blue", &["read"]).await;
    ask(&api, "default.admin.60", "GET", "/v1/keys", &NONE)
        .await
        .ok(200);
    for path in ["/v1/tenants", "/v1/workers", "/v1/queue"] {
        let answer = ask(&api, "default.admin.60", "GET", path, &NONE).await;
        answer.problem(403, "auth.forbidden");
    }
    let call = api
        .call("GET", "/v1/sessions")
        .header("mainspring-tenant", &id);
    let call = call.header("authorization", "Bearer default.admin.60");
    call.send().await.problem(403, "auth.forbidden");
}

#[tokio::test]
async fn a_stream_ends_with_its_token() {
    let world = World::new().await;
    let api = trusting(&world).await;
    tenant(&api, "blue", &["read"]).await;
    let session = ask(&api, "blue.send.60", "POST", "/v1/sessions", &json!({})).await;
    let session = session.ok(201)["id"].as_str().expect("an id").to_owned();
    let stream = api.call("GET", &format!("/v1/sessions/{session}/events"));
    let stream = stream.header("authorization", "Bearer blue.read.1");
    let mut stream = stream.stream().await;
    let limit = tokio::time::Instant::now() + Duration::from_secs(20);
    while !stream.ends_within(Duration::from_millis(200)).await {
        assert!(tokio::time::Instant::now() < limit, "the stream goes on");
        let send = format!("/v1/sessions/{session}/sends");
        let body = json!({ "input": "x" });
        ask(&api, "blue.send.60", "POST", &send, &body)
            .await
            .ok(202);
    }
}
