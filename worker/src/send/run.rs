//! The interpreter of a send's machine.

mod persist;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use mainspring_shared::error::{Coded, Failure};
use mainspring_shared::event::{Delta, LiveEvent, LiveKind};
use mainspring_shared::id::SessionKey;
use mainspring_shared::lease::Lease;
use mainspring_shared::message::{NewMessage, plain_text};
use mainspring_shared::send::machine::{Answer, Command, Event, Rules, State, transition};
use mainspring_shared::session::SIGNAL_CANCEL;
use mainspring_shared::session::window::Window;
use mainspring_shared::store::{Counters, SendTotals, StartedSend, Then, UsageRow};
use tokio_util::sync::CancellationToken;

use super::{load, settle};
use crate::llm::{self, Chunk, Reply};
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
