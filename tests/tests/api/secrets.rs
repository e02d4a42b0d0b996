//! Tenants' secrets for their HTTP tools.

use mainspring_shared::tool::secret::SECRETS_MAX;
use serde_json::{Value, json};

use crate::access::{ROOT, ask, locked, tenant};
use crate::webhooks::sealing;
use crate::world::World;

const NONE: Value = Value::Null;
const VALUE: &str = "ghp_0123456789-tail";

fn path(name: &str) -> String {
    format!("/v1/secrets/{name}")
}

fn body() -> Value {
    json!({ "value": VALUE, "hosts": ["API.example", "http://10.0.0.1:80", "https://api.example:443"] })
}

#[tokio::test]
async fn a_secret_is_set_listed_and_removed_and_nothing_of_it_is_shown() {
    let world = sealing().await;
    let api = locked(&world).await;
    let set = ask(&api, ROOT, "PUT", &path("github"), &body())
        .await
        .ok(200);
    assert_eq!(set["name"], "github");
    assert_eq!(
        set["hosts"],
        json!(["http://10.0.0.1", "https://api.example"])
    );
    let list = ask(&api, ROOT, "GET", "/v1/secrets", &NONE).await.ok(200);
    assert_eq!(list["data"], json!([set]));
    assert_eq!(
        ask(&api, ROOT, "GET", &path("github"), &NONE).await.ok(200),
        set
    );
    for shown in [&set, &list] {
        assert!(!shown.to_string().contains("tail"), "{shown}");
    }
    let gone = ask(&api, ROOT, "DELETE", &path("github"), &NONE).await;
    assert_eq!(gone.status, 204);
    for method in ["GET", "DELETE"] {
        let gone = ask(&api, ROOT, method, &path("github"), &NONE).await;
        gone.problem(404, "secret.not_found");
    }
}

#[tokio::test]
async fn secrets_and_keys_for_providers_do_not_get_in_each_others_way() {
    let world = sealing().await;
    let api = locked(&world).await;
    // One before and one after where the rows of secrets are.
    for provider in ["!first", "main"] {
        let key = json!({ "key": "sk-0123456789-tail" });
        ask(
            &api,
            ROOT,
            "PUT",
            &format!("/v1/provider-keys/{provider}"),
            &key,
        )
        .await
        .ok(200);
        ask(&api, ROOT, "PUT", &path("main"), &body()).await.ok(200);
        ask(&api, ROOT, "PUT", &path("a.b"), &body()).await.ok(200);
    }
    for limit in 1..4 {
        for (list, member, expected) in [
            ("/v1/provider-keys", "provider", ["!first", "main"]),
            ("/v1/secrets", "name", ["a.b", "main"]),
        ] {
            let (mut names, mut cursor) = (Vec::new(), String::new());
            loop {
                let page = format!("{list}?limit={limit}{cursor}");
                let page = ask(&api, ROOT, "GET", &page, &NONE).await.ok(200);
                let items = page["data"].as_array().expect("a list").iter();
                names.extend(items.filter_map(|item| item[member].as_str().map(str::to_owned)));
                match page["next_cursor"].as_str() {
                    Some(next) => cursor = format!("&cursor={next}"),
                    None => break,
                }
            }
            assert_eq!(names, expected, "{list} {limit}");
        }
    }
    let other = "/v1/provider-keys/%2Fmain";
    assert_eq!(ask(&api, ROOT, "DELETE", other, &NONE).await.status, 404);
    let gone = ask(&api, ROOT, "DELETE", &path("main"), &NONE).await;
    assert_eq!(gone.status, 204);
    let key = ask(&api, ROOT, "DELETE", "/v1/provider-keys/main", &NONE).await;
    assert_eq!(key.status, 204);
}

#[tokio::test]
async fn a_tenant_has_secrets_of_its_own_and_only_its_administrators_set_them() {
    let world = sealing().await;
    let api = locked(&world).await;
    let (_, admin) = tenant(&api, "blue", &["admin"]).await;
    let (_, manager) = tenant(&api, "red", &["manage", "send", "read", "answer"]).await;
    ask(&api, &admin, "PUT", &path("github"), &body())
        .await
        .ok(200);
    let list = ask(&api, ROOT, "GET", "/v1/secrets", &NONE).await.ok(200);
    assert_eq!(list["data"], json!([]), "another tenant's");
    for method in ["GET", "DELETE"] {
        let others = ask(&api, ROOT, method, &path("github"), &NONE).await;
        others.problem(404, "secret.not_found");
    }
    for (method, path, body) in [
        ("GET", "/v1/secrets".to_owned(), NONE),
        ("GET", path("github"), NONE),
        ("PUT", path("github"), body()),
        ("DELETE", path("github"), NONE),
    ] {
        let refused = ask(&api, &manager, method, &path, &body).await;
        refused.problem(403, "auth.forbidden");
    }
}

#[tokio::test]
async fn what_cannot_be_kept_is_refused_without_repeating_it() {
    let world = sealing().await;
    let api = locked(&world).await;
    for bad in ["", "short-1", "line-0123456\n", "k\u{e4}y-0123456"] {
        let body = json!({ "value": bad, "hosts": ["api.example"] });
        let refused = ask(&api, ROOT, "PUT", &path("github"), &body).await;
        let problem = refused.problem(400, "request.invalid");
        assert_eq!(problem["errors"][0]["pointer"], "/value", "{problem}");
        assert!(
            bad.is_empty() || !problem.to_string().contains(bad),
            "{problem}"
        );
    }
    for (hosts, pointer) in [
        (json!([]), "/hosts"),
        (json!(["a.example", "*"]), "/hosts/1"),
        (json!(["https://a.example/path"]), "/hosts/0"),
    ] {
        let body = json!({ "value": VALUE, "hosts": hosts });
        let refused = ask(&api, ROOT, "PUT", &path("github"), &body).await;
        assert_eq!(
            refused.problem(400, "request.invalid")["errors"][0]["pointer"],
            pointer
        );
    }
    let refused = ask(&api, ROOT, "PUT", &path("a%2Fb"), &body()).await;
    assert_eq!(
        refused.problem(400, "request.invalid")["errors"][0]["pointer"],
        "/name"
    );
    for n in 0..SECRETS_MAX {
        ask(&api, ROOT, "PUT", &path(&format!("s{n}")), &body())
            .await
            .ok(200);
    }
    let refused = ask(&api, ROOT, "PUT", &path("more"), &body()).await;
    refused.problem(409, "secret.too_many");
    ask(&api, ROOT, "PUT", &path("s0"), &body()).await.ok(200);
    let key = json!({ "key": "sk-0123456789-tail" });
    ask(&api, ROOT, "PUT", "/v1/provider-keys/main", &key)
        .await
        .ok(200);

    let unsealed = locked(&World::new().await).await;
    let refused = ask(&unsealed, ROOT, "PUT", &path("github"), &body()).await;
    refused.problem(409, "secret.no_seal");
}
