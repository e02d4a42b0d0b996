//! Live events on their way to listeners.
//!
//! Each session's events of the same few milliseconds share one payload, and adjacent pieces of
//! text are joined. The first event after a pause is sent at once. Everything is bounded and may be
//! dropped: the finished message contains the same text.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mainspring_runtime::buggify;
use mainspring_shared::bus::{Bus, Topic};
use mainspring_shared::event::{LiveEvent, LiveKind};
use mainspring_shared::id::SessionKey;
use mainspring_shared::time::Clock;
use tokio::sync::mpsc;

/// Maximum number of buffered events; a full buffer drops new ones.
const WAITING_MAX: usize = 16_384;

/// The interval between payloads: short enough to look continuous, long enough to join the pieces
/// of a fast stream.
const PACE: Duration = Duration::from_millis(15);

/// The sending end, shared by all runs.
#[derive(Debug, Clone)]
pub(crate) struct Live {
    events: mpsc::Sender<(SessionKey, LiveEvent)>,
}

impl Live {
    /// Starts the task that publishes; it ends with the last clone.
    pub(crate) fn spawn(bus: Arc<dyn Bus>, clock: Arc<dyn Clock>) -> Self {
        let (events, mut inbox) = mpsc::channel(WAITING_MAX);
        tokio::spawn(async move {
            let mut batch = Vec::new();
            while inbox.recv_many(&mut batch, WAITING_MAX).await > 0 {
                publish(bus.as_ref(), &mut batch);
                clock.sleep(PACE).await;
            }
        });
        Self { events }
    }

    /// A sender, and the receiver of what it sends.
    #[cfg(test)]
    pub(crate) fn ends(waiting_max: usize) -> (Self, mpsc::Receiver<(SessionKey, LiveEvent)>) {
        let (events, inbox) = mpsc::channel(waiting_max);
        (Self { events }, inbox)
    }

    /// Sends an event, or drops it if too many are waiting.
    pub(crate) fn send(&self, key: SessionKey, event: LiveEvent) {
        if buggify("live.full") {
            return;
        }
        // A full buffer drops events on purpose.
        let _ = self.events.try_send((key, event));
    }
}

fn publish(bus: &dyn Bus, batch: &mut Vec<(SessionKey, LiveEvent)>) {
    let mut sessions: BTreeMap<SessionKey, Vec<LiveEvent>> = BTreeMap::new();
    for (key, event) in batch.drain(..) {
        let events = sessions.entry(key).or_default();
        if !events.last_mut().is_some_and(|last| join(last, &event)) {
            events.push(event);
        }
    }
    for (key, events) in sessions {
        match serde_json::to_vec(&events) {
            Ok(json) => bus.publish(Topic::Live(key), Bytes::from(json)),
            Err(error) => tracing::error!(%error, "could not serialize live events"),
        }
    }
}

/// Appends a piece of text to the one before it, if it continues that one.
fn join(last: &mut LiveEvent, next: &LiveEvent) -> bool {
    if last.send_id != next.send_id {
        return false;
    }
    let ((LiveKind::MessageDelta(last), LiveKind::MessageDelta(next))
    | (LiveKind::ReasoningDelta(last), LiveKind::ReasoningDelta(next))) =
        (&mut last.kind, &next.kind)
    else {
        return false;
    };
    // Text that is sent from its beginning again does not continue what came before.
    let end = last.offset + last.text.chars().count() as u64;
    if (last.round, last.attempt, end) != (next.round, next.attempt, next.offset) {
        return false;
    }
    last.text.push_str(&next.text);
    true
}

#[cfg(test)]
mod tests {
    use mainspring_shared::event::Delta;
    use mainspring_shared::id::SendId;
    use uuid::Uuid;

    use super::*;

    fn delta(attempt: i32, offset: u64, text: &str) -> LiveEvent {
        let delta = Delta {
            round: 0,
            attempt,
            offset,
            text: text.into(),
        };
        LiveEvent {
            send_id: SendId(Uuid::nil()),
            kind: LiveKind::MessageDelta(delta),
        }
    }

    #[test]
    fn adjacent_pieces_of_one_attempt_become_one() {
        let mut first = delta(1, 0, "ab");
        assert!(join(&mut first, &delta(1, 2, "cd")));
        assert_eq!(first, delta(1, 0, "abcd"));
        assert!(!join(&mut first, &delta(2, 0, "x")));
        assert!(!join(&mut first, &delta(1, 0, "abcd")), "told again");
        assert!(join(&mut first, &delta(1, 4, "e")));
    }
}
