//! A run in memory: pure, so that it can be tried in every order and after every crash.
//!
//! [`Run::load`] reads what is stored, [`Run::advance`] says what to write. All state is in the
//! records; what else is kept here is derived from them, so that the cost of one finished leaf does
//! not depend on how many others there are.

mod asks;
mod budget;
mod enter;
mod leaf;
mod output;
mod settle;
mod tree;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use mainspring_shared::error::{Code, Failure};
use mainspring_shared::id::{SendId, SessionId};
use mainspring_shared::time::Timestamp;
use mainspring_shared::workflow::run::{
    Advance, LeafStart, NodeRecord, NodeState, RunEvent, RunRecord, RunStatus,
};
use mainspring_shared::workflow::spec::Spec;
use mainspring_shared::workflow::validate::accepted;

use self::budget::Pool;
use self::tree::{Slot, SlotIx};

/// Leaves of one run under way at once unless its options say otherwise.
pub const LIVE_MAX_DEFAULT: u32 = 64;

/// How soon a run looks again whose leaves wait for those of other runs; twice as long after each
/// look that started nothing.
const CROWDED_LOOK: Duration = Duration::from_millis(250);

/// Doublings of that pause: a look is an advance, and there may be many who wait.
const CROWDED_DOUBLINGS: u32 = 4;

/// Why a stored run cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It was accepted in a version of the language that is not known here.
    #[error("the spec is written in version {0} of the language")]
    Version(i32),
    /// Its spec does not pass the validator.
    #[error("the stored spec is invalid: {0}")]
    Spec(String),
    /// A node is where the spec has none.
    #[error("the node {0} does not fit the spec")]
    Node(String),
}

/// A run with all its nodes.
#[derive(Debug)]
pub struct Run {
    record: RunRecord,
    spec: Spec,
    slots: Vec<Slot>,
    by_path: HashMap<String, SlotIx>,
    /// Leaves that may start, in the order in which they were reached.
    ready: BTreeSet<(i64, SlotIx)>,
    /// Nodes by when they have to be looked at.
    due: BTreeSet<(Timestamp, SlotIx)>,
    /// Leaves with a send under way.
    live: u32,
    /// Those of them that wait for a person.
    live_people: u32,
    /// What the other runs of the tenant leave to this one.
    live_max: Option<u32>,
    /// Looks in a row at which leaves could have started, had the other runs left more; none when the
    /// last one was not such.
    crowded: u32,
    /// Leaves of fan-outs that have no node yet, as far as the spec tells.
    unreached: u64,
    /// Leaves that have a node.
    reached: u64,
    pools: Vec<Pool>,
    n_next: i64,
    work: VecDeque<SlotIx>,
    dirty: BTreeSet<SlotIx>,
    start: Vec<LeafStart>,
    cancel: Vec<SendId>,
    forget: Vec<SessionId>,
    now: Timestamp,
    /// Nodes that were looked at since the run was loaded: what the cost of an advance is
    /// measured by.
    looks: u64,
}

impl Run {
    /// Reads a run as it is stored.
    pub fn load(record: RunRecord, nodes: Vec<NodeRecord>) -> Result<Self, LoadError> {
        let version = record.dsl_version;
        let read = accepted(&record.spec, version).ok_or(LoadError::Version(version))?;
        let spec = read.map_err(|problems| {
            let first = problems.first().map(ToString::to_string);
            LoadError::Spec(first.unwrap_or_default())
        })?;
        let mut run = Self {
            pools: Vec::new(),
            record,
            spec,
            slots: Vec::with_capacity(nodes.len()),
            by_path: HashMap::with_capacity(nodes.len()),
            ready: BTreeSet::new(),
            due: BTreeSet::new(),
            live: 0,
            live_people: 0,
            live_max: None,
            crowded: 0,
            unreached: 0,
            reached: 0,
            n_next: 1,
            work: VecDeque::new(),
            dirty: BTreeSet::new(),
            start: Vec::new(),
            cancel: Vec::new(),
            forget: Vec::new(),
            now: Timestamp(0),
            looks: 0,
        };
        run.pools.push(run.run_pool());
        run.attach(nodes)?;
        Ok(run)
    }

    /// The run as it is to be stored.
    pub fn record(&self) -> &RunRecord {
        &self.record
    }

    /// The checked spec.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The node with this path.
    pub fn node(&self, path: &str) -> Option<&NodeRecord> {
        self.by_path.get(path).map(|slot| &self.slots[*slot].record)
    }

    /// Every node, in the order in which they were reached.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeRecord> {
        self.slots.iter().map(|slot| &slot.record)
    }

    /// Nodes that were looked at since the run was loaded.
    pub fn looks(&self) -> u64 {
        self.looks
    }

    /// Notes the ids that were drawn for a leaf that [`Advance::start`] named.
    pub fn started(&mut self, path: &str, session: SessionId, send: SendId) {
        if let Some(slot) = self.by_path.get(path) {
            let record = &mut self.slots[*slot].record;
            record.session = Some(session);
            record.send = Some(send);
        }
    }

    /// Bounds the leaves under way by what the other runs of the tenant leave, until further notice.
    pub fn leave_room(&mut self, live_max: Option<u32>) {
        self.live_max = live_max;
    }

    /// Takes in what happened, and says what to write and what to start.
    pub fn advance(&mut self, events: Vec<RunEvent>, now: Timestamp) -> Advance {
        self.now = now;
        let mut refused = Vec::new();
        if self.record.started_at.is_none() && !self.record.status.is_final() {
            self.record.started_at = Some(now);
            self.record.status = RunStatus::Running;
            self.enter_root();
        }
        for (place, event) in events.into_iter().enumerate() {
            match event {
                // What is due is looked at in any case.
                RunEvent::Looked => {}
                RunEvent::LeafEnded { path, attempt, end } => self.leaf_ended(&path, attempt, end),
                RunEvent::Asked(ask) => {
                    if let Err(failure) = self.asked(ask) {
                        refused.push((place, failure));
                    }
                }
            }
            self.work_off();
        }
        self.look_at_the_clock();
        self.work_off();
        self.start_leaves();
        self.take_stock();
        let dirty = std::mem::take(&mut self.dirty);
        Advance {
            changed: dirty
                .into_iter()
                .map(|slot| self.slots[slot].record.path.clone())
                .collect(),
            start: std::mem::take(&mut self.start),
            cancel: std::mem::take(&mut self.cancel),
            forget: std::mem::take(&mut self.forget),
            refused,
        }
    }

    /// When the whole must be over, and why.
    fn deadline(&self) -> Option<(Timestamp, Failure)> {
        let started = self.record.started_at?;
        let own = self.spec.envelope.timeout.map(|timeout| {
            let detail = "the run took longer than its `timeout`";
            (timeout, Failure::new(Code::WorkflowTimeout, detail))
        });
        let starter = self.record.options.starter.as_ref();
        let given = starter.and_then(|starter| starter.wall()).map(|wall| {
            let detail = "the time that its starter had is up";
            (wall, Failure::new(Code::BudgetExceeded, detail))
        });
        let first = own
            .into_iter()
            .chain(given)
            .min_by_key(|(within, _)| within.0);
        first.map(|(within, why)| (started.after(within.0), why))
    }

    fn look_at_the_clock(&mut self) {
        if self.record.status.is_final() {
            return;
        }
        if let Some((deadline, why)) = self.deadline()
            && deadline <= self.now
            && self.record.error.is_none()
        {
            self.end(why);
        }
        while let Some((at, slot)) = self.due.first().copied()
            && at <= self.now
        {
            self.due.remove(&(at, slot));
            self.node_due(slot);
            self.work_off();
        }
    }

    /// Ends the whole run for this reason.
    fn end(&mut self, why: Failure) {
        if let Some(root) = self.root() {
            self.close(root, &why);
        }
        self.record.error = Some(why);
        self.work_off();
    }

    /// Brings the run's own row up to date.
    fn take_stock(&mut self) {
        self.record.counts.live = self.live;
        self.record.counts.leaves = (self.reached + self.unreached).min(u64::from(u32::MAX)) as u32;
        if self.record.status.is_final() {
            self.record.alarm_at = None;
            // One that was given up has leaves whose ends come only now. They count for nobody.
            self.record.counts.live = 0;
            return;
        }
        let Some(root) = self.root() else { return };
        let state = self.slots[root].record.state;
        if state.is_settled() {
            self.finish(root);
            return;
        }
        let busy = self.live > self.live_people || !self.ready.is_empty();
        self.record.status = if busy {
            RunStatus::Running
        } else {
            RunStatus::Waiting
        };
        let first = self.due.first().map(|(at, _)| *at);
        let deadline = self.deadline().filter(|_| self.record.error.is_none());
        let deadline = deadline.map(|(at, _)| at);
        // Nobody says when another run has left more.
        let doublings = self.crowded.checked_sub(1);
        let pause = doublings.map(|n| CROWDED_LOOK * 2_u32.pow(n.min(CROWDED_DOUBLINGS)));
        let look = pause.map(|pause| self.now.after(pause));
        self.record.alarm_at = first.into_iter().chain(deadline).chain(look).min();
    }

    fn finish(&mut self, root: SlotIx) {
        let record = &self.slots[root].record;
        let good = self.is_good(root);
        let error = self.record.error.take().or_else(|| record.error.clone());
        let cancelled = error
            .as_ref()
            .is_some_and(|error| error.code == Code::WorkflowCancelled);
        let result = (record.state == NodeState::Completed).then(|| self.result(root));
        self.record.status = match (good, cancelled) {
            (true, _) => RunStatus::Completed,
            (false, true) => RunStatus::Cancelled,
            (false, false) => RunStatus::Failed,
        };
        self.record.error = error.filter(|_| !good);
        self.record.result = result;
        self.record.finished_at = Some(self.now);
        self.record.alarm_at = None;
        let used = self.used();
        if let Some(starter) = &mut self.record.options.starter {
            starter.used.get_or_insert(used);
            self.raise();
        }
    }
}

#[cfg(test)]
mod tests;
