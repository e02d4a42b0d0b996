//! Runs: creating, asking, claiming and advancing them.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use mainspring_shared::agent::SendOptions;
use mainspring_shared::id::{BootId, RunId, RunKey, SendId, SessionKey, TenantId};
use mainspring_shared::send::SendRecord;
use mainspring_shared::session::Lifecycle;
use mainspring_shared::session::transition::{AtRest, Notify, settle};
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, AdvanceOutcome, AdvanceRun, ClaimRuns, ClaimedRuns,
    CreateRunOutcome, DumpRun, EndedLeaf, ListRuns, NewRun, Page, ReadNodes, Result, RunNews,
    RunReport, RunStep, RunWords, Runs, Target, WebhookNews, left_to_run, passes_bound,
};
use mainspring_shared::time::Timestamp;
use mainspring_shared::workflow::run::{NodeRecord, RunAsk, RunRecord};

use crate::memory::ModelStore;
use crate::reads::page;
use crate::sends;
use crate::state::{Seen, State};

#[async_trait]
impl Runs for ModelStore {
    async fn create_runs(&self, items: Vec<NewRun>) -> Result<Vec<CreateRunOutcome>> {
        let (mut state, now) = self.begin();
        let outcomes = items.into_iter().map(|item| create(&mut state, now, &item));
        Ok(outcomes.collect())
    }

    async fn ask_runs(&self, items: Vec<(RunKey, RunAsk)>) -> Result<Vec<bool>> {
        let (mut state, _) = self.begin();
        let outcomes = items
            .into_iter()
            .map(|(key, asked)| ask(&mut state, key, asked));
        Ok(outcomes.collect())
    }

    async fn claim_runs(&self, query: ClaimRuns) -> Result<ClaimedRuns> {
        let (mut state, now) = self.begin();
        Ok(claim(&mut state, now, &query))
    }

    async fn advance_runs(
        &self,
        boot: BootId,
        items: Vec<AdvanceRun>,
    ) -> Result<Vec<AdvanceOutcome>> {
        let (mut state, now) = self.begin();
        let outcomes = items
            .into_iter()
            .map(|item| advance(&mut state, now, boot, item));
        Ok(outcomes.collect())
    }

    async fn release_runs(&self, boot: BootId, keys: Vec<RunKey>) -> Result<()> {
        let (mut state, _) = self.begin();
        release(&mut state, boot, &keys);
        Ok(())
    }

    async fn get_runs(&self, keys: Vec<RunKey>) -> Result<Vec<Option<RunRecord>>> {
        let (state, _) = self.begin();
        let found = keys
            .iter()
            .map(|key| state.runs.rows.get(key).map(|run| run.record.clone()));
        Ok(found.collect())
    }

    async fn read_asks(&self, keys: Vec<RunKey>) -> Result<Vec<Vec<RunAsk>>> {
        let (state, _) = self.begin();
        Ok(keys.iter().map(|key| asks(&state, *key)).collect())
    }

    async fn list_runs(&self, query: ListRuns) -> Result<Page<RunRecord>> {
        let (state, _) = self.begin();
        Ok(list(&state, &query))
    }

    async fn read_nodes(&self, query: ReadNodes) -> Result<Vec<NodeRecord>> {
        let (state, _) = self.begin();
        Ok(nodes(&state, &query))
    }

    async fn forget_runs(&self, keys: Vec<RunKey>) -> Result<u64> {
        let (mut state, _) = self.begin();
        Ok(forget(&mut state, &keys))
    }

    async fn live_leaves(&self, key: RunKey) -> Result<Vec<SendId>> {
        let (state, _) = self.begin();
        Ok(live_leaves(&state, key))
    }

    async fn read_run_steps(&self, key: RunKey, after: i64, limit: u32) -> Result<Vec<RunStep>> {
        let (state, _) = self.begin();
        Ok(steps(&state, key, after, limit))
    }
}

/// Runs, and the counter that numbers the requests to them.
#[derive(Debug, Default)]
pub(crate) struct RunTables {
    pub(crate) rows: BTreeMap<RunKey, Run>,
    /// Number of requests to runs so far.
    pub(crate) asks: i64,
}

/// A run with everything that belongs to it.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) record: RunRecord,
    owner: Option<BootId>,
    /// Claims by new owners since the last advance.
    claims: i32,
    step: i64,
    /// The nodes by path.
    nodes: BTreeMap<String, NodeRecord>,
    asks: BTreeMap<i64, RunAsk>,
    steps: BTreeMap<i64, RunStep>,
}

impl Run {
    /// The run in the form of a dump.
    pub(crate) fn dump(&self) -> DumpRun {
        DumpRun {
            run: self.record.clone(),
            owner: self.owner,
            step: self.step,
            nodes: in_order(self.nodes.values()),
            asks: self.asks.values().cloned().collect(),
            steps: self.steps.values().cloned().collect(),
        }
    }
}

/// Removes final runs. Returns the number of removed rows.
pub(crate) fn forget(state: &mut State, keys: &[RunKey]) -> u64 {
    let mut rows = 0;
    for key in keys {
        let run = state.runs.rows.get(key);
        if let Some(run) = run.filter(|run| run.record.status.is_final()) {
            rows += 1 + run.nodes.len() + run.asks.len() + run.steps.len();
            state.runs.rows.remove(key);
        }
    }
    rows as u64
}

fn in_order<'a>(nodes: impl Iterator<Item = &'a NodeRecord>) -> Vec<NodeRecord> {
    let mut nodes: Vec<NodeRecord> = nodes.cloned().collect();
    nodes.sort_by_key(|node| node.n);
    nodes
}

pub(crate) fn create(state: &mut State, now: Timestamp, new: &NewRun) -> CreateRunOutcome {
    match state.seen(new.idempotency.as_ref()) {
        Seen::Before(run) => return CreateRunOutcome::Replayed(RunId(run)),
        Seen::Mismatch => return CreateRunOutcome::Mismatch,
        Seen::Never => {}
    }
    if let Some(session) = new.session {
        let tenant = new.key.tenant;
        let session = state.sessions.get(&SessionKey { tenant, session });
        if session.is_none_or(|session| session.hot.lifecycle == Lifecycle::Deleted) {
            return CreateRunOutcome::SessionNotFound;
        }
    }
    state.remember(new.idempotency.as_ref(), new.key.run.0, now);
    let record = new.record(now);
    let run = Run {
        record: record.clone(),
        owner: None,
        claims: 0,
        step: 0,
        nodes: BTreeMap::new(),
        asks: BTreeMap::new(),
        steps: BTreeMap::new(),
    };
    state.runs.rows.insert(new.key, run);
    CreateRunOutcome::Created(Box::new(record))
}

pub(crate) fn ask(state: &mut State, key: RunKey, ask: RunAsk) -> bool {
    let Some(run) = state.runs.rows.get_mut(&key) else {
        return false;
    };
    state.runs.asks += 1;
    run.asks.insert(state.runs.asks, ask);
    true
}

pub(crate) fn asks(state: &State, key: RunKey) -> Vec<RunAsk> {
    let run = state.runs.rows.get(&key);
    let asks = run.into_iter().flat_map(|run| run.asks.values());
    asks.cloned().collect()
}

/// Asks the runs of a deleted session to end.
pub(crate) fn cancel_of(state: &mut State, key: SessionKey) {
    let runs = state.runs.rows.values().filter(|run| {
        let record = &run.record;
        record.key.tenant == key.tenant
            && record.session == Some(key.session)
            && !record.status.is_final()
    });
    let keys: Vec<RunKey> = runs.map(|run| run.record.key).collect();
    for run in keys {
        ask(state, run, RunAsk::session_deleted());
    }
}

pub(crate) fn claim(state: &mut State, now: Timestamp, claim: &ClaimRuns) -> ClaimedRuns {
    let ended = ended(state);
    let due = |run: &Run| run.record.alarm_at.is_some_and(|at| at <= now);
    let claimable = state.runs.rows.iter().filter(|(key, run)| {
        let mine = run
            .owner
            .is_none_or(|owner| owner == claim.boot || !state.is_live(owner, now));
        let wanted = run.record.dsl_version <= claim.dsl_max && !claim.aside.contains(key);
        mine && wanted && (due(run) || !run.asks.is_empty() || ended.contains_key(key))
    });
    let mut keys: Vec<(Timestamp, RunKey)> = claimable
        .map(|(key, run)| {
            let last = run.steps.last_key_value().map(|(_, step)| step.at);
            (last.unwrap_or(run.record.created_at), *key)
        })
        .collect();
    keys.sort_unstable();
    keys.truncate(claim.limit as usize);
    let share = claim.share(keys.len()) as usize;
    let mut runs = Vec::with_capacity(keys.len());
    for (_, key) in keys {
        let Some(run) = state.runs.rows.get_mut(&key) else {
            continue;
        };
        if run.owner != Some(claim.boot) {
            run.claims += 1;
        }
        run.owner = Some(claim.boot);
        let claims = run.claims;
        let ends = ended.get(&key).into_iter().flatten();
        let ends: Vec<EndedLeaf> = ends
            .take(share)
            .filter_map(|send| EndedLeaf::of(send.clone()))
            .collect();
        let asks = run.asks.iter().map(|(n, ask)| (*n, ask.clone()));
        let (step, own) = (run.step, u64::from(run.record.counts.live));
        let asks = asks.collect();
        let all = || live(state, key.tenant);
        runs.push(RunNews {
            key,
            step,
            claims,
            ends,
            asks,
            unreadable_asks: Vec::new(),
            unreadable: false,
            live_max: claim.leaves_max.map(|max| left_to_run(max, all(), own)),
        });
    }
    let alarms = state
        .runs
        .rows
        .values()
        .filter_map(|run| run.record.alarm_at);
    ClaimedRuns {
        runs,
        now,
        next_alarm: alarms.filter(|at| *at > now).min(),
    }
}

/// The sends of a run that are not final, by id.
pub(crate) fn live_leaves(state: &State, key: RunKey) -> Vec<SendId> {
    let sessions = state
        .sessions
        .values()
        .filter(|s| s.key.tenant == key.tenant);
    let sends = sessions.flat_map(|session| session.sends.values());
    let live = sends.filter(|send| !send.status.is_final());
    let mine = live.filter(|send| send.run.as_ref().is_some_and(|leaf| leaf.run == key.run));
    let mut ids: Vec<SendId> = mine.map(|send| send.id).collect();
    ids.sort_unstable();
    ids
}

/// Number of leaves in progress in all runs of a tenant. A leaf counts until an advance has
/// recorded its end.
fn live(state: &State, tenant: TenantId) -> u64 {
    let runs = state.runs.rows.iter();
    let runs = runs.filter(|(key, run)| key.tenant == tenant && !run.record.status.is_final());
    runs.map(|(_, run)| u64::from(run.record.counts.live)).sum()
}

/// The final leaves whose end no advance has recorded yet, oldest first.
fn ended(state: &State) -> BTreeMap<RunKey, Vec<SendRecord>> {
    let mut ended: BTreeMap<RunKey, Vec<SendRecord>> = BTreeMap::new();
    for session in state.sessions.values() {
        for send in session.sends.values() {
            if let Some(leaf) = &send.run
                && send.status.is_final()
                && !session.journal.reported.contains(&send.id)
            {
                let key = RunKey {
                    tenant: session.key.tenant,
                    run: leaf.run,
                };
                ended.entry(key).or_default().push(send.clone());
            }
        }
    }
    for sends in ended.values_mut() {
        sends.sort_by_key(|send| (send.finished_at, send.id));
    }
    ended
}

pub(crate) fn advance(
    state: &mut State,
    now: Timestamp,
    boot: BootId,
    item: AdvanceRun,
) -> AdvanceOutcome {
    let key = item.run.key;
    let all = live(state, key.tenant);
    let gone = |start: &AcceptSend| match &start.target {
        Target::Existing(key) => {
            let session = state.sessions.get(key);
            session.is_none_or(|session| session.hot.lifecycle != Lifecycle::Open)
        }
        Target::New(_) => false,
    };
    if item.start.iter().any(gone) {
        return AdvanceOutcome::Lost;
    }
    let run = state.runs.rows.get_mut(&key);
    let Some(run) = run.filter(|run| run.owner == Some(boot) && run.step == item.step) else {
        return AdvanceOutcome::Lost;
    };
    if passes_bound(&item, all, u64::from(run.record.counts.live)) {
        return AdvanceOutcome::NoRoom;
    }
    let is_final = item.run.status.is_final();
    state
        .webhooks
        .news
        .extend(WebhookNews::of_advance(&item, now));
    run.step += 1;
    let step = run.step;
    run.claims = 0;
    run.owner = (!is_final && !item.release).then_some(boot);
    run.record = item.run;
    for node in item.nodes {
        run.nodes.insert(node.path.clone(), node);
    }
    for ask in &item.asks {
        run.asks.remove(ask);
    }
    let changes = RunStep {
        n: step,
        at: now,
        boot,
        changes: item.changes,
    };
    run.steps.insert(step, changes);
    note(state, key, &item.ends.into_iter().collect());
    let mut enqueue = Vec::new();
    for send in item.start {
        if let AcceptOutcome::Accepted(accepted) = sends::accept(state, now, boot, send) {
            enqueue.extend(accepted.enqueue);
        }
    }
    let owner = item.report.and_then(|report| {
        let session = report.session;
        let notify = tell(state, now, boot, report);
        enqueue.extend(notify.ready);
        notify.owner.map(|owner| (session, owner))
    });
    AdvanceOutcome::Advanced {
        step,
        enqueue,
        notify: owner,
    }
}

fn note(state: &mut State, key: RunKey, ends: &BTreeSet<SendId>) {
    for end in ends {
        let home = state.sends.homes.get(&(key.tenant, *end));
        if let Some(session) = home.and_then(|home| state.sessions.get_mut(home)) {
            session.journal.reported.insert(*end);
        }
    }
}

/// Reports a run's end to the session that waits for it: an open call gets a result, a busy session
/// an inbox item, and an idle one a send unless it need not be woken.
fn tell(state: &mut State, now: Timestamp, boot: BootId, report: RunReport) -> Notify {
    let key = report.session;
    let session = state.sessions.get_mut(&key);
    let Some(session) = session.filter(|s| s.hot.lifecycle != Lifecycle::Deleted) else {
        return Notify::default();
    };
    if let Some((call_id, result)) = report.call
        && session
            .calls
            .get(&call_id)
            .is_some_and(|call| call.result.is_none())
    {
        let answer = |call: &mut _| settle(call, result, now);
        return session.change_from_outside(&call_id, answer, now);
    }
    let Some(RunWords {
        item_id,
        send,
        content,
        wake,
        ended_run,
    }) = report.words
    else {
        return Notify::default();
    };
    let at_rest = if wake { AtRest::Send } else { AtRest::Keep };
    if let Some(notify) = session.report(item_id, content.clone(), at_rest, now) {
        return notify;
    }
    let send = AcceptSend {
        id: send,
        target: Target::Existing(key),
        input: content,
        options: SendOptions {
            ended_run,
            ..SendOptions::default()
        },
        reports_to: None,
        run: None,
        idempotency: None,
        queued_max: i64::MAX,
        keeper: None,
    };
    match sends::accept(state, now, boot, send) {
        AcceptOutcome::Accepted(accepted) => Notify {
            ready: accepted.enqueue,
            owner: None,
        },
        AcceptOutcome::Replayed(_)
        | AcceptOutcome::Mismatch
        | AcceptOutcome::Refused(_)
        | AcceptOutcome::Locked => Notify::default(),
    }
}

pub(crate) fn release(state: &mut State, boot: BootId, keys: &[RunKey]) {
    for key in keys {
        let run = state.runs.rows.get_mut(key);
        if let Some(run) = run.filter(|run| run.owner == Some(boot)) {
            run.owner = None;
            run.claims = 0;
        }
    }
}

pub(crate) fn list(state: &State, query: &ListRuns) -> Page<RunRecord> {
    let newest_first = state.runs.rows.values().rev().map(|run| &run.record);
    let found = newest_first
        .filter(|run| run.key.tenant == query.tenant)
        .filter(|run| query.before.is_none_or(|before| run.key.run < before))
        .filter(|run| query.status.is_none_or(|status| status == run.status))
        .filter(|run| query.session.is_none() || query.session == run.session)
        .cloned();
    page(found, query.limit)
}

pub(crate) fn nodes(state: &State, query: &ReadNodes) -> Vec<NodeRecord> {
    let run = state.runs.rows.get(&query.key);
    let nodes = run.into_iter().flat_map(|run| run.nodes.values());
    let prefix = query.prefix.as_deref().unwrap_or_default();
    let found = nodes.filter(|node| node.n > query.after && node.path.starts_with(prefix));
    let mut found = in_order(found);
    found.truncate(query.limit as usize);
    found
}

pub(crate) fn steps(state: &State, key: RunKey, after: i64, limit: u32) -> Vec<RunStep> {
    let run = state.runs.rows.get(&key);
    let steps = run.into_iter().flat_map(|run| run.steps.values());
    let behind = steps.filter(|step| step.n > after);
    behind.take(limit as usize).cloned().collect()
}
