//! How commands fail: an exit code for each kind of failure, a message, and what to do next.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use mainspring_shared::error::{Class, Code};
use serde_json::{Value, json};

use crate::args::Format;

/// Exit codes. Scripts rely on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Any other failure.
    Failure = 1,
    /// The command or its settings are invalid.
    Usage = 2,
    /// Something named in the command does not exist.
    NotFound = 3,
    /// The command conflicts with the current state.
    Conflict = 4,
    /// The key is missing or lacks the permission.
    Unauthorised = 5,
    /// Something is unavailable, or took too long.
    Unavailable = 6,
    /// The send failed.
    SendFailed = 7,
    /// The send was cancelled.
    SendCancelled = 8,
}

/// A failed command.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
    pub(crate) next: Option<String>,
    /// The problem document for programs: the server's, or one made here.
    problem: Box<Value>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            next: None,
            problem: Box::new(Value::Null),
        }
    }

    /// Adds one of our error codes, for programs.
    #[must_use]
    pub(crate) fn code(mut self, code: Code) -> Self {
        *self.problem = json!({
            "type": format!("/errors/{code}"), "code": code, "retryable": code.retryable(),
        });
        self
    }

    /// Adds the problem document that a server returned.
    #[must_use]
    pub(crate) fn problem(mut self, document: Value) -> Self {
        *self.problem = document;
        self
    }

    /// Adds what to do next.
    #[must_use]
    pub(crate) fn next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }

    /// Prefixes the message with its subject.
    #[must_use]
    pub(crate) fn about(mut self, what: &impl std::fmt::Display) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// A failure that was already reported, or that needs no message.
    pub(crate) fn silent(exit: Exit) -> Self {
        Self::new(exit, "")
    }

    /// Reports it on stderr: as lines for people, or as one line of JSON for programs.
    pub(crate) fn report(&self, format: Format) -> ExitCode {
        let text = match format {
            Format::Table => self.lines(),
            Format::Json | Format::Jsonl if self.message.is_empty() => String::new(),
            Format::Json | Format::Jsonl => format!("{}\n", self.document()),
        };
        // If stderr is closed, only the exit code is left to report it.
        let _ = std::io::stderr().write_all(text.as_bytes());
        ExitCode::from(self.exit as u8)
    }

    fn lines(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        if !self.message.is_empty() {
            let _ = writeln!(text, "error: {}", self.message);
        }
        if let Some(next) = &self.next {
            let _ = writeln!(text, "  {next}");
        }
        text
    }

    /// The problem document, with the exit code and what to do next.
    fn document(&self) -> Value {
        let mut document = match &*self.problem {
            Value::Object(members) => Value::Object(members.clone()),
            _ => json!({ "type": "about:blank" }),
        };
        if document["detail"].is_null() {
            document["detail"] = json!(self.message);
        }
        document["exit_code"] = json!(self.exit as u8);
        if let Some(next) = &self.next {
            document["next"] = json!(next);
        }
        document
    }
}

/// An error and its causes on one line.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let said = cause.to_string();
        // Drivers repeat the message of their cause.
        if !text.contains(&said) {
            let _ = write!(text, ": {said}");
        }
        source = cause.source();
    }
    text
}

/// The command or its settings are invalid.
pub(crate) fn usage(error: impl std::error::Error) -> Failure {
    Failure::new(Exit::Usage, causes(&error))
}

/// The same, with what to do next.
pub(crate) fn usage_text(message: impl Into<String>, next: impl Into<String>) -> Failure {
    Failure::new(Exit::Usage, message).next(next)
}

/// The exit code for one of our error codes.
pub(crate) fn exit_of(code: Code) -> Exit {
    match code {
        Code::AuthMissing | Code::AuthInvalid | Code::AuthForbidden | Code::AuthBinding => {
            Exit::Unauthorised
        }
        _ => match code.class() {
            Class::Invalid => Exit::Usage,
            Class::NotFound => Exit::NotFound,
            Class::Conflict => Exit::Conflict,
            Class::Limit | Class::Unavailable => Exit::Unavailable,
            Class::Corrupt | Class::Bug => Exit::Failure,
        },
    }
}

/// What a user at a terminal can do about an error code: the command that helps, or the part of the
/// code's advice that is not for programs.
pub(crate) fn next_of(code: Code) -> String {
    let command = match code {
        Code::SessionNotFound => "`mainspring sessions list` shows what exists",
        Code::AgentNotFound => "`mainspring agents list` shows what exists",
        Code::SendNotFound => "`mainspring sends list` shows what exists",
        Code::MemoryNotFound => "`mainspring memories list` shows what exists",
        Code::TimerNotFound => "`mainspring timers list` shows what exists",
        Code::RunNotFound => "`mainspring runs list` shows what exists",
        Code::WorkflowNodeNotFound => {
            "`mainspring runs nodes RUN` lists the nodes that were \
                                       reached"
        }
        Code::AuthMissing => "set MAINSPRING_API_KEY to a key from `mainspring keys create`",
        Code::AuthInvalid => {
            "MAINSPRING_API_KEY is not accepted; `mainspring keys list` shows its state"
        }
        Code::KeyNotFound => "`mainspring keys list` shows what exists",
        Code::WebhookNotFound => "`mainspring webhooks list` shows what exists",
        Code::WebhookDeliveryNotFound => "`mainspring webhooks deliveries ID` shows what exists",
        Code::ProviderKeyNotFound => "`mainspring provider-keys list` shows what exists",
        Code::SecretNotFound => "`mainspring secrets list` shows what exists",
        Code::WebhookNoKey | Code::ProviderKeyNoSeal | Code::SecretNoSeal => {
            "set MAINSPRING_SECRETS_KEY on schedulers and workers to the output of `openssl rand \
             -base64 32`"
        }
        Code::TenantNotFound => "`mainspring tenants list` shows what exists",
        Code::SkillNotFound => "`mainspring skills list` shows what exists",
        Code::BlobNotFound => "no stored blob has this SHA-256",
        Code::SessionClosed => "`mainspring sessions reopen ID` lets it accept sends again",
        Code::SessionNotWaiting => {
            "none of its sends waits for recovery; `mainspring sends list --session ID` lists them"
        }
        Code::SendNotCancellable => {
            "it had already ended; `mainspring sends show ID` shows its result"
        }
        Code::TimerNotArmed => "`mainspring timers show ID` shows its state",
        Code::RequestInvalid => "nothing was changed; the same request will fail again",
        Code::RequestNotFound => {
            "check that this is the address of a Mainspring scheduler of the same version"
        }
        Code::StoreSchemaMissing => "run `mainspring migrate` against the same database",
        Code::StoreDenied => {
            "correct the user, password and database name in the URL, or the user's privileges"
        }
        code => return advice(code),
    };
    command.to_owned()
}

/// The first paragraph of a code's documentation page.
fn advice(code: Code) -> String {
    let page = code.advice();
    let text = page.split_once("\n\n").map_or(page, |(_, text)| text);
    let first = text.split("\n\n").next().unwrap_or_default();
    first.trim().replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_at_a_terminal_is_sent_to_a_path_of_the_api() {
        for code in Code::ALL {
            let next = next_of(*code);
            assert!(!next.contains("/v1/"), "{code}: {next}");
            assert!(!next.is_empty() && !next.contains('\n'), "{code}: {next}");
        }
    }

    #[test]
    fn a_program_reads_a_failure_as_a_problem_document() {
        let failure = Failure::new(Exit::Conflict, "no: (send.not_found)")
            .code(Code::SendNotFound)
            .next("look");
        assert_eq!(
            failure.document(),
            json!({
                "type": "/errors/send.not_found", "code": "send.not_found", "retryable": false,
                "detail": "no: (send.not_found)", "exit_code": 4, "next": "look",
            })
        );
        let server = json!({ "type": "/errors/x", "detail": "theirs", "status": 404 });
        let failure = Failure::new(Exit::NotFound, "ours").problem(server);
        assert_eq!(
            failure.document(),
            json!({ "type": "/errors/x", "detail": "theirs", "status": 404, "exit_code": 3 })
        );
    }

    #[test]
    fn what_a_cause_repeats_is_said_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("refused: wrong password at line 3")]
        struct Outer(#[source] Inner);
        #[derive(Debug, thiserror::Error)]
        #[error("wrong password")]
        struct Inner;
        assert_eq!(causes(&Outer(Inner)), "refused: wrong password at line 3");
    }
}
