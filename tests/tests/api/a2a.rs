//! The Agent2Agent protocol: tasks of published agents, in both bindings.

use mainspring_shared::send::WaitingOn;
use mainspring_shared::store::Claimed;
use serde_json::{Value, json};

use crate::access::{ROOT, ask, locked, tenant};
use crate::client::Answer;
use crate::world::{Scheduler, World, nothing};

async fn with_agent() -> (World, Scheduler) {
    let world = World::new().await;
    let api = world.ready().await;
    let agent = json!({ "name": "mine", "spec": {} });
    api.post("/v1/agents", &agent).await.ok(201);
    (world, api)
}

fn message(id: &str, text: &str) -> Value {
    json!({ "message": { "messageId": id, "role": "ROLE_USER", "parts": [{ "text": text }] } })
}

/// A message that nobody waits for.
fn at_once(id: &str, text: &str) -> Value {
    let mut message = message(id, text);
    message["configuration"] = json!({ "returnImmediately": true });
    message
}

async fn http(api: &Scheduler, method: &str, path: &str, body: &Value) -> Answer {
    let call = api.call(method, &format!("/a2a/mine{path}"));
    let call = call.header("a2a-version", "1.0");
    match body {
        Value::Null => call.send().await,
        body => call.json(body).send().await,
    }
}

async fn rpc(api: &Scheduler, method: &str, params: Value) -> Value {
    let body = json!({ "jsonrpc": "2.0", "id": "1", "method": method, "params": params });
    let call = api.call("POST", "/a2a/mine").header("a2a-version", "1.0");
    let answer = call.json(&body).send().await.ok(200);
    assert_eq!(answer["id"], "1");
    answer
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

/// The updates that a stream is made of.
fn updates(text: &str) -> Vec<Value> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).expect("JSON"))
        .collect()
}

#[track_caller]
fn refused(answer: &Answer, status: u16, reason: &str) {
    let error = &answer.ok(status)["error"];
    assert_eq!(error["code"], status);
    assert_eq!(error["details"][0]["reason"], reason, "{error}");
    assert_eq!(error["details"][0]["domain"], "a2a-protocol.org");
}

#[tokio::test]
async fn a_published_agent_has_a_card() {
    let (_world, api) = with_agent().await;
    let card = api
        .get("/a2a/mine/.well-known/agent-card.json")
        .await
        .ok(200);
    assert_eq!(card["name"], "mine");
    assert_eq!(card["version"], "1");
    for (place, binding) in ["JSONRPC", "HTTP+JSON"].into_iter().enumerate() {
        let interface = &card["supportedInterfaces"][place];
        assert_eq!(interface["url"], "http://localhost/a2a/mine");
        assert_eq!(interface["protocolBinding"], binding);
        assert_eq!(interface["protocolVersion"], "1.0");
    }
    assert_eq!(card["capabilities"]["pushNotifications"], false);
    assert_eq!(
        card.get("securitySchemes"),
        None,
        "this server takes requests without keys"
    );
    let call = api.call("GET", "/a2a/mine/.well-known/agent-card.json");
    let card = call
        .header("x-forwarded-proto", "https")
        .send()
        .await
        .ok(200);
    assert_eq!(
        card["supportedInterfaces"][0]["url"],
        "https://localhost/a2a/mine"
    );
    refused(
        &api.get("/a2a/nobody/.well-known/agent-card.json").await,
        404,
        "INVALID_PARAMS",
    );
}

#[tokio::test]
async fn a_message_is_a_send_whose_answer_is_an_artifact() {
    let (world, api) = with_agent().await;
    let call = api
        .call("POST", "/a2a/mine/message:send")
        .header("a2a-version", "1.0");
    let waiting = tokio::spawn(call.json(&message("m1", "hello")).send());
    let claimed = claim(&world, &api).await;
    world.complete(&claimed, 0, "hello to you").await;
    let answer = waiting.await.expect("joins");
    assert_eq!(answer.header("content-type"), Some("application/a2a+json"));
    let task = answer.ok(200)["task"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(
        task["artifacts"][0]["parts"],
        json!([{ "text": "hello to you" }])
    );
    let roles: Vec<&Value> = task["history"]
        .as_array()
        .expect("messages")
        .iter()
        .map(|said| &said["role"])
        .collect();
    assert_eq!(roles, ["ROLE_USER", "ROLE_AGENT"]);
    let id = task["id"].as_str().expect("an id");
    let context = task["contextId"].as_str().expect("an id");
    assert_eq!(
        api.get(&format!("/v1/sends/{id}")).await.ok(200)["session_id"],
        context
    );
    // The same in the other binding, and as often as wanted.
    assert_eq!(
        rpc(&api, "GetTask", json!({ "id": id })).await["result"],
        task
    );
    let shown = http(
        &api,
        "GET",
        &format!("/tasks/{id}?historyLength=1"),
        &Value::Null,
    )
    .await
    .ok(200);
    assert_eq!(shown["history"].as_array().map(Vec::len), Some(1));
    let shown = rpc(&api, "GetTask", json!({ "id": id, "historyLength": 0 })).await;
    assert_eq!(shown["result"].get("history"), None);
    // A context goes on, and a message that comes twice is said once.
    let mut more = at_once("m2", "more");
    more["message"]["contextId"] = json!(context);
    let first = rpc(&api, "SendMessage", more.clone()).await["result"]["task"].clone();
    let again = rpc(&api, "SendMessage", more).await["result"]["task"].clone();
    assert_eq!(first, again);
    assert_eq!(first["contextId"], context);
    assert_eq!(first["status"]["state"], "TASK_STATE_SUBMITTED");
}

#[tokio::test]
async fn a_client_may_name_its_context() {
    let (world, api) = with_agent().await;
    let other = world.ready().await;
    let mut said = at_once("m1", "one");
    said["message"]["contextId"] = json!("ticket 42");
    let first = http(&api, "POST", "/message:send", &said).await.ok(200)["task"].clone();
    assert_eq!(first["contextId"], "ticket 42");
    said["message"]["messageId"] = json!("m2");
    let second = http(&other, "POST", "/message:send", &said).await.ok(200)["task"].clone();
    assert_ne!(first["id"], second["id"]);
    let sessions = api.get("/v1/sessions").await.ok(200);
    assert_eq!(sessions["data"].as_array().map(Vec::len), Some(1));
    let listed = http(
        &api,
        "GET",
        "/tasks?contextId=ticket%2042&pageSize=1",
        &Value::Null,
    )
    .await
    .ok(200);
    assert_eq!(listed["tasks"][0]["id"], second["id"]);
    assert_eq!(listed["tasks"][0].get("artifacts"), None);
    let next = format!(
        "/tasks?contextId=ticket%2042&pageToken={}",
        listed["nextPageToken"].as_str().expect("more")
    );
    let listed = http(&api, "GET", &next, &Value::Null).await.ok(200);
    assert_eq!(listed["tasks"][0]["id"], first["id"]);
    assert_eq!(listed["nextPageToken"], "");
    let listed = rpc(&api, "ListTasks", json!({ "contextId": "another" })).await;
    assert_eq!(listed["result"]["tasks"], json!([]));
    let listed = rpc(
        &api,
        "ListTasks",
        json!({ "status": "TASK_STATE_COMPLETED" }),
    )
    .await;
    assert_eq!(listed["result"]["tasks"], json!([]));
    let listed = rpc(
        &api,
        "ListTasks",
        json!({ "status": "TASK_STATE_SUBMITTED" }),
    )
    .await;
    assert_eq!(listed["result"]["tasks"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn a_stream_tells_a_task_from_its_beginning_to_its_end() {
    let (world, api) = with_agent().await;
    let call = api
        .call("POST", "/a2a/mine/message:stream")
        .header("a2a-version", "1.0");
    let streaming = tokio::spawn(call.json(&message("m1", "hello")).send());
    let claimed = claim(&world, &api).await;
    world.append(&claimed, 0, "first").await;
    world.complete(&claimed, 1, "second").await;
    let answer = streaming.await.expect("joins");
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    let told = updates(&answer.text);
    assert_eq!(told[0]["task"]["status"]["state"], "TASK_STATE_SUBMITTED");
    assert_eq!(
        told[1]["statusUpdate"]["status"]["state"],
        "TASK_STATE_WORKING"
    );
    let artifacts: Vec<&Value> = told
        .iter()
        .filter(|told| told["artifactUpdate"].is_object())
        .map(|told| &told["artifactUpdate"])
        .collect();
    // Each round replaces what the one before said.
    for artifact in &artifacts {
        assert_eq!(artifact["append"], false);
        assert_eq!(artifact["artifact"]["artifactId"], "answer");
    }
    let last = artifacts.last().expect("an artifact");
    assert_eq!(last["artifact"]["parts"], json!([{ "text": "second" }]));
    assert_eq!(last["lastChunk"], true);
    let end = &told.last().expect("an end")["statusUpdate"];
    assert_eq!(end["status"]["state"], "TASK_STATE_COMPLETED");
    // What has ended is not subscribed to.
    let id = end["taskId"].as_str().expect("an id");
    let late = http(
        &api,
        "POST",
        &format!("/tasks/{id}:subscribe"),
        &Value::Null,
    )
    .await;
    refused(&late, 400, "UNSUPPORTED_OPERATION");
}

#[tokio::test]
async fn a_task_is_subscribed_to_at_another_scheduler() {
    let (world, api) = with_agent().await;
    let other = world.ready().await;
    let task = rpc(&api, "SendMessage", at_once("m1", "hello")).await["result"]["task"].clone();
    let subscribe = json!({ "jsonrpc": "2.0", "id": 7, "method": "SubscribeToTask", "params": { "id": task["id"] } });
    let call = other.call("POST", "/a2a/mine").header("a2a-version", "1.0");
    let mut streaming = call.json(&subscribe).stream().await;
    let first = streaming.next().await.expect("the task").data;
    let claimed = claim(&world, &api).await;
    world
        .fail(&claimed, mainspring_shared::error::Code::LlmRefused, "no")
        .await;
    let rest = streaming.rest().await.into_iter().map(|event| event.data);
    let told: Vec<Value> = std::iter::once(first).chain(rest).collect();
    assert!(
        told.iter()
            .all(|told| told["id"] == 7 && told["jsonrpc"] == "2.0"),
        "{told:?}"
    );
    let end = &told.last().expect("an end")["result"]["statusUpdate"]["status"];
    assert_eq!(end["state"], "TASK_STATE_FAILED");
    assert_eq!(end["message"]["parts"][0]["text"], "llm.refused: no");
}

#[tokio::test]
async fn a_task_that_asks_is_answered_by_a_message() {
    let (world, api) = with_agent().await;
    let call = api
        .call("POST", "/a2a/mine/message:send")
        .header("a2a-version", "1.0");
    let waiting = tokio::spawn(call.json(&message("m1", "hello")).send());
    let claimed = claim(&world, &api).await;
    let call = world.ask(&claimed, WaitingOn::Human, true).await;
    let task = waiting.await.expect("joins").ok(200)["task"].clone();
    let status = &task["status"];
    assert_eq!(status["state"], "TASK_STATE_INPUT_REQUIRED");
    assert!(
        status["message"]["parts"][0]["text"]
            .as_str()
            .expect("a text")
            .contains("outside")
    );
    let asked = &status["message"]["parts"][1]["data"];
    assert_eq!(asked["id"], call);
    assert_eq!(asked["schema"]["required"], json!(["approved"]));
    let answer = |id: &str, parts: Value| {
        let mut said = at_once(id, "");
        said["message"]["taskId"] = task["id"].clone();
        said["message"]["parts"] = parts;
        said
    };
    let unclear = http(
        &api,
        "POST",
        "/message:send",
        &answer("m2", json!([{ "text": "perhaps" }])),
    )
    .await;
    refused(&unclear, 400, "INVALID_PARAMS");
    // A stream of a task that asks ends with the question.
    let path = format!("/tasks/{}:subscribe", task["id"].as_str().expect("an id"));
    let told = updates(&http(&api, "GET", &path, &Value::Null).await.text);
    assert_eq!(told.len(), 1);
    assert_eq!(
        told[0]["task"]["status"]["state"],
        "TASK_STATE_INPUT_REQUIRED"
    );
    let yes = http(
        &api,
        "POST",
        "/message:send",
        &answer("m3", json!([{ "text": "Yes." }])),
    )
    .await
    .ok(200);
    assert_eq!(yes["task"]["id"], task["id"]);
    let session = task["contextId"].as_str().expect("an id");
    let claimed = world.claim(session).await;
    world.complete(&claimed, 1, "done").await;
    let shown = rpc(&api, "GetTask", json!({ "id": task["id"] })).await["result"].clone();
    assert_eq!(shown["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(shown["artifacts"][0]["parts"][0]["text"], "done");
    let late = http(
        &api,
        "POST",
        "/message:send",
        &answer("m4", json!([{ "text": "yes" }])),
    )
    .await;
    refused(&late, 400, "UNSUPPORTED_OPERATION");
}

#[tokio::test]
async fn a_message_to_a_task_at_work_steers_it() {
    let (world, api) = with_agent().await;
    let task = rpc(&api, "SendMessage", at_once("m1", "hello")).await["result"]["task"].clone();
    let _claimed = claim(&world, &api).await;
    let mut hint = at_once("m2", "be quick");
    hint["message"]["taskId"] = task["id"].clone();
    let same = rpc(&api, "SendMessage", hint).await["result"]["task"].clone();
    assert_eq!(same["id"], task["id"]);
    assert_eq!(same["status"]["state"], "TASK_STATE_WORKING");
    let inbox = api
        .get(&format!(
            "/v1/sessions/{}/inbox",
            task["contextId"].as_str().expect("an id")
        ))
        .await
        .ok(200);
    assert_eq!(inbox["data"].as_array().map(Vec::len), Some(1), "{inbox}");
}

#[tokio::test]
async fn a_task_is_cancelled_once() {
    let (world, api) = with_agent().await;
    let task = rpc(&api, "SendMessage", at_once("m1", "hello")).await["result"]["task"].clone();
    let path = format!("/tasks/{}:cancel", task["id"].as_str().expect("an id"));
    let cancelled = http(&api, "POST", &path, &json!({})).await.ok(200);
    assert_eq!(cancelled["status"]["state"], "TASK_STATE_CANCELED");
    let done = rpc(&api, "SendMessage", at_once("m2", "other")).await["result"]["task"].clone();
    let claimed = claim(&world, &api).await;
    world.complete(&claimed, 0, "done").await;
    let late = rpc(&api, "CancelTask", json!({ "id": done["id"] })).await;
    assert_eq!(late["error"]["code"], -32002);
}

#[tokio::test]
async fn what_is_not_there_is_refused_by_its_proper_error() {
    let (_world, api) = with_agent().await;
    let other = json!({ "name": "other", "spec": {} });
    api.post("/v1/agents", &other).await.ok(201);
    let task = rpc(&api, "SendMessage", at_once("m1", "hello")).await["result"]["task"].clone();
    let id = task["id"].as_str().expect("an id");
    let call = api
        .call("GET", &format!("/a2a/other/tasks/{id}"))
        .header("a2a-version", "1.0");
    refused(&call.send().await, 404, "TASK_NOT_FOUND");
    let unknown = rpc(&api, "GetTask", json!({ "id": nothing("snd_") })).await;
    assert_eq!(unknown["error"]["code"], -32001);
    for version in [None, Some("0.3"), Some("2.0")] {
        let call = api.call("GET", &format!("/a2a/mine/tasks/{id}"));
        let call = match version {
            Some(version) => call.header("a2a-version", version),
            None => call,
        };
        refused(&call.send().await, 400, "VERSION_NOT_SUPPORTED");
    }
    let call = api.call("GET", &format!("/a2a/mine/tasks/{id}?A2A-Version=1.0"));
    assert_eq!(call.send().await.ok(200)["id"], task["id"]);
    let configs = format!("/tasks/{id}/pushNotificationConfigs");
    refused(
        &http(
            &api,
            "POST",
            &configs,
            &json!({ "url": "https://example.com" }),
        )
        .await,
        400,
        "PUSH_NOTIFICATION_NOT_SUPPORTED",
    );
    let mut push = at_once("m2", "x");
    push["configuration"]["taskPushNotificationConfig"] = json!({ "url": "https://example.com" });
    assert_eq!(
        rpc(&api, "SendMessage", push).await["error"]["code"],
        -32003
    );
    assert_eq!(
        rpc(&api, "GetExtendedAgentCard", json!({})).await["error"]["code"],
        -32007
    );
    assert_eq!(rpc(&api, "Dance", json!({})).await["error"]["code"], -32601);
    let mut video = at_once("m3", "");
    video["message"]["parts"] =
        json!([{ "url": "https://example.com/a.mp4", "mediaType": "video/mp4" }]);
    assert_eq!(
        rpc(&api, "SendMessage", video).await["error"]["code"],
        -32005
    );
    assert_eq!(
        rpc(&api, "SendMessage", json!({})).await["error"]["code"],
        -32602
    );
    let sends = api.get("/v1/sends").await.ok(200);
    assert_eq!(sends["data"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn a_key_does_here_what_it_may_do_elsewhere() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (_, blue) = tenant(&api, "blue", &["admin"]).await;
    for name in ["mine", "theirs"] {
        let agent = json!({ "name": name, "spec": {} });
        ask(&api, &blue, "POST", "/v1/agents", &agent).await.ok(201);
    }
    let key = async |body: Value| {
        let made = ask(&api, &blue, "POST", "/v1/keys", &body).await.ok(201);
        made["key"].as_str().expect("the token").to_owned()
    };
    let reader = key(json!({ "scopes": ["read"] })).await;
    let card = ask(
        &api,
        &reader,
        "GET",
        "/a2a/mine/.well-known/agent-card.json",
        &Value::Null,
    )
    .await
    .ok(200);
    assert_eq!(
        card["securitySchemes"]["key"]["httpAuthSecurityScheme"]["scheme"],
        "Bearer"
    );
    let send =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": at_once("m1", "x") });
    let path = "/a2a/mine?A2A-Version=1.0";
    let refused = ask(&api, &reader, "POST", path, &send).await;
    assert_eq!(refused.ok(403)["error"]["data"]["code"], "auth.forbidden");
    let task = ask(&api, &blue, "POST", path, &send).await.ok(200)["result"]["task"].clone();
    let id = task["id"].as_str().expect("an id");
    let cancel = format!("/a2a/mine/tasks/{id}:cancel?A2A-Version=1.0");
    assert_eq!(
        ask(&api, &reader, "POST", &cancel, &json!({})).await.status,
        403
    );
    let bound =
        key(json!({ "scopes": ["read", "use"], "binding": { "agents": ["theirs"] } })).await;
    let hidden = ask(&api, &bound, "POST", path, &send).await.ok(200);
    assert_eq!(hidden["error"]["data"]["code"], "agent.not_found");
    let (_, red) = tenant(&api, "red", &["admin"]).await;
    let other = json!({ "name": "mine", "spec": {} });
    ask(&api, &red, "POST", "/v1/agents", &other).await.ok(201);
    let read = format!("/a2a/mine/tasks/{id}?A2A-Version=1.0");
    assert_eq!(
        ask(&api, &red, "GET", &read, &Value::Null).await.status,
        404
    );
    assert_eq!(
        ask(&api, &reader, "GET", &read, &Value::Null).await.status,
        200
    );
    assert_eq!(
        ask(&api, ROOT, "GET", &read, &Value::Null).await.status,
        404
    );
}
