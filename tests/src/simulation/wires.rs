//! The queue and the bus as one process sees them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use mainspring_queue_local::LocalBus;
use mainspring_shared::bus::{Bus, Notice, Topic};
use mainspring_shared::queue::{Activation, Handler, Lane, Queue};
use tokio::sync::{Notify, broadcast};

use super::gate::Gate;
use super::system::Core;

/// How the queue currently misbehaves.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct QueueMood {
    pub(super) away: u32,
    pub(super) loses: u32,
    pub(super) repeats: u32,
    pub(super) delays: u32,
}

/// The jobs of all pools.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    lanes: Mutex<BTreeMap<Lane, VecDeque<Activation>>>,
    pushed: Notify,
}

impl Jobs {
    fn push(&self, lane: &Lane, activation: Activation) {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.entry(lane.clone()).or_default().push_back(activation);
        drop(lanes);
        self.pushed.notify_waiters();
    }

    fn pop(&self, pool: &str) -> Option<Activation> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut mine = lanes.iter_mut().filter(|(lane, _)| lane.pool == pool);
        mine.find_map(|(_, jobs)| jobs.pop_front())
    }
}

/// The queue of one process.
#[derive(Debug)]
pub(super) struct ProcessQueue {
    pub(super) core: Arc<Core>,
    pub(super) gate: Gate,
}

#[async_trait]
impl Queue for ProcessQueue {
    async fn push(&self, lane: &Lane, activations: Vec<Activation>) -> bool {
        self.gate.pass().await;
        let mood = self.core.queue_mood();
        if mood.away > 0 {
            return false;
        }
        if mood.loses > 0 {
            return true;
        }
        for activation in activations {
            let times = if mood.repeats > 0 {
                self.core.between(1, 5)
            } else {
                1
            };
            for _ in 0..times {
                if mood.delays == 0 {
                    self.core.jobs.push(lane, activation.clone());
                    continue;
                }
                let (core, lane, late) = (
                    self.core.clone(),
                    lane.clone(),
                    self.core.between(1, 12_000),
                );
                let activation = activation.clone();
                tokio::spawn(async move {
                    core.time.sleep(late).await;
                    core.jobs.push(&lane, activation);
                });
            }
        }
        true
    }

    async fn depth(&self, lane: &Lane) -> Option<u64> {
        self.gate.pass().await;
        if self.core.queue_mood().away > 0 {
            return None;
        }
        let lanes = self.core.jobs.lanes.lock();
        let lanes = lanes.unwrap_or_else(PoisonError::into_inner);
        Some(lanes.get(lane).map_or(0, VecDeque::len) as u64)
    }

    fn is_available(&self) -> bool {
        self.core.queue_mood().away == 0
    }

    async fn run(&self, pool: &str, handler: Arc<dyn Handler>, mut stop: BoxFuture<'static, ()>) {
        loop {
            let pushed = self.core.jobs.pushed.notified();
            let open = self.gate.is_open() && self.core.queue_mood().away == 0;
            if let Some(job) = open.then(|| self.core.jobs.pop(pool)).flatten() {
                handler.handle(job).await;
                continue;
            }
            tokio::select! {
                biased;
                () = &mut stop => return,
                () = pushed => {}
                // Polled, so that a resumed process or a restored queue is noticed.
                () = self.core.time.sleep(50), if !open => {}
            }
        }
    }
}

/// The part of the bus that all processes share.
#[derive(Debug)]
pub(super) struct SharedBus {
    bus: LocalBus,
    gaps: broadcast::Sender<()>,
}

impl Default for SharedBus {
    fn default() -> Self {
        Self {
            bus: LocalBus::new(),
            gaps: broadcast::Sender::new(64),
        }
    }
}

impl SharedBus {
    /// Tells every subscriber that it may have missed something.
    pub(super) fn gap(&self) {
        // There may be no subscribers yet.
        let _ = self.gaps.send(());
    }
}

/// The bus of one process.
#[derive(Debug)]
pub(super) struct ProcessBus {
    pub(super) core: Arc<Core>,
    pub(super) gate: Gate,
}

#[async_trait]
impl Bus for ProcessBus {
    fn publish(&self, topic: Topic, payload: Bytes) {
        if self.gate.is_open() && self.core.bus_away() == 0 {
            self.core.shared_bus.bus.publish(topic, payload);
        }
    }

    async fn tell(&self, topic: Topic, payload: Bytes) -> bool {
        self.gate.pass().await;
        self.core.bus_away() == 0 && self.core.shared_bus.bus.tell(topic, payload).await
    }

    async fn subscribe(&self, topic: Topic) -> BoxStream<'static, Notice> {
        self.gate.pass().await;
        let notices = self.core.shared_bus.bus.subscribe(topic).await;
        let gaps = self.core.shared_bus.gaps.subscribe();
        let gate = self.gate.clone();
        let heard = futures::stream::unfold(
            (notices, gaps, gate),
            |(mut notices, mut gaps, gate)| async move {
                let notice = tokio::select! {
                    biased;
                    _ = gaps.recv() => Notice::Gap,
                    notice = notices.next() => notice?,
                };
                gate.pass().await;
                Some((notice, (notices, gaps, gate)))
            },
        );
        heard.boxed()
    }

    fn is_available(&self) -> bool {
        self.core.bus_away() == 0
    }
}
