//! What is asked of the person at a client.

use mainspring_shared::tool::{Asked, Inquiry, Wants};

use super::*;

fn approve(id: &Value, content: Value) -> Value {
    let mut result = json!({ "action": "accept" });
    result["content"] = content;
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

#[tokio::test]
async fn a_client_with_a_handshake_is_asked_and_answers_anywhere() {
    let (world, api) = with_agent().await;
    let other = world.ready().await;
    let client = Client::new(&api, json!({ "elicitation": {} })).await;
    let mut answer = client.tool(&api, 1, hello()).await;
    let claimed = claim(&world, &api).await;
    let call = world.ask(&claimed, WaitingOn::Human, true).await;
    let asked = data(&answer.next().await.expect("a question"));
    assert_eq!(asked["method"], "elicitation/create");
    let params = &asked["params"];
    assert!(
        params["message"]
            .as_str()
            .expect("a text")
            .contains("outside"),
        "{params}"
    );
    assert_eq!(params["requestedSchema"]["required"], json!(["approved"]));
    assert_eq!(
        params["requestedSchema"]["properties"]["approved"]["type"],
        "boolean"
    );
    // A person who closes the form has not answered.
    let closed = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "action": "cancel" } });
    client.tell(&other, closed).await;
    let session = api.get("/v1/sends").await.ok(200)["data"][0]["session_id"].clone();
    let session = session.as_str().expect("an id");
    let calls = format!("/v1/sessions/{session}/calls");
    assert_eq!(api.get(&calls).await.ok(200)["data"][0]["call_id"], call);
    client
        .tell(&other, approve(&asked["id"], json!({ "approved": true })))
        .await;
    assert_eq!(api.get(&calls).await.ok(200)["data"], json!([]));
    // An answer that comes late changes nothing.
    client
        .tell(&api, approve(&asked["id"], json!({ "approved": false })))
        .await;
    let claimed = world.claim(session).await;
    world.complete(&claimed, 1, "done").await;
    let rest = answer.rest().await;
    assert_eq!(rest.len(), 1, "it was asked once: {rest:?}");
    assert_eq!(text(&data(&rest[0])["result"]), "done");
}

#[tokio::test]
async fn a_refusal_is_told_to_the_agent() {
    let (world, api) = with_agent().await;
    let client = Client::new(&api, json!({ "elicitation": { "form": {} } })).await;
    let mut answer = client.tool(&api, 1, hello()).await;
    let claimed = claim(&world, &api).await;
    world.ask(&claimed, WaitingOn::Human, true).await;
    let asked = data(&answer.next().await.expect("a question"));
    let refused = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "action": "decline" } });
    client.tell(&api, refused).await;
    let session = api.get("/v1/sends").await.ok(200)["data"][0]["session_id"].clone();
    let claimed = world.claim(session.as_str().expect("an id")).await;
    let calls = world
        .store
        .read_round(claimed.key, claimed.send.record.id, 0)
        .await
        .expect("reads");
    let result = calls[0].result.as_ref().expect("is settled");
    assert!(
        format!("{result:?}").contains("did not approve"),
        "{result:?}"
    );
}

#[tokio::test]
async fn a_client_without_a_handshake_is_asked_by_a_result() {
    let (world, api) = with_agent().await;
    let can = json!({ "elicitation": { "form": {}, "url": {} } });
    let mut answer = modern(&api, "tools/call", hello(), can.clone())
        .stream()
        .await;
    let claimed = claim(&world, &api).await;
    let form = json!({ "type": "object", "properties": { "city": { "type": "string" } } });
    let asked = Asked {
        inquiry: Inquiry {
            message: "Where?".to_owned(),
            wants: Wants::Form(form.clone()),
        },
        attempt: 1,
        reply: None,
    };
    let call = world.inquire(&claimed, vec![asked]).await;
    let result = last(&mut answer).await["result"].clone();
    assert_eq!(result["resultType"], "input_required");
    let name = format!("{call}.1");
    let request = &result["inputRequests"][&name];
    assert_eq!(request["method"], "elicitation/create");
    assert_eq!(request["params"]["message"], "Where?");
    assert_eq!(request["params"]["requestedSchema"], form);
    let mut again = hello();
    again["requestState"] = result["requestState"].clone();
    again["inputResponses"] =
        json!({ &name: { "action": "accept", "content": { "city": "Potsdam" } } });
    let other = world.ready().await;
    let mut answer = modern(&other, "tools/call", again.clone(), can.clone())
        .stream()
        .await;
    let session = api.get("/v1/sends").await.ok(200)["data"][0]["session_id"].clone();
    let claimed = world.claim(session.as_str().expect("an id")).await;
    let calls = world
        .store
        .read_round(claimed.key, claimed.send.record.id, 0)
        .await
        .expect("reads");
    assert!(format!("{:?}", calls[0].asked).contains("Potsdam"));
    world.complete(&claimed, 1, "in Potsdam").await;
    let result = last(&mut answer).await["result"].clone();
    assert_eq!(result["resultType"], "complete");
    assert_eq!(text(&result), "in Potsdam");
    assert_eq!(
        api.get("/v1/sends").await.ok(200)["data"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
    again["requestState"] = json!("made up");
    let refused = modern(&other, "tools/call", again, can)
        .send()
        .await
        .ok(200);
    assert_eq!(refused["result"]["isError"], true);
}

#[tokio::test]
async fn a_client_that_can_ask_nobody_is_told_that_someone_has_to_answer() {
    let (world, api) = with_agent().await;
    let client = Client::new(&api, json!({})).await;
    let mut answer = client.tool(&api, 1, hello()).await;
    let claimed = claim(&world, &api).await;
    let call = world.ask(&claimed, WaitingOn::Human, true).await;
    let result = last(&mut answer).await["result"].clone();
    assert_eq!(result["_meta"]["mainspring/status"], "input_required");
    let send = result["_meta"]["mainspring/send_id"]
        .as_str()
        .expect("an id");
    assert!(text(&result).contains(send), "{result}");
    // Someone answers elsewhere, and the call is asked about again.
    let session = result["_meta"]["mainspring/session_id"]
        .as_str()
        .expect("an id");
    let approved = json!({ "results": [{ "call_id": call, "output": { "approved": true } }] });
    let path = format!("/v1/sessions/{session}/tool-results");
    api.post(&path, &approved).await.ok(200);
    let again = json!({ "name": "mine", "arguments": { "message": "", "send_id": send } });
    let mut answer = client.tool(&api, 2, again).await;
    let claimed = world.claim(session).await;
    world.complete(&claimed, 1, "done").await;
    assert_eq!(text(&last(&mut answer).await["result"]), "done");
}

#[tokio::test]
async fn who_may_not_answer_answers_nothing() {
    let world = World::new().await;
    let api = locked(&world).await;
    let agent = json!({ "name": "mine", "spec": {} });
    ask(&api, ROOT, "POST", "/v1/agents", &agent).await.ok(201);
    let scopes = json!({ "scopes": ["read", "use"] });
    let made = ask(&api, ROOT, "POST", "/v1/keys", &scopes).await.ok(201);
    let key = made["key"].as_str().expect("the token");
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "mine", "arguments": { "message": "x" }, "task": {},
    } });
    let made = ask(&api, key, "POST", "/mcp", &call).await.ok(200);
    let task = made["result"]["task"]["taskId"].as_str().expect("an id");
    let sends = ask(&api, ROOT, "GET", "/v1/sends", &Value::Null)
        .await
        .ok(200);
    let session = sends["data"][0]["session_id"].as_str().expect("an id");
    let claimed = world.claim(session).await;
    let call = world.ask(&claimed, WaitingOn::Human, true).await;
    let id = json!(format!("{task}/{call}"));
    let answer = approve(&id, json!({ "approved": true }));
    let refused = ask(&api, key, "POST", "/mcp", &answer).await;
    refused.problem(403, "auth.forbidden");
    let shown = ask(
        &api,
        ROOT,
        "GET",
        &format!("/v1/sends/{task}"),
        &Value::Null,
    )
    .await
    .ok(200);
    assert_eq!(shown["waiting_on"], "human");
}

#[tokio::test]
async fn who_may_only_read_ends_nothing_by_leaving() {
    let world = World::new().await;
    let api = locked(&world).await;
    let agent = json!({ "name": "mine", "spec": {} });
    ask(&api, ROOT, "POST", "/v1/agents", &agent).await.ok(201);
    let made = ask(
        &api,
        ROOT,
        "POST",
        "/v1/keys",
        &json!({ "scopes": ["read"] }),
    )
    .await
    .ok(201);
    let key = format!("Bearer {}", made["key"].as_str().expect("the token"));
    let send = json!({ "input": "x", "session": { "agent": "mine" } });
    let send = ask(&api, ROOT, "POST", "/v1/sends", &send).await.ok(202);
    let send = send["id"].as_str().expect("an id");
    let mut state = hello();
    state["requestState"] = json!(format!("{send}.0"));
    let call = modern(&api, "tools/call", state, json!({})).header("authorization", &key);
    assert_eq!(call.send().await.status, 403);
    // Waiting for it is reading, and leaving it no more than that.
    let mut call = hello();
    call["arguments"]["send_id"] = json!(send);
    let call = modern(&api, "tools/call", call, json!({})).header("authorization", &key);
    drop(call.stream().await);
    let path = format!("/v1/sends/{send}?wait=50ms");
    let shown = ask(&api, ROOT, "GET", &path, &Value::Null).await.ok(200);
    assert_eq!(shown["status"], "queued");
}
