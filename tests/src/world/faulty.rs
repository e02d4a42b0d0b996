//! A store that fails at a chosen write.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use async_trait::async_trait;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use mainspring_shared::store::{
    Agents, BlobRows, Boots, Calibrations, Calls, Error, Extractions, Keys, Leases, Lists,
    McpLists, Memories, Money, Pauses, ProviderKeys, Reads, Result, Runs, Sends, Sessions, Skills,
    Store, Sweeps, TenantErasures, Tenants, Timers, Webhooks,
};
use tokio::sync::watch;

/// What goes wrong at the chosen write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The write does not happen, and the caller is told so.
    FailBefore,
    /// The write happens, but the caller is told that it may not have.
    FailAfter,
    /// The write happens, but the caller is told that it may not have; the next few writes then fail.
    Outage,
    /// The process dies just before the write and makes no further calls.
    DieBefore,
    /// The process dies just after the write.
    DieAfter,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Self; 5] = [
        Self::FailBefore,
        Self::FailAfter,
        Self::Outage,
        Self::DieBefore,
        Self::DieAfter,
    ];
}

/// Which write fails, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultPlan {
    /// The number of the write, from 0.
    pub at: usize,
    /// What happens at that write.
    pub fault: Fault,
}

impl FaultPlan {
    /// No fault.
    pub const NEVER: Self = Self {
        at: usize::MAX,
        fault: Fault::DieBefore,
    };
}

/// Writes that fail in an outage, after the one that started it.
const OUTAGE_WRITES: usize = 3;

/// A store that counts one process's writes and fails one of them.
pub struct Faulty {
    inner: Arc<dyn Store>,
    plan: FaultPlan,
    writes: AtomicUsize,
    failed_method: OnceLock<&'static str>,
    paused: watch::Sender<bool>,
    away: AtomicBool,
    unreadable: Mutex<Option<&'static str>>,
    failing: Mutex<Option<&'static str>>,
    then: Mutex<Option<(&'static str, BoxFuture<'static, ()>)>>,
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faulty")
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}

impl Faulty {
    /// Wraps a store with one planned fault.
    pub fn new(inner: Arc<dyn Store>, plan: FaultPlan) -> Self {
        Self {
            inner,
            plan,
            writes: AtomicUsize::new(0),
            failed_method: OnceLock::new(),
            paused: watch::Sender::new(false),
            away: AtomicBool::new(false),
            unreadable: Mutex::default(),
            failing: Mutex::default(),
            then: Mutex::default(),
        }
    }

    /// Whether the planned write was reached.
    pub fn fired(&self) -> bool {
        self.writes.load(Ordering::SeqCst) > self.plan.at
    }

    /// The number of writes so far.
    pub fn writes(&self) -> usize {
        self.writes.load(Ordering::SeqCst)
    }

    /// The method whose write failed.
    pub fn failed_method(&self) -> Option<&'static str> {
        self.failed_method.get().copied()
    }

    /// Stops the process as `SIGKILL` does: it makes no further calls.
    pub fn kill(&self) {
        self.pause();
    }

    /// Stops the process as `SIGSTOP` does.
    pub fn pause(&self) {
        self.paused.send_replace(true);
    }

    /// Resumes a paused process.
    pub fn wake(&self) {
        self.paused.send_replace(false);
    }

    /// Makes the database unavailable to this process, or available again.
    pub fn set_unavailable(&self, away: bool) {
        self.away.store(away, Ordering::SeqCst);
    }

    /// From now on, reads by this method fail as corrupt in this process.
    pub fn corrupt_reads(&self, name: &'static str) {
        *self.unreadable.lock().expect("nobody panics under it") = Some(name);
    }

    /// From now on, writes by this method fail in this process, as those for a database of several
    /// that is away; or none does again.
    pub fn fail_writes(&self, name: Option<&'static str>) {
        *self.failing.lock().expect("nobody panics under it") = name;
    }

    /// Runs `what` right after the next successful call of this method, before its caller gets the
    /// result.
    pub fn then(&self, name: &'static str, what: impl Future<Output = ()> + Send + 'static) {
        *self.then.lock().expect("nobody panics under it") = Some((name, what.boxed()));
    }

    async fn alive(&self) {
        // The sender lives as long as this store, so the wait cannot fail.
        let _ = self.paused.subscribe().wait_for(|paused| !paused).await;
    }

    async fn write<T>(
        &self,
        name: &'static str,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.alive().await;
        let fails = *self.failing.lock().expect("nobody panics under it") == Some(name);
        if fails || self.away.load(Ordering::SeqCst) {
            return Err(unavailable());
        }
        let call = self.followed(name, call);
        let write = self.writes.fetch_add(1, Ordering::SeqCst);
        let Some(after) = write.checked_sub(self.plan.at) else {
            return call.await;
        };
        if after > 0 {
            let out = self.plan.fault == Fault::Outage && after <= OUTAGE_WRITES;
            return if out { Err(unavailable()) } else { call.await };
        }
        // Each write number occurs only once.
        let _ = self.failed_method.set(name);
        match self.plan.fault {
            Fault::FailBefore => Err(unavailable()),
            Fault::FailAfter | Fault::Outage => {
                call.await?;
                Err(unavailable())
            }
            Fault::DieBefore => {
                self.kill();
                std::future::pending().await
            }
            Fault::DieAfter => {
                call.await?;
                self.kill();
                std::future::pending().await
            }
        }
    }

    async fn followed<T>(
        &self,
        name: &'static str,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let answer = call.await;
        let then = {
            let mut then = self.then.lock().expect("nobody panics under it");
            then.take_if(|(after, _)| *after == name && answer.is_ok())
        };
        if let Some((_, then)) = then {
            then.await;
        }
        answer
    }

    async fn read<T>(
        &self,
        name: &'static str,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.alive().await;
        if self.away.load(Ordering::SeqCst) {
            return Err(unavailable());
        }
        if *self.unreadable.lock().expect("nobody panics under it") == Some(name) {
            return Err(Error::Corrupt {
                table: "rows",
                column: "value",
                row: name.to_owned(),
                detail: "spoilt by the test".to_owned(),
            });
        }
        self.followed(name, call).await
    }
}

fn unavailable() -> Error {
    Error::Unavailable {
        source: "the connection was cut by the test".into(),
    }
}

macro_rules! forward {
    ($noun:ident: $($kind:ident $name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        #[async_trait]
        impl $noun for Faulty {
            $(async fn $name(&self, $($arg: $type),*) -> Result<$out> {
                self.$kind(stringify!($name), self.inner.$name($($arg),*)).await
            })*
        }
    };
}

mainspring_shared::store_methods!(forward);
