//! Servers that misbehave, each in one way, over every transport: what they do right is used, and
//! whatever they do, a call ends within its limit.

use mainspring_runtime::SystemClock;
use mainspring_shared::time::Clock as _;
use serde_json::json;

use super::script::{Out, Scripted, error, handshake, notice, over_stdio, result};
use super::*;

/// The limit of calls: short, because servers that never answer are waited for.
const LIMIT: Duration = Duration::from_millis(900);

/// How much later than its limit a call may end on a busy machine.
const SLACK: Duration = Duration::from_secs(20);

/// How a call of the tool `act` ends.
#[derive(Debug)]
enum Ends {
    /// With this text.
    Says(&'static str),
    /// With an error that contains this text.
    Fails(&'static str),
    /// In either way, depending on the transport.
    Somehow,
    /// Nothing of the server can be used; the reason contains this text.
    Unusable(&'static str),
}

/// Every way, and how a call of the tool `act` ends.
const WAYS: &[(&str, Ends)] = &[
    ("does as it should", Ends::Says("done")),
    ("schema null", Ends::Says("done")),
    ("schema true", Ends::Says("done")),
    ("schema missing", Ends::Says("done")),
    ("schema of an array", Ends::Says("done")),
    ("tool without name", Ends::Says("done")),
    ("tool named by a number", Ends::Says("done")),
    ("tool is null", Ends::Says("done")),
    ("annotations of a wrong type", Ends::Says("done")),
    ("icons of a wrong type", Ends::Says("done")),
    ("output schema of a wrong type", Ends::Says("done")),
    ("meta of a wrong type", Ends::Says("done")),
    ("outside reference in a schema", Ends::Says("done")),
    ("empty cursor", Ends::Says("done")),
    ("cursor that does not move", Ends::Says("done")),
    ("cursor of a wrong type", Ends::Says("done")),
    ("odd handshake", Ends::Says("done")),
    ("future version", Ends::Unusable("2099-01-01")),
    ("old version", Ends::Says("done")),
    ("handshake refused", Ends::Unusable("refuses")),
    ("list refused", Ends::Unusable("not today")),
    ("list of a wrong type", Ends::Unusable("")),
    (
        "unknown content",
        Ends::Says("seen[content of an unsupported kind: hologram]"),
    ),
    ("content of a wrong type", Ends::Says("done")),
    ("odd members of a block", Ends::Says("done")),
    ("odd structured content", Ends::Says("done[1]")),
    ("structured and other text", Ends::Says("2 found{\"n\":2}")),
    ("is error of a wrong type", Ends::Says("done")),
    ("empty result", Ends::Says("")),
    ("null result", Ends::Says("")),
    ("lone surrogate", Ends::Says("a\u{fffd}")),
    ("error without id", Ends::Somehow),
    ("error with another id", Ends::Somehow),
    ("400 without id", Ends::Somehow),
    ("400 as text", Ends::Somehow),
    ("500 as text", Ends::Somehow),
    ("session forgotten", Ends::Somehow),
    ("error without message", Ends::Fails("error -3")),
    (
        "a person must open an address",
        Ends::Fails("https://pay.example/1"),
    ),
    ("result of another request", Ends::Fails("")),
    ("nonsense", Ends::Fails("")),
    ("half an answer", Ends::Fails("")),
    ("deep answer", Ends::Fails("")),
    ("huge answer", Ends::Fails("")),
    ("never answers", Ends::Fails("900ms")),
    ("dies", Ends::Fails("")),
    ("answers twice", Ends::Says("done")),
    ("asks for sampling first", Ends::Somehow),
    ("asks something unknown first", Ends::Somehow),
    ("progress of nobody", Ends::Says("done")),
    ("progress of a wrong type", Ends::Says("done")),
    ("unknown notices", Ends::Says("done")),
    ("storm of changes", Ends::Says("done")),
];

fn said(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

/// The script of every way.
pub(crate) fn script(way: &str, request: &Value, times: usize) -> Vec<Out> {
    match request["method"].as_str().unwrap_or_default() {
        "initialize" => initialized(way, request),
        "tools/list" => listed(way, request),
        "tools/call" => called(way, request, times),
        _ => vec![error(&request["id"], -32601, "not here", Value::Null)],
    }
}

fn initialized(way: &str, request: &Value) -> Vec<Out> {
    let mut said = handshake();
    match way {
        "odd handshake" => {
            said = json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": true,
                "logging": 7, "resources": []}, "serverInfo": {"icons": "x"}, "_meta": 3});
        }
        "future version" => said["protocolVersion"] = json!("2099-01-01"),
        "old version" => said["protocolVersion"] = json!("2024-10-07"),
        "handshake refused" => return vec![error(&request["id"], -1, "go away", Value::Null)],
        _ => {}
    }
    vec![result(request, said)]
}

fn listed(way: &str, request: &Value) -> Vec<Out> {
    let good = json!({"name": "act", "inputSchema": {"type": "object"}});
    let odd = |members: Value| {
        let mut tool = json!({"name": "odd", "inputSchema": {"type": "object"}});
        for (name, value) in members.as_object().expect("an object") {
            tool[name] = value.clone();
        }
        tool
    };
    let second = match way {
        "schema null" => odd(json!({"inputSchema": null})),
        "schema true" => odd(json!({"inputSchema": true})),
        "schema missing" => json!({"name": "odd"}),
        "schema of an array" => odd(json!({"inputSchema": {"type": "array"}})),
        "tool without name" => json!({"inputSchema": {"type": "object"}}),
        "tool named by a number" => odd(json!({"name": 7})),
        "tool is null" => Value::Null,
        "annotations of a wrong type" => odd(json!({"annotations": {"readOnlyHint": "yes"}})),
        "icons of a wrong type" => odd(json!({"icons": "x"})),
        "output schema of a wrong type" => odd(json!({"outputSchema": 7})),
        "meta of a wrong type" => odd(json!({"_meta": "x"})),
        "outside reference in a schema" => {
            odd(json!({"inputSchema": {"$ref": "https://schemas.example/x.json"}}))
        }
        _ => odd(json!({})),
    };
    let cursor = request["params"]["cursor"].as_str();
    let page = match (way, cursor) {
        ("list refused", _) => return vec![error(&request["id"], -1, "not today", Value::Null)],
        ("list of a wrong type", _) => json!({"tools": "all of them"}),
        ("empty cursor", None) => json!({"tools": [second], "nextCursor": ""}),
        ("cursor that does not move", None) => json!({"tools": [second], "nextCursor": "x"}),
        ("cursor that does not move", Some(_)) => json!({"tools": [good], "nextCursor": "x"}),
        ("cursor of a wrong type", _) => json!({"tools": [second, good], "nextCursor": 2}),
        (_, Some(_)) => json!({"tools": [good]}),
        (_, None) => json!({"tools": [second, good], "_meta": {"x": 1}}),
    };
    vec![result(request, page)]
}

#[expect(clippy::too_many_lines, reason = "one line or two for each way")]
fn called(way: &str, request: &Value, times: usize) -> Vec<Out> {
    let answer = |said: Value| vec![result(request, said)];
    let id_less = |code: i64, message: &str| error(&Value::Null, code, message, Value::Null);
    let text = |out: Out| match out {
        Out::Say(message) => message.to_string(),
        other => panic!("{other:?}"),
    };
    let asks = |method: &str| {
        Out::Say(json!({"jsonrpc": "2.0", "id": "s1", "method": method, "params": {}}))
    };
    match way {
        "unknown content" => answer(json!({"content": [
            {"type": "text", "text": "seen"}, {"type": "hologram"}]})),
        "content of a wrong type" => answer(json!({"content": "done"})),
        "odd members of a block" => answer(json!({"content": [
            {"type": "text", "text": "done", "annotations": "x", "_meta": 7}], "_meta": []})),
        "odd structured content" => {
            answer(json!({"content": [{"type": "text", "text": "done"}], "structuredContent": [1]}))
        }
        "structured and other text" => answer(json!({
            "content": [{"type": "text", "text": "2 found"}], "structuredContent": {"n": 2}})),
        "is error of a wrong type" => {
            answer(json!({"content": [{"type": "text", "text": "done"}], "isError": "no"}))
        }
        "empty result" => answer(json!({})),
        "null result" => answer(Value::Null),
        "lone surrogate" => {
            let said = text(result(request, said("a?"))).replace("a?", "a\\ud83d");
            vec![Out::Raw(said + "\n")]
        }
        "error without id" => vec![id_less(-32603, "no id")],
        "error with another id" => vec![error(&json!("server-error"), -1, "no", Value::Null)],
        "400 without id" => vec![Out::Refuse(400, text(id_less(-32600, "Bad Request: no")))],
        "400 as text" => vec![Out::Refuse(400, "go away".to_owned())],
        "500 as text" => vec![Out::Refuse(500, "oops".to_owned())],
        "session forgotten" if times == 0 => {
            let said = "Bad Request: Server not initialized";
            vec![Out::Refuse(400, text(id_less(-32000, said)))]
        }
        "error without message" => vec![error(&request["id"], -3, "", Value::Null)],
        "a person must open an address" => {
            let url = json!({"elicitations": [{"mode": "url", "elicitationId": "1",
                "url": "https://pay.example/1", "message": "Pay first."}]});
            vec![error(
                &request["id"],
                -32042,
                "URL elicitation required",
                url,
            )]
        }
        "result of another request" => {
            vec![Out::Say(
                json!({"jsonrpc": "2.0", "id": 999, "result": said("not yours")}),
            )]
        }
        "nonsense" => vec![Out::Raw("]garbage[\n".to_owned())],
        "half an answer" => {
            let said = text(result(request, said("half")));
            vec![Out::Raw(said[..said.len() / 2].to_owned()), Out::Die]
        }
        "deep answer" => {
            let deep = "[".repeat(5_000) + &"]".repeat(5_000);
            let id = &request["id"];
            vec![Out::Raw(format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{deep}}}\n"
            ))]
        }
        "huge answer" => answer(said(&"x".repeat(17 << 20))),
        "never answers" => vec![Out::Hang],
        "dies" => vec![Out::Die],
        "answers twice" => [answer(said("done")), answer(said("again"))].concat(),
        "asks for sampling first" => vec![
            asks("sampling/createMessage"),
            result(request, said("done")),
        ],
        "asks something unknown first" => vec![asks("x/unknown"), result(request, said("done"))],
        "progress of nobody" => {
            let nobody = json!({"progressToken": "nobody", "progress": 1});
            vec![
                notice("notifications/progress", nobody),
                result(request, said("done")),
            ]
        }
        "progress of a wrong type" => {
            let wrong = json!({"progressToken": [], "progress": "much"});
            vec![
                notice("notifications/progress", wrong),
                result(request, said("done")),
            ]
        }
        "unknown notices" => {
            vec![
                notice("notifications/x", json!({"y": 1})),
                result(request, said("done")),
            ]
        }
        "storm of changes" => {
            let mut outs = vec![notice("notifications/tools/list_changed", json!({})); 200];
            outs.push(result(request, said("done")));
            outs
        }
        _ => answer(said("done")),
    }
}

/// Checks one server.
async fn checked(which: &str, transport: Transport, ends: &Ends) {
    let pool = pool(transport, LIMIT, LONG);
    let clock = SystemClock::new();
    let started = clock.monotonic();
    let listed = match (tools(&pool).await, ends) {
        (Err(error), Ends::Unusable(why)) => {
            assert!(error.to_string().contains(why), "{which}: {error}");
            return;
        }
        (Ok(listed), Ends::Unusable("")) => {
            assert!(listed.is_empty(), "{which}: {listed:?}");
            return;
        }
        (listed, _) => listed.unwrap_or_else(|error| panic!("{which}: {error}")),
    };
    let act = listed
        .get("act")
        .unwrap_or_else(|| panic!("{which}: {listed:?}"));
    let over = act.call(invocation(json!({}))).await;
    let took = clock.monotonic().saturating_sub(started);
    assert!(took < LIMIT + SLACK, "{which}: took {took:?}");
    match (over, ends) {
        (Ok(output), Ends::Says(text)) => {
            let parts = output.content.iter();
            let said: String = parts
                .map(|part| plain_text(std::slice::from_ref(part)))
                .collect();
            assert_eq!(said, *text, "{which}");
        }
        (Err(ToolError::Reply { message, .. }), Ends::Fails(text)) => {
            assert!(message.contains(text), "{which}: {message}");
        }
        (Ok(_) | Err(ToolError::Reply { .. }), Ends::Somehow) => {}
        (over, _) => panic!("{which}: {over:?}"),
    }
    // Whatever happened, the server's list is there for the next send.
    assert!(tools(&pool).await.is_ok(), "{which}: no list any longer");
}

#[tokio::test]
async fn every_misbehaviour_over_stdio_costs_no_more_than_itself() {
    for (way, ends) in WAYS {
        checked(&format!("{way}, stdio"), over_stdio(way), ends).await;
    }
}

#[tokio::test]
async fn every_misbehaviour_over_http_with_json_costs_no_more_than_itself() {
    for (way, ends) in WAYS {
        let server = Scripted::start(way, script, false).await;
        checked(&format!("{way}, JSON"), server.transport(), ends).await;
    }
}

#[tokio::test]
async fn every_misbehaviour_over_http_with_events_costs_no_more_than_itself() {
    for (way, ends) in WAYS {
        let server = Scripted::start(way, script, true).await;
        checked(&format!("{way}, events"), server.transport(), ends).await;
    }
}

/// The outcome of `act`, and how often it was called.
async fn over_http(way: &str, as_events: bool) -> (Result<Output, ToolError>, usize, Duration) {
    let server = Scripted::start(way, script, as_events).await;
    let pool = pool(server.transport(), LONG, LONG);
    let act = tool(&pool, "act").await;
    let clock = SystemClock::new();
    let started = clock.monotonic();
    let over = act.call(invocation(json!({}))).await;
    let got = server.got.lock().unwrap();
    let calls = got
        .iter()
        .filter(|(_, body)| body["method"] == "tools/call");
    let took = clock.monotonic().saturating_sub(started);
    (over, calls.count(), took)
}

#[tokio::test]
async fn a_refused_post_fails_its_call_at_once() {
    for way in [
        "400 without id",
        "400 as text",
        "error without id",
        "error with another id",
    ] {
        for as_events in [false, true] {
            let (over, calls, took) = over_http(way, as_events).await;
            let (_, message) = refusal(over);
            assert!(message.starts_with("the tool refuses"), "{way}: {message}");
            assert_eq!(calls, 1, "{way}");
            assert!(took < LONG / 2, "{way}: {took:?}");
        }
    }
}

#[tokio::test]
async fn a_server_that_has_forgotten_the_session_is_greeted_again_and_asked_once_more() {
    let (over, calls, took) = over_http("session forgotten", false).await;
    assert_eq!(text(over), "done");
    assert_eq!(calls, 2);
    assert!(took < LONG / 2, "{took:?}");
}

#[tokio::test]
async fn a_cursor_that_does_not_move_is_followed_once() {
    let server = Scripted::start("cursor that does not move", script, false).await;
    let pool = pool(server.transport(), LONG, LONG);
    assert_eq!(tools(&pool).await.unwrap().len(), 2);
    let got = server.got.lock().unwrap();
    let pages = got
        .iter()
        .filter(|(_, body)| body["method"] == "tools/list");
    assert_eq!(pages.count(), 2);
}

#[tokio::test]
async fn the_version_that_was_agreed_on_is_sent_with_each_request() {
    let server = Scripted::start("does as it should", script, false).await;
    let pool = pool(server.transport(), LONG, LONG);
    assert_eq!(text(call(&pool, "act", json!({})).await), "done");
    let got = server.got.lock().unwrap();
    for (head, body) in got
        .iter()
        .filter(|(_, body)| body["method"] != "initialize")
    {
        let says = format!("{head}\r\n").contains("mcp-protocol-version: 2025-06-18\r\n");
        assert!(says, "{body}: {head}");
    }
}
