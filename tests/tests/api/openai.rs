//! The API in OpenAI's form: the same rows and events as those of the native one.

mod chat;
mod conversations;
mod items;
mod streams;
mod vectors;

use mainspring_shared::error::Code;
use mainspring_shared::id::SendId;
use mainspring_shared::send::WaitingOn;
use mainspring_shared::store::Claimed;
use serde_json::{Value, json};

use crate::client::Answer;
use crate::world::{Scheduler, World, nothing};

/// The tool that the worker by hand calls.
fn outside() -> Value {
    json!({ "type": "function", "name": "outside", "parameters": { "type": "object" } })
}

/// The native id of a response's send.
fn send_of(response: &Value) -> String {
    let id = response["id"].as_str().expect("an id");
    let hex = id
        .trim_start_matches("resp_")
        .trim_start_matches("chatcmpl-");
    format!("snd_{}", &hex[..32])
}

/// Starts a response that nobody waits for.
async fn begin(api: &Scheduler, mut body: Value) -> Value {
    body["background"] = json!(true);
    api.post("/v1/responses", &body).await.ok(200)
}

/// Claims the send of a response, as a worker does.
async fn claim(world: &World, api: &Scheduler, response: &Value) -> Claimed {
    let send = api
        .get(&format!("/v1/sends/{}", send_of(response)))
        .await
        .ok(200);
    world
        .claim(send["session_id"].as_str().expect("an id"))
        .await
}

async fn get(api: &Scheduler, response: &Value) -> Value {
    let id = response["id"].as_str().expect("an id");
    api.get(&format!("/v1/responses/{id}")).await.ok(200)
}

/// Starts and answers a response.
async fn answered(world: &World, api: &Scheduler, body: Value, text: &str) -> Value {
    let begun = begin(api, body).await;
    let claimed = claim(world, api, &begun).await;
    world.complete(&claimed, 0, text).await;
    get(api, &begun).await
}

/// Claims the only send that is queued, once there is one.
async fn claim_queued(world: &World, api: &Scheduler) -> Claimed {
    loop {
        let queued = api.get("/v1/sends?status=queued").await.ok(200);
        if let Some(session) = queued["data"][0]["session_id"].as_str() {
            return world.claim(session).await;
        }
        tokio::task::yield_now().await;
    }
}

/// Asserts an error in OpenAI's form.
#[track_caller]
fn refused(answer: &Answer, status: u16, param: Option<&str>, code: &str) -> String {
    assert_eq!(answer.status, status, "{}", answer.text);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let error = &answer.json()["error"];
    assert_eq!(error["param"], json!(param), "{error}");
    assert_eq!(error["code"], code, "{error}");
    assert!(error["type"].is_string(), "{error}");
    error["message"].as_str().expect("a message").to_owned()
}

#[tokio::test]
async fn a_response_is_a_send_and_waits_for_its_end() {
    let world = World::new().await;
    let api = world.ready().await;
    let body = json!({
        "model": "demo", "input": "hello", "instructions": "be brief", "temperature": 0.5, "max_output_tokens": 99,
        "metadata": { "order": "42" },
    });
    let (answer, ()) = tokio::join!(api.post("/v1/responses", &body), async {
        let claimed = claim_queued(&world, &api).await;
        assert_eq!(
            claimed.send.record.input[0],
            mainspring_shared::message::ContentPart::text("hello")
        );
        world.complete(&claimed, 0, "hi").await;
    });
    let response = answer.ok(200);
    assert_eq!(
        (&response["object"], &response["status"]),
        (&json!("response"), &json!("completed"))
    );
    assert_eq!(response["output"][0]["content"][0]["text"], "hi");
    assert_eq!(response["output"].as_array().map(Vec::len), Some(1));
    assert_eq!(response["usage"]["input_tokens"], 10);
    assert_eq!(
        response["usage"]["output_tokens_details"]["reasoning_tokens"],
        0
    );
    assert_eq!(response["metadata"], json!({ "order": "42" }));
    assert_eq!(
        (
            &response["instructions"],
            &response["temperature"],
            &response["max_output_tokens"],
            &response["model"]
        ),
        (&json!("be brief"), &json!(0.5), &json!(99), &json!("demo"))
    );
    assert_eq!(get(&api, &response).await, response);
    let send = api
        .get(&format!("/v1/sends/{}", send_of(&response)))
        .await
        .ok(200);
    assert_eq!(send["output_text"], "hi");
    let items = api
        .get(&format!(
            "/v1/responses/{}/input_items",
            response["id"].as_str().expect("an id")
        ))
        .await
        .ok(200);
    assert_eq!(
        items["data"][0]["content"][0],
        json!({ "type": "input_text", "text": "hello" })
    );
    assert_eq!(items["has_more"], false);
}

#[tokio::test]
async fn a_response_in_the_background_is_read_later_and_can_be_cancelled() {
    let world = World::new().await;
    let api = world.ready().await;
    let begun = begin(&api, json!({ "model": "demo", "input": "hello" })).await;
    assert_eq!(
        (&begun["status"], &begun["background"], &begun["usage"]),
        (&json!("queued"), &json!(true), &Value::Null)
    );
    let id = begun["id"].as_str().expect("an id");
    let cancel = format!("/v1/responses/{id}/cancel");
    let cancelled = api.post(&cancel, &json!({})).await.ok(200);
    assert_eq!(cancelled["status"], "cancelled");
    assert_eq!(
        api.post(&cancel, &json!({})).await.ok(200)["status"],
        "cancelled"
    );
    let done = answered(
        &world,
        &api,
        json!({ "model": "demo", "input": "again" }),
        "yes",
    )
    .await;
    let late = api
        .post(
            &format!(
                "/v1/responses/{}/cancel",
                done["id"].as_str().expect("an id")
            ),
            &json!({}),
        )
        .await;
    refused(&late, 409, None, "send.not_cancellable");
    assert_eq!(late.header("x-should-retry"), Some("false"));
    let deleted = api
        .call("DELETE", &format!("/v1/responses/{id}"))
        .send()
        .await
        .ok(200);
    assert_eq!(deleted["deleted"], true);
    let gone = api.get(&format!("/v1/responses/{id}")).await;
    refused(&gone, 404, None, "send.not_found");
}

#[tokio::test]
async fn a_response_that_failed_says_why() {
    let world = World::new().await;
    let api = world.ready().await;
    let begun = begin(&api, json!({ "model": "demo", "input": "hello" })).await;
    let claimed = claim(&world, &api, &begun).await;
    world.fail(&claimed, Code::LlmRateLimited, "too fast").await;
    let failed = get(&api, &begun).await;
    assert_eq!(failed["status"], "failed");
    assert_eq!(failed["error"]["code"], "rate_limit_exceeded");
    assert_eq!(failed["error"]["message"], "llm.rate_limited: too fast");
}

#[tokio::test]
async fn what_is_not_done_is_refused_by_name() {
    let world = World::new().await;
    let api = world.ready().await;
    for (member, value, param) in [
        ("tools", json!([{ "type": "web_search" }]), "tools[0].type"),
        ("tools", json!([{ "type": "function" }]), "tools[0]"),
        ("tool_choice", json!({ "type": "mcp" }), "tool_choice"),
        ("max_tool_calls", json!(3), "max_tool_calls"),
        ("store", json!(false), "store"),
        (
            "text",
            json!({ "format": { "type": "grammar" } }),
            "text.format.type",
        ),
        ("reasoning", json!({ "effort": "vast" }), "reasoning.effort"),
        ("temperature", json!(3), "temperature"),
        (
            "include",
            json!(["message.output_text.logprobs"]),
            "include",
        ),
        (
            "input",
            json!([{ "type": "computer_call" }]),
            "input[0].type",
        ),
        ("no_such", json!(1), "no_such"),
        ("model", json!("agent/no such"), "model"),
        ("metadata", json!({ "a": "b".repeat(513) }), "metadata"),
    ] {
        let mut body = json!({ "model": "demo", "input": "x" });
        body[member] = value;
        let answer = api.post("/v1/responses", &body).await;
        refused(&answer, 400, Some(param), "request.invalid");
        assert_eq!(answer.header("x-should-retry"), Some("false"));
    }
    let unknown = api
        .post(
            "/v1/responses",
            &json!({ "model": "agent/nobody", "input": "x" }),
        )
        .await;
    refused(&unknown, 404, None, "model_not_found");
    for path in ["/v1/files", "/v1/audio/speech"] {
        refused(&api.get(path).await, 404, None, "unsupported_endpoint");
    }
    assert_eq!(world.store.dump().await.expect("dumps").sessions.len(), 0);
}

#[tokio::test]
async fn any_bearer_key_is_accepted_where_there_are_none() {
    let world = World::new().await;
    let api = world.ready().await;
    let asked = api
        .call("GET", "/v1/models")
        .header("authorization", "Bearer sk-anything");
    asked.send().await.ok(200);
    let api = crate::access::locked(&world).await;
    let asked = api
        .call("GET", "/v1/models")
        .header("authorization", "Bearer sk-anything");
    refused(&asked.send().await, 401, None, "auth.invalid");
}

#[tokio::test]
async fn a_function_is_called_and_its_result_lets_the_same_send_go_on() {
    let world = World::new().await;
    let api = world.ready().await;
    let begun = begin(
        &api,
        json!({ "model": "demo", "input": "go", "tools": [outside()] }),
    )
    .await;
    let claimed = claim(&world, &api, &begun).await;
    let call = world.ask(&claimed, WaitingOn::Tool, false).await;
    let first = get(&api, &begun).await;
    assert_eq!(first["status"], "completed");
    let kinds: Vec<_> = first["output"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|item| item["type"].clone())
        .collect();
    assert_eq!(kinds, ["message", "function_call"]);
    assert_eq!(first["output"][1]["call_id"], call.as_str());
    let arguments = first["output"][1]["arguments"].as_str().expect("a text");
    assert_eq!(
        serde_json::from_str::<Value>(arguments).expect("JSON")["to"],
        "x"
    );
    let next = |input: Value| {
        json!({
            "model": "demo", "previous_response_id": first["id"], "input": input, "background": true,
        })
    };
    let without = api.post("/v1/responses", &next(json!("and now?"))).await;
    let said = refused(&without, 400, Some("input"), "request.invalid");
    assert!(
        said.contains("No tool output found for function call"),
        "{said}"
    );
    let output = json!([{ "type": "function_call_output", "call_id": call, "output": "42" }]);
    let second = api
        .post("/v1/responses", &next(output.clone()))
        .await
        .ok(200);
    assert_eq!(send_of(&second), send_of(&first));
    assert_ne!(second["id"], first["id"]);
    assert_eq!(second["previous_response_id"], first["id"]);
    let claimed = claim(&world, &api, &second).await;
    world.complete(&claimed, 1, "it is 42").await;
    let done = get(&api, &second).await;
    assert_eq!(
        (&done["status"], &done["output"][0]["content"][0]["text"]),
        (&json!("completed"), &json!("it is 42"))
    );
    assert_eq!(done["output"].as_array().map(Vec::len), Some(1));
    assert_eq!(done["usage"]["input_tokens"], 10);
    // The first one reads as before, and its result posted again changes nothing.
    assert_eq!(get(&api, &first).await["output"], first["output"]);
    let again = api.post("/v1/responses", &next(output)).await.ok(200);
    assert_eq!(
        (&again["id"], &again["status"]),
        (&second["id"], &json!("completed"))
    );
    let items = api
        .get(&format!(
            "/v1/responses/{}/input_items",
            second["id"].as_str().expect("an id")
        ))
        .await
        .ok(200);
    assert_eq!(
        (&items["data"][0]["type"], &items["data"][0]["output"]),
        (&json!("function_call_output"), &json!("42"))
    );
    let unknown = json!([{ "type": "function_call_output", "call_id": "call_x", "output": "" }]);
    refused(
        &api.post("/v1/responses", &next(unknown)).await,
        404,
        Some("input[0].call_id"),
        "call.not_found",
    );
}

#[tokio::test]
async fn a_response_continues_the_last_one_or_a_copy_up_to_an_earlier_one() {
    let world = World::new().await;
    let api = world.ready().await;
    let one = answered(
        &world,
        &api,
        json!({ "model": "demo", "input": "one" }),
        "1",
    )
    .await;
    let after = |id: &Value, input: &str| json!({ "model": "other", "input": input, "previous_response_id": id });
    let busy = begin(&api, after(&one["id"], "two")).await;
    let early = api
        .post("/v1/responses", &after(&busy["id"], "early"))
        .await;
    refused(&early, 409, None, "conversation_locked");
    let claimed = claim(&world, &api, &busy).await;
    assert_eq!(
        claimed
            .send
            .record
            .options
            .agent_in(mainspring_shared::agent::AgentSpec::default())
            .model
            .as_deref(),
        Some("other")
    );
    world.complete(&claimed, 0, "2").await;
    let two = get(&api, &busy).await;
    assert_eq!(two["previous_response_id"], one["id"]);
    let session = async |response: &Value| {
        api.get(&format!("/v1/sends/{}", send_of(response)))
            .await
            .ok(200)["session_id"]
            .clone()
    };
    assert_eq!(session(&one).await, session(&two).await);
    let fork = answered(&world, &api, after(&one["id"], "another two"), "II").await;
    let copy = session(&fork).await;
    assert_ne!(copy, session(&one).await);
    let path = format!("/v1/sessions/{}/messages", copy.as_str().expect("an id"));
    let messages = api.get(&path).await.ok(200);
    let texts: Vec<_> = messages["data"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["content"][0]["text"].clone())
        .collect();
    assert_eq!(texts, ["one", "1", "another two", "II"]);
    // A response in a longer conversation is not deleted by itself.
    let delete = api.call(
        "DELETE",
        &format!("/v1/responses/{}", one["id"].as_str().expect("an id")),
    );
    refused(&delete.send().await, 409, None, "conversation_locked");
    let nobody = after(&json!(nothing("resp_")), "x");
    refused(
        &api.post("/v1/responses", &nobody).await,
        404,
        Some("previous_response_id"),
        "send.not_found",
    );
}

async fn repeat(api: &Scheduler, body: &Value, count: &str) -> Value {
    let call = api.call("POST", "/v1/responses").json(body);
    call.header("x-stainless-retry-count", count)
        .send()
        .await
        .ok(200)["id"]
        .clone()
}

#[tokio::test]
async fn a_repeat_of_the_client_gets_the_same_response_and_the_same_words_get_another() {
    let world = World::new().await;
    let api = world.ready().await;
    let body = json!({ "model": "demo", "input": "hello", "background": true });
    let first = repeat(&api, &body, "0").await;
    assert_eq!(repeat(&api, &body, "1").await, first);
    let second = repeat(&api, &body, "0").await;
    assert_ne!(second, first);
    assert_eq!(repeat(&api, &body, "2").await, second);
    let third = repeat(&api, &body, "0").await;
    assert!(third != first && third != second);
    // The first attempt of this one never arrived.
    let other = json!({ "model": "demo", "input": "other", "background": true });
    let arrived = repeat(&api, &other, "1").await;
    assert_eq!(repeat(&api, &other, "2").await, arrived);
    // The repeat of what continues a response does not fork it.
    let claimed = claim(&world, &api, &json!({ "id": third })).await;
    world.complete(&claimed, 0, "hi").await;
    let next = json!({ "model": "demo", "input": "on", "previous_response_id": third, "background": true });
    let on = repeat(&api, &next, "0").await;
    assert_eq!(repeat(&api, &next, "1").await, on);
    assert_eq!(world.store.dump().await.expect("dumps").sessions.len(), 4);
    let keyed = |body: &Value| {
        let call = api.call("POST", "/v1/responses").json(body);
        call.header("idempotency-key", "k1")
    };
    let made = keyed(&body).send().await.ok(200)["id"].clone();
    assert_eq!(keyed(&body).send().await.ok(200)["id"], made);
    refused(
        &keyed(&other).send().await,
        400,
        None,
        "idempotency.mismatch",
    );
}

#[tokio::test]
async fn a_published_agent_answers_as_a_model() {
    let world = World::new().await;
    let api = world.ready().await;
    let agent =
        json!({ "name": "support", "spec": { "system_prompt": "You help.", "model": "demo" } });
    api.post("/v1/agents", &agent).await.ok(201);
    let alias = api
        .call("PUT", "/v1/agents/support/aliases/live")
        .json(&json!({ "version": 1 }));
    assert!(alias.send().await.status < 300);
    let models = api.get("/v1/models").await.ok(200);
    let ids: Vec<_> = models["data"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["id"].clone())
        .collect();
    assert!(
        ids.contains(&json!("agent/support")) && ids.contains(&json!("agent/support@live")),
        "{ids:?}"
    );
    for path in [
        "/v1/models/agent%2Fsupport@live",
        "/v1/models/agent/support@1",
    ] {
        assert_eq!(api.get(path).await.ok(200)["object"], "model");
    }
    refused(
        &api.get("/v1/models/agent%2Fnobody").await,
        404,
        Some("model"),
        "model_not_found",
    );
    let done = answered(
        &world,
        &api,
        json!({ "model": "agent/support@live", "input": "hi" }),
        "yes?",
    )
    .await;
    assert_eq!(
        (&done["model"], &done["instructions"]),
        (&json!("agent/support@1"), &json!("You help."))
    );
    let tools = json!({ "model": "agent/support", "input": "hi", "tools": [outside()] });
    refused(
        &api.post("/v1/responses", &tools).await,
        400,
        Some("tools"),
        "request.invalid",
    );
    // The same session takes the same agent without another copy of it.
    let next =
        json!({ "model": "agent/support", "input": "on", "previous_response_id": done["id"] });
    let on = begin(&api, next).await;
    let id: SendId = send_of(&on).parse().expect("an id");
    let dump = world.store.dump().await.expect("dumps");
    let mut sends = dump.sessions.iter().flat_map(|session| &session.sends);
    assert_eq!(
        sends
            .find(|send| send.id == id)
            .map(|send| send.options.agent.clone()),
        Some(None)
    );
}
