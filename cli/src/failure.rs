//! How commands fail: one exit code per kind, a message, and what to do next.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use mainspring_shared::error::{Class, Code};

/// Exit codes; part of what scripts rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Anything else.
    Failure = 1,
    /// The command or its settings make no sense.
    Usage = 2,
    /// What was named does not exist.
    NotFound = 3,
    /// It contradicts the present state.
    Conflict = 4,
    /// The key is missing or not allowed to.
    Unauthorised = 5,
    /// Something is away, or took too long.
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
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            next: None,
        }
    }

    /// With what to do next.
    #[must_use]
    pub(crate) fn next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }

    /// A failure that was said already, or that speaks for itself.
    pub(crate) fn silent(exit: Exit) -> Self {
        Self::new(exit, "")
    }

    /// Says it on stderr.
    pub(crate) fn report(&self) -> ExitCode {
        let mut text = String::new();
        if !self.message.is_empty() {
            let _ = writeln!(text, "error: {}", self.message);
        }
        if let Some(next) = &self.next {
            let _ = writeln!(text, "  {next}");
        }
        // Where stderr is gone, the exit code has to say it all.
        let _ = std::io::stderr().write_all(text.as_bytes());
        ExitCode::from(self.exit as u8)
    }
}

/// An error and its causes in one line.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}

/// The command or its settings make no sense.
pub(crate) fn usage(error: impl std::error::Error) -> Failure {
    Failure::new(Exit::Usage, causes(&error))
}

/// The same, with what to do next.
pub(crate) fn usage_text(message: impl Into<String>, next: impl Into<String>) -> Failure {
    Failure::new(Exit::Usage, message).next(next)
}

/// The exit code for a code of ours.
pub(crate) fn exit_of(code: Code) -> Exit {
    match code {
        Code::AuthMissing | Code::AuthForbidden => Exit::Unauthorised,
        _ => match code.class() {
            Class::Invalid => Exit::Usage,
            Class::NotFound => Exit::NotFound,
            Class::Conflict => Exit::Conflict,
            Class::Limit | Class::Unavailable => Exit::Unavailable,
            Class::Corrupt | Class::Bug => Exit::Failure,
        },
    }
}

/// What someone at a terminal does about a code: the part of its advice that is not for programs,
/// or the command that helps.
pub(crate) fn next_of(code: Code) -> String {
    match code {
        Code::SessionNotFound => "`mainspring sessions list` shows what exists".to_owned(),
        Code::SendNotFound => "`mainspring sends list` shows what exists".to_owned(),
        Code::StoreSchemaMissing => "run `mainspring migrate` against the same database".to_owned(),
        code => {
            let page = code.advice();
            let text = page.split_once("\n\n").map_or(page, |(_, text)| text);
            text.split("\n\n")
                .next()
                .unwrap_or_default()
                .trim()
                .replace('\n', " ")
        }
    }
}
