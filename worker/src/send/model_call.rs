//! One model call, with the hooks around it, and the checks on its answer before any of it is
//! stored. All of this is one future that the run drops when something more urgent happens.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
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
use super::markup;
use super::mending::Mended;
use super::output::Fault;
use super::received::Received;
use super::vet::{CALLS_MAX, Vetted, Vetting};
use super::{output, settle};
use crate::content::Content;
use crate::hook::{
    At, CombinedVerdict, Hooks, Moment, Refusal, ToolCall, VerdictOrMessages, Words,
};
use crate::llm::{self, Chunk, Finish, Reply, Request, Traced};
use crate::metrics;
use crate::tool::repair::repair;

pub(super) type Call = BoxFuture<'static, Result<Answered, Unanswered>>;

/// An answer, and what was found out about it before any of it is stored.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) reply: Reply,
    /// Its calls, vetted.
    pub(super) calls: Vec<Vetted>,
    /// The value in it, if one was asked for.
    pub(super) found: Option<Result<Value, Fault>>,
    /// Whether a hook ends the send with this answer.
    pub(super) ends: bool,
}

/// Why a model call gave no answer.
#[derive(Debug)]
pub(super) enum NoReply {
    /// The model failed.
    Model(llm::Error),
    /// A policy did not allow it.
    Policy(Refusal),
    /// A hook ends the send.
    Ended,
}

/// The outcome of a model call other than an answer.
#[derive(Debug)]
pub(super) enum Unanswered {
    /// There will be no answer.
    No(NoReply),
    /// Hooks first say something (their words, with ids); then the model is asked again.
    Message(Words),
}

impl From<NoReply> for Unanswered {
    fn from(why: NoReply) -> Self {
        Self::No(why)
    }
}

/// What readers of the stream were told of a round.
#[derive(Debug)]
pub(super) struct Streamed {
    pub(super) round: i32,
    /// The attempt number that they were told. An attempt that streamed nothing leaves its number
    /// to the next one: after a crash, the next worker only knows of attempts whose cost was
    /// stored.
    pub(super) attempt: i32,
    /// Whether anything was streamed under it.
    pub(super) heard: Arc<AtomicBool>,
}

/// A model call that has begun.
#[derive(Debug)]
pub(super) struct BegunCall {
    /// The request before hooks changed it.
    pub(super) request: Arc<Request>,
    /// The provider's configured name.
    pub(super) provider: Arc<str>,
    /// The facts of the model.
    pub(super) facts: ModelFacts,
    /// What was received of the answer.
    pub(super) received: Arc<Received>,
    /// Whether its answer is limited to fewer tokens than the agent allows.
    pub(super) capped: bool,
    /// The same, because of the tenant's spending limits.
    pub(super) cut: Arc<AtomicBool>,
}

/// The beginning of an answer.
#[derive(Debug)]
pub(super) struct Partial {
    pub(super) reply: Reply,
    /// Model calls that each gave a part of it.
    pub(super) parts: u32,
}

/// What identifies a question to the model.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct QuestionId {
    pub(super) digest: Option<Digest>,
    /// The newest fold that it shows, 0 for none.
    pub(super) folded: Option<i64>,
    /// The last message of the send whose results counted as old.
    pub(super) aged_to: Option<i64>,
}

/// The model call of the open round, and the outcome of the last one.
#[derive(Default)]
pub(super) struct ModelCallState {
    /// The call in flight.
    pub(super) call: Option<Call>,
    /// What it asks, until it is paid for.
    pub(super) asked: Option<BegunCall>,
    /// The answer that is to be stored.
    pub(super) reply: Option<Reply>,
    /// The beginning of the answer, if it was truncated and is being continued.
    pub(super) partial: Option<Partial>,
    /// Identifies the question of the answer in flight.
    pub(super) question: QuestionId,
    /// Receives the provider's id of the answer if it works on it in the background.
    pub(super) background: Option<oneshot::Receiver<String>>,
    /// The attempts of the open round.
    pub(super) tries: Tries,
    /// What was done about answers that could not be used.
    pub(super) mended: Box<Mended>,
    /// What has been received of the answer in flight.
    pub(super) streaming: Streaming,
    /// What hooks did in the open round.
    pub(super) hooked: Hooked,
    /// The current round and its span.
    pub(super) traced: Option<(i32, Span)>,
}

/// What was received of an answer while it was in flight.
#[derive(Debug, Default)]
pub(super) struct Streaming {
    /// What readers were told of the current round.
    pub(super) told: Option<Streamed>,
    /// The checkpoint that is kept in case this worker crashes.
    pub(super) checkpoint: Checkpoint,
    /// The text of the model call that was dropped last.
    pub(super) cut_short: Option<String>,
}

/// What hooks did in a round.
#[derive(Debug)]
pub(super) struct Hooked {
    /// The messages that they injected.
    pub(super) injected: Injected,
    /// The last round whose start they were told of, under this worker.
    pub(super) started: Arc<AtomicI32>,
    /// Whether the model call that begins is the same one that they were asked about before.
    pub(super) again: bool,
}

impl Hooked {
    /// Restores what an earlier worker stored of their messages.
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
    /// Why the next attempt is not the round's first.
    pub(super) reset: Option<&'static str>,
    /// Model calls that messages interrupted, including those whose partial answers an interruption
    /// made void.
    pub(super) interrupted: u32,
    /// The model in use: 0 for the agent's own, else the number of the fallback model.
    pub(super) fallback: usize,
    /// The round that is asked for, and when its first call began.
    pub(super) since: Option<(i32, Timestamp)>,
    /// When the last results of the previous round arrived.
    pub(super) results_at: Option<Timestamp>,
}

/// The messages that hooks injected in a round, by id.
#[derive(Debug, Default)]
pub(super) struct Injected {
    round: i32,
    ids: BTreeSet<String>,
}

impl Injected {
    /// Restores what an earlier worker stored of them.
    pub(super) fn of(stored: Option<&SaidInRound>) -> Self {
        stored.map_or_else(Self::default, |stored| Self {
            round: stored.round,
            ids: stored.ids.iter().cloned().collect(),
        })
    }

    /// The ids of the messages injected in this round.
    pub(super) fn in_round(&self, round: i32) -> Vec<String> {
        let here = self.ids.iter().filter(|_| self.round == round);
        here.cloned().collect()
    }

    /// Records a message injected in a round; false if it was injected before.
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
    /// The schema that a final answer must match.
    pub(super) shape: Option<Schema>,
    /// The ids of the messages that hooks injected in the round.
    pub(super) injected: Vec<String>,
    /// The last round whose start they were told of.
    pub(super) started: Arc<AtomicI32>,
    /// The calls of the last round with their results, if hooks have not been told of them.
    pub(super) over: Vec<(ToolCall, CallResult)>,
    pub(super) client: Traced,
    /// Loads the content that the request refers to.
    pub(super) content: Arc<Content>,
    pub(super) request: Arc<Request>,
    /// How long the model may take at most, if that is bounded beyond the transport's own timeouts.
    pub(super) left: Option<Duration>,
}

impl Attempt {
    /// Makes the call. Everything but the wait for the model itself is boxed, because thousands of
    /// calls are in that wait.
    pub(super) async fn answered(
        &mut self,
        on_chunk: &mut (dyn for<'c> FnMut(Chunk<'c>) + Send),
    ) -> Result<Answered, Unanswered> {
        let (hooks, at) = (self.vetting.hooks.clone(), self.vetting.at);
        let verdict = if hooks.is_empty() {
            VerdictOrMessages::Verdict(CombinedVerdict::Go)
        } else {
            Box::pin(self.begin(&hooks, at)).await?;
            // Hooks may change the request but not exceed the budget's bound.
            let bound = self.request.max_tokens;
            let request = Arc::make_mut(&mut self.request);
            let verdict = Box::pin(hooks.before_round_call(at, request, &self.injected)).await;
            request.max_tokens = request.max_tokens.min(bound);
            verdict.map_err(NoReply::Policy)?
        };
        let reply = match verdict {
            VerdictOrMessages::Messages(said) => return Err(Unanswered::Message(said)),
            VerdictOrMessages::Verdict(CombinedVerdict::Instead(reply)) => reply,
            VerdictOrMessages::Verdict(CombinedVerdict::End) => return Err(NoReply::Ended.into()),
            VerdictOrMessages::Verdict(CombinedVerdict::Go) => {
                let filled = self.content.fill(at.session.tenant, &mut self.request);
                Box::pin(filled).await.map_err(NoReply::Model)?;
                let mut reply = self.asked(on_chunk).await.map_err(NoReply::Model)?;
                self.mend(&mut reply);
                reply
            }
        };
        let verdict = Box::pin(hooks.after_model(at, reply)).await;
        let (mut reply, mut ends) = verdict.map_err(NoReply::Policy)?;
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

    /// Tells hooks of the last round's calls and of the round's start, once per worker. They may
    /// inject messages first, or end the send.
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
            VerdictOrMessages::Verdict(CombinedVerdict::Go | CombinedVerdict::Instead(())) => {
                Ok(())
            }
            VerdictOrMessages::Verdict(CombinedVerdict::End) => Err(NoReply::Ended.into()),
            VerdictOrMessages::Messages(said) => Err(Unanswered::Message(said)),
        }
    }

    /// Reads what the model wrote wrongly but can mean only one thing, before anyone sees it.
    fn mend(&self, reply: &mut Reply) {
        markup::part_thoughts(reply);
        if reply.finish == Finish::Length {
            return;
        }
        let at = self.vetting.at;
        for call in reply.tool_calls.iter_mut().take(CALLS_MAX) {
            for kind in repair(&self.vetting.offers, call) {
                metrics::call_repaired(kind.as_str());
                tracing::warn!(
                    send.id = %at.send,
                    session.id = %at.session.session,
                    tool.name = call.name,
                    kind = kind.as_str(),
                    "repaired a call of a model"
                );
            }
        }
    }

    /// Asks the model, for no longer than the time that is left.
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

/// Makes an answer the last one: its calls are not made.
fn end_with(reply: &mut Reply) {
    reply.tool_calls.clear();
    reply.finish = Finish::Stop;
}
