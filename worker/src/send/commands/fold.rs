//! `Fold` and `AbortFold`: folds a part of what the model is shown before it is asked, because
//! there is no room for all of it.

mod asking;
mod beside;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::agent::{FoldSpec, FoldStrategy};
use mainspring_shared::error::{Code, Coded, Failure};
use mainspring_shared::id::SendId;
use mainspring_shared::message::{Message, Role, ToolCall};
use mainspring_shared::model::{ModelFacts, expect_message_tokens, expect_request_tokens};
use mainspring_shared::send::machine::Event;
use mainspring_shared::session::fold::end;
use mainspring_shared::session::fold::plan::{self, Pressure, Room, Span, Weights};
use mainspring_shared::session::{SIGNAL_CANCEL, SIGNAL_INTERRUPT, SIGNAL_RESULT};
use mainspring_shared::store::{AppendRound, UsageRow};
use mainspring_shared::usage::Usage;

use crate::fold::{Fault, FoldCall, Notebook, Writing, Written};
use crate::hook;
use crate::llm::{
    Request, Resolved, estimate_message_tokens, estimate_request_tokens, estimate_tokens,
};
use crate::send::forgetting::{Extent, Forgotten, forget, relieved, scaled};
use crate::send::load;
use crate::send::run::Run;

/// How often a model is asked for a fold before digests take its place.
const TRIES: u32 = 2;

/// The factor by which an estimate must exceed the window before the provider is not even asked:
/// the window and the estimate may each be off by a factor of two.
const DOUBT: u64 = 4;

/// How much was freed after a request did not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Freed {
    /// At least as much as was added since the model's last answer, up to which everything had
    /// fitted; enough to ask again.
    Much,
    /// Less, which must do if nothing may be folded.
    Little,
}

/// Whether a request of `tokens` cannot fit, however wrong the estimate and the facts are.
/// Otherwise the provider decides.
fn cannot_fit(tokens: u64, facts: &ModelFacts) -> bool {
    facts.known && tokens / DOUBT > facts.window
}

/// Of the tokens of a request that is shown whole, those after the last answer. What precedes an
/// answer has fitted before, whatever is known of the model.
fn unproven(request: &Request, tokens: u64) -> u64 {
    let is_answer = |message: &Arc<Message>| message.role == Role::Assistant;
    let Some(answer) = request.messages.iter().rposition(is_answer) else {
        return tokens;
    };
    let proven = &request.messages[..=answer];
    let proven: u64 = proven.iter().map(|it| expect_message_tokens(it)).sum();
    let all = expect_request_tokens(request).max(1);
    scaled(tokens, all.saturating_sub(proven), all)
}

/// How long a fold may take if `retry.total_timeout` is not set.
const WRITTEN_WITHIN: Duration = Duration::from_mins(10);

/// The room in a model's window beside an answer of `answer` tokens.
pub(crate) fn room_of(model: &Resolved, answer: u64, spec: &FoldSpec) -> Room {
    let facts = &model.facts;
    // A limit that is on requests alone leaves the answer its space.
    let window = facts
        .input_for(answer)
        .saturating_add(answer)
        .min(facts.window);
    Room::new(window, answer.min(facts.output_max.unwrap_or(answer)), spec)
}

/// The fold that is wanted, and its progress.
#[derive(Default)]
pub(in crate::send) struct Folding {
    /// The text that is being written.
    pub(in crate::send) writing: Option<Writing>,
    /// The request for it, until it is paid for.
    asked: Option<Box<FoldCall>>,
    /// What it stands for.
    span: Option<Arc<Span>>,
    /// Model calls for folds by this worker.
    calls: i32,
    tried: Tried,
    measured: Measured,
    /// The fold that is written while the send goes on.
    pub(in crate::send) beside: Option<Beside>,
}

/// Ways to make room that were tried and need not be tried again.
#[derive(Debug, Default)]
struct Tried {
    /// How often a fold could not be written.
    failures: u32,
    /// The round for which everything foldable was folded, after its request did not fit.
    harder: Option<i32>,
    /// The round in which hooks forbid folds.
    forbidden: Option<i32>,
    /// Whether more is forgotten before the model is asked again, and nothing is folded for that.
    forgot: bool,
}

/// The sizes of requests.
#[derive(Default)]
struct Measured {
    /// The size of the last request, and the room that there was for it.
    last: Option<(u64, Room)>,
    /// Weights of the messages in the last request that filled the window that far.
    weights: Weights,
}

/// A fold that is written while the send goes on.
pub(in crate::send) struct Beside {
    pub(in crate::send) writing: Writing,
    asked: Option<Box<FoldCall>>,
    span: Arc<Span>,
}

impl Run<'_> {
    /// Checks whether a request fits into the model's window. Returns an event if something must be
    /// folded first, or if nothing that may be folded would help.
    pub(in crate::send) async fn weigh(
        &mut self,
        request: &mut Request,
        model: &Resolved,
    ) -> Option<Event> {
        let round = self.bill.totals.rounds;
        let folds = self.send.agent.context.fold.strategy != FoldStrategy::None
            && self.folding.tried.forbidden != Some(round);
        let answer = u64::from(request.max_tokens);
        let room = room_of(model, answer, &self.send.agent.context.fold);
        let mut tokens = self.expected(request, model);
        if self.forgets() && tokens >= room.soft {
            let forgotten = relieved(&self.question(model), request, tokens, room);
            tokens = self.forget(request, forgotten).unwrap_or(tokens);
        }
        self.folding.measured.last = Some((tokens, room));
        if tokens < room.soft {
            return None;
        }
        self.folding.measured.weights = Weights::of(request);
        if tokens < room.hard {
            return if folds {
                self.fold_beside(tokens, room).await
            } else {
                None
            };
        }
        if folds {
            // One fold at a time, and this one is waited for.
            self.drop_beside();
            if !self.read_whole().await {
                return Some(self.release_as_lost().await);
            }
            let span = self.choose(tokens, room, Pressure::Hard);
            if let Some(span) = span.or_else(|| self.shorten(tokens, room)) {
                self.folding.span = Some(Arc::new(span));
                return Some(Event::TooLong);
            }
        }
        if self.forgets() && tokens > room.budget {
            let size = (tokens, room.budget);
            let forgotten = forget(&self.question(model), request, size, Extent::All);
            tokens = self.forget(request, forgotten).unwrap_or(tokens);
        }
        let doubtful = if self.send.agent.context.fold.strategy == FoldStrategy::None {
            unproven(request, tokens)
        } else {
            tokens
        };
        cannot_fit(doubtful, &model.facts).then(|| self.cannot_fit(request, room.budget))
    }

    /// Whether any of the send's own results may be forgotten.
    fn forgets(&self) -> bool {
        !self.send.agent.context.tools.is_empty()
    }

    /// Replaces a request with one in which more is forgotten, and records how much. Returns its
    /// tokens.
    fn forget(&mut self, request: &mut Request, forgotten: Option<Forgotten>) -> Option<u64> {
        let forgotten = forgotten?;
        let shown = self.bill.totals.shown.get_or_insert_default();
        shown.aged_to = Some(forgotten.aged_to);
        *request = forgotten.request;
        Some(forgotten.tokens)
    }

    /// The existing folds, to be shortened by what has no room, if nothing else may be folded.
    fn shorten(&self, tokens: u64, room: Room) -> Option<Span> {
        let folds = self.prompt.window.folds();
        let excess = tokens.saturating_sub(room.hard);
        let most = plan::weight(folds).saturating_sub(excess);
        (tokens > room.budget)
            .then(|| plan::shorten(folds, most))
            .flatten()
    }

    /// The expected tokens of a request: from the provider's count of its beginning if there is
    /// one, otherwise calibrated by earlier counts of this model.
    fn expected(&self, request: &Request, model: &Resolved) -> u64 {
        let counted = self.bill.allowance.counted_of(request, &model.facts);
        counted.unwrap_or_else(|| {
            let calibrations = self.kernel.parts.providers.calibrations();
            let calibration = calibrations.of((&model.provider, &model.model), &model.facts);
            calibration.of(expect_request_tokens(request))
        })
    }

    fn choose(&self, tokens: u64, room: Room, pressure: Pressure) -> Option<Span> {
        self.choose_beside(self.send.record.id, tokens, room, pressure)
    }

    /// The same, while the send `running` runs or none does.
    fn choose_beside(
        &self,
        running: SendId,
        tokens: u64,
        room: Room,
        pressure: Pressure,
    ) -> Option<Span> {
        let spec = &self.send.agent.context.fold;
        let window = &*self.prompt.window;
        let window = plan::Window {
            folds: window.folds(),
            messages: window.active(load::window_from(&self.bill.totals)),
            running,
            keep_sends: spec.keep_sends() as usize,
        };
        let weights = &self.folding.measured.weights;
        plan::choose(window, tokens, room, pressure, |message| {
            weights.weigh(message)
        })
    }

    /// The model refused a request as too long. First forgets what may be forgotten of the send's
    /// own results. Unless that frees much, folds everything foldable, once a round; if the request
    /// is still too long, shortens the folds; at last forgets results that the model has not seen.
    /// `None` if folds are not allowed and nothing is left.
    pub(in crate::send) fn overflowed(&mut self, request: &Request) -> Option<Event> {
        let folds = self.send.agent.context.fold.strategy != FoldStrategy::None;
        let forgot = self.forgets_after(request, Extent::Seen);
        if folds && forgot != Some(Freed::Much) {
            self.folding.measured.weights = Weights::of(request);
            if let Some(span) = self.harder() {
                self.drop_beside();
                self.folding.tried.harder = Some(self.bill.totals.rounds);
                self.folding.span = Some(Arc::new(span));
                return Some(Event::Overflowed);
            }
        }
        let forgot = forgot.or_else(|| self.forgets_after(request, Extent::All));
        if forgot.is_some() {
            self.drop_beside();
            self.folding.tried.forgot = true;
            return Some(Event::Overflowed);
        }
        folds.then(|| {
            self.drop_beside();
            self.cannot_fit(request, 0)
        })
    }

    /// Everything foldable of what did not fit, or else the folds, to be shortened.
    fn harder(&self) -> Option<Span> {
        let round = self.bill.totals.rounds;
        if self.folding.tried.forbidden == Some(round) {
            return None;
        }
        let room = Room::new(0, 0, &self.send.agent.context.fold);
        let is_first = self.folding.tried.harder != Some(round);
        let span = is_first.then(|| self.choose(0, room, Pressure::Harder));
        span.flatten()
            .or_else(|| plan::shorten(self.prompt.window.folds(), 0))
    }

    /// Forgets more of the send's own results after a request did not fit; `None` if that frees
    /// nothing.
    fn forgets_after(&mut self, request: &Request, extent: Extent) -> Option<Freed> {
        if !self.forgets() {
            return None;
        }
        let model = self.resolve().ok()?;
        // The room is unknown, and keeping the prefix cached does not help.
        let tokens = expect_request_tokens(request);
        let forgotten = forget(&self.question(&model), request, (tokens, 0), extent);
        let left = self.forget(&mut request.clone(), forgotten)?;
        let freed = tokens.saturating_sub(left);
        Some(if freed >= unproven(request, tokens) {
            Freed::Much
        } else {
            Freed::Little
        })
    }

    /// Fails a send whose request cannot fit, with a message that says what is in the way.
    fn cannot_fit(&mut self, request: &Request, budget: u64) -> Event {
        let message = in_the_way(
            request,
            end(self.prompt.window.folds().iter().map(Arc::as_ref)),
            budget,
        );
        self.cannot(Failure::new(Code::ContextCannotFit, message))
    }

    /// Begins the fold that is wanted. Returns an event if no model writes it and it is already
    /// attached.
    pub(in crate::send) async fn fold(&mut self) -> Option<Event> {
        // The answer timeout starts after the fold, which has its own.
        self.asking.tries.since = None;
        if std::mem::take(&mut self.folding.tried.forgot) {
            return Some(Event::Folded { cancelled: false });
        }
        let span = self.folding.span.clone()?;
        // A model cannot be relied on to write that briefly.
        let by_model = !span.messages.is_empty();
        if by_model && let Some(pause) = self.fold_paused() {
            return Some(self.paused(pause));
        }
        if by_model && self.ask_for_fold(&span, false) {
            return None;
        }
        if self.kernel.parts.hooks.is_empty() {
            return Some(self.attach_digest(&span).await);
        }
        let digest = Arc::clone(&span);
        let writing = Box::pin(async move { Ok(Written::digests(&digest)) });
        self.folding.writing = Some(self.permitted(&span, writing, false));
        None
    }

    /// Records that hooks forbid folds in this round.
    fn forbid(&mut self, why: &str) {
        tracing::info!(send.id = %self.send.record.id, why, "a hook forbids folding in this round");
        self.folding.asked = None;
        self.folding.tried.forbidden = Some(self.bill.totals.rounds);
    }

    /// Attaches the written fold, or digests in its place.
    pub(in crate::send) async fn written(&mut self, written: Result<Written, Fault>) -> Event {
        self.folding.writing = None;
        let span = self.folding.span.clone();
        let Some(span) = span else {
            return Event::Folded { cancelled: false };
        };
        let error = match written {
            Ok(written) => {
                if let Some(reply) = &written.reply {
                    self.pay_for_fold(reply.model.clone(), reply.usage);
                }
                self.folding.tried.failures = 0;
                return self.attach(written, &span).await;
            }
            Err(fault) => {
                self.pay_for_fault(&fault);
                match fault {
                    Fault::Model(error) => error,
                    Fault::Forbidden(why) => {
                        self.folding.span = None;
                        self.forbid(&why);
                        return Event::Folded { cancelled: false };
                    }
                    Fault::Empty { .. } | Fault::Long { .. } | Fault::Service(_) => {
                        tracing::warn!(
                            send.id = %self.send.record.id,
                            %fault,
                            "could not write a fold; using digests instead"
                        );
                        return self.attach_digest(&span).await;
                    }
                }
            }
        };
        let code = error.code();
        self.folding.tried.failures += 1;
        let tries = self.bill.totals.attempts.unsigned_abs() + 1;
        // Digests are available, so nothing is worth parking the send for.
        let wait = self.rules.retry.wait(tries, error.retry_after(), 1.0);
        let is_soon = wait.is_some_and(|wait| wait <= self.rules.hold_max);
        let is_stopping = self.kernel.lifecycle.is_stopping();
        let again = self.folding.tried.failures < TRIES && is_soon && !is_stopping;
        if error.is_permanent() || !again {
            tracing::warn!(
                send.id = %self.send.record.id,
                session.id = %self.send.record.key.session,
                code = code.as_str(),
                "the model calls for a fold failed; using digests instead"
            );
            return self.attach_digest(&span).await;
        }
        self.ending.failure = Some(Failure::new(code, error.to_string()));
        Event::Failed {
            code,
            permanent: false,
            retry_after: error.retry_after(),
            fraction: self.kernel.parts.entropy.fraction(),
            not_failed: self.asking.not_failed(),
        }
    }

    async fn attach_digest(&mut self, span: &Span) -> Event {
        // If this fold could not be written, no model is asked for the next one of this send
        // either.
        self.folding.tried.failures = TRIES;
        self.attach(Written::digests(span), span).await
    }

    /// Attaches a fold in a step of its own.
    async fn attach(&mut self, written: Written, span: &Span) -> Event {
        self.folding.span = None;
        let mut written = written;
        let notes = std::mem::take(&mut written.notes);
        let fold = written.row(span);
        let is_shown = !self.kernel.parts.hooks.is_empty();
        let stored = is_shown.then(|| fold.clone());
        let item = AppendRound {
            fold: Some(fold),
            ..self.changes_only(Vec::new())
        };
        match self.append(item).await {
            Ok(signals) => {
                if let Some(fold) = stored {
                    let stored = hook::Moment::FoldStored(&fold);
                    self.show(self.place(), stored, false).await;
                }
                self.lease_state.heard |= signals & (SIGNAL_RESULT | SIGNAL_INTERRUPT);
                self.save_notes(notes).await;
                let cancelled = signals & SIGNAL_CANCEL != 0;
                Event::Folded { cancelled }
            }
            Err(event) => event,
        }
    }

    /// Saves the notes of the attached fold, for as long as this worker owns the session.
    async fn save_notes(&mut self, notes: Vec<ToolCall>) {
        let (notebook, fold) = (self.notebook(), *self.prompt.version);
        tokio::select! {
            () = notebook.save(notes, fold) => {}
            () = self.lease_state.handles.lost.cancelled() => {}
        }
    }

    fn notebook(&self) -> Notebook {
        Notebook {
            kernel: Arc::clone(self.kernel),
            at: self.place(),
            boot: self.lease_state.lease.boot,
            offers: self.prompt.offers.clone(),
            stop: self.lease_state.handles.cancel.clone(),
        }
    }

    /// Drops the fold that is being written and enters what it may have cost.
    pub(in crate::send) fn abort_fold(&mut self) {
        if self.folding.writing.take().is_some() {
            self.pay_for_fold_estimated();
        }
        self.folding.span = None;
    }

    /// Enters the cost of a fold that failed.
    fn pay_for_fault(&mut self, fault: &Fault) {
        let asked = self.folding.asked.take();
        if let Some((model, usage)) = FoldCall::cost(asked.as_deref(), fault) {
            self.enter_fold(model, usage);
        }
    }

    fn pay_for_fold(&mut self, model: String, usage: Usage) {
        let asked = self.folding.asked.take();
        self.enter_fold(model, asked.map_or(usage, |asked| asked.priced(usage)));
    }

    /// Enters the estimated cost of a fold that was cut off.
    fn pay_for_fold_estimated(&mut self) {
        if let Some((model, usage)) = self.folding.asked.take().map(|asked| asked.estimated()) {
            self.enter_fold(model, usage);
        }
    }

    fn enter_fold(&mut self, model: String, usage: Usage) {
        let (epoch, call) = (self.lease_state.lease.epoch, self.folding.calls);
        self.enter(UsageRow::of_fold(epoch, call, model, usage));
    }
}

/// The parts of a request with their sizes, for people.
fn in_the_way(request: &Request, fold_end: i64, budget: u64) -> String {
    let messages = request.messages.iter();
    let sized = messages.map(|message| (estimate_message_tokens(message), message.seq));
    let sized: Vec<(u64, i64)> = sized.collect();
    let of = |folded: bool| {
        let these = sized.iter().filter(|(_, seq)| (*seq <= fold_end) == folded);
        these.map(|(tokens, _)| tokens).sum::<u64>()
    };
    let longest = sized.iter().filter(|(_, seq)| *seq > fold_end).max();
    let tools = estimate_request_tokens(&Request {
        system: None,
        messages: Vec::new(),
        tail: None,
        ..request.clone()
    });
    let system = request.system.as_deref().map_or(0, estimate_tokens);
    let tail = request.tail.as_deref().map_or(0, estimate_tokens);
    let mut text = format!(
        "the request takes about {} tokens",
        system + tools + of(true) + of(false) + tail
    );
    if budget > 0 {
        let _ = write!(text, ", and the model has room for {budget}");
    } else {
        text.push_str(", and the model refuses it as too long");
    }
    let _ = write!(
        text,
        ": system prompt {system}, tools {tools}, folds {}, messages {}",
        of(true),
        of(false)
    );
    if let Some((tokens, seq)) = longest {
        let _ = write!(text, " (the longest is #{seq} with {tokens})");
    }
    let _ = write!(text, ", tail {tail}");
    text
}
