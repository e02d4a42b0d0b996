//! One session with everything that belongs to it, and the changes that several domain steps share.

use std::collections::{BTreeMap, BTreeSet};

use mainspring_shared::agent::AgentSpec;
use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::inbox::InboxItem;
use mainspring_shared::message::{Message, NewMessage};
use mainspring_shared::send::{SendRecord, SendStatus};
use mainspring_shared::session::fold::Fold;
use mainspring_shared::session::hot::{HotRow, SendState};
use mainspring_shared::session::projection::Projection;
use mainspring_shared::session::transition::{Change, Notify};
use mainspring_shared::step::Step;
use mainspring_shared::store::{
    DumpSession, NewSession, Parent, Resumed, SendTotals, StartedSend, UsageRow, WebhookNews,
};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::CallRecord;
use serde_json::{Map, Value};

use crate::webhooks::News;

/// A session or its tombstone.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) key: SessionKey,
    pub(crate) hot: HotRow,
    /// The columns that are rarely read; none for a tombstone.
    pub(crate) cold: Option<Cold>,
    /// For a deleted session, the state of its removal.
    pub(crate) erasing: Option<Erasing>,
    pub(crate) sends: BTreeMap<SendId, SendRecord>,
    /// By call id.
    pub(crate) calls: BTreeMap<String, CallRecord>,
    /// By place.
    pub(crate) inbox: BTreeMap<i64, InboxItem>,
    /// By send, round and attempt.
    pub(crate) usage: BTreeMap<(SendId, i32, i32), UsageRow>,
    pub(crate) transcript: Transcript,
    pub(crate) journal: Journal,
}

/// A session's messages, and what replaces some of them in a model's context.
#[derive(Debug)]
pub(crate) struct Transcript {
    /// The `seq` of the first message.
    pub(crate) first_seq: i64,
    pub(crate) messages: BTreeMap<i64, Message>,
    /// Ordered by number.
    pub(crate) folds: Vec<Fold>,
    /// By first message.
    pub(crate) projections: BTreeMap<i64, Projection>,
}

/// A session's steps, and what was told to others about its work.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    pub(crate) steps: BTreeMap<i64, Step>,
    /// Number of steps that were removed together with their sends.
    pub(crate) retired_steps: i64,
    /// The final sends whose end was reported to their parent.
    pub(crate) reported: BTreeSet<SendId>,
    /// The webhook events of its steps.
    pub(crate) news: News,
}

/// The removal of a deleted session's rows.
#[derive(Debug)]
pub(crate) struct Erasing {
    pub(crate) deleted_at: Timestamp,
    pub(crate) due_at: Timestamp,
    /// The versions of its agent that are left.
    pub(crate) agents: BTreeMap<i32, AgentSpec>,
    /// Calls and usage are removed for its sends up to and including this one.
    pub(crate) up_to: Option<SendId>,
}

/// A session's agent and data.
#[derive(Debug)]
pub(crate) struct Cold {
    /// Every version of the agent, by number.
    pub(crate) agents: BTreeMap<i32, AgentSpec>,
    /// The current version.
    pub(crate) agent_version: i32,
    pub(crate) metadata: Map<String, Value>,
    pub(crate) parent: Option<Parent>,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
}

impl Session {
    /// A session that has its agent as version 1 and no work.
    pub(crate) fn new(new: NewSession, now: Timestamp) -> Self {
        Self {
            key: new.key,
            hot: HotRow::new(new.key, new.agent.pool()),
            cold: Some(Cold {
                agents: BTreeMap::from([(1, new.agent)]),
                agent_version: 1,
                metadata: new.metadata,
                parent: new.parent,
                created_at: now,
                updated_at: now,
            }),
            erasing: None,
            sends: BTreeMap::new(),
            calls: BTreeMap::new(),
            inbox: BTreeMap::new(),
            usage: BTreeMap::new(),
            transcript: Transcript {
                first_seq: 1,
                messages: BTreeMap::new(),
                folds: Vec::new(),
                projections: BTreeMap::new(),
            },
            journal: Journal::default(),
        }
    }

    // Questions ---------------------------------------------------------------------------------

    /// The sends that are not final.
    pub(crate) fn open_sends(&self) -> impl Iterator<Item = &SendRecord> {
        self.sends.values().filter(|send| !send.status.is_final())
    }

    /// The first open send that has a position.
    pub(crate) fn head(&self) -> Option<&SendRecord> {
        let placed = self.open_sends().filter(|send| send.position.is_some());
        placed.min_by_key(|send| send.position)
    }

    /// The running or waiting send.
    pub(crate) fn active(&self) -> Option<&SendRecord> {
        let mut open = self.open_sends();
        open.find(|send| matches!(send.status, SendStatus::Running | SendStatus::Waiting))
    }

    /// The head, as transitions take it.
    pub(crate) fn head_state(&self) -> Option<SendState> {
        self.head().map(SendState::of)
    }

    /// The head's status.
    pub(crate) fn head_status(&self) -> Option<SendStatus> {
        self.head().map(|send| send.status)
    }

    /// A send, as transitions take it.
    pub(crate) fn send_state(&self, id: SendId) -> Option<SendState> {
        self.sends.get(&id).map(SendState::of)
    }

    // Changes -----------------------------------------------------------------------------------

    /// Stores a change, with the messages that belong to its step.
    pub(crate) fn commit(&mut self, change: Change, messages: Vec<NewMessage>) -> Notify {
        let first_seq = self.hot.next_seq;
        let change = change.with_messages(messages.len() as u32);
        self.hot = change.hot;
        if let Some(state) = change.send
            && let Some(send) = self.sends.get_mut(&state.id)
        {
            state.store_in(send);
            if let Some(end) = change.end {
                send.stop_reason = Some(end.stop_reason);
                send.output_text = end.output_text;
                send.output = end.output;
                send.error = end.error;
            }
        }
        if let Some(step) = change.step {
            for (seq, message) in (first_seq..).zip(messages) {
                let message = message.at(seq, step.send_id, step.at, step.epoch);
                self.transcript.messages.insert(seq, message);
            }
            self.journal
                .news
                .extend(WebhookNews::of_step(self.key, &step));
            self.journal.steps.insert(step.n, step);
        }
        change.notify
    }

    /// Stores the usage of model responses.
    pub(crate) fn write_usage(&mut self, send_id: SendId, rows: Vec<UsageRow>) {
        for row in rows {
            self.usage.insert((send_id, row.round, row.attempt), row);
        }
    }

    /// Records the cost of a dead worker's model call, for a send that ends with this change.
    pub(crate) fn bill_crashed_call(&mut self, id: SendId, change: &mut Change) {
        let ends = change.end.is_some();
        let send = self.sends.get_mut(&id).filter(|_| ends);
        let Some(row) = send.and_then(SendRecord::bill_crashed_call) else {
            return;
        };
        change.hot.pay(&row.usage);
        self.write_usage(id, vec![row]);
    }

    /// Sets a send's totals, except for its counts, which transitions set.
    pub(crate) fn write_totals(&mut self, send_id: SendId, totals: SendTotals) {
        if let Some(send) = self.sends.get_mut(&send_id) {
            send.usage = totals.usage;
            send.held = totals.held;
            send.counted = totals.counted;
            send.not_failed = totals.not_failed;
            send.shown = totals.shown;
        }
    }

    /// Pins a send that starts to the current version of the agent.
    pub(crate) fn pin(&mut self, id: SendId) -> Option<i32> {
        let current = self.cold.as_ref().map(|cold| cold.agent_version);
        let send = self.sends.get_mut(&id)?;
        send.agent_version = send.agent_version.or(current);
        send.agent_version
    }

    /// A running send as passed to its worker.
    pub(crate) fn started(&self, id: SendId, resumed: Option<Resumed>) -> Option<StartedSend> {
        let record = self.sends.get(&id)?.clone();
        let agents = &self.cold.as_ref()?.agents;
        let agent = agents.get(&record.agent_version?)?.clone();
        Some(StartedSend::new(record, agent, resumed))
    }

    /// Settles the calls that a send without a worker left open, as it ends. Returns the messages
    /// that the transcript lacks: the answers, and the send's input if nothing of the send is there
    /// yet.
    pub(crate) fn unsaid(&mut self, id: SendId, now: Timestamp) -> Vec<NewMessage> {
        let mut unsaid = self.end_calls(id, now);
        if !self
            .transcript
            .messages
            .values()
            .any(|message| message.send_id == id)
            && let Some(send) = self.sends.get(&id)
        {
            unsaid.push(NewMessage::user(send.effective_input().to_vec(), 0));
        }
        unsaid
    }

    /// Removes a final send with everything that belongs only to it. Returns the number of removed
    /// rows.
    pub(crate) fn retire(&mut self, id: SendId) -> u64 {
        let rows = |session: &Self| {
            session.sends.len()
                + session.journal.steps.len()
                + session.calls.len()
                + session.usage.len()
        };
        let (before, steps) = (rows(self), self.journal.steps.len());
        self.sends.remove(&id);
        self.journal.reported.remove(&id);
        self.journal.steps.retain(|_, step| step.send_id != id);
        self.calls.retain(|_, call| call.send_id != id);
        self.usage.retain(|(send, ..), _| *send != id);
        self.journal.retired_steps += (steps - self.journal.steps.len()) as i64;
        (before - rows(self)) as u64
    }

    /// The session in the form of a dump.
    pub(crate) fn dump(&self) -> DumpSession {
        DumpSession {
            key: self.key,
            hot: self.hot.clone(),
            agent_version: self.cold.as_ref().map(|cold| cold.agent_version),
            sends: self.sends.values().cloned().collect(),
            first_seq: self.transcript.first_seq,
            erasing: self.erasing.is_some(),
            messages: self.transcript.messages.values().cloned().collect(),
            folds: self.transcript.folds.clone(),
            projections: self.transcript.projections.values().cloned().collect(),
            steps: self.journal.steps.values().cloned().collect(),
            retired_steps: self.journal.retired_steps,
            calls: self.calls.values().cloned().collect(),
            inbox: self.inbox.values().cloned().collect(),
            parent: self.cold.as_ref().and_then(|cold| cold.parent.clone()),
            usage: self.usage.keys().copied().collect(),
            paid: self.usage.values().map(|row| row.usage).collect(),
        }
    }
}
