//! Publishes notices. All that have accumulated share one round trip.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mainspring_shared::bus::Topic;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::link::Link;
use crate::prefix::Prefix;

/// Maximum number of notices that wait for the next round trip.
const WAITING_MAX: usize = 4_096;
/// Maximum number of notices in one round trip.
const BATCH_MAX: usize = 256;
/// Maximum number of topics remembered as incomplete; beyond that, every listener of every process
/// gets a gap.
const LOST_MAX: usize = 1_024;
/// Time limit of a round trip.
const SEND_LIMIT: Duration = Duration::from_secs(2);
/// Counter: notices that were dropped, because Redis was unavailable or the buffer was full.
const DROPPED: &str = "mainspring_bus_dropped_total";
/// How soon listeners of a topic that lost notices are told, once that is possible.
const AMENDS_INTERVAL: Duration = Duration::from_millis(200);

/// The sending half of the bus.
pub(crate) struct Publisher {
    waiting: mpsc::Sender<(Topic, Bytes)>,
    losses: Arc<Losses>,
    _sender: AbortOnDropHandle<()>,
}

/// Losses that were not reported to listeners yet.
#[derive(Default)]
struct Losses {
    dropped: AtomicU64,
    lost: Mutex<Lost>,
}

#[derive(Default)]
struct Lost {
    topics: BTreeSet<Topic>,
    beyond: bool,
}

impl Lost {
    fn is_empty(&self) -> bool {
        self.topics.is_empty() && !self.beyond
    }
}

impl Losses {
    fn add(&self, topics: impl IntoIterator<Item = Topic>) {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        for topic in topics {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            metrics::counter!(DROPPED).increment(1);
            if lost.topics.len() < LOST_MAX {
                lost.topics.insert(topic);
            } else {
                lost.beyond |= !lost.topics.contains(&topic);
            }
        }
    }

    fn take(&self) -> Lost {
        std::mem::take(&mut *self.lost.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put_back(&self, lost: Lost) {
        let mut now = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        now.beyond |= lost.beyond || now.topics.len() + lost.topics.len() > LOST_MAX;
        if !now.beyond {
            now.topics.extend(lost.topics);
        }
    }
}

impl Publisher {
    pub(crate) fn start(link: Arc<Link>, prefix: Prefix) -> Self {
        let (waiting, receiver) = mpsc::channel(WAITING_MAX);
        let losses = Arc::new(Losses::default());
        let sender = tokio::spawn(send(link, prefix, receiver, Arc::clone(&losses)));
        Self {
            waiting,
            losses,
            _sender: AbortOnDropHandle::new(sender),
        }
    }

    pub(crate) fn publish(&self, topic: Topic, payload: Bytes) {
        if self.waiting.try_send((topic, payload)).is_err() {
            self.losses.add([topic]);
        }
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.losses.dropped.load(Ordering::Relaxed)
    }
}

async fn send(
    link: Arc<Link>,
    prefix: Prefix,
    mut waiting: mpsc::Receiver<(Topic, Bytes)>,
    losses: Arc<Losses>,
) {
    let mut batch = Vec::with_capacity(BATCH_MAX);
    let mut amends = tokio::time::interval(AMENDS_INTERVAL);
    amends.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        batch.clear();
        tokio::select! {
            count = waiting.recv_many(&mut batch, BATCH_MAX) => if count == 0 {
                return;
            },
            _ = amends.tick() => make_amends(&link, &prefix, &losses).await,
        }
        if batch.is_empty() {
            continue;
        }
        let mut pipe = redis::Pipeline::with_capacity(batch.len());
        for (topic, payload) in &batch {
            pipe.cmd("PUBLISH")
                .arg(prefix.channel(topic))
                .arg(payload.as_ref())
                .ignore();
        }
        if !round_trip(&link, &pipe).await {
            losses.add(batch.iter().map(|(topic, _)| *topic));
        }
    }
}

/// Tells the listeners of incomplete topics to read the database: an empty payload is a gap.
async fn make_amends(link: &Link, prefix: &Prefix, losses: &Losses) {
    if !link.is_available() {
        return;
    }
    let lost = losses.take();
    if lost.is_empty() {
        return;
    }
    let mut pipe = redis::pipe();
    if lost.beyond {
        pipe.cmd("PUBLISH")
            .arg(prefix.gap_channel())
            .arg("")
            .ignore();
    } else {
        for topic in &lost.topics {
            pipe.cmd("PUBLISH")
                .arg(prefix.channel(topic))
                .arg("")
                .ignore();
        }
    }
    if !round_trip(link, &pipe).await {
        losses.put_back(lost);
    }
}

async fn round_trip(link: &Link, pipe: &redis::Pipeline) -> bool {
    let Some(mut live) = link.live() else {
        return false;
    };
    let sent = pipe.query_async::<()>(&mut live.connection);
    match tokio::time::timeout(SEND_LIMIT, sent).await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            link.report(&live, &error);
            false
        }
        Err(_) => {
            link.suspect();
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainspring_shared::id::{SessionId, SessionKey, TenantId};

    fn live(n: usize) -> Topic {
        Topic::Live(SessionKey {
            tenant: TenantId::DEFAULT,
            session: SessionId(uuid::Uuid::from_u128(n as u128)),
        })
    }

    #[test]
    fn losses_are_named_until_there_are_too_many() {
        let losses = Losses::default();
        losses.add((0..LOST_MAX).map(live));
        losses.add([live(0)]);
        let lost = losses.take();
        assert_eq!((lost.topics.len(), lost.beyond), (LOST_MAX, false));
        losses.put_back(lost);
        losses.add([Topic::Steps]);
        let lost = losses.take();
        assert_eq!((lost.topics.len(), lost.beyond), (LOST_MAX, true));
        assert!(losses.take().is_empty());
    }
}
