//! Dispatches: sends that arrive together with the grant of their session.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use mainspring_runtime::buggify;
use mainspring_shared::bus::{Notice, Topic};
use mainspring_shared::dispatch::{self, Dispatch, Told};
use mainspring_shared::store::{ReadySession, ReleaseSession};

use crate::admit::{self, Handed};
use crate::boot::Life;
use crate::{Kernel, strays, writes};

/// The pause before subscribing again after a subscription has ended.
const PAUSE: Duration = Duration::from_millis(20);

/// Starts granted sends until the worker has nothing left to do.
pub(crate) async fn listen(kernel: Arc<Kernel>) {
    loop {
        let life = tokio::select! {
            biased;
            () = kernel.tasks.done.cancelled() => return,
            life = kernel.boot.life() => life,
        };
        listen_in(&kernel, &life).await;
        if !life.lost.is_cancelled() {
            kernel.parts.clock.sleep(PAUSE).await;
        }
    }
}

/// Listens during one boot: nothing is granted to a boot before it says that it keeps a session.
async fn listen_in(kernel: &Arc<Kernel>, life: &Life) {
    let mut notices = kernel.parts.bus.subscribe(Topic::Dispatches(life.id)).await;
    loop {
        let notice = tokio::select! {
            biased;
            () = kernel.tasks.done.cancelled() => return,
            () = life.lost.cancelled() => return,
            notice = notices.next() => notice,
        };
        let json = match notice {
            Some(Notice::Payload(json)) => json,
            // A lost dispatch is found as a stray.
            Some(Notice::Gap) => continue,
            None => return,
        };
        match dispatch::read(&json) {
            Ok(told) => {
                for told in told {
                    match told {
                        Told::Dispatch(dispatch) => begin(kernel, life, *dispatch),
                        Told::Grant(grant) => {
                            tracing::debug!("another release's dispatch cannot be read");
                            give_back(kernel, grant.release(life.id), grant.granted.ready);
                        }
                    }
                }
            }
            Err(error) => tracing::debug!(%error, "could not parse dispatches"),
        }
    }
}

fn begin(kernel: &Arc<Kernel>, life: &Life, dispatch: Dispatch) {
    if buggify("dispatch.unheard") {
        return;
    }
    let age = kernel
        .boot
        .database_time(&kernel.parts)
        .since(dispatch.at());
    // By now it may have been found as a stray and released. If not, another worker need not wait
    // until it is.
    if age >= strays::interval(&kernel.parts.config) / 2 {
        let key = dispatch.key();
        // It may also be a message that arrives for the second time.
        if !kernel.running.contains(key) {
            tracing::debug!(session.id = %key.session, ?age, "a grant arrived too late");
            give_back(kernel, dispatch.release(life.id), dispatch.granted.ready);
        }
        return;
    }
    let handed = Handed {
        life: life.clone(),
        dispatch: Box::new(dispatch),
    };
    let is_closed =
        kernel.lifecycle.is_stopping() || kernel.pauses.now().holds_pool(&kernel.parts.config.pool);
    let declined = if is_closed {
        Some(handed)
    } else {
        admit::hand(kernel, handed)
    };
    if let Some(Handed { life, dispatch }) = declined {
        let release = dispatch.release(life.id);
        give_back(kernel, release, dispatch.granted.ready);
    }
}

/// Releases a session that will not be worked on here, and enqueues it for other workers.
fn give_back(kernel: &Arc<Kernel>, release: ReleaseSession, ready: ReadySession) {
    let (kernel, tasks) = (kernel.clone(), kernel.tasks.runs.clone());
    let released = async move {
        let key = release.key;
        match kernel.writes.release(release).await {
            Ok(_) => writes::enqueue(&kernel.parts, ready),
            Err(error) => {
                tracing::debug!(
                    session.id = %key.session,
                    %error,
                    "could not release a session that was granted; will retry"
                );
            }
        }
    };
    tasks.spawn(released);
}
