//! Tasks: calls that nobody has to wait for.

use super::*;

fn as_task() -> Value {
    let mut call = hello();
    call["task"] = json!({ "ttl": 60_000 });
    call
}

#[tokio::test]
async fn a_task_is_found_again_by_any_client_at_any_scheduler() {
    let (world, api) = with_agent().await;
    let client = Client::new(&api, json!({})).await;
    let made = client.result(&api, "tools/call", as_task()).await;
    let task = &made["task"];
    assert_eq!(task["status"], "working");
    assert_eq!(task["ttl"], Value::Null);
    let id = json!({ "taskId": task["taskId"] });
    let other = world.ready().await;
    let later = Client::new(&other, json!({})).await;
    assert_eq!(
        later.result(&other, "tasks/get", id.clone()).await["status"],
        "working"
    );
    let listed = later.result(&other, "tasks/list", json!({})).await;
    assert_eq!(listed["tasks"][0]["taskId"], task["taskId"]);
    let message = json!({ "jsonrpc": "2.0", "id": 3, "method": "tasks/result", "params": id });
    let mut result = later.call(&other, &message).stream().await;
    let claimed = claim(&world, &api).await;
    world.complete(&claimed, 0, "at last").await;
    let said = last(&mut result).await;
    assert_eq!(said["id"], 3);
    assert_eq!(text(&said["result"]), "at last");
    assert_eq!(
        said["result"]["_meta"]["io.modelcontextprotocol/related-task"],
        id
    );
    let shown = client.result(&api, "tasks/get", id).await;
    assert_eq!(shown["status"], "completed");
    let unknown = client
        .ask(&api, "tasks/get", json!({ "taskId": nothing("snd_") }))
        .await;
    assert_eq!(unknown["error"]["code"], -32602);
}

#[tokio::test]
async fn a_task_is_cancelled_only_by_name() {
    let (world, api) = with_agent().await;
    let client = Client::new(&api, json!({})).await;
    let made = client.result(&api, "tools/call", as_task()).await;
    let id = json!({ "taskId": made["task"]["taskId"] });
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 } });
    client.tell(&api, cancel).await;
    assert_eq!(
        client.result(&api, "tasks/get", id.clone()).await["status"],
        "working"
    );
    let shown = client.result(&api, "tasks/cancel", id.clone()).await;
    assert_eq!(shown["status"], "cancelled");
    assert_eq!(shown["taskId"], id["taskId"]);
    let again = client.ask(&api, "tasks/cancel", id.clone()).await;
    assert_eq!(again["result"]["status"], "cancelled", "{again}");
    let api = world.ready().await;
    let made = client.result(&api, "tools/call", {
        let mut call = as_task();
        call["arguments"]["message"] = json!("other");
        call
    });
    assert_eq!(
        made.await["task"]["taskId"],
        id["taskId"],
        "the same id of a request is a repeat"
    );
}

#[tokio::test]
async fn a_task_asks_a_person() {
    let (world, api) = with_agent().await;
    let client = Client::new(&api, json!({ "elicitation": {} })).await;
    let made = client.result(&api, "tools/call", as_task()).await;
    let id = json!({ "taskId": made["task"]["taskId"] });
    let claimed = claim(&world, &api).await;
    world.ask(&claimed, WaitingOn::Human, true).await;
    let shown = client.result(&api, "tasks/get", id.clone()).await;
    assert_eq!(shown["status"], "input_required");
    assert!(
        shown["statusMessage"]
            .as_str()
            .expect("a text")
            .contains("outside")
    );
    let message = json!({ "jsonrpc": "2.0", "id": 3, "method": "tasks/result", "params": id });
    let mut result = client.call(&api, &message).stream().await;
    let asked = data(&result.next().await.expect("a question"));
    assert_eq!(
        asked["params"]["_meta"]["io.modelcontextprotocol/related-task"],
        id
    );
    let content = json!({ "action": "accept", "content": { "approved": true } });
    let yes = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": content });
    client.tell(&api, yes).await;
    assert_eq!(
        client.result(&api, "tasks/get", id.clone()).await["status"],
        "working"
    );
    let session = api.get("/v1/sends").await.ok(200)["data"][0]["session_id"].clone();
    let claimed = world.claim(session.as_str().expect("an id")).await;
    world.complete(&claimed, 1, "done").await;
    assert_eq!(text(&last(&mut result).await["result"]), "done");
}

#[tokio::test]
async fn a_client_that_polls_gets_a_task_for_every_call() {
    let (world, api) = with_agent().await;
    let can = json!({ "elicitation": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let made = modern(&api, "tools/call", hello(), can.clone())
        .send()
        .await
        .ok(200)["result"]
        .clone();
    assert_eq!(made["resultType"], "task");
    assert_eq!(made["status"], "working");
    assert_eq!(made["ttlMs"], Value::Null);
    let id = json!({ "taskId": made["taskId"] });
    let get = async || {
        let shown = modern(&api, "tasks/get", id.clone(), can.clone())
            .send()
            .await
            .ok(200);
        shown["result"].clone()
    };
    let claimed = claim(&world, &api).await;
    let call = world.ask(&claimed, WaitingOn::Human, true).await;
    let shown = get().await;
    assert_eq!(shown["status"], "input_required");
    assert_eq!(
        shown["inputRequests"][&call]["method"],
        "elicitation/create"
    );
    let mut update = id.clone();
    update["inputResponses"] =
        json!({ &call: { "action": "accept", "content": { "approved": true } } });
    let taken = modern(&api, "tasks/update", update, can.clone())
        .send()
        .await
        .ok(200);
    assert_eq!(taken["result"]["resultType"], "complete");
    let session = api.get("/v1/sends").await.ok(200)["data"][0]["session_id"].clone();
    let claimed = world.claim(session.as_str().expect("an id")).await;
    world.complete(&claimed, 1, "done").await;
    let shown = get().await;
    assert_eq!(shown["status"], "completed");
    assert_eq!(shown["resultType"], "complete");
    assert_eq!(text(&shown["result"]), "done");
    let cancelled = modern(&api, "tasks/cancel", id.clone(), can.clone())
        .send()
        .await
        .ok(200);
    assert_eq!(cancelled["result"]["resultType"], "complete");
    // What was core before is not there any more.
    fault(
        &modern(&api, "tasks/result", id.clone(), can).send().await,
        -32601,
    );
}
