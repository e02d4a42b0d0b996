//! The thread that writes.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};

use futures::executor::block_on;
use futures::future::BoxFuture;

/// Transactions, one after the other in the order they came, on a thread of their own: neither their statements nor the
/// wait for the disk holds up a task. The thread ends once this is dropped and all are done.
#[derive(Debug)]
pub(crate) struct Turns {
    next: Sender<BoxFuture<'static, ()>>,
    waiting: Arc<AtomicU32>,
}

impl Turns {
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

    /// Runs this after all that came before. It must not panic.
    pub(crate) fn take(&self, work: BoxFuture<'static, ()>) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = self.waiting.clone();
        let work = Box::pin(async move {
            waiting.fetch_sub(1, Ordering::Relaxed);
            work.await;
        });
        // The thread goes on for as long as it can be reached.
        let _ = self.next.send(work);
    }

    /// How many wait now.
    pub(crate) fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }
}
