//! Group sync: one wait for the disk covers all transactions that were committed meanwhile.
//!
//! A commit only writes to the log. A separate thread then syncs the log, while the writer
//! continues with the next transaction: each round covers the commits before its start. A durable
//! transaction is complete once its round is. Nothing in this process observes data that the disk
//! may still lose: a reader waits for the rounds of all earlier commits, and so does a commit that
//! does not wait for its own.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use futures::future::BoxFuture;
use mainspring_store_core::fault::{Class, Fault, Result};
use tokio::sync::watch;

use crate::driver::Driver;
use crate::fault::fault;

/// Syncs the log to disk.
type Keep = Box<dyn FnMut() -> io::Result<()> + Send>;

/// The state of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SyncState {
    /// The first so many commits are durable.
    Commits(u64),
    /// A sync failed. What is durable is unknown, and a later sync may report success all the same.
    Failed,
}

/// Numbers commits, and tracks which of them are durable. The thread ends once this is dropped.
#[derive(Debug)]
pub(crate) struct LogSync {
    /// The number of the last commit that started and so may be visible.
    last_started: AtomicU64,
    /// The number of the last commit that finished.
    committed: Arc<AtomicU64>,
    durable: watch::Receiver<SyncState>,
    next: Sender<()>,
}

impl LogSync {
    /// Starts the thread for the file of this connection, in WAL mode. Everything that the log
    /// contains already is durable afterwards, whether or not its writer synced it.
    pub(crate) fn start(driver: &mut Driver) -> Result<Self> {
        let unavailable = |error| Fault::database(error, Class::Unavailable);
        let is_busy = driver.number(include_str!("../sql/transaction/write_back.sql"), &[]);
        let is_busy = is_busy.map_err(fault)? != 0;
        // The path as SQLite resolved it, which follows links.
        let mut log = OsString::from(driver.raw().path().unwrap_or_default());
        log.push("-wal");
        let log = OpenOptions::new()
            .write(true)
            .open(log)
            .map_err(unavailable)?;
        if is_busy {
            // A reader prevented the checkpoint, so sync the log instead.
            log.sync_data().map_err(unavailable)?;
        }
        Self::with(Box::new(move || log.sync_data())).map_err(unavailable)
    }

    /// For a file that is only read.
    pub(crate) fn unused() -> Result<Self> {
        let log_sync = Self::with(Box::new(|| Ok(())));
        log_sync.map_err(|error| Fault::database(error, Class::Unavailable))
    }

    fn with(keep: Keep) -> io::Result<Self> {
        let committed = Arc::new(AtomicU64::new(0));
        let (durable, waiting) = watch::channel(SyncState::Commits(0));
        let (next, rounds) = channel();
        std::thread::Builder::new()
            .name("sqlite-disk".to_owned())
            .spawn({
                let committed = committed.clone();
                move || run(&rounds, &committed, &durable, keep)
            })?;
        Ok(Self {
            last_started: AtomicU64::new(0),
            committed,
            durable: waiting,
            next,
        })
    }

    /// Runs a commit, one at a time, and starts a round after it. Returns the number and the result
    /// of the commit.
    pub(crate) fn commit<T>(&self, commit: impl FnOnce() -> T) -> (u64, T) {
        let number = self.last_started.fetch_add(1, Ordering::SeqCst) + 1;
        let done = commit();
        self.committed.store(number, Ordering::SeqCst);
        // A thread that has ended has reported its failure, which `durable` returns.
        let _ = self.next.send(());
        (number, done)
    }

    /// The number of the last commit that may be visible.
    pub(crate) fn last_started(&self) -> u64 {
        self.last_started.load(Ordering::SeqCst)
    }

    /// Waits until the commits up to this number are durable.
    pub(crate) fn durable(&self, number: u64) -> BoxFuture<'static, Result<()>> {
        let mut durable = self.durable.clone();
        Box::pin(async move {
            let is_over = |durable: &SyncState| match durable {
                SyncState::Commits(commits) => *commits >= number,
                SyncState::Failed => true,
            };
            match durable.wait_for(is_over).await.as_deref() {
                Ok(SyncState::Commits(_)) => Ok(()),
                Ok(SyncState::Failed) | Err(_) => Err(failed()),
            }
        })
    }

    /// Fails once the disk has failed.
    pub(crate) fn check(&self) -> Result<()> {
        match *self.durable.borrow() {
            SyncState::Commits(_) => Ok(()),
            SyncState::Failed => Err(failed()),
        }
    }
}

/// The end of each round of a disk in a test, and the news that one has begun.
#[cfg(test)]
pub(crate) type Rounds = (Sender<io::Result<()>>, Receiver<()>);

#[cfg(test)]
impl LogSync {
    /// A disk whose rounds end when and how the test says.
    pub(crate) fn held() -> (Self, Rounds) {
        let (end, ends) = channel();
        let (begun, begins) = channel();
        let ends = std::sync::Mutex::new(ends);
        let keep = move || {
            begun.send(()).expect("the test listens");
            let ends = ends.lock().expect("no panic");
            ends.recv().expect("the test ends it")
        };
        let log_sync = Self::with(Box::new(keep)).expect("a thread");
        (log_sync, (end, begins))
    }
}

fn failed() -> Fault {
    let why = "the disk failed to keep the log of the database: look at it, then start again";
    Fault::database(why, Class::Unavailable)
}

fn run(
    rounds: &Receiver<()>,
    committed: &AtomicU64,
    durable: &watch::Sender<SyncState>,
    mut keep: Keep,
) {
    while rounds.recv().is_ok() {
        // One round covers all of these.
        while rounds.try_recv().is_ok() {}
        let number = committed.load(Ordering::SeqCst);
        if let Err(error) = keep() {
            // The system may have dropped the pages that it could not write, and report success for
            // the next round.
            tracing::error!(
                %error,
                "could not sync the database's log to disk; writes fail until a restart"
            );
            durable.send_replace(SyncState::Failed);
            return;
        }
        durable.send_replace(SyncState::Commits(number));
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn commit(log_sync: &LogSync) -> u64 {
        log_sync.commit(|| ()).0
    }

    /// Whether a commit is not known to be durable: its round is held.
    fn waits(log_sync: &LogSync, number: u64) -> bool {
        log_sync.durable(number).now_or_never().is_none()
    }

    #[tokio::test]
    async fn a_round_is_for_what_was_committed_before_it_began() {
        let (log_sync, (end, begins)) = LogSync::held();
        assert_eq!(log_sync.last_started(), 0);
        log_sync.durable(0).await.expect("nothing to wait for");
        assert_eq!(commit(&log_sync), 1);
        begins.recv().expect("it begins");
        assert_eq!(
            (
                commit(&log_sync),
                commit(&log_sync),
                log_sync.last_started()
            ),
            (2, 3, 3)
        );
        assert!(waits(&log_sync, 1));
        end.send(Ok(())).expect("it waits");
        log_sync.durable(1).await.expect("it is kept");
        begins.recv().expect("a round for both");
        assert!(waits(&log_sync, 2) && waits(&log_sync, 3));
        end.send(Ok(())).expect("it waits");
        log_sync.durable(2).await.expect("it is kept");
        log_sync.durable(3).await.expect("in the same round");
        log_sync.check().expect("it works");
        // A reader that may see an unfinished commit waits for it.
        let (number, seen) = log_sync.commit(|| log_sync.last_started());
        assert_eq!(number, seen);
    }

    #[tokio::test]
    async fn a_disk_that_failed_is_never_believed_again() {
        let (log_sync, (end, begins)) = LogSync::held();
        let first = commit(&log_sync);
        begins.recv().expect("it begins");
        let second = commit(&log_sync);
        end.send(Err(io::Error::other("broken"))).expect("it waits");
        for number in [first, second, commit(&log_sync)] {
            log_sync.durable(number).await.expect_err("it failed");
        }
        log_sync.check().expect_err("it does not");
    }
}
