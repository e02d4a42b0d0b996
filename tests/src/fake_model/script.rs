//! The directives that tell the server what to do.

use std::str::FromStr;
use std::time::Duration;

use serde_json::Value;

use super::directive;

/// Directives, each written `[[NAME ARGUMENTS]]` anywhere in a text. TIMES, where allowed, limits
/// the directive to that many first attempts; an attempt is a request with the same session label,
/// last user text and round.
///
/// | directive | does |
/// |---|---|
/// | `[[session MARK]]`, `[[send MARK]]` | labels the ledger entry; `session` also works in the system prompt |
/// | `[[say TEXT]]` | answers this |
/// | `[[reason TEXT]]` | thinks this first |
/// | `[[tool NAME {json}]]` | calls a tool; several make one answer with several calls |
/// | `[[rounds N]]` | calls the tools in the first N rounds instead of one |
/// | `[[delay 50ms]]` | waits before the headers |
/// | `[[stream 20x10ms]]` | at most this many chunks of text, this far apart; by default 4 without a pause |
/// | `[[fail 429 TIMES 2s]]` | answers with this status, and a `Retry-After` if a time is given |
/// | `[[hang 30s TIMES]]` | stays silent this long before the headers |
/// | `[[silent 30s TIMES]]` | stays silent this long after the first chunk |
/// | `[[cut 3 TIMES]]` | breaks the connection after this many chunks |
/// | `[[error TYPE TIMES]]` | ends the stream with an error object of this type |
/// | `[[garbage TIMES]]` | answers with bytes of no protocol |
/// | `[[badutf8]]` | puts a byte that is not UTF-8 after the text |
/// | `[[split]]` | sends every byte in a write of its own |
/// | `[[length]]`, `[[refuse]]` | ends for this reason |
/// | `[[nousage]]` | reports no usage |
/// | `[[bounded]]` | says no more words than the request allows tokens, and ends for that reason |
#[derive(Debug, Clone, PartialEq, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a directive of its own"
)]
pub struct Script {
    pub(super) session: Option<String>,
    pub(super) send: Option<String>,
    pub(super) say: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) tools: Vec<(String, Value)>,
    pub(super) rounds: Option<usize>,
    pub(super) delay: Option<Duration>,
    pub(super) stream: Option<(usize, Duration)>,
    pub(super) fail: Option<Limited<Fail>>,
    pub(super) hang: Option<Limited<Duration>>,
    pub(super) silent: Option<Limited<Duration>>,
    pub(super) cut: Option<Limited<usize>>,
    pub(super) error: Option<Limited<String>>,
    pub(super) garbage: Option<Limited<()>>,
    pub(super) badutf8: bool,
    pub(super) split: bool,
    pub(super) length: bool,
    pub(super) refuse: bool,
    pub(super) nousage: bool,
    pub(super) bounded: bool,
}

/// A refusal with an HTTP status.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fail {
    pub(super) status: u16,
    pub(super) retry_after: Option<Duration>,
}

/// A directive that applies to the first attempts only, or to all.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Limited<T> {
    pub(super) what: T,
    pub(super) times: Option<u32>,
}

impl<T> Limited<T> {
    /// The directive, if it applies to `attempt`, counted from 1.
    pub(super) fn at(&self, attempt: u32) -> Option<&T> {
        self.times
            .is_none_or(|times| attempt <= times)
            .then_some(&self.what)
    }
}

/// A directive that is unknown or has invalid arguments.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("[[{directive}]] is not a directive")]
pub struct ScriptError {
    /// The directive without its brackets.
    pub directive: String,
}

impl FromStr for Script {
    type Err = ScriptError;

    fn from_str(text: &str) -> Result<Self, ScriptError> {
        let mut script = Self::default();
        let mut rest = text;
        while let Some(at) = rest.find("[[") {
            rest = directive::read(&mut script, &rest[at + 2..])?;
        }
        Ok(script)
    }
}

impl Script {
    /// This script, with `default` for the directives it does not have.
    pub(super) fn over(self, default: Self) -> Self {
        Self {
            session: self.session.or(default.session),
            send: self.send.or(default.send),
            say: self.say.or(default.say),
            reason: self.reason.or(default.reason),
            tools: if self.tools.is_empty() {
                default.tools
            } else {
                self.tools
            },
            rounds: self.rounds.or(default.rounds),
            delay: self.delay.or(default.delay),
            stream: self.stream.or(default.stream),
            fail: self.fail.or(default.fail),
            hang: self.hang.or(default.hang),
            silent: self.silent.or(default.silent),
            cut: self.cut.or(default.cut),
            error: self.error.or(default.error),
            garbage: self.garbage.or(default.garbage),
            badutf8: self.badutf8 || default.badutf8,
            split: self.split || default.split,
            length: self.length || default.length,
            refuse: self.refuse || default.refuse,
            nousage: self.nousage || default.nousage,
            bounded: self.bounded || default.bounded,
        }
    }
}
