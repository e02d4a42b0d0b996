//! Servers that forget the session of a connection, as users of comparable programs have reported them: each in another
//! way. The server is greeted again, and the request that it has not looked at is made once more.

use serde_json::json;

use super::script::{Got, Out, Script, Scripted, error, handshake, result};
use super::*;

/// Ways in which servers say so, and the public report of each.
const WAYS: [&str; 7] = [
    // What the protocol says.
    "404",
    // DAWNCR0W/affine-mcp-server#301, modelcontextprotocol/python-sdk#1004
    "400 and words",
    // aklivity/zilla#2525: 200, an error for an invalid request, and no id.
    "200 and an invalid request",
    // onyx-dot-app/agent-wiki#158: the same with words.
    "200 and words",
    // actionhero/keryx#503: 200, and something that is no message of the protocol.
    "200 and no message",
    // punkpeye/mcp-proxy#108: as if the credentials were wrong.
    "401",
    // modelcontextprotocol/python-sdk#3556: the id of no request.
    "200 and another id",
];

fn said(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

/// A server that has forgotten the session when it is first asked for anything, or always.
fn script(way: &str, request: &Value, times: usize) -> Vec<Out> {
    let (way, always) = match way.strip_suffix(", always") {
        Some(way) => (way, true),
        None => (way, false),
    };
    match request["method"].as_str().expect("a method") {
        "initialize" => {
            let mut said = handshake();
            said["capabilities"]["resources"] = json!({});
            vec![result(request, said)]
        }
        "tools/list" => {
            let tools = ["act", "wait"].map(|name| json!({"name": name}));
            vec![result(request, json!({ "tools": tools }))]
        }
        "tools/call" if request["params"]["name"] == "wait" => vec![
            Out::Await("go".to_owned()),
            result(request, said("at last")),
        ],
        // The call of the other tool counts as well.
        _ if times == usize::from(way == "404 beside another call") || always => refused(way),
        "resources/read" => {
            let text = json!({"contents": [{"uri": "a", "text": "done"}]});
            vec![result(request, text)]
        }
        _ => vec![result(request, said("done"))],
    }
}

fn refused(way: &str) -> Vec<Out> {
    let none = Value::Null;
    match way {
        "400 and words" => {
            let said = "Bad Request: No valid session ID or not an initialize request";
            let said =
                json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": said}});
            vec![Out::Refuse(400, said.to_string())]
        }
        "200 and an invalid request" => vec![error(&none, -32600, "Invalid Request", Value::Null)],
        "200 and words" => {
            let said = "missing or invalid Mcp-Session-Id";
            vec![error(&none, -32600, said, Value::Null)]
        }
        "200 and no message" => vec![Out::Raw(json!({"error": "Session not found"}).to_string())],
        "401" => vec![Out::Refuse(401, "who are you?".to_owned())],
        "200 and another id" => {
            let id = json!("server-error");
            vec![error(&id, -32600, "Session not found", Value::Null)]
        }
        _ => vec![Out::Refuse(404, String::new())],
    }
}

fn count(got: &Got, method: &str) -> usize {
    let got = got.lock().unwrap();
    got.iter()
        .filter(|(_, body)| body["method"] == method)
        .count()
}

/// The sessions that the calls named.
fn named(got: &Got) -> Vec<String> {
    let got = got.lock().unwrap();
    let calls = got
        .iter()
        .filter(|(_, body)| body["method"] == "tools/call");
    let session = |head: &str| {
        let line = head
            .lines()
            .find(|line| line.starts_with("mcp-session-id: "));
        line.unwrap_or_default().to_owned()
    };
    calls.map(|(head, _)| session(head)).collect()
}

#[tokio::test]
async fn a_forgotten_session_is_begun_anew_and_the_call_is_made_once_more() {
    for way in WAYS {
        for as_events in [false, true] {
            let server = Scripted::start(way, script, as_events).await;
            let pool = pool(server.transport(), LONG, LONG);
            let act = tool(&pool, "act").await;
            let over = act.call(invocation(json!({}))).await;
            assert_eq!(text(over), "done", "{way}, events: {as_events}");
            assert_eq!(count(&server.got, "initialize"), 2, "{way}");
            let named = named(&server.got);
            assert_eq!(named.len(), 2, "{way}");
            assert!(
                named[0] != named[1] && !named[0].is_empty(),
                "{way}: {named:?}"
            );
            // What it refuses later is told, without a new session.
            let over = act.call(invocation(json!({}))).await;
            assert_eq!(text(over), "done", "{way}");
            assert_eq!(count(&server.got, "initialize"), 2, "{way}");
        }
    }
}

#[tokio::test]
async fn a_server_that_knows_no_session_at_all_is_not_asked_again_and_again() {
    for way in WAYS {
        for as_events in [false, true] {
            let server = Scripted::start(&format!("{way}, always"), script, as_events).await;
            let pool = pool(server.transport(), LONG, LONG);
            let (code, message) = refusal(call(&pool, "act", json!({})).await);
            let expected = "the tool was not reached: its server does not know the session";
            assert_eq!((code, &*message), (Code::ToolFailed, expected), "{way}");
            assert_eq!(count(&server.got, "tools/call"), 2, "{way}");
            assert_eq!(count(&server.got, "initialize"), 2, "{way}");
        }
    }
}

#[tokio::test]
async fn a_forgotten_session_takes_no_other_call_away() {
    let server = Scripted::start("404 beside another call", script, true).await;
    let pool = pool(server.transport(), LONG, LONG);
    let (act, wait) = (tool(&pool, "act").await, tool(&pool, "wait").await);
    let waits = tokio::spawn(async move { wait.call(invocation(json!({}))).await });
    while count(&server.got, "tools/call") == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(text(act.call(invocation(json!({}))).await), "done");
    assert_eq!(count(&server.got, "initialize"), 2);
    let go = (String::new(), json!({"id": "go", "result": {}}));
    server.got.lock().unwrap().push(go);
    assert_eq!(text(waits.await.unwrap()), "at last");
}

#[tokio::test]
async fn a_resource_is_read_in_a_new_session() {
    for way in WAYS {
        let server = Scripted::start(way, script, false).await;
        let pool = pool(server.transport(), LONG, LONG);
        let wanted = McpTools {
            resources: true,
            ..wanted("", None)
        };
        let tools = pool.tools(&wanted).await.unwrap();
        let read = tools
            .iter()
            .find(|tool| tool.spec().name == "read_resource");
        let read = read.expect("a tool");
        let over = read.call(invocation(json!({"uri": "a"}))).await;
        assert_eq!(text(over), "[a]\ndone", "{way}");
        assert_eq!(count(&server.got, "initialize"), 2, "{way}");
    }
}

#[tokio::test]
async fn a_tool_that_says_so_of_a_session_of_its_own_has_answered() {
    let own: Script = |_, request, times| match request["method"].as_str() {
        Some("tools/call") => {
            let id = &request["id"];
            vec![error(
                id,
                -32000,
                "Session not found: browser 7",
                Value::Null,
            )]
        }
        _ => script("404", request, times + 1),
    };
    for as_events in [false, true] {
        let server = Scripted::start("", own, as_events).await;
        let pool = pool(server.transport(), LONG, LONG);
        let (_, message) = refusal(call(&pool, "act", json!({})).await);
        assert!(message.contains("browser 7"), "{message}");
        assert_eq!(count(&server.got, "tools/call"), 1);
    }
}
