//! Decides when an idle worker polls its lane: when it gets a token from the lane's bell.
//!
//! A push adds as many tokens to the lane's bell, a list, as jobs to the lane. Redis hands each
//! token to the worker that has waited longest, so a job wakes one worker, however many are idle.
//! Tokens are hints. A lost one delays a job by at most a second, because every idle worker checks
//! the lane's length that often; an extra one costs a fetch.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use apalis_core::backend::ext::poll_strategy::{PollSnapshot, PollStrategy};
use futures::task::AtomicWaker;
use mainspring_shared::time::Clock;
use redis::RedisResult;
use redis::aio::MultiplexedConnection;
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

use crate::lane::Keys;
use crate::link::{self, Backoff};
use crate::queue::Core;
use crate::scripts;
use crate::tracked::InFlight;

/// How long a woken worker may take to poll. If it takes longer, it has no free handler, and the
/// token goes to another worker.
const ANSWER_LIMIT: Duration = Duration::from_millis(5);
/// A worker that has fetched nothing for this long is idle. A busy one fetches the next job without
/// a token and leaves the tokens to others.
const SETTLE: Duration = Duration::from_millis(1);

/// Wakes a worker. apalis drops a notification that arrives during a fetch, even though that fetch
/// may have read the lane before the job was pushed, so such a notification is kept until the fetch
/// is over.
pub(crate) struct Doorbell {
    bell: Arc<Bell>,
    in_flight: InFlight,
    _listener: AbortOnDropHandle<()>,
}

/// State shared by the strategy, which apalis polls, and the task that waits for tokens.
#[derive(Default)]
struct Bell {
    rung: AtomicBool,
    waker: AtomicWaker,
    /// Signals that the worker polls, so it has a free handler.
    polled: Notify,
    /// Number of jobs that it has fetched.
    fetched: AtomicU64,
    /// Signals that the worker began a fetch after it was rung for.
    answered: Notify,
}

impl Doorbell {
    /// Starts to wait for tokens, on a separate connection, since a blocked one cannot serve other
    /// commands.
    pub(crate) fn new(core: Arc<Core>, keys: Keys, in_flight: InFlight) -> Self {
        let bell = Arc::new(Bell::default());
        let listener = tokio::spawn(listen(core, keys, Arc::clone(&bell)));
        Self {
            bell,
            in_flight,
            _listener: AbortOnDropHandle::new(listener),
        }
    }
}

impl PollStrategy for Doorbell {
    fn poll_drive(&mut self, cx: &mut Context<'_>, _: &PollSnapshot) -> Poll<Option<()>> {
        self.bell.waker.register(cx.waker());
        if self.in_flight.is_zero() && self.bell.rung.swap(false, Ordering::AcqRel) {
            // The fetch that this poll starts will see the job.
            self.bell.answered.notify_one();
        }
        self.bell.polled.notify_one();
        // apalis ignores this.
        Poll::Pending
    }

    fn on_poll(&mut self, snapshot: &PollSnapshot) {
        self.bell
            .fetched
            .store(snapshot.total_ready, Ordering::Release);
        if self.bell.rung.load(Ordering::Acquire) && self.in_flight.is_zero() {
            self.bell.waker.wake();
        }
    }
}

impl Bell {
    /// Waits until the worker has polled again and fetched nothing.
    async fn idle(&self, clock: &dyn Clock) {
        self.polled.notified().await;
        loop {
            let before = self.fetched.load(Ordering::Acquire);
            clock.sleep(SETTLE).await;
            if self.fetched.load(Ordering::Acquire) == before {
                return;
            }
        }
    }

    /// Wakes the worker. Returns whether it answered.
    async fn ring(&self) -> bool {
        self.rung.store(true, Ordering::Release);
        self.waker.wake();
        let answered = tokio::time::timeout(ANSWER_LIMIT, self.answered.notified()).await;
        if answered.is_ok() {
            return true;
        }
        let taken_back = self.rung.swap(false, Ordering::AcqRel);
        if !taken_back {
            // The worker is just answering. Consume its answer here, or it would count for the next
            // ring too.
            self.answered.notified().await;
        }
        !taken_back
    }
}

/// Takes tokens while the worker wants jobs.
async fn listen(core: Arc<Core>, keys: Keys, bell: Arc<Bell>) {
    let mut backoff = Backoff::new(core.sources.clone(), 50, 1_000);
    loop {
        if let Ok(mut connection) = link::connect(&core.client).await {
            backoff.reset();
            loop {
                bell.idle(core.sources.clock.as_ref()).await;
                if take(&mut connection, &keys, &bell).await.is_err() {
                    break;
                }
            }
        }
        // Jobs may have arrived in the meantime without a token being taken.
        bell.ring().await;
        backoff.wait().await;
    }
}

/// Waits for the next token, for at most a second at a time, and wakes the worker for it.
async fn take(connection: &mut MultiplexedConnection, keys: &Keys, bell: &Bell) -> RedisResult<()> {
    loop {
        let wakes = scripts::wait(connection, keys).await?;
        if !wakes.token && !wakes.jobs {
            continue;
        }
        let answered = bell.ring().await;
        if wakes.token && !answered {
            scripts::hand_on(connection, keys).await?;
        }
        return Ok(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_worker_that_does_not_poll_leaves_the_token_to_another() {
        let bell = Bell::default();
        assert!(!bell.ring().await);
        // A ring without an answer is withdrawn.
        assert!(!bell.rung.load(Ordering::Acquire));
    }

    /// A bell that is being rung, and the pending result of that.
    async fn ringing() -> (Arc<Bell>, tokio::task::JoinHandle<bool>) {
        let bell = Arc::new(Bell::default());
        let ringing = tokio::spawn({
            let bell = Arc::clone(&bell);
            async move { bell.ring().await }
        });
        tokio::task::yield_now().await;
        (bell, ringing)
    }

    #[tokio::test]
    async fn a_worker_that_polls_has_answered() {
        let (bell, ringing) = ringing().await;
        assert!(bell.rung.swap(false, Ordering::AcqRel));
        bell.answered.notify_one();
        assert!(ringing.await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_at_the_last_moment_is_not_one_to_the_next_ring() {
        let (bell, ringing) = ringing().await;
        assert!(bell.rung.swap(false, Ordering::AcqRel));
        // The limit expires between the worker's two writes.
        tokio::time::sleep_until(tokio::time::Instant::now() + ANSWER_LIMIT * 2).await;
        bell.answered.notify_one();
        assert!(ringing.await.unwrap());
        assert!(!bell.ring().await);
    }
}
