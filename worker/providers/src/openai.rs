//! Chat completions: OpenAI's public API and everything compatible with it.

mod calls;
mod reader;
mod request;

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use mainspring_shared::time::Clock;

pub(crate) use self::reader::Answer;
use self::request::Place;
use crate::answer::ChunkSink;
use crate::gate::Gate;
use crate::http::Endpoint;
use crate::open::SetupError;
use crate::responses::Responses;
use crate::settings::{Kind, ProviderSettings};
use crate::tools::Tools;
use mainspring_worker::llm::Error;
use mainspring_worker::llm::{Chunk, Model, Reply, Request};

/// A provider at `{base_url}/chat/completions`.
#[derive(Debug)]
pub(super) struct OpenAi {
    endpoint: Endpoint,
    native_schema: bool,
    /// The same provider's Responses API, for models that take tools only there.
    responses: Responses,
}

impl OpenAi {
    pub(super) fn new(
        settings: &ProviderSettings,
        gate: &Arc<Gate>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, SetupError> {
        let mut headers = Vec::new();
        if !settings.api_key.is_empty() {
            headers.push((
                "authorization",
                format!("Bearer {}", settings.api_key.expose()),
            ));
        }
        let endpoint = Endpoint::new(
            settings,
            settings.base_url.trim(),
            "/chat/completions",
            &headers,
            (gate, clock),
        )?;
        let responses = ProviderSettings {
            kind: Kind::OpenAiResponses,
            background: false,
            ..settings.clone()
        };
        Ok(Self {
            endpoint,
            native_schema: settings.native_schema,
            responses: Responses::new(&responses, gate, clock)?,
        })
    }

    fn body(&self, request: &Request) -> Result<Vec<u8>, Error> {
        let place = Place {
            host: self.endpoint.place(),
            rules: &self.endpoint.rules(&request.model),
            native_schema: self.native_schema,
            stream: self.endpoint.streams(),
        };
        request::body(request, place)
    }

    /// The request for the Responses API, if it has to go there. What that has no member for is left out: here, such
    /// models have none either.
    fn for_responses<'r>(&self, request: &'r Request) -> Option<Cow<'r, Request>> {
        let rules = self.endpoint.rules(&request.model);
        let must = !request.tools.is_empty() && rules.needs_responses(request.reasoning_effort);
        must.then(|| {
            if request.stop.is_empty() {
                return Cow::Borrowed(request);
            }
            Cow::Owned(Request {
                stop: Vec::new(),
                ..request.clone()
            })
        })
    }
}

#[async_trait]
impl Model for OpenAi {
    async fn complete(
        &self,
        request: &Request,
        on_chunk: &mut (dyn for<'c> FnMut(Chunk<'c>) + Send),
    ) -> Result<Reply, Error> {
        if let Some(request) = self.for_responses(request) {
            return self.responses.complete(&request, on_chunk).await;
        }
        let rules = self.endpoint.rules(&request.model);
        let body = || self.body(request);
        let source = self.endpoint.source(Kind::OpenAi);
        let keeps_text = rules.attachments.iter().any(|name| name == "content");
        let mut answer = Answer::new(source, rules.thoughts_only_in_total).keeping_text(keeps_text);
        self.endpoint
            .ask(request, &body, &mut answer, &mut ChunkSink::new(on_chunk))
            .await?;
        let mut reply = answer.reply(request);
        Tools::of(request, &rules).inward(&mut reply.tool_calls);
        Ok(reply)
    }

    fn wire(&self, request: &Request) -> Option<Result<Vec<u8>, Error>> {
        if let Some(request) = self.for_responses(request) {
            return self.responses.wire(&request);
        }
        Some(self.endpoint.whole_body(request, self.body(request)))
    }

    fn sounds(&self) -> &'static [&'static str] {
        request::SOUNDS
    }

    fn native_schema(&self, model: &str, tools: bool) -> bool {
        self.native_schema && self.endpoint.rules(model).enforces_schema(tools)
    }
}

#[cfg(test)]
mod tests;
