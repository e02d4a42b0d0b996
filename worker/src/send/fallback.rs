//! Which of an agent's models is asked, and until when.

use std::time::Duration;

use mainspring_shared::error::{Code, Coded as _};
use mainspring_shared::store::Resumed;
use mainspring_shared::time::Timestamp;

use super::load;
use super::run::Run;
use crate::llm::{Error, Resolved};

impl Run<'_> {
    /// The model to ask: the send's own, or the current fallback model.
    pub(super) fn resolve(&self) -> Result<Resolved, Error> {
        let own = load::model(&self.send);
        let others = self.send.agent.fallback.iter();
        let model = match self.asking.tries.fallback.checked_sub(1) {
            None => own,
            Some(place) => others.map(String::as_str).nth(place).or(own),
        };
        self.kernel.parts.providers.resolve(model)
    }

    /// How long the round's model calls may still take, including the waits between them; `None`
    /// means without limit.
    pub(super) fn asking_left(&mut self, round: i32, attempt: i32) -> Option<Duration> {
        let limit = self.kernel.parts.config.answer_timeout?;
        let since = match self.asking.tries.since {
            Some((of, since)) if of == round => since,
            _ => {
                let since = self.asking_since(attempt);
                self.asking.tries.since = Some((round, since));
                since
            }
        };
        Some(limit.saturating_sub(self.now().since(since)))
    }

    /// When the round's first model call was made. For a send that was parked for a retry, the
    /// clock keeps running. For one whose worker crashed it starts again, since the outage may have
    /// been ours; likewise for one that was paused, because none of its calls counts as failed.
    fn asking_since(&self, attempt: i32) -> Timestamp {
        let now = self.now();
        let failed = attempt - 1 - self.send.record.not_failed;
        if failed <= 0 || self.send.resumed != Some(Resumed::Retry) {
            return now;
        }
        let said = self.prompt.window.last().map(|last| last.created_at);
        let results = self.asking.tries.results_at;
        let began = [said, results, self.send.record.started_at];
        began.into_iter().flatten().max().unwrap_or(now)
    }

    /// Moves on to the agent's next model if there is one and this failure says that the current
    /// one will not answer for a while. The next model's calls are counted from zero.
    pub(super) fn falls_back(&mut self, error: &Error) -> bool {
        let is_outage = matches!(
            error.code(),
            Code::LlmUnavailable
                | Code::LlmRateLimited
                | Code::LlmTimeout
                | Code::LlmAuth
                | Code::LlmModelGone
        );
        let has_next = self.asking.tries.fallback < self.send.agent.fallback.len();
        if !is_outage || !has_next || *error == Error::TotalTimeout {
            return false;
        }
        let lost = if self.bill.totals.rounds.unsigned_abs() == self.rules.first_round {
            self.rules.lost
        } else {
            0
        };
        let begun = self
            .bill
            .totals
            .attempts
            .unsigned_abs()
            .saturating_sub(lost);
        let failed = begun.saturating_sub(self.asking.not_failed());
        let wait = self.rules.retry.wait(failed, error.retry_after(), 0.0);
        let is_over = error.is_permanent()
            || matches!(error, Error::Held { .. })
            || wait.is_none_or(|wait| wait > self.rules.hold_max);
        if is_over {
            self.asking.tries.fallback += 1;
            self.asking.tries.interrupted += failed;
            tracing::warn!(
                send.id = %self.send.record.id,
                session.id = %self.send.record.key.session,
                code = error.code().as_str(),
                model = %self.send.agent.fallback[self.asking.tries.fallback - 1],
                "falling back to another model"
            );
        }
        is_over
    }
}
