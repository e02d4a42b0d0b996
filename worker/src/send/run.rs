//! The interpreter of a send's machine.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use mainspring_shared::error::{Coded, Failure};
use mainspring_shared::event::{Delta, LiveEvent, LiveKind};
use mainspring_shared::id::SessionKey;
use mainspring_shared::lease::Lease;
use mainspring_shared::message::{NewMessage, plain_text};
use mainspring_shared::send::machine::{Answer, Command, End, Event, Rules, State, transition};
use mainspring_shared::send::{SendResult, WaitingOn};
use mainspring_shared::session::SIGNAL_CANCEL;
use mainspring_shared::session::window::Window;
use mainspring_shared::store::{
    AppendOutcome, AppendRound, CompleteOutcome, CompleteSend, Counters, Error as StoreError,
    ParkOutcome, ParkSend, ParkUntil, ReleaseSession, SendTotals, StartedSend, Then, UsageRow,
};
use tokio_util::sync::CancellationToken;

use super::{load, settle};
use crate::llm::{self, Chunk, Reply};
use crate::writes::{self, SharedError};
use crate::{Kernel, metrics};

/// How a run left its session.
#[derive(Debug)]
pub(crate) enum Left {
    /// In order: with the next send under the same lease, or with the lease given back.
    Done(Option<Box<(StartedSend, Counters)>>),
    /// The session belongs to someone else; nothing of it may be kept.
    Lost,
}

type Call = BoxFuture<'static, Result<Reply, llm::Error>>;

/// One send under a lease.
pub(crate) struct Run<'a> {
    kernel: &'a Arc<Kernel>,
    key: SessionKey,
    lease: Lease,
    send: StartedSend,
    window: &'a mut Window,
    rules: Rules,
    lost: CancellationToken,
    cancel: CancellationToken,
    /// Whether the session goes back after this send whatever waits in it.
    then: Then,
    /// The send's own message, until the transcript has it.
    input: Option<NewMessage>,
    totals: SendTotals,
    /// Responses that no transaction has stored yet.
    unpaid: Vec<UsageRow>,
    call: Option<Call>,
    wait: Option<Duration>,
    reply: Option<Reply>,
    /// Why the last model call failed.
    failure: Option<Failure>,
    /// Why the attempt that begins is not the round's first.
    reset: Option<&'static str>,
    left: Left,
    seen: Seen,
}

/// What interrupts a send once, and was reported to its machine.
#[derive(Debug, Default)]
struct Seen {
    cancel: bool,
    deadline: bool,
    drain: bool,
}

impl<'a> Run<'a> {
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one lease, put together once"
    )]
    pub(crate) fn new(
        kernel: &'a Arc<Kernel>,
        key: SessionKey,
        lease: Lease,
        send: StartedSend,
        counters: Counters,
        window: &'a mut Window,
        lost: CancellationToken,
        cancel: CancellationToken,
        then: Then,
    ) -> Self {
        if counters.signals & SIGNAL_CANCEL != 0 {
            cancel.cancel();
        }
        let record = &send.record;
        let input = (record.rounds == 0).then(|| NewMessage::user(record.input.clone(), 0));
        Self {
            kernel,
            key,
            lease,
            window,
            rules: load::rules(&send, &kernel.parts.config),
            lost,
            cancel,
            then,
            input,
            totals: SendTotals {
                usage: record.usage,
                rounds: record.rounds,
                attempts: record.attempts,
            },
            unpaid: Vec::new(),
            call: None,
            wait: None,
            reply: None,
            failure: None,
            reset: send.resumed.then_some("takeover"),
            left: Left::Lost,
            seen: Seen::default(),
            send,
        }
    }

    /// Runs the machine until the send is left.
    pub(crate) async fn drive(mut self) -> Left {
        self.live(LiveKind::SendStarted);
        let mut state = State::Taken {
            rounds: self.totals.rounds.unsigned_abs(),
            attempts: self.totals.attempts.unsigned_abs(),
            crashes: self.send.record.crashes.unsigned_abs(),
        };
        let mut event = Event::Begun;
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

    /// Does what the machine says; an event when that is already over.
    async fn perform(&mut self, command: Command) -> Option<Event> {
        match command {
            Command::Ask { round, attempt } => self.ask(round as i32, attempt as i32),
            Command::AbortAsking => {
                self.call = None;
                None
            }
            Command::Wait(wait) => {
                self.wait = Some(wait);
                None
            }
            Command::StoreRound => Some(self.store_round().await),
            Command::End(end) => Some(self.end(end).await),
            Command::Park { on, after } => Some(self.park(on, after).await),
            Command::Release => Some(self.release().await),
            Command::Drop => {
                self.left = Left::Lost;
                None
            }
        }
    }

    /// Begins a model call.
    fn ask(&mut self, round: i32, attempt: i32) -> Option<Event> {
        let resolved = match self.kernel.parts.providers.resolve(load::model(&self.send)) {
            Ok(resolved) => resolved,
            Err(error) => return Some(self.failed(&error)),
        };
        self.totals.attempts = attempt;
        if let Some(reason) = self.reset.take() {
            self.live(LiveKind::MessageReset {
                round,
                attempt,
                reason: reason.into(),
            });
        }
        self.live(LiveKind::RoundStarted {
            round,
            model: resolved.model.clone(),
        });
        let request = load::request(&self.send, resolved.model, self.window, self.input.as_ref());
        let client = resolved.client;
        let (live, key, send_id) = (self.kernel.live.clone(), self.key, self.send.record.id);
        metrics::model_call_started();
        self.call = Some(Box::pin(async move {
            let (mut text_offset, mut reasoning_offset) = (0, 0);
            let mut on_chunk = |chunk: Chunk<'_>| {
                let (offset, text) = match chunk {
                    Chunk::Text(text) => (&mut text_offset, text),
                    Chunk::Reasoning(text) => (&mut reasoning_offset, text),
                };
                let delta = Delta {
                    round,
                    attempt,
                    offset: *offset,
                    text: text.to_owned(),
                };
                *offset += text.chars().count() as u64;
                let kind = match chunk {
                    Chunk::Text(_) => LiveKind::MessageDelta(delta),
                    Chunk::Reasoning(_) => LiveKind::ReasoningDelta(delta),
                };
                live.send(key, LiveEvent { send_id, kind });
            };
            client.complete(&request, &mut on_chunk).await
        }));
        None
    }

    /// Waits for the call or the pause that is under way, or for something that interrupts it.
    async fn next_event(&mut self) -> Event {
        let kernel = self.kernel.clone();
        let clock = &kernel.parts.clock;
        let deadline = self.send.record.deadline_at.filter(|_| !self.seen.deadline);
        let deadline = async {
            match deadline {
                Some(at) => {
                    clock
                        .sleep(at.since(kernel.boot.database_time(&kernel.parts)))
                        .await;
                }
                None => std::future::pending().await,
            }
        };
        let wait = self.wait;
        let pause = async {
            match wait {
                Some(wait) => clock.sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        let (deadline, pause) = (pin!(deadline), pin!(pause));
        let (cancel_seen, drain_seen) = (self.seen.cancel, self.seen.drain);
        let (lost, cancel) = (self.lost.clone(), self.cancel.clone());
        let reply = tokio::select! {
            biased;
            () = lost.cancelled() => return Event::LeaseLost,
            () = cancel.cancelled(), if !cancel_seen => {
                self.seen.cancel = true;
                return Event::CancelRaised;
            }
            () = kernel.lifecycle.aborting() => return Event::DrainOver,
            () = kernel.lifecycle.stopping(), if !drain_seen => {
                self.seen.drain = true;
                return Event::DrainAsked;
            }
            () = deadline => {
                self.seen.deadline = true;
                return Event::DeadlinePassed;
            }
            () = pause => {
                self.wait = None;
                return Event::BackoffOver;
            }
            reply = answer(&mut self.call) => reply,
        };
        self.call = None;
        self.answered(reply)
    }

    fn answered(&mut self, reply: Result<Reply, llm::Error>) -> Event {
        let reply = match reply {
            Ok(reply) => reply,
            Err(error) => return self.failed(&error),
        };
        self.totals.usage.add(&reply.usage);
        self.unpaid.push(UsageRow {
            round: self.totals.rounds,
            attempt: self.totals.attempts,
            model: reply.model.clone(),
            usage: reply.usage,
        });
        match settle::classify(&reply) {
            Ok(answer) => {
                if answer == Answer::Refused {
                    let text = plain_text(&reply.content);
                    let message = format!("the model declined to answer: {text}");
                    self.failure = Some(Failure::new(
                        mainspring_shared::error::Code::LlmRefused,
                        message.trim_end_matches([':', ' ']),
                    ));
                }
                self.reply = Some(reply);
                Event::Replied(answer)
            }
            Err(error) => self.failed(&error),
        }
    }

    fn failed(&mut self, error: &llm::Error) -> Event {
        let code = error.code();
        metrics::model_call_failed(code);
        self.reset = Some(code.as_str());
        self.failure = Some(Failure::new(code, error.to_string()));
        Event::Failed {
            code,
            permanent: error.is_permanent(),
            retry_after: error.retry_after(),
            fraction: self.kernel.parts.entropy.fraction(),
        }
    }

    /// Stores the round of the reply, with an answer to each call.
    async fn store_round(&mut self) -> Event {
        let Some(reply) = self.reply.take() else {
            return Event::LeaseLost;
        };
        let index = self.totals.rounds;
        let (answer, calls) = settle::round(&reply, self.send.record.id, index);
        let messages: Vec<_> = self.input.iter().cloned().chain(answer).collect();
        let totals = SendTotals {
            usage: self.totals.usage,
            rounds: index + 1,
            attempts: 0,
        };
        let item = AppendRound {
            key: self.key,
            lease: self.lease,
            send_id: self.send.record.id,
            messages: messages.clone(),
            calls,
            usage: self.unpaid.clone(),
            round: settle::round_ref(&reply, index),
            totals,
        };
        let mut outage = Outage::default();
        loop {
            if outage.began
                && let Some(record) = self.read_back().await
                && record.rounds > index
            {
                // The commit had gone through; what it numbered is loaded by whoever claims next.
                return self.release_as_lost().await;
            }
            match self.kernel.writes.append(item.clone()).await {
                Ok(AppendOutcome::Appended {
                    first_seq,
                    at,
                    counters,
                    ..
                }) => {
                    self.totals = totals;
                    self.input = None;
                    self.unpaid.clear();
                    if !self.remember(messages, first_seq, at) {
                        return self.release_as_lost().await;
                    }
                    return Event::RoundStored {
                        cancelled: counters.signals & SIGNAL_CANCEL != 0,
                    };
                }
                // Refused by what an earlier attempt of ours did, it may still be held.
                Ok(AppendOutcome::LeaseLost) if outage.began => {
                    return self.release_as_lost().await;
                }
                Ok(AppendOutcome::LeaseLost) => return Event::LeaseLost,
                Err(error) => {
                    if !self.outlast(&error, &mut outage).await {
                        return self.release_as_lost().await;
                    }
                }
            }
        }
    }

    /// Stores the end, and takes what the transaction took next.
    async fn end(&mut self, end: End) -> Event {
        let mut item = self.completion(end);
        let mut outage = Outage::default();
        loop {
            if outage.began
                && let Some(record) = self.read_back().await
                && record.status.is_final()
            {
                return self.release_as_lost().await;
            }
            match self.kernel.writes.complete(item.clone()).await {
                Ok(CompleteOutcome::Completed(completed)) => {
                    metrics::send_ended(completed.status);
                    let kept = self.remember(item.messages, completed.first_seq, completed.at);
                    if let Some(ready) = completed.ring {
                        writes::ring(&self.kernel.parts, ready);
                    }
                    if !kept {
                        return self.release_as_lost().await;
                    }
                    self.left = Left::Done(completed.next.map(Box::new));
                    return Event::Stored;
                }
                Ok(CompleteOutcome::LeaseLost) if outage.began => {
                    return self.release_as_lost().await;
                }
                Ok(CompleteOutcome::LeaseLost) => return Event::LeaseLost,
                Err(error) => {
                    if self.outlast(&error, &mut outage).await {
                        continue;
                    }
                    if outage.began || item.messages.is_empty() {
                        return self.release_as_lost().await;
                    }
                    // The database refuses the answer itself: the send ends without it.
                    let failure = Failure::new(error.code(), "the answer could not be stored");
                    item.messages.clear();
                    item.result = SendResult::failed(
                        mainspring_shared::send::StopReason::ProviderError,
                        failure,
                    );
                }
            }
        }
    }

    fn completion(&mut self, end: End) -> CompleteSend {
        let index = self.totals.rounds;
        let reply = self.reply.take();
        let mut messages: Vec<_> = self.input.take().into_iter().collect();
        if let Some(reply) = reply.as_ref().filter(|reply| !reply.content.is_empty()) {
            messages.push(settle::answer(reply, index));
        }
        let result = match end {
            End::Completed(reason) => {
                let text = match &reply {
                    Some(reply) => plain_text(&reply.content),
                    None => settle::last_text(self.window.active(None), self.send.record.id),
                };
                SendResult::completed(reason, text)
            }
            End::Failed(reason, code) => {
                let failure = self.failure.take().filter(|failure| failure.code == code);
                let failure = failure.unwrap_or_else(|| Failure::new(code, summary(code)));
                SendResult::failed(reason, failure)
            }
            End::Cancelled => SendResult::cancelled(),
        };
        if reply.is_some() {
            self.totals.rounds = index + 1;
        }
        let stopping = self.kernel.lifecycle.is_stopping();
        CompleteSend {
            key: self.key,
            lease: self.lease,
            send_id: self.send.record.id,
            messages,
            usage: std::mem::take(&mut self.unpaid),
            round: reply.as_ref().map(|reply| settle::round_ref(reply, index)),
            totals: self.totals,
            result,
            then: if stopping { Then::Release } else { self.then },
        }
    }

    async fn park(&mut self, on: WaitingOn, after: Duration) -> Event {
        let item = ParkSend {
            key: self.key,
            lease: self.lease,
            send_id: self.send.record.id,
            on,
            until: ParkUntil::After(after),
            usage: self.unpaid.clone(),
            totals: self.totals,
        };
        let mut outage = Outage::default();
        loop {
            match self.kernel.writes.park(item.clone()).await {
                Ok(ParkOutcome::Parked { .. }) => {
                    self.left = Left::Done(None);
                    return Event::Stored;
                }
                Ok(ParkOutcome::Cancelled { ring, .. }) => {
                    if let Some(ready) = ring {
                        writes::ring(&self.kernel.parts, ready);
                    }
                    // The cancel wrote the send's message, which this window does not have.
                    self.left = Left::Lost;
                    return Event::Stored;
                }
                // Parking gives the lease back, so a repeat after an unheard commit ends here too.
                Ok(ParkOutcome::LeaseLost) => return Event::LeaseLost,
                Err(error) => {
                    if !self.outlast(&error, &mut outage).await {
                        return self.release_as_lost().await;
                    }
                }
            }
        }
    }

    /// Gives the session back as it is, and rings so that another worker goes on at once. Tries for
    /// as long as the life lasts: its renewals would keep a session that nobody here works on.
    async fn release(&mut self) -> Event {
        let item = ReleaseSession {
            key: self.key,
            lease: self.lease,
        };
        let mut outage = Outage::default();
        self.left = loop {
            match self.kernel.writes.release(item).await {
                Ok(true) => break Left::Done(None),
                Ok(false) => break Left::Lost,
                Err(error) if self.outlast(&error, &mut outage).await => {}
                Err(_) => break Left::Lost,
            }
        };
        if matches!(self.left, Left::Done(_)) {
            let ready = mainspring_shared::store::ReadySession {
                key: self.key,
                pool: self.kernel.parts.config.pool.clone(),
                priority: self.send.record.options.priority,
                ready_since: self.send.record.created_at,
            };
            writes::ring(&self.kernel.parts, ready);
        }
        Event::Stored
    }

    /// Leaves a session whose state here can no longer be trusted to match the database's.
    async fn release_as_lost(&mut self) -> Event {
        self.release().await;
        self.left = Left::Lost;
        Event::LeaseLost
    }

    async fn read_back(&mut self) -> Option<mainspring_shared::send::SendRecord> {
        let ids = vec![(self.key.tenant, self.send.record.id)];
        self.kernel.parts.store.get_sends(ids).await.ok()?.pop()?
    }

    /// Adds what was stored to the window; false when it does not continue it.
    fn remember(
        &mut self,
        messages: Vec<NewMessage>,
        first_seq: i64,
        at: mainspring_shared::time::Timestamp,
    ) -> bool {
        let stored = messages
            .into_iter()
            .zip(first_seq..)
            .map(|(message, seq)| message.at(seq, self.send.record.id, at, self.lease.epoch));
        self.window.extend(stored).is_ok()
    }

    /// Waits out an outage of the database, for as long as the lease allows. False when the error
    /// is of another kind or the lease is gone.
    async fn outlast(&mut self, error: &SharedError, outage: &mut Outage) -> bool {
        if !matches!(error.as_ref(), StoreError::Unavailable { .. }) {
            tracing::error!(send.id = %self.send.record.id, %error, "a write was refused");
            return false;
        }
        let pause = outage.next();
        let jitter = pause.mul_f64(self.kernel.parts.entropy.fraction());
        tokio::select! {
            () = self.lost.cancelled() => false,
            () = self.kernel.parts.clock.sleep(pause / 2 + jitter / 2) => true,
        }
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

async fn answer(call: &mut Option<Call>) -> Result<Reply, llm::Error> {
    match call {
        Some(call) => call.await,
        None => std::future::pending().await,
    }
}

fn summary(code: mainspring_shared::error::Code) -> &'static str {
    use mainspring_shared::error::Code;
    match code {
        Code::SendDeadline => "the deadline passed before the send ended",
        Code::SendWorkerCrashLimit => "workers died under this send too often",
        _ => "the send could not be answered",
    }
}

/// How long the database has been away.
#[derive(Debug, Default)]
struct Outage {
    began: bool,
    pause: Duration,
}

impl Outage {
    fn next(&mut self) -> Duration {
        self.began = true;
        let doubled = (self.pause * 2).max(Duration::from_millis(50));
        self.pause = doubled.min(Duration::from_secs(1));
        self.pause
    }
}
