//! The text so far of an answer in flight; readers that connect late are sent it from the
//! beginning.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mainspring_shared::event::{Delta, LiveEvent, LiveKind};
use mainspring_shared::id::{SendId, SessionKey};

use crate::live::Live;
use crate::llm::Chunk;

/// Minimum time between two retellings of the same answer, however many readers connect.
const PACE: Duration = Duration::from_millis(100);

/// The open attempt of a send. All streaming goes through here, so that a retelling never comes
/// between a chunk and its offset.
#[derive(Debug)]
pub(crate) struct PartialAnswer {
    key: SessionKey,
    send: SendId,
    live: Live,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    round: i32,
    attempt: i32,
    text: Text,
    reasoning: Text,
    /// When it was last retold.
    told_at: Option<Duration>,
    /// Whether a retelling is scheduled.
    is_due: bool,
}

#[derive(Debug, Default)]
struct Text {
    text: String,
    chars: u64,
}

impl PartialAnswer {
    pub(crate) fn new(key: SessionKey, send: SendId, live: Live) -> Self {
        Self {
            key,
            send,
            live,
            state: Mutex::default(),
        }
    }

    /// Begins the attempt that the next chunks belong to.
    pub(crate) fn begin(&self, round: i32, attempt: i32) {
        let mut state = self.lock();
        (state.round, state.attempt) = (round, attempt);
        state.text = Text::default();
        state.reasoning = Text::default();
    }

    /// Forwards a chunk; returns its number of characters.
    pub(crate) fn piece(&self, chunk: &Chunk<'_>) -> u64 {
        let mut state = self.lock();
        let (round, attempt) = (state.round, state.attempt);
        let (kept, text): (_, &str) = match chunk {
            Chunk::Text(text) => (&mut state.text, text),
            Chunk::Reasoning(text) => (&mut state.reasoning, text),
            Chunk::Hidden(_) | Chunk::Counted(_) | Chunk::Background(_) => return 0,
        };
        let delta = Delta {
            round,
            attempt,
            offset: kept.chars,
            text: text.to_owned(),
        };
        let count = text.chars().count() as u64;
        kept.text.push_str(text);
        kept.chars += count;
        let kind = match chunk {
            Chunk::Text(_) => LiveKind::MessageDelta(delta),
            _ => LiveKind::ReasoningDelta(delta),
        };
        self.send(kind);
        count
    }

    /// The text of the open attempt so far.
    pub(crate) fn text(&self) -> String {
        self.lock().text.text.clone()
    }

    /// A reader connected late. Retells everything so far, or returns how long to wait before
    /// [`PartialAnswer::tell`] must be called; `None` also if another caller already waits.
    pub(crate) fn asked(&self, now: Duration) -> Option<Duration> {
        let wait = {
            let mut state = self.lock();
            let due = state.told_at.map_or(now, |told| told + PACE);
            let wait = due.saturating_sub(now);
            if wait.is_zero() {
                None
            } else if std::mem::replace(&mut state.is_due, true) {
                return None;
            } else {
                Some(wait)
            }
        };
        if wait.is_none() {
            self.tell(now);
        }
        wait
    }

    /// Retells everything so far.
    pub(crate) fn tell(&self, now: Duration) {
        let mut state = self.lock();
        (state.told_at, state.is_due) = (Some(now), false);
        let (round, attempt) = (state.round, state.attempt);
        let whole = |text: &Text| Delta {
            round,
            attempt,
            offset: 0,
            text: text.text.clone(),
        };
        if state.reasoning.chars > 0 {
            self.send(LiveKind::ReasoningDelta(whole(&state.reasoning)));
        }
        if state.text.chars > 0 {
            self.send(LiveKind::MessageDelta(whole(&state.text)));
        }
    }

    fn send(&self, kind: LiveKind) {
        let send_id = self.send;
        self.live.send(self.key, LiveEvent { send_id, kind });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code under this lock can panic midway, so the value is never half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use mainspring_shared::id::{SessionId, TenantId};
    use tokio::sync::mpsc;
    use uuid::Uuid;

    use super::*;

    fn said() -> (PartialAnswer, mpsc::Receiver<(SessionKey, LiveEvent)>) {
        let (live, events) = Live::ends(16);
        let key = SessionKey {
            tenant: TenantId::DEFAULT,
            session: SessionId(Uuid::nil()),
        };
        (PartialAnswer::new(key, SendId(Uuid::nil()), live), events)
    }

    fn next(events: &mut mpsc::Receiver<(SessionKey, LiveEvent)>) -> (i32, u64, String) {
        match events.try_recv().expect("something was sent").1.kind {
            LiveKind::MessageDelta(delta) => (delta.attempt, delta.offset, delta.text),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn who_comes_late_is_told_all_of_the_open_attempt_and_what_follows_goes_on_from_there() {
        let (said, mut events) = said();
        said.begin(0, 1);
        said.piece(&Chunk::Text("void"));
        said.begin(0, 2);
        said.piece(&Chunk::Text("a\u{e9}"));
        said.piece(&Chunk::Text("b"));
        (0..3).for_each(|_| drop(next(&mut events)));
        assert_eq!(said.asked(Duration::from_secs(1)), None);
        said.piece(&Chunk::Text("c"));
        assert_eq!(next(&mut events), (2, 0, "a\u{e9}b".to_owned()));
        assert_eq!(next(&mut events), (2, 3, "c".to_owned()));
    }

    #[test]
    fn many_who_come_at_once_are_told_together() {
        let (said, mut events) = said();
        said.begin(0, 1);
        said.piece(&Chunk::Text("a"));
        next(&mut events);
        let now = Duration::from_secs(1);
        assert_eq!(said.asked(now), None);
        next(&mut events);
        assert_eq!(said.asked(now), Some(PACE));
        assert_eq!(said.asked(now), None);
        assert!(events.try_recv().is_err());
        said.tell(now + PACE);
        next(&mut events);
    }
}
