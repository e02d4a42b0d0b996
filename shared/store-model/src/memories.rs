//! Agents' memory.

use std::collections::BTreeMap;

use async_trait::async_trait;
use mainspring_shared::id::{ErasureId, MemoryId, SendId, SessionKey, TenantId};
use mainspring_shared::memory::rank::{Candidate, Placed, compared};
use mainspring_shared::memory::{Embedding, MemoryEntry, Namespace, PaidCall, words};
use mainspring_shared::store::{
    ChangeMemory, ClaimUnembedded, EraseMemories, ErasedMemories, Erasure, ListErasures,
    ListMemories, Memories, Page, PaidVectors, Result, SaveMemory, SaveMemoryOutcome,
    SearchMemories, SetEmbedding, Unembedded,
};
use mainspring_shared::time::Timestamp;
use uuid::Uuid;

use crate::extractions::Owed;
use crate::memory::ModelStore;
use crate::reads::page;
use crate::state::{Seen, State};

/// Agents' memory, and what is still to be extracted into it.
#[derive(Debug, Default)]
pub(crate) struct MemoryTables {
    pub(crate) entries: BTreeMap<(TenantId, MemoryId), StoredMemory>,
    pub(crate) extractions: BTreeMap<(TenantId, SendId), Owed>,
    pub(crate) erasures: BTreeMap<(TenantId, ErasureId), Erasure>,
    /// The cost of vectors that was not charged to a send.
    pub(crate) usage: BTreeMap<(TenantId, Uuid), PaidCall>,
}

/// An entry with its vector.
#[derive(Debug, Clone)]
pub(crate) struct StoredMemory {
    entry: MemoryEntry,
    embedding: Option<Embedding>,
    /// When its vector is to be computed.
    embed_at: Option<Timestamp>,
}

#[async_trait]
impl Memories for ModelStore {
    async fn save_memory(&self, item: SaveMemory) -> Result<SaveMemoryOutcome> {
        let (mut state, now) = self.begin();
        Ok(save(&mut state, now, item))
    }

    async fn change_memory(&self, item: ChangeMemory) -> Result<Option<MemoryEntry>> {
        let (mut state, now) = self.begin();
        Ok(change(&mut state, now, &item))
    }

    async fn delete_memory(
        &self,
        tenant: TenantId,
        within: Option<Namespace>,
        id: MemoryId,
    ) -> Result<bool> {
        let (mut state, _) = self.begin();
        let kept = state.memory.entries.get(&(tenant, id));
        let is_there = kept.is_some_and(|kept| {
            let within = within.as_ref();
            within.is_none_or(|within| within.covers(&kept.entry.namespace))
        });
        if is_there {
            state.memory.entries.remove(&(tenant, id));
        }
        Ok(is_there)
    }

    async fn erase_memories(&self, item: EraseMemories) -> Result<ErasedMemories> {
        let (mut state, now) = self.begin();
        Ok(erase(&mut state, now, item))
    }

    async fn list_erasures(&self, query: ListErasures) -> Result<Page<Erasure>> {
        let (state, _) = self.begin();
        let mine = state.memory.erasures.iter().rev();
        let mine = mine.filter(|((tenant, id), erasure)| {
            let fingerprint = query.fingerprint.as_ref();
            *tenant == query.tenant
                && query.before.is_none_or(|before| *id < before)
                && fingerprint.is_none_or(|wanted| *wanted == erasure.namespace_sha256)
        });
        Ok(page(mine.map(|(_, erasure)| erasure.clone()), query.limit))
    }

    async fn get_memory(&self, tenant: TenantId, id: MemoryId) -> Result<Option<MemoryEntry>> {
        let (state, now) = self.begin();
        Ok(get(&state, now, tenant, id))
    }

    async fn list_memories(&self, query: ListMemories) -> Result<Page<MemoryEntry>> {
        let (state, now) = self.begin();
        let found = live(&state, now, query.tenant).rev().filter(|kept| {
            let within = query.namespace.as_ref();
            within.is_none_or(|within| within.covers(&kept.entry.namespace))
                && query.before.is_none_or(|before| kept.entry.id < before)
        });
        Ok(page(found.map(|kept| kept.entry.clone()), query.limit))
    }

    async fn search_memories(&self, query: SearchMemories) -> Result<Vec<MemoryEntry>> {
        let (state, now) = self.begin();
        Ok(search(&state, now, &query))
    }

    async fn claim_unembedded(&self, claim: ClaimUnembedded) -> Result<Vec<Unembedded>> {
        let (mut state, now) = self.begin();
        let mut due: Vec<_> = state
            .memory
            .entries
            .iter()
            .filter_map(|(key, kept)| Some((kept.embed_at?, *key)))
            .filter(|(at, _)| *at <= now)
            .collect();
        due.sort();
        let claimed = due.into_iter().take(claim.limit as usize);
        let claimed = claimed.filter_map(|(_, key)| {
            let kept = state.memory.entries.get_mut(&key)?;
            kept.embed_at = Some(now.after(claim.lease));
            Some(Unembedded {
                tenant: key.0,
                id: key.1,
                text: kept.entry.text.clone(),
                source: kept.entry.source,
            })
        });
        Ok(claimed.collect())
    }

    async fn set_embedding(&self, item: SetEmbedding) -> Result<bool> {
        let (mut state, _) = self.begin();
        if let Some(paid) = item.paid {
            pay(&mut state, item.tenant, paid);
        }
        let kept = state.memory.entries.get_mut(&(item.tenant, item.id));
        let Some(kept) = kept.filter(|kept| kept.entry.text == item.text) else {
            return Ok(false);
        };
        if item.embedding.is_none() {
            return Ok(false);
        }
        kept.embedding = item.embedding;
        kept.embed_at = None;
        Ok(true)
    }

    async fn pay_for_vectors(&self, tenant: TenantId, paid: Vec<PaidVectors>) -> Result<()> {
        let (mut state, _) = self.begin();
        for one in paid {
            pay(&mut state, tenant, one);
        }
        Ok(())
    }

    async fn expire_memories(&self, limit: u32) -> Result<u64> {
        let (mut state, now) = self.begin();
        let due = state
            .memory
            .entries
            .iter()
            .filter(|(_, kept)| !is_live(kept, now))
            .filter(|((tenant, _), _)| {
                let tenant = state.tenants.rows.get(*tenant);
                !tenant.is_some_and(|tenant| tenant.retention.hold)
            });
        let due: Vec<_> = due.map(|(key, _)| *key).take(limit as usize).collect();
        for key in &due {
            state.memory.entries.remove(key);
        }
        Ok(due.len() as u64)
    }
}

/// Charges the cost of vectors to their send, if it exists.
fn pay(state: &mut State, tenant: TenantId, paid: PaidVectors) {
    if let Some((session, send)) = paid.payer {
        let session = state.sessions.get_mut(&SessionKey { tenant, session });
        let there = session.filter(|it| it.cold.is_some() && it.sends.contains_key(&send));
        if let Some(session) = there {
            let row = paid.row();
            let slot = (send, row.round, row.attempt);
            session.usage.entry(slot).or_insert(row);
            return;
        }
    }
    let first = (tenant, Uuid::nil());
    if let Some(kept) = PaidVectors::kept_from([paid.id]) {
        let old = state.memory.usage.range(first..(tenant, kept));
        let old: Vec<_> = old.map(|(slot, _)| *slot).collect();
        for slot in old {
            state.memory.usage.remove(&slot);
        }
    }
    let slot = (tenant, paid.id);
    state.memory.usage.entry(slot).or_insert(paid.call);
}

fn is_live(kept: &StoredMemory, now: Timestamp) -> bool {
    kept.entry.expires_at.is_none_or(|at| at > now)
}

/// A tenant's entries that have not expired, by id.
fn live(
    state: &State,
    now: Timestamp,
    tenant: TenantId,
) -> impl DoubleEndedIterator<Item = &StoredMemory> {
    let first = (tenant, MemoryId(Uuid::nil()));
    let last = (tenant, MemoryId(Uuid::max()));
    let mine = state.memory.entries.range(first..=last);
    mine.map(|(_, kept)| kept)
        .filter(move |kept| is_live(kept, now))
}

fn get(state: &State, now: Timestamp, tenant: TenantId, id: MemoryId) -> Option<MemoryEntry> {
    let kept = state.memory.entries.get(&(tenant, id))?;
    is_live(kept, now).then(|| kept.entry.clone())
}

pub(crate) fn save(state: &mut State, now: Timestamp, item: SaveMemory) -> SaveMemoryOutcome {
    let tenant = item.tenant;
    let mut id = item.entry.id;
    let mut is_new = !state.memory.entries.contains_key(&(tenant, id));
    match state.seen(item.idempotency.as_ref()) {
        Seen::Never => state.remember(item.idempotency.as_ref(), id.0, now),
        Seen::Before(made) => {
            id = MemoryId(made);
            is_new = false;
        }
        Seen::Mismatch => return SaveMemoryOutcome::Mismatch,
    }
    if is_new {
        let entry = item.entry.at(now);
        let kept = StoredMemory {
            entry: entry.clone(),
            embedding: None,
            embed_at: Some(now),
        };
        state.memory.entries.insert((tenant, id), kept);
        return SaveMemoryOutcome::Saved(entry);
    }
    get(state, now, tenant, id).map_or(SaveMemoryOutcome::Gone, SaveMemoryOutcome::Known)
}

pub(crate) fn change(
    state: &mut State,
    now: Timestamp,
    item: &ChangeMemory,
) -> Option<MemoryEntry> {
    let entry = item.apply(get(state, now, item.tenant, item.id)?, now);
    let kept = state.memory.entries.get_mut(&(item.tenant, item.id))?;
    kept.entry = entry.clone();
    if item.text.is_some() {
        kept.embedding = None;
        kept.embed_at = Some(now);
    }
    Some(entry)
}

fn erase(state: &mut State, now: Timestamp, item: EraseMemories) -> ErasedMemories {
    let within = state.memory.entries.iter().filter(|((tenant, _), kept)| {
        *tenant == item.tenant && item.namespace.covers(&kept.entry.namespace)
    });
    let page: Vec<_> = within
        .map(|(key, _)| *key)
        .take(item.limit as usize)
        .collect();
    for key in &page {
        state.memory.entries.remove(key);
    }
    state.memory.extractions.retain(|(tenant, _), owed| {
        *tenant != item.tenant || !item.namespace.covers(&owed.spec.namespace)
    });
    let erasure = state
        .memory
        .erasures
        .entry((item.tenant, item.erasure))
        .or_insert(Erasure {
            id: item.erasure,
            namespace_sha256: item.fingerprint,
            deleted: 0,
            by: Some(item.by),
            erased_at: now,
        });
    erasure.deleted += page.len() as u64;
    erasure.erased_at = now;
    ErasedMemories {
        deleted: page.len() as u64,
        more: page.len() >= item.limit as usize,
    }
}

fn search(state: &State, now: Timestamp, query: &SearchMemories) -> Vec<MemoryEntry> {
    let within = |kept: &&StoredMemory| query.namespace.covers(&kept.entry.namespace);
    let mine: Vec<&StoredMemory> = live(state, now, query.tenant).filter(within).collect();
    let words = mine.iter().map(|kept| {
        let mut words = words::words(&kept.entry.text);
        // The same words as in an index.
        let levels = kept.entry.namespace.levels();
        words.extend(levels.map(|level| words::place(query.tenant, level)));
        Candidate {
            id: kept.entry.id,
            updated_at: kept.entry.updated_at,
            words,
        }
    });
    let words: Vec<_> = words.collect();
    let asked = query.embedding.as_ref();
    let vectors = mine.iter().filter_map(|kept| {
        let embedding = kept.embedding.as_ref()?;
        (asked.is_some_and(|asked| asked.model == embedding.model)).then(|| Placed {
            id: kept.entry.id,
            updated_at: kept.entry.updated_at,
            vector: embedding.vector.clone(),
        })
    });
    let vectors: Vec<_> = vectors.collect();
    let compared = asked.map_or_else(Vec::new, |asked| compared(&asked.vector, &vectors));
    let found = query.order(&words, &compared);
    let found = found.into_iter();
    found
        .filter_map(|id| get(state, now, query.tenant, id))
        .collect()
}

/// All entries.
pub(crate) fn dump(state: &State) -> Vec<(TenantId, MemoryEntry)> {
    let all = state.memory.entries.iter();
    all.map(|((tenant, _), kept)| (*tenant, kept.entry.clone()))
        .collect()
}

/// All erasures.
pub(crate) fn dump_erasures(state: &State) -> Vec<(TenantId, String, i64)> {
    let all = state.memory.erasures.iter();
    let mut all: Vec<_> = all
        .map(|((tenant, _), one)| {
            let deleted = i64::try_from(one.deleted).unwrap_or(i64::MAX);
            (*tenant, one.namespace_sha256.clone(), deleted)
        })
        .collect();
    all.sort();
    all
}
