//! A worker to run against a queue, with a record of what it admitted.

use std::collections::HashSet;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use mainspring_shared::agent::Priority;
use mainspring_shared::bus::Notice;
use mainspring_shared::entropy::Entropy;
use mainspring_shared::id::{SessionId, SessionKey, TenantId};
use mainspring_shared::queue::{Activation, Disposition, Handler, Lane, Queue};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Far longer than anything here takes, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// Waits for something that must happen.
pub async fn within<F: Future>(what: &str, happens: F) -> F::Output {
    let outcome = tokio::time::timeout(PATIENCE, happens).await;
    outcome.unwrap_or_else(|_| panic!("{what} did not happen within {PATIENCE:?}"))
}

/// Polls until the answer is yes.
pub async fn until<F: Future<Output = bool>>(what: &str, mut ask: impl FnMut() -> F) {
    within(what, async {
        while !ask().await {
            pause(10).await;
        }
    })
    .await;
}

/// Lets real time pass; nothing may depend on how much.
#[expect(
    clippy::disallowed_methods,
    reason = "servers and sockets keep real time"
)]
pub async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// A session used by nobody else.
pub fn session() -> SessionKey {
    SessionKey {
        tenant: TenantId(7),
        session: SessionId(mainspring_runtime::OsEntropy.random_id()),
    }
}

/// Sessions used by nobody else.
pub fn sessions(count: usize) -> Vec<SessionKey> {
    (0..count).map(|_| session()).collect()
}

/// An activation per session.
pub fn activations(sessions: &[SessionKey]) -> Vec<Activation> {
    let one = |key: &SessionKey| Activation {
        sessions: vec![*key],
    };
    sessions.iter().map(one).collect()
}

/// A pool used by nobody else.
pub fn pool() -> String {
    format!(
        "test-{}",
        mainspring_runtime::OsEntropy.random_id().as_simple()
    )
}

/// The high lane of a pool.
pub fn high(pool: &str) -> Lane {
    Lane {
        pool: pool.to_owned(),
        priority: Priority::High,
    }
}

/// The low lane of a pool.
pub fn low(pool: &str) -> Lane {
    Lane {
        pool: pool.to_owned(),
        priority: Priority::Low,
    }
}

/// Pushes until the queue accepts it: it may still be connecting.
pub async fn push(queue: &dyn Queue, lane: &Lane, sessions: &[SessionKey]) {
    until("a push", || queue.push(lane, activations(sessions))).await;
}

/// A handler that records what it admits. Each session occupies a slot for a while, as a running
/// send does.
#[derive(Debug)]
pub struct Recorder {
    admitted: watch::Sender<Vec<SessionKey>>,
    called: AtomicUsize,
    slots: Semaphore,
    hold_ms: u64,
    panics: Mutex<Vec<SessionKey>>,
    behind: Mutex<Vec<SessionKey>>,
    stopping: CancellationToken,
}

impl Recorder {
    /// A handler with this many slots, each occupied for `hold_ms` per session.
    pub fn new(slots: usize, hold_ms: u64) -> Arc<Self> {
        Arc::new(Self {
            admitted: watch::Sender::new(Vec::new()),
            called: AtomicUsize::new(0),
            slots: Semaphore::new(slots),
            hold_ms,
            panics: Mutex::default(),
            behind: Mutex::default(),
            stopping: CancellationToken::new(),
        })
    }

    /// A handler that admits at once.
    pub fn ready() -> Arc<Self> {
        Self::new(1_000, 0)
    }

    /// Makes the handler panic when it gets this session.
    pub fn panic_on(&self, key: SessionKey) {
        self.panics.lock().expect("nobody panics with it").push(key);
    }

    /// Makes the handler send this session to the back if it was pushed ahead.
    pub fn send_behind(&self, key: SessionKey) {
        self.behind.lock().expect("nobody panics with it").push(key);
    }

    /// Adds slots.
    pub fn open(&self, slots: usize) {
        self.slots.add_permits(slots);
    }

    /// How often it was called.
    pub fn called(&self) -> usize {
        self.called.load(Ordering::SeqCst)
    }

    /// The sessions admitted, in order.
    pub fn admitted(&self) -> Vec<SessionKey> {
        self.admitted.borrow().clone()
    }

    /// Waits until all these sessions were admitted.
    pub async fn saw(&self, keys: &[SessionKey]) {
        let mut admitted = self.admitted.subscribe();
        let mut missing: HashSet<_> = keys.iter().copied().collect();
        let mut looked_at = 0;
        let all = async {
            loop {
                for key in &admitted.borrow_and_update()[looked_at..] {
                    missing.remove(key);
                    looked_at += 1;
                }
                if missing.is_empty() || admitted.changed().await.is_err() {
                    return;
                }
            }
        };
        let arrived = tokio::time::timeout(PATIENCE, all).await.is_ok();
        assert!(
            arrived,
            "{} of {} sessions did not arrive",
            missing.len(),
            keys.len()
        );
    }
}

#[async_trait]
impl Handler for Recorder {
    async fn handle(&self, activation: Activation) -> Disposition {
        self.called.fetch_add(1, Ordering::SeqCst);
        for key in activation.sessions {
            let panics = self
                .panics
                .lock()
                .expect("nobody panics with it")
                .contains(&key);
            assert!(!panics, "the handler was made to panic");
            let _slot = tokio::select! {
                biased;
                () = self.stopping.cancelled() => return Disposition::Stopping,
                slot = self.slots.acquire() => slot,
            };
            if self.hold_ms > 0 {
                pause(self.hold_ms).await;
            }
            self.admitted.send_modify(|admitted| admitted.push(key));
        }
        Disposition::Done
    }

    /// Admits sessions pushed ahead without taking a slot.
    async fn handle_ahead(&self, activation: Activation) -> (Disposition, Vec<SessionKey>) {
        let behind = self.behind.lock().expect("nobody panics with it").clone();
        let sessions = activation.sessions.into_iter();
        let (behind, ahead): (Vec<_>, Vec<_>) = sessions.partition(|key| behind.contains(key));
        self.admitted.send_modify(|admitted| admitted.extend(ahead));
        (Disposition::Done, behind)
    }
}

/// A worker that runs until it is stopped.
#[derive(Debug)]
pub struct Worker {
    recorder: Arc<Recorder>,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl Worker {
    /// Starts a worker on a pool.
    pub fn start(queue: &Arc<dyn Queue>, pool: &str, recorder: &Arc<Recorder>) -> Self {
        let stop = CancellationToken::new();
        let (queue, pool) = (Arc::clone(queue), pool.to_owned());
        let handler: Arc<dyn Handler> = Arc::clone(recorder) as Arc<dyn Handler>;
        let stopped = stop.clone().cancelled_owned();
        let running =
            tokio::spawn(async move { queue.run(&pool, handler, Box::pin(stopped)).await });
        Self {
            recorder: Arc::clone(recorder),
            stop,
            running,
        }
    }

    /// Stops the worker and its handler, and waits for it to end.
    pub async fn stop(self) {
        self.recorder.stopping.cancel();
        self.stop.cancel();
        within("the end of a worker", self.running)
            .await
            .expect("a worker does not panic");
    }

    /// Ends it abruptly, as a crash would.
    pub fn crash(self) {
        self.running.abort();
    }
}

/// The next payload, skipping gaps.
pub async fn payload(notices: &mut BoxStream<'static, Notice>) -> Bytes {
    loop {
        match within("a notice", notices.next()).await {
            Some(Notice::Payload(payload)) => return payload,
            Some(Notice::Gap) => {}
            None => panic!("the stream ended"),
        }
    }
}

/// The next notice.
pub async fn next(notices: &mut BoxStream<'static, Notice>) -> Notice {
    within("a notice", notices.next())
        .await
        .expect("the stream goes on")
}
