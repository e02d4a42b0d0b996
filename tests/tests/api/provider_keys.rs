//! Tenants' own keys for model providers.

use mainspring_shared::provider_key::PROVIDERS_MAX;
use serde_json::{Value, json};

use crate::access::{ROOT, ask, locked, tenant};
use crate::webhooks::sealing;
use crate::world::World;

const NONE: Value = Value::Null;
const KEY: &str = "sk-0123456789-tail";

fn path(provider: &str) -> String {
    format!("/v1/provider-keys/{provider}")
}

#[tokio::test]
async fn a_key_is_set_listed_and_removed_and_never_shown() {
    let world = sealing().await;
    let api = locked(&world).await;
    let body = json!({ "key": KEY });
    let set = ask(&api, ROOT, "PUT", &path("main"), &body).await.ok(200);
    assert_eq!(
        (&set["provider"], &set["hint"]),
        (&json!("main"), &json!("tail"))
    );
    assert!(!set.to_string().contains(KEY));
    let again = json!({ "key": "short" });
    let again = ask(&api, ROOT, "PUT", &path("main"), &again).await.ok(200);
    assert_eq!(again["hint"], "", "of a short key nothing is shown");
    let list = ask(&api, ROOT, "GET", "/v1/provider-keys", &NONE)
        .await
        .ok(200);
    assert_eq!(list["data"], json!([again]));
    let gone = ask(&api, ROOT, "DELETE", &path("main"), &NONE).await;
    assert_eq!(gone.status, 204);
    let gone = ask(&api, ROOT, "DELETE", &path("main"), &NONE).await;
    gone.problem(404, "provider_key.not_found");
}

#[tokio::test]
async fn a_tenant_has_keys_of_its_own_and_only_its_administrators_see_them() {
    let world = sealing().await;
    let api = locked(&world).await;
    let (_, admin) = tenant(&api, "blue", &["admin"]).await;
    let (_, manager) = tenant(&api, "red", &["manage", "send", "read", "answer"]).await;
    let body = json!({ "key": KEY });
    ask(&api, &admin, "PUT", &path("main"), &body).await.ok(200);
    let list = ask(&api, ROOT, "GET", "/v1/provider-keys", &NONE)
        .await
        .ok(200);
    assert_eq!(list["data"], json!([]), "another tenant's");
    let others = ask(&api, ROOT, "DELETE", &path("main"), &NONE).await;
    others.problem(404, "provider_key.not_found");
    for (method, path, body) in [
        ("GET", "/v1/provider-keys".to_owned(), &NONE),
        ("PUT", path("main"), &body),
        ("DELETE", path("main"), &NONE),
    ] {
        let refused = ask(&api, &manager, method, &path, body).await;
        refused.problem(403, "auth.forbidden");
    }
}

#[tokio::test]
async fn what_cannot_be_kept_or_sent_is_refused_without_repeating_it() {
    let world = sealing().await;
    let api = locked(&world).await;
    for bad in ["", "two words", "line\n", "k\u{e4}y"] {
        let refused = ask(&api, ROOT, "PUT", &path("main"), &json!({ "key": bad })).await;
        let problem = refused.problem(400, "request.invalid");
        assert_eq!(problem["errors"][0]["pointer"], "/key", "{problem}");
        assert!(
            bad.len() < 4 || !problem.to_string().contains(bad),
            "{problem}"
        );
    }
    let refused = ask(&api, ROOT, "PUT", &path("a%2Fb"), &json!({ "key": KEY })).await;
    assert_eq!(
        refused.problem(400, "request.invalid")["errors"][0]["pointer"],
        "/provider"
    );
    for n in 0..PROVIDERS_MAX {
        let path = path(&format!("p{n}"));
        ask(&api, ROOT, "PUT", &path, &json!({ "key": KEY }))
            .await
            .ok(200);
    }
    let refused = ask(&api, ROOT, "PUT", &path("more"), &json!({ "key": KEY })).await;
    refused.problem(409, "provider_key.too_many");
    let replaced = ask(&api, ROOT, "PUT", &path("p0"), &json!({ "key": KEY })).await;
    replaced.ok(200);

    let unsealed = locked(&World::new().await).await;
    let refused = ask(
        &unsealed,
        ROOT,
        "PUT",
        &path("main"),
        &json!({ "key": KEY }),
    )
    .await;
    refused.problem(409, "provider_key.no_seal");
}
