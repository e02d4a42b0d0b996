//! A minimal in-memory queue and bus.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use mainspring_queue_local::LocalBus;
use mainspring_shared::bus::{Bus, Notice, StepNotice, Topic};
use mainspring_shared::event::{LiveEvent, LiveKind};
use mainspring_shared::id::{BootId, SendId, SessionKey, TenantId};
use mainspring_shared::queue::{Activation, Handler, Lane, Queue};
use mainspring_shared::send::SendView;
use tokio::sync::{Mutex, broadcast, mpsc};

/// A queue from which a pool's workers take jobs.
#[derive(Debug, Clone, Default)]
pub struct Wire {
    pools: Arc<std::sync::Mutex<BTreeMap<String, Ends>>>,
    loses: Arc<std::sync::atomic::AtomicBool>,
}

/// Both ends of one pool's jobs.
#[derive(Debug, Clone)]
struct Ends {
    jobs: mpsc::UnboundedSender<Activation>,
    taken: Arc<Mutex<mpsc::UnboundedReceiver<Activation>>>,
}

impl Default for Ends {
    fn default() -> Self {
        let (jobs, taken) = mpsc::unbounded_channel();
        Self {
            jobs,
            taken: Arc::new(Mutex::new(taken)),
        }
    }
}

impl Wire {
    /// From now on, the queue takes jobs, says that it works, and brings nothing.
    pub fn lose(&self) {
        self.loses.store(true, std::sync::atomic::Ordering::SeqCst);
    }

    fn ends(&self, pool: &str) -> Ends {
        let mut pools = self.pools.lock().expect("nobody panics under it");
        pools.entry(pool.to_owned()).or_default().clone()
    }
}

#[async_trait]
impl Queue for Wire {
    async fn push(&self, lane: &Lane, activations: Vec<Activation>) -> bool {
        if self.loses.load(std::sync::atomic::Ordering::SeqCst) {
            return true;
        }
        let ends = self.ends(&lane.pool);
        activations
            .into_iter()
            .all(|activation| ends.jobs.send(activation).is_ok())
    }

    async fn depth(&self, _: &Lane) -> Option<u64> {
        None
    }

    fn is_available(&self) -> bool {
        true
    }

    async fn run(&self, pool: &str, handler: Arc<dyn Handler>, mut stop: BoxFuture<'static, ()>) {
        let ends = self.ends(pool);
        loop {
            let job = async { ends.taken.lock().await.recv().await };
            let job = tokio::select! {
                () = &mut stop => return,
                job = job => job,
            };
            let Some(job) = job else { return };
            handler.handle(job).await;
        }
    }
}

/// A bus that carries signals and questions, and records what was streamed.
#[derive(Debug, Clone)]
pub struct WireBus {
    signals: broadcast::Sender<Bytes>,
    asks: broadcast::Sender<(Topic, Bytes)>,
    live: Arc<std::sync::Mutex<Vec<(SessionKey, LiveEvent)>>>,
    steps: Arc<std::sync::Mutex<Vec<StepNotice>>>,
    /// Carries sessions that are granted together with their sends.
    dispatches: LocalBus,
    held: Arc<std::sync::Mutex<HeldDispatches>>,
}

/// What happens to messages for workers that were granted sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DispatchDelivery {
    /// They arrive.
    #[default]
    Arrives,
    /// They are sent but lost.
    IsLost,
    /// They are held back until the [next](WireBus::set_dispatch_delivery) rule is set.
    IsKept,
    /// They arrive twice.
    Repeats,
}

#[derive(Debug, Default)]
struct HeldDispatches {
    delivery: DispatchDelivery,
    kept: Vec<(Topic, Bytes)>,
}

impl Default for WireBus {
    fn default() -> Self {
        Self {
            signals: broadcast::channel(64).0,
            asks: broadcast::channel(64).0,
            live: Arc::default(),
            steps: Arc::default(),
            dispatches: LocalBus::new(),
            held: Arc::default(),
        }
    }
}

impl WireBus {
    /// Notifies every worker of a session's signals, or asks it to look at the session.
    pub fn signal(&self, key: SessionKey, signals: i32) {
        let json = serde_json::to_vec(&[(key, signals)]).expect("keys are JSON");
        // There are no subscribers while no worker runs.
        let _ = self.signals.send(Bytes::from(json));
    }
}

impl WireBus {
    /// Sets what happens from now on to messages for workers that were granted sessions, and
    /// delivers those held back.
    pub fn set_dispatch_delivery(&self, delivery: DispatchDelivery) {
        let kept = {
            let mut held = self.held.lock().expect("nobody panics under it");
            held.delivery = delivery;
            std::mem::take(&mut held.kept)
        };
        for (topic, payload) in kept {
            self.dispatches.publish(topic, payload);
        }
    }

    /// The live events of a session, in order.
    pub fn live(&self, key: SessionKey) -> Vec<LiveKind> {
        let live = self.live.lock().expect("nobody panics under it");
        let mine = live.iter().filter(|(of, _)| *of == key);
        mine.map(|(_, event)| event.kind.clone()).collect()
    }

    /// The final sends that came with the notices of their ends.
    pub fn ended(&self) -> Vec<((TenantId, SendId), SendView)> {
        let steps = self.steps.lock().expect("nobody panics under it");
        let ended = steps.iter().filter_map(|notice| {
            let ended = notice
                .ended
                .as_ref()?
                .view()
                .expect("it is of this version");
            Some(((notice.key.tenant, notice.send), ended))
        });
        ended.collect()
    }

    /// The worker that keeps a session, according to its last published step.
    pub fn keeper(&self, key: SessionKey) -> Option<BootId> {
        let steps = self.steps.lock().expect("nobody panics under it");
        let last = steps.iter().rev().find(|notice| notice.key == key)?;
        last.keeper
    }

    /// The session's steps that readers were notified of, in order.
    pub fn told(&self, key: SessionKey) -> Vec<i64> {
        let steps = self.steps.lock().expect("nobody panics under it");
        let mine = steps.iter().filter(|notice| notice.key == key);
        mine.map(|notice| notice.n).collect()
    }
}

#[async_trait]
impl Bus for WireBus {
    fn publish(&self, topic: Topic, payload: Bytes) {
        if matches!(topic, Topic::Asks | Topic::Answers(_) | Topic::Pauses) {
            // There are no subscribers while no worker runs.
            let _ = self.asks.send((topic, payload));
        } else if let Topic::Live(key) = topic {
            let events: Vec<LiveEvent> = serde_json::from_slice(&payload).expect("they are JSON");
            let mut live = self.live.lock().expect("nobody panics under it");
            live.extend(events.into_iter().map(|event| (key, event)));
        } else if topic == Topic::Steps {
            let notices: Vec<StepNotice> = serde_json::from_slice(&payload).expect("they are JSON");
            let mut steps = self.steps.lock().expect("nobody panics under it");
            steps.extend(notices);
        }
    }

    async fn tell(&self, topic: Topic, payload: Bytes) -> bool {
        let delivery = {
            let mut held = self.held.lock().expect("nobody panics under it");
            if held.delivery == DispatchDelivery::IsKept {
                held.kept.push((topic, payload.clone()));
            }
            held.delivery
        };
        match delivery {
            DispatchDelivery::Arrives => self.dispatches.tell(topic, payload).await,
            DispatchDelivery::IsLost | DispatchDelivery::IsKept => true,
            DispatchDelivery::Repeats => {
                self.dispatches.tell(topic, payload.clone()).await
                    && self.dispatches.tell(topic, payload).await
            }
        }
    }

    async fn subscribe(&self, topic: Topic) -> BoxStream<'static, Notice> {
        if let Topic::Dispatches(_) = topic {
            return self.dispatches.subscribe(topic).await;
        }
        if matches!(topic, Topic::Asks | Topic::Answers(_) | Topic::Pauses) {
            let inbox = self.asks.subscribe();
            let mine = move |heard: (Topic, Bytes)| (heard.0 == topic).then_some(heard.1);
            return futures::stream::unfold(inbox, move |mut inbox| async move {
                loop {
                    match inbox.recv().await {
                        Ok(heard) => {
                            if let Some(payload) = mine(heard) {
                                return Some((Notice::Payload(payload), inbox));
                            }
                        }
                        Err(broadcast::error::RecvError::Lagged(_)) => {
                            return Some((Notice::Gap, inbox));
                        }
                        Err(broadcast::error::RecvError::Closed) => return None,
                    }
                }
            })
            .boxed();
        }
        if topic != Topic::Signals {
            return futures::stream::pending().boxed();
        }
        let inbox = self.signals.subscribe();
        futures::stream::unfold(inbox, |mut inbox| async {
            match inbox.recv().await {
                Ok(payload) => Some((Notice::Payload(payload), inbox)),
                Err(broadcast::error::RecvError::Lagged(_)) => Some((Notice::Gap, inbox)),
                Err(broadcast::error::RecvError::Closed) => None,
            }
        })
        .boxed()
    }

    fn is_available(&self) -> bool {
        true
    }
}
