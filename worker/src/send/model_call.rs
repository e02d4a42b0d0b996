//! One model call, with the hooks around it, and what is found out about its answer before anything of
//! it is stored. All of it is one future that the run drops when something more urgent comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use futures::future::BoxFuture;
use mainspring_shared::message::plain_text;
use mainspring_shared::model::{Digest, ModelFacts};
use mainspring_shared::send::machine::Answer;
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::CallResult;
use mainspring_shared::tool::schema::Schema;
use serde_json::Value;
use tokio::sync::oneshot;

use super::output::Fault;
use super::vet::{Vetted, Vetting};
use super::{output, settle};
use crate::content::Content;
use crate::hook::{Judged, Moment, Refusal, ToolCall};
use crate::llm::{self, Chunk, Finish, Model, Reply, Request};

pub(super) type Call = BoxFuture<'static, Result<Answered, NoReply>>;

/// An answer, and what was found out about it before anything of it is stored.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) reply: Reply,
    /// What is known of its calls.
    pub(super) calls: Vec<Vetted>,
    /// The value in it, where one was asked for.
    pub(super) found: Option<Result<Value, Fault>>,
    /// What a hook says to the model instead of letting the send end.
    pub(super) back: Option<String>,
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
pub(super) struct Asked {
    /// What was asked, before hooks changed it.
    pub(super) request: Arc<Request>,
    /// The provider's configured name.
    pub(super) provider: String,
    /// What is known of the model.
    pub(super) facts: ModelFacts,
    /// Tokens that came back so far, estimated.
    pub(super) streamed: Arc<AtomicU64>,
    /// Whether its answer may have fewer tokens than the agent allows.
    pub(super) capped: bool,
}

/// The beginning of an answer.
#[derive(Debug)]
pub(super) struct Partial {
    pub(super) reply: Reply,
    /// Model calls that gave a part of it.
    pub(super) parts: u32,
}

/// The model call of the open round, and what came of the last one.
#[derive(Default)]
pub(super) struct Asking {
    /// The call that is under way.
    pub(super) call: Option<Call>,
    /// What it asks, until it is paid for.
    pub(super) asked: Option<Asked>,
    /// The answer that is to be stored.
    pub(super) reply: Option<Reply>,
    /// What the model has said of its answer, where that was cut and goes on.
    pub(super) partial: Option<Partial>,
    /// What was said of the model call that was dropped last.
    pub(super) cut_short: Option<String>,
    /// Identifies what the model was asked for the answer under way: the digest, and the newest fold that it
    /// was shown, 0 for none.
    pub(super) question: (Option<Digest>, Option<i64>),
    /// What was streamed of the present round.
    pub(super) streamed: Option<Streamed>,
    /// Tells what the provider calls the answer, where it works on it in the background.
    pub(super) background: Option<oneshot::Receiver<String>>,
    /// The attempts of the open round.
    pub(super) tries: Tries,
    /// What hooks say to the model instead of letting the send end.
    pub(super) back: Back,
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

/// What hooks say to the model instead of letting the send end.
#[derive(Debug, Default)]
pub(super) struct Back {
    /// What is said after the answer that is stored next.
    pub(super) text: Option<String>,
    /// Times that hooks sent the model back.
    pub(super) times: u32,
}

impl Asking {
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
    /// Whether hooks may send the model back.
    pub(super) may_go_back: bool,
    /// The calls of the last round with their results, where hooks were not told of them.
    pub(super) over: Vec<(ToolCall, CallResult)>,
    pub(super) client: Arc<dyn Model>,
    /// The content of what the request names.
    pub(super) content: Arc<Content>,
    pub(super) request: Arc<Request>,
    /// How long the model may take at most, where that is bounded besides its transport.
    pub(super) left: Option<Duration>,
}

impl Attempt {
    /// Makes the call.
    pub(super) async fn answered(
        mut self,
        on_chunk: &mut (dyn for<'c> FnMut(Chunk<'c>) + Send),
    ) -> Result<Answered, NoReply> {
        let (hooks, at) = (self.vetting.hooks.clone(), self.vetting.at);
        let instead = if hooks.is_empty() {
            Judged::Go
        } else {
            // What a hook changes of the request, it changes on its own account: the budget's
            // bound holds all the same.
            if !self.over.is_empty() {
                hooks.observe(at, Moment::CallsOver(&self.over)).await;
            }
            if at.attempt <= 1 {
                hooks.observe(at, Moment::RoundStarted).await;
            }
            let bound = self.request.max_tokens;
            let request = Arc::make_mut(&mut self.request);
            let instead = hooks.before_model(at, request).await;
            request.max_tokens = request.max_tokens.min(bound);
            instead.map_err(NoReply::Policy)?
        };
        let reply = match instead {
            Judged::Instead(reply) => reply,
            Judged::End => return Err(NoReply::Ended),
            Judged::Go => {
                let filled = self
                    .content
                    .fill(at.session.tenant, &mut self.request)
                    .await;
                filled.map_err(NoReply::Model)?;
                self.asked(on_chunk).await.map_err(NoReply::Model)?
            }
        };
        let judged = hooks.after_model(at, reply).await;
        let (mut reply, mut ends) = judged.map_err(NoReply::Policy)?;
        if ends {
            end_with(&mut reply);
        }
        let (mut calls, mut found, mut back) = (Vec::new(), None, None);
        match (settle::classify(&reply), &self.shape) {
            (Ok(Answer::Calls), _) => {
                if let Some(vetted) = self.vetting.calls(&reply.tool_calls).await {
                    calls = vetted;
                } else {
                    ends = true;
                    end_with(&mut reply);
                }
            }
            (Ok(Answer::Final | Answer::Cut), Some(schema)) => {
                let clock = self.vetting.clock.as_ref();
                found = Some(output::read(clock, &reply, schema).await);
            }
            (Ok(Answer::Final), None) if self.may_go_back && !ends => {
                back = hooks.before_end(at, &reply).await;
            }
            (Ok(_) | Err(_), _) => {}
        }
        if ends && plain_text(&reply.content).trim().is_empty() {
            return Err(NoReply::Ended);
        }
        Ok(Answered {
            reply,
            calls,
            found,
            back,
        })
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
