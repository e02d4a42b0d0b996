//! What web pages can do to the API: nothing, unless their origin is configured.

use serde_json::json;

use crate::client::Answer;
use crate::world::{Scheduler, World};

async fn ask(api: &Scheduler, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut call = api.call(method, path);
    for (name, value) in headers {
        call = match *name {
            "host" => call.named(value),
            name => call.header(name, value),
        };
    }
    if method == "POST" {
        call = call.body(r#"{"input":"hi"}"#);
    }
    call.send().await
}

#[tokio::test]
async fn a_page_that_somebody_opens_cannot_use_the_server() {
    let world = World::new().await;
    let api = world.ready().await;
    let evil = ("origin", "https://evil.example");
    // Requests that a page may send without a preflight: no content type, or a simple one.
    for kind in [None, Some("text/plain"), Some("application/json")] {
        let mut headers = vec![("host", "localhost:7464"), evil];
        headers.extend(kind.map(|kind| ("content-type", kind)));
        let refused = ask(&api, "POST", "/v1/sends", &headers).await;
        refused.problem(403, "request.origin_not_allowed");
        assert_eq!(refused.header("access-control-allow-origin"), None);
    }
    let picture = [
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-mode", "no-cors"),
    ];
    let refused = ask(&api, "GET", "/v1/sends", &picture).await;
    refused.problem(403, "request.origin_not_allowed");
    let asked = [evil, ("access-control-request-method", "POST")];
    let refused = ask(&api, "OPTIONS", "/v1/sends", &asked).await;
    refused.problem(403, "request.origin_not_allowed");
    // DNS rebinding: a page whose own host name resolves to this server.
    let rebound = [
        ("host", "evil.example:7464"),
        ("sec-fetch-site", "same-origin"),
    ];
    let refused = ask(&api, "GET", "/v1/sends", &rebound).await;
    refused.problem(421, "request.host_not_allowed");
    assert_eq!(api.get("/v1/sends").await.ok(200)["data"], json!([]));
    // Probes are answered under any host name.
    assert_eq!(ask(&api, "GET", "/readyz", &rebound).await.status, 200);
}

#[tokio::test]
async fn a_body_says_what_it_is() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    for path in [
        "/v1/sends".to_owned(),
        "/v1/sends:batch".to_owned(),
        "/v1/sessions:import".to_owned(),
        format!("/v1/sessions/{session}/abort"),
    ] {
        let refused = ask(&api, "POST", &path, &[]).await;
        let refused = refused.problem(415, "request.unsupported_media_type");
        assert_eq!(refused["errors"][0]["pointer"], "#content-type", "{path}");
        let other = ("content-type", "application/json; charset=UTF-16");
        let refused = ask(&api, "POST", &path, &[other]).await;
        refused.problem(415, "request.unsupported_media_type");
    }
}

#[tokio::test]
async fn utf_8_is_read_with_and_without_its_names_and_mark() {
    let world = World::new().await;
    let api = world.ready().await;
    for kind in ["", ";charset=utf-8", "; Charset=\"UTF-8\""] {
        for mark in ["", "\u{feff}"] {
            for (path, body, status) in [
                ("/v1/sessions", r#"{"metadata":{"a":"é"}}"#, 201),
                ("/v1/sends:batch", r#"{"sends":[{"input":"é"}]}"#, 200),
                (
                    "/v1/responses",
                    r#"{"model":"demo","input":"é","background":true}"#,
                    200,
                ),
                ("/mcp", r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, 200),
            ] {
                let call = api.call("POST", path);
                let call = call.header("content-type", &format!("application/json{kind}"));
                let answer = call.body(format!("{mark}{body}")).send().await;
                assert_eq!(answer.status, status, "{path}{kind}{mark}: {}", answer.text);
            }
        }
    }
}

#[tokio::test]
async fn pages_of_a_configured_origin_and_names_of_a_configured_host_are_served() {
    let world = World::new().await;
    let api = world
        .scheduler_with(|config| {
            config.allowed_origins = vec!["https://app.example.com".to_owned()];
            config.allowed_hosts = vec!["mainspring.example.com".to_owned()];
        })
        .await;
    api.until_ready().await;
    let here = ("host", "mainspring.example.com");
    let app = ("origin", "https://app.example.com");
    let asked = [here, app, ("access-control-request-method", "POST")];
    let answer = ask(&api, "OPTIONS", "/v1/sends", &asked).await;
    assert_eq!(answer.status, 204, "{}", answer.text);
    let origin = |answer: &Answer| {
        answer
            .header("access-control-allow-origin")
            .map(str::to_owned)
    };
    assert_eq!(origin(&answer).as_deref(), Some("https://app.example.com"));
    let methods = answer.header("access-control-allow-methods");
    assert!(methods.is_some_and(|methods| methods.contains("POST")));
    let said = answer.header("access-control-allow-headers");
    assert!(said.is_some_and(|said| said.contains("idempotency-key")));

    let json = ("content-type", "application/json");
    let sent = ask(&api, "POST", "/v1/sends", &[here, app, json]).await;
    assert_eq!(origin(&sent).as_deref(), Some("https://app.example.com"));
    assert_eq!(sent.header("vary"), Some("origin"));
    sent.ok(202);
    // The page can read problems, too.
    let problem = ask(&api, "GET", "/v1/sends/x", &[here, app]).await;
    assert!(origin(&problem).is_some());
    problem.problem(404, "send.not_found");
    // A page served by this server itself.
    let own = ("origin", "https://mainspring.example.com");
    ask(&api, "POST", "/v1/sends", &[here, own, json])
        .await
        .ok(202);
}
