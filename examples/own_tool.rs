//! A program that embeds a worker with a tool of its own: it accepts a send, the model calls the
//! tool, and the answer is printed. One process, one SQLite file, no API key.
//!
//! ```sh
//! cargo run -p mainspring-tests --example own_tool
//! ```

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use mainspring_providers::{Kind, ProviderSettings};
use mainspring_queue_local::{LocalBus, LocalQueue};
use mainspring_runtime::{Lifecycle, OsEntropy, SystemClock};
use mainspring_shared::agent::{AgentSpec, SendOptions};
use mainspring_shared::blob::Depot;
use mainspring_shared::entropy::Entropy;
use mainspring_shared::id::{BootId, SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::message::ContentPart;
use mainspring_shared::queue::{Activation, Lane};
use mainspring_shared::send::SendRecord;
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, NewSession, ReadySession, Store, Target,
};
use mainspring_shared::time::Clock;
use mainspring_shared::tool::{Repeat, ToolEntry};
use mainspring_store_sqlite::SqliteOptions;
use mainspring_worker::hook::Hooks;
use mainspring_worker::memory::Memories;
use mainspring_worker::tool::{Invocation, Output, Tool, ToolError, ToolSpec, Tools, Traits};
use mainspring_worker::{Parts, Sources, WorkerConfig};
use serde_json::{Map, json};

/// Reports how many of an article are in stock.
#[derive(Debug)]
struct Stock;

#[async_trait]
impl Tool for Stock {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "stock".into(),
            description: "Tells how many pieces of an article are in stock.".into(),
            parameters: json!({
                "type": "object",
                "properties": {"article": {"type": "string"}},
                "required": ["article"],
                "additionalProperties": false,
            }),
        }
    }

    fn traits(&self) -> Traits {
        // Read-only: if the worker dies, the call is simply repeated.
        Traits::new(Repeat::Safe)
    }

    async fn call(&self, invocation: Invocation) -> Result<Output, ToolError> {
        match invocation.arguments["article"].as_str() {
            Some("tea") => Ok(Output::json(json!({"pieces": 12}))),
            _ => Err(ToolError::reply("there is no such article")),
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let entropy: Arc<dyn Entropy> = Arc::new(OsEntropy);
    let store: Arc<dyn Store> =
        Arc::new(mainspring_store_sqlite::open(SqliteOptions::dir(folder.path())).await?);

    let mut tools = Tools::default();
    tools.insert(Arc::new(Stock))?;
    let demo = ProviderSettings::new("demo", Kind::Demo);
    let parts = Parts {
        store: store.clone(),
        queue: Arc::new(LocalQueue::new()),
        bus: Arc::new(LocalBus::new()),
        clock: clock.clone(),
        entropy: entropy.clone(),
        providers: Arc::new(mainspring_providers::open(&[demo], "demo", &clock)?),
        tools: Arc::new(tools),
        sources: Sources {
            blobs: Arc::new(Depot::in_database(store.clone(), entropy.clone())),
            memories: Arc::new(Memories::new(store.clone(), clock.clone(), None)),
            fold: None,
        },
        hooks: Arc::new(Hooks::default()),
        config: Arc::new(WorkerConfig::default()),
    };
    let queue = parts.queue.clone();
    let lifecycle = Lifecycle::new();
    let worker = tokio::spawn(mainspring_worker::run(parts, lifecycle.clone()));
    let (send, ready) = accept(
        store.as_ref(),
        entropy.as_ref(),
        r#"!tool stock {"article": "tea"}"#,
    )
    .await?;
    // A scheduler does this after each accept, and again for anything a crash left behind.
    let lane = Lane {
        pool: ready.pool,
        priority: ready.priority,
    };
    let sessions = vec![ready.key];
    queue.push(&lane, vec![Activation { sessions }]).await;
    let record = ended(store.as_ref(), clock.as_ref(), send).await?;
    let answer = record.output_text.context("the model answered")?;
    anyhow::ensure!(answer.contains("12"), "the tool was asked: {answer}");
    output(&answer)?;
    lifecycle.stop();
    worker.await??;
    Ok(())
}

fn output(answer: &str) -> std::io::Result<()> {
    use std::io::Write;
    writeln!(std::io::stdout(), "{answer}")
}

/// Accepts a send into a new session whose agent may use the tool.
async fn accept(
    store: &dyn Store,
    entropy: &dyn Entropy,
    text: &str,
) -> anyhow::Result<(SendId, ReadySession)> {
    let session = NewSession {
        key: SessionKey {
            tenant: TenantId::DEFAULT,
            session: SessionId(entropy.ordered_id()),
        },
        agent: AgentSpec {
            tools: vec![ToolEntry::Named("stock".into())],
            ..AgentSpec::default()
        },
        metadata: Map::new(),
        parent: None,
    };
    let item = AcceptSend {
        id: SendId(entropy.ordered_id()),
        target: Target::New(Box::new(session)),
        input: vec![ContentPart::text(text)],
        options: SendOptions::default(),
        reports_to: None,
        run: None,
        idempotency: None,
        queued_max: 1,
        keeper: None,
    };
    let id = item.id;
    let accepting = BootId(entropy.random_id());
    let outcome = store.accept_sends(accepting, vec![item]).await?.pop();
    let Some(AcceptOutcome::Accepted(accepted)) = outcome else {
        anyhow::bail!("not accepted: {outcome:?}");
    };
    let ready = accepted
        .enqueue
        .context("a new session has nothing else to do")?;
    Ok((id, ready))
}

/// Waits until a send is final.
async fn ended(store: &dyn Store, clock: &dyn Clock, id: SendId) -> anyhow::Result<SendRecord> {
    loop {
        let found = store.get_sends(vec![(TenantId::DEFAULT, id)]).await?.pop();
        let record = found.flatten().context("it was accepted")?;
        if record.status.is_final() {
            return Ok(record);
        }
        clock.sleep(Duration::from_millis(20)).await;
    }
}
