//! A model as sends ask it: with the key of their tenant, and seen in traces.

use std::sync::Arc;

use mainspring_runtime::telemetry::spans::{self, Content};
use mainspring_shared::error::Coded as _;
use mainspring_shared::id::SessionKey;
use mainspring_shared::message::{ContentPart, Role, plain_text};
use serde_json::{Value, json};
use tracing::{Instrument as _, Span};

use crate::worker::Parts;

use super::{Chunk, Error, Finish, Model, Reply, Request, Resolved};

/// Messages of a request that a span holds at most: what is new is at the end.
const MESSAGES_MAX: usize = 20;

/// A model, and what its spans say besides the request.
#[derive(Debug, Clone)]
pub(crate) struct Traced {
    client: Arc<dyn Model>,
    provider: Arc<str>,
    session: SessionKey,
    parts: Parts,
}

impl Traced {
    pub(crate) fn new(resolved: &Resolved, session: SessionKey, parts: &Parts) -> Self {
        Self {
            client: Arc::clone(&resolved.client),
            provider: Arc::clone(&resolved.provider),
            session,
            parts: parts.clone(),
        }
    }

    /// Makes one attempt, as [`Model::complete`].
    pub(crate) async fn complete(
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

    /// Asks with the tenant's key. One that is refused may have been replaced a moment ago.
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

    /// Lets the provider know that nobody wants an answer in the background, as [`Model::abandon`].
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

/// The conventions' word for why an answer ended.
fn finish(finish: &Finish) -> &str {
    match finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
        Finish::ToolCalls => "tool_calls",
        Finish::Refused => "content_filter",
        Finish::Other(reason) => reason,
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
