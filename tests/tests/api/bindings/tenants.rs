//! Resources of another tenant do not exist, whatever the request.

use std::collections::BTreeSet;

use mainspring_shared::id::SessionKey;
use mainspring_shared::send::WaitingOn;
use serde_json::{Value, json};

use super::{NONE, Resources, finds_nothing, made, operations, publish};
use crate::access::{ask, locked, tenant};
use crate::webhooks::sealing;
use crate::world::{Scheduler, World};

/// Lists of a tenant's resources, besides what the paths name.
const LISTS: [&str; 12] = [
    "/v1/sessions",
    "/v1/sends",
    "/v1/timers",
    "/v1/runs",
    "/v1/memories",
    "/v1/agents",
    "/v1/skills",
    "/v1/webhooks",
    "/v1/pauses",
    "/v1/provider-keys",
    "/v1/secrets",
    "/v1/models",
];

fn key_of(tenant: &str, session: &str) -> SessionKey {
    SessionKey {
        tenant: tenant.parse().expect("a tenant's id"),
        session: session.parse().expect("a session's id"),
    }
}

/// Makes a call that waits for a human, in the tenant's session.
async fn waiting(world: &World, tenant: &str, resources: &Resources) -> String {
    let claimed = world.claim_of(key_of(tenant, &resources.0[0].1)).await;
    world.ask(&claimed, WaitingOn::Human, false).await
}

/// A send that ended, in a session of its own, and its webhook delivery.
async fn delivered(
    world: &World,
    api: &Scheduler,
    tenant: &str,
    key: &str,
    webhook: &str,
) -> (String, String) {
    let session = made(api, key, "/v1/sessions", &json!({ "agent": "other" })).await;
    let sends = format!("/v1/sessions/{session}/sends");
    let send = made(api, key, &sends, &json!({ "input": "hi" })).await;
    let claimed = world.claim_of(key_of(tenant, &session)).await;
    world.complete(&claimed, 0, "done").await;
    let list = format!("/v1/webhooks/{webhook}/deliveries");
    loop {
        let page = ask(api, key, "GET", &list, &NONE).await.ok(200);
        // Wait for the first attempt, so that it is not looked at while in flight.
        if page["data"][0]["answer"] == 500 {
            let delivery = page["data"][0]["id"].as_str().expect("an id").to_owned();
            return (send, delivery);
        }
        tokio::task::yield_now().await;
    }
}

async fn stored(api: &Scheduler, key: &str) -> String {
    let call = api.call("POST", "/v1/blobs");
    let call = call.header("authorization", &format!("Bearer {key}"));
    let call = call.header("content-type", "text/plain");
    let answer = call.body(b"a secret of blue's").send().await.ok(201);
    answer["sha256"].as_str().expect("a hash").to_owned()
}

/// Everything a tenant sees of its own, through requests that name something and through lists.
async fn seen(api: &Scheduler, key: &str, resources: &Resources) -> Vec<(String, String)> {
    let mut seen = Vec::new();
    let reads = operations().into_iter().filter(|(method, path)| {
        // Streams do not end, a context needs a worker, and only the operator sees tenants. What
        // they show is also shown by other requests.
        let is_left = path.ends_with("/events") || path.ends_with("/context");
        method == "GET" && !is_left && !path.starts_with("/v1/tenants/")
    });
    let named = reads.filter_map(|(_, path)| resources.fill_path(&path));
    for path in named.chain(LISTS.map(str::to_owned)) {
        let answer = ask(api, key, "GET", &path, &NONE).await;
        let mut text = answer.text.clone();
        if path.ends_with("/deliveries") {
            // Deliveries are retried in the background, so compare only what does not change.
            let page: Value = answer.ok(200);
            let items = page["data"].as_array().expect("a list").iter();
            let items = items.map(|it| format!("{} {}", it["id"], it["type"]));
            text = items.collect::<Vec<_>>().join("\n");
        }
        seen.push((path, format!("{} {text}", answer.status)));
    }
    seen
}

#[tokio::test]
async fn another_tenants_things_are_not_found_by_any_request() {
    let world = sealing().await;
    let api = locked(&world).await;
    let (blue_id, blue) = tenant(&api, "blue", &["admin"]).await;
    let (_, red) = tenant(&api, "red", &["admin"]).await;
    publish(&api, &blue, "other").await;
    let mut resources = Resources::of(&api, &blue, "other", "2").await;
    let live = json!({ "version": 1 });
    let alias = "/v1/agents/other/aliases/live";
    ask(&api, &blue, "PUT", alias, &live).await.ok(200);
    let call = waiting(&world, &blue_id, &resources).await;
    let webhook = resources.placeholder("/v1/webhooks/{id}");
    let (ended, delivery) = delivered(&world, &api, &blue_id, &blue, webhook).await;
    let api_key = json!({ "name": "app", "scopes": ["read"] });
    let api_key = made(&api, &blue, "/v1/keys", &api_key).await;
    let provider = json!({ "key": "sk-0123456789-blue" });
    let set = ask(&api, &blue, "PUT", "/v1/provider-keys/main", &provider).await;
    assert_eq!(set.ok(200)["hint"], "blue");
    let secret = json!({ "value": "sk-0123456789-blue", "hosts": ["blue.example"] });
    let set = ask(&api, &blue, "PUT", "/v1/secrets/hook", &secret).await;
    assert_eq!(set.ok(200)["hosts"], json!(["https://blue.example"]));
    let completion = format!("chatcmpl-{}", &ended[ended.len() - 32..]);
    resources.0.pop();
    resources.0.extend([
        ("/v1/chat/completions/{id}", completion),
        ("{call_id}", call),
        ("{delivery_id}", delivery),
        ("/v1/keys/{id}", api_key),
        ("/v1/provider-keys/{provider}", "main".to_owned()),
        ("/v1/secrets/{name}", "hook".to_owned()),
        ("/v1/blobs/{sha256}", stored(&api, &blue).await),
        ("/v1/tenants/{id}", blue_id.clone()),
    ]);
    // Only paths that name nothing of a tenant are left out.
    let unnamed = operations().into_iter().filter_map(|(_, path)| {
        let is_left = path.contains('{') && resources.fill_path(&path).is_none();
        is_left.then(|| path.trim_start_matches("/v1").to_owned())
    });
    let unnamed: BTreeSet<String> = unnamed
        .filter_map(|path| path.split('/').nth(1).map(str::to_owned))
        .collect();
    let system = ["errors", "pools", "providers", "scaling", "tools"];
    // They name the same sends and sessions, and answer in another form: see `a2a`, `ag_ui` and `mcp`.
    let in_another_form = ["a2a", "ag-ui"];
    let left = system.into_iter().chain(in_another_form);
    assert_eq!(unnamed, left.map(str::to_owned).collect());

    let before = seen(&api, &blue, &resources).await;
    // Everything is there, except the output of the call that is still pending.
    let absent = before.iter().filter(|(_, text)| !text.starts_with("200 "));
    let absent: Vec<_> = absent
        .map(|(path, _)| path.rsplit('/').next().unwrap_or_default())
        .collect();
    assert_eq!(absent, ["output"]);
    finds_nothing(&api, &red, &resources, false).await;
    let after = seen(&api, &blue, &resources).await;
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before, after);
    }
    assert_eq!(before.len(), after.len());
    // The key that red tried to revoke still works.
    let keys = ask(&api, &blue, "GET", "/v1/keys", &NONE).await.ok(200);
    let app = keys["data"].as_array().expect("a list").iter();
    let app: Vec<_> = app.filter(|key| key["name"] == "app").collect();
    assert_eq!((app.len(), &app[0]["revoked_at"]), (1, &NONE), "{keys}");
}
