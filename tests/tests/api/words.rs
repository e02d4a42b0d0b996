//! What is said of mistakes: what is wrong, where, and what to do, in the words of JSON and not of Rust.

use serde_json::{Value, json};

use crate::world::{Scheduler, World};

/// Parts of words that only a programmer of this program understands.
const FOREIGN: [&str; 24] = [
    "struct ",
    "enum ",
    "f64",
    "f32",
    "u64",
    "u32",
    "u16",
    "usize",
    "i64",
    "i32",
    "Option<",
    "Vec<",
    "::",
    "expected `",
    "field `",
    "variant",
    " column ",
    "component error",
    "untagged",
    "serde",
    "visitor",
    "invalid type",
    "invalid value",
    "invalid length",
];

/// What replaces each part of a sound body.
fn wrong() -> [Value; 10] {
    [
        json!(null),
        json!(true),
        json!(-1),
        json!(1.5),
        json!(1e300),
        json!(""),
        json!("zebra"),
        json!([]),
        json!([1, "x"]),
        json!({ "zebra": 1 }),
    ]
}

/// Every pointer into a value.
fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    let members: Vec<(String, &Value)> = match value {
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| (name.clone(), value))
            .collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(n, value)| (n.to_string(), value))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    };
    for (name, value) in members {
        let name = name.replace('~', "~0").replace('/', "~1");
        pointers(value, &format!("{at}/{name}"), found);
    }
}

fn agent() -> Value {
    json!({
        "name": "a", "system_prompt": "x", "model": "demo", "max_rounds": 3, "max_tokens": 10, "temperature": 0.5,
        "fallback": ["demo"], "budget": { "tokens": 10, "rounds": 1, "wall": "1m" }, "recovery": "auto",
        "context": { "last_messages": 4, "representation": "verbatim", "fold": { "strategy": "summary", "soft": 0.5 } },
        "tool_choice": "auto", "output_schema": { "type": "object" }, "memory": { "namespace": "user/1" },
        "prompt": { "variables": { "tone": { "default": "x" } } },
        "tools": [
            "core",
            { "type": "http", "name": "h", "url": "https://tools.example/h", "repeat": "safe", "timeout": "1s",
              "parameters": { "type": "object" }, "parallel": true, "approval": false },
            { "type": "external", "name": "e", "description": "x", "deadline": "1h" },
            { "type": "mcp", "server": "files", "tools": ["read"], "prefix": "f_" },
            { "type": "worker", "name": "shell", "approval": true },
        ],
    })
}

fn bodies(session: &str) -> Vec<(&'static str, String, Value)> {
    let options = json!({
        "model": "demo", "max_rounds": 1, "priority": "high", "deadline": "2030-01-01T00:00:00Z", "delay": "1s",
        "on_busy": "enqueue", "budget": { "tokens": 1 }, "tools": ["core"], "output_schema": { "type": "object" },
    });
    let leaf = json!({ "type": "agent", "id": "l", "spec": { "name": "n", "system_prompt": "p" } });
    let fan = json!({ "type": "foreach", "id": "f", "as": "it", "items": [1], "body": leaf });
    let wait = json!({ "type": "wait", "seconds": 1 });
    let spec =
        json!({ "name": "w", "root": { "type": "sequence", "steps": [fan, wait] }, "input": "x" });
    let post = |path: &str, body: Value| ("POST", path.to_owned(), body);
    vec![
        post(
            "/v1/sessions",
            json!({ "agent": agent(), "metadata": { "k": "v" } }),
        ),
        post(
            "/v1/sends",
            json!({
                "session": { "agent": "none" }, "input": [{ "type": "text", "text": "hi" }], "options": options,
            }),
        ),
        post(
            "/v1/timers",
            json!({
                "session_id": session, "input": "x", "cron": "0 8 * * *", "timezone": "UTC", "catch_up": "once",
                "max_occurrences": 3, "until": "2030-01-01T00:00:00Z",
            }),
        ),
        post(
            "/v1/timers",
            json!({ "session_id": session, "input": "x", "every": "1h", "at": "2030-01-01T00:00:00Z" }),
        ),
        post(
            "/v1/runs",
            json!({ "spec": spec, "input": [1], "options": { "max_tokens": 1, "allow": ["core"] } }),
        ),
        post(
            "/v1/agents",
            json!({ "name": "a", "spec": { "system_prompt": "x", "tools": ["core"] } }),
        ),
        post(
            "/v1/webhooks",
            json!({ "url": "https://x.example/h", "events": ["send.completed"] }),
        ),
        post(
            "/v1/keys",
            json!({ "name": "k", "scopes": ["read"], "expires_at": "2030-01-01T00:00:00Z" }),
        ),
        post(
            "/v1/memories",
            json!({ "namespace": "user/1", "text": "x" }),
        ),
        post(
            &format!("/v1/sessions/{session}/tool-results"),
            json!({
                "results": [{ "call_id": "c", "answers": "answer", "output": 1, "digest": "x" }],
            }),
        ),
        post(
            "/v1/sends:batch",
            json!({ "sends": [{ "session_id": session, "input": "x", "options": {} }] }),
        ),
        (
            "PATCH",
            format!("/v1/sessions/{session}"),
            json!({ "metadata": { "k": "v" } }),
        ),
    ]
}

/// What a refusal says.
fn said(answer: &str) -> Vec<String> {
    let mut texts = Vec::new();
    let mut open = vec![serde_json::from_str::<Value>(answer).unwrap_or_default()];
    while let Some(value) = open.pop() {
        for name in ["detail", "message", "hint"] {
            texts.extend(value[name].as_str().map(str::to_owned));
        }
        match value {
            Value::Object(members) => open.extend(members.into_iter().map(|(_, value)| value)),
            Value::Array(items) => open.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    texts
}

async fn told(api: &Scheduler, method: &str, path: &str, body: &Value) -> (u16, Vec<String>) {
    let answer = api.call(method, path).json(body).send().await;
    assert!(answer.status < 500, "{path} {body}: {}", answer.text);
    (answer.status, said(&answer.text))
}

#[tokio::test]
async fn no_mistake_is_told_in_the_words_of_rust() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    let mut refusals = 0;
    for (method, path, sound) in bodies(&session) {
        let mut places = Vec::new();
        pointers(&sound, "", &mut places);
        for place in &places {
            let mut mistakes: Vec<Value> = wrong().to_vec();
            if let Some(Value::Object(members)) = sound.pointer(place) {
                let mut more = members.clone();
                more.insert("zebra".to_owned(), json!(1));
                mistakes.push(Value::Object(more));
            }
            for mistake in mistakes {
                let mut body = sound.clone();
                *body.pointer_mut(place).expect("it is there") = mistake;
                let (status, texts) = told(&api, method, &path, &body).await;
                if status < 400 {
                    continue;
                }
                refusals += 1;
                assert!(!texts.is_empty(), "{path} {body}");
                for text in &texts {
                    let foreign = FOREIGN.iter().find(|foreign| text.contains(**foreign));
                    assert_eq!(foreign, None, "{path} at {place}: {text}");
                }
            }
        }
    }
    assert!(refusals > 700, "{refusals}");
}

/// Common mistakes: a path, a body, where it is wrong, and some of what the refusal says.
fn mistakes() -> [(&'static str, Value, &'static str, &'static str); 14] {
    let agent = |agent: Value| json!({ "session": { "agent": agent }, "input": "x" });
    let tools = |tool: Value| agent(json!({ "tools": [tool] }));
    let timer = |more: Value| {
        let mut body =
            json!({ "session_id": "ses_00000000000000000000000000000000", "input": "x" });
        let members = more.as_object().cloned().unwrap_or_default();
        body.as_object_mut().expect("an object").extend(members);
        body
    };
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    [
        (
            "/v1/sends",
            agent(json!({ "budget": "0.5" })),
            "/session/agent/budget",
            "must be an object",
        ),
        (
            "/v1/sends",
            agent(json!({ "system": "x" })),
            "/session/agent/system",
            "did you mean \"system_prompt\"?",
        ),
        (
            "/v1/sends",
            agent(json!({ "temperature": "0.2" })),
            "/session/agent/temperature",
            "must be a number",
        ),
        (
            "/v1/sends",
            agent(json!({ "agents": [] })),
            "/session/agent/agents",
            "mainspring agents apply",
        ),
        (
            "/v1/sends",
            json!({ "agent": {}, "input": "x" }),
            "/agent",
            "it belongs into",
        ),
        (
            "/v1/sends",
            json!({ "session": {}, "input": [{ "role": "user", "content": "x" }] }),
            "/input/0/role",
            "not of messages",
        ),
        (
            "/v1/sends",
            tools(json!({ "type": "function", "function": { "name": "x" } })),
            "",
            "\"type\": \"external\"",
        ),
        (
            "/v1/timers",
            timer(json!({ "cron": "61 * * * *" })),
            "/cron",
            "the minute \"61\" is not 0 to 59",
        ),
        (
            "/v1/timers",
            timer(json!({ "cron": "0 8 * * *", "timezone": "Berlin" })),
            "/timezone",
            "did you mean Europe/Berlin?",
        ),
        (
            "/v1/timers",
            timer(json!({ "after": "100000d" })),
            "/after",
            "at most 46296d",
        ),
        (
            "/v1/timers",
            timer(json!({ "at": "9999-12-31T23:59:59Z" })),
            "/at",
            "not after 9999-12-30T22:00:00Z",
        ),
        (
            "/v1/timers",
            json!({ "agent": "a", "input": "x", "after": "1s" }),
            "/agent",
            "a `run` of one node",
        ),
        (
            "/v1/runs",
            json!({ "spec": { "name": "w", "input": {}, "root": { "type": "wait", "seconds": 1 } } }),
            "/spec/input",
            "beside `spec`",
        ),
        (
            "/v1/runs",
            json!({ "spec": { "name": "w", "root": { "type": "wait", "seconds": 1 } }, "input": deep }),
            "/input",
            "nests too deeply",
        ),
    ]
}

#[tokio::test]
async fn common_mistakes_are_told_what_to_write_instead() {
    let world = World::new().await;
    let api = world.ready().await;
    for (path, body, pointer, says) in mistakes() {
        let answer = api.post(path, &body).await;
        assert!(
            (400..500).contains(&answer.status),
            "{path} {body}: {}",
            answer.text
        );
        let problem = answer.json();
        let error = &problem["errors"][0];
        assert!(
            error["pointer"]
                .as_str()
                .is_some_and(|at| at.starts_with(pointer)),
            "{path} {pointer}: {problem}"
        );
        let texts = said(&answer.text);
        assert!(
            texts.iter().any(|text| text.contains(says)),
            "{says}: {problem}"
        );
    }
}

#[tokio::test]
async fn a_whole_number_that_would_be_changed_is_refused() {
    let world = World::new().await;
    let api = world.ready().await;
    let body = r#"{"spec": {"name": "w", "root": {"type": "wait", "seconds": 1}},
                   "input": {"wei": [1, 25000000000000000001]}}"#;
    let request = api
        .call("POST", "/v1/runs")
        .header("content-type", "application/json");
    let problem = request
        .body(body)
        .send()
        .await
        .problem(400, "request.invalid");
    assert_eq!(problem["errors"][0]["pointer"], "/input/wei/1", "{problem}");
    let detail = problem["errors"][0]["detail"].as_str().unwrap_or_default();
    assert!(
        detail.contains("25000000000000000001") && detail.contains("as a text"),
        "{detail}"
    );
    // A double may have more digits than it keeps.
    let body = body.replace("25000000000000000001", "0.12345678901234567890123");
    let request = api
        .call("POST", "/v1/runs")
        .header("content-type", "application/json");
    request.body(body).send().await.ok(202);
}

#[tokio::test]
async fn an_alias_that_does_not_exist_is_told_which_there_are() {
    let world = World::new().await;
    let api = world.ready().await;
    let spec = json!({ "system_prompt": "x" });
    let body = json!({ "name": "lead", "spec": spec });
    api.post("/v1/agents", &body).await.ok(201);
    let alias = json!({ "version": 1 });
    let put = api.call("PUT", "/v1/agents/lead/aliases/beta").json(&alias);
    assert!(put.send().await.status < 300);
    for (name, says) in [
        ("lead@live", "the versions up to 1 and the aliases beta"),
        ("lead@7", "the versions up to 1"),
        ("laed", "no agent named \"laed\" is published"),
    ] {
        let body = json!({ "session": { "agent": name }, "input": "x" });
        let answer = api.post("/v1/sends", &body).await;
        let texts = said(&answer.text);
        assert!(
            texts.iter().any(|text| text.contains(says)),
            "{name}: {}",
            answer.text
        );
    }
}
