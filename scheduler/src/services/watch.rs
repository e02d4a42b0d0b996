//! Who waits for what: one subscription to the steps of the whole system, handed on to the
//! requests and streams that look at one send or one session.
//!
//! A poke says "look again", never what happened. Lost notices cost at most two seconds; while the
//! bus is away everyone is poked every 250 ms, those who follow a session only when it has moved.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use mainspring_runtime::Group;
use mainspring_shared::bus::{Notice, StepNotice, Topic};
use mainspring_shared::id::{RunKey, SendId, SessionKey, TenantId};
use mainspring_shared::send::{SendRecord, WaitingOn};
use mainspring_shared::store::Store;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::app::{App, each};
use crate::error::Error;

/// How often everyone looks at the database while the bus is away.
const POLL: Duration = Duration::from_millis(250);

/// Sessions that one query asks about.
const PAGE: usize = 4_096;

/// Slices of the safety net: each poll interval one of them is poked, so that the looks of many
/// waiters are spread evenly over two seconds.
const SLICES: u64 = 8;

/// The longest that a lost notice can delay anyone.
#[cfg(test)]
const SAFETY: Duration = Duration::from_millis(POLL.as_millis() as u64 * SLICES);

/// Everyone who waits in this process, and what they read.
#[derive(Debug)]
pub struct Watch {
    /// Those who wait for the end of a send.
    sends: Arc<Registry<SendId>>,
    /// Those who follow a session.
    sessions: Arc<Registry<SessionKey>>,
    /// Those who follow a run.
    runs: Arc<Registry<RunKey>>,
    /// Reads of sends that share a query.
    reads: Group<(TenantId, SendId), Result<Option<SendRecord>, Error>>,
}

impl Watch {
    /// Nobody waits yet.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            sends: Arc::default(),
            sessions: Arc::default(),
            runs: Arc::default(),
            reads: Group::spawn(2, move |ids: Vec<(TenantId, SendId)>| {
                let store = store.clone();
                async move { each(ids, |ids| store.get_sends(ids)).await }
            }),
        }
    }

    /// A send; its reads share queries with those of other callers.
    pub async fn read_send(
        &self,
        tenant: TenantId,
        id: SendId,
    ) -> Result<Option<SendRecord>, Error> {
        let read = self.reads.submit((tenant, id)).await;
        read.unwrap_or_else(|_| Err(Error::stopping()))
    }

    /// Pokes from now on when this send ends or waits.
    pub fn send(&self, id: SendId) -> Watching<SendId> {
        Registry::register(&self.sends, id)
    }

    /// Pokes from now on when anything happens in this session.
    pub fn session(&self, key: SessionKey) -> Watching<SessionKey> {
        Registry::register(&self.sessions, key)
    }

    /// Pokes from now on when this run is advanced.
    pub fn run(&self, key: RunKey) -> Watching<RunKey> {
        Registry::register(&self.runs, key)
    }

    /// A run was advanced.
    pub fn advanced(&self, key: &RunKey) {
        self.runs.poke(key);
    }

    fn heard(&self, notice: &StepNotice) {
        if notice.settled {
            self.sends.poke(&notice.send);
        }
        self.sessions.poke(&notice.key);
    }

    fn poke_all(&self) {
        self.sends.poke_where(|_| true);
        self.sessions.poke_where(|_| true);
        self.runs.poke_where(|_| true);
    }

    /// Looks for all who follow sessions which of these have moved, and pokes these and everyone who
    /// waits for something else.
    async fn poll(&self, app: &App, moved: &mut HashMap<SessionKey, i64>) {
        self.sends.poke_where(|_| true);
        self.runs.poke_where(|_| true);
        let keys = self.sessions.keys();
        moved.retain(|key, _| self.sessions.lock().contains_key(key));
        for page in keys.chunks(PAGE) {
            let read = app.store.last_steps(page.to_vec());
            let read = tokio::select! {
                biased;
                read = read => read,
                () = app.clock.sleep(POLL * 8) => return,
            };
            match read {
                Ok(steps) => {
                    for (key, step) in page.iter().zip(steps) {
                        if moved.insert(*key, step) != Some(step) {
                            self.sessions.poke(key);
                        }
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "it is not known which sessions have moved");
                    return;
                }
            }
        }
    }

    fn poke_slice(&self, slice: u64) {
        self.sends.poke_where(|hash| hash % SLICES == slice);
        self.sessions.poke_where(|hash| hash % SLICES == slice);
        self.runs.poke_where(|hash| hash % SLICES == slice);
    }
}

/// Hashed alike in every process: a simulation that is run again pokes in the same order. The keys
/// are drawn here, so nobody can choose ones that collide.
type Waiting<K> = HashMap<K, Vec<Arc<Notify>>, BuildHasherDefault<DefaultHasher>>;

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
    fn register(registry: &Arc<Self>, key: K) -> Watching<K> {
        let poke = Arc::new(Notify::new());
        registry.lock().entry(key).or_default().push(poke.clone());
        Watching {
            registry: registry.clone(),
            key,
            poke,
        }
    }

    fn keys(&self) -> Vec<K> {
        self.lock().keys().copied().collect()
    }

    fn poke(&self, key: &K) {
        for poke in self.lock().get(key).into_iter().flatten() {
            poke.notify_one();
        }
    }

    fn poke_where(&self, wanted: impl Fn(u64) -> bool) {
        let waiting = self.lock();
        for (key, pokes) in waiting.iter() {
            if wanted(waiting.hasher().hash_one(key)) {
                for poke in pokes {
                    poke.notify_one();
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<K>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place among those who wait; dropping it gives the place up.
#[derive(Debug)]
pub struct Watching<K: Eq + Hash + Copy> {
    registry: Arc<Registry<K>>,
    key: K,
    poke: Arc<Notify>,
}

impl<K: Eq + Hash + Copy> Watching<K> {
    /// What is watched.
    pub fn key(&self) -> K {
        self.key
    }

    /// Resolves at the next poke, at once when one came since the last call.
    pub async fn poked(&self) {
        self.poke.notified().await;
    }
}

impl<K: Eq + Hash + Copy> Drop for Watching<K> {
    fn drop(&mut self) {
        let mut waiting = self.registry.lock();
        if let Some(pokes) = waiting.get_mut(&self.key) {
            pokes.retain(|poke| !Arc::ptr_eq(poke, &self.poke));
            if pokes.is_empty() {
                waiting.remove(&self.key);
            }
        }
    }
}

/// Hands notices on until `closing` is cancelled.
pub async fn run(app: &App, closing: CancellationToken) {
    let mut notices = app.bus.subscribe(Topic::Steps).await;
    // What was committed before the subscription stood may have been missed.
    app.watch.poke_all();
    let mut slice = 0;
    let mut moved = HashMap::new();
    let mut tick = app.clock.sleep(POLL);
    loop {
        tokio::select! {
            biased;
            () = closing.cancelled() => return,
            // Before the notices, which may never cease to come.
            () = &mut tick => {
                if app.bus.is_available() {
                    moved.clear();
                    app.watch.poke_slice(slice);
                    slice = (slice + 1) % SLICES;
                } else {
                    app.watch.poll(app, &mut moved).await;
                }
                tick = app.clock.sleep(POLL);
            }
            notice = notices.next() => match notice {
                Some(Notice::Payload(payload)) => {
                    match serde_json::from_slice::<Vec<StepNotice>>(&payload) {
                        Ok(steps) => steps.iter().for_each(|step| app.watch.heard(step)),
                        Err(error) => tracing::debug!(error = %error, "a notice makes no sense"),
                    }
                }
                Some(Notice::Gap) => app.watch.poke_all(),
                None => {
                    app.clock.sleep(POLL).await;
                    notices = app.bus.subscribe(Topic::Steps).await;
                    app.watch.poke_all();
                }
            },
        }
    }
}

/// Whether `?wait` has nothing more to wait for: the send is final, or only a person or a tool can
/// move it.
pub fn settled(send: &SendRecord) -> bool {
    let asks = matches!(
        send.waiting_on,
        Some(WaitingOn::Human | WaitingOn::Tool | WaitingOn::Recovery)
    );
    send.status.is_final() || asks
}

/// Whether a wait for the send is over. One whose questions are all answered is about to go on,
/// although no worker has taken it yet: whoever has just answered waits for what follows.
async fn is_over(app: &App, send: &SendRecord) -> bool {
    if !settled(send) {
        return false;
    }
    match send.waiting_on {
        Some(WaitingOn::Human | WaitingOn::Tool) => {
            let round = app.store.read_round(send.key, send.id, send.rounds - 1);
            // Without an answer the send is shown as it is.
            let calls = round.await.unwrap_or_default();
            calls.is_empty() || calls.iter().any(|call| call.waits_on.is_some())
        }
        _ => true,
    }
}

/// Waits until the send is settled, `wait` has passed or this process stops, and returns it as it
/// then is. `known` is what was read after `watching` began; without it the first look comes with
/// the first poke.
pub async fn wait_for(
    app: &App,
    watching: &Watching<SendId>,
    tenant: TenantId,
    known: Option<SendRecord>,
    wait: Duration,
) -> Result<Option<SendRecord>, Error> {
    let mut known = known;
    let mut over = app.clock.sleep(wait);
    let mut stopping = Box::pin(app.lifecycle.stopping());
    loop {
        if let Some(send) = &known
            && is_over(app, send).await
        {
            return Ok(known);
        }
        let last = tokio::select! {
            biased;
            () = watching.poked() => false,
            () = &mut over => true,
            () = &mut stopping => true,
        };
        match app.watch.read_send(tenant, watching.key).await {
            Ok(Some(send)) if last => return Ok(Some(send)),
            Ok(Some(send)) => known = Some(send),
            Ok(None) => return Ok(None),
            // A later poke looks again; only the last look has to answer.
            Err(error) if last => return known.map(Some).ok_or(error),
            Err(_) => {}
        }
    }
}

/// A send that exists already, once it is settled or the wait is over.
pub async fn watched(
    app: &App,
    watching: Watching<SendId>,
    tenant: TenantId,
    wait: Duration,
) -> Result<Option<SendRecord>, Error> {
    match app.watch.read_send(tenant, watching.key).await? {
        None => Ok(None),
        known => wait_for(app, &watching, tenant, known, wait).await,
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use mainspring_runtime::SystemClock;
    use mainspring_shared::id::SessionId;
    use mainspring_store_model::ModelStore;
    use uuid::Uuid;

    use super::*;

    fn watch() -> Watch {
        Watch::new(Arc::new(ModelStore::open(Arc::new(SystemClock::new()))))
    }

    fn notice(n: u128, settled: bool) -> StepNotice {
        let key = SessionKey {
            tenant: TenantId::DEFAULT,
            session: SessionId(Uuid::from_u128(n)),
        };
        StepNotice {
            key,
            send: SendId(Uuid::from_u128(n)),
            n: 1,
            settled,
        }
    }

    #[tokio::test]
    async fn a_settled_notice_pokes_who_waits_for_that_send_only() {
        let watch = watch();
        let one = watch.send(SendId(Uuid::from_u128(1)));
        let other = watch.send(SendId(Uuid::from_u128(2)));
        watch.heard(&notice(1, false));
        assert!(one.poked().now_or_never().is_none());
        watch.heard(&notice(1, true));
        assert!(one.poked().now_or_never().is_some());
        assert!(other.poked().now_or_never().is_none());
    }

    #[tokio::test]
    async fn pokes_that_nobody_took_are_one_poke() {
        let watch = watch();
        let one = watch.session(notice(1, false).key);
        watch.heard(&notice(1, false));
        watch.heard(&notice(1, true));
        assert!(one.poked().now_or_never().is_some());
        assert!(one.poked().now_or_never().is_none());
    }

    #[tokio::test]
    async fn every_waiter_is_poked_once_within_the_safety_interval() {
        let watch = watch();
        let all: Vec<_> = (0..100)
            .map(|n| watch.send(SendId(Uuid::from_u128(n))))
            .collect();
        (0..SLICES).for_each(|slice| watch.poke_slice(slice));
        assert!(all.iter().all(|one| one.poked().now_or_never().is_some()));
        assert_eq!(SAFETY, Duration::from_secs(2));
    }

    #[tokio::test]
    async fn who_leaves_is_forgotten() {
        let watch = watch();
        let one = watch.send(SendId(Uuid::from_u128(1)));
        let two = watch.send(SendId(Uuid::from_u128(1)));
        drop(one);
        assert_eq!(watch.sends.lock().len(), 1);
        drop(two);
        assert!(watch.sends.lock().is_empty());
    }
}
