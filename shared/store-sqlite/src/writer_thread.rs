//! The writer thread.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use futures::executor::block_on;
use futures::future::BoxFuture;
use mainspring_store_core::db::Commit;

type Work = BoxFuture<'static, ()>;

/// Runs transactions one at a time, in the order in which they were submitted, on a separate
/// thread: neither their statements nor waiting for the disk blocks an async task. Renewals of
/// leases go first. The thread ends once this is dropped and all of them are done.
#[derive(Debug)]
pub(crate) struct WriterThread {
    turns: Sender<()>,
    queue: Arc<Mutex<Queue>>,
    waiting: Arc<AtomicU32>,
}

/// Work that waits for its turn; each turn takes one.
#[derive(Default)]
struct Queue {
    renewals: VecDeque<Work>,
    others: VecDeque<Work>,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue")
            .field("renewals", &self.renewals.len())
            .field("others", &self.others.len())
            .finish()
    }
}

impl WriterThread {
    pub(crate) fn start() -> io::Result<Self> {
        let (turns, taken) = channel::<()>();
        let queue: Arc<Mutex<Queue>> = Arc::default();
        let theirs = Arc::clone(&queue);
        std::thread::Builder::new()
            .name("sqlite-writer".to_owned())
            .spawn(move || {
                for () in taken {
                    let next = {
                        let mut queue = theirs.lock().unwrap_or_else(PoisonError::into_inner);
                        queue
                            .renewals
                            .pop_front()
                            .or_else(|| queue.others.pop_front())
                    };
                    if let Some(work) = next {
                        block_on(work);
                    }
                }
            })?;
        Ok(Self {
            turns,
            queue,
            waiting: Arc::default(),
        })
    }

    /// Submits work to run after everything of its kind that was submitted before. It must not
    /// panic.
    pub(crate) fn submit(&self, commit: Commit, work: Work) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = self.waiting.clone();
        let work = Box::pin(async move {
            waiting.fetch_sub(1, Ordering::Relaxed);
            work.await;
        });
        {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            match commit {
                Commit::Renewal => queue.renewals.push_back(work),
                Commit::Durable | Commit::Relaxed => queue.others.push_back(work),
            }
        }
        // The thread lives for as long as there is a sender.
        let _ = self.turns.send(());
    }

    /// The number of transactions that wait now.
    pub(crate) fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewal_is_let_go_before_what_waits() {
        let thread = WriterThread::start().expect("a thread");
        let (began, begun) = channel();
        let (open, opened) = channel::<()>();
        let (tell, told) = channel();
        thread.submit(
            Commit::Durable,
            Box::pin(async move {
                began.send(()).expect("the test waits");
                let _ = opened.recv();
            }),
        );
        begun.recv().expect("it runs");
        for (name, commit) in [
            ("one", Commit::Durable),
            ("two", Commit::Relaxed),
            ("renewal", Commit::Renewal),
        ] {
            let tell = tell.clone();
            thread.submit(
                commit,
                Box::pin(async move { tell.send(name).expect("a listener") }),
            );
        }
        assert_eq!(thread.waiting(), 3);
        open.send(()).expect("it waits");
        let order: Vec<_> = told.iter().take(3).collect();
        assert_eq!(order, ["renewal", "one", "two"]);
    }
}
