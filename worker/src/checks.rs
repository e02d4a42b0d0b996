//! CPU-bound work that may take long and cannot be interrupted, on separate threads so as not to
//! block the runtime.

use std::time::Duration;

use mainspring_shared::time::Clock;
use tokio::sync::Semaphore;

/// How long to wait for such work, including its turn. The work itself is bounded to a fraction of
/// that; the rest is other work before it.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// How many pieces of such work run at once: it is computation, so more than the cores is no
/// faster.
static TURNS: Semaphore = Semaphore::const_new(4);

/// Does the work on a blocking thread; `None` if it took too long or panicked.
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
