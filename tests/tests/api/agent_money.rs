//! Agents with money and token limits: validated on publishing, enforced when sends are accepted.

use std::time::Duration;

use mainspring_runtime::SystemClock;
use mainspring_shared::agent::AgentName;
use mainspring_shared::id::TenantId;
use mainspring_shared::store::{ReserveMoney, SettleMoney};
use mainspring_shared::tenant::Amount;
use mainspring_shared::time::Clock as _;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::access::{ROOT, ask, locked, tenant};
use crate::client::Answer;
use crate::context::{answering, example};
use crate::world::{Scheduler, World};

const NONE: Value = Value::Null;

async fn publish(api: &Scheduler, agent: &str, limits: &Value) -> Answer {
    let body = json!({ "name": agent, "spec": { "system_prompt": "Do." }, "limits": limits });
    ask(api, ROOT, "POST", "/v1/agents", &body).await
}

/// Makes a call of the default tenant's agent spend this much.
async fn spend(world: &World, agent: &str, amount: Amount) {
    let (tenant, call) = (TenantId::DEFAULT, Uuid::from_u128(7));
    let agent: AgentName = agent.parse().expect("a name");
    let item = ReserveMoney {
        tenant,
        agent: Some(agent),
        call,
        boot: world.boot,
        most: amount,
        least: amount,
        ahead: Amount::default(),
    };
    let store = &world.store;
    store.reserve_money(vec![item]).await.expect("it answers");
    let settled = SettleMoney {
        tenant,
        call,
        cost: Some(amount),
    };
    store.settle_money(vec![settled]).await.expect("it answers");
}

fn to(agent: &str) -> Value {
    json!({ "input": "x", "session": { "agent": agent } })
}

async fn send(api: &Scheduler, body: &Value) -> Answer {
    ask(api, ROOT, "POST", "/v1/sends", body).await
}

/// Sends to an agent until one is refused, which takes until the cached sums expire.
async fn refused(api: &Scheduler, agent: &str, status: u16) -> Answer {
    for _ in 0..150 {
        let answer = send(api, &to(agent)).await;
        if answer.status == status {
            return answer;
        }
        answer.ok(202);
        SystemClock::new().sleep(Duration::from_millis(100)).await;
    }
    panic!("nothing is refused");
}

fn wait(answer: &Answer) -> u64 {
    let wait = answer.header("retry-after");
    wait.and_then(|text| text.parse().ok()).expect("seconds")
}

#[tokio::test]
async fn sends_of_an_agent_that_has_spent_what_it_may_are_refused() {
    let world = World::new().await;
    let (api, elsewhere) = (locked(&world).await, locked(&world).await);
    let limits = json!({ "usd_per_day": 0.5 });
    publish(&api, "support", &limits).await.ok(201);
    publish(&api, "triage", &json!({})).await.ok(201);
    let shown = ask(&api, ROOT, "GET", "/v1/agents/support", &NONE).await;
    assert_eq!(shown.ok(200)["limits"], limits);
    let keyed = || {
        let call = api.call("POST", "/v1/sends").json(&to("support"));
        let call = call.header("authorization", &format!("Bearer {ROOT}"));
        call.header("idempotency-key", "first")
    };
    let first = keyed().send().await.ok(202);
    let session = first["session_id"].as_str().expect("an id");
    spend(&world, "support", Amount::new(500_000_000, 0)).await;
    for api in [&api, &elsewhere] {
        let answer = refused(api, "support", 402).await;
        let problem = answer.problem(402, "limit.money").to_string();
        let said = "the agent support has spent the 0.5 US dollars that it may spend in a day";
        assert!(problem.contains(said), "{problem}");
        let policy = answer.header("ratelimit-policy");
        let expected = "\"agent-usd-day\";q=500000;qu=\"micro-usd\";w=86400";
        assert_eq!(policy, Some(expected));
        assert!((1..=86_400).contains(&wait(&answer)), "{}", wait(&answer));
    }
    // In any session, and also if only the send names the agent. A repeated request gets its
    // original answer.
    let path = format!("/v1/sessions/{session}/sends");
    let mine = ask(&api, ROOT, "POST", &path, &json!({ "input": "x" })).await;
    mine.problem(402, "limit.money");
    let own = json!({ "input": "x", "session": {}, "options": { "agent": "support" } });
    send(&api, &own).await.problem(402, "limit.money");
    let again = keyed().send().await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.ok(202)["id"], first["id"]);
    // Other agents are not affected, even in the agent's sessions and in the same batch.
    send(&api, &to("triage")).await.ok(202);
    let other = json!({ "input": "x", "options": { "agent": "triage" } });
    ask(&api, ROOT, "POST", &path, &other).await.ok(202);
    let batch = json!({ "sends": [to("support"), to("triage"), { "input": "x", "session": {} }] });
    let batch = ask(&api, ROOT, "POST", "/v1/sends:batch", &batch).await;
    let items = batch.ok(200)["results"].clone();
    let codes: Vec<&Value> = (0..3).map(|n| &items[n]["problem"]["code"]).collect();
    assert_eq!(codes, [&json!("limit.money"), &NONE, &NONE], "{items}");
    // A preview of a send that has not been made reports it, too.
    answering(&world, example(false));
    let path = format!("/v1/sessions/{session}/context");
    let shown = ask(&api, ROOT, "POST", &path, &json!({ "input": "x" })).await;
    assert_eq!(shown.ok(200)["limits"][0]["code"], "limit.money");
    let shown = ask(&api, ROOT, "POST", &path, &other).await;
    assert_eq!(shown.ok(200)["limits"], json!([]));
    // Removing the limit lifts it.
    publish(&api, "support", &json!({})).await.ok(200);
    send(&api, &to("support")).await.ok(202);
}

#[tokio::test]
async fn sends_of_an_agent_whose_calls_took_the_tokens_of_a_month_are_refused() {
    let world = World::new().await;
    let api = locked(&world).await;
    let limits = json!({ "tokens_per_day": 1000, "tokens_per_month": 15 });
    publish(&api, "support", &limits).await.ok(201);
    spend(&world, "support", Amount::new(0, 15)).await;
    let answer = refused(&api, "support", 429).await;
    let problem = answer.problem(429, "limit.tokens").to_string();
    let said = "the agent support's model calls may take 15 tokens in a month";
    assert!(problem.contains(said), "{problem}");
    let policy = answer.header("ratelimit-policy").expect("a policy");
    let name = "\"agent-tokens-month\";q=15;qu=\"tokens\";w=";
    assert!(policy.starts_with(name), "{policy}");
    let wait = wait(&answer);
    assert!((1..=31 * 86_400).contains(&wait), "{wait}");
    // A per-minute limit of which nothing is spent refuses no send.
    let limits = json!({ "usd_per_minute": 0.5 });
    publish(&api, "support", &limits).await.ok(200);
    send(&api, &to("support")).await.ok(202);
}

#[tokio::test]
async fn limits_of_agents_are_checked() {
    let world = World::new().await;
    let api = locked(&world).await;
    for (limits, pointer) in [
        (json!({ "usd_per_minute": 0 }), "/limits/usd_per_minute"),
        (json!({ "usd_per_day": 0.0 }), "/limits/usd_per_day"),
        (json!({ "usd_per_month": 0 }), "/limits/usd_per_month"),
        (json!({ "tokens_per_day": 0 }), "/limits/tokens_per_day"),
        (json!({ "tokens_per_month": 0 }), "/limits/tokens_per_month"),
    ] {
        let refused = publish(&api, "support", &limits).await;
        let problem = refused.problem(400, "request.invalid");
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
    }
    for limits in [
        json!({ "usd_per_day": -1 }),
        json!({ "usd_per_day": "1" }),
        json!({ "tokens_per_minute": 5 }),
    ] {
        let refused = publish(&api, "support", &limits).await;
        refused.problem(400, "request.invalid");
    }
    let all = json!({
        "sends_open": 3, "tokens_per_day": 5, "tokens_per_month": 6, "usd_per_minute": 0.5,
        "usd_per_day": 1.5, "usd_per_month": 20.0,
    });
    publish(&api, "support", &all).await.ok(201);
    let shown = ask(&api, ROOT, "GET", "/v1/agents/support", &NONE).await;
    assert_eq!(shown.ok(200)["limits"], all);
    // The limits belong to the tenant that the agent is published for, and to no other.
    let (_, key) = tenant(&api, "blue", &["read", "manage"]).await;
    let shown = ask(&api, &key, "GET", "/v1/agents/support", &NONE).await;
    shown.problem(404, "agent.not_found");
}
