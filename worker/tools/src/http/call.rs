//! One HTTP tool and the attempts of one call.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use mainspring_runtime::telemetry;
use mainspring_shared::error::Code;
use mainspring_shared::id::{SendId, SessionId};
use mainspring_shared::message::plain_text;
use mainspring_shared::retry::Policy;
use mainspring_shared::secrets::Secrets;
use mainspring_shared::store::scoped;
use mainspring_shared::time::Span;
use mainspring_shared::tool::{HttpTool, Repeat, digest_by};
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::{Client, Url};
use serde::Serialize;
use tokio::time::timeout;

use super::Shared;
use super::address::Addresses;
use super::answer::Body;
use super::direct::{Direct, Prepared};
use super::fault::Fault;
use super::sign::Kind;
use crate::exact::Exact;
use mainspring_worker::tool::{Concurrency, Invocation, Output, Tool, ToolError, ToolSpec, Traits};

/// Retry policy of one call. More patience is rarely worth it: the model can call again.
const ATTEMPTS: Policy = Policy {
    attempts_max: 3,
    base: Duration::from_millis(250),
    cap: Duration::from_secs(2),
    // A `Retry-After` is always honoured; if there is not enough time for it, the call gives up.
    retry_after_max: Duration::MAX,
};

/// Limit on the sum of all waits between a call's attempts.
const WAITS_MAX: Duration = Duration::from_secs(30);

/// The member of a response that holds the call's digest, shown once the call is old.
const DIGEST_MEMBER: &str = "digest";

/// How much later than the tool itself the kernel times out, because the tool's own error is more
/// precise.
const MARGIN: Duration = Duration::from_secs(5);

/// An HTTP tool.
#[derive(Debug)]
pub(super) struct HttpCall {
    kind: Kind,
    spec: ToolSpec,
    traits: Traits,
    url: Result<Url, String>,
    /// The request to an API that knows nothing of tools.
    direct: Option<Direct>,
    /// The template for the digest of a call.
    digest: Option<String>,
    /// Timeout of one attempt.
    timeout: Duration,
    shared: Arc<Shared>,
}

impl HttpCall {
    pub(super) fn new(kind: Kind, declared: &HttpTool, shared: Arc<Shared>) -> Self {
        let timeout = declared.timeout.map_or(shared.timeout, |span| span.0);
        let repeat = declared.repeat();
        let attempts = match repeat {
            Repeat::Once => timeout,
            Repeat::Safe | Repeat::Keyed => timeout
                .saturating_mul(ATTEMPTS.attempts_max)
                .saturating_add(WAITS_MAX),
        };
        Self {
            kind,
            spec: ToolSpec {
                name: declared.name.clone(),
                description: declared.description.clone(),
                parameters: declared.parameters.clone(),
            },
            traits: Traits {
                timeout: attempts.saturating_add(MARGIN),
                concurrency: if declared.parallel {
                    Concurrency::Parallel
                } else {
                    Concurrency::Exclusive
                },
                ..Traits::new(repeat)
            },
            url: target(&declared.url, &shared.addresses),
            direct: Direct::of(declared),
            digest: declared.digest.clone(),
            timeout,
            shared,
        }
    }

    async fn attempts(&self, invocation: &Invocation) -> Result<Output, ToolError> {
        let repeat = self.traits.repeat;
        let url = match &self.url {
            Ok(url) => url,
            Err(what) => return Err(Fault::Refused(what.clone()).reply(repeat, 1)),
        };
        let asked = match &self.direct {
            None => Asking::Described(url, Bytes::from(self.body(url, invocation))),
            Some(direct) => match direct.prepare(invocation, &self.shared) {
                Ok(prepared) => Asking::Direct(direct, prepared),
                Err(what) => return Err(Fault::Refused(what).reply(repeat, 1)),
            },
        };
        let clock = &self.shared.clock;
        let until = clock
            .monotonic()
            .saturating_add(self.traits.timeout.saturating_sub(MARGIN));
        let mut failed = 0;
        loop {
            let left = until.saturating_sub(clock.monotonic());
            let attempt = self.attempt(&asked, invocation, left);
            // Its tenant waits for its own name servers only.
            let attempt = scoped(invocation.session.tenant, attempt);
            let fault = match attempt.await {
                Ok(output) => return Ok(self.digested(output, invocation)),
                Err(fault) => fault,
            };
            failed += 1;
            let fraction = self.shared.entropy.fraction();
            let wait = ATTEMPTS.wait(failed, fault.retry_after(), fraction);
            let left = until.saturating_sub(clock.monotonic());
            match wait {
                Some(wait) if asked.is_again(&fault, repeat) && wait < left => {
                    tracing::debug!(
                        tool.name = self.spec.name,
                        fault = fault.logged(),
                        "a tool's HTTP call failed; will retry"
                    );
                    clock.sleep(wait).await;
                }
                _ => return Err(fault.reply(repeat, failed)),
            }
        }
    }

    /// Adds the digest to the output: from the template, else from the response.
    fn digested(&self, output: Output, invocation: &Invocation) -> Output {
        let by_template = self.digest.as_ref().and_then(|template| {
            let value = match &output.value {
                Some(value) => value.clone(),
                None => plain_text(&output.content).into(),
            };
            digest_by(template, &invocation.arguments, &value)
        });
        let says = || output.value.as_ref()?.get(DIGEST_MEMBER)?.as_str();
        match by_template.or_else(|| says().map(str::to_owned)) {
            Some(digest) => output.with_digest(digest),
            None => output,
        }
    }

    fn body(&self, url: &Url, invocation: &Invocation) -> Vec<u8> {
        // A request to a memory may belong to no send.
        let (session, send) = (invocation.session.session, invocation.send_id);
        let body = Asked {
            kind: self.kind.as_str(),
            tenant: invocation.session.tenant.to_string(),
            url: url.as_str(),
            call_id: &invocation.call_id,
            name: &self.spec.name,
            arguments: Exact::of(invocation),
            session_id: (!session.0.is_nil()).then_some(session),
            send_id: (!send.0.is_nil()).then_some(send),
        };
        serde_json::to_vec(&body).unwrap_or_default()
    }

    async fn attempt(
        &self,
        asked: &Asking<'_>,
        invocation: &Invocation,
        left: Duration,
    ) -> Result<Output, Fault> {
        let limit = self.timeout.min(left);
        let attempt = async {
            match asked {
                Asking::Described(url, body) => self.exchange(url, invocation, body.clone()).await,
                Asking::Direct(direct, prepared) => {
                    let tenant = invocation.session.tenant;
                    direct.exchange(prepared, tenant, &self.shared).await
                }
            }
        };
        let attempt = Box::pin(attempt);
        timeout(limit, attempt).await.unwrap_or_else(|_| {
            Err(Fault::Broken {
                // The declared limit; what is left for this call differs from it arbitrarily.
                what: format!("it took longer than {}", Span(self.timeout)),
                slow: true,
            })
        })
    }

    async fn exchange(
        &self,
        url: &Url,
        invocation: &Invocation,
        body: Bytes,
    ) -> Result<Output, Fault> {
        let (shared, id) = (&self.shared, &invocation.call_id);
        let client = client(shared)?;
        let keys = shared
            .signer
            .keys(self.kind, url, invocation.session.tenant);
        let mut headers = keys.headers(id, shared.clock.now(), &body);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let traceparent = telemetry::traceparent().map(HeaderValue::try_from);
        if let Some(Ok(traceparent)) = traceparent {
            headers.insert(telemetry::TRACEPARENT, traceparent);
        }
        let request = client
            .post(url.clone())
            .headers(headers)
            .header("idempotency-key", id)
            .body(body);
        let response = request.send().await.map_err(|error| Fault::of(&error))?;
        let status = response.status();
        if status.is_success() {
            let body = Body::read(response, shared.answer_bytes_max).await;
            return body.map(Body::output).map_err(|error| Fault::of(&error));
        }
        // It may quote the request, secrets included, which readers of this error must not see.
        let secrets = Secrets::default().and_of_url(url.as_str());
        Err(Fault::answered(response, &secrets, shared.clock.now()).await)
    }
}

/// What an attempt sends.
enum Asking<'a> {
    /// The call, described to whoever serves tools.
    Described(&'a Url, Bytes),
    /// What its tool's declaration makes of it.
    Direct(&'a Direct, Prepared),
}

impl Asking<'_> {
    fn is_again(&self, fault: &Fault, repeat: Repeat) -> bool {
        let is_passing = match self {
            Self::Described(..) => true,
            Self::Direct(..) => fault.is_passing(),
        };
        is_passing && fault.again(repeat)
    }
}

/// The client of all calls.
pub(super) fn client(shared: &Shared) -> Result<&Client, Fault> {
    shared.client().map_err(|error| {
        tracing::error!(%error, "could not create the HTTP client for tools");
        Fault::Refused("this worker has no HTTP client".to_owned())
    })
}

/// The URL that calls go to. If its host is an address, it is checked here, since it is never
/// looked up. The parser has normalized every notation of addresses.
pub(super) fn target(url: &str, addresses: &Addresses) -> Result<Url, String> {
    let unusable = || "its URL is not one of http or https".to_owned();
    let url = Url::parse(url).map_err(|_| unusable())?;
    let host = url.host_str().unwrap_or_default();
    if !matches!(url.scheme(), "http" | "https") || host.is_empty() {
        return Err(unusable());
    }
    if let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
        addresses
            .check(address)
            .map_err(|refused| refused.to_string())?;
    }
    Ok(url)
}

#[async_trait]
impl Tool for HttpCall {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn traits(&self) -> Traits {
        self.traits
    }

    fn kind(&self) -> &'static str {
        "http"
    }

    async fn call(&self, invocation: Invocation) -> Result<Output, ToolError> {
        tokio::select! {
            biased;
            () = invocation.stop.cancelled() => Err(ToolError::Reply {
                code: Code::ToolInterrupted,
                message: "the call was stopped before the tool answered".to_owned(),
            }),
            done = self.attempts(&invocation) => done,
        }
    }
}

/// The body of a request. Everything except the name and the arguments is the worker's own word.
#[derive(Serialize)]
struct Asked<'a> {
    kind: &'static str,
    tenant: String,
    /// The signed body names its recipient, so it is useless to anyone else.
    url: &'a str,
    call_id: &'a str,
    name: &'a str,
    arguments: Exact<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<SessionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    send_id: Option<SendId>,
}

#[cfg(test)]
mod tests;
