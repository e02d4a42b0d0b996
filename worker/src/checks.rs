//! Work that may take long and cannot be interrupted, away from the threads that everything else
//! runs on.

use std::time::Duration;

use mainspring_shared::time::Clock;
use tokio::sync::Semaphore;

/// How long such work is waited for, with its turn. What it does is bounded to a fraction of that
/// by itself; the rest is other work before it.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Pieces of such work at once: it is computation, and more than the cores make it no faster.
static TURNS: Semaphore = Semaphore::const_new(4);

/// Does the work on a thread that may block; none when it took too long, or broke off.
pub(crate) async fn off_thread<T: Send + 'static>(
    clock: &dyn Clock,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let done = async {
        let turn = TURNS.acquire().await.ok()?;
        let work = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(turn);
            done
        });
        work.await.ok()
    };
    tokio::select! {
        done = done => done,
        () = clock.sleep(WAIT_MAX) => None,
    }
}
