//! The Messages API of Anthropic, and everything compatible with it.

mod reader;
mod request;

use std::sync::Arc;

use async_trait::async_trait;
use mainspring_shared::time::Clock;

pub(crate) use self::reader::Answer;
use self::request::{BINDING_BETA, Place};
use crate::answer::ChunkSink;
use crate::gate::Gate;
use crate::http::Endpoint;
use crate::open::SetupError;
use crate::rules::RuleBook;
use crate::settings::{Kind, ProviderSettings};
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
    /// Whether it may be asked to drop thinking whose place has changed.
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
        let binding = drops_blocks(settings, base);
        let mut settings = settings.clone();
        if binding {
            headers.push((BINDING_BETA.0, betas(&mut settings)));
        }
        if !settings.api_key.is_empty() {
            headers.push(("x-api-key", settings.api_key.expose().to_owned()));
        }
        let endpoint = Endpoint::new(&settings, base, "/v1/messages", &headers, (gate, clock))?;
        Ok(Self {
            endpoint,
            caches: settings.prompt_cache,
            binding,
            native_schema: settings.native_schema,
        })
    }

    fn body(&self, request: &Request) -> Result<Vec<u8>, Error> {
        let place = Place {
            host: self.endpoint.place(),
            rules: &self.endpoint.rules(&request.model),
            caches: self.caches,
            streams: self.endpoint.streams(),
            binding: self.binding,
            native_schema: self.native_schema,
        };
        request::body(request, place)
    }
}

/// Whether the endpoint's rules say that it may be asked to drop thinking whose place has changed.
fn drops_blocks(settings: &ProviderSettings, base: &str) -> bool {
    let Ok(url) = reqwest::Url::parse(base) else {
        return false;
    };
    let host = url.host_str().unwrap_or_default();
    let rules = RuleBook::new(settings.kind, host, url.port(), &settings.rules);
    rules.of("").drop_block
}

/// The value of the beta header: the operator's own ones, which are taken out of the settings, and ours.
fn betas(settings: &mut ProviderSettings) -> String {
    let is_beta = |name: &str| name.eq_ignore_ascii_case(BINDING_BETA.0);
    let own = settings.headers.extract_if(.., |(name, _)| is_beta(name));
    let mut betas: Vec<String> = own.map(|(_, value)| value.expose().to_owned()).collect();
    if !betas.iter().any(|own| own.contains(BINDING_BETA.1)) {
        betas.push(BINDING_BETA.1.to_owned());
    }
    betas.join(",")
}

#[async_trait]
impl Model for Anthropic {
    async fn complete(
        &self,
        request: &Request,
        on_chunk: &mut (dyn for<'c> FnMut(Chunk<'c>) + Send),
    ) -> Result<Reply, Error> {
        let rules = self.endpoint.rules(&request.model);
        let body = || self.body(request);
        let mut answer = Answer::new(self.endpoint.source(Kind::Anthropic));
        self.endpoint
            .ask(request, &body, &mut answer, &mut ChunkSink::new(on_chunk))
            .await?;
        let mut reply = answer.reply(request);
        Tools::of(request, &rules).inward(&mut reply.tool_calls);
        Ok(reply)
    }

    fn native_schema(&self, model: &str, tools: bool) -> bool {
        self.native_schema && self.endpoint.rules(model).enforces_schema(tools)
    }

    fn keeps_prompts(&self) -> bool {
        self.caches
    }

    fn wire(&self, request: &Request) -> Option<Result<Vec<u8>, Error>> {
        Some(self.endpoint.whole_body(request, self.body(request)))
    }
}
