//! Worker pools that tenants may use.

use mainspring_shared::id::BootId;
use mainspring_shared::store::{NewBoot, PROTOCOL, Role};
use mainspring_shared::tool::Published;
use serde_json::{Value, json};

use crate::access::{ROOT, ask, locked, tenant};
use crate::client::Answer;
use crate::runs::two_steps;
use crate::world::{Scheduler, World};

const SCOPES: [&str; 3] = ["read", "send", "manage"];

/// Sets the pools that a tenant may use.
async fn allow(api: &Scheduler, id: &str, pools: &Value) {
    let patch = json!({ "pools": pools });
    let path = format!("/v1/tenants/{id}");
    let changed = ask(api, ROOT, "PATCH", &path, &patch).await.ok(200);
    assert_eq!(&changed["pools"], pools);
    let shown = ask(api, ROOT, "GET", &path, &Value::Null).await.ok(200);
    assert_eq!(&shown["pools"], pools);
}

async fn session(api: &Scheduler, key: &str, agent: Value) -> Answer {
    let body = json!({ "agent": agent });
    ask(api, key, "POST", "/v1/sessions", &body).await
}

fn refused(answer: &Answer, pointer: &str, why: &str) {
    let problem = answer.problem(400, "request.invalid");
    assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
    let detail = problem["errors"][0]["detail"].as_str().expect("a detail");
    assert!(detail.contains(why), "{detail}");
}

#[tokio::test]
async fn a_tenant_names_the_pools_that_it_may_and_no_others() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (id, key) = tenant(&api, "blue", &SCOPES).await;
    allow(&api, &id, &json!({ "allowed": ["gpu"], "own": ["blue"] })).await;
    let in_pool = |pool: &str| json!({ "pool": pool });
    for pool in ["gpu", "blue"] {
        session(&api, &key, in_pool(pool)).await.ok(201);
    }
    let why = "one of the tenant's pools (blue, gpu)";
    refused(
        &session(&api, &key, in_pool("red")).await,
        "/agent/pool",
        why,
    );
    // Also refused: an agent that names no pool, and one with a tool in a foreign pool.
    refused(&session(&api, &key, json!({})).await, "/agent/pool", why);
    let tool = json!({ "type": "mcp", "server": "a", "pool": "red" });
    let with_tool = json!({ "tools": [tool] });
    refused(&session(&api, &key, with_tool).await, "/agent/pool", why);
    let send = json!({ "input": "x", "session": { "agent": in_pool("red") } });
    let sent = ask(&api, &key, "POST", "/v1/sends", &send).await;
    refused(&sent, "/session/agent/pool", why);
    let agent = json!({ "name": "reviewer", "spec": in_pool("red") });
    let published = ask(&api, &key, "POST", "/v1/agents", &agent).await;
    refused(&published, "/spec/pool", why);
    let made = session(&api, &key, in_pool("gpu")).await.ok(201);
    let path = format!("/v1/sessions/{}", made["id"].as_str().expect("an id"));
    let patch = json!({ "agent": in_pool("red") });
    let changed = ask(&api, &key, "PATCH", &path, &patch).await;
    refused(&changed, "/agent/pool", why);
    // Removing the restriction lifts it.
    allow(&api, &id, &json!({})).await;
    session(&api, &key, in_pool("red")).await.ok(201);
}

#[tokio::test]
async fn the_leaves_of_a_run_name_the_pools_that_its_tenant_may() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (id, key) = tenant(&api, "blue", &SCOPES).await;
    allow(&api, &id, &json!({ "allowed": ["gpu"] })).await;
    let run = async |options: Value| {
        let body = json!({ "spec": two_steps(), "input": "tea", "options": options });
        ask(&api, &key, "POST", "/v1/runs", &body).await
    };
    let why = "one of the tenant's pools (gpu)";
    refused(&run(json!({})).await, "/spec", why);
    refused(&run(json!({ "pool": "red" })).await, "/options/pool", why);
    run(json!({ "pool": "gpu" })).await.ok(202);
    // The same applies to a timer's runs, and to steps that are a tool or an approval.
    let timer = async |run: Value| {
        let body = json!({ "after": "1h", "run": run });
        ask(&api, &key, "POST", "/v1/timers", &body).await
    };
    let red = json!({ "spec": two_steps(), "input": "tea", "options": { "pool": "red" } });
    refused(&timer(red).await, "/run/options/pool", why);
    let steps = json!({ "spec": two_steps(), "input": "tea" });
    refused(&timer(steps).await, "/run/spec", why);
    for root in [
        json!({ "type": "tool", "id": "clock", "tool": "current_time" }),
        json!({ "type": "approval", "id": "gate", "message": "go on?" }),
    ] {
        let body = json!({ "spec": { "name": "one", "root": root } });
        let answer = ask(&api, &key, "POST", "/v1/runs", &body).await;
        refused(&answer, "/spec", why);
    }
}

#[tokio::test]
async fn what_is_one_tenants_own_is_named_by_no_other_one() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (blue, of_blue) = tenant(&api, "blue", &SCOPES).await;
    let (red, of_red) = tenant(&api, "red", &SCOPES).await;
    allow(&api, &blue, &json!({ "own": ["blue"] })).await;
    let agent = || json!({ "pool": "blue" });
    session(&api, &of_blue, agent()).await.ok(201);
    session(&api, &of_blue, json!({})).await.ok(201);
    let why = "belongs to another tenant";
    let answer = session(&api, &of_red, agent()).await;
    refused(&answer, "/agent/pool", why);
    // Not even the operator's own tenant may use it; it is a tenant like any other.
    refused(&session(&api, ROOT, agent()).await, "/agent/pool", why);
    let free = json!({ "pool": "gpu" });
    session(&api, &of_red, free).await.ok(201);
    // Listing the pool as allowed is not enough; but two tenants may both own it.
    allow(&api, &red, &json!({ "allowed": ["blue", "default"] })).await;
    let answer = session(&api, &of_red, agent()).await;
    refused(&answer, "/agent/pool", why);
    allow(&api, &red, &json!({ "own": ["blue"] })).await;
    session(&api, &of_red, agent()).await.ok(201);
}

#[tokio::test]
async fn the_tools_of_another_tenants_pool_are_not_listed() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (id, blue) = tenant(&api, "blue", &SCOPES).await;
    let (_, red) = tenant(&api, "red", &SCOPES).await;
    allow(&api, &id, &json!({ "own": ["blue"] })).await;
    for (n, pool, tool) in [(1, "blue", "ledger"), (2, "shared", "grep")] {
        let tools = Published {
            tools: [(tool.to_owned(), "Does it.".to_owned())].into(),
            ..Published::default()
        };
        let worker = NewBoot {
            id: BootId(uuid::Uuid::from_u128(n)),
            role: Role::Worker,
            name: "one".to_owned(),
            pool: pool.to_owned(),
            concurrency: 1,
            ttl: std::time::Duration::from_mins(1),
            protocol: PROTOCOL,
            tools,
        };
        let registered = world.store.register_boot(worker).await;
        registered.expect("registers");
    }
    let listed = async |key: &str| {
        let listed = ask(&api, key, "GET", "/v1/tools", &Value::Null).await;
        let listed = listed.ok(200)["data"].clone();
        let tools = listed.as_array().expect("a list").iter();
        let names = tools.map(|tool| tool["name"].as_str().expect("a name").to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(listed(&blue).await, ["grep", "ledger"]);
    assert_eq!(listed(&red).await, ["grep"]);
    assert_eq!(listed(ROOT).await, ["grep", "ledger"]);
}
