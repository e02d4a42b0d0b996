//! The Model Context Protocol: published agents as tools, sends as tasks, what is asked of a person as elicitation.

mod asking;
mod tasks;

use mainspring_shared::send::WaitingOn;
use mainspring_shared::store::Claimed;
use serde_json::{Value, json};

use crate::access::{ROOT, ask, locked, tenant};
use crate::client::{Answer, Call, Event, Events};
use crate::issuers::trusting;
use crate::world::{Scheduler, World, nothing};

/// The newest version with a handshake whose events all have data, which this reader expects.
const LEGACY: &str = "2025-06-18";

const MODERN: &str = "2026-07-28";

/// A client with a handshake.
struct Client {
    session: String,
}

impl Client {
    /// Shakes hands with a scheduler, as a client that can do this.
    async fn new(api: &Scheduler, capabilities: Value) -> Self {
        let hello = json!({
            "protocolVersion": LEGACY, "capabilities": capabilities,
            "clientInfo": { "name": "test", "version": "1" },
        });
        let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello });
        let answer = api.post("/mcp", &hello).await;
        let result = &answer.ok(200)["result"];
        assert_eq!(result["protocolVersion"], LEGACY, "{result}");
        let session = answer.header("mcp-session-id").expect("a session");
        Self {
            session: session.to_owned(),
        }
    }

    fn call(&self, api: &Scheduler, message: &Value) -> Call {
        let call = api.call("POST", "/mcp").json(message);
        let call = call.header("mcp-session-id", &self.session);
        call.header("mcp-protocol-version", LEGACY)
    }

    /// Makes a request that is answered at once.
    async fn ask(&self, api: &Scheduler, method: &str, params: Value) -> Value {
        let message = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        self.call(api, &message).send().await.ok(200)
    }

    async fn result(&self, api: &Scheduler, method: &str, params: Value) -> Value {
        let answer = self.ask(api, method, params).await;
        assert_eq!(answer.get("error"), None, "{answer}");
        answer["result"].clone()
    }

    /// Calls a tool, and returns the stream of its answer.
    async fn tool(&self, api: &Scheduler, id: u32, params: Value) -> Events {
        let message =
            json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        self.call(api, &message).stream().await
    }

    /// Sends what is no request.
    async fn tell(&self, api: &Scheduler, message: Value) {
        let answer = self.call(api, &message).send().await;
        assert_eq!(answer.status, 202, "{}", answer.text);
    }
}

/// A request without a handshake.
fn modern(api: &Scheduler, method: &str, mut params: Value, capabilities: Value) -> Call {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(MODERN);
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
    let name = params["name"].as_str().or(params["uri"].as_str());
    let name = name.unwrap_or_default().to_owned();
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let call = api.call("POST", "/mcp").json(&message);
    let call = call.header("mcp-protocol-version", MODERN);
    let call = call.header("mcp-method", method);
    if name.is_empty() {
        call
    } else {
        call.header("mcp-name", &name)
    }
}

async fn publish(api: &Scheduler, name: &str, spec: Value) {
    let body = json!({ "name": name, "spec": spec });
    api.post("/v1/agents", &body).await.ok(201);
}

/// A world with an agent, and a scheduler.
async fn with_agent() -> (World, Scheduler) {
    let world = World::new().await;
    let api = world.ready().await;
    publish(&api, "mine", json!({})).await;
    (world, api)
}

fn hello() -> Value {
    json!({ "name": "mine", "arguments": { "message": "hello" } })
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

/// The message that is the last of a stream.
async fn last(events: &mut Events) -> Value {
    let rest = events.rest().await;
    rest.last().map(data).expect("an event")
}

fn data(event: &Event) -> Value {
    assert_eq!(event.name, "message");
    event.data.clone()
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().expect("a text")
}

#[tokio::test]
async fn what_a_client_speaks_is_found_out() {
    let world = World::new().await;
    let api = world.ready().await;
    let hello = |version: &str| {
        let params = json!({ "protocolVersion": version, "capabilities": {} });
        json!({ "jsonrpc": "2.0", "id": "a", "method": "initialize", "params": params })
    };
    for (asked, given) in [
        ("2025-11-25", "2025-11-25"),
        ("2025-03-26", "2025-03-26"),
        ("2099-01-01", "2025-11-25"),
    ] {
        let answer = api.post("/mcp", &hello(asked)).await.ok(200);
        assert_eq!(answer["result"]["protocolVersion"], given);
        assert_eq!(answer["id"], "a");
        assert_eq!(answer["result"].get("resultType"), None);
    }
    let found = modern(&api, "server/discover", json!({}), json!({}))
        .send()
        .await
        .ok(200);
    assert_eq!(found["result"]["supportedVersions"][0], MODERN);
    assert_eq!(found["result"]["resultType"], "complete");
    let strange = modern(&api, "nothing/here", json!({}), json!({}))
        .send()
        .await;
    assert_eq!(strange.ok(404)["error"]["code"], -32601);
    // A client of a version that is not known yet is told which ones are.
    let newer = json!({ "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2099-01-01",
        "io.modelcontextprotocol/clientCapabilities": {},
    } });
    let newer = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": newer });
    let call = api.call("POST", "/mcp").json(&newer);
    let call = call.header("mcp-protocol-version", "2099-01-01");
    let refused = call.header("mcp-method", "tools/list").send().await.ok(400);
    assert_eq!(refused["error"]["code"], -32022);
    assert_eq!(refused["error"]["data"]["supported"][0], MODERN);
    assert_eq!(api.get("/mcp").await.status, 405);
    for (body, code) in [
        ("{", -32700),
        ("[]", -32600),
        (r#"{"jsonrpc":"2.0","id":1}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, -32600),
    ] {
        let call = api.call("POST", "/mcp").body(body);
        let answer = call
            .header("content-type", "application/json")
            .send()
            .await
            .ok(400);
        assert_eq!(answer["error"]["code"], code, "{body}");
    }
}

#[tokio::test]
async fn published_agents_are_tools_with_their_schemas() {
    let world = World::new().await;
    let api = world.ready().await;
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
    let prompt = json!({
        "sections": [{ "name": "who", "text": "You serve {{ customer }}." }],
        "variables": { "customer": { "description": "Whom it serves.", "required": true }, "tone": { "default": "kind" } },
    });
    publish(
        &api,
        "clerk",
        json!({ "prompt": prompt, "output_schema": schema }),
    )
    .await;
    publish(
        &api,
        "lister",
        json!({ "output_schema": { "type": "array" } }),
    )
    .await;
    let client = Client::new(&api, json!({})).await;
    let listed = client.result(&api, "tools/list", json!({})).await;
    let [clerk, lister] = listed["tools"].as_array().expect("tools").as_slice() else {
        panic!("{listed}");
    };
    assert_eq!(clerk["name"], "clerk");
    assert_eq!(clerk["outputSchema"], schema);
    assert_eq!(clerk["execution"]["taskSupport"], "optional");
    let input = &clerk["inputSchema"];
    assert_eq!(input["required"], json!(["message", "variables"]));
    let variables = &input["properties"]["variables"];
    assert_eq!(variables["required"], json!(["customer"]));
    assert_eq!(
        variables["properties"]["customer"]["description"],
        "Whom it serves."
    );
    assert_eq!(variables["properties"]["tone"]["default"], "kind");
    // Only objects were structured content before.
    assert_eq!(lister.get("outputSchema"), None);
    let listed = modern(&api, "tools/list", json!({}), json!({}))
        .send()
        .await
        .ok(200);
    assert_eq!(
        listed["result"]["tools"][1]["outputSchema"],
        json!({ "type": "array" })
    );
    assert_eq!(listed["result"]["cacheScope"], "private");
    let said = client
        .ask(&api, "tools/call", json!({ "name": "nobody" }))
        .await;
    assert_eq!(said["error"]["code"], -32602);
    // What a model can mend is told to the model.
    for (arguments, says) in [
        (json!({ "message": 1 }), "input schema"),
        (
            json!({ "message": "x", "session_id": nothing("ses_"), "variables": { "customer": "A" } }),
            "session",
        ),
        (json!({ "message": "x" }), "customer"),
    ] {
        let called = json!({ "name": "clerk", "arguments": arguments });
        let result = client.result(&api, "tools/call", called).await;
        assert_eq!(result["isError"], true, "{result}");
        assert!(text(&result).contains(says), "{result}");
    }
}

#[tokio::test]
async fn a_call_is_a_send_and_a_conversation_goes_on() {
    let (world, api) = with_agent().await;
    let client = Client::new(&api, json!({})).await;
    let mut call = hello();
    call["_meta"] = json!({ "progressToken": "p" });
    let mut answer = client.tool(&api, 1, call).await;
    let claimed = claim(&world, &api).await;
    world.append(&claimed, 0, "thinking").await;
    let progress = data(&answer.next().await.expect("an event"));
    assert_eq!(progress["method"], "notifications/progress");
    assert_eq!(progress["params"]["progressToken"], "p");
    assert_eq!(progress["params"]["progress"], 1);
    world.complete(&claimed, 1, "hello to you").await;
    let said = last(&mut answer).await;
    assert_eq!(said["id"], 1);
    let result = &said["result"];
    assert_eq!(text(result), "hello to you");
    assert_eq!(result.get("isError"), None);
    let session = result["_meta"]["mainspring/session_id"]
        .as_str()
        .expect("an id");
    assert_eq!(
        result["content"][1]["text"],
        format!("session_id: {session}")
    );
    let call = json!({ "name": "mine", "arguments": { "message": "more", "session_id": session } });
    let mut answer = client.tool(&api, 2, call).await;
    let claimed = claim(&world, &api).await;
    world
        .fail(&claimed, mainspring_shared::error::Code::LlmRefused, "no")
        .await;
    let result = last(&mut answer).await["result"].clone();
    assert_eq!(result["isError"], true);
    assert_eq!(text(&result), "llm.refused: no");
    assert_eq!(result["_meta"]["mainspring/session_id"], session);
    let sends = api
        .get(&format!("/v1/sends?session_id={session}"))
        .await
        .ok(200);
    assert_eq!(sends["data"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn a_repeated_call_is_the_same_send() {
    let (world, api) = with_agent().await;
    let client = Client::new(&api, json!({})).await;
    let mut first = client.tool(&api, 1, hello()).await;
    let mut again = client.tool(&api, 1, hello()).await;
    let claimed = claim(&world, &api).await;
    world.complete(&claimed, 0, "once").await;
    assert_eq!(last(&mut first).await, last(&mut again).await);
    let sends = api.get("/v1/sends").await.ok(200);
    assert_eq!(sends["data"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn a_call_is_cancelled_through_any_scheduler() {
    let (world, api) = with_agent().await;
    let other = world.ready().await;
    let client = Client::new(&api, json!({})).await;
    let mut answer = client.tool(&api, 1, hello()).await;
    while api.get("/v1/sends?status=queued").await.ok(200)["data"][0].is_null() {}
    let cancel = |id: u32| json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } });
    client.tell(&other, cancel(9)).await;
    assert_eq!(
        api.get("/v1/sends").await.ok(200)["data"][0]["status"],
        "queued"
    );
    client.tell(&other, cancel(1)).await;
    let result = last(&mut answer).await["result"].clone();
    assert_eq!(result["isError"], true);
    let sends = api.get("/v1/sends").await.ok(200);
    assert_eq!(sends["data"][0]["status"], "cancelled");
    assert_eq!(sends["data"].as_array().map(Vec::len), Some(1));
}

/// Waits until the only send has this status.
async fn until(api: &Scheduler, status: &str) {
    while api.get("/v1/sends").await.ok(200)["data"][0]["status"] != status {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn only_without_a_handshake_a_closed_stream_cancels() {
    let (world, api) = with_agent().await;
    let client = Client::new(&api, json!({})).await;
    drop(client.tool(&api, 1, hello()).await);
    let claimed = claim(&world, &api).await;
    world.complete(&claimed, 0, "said to nobody").await;
    assert_eq!(
        api.get("/v1/sends").await.ok(200)["data"][0]["status"],
        "completed"
    );
    let answer = modern(&api, "tools/call", hello(), json!({}))
        .stream()
        .await;
    until(&api, "queued").await;
    drop(answer);
    until(&api, "cancelled").await;
}

#[tokio::test]
async fn a_stream_goes_on_at_another_scheduler() {
    let (world, api) = with_agent().await;
    let other = world.ready().await;
    let client = Client::new(&api, json!({})).await;
    let mut call = hello();
    call["_meta"] = json!({ "progressToken": 5 });
    let mut answer = client.tool(&api, 1, call).await;
    let claimed = claim(&world, &api).await;
    world.append(&claimed, 0, "thinking").await;
    let seen = answer.next().await.expect("an event");
    drop(answer);
    let place = seen.id.expect("an id");
    let call = other.call("GET", "/mcp").header("last-event-id", &place);
    let call = call.header("mcp-protocol-version", LEGACY);
    let mut rest = call
        .header("mcp-session-id", &client.session)
        .stream()
        .await;
    world.append(&claimed, 1, "still").await;
    let progress = data(&rest.next().await.expect("an event"));
    assert_eq!(progress["params"]["progress"], 2, "{progress}");
    assert_eq!(progress["params"]["progressToken"], 5);
    world.complete(&claimed, 2, "done").await;
    let said = last(&mut rest).await;
    assert_eq!(said["id"], 1);
    assert_eq!(text(&said["result"]), "done");
    // With 2025-11-25 a stream begins with where it is.
    let message = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": hello() });
    let call = api.call("POST", "/mcp").json(&message);
    let whole = tokio::spawn(call.header("mcp-protocol-version", "2025-11-25").send());
    let claimed = claim(&world, &api).await;
    world.complete(&claimed, 0, "ok").await;
    let whole = whole.await.expect("joins").text;
    assert!(whole.starts_with("id: "), "{whole}");
    assert!(whole.contains("\nretry: 500\ndata: \n\n"), "{whole}");
    let place = api.call("GET", "/mcp").header("last-event-id", "nonsense");
    assert_eq!(place.send().await.status, 405);
}

#[tokio::test]
async fn sessions_and_runs_are_resources() {
    let (world, api) = with_agent().await;
    let client = Client::new(&api, json!({})).await;
    let session = api.session().await;
    api.send(&session, "hi").await;
    let claimed = world.claim(&session).await;
    world.complete(&claimed, 0, "hello").await;
    let listed = client.result(&api, "resources/list", json!({})).await;
    let uri = format!("mainspring://sessions/{session}");
    assert_eq!(listed["resources"][0]["uri"], uri);
    let next = json!({ "cursor": listed["nextCursor"] });
    let runs = client.result(&api, "resources/list", next).await;
    assert_eq!(runs["resources"], json!([]));
    assert_eq!(runs.get("nextCursor"), None);
    let spec = crate::runs::two_steps();
    let run = api.post("/v1/runs", &json!({ "spec": spec })).await.ok(202);
    let run = run["id"].as_str().expect("an id");
    let read = client
        .result(&api, "resources/read", json!({ "uri": uri }))
        .await;
    let said: Value =
        serde_json::from_str(read["contents"][0]["text"].as_str().expect("text")).expect("JSON");
    assert_eq!(said["session"]["id"], session);
    assert_eq!(said["messages"][1]["content"][0]["text"], "hello");
    let uri = format!("mainspring://runs/{run}");
    let read = client
        .result(&api, "resources/read", json!({ "uri": uri }))
        .await;
    assert!(
        read["contents"][0]["text"]
            .as_str()
            .expect("text")
            .contains(run)
    );
    let unknown = json!({ "uri": format!("mainspring://sessions/{}", nothing("ses_")) });
    let refused = client.ask(&api, "resources/read", unknown.clone()).await;
    assert_eq!(refused["error"]["code"], -32002);
    let refused = modern(&api, "resources/read", unknown, json!({}))
        .send()
        .await
        .ok(400);
    assert_eq!(refused["error"]["code"], -32602);
}

#[tokio::test]
async fn who_has_no_key_is_told_how_to_get_in() {
    let world = World::new().await;
    let api = trusting(&world).await;
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    let refused = api.post("/mcp", &ping).await;
    refused.problem(401, "auth.missing");
    let challenge = refused.header("www-authenticate").expect("a challenge");
    let at = "http://localhost/.well-known/oauth-protected-resource/mcp";
    assert_eq!(challenge, format!("Bearer resource_metadata=\"{at}\""));
    let wrong = ask(&api, "msk_wrong", "POST", "/mcp", &ping).await;
    assert_eq!(wrong.status, 401);
    assert!(
        wrong
            .header("www-authenticate")
            .expect("a challenge")
            .contains(at)
    );
    for path in [
        "/.well-known/oauth-protected-resource/mcp",
        "/.well-known/oauth-protected-resource",
    ] {
        let shown = api.get(path).await.ok(200);
        assert_eq!(shown["resource"], "http://localhost/mcp");
        assert_eq!(
            shown["authorization_servers"],
            json!(["https://issuer.example"])
        );
        assert_eq!(shown["bearer_methods_supported"], json!(["header"]));
    }
    assert_eq!(
        ask(&api, ROOT, "POST", "/mcp", &ping).await.ok(200)["result"],
        json!({})
    );
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
    let rpc = |method: &str, params: Value| json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let key = async |body: Value| {
        let made = ask(&api, &blue, "POST", "/v1/keys", &body).await.ok(201);
        made["key"].as_str().expect("the token").to_owned()
    };
    let reader = key(json!({ "scopes": ["read"] })).await;
    let task = json!({ "name": "mine", "arguments": { "message": "x" }, "task": {} });
    let refused = ask(
        &api,
        &reader,
        "POST",
        "/mcp",
        &rpc("tools/call", task.clone()),
    )
    .await;
    assert_eq!(refused.ok(403)["error"]["data"]["code"], "auth.forbidden");
    let made = ask(
        &api,
        &blue,
        "POST",
        "/mcp",
        &rpc("tools/call", task.clone()),
    )
    .await
    .ok(200);
    let id = json!({ "taskId": made["result"]["task"]["taskId"] });
    let refused = ask(
        &api,
        &reader,
        "POST",
        "/mcp",
        &rpc("tasks/cancel", id.clone()),
    )
    .await;
    assert_eq!(refused.ok(403)["error"]["data"]["code"], "auth.forbidden");
    let bound =
        key(json!({ "scopes": ["read", "use"], "binding": { "agents": ["theirs"] } })).await;
    let listed = ask(&api, &bound, "POST", "/mcp", &rpc("tools/list", json!({})))
        .await
        .ok(200);
    let names: Vec<&Value> = listed["result"]["tools"]
        .as_array()
        .expect("tools")
        .iter()
        .map(|tool| &tool["name"])
        .collect();
    assert_eq!(names, ["theirs"]);
    let refused = ask(&api, &bound, "POST", "/mcp", &rpc("tools/call", task)).await;
    assert_eq!(refused.ok(403)["error"]["data"]["code"], "auth.binding");
    // Nor does it find what others began, and another tenant finds nothing at all.
    let (_, red) = tenant(&api, "red", &["admin"]).await;
    for key in [&bound, &red] {
        let refused = ask(&api, key, "POST", "/mcp", &rpc("tasks/get", id.clone()))
            .await
            .ok(200);
        assert_eq!(refused["error"]["message"], "there is no task with this id");
        let listed = ask(&api, key, "POST", "/mcp", &rpc("tasks/list", json!({})))
            .await
            .ok(200);
        assert_eq!(listed["result"]["tasks"], json!([]));
        let listed = ask(&api, key, "POST", "/mcp", &rpc("resources/list", json!({})))
            .await
            .ok(200);
        assert_eq!(listed["result"]["resources"], json!([]));
    }
    let listed = ask(&api, &red, "POST", "/mcp", &rpc("tools/list", json!({})))
        .await
        .ok(200);
    assert_eq!(listed["result"]["tools"], json!([]));
}

#[track_caller]
fn fault(answer: &Answer, code: i64) {
    assert_eq!(answer.json()["error"]["code"], code, "{}", answer.text);
}
