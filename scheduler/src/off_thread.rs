//! Computation on behalf of users, away from the threads that serve.

use std::time::Duration;

use mainspring_shared::time::Clock;
use tokio::runtime::{Handle, RuntimeFlavor};

/// Does the work on a blocking thread; `None` if it took too long or panicked. Work that took too
/// long cannot be stopped: its result is dropped when it ends.
pub(crate) async fn off_thread<T: Send + 'static>(
    clock: &dyn Clock,
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    // A runtime with one thread is a test's or a simulation's, in which nothing else is served.
    if !matches!(
        Handle::current().runtime_flavor(),
        RuntimeFlavor::MultiThread
    ) {
        return Some(work());
    }
    let work = tokio::task::spawn_blocking(work);
    tokio::select! {
        biased;
        done = work => done.ok(),
        () = clock.sleep(limit) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use mainspring_runtime::SystemClock;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn work_that_never_ends_is_given_up_and_nothing_else_waits_for_it() {
        let (stop, stopped) = channel::<()>();
        let (clock, limit) = (SystemClock::new(), Duration::from_millis(20));
        let hung = off_thread(&clock, limit, move || stopped.recv().is_ok());
        // The runtime's only thread is free meanwhile, else this would never be polled.
        assert_eq!(hung.await, None);
        drop(stop);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn work_that_panics_has_no_result() {
        let panics = || -> u8 { panic!("for the test") };
        let limit = Duration::from_mins(1);
        assert_eq!(off_thread(&SystemClock::new(), limit, panics).await, None);
        assert_eq!(off_thread(&SystemClock::new(), limit, || 7).await, Some(7));
    }
}
