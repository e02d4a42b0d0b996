//! Endpoints for operators, autoscalers and probes.

use std::sync::Arc;

use mainspring_api::{Serving, run};
use mainspring_queue_local::{LocalBus, LocalQueue};
use mainspring_runtime::{Lifecycle, OsEntropy, SystemClock};
use mainspring_scheduler::services::webhooks::WebhookParts;
use mainspring_scheduler::{Parts, SchedulerConfig};
use mainspring_shared::blob::Depot;
use mainspring_shared::id::BootId;
use mainspring_shared::store::{NewBoot, Role};
use mainspring_shared::tool::Published;
use mainspring_store_model::ModelStore;
use serde_json::{Value, json};

use crate::client::Call;
use crate::world::World;

#[tokio::test]
async fn workers_and_their_pools_are_shown() {
    let world = World::new().await;
    let api = world.ready().await;
    let workers = api.get("/v1/workers").await.ok(200);
    assert_eq!(workers["data"].as_array().map(Vec::len), Some(1));
    assert_eq!(workers["data"][0]["name"], "by-hand");
    assert_eq!(workers["data"][0]["id"], world.boot.to_string());
    assert_eq!(
        workers["data"][0]["protocol"],
        mainspring_shared::store::PROTOCOL
    );
    world.store.stop_boot(world.boot).await.expect("stops");
    assert_eq!(api.get("/v1/workers").await.ok(200)["data"], json!([]));
}

#[tokio::test]
async fn tools_are_listed_and_what_no_worker_has_is_warned_of() {
    let world = World::new().await;
    let api = world.ready().await;
    let spec = |tools: Value| json!({ "agent": { "tools": tools } });
    let misspelt = spec(json!(["core", "shel", "grep"]));
    // One worker has not published its tools.
    let made = api.post("/v1/sessions", &misspelt).await.ok(201);
    assert_eq!(made.get("warnings"), None);
    assert_eq!(api.get("/v1/tools").await.ok(200)["data"], json!([]));
    let mut tools = Published::default();
    tools.add("shell".to_owned(), "Runs a command.");
    tools.add("grep".to_owned(), "Finds lines.");
    tools.servers = vec!["files".to_owned()];
    let worker = |id, pool: &str, tools| NewBoot {
        id: BootId(uuid::Uuid::from_u128(id)),
        role: Role::Worker,
        name: "one".to_owned(),
        pool: pool.to_owned(),
        concurrency: 1,
        ttl: std::time::Duration::from_mins(1),
        protocol: mainspring_shared::store::PROTOCOL,
        tools,
    };
    for (id, pool) in [(1, "gpu"), (2, "cpu")] {
        let registered = world.store.register_boot(worker(id, pool, tools.clone()));
        registered.await.expect("registers");
    }
    let listed = api.get("/v1/tools").await.ok(200)["data"].clone();
    let expected = json!([
        { "name": "grep", "kind": "tool", "description": "Finds lines.",
          "presets": ["core", "explore", "full"], "pools": ["cpu", "gpu"] },
        { "name": "shell", "kind": "tool", "description": "Runs a command.",
          "presets": ["core", "full"], "pools": ["cpu", "gpu"] },
        { "name": "files", "kind": "mcp_server", "description": "", "presets": [],
          "pools": ["cpu", "gpu"] },
    ]);
    assert_eq!(listed, expected);
    let mut misspelt = misspelt;
    misspelt["agent"]["pool"] = json!("gpu");
    let made = api.post("/v1/sessions", &misspelt).await.ok(201);
    let expected = json!([{
        "pointer": "/tools/1",
        "detail": "no worker of the pool \"gpu\" has a tool named \"shel\"; did you mean \"shell\"?",
    }]);
    assert_eq!(made["warnings"], expected);
    let path = format!("/v1/sessions/{}", made["id"].as_str().expect("an id"));
    assert_eq!(api.get(&path).await.ok(200)["warnings"], expected);
    let send = json!({ "input": "hi", "session": misspelt });
    assert_eq!(
        api.post("/v1/sends", &send).await.ok(202)["warnings"],
        expected
    );
    // A worker that has the tool joined in the meantime.
    tools.add("shel".to_owned(), "");
    let registered = world.store.register_boot(worker(3, "gpu", tools));
    registered.await.expect("registers");
    // Sends use cached worker tools; reading a session looks them up.
    assert_eq!(
        api.post("/v1/sends", &send).await.ok(202)["warnings"],
        expected
    );
    assert_eq!(api.get(&path).await.ok(200).get("warnings"), None);
    assert_eq!(
        api.post("/v1/sends", &send).await.ok(202).get("warnings"),
        None
    );
}

#[tokio::test]
async fn what_a_session_cost_is_shown() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    let usage = api
        .get(&format!("/v1/sessions/{session}/usage"))
        .await
        .ok(200);
    let nothing = json!({
        "calls": 0, "models": [], "purposes": [], "usage": {
            "input_tokens": 0, "output_tokens": 0, "cache_read_tokens": 0, "cache_write_tokens": 0,
            "reasoning_tokens": 0, "cost_usd": null, "estimated": false,
        },
    });
    assert_eq!(
        usage,
        json!({ "own": nothing, "tree": nothing, "sessions": 1 })
    );
    api.get("/v1/sessions/ses_00000000000070008000000000000000/usage")
        .await
        .problem(404, "session.not_found");
}

#[tokio::test]
async fn what_waits_and_runs_is_counted() {
    let world = World::new().await;
    let api = world.ready().await;
    let (one, two) = (api.session().await, api.session().await);
    api.send(&one, "hi").await;
    api.send(&two, "hi").await;
    let _claimed = world.claim(&one).await;
    let queue = api.get("/v1/queue").await.ok(200);
    let pool = &queue["data"][0];
    assert_eq!(
        (&pool["pool"], &pool["ready"], &pool["running"]),
        (&json!("default"), &json!(1), &json!(1))
    );
    assert!(pool["depth"].is_u64() && pool["oldest_ready_ms"].is_u64());
    let scaling = api.get("/v1/scaling/default").await.ok(200);
    assert_eq!(scaling, json!({ "ready": 1, "running": 1, "demand": 2 }));
    let other = api.get("/v1/scaling/gpu").await.ok(200);
    assert_eq!(other["demand"], 0);
    api.get("/v1/scaling/NOT%20A%20POOL")
        .await
        .problem(404, "request.not_found");
}

#[tokio::test]
async fn probes_and_papers_are_answered() {
    let world = World::new().await;
    let api = world.ready().await;
    for (path, kind) in [
        ("/livez", "text/plain; charset=utf-8"),
        ("/readyz", "text/plain; charset=utf-8"),
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8"),
        ("/openapi.json", "application/json"),
        ("/v1/info", "application/json"),
    ] {
        let answer = api.get(path).await;
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.header("content-type"), Some(kind), "{path}");
        assert!(
            answer
                .header("x-request-id")
                .is_some_and(|id| id.len() == 32)
        );
        let head = api.call("HEAD", path).send().await;
        assert_eq!(
            (head.status, head.text.len()),
            (200, answer.text.len()),
            "{path}"
        );
    }
    let paper = api.get("/openapi.json").await.json();
    assert_eq!(paper["openapi"], "3.1.0");
    assert!(paper["paths"]["/v1/sends:batch"]["post"].is_object());
    let info = api.get("/v1/info").await.json();
    assert_eq!(info["name"], "mainspring");
    assert_eq!(info["queue"]["available"], true);
}

#[tokio::test]
async fn exactly_the_described_methods_are_served() {
    let world = World::new().await;
    let api = world.ready().await;
    let paper = api.get("/openapi.json").await.json();
    for (path, item) in paper["paths"].as_object().expect("paths") {
        let concrete = path
            .replace("{id}", "x")
            .replace("{code}", "x")
            .replace("{pool}", "x");
        for method in ["get", "post", "patch", "delete", "put"] {
            let answer = api.call(&method.to_uppercase(), &concrete).send().await;
            // The protocol wants this for a stream that resumes none.
            let is_refused = (path.as_str(), method) == ("/mcp", "get");
            let served = answer.status != 405 || is_refused;
            assert_eq!(
                served,
                item.get(method).is_some(),
                "{method} {path}: {}",
                answer.status
            );
            assert!(answer.status < 500, "{method} {path}: {}", answer.text);
        }
    }
}

#[tokio::test]
async fn without_a_recorder_there_are_no_metrics() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("binds");
    let addr = listener.local_addr().expect("an address");
    let store: Arc<ModelStore> = Arc::new(ModelStore::open(Arc::new(SystemClock::new())));
    let parts = Parts {
        blobs: Arc::new(Depot::in_database(store.clone(), Arc::new(OsEntropy))),
        store,
        queue: Arc::new(LocalQueue::new()),
        bus: Arc::new(LocalBus::new()),
        clock: Arc::new(SystemClock::new()),
        entropy: Arc::new(OsEntropy),
        config: SchedulerConfig::default(),
        webhooks: WebhookParts::default(),
    };
    let lifecycle = Lifecycle::new();
    let task = tokio::spawn(run(parts, Serving::default(), listener, lifecycle.clone()));
    Call::new(addr, "GET", "/metrics")
        .send()
        .await
        .problem(404, "request.not_found");
    lifecycle.stop();
    task.await.expect("joins").expect("ends well");
}
