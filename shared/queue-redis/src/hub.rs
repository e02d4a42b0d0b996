//! One pub/sub connection for all listeners of this process.
//!
//! A listener is first registered in a table; a task then makes the connection's subscriptions
//! match the table, also after a reconnect. So a channel is never subscribed twice, and listeners
//! get a gap if notifications may have been missed.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, OptionFuture};
use futures::stream::{BoxStream, StreamExt};
use mainspring_shared::bus::Notice;
use redis::aio::{PubSubSink, PubSubStream};
use redis::{Client, Msg, RedisError};
use tokio::sync::{Notify, broadcast, oneshot};
use tokio::time::MissedTickBehavior;
use tokio_util::task::AbortOnDropHandle;

use crate::link::{Backoff, CONNECT_LIMIT, Link, PROBE_INTERVAL, PROBE_LIMIT, Sources, reason};

/// Counter: times that a listener was told to read the database because notices may have been
/// missed.
const GAPS: &str = "mainspring_bus_gaps_total";
/// How long a new listener waits for its subscription. After that it gets a gap once it is
/// subscribed.
const SUBSCRIBE_LIMIT: Duration = Duration::from_secs(1);
/// Channels per subscribe or unsubscribe command.
const CHANNELS_STEP: usize = 500;

/// The listeners of a process and the task that serves them.
pub(crate) struct Hub {
    shared: Arc<Shared>,
    _keeper: AbortOnDropHandle<()>,
}

struct Shared {
    table: Mutex<Table>,
    changed: Notify,
    /// The channel of every hub on which a publisher reports that it dropped more notifications
    /// than it can name.
    gap_channel: String,
}

#[derive(Default)]
struct Table {
    connected: bool,
    channels: HashMap<String, Channel>,
    /// Channels whose subscription may differ from the table. A channel has at most a few entries:
    /// each change adds one, and the task takes all of them.
    dirty: Vec<String>,
}

struct Channel {
    sender: broadcast::Sender<Notice>,
    listeners: usize,
    confirmed: bool,
    /// Whether notifications may have been missed. This is reported as a gap once the subscription
    /// is confirmed.
    gap: bool,
    waiting: Vec<oneshot::Sender<()>>,
}

impl Hub {
    /// Starts connecting without waiting for it. A message on `gap_channel` is a gap of every
    /// channel. The connection is reopened whenever that of `link` is: its server may have become a
    /// replica, on which only this process would listen.
    pub(crate) fn open(
        client: Client,
        sources: Sources,
        (gap_channel, link): (String, Arc<Link>),
    ) -> Self {
        let shared = Arc::new(Shared {
            table: Mutex::default(),
            changed: Notify::new(),
            gap_channel,
        });
        let keeper = tokio::spawn(keep(Arc::clone(&shared), client, sources, link));
        Self {
            shared,
            _keeper: AbortOnDropHandle::new(keeper),
        }
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.shared.table().connected
    }

    /// Subscribes to a channel. If connected, the subscription is effective on return; otherwise a
    /// gap follows once it is. Up to `buffer` notifications wait for a slow listener, then a gap
    /// replaces the oldest.
    pub(crate) async fn subscribe(
        &self,
        channel: String,
        buffer: usize,
    ) -> BoxStream<'static, Notice> {
        let (receiver, effective) = self.shared.enter(&channel, buffer);
        // Created before any await, so that a cancelled caller leaves no listener behind.
        let listener = Listener {
            shared: Arc::clone(&self.shared),
            channel,
        };
        if let Some(effective) = effective {
            let confirmed = tokio::time::timeout(SUBSCRIBE_LIMIT, effective).await;
            if !matches!(confirmed, Ok(Ok(()))) {
                self.shared.owe_gap(&listener.channel);
            }
        }
        let notices = futures::stream::unfold(
            (receiver, listener),
            |(mut receiver, listener)| async move {
                let notice = match receiver.recv().await {
                    Ok(notice) => notice,
                    Err(broadcast::error::RecvError::Lagged(_)) => Notice::Gap,
                    Err(broadcast::error::RecvError::Closed) => return None,
                };
                if matches!(notice, Notice::Gap) {
                    metrics::counter!(GAPS).increment(1);
                }
                Some((notice, (receiver, listener)))
            },
        );
        notices.boxed()
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        // Ends the listeners' streams.
        self.shared.table().channels.clear();
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = self.shared.table();
        f.debug_struct("Hub")
            .field("connected", &table.connected)
            .field("channels", &table.channels.len())
            .finish_non_exhaustive()
    }
}

/// A registered listener; dropping it unregisters it.
struct Listener {
    shared: Arc<Shared>,
    channel: String,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.leave(&self.channel);
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(
        &self,
        name: &str,
        buffer: usize,
    ) -> (broadcast::Receiver<Notice>, Option<oneshot::Receiver<()>>) {
        let mut table = self.table();
        let connected = table.connected;
        let channel = table
            .channels
            .entry(name.to_owned())
            .or_insert_with(|| Channel::new(buffer));
        channel.listeners += 1;
        let receiver = channel.sender.subscribe();
        if channel.confirmed {
            return (receiver, None);
        }
        if !connected {
            channel.gap = true;
            return (receiver, None);
        }
        let (sender, effective) = oneshot::channel();
        channel.waiting.push(sender);
        table.dirty.push(name.to_owned());
        drop(table);
        self.changed.notify_one();
        (receiver, Some(effective))
    }

    fn leave(&self, name: &str) {
        let mut table = self.table();
        let Some(channel) = table.channels.get_mut(name) else {
            return;
        };
        channel.listeners -= 1;
        if channel.listeners > 0 {
            return;
        }
        if table.connected {
            table.dirty.push(name.to_owned());
            drop(table);
            self.changed.notify_one();
        } else {
            table.channels.remove(name);
        }
    }

    fn owe_gap(&self, name: &str) {
        let mut table = self.table();
        if let Some(channel) = table.channels.get_mut(name) {
            if channel.confirmed {
                // It was confirmed in the meantime.
                let _ = channel.sender.send(Notice::Gap);
            } else {
                channel.gap = true;
            }
        }
    }

    /// Marks all channels for subscribing again; new listeners wait for that.
    fn connected(&self) {
        let mut table = self.table();
        table.connected = true;
        table.dirty = table.channels.keys().cloned().collect();
    }

    fn disconnected(&self) {
        let mut table = self.table();
        table.connected = false;
        table.dirty.clear();
        table.channels.retain(|_, channel| channel.listeners > 0);
        for channel in table.channels.values_mut() {
            channel.confirmed = false;
            channel.gap = true;
            // Waiting callers return now and get the gap later.
            channel.waiting.clear();
        }
    }

    /// The next channels to subscribe to and to unsubscribe from.
    fn take_dirty(&self) -> (Vec<String>, Vec<String>) {
        let mut table = self.table();
        let count = table.dirty.len().min(CHANNELS_STEP);
        let mut dirty: Vec<_> = table.dirty.drain(..count).collect();
        dirty.sort_unstable();
        dirty.dedup();
        let (mut wanted, mut unwanted) = (Vec::new(), Vec::new());
        for name in dirty {
            match table.channels.get(&name) {
                Some(channel) if channel.listeners == 0 => {
                    table.channels.remove(&name);
                    unwanted.push(name);
                }
                Some(channel) if !channel.confirmed => wanted.push(name),
                Some(_) | None => {}
            }
        }
        (wanted, unwanted)
    }

    fn confirm(&self, names: &[String]) {
        let mut table = self.table();
        for name in names {
            let Some(channel) = table.channels.get_mut(name) else {
                continue;
            };
            channel.confirmed = true;
            for waiting in channel.waiting.drain(..) {
                let _ = waiting.send(());
            }
            if std::mem::take(&mut channel.gap) {
                let _ = channel.sender.send(Notice::Gap);
            }
        }
    }

    fn dispatch(&self, message: &Msg) {
        let name = message.get_channel_name();
        let table = self.table();
        if name == self.gap_channel {
            for channel in table.channels.values() {
                let _ = channel.sender.send(Notice::Gap);
            }
        } else if let Some(channel) = table.channels.get(name) {
            let payload = message.get_payload_bytes();
            let notice = if payload.is_empty() {
                Notice::Gap
            } else {
                Notice::Payload(Bytes::copy_from_slice(payload))
            };
            // Sending fails only if the listeners were dropped.
            let _ = channel.sender.send(notice);
        }
    }
}

impl Channel {
    fn new(buffer: usize) -> Self {
        Self {
            sender: broadcast::Sender::new(buffer),
            listeners: 0,
            confirmed: false,
            gap: false,
            waiting: Vec::new(),
        }
    }
}

async fn keep(shared: Arc<Shared>, client: Client, sources: Sources, link: Arc<Link>) {
    let mut backoff = Backoff::new(sources, 50, 1_000);
    loop {
        // Its server is one that does not refuse.
        let live = link.available().await;
        if let Some((sink, stream)) = open(&client, &shared.gap_channel).await {
            shared.connected();
            let ended = tokio::select! {
                ended = serve(&shared, sink, stream) => ended,
                () = link.ended(&live) => "the other connection was lost",
            };
            shared.disconnected();
            tracing::debug!(reason = ended, "the pub/sub connection to redis was lost");
            backoff.reset();
        }
        backoff.wait().await;
    }
}

/// Opens a connection that may subscribe.
async fn open(client: &Client, gap_channel: &str) -> Option<(PubSubSink, PubSubStream)> {
    let open = async {
        let (mut sink, stream) = client.get_async_pubsub().await?.split();
        sink.subscribe(gap_channel).await?;
        Ok::<_, RedisError>((sink, stream))
    };
    match tokio::time::timeout(CONNECT_LIMIT, open).await {
        Ok(Ok(opened)) => Some(opened),
        Ok(Err(error)) => {
            tracing::debug!(reason = reason(&error), "redis accepts no subscription");
            None
        }
        Err(_) => None,
    }
}

/// A subscribe command in flight. It returns the channels that are subscribed afterwards.
type Pending = BoxFuture<'static, Result<Vec<String>, RedisError>>;

/// Serves listeners until the connection is lost. Returns the reason.
async fn serve(shared: &Shared, sink: PubSubSink, mut stream: PubSubStream) -> &'static str {
    let mut pending: Option<Pending> = None;
    let mut due = tokio::time::interval(PROBE_INTERVAL);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        if pending.is_none() {
            let (wanted, unwanted) = shared.take_dirty();
            if !wanted.is_empty() || !unwanted.is_empty() {
                pending = Some(change(sink.clone(), wanted, unwanted));
            }
        }
        let idle = pending.is_none();
        tokio::select! {
            message = stream.next() => match message {
                Some(message) => shared.dispatch(&message),
                None => return "closed",
            },
            // Messages are still dispatched while a command is in flight.
            Some(answer) = OptionFuture::from(pending.as_mut().map(within_limit)) => {
                pending = None;
                match answer {
                    Ok(Ok(names)) => shared.confirm(&names),
                    Ok(Err(error)) => return reason(&error),
                    Err(_) => return "no answer",
                }
            }
            () = shared.changed.notified(), if idle => {}
            _ = due.tick(), if idle => pending = Some(probe(sink.clone())),
        }
    }
}

fn within_limit(pending: &mut Pending) -> tokio::time::Timeout<&mut Pending> {
    tokio::time::timeout(PROBE_LIMIT, pending)
}

fn change(mut sink: PubSubSink, wanted: Vec<String>, unwanted: Vec<String>) -> Pending {
    Box::pin(async move {
        if !unwanted.is_empty() {
            sink.unsubscribe(unwanted.as_slice()).await?;
        }
        if !wanted.is_empty() {
            sink.subscribe(wanted.as_slice()).await?;
        }
        Ok(wanted)
    })
}

fn probe(mut sink: PubSubSink) -> Pending {
    Box::pin(async move {
        sink.ping::<redis::Value>().await?;
        Ok(Vec::new())
    })
}
