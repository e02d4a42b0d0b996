//! The life of every serving process: prepare, run its roles, stop in order.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Once};
use std::time::Duration;

use crate::config::Config;
use futures::FutureExt;
use futures::future::BoxFuture;
use mainspring_api::Access;
use mainspring_runtime::{Lifecycle, Metrics, MountedSkills};
use mainspring_shared::entropy::Entropy;
use mainspring_shared::store::Store;
use mainspring_shared::time::Clock;
use mainspring_tools::builtin::{self, Background};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::failure::{Exit, Failure, causes};
use crate::pod::Pod;
use crate::signals::Signals;
use crate::wiring::{self, Wires};

/// Open files that a process asks for; it gets as many as the system allows.
const FILES: u64 = 1 << 20;

/// How long roles may take to end once they were told to drop their work.
const ABORT: Duration = Duration::from_secs(3);

/// How long a process waits at startup for a database that is unavailable or has no schema yet; the
/// processes next to it may take as long to start.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(500);

/// How often it reports why it is still waiting.
const REMINDER: Duration = Duration::from_secs(5);

/// A role that runs until the lifecycle stops.
pub(super) type Running = BoxFuture<'static, Result<(), Failure>>;

/// State that the roles of a process share.
pub(super) struct Base {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) entropy: Arc<dyn Entropy>,
    pub(super) metrics: Metrics,
    pub(super) lifecycle: Lifecycle,
    signals: Signals,
    watched: Once,
}

impl Base {
    /// Prepares the process. From here on signals are handled instead of killing it.
    pub(super) fn prepare() -> Result<Self, Failure> {
        let signals = Signals::listen()?;
        // A core dump would contain every key that the process holds, including those sealed in the
        // database.
        if let Err(error) = rlimit::setrlimit(rlimit::Resource::CORE, 0, 0) {
            tracing::warn!(
                %error,
                "could not disable core dumps: a crash may write this process's secrets to disk"
            );
        }
        // Tools, MCP servers and hooks run as the same user, and their parent's environment and memory
        // would be open to them.
        if let Err(error) = builtin::conceal() {
            tracing::warn!(
                %error,
                "could not protect this process from others of its user: tools may read its secrets"
            );
        }
        // Each stream needs a socket, and the usual soft limit is 1024. If the limit cannot be
        // raised, later connections beyond it are refused.
        match rlimit::increase_nofile_limit(FILES) {
            Ok(files) => tracing::debug!(files, "open files allowed"),
            Err(error) => tracing::debug!(%error, "could not raise the open file limit"),
        }
        let metrics =
            Metrics::install().map_err(|error| Failure::new(Exit::Failure, causes(&error)))?;
        let lifecycle = Lifecycle::new();
        metrics.keep_up(&lifecycle);
        let (clock, entropy) = (wiring::clock(), wiring::entropy());
        Ok(Self {
            clock,
            entropy,
            metrics,
            lifecycle,
            signals,
            watched: Once::new(),
        })
    }

    /// Retries to open something, for as long as other processes may take to start. A signal ends
    /// the wait.
    pub(super) async fn retry_while_unavailable<T, F>(
        &mut self,
        open: impl Fn() -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let start = self.clock.monotonic();
        let mut said: Option<(Duration, String)> = None;
        loop {
            let failure = match open().await {
                Ok(opened) => return Ok(opened),
                Err(failure) => failure,
            };
            let waited = self.clock.monotonic().saturating_sub(start);
            if failure.exit != Exit::Unavailable || waited >= PATIENCE {
                return Err(failure);
            }
            let news = said
                .as_ref()
                .is_none_or(|(when, what)| *what != failure.message || waited >= *when + REMINDER);
            if news {
                tracing::warn!(reason = failure.message, "not ready to start; will retry");
                said = Some((waited, failure.message.clone()));
            }
            tokio::select! {
                () = self.clock.sleep(PAUSE) => {}
                () = self.signals.next() => return Err(failure),
            }
        }
    }

    /// The scheduler's role.
    pub(super) fn scheduler(
        &self,
        config: &Config,
        store: Arc<dyn Store>,
        wires: &Wires,
        listener: TcpListener,
        access: Access,
        accepting: impl FnOnce(SocketAddr) + Send + 'static,
    ) -> Result<Running, Failure> {
        let open = matches!(access, Access::Open);
        self.watch(&store);
        let metrics = self.metrics.clone();
        let parts = mainspring_scheduler::Parts {
            blobs: wiring::depot(config, &store, &self.entropy)?,
            store,
            queue: wires.queue.clone(),
            bus: wires.bus.clone(),
            clock: self.clock.clone(),
            entropy: self.entropy.clone(),
            config: wiring::scheduler_config(config),
            webhooks: wiring::webhooks(config, &self.clock)?,
        };
        let serving = mainspring_api::Serving {
            metrics: Some(Arc::new(move || metrics.render())),
            documents: Some(mainspring_api::Documents {
                page: mainspring_docs::page,
                search: mainspring_docs::search,
                query_bytes_max: mainspring_docs::QUERY_BYTES_MAX,
            }),
            on_accepting: Some(Box::new(move |address: SocketAddr| {
                if open {
                    warn_of_strangers(address);
                }
                accepting(address);
            })),
            access,
        };
        let running = mainspring_api::run(parts, serving, listener, self.lifecycle.clone());
        let role = async {
            running
                .await
                .map_err(|error| Failure::new(Exit::Failure, causes(&error)))
        };
        Ok(role.boxed())
    }

    /// Exports metrics of the store's connection usage; once per process is enough.
    fn watch(&self, store: &Arc<dyn Store>) {
        self.watched.call_once(|| {
            let (store, clock) = (store.clone(), self.clock.clone());
            self.metrics
                .watch_connections(store, clock, &self.lifecycle);
        });
    }

    /// The worker's role.
    pub(super) fn worker(
        &self,
        config: &Config,
        store: Arc<dyn Store>,
        wires: &Wires,
    ) -> Result<Running, Failure> {
        let background = Background {
            store: store.clone(),
            queue: wires.queue.clone(),
            bus: wires.bus.clone(),
            lifecycle: self.lifecycle.clone(),
        };
        self.watch(&store);
        let memories = Arc::new(wiring::memories(
            config,
            &store,
            &self.clock,
            &self.entropy,
        )?);
        let tools = wiring::tools(config, &self.clock, &self.entropy, &background, &memories)?;
        let parts = mainspring_worker::Parts {
            sources: mainspring_worker::Sources {
                blobs: wiring::depot(config, &store, &self.entropy)?,
                memories,
                fold: None,
            },
            store,
            queue: wires.queue.clone(),
            bus: wires.bus.clone(),
            clock: self.clock.clone(),
            entropy: self.entropy.clone(),
            providers: Arc::new(wiring::providers(config, &self.clock)?),
            tools: Arc::new(tools),
            hooks: Arc::new(wiring::hooks(config, &self.clock, &self.entropy)?),
            config: Arc::new(wiring::worker_config(config)),
        };
        let (load, counted) = watch::channel(0);
        let running = mainspring_worker::run_counted(parts, self.lifecycle.clone(), load);
        let told = Pod::of(config)?.map(|pod| pod.keep_told(counted, self.clock.clone()));
        let config = config.clone();
        let telling = async move {
            if let Some(told) = told {
                told.await;
            }
            std::future::pending().await
        };
        let run = async move {
            let ended = tokio::select! {
                ended = running => ended,
                never = telling => never,
            };
            ended.map_err(|error| wiring::store_failure(&config, &error))
        };
        Ok(run.boxed())
    }

    /// Publishes the skills in the configured folders, now and whenever they change.
    pub(super) async fn mount_skills(&self, config: &Config, store: &Arc<dyn Store>) {
        if config.skills.dirs.is_empty() {
            return;
        }
        let dirs = config.skills.dirs.iter().map(Into::into).collect();
        let mut mounted = MountedSkills::new(dirs, config.skills.reload_interval);
        if let Err(error) = mounted.publish(store.as_ref()).await {
            tracing::warn!(%error, "could not publish skills; will retry");
        }
        let (store, clock) = (store.clone(), self.clock.clone());
        let stopping = self.lifecycle.stopping();
        self.lifecycle.spawn(mounted.keep(store, clock, stopping));
    }

    /// Runs the roles until a signal arrives or one of them fails. The first signal asks them to
    /// finish within `limit`; a second one, or the end of that time, makes them drop their work.
    pub(super) async fn run(mut self, roles: Vec<Running>, limit: Duration) -> Result<(), Failure> {
        let mut running = JoinSet::new();
        for role in roles {
            running.spawn(role);
        }
        let mut result = Ok(());
        while !self.lifecycle.is_stopping() {
            tokio::select! {
                () = self.signals.next() => {
                    tracing::info!("stopping; a second signal exits immediately");
                    self.lifecycle.stop();
                }
                ended = running.join_next() => {
                    result = ended.map_or(Ok(()), flatten);
                    self.lifecycle.stop();
                }
            }
        }
        let ended = tokio::select! {
            ended = tokio::time::timeout(limit, drain(&mut running)) => ended.ok(),
            () = self.signals.next() => None,
        };
        if let Some(ended) = ended {
            return result.and(ended);
        }
        self.lifecycle.abort();
        // A role that does not end even then is abandoned: the leases protect its work, not this
        // process.
        let _ = tokio::time::timeout(ABORT, drain(&mut running)).await;
        result.and(Err(Failure::new(
            Exit::Failure,
            "not everything could be finished",
        )
        .next("accepted work is not lost: other processes continue it")))
    }
}

/// Warns if other machines can connect, since no authentication is required.
fn warn_of_strangers(address: SocketAddr) {
    if !address.ip().is_loopback() {
        tracing::warn!(
            %address,
            "anyone who can reach this address has full access without an API key: allow only an \
             authenticating proxy to reach it, or set MAINSPRING_ROOT_KEY"
        );
    }
}

async fn drain(running: &mut JoinSet<Result<(), Failure>>) -> Result<(), Failure> {
    let mut result = Ok(());
    while let Some(ended) = running.join_next().await {
        result = result.and(flatten(ended));
    }
    result
}

fn flatten(ended: Result<Result<(), Failure>, tokio::task::JoinError>) -> Result<(), Failure> {
    ended.unwrap_or_else(|error| Err(Failure::new(Exit::Failure, causes(&error))))
}

/// The address that a listener is bound to.
pub(super) fn address_of(listener: &TcpListener) -> Result<SocketAddr, Failure> {
    let address = listener.local_addr();
    address.map_err(|error| Failure::new(Exit::Failure, causes(&error)))
}

/// Listens on a TCP address.
pub(super) async fn bind(address: &str, flag: &str) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| {
        Failure::new(
            Exit::Failure,
            format!("{address} cannot be listened on: {error}"),
        )
        .next(format!(
            "stop the process that listens there, or set another address with {flag}"
        ))
    })
}
