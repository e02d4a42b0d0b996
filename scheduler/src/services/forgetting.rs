//! Erases namespaces of the memory.

use mainspring_shared::blob::BlobHash;
use mainspring_shared::id::{ErasureId, TenantId};
use mainspring_shared::memory::Namespace;
use mainspring_shared::store::{EraseMemories, MEMORIES_ERASED_AT_ONCE};

use crate::app::App;
use crate::error::Error;

/// Deletes all entries of a namespace and below it, in small transactions. Returns how many. If it
/// fails halfway, what was deleted stays deleted, and a retry deletes the rest.
pub async fn erase(
    app: &App,
    tenant: TenantId,
    namespace: Namespace,
    by: String,
) -> Result<u64, Error> {
    let item = EraseMemories {
        tenant,
        fingerprint: fingerprint(&namespace),
        namespace,
        by,
        erasure: ErasureId(app.entropy.ordered_id()),
        limit: MEMORIES_ERASED_AT_ONCE,
    };
    let mut deleted = 0;
    loop {
        let step = app.store.erase_memories(item.clone()).await?;
        deleted += step.deleted;
        if !step.more {
            tracing::info!(by = item.by, deleted, "a memory namespace was erased");
            return Ok(deleted);
        }
    }
}

/// A fingerprint of a namespace: it proves an erasure to those who know the name, and reveals
/// nothing to others.
pub fn fingerprint(namespace: &Namespace) -> String {
    BlobHash::of(namespace.as_str().as_bytes()).to_string()
}
