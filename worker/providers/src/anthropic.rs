//! The Messages API of Anthropic, and everything compatible with it.

mod reader;
mod request;

use std::sync::Arc;

use async_trait::async_trait;
use mainspring_shared::time::Clock;

pub(crate) use self::reader::Answer;
use self::request::{BINDING_BETA, Capabilities};
use crate::answer::ChunkSink;
use crate::gate::Gate;
use crate::http::Endpoint;
use crate::open::SetupError;
use crate::settings::{ANTHROPIC_BASE_URL, Kind, ProviderSettings};
use crate::tools::Tools;
use mainspring_worker::llm::Error;
use mainspring_worker::llm::{Chunk, Model, Reply, Request};

/// The protocol version that this client speaks.
const VERSION: &str = "2023-06-01";

/// A provider at `{base_url}/v1/messages`.
#[derive(Debug)]
pub(super) struct Anthropic {
    endpoint: Endpoint,
    caches: bool,
    /// Whether it is Anthropic's own API.
    binding: bool,
    native_schema: bool,
}

impl Anthropic {
    pub(super) fn new(
        settings: &ProviderSettings,
        gate: &Arc<Gate>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, SetupError> {
        let base = settings.base_url.trim().trim_end_matches('/');
        let base = base.strip_suffix("/v1").unwrap_or(base);
        let mut headers = vec![("anthropic-version", VERSION.to_owned())];
        // Compatible servers may refuse unknown headers.
        let names = settings.headers.iter().map(|(name, _)| name);
        let has_own = names
            .into_iter()
            .any(|name| name.eq_ignore_ascii_case(BINDING_BETA.0));
        let binding = base == ANTHROPIC_BASE_URL && !has_own;
        if binding {
            headers.push((BINDING_BETA.0, BINDING_BETA.1.to_owned()));
        }
        if !settings.api_key.is_empty() {
            headers.push(("x-api-key", settings.api_key.expose().to_owned()));
        }
        let endpoint = Endpoint::new(settings, base, "/v1/messages", &headers, (gate, clock))?;
        Ok(Self {
            endpoint,
            caches: settings.prompt_cache,
            binding,
            native_schema: settings.native_schema,
        })
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            caches: self.caches,
            streams: self.endpoint.streams(),
            binding: self.binding,
            native_schema: self.native_schema,
        }
    }
}

#[async_trait]
impl Model for Anthropic {
    async fn complete(
        &self,
        request: &Request,
        on_chunk: &mut (dyn for<'c> FnMut(Chunk<'c>) + Send),
    ) -> Result<Reply, Error> {
        let rules = self.endpoint.rules(&request.model);
        let body = || request::body(request, &rules, self.capabilities());
        let mut answer = Answer::new(self.endpoint.source(Kind::Anthropic));
        self.endpoint
            .ask(request, &body, &mut answer, &mut ChunkSink::new(on_chunk))
            .await?;
        let mut reply = answer.reply(request);
        Tools::of(request, &rules).inward(&mut reply.tool_calls);
        Ok(reply)
    }

    fn native_schema(&self, _model: &str, _tools: bool) -> bool {
        self.native_schema
    }

    fn keeps_prompts(&self) -> bool {
        self.caches
    }

    fn wire(&self, request: &Request) -> Option<Result<Vec<u8>, Error>> {
        let rules = self.endpoint.rules(&request.model);
        let body = request::body(request, &rules, self.capabilities());
        Some(self.endpoint.whole_body(request, body))
    }
}
