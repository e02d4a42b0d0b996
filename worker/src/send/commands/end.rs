//! `End`: what the last transaction of a send stores, and what keeps a send from ending.

use mainspring_runtime::telemetry::spans;
use mainspring_shared::agent::ExtractMode;
use mainspring_shared::budget::Short;
use mainspring_shared::error::{Code, Coded, Failure};
use mainspring_shared::message::{ContentPart, Role, plain_text};
use mainspring_shared::send::machine::{End, Event};
use mainspring_shared::send::{SendResult, SendStatus, StopReason};
use mainspring_shared::session::{SIGNAL_INBOX, SIGNAL_INTERRUPT};
use mainspring_shared::store::{
    AfterSend, CallChange, CallStep, CompleteOutcome, CompleteSend, Completed,
};
use mainspring_shared::tool::CallResult;

use crate::db_retry::Unwritten;
use crate::hook::Moment;
use crate::send::lease_state::Inbox;
use crate::send::pending_messages::PendingMessages;
use crate::send::run::{Run, RunOutcome};
use crate::send::settle;
use crate::writes::Began;
use crate::{metrics, writes};

impl Run<'_> {
    /// Stores the end, and takes over the send that the same transaction started, if any.
    pub(in crate::send) async fn end(&mut self, end: End) -> Event {
        // A cancelled send needs no fold.
        if end == End::Cancelled {
            self.drop_beside();
        }
        // A stopping worker left the answer to the next worker, and now there is none.
        if let Some(open) = self.forget_background() {
            self.abandon(open);
        }
        if let Some(event) = self.end_calls().await {
            return event;
        }
        // The signal is lowered, so nobody would check again for what arrived. An answer that was
        // made without it is followed by another round; any other end tells it.
        if self.lease_state.inbox == Inbox::Lowered {
            let answers = (self.asking.reply.is_some() || self.round.passed)
                && matches!(end, End::Completed(_));
            if answers {
                match self.lacks_words().await {
                    Some(true) => return Event::Undelivered,
                    Some(false) => self.lease_state.inbox = Inbox::Known,
                    None => return self.release_as_lost().await,
                }
            } else {
                self.gather(self.bill.totals.rounds).await;
            }
        }
        let mut item = self.completion(end);
        let mut projected_to;
        (item.projections, projected_to) = self.projections(&item.messages);
        self.forget_children().await;
        let mut refused = 0;
        let began = Began::of(&self.send.record);
        loop {
            let writes = &self.kernel.writes;
            let write = || writes.complete(item.clone(), began.clone());
            let ended = self
                .db_retry()
                .write(write, |outcome| matches!(outcome, CompleteOutcome::Locked));
            match ended.await {
                Ok(CompleteOutcome::Completed(completed)) => {
                    self.prompt.window.stored_to(projected_to);
                    return self.ended(Box::new(item), completed).await;
                }
                Ok(CompleteOutcome::Undelivered) => {
                    self.lease_state.wrote();
                    // The signals are lowered now. If this round's question already told what
                    // raised them, the answer stands and the model is not asked again.
                    if self.lacks_nothing(&item).await {
                        item.lease = self.lease_state.lease();
                        continue;
                    }
                    return self.goes_on(item);
                }
                // The database refuses the answer itself, so the send ends without it.
                Err(Unwritten::Refused(error)) if refused < 2 && !item.messages.is_empty() => {
                    refused += 1;
                    let failure = Failure::new(error.code(), "the answer could not be stored");
                    item.result = SendResult::failed(StopReason::Internal, failure);
                    strip_refused_answer(&mut item, refused > 1);
                    (item.projections, projected_to) = self.projections(&item.messages);
                }
                // An earlier attempt may have ended the send and kept the lease for the next one.
                Ok(CompleteOutcome::LeaseLost | CompleteOutcome::Locked) | Err(_) => {
                    return self.release_as_lost().await;
                }
            }
        }
    }

    /// Does what follows from a durable end.
    async fn ended(&mut self, item: Box<CompleteSend>, completed: Box<Completed>) -> Event {
        self.lease_state.wrote();
        self.bill.unpaid.clear();
        metrics::send_ended(completed.status);
        let record = &self.send.record;
        let (accepted, begun) = (record.created_at, record.started_at);
        metrics::send_lasted(completed.status, accepted, begun, completed.at);
        let reason = if completed.status == SendStatus::Cancelled {
            StopReason::Cancelled
        } else {
            item.result.stop_reason
        };
        let code = item.result.error.as_ref().map(|failure| failure.code);
        spans::ended(completed.status.as_str(), reason.as_str(), code);
        if let (SendStatus::Failed, Some(failure)) = (completed.status, &item.result.error) {
            tracing::warn!(
                send.id = %item.send_id,
                session.id = %self.send.record.key.session,
                code = failure.code.as_str(),
                stop_reason = ?item.result.stop_reason,
                rounds = item.totals.rounds,
                "a send failed"
            );
        }
        let memory = self.send.agent.memory.as_ref();
        let extracts = memory.is_some_and(|memory| memory.extract == ExtractMode::AfterSend);
        if extracts && completed.status == SendStatus::Completed {
            self.kernel
                .kept
                .ended
                .enqueue(self.send.record.key.tenant, item.send_id);
        }
        self.report().await;
        if completed.status != SendStatus::Completed {
            self.end_children().await;
        }
        let first = completed.first_seq;
        self.show_stored(&item.messages, first, false).await;
        let kept = self.remember(item.messages, first, completed.at);
        if let Some(ready) = completed.enqueue {
            writes::enqueue(&self.kernel.parts, ready);
        }
        let ended = Moment::SendEnded(completed.status);
        self.show(self.place(), ended, false).await;
        if !kept {
            return self.release_as_lost().await;
        }
        let rests = completed.next.is_none() && completed.status == SendStatus::Completed;
        self.fold_at_rest(rests).await;
        self.ending.outcome = RunOutcome::Done(completed.next.map(Box::new));
        Event::Stored
    }

    /// Whether the end that is about to be stored delivers everything in the inbox. False if the
    /// database does not answer; the next round then checks.
    async fn lacks_nothing(&mut self, item: &CompleteSend) -> bool {
        let pending = self.kernel.parts.store.read_inbox(self.pending_items());
        let Ok(pending) = pending.await else {
            return false;
        };
        let told = |id: &str| item.deliveries.iter().any(|told| told.item_id == id);
        !self.is_full(&pending) && pending.iter().all(|pending| told(&pending.id))
    }

    /// The send was to end but has received something: its answer becomes a round.
    fn goes_on(&mut self, item: CompleteSend) -> Event {
        let mut messages = item.messages;
        let answered = self.asking.reply.is_some();
        if answered {
            // The answer is made again from the reply, which is kept for this.
            messages.pop();
        }
        self.prompt.pending_messages = PendingMessages {
            messages,
            changes: item.changes,
            deliveries: item.deliveries,
            ..PendingMessages::default()
        };
        self.bill.totals.rounds -= i32::from(answered);
        self.lease_state.inbox = Inbox::Lowered;
        Event::Undelivered
    }

    fn completion(&mut self, end: End) -> CompleteSend {
        let index = self.bill.totals.rounds;
        let reply = self.asking.reply.clone();
        let PendingMessages {
            mut messages,
            changes,
            deliveries,
            ..
        } = std::mem::take(&mut self.prompt.pending_messages);
        let completes = matches!(end, End::Completed(_));
        let answer = reply.as_ref();
        let answer = answer.filter(|reply| completes || !reply.content.is_empty());
        if let Some(reply) = answer {
            messages.push(settle::answer(reply, index));
        } else if reply.is_none() {
            let stored = self.prompt.window.last().map(|message| message.role);
            let last = messages.last().map(|message| message.role).or(stored);
            // Calls never stay without results, so an assistant message here is a text answer.
            if last != Some(Role::Assistant) {
                messages.extend(settle::closing(end, index));
            }
        }
        let result = match end {
            End::Completed(reason) => {
                let text = match &reply {
                    Some(reply) => plain_text(&reply.content),
                    None => settle::last_text(self.prompt.window.held(), self.send.record.id),
                };
                SendResult {
                    output: reply.as_ref().and(self.value()),
                    ..SendResult::completed(reason, text)
                }
            }
            End::Failed(StopReason::Deadline, _) if self.time_is_up() => {
                let failure = Failure::new(Code::BudgetExceeded, Short::Wall.to_string());
                SendResult::failed(StopReason::Budget, failure)
            }
            End::Failed(reason, code) => {
                let failure = self
                    .ending
                    .failure
                    .take()
                    .filter(|failure| failure.code == code);
                let failure = failure.unwrap_or_else(|| Failure::new(code, summary(code)));
                SendResult::failed(reason, failure)
            }
            End::Cancelled => SendResult::cancelled(),
        };
        if reply.is_some() {
            self.bill.totals.rounds = index + 1;
        }
        // Only an answer, or a turn that was passed on purpose, can be followed by another round.
        let answered =
            (answer.is_some() || self.round.passed) && result.status == SendStatus::Completed;
        let stopping = self.kernel.lifecycle.is_stopping();
        let shown = self.bill.totals.shown.clone();
        let mut totals = self.sums();
        if let Some(shown) = &mut totals.shown {
            // Only needed while the send goes on.
            shown.measured = None;
            shown.begun = None;
            shown.injected = None;
            if let Some(memory) = &mut shown.memory {
                // Memory that is erased later must not survive here; the ids of the entries are
                // enough.
                memory.text = None;
            }
        }
        if result.status == SendStatus::Completed {
            self.set_aside_for_extraction(&mut totals, &messages);
        }
        CompleteSend {
            key: self.send.record.key,
            lease: self.lease_state.lease(),
            send_id: self.send.record.id,
            messages,
            changes,
            deliveries,
            usage: self.bill.unpaid.clone(),
            round: reply.as_ref().map(|reply| {
                let asked = self.asking.question;
                settle::round_ref(reply, index, asked, shown.as_ref())
            }),
            totals,
            result,
            projections: Vec::new(),
            unless: if answered {
                SIGNAL_INBOX | SIGNAL_INTERRUPT
            } else {
                0
            },
            then: if stopping
                || self
                    .kernel
                    .pauses
                    .now()
                    .holds_pool(&self.kernel.parts.config.pool)
            {
                AfterSend::Release
            } else {
                self.ending.then
            },
        }
    }
}

/// Reduces an end to what the transcript cannot do without: a result for each call that lacks one.
/// Results of calls that were made here may be what is refused; with `results_too` they are
/// replaced with an error of ours. Results that someone else posted are stored already. Inbox items
/// stay for the next send.
fn strip_refused_answer(item: &mut CompleteSend, results_too: bool) {
    const LOST: &str = "the result could not be stored";
    item.messages.retain(|message| message.role == Role::Tool);
    item.deliveries.clear();
    // Only an answer can be followed by another round.
    item.unless = 0;
    if !results_too {
        return;
    }
    let mut lost = Vec::new();
    for CallChange { call_id, change } in &mut item.changes {
        if let CallStep::Settled(result) = change {
            *result = CallResult::error(Code::ToolFailed, LOST);
            lost.push(&*call_id);
        }
    }
    for message in &mut item.messages {
        let is_lost = |id: &String| lost.contains(&id);
        if message.tool_call_id.as_ref().is_some_and(is_lost) {
            message.content = vec![ContentPart::text(LOST)];
            message.failed = true;
        }
    }
}

fn summary(code: Code) -> &'static str {
    match code {
        Code::SendDeadline => "the deadline passed before the send ended",
        Code::LimitExceeded => "too many messages interrupted one round",
        Code::SendWorkerCrashLimit => "workers crashed too often while running this send",
        _ => "the send could not be answered",
    }
}
