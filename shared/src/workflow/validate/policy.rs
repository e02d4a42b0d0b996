//! What holds for a leaf besides what it does, and conditions.

use std::time::Duration;

use serde_json::Value;

use super::reader::{Members, Reader, UseKind};
use crate::time::Span;
use crate::workflow::spec::{
    Budget, Condition, Continuation, Envelope, MAX_ROUNDS_DEFAULT, MAX_ROUNDS_MAX, NodeIx, Op,
    Policy, Ref, Retry, RetryOn,
};

/// The longest a run, a leaf or one pause may take.
pub(super) const TIME_MAX: Span = Span(Duration::from_hours(366 * 24));
/// The longest a pause between two attempts may be.
const BACKOFF_MAX: Span = Span(Duration::from_mins(1));
/// The pause before a second attempt unless the leaf says otherwise.
const BACKOFF_DEFAULT: Span = Span(Duration::from_secs(1));
/// Attempts that a leaf may ask for.
const ATTEMPTS_MAX: u64 = 5;
/// Further sends of one attempt that a leaf may ask for.
const CONTINUATIONS_MAX: u64 = 3;

impl Reader<'_> {
    /// The members that stand around a tree.
    pub(super) fn envelope(&mut self, members: Members<'_>) -> Envelope {
        self.only(
            members,
            &["name", "root", "input", "budget", "metadata", "timeout"],
        );
        let name = self.label(members, "name", "give the workflow a name");
        let input = self.text(members, "input");
        let budget = self.budget(members);
        let metadata = self.object(members, "metadata").cloned();
        let timeout = self.span(members, "timeout", TIME_MAX);
        Envelope {
            name: name.unwrap_or_default(),
            input: input.unwrap_or_default(),
            budget,
            metadata: metadata.unwrap_or_default(),
            timeout,
        }
    }

    fn budget(&mut self, members: Members<'_>) -> Option<Budget> {
        members.given("budget")?;
        let map = self.object(members, "budget")?;
        let pointer = members.pointer("budget");
        let members = Members { map, at: &pointer };
        self.only(members, &["max_tokens", "stop_at_remaining_pct"]);
        if !map.contains_key("max_tokens") {
            let hint = "write {\"max_tokens\": …}";
            self.problem(&*pointer, "missing", "`max_tokens` is missing", hint);
        }
        let max_tokens = self.whole(members, "max_tokens", (1, i64::MAX as u64));
        let pct = self.number(members, "stop_at_remaining_pct", (0.0, 100.0));
        Some(Budget {
            max_tokens: max_tokens?,
            stop_at_remaining_pct: pct.unwrap_or_default(),
        })
    }

    /// The policy of a leaf, without its fallback.
    pub(super) fn policy(&mut self, members: Members<'_>) -> Policy {
        Policy {
            retry: self.retry(members),
            timeout: self.span(members, "timeout", TIME_MAX),
            fallback: None,
            continue_on_error: self.flag(members, "continue_on_error").unwrap_or_default(),
        }
    }

    fn retry(&mut self, members: Members<'_>) -> Option<Retry> {
        members.given("retry")?;
        let map = self.object(members, "retry")?;
        let pointer = members.pointer("retry");
        let members = Members { map, at: &pointer };
        self.only(
            members,
            &["max_attempts", "on", "backoff", "backoff_factor"],
        );
        if !map.contains_key("max_attempts") {
            let hint = "write {\"max_attempts\": 3}";
            self.problem(&*pointer, "missing", "`max_attempts` is missing", hint);
        }
        let max_attempts = self.whole(members, "max_attempts", (1, ATTEMPTS_MAX));
        let mut on = vec![RetryOn::Failed, RetryOn::Empty];
        if let Some(words) = self.texts(members, "on") {
            let known: Vec<_> = RetryOn::ALL.iter().map(|one| one.as_str()).collect();
            let place = |word: &String| known.iter().position(|one| one == word);
            let read: Option<Vec<_>> = words.iter().map(place).collect();
            match read {
                Some(places) if !places.is_empty() => {
                    on = places
                        .into_iter()
                        .map(|place| RetryOn::ALL[place])
                        .collect();
                    on.sort_unstable();
                    on.dedup();
                }
                _ => {
                    let message = format!("`on` does not consist of {}", known.join(", "));
                    let hint = "leave it out for [\"failed\", \"empty\"]";
                    self.problem(members.pointer("on"), "not_a_word", message, hint);
                }
            }
        }
        let backoff = match members.given("backoff") {
            // No pause at all is fine here.
            Some(Value::Number(number)) if number.as_f64() == Some(0.0) => {
                Some(Span(Duration::ZERO))
            }
            Some(Value::String(text)) if text == "0ms" || text == "0s" => {
                Some(Span(Duration::ZERO))
            }
            _ => self.span(members, "backoff", BACKOFF_MAX),
        };
        let factor = self.number(members, "backoff_factor", (1.0, 10.0));
        Some(Retry {
            max_attempts: max_attempts? as u32,
            on,
            backoff: backoff.unwrap_or(BACKOFF_DEFAULT),
            backoff_factor: factor.unwrap_or(2.0),
        })
    }

    pub(super) fn continuation(&mut self, members: Members<'_>) -> Option<Continuation> {
        members.given("continuation")?;
        let map = self.object(members, "continuation")?;
        let pointer = members.pointer("continuation");
        let members = Members { map, at: &pointer };
        self.only(members, &["max", "extra_rounds", "gate"]);
        let max = self.whole(members, "max", (1, CONTINUATIONS_MAX));
        let rounds = self.whole(members, "extra_rounds", (1, MAX_ROUNDS_MAX.into()));
        let gate = self.word(members, "gate", &["todo_remaining", "always"]);
        Some(Continuation {
            max: max.unwrap_or(1) as u32,
            extra_rounds: rounds.map_or(MAX_ROUNDS_DEFAULT, |rounds| rounds as u32),
            needs_todo: gate != Some(1),
        })
    }

    pub(super) fn condition(
        &mut self,
        node: NodeIx,
        members: Members<'_>,
        key: &str,
        kind: UseKind,
    ) -> Option<Condition> {
        members.given(key)?;
        let map = self.object(members, key)?;
        let pointer = members.pointer(key);
        let members = Members { map, at: &pointer };
        self.only(members, &["ref", "op", "value"]);
        let hint = "write {\"ref\": \"node.key\", \"op\": \"eq\", \"value\": …}";
        let on = self
            .label(members, "ref", hint)
            .map(|text| Ref::parse(&text));
        if let Some(on) = &on {
            self.reads(node, &on.name, members.pointer("ref"), kind);
        }
        let words: Vec<_> = Op::ALL.iter().map(|op| op.as_str()).collect();
        let op = self.word(members, "op", &words);
        let op = match (op, map.contains_key("op")) {
            (Some(place), _) => Op::ALL[place],
            (None, true) => return None,
            (None, false) => Op::Truthy,
        };
        let value = map.get("value");
        let fault = match (op, value) {
            (Op::Eq | Op::Ne, None) => Some("`value` is missing"),
            (
                Op::In,
                None
                | Some(
                    Value::Null
                    | Value::Bool(_)
                    | Value::Number(_)
                    | Value::String(_)
                    | Value::Object(_),
                ),
            ) => Some("`value` is not a list"),
            (Op::Truthy | Op::Falsy, Some(_)) => Some("`value` has no meaning with this `op`"),
            (Op::Eq | Op::Ne | Op::In, Some(_)) | (Op::Truthy | Op::Falsy, None) => None,
        };
        if let Some(fault) = fault {
            self.problem(&*pointer, "condition", fault, hint);
        }
        Some(Condition {
            on: on?,
            op,
            value: value.cloned().unwrap_or_default(),
        })
    }
}
