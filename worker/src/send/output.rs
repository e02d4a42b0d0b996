//! The value of an answer when an output schema was given: it is read from the text and checked,
//! and if it does not match, the model is asked again with the faults.

mod find;

pub(crate) use self::find::find as values_in;

use std::fmt::Write as _;
use std::sync::Arc;

use mainspring_shared::agent::{OutputFault, OutputSpec};
use mainspring_shared::error::{Code, Failure};
use mainspring_shared::id::SendId;
use mainspring_shared::message::{ContentPart, Message, NewMessage, Role, plain_text};
use mainspring_shared::send::machine::Answer;
use mainspring_shared::store::StartedSend;
use mainspring_shared::time::Clock;
use mainspring_shared::tool::schema::{Schema, is_heavy};
use serde_json::Value;

use crate::checks::off_thread;
use crate::llm::{Reply, json};

/// How often one send may ask for a better answer.
const REPAIRS_MAX: usize = 2;

/// Maximum characters of one fault: some repeat the whole value.
const FAULT_CHARS_MAX: usize = 400;

/// Maximum bytes of a schema that a correction repeats.
const REPEATED_BYTES_MAX: usize = 16 << 10;

/// Answers up to this many bytes are parsed inline, because that takes no noticeable time.
const SHORT_BYTES_MAX: usize = 16 << 10;

/// The output that is asked of the answers of one send.
#[derive(Debug)]
pub(crate) struct Output {
    /// The shape.
    pub(crate) spec: Arc<OutputSpec>,
    schema: Schema,
    /// Whether the schema is part of each request's text.
    pub(super) told: bool,
    repairs: usize,
    value: Option<Value>,
    correction: Option<String>,
}

impl Output {
    /// The output that this send asks for; its options take precedence over its agent. `messages`
    /// are the stored ones: they tell how often an earlier worker asked for a better answer.
    pub(crate) async fn of(
        clock: &dyn Clock,
        send: &StartedSend,
        messages: &[Arc<Message>],
    ) -> Result<Option<Self>, OutputFault> {
        let options = &send.record.options;
        let asked = options.output_schema.as_ref();
        let Some(asked) = asked.or(send.agent.output_schema.as_ref()) else {
            return Ok(None);
        };
        let read = if is_heavy(asked) {
            let asked = asked.clone();
            off_thread(clock, move || OutputSpec::read(&asked)).await
        } else {
            Some(OutputSpec::read(asked))
        };
        let (spec, schema) = read.unwrap_or_else(|| {
            Err(OutputFault {
                pointer: String::new(),
                detail: "could not be compiled in time".to_owned(),
            })
        })?;
        Ok(Some(Self {
            spec: Arc::new(spec),
            schema,
            told: false,
            repairs: repairs(messages, send.record.id),
            value: None,
            correction: None,
        }))
    }

    /// The schema that answers must match.
    pub(super) fn schema(&self) -> Schema {
        self.schema.clone()
    }

    /// Judges an answer that gave this value. If it does not match, the model is asked again as
    /// long as that is allowed and `more` rounds are left; after that the send fails.
    pub(super) fn check(
        &mut self,
        found: Result<Value, Fault>,
        answer: Answer,
        more: bool,
    ) -> Result<Answer, Failure> {
        self.value = None;
        self.correction = None;
        let cut = match answer {
            Answer::Final => false,
            Answer::Cut => true,
            Answer::Refused | Answer::Calls | Answer::Again | Answer::Part | Answer::Ended => {
                return Ok(answer);
            }
        };
        let fault = match found {
            Ok(value) => {
                self.value = Some(value);
                return Ok(answer);
            }
            Err(fault) => fault,
        };
        if self.repairs < REPAIRS_MAX && more {
            self.repairs += 1;
            self.correction = Some(self.correct(&fault, cut));
            return Ok(Answer::Again);
        }
        let cut = if cut {
            " (it was cut at its token limit)"
        } else {
            ""
        };
        let message = format!("{}{cut}", fault.said(" ", "; "));
        Err(Failure::new(fault.code(), message))
    }

    /// What the model is told after the round that is about to be stored.
    pub(super) fn correction(&mut self, round: i32) -> Option<NewMessage> {
        let text = self.correction.take()?;
        Some(NewMessage::user(vec![ContentPart::text(text)], round))
    }

    /// The value of the answer that was checked last.
    pub(super) fn take_value(&mut self) -> Option<Value> {
        self.value.take()
    }

    fn correct(&self, fault: &Fault, cut: bool) -> String {
        let mut text = String::new();
        if cut {
            text.push_str("Your answer reached its token limit and was cut: be brief.\n");
        }
        let _ = write!(
            text,
            "{}\nAnswer again with the complete JSON value and nothing else.",
            capitalised(&fault.said("\n- ", "\n- "))
        );
        let schema = self.spec.schema.to_string();
        if !self.told && schema.len() <= REPEATED_BYTES_MAX {
            let _ = write!(text, " It has to fit this JSON Schema:\n{schema}");
        }
        text
    }
}

/// How often the model was asked for a better answer. Only a correction belongs to the same round
/// as the answer before it.
fn repairs(messages: &[Arc<Message>], send: SendId) -> usize {
    let corrects = |pair: &&[Arc<Message>]| {
        let (answer, next) = (&pair[0], &pair[1]);
        let ours = answer.send_id == send && next.send_id == send;
        ours && answer.role == Role::Assistant
            && answer.tool_calls.is_empty()
            && next.role == Role::User
            && next.round == answer.round
    };
    messages.windows(2).filter(corrects).count()
}

/// Why an answer has no value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Fault {
    NoJson,
    Broken(String),
    Mismatch(Vec<String>),
}

impl Fault {
    fn code(&self) -> Code {
        match self {
            Self::NoJson => Code::OutputNoJson,
            Self::Broken(_) => Code::OutputInvalidJson,
            Self::Mismatch(_) => Code::OutputSchemaMismatch,
        }
    }

    /// Describes what is wrong. Of several faults, `before` precedes the first and `between` the
    /// others.
    fn said(&self, before: &str, between: &str) -> String {
        match self {
            Self::NoJson => "the answer contains no JSON value".to_owned(),
            Self::Broken(fault) => {
                let fault = shortened(fault);
                format!("the JSON in the answer cannot be read: {fault}")
            }
            Self::Mismatch(faults) => {
                let faults: Vec<_> = faults.iter().map(|fault| shortened(fault)).collect();
                let faults = faults.join(between);
                format!("the answer does not match the JSON Schema:{before}{faults}")
            }
        }
    }
}

fn shortened(fault: &str) -> String {
    match fault.char_indices().nth(FAULT_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &fault[..at]),
        None => fault.to_owned(),
    }
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}

/// The value of an answer. A large one is parsed on a separate thread, so as not to block the
/// runtime.
pub(super) async fn read(
    clock: &dyn Clock,
    reply: &Reply,
    schema: &Schema,
) -> Result<Value, Fault> {
    let text = plain_text(&reply.content);
    if text.len() <= SHORT_BYTES_MAX {
        let found = find::find(&text);
        if found.values.iter().all(|value| schema.is_small_for(value)) {
            return fitting(found, schema);
        }
    }
    let schema = schema.clone();
    let read = off_thread(clock, move || fitting(find::find(&text), &schema)).await;
    read.unwrap_or_else(|| {
        Err(Fault::Mismatch(vec![
            "it could not be checked in time".into(),
        ]))
    })
}

/// The last value that matches, since models correct themselves further down; if none does, the
/// faults of the first value.
fn fitting(found: find::Found, schema: &Schema) -> Result<Value, Fault> {
    let (mut faults, mut fits) = (None, None);
    for value in found.values {
        let value = json::clean_value(value);
        let wrong = schema.faults(&value);
        if wrong.is_empty() {
            fits = Some(value);
        } else {
            faults.get_or_insert(wrong);
        }
    }
    if let Some(value) = fits {
        return Ok(value);
    }
    Err(match (faults, found.broken) {
        (Some(faults), _) => Fault::Mismatch(faults),
        (None, Some(broken)) => Fault::Broken(broken),
        (None, None) => Fault::NoJson,
    })
}

#[cfg(test)]
mod tests {
    use mainspring_shared::message::ToolCall;
    use mainspring_shared::time::Timestamp;
    use serde_json::json;

    use super::*;
    fn output() -> Output {
        let asked = json!({
            "type": "object",
            "required": ["n"],
            "properties": {"n": {"type": "integer"}},
        });
        let (spec, schema) = OutputSpec::read(&asked).expect("a schema");
        Output {
            spec: Arc::new(spec),
            schema,
            told: true,
            repairs: 0,
            value: None,
            correction: None,
        }
    }

    fn said(text: &str) -> Result<Value, Fault> {
        fitting(find::find(text), &output().schema)
    }

    #[test]
    fn a_value_that_fits_is_the_answers() {
        let mut output = output();
        let answer = output.check(said("As in [1]: {\"n\": 2.0}"), Answer::Final, true);
        assert_eq!(answer, Ok(Answer::Final));
        assert_eq!(output.take_value(), Some(json!({"n": 2})));
        assert_eq!(output.take_value(), None);
        assert_eq!(output.correction(0), None);
    }

    #[test]
    fn of_several_values_that_fit_the_last_is_the_answers() {
        let text = "The old value was {\"n\": 1}; correct is {\"n\": 2}, not {\"m\": 3}.";
        assert_eq!(said(text), Ok(json!({"n": 2})));
    }

    #[test]
    fn each_fault_has_its_code_and_tells_what_is_wrong() {
        for (text, code, part) in [
            ("no", Code::OutputNoJson, "no JSON"),
            ("{\"n\" 1}", Code::OutputInvalidJson, "expected `:`"),
            ("{\"n\": \"1\"}", Code::OutputSchemaMismatch, "/n: "),
            ("[1] or [2]", Code::OutputSchemaMismatch, "[1] is not"),
        ] {
            let mut output = output();
            for round in 0..2 {
                let answer = output.check(said(text), Answer::Final, true);
                assert_eq!(answer, Ok(Answer::Again), "{text}");
                let told = output.correction(round).expect("a correction");
                let told = plain_text(&told.content);
                assert!(told.contains(part) && !told.contains("required"), "{told}");
            }
            let failure = output.check(said(text), Answer::Final, true);
            let failure = failure.expect_err("asked twice");
            assert_eq!(failure.code, code);
            assert!(failure.message.contains(part), "{}", failure.message);
        }
    }

    #[test]
    fn nothing_is_asked_again_without_a_round_for_it() {
        let failure = output().check(said("no"), Answer::Cut, false);
        let failure = failure.expect_err("no more rounds");
        assert!(failure.message.contains("cut"), "{}", failure.message);
    }

    #[test]
    fn only_final_answers_are_checked() {
        let mut output = output();
        for answer in [Answer::Calls, Answer::Refused] {
            assert_eq!(output.check(said("no"), answer, true), Ok(answer));
        }
    }

    #[test]
    fn a_model_that_has_not_read_the_schema_is_told_it_with_the_correction() {
        let mut output = output();
        output.told = false;
        let answer = output.check(said("{\"n\": 1"), Answer::Cut, true);
        assert_eq!(answer, Ok(Answer::Again));
        let told = output.correction(0).expect("a correction");
        let told = plain_text(&told.content);
        assert!(
            told.contains("brief") && told.contains("\"required\""),
            "{told}"
        );
    }

    #[test]
    fn a_long_fault_is_told_in_part() {
        let fault = Fault::Mismatch(vec!["é".repeat(1000)]);
        assert!(fault.said(" ", "; ").chars().count() < 500);
    }

    #[test]
    fn corrections_are_counted_from_the_transcript() {
        let send = SendId(uuid::Uuid::nil());
        let other = SendId(uuid::Uuid::max());
        let call = ToolCall::new("c", "t", json!({}));
        let said = [
            (other, Role::Assistant, 0, false),
            (send, Role::User, 0, false),
            (send, Role::Assistant, 0, true),
            (send, Role::Tool, 0, false),
            (send, Role::Assistant, 1, false),
            (send, Role::User, 1, false),
            (send, Role::Assistant, 2, false),
            (send, Role::User, 3, false),
            (send, Role::Assistant, 3, false),
            (send, Role::User, 3, false),
        ];
        let messages: Vec<_> = (1..)
            .zip(said)
            .map(|(seq, (send, role, round, calls))| {
                let new = NewMessage {
                    role,
                    tool_calls: calls.then(|| call.clone()).into_iter().collect(),
                    ..NewMessage::user(vec![ContentPart::text("x")], round)
                };
                Arc::new(new.at(seq, send, Timestamp(0), 1))
            })
            .collect();
        assert_eq!(repairs(&messages, send), 2);
        assert_eq!(repairs(&messages, other), 0);
    }
}
