//! A store whose database can be made unavailable.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use mainspring_queue_local::LocalBus;
use mainspring_runtime::SystemClock;
use mainspring_shared::id::TenantId;
use mainspring_shared::store::{
    AcceptOutcome, Agents, BlobRows, Boots, Calibrations, Calls, CancelOutcome, DeliverOutcome,
    Dump, Error, Extractions, Inspect, Keys, Leases, Lists, McpLists, Memories, Money, Pauses,
    PostOutcome, ProviderKeys, Reads, Result, Runs, Sends, Sessions, Skills, Sweeps,
    TenantErasures, Tenants, Timers, Webhooks,
};
use mainspring_shared::time::Timestamp;
use mainspring_store_model::ModelStore;
use tokio::sync::Notify;

use crate::world::World;

/// Passes every call on, unless it is away.
#[derive(Debug)]
pub(crate) struct Faulty {
    inner: Arc<dyn Inspect>,
    away: AtomicBool,
    /// Number of calls left whose first item is answered as if its session were locked.
    locked: AtomicUsize,
    calls: Mutex<BTreeMap<&'static str, usize>>,
    /// Number of calls left that fail, by method, and whether they fail because of an unreadable
    /// row.
    failing: Mutex<BTreeMap<&'static str, (usize, bool)>>,
    /// Methods whose next call waits.
    held: Mutex<BTreeMap<&'static str, Arc<Held>>>,
}

/// A call that waits in front of the database.
#[derive(Debug, Default)]
pub(crate) struct Held {
    reached: Notify,
    released: Notify,
}

impl Held {
    /// Waits until there is such a call.
    pub(crate) async fn reached(&self) {
        self.reached.notified().await;
    }

    pub(crate) fn release(&self) {
        self.released.notify_one();
    }
}

impl Faulty {
    pub(crate) fn over(inner: Arc<dyn Inspect>) -> Self {
        Self {
            inner,
            away: AtomicBool::new(false),
            locked: AtomicUsize::new(0),
            calls: Mutex::default(),
            failing: Mutex::default(),
            held: Mutex::default(),
        }
    }

    /// An empty world over a faulty store.
    pub(crate) async fn world() -> (World, Arc<Self>) {
        let store = Arc::new(ModelStore::open(Arc::new(SystemClock::new())));
        let faulty = Arc::new(Self::over(store));
        let world = World::over(faulty.clone(), Arc::new(LocalBus::new())).await;
        (world, faulty)
    }

    /// Makes the next `calls` calls of a method find the database away.
    pub(crate) fn fail_next(&self, name: &'static str, calls: usize) {
        let mut failing = self.failing.lock().expect("nobody panics under it");
        failing.insert(name, (calls, false));
    }

    /// Makes the next `calls` calls of a method hit a row that cannot be read.
    pub(crate) fn corrupt_next(&self, name: &'static str, calls: usize) {
        let mut failing = self.failing.lock().expect("nobody panics under it");
        failing.insert(name, (calls, true));
    }

    /// Makes the next call of a method wait until it is released.
    pub(crate) fn hold_next(&self, name: &'static str) -> Arc<Held> {
        let held = Arc::<Held>::default();
        let mut all = self.held.lock().expect("nobody panics under it");
        all.insert(name, held.clone());
        held
    }

    fn taken(&self, name: &str) -> Option<Arc<Held>> {
        let mut all = self.held.lock().expect("nobody panics under it");
        all.remove(name)
    }

    async fn wait(&self, name: &str) {
        if let Some(held) = self.taken(name) {
            held.reached.notify_one();
            held.released.notified().await;
        }
    }

    pub(crate) fn set_unavailable(&self, away: bool) {
        self.away.store(away, Ordering::SeqCst);
    }

    /// Makes the first item of each of the next `calls` calls find its session locked.
    pub(crate) fn lock_first(&self, calls: usize) {
        self.locked.store(calls, Ordering::SeqCst);
    }

    /// Removes the first item if its session is to be reported as locked; returns whether it did.
    fn part<T>(&self, mut items: Vec<T>) -> (bool, Vec<T>) {
        let left = |calls: usize| calls.checked_sub(1);
        let locks = self
            .locked
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, left);
        if locks.is_ok() {
            items.remove(0);
        }
        (locks.is_ok(), items)
    }

    /// Number of calls of each method.
    pub(crate) fn all_calls(&self) -> BTreeMap<&'static str, usize> {
        self.calls.lock().expect("nobody panics under it").clone()
    }

    /// Number of calls of a method.
    pub(crate) fn calls(&self, name: &str) -> usize {
        let calls = self.calls.lock().expect("nobody panics under it");
        calls.get(name).copied().unwrap_or(0)
    }

    fn inner(&self, name: &'static str) -> Result<&dyn Inspect> {
        *self
            .calls
            .lock()
            .expect("nobody panics under it")
            .entry(name)
            .or_default() += 1;
        let mut failing = self.failing.lock().expect("nobody panics under it");
        let fails = failing.get_mut(name).filter(|(left, _)| *left > 0);
        let fails = fails.map(|(left, of_a_row)| {
            *left -= 1;
            *of_a_row
        });
        if fails == Some(true) {
            return Err(Error::Corrupt {
                table: "sessions",
                column: "lifecycle",
                row: name.to_owned(),
                detail: "it is torn".to_owned(),
            });
        }
        if fails.is_some() || self.away.load(Ordering::SeqCst) {
            return Err(Error::Unavailable {
                source: "the cable is out".into(),
            });
        }
        Ok(self.inner.as_ref())
    }
}

/// Implements a store port. In methods with one item per caller, the first item is answered as if
/// its session were locked, if the test asks for it.
macro_rules! pass_on {
    (@ $noun:ident [$($done:tt)*]) => {
        #[async_trait]
        impl $noun for Faulty { $($done)* }
    };
    (@ $noun:ident [$($done:tt)*] write accept_sends($($args:tt)*) -> $out:ty; $($rest:tt)*) => {
        pass_on! { parted AcceptOutcome accept_sends($($args)*) $noun [$($done)*] $($rest)* }
    };
    (@ $noun:ident [$($done:tt)*] write cancel_sends($($args:tt)*) -> $out:ty; $($rest:tt)*) => {
        pass_on! { parted CancelOutcome cancel_sends($($args)*) $noun [$($done)*] $($rest)* }
    };
    (@ $noun:ident [$($done:tt)*] write deliver_items($($args:tt)*) -> $out:ty; $($rest:tt)*) => {
        pass_on! { parted DeliverOutcome deliver_items($($args)*) $noun [$($done)*] $($rest)* }
    };
    (@ $noun:ident [$($done:tt)*] write post_results($($args:tt)*) -> $out:ty; $($rest:tt)*) => {
        pass_on! { parted PostOutcome post_results($($args)*) $noun [$($done)*] $($rest)* }
    };
    (@ $noun:ident [$($done:tt)*] $kind:ident $name:ident(
        $($arg:ident: $type:ty),*
    ) -> $out:ty; $($rest:tt)*) => {
        pass_on! { @ $noun [$($done)*
            async fn $name(&self $(, $arg: $type)*) -> Result<$out> {
                self.wait(stringify!($name)).await;
                self.inner(stringify!($name))?.$name($($arg),*).await
            }
        ] $($rest)* }
    };
    (parted $told:ident $name:ident(
        $boot:ident: $of:path, $items:ident: $type:ty
    ) $noun:ident [$($done:tt)*] $($rest:tt)*) => {
        pass_on! { @ $noun [$($done)*
            async fn $name(&self, $boot: $of, $items: $type) -> Result<Vec<$told>> {
                let inner = self.inner(stringify!($name))?;
                let (locked, left) = self.part($items);
                let told = inner.$name($boot, left).await?;
                Ok(locked.then_some($told::Locked).into_iter().chain(told).collect())
            }
        ] $($rest)* }
    };
    (parted $told:ident $name:ident(
        $items:ident: $type:ty
    ) $noun:ident [$($done:tt)*] $($rest:tt)*) => {
        pass_on! { @ $noun [$($done)*
            async fn $name(&self, $items: $type) -> Result<Vec<$told>> {
                let inner = self.inner(stringify!($name))?;
                let (locked, left) = self.part($items);
                let told = inner.$name(left).await?;
                Ok(locked.then_some($told::Locked).into_iter().chain(told).collect())
            }
        ] $($rest)* }
    };
    ($noun:ident: $($all:tt)*) => { pass_on! { @ $noun [] $($all)* } };
}

mainspring_shared::store_methods!(pass_on);

#[async_trait]
impl Inspect for Faulty {
    /// The underlying store, which is never away.
    fn at(&self, now: Timestamp) -> Arc<dyn Inspect> {
        self.inner.at(now)
    }

    async fn dump(&self) -> Result<Dump> {
        self.inner.dump().await
    }

    async fn rows_of(&self, tenant: TenantId) -> Result<BTreeMap<String, u64>> {
        self.inner.rows_of(tenant).await
    }
}
