//! Chat completions: OpenAI's public API and everything compatible with it.

mod calls;
mod reader;
mod request;

use std::sync::Arc;

use async_trait::async_trait;
use mainspring_shared::time::Clock;

pub(crate) use self::reader::Answer;
use crate::answer::ChunkSink;
use crate::gate::Gate;
use crate::http::Endpoint;
use crate::open::SetupError;
use crate::settings::{Kind, ProviderSettings};
use crate::tools::Tools;
use mainspring_worker::llm::Error;
use mainspring_worker::llm::{Chunk, Model, Reply, Request};

/// The host of the public API, which is stricter than compatible servers.
pub(super) const PUBLIC_HOST: &str = "api.openai.com";

/// A provider at `{base_url}/chat/completions`.
#[derive(Debug)]
pub(super) struct OpenAi {
    endpoint: Endpoint,
    native_schema: bool,
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
        Ok(Self {
            endpoint,
            native_schema: settings.native_schema,
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
        let native = self.native_schema;
        let rules = self.endpoint.rules(&request.model);
        let body = || request::body(request, &rules, native, self.endpoint.streams());
        let source = self.endpoint.source(Kind::OpenAi);
        let mut answer = Answer::new(source, rules.thoughts_only_in_total);
        self.endpoint
            .ask(request, &body, &mut answer, &mut ChunkSink::new(on_chunk))
            .await?;
        let mut reply = answer.reply(request);
        Tools::of(request, &rules).inward(&mut reply.tool_calls);
        Ok(reply)
    }

    fn wire(&self, request: &Request) -> Option<Result<Vec<u8>, Error>> {
        let streams = self.endpoint.streams();
        let rules = self.endpoint.rules(&request.model);
        let body = request::body(request, &rules, self.native_schema, streams);
        Some(self.endpoint.whole_body(request, body))
    }

    fn sounds(&self) -> &'static [&'static str] {
        request::SOUNDS
    }

    fn native_schema(&self) -> bool {
        self.native_schema
    }
}
