//! Folds that are written while nothing of their session is under way.
//!
//! Whoever asks next waits for nothing: a fold is attached once no worker has the session, behind whatever
//! was said meanwhile. Where the session was folded or pruned otherwise it is dropped, and only what it cost
//! is stored. A worker that dies writes none, and the next send that ends begins another one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mainspring_shared::id::SessionKey;
use mainspring_shared::session::fold::plan::Span;
use mainspring_shared::store::{Error as StoreError, FoldAtRest, FoldedAtRest, UsageRow};
use mainspring_shared::usage::Usage;

use super::{Asked, Fault, Writing, Written};
use crate::Kernel;

/// Folds that are begun at a time; sends that end beyond that leave it to later ones.
const AT_ONCE: usize = 16;

/// Pauses while a worker has the session or the database is away, and how many of them.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSES: u32 = 300;

/// The sessions whose folds are written here at rest.
#[derive(Debug, Default)]
pub(crate) struct Resting(Mutex<BTreeMap<SessionKey, usize>>);

impl Resting {
    fn with<T>(&self, look: impl FnOnce(&mut BTreeMap<SessionKey, usize>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether one is written of this session.
    pub(crate) fn has(&self, key: SessionKey) -> bool {
        self.with(|all| all.contains_key(&key))
    }

    /// Whether one may be begun of this session.
    pub(crate) fn takes(&self, key: SessionKey) -> bool {
        self.with(|all| all.len() < AT_ONCE && !all.contains_key(&key))
    }

    fn enter(&self, key: SessionKey) {
        self.with(|all| *all.entry(key).or_default() += 1);
    }

    fn leave(&self, key: SessionKey) {
        self.with(|all| {
            let left = all.get_mut(&key).map_or(0, |count| {
                *count -= 1;
                *count
            });
            if left == 0 {
                all.remove(&key);
            }
        });
    }
}

/// Takes a session out again, however its task ends.
struct Place<'k>(&'k Kernel, SessionKey);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.kept.resting.leave(self.1);
    }
}

/// Has a fold written and stored. What is not written when the worker stops is dropped.
pub(crate) fn spawn(
    kernel: &Arc<Kernel>,
    item: FoldAtRest,
    (writing, asked, span): (Writing, Option<Asked>, Arc<Span>),
) {
    let kernel = Arc::clone(kernel);
    kernel.kept.resting.enter(item.key);
    kernel.clone().tasks.runs.spawn(async move {
        let _place = Place(&kernel, item.key);
        let written = tokio::select! {
            biased;
            written = writing => Some(written),
            () = kernel.lifecycle.stopping() => None,
        };
        let asked = asked.as_ref();
        let item = finished(&kernel, item, (written, asked, &span));
        if item.fold.is_some() || !item.usage.is_empty() {
            store(&kernel, &item).await;
        }
    });
}

/// The item with what was written and what it cost.
fn finished(
    kernel: &Kernel,
    mut item: FoldAtRest,
    (written, asked, span): (Option<Result<Written, Fault>>, Option<&Asked>, &Span),
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
            tracing::warn!(session.id = %item.key.session, %fault, "no fold of a session at rest");
            (Asked::cost(asked, &fault), None)
        }
        None => (asked.map(Asked::estimated), None),
    };
    let usage = cost.map(|(model, usage)| {
        UsageRow::of_fold_at_rest(kernel.parts.entropy.random_id(), model, usage)
    });
    item.usage.extend(usage);
    item.fold = fold;
    item
}

async fn store(kernel: &Kernel, item: &FoldAtRest) {
    let session = item.key.session;
    for _ in 0..PAUSES {
        match kernel.parts.store.fold_at_rest(item.clone()).await {
            Ok(FoldedAtRest::Busy) | Err(StoreError::Unavailable { .. }) => {}
            Ok(done) => {
                tracing::debug!(session.id = %session, ?done, "a fold of a session at rest");
                return;
            }
            Err(error) => {
                tracing::warn!(session.id = %session, %error, "a fold could not be stored");
                return;
            }
        }
        tokio::select! {
            biased;
            () = kernel.lifecycle.stopping() => return,
            () = kernel.parts.clock.sleep(PAUSE) => {}
        }
    }
}
