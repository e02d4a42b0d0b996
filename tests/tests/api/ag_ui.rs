//! The Agent-User Interaction protocol: runs of published agents as streams of events.

use mainspring_shared::error::Code;
use mainspring_shared::send::WaitingOn;
use mainspring_shared::store::Claimed;
use serde_json::{Value, json};

use crate::client::{Answer, Call};
use crate::world::{Scheduler, World};

async fn with_agent(spec: Value) -> (World, Scheduler) {
    let world = World::new().await;
    let api = world.ready().await;
    let agent = json!({ "name": "mine", "spec": spec });
    api.post("/v1/agents", &agent).await.ok(201);
    (world, api)
}

fn input(run: &str, messages: Value) -> Value {
    let mut input = json!({ "threadId": "thread 1", "runId": run, "tools": [], "context": [] });
    input["messages"] = messages;
    input
}

fn user(text: &str) -> Value {
    json!({ "id": "u1", "role": "user", "content": text })
}

fn run(api: &Scheduler, input: &Value) -> Call {
    api.call("POST", "/ag-ui/mine").json(input)
}

/// Starts a run and reads it to its end.
fn running(api: &Scheduler, input: &Value) -> tokio::task::JoinHandle<Answer> {
    tokio::spawn(run(api, input).send())
}

async fn events(running: tokio::task::JoinHandle<Answer>) -> Vec<Value> {
    let answer = running.await.expect("joins");
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    let data = answer
        .text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).expect("JSON"))
        .collect()
}

fn types(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event["type"].as_str().expect("a type"))
        .collect()
}

/// Claims the only send that is queued, once there is one.
async fn claim(world: &World, api: &Scheduler) -> Claimed {
    loop {
        let queued = api.get("/v1/sends?status=queued").await.ok(200);
        if let Some(session) = queued["data"][0]["session_id"].as_str() {
            return world.claim(session).await;
        }
        tokio::task::yield_now().await;
    }
}

async fn only_session(api: &Scheduler) -> String {
    let sessions = api.get("/v1/sessions").await.ok(200);
    let [session] = sessions["data"].as_array().expect("a list").as_slice() else {
        panic!("{sessions}");
    };
    session["id"].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn a_run_is_told_from_its_beginning_to_its_end() {
    let (world, api) = with_agent(json!({})).await;
    let told = running(&api, &input("run 1", json!([user("hello")])));
    let claimed = claim(&world, &api).await;
    world.complete(&claimed, 0, "hello to you").await;
    let told = events(told).await;
    assert_eq!(told[0]["protocolVersion"], "1.0");
    assert_eq!(
        (&told[0]["threadId"], &told[0]["runId"]),
        (&json!("thread 1"), &json!("run 1"))
    );
    let kinds = types(&told);
    assert_eq!(kinds.first(), Some(&"RUN_STARTED"));
    let said = [
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
    ];
    assert!(kinds.windows(3).any(|three| three == said), "{kinds:?}");
    let content = told
        .iter()
        .find(|event| event["type"] == "TEXT_MESSAGE_CONTENT")
        .expect("one");
    assert_eq!(content["delta"], "hello to you");
    let end = told.last().expect("an end");
    assert_eq!(end["type"], "RUN_FINISHED");
    assert_eq!(end["outcome"], json!({ "type": "success" }));
    assert_eq!(end["usage"][0]["totalTokens"], 15);
    // The thread goes on, in the same session, and only what is new is said.
    let more = input(
        "run 2",
        json!([user("hello"), { "id": "a1", "role": "assistant", "content": "made up" }, user("more")]),
    );
    let told = running(&api, &more);
    let claimed = claim(&world, &api).await;
    assert_eq!(
        format!("{:?}", claimed.send.record.input)
            .matches("more")
            .count(),
        1
    );
    world.fail(&claimed, Code::LlmRefused, "no").await;
    let told = events(told).await;
    let end = told.last().expect("an end");
    assert_eq!(
        (&end["type"], &end["message"], &end["code"]),
        (&json!("RUN_ERROR"), &json!("no"), &json!("llm.refused"))
    );
    let session = only_session(&api).await;
    let shown = api
        .get(&format!("/v1/sessions/{session}/messages"))
        .await
        .ok(200);
    assert!(!shown.to_string().contains("made up"), "{shown}");
}

#[tokio::test]
async fn a_run_that_is_asked_for_again_is_the_same_one() {
    let (world, api) = with_agent(json!({})).await;
    let other = world.ready().await;
    let asked = input("run 1", json!([user("hello")]));
    let first = running(&api, &asked);
    let claimed = claim(&world, &api).await;
    world.append(&claimed, 0, "thinking").await;
    let again = running(&other, &asked);
    world.complete(&claimed, 1, "done").await;
    let (first, again) = (events(first).await, events(again).await);
    assert_eq!(first.last(), again.last());
    assert_eq!(again[1]["type"], "MESSAGES_SNAPSHOT");
    let snapshot = again[1]["messages"].as_array().expect("messages");
    assert_eq!(snapshot[0]["content"], "hello");
    // What the snapshot has is not told again.
    let twice = again
        .iter()
        .filter(|event| event["delta"] == "thinking")
        .count();
    let there = snapshot
        .iter()
        .filter(|message| message["content"] == "thinking")
        .count();
    assert_eq!(twice + there, 1, "{again:?}");
    let sends = api.get("/v1/sends").await.ok(200);
    assert_eq!(sends["data"].as_array().map(Vec::len), Some(1));
    // After its end it is told by a snapshot and its end.
    let late = events(running(&api, &asked)).await;
    assert_eq!(types(&late).first(), Some(&"RUN_STARTED"));
    assert_eq!(
        late[1]["messages"]
            .as_array()
            .expect("messages")
            .last()
            .expect("one")["content"],
        "done"
    );
    assert_eq!(late.last(), first.last());
}

#[tokio::test]
async fn a_question_interrupts_a_run_and_an_answer_resumes_it() {
    let (world, api) = with_agent(json!({})).await;
    let told = running(&api, &input("run 1", json!([user("hello")])));
    let claimed = claim(&world, &api).await;
    let call = world.ask(&claimed, WaitingOn::Human, true).await;
    let told = events(told).await;
    let kinds = types(&told);
    let calls = ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"];
    assert!(kinds.windows(3).any(|three| three == calls), "{kinds:?}");
    let end = told.last().expect("an end");
    let interrupt = &end["outcome"]["interrupts"][0];
    assert_eq!(end["outcome"]["type"], "interrupt");
    assert_eq!(
        (&interrupt["id"], &interrupt["toolCallId"]),
        (&json!(call), &json!(call))
    );
    assert_eq!(interrupt["reason"], "tool_approval");
    assert_eq!(
        interrupt["responseSchema"]["properties"]["approved"]["type"],
        "boolean"
    );
    // Nothing new is said while something is asked.
    let busy = run(&api, &input("run 2", json!([user("hello?")])))
        .send()
        .await;
    busy.problem(409, "session.busy");
    let mut resume = input("run 2", json!([user("hello")]));
    resume["resume"] = json!([{ "interruptId": call, "status": "resolved", "payload": "perhaps" }]);
    let unclear = run(&api, &resume)
        .send()
        .await
        .problem(400, "request.invalid");
    assert_eq!(unclear["errors"][0]["pointer"], "/resume/0/payload");
    resume["resume"][0]["payload"] = json!({ "approved": true });
    let other = world.ready().await;
    let told = running(&other, &resume);
    let session = only_session(&api).await;
    let claimed = claim_when_ready(&world, &api, &session).await;
    world.complete(&claimed, 1, "done").await;
    let told = events(told).await;
    assert_eq!(told[0]["runId"], "run 2");
    assert_eq!(told[1]["type"], "MESSAGES_SNAPSHOT");
    let deltas: Vec<&Value> = told
        .iter()
        .filter(|event| event["type"] == "TEXT_MESSAGE_CONTENT")
        .map(|event| &event["delta"])
        .collect();
    assert_eq!(deltas, ["done"]);
    assert_eq!(told.last().expect("an end")["outcome"]["type"], "success");
    assert_eq!(
        api.get("/v1/sends").await.ok(200)["data"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
}

/// Claims a session once its send does not wait any more.
async fn claim_when_ready(world: &World, api: &Scheduler, session: &str) -> Claimed {
    loop {
        let sends = api
            .get(&format!("/v1/sends?session_id={session}"))
            .await
            .ok(200);
        if sends["data"][0]["status"] != "waiting" {
            return world.claim(session).await;
        }
        let calls = api
            .get(&format!("/v1/sessions/{session}/calls"))
            .await
            .ok(200);
        if calls["data"] == json!([]) {
            return world.claim(session).await;
        }
    }
}

#[tokio::test]
async fn a_tool_of_the_client_is_run_by_the_client() {
    let tool = json!({ "type": "external", "name": "outside", "description": "x", "parameters": { "type": "object" } });
    let (world, api) = with_agent(json!({ "tools": [tool] })).await;
    let mut asked = input("run 1", json!([user("hello")]));
    asked["tools"] = json!([{ "name": "outside", "description": "x", "parameters": {} }]);
    let told = running(&api, &asked);
    let claimed = claim(&world, &api).await;
    let call = world.ask(&claimed, WaitingOn::Tool, false).await;
    let told = events(told).await;
    let end = told.last().expect("an end");
    assert_eq!(
        end["outcome"],
        json!({ "type": "success", "pendingToolCallIds": [call] })
    );
    let result = json!({ "id": "t1", "role": "tool", "toolCallId": call, "content": "sun" });
    let told = running(&api, &input("run 2", json!([user("hello"), result])));
    let session = only_session(&api).await;
    let claimed = claim_when_ready(&world, &api, &session).await;
    let calls = world
        .store
        .read_round(claimed.key, claimed.send.record.id, 0)
        .await
        .expect("reads");
    assert!(
        format!("{:?}", calls[0].result).contains("sun"),
        "{calls:?}"
    );
    world.complete(&claimed, 1, "it shines").await;
    assert_eq!(
        events(told).await.last().expect("an end")["outcome"]["type"],
        "success"
    );
    asked["tools"][0]["name"] = json!("unknown");
    asked["runId"] = json!("run 3");
    let refused = run(&api, &asked)
        .send()
        .await
        .problem(400, "request.invalid");
    assert_eq!(refused["errors"][0]["pointer"], "/tools/0/name");
}

#[tokio::test]
async fn a_run_that_is_cancelled_says_so() {
    let (_world, api) = with_agent(json!({})).await;
    let told = running(&api, &input("run 1", json!([user("hello")])));
    let id = loop {
        let sends = api.get("/v1/sends").await.ok(200);
        if let Some(id) = sends["data"][0]["id"].as_str() {
            break id.to_owned();
        }
    };
    api.post(&format!("/v1/sends/{id}/cancel"), &json!({}))
        .await
        .ok(200);
    assert_eq!(
        events(told).await.last().expect("an end")["outcome"],
        json!({ "type": "cancelled" })
    );
}

#[tokio::test]
async fn a_thread_may_be_a_session_and_an_agent_a_version() {
    let (world, api) = with_agent(json!({})).await;
    let session = api.session().await;
    let mut asked = input("run 1", json!([user("hello")]));
    asked["threadId"] = json!(session);
    let call = api.call("POST", "/ag-ui/mine@1").json(&asked);
    let told = tokio::spawn(call.send());
    let claimed = claim(&world, &api).await;
    assert_eq!(
        claimed
            .send
            .agent
            .reference()
            .expect("published")
            .to_string(),
        "mine@1"
    );
    world.complete(&claimed, 0, "hi").await;
    events(told).await;
    assert_eq!(only_session(&api).await, session);
    asked["runId"] = json!("run 2");
    for path in ["/ag-ui/nobody", "/ag-ui/mine@9"] {
        let refused = api.call("POST", path).json(&asked).send().await;
        refused.problem(404, "agent.not_found");
    }
}
