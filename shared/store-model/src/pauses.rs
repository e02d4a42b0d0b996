//! Pauses, and the sends that wait for their end.

use async_trait::async_trait;
use mainspring_shared::id::{SendId, TenantId};
use mainspring_shared::pause::{PauseKey, PauseRecord};
use mainspring_shared::send::{SendStatus, WaitingOn};
use mainspring_shared::store::{
    ListPauses, NewPause, Page, PauseWait, Pauses, RESUMED_KEPT_MS, Result,
};
use mainspring_shared::time::Timestamp;

use crate::memory::ModelStore;
use crate::reads::page;
use crate::sends::SendTables;
use crate::state::State;

/// A pause, in force or ended.
#[derive(Debug)]
pub(crate) struct StoredPause {
    record: PauseRecord,
    resumed_at: Option<Timestamp>,
}

#[async_trait]
impl Pauses for ModelStore {
    async fn pause(&self, item: NewPause) -> Result<PauseRecord> {
        let (mut state, now) = self.begin();
        let before = state.sends.pauses.remove(&item.key);
        let before = before.filter(|kept| kept.resumed_at.is_none());
        let (reason, created_at) = before.map_or((None, now), |kept| {
            (kept.record.reason, kept.record.created_at)
        });
        let record = PauseRecord {
            key: item.key.clone(),
            reason: item.reason.or(reason),
            created_at,
        };
        let kept = StoredPause {
            record: record.clone(),
            resumed_at: None,
        };
        state.sends.pauses.insert(item.key, kept);
        Ok(record)
    }

    async fn resume(&self, key: PauseKey) -> Result<()> {
        let (mut state, now) = self.begin();
        if let Some(kept) = state.sends.pauses.get_mut(&key) {
            kept.resumed_at.get_or_insert(now);
        }
        Ok(())
    }

    async fn list_pauses(&self, query: ListPauses) -> Result<Page<PauseRecord>> {
        let (state, _) = self.begin();
        let live = state.sends.pauses.values();
        let live = live.filter(|kept| kept.resumed_at.is_none());
        let live = live.map(|kept| &kept.record).filter(|record| {
            let is_asked = query.tenant.is_none_or(|only| only == record.key.tenant);
            is_asked && query.after.as_ref().is_none_or(|after| record.key > *after)
        });
        Ok(page(live.cloned(), query.limit))
    }

    async fn await_resume(&self, item: PauseWait) -> Result<()> {
        let (mut state, _) = self.begin();
        state
            .sends
            .pause_waits
            .insert((item.tenant, item.send), item.pause);
        Ok(())
    }

    async fn wake_paused(&self, limit: u32) -> Result<u32> {
        let (mut state, now) = self.begin();
        let ended = ended(&state, limit);
        for (tenant, id) in &ended {
            state.sends.pause_waits.remove(&(*tenant, *id));
            let home = state.sends.homes.get(&(*tenant, *id)).copied();
            let session = home.and_then(|home| state.sessions.get_mut(&home));
            let Some(send) = session.and_then(|session| session.sends.get_mut(id)) else {
                continue;
            };
            let waits =
                send.status == SendStatus::Waiting && send.waiting_on == Some(WaitingOn::Retry);
            if waits {
                send.alarm_at = Some(send.alarm_at.map_or(now, |at| at.min(now)));
            }
        }
        let SendTables {
            pauses,
            pause_waits,
            ..
        } = &mut state.sends;
        pauses.retain(|key, kept| {
            let is_old = |at: Timestamp| at.0 < now.0 - RESUMED_KEPT_MS;
            let is_awaited = pause_waits.values().any(|pause| pause == key);
            is_awaited || !kept.resumed_at.is_some_and(is_old)
        });
        Ok(u32::try_from(ended.len()).unwrap_or(u32::MAX))
    }
}

/// The sends whose pause has ended and that are not running.
fn ended(state: &State, limit: u32) -> Vec<(TenantId, SendId)> {
    let has_ended = |pause: &PauseKey| {
        let kept = state.sends.pauses.get(pause);
        kept.is_some_and(|kept| kept.resumed_at.is_some())
    };
    let runs = |(tenant, id): &(TenantId, SendId)| {
        let send = state.send(*tenant, *id);
        send.is_some_and(|send| send.status == SendStatus::Running)
    };
    let waits = state.sends.pause_waits.iter();
    let ended = waits.filter(|(send, pause)| has_ended(pause) && !runs(send));
    ended.map(|(send, _)| *send).take(limit as usize).collect()
}
