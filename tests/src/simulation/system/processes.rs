//! The processes of a world: real schedulers and workers, started, killed and stopped.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use mainspring_providers::{Kind, ProviderSettings};
use mainspring_runtime::Lifecycle;
use mainspring_scheduler::SchedulerConfig;
use mainspring_scheduler::services::webhooks::WebhookParts;
use mainspring_shared::blob::Depot;
use mainspring_shared::budget::Price;
use mainspring_shared::model::FactsOverride;
use mainspring_shared::store::Store;
use mainspring_shared::time::Clock;
use mainspring_worker::hook::Hooks;
use mainspring_worker::memory::Memories;
use mainspring_worker::tool::Tools;
use mainspring_worker::{Parts, Sources, WorkerConfig};

use super::Core;
use crate::simulation::actors::{GatedTool, ModelClient};
use crate::simulation::gate::{Gate, ProcessClock};
use crate::simulation::store::Link;
use crate::simulation::wires::{ProcessBus, ProcessQueue};
use crate::world::tools::fakes;

/// Dollars for a million tokens.
const PRICE: Price = Price {
    input: 1.0,
    output: 10.0,
    cache_read: None,
    cache_write: None,
    long: None,
};

/// A process slot.
pub(super) struct Slot {
    gate: Gate,
    lifecycle: Lifecycle,
    /// The API, if this is a scheduler.
    router: Option<Router>,
    /// The main task of the process.
    task: Option<tokio::task::JoinHandle<()>>,
    /// Whether a restart is already scheduled.
    awaited: bool,
    lives: u32,
}

impl Core {
    fn slots(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts every process.
    pub(in crate::simulation) fn start_all(self: &Arc<Self>) {
        for slot in 0..self.plan.workers + self.plan.schedulers {
            self.slots().push(Slot {
                gate: Gate::new(),
                lifecycle: Lifecycle::new(),
                router: None,
                task: None,
                awaited: false,
                lives: 0,
            });
            self.start(slot);
        }
    }

    /// Drops the processes: their parts refer back to the world, which would otherwise never be freed.
    pub(in crate::simulation) fn forget(&self) {
        self.slots().clear();
    }

    fn start(self: &Arc<Self>, slot: usize) {
        let (gate, lifecycle) = (Gate::new(), Lifecycle::new());
        let clock: Arc<dyn Clock> = Arc::new(ProcessClock {
            time: self.time,
            gate: gate.clone(),
            skew_ms: self.skews[slot].clone(),
        });
        let lives = self.slots()[slot].lives + 1;
        self.say(|| format!("{slot} starts, life {lives}"));
        let (router, task) = if slot < self.plan.workers {
            (None, self.worker(slot, &gate, &clock, &lifecycle))
        } else {
            let (router, task) = self.scheduler(slot, &gate, clock, &lifecycle);
            (Some(router), task)
        };
        self.slots()[slot] = Slot {
            gate,
            lifecycle,
            router,
            task: Some(task),
            awaited: false,
            lives,
        };
    }

    fn link(self: &Arc<Self>, slot: usize, gate: &Gate) -> Arc<dyn Store> {
        Arc::new(Link {
            core: self.clone(),
            slot,
            gate: gate.clone(),
        })
    }

    fn worker(
        self: &Arc<Self>,
        slot: usize,
        gate: &Gate,
        clock: &Arc<dyn Clock>,
        lifecycle: &Lifecycle,
    ) -> tokio::task::JoinHandle<()> {
        let mut tools = Tools::default();
        mainspring_tools::agents::register(&mut tools).expect("new names");
        let slow: Arc<dyn Clock> = clock.clone();
        for tool in fakes(&slow, &self.acts) {
            let gate = gate.clone();
            let added = tools.insert(Arc::new(GatedTool { gate, tool }));
            added.expect("a new name");
        }
        // `open` needs a provider of this name, which is then replaced by the model.
        let settings = [ProviderSettings::new("model", Kind::Demo)];
        let mut providers = mainspring_providers::open(&settings, "model", clock)
            .expect("the settings are complete");
        let model = ModelClient {
            gate: gate.clone(),
            time: self.time,
            ledger: self.ledger.clone(),
        };
        providers
            .insert("model", Arc::new(model), "model")
            .expect("a good name");
        if self.plan.priced {
            let facts = FactsOverride {
                price: Some(PRICE),
                ..FactsOverride::default()
            };
            providers = providers.with_facts(BTreeMap::from([("model".to_owned(), facts)]));
        }
        let parts = Parts {
            store: self.link(slot, gate),
            queue: Arc::new(ProcessQueue {
                core: self.clone(),
                gate: gate.clone(),
            }),
            bus: Arc::new(ProcessBus {
                core: self.clone(),
                gate: gate.clone(),
            }),
            clock: clock.clone(),
            entropy: self.entropy.clone(),
            providers: Arc::new(providers),
            tools: Arc::new(tools),
            sources: Sources {
                blobs: Arc::new(Depot::in_database(
                    self.link(slot, gate),
                    self.entropy.clone(),
                )),
                memories: Arc::new(Memories::new(self.link(slot, gate), clock.clone(), None)),
                fold: None,
            },
            hooks: Arc::new(Hooks::default()),
            config: Arc::new(WorkerConfig {
                name: format!("worker-{slot}"),
                concurrency: self.plan.concurrency,
                drain_timeout: Duration::from_secs(5),
                ..WorkerConfig::default()
            }),
        };
        let (core, running, gate) = (self.clone(), lifecycle.clone(), gate.clone());
        tokio::spawn(async move {
            // A worker that fails to start exits, and is started again.
            while let Err(error) = mainspring_worker::run(parts.clone(), running.clone()).await {
                core.say(|| format!("{slot} does not begin: {error}"));
                if running.is_stopping() {
                    return;
                }
                core.time.sleep(500).await;
                gate.pass().await;
            }
        })
    }

    fn scheduler(
        self: &Arc<Self>,
        slot: usize,
        gate: &Gate,
        clock: Arc<dyn Clock>,
        lifecycle: &Lifecycle,
    ) -> (Router, tokio::task::JoinHandle<()>) {
        let parts = mainspring_scheduler::Parts {
            store: self.link(slot, gate),
            blobs: Arc::new(Depot::in_database(
                self.link(slot, gate),
                self.entropy.clone(),
            )),
            queue: Arc::new(ProcessQueue {
                core: self.clone(),
                gate: gate.clone(),
            }),
            bus: Arc::new(ProcessBus {
                core: self.clone(),
                gate: gate.clone(),
            }),
            clock,
            entropy: self.entropy.clone(),
            config: SchedulerConfig {
                name: format!("scheduler-{slot}"),
                // Time jumps here, so an audit would read everything at once; piecewise audits have
                // their own tests.
                audit_percent: 0,
                ..SchedulerConfig::default()
            },
            webhooks: WebhookParts::default(),
        };
        let (router, loops) = mainspring_api::embedded(parts, lifecycle.clone());
        (router, tokio::spawn(loops))
    }

    /// The API and the gate of the scheduler number `turn`, modulo those that are not dead.
    pub(in crate::simulation) fn api(&self, turn: usize) -> Option<(Router, Gate)> {
        let slots = self.slots();
        let open = slots.iter().filter(|slot| !slot.gate.is_dead());
        let apis: Vec<_> = open
            .filter_map(|slot| Some((slot.router.clone()?, slot.gate.clone())))
            .collect();
        let turn = turn.checked_rem(apis.len())?;
        apis.into_iter().nth(turn)
    }

    /// Kills a process; it restarts after `again_ms`.
    pub(in crate::simulation) fn kill(self: &Arc<Self>, slot: usize, again_ms: u64) {
        {
            let mut slots = self.slots();
            let slot = &mut slots[slot];
            slot.gate.kill();
            if let Some(task) = slot.task.take() {
                task.abort();
            }
            if std::mem::replace(&mut slot.awaited, true) {
                return;
            }
        }
        self.say(|| format!("{slot} dies"));
        let core = self.clone();
        tokio::spawn(async move {
            core.time.sleep(again_ms).await;
            core.start(slot);
        });
    }

    /// Stops a process for a while.
    pub(in crate::simulation) fn pause(self: &Arc<Self>, slot: usize, for_ms: u64) {
        let gate = self.slots()[slot].gate.clone();
        gate.pause();
        self.say(|| format!("{slot} stands still"));
        let core = self.clone();
        tokio::spawn(async move {
            core.time.sleep(for_ms).await;
            core.say(|| format!("{slot} goes on"));
            gate.wake();
        });
    }

    /// Shuts a process down gracefully, and restarts it once it is gone.
    pub(super) fn drain(self: &Arc<Self>, slot: usize) {
        let lifecycle = {
            let mut slots = self.slots();
            if std::mem::replace(&mut slots[slot].awaited, true) {
                return;
            }
            slots[slot].lifecycle.clone()
        };
        self.say(|| format!("{slot} is asked to stop"));
        lifecycle.stop();
        let core = self.clone();
        tokio::spawn(async move {
            core.time.sleep(18_000).await;
            core.slots()[slot].gate.kill();
            core.start(slot);
        });
        self.trouble_until(self.time.ms() + 18_000);
    }
}
