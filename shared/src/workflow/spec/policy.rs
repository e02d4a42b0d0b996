//! The policy of a leaf of any kind: retry, time limit, fallback and tolerance of failure.

use std::sync::LazyLock;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{NodeIx, Spec, TIME_MAX};
use crate::time::Span;
use crate::workflow::schema::{Object, maybe, object, whole};
use crate::workflow::validate::reader::{Members, Reader};
use crate::workflow::validate::tree::NodeAt;

/// The longest delay between two attempts.
const BACKOFF_MAX: Span = Span(Duration::from_mins(1));
/// The default delay before a second attempt.
const BACKOFF_DEFAULT: Span = Span(Duration::from_secs(1));
/// Largest number of attempts that a leaf may ask for.
const ATTEMPTS_MAX: u64 = 5;

/// The members of `retry`.
pub(in crate::workflow) static RETRY: LazyLock<Object> = LazyLock::new(|| {
    let on = RetryOn::ALL.map(RetryOn::as_str);
    object("Further attempts, each in a new session.", &["max_attempts"])
        .hinted("max_attempts", whole(1, ATTEMPTS_MAX, Value::Null), "write {\"max_attempts\": 3}")
        .hinted(
            "on",
            json!({"type": "array", "minItems": 1, "items": {"enum": on}, "default": ["failed", "empty"]}),
            "leave it out for [\"failed\", \"empty\"]",
        )
        .with("backoff", maybe("duration"))
        .with("backoff_factor", json!({"type": "number", "minimum": 1, "maximum": 10, "default": 2}))
});

/// The policy of a leaf of any kind.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Policy {
    /// How to retry.
    pub retry: Option<Retry>,
    /// The time limit of one attempt.
    pub timeout: Option<Span>,
    /// The node that runs instead after the last attempt failed.
    pub fallback: Option<NodeIx>,
    /// Whether its failure does not fail the enclosing node.
    pub continue_on_error: bool,
}

/// Further attempts of a leaf.
#[derive(Debug, Clone, PartialEq)]
pub struct Retry {
    /// Maximum number of attempts, including the first.
    pub max_attempts: u32,
    /// The ends after which to try again.
    pub on: Vec<RetryOn>,
    /// The delay before the second attempt.
    pub backoff: Span,
    /// The factor by which each further delay grows.
    pub backoff_factor: f64,
}

/// Ends of a leaf that another attempt may follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RetryOn {
    /// It failed.
    Failed,
    /// Its answer was empty.
    Empty,
    /// It used up its rounds.
    RoundLimit,
}

impl RetryOn {
    /// Every such end.
    pub const ALL: [Self; 3] = [Self::Failed, Self::Empty, Self::RoundLimit];

    /// The name in a spec.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Empty => "empty",
            Self::RoundLimit => "hit_round_limit",
        }
    }
}

impl Policy {
    /// Reads the members that every leaf has.
    pub(in crate::workflow) fn read(reader: &mut Reader<'_>, at: NodeAt<'_>) -> Self {
        let members = at.members;
        Self {
            retry: Retry::read(reader, members),
            timeout: reader.span(members, "timeout", TIME_MAX),
            continue_on_error: reader
                .flag(members, "continue_on_error")
                .unwrap_or_default(),
            fallback: Self::read_fallback(reader, at),
        }
    }

    fn read_fallback(reader: &mut Reader<'_>, at: NodeAt<'_>) -> Option<NodeIx> {
        let value = at.members.given("fallback")?;
        let pointer = at.members.pointer("fallback");
        if value.get("fallback").is_some_and(|own| !own.is_null()) {
            let message = "a fallback has a fallback";
            let hint = "a fallback cannot have a fallback: use `retry`, or a sequence";
            reader.problem(format!("{pointer}/fallback"), "fallback", message, hint);
        }
        reader.node(value, &pointer, at.below(0))
    }

    pub(super) fn write(&self, spec: &Spec, out: &mut Map<String, Value>) {
        if let Some(retry) = &self.retry {
            let on: Vec<_> = retry.on.iter().map(|on| on.as_str()).collect();
            out.insert(
                "retry".into(),
                json!({"max_attempts": retry.max_attempts, "on": on,
                       "backoff": retry.backoff, "backoff_factor": retry.backoff_factor}),
            );
        }
        if let Some(timeout) = self.timeout {
            out.insert("timeout".into(), json!(timeout));
        }
        if let Some(fallback) = self.fallback {
            out.insert("fallback".into(), spec.write(fallback));
        }
        if self.continue_on_error {
            out.insert("continue_on_error".into(), json!(true));
        }
    }
}

impl Retry {
    fn read(reader: &mut Reader<'_>, members: Members<'_>) -> Option<Self> {
        let pointer = members.pointer("retry");
        let members = reader.inner(members, "retry", &pointer, &RETRY)?;
        reader.required(members, "max_attempts");
        let max_attempts = reader.whole(members, "max_attempts", (1, ATTEMPTS_MAX));
        let on = RetryOn::read(reader, members);
        let backoff = match members.given("backoff") {
            // Unlike other durations, this one may be zero.
            Some(Value::Number(number)) if number.as_f64() == Some(0.0) => {
                Some(Span(Duration::ZERO))
            }
            Some(Value::String(text)) if text == "0ms" || text == "0s" => {
                Some(Span(Duration::ZERO))
            }
            _ => reader.span(members, "backoff", BACKOFF_MAX),
        };
        let factor = reader.number(members, "backoff_factor", (1.0, 10.0));
        Some(Self {
            max_attempts: max_attempts? as u32,
            on,
            backoff: backoff.unwrap_or(BACKOFF_DEFAULT),
            backoff_factor: factor.unwrap_or(2.0),
        })
    }
}

impl RetryOn {
    fn read(reader: &mut Reader<'_>, members: Members<'_>) -> Vec<Self> {
        let default = vec![Self::Failed, Self::Empty];
        let Some(words) = reader.texts(members, "on") else {
            return default;
        };
        let known = |word: &String| Self::ALL.into_iter().find(|one| one.as_str() == word);
        match words.iter().map(known).collect::<Option<Vec<_>>>() {
            Some(mut on) if !on.is_empty() => {
                on.sort_unstable();
                on.dedup();
                on
            }
            _ => {
                let known = Self::ALL.map(Self::as_str).join(", ");
                let message = format!("`on` does not consist of {known}");
                reader.member_problem(members, "on", "not_a_word", message);
                default
            }
        }
    }
}
