//! Answers that the provider works on whether or not anybody is connected.
//!
//! It says first what it calls the answer. Whoever knows that can take the answer up: this call after a
//! broken connection, and another worker after the death of the one that asked. The price is that the
//! provider keeps the answer for a while.

use std::time::Duration;

use mainspring_shared::model::InBackground;
use mainspring_worker::llm::{Error, Request};
use reqwest::Method;
use tokio::time::timeout;

use super::reader::Answer;
use super::request::{ENCRYPTED_REASONING, may_reason};
use crate::answer::ChunkSink;
use crate::http::Endpoint;

/// Between two looks at an answer that is not finished, and after the first failure to look.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest pause after failures to look.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Failures in a row after which nobody looks again: about half a minute.
const FAILURES_MAX: u32 = 6;

/// How long a provider is told that nobody wants an answer.
const ABANDON_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads the answer that the request names, or asks for one, until it is final or has failed; all of it
/// within the time of one attempt.
pub(super) async fn answer(
    endpoint: &Endpoint,
    request: &Request,
    body: &(dyn Fn() -> Result<Vec<u8>, Error> + Sync),
    answer: &mut Answer<'_>,
    sink: &mut ChunkSink<'_>,
) -> Result<(), Error> {
    endpoint
        .attempt(async {
            let mut outcome = Ok(());
            let mut is_first = false;
            if let InBackground::TakenUp(id) = &request.background {
                answer.background().id = Some(id.clone());
                is_first = true;
            } else {
                outcome = endpoint.ask(request, body, answer, sink).await;
            }
            let mut failures = 0;
            loop {
                match outcome {
                    _ if answer.is_final() => return Ok(()),
                    Ok(()) => failures = 0,
                    Err(error) => {
                        failures += 1;
                        let background = answer.background();
                        let is_open = background.id.is_some() && !background.gave_up;
                        if !is_open || !may_pass(&error) || failures > FAILURES_MAX {
                            return Err(error);
                        }
                    }
                }
                if !std::mem::take(&mut is_first) {
                    let pause = PAUSE * 2u32.saturating_pow(failures.saturating_sub(1));
                    endpoint.clock().sleep(pause.min(PAUSE_MAX)).await;
                }
                outcome = follow(endpoint, request, answer, sink).await;
            }
        })
        .await
}

/// Reads on behind what was read.
async fn follow(
    endpoint: &Endpoint,
    request: &Request,
    answer: &mut Answer<'_>,
    sink: &mut ChunkSink<'_>,
) -> Result<(), Error> {
    let background = answer.background();
    let Some(id) = background.id.clone() else {
        return Err(Error::bad("it has no id"));
    };
    let mut query = Vec::new();
    if endpoint.streams() {
        query.push(("stream", "true".to_owned()));
        if let Some(read) = background.read {
            query.push(("starting_after", read.to_string()));
        }
    }
    if may_reason(&request.model) {
        // The reasoning goes back with the answer.
        query.push(("include[]", ENCRYPTED_REASONING.to_owned()));
    }
    let looks = endpoint.below(Method::GET, &[&id], &query);
    match endpoint.response(&request.model, looks).await {
        Ok(response) => endpoint.read(response, answer, sink).await,
        Err(Error::InvalidRequest { message }) => {
            answer.background().gave_up = true;
            Err(Error::unavailable(format!(
                "the provider has the answer no more that it worked on: {message}"
            )))
        }
        Err(error) => Err(error),
    }
}

/// Whether a look may work that is taken later.
fn may_pass(error: &Error) -> bool {
    matches!(
        error,
        Error::Unreached { .. }
            | Error::Unavailable { .. }
            | Error::RateLimited { .. }
            | Error::Timeout { .. }
    )
}

/// Tells the provider that nobody wants the answer.
pub(super) async fn abandon(endpoint: &Endpoint, id: &str) -> Result<(), Error> {
    let tells = endpoint.below(Method::POST, &[id, "cancel"], &[]);
    let told = timeout(ABANDON_TIMEOUT, endpoint.response("", tells)).await;
    let told = told.unwrap_or_else(|_| Err(Error::unavailable("it did not answer in time")));
    told.map(drop)
}
