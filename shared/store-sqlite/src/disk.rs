//! The wait for the disk, of all transactions that were committed meanwhile.
//!
//! A commit only writes to the log. A thread of its own then has the disk keep the log, while the writer goes on with the
//! next transaction: each round is for whatever was committed until it began. A durable transaction is over when its round
//! is. Nobody in this process sees what the disk may still lose: whoever reads waits for the rounds of what was committed
//! before, and so does whoever commits without waiting for its own.

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

/// Has the disk keep what was written to the log.
type Keep = Box<dyn FnMut() -> io::Result<()> + Send>;

/// How far the disk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// It has the first so many commits.
    Commits(u64),
    /// It failed. Nobody knows what it has, nor whether it would say so another time.
    Failed,
}

/// Counts commits, and says which of them a power cut cannot undo. The thread ends once this is dropped.
#[derive(Debug)]
pub(crate) struct Disk {
    /// The number of the last commit that may be seen.
    begun: AtomicU64,
    /// That of the last one that is over.
    committed: Arc<AtomicU64>,
    kept: watch::Receiver<Kept>,
    next: Sender<()>,
}

impl Disk {
    /// That of the file that this connection writes to, in WAL mode. What the log has already is on the disk then, whether
    /// or not whoever wrote it saw to that.
    pub(crate) fn start(driver: &mut Driver) -> Result<Self> {
        let unavailable = |error| Fault::database(error, Class::Unavailable);
        let is_busy = driver.number(include_str!("../sql/transaction/write_back.sql"), &[]);
        let is_busy = is_busy.map_err(fault)? != 0;
        // As SQLite calls it, which follows links.
        let mut log = OsString::from(driver.raw().path().unwrap_or_default());
        log.push("-wal");
        let log = OpenOptions::new()
            .write(true)
            .open(log)
            .map_err(unavailable)?;
        if is_busy {
            // Somebody reads what was not written back: the log has to do.
            log.sync_data().map_err(unavailable)?;
        }
        Self::with(Box::new(move || log.sync_data())).map_err(unavailable)
    }

    /// That of a file that is only read.
    pub(crate) fn unused() -> Result<Self> {
        let disk = Self::with(Box::new(|| Ok(())));
        disk.map_err(|error| Fault::database(error, Class::Unavailable))
    }

    fn with(keep: Keep) -> io::Result<Self> {
        let committed = Arc::new(AtomicU64::new(0));
        let (kept, waiting) = watch::channel(Kept::Commits(0));
        let (next, rounds) = channel();
        std::thread::Builder::new()
            .name("sqlite-disk".to_owned())
            .spawn({
                let committed = committed.clone();
                move || run(&rounds, &committed, &kept, keep)
            })?;
        Ok(Self {
            begun: AtomicU64::new(0),
            committed,
            kept: waiting,
            next,
        })
    }

    /// Commits by this, one at a time, and has a round begin behind it. The number of the commit, and what came of it.
    pub(crate) fn commit<T>(&self, commit: impl FnOnce() -> T) -> (u64, T) {
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let done = commit();
        self.committed.store(number, Ordering::SeqCst);
        // A thread that has ended said so, and whoever waits hears it.
        let _ = self.next.send(());
        (number, done)
    }

    /// The number of the last commit that somebody may have seen.
    pub(crate) fn last(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    /// Waits until the disk has the first so many commits.
    pub(crate) fn kept(&self, number: u64) -> BoxFuture<'static, Result<()>> {
        let mut kept = self.kept.clone();
        Box::pin(async move {
            let is_over = |kept: &Kept| match kept {
                Kept::Commits(commits) => *commits >= number,
                Kept::Failed => true,
            };
            match kept.wait_for(is_over).await.as_deref() {
                Ok(Kept::Commits(_)) => Ok(()),
                Ok(Kept::Failed) | Err(_) => Err(failed()),
            }
        })
    }

    /// An error once the disk has failed.
    pub(crate) fn works(&self) -> Result<()> {
        match *self.kept.borrow() {
            Kept::Commits(_) => Ok(()),
            Kept::Failed => Err(failed()),
        }
    }
}

fn failed() -> Fault {
    let why = "the disk failed to keep the log of the database: look at it, then start again";
    Fault::database(why, Class::Unavailable)
}

fn run(rounds: &Receiver<()>, committed: &AtomicU64, kept: &watch::Sender<Kept>, mut keep: Keep) {
    while rounds.recv().is_ok() {
        // One round is for all of these.
        while rounds.try_recv().is_ok() {}
        let number = committed.load(Ordering::SeqCst);
        if let Err(error) = keep() {
            // The system may have dropped what it could not write, and call the next round a success.
            tracing::error!(%error, "the disk failed to keep the log of the database");
            kept.send_replace(Kept::Failed);
            return;
        }
        kept.send_replace(Kept::Commits(number));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;

    /// A disk whose rounds end as the test says.
    fn held() -> (Disk, Sender<io::Result<()>>, Receiver<()>) {
        let (end, ends) = channel();
        let (begun, begins) = channel();
        let ends = Mutex::new(ends);
        let keep = move || {
            begun.send(()).expect("the test listens");
            let ends = ends.lock().expect("no panic");
            ends.recv().expect("the test ends it")
        };
        (Disk::with(Box::new(keep)).expect("a thread"), end, begins)
    }

    fn commit(disk: &Disk) -> u64 {
        disk.commit(|| ()).0
    }

    async fn waits(disk: &Disk, number: u64) -> bool {
        let kept = disk.kept(number);
        tokio::time::timeout(Duration::from_millis(20), kept)
            .await
            .is_err()
    }

    #[tokio::test]
    async fn a_round_is_for_what_was_committed_before_it_began() {
        let (disk, end, begins) = held();
        assert_eq!(disk.last(), 0);
        disk.kept(0).await.expect("nothing to wait for");
        assert_eq!(commit(&disk), 1);
        begins.recv().expect("it begins");
        assert_eq!((commit(&disk), commit(&disk), disk.last()), (2, 3, 3));
        assert!(waits(&disk, 1).await);
        end.send(Ok(())).expect("it waits");
        disk.kept(1).await.expect("it is kept");
        begins.recv().expect("a round for both");
        assert!(waits(&disk, 2).await && waits(&disk, 3).await);
        end.send(Ok(())).expect("it waits");
        disk.kept(2).await.expect("it is kept");
        disk.kept(3).await.expect("in the same round");
        disk.works().expect("it works");
        // Who sees a commit that is not over waits for it.
        let (number, seen) = disk.commit(|| disk.last());
        assert_eq!(number, seen);
    }

    #[tokio::test]
    async fn a_disk_that_failed_is_never_believed_again() {
        let (disk, end, begins) = held();
        let first = commit(&disk);
        begins.recv().expect("it begins");
        let second = commit(&disk);
        end.send(Err(io::Error::other("broken"))).expect("it waits");
        for number in [first, second, commit(&disk)] {
            disk.kept(number).await.expect_err("it failed");
        }
        disk.works().expect_err("it does not");
    }
}
