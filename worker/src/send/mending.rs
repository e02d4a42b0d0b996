//! What is done about an answer that cannot be used, and about a request that was refused in part:
//! the model is asked again in a way that can succeed, as often as that can help.
//!
//! Nothing of this is durable before the model is asked again, except what the model is told. A
//! worker that takes over begins anew, which costs at most the same calls once more; a hint that is
//! stored is found in the transcript, so it is given once.

use std::time::Duration;

use mainspring_shared::agent::ReasoningEffort;
use mainspring_shared::error::{Code, Coded as _, Failure};
use mainspring_shared::event::LiveKind;
use mainspring_shared::message::{ContentPart, NewMessage, Role, plain_text};
use mainspring_shared::model::ModelFacts;
use mainspring_shared::send::machine::{Answer, Event};

use super::markup;
use super::model_call::BegunCall;
use super::run::Run;
use crate::llm::{self, Reply, Request, expect_request_tokens};
use crate::metrics;

/// How many parts of a round's request a provider may refuse one after the other.
const AMENDED_MAX: u32 = 8;

/// After how many empty answers of a round the model is told so.
const EMPTY_MAX: u32 = 2;

/// The token limit of an answer that was too long, as a multiple, if the model's own is not known.
const WIDER: u32 = 4;

/// Characters of a provider's words in an event, and of a cut call that the model is shown.
const WORDS_MAX: usize = 500;

/// Requests below this many tokens say nothing about a prompt that was cut.
const COUNTED_MIN: u64 = 2_048;

/// How the model is told that a call was cut.
const CALL_CUT: &str = "Your answer was cut at its token limit";

/// How the model is told that it wrote a call as text.
const CALL_AS_TEXT: &str = "Your answer contains the markup of a tool call";

/// How the model is told that its answer is empty.
const EMPTY: &str =
    "Your answer was empty. Say what the results of the tools mean for the task, or go on with it.";

/// What was done so far about the model's answers.
#[derive(Debug, Default)]
pub(super) struct Mended {
    /// Parts of the round's request that were refused.
    amended: u32,
    /// Empty answers of the round.
    empty: u32,
    /// Whether answers may be as long as the model can make them.
    wider: bool,
    /// Whether the model is to think less.
    thinks_less: bool,
    /// A reason of the provider that nobody knows and that ended an answer of this send.
    reason: Option<String>,
    /// Whether a refused request of the round was taken for one that is too long.
    guessed: bool,
    /// What the model is told after the answer that is being stored.
    pub(super) hint: Option<NewMessage>,
}

impl Mended {
    /// A round is stored: its successor has its own attempts.
    pub(super) fn next_round(&mut self) {
        self.amended = 0;
        self.empty = 0;
        self.guessed = false;
    }

    /// Gives the answer more room, if an earlier one had too little.
    pub(super) fn widen(&self, request: &mut Request, facts: &ModelFacts) {
        if self.wider {
            request.max_tokens = wide(request.max_tokens, facts);
        }
        let much = |effort: &ReasoningEffort| !is_little(*effort);
        if self.thinks_less && request.reasoning_effort.as_ref().is_some_and(much) {
            request.reasoning_effort = Some(ReasoningEffort::Low);
        }
    }
}

fn is_little(effort: ReasoningEffort) -> bool {
    match effort {
        ReasoningEffort::None | ReasoningEffort::Minimal | ReasoningEffort::Low => true,
        ReasoningEffort::Medium
        | ReasoningEffort::High
        | ReasoningEffort::XHigh
        | ReasoningEffort::Max => false,
    }
}

/// The largest token limit of an answer.
fn wide(now: u32, facts: &ModelFacts) -> u32 {
    let can = facts.output_max.and_then(|max| u32::try_from(max).ok());
    can.unwrap_or(now.saturating_mul(WIDER)).max(now)
}

/// What could be changed about a request whose answer was cut.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// The token limit that the answer had.
    pub(super) tokens: u32,
    is_widest: bool,
    thinks_much: bool,
}

impl Limits {
    pub(super) fn of(asked: Option<&BegunCall>) -> Self {
        let request = asked.map(|asked| &asked.request);
        let tokens = request.map_or(0, |request| request.max_tokens);
        let effort = request.and_then(|request| request.reasoning_effort);
        Self {
            tokens,
            is_widest: asked.is_none_or(|asked| wide(tokens, &asked.facts) == tokens),
            thinks_much: effort.is_some_and(|effort| !is_little(effort)),
        }
    }
}

fn shortened(text: &str) -> String {
    let mut chars = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let short: String = chars.by_ref().take(WORDS_MAX).collect();
    if chars.next().is_some() {
        return short + "…";
    }
    short
}

impl Run<'_> {
    /// Tells of something that went wrong with a model and was put right.
    fn warns(&self, code: &'static str, part: Option<&str>, message: &str) {
        let resolved = self.resolve().ok();
        let (provider, model) = resolved.map_or_else(Default::default, |resolved| {
            (resolved.provider.to_string(), resolved.model)
        });
        tracing::warn!(
            send.id = %self.send.record.id,
            session.id = %self.send.record.key.session,
            provider,
            model,
            code,
            part,
            message = %shortened(message),
            "a model's answer or refusal was put right"
        );
        metrics::model_warned(code);
        self.live(LiveKind::ModelWarning {
            round: self.bill.totals.rounds,
            provider,
            model,
            code: code.to_owned(),
            part: part.map(shortened),
            message: shortened(message),
        });
    }

    /// The model is asked again at once. That does not count as a failed attempt.
    fn asks_anew(&mut self, code: Code, message: String) -> Event {
        self.asking.asked = None;
        self.lease_state.owed().asked = None;
        self.asking.tries.interrupted += 1;
        self.asking.tries.reset = Some(code.as_str());
        self.ending.failure = Some(Failure::new(code, message));
        Event::Failed {
            code,
            permanent: false,
            retry_after: Some(Duration::ZERO),
            fraction: 0.0,
            not_failed: self.asking.not_failed(),
        }
    }

    /// The provider refused a part of the request, which is left out or rewritten from now on;
    /// `None` if that happened too often for one round.
    pub(super) fn amended(&mut self, error: &llm::Error) -> Option<Event> {
        let llm::Error::Amended { part, message } = error else {
            return None;
        };
        self.asking.mended.amended += 1;
        if self.asking.mended.amended > AMENDED_MAX {
            return None;
        }
        self.warns("llm.amended", Some(part), message);
        Some(self.asks_anew(error.code(), error.to_string()))
    }

    /// Whether a refused request is to be taken for one that is too long, although the provider's
    /// words do not say so: it fills most of the window. That is tried once a round.
    pub(super) fn guesses_overflow(&mut self, error: &llm::Error, asked: &BegunCall) -> bool {
        let tokens = expect_request_tokens(&asked.request);
        let is_large = tokens.saturating_mul(10) > asked.facts.window.saturating_mul(7);
        let guesses = matches!(error, llm::Error::InvalidRequest { .. })
            && is_large
            && !self.asking.mended.guessed;
        if guesses {
            self.asking.mended.guessed = true;
            self.warns("llm.context_overflow", None, &error.to_string());
        }
        guesses
    }

    /// Compares the provider's count of a request with what was expected: a server that cuts prompts
    /// to its own window says nothing about it, but counts less than half, and no more than for a smaller
    /// request before.
    pub(super) fn compare_count(
        &mut self,
        before: Option<(u64, u64)>,
        expected: u64,
        counted: u64,
    ) {
        if expected < COUNTED_MIN || counted == 0 {
            return;
        }
        let is_cut = before.is_some_and(|(before, count)| expected > before && counted <= count);
        if is_cut && counted.saturating_mul(2) < expected {
            let message = format!(
                "the provider counts {counted} tokens of a request of about {expected}: its server probably cuts \
                 prompts to a smaller window; raise that, or set the model's window"
            );
            self.warns("llm.context_cut", None, &message);
        }
    }

    /// An answer ended for a reason that nobody knows. One such answer may be a failure and is asked
    /// for again; if the next one is whole and ends for the same reason, that is how this provider
    /// ends answers, and it is taken, as are all later ones of the send.
    pub(super) fn knows_reason(&mut self, reply: &Reply, reason: &str) -> bool {
        let reason = shortened(reason);
        let is_whole =
            !reply.tool_calls.is_empty() || !plain_text(&reply.content).trim().is_empty();
        if is_whole && self.asking.mended.reason.as_ref() == Some(&reason) {
            return true;
        }
        let message = format!("an answer ended for the unknown reason {reason:?}");
        self.warns("llm.finish_unknown", None, &message);
        self.asking.mended.reason = Some(reason);
        false
    }

    /// An answer was cut within a call, or before any text: it is asked for once more with more
    /// room. `None` if that was done, or nothing can be changed.
    pub(super) fn asks_wider(&mut self, limits: Limits, is_thought: bool) -> Option<Event> {
        let is_own = self.send.agent.max_tokens.is_some();
        let wider = !limits.is_widest && !is_own && !self.asking.mended.wider;
        let less = is_thought && limits.thinks_much && !self.asking.mended.thinks_less;
        if !wider && !less {
            return None;
        }
        self.asking.mended.wider |= wider;
        self.asking.mended.thinks_less |= less;
        let message = format!("the answer was cut at {} tokens", limits.tokens);
        self.warns("llm.truncated", None, &message);
        Some(self.asks_anew(Code::LlmTruncated, message))
    }

    /// An answer was cut within a call: what there is of it is kept in words, and the model is told.
    /// `None` if it was told just before, or no round is left.
    pub(super) fn tells_of_cut(&mut self, reply: &mut Reply, limits: Limits) -> Option<Event> {
        if self.was_told(CALL_CUT) || !self.has_more() {
            return None;
        }
        let call = reply.tool_calls.pop()?;
        let begun = match call.arguments.value() {
            serde_json::Value::String(text) => shortened(text),
            other => shortened(&other.to_string()),
        };
        let (name, tokens) = (shortened(&call.name), limits.tokens);
        reply.tool_calls.clear();
        let words = format!("[A call of {name} was cut and not made. It began with: {begun}]");
        reply.content.push(ContentPart::text(words));
        let hint = format!(
            "{CALL_CUT} of {tokens} tokens, in the middle of a call of {name}. No call of it was executed. Write it in \
             smaller parts: several calls, each well below that limit."
        );
        self.hints(hint);
        Some(Event::Replied(Answer::Again))
    }

    /// An answer in words that contains the markup of a call: the model is asked what it means, once.
    pub(super) fn tells_of_markup(&mut self, reply: &Reply) -> bool {
        let text = plain_text(&reply.content);
        let Some(name) = markup::called(&text, &self.prompt.offers) else {
            return false;
        };
        let name = name.to_owned();
        if self.was_told(CALL_AS_TEXT) || !self.has_more() {
            return false;
        }
        let message = format!("a call of {name} was written as text");
        self.warns("llm.call_as_text", None, &message);
        self.hints(format!(
            "{CALL_AS_TEXT}, {name}, as text, so it was not executed. Call the tool through the interface for tool \
             calls. If the text is meant as your answer, repeat it."
        ));
        true
    }

    /// An answer is empty. After a second one to the results of tools, the model is told; if it then
    /// still says nothing, the tools have acted and nothing is left to say: returns true, and the
    /// send ends without a text.
    pub(super) fn is_silent(&mut self) -> bool {
        let pending = &self.prompt.pending_messages.messages;
        let is_result = |role: Role| role == Role::Tool;
        let stored = self.prompt.window.last();
        let stored = stored.filter(|last| last.send_id == self.send.record.id);
        let after_tools = pending.iter().any(|message| is_result(message.role))
            || stored.is_some_and(|last| is_result(last.role));
        if !after_tools || matches!(self.prompt.output, Ok(Some(_))) {
            return false;
        }
        self.asking.mended.empty += 1;
        if self.asking.mended.empty == EMPTY_MAX {
            let round = self.bill.totals.rounds;
            let nudge = NewMessage::user(vec![ContentPart::text(EMPTY)], round);
            self.prompt.pending_messages.messages.push(nudge);
        }
        let silent = self.asking.mended.empty > EMPTY_MAX;
        if silent {
            self.warns("llm.empty", None, "the model says nothing after its tools");
        }
        silent
    }

    fn hints(&mut self, text: String) {
        let round = self.bill.totals.rounds;
        self.asking.mended.hint = Some(NewMessage::user(vec![ContentPart::text(text)], round));
    }

    /// Whether the last thing that the send's model was told begins like this.
    fn was_told(&self, words: &str) -> bool {
        let last = self.prompt.window.last();
        last.is_some_and(|last| {
            last.send_id == self.send.record.id
                && last.role == Role::User
                && plain_text(&last.content).starts_with(words)
        })
    }

    /// Whether another round is left after this one.
    fn has_more(&self) -> bool {
        self.bill.totals.rounds.unsigned_abs() + 1 < self.rules.rounds_max
    }
}
