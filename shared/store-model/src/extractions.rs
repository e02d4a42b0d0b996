//! Pending extractions from conversations.

use async_trait::async_trait;
use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::send::SendStatus;
use mainspring_shared::store::{
    ClaimExtractions, EXTRACT_AGAIN_MS, EndExtraction, Extraction, ExtractionSpec, Extractions,
    NewExtraction, Result, SaveMemory, UsageRow,
};
use mainspring_shared::time::Timestamp;
use uuid::Uuid;

use crate::memories;
use crate::memory::ModelStore;
use crate::state::State;

/// A pending extraction.
#[derive(Debug, Clone)]
pub(crate) struct Owed {
    pub(crate) key: SessionKey,
    pub(crate) spec: ExtractionSpec,
    pool: String,
    due_at: Timestamp,
    attempts: u32,
    token: Option<Uuid>,
}

#[async_trait]
impl Extractions for ModelStore {
    async fn owe_extraction(&self, item: NewExtraction) -> Result<()> {
        let (mut state, now) = self.begin();
        let owed = Owed {
            key: item.key,
            spec: item.spec,
            pool: item.pool,
            due_at: Timestamp(now.0 + EXTRACT_AGAIN_MS),
            attempts: 0,
            token: None,
        };
        let slot = (item.key.tenant, item.send_id);
        state.memory.extractions.entry(slot).or_insert(owed);
        Ok(())
    }

    async fn claim_extractions(&self, claim: ClaimExtractions) -> Result<Vec<Extraction>> {
        let (mut state, now) = self.begin();
        Ok(claims(&mut state, now, &claim))
    }

    async fn end_extraction(&self, item: EndExtraction) -> Result<bool> {
        let (mut state, now) = self.begin();
        Ok(end(&mut state, now, item))
    }
}

fn claims(state: &mut State, now: Timestamp, claim: &ClaimExtractions) -> Vec<Extraction> {
    let mine = state.memory.extractions.iter().filter(|(slot, owed)| {
        owed.pool == claim.pool
            && match claim.only {
                Some(only) => **slot == only && owed.token.is_none(),
                None => owed.due_at <= now,
            }
    });
    let mut due: Vec<_> = mine.map(|(slot, owed)| (owed.due_at, *slot)).collect();
    due.sort();
    due.truncate(claim.limit as usize);
    let mut taken = Vec::new();
    for (_, slot) in due {
        let (tenant, send_id) = slot;
        let status = state.send(tenant, send_id).and_then(|send| {
            let session = state.sessions.get(&send.key)?;
            session.cold.as_ref().map(|_| send.status)
        });
        let Some(owed) = state.memory.extractions.get_mut(&slot) else {
            continue;
        };
        if status.is_some_and(|status| !status.is_final()) {
            owed.due_at = Timestamp(now.0 + EXTRACT_AGAIN_MS);
        } else if status != Some(SendStatus::Completed)
            || owed.spec.is_given_up(owed.attempts, claim.attempts_max)
        {
            state.memory.extractions.remove(&slot);
        } else {
            owed.attempts += 1;
            owed.token = Some(claim.token);
            owed.due_at = now.after(claim.lease);
            taken.push(Extraction {
                key: owed.key,
                send_id,
                spec: owed.spec.clone(),
                attempts: owed.attempts,
            });
        }
    }
    taken
}

fn end(state: &mut State, now: Timestamp, item: EndExtraction) -> bool {
    let tenant = item.key.tenant;
    let slot = (tenant, item.send_id);
    // The session was deleted: rows stored for it would never be removed.
    let session = state.sessions.get(&item.key);
    let Some(session) = session.filter(|session| session.cold.is_some()) else {
        state.memory.extractions.remove(&slot);
        return false;
    };
    let stays = item.stays(session.hot.owner.is_some());
    let owed = state.memory.extractions.get_mut(&slot);
    let Some(owed) = owed.filter(|owed| owed.token == Some(item.token)) else {
        // This attempt does not count, but its model calls cost money.
        pay(state, item.key, item.send_id, item.usage);
        return false;
    };
    if let Some((spec, after)) = stays {
        owed.spec = spec;
        owed.due_at = now.after(after);
        owed.token = None;
    } else {
        state.memory.extractions.remove(&slot);
        let hot = state.sessions.get_mut(&item.key);
        if let Some(spent) = hot.and_then(|session| session.hot.spent.as_mut()) {
            *spent = spent.minus(item.refund);
        }
    }
    for entry in item.saved {
        let item = SaveMemory {
            tenant,
            entry,
            idempotency: None,
        };
        memories::save(state, now, item);
    }
    for change in &item.changed {
        memories::change(state, now, change);
    }
    pay(state, item.key, item.send_id, item.usage);
    true
}

/// Stores the usage of model calls that are not rounds of their send.
fn pay(state: &mut State, key: SessionKey, send: SendId, usage: Vec<UsageRow>) {
    let session = state.sessions.get_mut(&key);
    let Some(session) = session.filter(|session| session.sends.contains_key(&send)) else {
        return;
    };
    for row in usage {
        let slot = (send, row.round, row.attempt);
        session.usage.entry(slot).or_insert(row);
    }
}

/// All extractions.
pub(crate) fn dump(state: &State) -> Vec<(SessionKey, SendId, u32)> {
    let all = state.memory.extractions.iter();
    let mut all: Vec<_> = all
        .map(|((_, send), owed)| (owed.key, *send, owed.attempts))
        .collect();
    all.sort();
    all
}
