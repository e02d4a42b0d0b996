//! Answers that the provider works on whether or not a client is connected.
//!
//! The provider first reports the answer's id. With it the answer can be taken up: by this call
//! after a broken connection, and by another worker after a crash of the one that asked. The price
//! is that the provider stores the answer for a while.

use std::time::Duration;

use mainspring_shared::model::InBackground;
use mainspring_worker::llm::{Error, Request};
use reqwest::Method;
use tokio::time::timeout;

use super::reader::Answer;
use super::request::{ENCRYPTED_REASONING, may_reason};
use crate::answer::ChunkSink;
use crate::http::Endpoint;

/// The interval between polls of an unfinished answer, and the first backoff after a failed poll.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest backoff after failed polls.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Consecutive failed polls before giving up: about half a minute.
const FAILURES_MAX: u32 = 6;

/// The timeout of a request to cancel an answer.
const ABANDON_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads the answer that the request names, or requests one, until it is final or has failed; all
/// within the time limit of one attempt.
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

/// Continues reading after what was already read.
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
        // The reasoning is needed to send it back with the answer.
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

/// Whether a later poll may succeed.
fn may_pass(error: &Error) -> bool {
    matches!(
        error,
        Error::Unreached { .. }
            | Error::Unavailable { .. }
            | Error::RateLimited { .. }
            | Error::Timeout { .. }
    )
}

/// Tells the provider that the answer is not wanted.
pub(super) async fn abandon(endpoint: &Endpoint, id: &str) -> Result<(), Error> {
    let tells = endpoint.below(Method::POST, &[id, "cancel"], &[]);
    let told = timeout(ABANDON_TIMEOUT, endpoint.response("", tells)).await;
    let told = told.unwrap_or_else(|_| Err(Error::unavailable("it did not answer in time")));
    told.map(drop)
}
