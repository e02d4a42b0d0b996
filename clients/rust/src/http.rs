//! Requests over HTTP.

use std::sync::OnceLock;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;

use crate::transport::{Arrival, Body, Request, Response, Transport, TransportError};

/// One pool of connections, made with the first request.
#[derive(Debug, Default)]
pub(crate) struct Http(OnceLock<Result<reqwest::Client, String>>);

impl Http {
    fn client(&self, connect_timeout: Duration) -> Result<&reqwest::Client, TransportError> {
        let made = self.0.get_or_init(|| {
            // Only the first of a process counts; who has installed another one keeps it.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let built = reqwest::Client::builder()
                .connect_timeout(connect_timeout)
                // A key must not follow a redirect, and no answer of this API is one.
                .redirect(reqwest::redirect::Policy::none())
                .build();
            built.map_err(|error| causes(&error))
        });
        made.as_ref().map_err(|message| TransportError {
            message: message.clone(),
            arrival: Arrival::Never,
        })
    }
}

impl Transport for Http {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, TransportError>> {
        Box::pin(async move {
            let url = format!("{}{}", request.server, request.path);
            let client = self.client(request.connect_timeout)?;
            let sent = client.request(request.method, url).headers(request.headers);
            let answer = sent.body(request.body).send().await.map_err(failed)?;
            Ok(Response {
                status: answer.status(),
                headers: answer.headers().clone(),
                body: Body::new(answer.bytes_stream().map(|chunk| chunk.map_err(failed))),
            })
        })
    }
}

fn failed(error: reqwest::Error) -> TransportError {
    // The query may hold what others should not read.
    let error = error.without_url();
    TransportError {
        arrival: if error.is_connect() || error.is_builder() {
            Arrival::Never
        } else {
            Arrival::Unknown
        },
        message: causes(&error),
    }
}

fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
