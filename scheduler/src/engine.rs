//! The run engine: a run in memory, without I/O, so that tests can try every order of events and
//! every crash.
//!
//! [`Run::load`] reads what is stored; [`Run::advance`] returns what to write. All state is in the
//! records. Everything else is an index derived from them, so that handling one finished leaf does
//! not get slower with the number of leaves.

mod asks;
mod budget;
mod enter;
mod leaf;
mod nodes;
mod output;
mod settle;
mod tree;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use mainspring_shared::error::{Code, Failure};
use mainspring_shared::id::{SendId, SessionId};
use mainspring_shared::time::Timestamp;
use mainspring_shared::workflow::run::{
    Advance, LeafStart, NodeRecord, NodeState, RunEvent, RunRecord, RunStatus,
};
use mainspring_shared::workflow::spec::Spec;
use mainspring_shared::workflow::validate::accepted;

pub(crate) use self::output::ADVANCE_WORK;

use self::budget::Pool;
use self::tree::{Slot, SlotIx};

/// Default limit on a run's leaves in flight.
pub const LIVE_MAX_DEFAULT: u32 = 64;

/// The pause before a run whose ready leaves found no free slot of the tenant tries again. It
/// doubles after each try that started nothing.
const SLOT_RETRY_PAUSE: Duration = Duration::from_millis(250);

/// Maximum number of times that pause doubles. Backing off matters because each try is an advance,
/// and many runs may be waiting.
const SLOT_RETRY_DOUBLINGS: u32 = 4;

/// Why a stored run cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It was accepted in a newer version of the language.
    #[error("the spec uses version {0} of the language")]
    Version(i32),
    /// Its spec fails validation.
    #[error("the stored spec is invalid: {0}")]
    Spec(String),
    /// A stored node's path does not exist in the spec.
    #[error("the node {0} does not fit the spec")]
    Node(String),
}

/// A run with all its nodes.
#[derive(Debug)]
pub struct Run {
    record: RunRecord,
    spec: Arc<Spec>,
    /// All nodes, in the order in which they were entered.
    slots: Vec<Slot>,
    by_path: HashMap<String, SlotIx>,
    leaves: Leaves,
    pools: Vec<Pool>,
    /// Settled nodes whose parents have not reacted yet.
    work: VecDeque<SlotIx>,
    changes: Changes,
    now: Timestamp,
    /// Nodes visited since the run was loaded, as a measure of what its advances cost.
    visits: u64,
    /// The work of the templates of the current advance.
    worked: AtomicU64,
}

/// What is needed to start the leaves of a run.
#[derive(Debug, Default)]
struct Leaves {
    /// Leaves that may start, in the order in which they were entered.
    ready: BTreeSet<(i64, SlotIx)>,
    /// Nodes of any kind by their `due_at`.
    due: BTreeSet<(Timestamp, SlotIx)>,
    /// Leaves with a send in flight.
    live: u32,
    /// How many of those wait for a person.
    live_people: u32,
    /// The slots that the tenant's other runs leave for this one.
    live_max: Option<u32>,
    /// Consecutive advances whose ready leaves lacked only free slots.
    slot_retries: u32,
    /// Whether leaves that could start wait for the next advance, since this one has done enough.
    put_off: bool,
    /// Leaves of fan-outs that have no node yet, as far as the spec shows.
    unreached: u64,
    /// Leaves that have a node.
    reached: u64,
}

impl Leaves {
    /// All leaves known so far.
    fn known(&self) -> u64 {
        self.reached + self.unreached
    }
}

/// What the current advance has changed so far.
#[derive(Debug, Default)]
struct Changes {
    dirty: BTreeSet<SlotIx>,
    start: Vec<LeafStart>,
    cancel: Vec<SendId>,
    forget: Vec<SessionId>,
}

impl Run {
    /// Builds a run from its stored records.
    pub fn load(record: RunRecord, nodes: Vec<NodeRecord>) -> Result<Self, LoadError> {
        let version = record.dsl_version;
        let read = accepted(&record.spec, version).ok_or(LoadError::Version(version))?;
        let spec = read.map_err(|problems| {
            let first = problems.first().map(ToString::to_string);
            LoadError::Spec(first.unwrap_or_default())
        })?;
        let mut run = Self {
            record,
            spec: Arc::new(spec),
            slots: Vec::with_capacity(nodes.len()),
            by_path: HashMap::with_capacity(nodes.len()),
            leaves: Leaves::default(),
            pools: Vec::new(),
            work: VecDeque::new(),
            changes: Changes::default(),
            now: Timestamp(0),
            visits: 0,
            worked: AtomicU64::new(0),
        };
        run.pools.push(run.run_pool());
        run.attach(nodes)?;
        Ok(run)
    }

    /// The run's record, as it is to be stored.
    pub fn record(&self) -> &RunRecord {
        &self.record
    }

    /// The validated spec.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The node with this path.
    pub fn node(&self, path: &str) -> Option<&NodeRecord> {
        self.by_path.get(path).map(|slot| &self.slots[*slot].record)
    }

    /// All nodes, in the order in which they were entered.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeRecord> {
        self.slots.iter().map(|slot| &slot.record)
    }

    /// Nodes visited since the run was loaded, as a measure of what its advances cost.
    pub fn visits(&self) -> u64 {
        self.visits
    }

    /// Stores the ids that were generated for a leaf of [`Advance::start`].
    pub fn started(&mut self, path: &str, session: SessionId, send: SendId) {
        if let Some(slot) = self.by_path.get(path) {
            let record = &mut self.slots[*slot].record;
            record.session = Some(session);
            record.send = Some(send);
        }
    }

    /// Limits the leaves in flight to the slots that the tenant's other runs leave.
    pub fn limit_live(&mut self, live_max: Option<u32>) {
        self.leaves.live_max = live_max;
    }

    /// Handles events; returns what to write and which leaves to start.
    pub fn advance(&mut self, events: Vec<RunEvent>, now: Timestamp) -> Advance {
        self.now = now;
        *self.worked.get_mut() = 0;
        self.leaves.put_off = false;
        let mut refused = Vec::new();
        if self.record.started_at.is_none() && !self.record.status.is_final() {
            self.record.started_at = Some(now);
            self.record.status = RunStatus::Running;
            self.enter_root();
        }
        for (place, event) in events.into_iter().enumerate() {
            match event {
                // Due nodes are handled below in any case.
                RunEvent::Looked => {}
                RunEvent::LeafEnded { path, attempt, end } => self.leaf_ended(&path, attempt, end),
                RunEvent::Asked(ask) => {
                    if let Err(failure) = self.handle_ask(ask) {
                        refused.push((place, failure));
                    }
                }
            }
            self.propagate();
        }
        self.fire_due();
        self.propagate();
        self.start_leaves();
        self.update_record();
        let changes = std::mem::take(&mut self.changes);
        let changed = changes.dirty.into_iter();
        Advance {
            changed: changed
                .map(|slot| self.slots[slot].record.path.clone())
                .collect(),
            start: changes.start,
            cancel: changes.cancel,
            forget: changes.forget,
            refused,
        }
    }

    /// The earlier of the run's time limits, with the failure to report when it passes.
    fn deadline(&self) -> Option<(Timestamp, Failure)> {
        let started = self.record.started_at?;
        let own = self.spec.envelope.timeout.map(|timeout| {
            let detail = "the run took longer than its `timeout`";
            (timeout, Failure::new(Code::WorkflowTimeout, detail))
        });
        let starter = self.record.options.starter.as_ref();
        let given = starter.and_then(|starter| starter.wall()).map(|wall| {
            let detail = "the deadline of the send that started this run has passed";
            (wall, Failure::new(Code::BudgetExceeded, detail))
        });
        let first = own
            .into_iter()
            .chain(given)
            .min_by_key(|(within, _)| within.0);
        first.map(|(within, why)| (started.after(within.0), why))
    }

    fn fire_due(&mut self) {
        if self.record.status.is_final() {
            return;
        }
        if let Some((deadline, why)) = self.deadline()
            && deadline <= self.now
            && self.record.error.is_none()
        {
            self.end(why);
        }
        while let Some((at, slot)) = self.leaves.due.first().copied()
            && at <= self.now
        {
            self.leaves.due.remove(&(at, slot));
            self.node_due(slot);
            self.propagate();
        }
    }

    /// Ends the whole run with this failure.
    fn end(&mut self, why: Failure) {
        if let Some(root) = self.root() {
            self.close(root, &why);
        }
        self.record.error = Some(why);
        self.propagate();
    }

    fn is_paused(&self) -> bool {
        self.record.options.paused_at.is_some()
    }

    /// Updates the run's own record.
    fn update_record(&mut self) {
        self.record.counts.live = self.leaves.live;
        self.record.counts.leaves = self.leaves.known().min(u64::from(u32::MAX)) as u32;
        if self.record.status.is_final() {
            self.record.alarm_at = None;
            // Leaves of an abandoned run may still end, but take no slots.
            self.record.counts.live = 0;
            return;
        }
        let Some(root) = self.root() else { return };
        let state = self.slots[root].record.state;
        if state.is_settled() {
            self.finish(root);
            return;
        }
        let may_start = !self.leaves.ready.is_empty() && !self.is_paused();
        let busy = self.leaves.live > self.leaves.live_people || may_start;
        self.record.status = if busy {
            RunStatus::Running
        } else {
            RunStatus::Waiting
        };
        let first = self.leaves.due.first().map(|(at, _)| *at);
        let deadline = self.deadline().filter(|_| self.record.error.is_none());
        let deadline = deadline.map(|(at, _)| at);
        // There is no notification when another run frees slots, so the run checks again later.
        let doublings = self.leaves.slot_retries.checked_sub(1);
        let pause = doublings.map(|n| SLOT_RETRY_PAUSE * 2_u32.pow(n.min(SLOT_RETRY_DOUBLINGS)));
        let look = pause.map(|pause| self.now.after(pause));
        let again = self.leaves.put_off.then_some(self.now);
        let others = deadline.into_iter().chain(look).chain(again);
        self.record.alarm_at = first.into_iter().chain(others).min();
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
