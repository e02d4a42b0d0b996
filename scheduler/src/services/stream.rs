//! A reader of events: the durable ones from the steps in the database, each once and in order,
//! and between them the live ones that pass by.
//!
//! It listens first, reads rows second and drops what it has seen, so that nothing falls between;
//! and since it needs only the database to resume, it works on any replica.

mod frame;
mod heard;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use mainspring_shared::bus::{Notice, Topic, WATCHED};
use mainspring_shared::event::{EventId, LiveEvent, LiveKind, expand};
use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::message::Message;
use mainspring_shared::send::{SendRecord, SendView};
use mainspring_shared::step::{Step, StepKind};
use mainspring_shared::store::ReadMessages;

use self::heard::{Heard, Verdict};
use crate::app::App;
use crate::error::Error;
use crate::services::watch::Watching;

/// Steps read at once.
const STEPS: u32 = 64;

/// Messages read at once, unless one step wrote more.
const MESSAGES: u32 = 32;

/// Bytes after which what was rendered is handed over.
const CHUNK: usize = 128 << 10;

/// Live events that may wait for the durable ones before them.
const HELD_MAX: usize = 1_024;

/// Sends whose progress is remembered; a session has one that runs, the others are late echoes.
const REMEMBERED: usize = 16;

/// How long pieces wait for those before them.
const PATIENCE: Duration = Duration::from_millis(500);

/// Pause after a failed read.
const RETRY: Duration = Duration::from_millis(500);

/// What a reader follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// A session, for ever.
    Session,
    /// One send, up to its final event. Whether it was final before the reader began.
    Send {
        /// The send.
        id: SendId,
        /// Whether nothing but its stored events is to be expected.
        is_final: bool,
    },
}

/// A reader at its place.
pub struct Reader {
    app: Arc<App>,
    key: SessionKey,
    scope: Scope,
    /// Steps above this number were not read yet.
    read_to: i64,
    /// Events up to this one were delivered.
    seen: EventId,
    /// Whether there may be steps to read.
    unread: bool,
    /// The last event was delivered.
    over: bool,
    progress: Progress,
    /// A piece of the transcript, read ahead.
    messages: Vec<Message>,
    poke: Watching<SessionKey>,
    live: Option<BoxStream<'static, Notice>>,
    held: VecDeque<LiveEvent>,
    heard: Heard,
    /// Until when pieces wait for those before them, which were asked for.
    patient_until: Duration,
    next_beat: Duration,
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
    /// Listens, and begins behind `seen`. `first_step` is where the scope begins at the earliest.
    pub async fn open(
        app: Arc<App>,
        key: SessionKey,
        scope: Scope,
        first_step: i64,
        seen: Option<EventId>,
        poke: Watching<SessionKey>,
    ) -> Self {
        let live = app.bus.subscribe(Topic::Live(key)).await;
        let is_final = matches!(scope, Scope::Send { is_final: true, .. });
        if !is_final {
            ask_for_all(&app, key);
        }
        let patient_until = app.clock.monotonic() + PATIENCE;
        let next_beat = app.clock.monotonic() + app.config.heartbeat;
        let seen_step = seen.map_or(0, |seen| seen.n - 1);
        Self {
            app,
            key,
            scope,
            // The step of the last seen event is read again: there may be more events in it.
            read_to: seen_step.max(first_step - 1).max(0),
            seen: seen.unwrap_or_default(),
            unread: true,
            over: false,
            progress: Progress::default(),
            messages: Vec::new(),
            poke,
            live: Some(live),
            held: VecDeque::new(),
            heard: Heard::default(),
            patient_until,
            next_beat,
        }
    }

    /// The next piece of the stream; `None` at its end.
    pub async fn next(&mut self) -> Option<Bytes> {
        while !self.over {
            if self.unread {
                if let Some(piece) = self.read().await {
                    return Some(piece);
                }
                continue;
            }
            if let Some(piece) = self.release_held() {
                return Some(piece);
            }
            if let Some(beat) = self.listen().await {
                return Some(beat);
            }
        }
        None
    }

    /// Waits for something to do. Returns a comment when it is time for one.
    async fn listen(&mut self) -> Option<Bytes> {
        let rest = self.next_beat.saturating_sub(self.app.clock.monotonic());
        // Pieces that are held now wait for those before them.
        let patience = self
            .patient_until
            .saturating_sub(self.app.clock.monotonic());
        let heard = async {
            match &mut self.live {
                Some(live) => live.next().await,
                None => futures::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.app.lifecycle.stopping() => self.over = true,
            () = self.poke.poked() => self.unread = true,
            notice = heard => match notice {
                Some(Notice::Payload(payload)) => self.hold(&payload),
                Some(Notice::Gap) => {
                    self.unread = true;
                    self.patient_until = self.app.clock.monotonic() + PATIENCE;
                    ask_for_all(&self.app, self.key);
                }
                None => self.live = None,
            },
            () = self.app.clock.sleep(patience), if !self.held.is_empty() => {}
            () = self.app.clock.sleep(rest) => {
                self.next_beat = self.app.clock.monotonic() + self.app.config.heartbeat;
                return Some(frame::COMMENT);
            }
        }
        None
    }

    /// Reads on and renders what is new. Nothing when nothing is new, or when it cannot be read
    /// now.
    async fn read(&mut self) -> Option<Bytes> {
        let mut out = Vec::new();
        if let Err(error) = self.read_page(&mut out).await {
            tracing::debug!(code = %error.code(), "a stream cannot read on, trying again");
            if out.is_empty() {
                tokio::select! {
                    biased;
                    () = self.app.clock.sleep(RETRY) => {}
                    () = self.app.lifecycle.stopping() => self.over = true,
                }
            }
        }
        if out.is_empty() {
            None
        } else {
            Some(Bytes::from(out))
        }
    }

    async fn read_page(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        let steps = self
            .app
            .store
            .read_steps(self.key, self.read_to, STEPS)
            .await?;
        let count = steps.len();
        for step in steps {
            let mine = match self.scope {
                Scope::Session => true,
                Scope::Send { id, .. } => step.send_id == id,
            };
            if mine {
                self.render(&step, out).await?;
            }
            self.read_to = step.n;
            if self.over || out.len() >= CHUNK {
                return Ok(());
            }
        }
        if count == STEPS as usize {
            return Ok(());
        }
        self.unread = false;
        if count == 0
            && let Scope::Send { id, is_final } = self.scope
        {
            // A final send without a last event to come: it was delivered before, or its steps
            // are gone. One more look, since the send may have ended between the two reads.
            if is_final {
                self.over = true;
            } else if self.ended(id).await? {
                self.scope = Scope::Send { id, is_final: true };
                self.unread = true;
            }
        }
        Ok(())
    }

    async fn ended(&mut self, id: SendId) -> Result<bool, Error> {
        let send = self.app.watch.read_send(self.key.tenant, id).await?;
        Ok(send.is_none_or(|send: SendRecord| send.status.is_final()))
    }

    async fn render(&mut self, step: &Step, out: &mut Vec<u8>) -> Result<(), Error> {
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
            | StepKind::Resumed => None,
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
        for event in expand(step, &written, view.as_ref()) {
            if event.id > self.seen {
                frame::durable(out, &event, step.send_id);
                self.seen = event.id;
            }
            self.over |= event.last && matches!(self.scope, Scope::Send { .. });
        }
        self.progress.note(step);
        Ok(())
    }

    /// Makes sure that the messages which a step wrote are at hand.
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

    /// Takes live events in. Those of a send that was not heard of wait for its first step.
    fn hold(&mut self, payload: &[u8]) {
        let events: Vec<LiveEvent> = match serde_json::from_slice(payload) {
            Ok(events) => events,
            Err(error) => {
                tracing::debug!(error = %error, "live events make no sense");
                return;
            }
        };
        for event in events {
            let mine = match self.scope {
                Scope::Session => true,
                Scope::Send { id, .. } => event.send_id == id,
            };
            if mine && self.held.len() < HELD_MAX {
                self.unread |= !self.progress.knows(event.send_id);
                self.held.push_back(event);
            }
        }
    }

    /// Renders the live events that are news.
    fn release_held(&mut self) -> Option<Bytes> {
        let mut out = Vec::new();
        let patient = self.app.clock.monotonic() < self.patient_until;
        let mut events = std::mem::take(&mut self.held);
        loop {
            let count = events.len();
            let before = out.len();
            for event in std::mem::take(&mut events) {
                if !self.progress.is_news(&event) {
                    continue;
                }
                match self.heard.judge(event, patient) {
                    Verdict::Pass(event) => frame::live(&mut out, &event),
                    Verdict::Drop => {}
                    Verdict::Gap(event) => events.push_back(event),
                }
            }
            // What was missing may have come behind what waited for it.
            if events.is_empty() || events.len() == count || out.len() == before {
                break;
            }
        }
        self.held = events;
        if out.is_empty() {
            None
        } else {
            Some(Bytes::from(out))
        }
    }
}

/// Asks the worker that has the session for all that was streamed so far.
fn ask_for_all(app: &App, key: SessionKey) {
    app.notifier.signal(key, WATCHED);
}

/// How far the durable events of the last sends have come.
#[derive(Debug, Default)]
struct Progress {
    /// Each send's last durable round, `i32::MAX` once it is final, -1 before its first.
    rounds: VecDeque<(SendId, i32)>,
}

impl Progress {
    fn note(&mut self, step: &Step) {
        let round = match step.kind {
            StepKind::Finished => i32::MAX,
            StepKind::Round => step.refs.round.as_ref().map_or(-1, |round| round.index),
            StepKind::Accepted | StepKind::Calls | StepKind::Waiting | StepKind::Resumed => -1,
        };
        let known = |(send, _): &&mut (SendId, i32)| *send == step.send_id;
        if let Some((_, last)) = self.rounds.iter_mut().find(known) {
            *last = round.max(*last);
            return;
        }
        if self.rounds.len() == REMEMBERED {
            self.rounds.pop_front();
        }
        self.rounds.push_back((step.send_id, round));
    }

    fn knows(&self, send: SendId) -> bool {
        self.rounds.iter().any(|(known, _)| *known == send)
    }

    /// Whether a live event says something that no durable one has said already.
    fn is_news(&self, event: &LiveEvent) -> bool {
        let known = self.rounds.iter().find(|(send, _)| *send == event.send_id);
        let durable = known.map_or(-1, |(_, round)| *round);
        match &event.kind {
            LiveKind::SendStarted => durable < 0,
            LiveKind::RoundStarted { round, .. } | LiveKind::MessageReset { round, .. } => {
                *round > durable
            }
            LiveKind::MessageDelta(delta) | LiveKind::ReasoningDelta(delta) => {
                delta.round > durable
            }
            LiveKind::ToolCallStarted { .. } => durable < i32::MAX,
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
        assert!(progress.is_news(&delta(0)));
        progress.note(&step(StepKind::Round, Some(0)));
        assert!(!progress.is_news(&delta(0)));
        assert!(progress.is_news(&delta(1)));
        progress.note(&step(StepKind::Finished, Some(1)));
        assert!(!progress.is_news(&delta(1)));
    }

    #[test]
    fn only_the_last_sends_are_remembered() {
        let mut progress = Progress::default();
        for n in 0..100 {
            let mut step = step(StepKind::Accepted, None);
            step.send_id = SendId(Uuid::from_u128(n));
            progress.note(&step);
        }
        assert_eq!(progress.rounds.len(), REMEMBERED);
        assert!(progress.knows(SendId(Uuid::from_u128(99))));
    }
}
