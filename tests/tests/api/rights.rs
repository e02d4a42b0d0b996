//! What each key may do: every operation with every kind of key, as docs/ACCESS.md says, and what
//! bodies need beyond that.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::access::{ROOT, ask, locked, tenant};
use crate::bindings::operations;
use crate::client::Answer;
use crate::copies::resealed;
use crate::issuers::trusting;
use crate::webhooks::sealing;
use crate::world::{Scheduler, World, nothing};

const NONE: Value = Value::Null;

/// A row of the table.
struct Row {
    method: String,
    path: String,
    /// One of each of these scopes.
    scopes: Vec<Vec<String>>,
    is_operators: bool,
    /// Whether it takes a key, and no token for one session.
    is_by_key: bool,
    is_closed_to_bound: bool,
}

fn rows() -> Vec<Row> {
    let document = include_str!("../../../docs/ACCESS.md");
    let lines = document.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows = lines.map(|line| {
        let cells: Vec<&str> = line.trim_end_matches(" |").split(" | ").collect();
        let [operation, needed, bound] = cells[..] else {
            panic!("{line}");
        };
        let (method, path) = operation
            .trim_end_matches('`')
            .split_once(' ')
            .expect("both");
        let (needed, is_operators) = match needed.strip_suffix(", and an operator") {
            Some(needed) => (needed, true),
            None => (needed, false),
        };
        let (needed, is_by_key) = match needed.strip_suffix(" (key)") {
            Some(needed) => (needed, true),
            None => (needed, false),
        };
        let needed = needed.trim_end_matches(" (*)").split(", and ");
        let scopes = needed.map(|needed| {
            let names = needed
                .split(" or ")
                .map(|name| name.trim_matches('`').to_owned());
            names.collect()
        });
        Row {
            method: method.to_owned(),
            path: path.to_owned(),
            scopes: scopes.collect(),
            is_operators,
            is_by_key,
            is_closed_to_bound: bound == "no",
        }
    });
    rows.collect()
}

impl Row {
    /// The path, with the ids of things that are not there.
    fn filled(&self) -> String {
        let session = nothing("ses_");
        let of = |prefix: &str| match prefix {
            "/v1/sends" => nothing("snd_"),
            "/v1/timers" => nothing("tmr_"),
            "/v1/runs" => nothing("run_"),
            "/v1/keys" => nothing("key_"),
            "/v1/webhooks" => nothing("whk_"),
            "/v1/memories" => nothing("mem_"),
            "/v1/tenants" => "ten_77".to_owned(),
            _ => session.clone(),
        };
        let prefix = self.path.split("/{").next().expect("a path");
        let mut filled = self.path.replace("{id}", &of(prefix));
        while let Some(from) = filled.find('{') {
            let to = filled.find('}').expect("closed");
            filled.replace_range(from..=to, "nothing");
        }
        filled
    }

    /// Whether a key with these scopes is admitted.
    fn admits(&self, scopes: &[&str], operates: bool) -> bool {
        let has = |names: &Vec<String>| {
            scopes.contains(&"admin") || names.iter().any(|name| scopes.contains(&name.as_str()))
        };
        self.scopes.iter().all(has) && (operates || !self.is_operators)
    }

    async fn ask(&self, api: &Scheduler, key: Option<&str>) -> Answer {
        let call = api.call(&self.method, &self.filled());
        let call = match key {
            Some(key) => call.header("authorization", &format!("Bearer {key}")),
            None => call,
        };
        match self.method.as_str() {
            "GET" => call.send().await,
            // What is admitted does nothing: no body has this member.
            _ => call.json(&json!({ "nothing": 1 })).send().await,
        }
    }

    /// Checks a cell of the table.
    fn check(&self, answer: &Answer, scopes: &[&str], operates: bool, who: &str) {
        let what = format!("{} {} for {who}: {}", self.method, self.path, answer.text);
        if self.path.starts_with("/v1/tenants/{id}") && !operates {
            assert_eq!(answer.status, 404, "{what}");
        } else if self.admits(scopes, operates) {
            assert!(!matches!(answer.status, 401 | 403), "{what}");
            assert!(answer.status < 500 || answer.status == 503, "{what}");
        } else {
            assert_refused(answer, 403, "auth.forbidden", &what);
        }
    }
}

/// Asserts a refusal in the native form or in OpenAI's, where it is within a member.
fn assert_refused(answer: &Answer, status: u16, code: &str, what: &str) {
    assert_eq!(answer.status, status, "{what}");
    let body = answer.json();
    let found = body.get("error").unwrap_or(&body).get("code");
    assert_eq!(found, Some(&json!(code)), "{what}");
}

async fn key_of(api: &Scheduler, by: &str, scopes: &[&str]) -> String {
    let made = ask(api, by, "POST", "/v1/keys", &json!({ "scopes": scopes })).await;
    made.ok(201)["key"].as_str().expect("the token").to_owned()
}

#[test]
fn the_table_has_every_operation() {
    let listed = rows().into_iter().map(|row| (row.method, row.path));
    let listed: BTreeSet<_> = listed.collect();
    let there = operations().into_iter();
    // Others are for everyone.
    let with_key = ["/v1/", "/mcp", "/a2a/", "/ag-ui/"];
    let is_listed = |path: &str| with_key.iter().any(|start| path.starts_with(start));
    let there: BTreeSet<_> = there.filter(|(_, path)| is_listed(path)).collect();
    assert_eq!(listed, there);
}

/// The names of all functions in the sources below a folder.
fn functions(dir: &std::path::Path, into: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(dir).expect("is read") {
        let path = entry.expect("is read").path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            functions(&path, into);
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = std::fs::read_to_string(&path).expect("is read");
            let named = text.split("fn ").skip(1);
            into.extend(
                named
                    .filter_map(|rest| rest.split(['(', '<']).next())
                    .map(str::to_owned),
            );
        }
    }
}

#[test]
fn every_defence_of_the_threat_model_has_its_tests() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut there = BTreeSet::new();
    functions(&root, &mut there);
    let document = include_str!("../../../docs/SECURITY.md");
    let defences = document.split("## Defences").nth(1).expect("has them");
    let defences = defences.split("## What is not").next().expect("ends");
    let rows = defences
        .lines()
        .filter(|line| line.starts_with("| A") || line.starts_with("| all"));
    let mut count = 0;
    for row in rows {
        let tests = row
            .trim_end_matches(" |")
            .rsplit(" | ")
            .next()
            .expect("a cell");
        for test in tests.split(", ") {
            assert!(
                there.contains(test.trim_matches('`')),
                "there is no test {test}"
            );
            count += 1;
        }
    }
    assert!(count > 40, "{count}");
}

#[tokio::test]
async fn every_operation_admits_the_keys_that_the_table_names() {
    let world = sealing().await;
    let api = trusting(&world).await;
    let (_, blue) = tenant(&api, "blue", &["admin"]).await;
    ask(
        &api,
        &blue,
        "POST",
        "/v1/agents",
        &json!({ "name": "mine", "spec": {} }),
    )
    .await
    .ok(201);
    let mut keys = Vec::new();
    for scope in ["read", "use", "define", "send", "answer", "manage", "admin"] {
        let scopes = vec![scope];
        keys.push((key_of(&api, &blue, &scopes).await, scopes.clone(), false));
        keys.push((format!("blue.{scope}.600"), scopes.clone(), false));
        // In the first tenant the same scopes give no more.
        keys.push((key_of(&api, ROOT, &scopes).await, scopes.clone(), false));
        keys.push((format!("default.{scope}+operate.600"), scopes, false));
    }
    for scopes in [
        vec!["admin", "operate"],
        vec!["read", "operate"],
        vec!["operate"],
    ] {
        keys.push((key_of(&api, ROOT, &scopes).await, scopes, true));
    }
    keys.push((ROOT.to_owned(), vec!["admin"], true));
    let every = ["read", "use", "define", "send", "answer", "manage"];
    let bound = json!({ "scopes": every, "binding": { "agents": ["mine"] } });
    let bound = ask(&api, &blue, "POST", "/v1/keys", &bound).await.ok(201);
    let bound = bound["key"].as_str().expect("the token");
    let session = json!({ "agent": "mine" });
    let session = ask(&api, &blue, "POST", "/v1/sessions", &session).await;
    let of_page = ["read", "use", "answer"];
    let token = json!({ "session_id": session.ok(201)["id"], "scopes": of_page });
    let token = ask(&api, &blue, "POST", "/v1/tokens", &token).await.ok(201);
    let token = token["token"].as_str().expect("the token");
    let mut by_key = 0;
    for row in rows() {
        let none = row.ask(&api, None).await;
        assert_refused(&none, 401, "auth.missing", &row.path);
        for (key, scopes, operates) in &keys {
            let answer = row.ask(&api, Some(key)).await;
            let who = format!("{scopes:?} ({})", &key[..12]);
            row.check(&answer, scopes, *operates, &who);
        }
        let answer = row.ask(&api, Some(bound)).await;
        if row.is_closed_to_bound && row.admits(&every, false) {
            answer.problem(403, "auth.binding");
        } else {
            row.check(&answer, &every, false, "a bound key");
        }
        let answer = row.ask(&api, Some(token)).await;
        if row.is_by_key {
            by_key += 1;
            assert_refused(&answer, 403, "auth.forbidden", &row.path);
        } else if row.is_closed_to_bound && row.admits(&of_page, false) {
            answer.problem(403, "auth.binding");
        } else {
            row.check(&answer, &of_page, false, "a token for one session");
        }
    }
    assert!(by_key >= 8, "{by_key}");
}

/// Requests that define an agent, and such that name a published one, by method and path.
fn starts(session: &str) -> Vec<(String, Vec<Value>, Vec<Value>)> {
    let sends = format!("/v1/sessions/{session}/sends");
    let context = format!("/v1/sessions/{session}/context");
    let fork = format!("/v1/sessions/{session}/fork");
    let spec = json!({ "tools": ["shell"] });
    let changes = [
        json!({ "model": "demo" }),
        json!({ "system_prompt": "x" }),
        json!({ "tools": [] }),
        json!({ "max_rounds": 5 }),
        json!({ "max_tokens": 9 }),
        json!({ "temperature": 1 }),
        json!({ "top_p": 1 }),
        json!({ "reasoning_effort": "high" }),
        json!({ "tool_choice": "none" }),
        json!({ "parallel_tool_calls": true }),
        json!({ "model_options": { "seed": 1 } }),
    ];
    let plain = json!({
        "agent": "mine", "priority": "low", "deadline": "1h", "budget": { "rounds": 1 },
        "output_schema": { "type": "object" },
    });
    let changed = |of: &dyn Fn(&Value) -> Value| -> Vec<Value> { changes.iter().map(of).collect() };
    let leaf = |leaf: Value| json!({ "name": "x", "root": leaf });
    let own_leaf =
        leaf(json!({ "type": "agent", "id": "a", "spec": { "name": "a", "system_prompt": "x" } }));
    let tool_leaf = leaf(json!({ "type": "tool", "id": "a", "tool": "shell" }));
    let named_leaf = leaf(json!({ "type": "agent", "id": "a", "agent": "mine" }));
    let timer = |more: Value| {
        let mut timer = json!({ "session_id": session, "after": "1h", "input": "x" });
        timer["options"] = more;
        timer
    };
    let run_timer = |spec: &Value| json!({ "run": { "spec": spec }, "after": "1h" });
    let mut anywhere = vec![
        json!({ "input": "x" }),
        json!({ "input": "x", "session": { "agent": spec } }),
    ];
    anywhere.extend(changed(
        &|options| json!({ "input": "x", "session": { "agent": "mine" }, "options": options }),
    ));
    anywhere.extend(changed(
        &|options| json!({ "input": "x", "session_id": session, "options": options }),
    ));
    let named = vec![
        json!({ "input": "x", "session": { "agent": "mine" } }),
        json!({ "input": "x", "session_id": session, "options": plain }),
    ];
    let mut timers = changed(&|options| timer(options.clone()));
    timers.extend([run_timer(&own_leaf), run_timer(&tool_leaf)]);
    let in_session = changed(&|options| json!({ "input": "x", "options": options }));
    let plainly = vec![json!({ "input": "x", "options": plain })];
    vec![
        (
            "/v1/sessions".to_owned(),
            vec![json!({}), json!({ "agent": spec })],
            vec![json!({ "agent": "mine" })],
        ),
        ("/v1/sends".to_owned(), anywhere, named),
        (sends, in_session.clone(), plainly),
        // A preview waits for a worker, and here is none.
        (context, in_session[..1].to_vec(), Vec::new()),
        (
            fork,
            vec![json!({ "agent": spec })],
            vec![json!({}), json!({ "agent": "mine" })],
        ),
        (
            "/v1/timers".to_owned(),
            timers,
            vec![timer(json!({})), run_timer(&named_leaf)],
        ),
        (
            "/v1/runs".to_owned(),
            vec![json!({ "spec": own_leaf }), json!({ "spec": tool_leaf })],
            vec![json!({ "spec": named_leaf })],
        ),
    ]
}

#[tokio::test]
async fn who_only_uses_agents_defines_none() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (_, blue) = tenant(&api, "blue", &["admin"]).await;
    let agent = json!({ "name": "mine", "spec": { "system_prompt": "y" } });
    ask(&api, &blue, "POST", "/v1/agents", &agent).await.ok(201);
    let uses = key_of(&api, &blue, &["use", "read"]).await;
    let both = key_of(&api, &blue, &["use", "read", "define"]).await;
    let sends = key_of(&api, &blue, &["send", "read"]).await;
    let session = json!({ "agent": "mine" });
    let session = ask(&api, &uses, "POST", "/v1/sessions", &session).await;
    let session = session.ok(201)["id"].as_str().expect("an id").to_owned();
    for (path, defining, naming) in starts(&session) {
        for body in defining {
            let answer = ask(&api, &uses, "POST", &path, &body).await;
            assert_eq!(answer.status, 403, "{path} {body}: {}", answer.text);
            answer.problem(403, "auth.forbidden");
            assert!(answer.text.contains("define"), "{}", answer.text);
            for key in [&both, &sends] {
                let answer = ask(&api, key, "POST", &path, &body).await;
                let is_away = path.ends_with("/context") && answer.status == 503;
                let is_admitted = answer.status < 300 || is_away;
                assert!(is_admitted, "{path} {body}: {}", answer.text);
            }
        }
        for body in naming {
            let answer = ask(&api, &uses, "POST", &path, &body).await;
            assert!(answer.status < 300, "{path} {body}: {}", answer.text);
        }
    }
    let own = json!({ "input": "x", "session": { "agent": {} } });
    for (path, items) in [("/v1/sends:batch", "sends"), ("/v1/timers:batch", "timers")] {
        let item = match items {
            "sends" => own.clone(),
            _ => {
                json!({ "session_id": session, "after": "1h", "input": "x", "options": { "model": "x" } })
            }
        };
        let batch = ask(&api, &uses, "POST", path, &json!({ items: [item] })).await;
        let result = batch.ok(200)["results"][0].clone();
        assert_eq!(result["problem"]["code"], "auth.forbidden", "{result}");
    }
}

#[tokio::test]
async fn publishing_is_not_what_older_keys_could_do_and_limits_are_not_what_definers_set() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (_, blue) = tenant(&api, "blue", &["admin"]).await;
    let agent = json!({ "name": "mine", "spec": {} });
    let sends = key_of(&api, &blue, &["send"]).await;
    let answer = ask(&api, &sends, "POST", "/v1/agents", &agent).await;
    answer.problem(403, "auth.forbidden");
    let defines = key_of(&api, &blue, &["define"]).await;
    ask(&api, &defines, "POST", "/v1/agents", &agent)
        .await
        .ok(201);
    let limited = json!({ "name": "mine", "spec": {}, "limits": {} });
    let answer = ask(&api, &defines, "POST", "/v1/agents", &limited).await;
    answer.problem(403, "auth.forbidden");
    let manages = key_of(&api, &blue, &["manage"]).await;
    ask(&api, &manages, "POST", "/v1/agents", &limited)
        .await
        .ok(200);
}

#[tokio::test]
async fn who_starts_work_does_not_approve_it() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (_, blue) = tenant(&api, "blue", &["admin"]).await;
    let sends = key_of(&api, &blue, &["send", "read", "manage"]).await;
    let answers = key_of(&api, &blue, &["answer"]).await;
    let approval = json!({ "type": "approval", "id": "ok", "message": "pay?" });
    let run = json!({ "spec": { "name": "x", "root": approval } });
    let run = ask(&api, &sends, "POST", "/v1/runs", &run).await.ok(202);
    let run = format!("/v1/runs/{}", run["id"].as_str().expect("an id"));
    let node = loop {
        let nodes = ask(&api, &sends, "GET", &format!("{run}/nodes"), &NONE).await;
        if let Some(node) = nodes.ok(200)["data"][0]["path"].as_str() {
            break node.to_owned();
        }
        tokio::task::yield_now().await;
    };
    let amend = format!(
        "{run}/nodes/{}/amend",
        node.replace('/', "%2F").replace(':', "%3A")
    );
    let yes = json!({ "output": { "approved": true } });
    let refused = ask(&api, &sends, "POST", &amend, &yes).await;
    refused.problem(403, "auth.forbidden");
    let state = ask(&api, &sends, "GET", &run, &NONE).await.ok(200);
    assert_ne!(state["status"], "completed");
    let done = ask(&api, &answers, "POST", &format!("{amend}?wait=20s"), &yes).await;
    assert_eq!(done.ok(200)["status"], "completed");
}

#[tokio::test]
async fn only_operators_make_operators() {
    let world = World::new().await;
    let api = trusting(&world).await;
    let operator = key_of(&api, ROOT, &["admin", "operate"]).await;
    ask(&api, &operator, "GET", "/v1/tenants", &NONE)
        .await
        .ok(200);
    let rotate = format!("/v1/keys/key_{}/rotate", &operator[4..36]);
    let revoke = format!("/v1/keys/key_{}", &operator[4..36]);
    let admin = key_of(&api, &operator, &["admin"]).await;
    for by in [
        admin.as_str(),
        "default.admin.600",
        "default.admin+operate.600",
    ] {
        for scopes in [json!(["operate"]), json!(["admin", "operate"])] {
            let made = ask(&api, by, "POST", "/v1/keys", &json!({ "scopes": scopes })).await;
            made.problem(403, "auth.forbidden");
        }
        for (method, path) in [("POST", &rotate), ("DELETE", &revoke)] {
            let answer = ask(&api, by, method, path, &NONE).await;
            answer.problem(403, "auth.forbidden");
        }
        // What it may make has no more rights than it has.
        let made = key_of(&api, by, &["admin"]).await;
        for path in ["/v1/tenants", "/v1/workers", "/v1/queue"] {
            let answer = ask(&api, &made, "GET", path, &NONE).await;
            answer.problem(403, "auth.forbidden");
        }
    }
    // Nor is a key of another tenant, or a bound one, ever an operator's.
    let (blue, _) = tenant(&api, "blue", &["admin"]).await;
    let elsewhere = json!({ "scopes": ["operate"], "tenant": blue });
    let elsewhere = ask(&api, ROOT, "POST", "/v1/keys", &elsewhere).await;
    elsewhere.problem(400, "request.invalid");
    let bound = json!({ "scopes": ["operate"], "binding": { "agents": ["mine"] } });
    let bound = ask(&api, ROOT, "POST", "/v1/keys", &bound).await;
    bound.problem(400, "request.invalid");
}

/// The archive of a session with this agent, made by `key`.
async fn archive_of(api: &Scheduler, key: &str, agent: &Value) -> String {
    let session = json!({ "agent": agent, "metadata": { "who": "all" } });
    let session = ask(api, key, "POST", "/v1/sessions", &session)
        .await
        .ok(201);
    let path = format!(
        "/v1/sessions/{}/export",
        session["id"].as_str().expect("an id")
    );
    ask(api, key, "GET", &path, &NONE).await.text
}

async fn import(api: &Scheduler, key: &str, archive: &str) -> Answer {
    let call = api.call("POST", "/v1/sessions:import");
    let call = call.header("authorization", &format!("Bearer {key}"));
    let call = call.header("content-type", "application/x-ndjson");
    call.body(archive.as_bytes().to_vec()).send().await
}

#[tokio::test]
async fn an_archive_is_no_published_agent_unless_it_is_the_one_that_is_here() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (_, blue) = tenant(&api, "blue", &["admin"]).await;
    let prompt = json!({ "sections": [{ "name": "a", "text": "kind to {{metadata.who}}" }] });
    let agent = json!({ "name": "support", "spec": { "system_prompt": "y", "prompt": prompt } });
    ask(&api, &blue, "POST", "/v1/agents", &agent).await.ok(201);
    let reviewer = json!({ "scopes": ["read", "answer"], "binding": { "agents": ["support"] } });
    let reviewer = ask(&api, &blue, "POST", "/v1/keys", &reviewer)
        .await
        .ok(201);
    let reviewer = reviewer["key"].as_str().expect("the token").to_owned();
    let sends = key_of(&api, &blue, &["send", "read"]).await;
    let seen = async |made: &Value| {
        let path = format!("/v1/sessions/{}", made["id"].as_str().expect("an id"));
        ask(&api, &reviewer, "GET", &path, &NONE).await.status
    };
    let own = archive_of(&api, &sends, &json!({ "tools": ["shell"] })).await;
    let theirs = archive_of(&api, &sends, &json!("support")).await;
    // As it was: the same agent.
    let copy = import(&api, &sends, &theirs).await.ok(201);
    assert_eq!(
        (&copy["agent_ref"], seen(&copy).await),
        (&json!({ "name": "support", "version": 1 }), 200),
        "{copy}"
    );
    // Another agent, other tools, other instructions, or a version that is not here: not the same.
    let says = json!({ "agent": { "name": "support", "version": 1 } });
    let forged = [
        resealed(&own, |lines| {
            lines[0]["session"]["agent"]["bound"] = says.clone();
        }),
        resealed(&theirs, |lines| {
            lines[0]["session"]["agent"]["tools"] = json!(["shell"]);
        }),
        resealed(&theirs, |lines| {
            lines[0]["session"]["agent"]["bound"]["sections"][0]["text"] = json!("cruel");
        }),
        resealed(&theirs, |lines| {
            lines[0]["session"]["agent"]["bound"]["agent"]["version"] = json!(2);
        }),
        // Nor does another agent pay for what it does.
        resealed(&own, |lines| {
            lines[0]["session"]["agent"]["bound"] = json!({ "payer": "support" });
        }),
    ];
    for archive in forged {
        let copy = import(&api, &sends, &archive).await.ok(201);
        assert_eq!(
            (&copy["agent_ref"], seen(&copy).await),
            (&NONE, 404),
            "{archive}"
        );
        let path = format!(
            "/v1/sessions/{}/export",
            copy["id"].as_str().expect("an id")
        );
        let exported = ask(&api, &sends, "GET", &path, &NONE).await.text;
        let line: Value =
            serde_json::from_str(exported.lines().next().expect("a line")).expect("JSON");
        let bound = &line["session"]["agent"]["bound"];
        assert!(
            bound["agent"].is_null() && bound["payer"].is_null(),
            "{bound}"
        );
    }
    // Who defines no agents brings none along.
    let uses = key_of(&api, &blue, &["use", "read"]).await;
    import(&api, &uses, &own)
        .await
        .problem(403, "auth.forbidden");
}
