//! Calls that a server works on as tasks.

use mainspring_worker::tool::Kept;
use serde_json::json;

use super::script::{Out, Scripted, error, handshake, over_stdio, result};
use super::*;

/// A server whose tool `act` is a task: its state depends on the way and on how often it was asked.
pub(crate) fn script(way: &str, request: &Value, times: usize) -> Vec<Out> {
    let task = |status: &str| {
        json!({"taskId": "t-1", "status": status, "statusMessage": format!("asked {times} times"),
            "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z",
            "ttl": null, "pollInterval": 500})
    };
    let done = json!({"content": [{"type": "text", "text": "done"}]});
    match request["method"].as_str().expect("a method") {
        "initialize" => {
            let mut said = handshake();
            said["capabilities"]["tasks"] =
                json!({"cancel": {}, "requests": {"tools": {"call": {}}}});
            vec![result(request, said)]
        }
        "tools/list" => {
            let tool = |name: &str, support: &str| {
                json!({"name": name, "inputSchema": {"type": "object"},
                    "execution": {"taskSupport": support}})
            };
            let tools = [tool("act", "optional"), tool("plain", "forbidden")];
            vec![result(request, json!({ "tools": tools }))]
        }
        "tools/call" if request["params"]["task"].is_object() => {
            vec![result(request, json!({ "task": task("working") }))]
        }
        "tasks/get" => match way {
            "task that never ends" => vec![result(request, task("working"))],
            "task that fails" => vec![result(request, task("failed"))],
            "task that is cancelled" => vec![result(request, task("cancelled"))],
            "task that is forgotten" => {
                vec![error(&request["id"], -32602, "no such task", Value::Null)]
            }
            "task of a server that comes and goes" if times == 0 => vec![Out::Die],
            _ if times < 3 => vec![result(request, task("working"))],
            _ => vec![result(request, task("completed"))],
        },
        "tasks/result" if way == "task that fails" => {
            vec![error(&request["id"], -1, "it went wrong", Value::Null)]
        }
        "tools/call" | "tasks/result" => vec![result(request, done)],
        "tasks/cancel" => vec![result(request, task("cancelled"))],
        _ => vec![error(&request["id"], -32601, "not here", Value::Null)],
    }
}

fn asked(server: &Scripted, method: &str) -> usize {
    let got = server.got.lock().unwrap();
    got.iter()
        .filter(|(_, body)| body["method"] == method)
        .count()
}

#[tokio::test]
async fn a_task_is_asked_for_until_it_has_its_result_on_both_transports() {
    let server = Scripted::start("task", script, true).await;
    for transport in [server.transport(), over_stdio("task")] {
        let pool = pool(transport, LONG, LONG);
        assert_eq!(text(call(&pool, "act", json!({})).await), "done");
        assert_eq!(text(call(&pool, "plain", json!({})).await), "done");
    }
    assert_eq!(asked(&server, "tasks/get"), 4);
    assert_eq!(asked(&server, "tools/call"), 2);
}

#[tokio::test]
async fn a_task_is_taken_up_by_its_handle_and_not_begun_again() {
    let server = Scripted::start("task", script, false).await;
    let pool = pool(server.transport(), LONG, LONG);
    let act = tool(&pool, "act").await;
    let left = Invocation {
        kept: Kept::left(json!({"mcp_task": "t-1"})),
        ..invocation(json!({}))
    };
    assert_eq!(text(act.call(left).await), "done");
    assert_eq!(asked(&server, "tools/call"), 0);
    let got = server.got.lock().unwrap();
    let of_task = got
        .iter()
        .filter(|(_, body)| body["method"].to_string().contains("tasks/"));
    for (_, body) in of_task {
        assert_eq!(body["params"]["taskId"], "t-1");
    }
}

#[tokio::test]
async fn tasks_that_end_badly_say_so() {
    for (way, expected) in [
        ("task that fails", "it went wrong"),
        ("task that is cancelled", "has cancelled the task"),
        ("task that is forgotten", "no such task"),
    ] {
        let server = Scripted::start(way, script, false).await;
        let pool = pool(server.transport(), LONG, LONG);
        let (_, message) = refusal(call(&pool, "act", json!({})).await);
        assert!(message.contains(expected), "{way}: {message}");
    }
}

#[tokio::test]
async fn a_server_that_comes_and_goes_loses_no_task() {
    let way = "task of a server that comes and goes";
    let server = Scripted::start(way, script, false).await;
    let pool = pool(server.transport(), LONG, LONG);
    assert_eq!(text(call(&pool, "act", json!({})).await), "done");
    assert_eq!(asked(&server, "tools/call"), 1);
}

#[tokio::test]
async fn a_task_that_never_ends_is_cancelled_at_the_limit() {
    let server = Scripted::start("task that never ends", script, false).await;
    let pool = pool(server.transport(), Duration::from_secs(1), LONG);
    let (_, message) = refusal(call(&pool, "act", json!({})).await);
    assert!(message.contains("within 5s"), "{message}");
    assert_eq!(asked(&server, "tasks/cancel"), 1);
}
