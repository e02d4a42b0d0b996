//! One model call, with the hooks around it, and what is found out about its answer before anything of
//! it is stored. All of it is one future that the run drops when something more urgent comes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use mainspring_shared::message::plain_text;
use mainspring_shared::model::{Digest, ModelFacts};
use mainspring_shared::send::machine::Answer;
use mainspring_shared::session::shown::SaidInRound;
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::CallResult;
use mainspring_shared::tool::schema::Schema;
use serde_json::Value;
use tokio::sync::oneshot;
use tracing::Span;

use super::checkpoint::Checkpoint;
use super::output::Fault;
use super::vet::{Vetted, Vetting};
use super::{output, settle};
use crate::content::Content;
use crate::hook::{At, Heard, Hooks, Judged, Moment, Refusal, ToolCall, Words};
use crate::llm::{self, Chunk, Finish, Reply, Request, Traced};

pub(super) type Call = BoxFuture<'static, Result<Answered, Unanswered>>;

/// An answer, and what was found out about it before anything of it is stored.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) reply: Reply,
    /// What is known of its calls.
    pub(super) calls: Vec<Vetted>,
    /// The value in it, where one was asked for.
    pub(super) found: Option<Result<Value, Fault>>,
    /// Whether a hook ends the send with it.
    pub(super) ends: bool,
}

/// Why a model call gave no answer.
#[derive(Debug)]
pub(super) enum NoReply {
    /// The model failed.
    Model(llm::Error),
    /// A policy did not permit it.
    Policy(Refusal),
    /// A hook ends the send.
    Ended,
}

/// What there is instead of an answer.
#[derive(Debug)]
pub(super) enum Unanswered {
    /// There will be none.
    No(NoReply),
    /// Hooks say something first, with the ids of their words: then the model is asked again.
    Message(Words),
}

impl From<NoReply> for Unanswered {
    fn from(why: NoReply) -> Self {
        Self::No(why)
    }
}

/// What readers were told of a round.
#[derive(Debug)]
pub(super) struct Streamed {
    pub(super) round: i32,
    /// The attempt that they were told of. One that streamed nothing leaves its number to the next:
    /// whoever takes over after a death knows of those alone whose cost was stored.
    pub(super) attempt: i32,
    /// Whether anything was streamed under it.
    pub(super) heard: Arc<AtomicBool>,
}

/// A model call that was begun.
#[derive(Debug)]
pub(super) struct BegunCall {
    /// What was asked, before hooks changed it.
    pub(super) request: Arc<Request>,
    /// The provider's configured name.
    pub(super) provider: Arc<str>,
    /// What is known of the model.
    pub(super) facts: ModelFacts,
    /// Tokens that came back so far, estimated.
    pub(super) streamed: Arc<AtomicU64>,
    /// Whether its answer may have fewer tokens than the agent allows.
    pub(super) capped: bool,
    /// The same, because of what the tenant may spend.
    pub(super) cut: Arc<AtomicBool>,
}

/// The beginning of an answer.
#[derive(Debug)]
pub(super) struct Partial {
    pub(super) reply: Reply,
    /// Model calls that gave a part of it.
    pub(super) parts: u32,
}

/// What identifies a question to the model.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Asks {
    pub(super) digest: Option<Digest>,
    /// The newest fold that it shows, 0 for none.
    pub(super) folded: Option<i64>,
    /// The last message of the send whose results counted as old.
    pub(super) aged_to: Option<i64>,
}

/// The model call of the open round, and what came of the last one.
#[derive(Default)]
pub(super) struct ModelCallState {
    /// The call that is under way.
    pub(super) call: Option<Call>,
    /// What it asks, until it is paid for.
    pub(super) asked: Option<BegunCall>,
    /// The answer that is to be stored.
    pub(super) reply: Option<Reply>,
    /// What the model has said of its answer, where that was cut and goes on.
    pub(super) partial: Option<Partial>,
    /// Identifies what the model was asked for the answer under way.
    pub(super) question: Asks,
    /// Tells what the provider calls the answer, where it works on it in the background.
    pub(super) background: Option<oneshot::Receiver<String>>,
    /// The attempts of the open round.
    pub(super) tries: Tries,
    /// What was heard of the answer while it was under way.
    pub(super) streaming: Streaming,
    /// What hooks had to do with the open round.
    pub(super) hooked: Hooked,
    /// The round that is under way, and its span.
    pub(super) traced: Option<(i32, Span)>,
}

/// What was heard of an answer while it was under way.
#[derive(Debug, Default)]
pub(super) struct Streaming {
    /// What readers were told of the present round.
    pub(super) told: Option<Streamed>,
    /// What is kept of it for whoever goes on after a death.
    pub(super) checkpoint: Checkpoint,
    /// What was said of the model call that was dropped last.
    pub(super) cut_short: Option<String>,
}

/// What hooks had to do with a round.
#[derive(Debug)]
pub(super) struct Hooked {
    /// What they have said in it.
    pub(super) injected: Injected,
    /// The round that they were told of which begins, in this life.
    pub(super) started: Arc<AtomicI32>,
    /// Whether the model call that begins is the one that they were asked about before.
    pub(super) again: bool,
}

impl Hooked {
    /// With what an earlier worker stored of their words.
    pub(super) fn of(stored: Option<&SaidInRound>) -> Self {
        Self {
            injected: Injected::of(stored),
            started: Arc::new(AtomicI32::new(-1)),
            again: false,
        }
    }
}

impl Default for Hooked {
    fn default() -> Self {
        Self::of(None)
    }
}

/// The attempts of the open round.
#[derive(Debug, Default)]
pub(super) struct Tries {
    /// How long to wait before the model is asked again.
    pub(super) wait: Option<Duration>,
    /// Why the attempt that begins is not the round's first.
    pub(super) reset: Option<&'static str>,
    /// Model calls that messages interrupted, and those that gave the parts of an answer that an
    /// interruption made void.
    pub(super) interrupted: u32,
    /// How many of the agent's fallback models were passed on to: 0 while its own is asked.
    pub(super) fallback: usize,
    /// The round that is asked for, and since when.
    pub(super) since: Option<(i32, Timestamp)>,
    /// When the last results of the round before it came.
    pub(super) results_at: Option<Timestamp>,
}

/// What hooks have said in a round.
#[derive(Debug, Default)]
pub(super) struct Injected {
    round: i32,
    ids: BTreeSet<String>,
}

impl Injected {
    /// What an earlier worker stored of them.
    pub(super) fn of(stored: Option<&SaidInRound>) -> Self {
        stored.map_or_else(Self::default, |stored| Self {
            round: stored.round,
            ids: stored.ids.iter().cloned().collect(),
        })
    }

    /// The ids of what was said in this round.
    pub(super) fn in_round(&self, round: i32) -> Vec<String> {
        let here = self.ids.iter().filter(|_| self.round == round);
        here.cloned().collect()
    }

    /// Takes note of what is said in a round; false where it was said before.
    pub(super) fn insert(&mut self, round: i32, id: String) -> bool {
        if self.round != round {
            self.round = round;
            self.ids.clear();
        }
        self.ids.insert(id)
    }
}

impl ModelCallState {
    /// Model calls of the open round that gave a part of its answer or were interrupted.
    pub(super) fn not_failed(&self) -> u32 {
        self.tries.interrupted + self.partial.as_ref().map_or(0, |partial| partial.parts)
    }
}

/// A model call to make.
pub(super) struct Attempt {
    pub(super) vetting: Vetting,
    /// What a final answer has to fit.
    pub(super) shape: Option<Schema>,
    /// What hooks have said in the round.
    pub(super) injected: Vec<String>,
    /// The round that they were told of which begins.
    pub(super) started: Arc<AtomicI32>,
    /// The calls of the last round with their results, where hooks were not told of them.
    pub(super) over: Vec<(ToolCall, CallResult)>,
    pub(super) client: Traced,
    /// The content of what the request names.
    pub(super) content: Arc<Content>,
    pub(super) request: Arc<Request>,
    /// How long the model may take at most, where that is bounded besides its transport.
    pub(super) left: Option<Duration>,
}

impl Attempt {
    /// Makes the call. Boxed is what is not the wait for the model itself, which thousands of calls are at.
    pub(super) async fn answered(
        &mut self,
        on_chunk: &mut (dyn for<'c> FnMut(Chunk<'c>) + Send),
    ) -> Result<Answered, Unanswered> {
        let (hooks, at) = (self.vetting.hooks.clone(), self.vetting.at);
        let heard = if hooks.is_empty() {
            Heard::Judged(Judged::Go)
        } else {
            Box::pin(self.begin(&hooks, at)).await?;
            // What a hook changes of the request, it changes on its own account: the budget's
            // bound holds all the same.
            let bound = self.request.max_tokens;
            let request = Arc::make_mut(&mut self.request);
            let heard = Box::pin(hooks.before_round_call(at, request, &self.injected)).await;
            request.max_tokens = request.max_tokens.min(bound);
            heard.map_err(NoReply::Policy)?
        };
        let reply = match heard {
            Heard::Say(said) => return Err(Unanswered::Message(said)),
            Heard::Judged(Judged::Instead(reply)) => reply,
            Heard::Judged(Judged::End) => return Err(NoReply::Ended.into()),
            Heard::Judged(Judged::Go) => {
                let filled = self.content.fill(at.session.tenant, &mut self.request);
                Box::pin(filled).await.map_err(NoReply::Model)?;
                self.asked(on_chunk).await.map_err(NoReply::Model)?
            }
        };
        let judged = Box::pin(hooks.after_model(at, reply)).await;
        let (mut reply, mut ends) = judged.map_err(NoReply::Policy)?;
        if ends {
            end_with(&mut reply);
        }
        let (mut calls, mut found) = (Vec::new(), None);
        match (settle::classify(&reply), &self.shape) {
            (Ok(Answer::Calls), _) => {
                if let Some(vetted) = Box::pin(self.vetting.calls(&reply.tool_calls)).await {
                    calls = vetted;
                } else {
                    ends = true;
                    end_with(&mut reply);
                }
            }
            (Ok(Answer::Final | Answer::Cut), Some(schema)) => {
                let clock = self.vetting.clock.as_ref();
                found = Some(Box::pin(output::read(clock, &reply, schema)).await);
            }
            (Ok(_) | Err(_), _) => {}
        }
        if ends && plain_text(&reply.content).trim().is_empty() {
            return Err(NoReply::Ended.into());
        }
        Ok(Answered {
            reply,
            calls,
            found,
            ends,
        })
    }

    /// Tells hooks of the last round's calls and of the round that begins, once in a life. They may say
    /// something first, or end the send.
    async fn begin(&self, hooks: &Hooks, at: At) -> Result<(), Unanswered> {
        if !self.over.is_empty() {
            hooks.observe(at, Moment::CallsOver(&self.over)).await;
        }
        if self.started.load(Ordering::Relaxed) == at.round {
            return Ok(());
        }
        if at.attempt <= 1 {
            hooks.observe(at, Moment::RoundStarted).await;
        }
        let begun = hooks.round_started(at, &self.injected).await;
        let begun = begun.map_err(NoReply::Policy)?;
        self.started.store(at.round, Ordering::Relaxed);
        match begun {
            Heard::Judged(Judged::Go | Judged::Instead(())) => Ok(()),
            Heard::Judged(Judged::End) => Err(NoReply::Ended.into()),
            Heard::Say(said) => Err(Unanswered::Message(said)),
        }
    }

    /// Asks the model, for no longer than is left.
    async fn asked(
        &self,
        on_chunk: &mut (dyn for<'c> FnMut(Chunk<'c>) + Send),
    ) -> Result<Reply, llm::Error> {
        let asked = self.client.complete(&self.request, on_chunk);
        match self.left {
            None => asked.await,
            Some(left) => tokio::select! {
                reply = asked => reply,
                () = self.vetting.clock.sleep(left) => Err(llm::Error::TotalTimeout),
            },
        }
    }
}

/// Makes an answer the last one: what it asks for is not done.
fn end_with(reply: &mut Reply) {
    reply.tool_calls.clear();
    reply.finish = Finish::Stop;
}
