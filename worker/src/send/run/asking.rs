//! Asking the model, with everything that it has to be told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mainspring_shared::agent::OnTruncation;
use mainspring_shared::budget::Short;
use mainspring_shared::error::{Code, Coded, Failure};
use mainspring_shared::event::LiveKind;
use mainspring_shared::inbox::InboxItem;
use mainspring_shared::message::{ContentPart, NewMessage, plain_text};
use mainspring_shared::send::machine::{Answer, Event};
use mainspring_shared::store::ReadInbox;
use serde_json::Value;

use super::attempt::Attempt;
use super::persist::Outage;
use super::{Answered, Asked, Inbox, NoReply, Partial, Run, Streamed, load};
use crate::hook::Refusal;
use crate::llm::{self, Chunk, Model, Reply, Request, estimate_tokens};
use crate::metrics;
use crate::send::output::Output;
use crate::send::settle;
use crate::send::vet::Vetting;

/// Items of the inbox that one round tells the model.
const ITEMS_MAX: u32 = 64;

/// Times that hooks may send the model back in one life of a send.
const SENT_BACK_MAX: u32 = 4;

/// What a model call added to an answer.
#[derive(Debug, Clone, Copy)]
struct Part {
    /// Whether it said something.
    said: bool,
    /// Model calls before it that gave a part.
    parts: u32,
}

impl Run<'_> {
    /// Begins a model call.
    pub(super) async fn ask(&mut self, round: i32, attempt: i32) -> Option<Event> {
        if self.reach.news.swap(false, Ordering::Relaxed) {
            self.inbox = Inbox::Raised;
        }
        if self.inbox == Inbox::Raised
            && let Some(event) = self.store_changes(Vec::new()).await
        {
            return Some(event);
        }
        if self.inbox != Inbox::Known && !self.gather(round).await {
            return Some(self.release_as_lost().await);
        }
        // Whatever was raised by now is told with this question.
        self.heard = 0;
        let resolved = match self.kernel.parts.providers.resolve(load::model(&self.send)) {
            Ok(resolved) => resolved,
            Err(error) => return Some(self.failed(&error)),
        };
        if let Err(fault) = &self.output {
            let message = format!("the output schema {}: {fault}", fault.pointer);
            return Some(self.cannot(Failure::new(Code::SpecInvalid, message)));
        }
        let before = self
            .streamed
            .as_ref()
            .filter(|before| before.round == round);
        // What goes on is told on.
        let goes_on = self.partial.is_some() && self.reset.is_none();
        let heard = before.is_some_and(|before| before.heard.load(Ordering::Relaxed)) && !goes_on;
        // What was streamed under the last number is void from now on, also for whoever takes over.
        if heard && let Some(event) = self.note_spending().await {
            return Some(event);
        }
        let label = match &self.streamed {
            Some(before) if before.round == round && !heard => before.attempt,
            Some(_) | None => attempt,
        };
        self.totals.attempts = attempt;
        let client = resolved.client.clone();
        let mut request = self.request(resolved.model.clone(), client.native_schema());
        let capped = match self.allow(&mut request, &resolved) {
            Ok(capped) => capped,
            Err(short) => return Some(self.short(short)),
        };
        let streamed = Arc::new(AtomicU64::new(0));
        if !goes_on {
            self.announce(round, label, &request.model, heard);
        }
        let heard = Arc::new(AtomicBool::new(goes_on));
        self.streamed = Some(Streamed {
            round,
            attempt: label,
            heard: heard.clone(),
        });
        let request = Arc::new(request);
        let asked = Asked {
            request: request.clone(),
            price: resolved.price,
            streamed: streamed.clone(),
            capped,
        };
        self.owe(&asked);
        self.asked = Some(asked);
        let said = self.reach.said.clone();
        if !goes_on {
            said.begin(round, label);
        }
        if let Some(partial) = self.partial.as_ref().filter(|_| !goes_on) {
            // Readers were told to forget the beginning of the answer.
            said.piece(&Chunk::Text(&plain_text(&partial.reply.content)));
            heard.store(true, Ordering::Relaxed);
        }
        let attempt = self.attempt(client, request);
        metrics::model_call_started();
        self.asking = Some(Box::pin(async move {
            let mut on_chunk = |chunk: Chunk<'_>| {
                let (Chunk::Text(text) | Chunk::Reasoning(text)) = chunk;
                streamed.fetch_add(estimate_tokens(text), Ordering::Relaxed);
                said.piece(&chunk);
                heard.store(true, Ordering::Relaxed);
            };
            attempt.answered(&mut on_chunk).await
        }));
        None
    }

    /// What the model is asked.
    fn request(&mut self, model: String, native: bool) -> Request {
        let unsaid = &self.unsaid.messages;
        let window = (&*self.window, load::window_from(&self.totals));
        let mut request = load::request(&self.send, model, window, unsaid, &self.offers);
        load::remind(&mut request, self.totals.shown.as_ref());
        if let Some(partial) = &self.partial {
            load::go_on(&mut request, &partial.reply);
        }
        if let Ok(Some(output)) = &mut self.output {
            output.told = !native;
            let is_sends = self.send.record.options.output_schema.is_some();
            load::shape(&mut request, &output.spec, native, is_sends);
        }
        request
    }

    /// The model call, with everything that is found out about its answer.
    fn attempt(&mut self, client: Arc<dyn Model>, request: Arc<Request>) -> Attempt {
        let over = std::mem::take(&mut self.over);
        let parts = &self.kernel.parts;
        let shape = self.output.as_ref().ok().and_then(Option::as_ref);
        // Where no round is left, nobody is asked in vain.
        let more = self.totals.rounds.unsigned_abs() + 1 < self.rules.rounds_max;
        Attempt {
            vetting: Vetting {
                clock: parts.clock.clone(),
                hooks: parts.hooks.clone(),
                offers: self.offers.clone(),
                at: self.place(),
            },
            shape: shape.map(Output::schema),
            may_go_back: more && self.sent_back < SENT_BACK_MAX && self.partial.is_none(),
            over,
            client,
            request,
        }
    }

    /// Tells readers that a model call begins.
    fn announce(&mut self, round: i32, attempt: i32, model: &str, void: bool) {
        // Whatever cut a stream off without an error of its own was a message.
        let cut = void.then_some("interrupt");
        if let Some(reason) = self.reset.take().or(cut) {
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

    pub(super) fn pending_items(&self) -> ReadInbox {
        ReadInbox {
            key: self.key,
            pending: true,
            after: 0,
            limit: ITEMS_MAX,
        }
    }

    /// Whether the inbox has something that the model is not about to be told.
    pub(super) async fn has_news(&mut self) -> bool {
        let read = self.kernel.parts.store.read_inbox(self.pending_items());
        // Without an answer now, the next renewal brings the signal again.
        let items = read.await.unwrap_or_default();
        let news = self.unsaid.lacks(&items);
        if news {
            self.inbox = Inbox::Raised;
        }
        news
    }

    /// Whether one reading of the inbox left something behind.
    pub(super) fn is_full(&self, items: &[InboxItem]) -> bool {
        items.len() >= self.pending_items().limit as usize
    }

    /// Whether the inbox has something that the model was not told; none when the database does not
    /// say.
    pub(super) async fn lacks_words(&mut self) -> Option<bool> {
        let mut outage = Outage::default();
        loop {
            match self
                .kernel
                .parts
                .store
                .read_inbox(self.pending_items())
                .await
            {
                Ok(items) => return Some(self.is_full(&items) || self.unsaid.lacks(&items)),
                Err(error) => {
                    if !self.outlast(&error.into(), &mut outage).await {
                        return None;
                    }
                }
            }
        }
    }

    /// Reads what came into the inbox, for the round that begins. False when the database does not
    /// say.
    pub(super) async fn gather(&mut self, round: i32) -> bool {
        let query = self.pending_items();
        let mut outage = Outage::default();
        loop {
            match self.kernel.parts.store.read_inbox(query).await {
                Ok(items) => {
                    // What did not fit comes with the next round.
                    self.inbox = if items.len() < ITEMS_MAX as usize {
                        Inbox::Known
                    } else {
                        Inbox::Lowered
                    };
                    let new = self.unsaid.new_of(items);
                    if let Err(error) = self.roll_up_items(&new).await {
                        self.inbox = Inbox::Lowered;
                        if self.outlast(&error.into(), &mut outage).await {
                            continue;
                        }
                        return false;
                    }
                    self.unsaid.items(new, self.send.record.id, round);
                    return true;
                }
                Err(error) => {
                    if !self.outlast(&error.into(), &mut outage).await {
                        return false;
                    }
                }
            }
        }
    }

    pub(super) fn answered(&mut self, reply: Result<Answered, NoReply>) -> Event {
        let Answered {
            mut reply,
            calls,
            found,
            back,
        } = match reply {
            Ok(answered) => answered,
            Err(NoReply::Model(error)) => return self.failed(&error),
            Err(NoReply::Policy(refusal)) => return self.not_permitted(refusal),
        };
        let capped = self.asked.as_ref().is_some_and(|asked| asked.capped);
        let model = reply.model.clone();
        self.vetted = calls;
        self.pay(&model, &mut reply.usage);
        let shaped = matches!(self.output, Ok(Some(_)));
        let part = self.join(&mut reply);
        match settle::classify(&reply) {
            Ok(Answer::Cut) if capped => {
                reply.tool_calls.clear();
                self.reply = Some(reply);
                self.short(Short::Cut)
            }
            Ok(Answer::Cut) if !shaped => self.cut(reply, part),
            Ok(answer) => {
                if answer != Answer::Calls {
                    // Those of an answer that was cut may be cut themselves: they are not made.
                    reply.tool_calls.clear();
                }
                let more = self.totals.rounds.unsigned_abs() + 1 < self.rules.rounds_max;
                if let Some(text) = back {
                    self.sent_back += 1;
                    self.back = Some(text);
                    self.reply = Some(reply);
                    return Event::Replied(Answer::Again);
                }
                let checked = match (&mut self.output, found) {
                    (Ok(Some(output)), Some(found)) => output.check(found, answer, more),
                    (Ok(_) | Err(_), _) => Ok(answer),
                };
                let answer = match checked {
                    Ok(answer) => answer,
                    Err(failure) => {
                        self.reply = Some(reply);
                        return self.cannot(failure);
                    }
                };
                if answer == Answer::Refused {
                    let text = plain_text(&reply.content);
                    let message = format!("the model declined to answer: {text}");
                    self.failure = Some(Failure::new(
                        Code::LlmRefused,
                        message.trim_end_matches([':', ' ']),
                    ));
                }
                self.reply = Some(reply);
                Event::Replied(answer)
            }
            Err(error) => self.failed(&error),
        }
    }

    /// Puts what was said before it in front of a reply.
    fn join(&mut self, reply: &mut Reply) -> Part {
        let said = !plain_text(&reply.content).trim().is_empty();
        let Some(before) = self.partial.take() else {
            return Part { said, parts: 0 };
        };
        let rest = std::mem::replace(&mut reply.content, before.reply.content);
        for part in rest {
            match (part, reply.content.last_mut()) {
                (ContentPart::Text { text: more }, Some(ContentPart::Text { text })) => {
                    text.push_str(&more);
                }
                // What it thought about how to go on belongs to no answer of its own.
                (ContentPart::Reasoning { .. }, _) => {}
                (other, _) => reply.content.push(other),
            }
        }
        reply.usage.add(&before.reply.usage);
        Part {
            said,
            parts: before.parts,
        }
    }

    /// What becomes of an answer that was cut.
    fn cut(&mut self, mut reply: Reply, part: Part) -> Event {
        let asks = !reply.tool_calls.is_empty();
        // They may be cut themselves.
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
                self.reply = Some(reply);
                return Event::Replied(Answer::Cut);
            }
            OnTruncation::Fail => "",
            OnTruncation::Continue if asks => ", and the calls that it asks for are not made",
            OnTruncation::Continue if !part.said => ", and has no text that could go on",
            OnTruncation::Continue
                if self.totals.rounds.unsigned_abs() + parts >= self.rules.rounds_max =>
            {
                ", and no rounds are left to go on"
            }
            OnTruncation::Continue => {
                self.partial = Some(Partial { reply, parts });
                return Event::Replied(Answer::Part);
            }
        };
        self.reply = Some(reply);
        let message = format!("the answer was cut at its token limit{why}");
        self.cannot(Failure::new(Code::LlmTruncated, message))
    }

    /// What the model is told after the answer that is stored now, if that did not fit.
    pub(super) fn correction(&mut self, round: i32) -> Option<NewMessage> {
        if let Some(text) = self.back.take() {
            return Some(NewMessage::user(vec![ContentPart::text(text)], round));
        }
        self.output.as_mut().ok()?.as_mut()?.correction(round)
    }

    /// The value of the answer.
    pub(super) fn value(&mut self) -> Option<Value> {
        self.output.as_mut().ok()?.as_mut()?.take_value()
    }

    /// The send cannot be answered, however often the model is asked.
    pub(super) fn cannot(&mut self, failure: Failure) -> Event {
        let code = failure.code;
        self.failure = Some(failure);
        Event::Failed {
            code,
            permanent: true,
            retry_after: None,
            fraction: 0.0,
            not_failed: 0,
        }
    }

    /// A policy did not let the model be asked, or its answer be used.
    fn not_permitted(&mut self, refusal: Refusal) -> Event {
        self.pay_refused();
        let Refusal { code, message } = refusal;
        self.reset = Some(code.as_str());
        self.failure = Some(Failure::new(code, message));
        Event::Failed {
            code,
            permanent: code == Code::PolicyDenied,
            retry_after: None,
            fraction: self.kernel.parts.entropy.fraction(),
            not_failed: self.not_failed(),
        }
    }

    /// Model calls of the open round that gave a part of its answer or were interrupted.
    pub(super) fn not_failed(&self) -> u32 {
        self.interrupted + self.partial.as_ref().map_or(0, |partial| partial.parts)
    }

    /// Stops the model call that is under way; what it said is void.
    pub(super) fn abort_asking(&mut self) {
        self.interrupted = self.not_failed() + 1;
        self.asking = None;
        self.partial = None;
        self.pay_estimated();
    }

    fn failed(&mut self, error: &llm::Error) -> Event {
        let code = error.code();
        metrics::model_call_failed(code);
        tracing::warn!(
            send.id = %self.send.record.id,
            session.id = %self.key.session,
            round.index = self.totals.rounds,
            attempt = self.totals.attempts,
            code = code.as_str(),
            is_permanent = error.is_permanent(),
            "a model call failed"
        );
        let heard = self.asked.as_ref();
        let heard = heard.is_some_and(|asked| asked.streamed.load(Ordering::Relaxed) > 0);
        if heard || code == Code::LlmTimeout {
            self.pay_estimated();
        }
        self.asked = None;
        self.owed().asked = None;
        self.reset = Some(code.as_str());
        self.failure = Some(Failure::new(code, error.to_string()));
        Event::Failed {
            code,
            permanent: error.is_permanent(),
            retry_after: error.retry_after(),
            fraction: self.kernel.parts.entropy.fraction(),
            not_failed: self.not_failed(),
        }
    }
}
