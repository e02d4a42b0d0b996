//! The bus: fan-out in memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use mainspring_shared::bus::{Bus, Notice, Topic};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

/// Maximum number of notices that wait for one listener of a topic that all parts of the process
/// listen to.
const SHARED_BUFFER: usize = 1_024;
/// Maximum number of notices that wait for one listener of a session, of which there may be
/// thousands.
const LIVE_BUFFER: usize = 128;

/// The bus inside one process. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct LocalBus {
    topics: Arc<Topics>,
}

/// The topics that have listeners.
#[derive(Debug, Default)]
struct Topics(Mutex<HashMap<Topic, Fan>>);

#[derive(Debug)]
struct Fan {
    sender: broadcast::Sender<Bytes>,
    listeners: usize,
}

impl LocalBus {
    /// A bus that nobody listens to yet.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Topics {
    fn lock(&self) -> MutexGuard<'_, HashMap<Topic, Fan>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The registration of a listener; dropping it removes it.
struct Listener {
    topics: Arc<Topics>,
    topic: Topic,
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut topics = self.topics.lock();
        if let Some(fan) = topics.get_mut(&self.topic) {
            fan.listeners -= 1;
            if fan.listeners == 0 {
                topics.remove(&self.topic);
            }
        }
    }
}

#[async_trait]
impl Bus for LocalBus {
    fn publish(&self, topic: Topic, payload: Bytes) {
        if let Some(fan) = self.topics.lock().get(&topic) {
            // Sending fails only if the last listener is leaving.
            let _ = fan.sender.send(payload);
        }
    }

    async fn tell(&self, topic: Topic, payload: Bytes) -> bool {
        let topics = self.topics.lock();
        let fan = topics.get(&topic);
        fan.is_some_and(|fan| fan.sender.send(payload).is_ok())
    }

    async fn subscribe(&self, topic: Topic) -> BoxStream<'static, Notice> {
        let buffer = match topic {
            Topic::Steps
            | Topic::Signals
            | Topic::Runs
            | Topic::Timers
            | Topic::Pauses
            | Topic::Asks
            | Topic::Dispatches(_) => SHARED_BUFFER,
            Topic::Live(_) | Topic::Answers(_) => LIVE_BUFFER,
        };
        let receiver = {
            let mut topics = self.topics.lock();
            let fan = topics.entry(topic).or_insert_with(|| Fan {
                sender: broadcast::Sender::new(buffer),
                listeners: 0,
            });
            fan.listeners += 1;
            fan.sender.subscribe()
        };
        let listener = Listener {
            topics: Arc::clone(&self.topics),
            topic,
        };
        let notices = futures::stream::unfold(
            (receiver, listener),
            |(mut receiver, listener)| async move {
                let notice = match receiver.recv().await {
                    Ok(payload) => Notice::Payload(payload),
                    Err(RecvError::Lagged(_)) => Notice::Gap,
                    Err(RecvError::Closed) => return None,
                };
                Some((notice, (receiver, listener)))
            },
        );
        notices.boxed()
    }

    fn is_available(&self) -> bool {
        true
    }
}
