//! The content of pictures and files that messages only name.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use lru::LruCache;
use mainspring_shared::blob::{self, BlobHash, Depot, absent, filled};
use mainspring_shared::error::Coded as _;
use mainspring_shared::id::{SessionKey, TenantId};
use mainspring_shared::message::{ContentPart, Message};
use mainspring_shared::tool::CallResult;

use crate::llm::{Error, Request};
use crate::metrics;

/// Blobs that were read lately, bounded by bytes, over those of the deployment. Content never changes
/// under its name, so that what is here needs no check.
#[derive(Debug)]
pub(crate) struct Content {
    depot: Arc<Depot>,
    bytes_max: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    blobs: LruCache<(TenantId, BlobHash), Bytes>,
    bytes: usize,
}

impl Content {
    pub(crate) fn new(depot: Arc<Depot>, bytes_max: usize) -> Self {
        let inner = Inner {
            blobs: LruCache::unbounded(),
            bytes: 0,
        };
        Self {
            depot,
            bytes_max,
            inner: Mutex::new(inner),
        }
    }

    /// Puts content in the place of its names, as the model is shown it. What is gone or damaged is
    /// replaced by words that say so. A store that is away fails the attempt, which is repeated like
    /// one whose provider is away.
    pub(crate) async fn fill(&self, tenant: TenantId, request: &mut Request) -> Result<(), Error> {
        for message in &mut request.messages {
            if !message.content.iter().any(|part| part.blob().is_some()) {
                continue;
            }
            let mut parts = Vec::with_capacity(message.content.len());
            for part in &message.content {
                parts.push(self.shown(tenant, part).await?);
            }
            *message = Arc::new(Message {
                content: parts,
                ..Message::clone(message)
            });
        }
        Ok(())
    }

    async fn shown(&self, tenant: TenantId, part: &ContentPart) -> Result<ContentPart, Error> {
        let Some(sha256) = part.blob() else {
            return Ok(part.clone());
        };
        match self.read(tenant, sha256).await {
            Ok(Some(data)) => Ok(filled(part, &data)),
            Ok(None) => Ok(absent(part, "its content is gone")),
            Err(blob::Error::Corrupt { .. }) => {
                tracing::error!(blob.sha256 = %sha256, "the blob store gave other content");
                metrics::blob_corrupt();
                Ok(absent(part, "its content is damaged"))
            }
            Err(error) => Err(Error::Content {
                code: error.code(),
                message: error.to_string(),
            }),
        }
    }

    async fn read(&self, tenant: TenantId, sha256: BlobHash) -> Result<Option<Bytes>, blob::Error> {
        let key = (tenant, sha256);
        let known = self.lock().blobs.get(&key).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let read = self.depot.read(tenant, sha256).await?;
        if let Some(data) = &read {
            self.keep(key, data.clone());
        }
        Ok(read)
    }

    fn keep(&self, key: (TenantId, BlobHash), data: Bytes) {
        let mut inner = self.lock();
        inner.bytes += data.len();
        if let Some((_, old)) = inner.blobs.push(key, data) {
            inner.bytes -= old.len();
        }
        while inner.bytes > self.bytes_max {
            let Some((_, gone)) = inner.blobs.pop_lru() else {
                break;
            };
            inner.bytes -= gone.len();
        }
    }

    /// Stores what is large of a call's result before it is stored itself. Where that fails, it stays in
    /// the row.
    pub(crate) async fn spill(&self, session: SessionKey, call_id: &str, result: &mut CallResult) {
        if let Err(error) = self.depot.spill_result(session, call_id, result).await {
            tracing::warn!(%error, "a large part of a result stays in its row");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing between two statements under this lock can panic, so it is never half changed.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
