//! Blobs: their rows, and their bytes.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use bytes::Bytes;
use mainspring_shared::blob::{BlobHash, BlobOwner, BlobPlace};
use mainspring_shared::id::{RunKey, SessionKey, TenantId};
use mainspring_shared::store::{
    BeginBlob, BlobRecord, BlobRows, BlobState, DumpBlob, NewBlob, Result, RetireBlobs,
    RetiredBlobs,
};
use mainspring_shared::time::Timestamp;

use crate::memory::ModelStore;
use crate::state::State;

/// Blobs, by tenant and hash, and their bytes.
#[derive(Debug, Default)]
pub(crate) struct BlobTables {
    pub(crate) rows: BTreeMap<(TenantId, BlobHash), Blob>,
    /// Pieces of blobs' bytes.
    pub(crate) chunks: BTreeMap<(BlobPlace, i32), Bytes>,
}

/// A blob's row.
#[derive(Debug)]
pub(crate) struct Blob {
    record: BlobRecord,
    state: BlobState,
    used_at: Timestamp,
    holds: BTreeMap<BlobOwner, Timestamp>,
}

impl Blob {
    /// Drops all holds: the blob is then removed like one that has been unused for long.
    pub(crate) fn let_go(&mut self) {
        self.holds.clear();
        self.used_at = Timestamp(0);
    }

    /// The size of its bytes, if they are stored.
    pub(crate) fn stored_bytes(&self) -> u64 {
        if self.state == BlobState::Stored {
            self.record.bytes
        } else {
            0
        }
    }
}

#[async_trait]
impl BlobRows for ModelStore {
    async fn begin_blob(&self, blob: NewBlob) -> Result<BeginBlob> {
        let (mut state, now) = self.begin();
        let slot = (blob.place.tenant, blob.place.sha256);
        let entry = state.blobs.rows.entry(slot).or_insert_with(|| Blob {
            record: BlobRecord {
                place: blob.place,
                media_type: String::new(),
                bytes: blob.bytes,
                created_at: now,
            },
            state: BlobState::Coming,
            used_at: now,
            holds: BTreeMap::new(),
        });
        let place = entry.record.place;
        if entry.state == BlobState::Going {
            return Ok(BeginBlob::Going(place));
        }
        entry.used_at = now;
        if entry.state == BlobState::Coming {
            entry.record.media_type = blob.media_type;
            return Ok(BeginBlob::Begun(place));
        }
        entry.holds.extend(blob.owner.map(|owner| (owner, now)));
        Ok(BeginBlob::Known)
    }

    async fn finish_blob(&self, place: BlobPlace, owner: Option<BlobOwner>) -> Result<bool> {
        let (mut state, now) = self.begin();
        let found = state.blobs.rows.get_mut(&(place.tenant, place.sha256));
        let found =
            found.filter(|blob| blob.record.place == place && blob.state != BlobState::Going);
        let Some(blob) = found else { return Ok(false) };
        blob.state = BlobState::Stored;
        blob.used_at = now;
        blob.holds.extend(owner.map(|owner| (owner, now)));
        Ok(true)
    }

    async fn hold_blobs(
        &self,
        tenant: TenantId,
        owner: BlobOwner,
        hashes: Vec<BlobHash>,
    ) -> Result<Vec<Option<BlobRecord>>> {
        let (mut state, now) = self.begin();
        let each = hashes.into_iter().map(|hash| {
            let blob = state.blobs.rows.get_mut(&(tenant, hash))?;
            (blob.state == BlobState::Stored).then(|| {
                blob.used_at = now;
                blob.holds.insert(owner, now);
                blob.record.clone()
            })
        });
        Ok(each.collect())
    }

    async fn get_blobs(
        &self,
        tenant: TenantId,
        hashes: Vec<BlobHash>,
    ) -> Result<Vec<Option<BlobRecord>>> {
        let (state, _) = self.begin();
        let each = hashes.into_iter().map(|hash| {
            let blob = state.blobs.rows.get(&(tenant, hash))?;
            (blob.state == BlobState::Stored).then(|| blob.record.clone())
        });
        Ok(each.collect())
    }

    async fn retire_blobs(&self, query: RetireBlobs) -> Result<RetiredBlobs> {
        let (mut state, now) = self.begin();
        let grace = i64::try_from(query.grace.as_millis()).unwrap_or(i64::MAX);
        let before = Timestamp(now.0.saturating_sub(grace));
        let behind = state.blobs.rows.keys().copied();
        let page: Vec<_> = behind
            .filter(|slot| query.after.is_none_or(|after| *slot > after))
            .take(query.limit as usize)
            .collect();
        let mut retired = RetiredBlobs::default();
        for slot in &page {
            let gone = gone(&state, *slot, before);
            let Some(blob) = state.blobs.rows.get_mut(slot) else {
                continue;
            };
            retired.holds += gone.len() as u64;
            blob.holds.retain(|owner, _| !gone.contains(owner));
            if blob.holds.is_empty() && blob.used_at < before {
                blob.state = BlobState::Going;
            }
            if blob.state == BlobState::Going {
                retired.going.push(blob.record.place);
            }
        }
        let last = page.last().copied();
        retired.next = last.filter(|_| page.len() == query.limit as usize);
        Ok(retired)
    }

    async fn forget_blob(&self, place: BlobPlace) -> Result<()> {
        let (mut state, _) = self.begin();
        let slot = (place.tenant, place.sha256);
        let marked = state
            .blobs
            .rows
            .get(&slot)
            .is_some_and(|blob| blob.record.place == place && blob.state == BlobState::Going);
        if marked {
            state.blobs.rows.remove(&slot);
        }
        Ok(())
    }

    async fn write_blob_chunk(&self, place: BlobPlace, n: i32, data: Bytes) -> Result<()> {
        self.begin().0.blobs.chunks.insert((place, n), data);
        Ok(())
    }

    async fn read_blob_chunk(&self, place: BlobPlace, n: i32) -> Result<Option<Bytes>> {
        Ok(self.begin().0.blobs.chunks.get(&(place, n)).cloned())
    }

    async fn drop_blob_chunks(&self, place: BlobPlace, limit: u32) -> Result<u64> {
        let (mut state, _) = self.begin();
        let mine = state.blobs.chunks.range((place, 0)..=(place, i32::MAX));
        let last: Vec<_> = mine.rev().take(limit as usize).map(|(at, _)| *at).collect();
        for at in &last {
            state.blobs.chunks.remove(at);
        }
        Ok(last.len() as u64)
    }
}

/// Owners of holds on a blob from before that time that do not exist.
fn gone(state: &State, slot: (TenantId, BlobHash), before: Timestamp) -> BTreeSet<BlobOwner> {
    let (tenant, _) = slot;
    let there = |owner: BlobOwner| match owner {
        BlobOwner::Session(session) => {
            let session = state.sessions.get(&SessionKey { tenant, session });
            session.is_some_and(|session| session.cold.is_some())
        }
        BlobOwner::Timer(timer) => state.timers.contains_key(&(tenant, timer)),
        BlobOwner::Run(run) => state.runs.rows.contains_key(&RunKey { tenant, run }),
    };
    let holds = state.blobs.rows.get(&slot).into_iter();
    let old = holds.flat_map(|blob| &blob.holds);
    let old = old.filter(|(owner, held_at)| **held_at < before && !there(**owner));
    old.map(|(owner, _)| *owner).collect()
}

/// All blobs.
pub(crate) fn dump(state: &State) -> Vec<DumpBlob> {
    let blobs = state.blobs.rows.values().map(|blob| DumpBlob {
        place: blob.record.place,
        state: blob.state,
        media_type: blob.record.media_type.clone(),
        bytes: blob.record.bytes,
        owners: blob.holds.keys().copied().collect(),
    });
    blobs.collect()
}
