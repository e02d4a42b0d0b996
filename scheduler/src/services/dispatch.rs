//! Tells workers which sessions were granted to them, together with the sends.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use mainspring_runtime::buggify;
use mainspring_shared::bus::Topic;
use mainspring_shared::dispatch::Dispatch;
use mainspring_shared::id::BootId;
use mainspring_shared::store::{AcceptSend, Accepted};

use crate::app::App;
use crate::metrics::{DISPATCHED, UNDISPATCHED};

/// The grants of a group of accepts, by worker.
#[derive(Debug, Default)]
pub struct Dispatches(BTreeMap<BootId, Vec<Dispatch>>);

impl Dispatches {
    /// Adds the grant of an accept, if it has one.
    pub fn add(&mut self, item: AcceptSend, accepted: &mut Accepted) {
        if let Some((keeper, dispatch)) = Dispatch::of(item, accepted) {
            self.0.entry(keeper).or_default().push(dispatch);
        }
    }

    /// Tells the workers in the background. If a worker does not listen, its grants are released
    /// and enqueued at once. If that fails or this process dies first, they are released by the
    /// worker's own check of what it owns, or when its lease ends.
    pub fn tell(self, app: &Arc<App>) {
        for (keeper, granted) in self.0 {
            let app = app.clone();
            tokio::spawn(async move { tell(&app, keeper, granted).await });
        }
    }
}

async fn tell(app: &App, keeper: BootId, granted: Vec<Dispatch>) {
    if buggify("dispatch.lost") {
        return;
    }
    let count = granted.len() as u64;
    let json = match serde_json::to_vec(&granted) {
        Ok(json) => Bytes::from(json),
        Err(error) => {
            tracing::error!(%error, "could not serialize a dispatch");
            return;
        }
    };
    if app.bus().tell(Topic::Dispatches(keeper), json).await {
        metrics::counter!(DISPATCHED).increment(count);
        return;
    }
    metrics::counter!(UNDISPATCHED).increment(count);
    app.known.keepers.forget(keeper);
    let leases = granted.iter().map(|dispatch| dispatch.release(keeper));
    match app.store.release_sessions(leases.collect()).await {
        Ok(released) => {
            let free = granted.into_iter().zip(released);
            let free = free.filter(|(_, released)| *released);
            let free = free.map(|(dispatch, _)| dispatch.granted.ready);
            app.notifier.enqueue(free);
        }
        Err(error) => tracing::debug!(boot.id = %keeper, %error, "could not release grants"),
    }
}
