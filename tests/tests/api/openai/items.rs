//! Items of requests: named by their ids, and results of calls with more behind them.

use mainspring_shared::message::plain_text;
use mainspring_shared::send::WaitingOn;
use serde_json::{Value, json};

use super::{answered, begin, claim, get, outside, refused, send_of};
use crate::world::{Scheduler, World, nothing};

fn user(text: &str) -> Value {
    json!({ "role": "user", "content": text })
}

fn named(id: &Value) -> Value {
    json!({ "type": "item_reference", "id": id })
}

fn result(call: &str, text: &str) -> Value {
    json!({ "type": "function_call_output", "call_id": call, "output": text })
}

fn asked(input: Value) -> Value {
    let mut body = json!({ "model": "demo" });
    body["input"] = input;
    body
}

async fn session(api: &Scheduler, response: &Value) -> String {
    let send = api.get(&format!("/v1/sends/{}", send_of(response))).await;
    let session = send.ok(200)["session_id"].clone();
    session.as_str().expect("an id").to_owned()
}

/// What was said in the session of a response.
async fn said(api: &Scheduler, response: &Value) -> Vec<String> {
    let path = format!("/v1/sessions/{}/messages", session(api, response).await);
    let page = api.get(&path).await.ok(200);
    let messages = page["data"].as_array().expect("a list").iter();
    let texts = messages.map(|message| {
        let content = serde_json::from_value::<Vec<_>>(message["content"].clone());
        plain_text(&content.expect("content"))
    });
    texts.collect()
}

#[tokio::test]
async fn what_was_said_is_named_by_its_id() {
    let world = World::new().await;
    let api = world.ready().await;
    let one = answered(&world, &api, asked(json!("one")), "1").await;
    let answer = named(&one["output"][0]["id"]);
    let input = json!([user("one"), answer, user("two")]);
    let two = answered(&world, &api, asked(input), "2").await;
    assert_eq!(session(&api, &one).await, session(&api, &two).await);
    let conversation = session(&api, &one).await.replace("ses_", "conv_");
    let path = format!("/v1/conversations/{conversation}/items?order=asc");
    let items = api.get(&path).await.ok(200);
    let id = |n: usize| named(&items["data"][n]["id"]);
    // Thoughts are known to those who had them.
    let thought = named(&json!("rs_1"));
    let input = json!([id(0), thought, id(1), user("zwei")]);
    let other = answered(&world, &api, asked(input), "II").await;
    assert_ne!(session(&api, &one).await, session(&api, &other).await);
    assert_eq!(said(&api, &other).await, ["one", "1", "zwei", "II"]);
    for id in [
        nothing("msg_"),
        format!("{}_0", nothing("msg_")),
        "x".to_owned(),
    ] {
        let body = asked(json!([user("one"), named(&json!(id)), user("two")]));
        let answer = api.post("/v1/responses", &body).await;
        refused(&answer, 404, Some("input[1].id"), "send.not_found");
    }
    let items = json!({ "items": [id(0), id(1)] });
    let made = api.post("/v1/conversations", &items).await.ok(200);
    let path = format!(
        "/v1/conversations/{}/items",
        made["id"].as_str().expect("an id")
    );
    let items = api.get(&path).await.ok(200);
    assert_eq!(items["data"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn results_come_with_what_the_user_says_next() {
    let world = World::new().await;
    let api = world.ready().await;
    let mut body = asked(json!("go"));
    body["tools"] = json!([outside()]);
    let first = begin(&api, body).await;
    let claimed = claim(&world, &api, &first).await;
    let call = world.ask(&claimed, WaitingOn::Tool, false).await;
    let first = get(&api, &first).await;
    let mut body = asked(json!([result(&call, "42"), user("and now?")]));
    body["previous_response_id"] = first["id"].clone();
    let second = begin(&api, body.clone()).await;
    assert_eq!(send_of(&second), send_of(&first));
    // A repeat says it once.
    assert_eq!(begin(&api, body).await["id"], second["id"]);
    let path = format!("/v1/sessions/{}/inbox", session(&api, &first).await);
    let inbox = api.get(&path).await.ok(200);
    assert_eq!(inbox["data"].as_array().map(Vec::len), Some(1), "{inbox}");
    assert_eq!(inbox["data"][0]["content"][0]["text"], "and now?");
    let claimed = claim(&world, &api, &second).await;
    world.complete(&claimed, 1, "rain").await;
    let done = get(&api, &second).await;
    assert_eq!(done["output"][0]["content"][0]["text"], "rain");
}

#[tokio::test]
async fn results_of_calls_that_were_made_elsewhere_are_history() {
    let world = World::new().await;
    let api = world.ready().await;
    let call =
        json!({ "type": "function_call", "call_id": "c1", "name": "f", "arguments": "{\"a\":1}" });
    let input = json!([user("go"), call, result("c1", "42"), user("and now?")]);
    let done = answered(&world, &api, asked(input), "rain").await;
    assert_eq!(
        said(&api, &done).await,
        ["go", "", "42", "and now?", "rain"]
    );
    let alone = json!([user("go"), call, result("c1", "42")]);
    let answer = api.post("/v1/responses", &asked(alone)).await;
    refused(&answer, 404, Some("input[2].call_id"), "call.not_found");
}

#[tokio::test]
async fn results_may_come_with_all_that_was_said_since_another_response() {
    let world = World::new().await;
    let api = world.ready().await;
    let before = answered(&world, &api, asked(json!("hi")), "hello").await;
    let mut body = asked(json!("go"));
    body["tools"] = json!([outside()]);
    body["previous_response_id"] = before["id"].clone();
    let first = begin(&api, body).await;
    let claimed = claim(&world, &api, &first).await;
    let call = world.ask(&claimed, WaitingOn::Tool, false).await;
    let first = get(&api, &first).await;
    let item = first["output"][1].clone();
    let input = |said: &str| json!([user(said), first["output"][0], item, result(&call, "42")]);
    let mut body = asked(input("stop"));
    body["previous_response_id"] = before["id"].clone();
    let answer = api.post("/v1/responses", &body).await;
    refused(&answer, 400, Some("input[3]"), "request.invalid");
    body["input"] = input("go");
    let second = begin(&api, body).await;
    assert_eq!(send_of(&second), send_of(&first));
    assert_ne!(second["id"], first["id"]);
}
