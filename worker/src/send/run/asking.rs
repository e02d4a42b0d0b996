//! Asking the model, with everything that it has to be told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mainspring_shared::budget::Short;
use mainspring_shared::error::{Code, Coded, Failure};
use mainspring_shared::event::LiveKind;
use mainspring_shared::inbox::InboxItem;
use mainspring_shared::message::{NewMessage, plain_text};
use mainspring_shared::send::machine::{Answer, Event};
use mainspring_shared::store::ReadInbox;
use serde_json::Value;

use super::persist::Outage;
use super::{Asked, Inbox, NoReply, Run, Streamed, load};
use crate::hook::Refusal;
use crate::llm::{self, Chunk, Reply};
use crate::metrics;
use crate::send::settle;

/// Items of the inbox that one round tells the model.
const ITEMS_MAX: u32 = 64;

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
        let heard = before.is_some_and(|before| before.heard.load(Ordering::Relaxed));
        // What was streamed under the last number is void from now on, also for whoever takes over.
        if heard && let Some(event) = self.note_spending().await {
            return Some(event);
        }
        let label = match &self.streamed {
            Some(before) if before.round == round && !heard => before.attempt,
            Some(_) | None => attempt,
        };
        self.totals.attempts = attempt;
        let unsaid = &self.unsaid.messages;
        let mut request = load::request(
            &self.send,
            resolved.model.clone(),
            self.window,
            unsaid,
            &self.offers,
        );
        load::remind(&mut request, self.notes.as_deref());
        let client = resolved.client.clone();
        if let Ok(Some(output)) = &mut self.output {
            let native = client.native_schema();
            output.told = !native;
            load::shape(&mut request, &output.spec, native);
        }
        let capped = match self.allow(&mut request, &resolved) {
            Ok(capped) => capped,
            Err(short) => return Some(self.short(short)),
        };
        let streamed = Arc::new(AtomicU64::new(0));
        self.announce(round, label, &request.model, heard);
        let heard = Arc::new(AtomicBool::new(false));
        self.streamed = Some(Streamed {
            round,
            attempt: label,
            heard: heard.clone(),
        });
        let mut request = Arc::new(request);
        let asked = Asked {
            request: request.clone(),
            price: resolved.price,
            streamed: streamed.clone(),
            capped,
        };
        self.owe(&asked);
        self.asked = Some(asked);
        let said = self.reach.said.clone();
        said.begin(round, label);
        let (hooks, at) = (self.kernel.parts.hooks.clone(), self.place());
        metrics::model_call_started();
        self.asking = Some(Box::pin(async move {
            let mut on_chunk = |chunk: Chunk<'_>| {
                streamed.fetch_add(said.piece(&chunk), Ordering::Relaxed);
                heard.store(true, Ordering::Relaxed);
            };
            let instead = if hooks.is_empty() {
                None
            } else {
                // What a hook changes of the request, it changes on its own account: the budget's
                // bound holds all the same.
                let bound = request.max_tokens;
                let request = Arc::make_mut(&mut request);
                let instead = hooks.before_model(at, request).await;
                request.max_tokens = request.max_tokens.min(bound);
                instead.map_err(NoReply::Policy)?
            };
            let reply = if let Some(reply) = instead {
                reply
            } else {
                let asked = client.complete(&request, &mut on_chunk);
                asked.await.map_err(NoReply::Model)?
            };
            hooks.after_model(at, reply).await.map_err(NoReply::Policy)
        }));
        None
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

    pub(super) fn answered(&mut self, reply: Result<Reply, NoReply>) -> Event {
        let mut reply = match reply {
            Ok(reply) => reply,
            Err(NoReply::Model(error)) => return self.failed(&error),
            Err(NoReply::Policy(refusal)) => return self.not_permitted(refusal),
        };
        let capped = self.asked.as_ref().is_some_and(|asked| asked.capped);
        let model = reply.model.clone();
        self.pay(&model, &mut reply.usage);
        match settle::classify(&reply) {
            Ok(Answer::Cut) if capped => {
                self.reply = Some(reply);
                self.short(Short::Cut)
            }
            Ok(answer) => {
                if answer != Answer::Calls {
                    // Those of an answer that was cut may be cut themselves: they are not made.
                    reply.tool_calls.clear();
                }
                let more = self.totals.rounds.unsigned_abs() + 1 < self.rules.rounds_max;
                let checked = match &mut self.output {
                    Ok(Some(output)) => output.check(&reply, answer, more),
                    Ok(None) | Err(_) => Ok(answer),
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

    /// What the model is told after the answer that is stored now, if that did not fit.
    pub(super) fn correction(&mut self, round: i32) -> Option<NewMessage> {
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
        }
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
        }
    }
}
