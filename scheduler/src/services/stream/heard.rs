//! How far a reader has heard the answers that are under way.
//!
//! Pieces are told again from the beginning whenever a reader comes late: each reader gets every
//! character once, in order, and nothing of an attempt that is void.

use std::collections::VecDeque;

use mainspring_shared::event::{Delta, LiveEvent, LiveKind};
use mainspring_shared::id::SendId;

/// Sends whose answers are followed at once.
const REMEMBERED: usize = 16;

/// What is to be done with a live event.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    /// It is news, as far as it is left.
    Pass(LiveEvent),
    /// It says nothing new, or belongs to an attempt that is void.
    Drop,
    /// What comes before it was not heard.
    Gap(LiveEvent),
}

#[derive(Debug, Clone, Copy)]
struct Answer {
    send: SendId,
    round: i32,
    attempt: i32,
    /// Characters.
    text: u64,
    reasoning: u64,
}

/// The answers of the last sends.
#[derive(Debug, Default)]
pub(super) struct Heard {
    answers: VecDeque<Answer>,
}

impl Heard {
    /// Judges an event. With `patient` a piece whose beginning is missing is a gap; otherwise it
    /// passes as it is.
    pub(super) fn judge(&mut self, mut event: LiveEvent, patient: bool) -> Verdict {
        let (round, attempt) = match &event.kind {
            LiveKind::MessageDelta(delta) | LiveKind::ReasoningDelta(delta) => {
                (delta.round, delta.attempt)
            }
            LiveKind::MessageReset { round, attempt, .. } => (*round, *attempt),
            LiveKind::SendStarted
            | LiveKind::RoundStarted { .. }
            | LiveKind::ToolCallStarted { .. } => return Verdict::Pass(event),
        };
        let answer = self.answer(event.send_id);
        if (round, attempt) < (answer.round, answer.attempt) {
            return Verdict::Drop;
        }
        if (round, attempt) > (answer.round, answer.attempt) {
            *answer = Answer {
                send: answer.send,
                round,
                attempt,
                text: 0,
                reasoning: 0,
            };
        }
        let told = match &mut event.kind {
            LiveKind::MessageDelta(delta) => trim(delta, &mut answer.text, patient),
            LiveKind::ReasoningDelta(delta) => trim(delta, &mut answer.reasoning, patient),
            LiveKind::SendStarted
            | LiveKind::RoundStarted { .. }
            | LiveKind::MessageReset { .. }
            | LiveKind::ToolCallStarted { .. } => Some(true),
        };
        match told {
            Some(true) => Verdict::Pass(event),
            Some(false) => Verdict::Drop,
            None => Verdict::Gap(event),
        }
    }

    fn answer(&mut self, send: SendId) -> &mut Answer {
        let at = self.answers.iter().position(|answer| answer.send == send);
        let at = at.unwrap_or_else(|| {
            if self.answers.len() == REMEMBERED {
                self.answers.pop_front();
            }
            self.answers.push_back(Answer {
                send,
                round: -1,
                attempt: -1,
                text: 0,
                reasoning: 0,
            });
            self.answers.len() - 1
        });
        &mut self.answers[at]
    }
}

/// Cuts off what was heard already. Whether anything is left; none where something is missing before
/// it.
fn trim(delta: &mut Delta, heard: &mut u64, patient: bool) -> Option<bool> {
    if delta.offset > *heard && patient {
        return None;
    }
    let end = delta.offset + delta.text.chars().count() as u64;
    if end <= *heard {
        return Some(false);
    }
    let known = heard.saturating_sub(delta.offset);
    if known > 0 {
        delta.text = delta
            .text
            .chars()
            .skip(usize::try_from(known).unwrap_or(0))
            .collect();
        delta.offset = *heard;
    }
    *heard = end;
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
        let mut heard = Heard::default();
        let gap = heard.judge(delta(1, 3, "d"), true);
        assert_eq!(gap, Verdict::Gap(delta(1, 3, "d")));
        let all = heard.judge(delta(1, 0, "abcd"), true);
        assert_eq!(all, Verdict::Pass(delta(1, 0, "abcd")));
        assert_eq!(heard.judge(delta(1, 3, "d"), true), Verdict::Drop);
        // Told again for somebody else, with one piece more.
        let rest = heard.judge(delta(1, 0, "abcde\u{e9}"), true);
        assert_eq!(rest, Verdict::Pass(delta(1, 4, "e\u{e9}")));
        let next = heard.judge(delta(1, 6, "f"), true);
        assert_eq!(next, Verdict::Pass(delta(1, 6, "f")));
    }

    #[test]
    fn nothing_of_a_void_attempt_passes() {
        let mut heard = Heard::default();
        heard.judge(delta(1, 0, "abc"), true);
        let reset = LiveEvent {
            send_id: SendId(Uuid::nil()),
            kind: LiveKind::MessageReset {
                round: 0,
                attempt: 2,
                reason: "takeover".to_owned(),
            },
        };
        assert_eq!(heard.judge(reset.clone(), true), Verdict::Pass(reset));
        assert_eq!(heard.judge(delta(1, 3, "late"), true), Verdict::Drop);
        let first = heard.judge(delta(2, 0, "xyz"), true);
        assert_eq!(first, Verdict::Pass(delta(2, 0, "xyz")));
    }

    #[test]
    fn what_stays_missing_is_passed_over_in_the_end() {
        let mut heard = Heard::default();
        let late = heard.judge(delta(1, 5, "fg"), false);
        assert_eq!(late, Verdict::Pass(delta(1, 5, "fg")));
        let next = heard.judge(delta(1, 7, "h"), true);
        assert_eq!(next, Verdict::Pass(delta(1, 7, "h")));
    }
}
