//! `mainspring sends answer`: answers what an agent asks.

use mainspring_shared::tool::Question;
use serde_json::{Value, json};

use crate::args::{Format, Verdict};
use crate::client::{Client, Request};
use crate::failure::{Exit, Failure, usage_text};
use crate::output::{self, Column};

const COLUMNS: [Column; 6] = [
    ("CALL", "call_id"),
    ("TOOL", "name"),
    ("WANTS", "wants"),
    ("ASKS", "asks"),
    ("SINCE", "requested_at"),
    ("SESSION", "session_id"),
];

/// The answer given on the command line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
    /// No answer: waiting calls are listed.
    Nothing,
    /// Approval, or denial with a note.
    Permission { approved: bool, note: String },
    /// Any value.
    Value(Value),
    /// The failure of the call.
    Error(String),
}

/// How a command line approves, denies and answers, for advice.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words {
    pub(super) approve: &'static str,
    pub(super) deny: &'static str,
    pub(super) answer: &'static str,
}

/// The words of `mainspring sends answer`.
const FLAGS: Words = Words {
    approve: "--approve",
    deny: "--deny [NOTE]",
    answer: "as text, or with --json",
};

/// The answer that the arguments give.
pub(crate) fn said(text: Option<&str>, verdict: &Verdict) -> Result<Answer, Failure> {
    if verdict.approve {
        let note = String::new();
        return Ok(Answer::Permission {
            approved: true,
            note,
        });
    }
    if let Some(note) = &verdict.deny {
        return Ok(Answer::Permission {
            approved: false,
            note: note.clone(),
        });
    }
    if let Some(error) = &verdict.error {
        return Ok(Answer::Error(error.clone()));
    }
    if let Some(json) = &verdict.json {
        let value = serde_json::from_str(json).map_err(|error| {
            let message = format!("the answer is not JSON: {error}");
            usage_text(message, "a plain text is given without --json")
        })?;
        return Ok(Answer::Value(value));
    }
    Ok(text.map_or(Answer::Nothing, |text| Answer::Value(json!(text))))
}

/// `mainspring calls`
pub(crate) async fn list(client: Client, format: Format, id: &str) -> Result<(), Failure> {
    run(&client, format, id, None, Answer::Nothing).await
}

/// Lists the waiting calls, or answers one.
pub(crate) async fn run(
    client: &Client,
    format: Format,
    id: &str,
    call: Option<&str>,
    said: Answer,
) -> Result<(), Failure> {
    let (session, waiting) = waiting(client, id).await?;
    if said == Answer::Nothing {
        return output::list(format, &COLUMNS, &listed(format, waiting));
    }
    let chosen = choose(id, &waiting, call)?;
    post(client, format, &session, chosen, (said, FLAGS)).await
}

/// Posts the answer to a waiting call in its session, or in one above it.
pub(super) async fn post(
    client: &Client,
    format: Format,
    session: &str,
    call: &Value,
    (said, words): (Answer, Words),
) -> Result<(), Failure> {
    let result = result(call, said, words)?;
    let request = Request::post(format!("/v1/sessions/{session}/tool-results"));
    let posted = client
        .ask(request.body(json!({ "results": [result] })))
        .await?;
    let outcome = &posted["results"][0];
    match outcome["status"].as_str() {
        Some("accepted") => output::object(format, outcome),
        status => {
            let status = status.unwrap_or("unknown").replace('_', " ");
            let call_id = show(&call["call_id"]);
            let message = format!("{call_id} did not accept the answer: {status}");
            Err(Failure::new(Exit::Conflict, message).next("the first answer counts"))
        }
    }
}

/// The session to answer in, and the waiting calls: for a send, its own and those of the agents
/// that it called; for a session, everything in it and below.
async fn waiting(client: &Client, id: &str) -> Result<(String, Vec<Value>), Failure> {
    let session = if id.starts_with("snd_") {
        let send = client.ask(Request::get(format!("/v1/sends/{id}"))).await?;
        show(&send["session_id"])
    } else {
        id.to_owned()
    };
    let path = format!("/v1/sessions/{session}/calls");
    let listed = client.ask(Request::get(path)).await?;
    let mut waiting = listed["data"].as_array().cloned().unwrap_or_default();
    waiting.retain(|call| {
        // A session runs one send at a time, so everything that waits below it belongs to that
        // send.
        !id.starts_with("snd_") || call["session_id"] != session || call["send_id"] == id
    });
    Ok((session, waiting))
}

/// The waiting calls for output: a table shows the question, JSON the call unchanged.
fn listed(format: Format, mut waiting: Vec<Value>) -> Vec<Value> {
    if format == Format::Table {
        for call in &mut waiting {
            call["asks"] = asks(call);
        }
    }
    waiting
}

/// What people read of a call: the question, or else the arguments.
pub(super) fn asks(call: &Value) -> Value {
    let name = call["name"].as_str().unwrap_or_default();
    let question = Question::of(name, &call["arguments"]);
    match question.filter(|_| call["wants"] == "answer") {
        Some(question) => json!(question.question),
        None if call["wants"] == "reply" => asked(&call["asks"]),
        None => call["arguments"].clone(),
    }
}

/// What a tool asks, in one line: its words, and what it wants.
fn asked(asks: &Value) -> Value {
    let message = asks["message"].as_str().unwrap_or_default();
    let wants = asks["url"].as_str().map_or_else(
        || {
            let fields = asks["requested_schema"]["properties"].as_object();
            let names = fields.into_iter().flatten().map(|(name, _)| name.as_str());
            names.collect::<Vec<_>>().join(", ")
        },
        str::to_owned,
    );
    json!(format!("{message} [{wants}]"))
}

fn choose<'a>(id: &str, waiting: &'a [Value], call: Option<&str>) -> Result<&'a Value, Failure> {
    let list = format!("`mainspring sends answer {id}` lists the pending calls");
    match (call, waiting) {
        (Some(call), _) => {
            let found = waiting.iter().find(|one| one["call_id"] == call);
            found.ok_or_else(|| {
                Failure::new(
                    Exit::NotFound,
                    format!(
                        "{call} is not waiting for an \
                                                      answer"
                    ),
                )
                .next(list)
            })
        }
        (None, [only]) => Ok(only),
        (None, []) => Err(Failure::new(
            Exit::Conflict,
            format!("{id} is not waiting for an answer"),
        )),
        (None, several) => {
            let message = format!("{} calls wait for an answer", several.len());
            Err(usage_text(message, format!("name one with --call; {list}")))
        }
    }
}

fn result(call: &Value, said: Answer, words: Words) -> Result<Value, Failure> {
    let call_id = &call["call_id"];
    let wants_permission = call["wants"] == "permission";
    if call["wants"] == "reply" {
        let question = &call["asks"]["question"];
        let output = reply(call, said, words)?;
        return Ok(match output {
            Ok(output) => json!({ "call_id": call_id, "output": output, "question": question }),
            Err(error) => json!({ "call_id": call_id, "error": error }),
        });
    }
    match said {
        Answer::Permission { approved, note } if wants_permission => {
            let mut output = json!({ "approved": approved });
            if !note.is_empty() {
                output["note"] = json!(note);
            }
            Ok(json!({ "call_id": call_id, "answers": "permission", "output": output }))
        }
        Answer::Permission { .. } => Err(usage_text(
            format!("{} needs an answer, not an approval", show(call_id)),
            format!("pass it {}", words.answer),
        )),
        Answer::Error(error) => {
            Ok(json!({ "call_id": call_id, "answers": call["wants"], "error": error }))
        }
        Answer::Value(_) if wants_permission => Err(usage_text(
            format!("{} waits for approval", show(call_id)),
            format!(
                "approve it with {}, or deny it with {}",
                words.approve, words.deny
            ),
        )),
        Answer::Value(value) => {
            Ok(json!({ "call_id": call_id, "answers": "answer", "output": value }))
        }
        Answer::Nothing => Ok(Value::Null),
    }
}

/// The answer to what a tool asks: approval or denial where it wants no values, else the values as JSON. The inner error
/// ends the call.
fn reply(call: &Value, said: Answer, words: Words) -> Result<Result<Value, String>, Failure> {
    let wants_values = call["asks"]["mode"] == "form";
    match said {
        Answer::Error(error) => Ok(Err(error)),
        Answer::Permission {
            approved: false, ..
        } => Ok(Ok(json!({ "action": "decline" }))),
        Answer::Permission { approved: true, .. } if !wants_values => {
            Ok(Ok(json!({ "action": "accept" })))
        }
        Answer::Value(value) if value.get("action").is_some() => Ok(Ok(value)),
        Answer::Value(values @ Value::Object(_)) if wants_values => {
            Ok(Ok(json!({ "action": "accept", "content": values })))
        }
        Answer::Value(_) | Answer::Permission { .. } | Answer::Nothing => Err(usage_text(
            format!(
                "the tool of {} asks for something else",
                show(&call["call_id"])
            ),
            if wants_values {
                format!(
                    "pass the values with --json '{{…}}', or refuse with {}",
                    words.deny
                )
            } else {
                let Words { approve, deny, .. } = words;
                format!("open the address, then pass {approve}, or refuse with {deny}")
            },
        )),
    }
}

fn show(text: &Value) -> String {
    output::harmless(text.as_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_the_question_and_programs_all_of_it() {
        let question = json!({ "question": "go on?", "kind": "confirm" });
        let call = |name: &str, wants: &str, arguments: &Value| json!({ "name": name, "wants": wants, "arguments": arguments });
        let mut asking = call("remove", "reply", &json!({ "n": 1 }));
        asking["asks"] =
            json!({"message": "Sure?", "requested_schema": {"properties": {"sure": {}}}});
        let calls = vec![
            asking,
            call("ask_person", "answer", &question),
            call("ask_person", "permission", &question),
            call("pay", "answer", &json!({ "euro": 5 })),
        ];
        let asks: Vec<_> = listed(Format::Table, calls.clone())
            .into_iter()
            .map(|mut call| call["asks"].take())
            .collect();
        let expected = [
            json!("Sure? [sure]"),
            json!("go on?"),
            question,
            json!({ "euro": 5 }),
        ];
        assert_eq!(asks, expected);
        assert_eq!(listed(Format::Json, calls.clone()), calls);
    }

    #[test]
    fn what_a_tool_asks_is_answered_with_values_or_a_word() {
        let form =
            json!({"call_id": "c", "wants": "reply", "asks": {"question": 2, "mode": "form"}});
        let page =
            json!({"call_id": "c", "wants": "reply", "asks": {"question": 1, "mode": "url"}});
        let permission = |approved| Answer::Permission {
            approved,
            note: String::new(),
        };
        let accept = json!({"action": "accept", "content": {"sure": true}});
        for (call, said, expected) in [
            (&form, Answer::Value(json!({"sure": true})), accept.clone()),
            (&form, Answer::Value(accept.clone()), accept),
            (&form, permission(false), json!({"action": "decline"})),
            (&page, permission(true), json!({"action": "accept"})),
        ] {
            let posted = result(call, said, FLAGS).expect("an answer");
            assert_eq!(posted["output"], expected);
            assert_eq!(posted["question"], call["asks"]["question"]);
        }
        let given_up = result(&form, Answer::Error("no".to_owned()), FLAGS).expect("an answer");
        assert_eq!(given_up, json!({"call_id": "c", "error": "no"}));
        for (call, said) in [
            (&form, permission(true)),
            (&form, Answer::Value(json!("yes"))),
            (&page, Answer::Value(json!("yes"))),
        ] {
            result(call, said, FLAGS).expect_err("no answer");
        }
    }
}
