//! OpenAI's Responses API, and servers compatible with it.
//!
//! No state is kept at the provider: requests carry the whole conversation and ask for the model's
//! reasoning in encrypted form, which is stored with the message and sent back, so that any worker
//! can continue. The exception is an answer that is requested [in the background](background).

mod background;
mod reader;
mod request;

use std::sync::Arc;

use async_trait::async_trait;
use mainspring_shared::model::InBackground;
use mainspring_shared::time::Clock;

pub(crate) use self::reader::Answer;
use self::request::Place;
use crate::answer::ChunkSink;
use crate::gate::Gate;
use crate::http::Endpoint;
use crate::open::SetupError;
use crate::settings::{Kind, ProviderSettings};
use crate::tools::Tools;
use mainspring_worker::llm::Error;
use mainspring_worker::llm::{Chunk, Model, Reply, Request};

/// A provider at `{base_url}/responses`.
#[derive(Debug)]
pub(super) struct Responses {
    endpoint: Endpoint,
    wants: Wants,
}

/// The options of all requests to a provider.
#[derive(Debug, Clone, Copy)]
struct Wants {
    /// Whether the provider is given the answer's schema.
    native_schema: bool,
    stream: bool,
    /// Whether the provider works on answers in the background.
    background: bool,
}

impl Wants {
    /// The options for this request: an answer that is taken up is in the background, whatever the
    /// configuration.
    fn of(self, request: &Request) -> Self {
        let background = match request.background {
            InBackground::No => false,
            InBackground::Allowed => self.background,
            InBackground::TakenUp(_) => true,
        };
        Self { background, ..self }
    }
}

impl Responses {
    pub(super) fn new(
        settings: &ProviderSettings,
        gate: &Arc<Gate>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, SetupError> {
        let mut headers = Vec::new();
        if !settings.api_key.is_empty() {
            let value = format!("Bearer {}", settings.api_key.expose());
            headers.push(("authorization", value));
        }
        let base = settings.base_url.trim();
        let endpoint = Endpoint::new(settings, base, "/responses", &headers, (gate, clock))?;
        let wants = Wants {
            native_schema: settings.native_schema,
            stream: endpoint.streams(),
            background: settings.background,
        };
        Ok(Self { endpoint, wants })
    }

    fn body(&self, request: &Request) -> Result<Vec<u8>, Error> {
        let place = Place {
            host: self.endpoint.place(),
            rules: &self.endpoint.rules(&request.model),
            wants: self.wants.of(request),
        };
        request::body(request, place)
    }
}

#[async_trait]
impl Model for Responses {
    async fn complete(
        &self,
        request: &Request,
        on_chunk: &mut (dyn for<'c> FnMut(Chunk<'c>) + Send),
    ) -> Result<Reply, Error> {
        let rules = self.endpoint.rules(&request.model);
        let body = || self.body(request);
        let wants = self.wants.of(request);
        let source = self.endpoint.source(Kind::OpenAiResponses);
        let mut answer = Answer::new(source, wants.background);
        let mut sink = ChunkSink::new(on_chunk);
        if wants.background {
            background::answer(&self.endpoint, request, &body, &mut answer, &mut sink).await?;
        } else {
            self.endpoint
                .ask(request, &body, &mut answer, &mut sink)
                .await?;
        }
        if answer.is_final() {
            let mut reply = answer.reply(request);
            Tools::of(request, &rules).inward(&mut reply.tool_calls);
            Ok(reply)
        } else {
            Err(Error::bad("the answer is not finished"))
        }
    }

    async fn abandon(&self, background: &str) -> Result<(), Error> {
        background::abandon(&self.endpoint, background).await
    }

    fn wire(&self, request: &Request) -> Option<Result<Vec<u8>, Error>> {
        Some(self.endpoint.whole_body(request, self.body(request)))
    }

    fn native_schema(&self, model: &str, tools: bool) -> bool {
        self.wants.native_schema && self.endpoint.rules(model).enforces_schema(tools)
    }
}
