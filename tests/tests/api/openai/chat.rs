//! Chat completions.

use mainspring_shared::send::WaitingOn;
use serde_json::{Value, json};

use super::{claim_queued, outside, refused};
use crate::world::{Scheduler, World};

fn body(messages: &Value) -> Value {
    json!({ "model": "demo", "messages": messages })
}

/// Asks, and answers as a worker does.
async fn ask(world: &World, api: &Scheduler, messages: &Value, answer: &str) -> Value {
    let body = body(messages);
    let (answered, ()) = tokio::join!(api.post("/v1/chat/completions", &body), async {
        let claimed = claim_queued(world, api).await;
        world.complete(&claimed, 0, answer).await;
    });
    answered.ok(200)
}

async fn texts(world: &World) -> Vec<Vec<String>> {
    let dump = world.store.dump().await.expect("dumps");
    let of = |messages: &[mainspring_shared::message::Message]| {
        messages
            .iter()
            .map(|message| mainspring_shared::message::plain_text(&message.content))
            .collect()
    };
    let mut all: Vec<Vec<String>> = dump
        .sessions
        .iter()
        .map(|session| of(&session.messages))
        .collect();
    all.sort();
    all
}

#[tokio::test]
async fn a_chat_continues_the_session_that_has_its_history() {
    let world = World::new().await;
    let api = world.ready().await;
    let system = json!({ "role": "system", "content": "be brief" });
    let user = |text: &str| json!({ "role": "user", "content": text });
    let assistant = |text: &str| json!({ "role": "assistant", "content": text });
    let first = ask(&world, &api, &json!([system, user("one")]), "1").await;
    assert_eq!(first["object"], "chat.completion");
    assert_eq!(first["choices"][0]["message"]["content"], "1");
    assert_eq!(
        (
            &first["choices"][0]["finish_reason"],
            &first["usage"]["prompt_tokens"]
        ),
        (&json!("stop"), &json!(10))
    );
    let path = format!(
        "/v1/chat/completions/{}",
        first["id"].as_str().expect("an id")
    );
    assert_eq!(api.get(&path).await.ok(200), first);
    ask(
        &world,
        &api,
        &json!([system, user("one"), assistant("1"), user("two")]),
        "2",
    )
    .await;
    assert_eq!(texts(&world).await, [["one", "1", "two", "2"]]);
    // Another history is another session, with all of it.
    ask(
        &world,
        &api,
        &json!([system, user("one"), assistant("eins"), user("zwei")]),
        "2!",
    )
    .await;
    assert_eq!(
        texts(&world).await,
        [
            vec!["one", "1", "two", "2"],
            vec!["one", "eins", "zwei", "2!"]
        ]
    );
    // So is one that goes back to an earlier place.
    ask(
        &world,
        &api,
        &json!([system, user("one"), assistant("1"), user("and?")]),
        "so",
    )
    .await;
    assert_eq!(texts(&world).await.len(), 3);
    // The same words that begin a chat begin another one.
    ask(&world, &api, &json!([system, user("one")]), "1").await;
    assert_eq!(texts(&world).await.len(), 4);
}

#[tokio::test]
async fn calls_of_a_chat_are_answered_in_the_next_request() {
    let world = World::new().await;
    let api = world.ready().await;
    let tool = json!({ "type": "function", "function": { "name": "outside", "parameters": outside()["parameters"] } });
    let mut asked = body(&json!([{ "role": "user", "content": "go" }]));
    asked["tools"] = json!([tool]);
    let (first, call) = tokio::join!(api.post("/v1/chat/completions", &asked), async {
        let claimed = claim_queued(&world, &api).await;
        world.ask(&claimed, WaitingOn::Tool, false).await
    });
    let first = first.ok(200);
    let choice = &first["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(choice["message"]["tool_calls"][0]["id"], call.as_str());
    let result = |text: &str| json!({ "role": "tool", "tool_call_id": call, "content": text });
    let history = json!([{ "role": "user", "content": "go" }, choice["message"], result("42")]);
    let mut other = history.clone();
    other[0]["content"] = json!("stop");
    let refusal = api.post("/v1/chat/completions", &body(&other)).await;
    refused(&refusal, 400, Some("messages[2]"), "request.invalid");
    let asked = body(&history);
    let (second, ()) = tokio::join!(api.post("/v1/chat/completions", &asked), async {
        let claimed = claim_queued_after_result(&world, &api).await;
        world.complete(&claimed, 1, "it is 42").await;
    });
    let second = second.ok(200);
    assert_eq!(second["choices"][0]["message"]["content"], "it is 42");
    assert_eq!(second["choices"][0]["message"]["tool_calls"], Value::Null);
}

/// Claims the session whose send waits, once its call is answered.
async fn claim_queued_after_result(
    world: &World,
    api: &Scheduler,
) -> mainspring_shared::store::Claimed {
    loop {
        let queued = api.get("/v1/sessions?status=queued").await.ok(200);
        if let Some(session) = queued["data"][0]["id"].as_str() {
            return world.claim(session).await;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_stream_of_chunks_ends_with_its_reason_its_usage_and_done() {
    let world = World::new().await;
    let api = world.ready().await;
    let mut asked = body(&json!([{ "role": "user", "content": "hi" }]));
    asked["stream"] = json!(true);
    asked["stream_options"] = json!({ "include_usage": true });
    let (answer, ()) = tokio::join!(api.post("/v1/chat/completions", &asked), async {
        let claimed = claim_queued(&world, &api).await;
        world.complete(&claimed, 0, "hello").await;
    });
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    let data: Vec<&str> = answer
        .text
        .split("\n\n")
        .filter_map(|block| block.strip_prefix("data: "))
        .collect();
    assert_eq!(data.last(), Some(&"[DONE]"));
    let chunks: Vec<Value> = data[..data.len() - 1]
        .iter()
        .map(|text| serde_json::from_str(text).expect("JSON"))
        .collect();
    assert!(
        chunks
            .iter()
            .all(|chunk| chunk["object"] == "chat.completion.chunk")
    );
    assert_eq!(
        chunks[0]["choices"][0]["delta"],
        json!({ "role": "assistant", "content": "hello" })
    );
    assert_eq!(chunks[1]["choices"][0]["finish_reason"], "stop");
    assert_eq!(chunks[1]["choices"][0]["delta"], json!({}));
    assert_eq!(
        (&chunks[2]["choices"], &chunks[2]["usage"]["total_tokens"]),
        (&json!([]), &json!(15))
    );
}

#[tokio::test]
async fn what_a_chat_cannot_have_is_refused_by_name() {
    let world = World::new().await;
    let api = world.ready().await;
    for (member, value, param) in [
        ("n", json!(2), "n"),
        ("logprobs", json!(true), "logprobs"),
        ("functions", json!([{}]), "functions"),
        (
            "messages",
            json!([{ "role": "user", "content": [{ "type": "input_audio" }] }]),
            "messages[0].content[0].type",
        ),
        (
            "messages",
            json!([{ "role": "user", "content": "x" }, { "role": "assistant", "content": "y" }]),
            "messages",
        ),
        (
            "tools",
            json!([{ "type": "function", "function": { "nom": "x" } }]),
            "tools[0].function",
        ),
    ] {
        let mut asked = body(&json!([{ "role": "user", "content": "x" }]));
        asked[member] = value;
        let answer = api.post("/v1/chat/completions", &asked).await;
        refused(&answer, 400, Some(param), "request.invalid");
    }
}
