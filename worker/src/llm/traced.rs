//! A model client for sends: with their tenant's key, reservations of money, and traces.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mainspring_runtime::telemetry::spans::{self, Content};
use mainspring_shared::agent::{AgentName, AgentSpec};
use mainspring_shared::budget::{ANSWER_TOKENS_MIN, Caps, Price};
use mainspring_shared::error::Coded as _;
use mainspring_shared::id::SessionKey;
use mainspring_shared::message::{ContentPart, Role, plain_text};
use mainspring_shared::tenant::{Amount, Payer, Usd};
use mainspring_shared::usage::Usage;
use serde_json::{Value, json};
use tracing::{Instrument as _, Span};

use crate::Kernel;
use crate::money::{Cost, Money, NoMoney, ReservedMoney};
use crate::send::size_at_most;
use crate::worker::Parts;

use super::{Chunk, Error, Finish, Hold, InBackground, Model, Reply, Request, Resolved, direct};

/// How long to wait, the first time, for money that other calls have reserved.
const BUSY: Duration = Duration::from_millis(250);

/// Maximum number of messages in a span: what is new is at the end.
const MESSAGES_MAX: usize = 20;

/// A model, and what its spans contain besides the request.
#[derive(Debug, Clone)]
pub(crate) struct Traced {
    client: Arc<dyn Model>,
    provider: Arc<str>,
    price: Option<Price>,
    session: SessionKey,
    /// The published agent that makes the calls.
    agent: Option<AgentName>,
    parts: Parts,
    money: Arc<Money>,
    /// Minimum tokens to assume for a request, from an earlier count of the provider.
    input_min: u64,
    /// Whether the answer may have fewer tokens than requested, because of the tenant's or the
    /// agent's limits.
    cut: Arc<AtomicBool>,
}

impl Traced {
    /// A client for calls of this agent in a session.
    pub(crate) fn new(
        resolved: &Resolved,
        session: SessionKey,
        agent: &AgentSpec,
        kernel: &Kernel,
    ) -> Self {
        Self {
            client: Arc::clone(&resolved.client),
            provider: Arc::clone(&resolved.provider),
            price: resolved.facts.price,
            session,
            agent: agent.payer().cloned(),
            parts: kernel.parts.clone(),
            money: Arc::clone(&kernel.money),
            input_min: 0,
            cut: Arc::default(),
        }
    }

    /// The same for a request that is assumed to have at least `input_min` tokens.
    pub(crate) fn reading(self, input_min: u64) -> Self {
        Self { input_min, ..self }
    }

    /// Tells whether the answer may have fewer tokens than requested, because of the tenant's or
    /// the agent's limits.
    pub(crate) fn cut(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.cut)
    }

    /// Makes one attempt, as [`Model::complete`], after reserving the most that it can cost.
    pub(crate) async fn complete(
        &self,
        request: &Request,
        on_chunk: &mut (dyn for<'c> FnMut(Chunk<'c>) + Send),
    ) -> Result<Reply, Error> {
        let Some((mut aside, request)) = self.set_aside(request).await? else {
            return self.traced(request, on_chunk).await;
        };
        let mut is_heard = false;
        let mut heard = |chunk: Chunk<'_>| {
            is_heard = true;
            on_chunk(chunk);
        };
        aside.begin();
        let answer = self.traced(&request, &mut heard).await;
        match &answer {
            Ok(reply) => {
                let by_price = self.price.map(|price| price.of(&reply.usage));
                let cost = reply.usage.cost_usd.or(by_price);
                let cost = Usage {
                    cost_usd: cost,
                    ..reply.usage
                };
                aside.settle(&self.parts, Amount::of(&cost)).await;
            }
            Err(error) if error.is_free() && !is_heard => {
                aside.settle(&self.parts, Amount::default()).await;
            }
            // What is billed is unknown, so the whole reservation counts.
            Err(_) => drop(aside),
        }
        answer
    }

    /// Reserves the most that a request can cost, and limits it to that; `None` if no limit
    /// applies.
    async fn set_aside<'r>(
        &self,
        request: &'r Request,
    ) -> Result<Option<(ReservedMoney, Cow<'r, Request>)>, Error> {
        let is_paid = matches!(request.background, InBackground::TakenUp(_));
        if is_paid || *self.provider == *direct::PROVIDER {
            return Ok(None);
        }
        let input = size_at_most(request).max(self.input_min);
        let wanted = u64::from(request.max_tokens);
        let of = |output_tokens: u64| {
            let usage = Usage {
                input_tokens: input,
                output_tokens,
                ..Usage::default()
            };
            let cost_usd = self.price.map(|price| price.at_most(&usage));
            Amount::of(&Usage { cost_usd, ..usage })
        };
        let cost = Cost {
            most: of(wanted),
            least: of(wanted.min(ANSWER_TOKENS_MIN)),
        };
        let caller = (self.session.tenant, self.agent.clone());
        let aside = match self.money.set_aside(caller, cost).await {
            Ok(Some(aside)) => aside,
            Ok(None) => return Ok(None),
            Err(NoMoney::Busy) => {
                return Err(Error::Held {
                    why: Hold::Money,
                    wait: BUSY,
                });
            }
            Err(NoMoney::Spent(of, span, limit)) => {
                return Err(Error::Spent {
                    agent: self.agent_of(of),
                    limit: Usd::of_nano(limit),
                    span,
                });
            }
            Err(NoMoney::TokensSpent(of, span, limit)) => {
                let agent = self.agent_of(of);
                return Err(Error::TokensSpent { agent, limit, span });
            }
        };
        let (given, most) = (aside.amount(), cost.most);
        if given == most {
            return Ok(Some((aside, Cow::Borrowed(request))));
        }
        let left = Caps {
            nano_usd: (given.nano_usd < most.nano_usd).then_some(given.nano_usd),
            tokens: (given.tokens < most.tokens).then_some(given.tokens),
            ..Caps::default()
        };
        // There is room for at least the smallest useful answer.
        let allowed = left.answer(input, wanted, self.price.as_ref());
        let allowed = allowed.unwrap_or(ANSWER_TOKENS_MIN).min(wanted);
        self.cut.store(true, Ordering::Relaxed);
        let mut request = request.clone();
        request.max_tokens = u32::try_from(allowed).unwrap_or(request.max_tokens);
        Ok(Some((aside, Cow::Owned(request))))
    }

    /// The agent, if the limit is the agent's.
    fn agent_of(&self, payer: Payer) -> Option<AgentName> {
        match payer {
            Payer::Tenant => None,
            Payer::Agent => self.agent.clone(),
        }
    }

    /// Makes the attempt inside a trace span.
    async fn traced(
        &self,
        request: &Request,
        on_chunk: &mut (dyn for<'c> FnMut(Chunk<'c>) + Send),
    ) -> Result<Reply, Error> {
        let (model, max_tokens) = (&request.model, request.max_tokens);
        let span = spans::chat(self.session, &self.provider, model, max_tokens);
        let tells = self.parts.config.trace_content && !span.is_disabled();
        if tells {
            tell_request(&span, request);
        }
        let answer = self.ask(request, on_chunk).instrument(span.clone()).await;
        match &answer {
            Ok(reply) => {
                spans::answered(&span, &reply.model, finish(&reply.finish), &reply.usage);
                if tells {
                    spans::content(&span, Content::Output, answered(reply));
                }
            }
            Err(error) => spans::failed(&span, error.code()),
        }
        answer
    }

    /// Asks with the tenant's key. A refused key may have been replaced a moment ago.
    async fn ask(
        &self,
        request: &Request,
        on_chunk: &mut (dyn for<'c> FnMut(Chunk<'c>) + Send),
    ) -> Result<Reply, Error> {
        let model = self.model(false).await?;
        let answer = model.complete(request, on_chunk).await;
        if !matches!(answer, Err(Error::Auth { .. })) || model.keyed().is_none() {
            return answer;
        }
        let again = self.model(true).await?;
        if Arc::ptr_eq(&again, &model) {
            return answer;
        }
        again.complete(request, on_chunk).await
    }

    /// Cancels a background answer, as [`Model::abandon`].
    pub(crate) async fn abandon(&self, background: &str) -> Result<(), Error> {
        self.model(false).await?.abandon(background).await
    }

    async fn model(&self, anew: bool) -> Result<Arc<dyn Model>, Error> {
        let keys = self.parts.providers.tenant_keys();
        let ports = (self.parts.store.as_ref(), self.parts.clock.as_ref());
        let whose = (self.session.tenant, &self.provider);
        keys.model(ports, whose, &self.client, anew).await
    }
}

/// The finish reason in the terms of the semantic conventions.
fn finish(finish: &Finish) -> &str {
    match finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
        Finish::ToolCalls => "tool_calls",
        Finish::Refused => "content_filter",
        Finish::Paused => "paused",
        Finish::Failed(reason) | Finish::Other(reason) => reason,
    }
}

fn tell_request(span: &Span, request: &Request) {
    if let Some(system) = &request.system {
        let parts = json!([{ "type": "text", "content": system }]);
        spans::content(span, Content::System, parts);
    }
    let skipped = request.messages.len().saturating_sub(MESSAGES_MAX);
    let messages = request.messages.iter().skip(skipped).map(|message| {
        let mut parts = text(&message.content);
        let role = match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => {
                let id = &message.tool_call_id;
                let answer = plain_text(&message.content);
                parts = vec![json!({ "type": "tool_call_response", "id": id, "response": answer })];
                "tool"
            }
        };
        parts.extend(calls(&message.tool_calls));
        json!({ "role": role, "parts": parts })
    });
    spans::content(span, Content::Input, messages.collect());
}

fn answered(reply: &Reply) -> Value {
    let mut parts = text(&reply.content);
    parts.extend(calls(&reply.tool_calls));
    json!([{ "role": "assistant", "parts": parts, "finish_reason": finish(&reply.finish) }])
}

fn text(content: &[ContentPart]) -> Vec<Value> {
    let text = plain_text(content);
    if text.is_empty() {
        return Vec::new();
    }
    vec![json!({ "type": "text", "content": text })]
}

fn calls(calls: &[mainspring_shared::message::ToolCall]) -> Vec<Value> {
    let calls = calls.iter().map(|call| {
        json!({
            "type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments,
        })
    });
    calls.collect()
}
