//! `Ask` and `AbortAsking`: a model call, with everything that the model must be told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mainspring_shared::agent::OnTruncation;
use mainspring_shared::budget::Short;
use mainspring_shared::error::{Code, Failure};
use mainspring_shared::event::LiveKind;
use mainspring_shared::message::{ContentPart, plain_text};
use mainspring_shared::send::machine::Event;
use mainspring_shared::session::fold;
use mainspring_shared::session::render::following;
use mainspring_shared::session::shown::Begun;
use mainspring_shared::usage::Usage;
use tokio::sync::oneshot;

use crate::llm::{Chunk, Error, Finish, Reply, Request, Resolved, Traced};
use crate::metrics::{self, Timing};
use crate::partial_answer::PartialAnswer;
use crate::send::lease_state::Inbox;
use crate::send::load::{self, Question};
use crate::send::model_call::{
    Answered, Attempt, BegunCall, Partial, QuestionId, Streamed, Unanswered,
};
use crate::send::output::Output;
use crate::send::received::Received;
use crate::send::run::Run;
use crate::send::vet::Vetting;

/// Receives the chunks of an answer.
struct AnswerReceiver {
    said: Arc<PartialAnswer>,
    received: Arc<Received>,
    /// Whether anything was streamed.
    any: Arc<AtomicBool>,
    /// Gets the provider's id of a background answer, once.
    background: Option<oneshot::Sender<String>>,
    timing: Timing,
}

impl AnswerReceiver {
    /// Makes a call and receives its answer.
    async fn answered(mut self, mut attempt: Box<Attempt>) -> Result<Answered, Unanswered> {
        let answer = attempt.answered(&mut |chunk| self.piece(chunk)).await;
        self.timing.end(answer.is_ok());
        answer
    }

    fn piece(&mut self, chunk: Chunk<'_>) {
        self.received.hears(&chunk);
        match chunk {
            Chunk::Text(_) | Chunk::Reasoning(_) => {
                self.said.piece(&chunk);
                self.any.store(true, Ordering::Relaxed);
                self.timing.piece();
            }
            Chunk::Hidden(_) | Chunk::Counted(_) => {}
            Chunk::Background(id) => {
                if let Some(background) = self.background.take() {
                    // Nobody listens if the call is about to be dropped.
                    let _ = background.send(id.to_owned());
                }
            }
        }
    }
}

impl Run<'_> {
    /// Begins a model call.
    pub(in crate::send) async fn ask(&mut self, round: i32, attempt: i32) -> Option<Event> {
        if let Some(event) = self.enter_cell().await {
            return Some(event);
        }
        let again = std::mem::take(&mut self.asking.hooked.again);
        if let Some(event) = self.catch_up(round, attempt).await {
            return Some(event);
        }
        self.round.passed = false;
        self.asking.streaming.cut_short = None;
        // Whatever raised a signal by now is told with this question.
        self.lease_state.heard = 0;
        let resolved = match self.resolve_unpaused() {
            Ok(Ok(resolved)) => resolved,
            Ok(Err(pause)) => return Some(self.paused(pause)),
            Err(error) => return Some(self.failed(&error)),
        };
        let left = self.asking_left(round, attempt);
        if left.is_some_and(|left| left.is_zero()) {
            return Some(self.failed(&Error::TotalTimeout));
        }
        if let Some(why) = self.unaskable(round) {
            return Some(self.cannot(why));
        }
        self.take_up(round);
        let before = self.asking.streaming.told.as_ref();
        let before = before.filter(|before| before.round == round);
        // A continued answer keeps its number.
        let goes_on = self.asking.partial.is_some() && self.asking.tries.reset.is_none();
        let heard = before.is_some_and(|before| before.heard.load(Ordering::Relaxed)) && !goes_on;
        // Text streamed under the last number is void from here on, also for a worker that takes
        // over.
        if heard && let Some(event) = self.note_spending().await {
            return Some(event);
        }
        let label = match &self.asking.streaming.told {
            Some(before) if before.round == round && !heard => before.attempt,
            Some(_) | None => attempt,
        };
        if !self.read_lacking().await {
            return Some(self.release_as_lost().await);
        }
        let mut request = self.request(&resolved);
        request.background = self.in_background(round, &resolved);
        if let Some(event) = self.weigh(&mut request, &resolved).await {
            return Some(event);
        }
        self.bill.totals.attempts = attempt;
        self.note_question(&request);
        let capped = match self.bill.allow(&mut request, &resolved) {
            Ok(capped) => capped,
            Err(Short::Price) => return Some(self.cannot(resolved.without_price())),
            Err(short) => return Some(self.short(short)),
        };
        if let Some(shown) = &mut self.bill.totals.shown {
            // From here on, what was said is part of the answer in flight.
            shown.begun = None;
        }
        let received = Arc::new(Received::default());
        if !again && !goes_on {
            self.announce(round, label, &request.model, heard);
        }
        let heard = Arc::new(AtomicBool::new(goes_on));
        self.asking.streaming.told = Some(Streamed {
            round,
            attempt: label,
            heard: heard.clone(),
        });
        let client = self.client_for(&resolved, &request);
        let request = Arc::new(request);
        let asked = BegunCall {
            request: request.clone(),
            provider: resolved.provider,
            facts: resolved.facts,
            received: received.clone(),
            capped,
            cut: client.cut(),
        };
        self.owe(&asked);
        self.asking.asked = Some(asked);
        let said = self.lease_state.handles.said.clone();
        if !goes_on {
            said.begin(round, label);
        }
        if let Some(partial) = self.asking.partial.as_ref().filter(|_| !goes_on) {
            // Readers were told to discard the beginning of the answer, so send it again.
            said.piece(&Chunk::Text(&plain_text(&partial.reply.content)));
            heard.store(true, Ordering::Relaxed);
        }
        let begun = self.kernel.parts.clock.monotonic();
        self.asking.streaming.checkpoint.begin(begun);
        let timing = Timing::begin(&self.kernel.parts.clock, &request.model);
        let attempt = self.attempt(client, request, left);
        metrics::model_call_started();
        let (background, told) = oneshot::channel();
        self.asking.background = Some(told);
        let receiver = AnswerReceiver {
            said,
            received,
            any: heard,
            background: Some(background),
            timing,
        };
        self.asking.call = Some(Box::pin(receiver.answered(attempt)));
        None
    }

    /// Why no model can do what the send asks for in this round.
    fn unaskable(&self, round: i32) -> Option<Failure> {
        if let Err(fault) = &self.prompt.output {
            let message = format!("the output schema {}: {fault}", fault.pointer);
            return Some(Failure::new(Code::SpecInvalid, message));
        }
        let fault = self.prompt.offers.choice_fault(&self.send, round)?;
        Some(Failure::new(Code::ToolNotFound, fault))
    }

    /// A client for the model, whose calls are traced.
    pub(in crate::send) fn client(&self, resolved: &Resolved) -> Traced {
        let session = self.send.record.key;
        Traced::new(resolved, session, &self.send.agent, self.kernel)
    }

    /// The same for a request of this send, whose size the provider may have reported.
    fn client_for(&self, resolved: &Resolved, request: &Request) -> Traced {
        let size = self.bill.allowance.size(request);
        self.client(resolved).reading(size)
    }

    /// Records the question for the round's row; a continuation belongs to its first question.
    fn note_question(&mut self, request: &Request) {
        if self.asking.partial.is_none() {
            let folded = fold::newest(self.prompt.window.folds());
            let shown = self.bill.totals.shown.as_ref();
            self.asking.question = QuestionId {
                digest: Some(request.digest()),
                folded: Some(folded),
                aged_to: shown.and_then(|shown| shown.aged_to),
            };
        }
    }

    /// Does what comes before a model call: hooks of a timer's send, and new inbox items.
    async fn catch_up(&mut self, round: i32, attempt: i32) -> Option<Event> {
        if round == 0
            && let Some(event) = Box::pin(self.apply_timer_decision(attempt)).await
        {
            return Some(event);
        }
        if self.lease_state.handles.news.swap(false, Ordering::Relaxed) {
            self.lease_state.inbox = Inbox::Raised;
        }
        if self.lease_state.inbox == Inbox::Raised
            && let Some(event) = self.store_changes(Vec::new()).await
        {
            return Some(event);
        }
        if self.lease_state.inbox != Inbox::Known && !self.gather(round).await {
            return Some(self.release_as_lost().await);
        }
        None
    }

    /// The request of the model call.
    fn request(&mut self, resolved: &Resolved) -> Request {
        if let Ok(Some(output)) = &mut self.prompt.output {
            let tools = !self.prompt.offers.specs().is_empty();
            let can = resolved.client.native_schema(&resolved.model, tools);
            output.told = !resolved.facts.enforces_schema(can);
        }
        let mut request = load::request(self.question(resolved));
        self.asking.mended.widen(&mut request, &resolved.facts);
        request
    }

    /// The inputs of the request.
    pub(in crate::send) fn question<'q>(&'q self, resolved: &'q Resolved) -> Question<'q> {
        let record = &self.send.record;
        let from = load::window_from(&self.bill.totals);
        let pending_messages = &self.prompt.pending_messages.messages;
        let by = (record.id, record.created_at, &record.input[..]);
        let output = self.prompt.output.as_ref().ok().and_then(Option::as_ref);
        Question {
            send: &self.send,
            round: self.bill.totals.rounds,
            resolved,
            offers: &self.prompt.offers,
            shown: self.bill.totals.shown.as_ref(),
            folds: self.prompt.window.folds(),
            projections: self.prompt.window.projections(from),
            messages: following(self.prompt.window, from, pending_messages, by),
            aged_to: load::aged_to(&self.bill.totals),
            partial: self.asking.partial.as_ref().map(|it| &*it.reply.content),
            output: output.map(|output| &output.spec),
        }
    }

    /// Continues an answer that an earlier worker could not finish. The stored part stays stored
    /// until the rest is asked for, since a step before that may be stored and the worker may then
    /// crash.
    fn take_up(&mut self, round: i32) {
        let shown = self.bill.totals.shown.as_ref();
        let Some(begun) = shown.and_then(|shown| shown.begun.as_ref()) else {
            return;
        };
        let is_its = begun.round == round && self.asking.partial.is_none();
        if is_its && self.may_go_on() {
            self.asking.streaming.checkpoint.take_up(begun);
            let reply = Reply {
                content: vec![ContentPart::text(begun.text.clone())],
                tool_calls: Vec::new(),
                finish: Finish::Length,
                // It is paid for separately.
                usage: Usage::default(),
                model: String::new(),
            };
            self.asking.partial = Some(Partial { reply, parts: 0 });
        }
    }

    /// Whether the rest of an answer may be asked for separately.
    pub(in crate::send) fn may_go_on(&self) -> bool {
        let goes_on = self.send.agent.context.on_truncation == OnTruncation::Continue;
        goes_on && matches!(self.prompt.output, Ok(None))
    }

    /// Keeps the beginning of an answer that this worker has no time to wait for. Returns true if
    /// there is any.
    pub(in crate::send) fn keep_begun(&mut self) -> bool {
        let text = self.asking.streaming.cut_short.take().unwrap_or_default();
        let keeps = !text.trim().is_empty() && self.may_go_on();
        if keeps {
            let round = self.bill.totals.rounds;
            let shown = self.bill.totals.shown.get_or_insert_default();
            shown.begun = Some(Begun::new(round, &text, None));
        }
        keeps
    }

    /// The model call, with all checks on its answer.
    fn attempt(
        &mut self,
        client: Traced,
        request: Arc<Request>,
        left: Option<Duration>,
    ) -> Box<Attempt> {
        let over = std::mem::take(&mut self.round.over);
        let parts = &self.kernel.parts;
        let shape = self.prompt.output.as_ref().ok().and_then(Option::as_ref);
        Box::new(Attempt {
            vetting: Vetting {
                clock: parts.clock.clone(),
                hooks: parts.hooks.clone(),
                offers: self.prompt.offers.clone(),
                at: self.place(),
            },
            shape: shape.map(Output::schema),
            injected: self
                .asking
                .hooked
                .injected
                .in_round(self.bill.totals.rounds),
            started: self.asking.hooked.started.clone(),
            over,
            client,
            content: self.kernel.kept.content.clone(),
            request,
            left,
        })
    }

    /// Tells readers that a model call begins.
    fn announce(&mut self, round: i32, attempt: i32, model: &str, void: bool) {
        // If a stream was cut off without an error, a message interrupted it.
        let cut = void.then_some("interrupt");
        if let Some(reason) = self.asking.tries.reset.take().or(cut) {
            self.live(LiveKind::MessageReset {
                round,
                attempt,
                reason: reason.into(),
            });
        }
        self.live(LiveKind::RoundStarted {
            round,
            model: model.to_owned(),
        });
    }

    /// Drops the model call in flight; what it said is void. A background answer is left to the
    /// next worker if this worker is stopping or has lost the session; otherwise it is cancelled.
    pub(in crate::send) fn abort_asking(&mut self) {
        if let Some(open) = self.forget_background() {
            if self.kernel.lifecycle.is_stopping() || self.lease_state.handles.lost.is_cancelled() {
                self.leave_background(open);
                return;
            }
            self.abandon(open);
        }
        self.asking.streaming.cut_short = Some(self.lease_state.handles.said.text());
        self.asking.tries.interrupted = self.asking.not_failed() + 1;
        self.asking.call = None;
        self.asking.partial = None;
        self.pay_estimated();
    }
}
