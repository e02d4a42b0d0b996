//! Signals to a running send: received from the bus, and at each lease renewal.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures::StreamExt;
use mainspring_shared::bus::{Notice, RunNotice, Topic, WATCHED};
use mainspring_shared::id::{RunKey, SessionKey};
use mainspring_shared::session::{SIGNAL_CANCEL, SIGNAL_INBOX, SIGNAL_INTERRUPT};

use crate::{Kernel, Parts};

/// Listens until the worker has nothing left to do.
pub(crate) async fn listen(kernel: Arc<Kernel>) {
    let mut notices = kernel.parts.bus.subscribe(Topic::Signals).await;
    loop {
        let notice = tokio::select! {
            biased;
            () = kernel.tasks.done.cancelled() => return,
            notice = notices.next() => notice,
        };
        match notice {
            Some(Notice::Payload(json)) => {
                let raised: Vec<(SessionKey, i32)> =
                    serde_json::from_slice(&json).unwrap_or_default();
                for (key, signals) in raised {
                    if signals & WATCHED != 0 {
                        tell(&kernel, key);
                    }
                    if signals != 0 {
                        obey(&kernel, &[(key, signals)]);
                    } else {
                        look(&kernel, key).await;
                    }
                }
            }
            // The next renewal's answer contains whatever was missed.
            Some(Notice::Gap) => {}
            None => return,
        }
    }
}

/// Handles the signals that a renewal returned.
pub(crate) fn obey(kernel: &Kernel, signals: &[(SessionKey, i32)]) {
    for (key, signals) in signals {
        let Some(control) = kernel.running.control(*key) else {
            continue;
        };
        if signals & SIGNAL_CANCEL != 0 {
            control.handles.cancel.cancel();
        }
        if signals & SIGNAL_INBOX != 0 {
            control.handles.news.store(true, Ordering::Relaxed);
        }
        if signals & SIGNAL_INTERRUPT != 0 {
            control.handles.interrupt.notify_one();
        }
    }
}

/// Sends a late reader what the answer in flight contains so far.
fn tell(kernel: &Arc<Kernel>, key: SessionKey) {
    let Some(control) = kernel.running.control(key) else {
        return;
    };
    let said = control.handles.said;
    let clock = kernel.parts.clock.clone();
    if let Some(wait) = said.asked(clock.monotonic()) {
        tokio::spawn(async move {
            clock.sleep(wait).await;
            said.tell(clock.monotonic());
        });
    }
}

/// Looks up what a notice is about: it only says that something changed; the database says what.
async fn look(kernel: &Kernel, key: SessionKey) {
    let Some(control) = kernel.running.control(key) else {
        return;
    };
    let read = kernel
        .parts
        .store
        .get_sends(vec![(key.tenant, control.send)])
        .await;
    match read.map(|mut sends| sends.pop().flatten()) {
        Ok(Some(record)) if record.status.is_final() => control.handles.lost.cancel(),
        Ok(Some(record)) if record.cancel_requested => control.handles.cancel.cancel(),
        Ok(Some(_)) => {}
        Ok(None) => control.handles.lost.cancel(),
        Err(error) => tracing::debug!(%error, "could not read the send that a signal is about"),
    }
}

/// Publishes a session's signals to the worker that runs it.
pub(crate) fn publish(parts: &Parts, key: SessionKey, signals: i32) {
    match serde_json::to_vec(&[(key, signals)]) {
        Ok(json) => parts.bus.publish(Topic::Signals, Bytes::from(json)),
        Err(error) => tracing::error!(%error, "could not serialize a signal"),
    }
}

/// Tells the schedulers that a run has something new.
pub(crate) fn publish_run(parts: &Parts, key: RunKey) {
    match serde_json::to_vec(&[RunNotice { key, step: None }]) {
        Ok(json) => parts.bus.publish(Topic::Runs, Bytes::from(json)),
        Err(error) => tracing::error!(%error, "could not serialize a run's notice"),
    }
}
