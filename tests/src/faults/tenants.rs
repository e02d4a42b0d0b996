//! Test tenants that have one of everything a tenant can have.

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use mainspring_benches::client::{Answer, Client, with_key};
use serde_json::{Value, json};

/// An operator key, for `MAINSPRING_ROOT_KEY`.
pub const ROOT_KEY: &str = "an operator's key of a test, which is long enough";

/// An encryption key for `MAINSPRING_SECRETS_KEY`: the base64 of 32 bytes.
pub const SECRETS_KEY: &str = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";

/// A client with an API key that sends each request to one server, once.
#[derive(Debug, Clone, Copy)]
pub struct ApiClient<'a> {
    /// The server's address.
    pub url: &'a str,
    /// The key.
    pub key: &'a str,
}

impl ApiClient<'_> {
    /// Sends a request and returns the answer, whatever its status.
    pub async fn ask(&self, method: &str, path: &str, body: &Value) -> Result<Answer> {
        let bytes = if body.is_null() {
            Bytes::new()
        } else {
            serde_json::to_vec(body)?.into()
        };
        let mut client = Client::connect(&with_key(self.url, self.key)).await?;
        client.request(method, path, bytes).await
    }

    /// Sends a request that has to succeed.
    pub async fn done(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let answer = self.ask(method, path, body).await?;
        ensure!(
            (200..300).contains(&answer.status),
            "{method} {path}: {} {:?}",
            answer.status,
            answer.body
        );
        Ok(serde_json::from_slice(&answer.body).unwrap_or(Value::Null))
    }

    /// Creates something, and returns its ID or name.
    pub async fn made(&self, path: &str, body: &Value) -> Result<String> {
        let made = self.done("POST", path, body).await?;
        let id = made["id"].as_str().or(made["name"].as_str());
        Ok(id.with_context(|| format!("{path}: {made}"))?.to_owned())
    }
}

/// Creates a tenant; returns its ID and a key with every scope.
pub async fn new_tenant(root: ApiClient<'_>, name: &str) -> Result<(String, String)> {
    let id = root.made("/v1/tenants", &json!({ "name": name })).await?;
    let key = json!({ "name": "test", "scopes": ["admin"], "tenant": id.clone() });
    let made = root.done("POST", "/v1/keys", &key).await?;
    let token = made["key"].as_str().context("the token")?;
    Ok((id, token.to_owned()))
}

/// Creates one of everything a tenant can have, and returns the paths. The server needs a secrets key.
pub async fn furnished(caller: ApiClient<'_>) -> Result<Vec<String>> {
    let spec = json!({ "system_prompt": "x", "memory": { "namespace": "user/1" } });
    let agent = json!({ "name": "helper", "spec": spec });
    caller.made("/v1/agents", &agent).await?;
    let alias = json!({ "version": 1 });
    caller
        .done("PUT", "/v1/agents/helper/aliases/live", &alias)
        .await?;
    let skill = "---\nname: tidy\ndescription: x\n---\nx";
    let skill = json!({ "files": { "SKILL.md": skill } });
    caller.done("POST", "/v1/skills", &skill).await?;
    let memory = json!({ "namespace": "user/1", "text": "likes plums" });
    let memory = caller.made("/v1/memories", &memory).await?;
    let webhook = json!({ "url": "https://example.com/x", "events": ["send.completed"] });
    let webhook = caller.made("/v1/webhooks", &webhook).await?;
    let key = json!({ "key": "sk-0123456789abcdef" });
    caller.done("PUT", "/v1/provider-keys/mine", &key).await?;
    let session = json!({ "agent": "helper", "metadata": { "user": "1" } });
    let session = caller.made("/v1/sessions", &session).await?;
    let send = format!("/v1/sessions/{session}/sends?wait=30s");
    let sent = caller
        .done("POST", &send, &json!({ "input": "hi" }))
        .await?;
    ensure!(sent["status"] == "completed", "{sent}");
    let send = sent["id"].as_str().context("an id")?.to_owned();
    let timer = json!({ "session_id": session, "after": "1h", "input": "x" });
    let timer = caller.made("/v1/timers", &timer).await?;
    let leaf = json!({ "type": "agent", "id": "one", "input": "{{input}}",
        "spec": { "name": "one", "system_prompt": "Do it.", "tools": [] } });
    let run = json!({ "spec": { "name": "single", "root": leaf }, "input": "x" });
    let run = caller.made("/v1/runs?wait=30s", &run).await?;
    Ok(vec![
        "/v1/agents/helper".to_owned(),
        "/v1/skills/tidy".to_owned(),
        format!("/v1/memories/{memory}"),
        format!("/v1/webhooks/{webhook}"),
        format!("/v1/sessions/{session}"),
        format!("/v1/sends/{send}"),
        format!("/v1/timers/{timer}"),
        format!("/v1/runs/{run}"),
    ])
}
