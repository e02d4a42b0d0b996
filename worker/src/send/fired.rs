//! A send that a timer fired, before it begins: hooks may let it run, change its input, or end it.

use std::time::Duration;

use mainspring_shared::agent::SendOptions;
use mainspring_shared::error::Code;
use mainspring_shared::id::TimerId;
use mainspring_shared::message::{ContentPart, NewMessage};
use mainspring_shared::send::machine::Event;
use mainspring_shared::store::{CreateTimerOutcome, IdempotencyKey, NewTimer};
use mainspring_shared::time::Timestamp;
use mainspring_shared::timer::{Schedule, TimerRule, TimerTarget};

use super::model_call::NoReply;
use super::pending_messages::PendingMessages;
use super::run::Run;
use crate::hook::{Fate, FiredTimer, OnFired, Refusal};

/// Minimum time by which a send is put off, so that hooks that put it off again and again do not
/// spin.
const SOONEST: Duration = Duration::from_secs(1);

/// What hooks decided about the send, and what of that is still to be done.
#[derive(Debug, Default)]
pub(super) struct Fired {
    decision: TimerDecision,
    /// Whether its input was changed and that is not stored yet.
    is_reworded: bool,
}

#[derive(Debug, Default)]
enum TimerDecision {
    /// It runs; so does a send that no timer fired.
    #[default]
    Goes,
    /// It is skipped.
    Skipped,
    /// It is put off until this time.
    PutOff(Timestamp),
    /// A hook refused it, or could not be reached.
    Refused(Refusal),
    /// No hook could be reached, and the machine was told; hooks are asked again with its next
    /// attempt.
    Open,
}

impl Run<'_> {
    /// Asks hooks about a send that a timer fired, unless an earlier worker has stored their
    /// decision.
    pub(super) async fn judge_fired(&mut self) {
        let record = &self.send.record;
        let Some(by) = record.options.fired_by else {
            return;
        };
        let hooks = self.kernel.parts.hooks.clone();
        if let Some(at) = record.shown.as_ref().and_then(|shown| shown.put_off) {
            self.prompt.fired.decision = TimerDecision::PutOff(at);
            return;
        }
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
        let mut decision = Err(Refusal {
            code: Code::PolicyUnavailable,
            message: "the send was stopped".to_owned(),
        });
        let place = self.place();
        let asked = async { decision = hooks.timer_fired(place, fired).await };
        self.observed(asked, true).await;
        self.prompt.fired.decision = match decision {
            Ok(Fate::PutOff(later, input)) => {
                let soonest = self.now().after(SOONEST);
                let at = match later {
                    OnFired::At(at) => at,
                    OnFired::After(wait) => self.now().after(wait),
                    OnFired::Input(_) => soonest,
                };
                self.reword(input);
                let at = at.max(soonest);
                self.bill.totals.shown.get_or_insert_default().put_off = Some(at);
                // Stored before anything is done about it, like changed input.
                self.prompt.fired.is_reworded = true;
                TimerDecision::PutOff(at)
            }
            Ok(Fate::Input(input)) => {
                self.bill.totals.shown.get_or_insert_default().let_go = true;
                self.reword(input);
                TimerDecision::Goes
            }
            Ok(Fate::Skipped) => TimerDecision::Skipped,
            Err(refusal) => TimerDecision::Refused(refusal),
        };
    }

    /// Whether hooks let the model see the send. If not, nothing is loaded for the model.
    pub(super) fn is_said(&self) -> bool {
        match &self.prompt.fired.decision {
            TimerDecision::Goes | TimerDecision::Open => true,
            TimerDecision::Skipped | TimerDecision::PutOff(_) => false,
            // A hook that could not be reached is asked again.
            TimerDecision::Refused(refusal) => refusal.code != Code::PolicyDenied,
        }
    }

    /// Replaces the input.
    fn reword(&mut self, input: Vec<ContentPart>) {
        if input == self.send.record.input {
            return;
        }
        let shown = self.bill.totals.shown.get_or_insert_default();
        shown.input = Some(input.clone());
        let words = NewMessage::user(input.clone(), 0);
        self.prompt
            .pending_messages
            .reword(&self.send.record.input, words);
        self.send.record.input = input;
        self.prompt.fired.is_reworded = true;
    }

    /// Acts on the decision of hooks if they did not simply let the send run. Changes are stored
    /// before the model is told of them.
    pub(super) async fn apply_timer_decision(&mut self, attempt: i32) -> Option<Event> {
        if matches!(self.prompt.fired.decision, TimerDecision::Open) {
            self.judge_fired().await;
        }
        match std::mem::take(&mut self.prompt.fired.decision) {
            TimerDecision::Goes => {}
            TimerDecision::PutOff(at) => {
                if std::mem::take(&mut self.prompt.fired.is_reworded)
                    && let Some(event) = self.store_changes(Vec::new()).await
                {
                    return Some(event);
                }
                if !self.fire_again(at).await {
                    return Some(self.release_as_lost().await);
                }
                self.prompt.pending_messages = PendingMessages::default();
                return Some(self.answered(Err(NoReply::Ended)));
            }
            TimerDecision::Skipped => {
                self.prompt.pending_messages = PendingMessages::default();
                return Some(self.answered(Err(NoReply::Ended)));
            }
            TimerDecision::Refused(refusal) => {
                self.bill.totals.attempts = attempt;
                self.prompt.fired.decision = TimerDecision::Open;
                return Some(self.answered(Err(NoReply::Policy(refusal))));
            }
            TimerDecision::Open => self.prompt.fired.decision = TimerDecision::Open,
        }
        if std::mem::take(&mut self.prompt.fired.is_reworded) {
            return self.store_changes(Vec::new()).await;
        }
        None
    }

    /// Creates a timer for the time to which the send was put off; if an earlier worker created
    /// one, no second one is added. Returns false if the database does not answer.
    async fn fire_again(&mut self, at: Timestamp) -> bool {
        let record = &self.send.record;
        let options = SendOptions {
            fired_by: None,
            ..record.options.clone()
        };
        let timer = NewTimer {
            id: TimerId(self.kernel.parts.entropy.ordered_id()),
            tenant: record.key.tenant,
            target: TimerTarget::Send {
                session: record.key.session,
                input: record.input.clone(),
                options: Box::new(options),
            },
            rule: TimerRule::new(Schedule::At(at)),
            armed_max: None,
        };
        let key = IdempotencyKey {
            tenant: record.key.tenant,
            route: "hook timer_fired".to_owned(),
            key: record.id.to_string(),
            body_hash: [0; 32],
        };
        let store = &self.kernel.parts.store;
        let arm = || store.create_timers(vec![(timer.clone(), Some(key.clone()))]);
        let Some(outcomes) = self.db_retry().ask(arm).await else {
            return false;
        };
        for outcome in outcomes {
            if let CreateTimerOutcome::Refused(why) = outcome {
                // A session that accepts nothing more cannot be told later either.
                tracing::warn!(
                    send.id = %record.id,
                    ?why,
                    "a postponed send will not be fired again: its timer was refused"
                );
            }
        }
        true
    }
}
