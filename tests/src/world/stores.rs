//! The stores that a world's rows may be in. Simulated time stands still during each call of one with
//! threads of its own, and it is told what time it is.

use std::fmt;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::entropy::Entropy as _;
use mainspring_shared::store::{
    Agents, BlobRows, Boots, Calibrations, Calls, Dump, Extractions, Inspect, Leases, Lists,
    Memories, Pauses, Reads, Result, Runs, Sends, Sessions, Skills, Sweeps, Tenants, Timers,
    Webhooks,
};
use mainspring_shared::time::{Clock, Timestamp};
use mainspring_store_model::ModelStore;
use mainspring_store_sqlite::SqliteOptions;
use tokio::runtime::Handle;

use crate::suites::store::harness::environment;

/// Where the rows of a world are.
#[derive(Debug)]
pub enum Backing {
    /// In ordered maps.
    Model,
    /// In a database.
    Database(Box<Database>),
}

/// A database of one world's own, with the threads that its connections live on. It is removed when this is
/// dropped.
pub struct Database {
    store: Option<Arc<dyn Inspect>>,
    threads: Option<tokio::runtime::Runtime>,
    folder: Option<tempfile::TempDir>,
    drop: Option<Command>,
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
        if let Some(mut drop) = self.drop.take() {
            // What stays of a failed test's database is in nobody's way.
            let _ = drop.output();
        }
    }
}

fn client(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

/// Runs a client of a server.
fn run(mut command: Command) {
    let output = command.output().expect("the client runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}

impl Backing {
    /// A file.
    pub fn sqlite() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let options = SqliteOptions::dir(folder.path());
        let mut database = Database::with(|opening| {
            opening.block_on(async {
                let store = mainspring_store_sqlite::open(options).await;
                Arc::new(store.expect("a fresh folder")) as Arc<dyn Inspect>
            })
        });
        database.folder = Some(folder);
        Self::Database(Box::new(database))
    }

    /// A new database on the server of `MAINSPRING_TEST_POSTGRES_URL`; none without one.
    pub fn postgres() -> Option<Self> {
        let url = environment("MAINSPRING_TEST_POSTGRES_URL")?;
        let name = fresh();
        let psql = |sql: String| client("psql", &["-XAtq", "-d", &url, "-c", &sql]);
        run(psql(format!("CREATE DATABASE {name}")));
        let server = url.rsplit_once('/').expect("it names a database").0;
        let settings = mainspring_store_postgres::Settings::new(format!("{server}/{name}"));
        let mut database = Database::with(|opening| {
            opening.block_on(async {
                let store = mainspring_store_postgres::PostgresStore::open(&settings).await;
                Arc::new(store.expect("a fresh database")) as Arc<dyn Inspect>
            })
        });
        database.drop = Some(psql(format!("DROP DATABASE {name} WITH (FORCE)")));
        Some(Self::Database(Box::new(database)))
    }

    /// A new database on the server of `MAINSPRING_TEST_MYSQL_URL`; none without one.
    pub fn mysql() -> Option<Self> {
        let url = environment("MAINSPRING_TEST_MYSQL_URL")?;
        let name = fresh();
        let authority = url.trim_start_matches("mysql://").trim_end_matches('/');
        let (user, address) = authority.split_once('@').expect("the URL names a user");
        let (user, password) = user.split_once(':').unwrap_or((user, ""));
        let (host, port) = address.split_once(':').unwrap_or((address, "3306"));
        let mariadb = |sql: String| {
            let whom = ["--no-defaults", "-h", host, "-P", port, "-u", user];
            let mut command = client("mariadb", &whom);
            command.args(["-e", &sql]).env("MYSQL_PWD", password);
            command
        };
        run(mariadb(format!("CREATE DATABASE {name}")));
        let url = format!("{}/{name}", url.trim_end_matches('/'));
        let mut database = Database::with(|opening| {
            opening.block_on(async {
                let settings = mainspring_store_mysql::Settings::new(url);
                let store = mainspring_store_mysql::open(&settings).await;
                Arc::new(store.expect("a fresh database")) as Arc<dyn Inspect>
            })
        });
        database.drop = Some(mariadb(format!("DROP DATABASE {name}")));
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

fn fresh() -> String {
    let id = mainspring_runtime::OsEntropy.random_id();
    format!("mainspring_test_{}", id.simple())
}

impl Database {
    fn with(open: impl FnOnce(&Handle) -> Arc<dyn Inspect> + Send) -> Self {
        let threads = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime starts");
        let store = elsewhere(|| open(threads.handle()));
        Self {
            store: Some(store),
            threads: Some(threads),
            folder: None,
            drop: None,
        }
    }
}

/// What is done on another thread, while nothing else happens on this one.
fn elsewhere<T: Send>(what: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let done = scope.spawn(what).join();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// What time it is.
#[derive(Debug, Clone)]
enum Time {
    Of(Arc<dyn Clock>),
    Fixed(Timestamp),
}

/// A store over another one whose clock is that of a world.
#[derive(Debug, Clone)]
struct Timed {
    inner: Arc<dyn Inspect>,
    threads: Handle,
    time: Time,
}

impl Timed {
    fn made<T: Send, F: Future<Output = Result<T>> + Send>(
        &self,
        call: impl FnOnce(Arc<dyn Inspect>) -> F,
    ) -> Result<T> {
        let now = match &self.time {
            Time::Of(clock) => clock.now(),
            Time::Fixed(now) => *now,
        };
        let call = call(self.inner.at(now));
        elsewhere(|| self.threads.block_on(call))
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
