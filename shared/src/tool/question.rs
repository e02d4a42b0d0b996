//! Questions to people: which answers are valid, and what happens if nobody answers.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::call::{Approval, CallRecord, CallResult};
use crate::error::Code;

/// The tool that asks a person.
pub const ASK_PERSON: &str = "ask_person";

/// The tool that delegates a task to a new agent.
pub const SPAWN_AGENT: &str = "spawn_agent";

/// The tool that runs a workflow.
pub const CREATE_WORKFLOW: &str = "create_workflow";

/// The kind of answer that a question asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QuestionKind {
    /// Free text.
    #[default]
    Text,
    /// One of the options.
    Choice,
    /// Yes or no.
    Confirm,
}

/// A question asked by a model.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Question {
    /// The question.
    pub question: String,
    /// The kind of answer.
    #[serde(default)]
    pub kind: QuestionKind,
    /// The valid answers; only suggestions if the kind is `text`.
    #[serde(default)]
    pub options: Vec<String>,
    /// How long to wait for an answer; the workers' configured time when absent.
    #[serde(default)]
    pub expires_seconds: Option<u32>,
    /// The answer if nobody answers in time.
    #[serde(default)]
    pub default: Option<String>,
}

impl Question {
    /// The question that a stored call asks.
    pub fn of(name: &str, arguments: &Value) -> Option<Self> {
        (name == ASK_PERSON).then(|| Self::read(arguments))?
    }

    /// The question in the arguments of a call that asks one.
    pub fn read(arguments: &Value) -> Option<Self> {
        serde_json::from_value(arguments.clone()).ok()
    }

    /// How long to wait for an answer, if the question says so.
    pub fn expires(&self) -> Option<Duration> {
        let seconds = self.expires_seconds?;
        Some(Duration::from_secs(seconds.into()))
    }

    /// What is wrong with the question itself.
    pub fn fault(&self) -> Option<&'static str> {
        match self.kind {
            QuestionKind::Choice if self.options.is_empty() => {
                Some("a question of the kind `choice` has `options`")
            }
            QuestionKind::Text | QuestionKind::Choice | QuestionKind::Confirm => {
                let default = self.default.as_ref()?;
                let answer = Value::String(default.clone());
                let fits = self.answer(&answer).is_ok();
                (!fits).then_some("`default` is not a valid answer to the question")
            }
        }
    }

    /// The answer as text, or what is wrong with it.
    pub fn answer(&self, given: &Value) -> Result<String, String> {
        match (self.kind, given) {
            (QuestionKind::Text, Value::String(text)) if !text.trim().is_empty() => {
                Ok(text.clone())
            }
            (QuestionKind::Text, Value::String(_) | Value::Null) => {
                Err("the answer is empty".to_owned())
            }
            // A program may answer with structured data: the model reads it as JSON.
            (QuestionKind::Text, other) => Ok(other.to_string()),
            (QuestionKind::Choice, Value::String(text)) if self.options.contains(text) => {
                Ok(text.clone())
            }
            (QuestionKind::Choice, _) => {
                let options = self.options.join(", ");
                Err(format!("the answer is one of: {options}"))
            }
            (QuestionKind::Confirm, Value::Bool(yes)) => {
                Ok(if *yes { "yes" } else { "no" }.to_owned())
            }
            (QuestionKind::Confirm, Value::String(text))
                if ["yes", "no"].contains(&text.as_str()) =>
            {
                Ok(text.clone())
            }
            (QuestionKind::Confirm, _) => Err("the answer is yes or no".to_owned()),
        }
    }
}

/// The result of a call that nobody outside answered in time.
pub fn expired(call: &CallRecord) -> CallResult {
    if call.approval == Approval::Asked {
        let text = "error: nobody approved this call in time; it was not made";
        return CallResult::error(Code::ToolDenied, text);
    }
    match Question::of(&call.name, &call.arguments) {
        Some(Question {
            default: Some(default),
            ..
        }) => CallResult::text(format!(
            "Nobody answered in time; continue with the default that you gave: {default}"
        )),
        Some(_) => {
            let text = "error: nobody answered in time; continue without an answer";
            CallResult::error(Code::ToolTimeout, text)
        }
        None if call.open_question().is_some() => {
            let text =
                "error: the tool asked a person, and nobody answered in time; it did nothing more";
            CallResult::error(Code::ToolTimeout, text)
        }
        None => CallResult::error(Code::ToolTimeout, "no result came in time"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn question(arguments: &Value) -> Question {
        Question::of(ASK_PERSON, arguments).expect("a question")
    }

    #[test]
    fn answers_fit_their_questions() {
        let text = question(&json!({"question": "why?"}));
        let choice = question(&json!({
            "question": "which?", "kind": "choice", "options": ["red", "blue"],
        }));
        let confirm = question(&json!({"question": "sure?", "kind": "confirm"}));
        for (question, given, expected) in [
            (&text, json!("so"), Some("so")),
            (&text, json!(" "), None),
            (&text, json!({"a": 1}), Some(r#"{"a":1}"#)),
            (&text, json!(null), None),
            (&choice, json!("red"), Some("red")),
            (&choice, json!("green"), None),
            (&choice, json!(0), None),
            (&confirm, json!(true), Some("yes")),
            (&confirm, json!("no"), Some("no")),
            (&confirm, json!("perhaps"), None),
        ] {
            let answer = question.answer(&given).ok();
            assert_eq!(answer.as_deref(), expected, "{question:?} {given}");
        }
        assert_eq!(Question::of("pay", &json!({"question": "why?"})), None);
    }

    #[test]
    fn a_question_that_nobody_can_answer_is_none() {
        for (arguments, sound) in [
            (json!({"question": "a", "options": ["x"]}), true),
            (json!({"question": "a", "kind": "choice"}), false),
            (
                json!({"question": "a", "kind": "choice", "options": ["x"], "default": "y"}),
                false,
            ),
            (
                json!({"question": "a", "kind": "choice", "options": ["x"], "default": "x"}),
                true,
            ),
            (
                json!({"question": "a", "kind": "confirm", "default": "maybe"}),
                false,
            ),
        ] {
            assert_eq!(question(&arguments).fault().is_none(), sound, "{arguments}");
        }
    }
}
