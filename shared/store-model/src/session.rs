//! One session with everything below it, and the changes that several domain steps share.

use std::collections::{BTreeMap, BTreeSet};

use mainspring_shared::agent::{AgentSpec, Priority};
use mainspring_shared::id::{BootId, SendId, SessionKey};
use mainspring_shared::inbox::InboxItem;
use mainspring_shared::lease::Lease;
use mainspring_shared::message::{Message, NewMessage};
use mainspring_shared::send::{SendRecord, SendResult, SendStatus};
use mainspring_shared::session::{Lifecycle, SIGNAL_INBOX};
use mainspring_shared::step::{RoundRef, Step, StepKind, StepRefs};
use mainspring_shared::store::{
    Counters, DumpHot, DumpSession, NewSession, Parent, ReadySession, Resumed, SendTotals,
    StartedSend, UsageRow,
};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::CallRecord;
use serde_json::{Map, Value};

/// A session, or the tombstone of one.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) key: SessionKey,
    pub(crate) hot: DumpHot,
    /// The priority of the send that made the session ready.
    pub(crate) priority: Priority,
    /// What is looked at rarely; none on a tombstone.
    pub(crate) cold: Option<Cold>,
    pub(crate) sends: BTreeMap<SendId, SendRecord>,
    pub(crate) messages: BTreeMap<i64, Message>,
    /// The `seq` that the transcript begins with.
    pub(crate) first_seq: i64,
    /// What is still to be removed of a deleted one.
    pub(crate) erasing: Option<Erasing>,
    pub(crate) steps: BTreeMap<i64, Step>,
    /// Steps that went with their sends.
    pub(crate) retired_steps: i64,
    /// By call id.
    pub(crate) calls: BTreeMap<String, CallRecord>,
    /// By place.
    pub(crate) inbox: BTreeMap<i64, InboxItem>,
    /// The final sends whose parent was told.
    pub(crate) reported: BTreeSet<SendId>,
    /// By send, round and attempt.
    pub(crate) usage: BTreeMap<(SendId, i32, i32), UsageRow>,
}

/// A deleted session that may have left something behind.
#[derive(Debug)]
pub(crate) struct Erasing {
    pub(crate) deleted_at: Timestamp,
    pub(crate) due_at: Timestamp,
    /// The versions of its agent.
    pub(crate) agents: BTreeMap<i32, AgentSpec>,
    /// The calls and the usage of its sends up to this one are gone.
    pub(crate) up_to: Option<SendId>,
}

/// A session's agent and data.
#[derive(Debug)]
pub(crate) struct Cold {
    /// Every version of the agent, by number.
    pub(crate) agents: BTreeMap<i32, AgentSpec>,
    /// The current one.
    pub(crate) agent_version: i32,
    pub(crate) metadata: Map<String, Value>,
    pub(crate) parent: Option<Parent>,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
}

/// Who writes: the grant's number and the process. Epoch 0 stands for no grant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer {
    pub(crate) epoch: i64,
    pub(crate) boot: BootId,
}

impl From<Lease> for Writer {
    fn from(lease: Lease) -> Self {
        Self {
            epoch: lease.epoch,
            boot: lease.boot,
        }
    }
}

/// Messages that were just stored: where they begin and how many they are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stored {
    pub(crate) first_seq: i64,
    pub(crate) count: u32,
}

impl Stored {
    /// The references of a step that wrote these messages.
    pub(crate) fn refs(self, round: Option<RoundRef>) -> StepRefs {
        StepRefs {
            first_seq: (self.count > 0).then_some(self.first_seq),
            messages: self.count,
            round,
            ..StepRefs::default()
        }
    }
}

impl Session {
    /// A session with its agent as version 1 and nothing to do.
    pub(crate) fn new(new: NewSession, now: Timestamp) -> Self {
        Self {
            key: new.key,
            hot: DumpHot {
                lifecycle: Lifecycle::Open,
                owner: None,
                token: None,
                epoch: 0,
                writes: 0,
                next_seq: 1,
                next_position: 1,
                next_step: 1,
                pending: 0,
                signals: 0,
                context_version: 0,
                spent: None,
                ready_since: None,
                pool: new.agent.pool().to_owned(),
            },
            priority: Priority::High,
            cold: Some(Cold {
                agents: BTreeMap::from([(1, new.agent)]),
                agent_version: 1,
                metadata: new.metadata,
                parent: new.parent,
                created_at: now,
                updated_at: now,
            }),
            sends: BTreeMap::new(),
            messages: BTreeMap::new(),
            first_seq: 1,
            erasing: None,
            steps: BTreeMap::new(),
            retired_steps: 0,
            calls: BTreeMap::new(),
            inbox: BTreeMap::new(),
            reported: BTreeSet::new(),
            usage: BTreeMap::new(),
        }
    }

    // Questions ---------------------------------------------------------------------------------

    /// The sends that are not final.
    pub(crate) fn open_sends(&self) -> impl Iterator<Item = &SendRecord> {
        self.sends.values().filter(|send| !send.status.is_final())
    }

    /// The first open send that has a place.
    pub(crate) fn head(&self) -> Option<&SendRecord> {
        let placed = self.open_sends().filter(|send| send.position.is_some());
        placed.min_by_key(|send| send.position)
    }

    /// The send that runs or waits.
    pub(crate) fn active(&self) -> Option<&SendRecord> {
        let mut open = self.open_sends();
        open.find(|send| matches!(send.status, SendStatus::Running | SendStatus::Waiting))
    }

    /// The send that waits.
    pub(crate) fn waiting(&self) -> Option<&SendRecord> {
        self.active()
            .filter(|send| send.status == SendStatus::Waiting)
    }

    /// Whether the lease holds.
    pub(crate) fn obeys(&self, lease: Lease) -> bool {
        self.hot.token == Some(lease.token) && self.hot.owner == Some(lease.boot)
    }

    /// Whether a write under `lease` is its next one.
    pub(crate) fn admits(&self, lease: Lease) -> bool {
        self.obeys(lease) && self.hot.writes == lease.write
    }

    /// The numbers that every statement under a lease returns.
    pub(crate) fn counters(&self) -> Counters {
        Counters {
            next_seq: self.hot.next_seq,
            pending: self.hot.pending,
            signals: self.hot.signals,
            context_version: self.hot.context_version,
        }
    }

    /// What whoever rings for this session has to know; none unless it is ready.
    pub(crate) fn ring(&self) -> Option<ReadySession> {
        self.hot.ready_since.map(|ready_since| ReadySession {
            key: self.key,
            pool: self.hot.pool.clone(),
            priority: self.priority,
            ready_since,
        })
    }

    // Changes -----------------------------------------------------------------------------------

    /// Numbers and stores a step.
    pub(crate) fn write_step(
        &mut self,
        send_id: SendId,
        kind: StepKind,
        writer: Writer,
        now: Timestamp,
        refs: StepRefs,
    ) -> i64 {
        let n = self.hot.next_step;
        self.hot.next_step += 1;
        let step = Step {
            n,
            send_id,
            kind,
            epoch: writer.epoch,
            boot: writer.boot,
            at: now,
            refs,
        };
        self.steps.insert(n, step);
        n
    }

    /// Numbers and stores messages.
    pub(crate) fn write_messages(
        &mut self,
        send_id: SendId,
        messages: Vec<NewMessage>,
        epoch: i64,
        now: Timestamp,
    ) -> Stored {
        let stored = Stored {
            first_seq: self.hot.next_seq,
            count: messages.len() as u32,
        };
        for message in messages {
            let seq = self.hot.next_seq;
            self.hot.next_seq += 1;
            self.messages
                .insert(seq, message.at(seq, send_id, now, epoch));
        }
        stored
    }

    /// Stores what the model's responses cost.
    pub(crate) fn write_usage(&mut self, send_id: SendId, rows: Vec<UsageRow>) {
        for row in rows {
            self.usage.insert((send_id, row.round, row.attempt), row);
        }
    }

    /// Sets a send's sums.
    pub(crate) fn write_totals(&mut self, send_id: SendId, totals: SendTotals) {
        if let Some(send) = self.sends.get_mut(&send_id) {
            send.usage = totals.usage;
            send.held = totals.held;
            send.rounds = totals.rounds;
            send.attempts = totals.attempts;
            send.counted = totals.counted;
        }
        self.hot.spent = totals.session.or(self.hot.spent);
    }

    /// Draws the next place in the session, for a send or an inbox item.
    pub(crate) fn take_place(&mut self) -> i64 {
        let place = self.hot.next_position;
        self.hot.next_position += 1;
        place
    }

    /// Takes work that just got its place into account. Someone has to ring when the session was
    /// not ready before; behind a send that waits nothing can go on yet.
    pub(crate) fn gain_work(&mut self, priority: Priority, now: Timestamp) -> Option<ReadySession> {
        self.hot.pending += 1;
        if self.waiting().is_some() || self.hot.ready_since.is_some() {
            return None;
        }
        self.priority = priority;
        self.hot.ready_since = Some(now);
        self.ring()
    }

    /// Leaves the session without an owner behind its final send: ready from now on when queued
    /// sends are left, else at rest.
    pub(crate) fn give_back(&mut self, now: Timestamp) -> Option<ReadySession> {
        self.hot.owner = None;
        self.hot.token = None;
        self.hot.ready_since = (self.hot.pending > 0).then_some(now);
        self.ring()
    }

    /// Lets the send that waits go on: someone has to ring.
    pub(crate) fn wake(&mut self, now: Timestamp) -> Option<ReadySession> {
        let id = self.waiting()?.id;
        let send = self.sends.get_mut(&id)?;
        send.alarm_at = send.deadline_at;
        self.hot.ready_since = Some(now);
        self.ring()
    }

    /// Lowers the signals that were meant for a send that ends here; the inbox outlives it.
    pub(crate) fn forget_signals(&mut self) {
        self.hot.signals &= SIGNAL_INBOX;
    }

    /// Makes a grant that begins and ends in this transaction.
    pub(crate) fn grant(&mut self, boot: BootId) -> Writer {
        self.hot.epoch += 1;
        Writer {
            epoch: self.hot.epoch,
            boot,
        }
    }

    /// Starts the head, which is queued.
    pub(crate) fn start_head(&mut self, now: Timestamp) -> Option<StartedSend> {
        let id = self.head()?.id;
        let current = self.cold.as_ref()?.agent_version;
        let send = self.sends.get_mut(&id)?;
        send.status = SendStatus::Running;
        send.started_at = send.started_at.or(Some(now));
        send.agent_version = send.agent_version.or(Some(current));
        send.alarm_at = send.deadline_at;
        self.hot.pending -= 1;
        self.started(id, None)
    }

    /// The running send counts a model call that may have been begun.
    pub(crate) fn count_lost(&mut self) {
        let running = |send: &&mut SendRecord| send.status == SendStatus::Running;
        if let Some(send) = self.sends.values_mut().find(running) {
            send.attempts += 1;
        }
    }

    /// A running send as its worker gets it.
    pub(crate) fn started(&self, id: SendId, resumed: Option<Resumed>) -> Option<StartedSend> {
        let record = self.sends.get(&id)?.clone();
        let agents = &self.cold.as_ref()?.agents;
        let agent = agents.get(&record.agent_version?)?.clone();
        Some(StartedSend {
            record,
            agent,
            resumed,
        })
    }

    /// Makes a send final and writes its step; what `refs` says of messages and round stays.
    pub(crate) fn finish(
        &mut self,
        id: SendId,
        result: SendResult,
        writer: Writer,
        now: Timestamp,
        refs: StepRefs,
    ) -> i64 {
        let refs = StepRefs {
            reason: Some(result.stop_reason.as_str().to_owned()),
            status: Some(result.status.as_str().to_owned()),
            ..refs
        };
        if let Some(send) = self.sends.get_mut(&id) {
            send.status = result.status;
            send.stop_reason = Some(result.stop_reason);
            send.output_text = result.output_text;
            send.output = result.output;
            send.error = result.error;
            send.waiting_on = None;
            send.alarm_at = None;
            send.finished_at = Some(now);
        }
        self.write_step(id, StepKind::Finished, writer, now, refs)
    }

    /// Ends a queued send, which needs no grant and leaves no message. The session is at rest when
    /// nothing is left that has a place.
    pub(crate) fn finish_queued(
        &mut self,
        id: SendId,
        result: SendResult,
        boot: BootId,
        now: Timestamp,
    ) -> i64 {
        let had_place = self.sends.get(&id).is_some_and(|s| s.position.is_some());
        let writer = Writer { epoch: 0, boot };
        let n = self.finish(id, result, writer, now, StepRefs::default());
        if had_place {
            self.hot.pending -= 1;
        }
        if self.head().is_none() {
            self.hot.ready_since = None;
        }
        n
    }

    /// Ends a started send that nobody runs, under a grant of its own. Its input becomes a message
    /// if nothing of the send is in the transcript yet; the calls that it left open are answered.
    pub(crate) fn finish_unowned(
        &mut self,
        id: SendId,
        result: SendResult,
        boot: BootId,
        now: Timestamp,
    ) -> (i64, Option<ReadySession>) {
        let writer = self.grant(boot);
        let mut unsaid = self.end_calls(id, now);
        if !self.messages.values().any(|message| message.send_id == id)
            && let Some(send) = self.sends.get(&id)
        {
            unsaid.push(NewMessage::user(send.input.clone(), 0));
        }
        let stored = self.write_messages(id, unsaid, writer.epoch, now);
        let n = self.finish(id, result, writer, now, stored.refs(None));
        self.forget_signals();
        (n, self.give_back(now))
    }

    /// Removes a final send with all that only it has; returns how many rows went.
    pub(crate) fn retire(&mut self, id: SendId) -> u64 {
        let rows = |session: &Self| {
            session.sends.len() + session.steps.len() + session.calls.len() + session.usage.len()
        };
        let (before, steps) = (rows(self), self.steps.len());
        self.sends.remove(&id);
        self.reported.remove(&id);
        self.steps.retain(|_, step| step.send_id != id);
        self.calls.retain(|_, call| call.send_id != id);
        self.usage.retain(|(send, ..), _| *send != id);
        self.retired_steps += (steps - self.steps.len()) as i64;
        (before - rows(self)) as u64
    }

    /// The session as a dump shows it.
    pub(crate) fn dump(&self) -> DumpSession {
        DumpSession {
            key: self.key,
            hot: self.hot.clone(),
            agent_version: self.cold.as_ref().map(|cold| cold.agent_version),
            sends: self.sends.values().cloned().collect(),
            first_seq: self.first_seq,
            erasing: self.erasing.is_some(),
            messages: self.messages.values().cloned().collect(),
            steps: self.steps.values().cloned().collect(),
            retired_steps: self.retired_steps,
            calls: self.calls.values().cloned().collect(),
            inbox: self.inbox.values().cloned().collect(),
            parent: self.cold.as_ref().and_then(|cold| cold.parent.clone()),
            usage: self.usage.keys().copied().collect(),
            paid: self.usage.values().map(|row| row.usage).collect(),
        }
    }
}
