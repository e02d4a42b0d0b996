//! What calls ask of those outside, as forms, and the answers.

use axum::http::Method;
use mainspring_scheduler::error::Error;
use mainspring_shared::error::Code;
use mainspring_shared::id::SessionKey;
use mainspring_shared::send::WaitingOn;
use mainspring_shared::tool::{Approval, CallRecord, Inquiry, Question, QuestionKind, Wants};
use serde_json::{Map, Value, json};

use super::sent::Sent;
use crate::access::{Caller, Needs};
use crate::calls::{Asked, Posted, ResultBody, posted};
use crate::problem::Problem;
use crate::router::Api;
use crate::waiting;

/// A call that waits for an answer.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) call: CallRecord,
    pub(crate) kind: Kind,
}

/// What it wants.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    /// Permission to run.
    Permission,
    /// The answer to a question of the model.
    Answer(Question),
    /// The answer to a question of its tool, with the question's number.
    Reply(usize, Inquiry),
    /// Its result, of an external tool.
    Result,
}

/// What is answered.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Said {
    /// The values of the form.
    Accept(Map<String, Value>),
    /// A refusal.
    Decline,
    /// Nothing: it is asked again.
    Cancel,
}

impl Said {
    /// Reads an answer as MCP writes it: `{"action", "content"?}`.
    pub(crate) fn read(answer: &Value) -> Option<Self> {
        match answer["action"].as_str()? {
            "accept" => {
                let content = answer["content"].as_object();
                Some(Self::Accept(content.cloned().unwrap_or_default()))
            }
            "decline" => Some(Self::Decline),
            "cancel" => Some(Self::Cancel),
            _ => None,
        }
    }
}

/// What the calls of a session and of the sessions below it ask.
pub(crate) async fn open(app: &Api, key: SessionKey) -> Result<Vec<Ask>, Error> {
    let calls = waiting::below(app, key).await?;
    Ok(calls.into_iter().map(Ask::of).collect())
}

impl Ask {
    fn of(call: CallRecord) -> Self {
        let kind = if let Some((number, asked)) = call.open_question() {
            Kind::Reply(number, asked.inquiry.clone())
        } else if call.approval == Approval::Asked {
            Kind::Permission
        } else if let Some(question) = Question::of(&call.name, &call.arguments) {
            Kind::Answer(question)
        } else {
            Kind::Result
        };
        Self { call, kind }
    }

    /// Its name: the call's id, and behind `.` the number of the tool's question.
    pub(crate) fn id(&self) -> String {
        match &self.kind {
            Kind::Reply(number, _) => format!("{}.{number}", self.call.call_id),
            Kind::Permission | Kind::Answer(_) | Kind::Result => self.call.call_id.clone(),
        }
    }

    /// Whether a person is to answer.
    pub(crate) fn is_for_people(&self) -> bool {
        !matches!(self.kind, Kind::Result) && self.call.waits_on == Some(WaitingOn::Human)
    }

    /// What a person reads.
    pub(crate) fn message(&self) -> String {
        match &self.kind {
            Kind::Permission => {
                let (name, arguments) = (&self.call.name, self.call.arguments.text());
                format!("May {name} run with {arguments}?")
            }
            Kind::Answer(question) => question.question.clone(),
            Kind::Reply(_, inquiry) => inquiry.message.clone(),
            Kind::Result => format!("{} has to run elsewhere", self.call.name),
        }
    }

    /// The form of the answer: an object of plain members.
    pub(crate) fn wants(&self) -> Wants {
        let form = |properties: Value, required: &str| {
            Wants::Form(json!({
                "type": "object", "properties": properties, "required": [required],
            }))
        };
        match &self.kind {
            Kind::Permission => form(
                json!({
                    "approved": { "type": "boolean", "title": "Approved" },
                    "note": { "type": "string", "title": "Note", "description": "Why, if it is refused." },
                }),
                "approved",
            ),
            Kind::Answer(question) => {
                let answer = match question.kind {
                    QuestionKind::Text => json!({ "type": "string" }),
                    QuestionKind::Choice => json!({ "type": "string", "enum": question.options }),
                    QuestionKind::Confirm => json!({ "type": "boolean" }),
                };
                form(json!({ "answer": answer }), "answer")
            }
            Kind::Reply(_, inquiry) => inquiry.wants.clone(),
            Kind::Result => form(json!({ "output": { "type": "string" } }), "output"),
        }
    }

    /// What a client means by an answer that is a form's values, a choice with an action, a text or a yes or no.
    pub(crate) fn read(&self, given: &Value, is_refused: bool) -> Result<Said, String> {
        if is_refused {
            return Ok(Said::Decline);
        }
        let said =
            |name: &str, value: Value| Said::Accept(Map::from_iter([(name.to_owned(), value)]));
        let given = match given {
            Value::Object(members) => {
                let said = Said::read(given);
                return Ok(said.unwrap_or_else(|| Said::Accept(members.clone())));
            }
            Value::String(text) => match yes(text) {
                Some(yes) if self.is_decision() => json!(yes),
                _ => json!(text.trim()),
            },
            given => given.clone(),
        };
        match (&self.kind, self.wants()) {
            (Kind::Permission, _) if given.is_boolean() => Ok(said("approved", given)),
            (Kind::Permission, _) => {
                Err("must be yes or no, or {\"approved\": true | false, \"note\"?}".to_owned())
            }
            (_, Wants::Url(_)) => Ok(match given.as_bool() {
                Some(true) => Said::Accept(Map::new()),
                _ => Said::Decline,
            }),
            (Kind::Answer(_), _) => Ok(said("answer", given)),
            (Kind::Result, _) => Ok(said("output", given)),
            (_, Wants::Form(schema)) => {
                let properties = schema["properties"].as_object();
                let only = properties.filter(|properties| properties.len() == 1);
                match only.and_then(|properties| properties.keys().next()) {
                    Some(name) => Ok(said(name, given)),
                    None => Err(format!("must be an object with this schema: {schema}")),
                }
            }
        }
    }

    /// Whether it is answered by yes or no.
    fn is_decision(&self) -> bool {
        match &self.kind {
            Kind::Permission => true,
            Kind::Answer(question) => question.kind == QuestionKind::Confirm,
            Kind::Reply(_, inquiry) => match &inquiry.wants {
                Wants::Url(_) => true,
                Wants::Form(schema) => {
                    let properties = schema["properties"].as_object();
                    properties.is_some_and(|all| all.values().all(|one| one["type"] == "boolean"))
                }
            },
            Kind::Result => false,
        }
    }

    /// The result to post for an answer, if it is one.
    fn result(&self, said: Said) -> Option<ResultBody> {
        let call = self.call.call_id.clone();
        let answer = |output: Value| Some(ResultBody::answer(call.clone(), Asked::Answer, &output));
        match (&self.kind, said) {
            (Kind::Reply(number, _), said) => {
                let output = match said {
                    Said::Accept(content) => json!({ "action": "accept", "content": content }),
                    Said::Decline => json!({ "action": "decline" }),
                    Said::Cancel => json!({ "action": "cancel" }),
                };
                let output = match (&self.wants(), output) {
                    (Wants::Url(_), output) if output["action"] == "accept" => {
                        json!({ "action": "accept" })
                    }
                    (_, output) => output,
                };
                let result = ResultBody::answer(call, Asked::Answer, &output);
                Some(result.with_question(*number))
            }
            (_, Said::Cancel) => None,
            (Kind::Permission, said) => {
                let output = match said {
                    // Whoever accepts a form without filling it in agrees.
                    Said::Accept(content) => match (content.get("approved"), content.get("note")) {
                        (approved, Some(Value::String(note))) => {
                            json!({ "approved": approved.unwrap_or(&Value::Bool(true)), "note": note })
                        }
                        (approved, _) => {
                            json!({ "approved": approved.unwrap_or(&Value::Bool(true)) })
                        }
                    },
                    Said::Decline | Said::Cancel => json!({ "approved": false }),
                };
                Some(ResultBody::answer(call, Asked::Permission, &output))
            }
            (Kind::Answer(_), Said::Accept(mut content)) => {
                answer(content.remove("answer").unwrap_or_default())
            }
            (Kind::Result, Said::Accept(mut content)) => {
                answer(content.remove("output").unwrap_or_default())
            }
            (Kind::Answer(_) | Kind::Result, Said::Decline) => Some(ResultBody::failure(
                call,
                "a person declined to answer".to_owned(),
            )),
        }
    }
}

/// Answers what a send asks. The first answer counts: one that comes too late changes nothing, and is no error.
pub(crate) async fn answer(
    app: &Api,
    caller: &Caller,
    sent: &Sent,
    answers: Vec<(String, Said)>,
) -> Result<(), Problem> {
    if answers.is_empty() {
        return Ok(());
    }
    Needs::of(&Method::POST, "/v1/sessions/{id}/tool-results").check(caller)?;
    let asks = sent.asks(app).await?;
    let mut results = Vec::new();
    for (id, said) in answers {
        if let Some(ask) = asks.iter().find(|ask| ask.id() == id) {
            results.extend(ask.result(said));
        }
    }
    post(app, sent, results).await
}

fn yes(text: &str) -> Option<bool> {
    match text
        .trim()
        .trim_end_matches(['.', '!'])
        .to_lowercase()
        .as_str()
    {
        "yes" | "y" | "true" | "ok" | "approve" | "approved" => Some(true),
        "no" | "n" | "false" | "deny" | "denied" | "reject" | "rejected" => Some(false),
        _ => None,
    }
}

/// Posts results of calls of a send that a client has made.
pub(crate) async fn results(
    app: &Api,
    caller: &Caller,
    sent: &Sent,
    results: Vec<ResultBody>,
) -> Result<(), Problem> {
    if !results.is_empty() {
        Needs::of(&Method::POST, "/v1/sessions/{id}/tool-results").check(caller)?;
    }
    post(app, sent, results).await
}

/// Posts results of calls of a send, or of one below it.
async fn post(app: &Api, sent: &Sent, results: Vec<ResultBody>) -> Result<(), Problem> {
    if results.is_empty() {
        return Ok(());
    }
    let outcome = posted(app, sent.send.key, results).await?;
    if outcome
        .results
        .iter()
        .any(|result| result.status == Posted::Locked)
    {
        return Err(Error::locked().into());
    }
    if outcome
        .results
        .iter()
        .any(|result| result.status == Posted::Unknown)
    {
        return Err(Error::new(Code::CallNotFound, "the send has no call with this id").into());
    }
    Ok(())
}
