//! Budgets in dollars for models whose price no worker knows.

use std::time::Duration;

use mainspring_runtime::SystemClock;
use mainspring_shared::id::BootId;
use mainspring_shared::model::{ModelFacts, PublishedModels};
use mainspring_shared::store::{NewBoot, Role};
use mainspring_shared::time::Clock as _;
use mainspring_shared::tool::Published;
use serde_json::{Value, json};

use crate::client::Answer;
use crate::world::World;

/// A worker of the pool `gpu` that gives these models a price.
async fn worker(world: &World, id: u128, models: Option<&[&str]>) {
    let models = models.map(|priced| PublishedModels {
        edition: ModelFacts::edition(),
        default: "main".to_owned(),
        providers: [
            ("main".to_owned(), "strange".to_owned()),
            ("local".to_owned(), String::new()),
        ]
        .into(),
        priced: priced.iter().map(|name| (*name).to_owned()).collect(),
        vectors: None,
    });
    let boot = NewBoot {
        id: BootId(uuid::Uuid::from_u128(id)),
        role: Role::Worker,
        name: "one".to_owned(),
        pool: "gpu".to_owned(),
        concurrency: 1,
        ttl: Duration::from_mins(1),
        protocol: mainspring_shared::store::PROTOCOL,
        tools: Published {
            models,
            ..Published::default()
        },
    };
    world.store.register_boot(boot).await.expect("registers");
}

/// Waits until schedulers ask again what workers know.
async fn reread() {
    SystemClock::new().sleep(Duration::from_millis(1_100)).await;
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "callers make it where they call"
)]
fn agent(more: Value) -> Value {
    let mut agent = json!({ "pool": "gpu" });
    let members = agent.as_object_mut().expect("an object");
    members.extend(more.as_object().cloned().unwrap_or_default());
    agent
}

/// Expects a refusal that points here and names this model.
#[track_caller]
fn refused(reply: &Answer, pointer: &str, model: &str) {
    let problem = reply.problem(422, "budget.no_price");
    assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
    let detail = problem["errors"][0]["detail"].as_str().unwrap_or_default();
    assert!(detail.contains(&format!("{model:?}")), "{detail}");
}

#[tokio::test]
async fn a_budget_in_dollars_is_refused_for_a_model_whose_price_no_worker_knows() {
    let world = World::new().await;
    let api = world.ready().await;
    worker(&world, 1, Some(&["local/llama3"])).await;
    let dollars = json!({ "usd": 1 });
    for (spec, pointer, model) in [
        (
            json!({ "budget": dollars, "model": "mine" }),
            "/agent/model",
            "main/mine",
        ),
        (
            json!({ "budget": dollars }),
            "/agent/budget/usd",
            "main/strange",
        ),
        (
            json!({ "budget": dollars, "model": "gpt-5-mini", "fallback": ["local/llama3", "local/b"] }),
            "/agent/fallback/1",
            "local/b",
        ),
    ] {
        let body = json!({ "agent": agent(spec) });
        refused(&api.post("/v1/sessions", &body).await, pointer, model);
    }
    for spec in [
        json!({ "budget": dollars, "model": "gpt-5-mini" }),
        json!({ "budget": dollars, "model": "local/llama3" }),
        json!({ "budget": { "tokens": 1000 }, "model": "mine" }),
        json!({ "model": "mine" }),
        json!({ "budget": dollars, "model": "mine", "pool": "without-workers" }),
    ] {
        let body = json!({ "agent": agent(spec) });
        api.post("/v1/sessions", &body).await.ok(201);
    }
    let body =
        json!({ "name": "spender", "spec": agent(json!({ "budget": dollars, "model": "mine" })) });
    refused(
        &api.post("/v1/agents", &body).await,
        "/spec/model",
        "main/mine",
    );
}

#[tokio::test]
async fn a_sends_budget_in_dollars_counts_with_its_sessions_models() {
    let world = World::new().await;
    let api = world.ready().await;
    worker(&world, 1, Some(&[])).await;
    let session = async |spec: Value| {
        let made = api
            .post("/v1/sessions", &json!({ "agent": agent(spec) }))
            .await
            .ok(201);
        made["id"].as_str().expect("an id").to_owned()
    };
    let free = session(json!({ "model": "mine" })).await;
    let capped = session(json!({ "model": "gpt-5-mini", "budget": { "usd": 1 } })).await;
    let sends = |id: &str| format!("/v1/sessions/{id}/sends");
    let send = |options: Value| json!({ "input": "hi", "options": options });
    let own = send(json!({ "budget": { "usd": 1 } }));
    refused(
        &api.post(&sends(&free), &own).await,
        "/options/budget/usd",
        "main/mine",
    );
    let other = send(json!({ "model": "local/x" }));
    refused(
        &api.post(&sends(&capped), &other).await,
        "/options/model",
        "local/x",
    );
    let both = send(json!({ "model": "gpt-5-mini", "budget": { "usd": 1 } }));
    api.post(&sends(&free), &both).await.ok(202);
    api.post(&sends(&free), &send(json!({ "model": "local/x" })))
        .await
        .ok(202);
    let timer = json!({ "session_id": free, "input": "hi", "after": "1h", "options": { "budget": { "usd": 1 } } });
    refused(
        &api.post("/v1/timers", &timer).await,
        "/options/budget/usd",
        "main/mine",
    );
    let new = json!({ "input": "hi", "session": { "agent": agent(json!({ "model": "mine" })) },
        "options": { "budget": { "usd": 1 } } });
    refused(
        &api.post("/v1/sends", &new).await,
        "/options/budget/usd",
        "main/mine",
    );
}

#[tokio::test]
async fn a_run_that_names_an_agent_with_such_a_budget_is_refused() {
    let world = World::new().await;
    let api = world.ready().await;
    let spec = agent(json!({ "budget": { "usd": 1 }, "model": "mine" }));
    // No worker of the pool is known yet.
    api.post("/v1/agents", &json!({ "name": "spender", "spec": spec }))
        .await
        .ok(201);
    worker(&world, 1, Some(&[])).await;
    reread().await;
    let run = json!({ "spec": { "name": "w", "root": { "type": "agent", "id": "a", "agent": "spender" } } });
    refused(&api.post("/v1/runs", &run).await, "/spec", "main/mine");
    let taken = json!({ "agent": "spender" });
    refused(
        &api.post("/v1/sessions", &taken).await,
        "/agent",
        "main/mine",
    );
}

#[tokio::test]
async fn nothing_is_refused_that_a_worker_might_be_able_to_price() {
    let world = World::new().await;
    let api = world.ready().await;
    let body = json!({ "agent": agent(json!({ "budget": { "usd": 1 }, "model": "mine" })) });
    worker(&world, 1, Some(&[])).await;
    refused(
        &api.post("/v1/sessions", &body).await,
        "/agent/model",
        "main/mine",
    );
    // One of two workers is of a release that does not say.
    worker(&world, 2, None).await;
    reread().await;
    api.post("/v1/sessions", &body).await.ok(201);
}

#[tokio::test]
async fn a_provider_that_does_not_exist_is_told_where_a_model_names_it() {
    let world = World::new().await;
    let api = world.ready().await;
    worker(&world, 1, Some(&[])).await;
    for (model, says) in [
        (
            "anthropic/claude",
            Some("no provider is named \"anthropic\""),
        ),
        ("locl/llama3", Some("did you mean \"local\"?")),
        ("local/llama3", None),
        ("gpt-5", None),
    ] {
        let body = json!({ "agent": agent(json!({ "model": model })) });
        let made = api.post("/v1/sessions", &body).await.ok(201);
        let warning = &made["warnings"][0];
        let detail = warning["detail"].as_str();
        match says {
            None => assert_eq!(detail, None, "{made}"),
            Some(says) => {
                assert_eq!(warning["pointer"], "/model");
                assert!(detail.is_some_and(|detail| detail.contains(says)), "{made}");
            }
        }
    }
}
