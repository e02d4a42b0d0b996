//! Embeddings of the entries in the store, computed after they are saved, so that no send waits for
//! them.
//!
//! An entry is due from when it is saved until it has a vector. A worker takes due entries,
//! including those that were saved through the API or whose workers crashed, and reserves them for
//! a while. Embedding an entry twice does no harm.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use mainspring_shared::error::Coded as _;
use mainspring_shared::id::{SendId, SessionId};
use mainspring_shared::memory::{Embedded, Embedder, MemoryError, PaidCall};
use mainspring_shared::store::{ClaimUnembedded, PaidVectors, SetEmbedding, Unembedded};

use super::builtin::{amount, embedder_of, vectors_aside};
use crate::{Kernel, Parts, metrics};

/// How long a worker reserves entries.
const LEASE: Duration = Duration::from_mins(5);

/// How many entries are taken at once.
const TAKEN_MAX: u32 = 64;

/// How many vectors are computed concurrently.
const AT_ONCE: usize = 8;

/// How long one embedding may take.
const LIMIT: Duration = Duration::from_secs(30);

/// How many consecutive failures make the embeddings count as down.
const FAILURES_MAX: u32 = 3;

/// Computes vectors until the worker stops.
pub(crate) async fn run(kernel: Arc<Kernel>) {
    let parts = &kernel.parts;
    let Some(embedder) = parts.sources.memories.embedder() else {
        return;
    };
    let mut more = false;
    loop {
        if !more {
            tokio::select! {
                biased;
                () = kernel.lifecycle.stopping() => return,
                () = parts.sources.memories.saved() => {}
                () = parts.clock.sleep(parts.config.embed_interval) => {}
            }
        }
        let claim = ClaimUnembedded {
            lease: LEASE,
            limit: TAKEN_MAX,
        };
        let claimed = match parts.store.claim_unembedded(claim).await {
            Ok(claimed) => claimed,
            Err(error) => {
                tracing::debug!(%error, "could not claim memory entries without vectors");
                more = false;
                continue;
            }
        };
        let full = claimed.len() >= TAKEN_MAX as usize;
        // Entries that are not done when the worker stops are due again when the lease has expired.
        let is_there = tokio::select! {
            biased;
            () = kernel.lifecycle.stopping() => return,
            is_there = embed(&kernel, &embedder, claimed) => is_there,
        };
        more = full && is_there;
        if !is_there {
            // New entries must not wake it more often than the polling interval.
            tokio::select! {
                biased;
                () = kernel.lifecycle.stopping() => return,
                () = parts.clock.sleep(parts.config.embed_interval) => {}
            }
        }
    }
}

/// Computes the vectors of these entries. Returns false as soon as the embeddings seem to be down,
/// or if all entries were refused, as happens with a wrong model.
async fn embed(
    kernel: &Arc<Kernel>,
    embedder: &Arc<dyn Embedder>,
    claimed: Vec<Unembedded>,
) -> bool {
    let made = claimed
        .into_iter()
        .map(|entry| one(kernel, embedder, entry));
    let mut made = futures::stream::iter(made).buffer_unordered(AT_ONCE);
    let (mut failures, mut refused, mut done) = (0, 0, 0);
    while let Some(outcome) = made.next().await {
        metrics::embedded(outcome.is_ok());
        match outcome {
            Ok(()) => {
                failures = 0;
                done += 1;
            }
            // An embedder that refuses one text still works for others.
            Err(error @ MemoryError::Refused { .. }) => {
                failures = 0;
                refused += 1;
                tracing::warn!(%error, "could not embed a memory entry");
            }
            Err(error) => {
                failures += 1;
                tracing::warn!(%error, "could not embed a memory entry");
            }
        }
        if failures >= FAILURES_MAX {
            return false;
        }
    }
    done > 0 || refused == 0
}

async fn one(
    kernel: &Arc<Kernel>,
    embedder: &Arc<dyn Embedder>,
    entry: Unembedded,
) -> Result<(), MemoryError> {
    let parts = &kernel.parts;
    let away = |why: &str| MemoryError::Unavailable {
        why: why.to_owned(),
    };
    let own = embedder_of(parts, entry.tenant, embedder).await;
    let own = own.map_err(|error| of_tenant(&error))?;
    let is_own = !Arc::ptr_eq(&own, embedder);
    let embedder = own;
    let texts = vec![entry.text.clone()];
    let expected = embedder.expected(&texts);
    let aside = vectors_aside(&kernel.money, entry.tenant, &expected).await;
    // It is due again when the lease of this attempt has expired.
    let mut aside = aside.map_err(|why| MemoryError::Refused {
        why: why.to_owned(),
    })?;
    if let Some(aside) = &mut aside {
        aside.begin();
    }
    // A panic fails this entry, not the loop.
    let made = AssertUnwindSafe(embedder.embed(texts)).catch_unwind();
    let made = tokio::select! {
        biased;
        made = made => made.unwrap_or_else(|_| Embedded::nothing(away("the embedding provider \
                                                                       crashed"))),
        () = parts.clock.sleep(LIMIT) => Embedded {
            paid: Some(expected),
            ..Embedded::nothing(away("the embedding provider did not respond in time"))
        },
    };
    if let Some(aside) = aside {
        aside.settle(parts, amount(made.paid.as_ref())).await;
    }
    let vector = made.vectors.and_then(|vectors| {
        let first = vectors.into_iter().next();
        first.ok_or_else(|| away("the embedding provider returned no vector"))
    });
    let (embedding, failed) = match vector {
        Ok(embedding) => (Some(embedding), None),
        Err(error) => (None, Some(error)),
    };
    let paid = made.paid.map(|call| {
        let payer = entry.source.map(|it| (it.session_id, it.send_id));
        paid(parts, payer, call)
    });
    if embedding.is_some() || paid.is_some() {
        let item = SetEmbedding {
            tenant: entry.tenant,
            id: entry.id,
            text: entry.text,
            embedding,
            paid,
        };
        // An entry that has changed or was deleted meanwhile does not need this vector.
        let stored = parts.store.set_embedding(item).await;
        stored.map(drop).map_err(|error| {
            let code = error.code().as_str();
            away(&format!("a vector could not be stored ({code})"))
        })?;
    }
    match failed {
        Some(error) if is_own => Err(of_tenant(&error)),
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// A failure with a tenant's own key is no outage for others.
fn of_tenant(error: &MemoryError) -> MemoryError {
    MemoryError::Refused {
        why: error.to_string(),
    }
}

/// The row of an embedding call after the end of the send that pays, or without a payer.
pub(crate) fn paid(
    parts: &Parts,
    payer: Option<(SessionId, SendId)>,
    call: PaidCall,
) -> PaidVectors {
    let paid = PaidVectors {
        id: parts.entropy.ordered_id(),
        payer,
        call,
    };
    metrics::model_used(&paid.row());
    paid
}
