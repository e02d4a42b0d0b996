//! The interpreter of a send's machine: it performs the machine's commands and reports what
//! happens, one event after the other.

use std::future::ready;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use mainspring_runtime::telemetry::spans;
use mainspring_shared::agent::{AgentSpec, OutputFault};
use mainspring_shared::budget::Spent;
use mainspring_shared::error::{Code, Coded as _, Failure};
use mainspring_shared::event::{LiveEvent, LiveKind};
use mainspring_shared::lease::Lease;
use mainspring_shared::message::{NewMessage, Role};
use mainspring_shared::send::machine::{Command, Event, Open, Rules, State, transition};
use mainspring_shared::session::SIGNAL_CANCEL;
use mainspring_shared::session::window::Window;
use mainspring_shared::store::{AfterSend, Counters, Resumed, SendTotals, StartedSend};
use mainspring_shared::time::Timestamp;
use tracing::{Instrument as _, Span};

use super::background::told;
use super::bill::Bill;
use super::calls::Stirring;
use super::cell::CellState;
use super::commands::{Beside, Folding};
use super::deciding::Deciding;
use super::fired::Fired;
use super::lease_state::{LeaseState, SendHandles};
use super::load;
use super::model_call::{Answered, Call, Hooked, ModelCallState, NoReply, Tries, Unanswered};
use super::output::Output;
use super::pending_messages::PendingMessages;
use super::round::Round;
use crate::Kernel;
use crate::fold::{Fault, Writing, Written};
use crate::hook::{At, GoOn, Moment};
use crate::llm;
use crate::tool::Offers;

/// How a run ended, for the loop over its session.
#[derive(Debug)]
pub(crate) enum RunOutcome {
    /// Normally: with the next send under the same lease, or with the lease released.
    Done(Option<Box<(StartedSend, Counters)>>),
    /// Another worker may own the session; none of its state may be kept.
    Lost,
}

/// One send under a lease. Each part knows only itself; whatever involves several parts is a method
/// of the run.
pub(crate) struct Run<'a> {
    pub(super) kernel: &'a Arc<Kernel>,
    pub(super) send: StartedSend,
    pub(super) rules: Rules,
    pub(super) lease_state: LeaseState,
    pub(super) prompt: Prompt<'a>,
    pub(super) asking: ModelCallState,
    pub(super) folding: Folding,
    pub(super) round: Round,
    pub(super) bill: Bill<'a>,
    pub(super) ending: Ending,
}

/// The inputs of model requests.
#[derive(Debug)]
pub(super) struct Prompt<'a> {
    /// The stored part of the transcript.
    pub(super) window: &'a mut Window,
    /// The `context_version` of the window.
    pub(super) version: &'a mut i64,
    /// The part that is not stored yet.
    pub(super) pending_messages: PendingMessages,
    /// The tools.
    pub(super) offers: Offers,
    /// The required shape of the answer, if one was asked for.
    pub(super) output: Result<Option<Output>, OutputFault>,
    /// What hooks decided about a send that a timer fired.
    pub(super) fired: Fired,
    /// Whether an isolated agent's cell is available.
    pub(super) cell: CellState,
}

/// How the run ends.
pub(super) struct Ending {
    /// Whether the session is released after this send even if more sends are queued in it.
    pub(super) then: AfterSend,
    /// Whether the process of the send's tools died, which counts as a crash of the worker.
    pub(super) crashed: bool,
    /// Why the last model call or tool failed.
    pub(super) failure: Option<Failure>,
    /// What hooks are asked about the end.
    pub(super) deciding: Deciding,
    /// How the run ended.
    pub(super) outcome: RunOutcome,
}

/// A lease and everything that its next send needs.
pub(crate) struct LeasedSend<'a> {
    pub(crate) lease: Lease,
    /// The send, and the session's counters at its start.
    pub(crate) begins: Box<(StartedSend, Counters)>,
    pub(crate) window: &'a mut Window,
    /// The `context_version` of the window.
    pub(crate) version: &'a mut i64,
    pub(crate) spent: &'a mut Spent,
    pub(crate) handles: SendHandles,
    pub(crate) then: AfterSend,
}

impl<'a> Run<'a> {
    /// The session's agent with its version; `None` if the send had an agent of its own, or its
    /// sender changed how the model is called.
    pub(crate) fn into_agent(self: Box<Self>) -> Option<(i32, Box<AgentSpec>)> {
        let StartedSend { record, agent, .. } = self.send;
        let version = record.agent_version?;
        record
            .options
            .leaves_agent()
            .then(|| (version, Box::new(agent)))
    }

    pub(crate) fn new(kernel: &'a Arc<Kernel>, turn: LeasedSend<'a>) -> Self {
        let LeasedSend {
            begins, handles, ..
        } = turn;
        let (send, counters) = *begins;
        let signals = counters.signals;
        if signals & SIGNAL_CANCEL != 0 {
            handles.cancel.cancel();
        }
        let record = &send.record;
        let totals = SendTotals {
            shown: load::shown(&send, counters.next_seq),
            ..record.totals(None)
        };
        let injected = record.shown.as_ref();
        let injected = injected.and_then(|shown| shown.injected.as_ref());
        let mut pending_messages = PendingMessages::default();
        if record.rounds == 0 {
            pending_messages.input(NewMessage::user(record.input.clone(), 0));
        }
        let mut run = Self {
            kernel,
            rules: load::rules(&send, &kernel.parts.config, !kernel.parts.hooks.is_empty()),
            lease_state: LeaseState::new(turn.lease, handles, signals, send.resumed.is_some()),
            prompt: Prompt {
                window: turn.window,
                version: turn.version,
                pending_messages,
                offers: Offers::default(),
                output: Ok(None),
                fired: Fired::default(),
                cell: CellState::default(),
            },
            asking: ModelCallState {
                tries: Tries {
                    // A call that the provider is still working on has not failed.
                    interrupted: record.not_failed.unsigned_abs()
                        + u32::from(load::has_background(&send)),
                    reset: send.resumed.map(Resumed::as_str),
                    ..Tries::default()
                },
                hooked: Hooked::of(injected),
                ..ModelCallState::default()
            },
            folding: Folding::default(),
            round: Round::default(),
            bill: Bill::new(&send, totals, turn.spent),
            ending: Ending {
                then: turn.then,
                crashed: false,
                failure: None,
                deciding: Deciding::default(),
                outcome: RunOutcome::Lost,
            },
            send,
        };
        run.bill_crashed_call();
        run
    }

    /// Runs the machine until the send is left.
    pub(crate) async fn drive(&mut self) -> RunOutcome {
        let mut state = State::Taken {
            rounds: self.bill.totals.rounds.unsigned_abs(),
            attempts: self.bill.totals.attempts.unsigned_abs(),
            crashes: self.send.record.crashes.unsigned_abs(),
            open: Open::Nothing,
        };
        // After a crash the machine first decides whether the send goes on at all, because parking
        // resets the count of crashes.
        if self.send.record.crashes == 0
            && !self.time_is_up()
            && !self.lease_state.handles.cancel.is_cancelled()
            && let Some(pause) = self.held_back()
        {
            let event = self.paused(pause);
            return self.run_machine(state, event).await;
        }
        self.live(LiveKind::SendStarted);
        self.show(self.place(), Moment::SendStarted, true).await;
        // Boxed, like everything except the wait itself: a send that waits for its model should
        // hold no memory for it.
        let Ok(open) = Box::pin(self.prepare()).await else {
            if matches!(self.ending.outcome, RunOutcome::Lost) {
                self.give_back().await;
                self.ending.outcome = RunOutcome::Lost;
            }
            return self.outcome();
        };
        if let Some(event) = self.waits_for_cell() {
            return self.run_machine(state, event).await;
        }
        if self.lacks_cell(open) {
            self.give_back().await;
            return self.outcome();
        }
        if let State::Taken { open: needs, .. } = &mut state {
            *needs = self.without_cell(open);
        }
        let event = if self.time_is_up() {
            Event::DeadlinePassed
        } else {
            Event::Begun
        };
        self.run_machine(state, event).await
    }

    async fn run_machine(&mut self, mut state: State, mut event: Event) -> RunOutcome {
        loop {
            let step = match transition(&state, event, &self.rules) {
                Ok(step) => step,
                Err(error) => {
                    // A bug. The lease is still valid, so the session is released for other
                    // workers.
                    tracing::error!(send.id = %self.send.record.id, %error);
                    debug_assert!(false, "{error}");
                    self.give_back().await;
                    return self.outcome();
                }
            };
            state = step.next;
            // A backoff that was cut short must not fire in a state that waits for something else.
            if !matches!(state, State::BackingOff { .. }) {
                self.asking.tries.wait = None;
            }
            let mut happened = None;
            for command in step.commands {
                let span = self.trace(&command);
                let performed = span.in_scope(|| self.perform(command));
                happened = performed.instrument(span).await.or(happened);
            }
            if state == State::Left {
                return self.outcome();
            }
            event = if let Some(event) = happened {
                event
            } else {
                let span = self.round_span();
                self.next_event().instrument(span).await
            };
        }
    }

    /// Returns the span of the round that a command belongs to. It opens when the model is first
    /// asked and closes before the send is left.
    fn trace(&mut self, command: &Command) -> Span {
        match command {
            Command::Ask { round, .. } => {
                let round = *round as i32;
                if self
                    .asking
                    .traced
                    .as_ref()
                    .is_none_or(|(of, _)| *of != round)
                {
                    // Close the previous span before the next one opens.
                    self.asking.traced = None;
                    self.asking.traced = Some((round, spans::round(self.send.record.key, round)));
                }
            }
            Command::Decide(_)
            | Command::End(_)
            | Command::Park { .. }
            | Command::Release
            | Command::Drop => self.asking.traced = None,
            Command::AbortAsking
            | Command::Fold
            | Command::AbortFold
            | Command::Wait(_)
            | Command::StoreRound
            | Command::RunCalls
            | Command::InterruptCalls
            | Command::StopCalls
            | Command::AbortCalls
            | Command::StoreResults
            | Command::AbortDeciding => {}
        }
        self.round_span()
    }

    fn round_span(&self) -> Span {
        let traced = self.asking.traced.as_ref();
        traced.map_or_else(Span::none, |(_, span)| span.clone())
    }

    fn outcome(&mut self) -> RunOutcome {
        self.leave_unpaid();
        std::mem::replace(&mut self.ending.outcome, RunOutcome::Lost)
    }

    /// Loads what the model is offered and finds what the last round's calls still need. Fails if
    /// the session was released because the database did not answer.
    async fn prepare(&mut self) -> Result<Open, Event> {
        let parts = &self.kernel.parts;
        match load::offers(&parts.tools, parts.clock.as_ref(), &self.send).await {
            Ok(offers) => self.prompt.offers = offers,
            Err(why) => self.prompt.cell = CellState::Failed(why),
        }
        let clock = self.kernel.parts.clock.as_ref();
        self.prompt.output = Output::of(clock, &self.send, self.prompt.window.held()).await;
        self.judge_fired().await;
        if !self.recall().await || !self.remember_others().await {
            return Err(self.release_as_lost().await);
        }
        if !self.roll_up_input().await {
            return Err(self.release_as_lost().await);
        }
        let open_round = self.prompt.window.last().and_then(|last| {
            let asks = last.role == Role::Assistant && !last.tool_calls.is_empty();
            (asks && last.send_id == self.send.record.id).then_some(last.round)
        });
        let Some(round) = open_round else {
            return self.told_round().await;
        };
        if !self.read_round(round).await {
            return Err(self.release_as_lost().await);
        }
        if !self.find_made().await {
            return Err(self.release_as_lost().await);
        }
        if let Some(event) = self.spawn_children().await {
            return Err(event);
        }
        Ok(self.look())
    }

    /// Performs a command; returns an event if its outcome is already known. Each command gets a
    /// box of its own size.
    fn perform(&mut self, command: Command) -> BoxFuture<'_, Option<Event>> {
        let event = match command {
            Command::Ask { round, attempt } => match self.held_back() {
                Some(pause) => Some(self.paused(pause)),
                None => return self.ask(round as i32, attempt as i32).boxed(),
            },
            Command::AbortAsking => {
                self.abort_asking();
                None
            }
            Command::Fold => return self.fold().boxed(),
            Command::AbortFold => {
                self.abort_fold();
                None
            }
            Command::Wait(wait) => return self.wait(wait).boxed(),
            Command::StoreRound => return self.store_round().map(Some).boxed(),
            Command::RunCalls => return self.run_calls().boxed(),
            Command::InterruptCalls => {
                self.interrupt_calls();
                None
            }
            Command::StopCalls => self.stop_calls(),
            Command::AbortCalls => {
                self.abort_calls();
                None
            }
            Command::StoreResults => return self.store_results().map(Some).boxed(),
            Command::Decide(end) => self.decide(end),
            Command::AbortDeciding => {
                self.abort_deciding();
                None
            }
            Command::End(end) => return self.end(end).map(Some).boxed(),
            Command::Park { on, after } => return self.park(on, after).map(Some).boxed(),
            Command::Release => return self.release().map(Some).boxed(),
            Command::Drop => {
                self.ending.outcome = RunOutcome::Lost;
                None
            }
        };
        ready(event).boxed()
    }

    /// Waits for the work in flight, or for something that interrupts it.
    async fn next_event(&mut self) -> Event {
        loop {
            let happening = self.happening().await;
            if let Some(event) = self.happened(happening).await {
                return event;
            }
        }
    }

    /// Turns what happened into an event for the machine, if it is one. Everything but a plain
    /// event is boxed, as in [`Self::perform`].
    fn happened(&mut self, happening: Happening) -> BoxFuture<'_, Option<Event>> {
        match happening {
            Happening::Event(event) => ready(Some(event)).boxed(),
            Happening::Reply(reply) => self.replied(reply).boxed(),
            Happening::Decided(wish) => self.decided(wish).map(Some).boxed(),
            Happening::Written(written) => self.written(written).map(Some).boxed(),
            Happening::Beside(written) => self.written_beside(written).boxed(),
            Happening::Call(Stirring::Over(place, over)) => self.call_over(place, over).boxed(),
            Happening::Call(Stirring::Keep(keep)) => self.keep_handle(keep).boxed(),
            Happening::Background(id) => self.note_background(id).boxed(),
            // The signal stays raised until the next step: the item that raised it may be known
            // already.
            Happening::Interrupt => {
                let news = self.has_news();
                news.map(|news| news.then_some(Event::Interrupted)).boxed()
            }
            Happening::Keep => self.keep_said().boxed(),
            Happening::Flush => {
                self.round.flush = None;
                self.flush_results().boxed()
            }
        }
    }

    /// Handles the outcome of a model call.
    async fn replied(&mut self, reply: Result<Answered, Unanswered>) -> Option<Event> {
        self.asking.call = None;
        let reply = match reply {
            Ok(answered) => Ok(answered),
            Err(Unanswered::No(why)) => Err(why),
            Err(Unanswered::Message(said)) => {
                return Box::pin(self.said_first(said)).await;
            }
        };
        if let Err(NoReply::Model(llm::Error::CallFailed { message })) = reply {
            return Some(Box::pin(self.call_failed(message)).await);
        }
        let overflows = matches!(
            &reply,
            Err(NoReply::Model(error)) if error.code() == Code::LlmContextOverflow
        );
        if overflows && !Box::pin(self.read_whole()).await {
            return Some(Box::pin(self.release_as_lost()).await);
        }
        Some(self.answered(reply))
    }

    async fn happening(&mut self) -> Happening {
        let kernel = self.kernel.clone();
        let clock = &kernel.parts.clock;
        let ends_at = [self.send.record.deadline_at, self.ends_at()];
        let deadline = ends_at.into_iter().flatten().min();
        let deadline = deadline.filter(|_| !self.lease_state.seen.deadline);
        let now = kernel.boot.database_time(&kernel.parts);
        let deadline = pin!(sleep(clock.as_ref(), deadline.map(|at| at.since(now))));
        let pause = pin!(sleep(clock.as_ref(), self.asking.tries.wait));
        let keep = pin!(sleep(clock.as_ref(), self.checkpoint_in()));
        let flush = pin!(sleep(clock.as_ref(), self.round.flush));
        let (cancel_seen, drain_seen) = (self.lease_state.seen.cancel, self.lease_state.seen.drain);
        let handles = self.lease_state.handles.clone();
        let event = tokio::select! {
            biased;
            () = handles.lost.cancelled() => Event::LeaseLost,
            () = handles.cancel.cancelled(), if !cancel_seen => {
                self.lease_state.seen.cancel = true;
                Event::CancelRaised
            }
            () = kernel.lifecycle.aborting() => Event::DrainOver,
            () = kernel.lifecycle.stopping(), if !drain_seen => {
                self.lease_state.seen.drain = true;
                Event::DrainAsked
            }
            () = deadline => {
                self.lease_state.seen.deadline = true;
                Event::DeadlinePassed
            }
            () = handles.interrupt.notified() => return Happening::Interrupt,
            () = pause => {
                self.asking.tries.wait = None;
                Event::BackoffOver
            }
            reply = answer(&mut self.asking.call) => return Happening::Reply(reply),
            wish = self.ending.deciding.said() => return Happening::Decided(wish),
            written = written(&mut self.folding.writing) => return Happening::Written(written),
            written = beside(&mut self.folding.beside) => return Happening::Beside(written),
            id = told(&mut self.asking.background) => return Happening::Background(id),
            stirring = self.round.calls.next() => return Happening::Call(stirring),
            () = flush => return Happening::Flush,
            () = keep => return Happening::Keep,
        };
        Happening::Event(event)
    }

    /// Shows hooks what happened; see [`Self::observed`].
    pub(super) async fn show(&mut self, place: At, moment: Moment<'_>, begins: bool) {
        let hooks = self.kernel.parts.hooks.clone();
        if !hooks.is_empty() {
            Box::pin(self.observed(hooks.observe(place, moment), begins)).await;
        }
    }

    /// Lets hooks observe until something more urgent happens. Whatever cuts the wait short stays
    /// raised, so the machine finds it. Once the send has ended (`begins` is false), only the loss
    /// of the lease and the abort of the process cut it short.
    pub(super) async fn observed(&mut self, looks: impl Future<Output = ()> + Send, begins: bool) {
        let ends = [self.send.record.deadline_at, self.ends_at()];
        let deadline = ends.into_iter().flatten().min();
        let deadline = deadline.map(|at| at.since(self.now()));
        let lifecycle = &self.kernel.lifecycle;
        tokio::select! {
            biased;
            () = looks => {}
            () = self.lease_state.handles.lost.cancelled() => {}
            () = lifecycle.aborting() => {}
            () = self.lease_state.handles.cancel.cancelled(), if begins => {}
            () = lifecycle.stopping(), if begins => {}
            () = sleep(self.kernel.parts.clock.as_ref(), deadline), if begins => {}
        }
    }

    /// The send's current position, for hooks.
    pub(super) fn place(&self) -> At {
        At {
            session: self.send.record.key,
            send: self.send.record.id,
            round: self.bill.totals.rounds,
            attempt: self.bill.totals.attempts,
            life: self.lease_state.lease.epoch,
        }
    }

    /// The database's time, as estimated by this process.
    pub(super) fn now(&self) -> Timestamp {
        self.kernel.boot.database_time(&self.kernel.parts)
    }

    pub(super) fn live(&self, kind: LiveKind) {
        self.kernel.live.send(
            self.send.record.key,
            LiveEvent {
                send_id: self.send.record.id,
                kind,
            },
        );
    }
}

enum Happening {
    Event(Event),
    Reply(Result<Answered, Unanswered>),
    Decided(Option<GoOn>),
    Written(Result<Written, Fault>),
    Beside(Result<Written, Fault>),
    Call(Stirring),
    Background(String),
    Interrupt,
    Flush,
    Keep,
}

async fn sleep(clock: &dyn mainspring_shared::time::Clock, duration: Option<Duration>) {
    match duration {
        Some(duration) => clock.sleep(duration).await,
        None => std::future::pending().await,
    }
}

async fn answer(call: &mut Option<Call>) -> Result<Answered, Unanswered> {
    match call {
        Some(call) => call.await,
        None => std::future::pending().await,
    }
}

async fn written(writing: &mut Option<Writing>) -> Result<Written, Fault> {
    match writing {
        Some(writing) => writing.await,
        None => std::future::pending().await,
    }
}

async fn beside(beside: &mut Option<Beside>) -> Result<Written, Fault> {
    match beside {
        Some(beside) => (&mut beside.writing).await,
        None => std::future::pending().await,
    }
}
