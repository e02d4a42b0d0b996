//! The stores that can hold a world's rows. Simulated time stands still during each call of a store
//! that has its own threads, and the store is told the simulated time.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::id::TenantId;
use mainspring_shared::store::{
    Agents, BlobRows, Boots, Calibrations, Calls, Dump, Extractions, Inspect, Keys, Leases, Lists,
    McpLists, Memories, Money, Pauses, ProviderKeys, Reads, Result, Runs, Sends, Sessions, Skills,
    Sweeps, TenantErasures, Tenants, Timers, Webhooks,
};
use mainspring_shared::time::{Clock, Timestamp};
use mainspring_store_model::ModelStore;
use mainspring_store_sqlite::SqliteOptions;
use tokio::runtime::Handle;

use crate::databases::{Lent, Server};

/// What holds the rows of a world.
#[derive(Debug)]
pub enum Backing {
    /// The model store.
    Model,
    /// A database.
    Database(Box<Database>),
}

/// A database for one world, with the threads its connections live on. Dropping this returns or
/// removes the database.
pub struct Database {
    store: Option<Arc<dyn Inspect>>,
    threads: Option<tokio::runtime::Runtime>,
    folder: Option<tempfile::TempDir>,
    lent: Option<Lent>,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").finish_non_exhaustive()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.store = None;
        if let Some(threads) = self.threads.take() {
            threads.shutdown_timeout(Duration::from_secs(5));
        }
    }
}

impl Backing {
    /// A SQLite file.
    pub fn sqlite() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let options = SqliteOptions::dir(folder.path());
        let database = Database::with(|opening| {
            opening.block_on(async {
                let store = mainspring_store_sqlite::open(options).await;
                Some(Arc::new(store.expect("a fresh folder")) as Arc<dyn Inspect>)
            })
        });
        let mut database = database.expect("a folder needs no server");
        database.folder = Some(folder);
        Self::Database(Box::new(database))
    }

    /// An empty database on the server of `MAINSPRING_TEST_POSTGRES_URL`; `None` if that is not set.
    pub fn postgres() -> Option<Self> {
        Self::on(Server::Postgres, async |url| {
            let settings = mainspring_store_postgres::Settings::new(url);
            let store = mainspring_store_postgres::PostgresStore::open(&settings).await;
            Arc::new(store.expect("the store opens")) as Arc<dyn Inspect>
        })
    }

    /// Whether there is a server for [`postgres`](Self::postgres).
    pub fn has_postgres() -> bool {
        Server::Postgres.is_given()
    }

    /// Whether there is a server for [`mysql`](Self::mysql).
    pub fn has_mysql() -> bool {
        Server::Mysql.is_given()
    }

    /// An empty database on the server of `MAINSPRING_TEST_MYSQL_URL`; `None` if that is not set.
    pub fn mysql() -> Option<Self> {
        Self::on(Server::Mysql, async |url| {
            let settings = mainspring_store_mysql::Settings::new(url);
            let store = mainspring_store_mysql::open(&settings).await;
            Arc::new(store.expect("the store opens")) as Arc<dyn Inspect>
        })
    }

    /// Runs `test` over one store of each kind: the model store, a SQLite file and, if available, a
    /// Postgres server. For faults outside the store, whose outcome may depend on its kind.
    pub fn each(mut test: impl FnMut(&Self)) {
        let kinds = [
            || Some(Self::Model),
            || Some(Self::sqlite()),
            Self::postgres,
        ];
        for open in kinds {
            if let Some(backing) = open() {
                test(&backing);
            }
        }
    }

    fn on(server: Server, open: impl AsyncFn(String) -> Arc<dyn Inspect> + Sync) -> Option<Self> {
        let mut lent = None;
        let mut database = Database::with(|threads| {
            threads.block_on(async {
                let migrate = async |url: &str| drop(open(url.to_owned()).await);
                lent = server.lend(migrate).await;
                Some(open(lent.as_ref()?.url().to_owned()).await)
            })
        })?;
        database.lent = lent;
        Some(Self::Database(Box::new(database)))
    }

    pub(super) fn open(&self, clock: &Arc<dyn Clock>) -> Arc<dyn Inspect> {
        let clock = clock.clone();
        match self {
            Self::Model => Arc::new(ModelStore::open(clock)),
            Self::Database(database) => Arc::new(Timed {
                inner: database.store.clone().expect("it is open"),
                threads: database
                    .threads
                    .as_ref()
                    .expect("it is open")
                    .handle()
                    .clone(),
                time: Time::Of(clock),
            }),
        }
    }
}

impl Database {
    fn with(open: impl FnOnce(&Handle) -> Option<Arc<dyn Inspect>> + Send) -> Option<Self> {
        let threads = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime starts");
        let store = elsewhere(|| open(threads.handle()));
        Some(Self {
            store: Some(store?),
            threads: Some(threads),
            folder: None,
            lent: None,
        })
    }
}

/// Runs `what` on another thread while this one blocks.
fn elsewhere<T: Send>(what: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let done = scope.spawn(what).join();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The source of a store's time.
#[derive(Debug, Clone)]
enum Time {
    Of(Arc<dyn Clock>),
    Fixed(Timestamp),
}

/// A store that uses the clock of a world.
#[derive(Debug, Clone)]
struct Timed {
    inner: Arc<dyn Inspect>,
    threads: Handle,
    time: Time,
}

impl Timed {
    /// Makes a call on a store whose connections live on its own threads, blocking this thread
    /// meanwhile.
    fn made<T, F: Future<Output = Result<T>>>(
        &self,
        call: impl FnOnce(Arc<dyn Inspect>) -> F,
    ) -> Result<T> {
        let now = match &self.time {
            Time::Of(clock) => clock.now(),
            Time::Fixed(now) => *now,
        };
        let call = call(self.inner.at(now));
        let _there = self.threads.enter();
        // The call completes within one poll of the caller's task, so that task's coop budget is
        // never renewed.
        futures::executor::block_on(tokio::task::unconstrained(call))
    }
}

#[async_trait]
impl Inspect for Timed {
    fn at(&self, now: Timestamp) -> Arc<dyn Inspect> {
        Arc::new(Self {
            time: Time::Fixed(now),
            ..self.clone()
        })
    }

    async fn dump(&self) -> Result<Dump> {
        self.made(|store| async move { store.dump().await })
    }

    async fn rows_of(&self, tenant: TenantId) -> Result<BTreeMap<String, u64>> {
        self.made(|store| async move { store.rows_of(tenant).await })
    }
}

macro_rules! timed {
    ($noun:ident: $($kind:ident $name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        #[async_trait]
        impl $noun for Timed {
            $(async fn $name(&self, $($arg: $type),*) -> Result<$out> {
                self.made(|store| async move { store.$name($($arg),*).await })
            })*
        }
    };
}

mainspring_shared::store_methods!(timed);
