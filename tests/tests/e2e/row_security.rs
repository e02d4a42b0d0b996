//! Two tenants on a Postgres that keeps them apart by itself: each finds everything of its own that the API has, the other
//! nothing of it.

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use mainspring_benches::client::{Answer, Client};
use mainspring_tests::faults::{Cluster, Recipe};
use serde_json::{Value, json};

const ROOT: &str = "an operator's key of a test, which is long enough";

/// The base64 of 32 bytes.
const SECRETS: &str = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";

/// What is made of everything before the other tenant asks for it.
const READS: [&str; 12] = [
    "/messages",
    "/calls",
    "/inbox",
    "/usage",
    "/context",
    "/export",
    "",
    "/nodes",
    "/versions",
    "/occurrences",
    "/deliveries",
    "/versions/1",
];

/// Someone who asks with a key.
struct Caller<'a> {
    url: &'a str,
    key: &'a str,
}

impl Caller<'_> {
    async fn ask(&self, method: &str, path: &str, body: &Value) -> Result<Answer> {
        let bytes = if body.is_null() {
            Bytes::new()
        } else {
            serde_json::to_vec(body)?.into()
        };
        let key = format!("Bearer {}", self.key);
        let headers = [
            ("authorization", key.as_str()),
            ("content-type", "application/json"),
        ];
        let mut client = Client::connect(self.url).await?;
        client.request_with(method, path, bytes, &headers).await
    }

    /// Asks for what has to succeed.
    async fn done(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let answer = self.ask(method, path, body).await?;
        ensure!(
            (200..300).contains(&answer.status),
            "{method} {path}: {} {:?}",
            answer.status,
            answer.body
        );
        Ok(serde_json::from_slice(&answer.body).unwrap_or(Value::Null))
    }

    async fn made(&self, path: &str, body: &Value) -> Result<String> {
        let made = self.done("POST", path, body).await?;
        let id = made["id"].as_str().or(made["name"].as_str());
        Ok(id.with_context(|| format!("{path}: {made}"))?.to_owned())
    }
}

/// A new tenant's key.
async fn tenant(root: &Caller<'_>, name: &str) -> Result<String> {
    let id = root.made("/v1/tenants", &json!({ "name": name })).await?;
    let key = json!({ "name": "test", "scopes": ["admin"], "tenant": id });
    let made = root.done("POST", "/v1/keys", &key).await?;
    Ok(made["key"].as_str().context("the token")?.to_owned())
}

/// Makes one of everything, as tenants use it; the paths of what was made.
async fn furnished(caller: &Caller<'_>) -> Result<Vec<String>> {
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

/// How often each answer was given to reads of all that is at and below some paths.
async fn read(caller: &Caller<'_>, paths: &[String]) -> Result<(usize, usize)> {
    let (mut found, mut missing) = (0, 0);
    for path in paths {
        for below in READS {
            let answer = caller
                .ask("GET", &format!("{path}{below}"), &Value::Null)
                .await?;
            match answer.status {
                200 => found += 1,
                404 => missing += 1,
                other => anyhow::bail!("GET {path}{below}: {other}"),
            }
        }
    }
    Ok((found, missing))
}

const LISTS: [&str; 9] = [
    "agents",
    "skills",
    "memories?namespace=user/1&q=plums",
    "webhooks",
    "provider-keys",
    "sessions",
    "sends",
    "timers",
    "runs",
];

/// How many items the lists show.
async fn listed(caller: &Caller<'_>) -> Result<Vec<usize>> {
    let mut counts = Vec::new();
    for list in LISTS {
        let path = format!("/v1/{list}");
        let page = caller.done("GET", &path, &Value::Null).await?;
        let data = page["data"].as_array().context("a list")?;
        counts.push(data.len());
    }
    Ok(counts)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_find_their_own_and_nothing_of_each_other() -> Result<()> {
    let recipe = Recipe {
        schedulers: 1,
        workers: 1,
        environment: &[
            ("MAINSPRING_ROW_SECURITY", "true"),
            ("MAINSPRING_ROOT_KEY", ROOT),
            ("MAINSPRING_SECRETS_KEY", SECRETS),
        ],
        ..Recipe::default()
    };
    let Some(cluster) = Cluster::start(recipe).await? else {
        return Ok(());
    };
    let urls = cluster.urls();
    let url = &urls[0];
    let root = Caller { url, key: ROOT };
    let (blue, red) = (tenant(&root, "blue").await?, tenant(&root, "red").await?);
    let (blue, red) = (Caller { url, key: &blue }, Caller { url, key: &red });
    let nothing = listed(&red).await?;
    ensure!(nothing.iter().all(|count| *count == 0), "{nothing:?}");

    let theirs = furnished(&blue).await?;
    ensure!(
        listed(&red).await? == nothing,
        "red sees something of blue's"
    );
    let (found, _) = read(&blue, &theirs).await?;
    ensure!(found >= 20, "blue finds {found} of its own");
    let (found, missing) = read(&red, &theirs).await?;
    ensure!(found == 0 && missing > 0, "red finds {found} of blue's");

    // With everything of its own under the same names beside it.
    let ours = furnished(&red).await?;
    let both = (listed(&blue).await?, listed(&red).await?);
    ensure!(both.0 == both.1 && !both.0.contains(&0), "{both:?}");
    let own = read(&red, &ours).await?;
    ensure!(own.0 >= 20, "red finds {} of its own", own.0);

    // What changes things in steps of its own.
    for (caller, paths) in [(&blue, &theirs), (&red, &ours)] {
        let patch = json!({ "metadata": { "seen": true } });
        caller.done("PATCH", &paths[4], &patch).await?;
        let fork = format!("{}/fork", paths[4]);
        caller.done("POST", &fork, &json!({})).await?;
        for path in [&paths[2], &paths[3], &paths[6], &paths[4]] {
            caller.done("DELETE", path, &Value::Null).await?;
        }
    }
    cluster.audit()?;
    cluster.passed();
    Ok(())
}
