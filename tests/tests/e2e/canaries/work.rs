//! Work that exercises everything that has a secret, and fails there.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mainspring_tests::faults::{monotonic, pause};
use serde_json::{Value, json};

use super::api::Api;
use super::outside::Outside;
use super::planted::Planted;

/// Where the owner of an agent or a webhook legitimately finds its own input.
const OWN: &[&str] = &["answers", "commands", "database"];

/// Sends something to an agent and waits for the end.
async fn say(api: &Api, input: &str, agent: &Value) -> Result<Value> {
    let body = json!({ "input": input, "session": { "agent": agent } });
    let mut send = api.post("/v1/sends?wait=20s", &body).await?;
    if send["status"] == "waiting" || send["status"] == "running" || send["status"] == "queued" {
        let id = send["id"].as_str().context("an id")?;
        send = api.get(&format!("/v1/sends/{id}?wait=20s")).await?;
    }
    Ok(send)
}

fn ended(send: &Value, status: &str, about: &str) -> Result<()> {
    ensure!(send["status"] == status, "{about}: {send:.800}");
    Ok(())
}

/// Uses models that refuse, break off, are slow or away, and one that answers; returns the session
/// of that send.
pub(super) async fn models(api: &Api, control: &str) -> Result<String> {
    let told = say(api, &format!("the word is {control}"), &json!({})).await?;
    ended(&told, "completed", "a model that answers")?;
    let named = format!("{control}/{control}");
    let agent = json!({ "model": named });
    let heard = say(api, &format!("once more {control}"), &agent).await?;
    ended(&heard, "completed", "a named model that answers")?;
    for how in [
        "400", "401", "403", "429", "500", "inside", "text", "garbage",
    ] {
        for agent in [json!({}), agent.clone()] {
            let failed = say(api, &format!("!fail {how}"), &agent).await?;
            ended(&failed, "failed", how)?;
        }
    }
    for model in ["responses/m", "claude/m", "slow/m", "away/m", "proxied/m"] {
        let failed = say(api, "hello", &json!({ "model": model })).await?;
        ended(&failed, "failed", model)?;
    }
    for send in [&told, &heard] {
        let id = send["id"].as_str().context("an id")?;
        api.follow(&format!("/v1/sends/{id}/events")).await?;
    }
    let session = told["session_id"].as_str().context("a session")?;
    Ok(session.to_owned())
}

/// Makes one more send, for a worker that has just started.
pub(super) async fn one_more(api: &Api) -> Result<()> {
    ended(
        &say(api, "hello", &json!({})).await?,
        "completed",
        "one more",
    )
}

/// Uses tools behind URLs and on MCP servers, shells and policies.
pub(super) async fn tools(api: &Api, planted: &mut Planted, outside: &Outside) -> Result<()> {
    let (base, host) = (&outside.base, outside.authority());
    let own = ["answers", "commands", "database", "outside/tool"].as_slice();
    let token = planted.secret("a token in a tool's URL", own);
    let password = planted.secret("a password in a tool's URL", own);
    let lost = planted.secret("a token in the URL of a tool that is away", OWN);
    let failing = planted.secret(
        "a token in the URL of a tool that fails",
        &["answers", "commands", "database", "outside/failing"],
    );
    let tool = |name: &str, url: String| {
        json!({
            "type": "http", "name": name, "url": url, "repeat": "once", "timeout": "1s",
            "parameters": { "type": "object" },
        })
    };
    let tools = json!([
        tool("told", format!("http://somebody:{password}@{host}/tool?token={token}")),
        tool("lost", format!("http://127.0.0.1:1/tool?token={lost}")),
        tool("failing", format!("{base}/failing?token={failing}")),
        "shell",
        { "type": "mcp", "server": "quoting" },
    ]);
    let agent = json!({ "tools": tools });
    for call in [
        "told {}",
        "told {\"what\": \"no policy\"}",
        "lost {}",
        "failing {}",
        "quote {}",
        "shell {\"command\": \"env; echo $SOMETHING_ELSE $ANY_NAME\"}",
    ] {
        let send = say(api, &format!("!call {call}"), &agent).await?;
        ensure!(send["usage"]["rounds"] != 0, "{call}: {send:.800}");
        let session = send["session_id"].as_str().context("a session")?;
        api.get(&format!("/v1/sessions/{session}")).await?;
        let messages = api.get(&format!("/v1/sessions/{session}/messages")).await?;
        let said = messages.to_string();
        ensure!(
            said.contains("\"tool\""),
            "{call} was not called: {said:.1500}"
        );
        let id = send["id"].as_str().context("an id")?;
        api.follow(&format!("/v1/sends/{id}/events")).await?;
    }
    for server in ["refusing", "telling"] {
        let agent = json!({ "tools": [{ "type": "mcp", "server": server }] });
        let send = say(api, "hello", &agent).await?;
        let id = send["id"].as_str().context("an id")?;
        api.follow(&format!("/v1/sends/{id}/events")).await?;
        api.ask("POST", &format!("/v1/sends/{id}/cancel"), &Value::Null)
            .await?;
    }
    Ok(())
}

/// Uses external memory and fold services.
pub(super) async fn memories(api: &Api, planted: &mut Planted, outside: &Outside) -> Result<()> {
    for provider in ["kept", "refusing"] {
        let memory = json!({ "namespace": "user/one", "provider": provider });
        let agent = json!({ "tools": ["memory"], "memory": memory });
        let send = say(api, "what do you know of me?", &agent).await?;
        ended(&send, "completed", provider)?;
    }
    let entry = json!({ "namespace": "user/one", "text": "likes plums" });
    api.post("/v1/memories", &entry).await?;
    let agent = json!({ "memory": { "namespace": "user/one" } });
    ended(&say(api, "plums?", &agent).await?, "completed", "vectors")?;

    let token = planted.secret(
        "a token in the URL of what folds",
        &["answers", "commands", "database", "outside/failing"],
    );
    let url = format!("{}/failing?token={token}", outside.base);
    let fold = json!({ "strategy": "http", "url": url, "hard": 0.002, "keep_sends": 2 });
    let agent = json!({ "context": { "fold": fold } });
    let session = api.post("/v1/sessions", &json!({ "agent": agent })).await?;
    let session = session["id"].as_str().context("a session")?;
    api.get(&format!("/v1/sessions/{session}")).await?;
    for n in 0..12 {
        let input = format!("line {n} says what was decided about the matter of the {n} apples");
        let path = format!("/v1/sessions/{session}/sends?wait=20s");
        let send = api.post(&path, &json!({ "input": input })).await?;
        ended(&send, "completed", "a send in a long session")?;
    }
    Ok(())
}

/// Creates a tenant with its own provider keys; returns a client with its key.
pub(super) async fn tenant(api: &Api, planted: &mut Planted) -> Result<Api> {
    let tenant = api.post("/v1/tenants", &json!({ "name": "acme" })).await?;
    let scopes = ["admin", "manage", "send", "read", "answer"];
    let new = |name: &str| json!({ "name": name, "tenant": tenant["id"], "scopes": scopes });
    let (_, used) = api.obtain("POST", "/v1/keys", &new("used"), "key").await?;
    let tenant = api.with_key(&used);
    let place = |key: &Value| {
        let id = key["id"].as_str().context("an id")?;
        anyhow::Ok(format!("/v1/keys/{id}"))
    };
    let (rotated, before) = api
        .obtain("POST", "/v1/keys", &new("rotated"), "key")
        .await?;
    let rotate = format!("{}/rotate", place(&rotated)?);
    let (_, after) = tenant.obtain("POST", &rotate, &json!({}), "key").await?;
    let (revoked, gone) = api
        .obtain("POST", "/v1/keys", &new("revoked"), "key")
        .await?;
    tenant
        .ask("DELETE", &place(&revoked)?, &Value::Null)
        .await?;
    for (name, key, status) in [
        ("an API key", &used, 200),
        ("an API key before its rotation", &before, 200),
        ("an API key after its rotation", &after, 200),
        ("an API key that was revoked", &gone, 401),
    ] {
        let told = api.with_key(key).admitted().await?;
        ensure!(told == status, "{name}: {told}");
        // The part before the secret is the key's id, which is public.
        let secret = key.rsplit('_').next().unwrap_or_default();
        planted.note(name, secret, &[]);
    }
    let brought = planted.secret("a tenant's key for a model provider", &["outside/llm"]);
    let path = "/v1/provider-keys/openai";
    let set = tenant.ask("PUT", path, &json!({ "key": brought })).await?;
    ensure!(set.status == 200, "{set:?}");
    ended(
        &say(&tenant, "hello", &json!({})).await?,
        "completed",
        "a tenant's key",
    )?;
    ended(
        &say(&tenant, "!fail 401", &json!({})).await?,
        "failed",
        "a tenant's key",
    )?;
    let unusable = planted.secret("a key for a model provider that cannot be one", &[]);
    let body = json!({ "key": format!("{unusable} \u{1}") });
    ensure!(
        tenant.ask("PUT", path, &body).await?.status == 400,
        "blanks"
    );
    let misnamed = planted.secret("a key for a model provider under a wrong name", &[]);
    let body = json!({ "kee": misnamed });
    ensure!(
        tenant.ask("PUT", path, &body).await?.status == 400,
        "a wrong name"
    );
    Ok(tenant)
}

/// Uses webhooks that are signed with old and new secrets, and one whose endpoint fails.
pub(super) async fn webhooks(tenant: &Api, planted: &mut Planted, outside: &Outside) -> Result<()> {
    let (base, host) = (&outside.base, outside.authority());
    let given = planted.signing("a webhook's secret", &[]);
    let body = json!({ "url": format!("{base}/hook"), "events": ["*"], "secret": given });
    let (webhook, _) = tenant
        .obtain("POST", "/v1/webhooks", &body, "secret")
        .await?;
    let path = format!("/v1/webhooks/{}", webhook["id"].as_str().context("an id")?);
    let rotate = format!("{path}/rotate");
    let (_, rotated) = tenant.obtain("POST", &rotate, &json!({}), "secret").await?;
    let rotated = rotated.trim_start_matches("whsec_");
    planted.note("a webhook's secret after a rotation", rotated, &[]);
    let changed = planted.signing("a webhook's secret that was changed", &[]);
    let change = tenant
        .ask("PATCH", &path, &json!({ "secret": changed }))
        .await?;
    ensure!(change.status == 200, "{change:?}");
    let wrong = planted.secret("a webhook's secret that is none", &[]);
    let wrong = json!({ "url": format!("{base}/hook"), "events": ["*"], "secret": format!("whsec_!{wrong}") });
    ensure!(
        tenant.ask("POST", "/v1/webhooks", &wrong).await?.status == 400,
        "no secret"
    );

    let own = ["answers", "commands", "database", "outside/failing"].as_slice();
    let token = planted.secret("a token in a webhook's URL", own);
    let password = planted.secret("a password in a webhook's URL", own);
    let url = format!("http://somebody:{password}@{host}/failing?token={token}");
    let made = planted.signing("the secret of a webhook whose endpoint fails", &[]);
    let body = json!({ "url": url, "events": ["send.*"], "secret": made });
    let (failing, _) = tenant
        .obtain("POST", "/v1/webhooks", &body, "secret")
        .await?;
    let failing = failing["id"].as_str().context("an id")?;
    say(tenant, "hello", &json!({})).await?;
    let until = monotonic() + Duration::from_secs(10);
    for webhook in [&path, &format!("/v1/webhooks/{failing}")] {
        let deliveries = format!("{webhook}/deliveries");
        while !tenant
            .get(&deliveries)
            .await?
            .to_string()
            .contains("\"attempts\":1")
        {
            ensure!(monotonic() < until, "nothing was posted to {webhook}");
            pause(Duration::from_millis(50)).await;
        }
    }
    tenant.get("/v1/webhooks").await?;
    Ok(())
}

/// Runs a workflow and a timer whose model refuses.
pub(super) async fn runs(api: &Api) -> Result<()> {
    let leaf = json!({ "type": "agent", "id": "ask", "spec": { "name": "a", "system_prompt": "x", "tools": [] }, "input": "!fail 401" });
    let spec = json!({ "name": "fails", "root": leaf });
    let run = api
        .post("/v1/runs?wait=20s", &json!({ "spec": spec }))
        .await?;
    ended(&run, "failed", "a run")?;
    let id = run["id"].as_str().context("an id")?;
    api.get(&format!("/v1/runs/{id}/nodes")).await?;
    api.follow(&format!("/v1/runs/{id}/events")).await?;
    let session = api.post("/v1/sessions", &json!({})).await?;
    let body = json!({ "session_id": session["id"], "after": "1ms", "input": "!fail 500" });
    api.post("/v1/timers", &body).await?;
    Ok(())
}
