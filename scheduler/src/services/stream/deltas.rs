//! Tracks how much of the streamed text a reader has received.
//!
//! Workers replay deltas from the start whenever a reader connects late. The tracker trims them, so
//! that each reader gets every character once, in order, and nothing from a void attempt.

use std::collections::VecDeque;

use mainspring_shared::event::{Delta, LiveEvent, LiveKind};
use mainspring_shared::id::SendId;

/// Number of sends that are tracked.
const SENDS_MAX: usize = 16;

/// What to do with a live event.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    /// Deliver it, without the text that was already received.
    Pass(LiveEvent),
    /// Drop it: it contains nothing new, or belongs to a void attempt.
    Drop,
    /// Hold it back: text before it has not been received.
    Gap(LiveEvent),
}

#[derive(Debug, Clone, Copy)]
struct Offsets {
    send: SendId,
    round: i32,
    attempt: i32,
    /// Number of characters received.
    text: u64,
    reasoning: u64,
}

/// The offsets of the latest sends.
#[derive(Debug, Default)]
pub(super) struct DeltaTracker {
    sends: VecDeque<Offsets>,
}

impl DeltaTracker {
    /// Judges an event. A delta after missing text is a gap if `wait_for_gap` is set; otherwise it
    /// passes as it is.
    pub(super) fn judge(&mut self, mut event: LiveEvent, wait_for_gap: bool) -> Verdict {
        let (round, attempt) = match &event.kind {
            LiveKind::MessageDelta(delta) | LiveKind::ReasoningDelta(delta) => {
                (delta.round, delta.attempt)
            }
            LiveKind::MessageReset { round, attempt, .. } => (*round, *attempt),
            LiveKind::SendStarted
            | LiveKind::RoundStarted { .. }
            | LiveKind::ModelWarning { .. }
            | LiveKind::ToolCallStarted { .. }
            | LiveKind::ToolCallProgress { .. } => return Verdict::Pass(event),
        };
        let offsets = self.offsets(event.send_id);
        if (round, attempt) < (offsets.round, offsets.attempt) {
            return Verdict::Drop;
        }
        if (round, attempt) > (offsets.round, offsets.attempt) {
            *offsets = Offsets {
                send: offsets.send,
                round,
                attempt,
                text: 0,
                reasoning: 0,
            };
        }
        let trimmed = match &mut event.kind {
            LiveKind::MessageDelta(delta) => trim(delta, &mut offsets.text, wait_for_gap),
            LiveKind::ReasoningDelta(delta) => trim(delta, &mut offsets.reasoning, wait_for_gap),
            LiveKind::SendStarted
            | LiveKind::RoundStarted { .. }
            | LiveKind::MessageReset { .. }
            | LiveKind::ModelWarning { .. }
            | LiveKind::ToolCallStarted { .. }
            | LiveKind::ToolCallProgress { .. } => Some(true),
        };
        match trimmed {
            Some(true) => Verdict::Pass(event),
            Some(false) => Verdict::Drop,
            None => Verdict::Gap(event),
        }
    }

    fn offsets(&mut self, send: SendId) -> &mut Offsets {
        let at = self.sends.iter().position(|offsets| offsets.send == send);
        let at = at.unwrap_or_else(|| {
            if self.sends.len() == SENDS_MAX {
                self.sends.pop_front();
            }
            self.sends.push_back(Offsets {
                send,
                round: -1,
                attempt: -1,
                text: 0,
                reasoning: 0,
            });
            self.sends.len() - 1
        });
        &mut self.sends[at]
    }
}

/// Cuts off text that was already received. Returns whether any text is left, or none if text
/// before the delta is missing.
fn trim(delta: &mut Delta, deltas: &mut u64, wait_for_gap: bool) -> Option<bool> {
    if delta.offset > *deltas && wait_for_gap {
        return None;
    }
    let end = delta.offset + delta.text.chars().count() as u64;
    if end <= *deltas {
        return Some(false);
    }
    let known = deltas.saturating_sub(delta.offset);
    if known > 0 {
        delta.text = delta
            .text
            .chars()
            .skip(usize::try_from(known).unwrap_or(0))
            .collect();
        delta.offset = *deltas;
    }
    *deltas = end;
    Some(true)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn delta(attempt: i32, offset: u64, text: &str) -> LiveEvent {
        LiveEvent {
            send_id: SendId(Uuid::nil()),
            kind: LiveKind::MessageDelta(Delta {
                round: 0,
                attempt,
                offset,
                text: text.to_owned(),
            }),
        }
    }

    #[test]
    fn each_character_is_heard_once() {
        let mut deltas = DeltaTracker::default();
        let gap = deltas.judge(delta(1, 3, "d"), true);
        assert_eq!(gap, Verdict::Gap(delta(1, 3, "d")));
        let all = deltas.judge(delta(1, 0, "abcd"), true);
        assert_eq!(all, Verdict::Pass(delta(1, 0, "abcd")));
        assert_eq!(deltas.judge(delta(1, 3, "d"), true), Verdict::Drop);
        // A replay for another reader, with one more character.
        let rest = deltas.judge(delta(1, 0, "abcde\u{e9}"), true);
        assert_eq!(rest, Verdict::Pass(delta(1, 4, "e\u{e9}")));
        let next = deltas.judge(delta(1, 6, "f"), true);
        assert_eq!(next, Verdict::Pass(delta(1, 6, "f")));
    }

    #[test]
    fn nothing_of_a_void_attempt_passes() {
        let mut deltas = DeltaTracker::default();
        deltas.judge(delta(1, 0, "abc"), true);
        let reset = LiveEvent {
            send_id: SendId(Uuid::nil()),
            kind: LiveKind::MessageReset {
                round: 0,
                attempt: 2,
                reason: "takeover".to_owned(),
            },
        };
        assert_eq!(deltas.judge(reset.clone(), true), Verdict::Pass(reset));
        assert_eq!(deltas.judge(delta(1, 3, "late"), true), Verdict::Drop);
        let first = deltas.judge(delta(2, 0, "xyz"), true);
        assert_eq!(first, Verdict::Pass(delta(2, 0, "xyz")));
    }

    #[test]
    fn what_stays_missing_is_passed_over_in_the_end() {
        let mut deltas = DeltaTracker::default();
        let late = deltas.judge(delta(1, 5, "fg"), false);
        assert_eq!(late, Verdict::Pass(delta(1, 5, "fg")));
        let next = deltas.judge(delta(1, 7, "h"), true);
        assert_eq!(next, Verdict::Pass(delta(1, 7, "h")));
    }
}
