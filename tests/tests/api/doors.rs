//! One session through all doors at once: the native API, OpenAI's form, MCP, A2A and AG-UI. Whoever answers, every
//! door tells the same.

use mainspring_shared::send::WaitingOn;
use serde_json::{Value, json};

use crate::client::Answer;
use crate::world::{Scheduler, World};

/// How a question is answered.
const DOORS: [&str; 5] = ["native", "mcp", "a2a", "ag-ui", "mcp task"];

type Heard = tokio::task::JoinHandle<Answer>;

fn data(answer: &Answer) -> Vec<Value> {
    let data = answer
        .text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "));
    data.filter_map(|data| serde_json::from_str(data).ok())
        .collect()
}

/// Everyone who reads a send, each at another scheduler than the one before.
struct Readers {
    native: Heard,
    mcp: Heard,
    a2a: Heard,
    ag_ui: Heard,
    openai: Heard,
}

fn mcp(id: u32, method: &str, params: Value) -> Value {
    let mut request = json!({ "jsonrpc": "2.0", "id": id, "method": method });
    request["params"] = params;
    request
}

impl Readers {
    fn of(apis: [&Scheduler; 2], send: &str, run: &Value) -> Self {
        let [one, two] = apis;
        let rpc = json!({ "jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": { "id": send } });
        let hex = send.trim_start_matches("snd_");
        let task = mcp(1, "tasks/result", json!({ "taskId": send }));
        Self {
            native: tokio::spawn(one.call("GET", &format!("/v1/sends/{send}/events")).send()),
            mcp: tokio::spawn(two.call("POST", "/mcp").json(&task).send()),
            a2a: tokio::spawn(
                one.call("POST", "/a2a/mine")
                    .header("a2a-version", "1.0")
                    .json(&rpc)
                    .send(),
            ),
            ag_ui: tokio::spawn(two.call("POST", "/ag-ui/mine").json(run).send()),
            openai: tokio::spawn(
                one.call("GET", &format!("/v1/responses/resp_{hex}?stream=true"))
                    .send(),
            ),
        }
    }
}

/// Answers the approval through one of the doors, at a scheduler that did not ask.
async fn approve(api: &Scheduler, door: &str, session: &str, send: &str, call: &str) {
    let yes = json!({ "approved": true });
    let accept = json!({ "action": "accept", "content": yes });
    match door {
        "native" => {
            let path = format!("/v1/sessions/{session}/tool-results");
            let body = json!({ "results": [{ "call_id": call, "output": yes }] });
            let posted = api.post(&path, &body);
            assert_eq!(posted.await.ok(200)["results"][0]["status"], "accepted");
        }
        "mcp" => {
            let answer =
                json!({ "jsonrpc": "2.0", "id": format!("{send}/{call}"), "result": accept });
            assert_eq!(api.post("/mcp", &answer).await.status, 202);
        }
        "mcp task" => {
            let mut params = json!({ "taskId": send, "inputResponses": { call: accept } });
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            });
            let call = api
                .call("POST", "/mcp")
                .json(&mcp(9, "tasks/update", params));
            let call = call.header("mcp-protocol-version", "2026-07-28");
            call.header("mcp-method", "tasks/update")
                .send()
                .await
                .ok(200);
        }
        "a2a" => {
            let message = json!({
                "messageId": format!("yes {call}"), "role": "ROLE_USER", "taskId": send,
                "parts": [{ "data": yes }],
            });
            let body =
                json!({ "message": message, "configuration": { "returnImmediately": true } });
            let call = api
                .call("POST", "/a2a/mine/message:send")
                .header("a2a-version", "1.0");
            call.json(&body).send().await.ok(200);
        }
        "ag-ui" => {
            let resume = json!([{ "interruptId": call, "status": "resolved", "payload": yes }]);
            let run = json!({ "threadId": session, "runId": format!("yes {call}"), "messages": [], "resume": resume });
            // Its stream is left at once, which cancels nothing.
            drop(api.call("POST", "/ag-ui/mine").json(&run).stream().await);
        }
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn one_session_tells_the_same_through_every_door() {
    let world = World::new().await;
    let (one, two) = (world.ready().await, world.ready().await);
    let agent = json!({ "name": "mine", "spec": {} });
    one.post("/v1/agents", &agent).await.ok(201);
    let session = one
        .post("/v1/sessions", &json!({ "agent": "mine" }))
        .await
        .ok(201);
    let session = session["id"].as_str().expect("an id");
    for (turn, door) in DOORS.into_iter().enumerate() {
        let run = json!({
            "threadId": session, "runId": format!("run {turn}"),
            "messages": [{ "id": "u", "role": "user", "content": format!("turn {turn}") }],
        });
        // The send is begun by the run; everyone else finds it.
        let begun = two.call("POST", "/ag-ui/mine").json(&run).stream().await;
        drop(begun);
        let send = loop {
            let queued = one
                .get(&format!("/v1/sends?session_id={session}&status=queued"))
                .await
                .ok(200);
            if let Some(id) = queued["data"][0]["id"].as_str() {
                break id.to_owned();
            }
        };
        let readers = Readers::of([&one, &two], &send, &run);
        let claimed = world.claim(session).await;
        let call = world.ask(&claimed, WaitingOn::Human, true).await;
        // Those doors whose streams end with a question end with the same one.
        let a2a = data(&readers.a2a.await.expect("joins"));
        let status = &a2a.last().expect("an end")["result"];
        let status = if status["statusUpdate"].is_object() {
            &status["statusUpdate"]["status"]
        } else {
            &status["task"]["status"]
        };
        assert_eq!(status["state"], "TASK_STATE_INPUT_REQUIRED", "{status}");
        assert_eq!(status["message"]["parts"][1]["data"]["id"], call);
        let ag_ui = data(&readers.ag_ui.await.expect("joins"));
        let interrupt = &ag_ui.last().expect("an end")["outcome"]["interrupts"][0];
        assert_eq!(interrupt["id"], call, "{ag_ui:?}");
        assert_eq!(status["message"]["parts"][0]["text"], interrupt["message"]);
        assert_eq!(
            status["message"]["parts"][1]["data"]["schema"],
            interrupt["responseSchema"]
        );
        let task = two
            .post("/mcp", &mcp(2, "tasks/get", json!({ "taskId": send })))
            .await
            .ok(200);
        assert_eq!(task["result"]["status"], "input_required");
        assert_eq!(task["result"]["statusMessage"], interrupt["message"]);
        let waiting = one
            .get(&format!("/v1/sessions/{session}/calls"))
            .await
            .ok(200);
        assert_eq!(waiting["data"][0]["call_id"], call);
        approve(&two, door, session, &send, &call).await;
        let waiting = one
            .get(&format!("/v1/sessions/{session}/calls"))
            .await
            .ok(200);
        assert_eq!(waiting["data"], json!([]), "answered through {door}");
        let claimed = world.claim(session).await;
        let text = format!("answer {turn}");
        world.complete(&claimed, 1, &text).await;
        assert_ends(
            readers.native,
            readers.mcp,
            readers.openai,
            (session, &text),
        )
        .await;
        // What every door shows afterwards.
        let call = one
            .call("GET", &format!("/a2a/mine/tasks/{send}"))
            .header("a2a-version", "1.0");
        let task = call.send().await.ok(200);
        assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
        assert_eq!(task["artifacts"][0]["parts"], json!([{ "text": text }]));
        assert_eq!(task["contextId"], session);
        let again = data(&two.call("POST", "/ag-ui/mine").json(&run).send().await);
        let shown = again[1]["messages"]
            .as_array()
            .expect("messages")
            .last()
            .expect("one");
        assert_eq!(shown["content"], text);
        assert_eq!(again.last().expect("an end")["outcome"]["type"], "success");
    }
    let sends = one
        .get(&format!("/v1/sends?session_id={session}"))
        .await
        .ok(200);
    assert_eq!(sends["data"].as_array().map(Vec::len), Some(DOORS.len()));
    let sessions = one.get("/v1/sessions").await.ok(200);
    assert_eq!(sessions["data"].as_array().map(Vec::len), Some(1));
    assert_one_transcript(&one, &two, session).await;
}

/// All of them have the same transcript.
async fn assert_one_transcript(one: &Scheduler, two: &Scheduler, session: &str) {
    let messages = one
        .get(&format!("/v1/sessions/{session}/messages?limit=200"))
        .await
        .ok(200);
    let texts: Vec<String> = messages["data"]
        .as_array()
        .expect("messages")
        .iter()
        .filter_map(|message| {
            let is_said = message["role"] != "tool";
            is_said.then(|| {
                message["content"][0]["text"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            })
        })
        .collect();
    let read = mcp(
        3,
        "resources/read",
        json!({ "uri": format!("mainspring://sessions/{session}") }),
    );
    let read = two.post("/mcp", &read).await.ok(200);
    let read: Value = serde_json::from_str(
        read["result"]["contents"][0]["text"]
            .as_str()
            .expect("a text"),
    )
    .expect("JSON");
    assert_eq!(read["messages"], messages["data"]);
    let hex = session.trim_start_matches("ses_");
    let items = one
        .get(&format!(
            "/v1/conversations/conv_{hex}/items?order=asc&limit=100"
        ))
        .await
        .ok(200);
    let items: Vec<&str> = items["data"]
        .as_array()
        .expect("items")
        .iter()
        .filter_map(|item| item["content"][0]["text"].as_str())
        .collect();
    assert_eq!(items, texts);
}

/// The streams that go on after a question end with the same answer.
async fn assert_ends(native: Heard, mcp: Heard, openai: Heard, (session, text): (&str, &str)) {
    let native = native.await.expect("joins");
    let end = data(&native).pop().expect("an end");
    assert_eq!(
        (&end["status"], &end["output_text"]),
        (&json!("completed"), &json!(text))
    );
    let told = data(&mcp.await.expect("joins")).pop().expect("an end");
    assert_eq!(told["result"]["content"][0]["text"], text);
    assert_eq!(told["result"]["_meta"]["mainspring/session_id"], session);
    let response = data(&openai.await.expect("joins")).pop().expect("an end");
    assert_eq!(response["type"], "response.completed");
    let said = response["response"]["output"]
        .as_array()
        .expect("items")
        .last()
        .expect("one");
    assert_eq!(said["content"][0]["text"], text);
}
