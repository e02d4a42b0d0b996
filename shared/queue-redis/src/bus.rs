//! The bus: notices over pub/sub.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use mainspring_shared::bus::{Bus, Notice, Topic};
use mainspring_shared::entropy::Entropy;
use mainspring_shared::time::Clock;

use crate::address::{Address, AddressError};
use crate::hub::Hub;
use crate::link::{Link, Purpose, Sources, Voice};
use crate::prefix::Prefix;
use crate::publisher::Publisher;

/// Maximum number of buffered notifications per listener of a topic to which every process
/// subscribes.
const SHARED_BUFFER: usize = 1_024;
/// Maximum number of buffered notifications per listener of a session, of which there may be
/// thousands.
const LIVE_BUFFER: usize = 128;

/// The bus on Redis. One connection subscribes for the whole process, another one publishes.
pub struct RedisBus {
    link: Arc<Link>,
    hub: Hub,
    publisher: Publisher,
    prefix: Prefix,
}

impl RedisBus {
    /// Opens the bus without waiting for Redis: it connects in the background, and reconnects after
    /// every loss. Must be called inside a tokio runtime.
    pub fn open(
        address: &Address,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Self, AddressError> {
        let sources = Sources { clock, entropy };
        let use_of = (Purpose::Notices, Voice::Quiet);
        let link = Arc::new(Link::open(address, sources.clone(), use_of)?);
        let prefix = address.prefix();
        let follows = (prefix.gap_channel(), Arc::clone(&link));
        Ok(Self {
            hub: Hub::open(address.client()?, sources, follows),
            publisher: Publisher::start(Arc::clone(&link), prefix.clone()),
            link,
            prefix,
        })
    }

    /// Number of notifications dropped since the bus was opened, because Redis was unavailable or
    /// the buffer was full.
    pub fn dropped(&self) -> u64 {
        self.publisher.dropped()
    }
}

/// Time limit for the answer whether anyone is listening; after it, the caller falls back to
/// something else.
const TELL_LIMIT: Duration = Duration::from_millis(500);

#[async_trait]
impl Bus for RedisBus {
    fn publish(&self, topic: Topic, payload: Bytes) {
        self.publisher.publish(topic, payload);
    }

    async fn tell(&self, topic: Topic, payload: Bytes) -> bool {
        let Some(mut live) = self.link.live() else {
            return false;
        };
        let mut publish = redis::cmd("PUBLISH");
        publish
            .arg(self.prefix.channel(&topic))
            .arg(payload.as_ref());
        let asked = publish.query_async::<u64>(&mut live.connection);
        match tokio::time::timeout(TELL_LIMIT, asked).await {
            Ok(Ok(listeners)) => listeners > 0,
            Ok(Err(error)) => {
                self.link.report(&live, &error);
                false
            }
            Err(_) => {
                self.link.suspect();
                false
            }
        }
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
        let channel = self.prefix.channel(&topic);
        self.hub.subscribe(channel, buffer).await
    }

    fn is_available(&self) -> bool {
        self.link.is_available() && self.hub.is_connected()
    }
}

impl fmt::Debug for RedisBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBus")
            .field("link", &self.link)
            .field("hub", &self.hub)
            .field("dropped", &self.dropped())
            .finish_non_exhaustive()
    }
}
