//! The ways an attempt can fail, whether to retry, and what the model is told.

use std::error::Error;
use std::io;
use std::time::Duration;

use mainspring_shared::error::Code;
use mainspring_shared::retry::retry_after;
use mainspring_shared::secrets::Secrets;
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::Repeat;
use tokio::time::timeout;

use super::answer::Body;
use super::dns::Nowhere;
use mainspring_worker::tool::ToolError;

/// How long to wait for the body of an error; the status alone says enough.
const SAID_TIMEOUT: Duration = Duration::from_secs(5);

/// Why an attempt gave no result.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The call is not allowed or cannot be made.
    Refused(String),
    /// No connection was established: the other side has seen nothing.
    Unreached(String),
    /// The request was sent, but no complete response came.
    Broken {
        /// What happened.
        what: String,
        /// Whether it timed out.
        slow: bool,
    },
    /// A success that is not what was asked for.
    Unfit(String),
    /// A response that is not a success.
    Answered {
        status: u16,
        /// Its body, shortened.
        said: String,
        /// How long the other side asks us to wait before retrying.
        retry_after: Option<Duration>,
    },
}

impl Fault {
    /// The fault as it may be logged: without what the other side said, which could be anything.
    pub(super) fn logged(&self) -> String {
        match self {
            Self::Refused(what)
            | Self::Unreached(what)
            | Self::Unfit(what)
            | Self::Broken { what, .. } => what.clone(),
            Self::Answered { status, .. } => format!("answered {status}"),
        }
    }

    /// The fault of a connection error. It shows no addresses, which only concern the operator.
    pub(crate) fn of(error: &reqwest::Error) -> Self {
        if let Some(nowhere) = cause::<Nowhere>(error) {
            return Self::Unreached(format!("there is no connection to it: {nowhere}"));
        }
        let kind = cause::<io::Error>(error).map(io::Error::kind);
        let kind = kind.filter(|kind| *kind != io::ErrorKind::Other);
        let detail = kind.map_or_else(String::new, |kind| format!(": {kind}"));
        if error.is_connect() && error.is_timeout() {
            Self::Unreached("connecting took too long".to_owned())
        } else if error.is_connect() {
            Self::Unreached(format!("there is no connection to it{detail}"))
        } else if error.is_builder() {
            Self::Refused("its URL cannot be called".to_owned())
        } else {
            Self::Broken {
                what: format!("the connection to it broke{detail}"),
                slow: false,
            }
        }
    }

    /// What happened, in words.
    pub(crate) fn what(self) -> String {
        match self {
            Self::Refused(what)
            | Self::Unreached(what)
            | Self::Unfit(what)
            | Self::Broken { what, .. } => what,
            Self::Answered { status, .. } => format!("answered {status}"),
        }
    }

    /// Whether another attempt is allowed and may succeed.
    pub(super) fn again(&self, repeat: Repeat) -> bool {
        let worth = match self {
            Self::Refused(_) | Self::Unfit(_) => false,
            Self::Unreached(_) | Self::Broken { .. } => true,
            Self::Answered { status, .. } => matches!(status, 429 | 500..=599),
        };
        worth && repeat != Repeat::Once
    }

    /// Whether an API that knows nothing of tools may answer something else next time: it is busy, or what is before it
    /// has lost it. Other errors of such a server are rarely over in a second.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Answered { status, .. } => matches!(status, 429 | 502..=504),
            Self::Refused(_) | Self::Unreached(_) | Self::Unfit(_) | Self::Broken { .. } => true,
        }
    }

    /// The fault of a response that is not a success.
    pub(super) async fn answered(
        response: reqwest::Response,
        secrets: &Secrets,
        now: Timestamp,
    ) -> Self {
        let status = response.status().as_u16();
        let headers = response.headers();
        let header = |name: &str| headers.get(name)?.to_str().ok();
        let asked = retry_after(header, now).filter(|_| matches!(status, 429 | 503));
        let said = timeout(SAID_TIMEOUT, Body::said(response, secrets)).await;
        Self::Answered {
            status,
            said: said.unwrap_or_default(),
            retry_after: asked,
        }
    }

    /// How long the other side asks us to wait before retrying.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Answered { retry_after, .. } => *retry_after,
            Self::Refused(_) | Self::Unreached(_) | Self::Unfit(_) | Self::Broken { .. } => None,
        }
    }

    fn code(&self, repeat: Repeat) -> Code {
        let in_doubt = match self {
            Self::Refused(_) | Self::Unreached(_) | Self::Unfit(_) => false,
            Self::Broken { .. } => true,
            Self::Answered { status, .. } => !matches!(status, 400..=499),
        };
        if in_doubt && repeat == Repeat::Once {
            Code::ToolUnknownOutcome
        } else if matches!(self, Self::Broken { slow: true, .. }) {
            Code::ToolTimeout
        } else {
            Code::ToolFailed
        }
    }

    /// What the model is told when no further attempt is made.
    pub(super) fn reply(self, repeat: Repeat, attempts: u32) -> ToolError {
        let code = self.code(repeat);
        let mut message = match self {
            Self::Refused(what) => format!("the tool cannot be called: {what}"),
            Self::Unreached(what) => format!("the tool was not reached: {what}"),
            Self::Unfit(what) => format!("the tool answered, but {what}"),
            Self::Broken { what, .. } => format!("the tool gave no answer: {what}"),
            Self::Answered { status, said, .. } => answered(status, &said),
        };
        if attempts > 1 {
            message = format!("{message} ({attempts} attempts)");
        }
        if code == Code::ToolUnknownOutcome {
            message.push_str("; whether it took effect is not known");
        }
        ToolError::Reply { code, message }
    }
}

fn answered(status: u16, said: &str) -> String {
    let note = if matches!(status, 300..=399) {
        ", a redirect, which is not followed"
    } else {
        ""
    };
    if said.is_empty() {
        format!("the tool answered {status}{note}")
    } else {
        format!("the tool answered {status}{note}: {said}")
    }
}

fn cause<E: Error + 'static>(error: &reqwest::Error) -> Option<&E> {
    let mut source = error.source();
    while let Some(inner) = source {
        if let Some(found) = inner.downcast_ref::<E>() {
            return Some(found);
        }
        source = inner.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(fault: Fault, repeat: Repeat) -> Code {
        match fault.reply(repeat, 1) {
            ToolError::Reply { code, .. } => code,
            other => panic!("{other}"),
        }
    }

    fn broken(slow: bool) -> Fault {
        let what = "broken".to_owned();
        Fault::Broken { what, slow }
    }

    fn status(status: u16) -> Fault {
        Fault::Answered {
            status,
            said: String::new(),
            retry_after: None,
        }
    }

    #[test]
    fn only_what_may_have_happened_is_unknown_and_only_to_a_tool_that_runs_once() {
        let failed = Code::ToolFailed;
        let unknown = Code::ToolUnknownOutcome;
        let faults = || {
            [
                (Fault::Refused(String::new()), failed, failed),
                (Fault::Unreached(String::new()), failed, failed),
                (broken(false), unknown, failed),
                (broken(true), unknown, Code::ToolTimeout),
                (status(303), unknown, failed),
                (status(404), failed, failed),
                (status(429), failed, failed),
                (status(500), unknown, failed),
                (status(503), unknown, failed),
            ]
        };
        for repeat in Repeat::ALL {
            for (fault, once, other) in faults() {
                let expected = if repeat == Repeat::Once { once } else { other };
                let shown = format!("{fault:?} {repeat:?}");
                assert!(repeat != Repeat::Once || !fault.again(repeat), "{shown}");
                assert_eq!(code(fault, repeat), expected, "{shown}");
            }
        }
    }

    #[test]
    fn attempts_are_repeated_where_that_can_help() {
        for repeat in [Repeat::Safe, Repeat::Keyed] {
            for fault in [Fault::Unreached(String::new()), broken(false), broken(true)] {
                assert!(fault.again(repeat), "{fault:?}");
            }
            for (code, again) in [
                (302, false),
                (400, false),
                (429, true),
                (500, true),
                (599, true),
            ] {
                assert_eq!(status(code).again(repeat), again, "{code}");
            }
            assert!(!Fault::Refused(String::new()).again(repeat));
        }
    }
}
