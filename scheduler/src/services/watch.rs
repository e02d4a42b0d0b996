//! Waits for sends, sessions and runs: one subscription to the steps of all sessions, dispatched to
//! the requests and event streams that wait for a particular one.
//!
//! Waking a watcher means "read again". Only the notice of a send's end may include the send, as
//! its worker stored it, so that the waiter need not read it. If notifications are lost, all
//! watchers are woken within two seconds, those of a session only if it has new steps, which one
//! statement determines for a few thousand sessions. Sessions without new steps are checked less
//! and less often, down to every 16 seconds, because a single notification is lost only if a
//! process dies right after its commit; unless a send of theirs runs, whose next step may come at any
//! time. After an interruption of the bus, all sessions are checked
//! at once, and while it is unavailable, every 250 ms.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use mainspring_runtime::Group;
use mainspring_shared::bus::{Ended, Notice, StepNotice, Topic};
use mainspring_shared::id::{RunKey, SendId, SessionKey, TenantId};
use mainspring_shared::send::{SendRecord, SendView, WaitingOn};
use mainspring_shared::store::Store;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::app::{App, each};
use crate::error::Error;

/// Interval at which watchers read the database while the bus is unavailable.
const POLL: Duration = Duration::from_millis(250);

/// Sessions per query.
const PAGE: usize = 4_096;

/// Slices of the safety net: each poll interval checks one of them, so that the reads for many
/// watchers are spread evenly over two seconds.
const SLICES: u64 = 8;

/// The longest delay that a lost notification can cause, except for quiet sessions.
#[cfg(test)]
const SAFETY: Duration = Duration::from_millis(POLL.as_millis() as u64 * SLICES);

/// All watchers of this process, and their grouped reads.
#[derive(Debug)]
pub struct Watch {
    /// Watchers of sends.
    sends: Arc<Registry<SendId>>,
    /// Watchers of sessions.
    sessions: Arc<Registry<SessionKey>>,
    /// Watchers of runs.
    runs: Arc<Registry<RunKey>>,
    /// Watchers of what waits for someone outside.
    waiting: Arc<Registry<TenantId>>,
    /// Groups concurrent reads of sends into one query.
    reads: Group<(TenantId, SendId), Result<Option<SendRecord>, Error>>,
    /// Notified when any notification may have been lost.
    missed: Notify,
}

/// After how many checks without a new step a session is checked half as often, and how many such
/// checks count: every two seconds, then four, eight and sixteen.
const QUIET: u32 = 2;
const QUIET_MAX: u32 = 3 * QUIET;

/// The watched sessions, as last read.
type Steps = HashMap<SessionKey, Looked>;

/// A session's state at its last check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Looked {
    /// Its last step.
    step: i64,
    /// Consecutive checks without a new step.
    quiet: u32,
    /// Turns to skip until the next check.
    skips: u32,
}

impl Looked {
    fn new(step: i64) -> Self {
        Self {
            step,
            quiet: 0,
            skips: 0,
        }
    }

    /// Whether to check it in this turn.
    fn is_due(&mut self) -> bool {
        let is_due = self.skips == 0;
        self.skips = self.skips.saturating_sub(1);
        is_due
    }

    /// Records its last step. Returns whether that is a new one.
    fn note(&mut self, step: i64) -> bool {
        let is_new = self.step != step;
        if is_new {
            *self = Self::new(step);
        } else {
            self.quiet = (self.quiet + 1).min(QUIET_MAX);
            self.skips = (1 << (self.quiet / QUIET)) - 1;
        }
        is_new
    }
}

impl Watch {
    /// An empty registry of watchers.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            sends: Arc::default(),
            sessions: Arc::default(),
            runs: Arc::default(),
            waiting: Arc::default(),
            reads: Group::spawn(2, move |ids: Vec<(TenantId, SendId)>| {
                let store = store.clone();
                async move { each(&ids, |ids| store.get_sends(ids)).await }
            }),
            missed: Notify::new(),
        }
    }

    /// Reads a send. Concurrent reads share a query.
    pub async fn read_send(
        &self,
        tenant: TenantId,
        id: SendId,
    ) -> Result<Option<SendRecord>, Error> {
        let read = self.reads.submit((tenant, id)).await;
        read.unwrap_or_else(|_| Err(Error::stopping()))
    }

    /// A watcher that is woken when this send ends or starts waiting.
    pub fn send(&self, id: SendId) -> Watcher<SendId> {
        Registry::register(&self.sends, id)
    }

    /// A watcher that is woken when a send of this tenant starts waiting, and every two seconds.
    pub fn waiting(&self, tenant: TenantId) -> Watcher<TenantId> {
        Registry::register(&self.waiting, tenant)
    }

    /// Wakes who waits for calls of this tenant.
    pub(crate) fn wake_waiting(&self, tenant: TenantId) {
        self.waiting.wake(&tenant);
    }

    /// A watcher that is woken at every step of this session.
    pub fn session(&self, key: SessionKey) -> Watcher<SessionKey> {
        Registry::register(&self.sessions, key)
    }

    /// A watcher that is woken when this run is advanced.
    pub fn run(&self, key: RunKey) -> Watcher<RunKey> {
        Registry::register(&self.runs, key)
    }

    /// Wakes the watchers of a run that was advanced.
    pub fn advanced(&self, key: &RunKey) {
        self.runs.wake(key);
    }

    fn step_committed(&self, notice: &StepNotice) {
        if notice.settled {
            self.sends.wake_with(&notice.send, || {
                let view = notice.ended.as_ref().and_then(Ended::view)?;
                Some((notice.key.tenant, view))
            });
            // A notice with the send says that it is final.
            if notice.ended.is_none() {
                self.waiting.wake(&notice.key.tenant);
            }
        }
        if notice.is_deleted() {
            self.sessions.end(&notice.key);
        } else {
            self.sessions.wake(&notice.key);
        }
    }

    /// Wakes the watchers of sends and runs in this slice, or all of them, and the watchers of
    /// sessions with steps that are not in `known`. If only a slice is checked, quiet sessions may
    /// be left out.
    async fn check(&self, app: &App, turn: Option<u64>, known: &mut Steps) {
        let wanted = |hash| turn.is_none_or(|slice| hash % SLICES == slice);
        self.sends.wake_where(wanted);
        self.runs.wake_where(wanted);
        self.waiting.wake_where(wanted);
        let mut keys = self.sessions.keys(wanted);
        if turn.is_some() {
            let expecting = self.sessions.expecting(&keys);
            keys.retain(|key| {
                let is_due = known.get_mut(key).is_none_or(Looked::is_due);
                is_due || expecting.contains(key)
            });
        }
        for page in keys.chunks(PAGE) {
            // Reads from a local file complete without yielding, so let notifications through
            // first.
            tokio::task::yield_now().await;
            let read = app.store.last_steps(page.to_vec());
            let read = tokio::select! {
                biased;
                read = read => read,
                () = app.clock.sleep(POLL * 8) => return,
            };
            match read {
                Ok(steps) => {
                    for (key, step) in page.iter().zip(steps) {
                        let is_new = match known.entry(*key) {
                            Entry::Occupied(mut looked) => looked.get_mut().note(step),
                            Entry::Vacant(new) => {
                                new.insert(Looked::new(step));
                                true
                            }
                        };
                        if is_new {
                            self.sessions.wake(key);
                        }
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "the steps of sessions could not be read");
                    return;
                }
            }
        }
    }

    /// Forgets sessions that nobody watches.
    fn forget(&self, known: &mut Steps) {
        let waiting = self.sessions.lock();
        known.retain(|key, _| waiting.contains_key(key));
    }
}

/// Watchers by key. The hash is the same in every process, so that a repeated simulation wakes
/// watchers in the same order. The server generates the keys, so clients cannot choose colliding
/// ones.
type Waiting<K> = HashMap<K, Vec<Arc<Waiter>>, BuildHasherDefault<DefaultHasher>>;

/// The state through which a watcher is woken.
#[derive(Debug, Default)]
struct Waiter {
    wake: Notify,
    /// The final send and its tenant, if the notice of its end included it.
    ended: Mutex<Option<Box<(TenantId, SendView)>>>,
    /// Whether the watched item was deleted.
    gone: AtomicBool,
    /// Whether whoever watches knows that more is to come soon.
    expects: AtomicBool,
}

impl Waiter {
    fn ended(&self) -> MutexGuard<'_, Option<Box<(TenantId, SendView)>>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Registry<K> {
    waiting: Mutex<Waiting<K>>,
}

impl<K> Default for Registry<K> {
    fn default() -> Self {
        Self {
            waiting: Mutex::default(),
        }
    }
}

impl<K: Eq + Hash + Copy> Registry<K> {
    fn register(registry: &Arc<Self>, key: K) -> Watcher<K> {
        let waiter = Arc::<Waiter>::default();
        registry.lock().entry(key).or_default().push(waiter.clone());
        Watcher {
            registry: registry.clone(),
            key,
            waiter,
        }
    }

    /// The keys with the wanted hashes.
    fn keys(&self, wanted: impl Fn(u64) -> bool) -> Vec<K> {
        let waiting = self.lock();
        let keys = waiting.keys().copied();
        keys.filter(|key| wanted(waiting.hasher().hash_one(key)))
            .collect()
    }

    /// Those of the keys of which a watcher expects more soon.
    fn expecting(&self, keys: &[K]) -> HashSet<K> {
        let waiting = self.lock();
        let expects = |key: &&K| {
            let mut waiters = waiting.get(*key).into_iter().flatten();
            waiters.any(|waiter| waiter.expects.load(Ordering::Acquire))
        };
        keys.iter().filter(expects).copied().collect()
    }

    fn wake(&self, key: &K) {
        self.wake_with(key, || None);
    }

    /// Wakes the watchers of a key and gives them the final send, which is built only if there is a
    /// watcher.
    fn wake_with(&self, key: &K, ended: impl FnOnce() -> Option<(TenantId, SendView)>) {
        let waiting = self.lock();
        let Some(waiters) = waiting.get(key) else {
            return;
        };
        let ended = ended().map(Box::new);
        for waiter in waiters {
            if ended.is_some() {
                waiter.ended().clone_from(&ended);
            }
            waiter.wake.notify_one();
        }
    }

    /// Wakes the watchers of a deleted key, and tells them that it was deleted.
    fn end(&self, key: &K) {
        let waiting = self.lock();
        for waiter in waiting.get(key).into_iter().flatten() {
            waiter.gone.store(true, Ordering::Release);
            waiter.wake.notify_one();
        }
    }

    fn wake_where(&self, wanted: impl Fn(u64) -> bool) {
        let waiting = self.lock();
        for (key, waiters) in waiting.iter() {
            if wanted(waiting.hasher().hash_one(key)) {
                for waiter in waiters {
                    waiter.wake.notify_one();
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<K>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A registration in [`Watch`]; dropping it unregisters.
#[derive(Debug)]
pub struct Watcher<K: Eq + Hash + Copy> {
    registry: Arc<Registry<K>>,
    key: K,
    waiter: Arc<Waiter>,
}

impl<K: Eq + Hash + Copy> Watcher<K> {
    /// The watched key.
    pub fn key(&self) -> K {
        self.key
    }

    /// Resolves at the next wake-up, or immediately if there was one since the last call.
    pub async fn woken(&self) {
        self.waiter.wake.notified().await;
    }

    /// Says whether more is to come soon: then a lost notification is found within two seconds.
    pub fn expects(&self, more: bool) {
        self.waiter.expects.store(more, Ordering::Release);
    }

    /// Whether a notice said that the watched item was deleted. All of its steps were committed
    /// before.
    pub fn is_gone(&self) -> bool {
        self.waiter.gone.load(Ordering::Acquire)
    }

    /// The final send, if a wake-up included it and it belongs to this tenant.
    fn ended(&self, tenant: TenantId) -> Option<SendView> {
        let (of, view) = *self.waiter.ended().take()?;
        (of == tenant).then_some(view)
    }
}

impl<K: Eq + Hash + Copy> Drop for Watcher<K> {
    fn drop(&mut self) {
        let mut waiting = self.registry.lock();
        if let Some(waiters) = waiting.get_mut(&self.key) {
            waiters.retain(|waiter| !Arc::ptr_eq(waiter, &self.waiter));
            if waiters.is_empty() {
                waiting.remove(&self.key);
            }
        }
    }
}

/// Dispatches notifications until `closing` is cancelled.
pub async fn run(app: &App, closing: CancellationToken) {
    tokio::select! {
        biased;
        () = closing.cancelled() => {}
        // Polled before the notifications, because those may never pause.
        () = check(app) => {}
        () = dispatch(app) => {}
    }
}

/// Wakes watchers whose notifications were lost. It runs concurrently with the dispatch of
/// notifications, which must not wait for the database.
async fn check(app: &App) {
    let (mut slice, mut known) = (0, Steps::new());
    loop {
        let is_missed = tokio::select! {
            biased;
            () = app.watch.missed.notified() => true,
            () = app.clock.sleep(POLL) => false,
        };
        if is_missed || !app.bus().is_available() {
            app.watch.check(app, None, &mut known).await;
            app.watch.forget(&mut known);
        } else {
            app.watch.check(app, Some(slice), &mut known).await;
            slice = (slice + 1) % SLICES;
        }
        if slice == 0 {
            app.watch.forget(&mut known);
        }
    }
}

async fn dispatch(app: &App) {
    loop {
        let mut notices = app.bus().subscribe(Topic::Steps).await;
        // Notices of commits before the subscription may have been missed.
        app.watch.missed.notify_one();
        while let Some(notice) = notices.next().await {
            match notice {
                Notice::Payload(payload) => {
                    match serde_json::from_slice::<Vec<StepNotice>>(&payload) {
                        Ok(steps) => {
                            let now = app.clock.monotonic();
                            for step in &steps {
                                // Record the keeper before waking those who wait, since they may
                                // send the next one.
                                app.known.keepers.hear(step, now);
                                app.known.recent_sessions.note(step.key);
                                app.watch.step_committed(step);
                            }
                        }
                        Err(error) => {
                            tracing::debug!(error = %error, "a notification could not be parsed");
                        }
                    }
                }
                Notice::Gap => app.watch.missed.notify_one(),
            }
        }
        app.clock.sleep(POLL).await;
    }
}

/// Whether `?wait` can return: the send is final, or waits for a person or an external tool.
pub fn settled(send: &SendRecord) -> bool {
    let asks = matches!(
        send.waiting_on,
        Some(WaitingOn::Human | WaitingOn::Tool | WaitingOn::Recovery)
    );
    send.status.is_final() || asks
}

/// Whether a wait for the send is over. A waiting send whose calls are all answered is about to
/// continue, even if no worker has claimed it yet, and a client that has just answered waits for
/// the continuation.
async fn is_over(app: &App, send: &SendRecord) -> bool {
    if !settled(send) {
        return false;
    }
    match send.waiting_on {
        Some(WaitingOn::Human | WaitingOn::Tool) => {
            let round = app.store.read_round(send.key, send.id, send.rounds - 1);
            // If this fails, the send is returned as it is.
            let calls = round.await.unwrap_or_default();
            calls.is_empty() || calls.iter().any(|call| call.waits_on.is_some())
        }
        _ => true,
    }
}

/// Waits until the send is settled, `wait` has passed or this process is stopping. Returns the send
/// as it is then. `known` must have been read after `watcher` was registered. Without it, the first
/// read happens at the first wake-up, unless the wake-up includes the final send.
pub async fn wait_for(
    app: &App,
    watcher: &Watcher<SendId>,
    tenant: TenantId,
    known: Option<SendRecord>,
    wait: Duration,
) -> Result<Option<SendView>, Error> {
    let mut known = known;
    let mut over = app.clock.sleep(wait);
    let mut stopping = Box::pin(app.process.lifecycle.stopping());
    loop {
        if let Some(send) = &known
            && is_over(app, send).await
        {
            return Ok(known.map(SendView::from));
        }
        let last = tokio::select! {
            biased;
            () = watcher.woken() => false,
            () = &mut over => true,
            () = &mut stopping => true,
        };
        if let Some(ended) = watcher.ended(tenant) {
            return Ok(Some(ended));
        }
        match app.watch.read_send(tenant, watcher.key).await {
            Ok(Some(send)) if last => return Ok(Some(SendView::from(send))),
            Ok(Some(send)) => known = Some(send),
            Ok(None) => return Ok(None),
            // A later wake-up reads again; only the last read has to succeed.
            Err(error) if last => {
                return known.map(|known| Some(SendView::from(known))).ok_or(error);
            }
            Err(_) => {}
        }
    }
}

/// Reads an existing send once it is settled or the wait is over.
pub async fn read_and_wait(
    app: &App,
    watcher: Watcher<SendId>,
    tenant: TenantId,
    wait: Duration,
) -> Result<Option<SendView>, Error> {
    match app.watch.read_send(tenant, watcher.key).await? {
        None => Ok(None),
        known => wait_for(app, &watcher, tenant, known, wait).await,
    }
}

#[cfg(test)]
mod tests;
