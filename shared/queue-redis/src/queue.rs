//! The queue: the state shared by pushing, working and tidying.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use mainspring_shared::agent::Priority;
use mainspring_shared::entropy::Entropy;
use mainspring_shared::queue::{Activation, Handler, Lane, Queue};
use mainspring_shared::time::Clock;
use redis::Client;
use tokio_util::sync::CancellationToken;

use crate::address::{Address, AddressError};
use crate::counts::{Counters, Counts};
use crate::intake::{Intake, Pressure};
use crate::lane::{Keys, Line};
use crate::link::{Link, Purpose, Sources, Voice};
use crate::prefix::Prefix;
use crate::worker;

/// Time limit for reading a lane's length.
const DEPTH_LIMIT: Duration = Duration::from_millis(100);
/// Maximum number of lines whose keys are cached; far more than any deployment has.
const LINES_MAX: usize = 1_024;
/// Handlers of one process that may wait for admission. A handler is quick unless every slot is
/// taken; then more handlers would only hoard jobs that another process could start.
const HIGH_HANDLERS: usize = 6;
/// The same for low jobs, so that they wait beside high ones and not in their place.
const LOW_HANDLERS: usize = 2;
/// The same for jobs that overtake others. Sessions of tenants that already have their share are
/// moved behind, so these jobs wait for the next slot at most.
const AHEAD_HANDLERS: usize = 2;

/// The queue on Redis. It delivers at least once and unordered, and may lose jobs.
pub struct RedisQueue {
    core: Arc<Core>,
}

pub(crate) struct Core {
    /// For connections that block on a bell.
    pub(crate) client: Client,
    pub(crate) link: Link,
    pub(crate) sources: Sources,
    pub(crate) counters: Counters,
    /// The prefix of every key.
    pub(crate) prefix: Prefix,
    lines: Mutex<HashMap<Line, Arc<Keys>>>,
    /// The lines from which this process cannot take jobs although the server works, and why.
    pub(crate) refused: Mutex<HashMap<Line, &'static str>>,
}

impl RedisQueue {
    /// Opens the queue without waiting for Redis: it connects in the background, and reconnects
    /// after every loss. Must be called inside a tokio runtime.
    pub fn open(
        address: &Address,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Self, AddressError> {
        let sources = Sources { clock, entropy };
        let core = Core {
            client: address.client()?,
            link: Link::open(address, sources.clone(), (Purpose::Jobs, Voice::Warns))?,
            sources,
            counters: Counters::default(),
            prefix: address.prefix(),
            lines: Mutex::default(),
            refused: Mutex::default(),
        };
        Ok(Self {
            core: Arc::new(core),
        })
    }

    /// The counters since the queue was opened.
    pub fn counts(&self) -> Counts {
        self.core.counters.read()
    }

    /// Removes finished jobs and dead workers of every lane until `stop` resolves. At least one
    /// process has to run it, or Redis grows with every job; any number may.
    pub async fn janitor(&self, stop: BoxFuture<'static, ()>) {
        self.core.janitor(stop).await;
    }

    /// Runs one pass of the janitor. Returns the number of removed jobs. Does nothing while Redis
    /// is unavailable.
    pub async fn tidy(&self) -> usize {
        self.core.tidy().await
    }
}

impl Core {
    /// Notes that jobs of a line cannot be fetched, or that they can again.
    pub(crate) fn refuses(&self, line: &Line, why: Option<&'static str>) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        match why {
            Some(why) => refused.insert(line.clone(), why),
            None => refused.remove(line),
        };
    }

    /// Why jobs of some line cannot be fetched.
    fn refusal(&self) -> Option<&'static str> {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.values().next().copied()
    }

    pub(crate) fn keys(&self, line: &Line) -> Arc<Keys> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(keys) = lines.get(line) {
            return Arc::clone(keys);
        }
        if lines.len() >= LINES_MAX {
            lines.clear();
        }
        let keys = Arc::new(Keys::of(&self.prefix, line));
        lines.insert(line.clone(), Arc::clone(&keys));
        keys
    }
}

#[async_trait]
impl Queue for RedisQueue {
    async fn push(&self, lane: &Lane, activations: Vec<Activation>) -> bool {
        self.core.push(&Line::of(lane), &activations).await
    }

    async fn push_ahead(&self, lane: &Lane, activations: Vec<Activation>) -> bool {
        let line = Line::ahead_of(lane).unwrap_or_else(|| Line::of(lane));
        self.core.push(&line, &activations).await
    }

    async fn depth(&self, lane: &Lane) -> Option<u64> {
        let mut live = self.core.link.live()?;
        let keys = self.core.keys(&Line::of(lane));
        let mut ask = redis::pipe();
        ask.cmd("LLEN").arg(&keys.active);
        ask.cmd("ZCARD").arg(&keys.scheduled);
        let answer = ask.query_async::<(u64, u64)>(&mut live.connection);
        match tokio::time::timeout(DEPTH_LIMIT, answer).await {
            Ok(Ok((active, scheduled))) => Some(active + scheduled),
            Ok(Err(error)) => {
                self.core.link.report(&live, &error);
                None
            }
            Err(_) => {
                self.core.link.suspect();
                None
            }
        }
    }

    fn is_available(&self) -> bool {
        self.core.link.is_available() && self.core.refusal().is_none()
    }

    fn trouble(&self) -> Option<String> {
        let trouble = self.core.link.trouble().or_else(|| self.core.refusal())?;
        Some(format!("redis cannot be used: {trouble}"))
    }

    async fn run(&self, pool: &str, handler: Arc<dyn Handler>, stop: BoxFuture<'static, ()>) {
        let pressure = Pressure::default();
        let stopping = CancellationToken::new();
        // Also cancelled when this future is dropped, which ends the lines' workers.
        let ended = stopping.clone().drop_guard();
        let line = |priority, ahead, handlers| {
            let lane = Lane {
                pool: pool.to_owned(),
                priority,
            };
            let line = Line { lane, ahead };
            let intake = Intake::new(
                Arc::clone(&handler),
                Arc::clone(&self.core),
                line,
                pressure.clone(),
            );
            worker::supervise(Arc::clone(&self.core), intake, handlers, stopping.clone())
        };
        let lines = futures::future::join3(
            line(Priority::High, true, AHEAD_HANDLERS),
            line(Priority::High, false, HIGH_HANDLERS),
            line(Priority::Low, false, LOW_HANDLERS),
        );
        let stop = async {
            stop.await;
            drop(ended);
        };
        futures::future::join(stop, lines).await;
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("link", &self.link)
            .field("counts", &self.counters.read())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for RedisQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisQueue")
            .field("core", &self.core)
            .finish()
    }
}
