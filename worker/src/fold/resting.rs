//! Folds that are written while no send of their session is running.
//!
//! No send waits for them: a fold is attached once no worker has the session, even if messages were
//! added meanwhile. If the session was folded or pruned otherwise, the fold is dropped and only its
//! cost is stored. The cost is stored as soon as a worker turns out to have the session, because it
//! is unknown for how long. If a worker crashes, its fold is lost, and the next send that ends
//! begins another one. Notes are saved after the fold is attached, as for a fold that is written
//! during a send.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mainspring_shared::id::SessionKey;
use mainspring_shared::session::fold::plan::Span;
use mainspring_shared::store::{Error as StoreError, FoldAtRest, FoldedAtRest, UsageRow};
use mainspring_shared::usage::Usage;

use super::{Fault, FoldCall, Notebook, Writing, Written};
use crate::Kernel;
use crate::db_retry::Outage;
use crate::hook::{At, Moment};
use crate::metrics;
use crate::writes::publish_step;

/// Maximum number of folds at a time; sends that end beyond that leave it to later ones.
const AT_ONCE: usize = 16;

/// The first and the longest pause while a worker has the session or the database is down, and the
/// number of pauses: about five minutes in all.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(10);
const PAUSES: u32 = 43;

/// The sessions whose folds this worker writes at rest. Each has one at most, since a running send
/// begins none while there is one.
#[derive(Debug, Default)]
pub(crate) struct Resting(Mutex<BTreeSet<SessionKey>>);

impl Resting {
    fn all(&self) -> MutexGuard<'_, BTreeSet<SessionKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a fold of this session is being written.
    pub(crate) fn has(&self, key: SessionKey) -> bool {
        self.all().contains(&key)
    }

    /// Whether a fold of this session may begin.
    pub(crate) fn takes(&self, key: SessionKey) -> bool {
        let all = self.all();
        all.len() < AT_ONCE && !all.contains(&key)
    }
}

/// Removes a session again, however its task ends.
struct RestingGuard<'k>(&'k Kernel, SessionKey);

impl Drop for RestingGuard<'_> {
    fn drop(&mut self) {
        self.0.kept.resting.all().remove(&self.1);
    }
}

/// Spawns the writing and storing of a fold. A fold that is unfinished when the worker stops is
/// dropped.
pub(crate) fn spawn(
    kernel: &Arc<Kernel>,
    at: At,
    item: FoldAtRest,
    (writing, asked, span): (Writing, Option<Box<FoldCall>>, Arc<Span>),
    notebook: Notebook,
) {
    let kernel = Arc::clone(kernel);
    kernel.kept.resting.all().insert(item.key);
    kernel.clone().tasks.runs.spawn(async move {
        let _place = RestingGuard(&kernel, item.key);
        let written = tokio::select! {
            biased;
            written = writing => Some(written),
            () = kernel.lifecycle.stopping() => None,
        };
        let mut written = written;
        let notes = match &mut written {
            Some(Ok(written)) => std::mem::take(&mut written.notes),
            Some(Err(_)) | None => Vec::new(),
        };
        let item = finished(&kernel, item, (written, asked.as_deref(), &span));
        if item.fold.is_none() && item.usage.is_empty() {
            return;
        }
        let stored = store(&kernel, &item).await;
        let (Some(FoldedAtRest::Attached { step }), Some(fold)) = (stored, &item.fold) else {
            return;
        };
        publish_step(&kernel.parts, item.key, item.send_id, step);
        let hooks = &kernel.parts.hooks;
        hooks.observe(at, Moment::FoldStored(fold)).await;
        tokio::select! {
            biased;
            () = kernel.lifecycle.aborting() => {}
            () = notebook.save(notes, item.context_version + 1) => {}
        }
    });
}

/// The item with what was written and what it cost.
fn finished(
    kernel: &Kernel,
    mut item: FoldAtRest,
    (written, asked, span): (Option<Result<Written, Fault>>, Option<&FoldCall>, &Span),
) -> FoldAtRest {
    let (cost, fold): (Option<(String, Usage)>, _) = match written {
        Some(Ok(written)) => {
            let cost = written.reply.as_ref().map(|reply| {
                let usage = asked.map_or(reply.usage, |asked| asked.priced(reply.usage));
                (reply.model.clone(), usage)
            });
            (cost, Some(written.row(span)))
        }
        Some(Err(fault)) => {
            // A fold that a hook forbids is no failure.
            if matches!(fault, Fault::Forbidden(_)) {
                tracing::debug!(
                    session.id = %item.key.session,
                    %fault,
                    "a hook forbade folding a session at rest"
                );
            } else {
                tracing::warn!(
                    session.id = %item.key.session,
                    %fault,
                    "a session at rest could not be folded"
                );
            }
            // Otherwise the next send that ends would request the same fold, and pay for it.
            let digests = fault.is_lasting().then(|| Written::digests(span).row(span));
            (FoldCall::cost(asked, &fault), digests)
        }
        None => (asked.map(FoldCall::estimated), None),
    };
    let usage = cost.map(|(model, usage)| {
        let random = kernel.parts.entropy.random_id();
        let row = UsageRow::of_fold_at_rest(random, model, usage);
        metrics::model_used(&row);
        row
    });
    item.usage.extend(usage);
    item.fold = fold;
    item
}

/// Stores the fold once no worker has the session; `None` if that failed. The cost is stored either
/// way.
async fn store(kernel: &Kernel, item: &FoldAtRest) -> Option<FoldedAtRest> {
    let session = item.key.session;
    let cost = FoldAtRest {
        fold: None,
        ..item.clone()
    };
    let mut is_paid = item.usage.is_empty();
    let mut outage = Outage::new(PAUSE, PAUSE_MAX);
    for _ in 0..PAUSES {
        // If this worker itself has the session, it need not ask for more than that.
        let is_ours = kernel.running.contains(item.key);
        let wanted = if is_ours { &cost } else { item };
        if !is_ours || !is_paid {
            match kernel.parts.store.fold_at_rest(wanted.clone()).await {
                Err(StoreError::Unavailable { .. }) => {}
                Ok(FoldedAtRest::Busy) => is_paid = true,
                Ok(_) if is_ours => is_paid = true,
                Ok(done) => {
                    tracing::debug!(
                        session.id = %session,
                        ?done,
                        "finished the fold of a session at rest"
                    );
                    return Some(done);
                }
                Err(error) => {
                    tracing::warn!(session.id = %session, %error, "could not store a fold");
                    return None;
                }
            }
        }
        let stopping = kernel.lifecycle.stopping();
        if !outage.pause(&kernel.parts, stopping).await {
            break;
        }
    }
    if !is_paid {
        pay(kernel, &cost).await;
    }
    None
}

/// Stores the cost of calls outside a send's rounds whose worker lost the session before a step
/// stored it.
pub(crate) fn spawn_pay(kernel: &Arc<Kernel>, item: FoldAtRest) {
    let kernel = Arc::clone(kernel);
    kernel.clone().tasks.runs.spawn(async move {
        pay(&kernel, &item).await;
    });
}

/// Stores the cost of calls, whoever has the session.
async fn pay(kernel: &Kernel, item: &FoldAtRest) {
    let session = item.key.session;
    let mut outage = Outage::new(PAUSE, PAUSE_MAX);
    for _ in 0..PAUSES {
        match kernel.parts.store.fold_at_rest(item.clone()).await {
            Ok(_) => return,
            Err(StoreError::Unavailable { .. }) => {}
            Err(error) => {
                tracing::warn!(
                    session.id = %session,
                    %error,
                    "could not record the cost of a fold"
                );
                return;
            }
        }
        if !outage
            .pause(&kernel.parts, kernel.lifecycle.aborting())
            .await
        {
            break;
        }
    }
    tracing::warn!(
        session.id = %session,
        "could not record the cost of a fold: the database is unavailable"
    );
}
