//! Asking the model, with everything that it has to be told.

use std::sync::atomic::Ordering;

use mainspring_shared::error::{Code, Coded, Failure};
use mainspring_shared::event::{Delta, LiveEvent, LiveKind};
use mainspring_shared::message::plain_text;
use mainspring_shared::send::machine::{Answer, Event};
use mainspring_shared::store::{ReadInbox, UsageRow};

use super::persist::Outage;
use super::{Inbox, Run, load};
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
        let unsaid = &self.unsaid.messages;
        let request = load::request(
            &self.send,
            resolved.model,
            self.window,
            unsaid,
            &self.offers,
        );
        let client = resolved.client;
        let (live, key, send_id) = (self.kernel.live.clone(), self.key, self.send.record.id);
        metrics::model_call_started();
        self.asking = Some(Box::pin(async move {
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

    fn pending_items(&self) -> ReadInbox {
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

    /// Reads what came into the inbox, for the round that begins. False when the database does not
    /// say.
    async fn gather(&mut self, round: i32) -> bool {
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
                    self.unsaid.items(items, self.send.record.id, round);
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

    pub(super) fn answered(&mut self, reply: Result<Reply, llm::Error>) -> Event {
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
}
