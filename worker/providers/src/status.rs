//! Classifies the refusals of providers.
//!
//! | module | what it has |
//! |---|---|
//! | `meaning` | what refusals mean, as data |
//! | `refusal` | the forms in which providers refuse |
//! | `shown` | what may be shown of their words |
//! | `wait` | how long they ask to wait, where no header says so |

mod meaning;
mod refusal;
mod shown;
mod wait;

use std::time::Duration;

use mainspring_shared::retry::retry_after;
use mainspring_shared::time::Timestamp;
use mainspring_worker::llm::Error;
use reqwest::header::HeaderMap;

use self::meaning::meaning;

pub(crate) use self::meaning::Meaning;
pub(crate) use self::refusal::Refusal;
pub(crate) use self::shown::ProviderSecrets;
#[cfg(test)]
pub(crate) use self::shown::presentable;

/// How long the headers of a response ask us to wait.
pub(crate) fn header_wait(status: u16, headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    // OpenRouter: the time of the reset, whatever else.
    let reset = || text("x-ratelimit-reset").filter(|_| status == 429);
    retry_after(text, now).or_else(|| wait::until(reset()?, now))
}

/// The error for a status other than 2xx.
pub(crate) fn classify(status: u16, refusal: &Refusal, header: Option<Duration>) -> Error {
    let message = format!("status {status}: {}", refusal.message);
    let retry_after = header.or(refusal.wait);
    match known(Some(status), refusal, message.clone(), retry_after) {
        Some(error) => error,
        None => by_status(status, message, retry_after),
    }
}

/// What the words say.
fn known(
    status: Option<u16>,
    refusal: &Refusal,
    message: String,
    retry_after: Option<Duration>,
) -> Option<Error> {
    Some(match meaning(status, refusal)? {
        Meaning::Overflow => Error::ContextOverflow { message },
        Meaning::Filtered => Error::Refused { message },
        Meaning::Unpaid | Meaning::Key => Error::Auth { message },
        Meaning::Throttled => Error::RateLimited {
            message,
            retry_after,
        },
        // Some ask for a minute whatever the limit.
        Meaning::Daily => Error::RateLimited {
            message,
            retry_after: retry_after
                .filter(|wait| *wait > wait::OF_MINUTE)
                .or(Some(wait::DAILY)),
        },
        Meaning::Busy => Error::Unreached {
            message,
            retry_after,
        },
        Meaning::Sample => Error::bad(message),
        Meaning::Gone => Error::ModelGone { message },
        Meaning::Part => Error::InvalidRequest { message },
    })
}

fn by_status(status: u16, message: String, retry_after: Option<Duration>) -> Error {
    match status {
        401..=403 => Error::Auth { message },
        429 => Error::RateLimited {
            message,
            retry_after,
        },
        // It may have worked on the answer until the timeout.
        408 | 504 => Error::Unavailable {
            message,
            retry_after,
        },
        409 | 425 | 500..=599 => Error::Unreached {
            message,
            retry_after,
        },
        413 => Error::ContextOverflow { message },
        400..=499 => Error::InvalidRequest { message },
        // Redirects are not followed: they would send the key elsewhere.
        _ => Error::bad(message),
    }
}

/// The error for an error object inside an answer with status 200.
pub(crate) fn classify_inside(refusal: &Refusal) -> Error {
    let message = refusal.message.clone();
    let error = match refusal.status {
        Some(status) => classify(status, refusal, None),
        None => known(None, refusal, message, refusal.wait).unwrap_or_else(|| inside(refusal)),
    };
    match error {
        // The answer had begun.
        Error::Unreached {
            message,
            retry_after,
        } => Error::Unavailable {
            message,
            retry_after,
        },
        other => other,
    }
}

fn inside(refusal: &Refusal) -> Error {
    let message = refusal.message.clone();
    let retry_after = refusal.wait;
    if refusal.has(&["rate_limit", "rate limit", "too_many_requests"]) {
        Error::RateLimited {
            message,
            retry_after,
        }
    } else if refusal.has(&["authentication", "permission"]) {
        Error::Auth { message }
    } else if refusal.has(&["invalid_request", "invalid params", "invalid_argument"]) {
        Error::InvalidRequest { message }
    } else {
        // Overload, a server failure, or unknown: another attempt costs little.
        Error::Unavailable {
            message,
            retry_after,
        }
    }
}

#[cfg(test)]
mod tests;
