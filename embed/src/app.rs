//! A scheduler and its workers within this process, on one database.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use mainspring_client::flow::Workflow;
use mainspring_client::types::NewAgentBody;
use mainspring_client::{Client, NewRun, NewTimer, RunHandle, SendHandle, Session};
use mainspring_providers::{Kind, ProviderSettings};
use mainspring_queue_local::{LocalBus, LocalQueue};
use mainspring_runtime::{FairQueue, Lifecycle, OsEntropy, Sealer, SystemClock};
use mainspring_scheduler::services::webhooks::WebhookParts;
use mainspring_shared::agent::DEFAULT_POOL;
use mainspring_shared::blob::Depot;
use mainspring_shared::bus::Bus;
use mainspring_shared::entropy::Entropy;
use mainspring_shared::queue::Queue;
use mainspring_shared::store::Store;
use mainspring_shared::time::Clock;
use mainspring_tools::builtin::{self, Background, WorkspaceSettings};
use mainspring_tools::http::{Caller, CallerSettings, Vault, WebhookPoster};
use mainspring_tools::mcp::Pool;
use mainspring_tools::{Families, register_all};
use mainspring_worker::hook::Hooks;
use mainspring_worker::llm::Providers;
use mainspring_worker::memory::Memories;
use mainspring_worker::tool::Tools;
use mainspring_worker::{Parts, Sources, WorkerConfig};
use tokio::task::JoinSet;

use crate::closure::{self, Called};
use crate::door::{Door, HERE};
use crate::error::Error;
use crate::opening::Opening;
use crate::store;

/// How long a query waits for its vector.
const VECTOR_TIMEOUT: Duration = Duration::from_secs(1);

/// What stopping may take beyond the answers in flight.
const MARGIN: Duration = Duration::from_secs(5);

/// Agents in this process: a scheduler and workers on one database.
///
/// Everything is durable before it is acknowledged, and other processes on the same database go on with what this one began,
/// however it ends. Dropping it drops what it is doing, as a crash would; [`shutdown`](Self::shutdown) finishes that first.
#[derive(Debug)]
pub struct Mainspring {
    client: Client,
    lifecycle: Lifecycle,
    roles: JoinSet<Result<(), Error>>,
    patience: Duration,
}

impl Mainspring {
    /// The database at a URL: `sqlite:FILE`, whose folder one process uses at a time, or `postgres://…`, which any number of
    /// them share. Its schema is created or upgraded.
    pub fn open(url: impl AsRef<str>) -> Opening {
        Opening::new(url.as_ref())
    }

    /// A new session, which is made with its first send. Name its [`agent`](Session::agent).
    pub fn session(&self) -> Session {
        self.client.session()
    }

    /// The session with this id.
    pub fn session_by_id(&self, id: impl Into<String>) -> Session {
        self.client.session_by_id(id)
    }

    /// The send with this id, also one of another process.
    pub fn send_by_id(&self, id: impl Into<String>) -> SendHandle<String> {
        self.client.send_by_id(id)
    }

    /// A run of a workflow: await it to start it.
    pub fn run(&self, workflow: &Workflow) -> NewRun {
        self.client.run(workflow)
    }

    /// The run with this id, also one of another process.
    pub fn run_by_id(&self, id: impl Into<String>) -> RunHandle {
        self.client.run_by_id(id)
    }

    /// A schedule.
    pub fn timer(&self) -> NewTimer {
        self.client.timer()
    }

    /// A client of this process, with everything that the API has. Its requests do not leave the process.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Takes nothing more, finishes the answers in flight, and leaves the rest to other processes or to the next one.
    pub async fn shutdown(mut self) -> Result<(), Error> {
        self.lifecycle.stop();
        let all = async {
            let mut ended = Ok(());
            while let Some(role) = self.roles.join_next().await {
                let role = role.unwrap_or_else(|panic| Err(Error::setup(panic)));
                ended = ended.and(role);
            }
            ended
        };
        tokio::time::timeout(self.patience, all)
            .await
            .unwrap_or(Err(Error::Unfinished))
    }
}

impl Drop for Mainspring {
    fn drop(&mut self) {
        self.lifecycle.abort();
    }
}

/// What the roles share.
struct Base {
    store: Arc<dyn Store>,
    queue: Arc<dyn Queue>,
    bus: Arc<dyn Bus>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    blobs: Arc<Depot>,
    lifecycle: Lifecycle,
}

pub(crate) async fn open(mut opening: Opening) -> Result<Mainspring, Error> {
    // Only the first of a process counts; who has installed another one keeps it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let entropy: Arc<dyn Entropy> = Arc::new(OsEntropy);
    let store = store::open(opening.url.expose().to_owned()).await?;
    let blobs = match opening.blobs.take() {
        None => Depot::in_database(store.clone(), entropy.clone()),
        Some(bytes) => Depot::new(store.clone(), bytes, entropy.clone()),
    };
    let base = Base {
        store,
        queue: Arc::new(FairQueue::new(Arc::new(LocalQueue::new()), clock.clone())),
        bus: Arc::new(LocalBus::new()),
        clock,
        entropy,
        blobs: Arc::new(blobs),
        lifecycle: Lifecycle::new(),
    };
    let name = format!("embedded-{}", std::process::id());
    opening.worker.name.clone_from(&name);
    opening.scheduler.name = name;
    opening.worker.lease_ttl = opening.scheduler.lease_ttl;

    let mut roles = JoinSet::new();
    let pool = pool(&opening);
    let workers = workers(&base, &opening, &pool)?;
    let sealer = sealer(&opening)?.map(Arc::new);
    let poster = WebhookPoster::new(&[], opening.scheduler.webhook_timeout, base.clock.clone());
    let parts = mainspring_scheduler::Parts {
        store: base.store.clone(),
        blobs: base.blobs.clone(),
        queue: base.queue.clone(),
        bus: base.bus.clone(),
        clock: base.clock.clone(),
        entropy: base.entropy.clone(),
        config: opening.scheduler.clone(),
        webhooks: WebhookParts {
            poster: Some(Arc::new(poster.map_err(Error::setup)?)),
            sealer,
        },
    };
    let (router, loops) = mainspring_api::embedded(parts, base.lifecycle.clone());
    roles.spawn(async {
        loops.await;
        Ok(())
    });
    for parts in workers {
        let lifecycle = base.lifecycle.clone();
        roles.spawn(async move {
            let ran = mainspring_worker::run(parts, lifecycle.clone()).await;
            // Sends that nobody runs are not accepted: the door says that it is closed.
            ran.map_err(|error| {
                tracing::error!(%error, "a worker could not start");
                lifecycle.stop();
                Error::setup(error)
            })
        });
    }
    let lifecycle = base.lifecycle;
    let door = Door {
        router,
        lifecycle: lifecycle.clone(),
    };
    // What is made from here on ends with it, also if an agent is refused.
    let app = Mainspring {
        client: Client::over(HERE, Arc::new(door)),
        lifecycle,
        roles,
        patience: opening.worker.drain_timeout + MARGIN,
    };
    let bodies: Vec<_> = opening
        .agents
        .iter()
        .map(|agent| agent.body(&pool, |name| is_own(&opening, name)))
        .collect();
    for body in bodies {
        publish(app.client.clone(), body).await?;
    }
    Ok(app)
}

// Boxed, so that the compiler sees that all of it may move between threads.
fn publish(client: Client, body: NewAgentBody) -> BoxFuture<'static, Result<(), Error>> {
    Box::pin(async move {
        client.api().publish_agent(&body, None).await?;
        Ok(())
    })
}

fn closures(opening: &Opening) -> impl Iterator<Item = &mainspring_client::Tool> {
    let of_agents = opening.agents.iter().flat_map(|agent| &agent.tools);
    of_agents.chain(&opening.closures)
}

/// Whether a tool is of this program.
fn is_own(opening: &Opening, name: &str) -> bool {
    let is_worker_tool = || opening.tools.iter().any(|tool| tool.spec().name == name);
    closures(opening).any(|closure| closure.name() == name) || is_worker_tool()
}

/// The pool of agents with closures; the default one if there are none.
fn pool(opening: &Opening) -> String {
    let own = opening
        .tools
        .iter()
        .map(|tool| tool.spec().name)
        .collect::<Vec<_>>();
    let names = closures(opening)
        .map(mainspring_client::Tool::name)
        .chain(own.iter().map(String::as_str));
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    names.dedup();
    match &opening.pool {
        Some(pool) => pool.clone(),
        None if names.is_empty() => DEFAULT_POOL.to_owned(),
        None => closure::pool(names.into_iter()),
    }
}

/// A worker for agents with closures, and one for all others: a worker serves one pool.
fn workers(base: &Base, opening: &Opening, pool: &str) -> Result<Vec<Parts>, Error> {
    let providers = Arc::new(providers(base, opening)?);
    let embedder = opening
        .embedder
        .clone()
        .map(|embedder| (embedder, VECTOR_TIMEOUT));
    let mut memories = Memories::new(base.store.clone(), base.clock.clone(), embedder);
    for (name, memory) in &opening.memories {
        memories.insert(name, memory.clone());
    }
    let memories = Arc::new(memories);
    let mut hooks = Hooks::default();
    for hook in &opening.hooks {
        hooks.register(hook.clone()).map_err(Error::setup)?;
    }
    let hooks = Arc::new(hooks);
    let mut pools = vec![pool];
    if pool != DEFAULT_POOL {
        pools.push(DEFAULT_POOL);
    }
    let parts = pools.into_iter().map(|served| {
        let mut tools = tools(base, opening, &memories)?;
        if served == pool {
            insert(&mut tools, opening)?;
        }
        Ok(Parts {
            store: base.store.clone(),
            queue: base.queue.clone(),
            bus: base.bus.clone(),
            clock: base.clock.clone(),
            entropy: base.entropy.clone(),
            providers: providers.clone(),
            tools: Arc::new(tools),
            sources: Sources {
                blobs: base.blobs.clone(),
                memories: memories.clone(),
                fold: opening.fold.clone(),
            },
            hooks: hooks.clone(),
            config: Arc::new(WorkerConfig {
                pool: served.to_owned(),
                ..opening.worker.clone()
            }),
        })
    });
    parts.collect()
}

fn providers(base: &Base, opening: &Opening) -> Result<Providers, Error> {
    let demo = || vec![ProviderSettings::new("demo", Kind::Demo)];
    let is_own = |name: &str| opening.models.iter().any(|(own, ..)| own == name);
    let default = opening.default.clone().unwrap_or_else(|| "demo".to_owned());
    let mut settings = opening.providers.clone();
    if settings.is_empty() && opening.models.is_empty() {
        settings = demo();
    }
    let mut providers = if is_own(&default) {
        // A default that the program brings along is no setting.
        let mut providers = Providers::new(&default);
        if !settings.is_empty() {
            let first = settings[0].name.clone();
            providers = mainspring_providers::open(&settings, &first, &base.clock)
                .map_err(Error::setup)?
                .with_default(&default);
        }
        providers
    } else {
        mainspring_providers::open(&settings, &default, &base.clock).map_err(Error::setup)?
    };
    for (name, client, model) in &opening.models {
        providers
            .insert(name, client.clone(), model)
            .map_err(Error::setup)?;
    }
    Ok(providers.with_sealer(sealer(opening)?.map(Arc::new)))
}

fn tools(base: &Base, opening: &Opening, memories: &Arc<Memories>) -> Result<Tools, Error> {
    let sealer = sealer(opening)?.map(Arc::new);
    let settings = CallerSettings {
        vault: Vault::stored(
            base.store.clone(),
            sealer,
            BTreeMap::new(),
            base.clock.clone(),
        ),
        ..CallerSettings::default()
    };
    let caller = Caller::new(&settings, base.clock.clone(), base.entropy.clone());
    let pool = Pool::keeping(opening.mcp.clone(), &base.clock, Some(&base.store));
    register_all(Families {
        sources: vec![
            Arc::new(caller.map_err(Error::setup)?),
            Arc::new(pool.map_err(Error::setup)?),
        ],
        settings: builtin::Settings {
            workspace: opening
                .workspace
                .clone()
                .map(WorkspaceSettings::per_session),
            ..builtin::Settings::default()
        },
        background: Background {
            store: base.store.clone(),
            queue: base.queue.clone(),
            bus: base.bus.clone(),
            lifecycle: base.lifecycle.clone(),
        },
        blobs: base.blobs.clone(),
        memories: memories.clone(),
        clock: base.clock.clone(),
        entropy: base.entropy.clone(),
    })
    .map_err(Error::setup)
}

/// Adds the program's own tools. Two agents may share a closure; two closures may not share a name.
fn insert(tools: &mut Tools, opening: &Opening) -> Result<(), Error> {
    let mut seen = BTreeMap::new();
    for closure in closures(opening) {
        let declared = closure.declaration();
        match seen.insert(closure.name(), declared.clone()) {
            Some(other) if other == declared => {}
            Some(_) => {
                return Err(Error::Setup(format!(
                    "there are two tools named {:?}",
                    closure.name()
                )));
            }
            None => tools
                .insert(Arc::new(Called::new(closure.clone())?))
                .map_err(Error::setup)?,
        }
    }
    for tool in &opening.tools {
        tools.insert(tool.clone()).map_err(Error::setup)?;
    }
    Ok(())
}

fn sealer(opening: &Opening) -> Result<Option<Sealer>, Error> {
    let key = opening.secrets_key.as_ref();
    let sealer = key.map(|key| Sealer::parse(key.expose().trim()));
    sealer.transpose().map_err(Error::setup)
}
