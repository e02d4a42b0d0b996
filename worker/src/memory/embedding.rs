//! Embeddings of the entries in the store, computed after they are saved, so that no send waits for
//! them; and of texts for callers of the API.
//!
//! An entry is due from when it is saved until it has a vector. A worker takes due entries,
//! including those that were saved through the API or whose workers crashed, and reserves them for
//! a while. Embedding an entry twice does no harm.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _};
use mainspring_shared::bus::{Notice, Topic};
use mainspring_shared::error::{Code, Coded as _};
use mainspring_shared::id::{SendId, SessionId, TenantId};
use mainspring_shared::memory::{
    Embedded, Embedder, MemoryError, PaidCall, VectorsAsk, VectorsMade,
};
use mainspring_shared::store::{ClaimUnembedded, PaidVectors, SetEmbedding, Unembedded};
use tokio::sync::Semaphore;

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
    let texts = vec![entry.text.clone()];
    // If there is no money for it, it is due again when the lease of this attempt has expired.
    let made = computed(kernel, (entry.tenant, embedder), texts).await;
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
    failed.map_or(Ok(()), Err)
}

/// Computes the vectors of texts, with a tenant's own key if it has one, and with its money.
async fn computed(
    kernel: &Kernel,
    (tenant, embedder): (TenantId, &Arc<dyn Embedder>),
    texts: Vec<String>,
) -> Embedded {
    let parts = &kernel.parts;
    let own = match embedder_of(parts, tenant, embedder).await {
        Ok(own) => own,
        Err(error) => return Embedded::nothing(of_tenant(&error)),
    };
    let expected = own.expected(&texts);
    let mut aside = match vectors_aside(&kernel.money, tenant, &expected).await {
        Ok(aside) => aside,
        Err(why) => {
            return Embedded::nothing(MemoryError::Refused {
                why: why.to_owned(),
            });
        }
    };
    if let Some(aside) = &mut aside {
        aside.begin();
    }
    // A panic fails this call, not the loop.
    let made = AssertUnwindSafe(own.embed(texts)).catch_unwind();
    let mut made = tokio::select! {
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
    if !Arc::ptr_eq(&own, embedder) {
        made.vectors = made.vectors.map_err(|error| of_tenant(&error));
    }
    made
}

/// Computes vectors for schedulers, until the worker has nothing left to do.
pub(crate) async fn answer(kernel: Arc<Kernel>) {
    let mut asks = kernel.parts.bus.subscribe(Topic::Asks).await;
    let places = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        let notice = tokio::select! {
            biased;
            () = kernel.tasks.done.cancelled() => return,
            notice = asks.next() => notice,
        };
        let json = match notice {
            Some(Notice::Payload(json)) => json,
            // A client whose request was lost asks again.
            Some(Notice::Gap) => continue,
            None => return,
        };
        let Ok(ask) = serde_json::from_slice::<VectorsAsk>(&json) else {
            continue;
        };
        let life = kernel.boot.current();
        if life.is_none_or(|life| life.id != ask.boot) {
            continue;
        }
        let topic = Topic::Answers(ask.id);
        let Ok(place) = places.clone().try_acquire_owned() else {
            let detail = "the worker is busy with other vectors".to_owned();
            let code = Code::StoreUnavailable;
            publish(&kernel, topic, &VectorsMade::Refused { code, detail });
            continue;
        };
        let kernel = kernel.clone();
        tokio::spawn(async move {
            publish(&kernel, topic, &asked(&kernel, ask).await);
            drop(place);
        });
    }
}

async fn asked(kernel: &Kernel, ask: VectorsAsk) -> VectorsMade {
    let refused = |error: MemoryError| {
        let code = error.code();
        let (MemoryError::Unavailable { why } | MemoryError::Refused { why }) = error;
        VectorsMade::Refused { code, detail: why }
    };
    let embedder = kernel.parts.sources.memories.embedder();
    let Some(embedder) = embedder.filter(|own| own.name() == ask.model) else {
        return refused(away("the worker does not have this model"));
    };
    let made = computed(kernel, (ask.tenant, &embedder), ask.texts).await;
    let tokens = made.paid.as_ref().map_or(0, |call| call.usage.input_tokens);
    if let Some(call) = made.paid {
        let paid = vec![paid(&kernel.parts, None, call)];
        let stored = kernel.parts.store.pay_for_vectors(ask.tenant, paid).await;
        if let Err(error) = stored {
            let code = error.code().as_str();
            return refused(away(&format!("its cost could not be stored ({code})")));
        }
    }
    match made.vectors {
        Ok(vectors) => VectorsMade::Vectors {
            vectors: vectors.into_iter().map(|made| made.vector).collect(),
            tokens,
        },
        Err(error) => refused(error),
    }
}

fn publish(kernel: &Kernel, topic: Topic, made: &VectorsMade) {
    match serde_json::to_vec(made) {
        Ok(json) => kernel.parts.bus.publish(topic, Bytes::from(json)),
        Err(error) => tracing::error!(%error, "could not serialize vectors"),
    }
}

fn away(why: &str) -> MemoryError {
    MemoryError::Unavailable {
        why: why.to_owned(),
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
