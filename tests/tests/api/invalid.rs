//! Invalid requests are refused with a problem that says where the fault is, and never with a 5xx.

use serde_json::json;

use crate::world::World;

/// Paths, bodies, and where the fault is; `None` if the body is not JSON at all.
#[rustfmt::skip]
const BODIES: &[(&str, &str, Option<&str>)] = &[
    (SENDS, "", None),
    (SENDS, "{", None),
    (SENDS, "null", Some("")),
    (SENDS, "[]", Some("")),
    (SENDS, r#"{"input":"\ud800"}"#, Some("/input")),
    (SENDS, "{\"input\":\"\u{1}\"}", None),
    (SENDS, r#"{"input":"a\u0000"}"#, Some("/input")),
    (SENDS, r#"{"input":[{"type":"image","source":{"type":"base64","media_type":"image/bmp","data":"AAAA"}}]}"#, Some("/input/0/source/media_type")),
    (SENDS, r#"{"input":[{"type":"text","text":"a"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"A"}}]}"#, Some("/input/1/source/data")),
    (SENDS, r#"{"input":[{"type":"image","source":{"type":"url","url":"http://a.example/b"}}]}"#, Some("/input/0/source/url")),
    (SENDS, r#"{"input":[{"type":"image","source":{"type":"url","href":"https://a.example"}}]}"#, Some("/input/0/source/href")),
    (SENDS, r#"{"input":[{"type":"image","source":{"type":"text","text":"a"}}]}"#, Some("/input/0")),
    (SENDS, r#"{"input":[{"type":"image"}]}"#, Some("/input/0")),
    (SENDS, r#"{"input":[{"type":"file","name":"","source":{"type":"text","text":"a"}}]}"#, Some("/input/0/name")),
    (SENDS, r#"{"input":[{"type":"file","name":"a","source":{"type":"text","text":"a\u0000"}}]}"#, Some("/input/0/source/text")),
    (SENDS, r#"{"input":[{"type":"video","text":"a"}]}"#, Some("/input/0/type")),
    (SENDS, r#"{"input":"hi","options":{"model":"a\u0000"}}"#, Some("/options/model")),
    (SENDS, r#"{"input":"hi","options":{"system_prompt":"\u0000"}}"#, Some("/options/system_prompt")),
    (SENDS, r#"{"input":"hi","options":{"output_schema":{"type":"nonsense"}}}"#, Some("/options/output_schema/type")),
    (SENDS, r#"{"input":"hi","options":{"output_schema":{"schema":7}}}"#, Some("/options/output_schema/schema")),
    ("/v1/sessions", r#"{"agent":{"output_schema":{"type":"nonsense"}}}"#, Some("/agent/output_schema/type")),
    (SENDS, r##"{"input":"hi","options":{"output_schema":{"properties":{"a":{"$ref":"#/b"}}}}}"##, Some("/options/output_schema/properties/a/$ref")),
    ("/v1/sessions", r##"{"agent":{"tools":[{"type":"external","name":"a","parameters":{"not":{"$ref":"#"}}}]}}"##, Some("/agent/tools/0/parameters")),
    (SENDS, r#"{"input":"hi","options":{"on_busy":"shout"}}"#, Some("/options/on_busy")),
    (SENDS, r#"{"input":"hi","options":{"tools":[{}]}}"#, Some("/options/tools/0")),
    (SENDS, r#"{"input":"hi","options":{"deadline":"1y"}}"#, Some("/options/deadline")),
    (SENDS, r#"{"input":"hi","session_id":"x"}"#, Some("/session_id")),
    ("/v1/sends", r#"{"input":"hi","idempotency_key":"a"}"#, Some("/idempotency_key")),
    ("/v1/sends", r#"{"input":"hi","session":{"agent":{"x/y~z":1}}}"#, Some("/session/agent/x~1y~0z")),
    ("/v1/sends", r#"{"input":"hi","session":{"agent":{"tools":[{"type":"mcp","server":"a","pool":"B"}]}}}"#, Some("/session/agent/tools/0/pool")),
    ("/v1/sends", r#"{"input":"hi","session":{"agent":{"tools":[{"type":"mcp","server":"a","pool":"x"},{"type":"mcp","server":"b","pool":"y"}]}}}"#, Some("/session/agent/tools/1/pool")),
    ("/v1/sends", r#"{"input":"hi","session":{"agent":{"pool":"x","tools":[{"type":"mcp","server":"a","pool":"y"}]}}}"#, Some("/session/agent/pool")),
    ("/v1/sends", r#"{"input":"hi","session":{"agent":{"temperature":3}}}"#, Some("/session/agent/temperature")),
    ("/v1/sessions", r#"{"agent":{"temperature":1e999}}"#, Some("/agent/temperature")),
    ("/v1/sessions", r#"{"agent":{"recovery":-2.7}}"#, Some("/agent/recovery")),
    ("/v1/timers", r#"{"catch_up":-2.7}"#, Some("/catch_up")),
    ("/v1/timers", r#"{"catch_up":["all"]}"#, Some("/catch_up")),
    ("/v1/sessions", r#"{"agent":{"top_p":1.5}}"#, Some("/agent/top_p")),
    ("/v1/sessions", r#"{"agent":{"stop":["a","b","c","d","e"]}}"#, Some("/agent/stop")),
    ("/v1/sessions", r#"{"agent":{"stop":[""]}}"#, Some("/agent/stop")),
    ("/v1/sessions", r#"{"agent":{"reasoning_effort":"huge"}}"#, Some("/agent/reasoning_effort")),
    ("/v1/sessions", r#"{"agent":{"thinking":{"budget_tokens":1023}}}"#, Some("/agent/thinking/budget_tokens")),
    ("/v1/sessions", r#"{"agent":{"max_tokens":2000,"thinking":{"budget_tokens":2000}}}"#, Some("/agent/thinking/budget_tokens")),
    ("/v1/sessions", r#"{"agent":{"thinking":{"budget_tokens":2000,"depth":1}}}"#, Some("/agent/thinking/depth")),
    ("/v1/sessions", r#"{"agent":{"fallback":["a","b","c","d","e"]}}"#, Some("/agent/fallback")),
    ("/v1/sessions", r#"{"agent":{"fallback":["a",""]}}"#, Some("/agent/fallback/1")),
    ("/v1/sessions", r#"{"agent":{"temperature":-0.1}}"#, Some("/agent/temperature")),
    ("/v1/sessions", r#"{"agent":{"max_rounds":0}}"#, Some("/agent/max_rounds")),
    ("/v1/sessions", r#"{"agent":{"max_rounds":1.5}}"#, Some("/agent/max_rounds")),
    ("/v1/sessions", r#"{"agent":{"max_tokens":99999999999}}"#, Some("/agent/max_tokens")),
    ("/v1/sessions", r#"{"agent":{"context":{"last_messages":0}}}"#, Some("/agent/context/last_messages")),
    ("/v1/sessions", r#"{"agent":{"context":{"first":1}}}"#, Some("/agent/context/first")),
    ("/v1/sessions", r#"{"agent":{"recovery":"maybe"}}"#, Some("/agent/recovery")),
    ("/v1/sessions", r#"{"agent":{"tools":["no such name!"]}}"#, Some("/agent/tools/0")),
    ("/v1/sessions", r#"{"agent":{"tools":[{"type":"http","name":"a","url":"file:///etc/passwd"}]}}"#, Some("/agent/tools/0/url")),
    ("/v1/sessions", r#"{"agent":{"tools":[{"type":"external","name":"a","parameters":{"type":"nonsense"}}]}}"#, Some("/agent/tools/0/parameters/type")),
    ("/v1/sessions", r#"{"agent":{"tools":["core","core"]}}"#, Some("/agent/tools/1")),
    ("/v1/sessions", r#"{"agent":{"budget":{"usd":0}}}"#, Some("/agent/budget/usd")),
    ("/v1/sessions", r#"{"agent":{"budget":{}}}"#, Some("/agent/budget")),
    ("/v1/sessions", r#"{"agent":{"pool":"GPU"}}"#, Some("/agent/pool")),
    ("/v1/sessions", r#"{"agent":{"isolation":"vm"}}"#, Some("/agent/isolation")),
    ("/v1/sessions", r#"{"agent":{"isolation":true}}"#, Some("/agent/isolation")),
    ("/v1/sessions", r#"{"agent":{"name":""}}"#, Some("/agent/name")),
    ("/v1/sessions", r#"{"agent":{"name":"a\u0000"}}"#, Some("/agent/name")),
    ("/v1/sessions", r#"{"agent":"a b"}"#, Some("/agent")),
    ("/v1/sessions", r#"{"metadata":[]}"#, Some("/metadata")),
    ("/v1/sessions", r#"{"metadata":{"a":{"b":["\u0000"]}}}"#, Some("/metadata/a")),
    ("/v1/sessions", r#"{"metadata":{"a":{"b\u0000":1}}}"#, Some("/metadata/a")),
];

/// Placeholder for the path of a session's sends.
const SENDS: &str = "sends";

#[tokio::test]
async fn bodies_that_make_no_sense_are_refused() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    let sends = format!("/v1/sessions/{session}/sends");
    let deep = format!(
        r#"{{"input":"hi","metadata":{}{}}}"#,
        "[".repeat(9_000),
        "]".repeat(9_000)
    );
    let deep_known = format!(
        r#"{{"metadata":{{"a":{}{}}}}}"#,
        "[".repeat(9_000),
        "]".repeat(9_000)
    );
    let large = format!(r#"{{"metadata":{{"a":"{}"}}}}"#, "x".repeat(17_000));
    let generated = [
        (SENDS, deep.as_str(), Some("/metadata")),
        ("/v1/sessions", large.as_str(), Some("/metadata")),
        ("/v1/sessions", deep_known.as_str(), Some("/metadata")),
    ];
    for (path, body, pointer) in BODIES.iter().copied().chain(generated) {
        let path = if path == SENDS { sends.as_str() } else { path };
        let shown = &body[..body.len().min(80)];
        let call = api
            .call("POST", path)
            .header("content-type", "application/json")
            .body(body);
        let problem = call.send().await.problem(400, "request.invalid");
        let found = problem["errors"][0]["pointer"].as_str();
        assert_eq!(found, pointer, "{path} {shown}: {problem}");
    }
    let raw = api
        .call("POST", &sends)
        .header("content-type", "application/json");
    raw.body(b"{\"input\":\"\xff\xfe\"}".to_vec())
        .send()
        .await
        .problem(400, "request.invalid");
}

#[tokio::test]
async fn a_single_fault_is_named_with_its_place() {
    let world = World::new().await;
    let api = world.ready().await;
    let refused = api.post("/v1/sends", &json!({ "input": "" })).await;
    let problem = refused.problem(400, "request.invalid");
    assert_eq!(problem["detail"], "/input: must not be empty");
    assert_eq!(problem["errors"][0]["detail"], "must not be empty");
}

#[tokio::test]
async fn a_spec_that_nests_too_deeply_is_told_so() {
    let world = World::new().await;
    let api = world.ready().await;
    let leaf = r#"{"type":"agent","id":"a","spec":{},"input":"x"}"#;
    let nested = |levels: usize| {
        let open = r#"{"type":"sequence","steps":["#.repeat(levels);
        format!(
            r#"{{"name":"deep","root":{open}{leaf}{}}}"#,
            "]}".repeat(levels)
        )
    };
    for levels in [63, 70, 5_000] {
        for (path, body, at) in [
            (
                "/v1/runs",
                format!(r#"{{"spec":{}}}"#, nested(levels)),
                "/spec",
            ),
            ("/v1/workflows:validate", nested(levels), ""),
        ] {
            let call = api
                .call("POST", path)
                .header("content-type", "application/json");
            let refused = call.body(body).send().await;
            let problem = refused.problem(422, "spec.invalid");
            let pointer = problem["errors"][0]["pointer"].as_str();
            assert!(
                pointer.is_some_and(|p| p.starts_with(at)),
                "{levels} {problem}"
            );
        }
    }
}

#[tokio::test]
async fn every_fault_is_named_at_once() {
    let world = World::new().await;
    let api = world.ready().await;
    let body = json!({ "agent": { "temperature": 9, "pool": "A B", "tools": ["a b"] } });
    let problem = api
        .post("/v1/sessions", &body)
        .await
        .problem(400, "request.invalid");
    assert_eq!(problem["errors"].as_array().map(Vec::len), Some(3));
}

#[tokio::test]
async fn queries_that_make_no_sense_are_refused() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    let cases = [
        ("GET", "/v1/sessions?limit=0".to_owned(), "?limit"),
        ("GET", "/v1/sessions?limit=many".to_owned(), "?limit"),
        ("GET", "/v1/sessions?colour=red".to_owned(), "?colour"),
        ("GET", "/v1/sessions?status=happy".to_owned(), "?status"),
        ("GET", "/v1/sessions?cursor=7".to_owned(), "?cursor"),
        ("GET", "/v1/sessions?agent=%00".to_owned(), "?agent"),
        ("GET", "/v1/sessions?agent=a&agent=b".to_owned(), "?agent"),
        ("GET", "/v1/sends?status=idle".to_owned(), "?status"),
        ("GET", "/v1/sends?cursor=ses_1".to_owned(), "?cursor"),
        ("GET", "/v1/sends?session_id=zz".to_owned(), "?session_id"),
        ("GET", "/v1/runs?session_id=zz".to_owned(), "?session_id"),
        ("GET", "/v1/timers?session_id=zz".to_owned(), "?session_id"),
        (
            "GET",
            format!("/v1/sessions/{session}/messages?after=-1"),
            "?after",
        ),
        (
            "GET",
            format!("/v1/sessions/{session}/messages?after=x"),
            "?after",
        ),
        (
            "GET",
            format!("/v1/sessions/{session}/messages?after=-1&cursor=0"),
            "?after",
        ),
        (
            "GET",
            format!("/v1/sessions/{session}/messages?cursor=-1"),
            "?cursor",
        ),
        (
            "GET",
            format!("/v1/sessions/{session}/messages?folded=perhaps"),
            "?folded",
        ),
        (
            "GET",
            format!("/v1/sessions/{session}/events?after=x"),
            "?after",
        ),
        ("GET", format!("/v1/sessions/{session}?x=1"), "?x"),
        (
            "POST",
            format!("/v1/sessions/{session}/sends?wait=30"),
            "?wait",
        ),
        (
            "POST",
            format!("/v1/sessions/{session}/sends?wait=-1s"),
            "?wait",
        ),
        (
            "POST",
            format!("/v1/sessions/{session}/sends?dry=1"),
            "?dry",
        ),
        ("POST", "/v1/sends:batch?wait=1s".to_owned(), "?wait"),
        ("GET", "/v1/workers?x=1".to_owned(), "?x"),
    ];
    for (method, path, pointer) in cases {
        let call = api
            .call(method, &path)
            .header("content-type", "application/json");
        let answer = call.body(r#"{"input":"hi"}"#).send().await;
        let problem = answer.problem(400, "request.invalid");
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{path}");
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_query_or_a_header_is_said_of_it_by_name() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    let events = format!("/v1/sessions/{session}/events");
    for (call, pointer, detail) in [
        (
            api.call("GET", "/v1/sessions?agent=%00"),
            "?agent",
            "the query parameter agent must not contain U+0000",
        ),
        (
            api.call("GET", "/v1/sessions?metadata.te%00am=x"),
            "?metadata.te\u{fffd}am",
            "the query parameter metadata.te\u{fffd}am must not contain U+0000",
        ),
        (
            api.call("GET", "/v1/memories?q=dog"),
            "?namespace",
            "the query parameter namespace is required with q: the namespace to search",
        ),
        (
            api.call("DELETE", "/v1/memories"),
            "?namespace",
            "the query parameter namespace is required: the namespace to erase",
        ),
        (
            api.call("GET", &events).header("last-event-id", "x"),
            "#last-event-id",
            "the header Last-Event-ID must be an event's id, like 12.0",
        ),
        (
            api.call("POST", "/v1/blobs")
                .header("content-type", "png")
                .body("x"),
            "#content-type",
            "Content-Type must be like image/png",
        ),
    ] {
        let problem = call.send().await.problem(400, "request.invalid");
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
        assert_eq!(problem["detail"], detail);
    }
}

#[tokio::test]
async fn an_encoded_body_is_refused_and_asked_for_unencoded() {
    let world = World::new().await;
    let api = world.ready().await;
    let json = "application/json";
    let post = |path: &str, kind: &str, encoding: &str| {
        let call = api.call("POST", path).header("content-type", kind);
        let call = call.header("content-encoding", encoding);
        call.body(r#"{"input":"hi"}"#).send()
    };
    for (path, kind, encoding) in [
        ("/v1/sends", json, "gzip"),
        ("/v1/sends", json, "identity, br"),
        ("/v1/sends:batch", json, "GZIP"),
        ("/v1/blobs", "text/plain", "zstd"),
        ("/v1/skills", "application/zip", "gzip"),
        ("/v1/sessions:import", "application/x-ndjson", "deflate"),
    ] {
        let refused = post(path, kind, encoding).await;
        let problem = refused.problem(415, "request.unsupported_media_type");
        let error = &problem["errors"][0];
        assert_eq!(error["pointer"], "#content-encoding", "{path}: {problem}");
        let detail = problem["detail"].as_str().expect("a detail");
        assert!(detail.contains("unencoded"), "{detail}");
    }
    assert_eq!(api.get("/v1/sends").await.ok(200)["data"], json!([]));
    post("/v1/sends", json, "Identity").await.ok(202);
}

#[tokio::test]
async fn unknown_paths_and_methods_are_named_as_such() {
    let world = World::new().await;
    let api = world.ready().await;
    for path in [
        "/v1",
        "/v1/",
        "/v2/sessions",
        "/v1/sessions/",
        "/v1/timetables",
        "/%ff",
    ] {
        api.get(path).await.problem(404, "request.not_found");
    }
    for (method, path, allow) in [
        ("PUT", "/v1/sessions", "GET,HEAD,POST"),
        ("GET", "/v1/sends:batch", "POST"),
        ("DELETE", "/v1/sends/x", "GET,HEAD"),
        ("POST", "/livez", "GET,HEAD"),
        ("NONSENSE", "/v1/workers", "GET,HEAD"),
    ] {
        let answer = api.call(method, path).send().await;
        answer.problem(405, "request.method_not_allowed");
        assert_eq!(answer.header("allow"), Some(allow), "{method} {path}");
    }
}

#[tokio::test]
async fn other_kinds_of_content_are_refused() {
    let world = World::new().await;
    let api = world.ready().await;
    for (kind, good) in [
        ("application/json; charset=utf-8", true),
        ("APPLICATION/JSON", true),
        ("application/merge-patch+json", true),
        ("text/plain", false),
        ("application/x-www-form-urlencoded", false),
        ("", false),
    ] {
        let call = api.call("POST", "/v1/sends").header("content-type", kind);
        let answer = call.body(r#"{"input":"hi"}"#).send().await;
        if good {
            answer.ok(202);
        } else {
            answer.problem(415, "request.unsupported_media_type");
        }
    }
    let call = api.call("POST", "/v1/sends").body(r#"{"input":"hi"}"#);
    let refused = call.send().await;
    refused.problem(415, "request.unsupported_media_type");
}

#[tokio::test]
async fn of_a_body_that_may_be_left_out_the_kind_counts_only_where_there_is_one() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    let fork = format!("/v1/sessions/{session}/fork");
    let spec = crate::runs::two_steps();
    let run = crate::runs::started(&api, &json!({ "spec": spec })).await;
    let cancel = format!("{run}/cancel");
    let retry = format!("{run}/retry");
    for (path, status) in [
        ("/v1/sessions", 201),
        (fork.as_str(), 201),
        (&cancel, 202),
        (&retry, 0),
    ] {
        for (kind, body) in [("text/plain", "{}"), ("", "{}")] {
            let call = api.call("POST", path).header("content-type", kind);
            let refused = call.body(body).send().await;
            refused.problem(415, "request.unsupported_media_type");
        }
        let kind = "application/x-www-form-urlencoded";
        let call = api.call("POST", path).header("content-type", kind);
        let answer = call.body("").send().await;
        match status {
            0 => assert!(
                [202, 409].contains(&answer.status),
                "{path}: {}",
                answer.text
            ),
            status => assert_eq!(answer.status, status, "{path}: {}", answer.text),
        }
    }
    // A request that needs a body is refused for its content type even if the body is empty.
    let call = api
        .call("POST", "/v1/sends")
        .header("content-type", "text/plain");
    let refused = call.body("").send().await;
    refused.problem(415, "request.unsupported_media_type");
}

#[tokio::test]
async fn requests_with_nothing_to_say_refuse_a_body() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    let send = api.send(&session, "hi").await;
    for path in [
        format!("/v1/sends/{send}/cancel"),
        format!("/v1/sessions/{session}/resume"),
        format!("/v1/sessions/{session}/abort"),
    ] {
        let answer = api.post(&path, &json!({ "force": true })).await;
        assert_eq!(
            answer.problem(400, "request.invalid")["errors"][0]["pointer"],
            "/force"
        );
    }
    api.post(&format!("/v1/sends/{send}/cancel"), &json!({}))
        .await
        .ok(200);
}

#[tokio::test]
async fn a_problem_leads_to_its_page_of_advice() {
    let world = World::new().await;
    let api = world.ready().await;
    let problem = api
        .get("/v1/nothing")
        .await
        .problem(404, "request.not_found");
    let page = api.get(problem["type"].as_str().expect("a path")).await;
    assert_eq!(page.status, 200);
    assert!(page.text.starts_with("# request.not_found"));
    api.get("/errors/no.such_code")
        .await
        .problem(404, "request.not_found");
}
