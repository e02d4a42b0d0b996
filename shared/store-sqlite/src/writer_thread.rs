//! The writer thread.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};

use futures::executor::block_on;
use futures::future::BoxFuture;

/// Runs transactions one at a time, in the order in which they were submitted, on a separate
/// thread: neither their statements nor waiting for the disk blocks an async task. The thread ends
/// once this is dropped and all of them are done.
#[derive(Debug)]
pub(crate) struct WriterThread {
    next: Sender<BoxFuture<'static, ()>>,
    waiting: Arc<AtomicU32>,
}

impl WriterThread {
    pub(crate) fn start() -> io::Result<Self> {
        let (next, turns) = channel::<BoxFuture<'static, ()>>();
        std::thread::Builder::new()
            .name("sqlite-writer".to_owned())
            .spawn(move || {
                for work in turns {
                    block_on(work);
                }
            })?;
        Ok(Self {
            next,
            waiting: Arc::default(),
        })
    }

    /// Submits work to run after everything submitted before. It must not panic.
    pub(crate) fn submit(&self, work: BoxFuture<'static, ()>) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = self.waiting.clone();
        let work = Box::pin(async move {
            waiting.fetch_sub(1, Ordering::Relaxed);
            work.await;
        });
        // The thread lives for as long as there is a sender.
        let _ = self.next.send(work);
    }

    /// The number of transactions that wait now.
    pub(crate) fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }
}
