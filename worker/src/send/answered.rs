//! The outcome of a model call, and what follows from it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use mainspring_shared::agent::OnTruncation;
use mainspring_shared::budget::Short;
use mainspring_shared::error::{Code, Coded, Failure};
use mainspring_shared::message::{ContentPart, NewMessage, plain_text};
use mainspring_shared::send::machine::{Answer, Event};
use serde_json::Value;

use super::mending::Limits;
use super::model_call::{Answered, NoReply, Partial};
use super::run::Run;
use super::settle;
use crate::hook::{Refusal, Words};
use crate::llm::{self, Finish, Reply};
use crate::metrics;

/// Notice for an answer that had to be short because of a limit of the tenant or its agent.
const MONEY_CUT: &str = "the response was truncated at a limit of the tenant or of its agent (limits.usd_per_minute, \
                         limits.usd_per_day, limits.usd_per_month, limits.tokens_per_day, limits.tokens_per_month)";

/// How often the wait for the tenant's money is doubled: up to eight seconds.
const MONEY_DOUBLINGS_MAX: u32 = 5;

/// What one model call contributed to an answer.
#[derive(Debug, Clone, Copy)]
struct Part {
    /// Whether it contained text.
    said: bool,
    /// Earlier model calls that contributed a part.
    parts: u32,
    /// What the model call was limited to.
    limits: Limits,
}

impl Run<'_> {
    pub(super) fn answered(&mut self, reply: Result<Answered, NoReply>) -> Event {
        if !matches!(reply, Err(NoReply::Model(_))) {
            self.forget_background();
        }
        let Answered {
            mut reply,
            calls,
            found,
            ends,
        } = match reply {
            Ok(answered) => answered,
            Err(NoReply::Model(error)) => return self.failed(&error),
            Err(NoReply::Policy(refusal)) => return self.not_permitted(refusal),
            Err(NoReply::Ended) => {
                // If the model was asked, what it said is paid for.
                self.pay_refused();
                self.asking.partial = None;
                return Event::Replied(Answer::Ended);
            }
        };
        let asked = self.asking.asked.as_ref();
        let capped = asked.is_some_and(|asked| asked.capped);
        let cut = asked.is_some_and(|asked| asked.cut.load(Ordering::Relaxed));
        let limits = Limits::of(asked);
        let model = reply.model.clone();
        self.round.vetted = calls;
        self.pay(&model, &mut reply.usage);
        let shaped = matches!(self.prompt.output, Ok(Some(_)));
        if let Some(event) = self.not_whole(&reply) {
            return event;
        }
        let part = self.join(&mut reply, limits);
        let goes_on = self.send.agent.context.on_truncation == OnTruncation::Continue;
        let cut_call = goes_on && !reply.tool_calls.is_empty();
        match settle::classify(&reply) {
            Ok(Answer::Cut) if capped => {
                reply.tool_calls.clear();
                self.asking.reply = Some(reply);
                self.short(Short::Cut)
            }
            Ok(Answer::Cut) if cut => {
                reply.tool_calls.clear();
                self.asking.reply = Some(reply);
                self.cannot(Failure::new(Code::BudgetExceeded, MONEY_CUT))
            }
            Ok(Answer::Cut) if !shaped || cut_call => self.cut(reply, part),
            Ok(Answer::Part) => self.paused_answer(reply, part),
            Ok(Answer::Final) if !ends && self.tells_of_markup(&reply) => {
                self.asking.reply = Some(reply);
                Event::Replied(Answer::Again)
            }
            Err(_) if !ends && self.is_silent() => {
                reply.content.clear();
                self.asking.reply = Some(reply);
                Event::Replied(Answer::Final)
            }
            Ok(answer) => {
                if answer != Answer::Calls {
                    // The calls of a truncated answer may be truncated themselves, so they are not
                    // made.
                    reply.tool_calls.clear();
                }
                let more = self.bill.totals.rounds.unsigned_abs() + 1 < self.rules.rounds_max;
                let checked = match (&mut self.prompt.output, found) {
                    (Ok(Some(output)), Some(found)) => output.check(found, answer, more),
                    (Ok(_) | Err(_), _) => Ok(answer),
                };
                let answer = match checked {
                    Ok(answer) => answer,
                    Err(failure) => {
                        self.asking.reply = Some(reply);
                        return self.cannot(failure);
                    }
                };
                if answer == Answer::Refused {
                    let text = plain_text(&reply.content);
                    let message = format!("the model declined to answer: {text}");
                    self.ending.failure = Some(Failure::new(
                        Code::LlmRefused,
                        message.trim_end_matches([':', ' ']),
                    ));
                }
                self.asking.reply = Some(reply);
                Event::Replied(if ends && answer == Answer::Final {
                    Answer::Ended
                } else {
                    answer
                })
            }
            Err(error) => self.failed(&error),
        }
    }

    /// Stores what hooks say first; the model is then asked again, as if it had not been asked.
    pub(super) async fn said_first(&mut self, said: Words) -> Option<Event> {
        let (round, attempt) = (self.bill.totals.rounds, self.bill.totals.attempts);
        self.asking.asked = None;
        self.lease_state.owed().asked = None;
        for (id, content) in said {
            if self.asking.hooked.injected.insert(round, id) {
                let message = NewMessage::user(content, round);
                self.prompt.pending_messages.messages.push(message);
            }
        }
        self.asking.hooked.again = true;
        self.ask(round, attempt).await
    }

    /// What follows from an answer that its provider did not finish; `None` if it did.
    fn not_whole(&mut self, reply: &Reply) -> Option<Event> {
        let message = match &reply.finish {
            Finish::Stop
            | Finish::Length
            | Finish::ToolCalls
            | Finish::Refused
            | Finish::Paused => {
                return None;
            }
            Finish::Failed(_) => return Some(self.failed(&settle::classify(reply).err()?)),
            Finish::Other(reason) if self.knows_reason(reply, reason) => return None,
            Finish::Other(reason) => {
                format!("the answer ended for the unknown reason {reason:.200}")
            }
        };
        Some(self.failed(&llm::Error::bad(message)))
    }

    /// The provider paused a long answer: it is asked for the rest, as long as rounds are left.
    fn paused_answer(&mut self, mut reply: Reply, part: Part) -> Event {
        reply.tool_calls.clear();
        let parts = part.parts + 1;
        if self.bill.totals.rounds.unsigned_abs() + parts < self.rules.rounds_max {
            self.asking.partial = Some(Partial { reply, parts });
            return Event::Replied(Answer::Part);
        }
        self.asking.reply = Some(reply);
        let message = "the provider paused the answer, and no rounds are left to continue it";
        self.cannot(Failure::new(Code::LlmTruncated, message))
    }

    /// Prepends the earlier parts of the answer to a reply.
    fn join(&mut self, reply: &mut Reply, limits: Limits) -> Part {
        let said = !plain_text(&reply.content).trim().is_empty();
        let Some(before) = self.asking.partial.take() else {
            return Part {
                said,
                parts: 0,
                limits,
            };
        };
        let rest = std::mem::replace(&mut reply.content, before.reply.content);
        for part in rest {
            match (part, reply.content.last_mut()) {
                (ContentPart::Text { text: more }, Some(ContentPart::Text { text })) => {
                    text.push_str(&more);
                }
                // Reasoning about how to continue belongs to no answer of its own.
                (ContentPart::Reasoning { .. }, _) => {}
                (other, _) => reply.content.push(other),
            }
        }
        reply.usage.add(&before.reply.usage);
        Part {
            said,
            parts: before.parts,
            limits,
        }
    }

    /// Handles a truncated answer.
    fn cut(&mut self, mut reply: Reply, part: Part) -> Event {
        let asks = !reply.tool_calls.is_empty();
        let goes_on = self.send.agent.context.on_truncation == OnTruncation::Continue;
        if goes_on && (asks || !part.said) {
            // What was said before stays said; only a whole answer is asked for again.
            let wider = (part.parts == 0).then(|| self.asks_wider(part.limits, !asks));
            if let Some(event) = wider.flatten() {
                return event;
            }
            if asks && let Some(event) = self.tells_of_cut(&mut reply, part.limits) {
                self.asking.reply = Some(reply);
                return event;
            }
        }
        // They may be truncated themselves.
        reply.tool_calls.clear();
        let empty = plain_text(&reply.content).trim().is_empty();
        let parts = part.parts + 1;
        let why = match self.send.agent.context.on_truncation {
            OnTruncation::Accept if empty => {
                return self.failed(&llm::Error::BadResponse {
                    message: "the answer is empty".into(),
                });
            }
            OnTruncation::Accept => {
                self.asking.reply = Some(reply);
                return Event::Replied(Answer::Cut);
            }
            OnTruncation::Fail => "",
            OnTruncation::Continue if asks => ", and its tool calls are not made",
            OnTruncation::Continue if !part.said => ", and has no text to continue",
            OnTruncation::Continue
                if self.bill.totals.rounds.unsigned_abs() + parts >= self.rules.rounds_max =>
            {
                ", and no rounds are left to continue it"
            }
            OnTruncation::Continue => {
                self.asking.partial = Some(Partial { reply, parts });
                return Event::Replied(Answer::Part);
            }
        };
        self.asking.reply = Some(reply);
        let message = format!("the answer was truncated at its token limit{why}");
        self.cannot(Failure::new(Code::LlmTruncated, message))
    }

    /// What the model is told after the answer that is being stored, if that did not match.
    pub(super) fn correction(&mut self, round: i32) -> Option<NewMessage> {
        if let Some(back) = self.ending.deciding.back.take() {
            return Some(back);
        }
        if let Some(hint) = self.asking.mended.hint.take() {
            return Some(hint);
        }
        self.prompt
            .output
            .as_mut()
            .ok()?
            .as_mut()?
            .correction(round)
    }

    /// The value of the answer.
    pub(super) fn value(&mut self) -> Option<Value> {
        self.prompt.output.as_mut().ok()?.as_mut()?.take_value()
    }

    /// Fails the send permanently: asking the model again would not help.
    pub(super) fn cannot(&mut self, failure: Failure) -> Event {
        let code = failure.code;
        self.ending.failure = Some(failure);
        Event::Failed {
            code,
            permanent: true,
            retry_after: None,
            fraction: 0.0,
            not_failed: 0,
        }
    }

    /// The call that replaced the model failed; the send fails in the same way.
    pub(super) async fn call_failed(&mut self, message: String) -> Event {
        let round = self.bill.totals.rounds - 1;
        let send = self.send.record.id;
        let store = &self.kernel.parts.store;
        // If the database does not answer, the send still fails, only with a less precise code.
        let calls = store.read_round(self.send.record.key, send, round).await;
        let results = calls.unwrap_or_default().into_iter();
        let code = results.filter_map(|call| call.result?.code).next_back();
        self.asking.asked = None;
        self.lease_state.owed().asked = None;
        self.cannot(Failure::new(code.unwrap_or(Code::ToolFailed), message))
    }

    /// The event for a model call that the budget does not allow.
    pub(super) fn short(&mut self, short: Short) -> Event {
        self.cannot(Failure::new(Code::BudgetExceeded, short.to_string()))
    }

    /// A policy did not allow the model to be asked, or its answer to be used.
    fn not_permitted(&mut self, refusal: Refusal) -> Event {
        self.pay_refused();
        let Refusal { code, message } = refusal;
        self.asking.tries.reset = Some(code.as_str());
        self.ending.failure = Some(Failure::new(code, message));
        Event::Failed {
            code,
            permanent: code == Code::PolicyDenied,
            retry_after: None,
            fraction: self.kernel.parts.entropy.fraction(),
            not_failed: self.asking.not_failed(),
        }
    }

    pub(super) fn failed(&mut self, error: &llm::Error) -> Event {
        if let Some(open) = self.forget_background() {
            self.abandon(open);
        }
        if let llm::Error::Held {
            why: llm::Hold::Money,
            ..
        } = error
        {
            return self.waits_for_money(error);
        }
        if let Some(event) = self.amended(error) {
            return event;
        }
        let code = error.code();
        let held = matches!(error, llm::Error::Held { .. });
        if held {
            // The model was not asked.
            self.asking.tries.interrupted += 1;
        } else {
            metrics::model_call_failed(code);
            self.asking.tries.reset = Some(code.as_str());
        }
        tracing::warn!(
            send.id = %self.send.record.id,
            session.id = %self.send.record.key.session,
            round.index = self.bill.totals.rounds,
            attempt = self.bill.totals.attempts,
            code = code.as_str(),
            is_permanent = error.is_permanent(),
            "a model call failed"
        );
        let begun = self.asking.asked.as_ref();
        let begun = begun.is_some_and(|asked| asked.received.has_begun());
        if begun || code == Code::LlmTimeout {
            self.pay_estimated();
        }
        let asked = self.asking.asked.take();
        self.lease_state.owed().asked = None;
        if let Some(asked) = asked
            && (code == Code::LlmContextOverflow || self.guesses_overflow(error, &asked))
            && let Some(event) = self.overflowed(&asked.request)
        {
            self.asking.tries.reset = Some(code.as_str());
            return event;
        }
        self.ending.failure = Some(Failure::new(code, error.to_string()));
        let falls_back = self.falls_back(error);
        Event::Failed {
            code,
            permanent: (error.is_permanent() || matches!(error, llm::Error::Amended { .. }))
                && !falls_back,
            retry_after: if falls_back {
                Some(Duration::ZERO)
            } else {
                error.retry_after()
            },
            fraction: self.kernel.parts.entropy.fraction(),
            not_failed: self.asking.not_failed(),
        }
    }

    /// Calls in flight have set aside what is left of the tenant's or the agent's money. The model
    /// was not asked; it is asked again once some of them may be over, as often as needed, by any
    /// worker that has a free slot by then.
    fn waits_for_money(&mut self, error: &llm::Error) -> Event {
        self.asking.tries.interrupted += 1;
        // The answer timeout starts once there is money for it.
        self.asking.tries.since = None;
        self.asking.asked = None;
        self.lease_state.owed().asked = None;
        metrics::waited_for_money();
        let fraction = self.kernel.parts.entropy.fraction();
        let not_failed = self.asking.not_failed();
        let first = error.retry_after().unwrap_or_default();
        let doublings = not_failed.saturating_sub(1).min(MONEY_DOUBLINGS_MAX);
        let wait = first.saturating_mul(1 << doublings);
        self.ending.failure = Some(Failure::new(error.code(), error.to_string()));
        Event::Failed {
            code: error.code(),
            permanent: false,
            // Half of the wait is random, so that the waiting sends do not all retry at once.
            retry_after: Some(wait.mul_f64(f64::midpoint(1.0, fraction))),
            fraction,
            not_failed,
        }
    }
}
