//! Dispatches: sends that arrive together with the grant of their session.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use mainspring_runtime::buggify;
use mainspring_shared::bus::{Notice, Topic};
use mainspring_shared::dispatch::Dispatch;

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
        match serde_json::from_slice::<Vec<Dispatch>>(&json) {
            Ok(dispatches) => {
                for dispatch in dispatches {
                    begin(kernel, life, dispatch);
                }
            }
            Err(error) => tracing::debug!(%error, "could not parse a dispatch"),
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
    // By now it may have been found as a stray and released.
    if age >= strays::interval(&kernel.parts.config) / 2 {
        tracing::debug!(
            session.id = %dispatch.key().session,
            ?age,
            "a grant arrived too late; ignoring it"
        );
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
    if let Some(handed) = declined {
        kernel.tasks.runs.spawn(decline(kernel.clone(), handed));
    }
}

/// Releases a session that there is no slot for, and enqueues it for other workers.
async fn decline(kernel: Arc<Kernel>, handed: Handed) {
    let Handed { life, dispatch } = handed;
    match kernel.writes.release(dispatch.release(life.id)).await {
        Ok(_) => writes::enqueue(&kernel.parts, dispatch.granted.ready),
        Err(error) => {
            tracing::debug!(
                session.id = %dispatch.key().session,
                %error,
                "could not release a session that there is no slot for; will retry"
            );
        }
    }
}
