//! A reader of events: durable events, derived from the steps in the database, each once and in
//! order, interleaved with live events.
//!
//! It subscribes before it reads and skips events that it has already delivered, so none is missed.
//! Resuming needs only the database, and so works on any replica.

mod deltas;
mod event;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use mainspring_shared::bus::{Notice, Topic, WATCHED};
use mainspring_shared::event::{EventId, LiveEvent, LiveKind, expand};
use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::message::Message;
use mainspring_shared::send::{SendRecord, SendView};
use mainspring_shared::step::{Step, StepKind};
use mainspring_shared::store::ReadMessages;

use self::deltas::{DeltaTracker, Verdict};
pub use self::event::StreamEvent;
use crate::app::App;
use crate::error::Error;
use crate::services::watch::Watcher;

/// Steps per read.
const STEPS: u32 = 64;

/// Messages per read, unless one step wrote more.
const MESSAGES: u32 = 32;

/// Number of bytes at which read events are handed to the client.
const CHUNK: usize = 128 << 10;

/// Maximum number of live events waiting for preceding durable events.
const PENDING_MAX: usize = 1_024;

/// Number of sends whose progress is tracked. A session runs one send at a time, but late events of
/// earlier sends may follow.
const SENDS_MAX: usize = 16;

/// How long deltas wait for preceding ones.
const GAP_TIMEOUT: Duration = Duration::from_millis(500);

/// Pause after a failed read.
const RETRY: Duration = Duration::from_millis(500);

/// The scope of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// A session, until it is deleted.
    Session,
    /// One send, up to its final event.
    Send {
        /// The send.
        id: SendId,
        /// Whether the send was already final when the reader was opened, so that only stored
        /// events follow.
        is_final: bool,
    },
}

/// A reader with its position in the stream.
pub struct Reader {
    app: Arc<App>,
    key: SessionKey,
    scope: Scope,
    at: Position,
    /// Whether the stream has ended.
    ended: bool,
    progress: Progress,
    /// Messages that were read ahead.
    messages: Vec<Message>,
    watcher: Watcher<SessionKey>,
    live: Live,
    next_beat: Duration,
}

/// The read position within the durable events.
struct Position {
    /// The number of the last step that was read.
    read_to: i64,
    /// The last durable event that was delivered.
    seen: EventId,
    /// Whether there may be unread steps.
    unread: bool,
}

/// Streamed text, which is not durable.
struct Live {
    notices: Option<BoxStream<'static, Notice>>,
    pending: VecDeque<LiveEvent>,
    deltas: DeltaTracker,
    /// Until when deltas wait for the preceding ones, whose replay was requested.
    gap_timeout_at: Duration,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("key", &self.key)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

impl Reader {
    /// Subscribes, and starts after the event `seen`. `first_step` is the first step that can
    /// belong to the scope.
    pub async fn open(
        app: Arc<App>,
        key: SessionKey,
        scope: Scope,
        first_step: i64,
        seen: Option<EventId>,
        watcher: Watcher<SessionKey>,
    ) -> Self {
        let live = app.bus().subscribe(Topic::Live(key)).await;
        let is_final = matches!(scope, Scope::Send { is_final: true, .. });
        if !is_final {
            request_replay(&app, key);
        }
        let gap_timeout_at = app.clock.monotonic() + GAP_TIMEOUT;
        let next_beat = app.clock.monotonic() + app.config.heartbeat;
        let seen_step = seen.map_or(0, |seen| seen.n - 1);
        Self {
            app,
            key,
            scope,
            at: Position {
                // The last seen event's step is read again because it may have more events.
                read_to: seen_step.max(first_step - 1).max(0),
                seen: seen.unwrap_or_default(),
                unread: true,
            },
            ended: false,
            progress: Progress::default(),
            messages: Vec::new(),
            watcher,
            live: Live {
                notices: Some(live),
                pending: VecDeque::new(),
                deltas: DeltaTracker::default(),
                gap_timeout_at,
            },
            next_beat,
        }
    }

    /// The next events, as many as one read returned. Empty if the connection has been silent for
    /// so long that a keep-alive is due, and `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<Vec<StreamEvent>> {
        while !self.ended {
            if self.at.unread {
                let events = self.read().await;
                if !events.is_empty() {
                    return Some(events);
                }
                continue;
            }
            let events = self.flush_pending();
            if !events.is_empty() {
                return Some(events);
            }
            if self.listen().await {
                return Some(Vec::new());
            }
        }
        None
    }

    /// Whether the stream has ended because no event will follow, and not because this process stops.
    pub fn is_over(&self) -> bool {
        self.ended && !self.app.process.lifecycle.is_stopping()
    }

    /// Waits for something to deliver. Returns true if a keep-alive is due.
    async fn listen(&mut self) -> bool {
        let rest = self.next_beat.saturating_sub(self.app.clock.monotonic());
        // Pending deltas wait for preceding ones.
        let patience = self
            .live
            .gap_timeout_at
            .saturating_sub(self.app.clock.monotonic());
        let live = async {
            match &mut self.live.notices {
                Some(live) => live.next().await,
                None => futures::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.app.process.lifecycle.stopping() => self.ended = true,
            () = self.watcher.woken() => self.at.unread = true,
            notice = live => match notice {
                Some(Notice::Payload(payload)) => self.buffer(&payload),
                Some(Notice::Gap) => {
                    self.at.unread = true;
                    self.live.gap_timeout_at = self.app.clock.monotonic() + GAP_TIMEOUT;
                    request_replay(&self.app, self.key);
                }
                None => self.live.notices = None,
            },
            () = self.app.clock.sleep(patience), if !self.live.pending.is_empty() => {}
            () = self.app.clock.sleep(rest) => {
                self.next_beat = self.app.clock.monotonic() + self.app.config.heartbeat;
                return true;
            }
        }
        false
    }

    /// Reads the events of further steps. Returns none if there are no new ones, or if the read
    /// fails.
    async fn read(&mut self) -> Vec<StreamEvent> {
        let mut out = Vec::new();
        if let Err(error) = self.read_page(&mut out).await {
            tracing::debug!(code = %error.code(), "could not read a stream; will retry");
            // Even if earlier reads succeeded and only the last one failed.
            self.at.unread = true;
            if out.is_empty() {
                tokio::select! {
                    biased;
                    () = self.app.clock.sleep(RETRY) => {}
                    () = self.app.process.lifecycle.stopping() => self.ended = true,
                }
            }
        }
        out
    }

    async fn read_page(&mut self, out: &mut Vec<StreamEvent>) -> Result<(), Error> {
        // Checked before the read, so that the read sees the last step of a deleted session.
        let is_gone = self.watcher.is_gone();
        let steps = self
            .app
            .store
            .read_steps(self.key, self.at.read_to, STEPS)
            .await?;
        let count = steps.len();
        let mut bytes = 0;
        for step in steps {
            let mine = match self.scope {
                Scope::Session => true,
                Scope::Send { id, .. } => step.send_id == id,
            };
            if mine {
                bytes += self.expand(&step, out).await?;
            }
            self.at.read_to = step.n;
            self.watcher.expects(match step.kind {
                StepKind::Accepted | StepKind::Round | StepKind::Calls | StepKind::Resumed => true,
                StepKind::Waiting | StepKind::Folded | StepKind::Finished => false,
            });
            if self.ended || bytes >= CHUNK {
                return Ok(());
            }
        }
        if count == STEPS as usize {
            return Ok(());
        }
        self.at.unread = false;
        if is_gone && self.scope == Scope::Session {
            self.ended = true;
        }
        if count == 0
            && let Scope::Send { id, is_final } = self.scope
        {
            // A final send without a final event: either the event was already delivered, or
            // retention removed its steps. Read once more, because the send may have ended between
            // the two reads.
            if is_final {
                self.ended = true;
            } else if self.is_final(id).await? {
                self.scope = Scope::Send { id, is_final: true };
                self.at.unread = true;
            }
        }
        Ok(())
    }

    async fn is_final(&mut self, id: SendId) -> Result<bool, Error> {
        let send = self.app.watch.read_send(self.key.tenant, id).await?;
        Ok(send.is_none_or(|send: SendRecord| send.status.is_final()))
    }

    /// Adds the events of a step. Returns the size of their data in bytes.
    async fn expand(&mut self, step: &Step, out: &mut Vec<StreamEvent>) -> Result<usize, Error> {
        self.read_messages(step).await?;
        let send = match step.kind {
            StepKind::Finished => {
                self.app
                    .watch
                    .read_send(self.key.tenant, step.send_id)
                    .await?
            }
            StepKind::Accepted
            | StepKind::Round
            | StepKind::Calls
            | StepKind::Waiting
            | StepKind::Resumed
            | StepKind::Folded => None,
        };
        let view = send.map(SendView::from);
        // Some of them may have been pruned.
        let first = step.refs.first_seq.unwrap_or(i64::MAX);
        let wrote = first..first.saturating_add(i64::from(step.refs.messages));
        let written = self
            .messages
            .iter()
            .filter(|message| wrote.contains(&message.seq));
        let written: Vec<_> = written.cloned().collect();
        let mut bytes = 0;
        for event in expand(step, &written, view.as_ref()) {
            self.ended |= event.last && matches!(self.scope, Scope::Send { .. });
            if event.id > self.at.seen {
                self.at.seen = event.id;
                let told = StreamEvent::durable(event);
                bytes += told.data.len();
                out.push(told);
            }
        }
        self.progress.note(step);
        Ok(bytes)
    }

    /// Reads the messages that a step wrote, unless they were read ahead.
    async fn read_messages(&mut self, step: &Step) -> Result<(), Error> {
        let (Some(first), count) = (step.refs.first_seq, step.refs.messages) else {
            return Ok(());
        };
        let last = first + i64::from(count) - 1;
        let covers = self
            .messages
            .first()
            .is_some_and(|message| message.seq <= first)
            && self
                .messages
                .last()
                .is_some_and(|message| message.seq >= last);
        if count == 0 || covers {
            return Ok(());
        }
        let query = ReadMessages {
            key: self.key,
            after: first - 1,
            limit: count.max(MESSAGES),
        };
        self.messages = self.app.store.read_messages(query).await?;
        Ok(())
    }

    /// Buffers live events. Those of an unknown send wait for its first step.
    fn buffer(&mut self, payload: &[u8]) {
        let events: Vec<LiveEvent> = match serde_json::from_slice(payload) {
            Ok(events) => events,
            Err(error) => {
                tracing::debug!(error = %error, "live events could not be parsed");
                return;
            }
        };
        for event in events {
            let mine = match self.scope {
                Scope::Session => true,
                Scope::Send { id, .. } => event.send_id == id,
            };
            if mine && self.live.pending.len() < PENDING_MAX {
                self.at.unread |= !self.progress.knows(event.send_id);
                self.live.pending.push_back(event);
            }
        }
    }

    /// Takes the pending live events that can be delivered.
    fn flush_pending(&mut self) -> Vec<StreamEvent> {
        let mut out = Vec::new();
        let wait_for_gap = self.app.clock.monotonic() < self.live.gap_timeout_at;
        let mut events = std::mem::take(&mut self.live.pending);
        loop {
            let count = events.len();
            let before = out.len();
            for event in std::mem::take(&mut events) {
                if !self.progress.is_new(&event) {
                    continue;
                }
                match self.live.deltas.judge(event, wait_for_gap) {
                    Verdict::Pass(event) => out.push(StreamEvent::live(&event)),
                    Verdict::Drop => {}
                    Verdict::Gap(event) => events.push_back(event),
                }
            }
            // A missing delta may have arrived after those that waited for it.
            if events.is_empty() || events.len() == count || out.len() == before {
                break;
            }
        }
        self.live.pending = events;
        out
    }
}

/// Asks the session's worker to send everything streamed so far again.
fn request_replay(app: &App, key: SessionKey) {
    app.notifier.signal(key, WATCHED);
}

/// How far the durable events of the latest sends have been read.
#[derive(Debug, Default)]
struct Progress {
    /// The last durable round of each send: -1 before the first, `i32::MAX` once the send is final.
    rounds: VecDeque<(SendId, i32)>,
}

impl Progress {
    fn note(&mut self, step: &Step) {
        let round = match step.kind {
            StepKind::Finished => i32::MAX,
            StepKind::Round => step.refs.round.as_ref().map_or(-1, |round| round.index),
            StepKind::Accepted
            | StepKind::Calls
            | StepKind::Waiting
            | StepKind::Resumed
            | StepKind::Folded => -1,
        };
        let known = |(send, _): &&mut (SendId, i32)| *send == step.send_id;
        if let Some((_, last)) = self.rounds.iter_mut().find(known) {
            *last = round.max(*last);
            return;
        }
        if self.rounds.len() == SENDS_MAX {
            self.rounds.pop_front();
        }
        self.rounds.push_back((step.send_id, round));
    }

    fn knows(&self, send: SendId) -> bool {
        self.rounds.iter().any(|(known, _)| *known == send)
    }

    /// Whether a live event is not yet covered by a durable one.
    fn is_new(&self, event: &LiveEvent) -> bool {
        let known = self.rounds.iter().find(|(send, _)| *send == event.send_id);
        let durable = known.map_or(-1, |(_, round)| *round);
        match &event.kind {
            LiveKind::SendStarted => durable < 0,
            LiveKind::RoundStarted { round, .. }
            | LiveKind::MessageReset { round, .. }
            | LiveKind::ModelWarning { round, .. } => *round > durable,
            LiveKind::MessageDelta(delta) | LiveKind::ReasoningDelta(delta) => {
                delta.round > durable
            }
            LiveKind::ToolCallStarted { .. } | LiveKind::ToolCallProgress { .. } => {
                durable < i32::MAX
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use mainspring_shared::event::Delta;
    use mainspring_shared::id::BootId;
    use mainspring_shared::step::{RoundRef, StepRefs};
    use mainspring_shared::time::Timestamp;
    use mainspring_shared::usage::Usage;
    use uuid::Uuid;

    use super::*;

    fn step(kind: StepKind, round: Option<i32>) -> Step {
        Step {
            n: 1,
            send_id: SendId(Uuid::from_u128(1)),
            kind,
            epoch: 1,
            boot: BootId(Uuid::from_u128(2)),
            at: Timestamp(0),
            refs: StepRefs {
                round: round.map(|index| RoundRef {
                    index,
                    model: "demo".to_owned(),
                    usage: Usage::default(),
                    digest: None,
                    folded: None,
                    aged_to: None,
                    recalled: None,
                }),
                ..StepRefs::default()
            },
        }
    }

    fn delta(round: i32) -> LiveEvent {
        let delta = Delta {
            round,
            attempt: 1,
            offset: 0,
            text: "x".to_owned(),
        };
        LiveEvent {
            send_id: SendId(Uuid::from_u128(1)),
            kind: LiveKind::MessageDelta(delta),
        }
    }

    #[test]
    fn a_delta_of_a_durable_round_is_no_news() {
        let mut progress = Progress::default();
        progress.note(&step(StepKind::Accepted, None));
        assert!(progress.is_new(&delta(0)));
        progress.note(&step(StepKind::Round, Some(0)));
        assert!(!progress.is_new(&delta(0)));
        assert!(progress.is_new(&delta(1)));
        progress.note(&step(StepKind::Finished, Some(1)));
        assert!(!progress.is_new(&delta(1)));
    }

    #[test]
    fn only_the_last_sends_are_remembered() {
        let mut progress = Progress::default();
        for n in 0..100 {
            let mut step = step(StepKind::Accepted, None);
            step.send_id = SendId(Uuid::from_u128(n));
            progress.note(&step);
        }
        assert_eq!(progress.rounds.len(), SENDS_MAX);
        assert!(progress.knows(SendId(Uuid::from_u128(99))));
    }
}
