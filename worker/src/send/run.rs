//! The interpreter of a send's machine.

mod asking;
mod attempt;
mod calling;
mod delegating;
mod ending;
mod leaving;
mod paying;
mod persist;
mod recalling;
mod starting;

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mainspring_shared::agent::OutputFault;
use mainspring_shared::budget::{Price, Spent};
use mainspring_shared::error::Failure;
use mainspring_shared::event::{LiveEvent, LiveKind};
use mainspring_shared::id::SessionKey;
use mainspring_shared::lease::Lease;
use mainspring_shared::message::{NewMessage, Role};
use mainspring_shared::send::machine::{Command, Event, Open, Rules, State, transition};
use mainspring_shared::session::window::Window;
use mainspring_shared::session::{SIGNAL_CANCEL, SIGNAL_INBOX};
use mainspring_shared::store::{Counters, Resumed, SendTotals, StartedSend, Then, UsageRow};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::{CallRecord, CallResult};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::attempt::{Answered, Asked, Call, NoReply, Partial, Streamed};
use super::calls::{Calls, Over};
use super::output::Output;
use super::purse::{Aside, Purse};
use super::unsaid::Unsaid;
use super::vet::Vetted;
use super::{load, plan};
use crate::Kernel;
use crate::hook::{At, ToolCall};
use crate::llm::{self, Reply};
use crate::said::Said;
use crate::tool::Offers;

/// How a run left its session.
#[derive(Debug)]
pub(crate) enum Left {
    /// In order: with the next send under the same lease, or with the lease given back.
    Done(Option<Box<(StartedSend, Counters)>>),
    /// The session belongs to someone else; nothing of it may be kept.
    Lost,
}

/// How others reach the run.
#[derive(Debug, Clone)]
pub(crate) struct Reach {
    /// The session may belong to someone else.
    pub(crate) lost: CancellationToken,
    /// The send is to end.
    pub(crate) cancel: CancellationToken,
    /// The inbox has something for the next round.
    pub(crate) news: Arc<AtomicBool>,
    /// The inbox has something that does not wait.
    pub(crate) interrupt: Arc<Notify>,
    /// Writes under the lease so far.
    pub(crate) writes: Arc<AtomicI64>,
    /// What the model has said of the answer that is under way.
    pub(crate) said: Arc<Said>,
    /// What was spent and is not stored yet, for whoever ends the send when its run cannot.
    pub(crate) owed: Arc<Mutex<Owed>>,
}

impl Reach {
    /// The lease as the next write carries it.
    pub(crate) fn lease(&self, lease: Lease) -> Lease {
        Lease {
            write: self.writes.load(Ordering::Relaxed),
            ..lease
        }
    }
}

/// What a run owes the send's sums.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    /// Responses that no transaction has stored yet.
    pub(crate) rows: Vec<UsageRow>,
    /// The model call that is under way: what it costs so far.
    pub(crate) asked: Option<Pending>,
    /// What the session has spent with the rows, where that is counted.
    pub(crate) session: Option<Spent>,
}

/// A model call that is under way.
#[derive(Debug)]
pub(crate) struct Pending {
    /// Without what was streamed.
    row: UsageRow,
    price: Option<Price>,
    streamed: Arc<AtomicU64>,
}

impl Owed {
    /// All that is owed, the call that is under way as far as it came.
    pub(crate) fn settle(&mut self) -> (Vec<UsageRow>, Option<Spent>) {
        let mut rows = std::mem::take(&mut self.rows);
        let mut session = self.session.take();
        if let Some(pending) = self.asked.take() {
            let mut row = pending.row;
            row.usage.output_tokens = paying::streamed_tokens(&pending.streamed);
            row.usage.cost_usd = pending.price.map(|price| price.of(&row.usage));
            session = session.map(|session| session.plus(Spent::of(&row.usage, 0)));
            rows.push(row);
        }
        (rows, session)
    }
}

/// One send under a lease.
pub(crate) struct Run<'a> {
    kernel: &'a Arc<Kernel>,
    key: SessionKey,
    lease: Lease,
    send: StartedSend,
    window: &'a mut Window,
    rules: Rules,
    purse: Purse,
    /// What the session has spent.
    spent: &'a mut Spent,
    reach: Reach,
    /// Whether the session goes back after this send whatever waits in it.
    then: Then,
    offers: Offers,
    /// The shape of the answer, if one was asked for.
    output: Result<Option<Output>, OutputFault>,
    unsaid: Unsaid,
    /// Whether the inbox has to be read before the model is asked.
    inbox: Inbox,
    totals: SendTotals,
    /// The sums without what the model is told of with the next step, where that holds any.
    aside: Option<Aside>,
    /// Responses that no transaction has stored yet.
    unpaid: Vec<UsageRow>,
    /// What a hook says to the model after the answer that is stored next.
    back: Option<String>,
    /// Times that hooks sent the model back.
    sent_back: u32,
    /// What the model has said of its answer, where that was cut and goes on.
    partial: Option<Partial>,
    /// Model calls of the open round that messages interrupted, and those that gave the parts of an
    /// answer that an interruption made void.
    interrupted: u32,
    asking: Option<Call>,
    asked: Option<Asked>,
    wait: Option<Duration>,
    reply: Option<Reply>,
    /// The calls of the round that is open, as they are stored or will be.
    records: Vec<CallRecord>,
    /// Places of calls that changed since they were stored.
    fresh: Vec<usize>,
    /// Places of calls that are not waited for any longer, while their rows may say more.
    given_up: Vec<usize>,
    /// Children and runs that the open round's calls made in an earlier life.
    made: BTreeSet<Uuid>,
    /// The calls of the last round with their results, of which hooks are still to be told.
    over: Vec<(ToolCall, CallResult)>,
    /// Children that have answered and are not kept.
    answered: Vec<SessionKey>,
    calls: Calls,
    /// What is known of the calls of the last answer.
    vetted: Vec<Vetted>,
    /// When results that came are stored although others still run.
    flush: Option<Duration>,
    /// Signals that a step lowered, and about which nothing was done yet.
    heard: i32,
    /// Why the last model call or tool failed.
    failure: Option<Failure>,
    /// Why the attempt that begins is not the round's first.
    reset: Option<&'static str>,
    /// Model calls begun in the present round, as of the last step.
    stored_attempts: i32,
    /// What was streamed of the present round.
    streamed: Option<Streamed>,
    left: Left,
    seen: Seen,
}

/// What this worker knows of the inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inbox {
    /// What was in it has been read.
    Known,
    /// It may have something; the signal is lowered.
    Lowered,
    /// It has something, and the signal is up: it has to be lowered before the inbox is read, so
    /// that whatever comes later raises it again.
    Raised,
}

/// What interrupts a send once, and was reported to its machine.
#[derive(Debug, Default)]
struct Seen {
    cancel: bool,
    deadline: bool,
    drain: bool,
}

/// A lease with what its next send needs.
pub(crate) struct Turn<'a> {
    pub(crate) key: SessionKey,
    pub(crate) lease: Lease,
    pub(crate) send: StartedSend,
    pub(crate) counters: Counters,
    pub(crate) window: &'a mut Window,
    pub(crate) spent: &'a mut Spent,
    pub(crate) reach: Reach,
    pub(crate) then: Then,
}

impl<'a> Run<'a> {
    pub(crate) fn new(kernel: &'a Arc<Kernel>, turn: Turn<'a>) -> Self {
        let Turn { send, reach, .. } = turn;
        let signals = turn.counters.signals;
        if signals & SIGNAL_CANCEL != 0 {
            reach.cancel.cancel();
        }
        let record = &send.record;
        let totals = SendTotals {
            usage: record.usage,
            held: record.held.clone(),
            rounds: record.rounds,
            attempts: record.attempts,
            counted: record.counted,
            not_failed: record.not_failed,
            shown: load::shown(&send, turn.counters.next_seq),
            session: None,
        };
        let mut unsaid = Unsaid::default();
        if record.rounds == 0 {
            unsaid.input(NewMessage::user(record.input.clone(), 0));
        }
        Self {
            kernel,
            key: turn.key,
            lease: turn.lease,
            window: turn.window,
            rules: load::rules(&send, &kernel.parts.config),
            purse: Purse::new(&send, &totals, *turn.spent),
            spent: turn.spent,
            reach,
            then: turn.then,
            offers: Offers::default(),
            output: Ok(None),
            unsaid,
            // Whoever had the send before may have lowered the signal and died.
            inbox: if signals & SIGNAL_INBOX != 0 {
                Inbox::Raised
            } else if send.resumed.is_some() {
                Inbox::Lowered
            } else {
                Inbox::Known
            },
            totals,
            aside: None,
            unpaid: Vec::new(),
            back: None,
            sent_back: 0,
            partial: None,
            interrupted: record.not_failed.unsigned_abs(),
            asking: None,
            asked: None,
            wait: None,
            reply: None,
            records: Vec::new(),
            fresh: Vec::new(),
            given_up: Vec::new(),
            made: BTreeSet::new(),
            over: Vec::new(),
            answered: Vec::new(),
            calls: Calls::default(),
            vetted: Vec::new(),
            flush: None,
            heard: 0,
            failure: None,
            reset: send.resumed.map(Resumed::as_str),
            stored_attempts: send.record.attempts,
            streamed: None,
            left: Left::Lost,
            seen: Seen::default(),
            send,
        }
    }

    /// Runs the machine until the send is left.
    pub(crate) async fn drive(mut self) -> Left {
        self.live(LiveKind::SendStarted);
        let hooks = self.kernel.parts.hooks.clone();
        let place = self.place();
        self.observed(hooks.send_started(place), true).await;
        let Ok(open) = self.prepare().await else {
            if matches!(self.left, Left::Lost) {
                self.release().await;
                self.left = Left::Lost;
            }
            return self.left;
        };
        let mut state = State::Taken {
            rounds: self.totals.rounds.unsigned_abs(),
            attempts: self.totals.attempts.unsigned_abs(),
            crashes: self.send.record.crashes.unsigned_abs(),
            open,
        };
        let mut event = if self.time_is_up() {
            Event::DeadlinePassed
        } else {
            Event::Begun
        };
        loop {
            let step = match transition(&state, event, &self.rules) {
                Ok(step) => step,
                Err(error) => {
                    // A defect: the lease runs on, so the session is given back for others.
                    tracing::error!(send.id = %self.send.record.id, %error);
                    debug_assert!(false, "{error}");
                    self.release().await;
                    return self.left;
                }
            };
            state = step.next;
            // A pause that something cut short must not end in a state that waits for something else.
            if !matches!(state, State::BackingOff { .. }) {
                self.wait = None;
            }
            let mut happened = None;
            for command in step.commands {
                happened = self.perform(command).await.or(happened);
            }
            if state == State::Left {
                return self.left;
            }
            event = match happened {
                Some(event) => event,
                None => self.next_event().await,
            };
        }
    }

    /// Looks what the model is offered and what the last round's calls still need. Fails when the
    /// session was given back because the database does not say.
    async fn prepare(&mut self) -> Result<Open, Event> {
        if !self.send.agent.tools.is_empty() {
            let only = self.send.record.options.tools.as_deref();
            let tools = &self.kernel.parts.tools;
            let clock = self.kernel.parts.clock.as_ref();
            self.offers = tools.offers(clock, &self.send.agent, only).await;
        }
        let clock = self.kernel.parts.clock.as_ref();
        self.output = Output::of(clock, &self.send, self.window.held()).await;
        if !self.recall().await {
            return Err(self.release_as_lost().await);
        }
        if !self.roll_up_input().await {
            return Err(self.release_as_lost().await);
        }
        let open_round = self.window.last().and_then(|last| {
            let asks = last.role == Role::Assistant && !last.tool_calls.is_empty();
            (asks && last.send_id == self.send.record.id).then_some(last.round)
        });
        let Some(round) = open_round else {
            return Ok(Open::Nothing);
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

    /// Does what the machine says; an event when that is already over.
    async fn perform(&mut self, command: Command) -> Option<Event> {
        match command {
            Command::Ask { round, attempt } => self.ask(round as i32, attempt as i32).await,
            Command::AbortAsking => {
                self.abort_asking();
                None
            }
            Command::Wait(wait) => {
                self.wait = Some(wait);
                self.note_spending().await
            }
            Command::StoreRound => {
                self.interrupted = 0;
                Some(self.store_round().await)
            }
            Command::RunCalls => self.run_calls().await,
            Command::InterruptCalls => {
                self.interrupt_calls();
                None
            }
            Command::StopCalls => {
                self.calls.stop(true);
                self.calls.is_empty().then_some(Event::CallsAborted)
            }
            Command::AbortCalls => {
                self.calls = Calls::default();
                None
            }
            Command::StoreResults => Some(self.store_results().await),
            Command::End(end) => Some(self.end(end).await),
            Command::Park { on, after } => Some(self.park(on, after).await),
            Command::Release => Some(self.hand_over().await),
            Command::Drop => {
                self.left = Left::Lost;
                None
            }
        }
    }

    /// Waits for what is under way, or for something that interrupts it.
    async fn next_event(&mut self) -> Event {
        loop {
            match self.happening().await {
                Happening::Event(event) => return event,
                Happening::Reply(reply) => {
                    self.asking = None;
                    if let Err(NoReply::Model(llm::Error::CallFailed { message })) = reply {
                        return self.call_failed(message).await;
                    }
                    return self.answered(reply);
                }
                Happening::Over(place, over) => {
                    if let Some(event) = self.call_over(place, over).await {
                        return event;
                    }
                }
                // The signal stays raised until the next step: what it is about may be known.
                Happening::Interrupt => {
                    if self.has_news().await {
                        return Event::Interrupted;
                    }
                }
                Happening::Flush => {
                    self.flush = None;
                    if let Some(event) = self.flush_results().await {
                        return event;
                    }
                }
            }
        }
    }

    async fn happening(&mut self) -> Happening {
        let kernel = self.kernel.clone();
        let clock = &kernel.parts.clock;
        let ends_at = [self.send.record.deadline_at, self.ends_at()];
        let deadline = ends_at.into_iter().flatten().min();
        let deadline = deadline.filter(|_| !self.seen.deadline);
        let now = kernel.boot.database_time(&kernel.parts);
        let deadline = pin!(sleep(clock.as_ref(), deadline.map(|at| at.since(now))));
        let pause = pin!(sleep(clock.as_ref(), self.wait));
        let flush = pin!(sleep(clock.as_ref(), self.flush));
        let (cancel_seen, drain_seen) = (self.seen.cancel, self.seen.drain);
        let reach = self.reach.clone();
        let event = tokio::select! {
            biased;
            () = reach.lost.cancelled() => Event::LeaseLost,
            () = reach.cancel.cancelled(), if !cancel_seen => {
                self.seen.cancel = true;
                Event::CancelRaised
            }
            () = kernel.lifecycle.aborting() => Event::DrainOver,
            () = kernel.lifecycle.stopping(), if !drain_seen => {
                self.seen.drain = true;
                Event::DrainAsked
            }
            () = deadline => {
                self.seen.deadline = true;
                Event::DeadlinePassed
            }
            () = reach.interrupt.notified() => return Happening::Interrupt,
            () = pause => {
                self.wait = None;
                Event::BackoffOver
            }
            reply = answer(&mut self.asking) => return Happening::Reply(reply),
            (place, over) = self.calls.next() => return Happening::Over(place, over),
            () = flush => return Happening::Flush,
        };
        Happening::Event(event)
    }

    /// Lets hooks look on for as long as nothing is more urgent. What ends the wait is found by the
    /// machine: it stays raised.
    /// Where the send has ended, only the lease and the process's own end are.
    async fn observed(&mut self, looks: impl Future<Output = ()> + Send, begins: bool) {
        let ends = [self.send.record.deadline_at, self.ends_at()];
        let deadline = ends.into_iter().flatten().min();
        let deadline = deadline.map(|at| at.since(self.now()));
        let lifecycle = &self.kernel.lifecycle;
        tokio::select! {
            biased;
            () = looks => {}
            () = self.reach.lost.cancelled() => {}
            () = lifecycle.aborting() => {}
            () = self.reach.cancel.cancelled(), if begins => {}
            () = lifecycle.stopping(), if begins => {}
            () = sleep(self.kernel.parts.clock.as_ref(), deadline), if begins => {}
        }
    }

    /// Where the send stands, for hooks.
    fn place(&self) -> At {
        At {
            session: self.key,
            send: self.send.record.id,
            round: self.totals.rounds,
            attempt: self.totals.attempts,
        }
    }

    /// The database's time, as this process knows it.
    fn now(&self) -> Timestamp {
        self.kernel.boot.database_time(&self.kernel.parts)
    }

    /// What the open round's calls need.
    fn open(&self) -> Open {
        plan::open(&self.records, self.now())
    }

    /// The same; when it is nothing, their results are told to the model next.
    fn look(&mut self) -> Open {
        let open = self.open();
        if open == Open::Nothing && !self.records.is_empty() {
            self.tell_results();
        }
        open
    }

    fn owed(&self) -> MutexGuard<'_, Owed> {
        // Nothing between two statements under this lock can panic, so it is never half changed.
        self.reach
            .owed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn live(&self, kind: LiveKind) {
        self.kernel.live.send(
            self.key,
            LiveEvent {
                send_id: self.send.record.id,
                kind,
            },
        );
    }
}

enum Happening {
    Event(Event),
    Reply(Result<Answered, NoReply>),
    Over(usize, Over),
    Interrupt,
    Flush,
}

async fn sleep(clock: &dyn mainspring_shared::time::Clock, duration: Option<Duration>) {
    match duration {
        Some(duration) => clock.sleep(duration).await,
        None => std::future::pending().await,
    }
}

async fn answer(call: &mut Option<Call>) -> Result<Answered, NoReply> {
    match call {
        Some(call) => call.await,
        None => std::future::pending().await,
    }
}
