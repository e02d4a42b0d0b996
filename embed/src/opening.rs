//! What a program says before it opens its database.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use mainspring_client::Tool as Closure;
use mainspring_providers::{Kind, ProviderSettings};
use mainspring_scheduler::SchedulerConfig;
use mainspring_shared::blob::Blobs;
use mainspring_shared::memory::{Embedder, Memory};
use mainspring_tools::mcp::ServerSettings;
use mainspring_worker::WorkerConfig;
use mainspring_worker::fold::Fold;
use mainspring_worker::hook::Hook;
use mainspring_worker::llm::{Model, Secret};
use mainspring_worker::tool::Tool;

use crate::agent::Agent;
use crate::app::{self, Mainspring};
use crate::error::Error;

/// A database that is yet to be opened, and what its agents may use: await it.
///
/// ```no_run
/// # async fn example() -> Result<(), mainspring::Error> {
/// let app = mainspring::Mainspring::open("postgres://localhost/shop")
///     .anthropic("sk-ant-…", "claude-sonnet-4-6")
///     .workspace("files")
///     .await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is opened until this is awaited"]
#[derive(Debug)]
pub struct Opening {
    pub(crate) url: Secret,
    pub(crate) agents: Vec<Agent>,
    pub(crate) closures: Vec<Closure>,
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    pub(crate) providers: Vec<ProviderSettings>,
    pub(crate) models: Vec<(String, Arc<dyn Model>, String)>,
    pub(crate) default: Option<String>,
    pub(crate) memories: Vec<(String, Arc<dyn Memory>)>,
    pub(crate) embedder: Option<Arc<dyn Embedder>>,
    pub(crate) fold: Option<Arc<dyn Fold>>,
    pub(crate) blobs: Option<Arc<dyn Blobs>>,
    pub(crate) hooks: Vec<Arc<dyn Hook>>,
    pub(crate) mcp: BTreeMap<String, ServerSettings>,
    pub(crate) workspace: Option<PathBuf>,
    pub(crate) pool: Option<String>,
    pub(crate) secrets_key: Option<Secret>,
    pub(crate) worker: WorkerConfig,
    pub(crate) scheduler: SchedulerConfig,
}

impl Opening {
    pub(crate) fn new(url: &str) -> Self {
        Self {
            url: Secret::new(url),
            agents: Vec::new(),
            closures: Vec::new(),
            tools: Vec::new(),
            providers: Vec::new(),
            models: Vec::new(),
            default: None,
            memories: Vec::new(),
            embedder: None,
            fold: None,
            blobs: None,
            hooks: Vec::new(),
            mcp: BTreeMap::new(),
            workspace: None,
            pool: None,
            secrets_key: None,
            worker: WorkerConfig::default(),
            scheduler: SchedulerConfig::default(),
        }
    }

    /// An agent, which is published with its tools.
    pub fn agent(mut self, agent: Agent) -> Self {
        self.agents.push(agent);
        self
    }

    /// A closure that agents may name which are not made here: those of workflows, and those published elsewhere. Their sends
    /// come here if they name this program's [`pool`](Self::pool), which then needs a name of yours.
    pub fn tool(mut self, tool: Closure) -> Self {
        self.closures.push(tool);
        self
    }

    /// A tool with all that workers know of one: its own time limit, progress, questions to persons.
    pub fn worker_tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// A provider of models. The first one is the default; without any it is the built-in `demo` model, which answers with what
    /// it is asked and needs no network.
    pub fn provider(mut self, settings: ProviderSettings) -> Self {
        self.default.get_or_insert_with(|| settings.name.clone());
        self.providers.push(settings);
        self
    }

    /// OpenAI with this key, and the model of agents that name none.
    pub fn openai(self, key: impl Into<String>, model: impl Into<String>) -> Self {
        self.known(Kind::OpenAiResponses, "openai", key.into(), model.into())
    }

    /// Anthropic with this key, and the model of agents that name none.
    pub fn anthropic(self, key: impl Into<String>, model: impl Into<String>) -> Self {
        self.known(Kind::Anthropic, "anthropic", key.into(), model.into())
    }

    fn known(self, kind: Kind, name: &str, key: String, model: String) -> Self {
        self.provider(ProviderSettings {
            api_key: Secret::new(key),
            model,
            ..ProviderSettings::new(name, kind)
        })
    }

    /// A provider of the program's own, and the model that it is asked for when an agent names none.
    pub fn model(
        mut self,
        provider: impl Into<String>,
        client: Arc<dyn Model>,
        model: impl Into<String>,
    ) -> Self {
        let provider = provider.into();
        self.default.get_or_insert_with(|| provider.clone());
        self.models.push((provider, client, model.into()));
        self
    }

    /// A memory of the program's own, under the name that agents use.
    pub fn memory(mut self, name: impl Into<String>, memory: Arc<dyn Memory>) -> Self {
        self.memories.push((name.into(), memory));
        self
    }

    /// What makes vectors for the memory in the database; without it, it is searched by words.
    pub fn embedder(mut self, embedder: Arc<dyn Embedder>) -> Self {
        self.embedder = Some(embedder);
        self
    }

    /// The program's own way to fold transcripts, in place of the strategy `summary`.
    pub fn fold(mut self, fold: Arc<dyn Fold>) -> Self {
        self.fold = Some(fold);
        self
    }

    /// Where blobs are; in the database without it. All processes on one database need the same.
    pub fn blobs(mut self, blobs: Arc<dyn Blobs>) -> Self {
        self.blobs = Some(blobs);
        self
    }

    /// A hook, asked in the order in which they are given.
    pub fn hook(mut self, hook: Arc<dyn Hook>) -> Self {
        self.hooks.push(hook);
        self
    }

    /// An MCP server under the name that agents use; it is started when one of them needs it.
    pub fn mcp(mut self, name: impl Into<String>, server: ServerSettings) -> Self {
        self.mcp.insert(name.into(), server);
        self
    }

    /// The folder below which each session has its files; without it agents have no tools for files.
    pub fn workspace(mut self, folder: impl Into<PathBuf>) -> Self {
        self.workspace = Some(folder.into());
        self
    }

    /// The pool in which agents with closures run. Without it, it is made of the closures' names, so that only programs with the
    /// same closures take such sends. Name one if releases with more closures are to go on with what older ones began: every
    /// program that serves it needs all of its closures.
    pub fn pool(mut self, name: impl Into<String>) -> Self {
        self.pool = Some(name.into());
        self
    }

    /// The key under which secrets are sealed in the database: those of webhooks and of HTTP tools, and tenants' keys of
    /// providers.
    pub fn secrets_key(mut self, key: impl Into<String>) -> Self {
        let key: String = key.into();
        self.secrets_key = Some(Secret::new(key));
        self
    }

    /// The limits of the workers.
    pub fn worker(mut self, change: impl FnOnce(&mut WorkerConfig)) -> Self {
        change(&mut self.worker);
        self
    }

    /// The limits of the scheduler.
    pub fn scheduler(mut self, change: impl FnOnce(&mut SchedulerConfig)) -> Self {
        change(&mut self.scheduler);
        self
    }
}

impl IntoFuture for Opening {
    type Output = Result<Mainspring, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(app::open(self))
    }
}
