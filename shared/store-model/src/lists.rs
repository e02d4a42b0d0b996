//! Lists that agents keep.

use std::collections::VecDeque;

use async_trait::async_trait;
use mainspring_shared::id::{SessionId, TenantId};
use mainspring_shared::list::{List, ListName, WRITES_KEPT, Written, apply};
use mainspring_shared::session::Lifecycle;
use mainspring_shared::store::{DumpList, ListOutcome, Lists, Result, WriteList};
use mainspring_shared::time::Timestamp;

use crate::memory::ModelStore;
use crate::state::State;

#[async_trait]
impl Lists for ModelStore {
    async fn write_list(&self, item: WriteList) -> Result<ListOutcome> {
        let (mut state, now) = self.begin();
        Ok(write(&mut state, now, item))
    }

    async fn read_list(&self, tenant: TenantId, name: ListName) -> Result<List> {
        let (state, _) = self.begin();
        Ok(read(&state, tenant, &name))
    }
}

/// A list and the calls that wrote it, oldest first.
#[derive(Debug, Default)]
pub(crate) struct StoredList {
    list: List,
    writes: VecDeque<(String, Written)>,
}

pub(crate) fn write(state: &mut State, now: Timestamp, item: WriteList) -> ListOutcome {
    let session = state.sessions.get(&item.session);
    if session.is_none_or(|session| session.hot.lifecycle == Lifecycle::Deleted) {
        return ListOutcome::Gone;
    }
    let slot = (item.session.tenant, item.name.key());
    let (list, before) = match state.agents.lists.get(&slot) {
        None => (List::default(), None),
        Some(kept) => {
            let mut writes = kept.writes.iter();
            let before = writes.find(|(call, _)| *call == item.call_id);
            (kept.list.clone(), before.map(|(_, written)| *written))
        }
    };
    if let Some(written) = before {
        return ListOutcome::Written { written, list };
    }
    match apply(&list, item.change, item.bounds, now) {
        Err(refusal) => ListOutcome::Refused(refusal),
        Ok((list, written)) => {
            let kept = state.agents.lists.entry(slot).or_default();
            kept.list = list.clone();
            kept.writes.push_back((item.call_id, written));
            if kept.writes.len() as i64 > WRITES_KEPT {
                kept.writes.pop_front();
            }
            ListOutcome::Written { written, list }
        }
    }
}

pub(crate) fn read(state: &State, tenant: TenantId, name: &ListName) -> List {
    let kept = state.agents.lists.get(&(tenant, name.key()));
    kept.map(|kept| kept.list.clone()).unwrap_or_default()
}

/// Stores an imported list.
pub(crate) fn copy(state: &mut State, tenant: TenantId, name: &ListName, list: List) {
    if list != List::default() {
        let kept = StoredList {
            list,
            writes: VecDeque::new(),
        };
        state.agents.lists.insert((tenant, name.key()), kept);
    }
}

pub(crate) fn delete(state: &mut State, tenant: TenantId, session: SessionId) {
    for name in ListName::of_session(session) {
        state.agents.lists.remove(&(tenant, name.key()));
    }
}

pub(crate) fn dump(state: &State) -> Vec<DumpList> {
    let lists = state.agents.lists.iter().map(|((tenant, name), kept)| {
        let mut calls: Vec<_> = kept.writes.iter().map(|(call, _)| call.clone()).collect();
        calls.sort();
        DumpList {
            tenant: *tenant,
            name: name.clone(),
            list: kept.list.clone(),
            calls,
        }
    });
    lists.collect()
}
