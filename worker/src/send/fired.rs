//! A send that a timer fired, before it begins: hooks may let it go, change what it says, or end it.

use mainspring_shared::error::Code;
use mainspring_shared::message::NewMessage;
use mainspring_shared::send::machine::Event;

use super::model_call::NoReply;
use super::run::Run;
use super::unsaid::Unsaid;
use crate::hook::{FiredTimer, Refusal};

/// What hooks made of the send, and what of that is still to be done.
#[derive(Debug, Default)]
pub(super) struct Fired {
    judged: Judged,
    /// Whether its words were changed and that is not stored yet.
    is_reworded: bool,
}

#[derive(Debug, Default)]
enum Judged {
    /// It goes on; so does a send that no timer fired.
    #[default]
    Goes,
    /// Nothing is said.
    Skipped,
    /// It must not be said, or nobody could judge it.
    Refused(Refusal),
    /// Nobody could judge it, and the machine was told: hooks are asked again with its next attempt.
    Open,
}

impl Run<'_> {
    /// Asks hooks about a send that a timer fired, unless an earlier worker has stored what they said.
    pub(super) async fn judge_fired(&mut self) {
        let record = &self.send.record;
        let Some(by) = record.options.fired_by else {
            return;
        };
        let hooks = self.kernel.parts.hooks.clone();
        let decided = record.shown.as_ref().is_some_and(|shown| shown.let_go);
        if decided || record.rounds > 0 || hooks.is_empty() {
            return;
        }
        let fired = FiredTimer {
            timer: by.timer,
            n: by.n,
            due_at: by.due_at,
            input: record.input.clone(),
        };
        let mut judged = Err(Refusal {
            code: Code::PolicyUnavailable,
            message: "the send was stopped".to_owned(),
        });
        let place = self.place();
        let asked = async { judged = hooks.timer_fired(place, fired).await };
        self.observed(asked, true).await;
        self.prompt.fired.judged = match judged {
            Ok(Some(input)) => {
                let shown = self.bill.totals.shown.get_or_insert_default();
                shown.let_go = true;
                if input != self.send.record.input {
                    shown.input = Some(input.clone());
                    let words = NewMessage::user(input.clone(), 0);
                    self.prompt.unsaid.reword(&self.send.record.input, words);
                    self.send.record.input = input;
                    self.prompt.fired.is_reworded = true;
                }
                Judged::Goes
            }
            Ok(None) => Judged::Skipped,
            Err(refusal) => Judged::Refused(refusal),
        };
    }

    /// What becomes of the send where hooks did not just let it go. What they changed is stored before the
    /// model is told of it.
    pub(super) async fn heed_fired(&mut self, attempt: i32) -> Option<Event> {
        if matches!(self.prompt.fired.judged, Judged::Open) {
            self.judge_fired().await;
        }
        match std::mem::take(&mut self.prompt.fired.judged) {
            Judged::Goes => {}
            Judged::Skipped => {
                self.prompt.unsaid = Unsaid::default();
                return Some(self.answered(Err(NoReply::Ended)));
            }
            Judged::Refused(refusal) => {
                self.bill.totals.attempts = attempt;
                self.prompt.fired.judged = Judged::Open;
                return Some(self.answered(Err(NoReply::Policy(refusal))));
            }
            Judged::Open => self.prompt.fired.judged = Judged::Open,
        }
        if std::mem::take(&mut self.prompt.fired.is_reworded) {
            return self.store_changes(Vec::new()).await;
        }
        None
    }
}
