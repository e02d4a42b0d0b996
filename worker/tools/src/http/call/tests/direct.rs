//! Calls of APIs that know nothing of tools: where arguments and secrets go, and that no secret comes back.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mainspring_shared::tool::secret::{Held, origin};

use super::*;
use crate::http::Vault;

const SECRET: &str = "sk-live/0123+456789";

#[expect(
    clippy::needless_pass_by_value,
    reason = "tests give it what they make"
)]
fn tool(url: &str, request: Value) -> HttpTool {
    let tool = json!({ "name": "look", "url": url, "request": request });
    serde_json::from_value(tool).expect("a tool")
}

/// A world whose vault has this secret, for these servers.
fn keeping(value: &str, servers: &[&Server]) -> World {
    let hosts = servers
        .iter()
        .map(|server| origin(&format!("http://{}", server.address)));
    let held = Held {
        value: value.to_owned(),
        hosts: hosts.map(|host| host.expect("an origin")).collect(),
    };
    let settings = CallerSettings {
        allow_private: vec!["127.0.0.0/8".to_owned()],
        answer_bytes_max: 20_000,
        vault: Vault::given(BTreeMap::from([("key".to_owned(), held)])),
        ..CallerSettings::default()
    };
    world_with(&settings, &[])
}

impl World {
    async fn ask(&self, tool: &HttpTool, arguments: Value) -> Result<Output, ToolError> {
        let invocation = Invocation {
            arguments: arguments.as_object().expect("an object").clone(),
            said: None,
            ..invocation()
        };
        self.caller.tool(tool).call(invocation).await
    }
}

fn at(server: &Server, path: &str) -> String {
    format!("http://{}{path}", server.address)
}

fn shown(result: &Result<Output, ToolError>) -> String {
    match result {
        Ok(output) => plain_text(&output.content),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn a_call_is_the_request_that_its_tool_declares() {
    let server = Server::start(vec![Act::with(200, "", "done")]).await;
    let world = world(LOCAL, &[]);
    let request = json!({
        "method": "PUT",
        "query": { "dry": "{dry}" },
        "headers": { "X-Trace": "t-{trace}" },
    });
    let put = tool(&at(&server, "/items/{id}"), request);
    let arguments = json!({ "id": "a b/c", "dry": true, "trace": 7, "name": "x" });
    assert_eq!(world.ask(&put, arguments).await, Ok(Output::text("done")));
    let get = tool(&at(&server, "/items"), json!({}));
    assert_eq!(
        world.ask(&get, json!({ "q": "ä" })).await,
        Ok(Output::text("done"))
    );
    let requests = server.requests();
    assert_eq!(requests[0].line, "PUT /items/a%20b%2Fc?dry=true HTTP/1.1");
    assert_eq!(requests[0].body, br#"{"name":"x"}"#);
    assert_eq!(requests[0].header("x-trace"), Some("t-7"));
    assert_eq!(requests[0].header("content-type"), Some("application/json"));
    assert_eq!(requests[0].header("idempotency-key"), Some("call_7_0_0"));
    assert_eq!(requests[1].line, "GET /items?q=%C3%A4 HTTP/1.1");
    for name in [
        "idempotency-key",
        "webhook-id",
        "webhook-signature",
        "content-type",
    ] {
        assert_eq!(requests[1].header(name), None, "{name}");
    }
}

#[tokio::test]
async fn no_argument_leaves_its_place_and_what_does_not_fit_is_not_sent() {
    let server = Server::start(vec![Act::with(200, "", "done")]).await;
    let world = world(LOCAL, &[]);
    let request = json!({ "query": { "q": "{q}" }, "headers": { "X-A": "{header}" } });
    let get = tool(&at(&server, "/users/{id}/pets"), request);
    for (id, header) in [
        ("..", "x"),
        ("../../admin", "x"),
        ("a\\..\\b", "x"),
        ("a\r\nX-B: 1", "x"),
        ("", "x"),
        ("1", "x\r\nX-B: 1"),
        ("1", "\u{e4}"),
    ] {
        let asked = world
            .ask(&get, json!({ "id": id, "header": header, "q": "" }))
            .await;
        let (code, message) = refusal(asked);
        assert_eq!(code, Code::ToolFailed, "{message}");
        assert!(
            message.starts_with("the tool cannot be called: its argument"),
            "{message}"
        );
    }
    assert_eq!(server.connections(), 0);
    let arguments = json!({ "id": "?x=1#y", "q": "1&admin=1\r\nX-B: 1#", "header": "a: b" });
    world.ask(&get, arguments).await.expect("an answer");
    let requests = server.requests();
    let line = "GET /users/%3Fx%3D1%23y/pets?q=1%26admin%3D1%0D%0AX-B%3A%201%23 HTTP/1.1";
    assert_eq!(requests[0].line, line);
    assert_eq!(requests[0].header("x-b"), None);
}

#[tokio::test]
async fn every_way_in_is_sent_as_it_should_be_and_none_comes_back() {
    let basic = |login: &str| format!("Basic {}", STANDARD.encode(login));
    let ways = [
        (
            SECRET,
            json!({ "auth": { "type": "bearer", "secret": "key" } }),
            "authorization",
            format!("Bearer {SECRET}"),
        ),
        (
            SECRET,
            json!({ "auth": { "type": "basic", "user": "me", "secret": "key" } }),
            "authorization",
            basic(&format!("me:{SECRET}")),
        ),
        (
            "name:pass-word",
            json!({ "auth": { "type": "basic", "secret": "key" } }),
            "authorization",
            basic("name:pass-word"),
        ),
        (
            SECRET,
            json!({ "auth": { "type": "api_key", "name": "X-Key", "secret": "key" } }),
            "x-key",
            SECRET.to_owned(),
        ),
        (
            SECRET,
            json!({ "auth": { "type": "api_key", "in": "query", "name": "k", "secret": "key" } }),
            "",
            String::new(),
        ),
        (
            SECRET,
            json!({ "headers": { "X-Key": { "secret": "key", "prefix": "token " } } }),
            "x-key",
            format!("token {SECRET}"),
        ),
    ];
    for (value, request, header, sent) in ways {
        for status in [200, 404] {
            let server = Server::start(vec![Act::Echo(status)]).await;
            let world = keeping(value, &[&server]);
            let said = shown(
                &world
                    .ask(&tool(&at(&server, "/x"), request.clone()), json!({}))
                    .await,
            );
            let asked = server.requests().remove(0);
            if header.is_empty() {
                assert_eq!(asked.line, "GET /x?k=sk-live%2F0123%2B456789 HTTP/1.1");
            } else {
                assert_eq!(asked.header(header), Some(sent.as_str()), "{request}");
            }
            assert!(said.contains("[redacted]"), "{request}: {said}");
            let hex = |text: &str| {
                let digits = text.bytes().map(|byte| format!("{byte:02x}"));
                digits.collect::<Vec<_>>().concat()
            };
            let password = value
                .split_once(':')
                .map_or(value, |(_, password)| password);
            for part in [value, password] {
                let encoded = part.replace('/', "%2F").replace('+', "%2B");
                for form in [part.to_owned(), STANDARD.encode(part), hex(part), encoded] {
                    assert!(
                        !said.contains(form.trim_end_matches('=')),
                        "{request} {form}: {said}"
                    );
                }
            }
            assert!(
                !said.contains(
                    sent.split(' ')
                        .next_back()
                        .filter(|sent| !sent.is_empty())
                        .unwrap_or("-\0")
                ),
                "{request}: {said}"
            );
        }
    }
}

#[tokio::test]
async fn a_secret_goes_to_its_own_hosts_only_and_one_that_is_missing_is_named() {
    let server = Server::start(vec![Act::Echo(200)]).await;
    let other = Server::start(vec![Act::Echo(200)]).await;
    let world = keeping(SECRET, &[&other]);
    for request in [
        json!({ "auth": { "type": "bearer", "secret": "key" } }),
        json!({ "headers": { "X-Key": { "secret": "key" } } }),
        json!({ "auth": { "type": "oauth", "token_url": at(&server, "/token"), "client_id": "me", "secret": "key" } }),
    ] {
        let (_, message) = refusal(
            world
                .ask(&tool(&at(&server, "/x"), request), json!({}))
                .await,
        );
        assert!(
            message.contains("may not be sent to http://127.0.0.1"),
            "{message}"
        );
    }
    // Neither may the place that gives tokens for a host be another one.
    let oauth = json!({ "auth": { "type": "oauth", "token_url": at(&server, "/token"), "client_id": "me", "secret": "key" } });
    let (_, message) = refusal(world.ask(&tool(&at(&other, "/x"), oauth), json!({})).await);
    assert!(message.contains("may not be sent to"), "{message}");
    let missing = json!({ "auth": { "type": "bearer", "secret": "nobody" } });
    let (_, message) = refusal(
        world
            .ask(&tool(&at(&other, "/x"), missing), json!({}))
            .await,
    );
    assert!(
        message.contains("there is no secret named \"nobody\""),
        "{message}"
    );
    assert_eq!((server.connections(), other.connections()), (0, 0));
}

fn token(value: &str, lasts: u64) -> Act {
    let body = json!({ "access_token": value, "token_type": "Bearer", "expires_in": lasts });
    Act::with(200, "content-type: application/json\r\n", &body.to_string())
}

fn oauth(api: &Server, giver: &Server) -> HttpTool {
    let auth = json!({
        "type": "oauth", "token_url": at(giver, "/token"), "client_id": "me", "secret": "key",
        "scopes": ["a", "b"], "audience": "them",
    });
    tool(&at(api, "/x"), json!({ "auth": auth }))
}

#[tokio::test]
async fn a_token_is_kept_till_it_expires_and_asked_for_by_one_call_at_a_time() {
    let api = Server::start(vec![Act::with(200, "", "done")]).await;
    let giver = Server::start(vec![token("token-one", 3_600), token("token-two", 3_600)]).await;
    let world = keeping(SECRET, &[&api, &giver]);
    let tool = oauth(&api, &giver);
    let calls = (0..8).map(|_| world.ask(&tool, json!({})));
    for done in futures::future::join_all(calls).await {
        assert_eq!(done, Ok(Output::text("done")));
    }
    let asked = giver.requests();
    assert_eq!(asked.len(), 1);
    let form = String::from_utf8_lossy(&asked[0].body).into_owned();
    assert_eq!(
        form,
        "audience=them&grant_type=client_credentials&scope=a+b"
    );
    let login = format!("Basic {}", STANDARD.encode(format!("me:{SECRET}")));
    assert_eq!(asked[0].header("authorization"), Some(login.as_str()));
    let sent = |request: &server::Received| request.header("authorization").map(str::to_owned);
    assert!(
        api.requests()
            .iter()
            .all(|it| sent(it).as_deref() == Some("Bearer token-one"))
    );
    world.clock.sleep(Duration::from_hours(1)).await;
    world.ask(&tool, json!({})).await.expect("an answer");
    assert_eq!(giver.requests().len(), 2);
    assert_eq!(
        api.requests().last().and_then(sent).as_deref(),
        Some("Bearer token-two")
    );
}

#[tokio::test]
async fn a_token_that_is_refused_is_asked_for_once_more() {
    let api = Server::start(vec![
        Act::status(401),
        Act::with(200, "", "done"),
        Act::Echo(401),
    ])
    .await;
    let giver = Server::start(vec![
        token("token-one", 3_600),
        token("token-two", 3_600),
        token("token-3/+x", 3_600),
    ])
    .await;
    let world = keeping(SECRET, &[&api, &giver]);
    let tool = oauth(&api, &giver);
    assert_eq!(world.ask(&tool, json!({})).await, Ok(Output::text("done")));
    assert_eq!((api.requests().len(), giver.requests().len()), (2, 2));
    // Whoever refuses every token is not asked for ever.
    let said = shown(&world.ask(&tool, json!({})).await);
    assert_eq!((api.requests().len(), giver.requests().len()), (4, 3));
    assert!(
        said.contains("401") && said.contains("[redacted]"),
        "{said}"
    );
    for token in ["token-two", "token-3", SECRET] {
        assert!(!said.contains(token), "{said}");
    }
}

#[tokio::test]
async fn whoever_gives_no_token_is_told_of_without_the_secret() {
    let refusing = json!({ "error": format!("invalid_client {SECRET}") }).to_string();
    let long = json!({ "access_token": "x".repeat(20_000) }).to_string();
    let refused = "content-type: application/json\r\n";
    for (act, is_refused) in [
        (Act::with(400, refused, &refusing), true),
        (Act::with(401, refused, &refusing), true),
        (Act::with(200, refused, &refusing), true),
        (Act::with(429, refused, &refusing), false),
        (Act::with(503, refused, &refusing), false),
        (Act::with(200, refused, &long), false),
        (Act::with(200, "", "<html>"), false),
        (Act::Close, false),
        (Act::Torn, false),
    ] {
        let api = Server::start(vec![Act::with(200, "", "done")]).await;
        let giver = Server::start(vec![act]).await;
        let world = keeping(SECRET, &[&api, &giver]);
        let (_, message) = refusal(world.ask(&oauth(&api, &giver), json!({})).await);
        assert!(message.contains("there is no token for it"), "{message}");
        assert!(!message.contains(SECRET), "{message}");
        // Another attempt would be refused, too.
        assert_eq!(!message.contains("attempts"), is_refused, "{message}");
        assert_eq!(api.connections(), 0);
    }
}

#[tokio::test]
async fn what_is_busy_is_asked_again_but_never_what_may_happen_twice() {
    for (method, status, asked) in [
        ("GET", 503, 3),
        ("GET", 429, 3),
        ("GET", 502, 3),
        ("GET", 504, 3),
        ("GET", 500, 1),
        ("GET", 501, 1),
        ("PUT", 503, 3),
        ("DELETE", 429, 3),
        ("POST", 503, 1),
        ("POST", 429, 1),
        ("PATCH", 504, 1),
    ] {
        let server = Server::start(vec![Act::with(status, "retry-after: 2\r\n", "busy")]).await;
        let world = world(LOCAL, &[]);
        let tool = tool(&at(&server, "/x"), json!({ "method": method }));
        let (_, message) = refusal(world.ask(&tool, json!({})).await);
        assert!(
            message.contains(&format!("answered {status}: busy")),
            "{message}"
        );
        assert_eq!(server.requests().len(), asked, "{method} {status}");
        let waits = world.clock.waits();
        let is_told = matches!(status, 429 | 503);
        assert!(
            !is_told || waits.iter().all(|wait| *wait == Duration::from_secs(2)),
            "{waits:?}"
        );
    }
    // What was declared otherwise is done otherwise.
    let server = Server::start(vec![Act::status(503)]).await;
    let world = world(LOCAL, &[]);
    let once = HttpTool {
        repeat: Some(Repeat::Once),
        ..tool(&at(&server, "/x"), json!({}))
    };
    refusal(world.ask(&once, json!({})).await);
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_part_of_the_answer_is_picked_as_it_was_written() {
    let kind = "content-type: application/json\r\n";
    let body = r#"{"data": {"a/b": [1, {"wei": 25000000000000000001, "b": 1.10}]}}"#;
    for (pointer, expected) in [
        (
            "/data/a~1b/1",
            Some(r#"{"wei":25000000000000000001,"b":1.10}"#),
        ),
        ("/data/a~1b/0", Some("1")),
        ("/data/none", None),
        ("/data/a~1b/9", None),
        ("/data/a~1b/0/x", None),
    ] {
        let server = Server::start(vec![Act::with(200, kind, body)]).await;
        let world = world_with(
            &CallerSettings {
                allow_private: vec!["127.0.0.1".to_owned()],
                ..CallerSettings::default()
            },
            &[],
        );
        let tool = tool(&at(&server, "/x"), json!({ "pointer": pointer }));
        let said = world.ask(&tool, json!({})).await;
        match expected {
            Some(expected) => assert_eq!(shown(&said), expected),
            None => assert_eq!(
                shown(&said),
                format!("the tool answered, but there is nothing at {pointer} in its answer")
            ),
        }
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn a_secret_that_is_quoted_in_json_or_at_a_cut_does_not_come_back() {
    let escaped = SECRET.chars().map(|c| format!("\\u{:04x}", u32::from(c)));
    let escaped = escaped.collect::<Vec<_>>().concat();
    let slashes = SECRET.replace('/', "\\/");
    let kind = "content-type: application/json\r\n";
    let long = format!("{}{SECRET}", "x".repeat(20_000 - 9));
    for (headers, body) in [
        (kind, format!("{{\"you\": [\"sent {escaped}\"], \"n\": 1}}")),
        (kind, format!("{{\"{escaped}\": \"{slashes}\"}}")),
        (kind, format!("{{\"a\": \"{slashes}")),
        ("", long),
    ] {
        for status in [200, 401] {
            let server = Server::start(vec![Act::with(status, headers, &body)]).await;
            let world = keeping(SECRET, &[&server]);
            let tool = tool(
                &at(&server, "/x"),
                json!({ "auth": { "type": "bearer", "secret": "key" } }),
            );
            let said = shown(&world.ask(&tool, json!({})).await);
            assert!(
                !said.contains("sk-live") && !said.contains(&escaped),
                "{status}: {}",
                &said[said.len().saturating_sub(200)..]
            );
        }
    }
}
