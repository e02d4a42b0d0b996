//! The questions of a session's agents, and how typed lines answer them.

use std::collections::{BTreeSet, VecDeque};

use mainspring_shared::time::Span;
use mainspring_shared::tool::{Question, QuestionKind};
use serde_json::{Value, json};

use crate::args::Format;
use crate::client::{Client, Request};
use crate::failure::{Exit, Failure};
use crate::output;

/// Questions in the order in which they were asked; each is shown once.
#[derive(Debug, Default)]
pub(super) struct Questions {
    open: VecDeque<Value>,
    /// Calls and what they wanted: a call may want permission and then its result.
    seen: BTreeSet<(String, String)>,
}

impl Questions {
    /// The question that the next line answers.
    pub(super) fn first(&self) -> Option<&Value> {
        self.open.front()
    }

    /// Drops all open questions. What is still asked when the send waits again is shown again.
    pub(super) fn clear(&mut self) {
        self.open.clear();
        self.seen.clear();
    }

    /// Fetches the waiting calls of the session and its descendants, and shows the first one if it
    /// is new.
    pub(super) async fn look(&mut self, client: &Client, session: &str) -> Result<(), Failure> {
        let path = format!("/v1/sessions/{session}/calls");
        let listed = client.ask(Request::get(path)).await?;
        let waiting = listed["data"].as_array().cloned().unwrap_or_default();
        // Someone else may have answered them.
        self.open.retain(|known| {
            let known = asked(known);
            waiting.iter().any(|call| asked(call) == known)
        });
        for call in waiting {
            if self.seen.insert(asked(&call)) {
                self.open.push_back(call);
                if self.open.len() == 1 {
                    self.show();
                }
            }
        }
        Ok(())
    }

    /// Answers the first question with a line. A line that does not answer it is reported.
    pub(super) async fn answer(
        &mut self,
        client: &Client,
        session: &str,
        line: &str,
    ) -> Result<(), Failure> {
        let Some(call) = self.open.front() else {
            return Ok(());
        };
        let output = match answer(call, line) {
            Ok(output) => output,
            Err(expected) => {
                output::note(&output::harmless(&format!("[{expected}]")));
                return Ok(());
            }
        };
        let mut result = json!({ "call_id": call["call_id"], "output": output });
        if asks_reply(call) {
            result["question"] = call["asks"]["question"].clone();
        } else {
            result["answers"] = call["wants"].clone();
        }
        let path = format!("/v1/sessions/{session}/tool-results");
        let posted = client.ask(Request::post(path).body(json!({ "results": [result] })));
        let posted = match posted.await {
            // The line is not a valid answer, so the question stays open.
            Err(failure) if failure.exit == Exit::Usage => {
                failure.report(Format::Table);
                return Ok(());
            }
            other => other?,
        };
        if posted["results"][0]["status"] != "accepted" {
            output::note("[answered by someone else already]");
        }
        self.open.pop_front();
        self.show();
        Ok(())
    }

    fn show(&self) {
        if let Some(call) = self.open.front() {
            output::note(&shown(call));
        }
    }
}

/// The question that a call asks: permission, an answer, or one of those of its tool.
fn asked(call: &Value) -> (String, String) {
    let text = |member: &str| call[member].as_str().unwrap_or_default().to_owned();
    let which = format!("{} {}", text("wants"), call["asks"]["question"]);
    (text("call_id"), which)
}

fn asks_reply(call: &Value) -> bool {
    call["wants"] == "reply"
}

fn asks_permission(call: &Value) -> bool {
    call["wants"] == "permission"
}

fn question(call: &Value) -> Option<Question> {
    Question::of(call["name"].as_str()?, &call["arguments"])
}

/// A question as shown to the user.
fn shown(call: &Value) -> String {
    let name = call["name"].as_str().unwrap_or_default();
    let arguments = &call["arguments"];
    let text = if asks_permission(call) {
        format!("[approve {name} {arguments}? y/n]")
    } else if asks_reply(call) {
        let asks = &call["asks"];
        let message = asks["message"].as_str().unwrap_or_default();
        let how = match asks["url"].as_str() {
            Some(url) => format!("open {url}, then y; or n"),
            None => format!("JSON that fits {}, or n", asks["requested_schema"]),
        };
        format!("[{name} asks] {message}\n  {how}")
    } else if let Some(asked) = question(call) {
        asks(&asked)
    } else {
        format!(
            "[wants the result of {name} {arguments}: JSON or text, in one line; another terminal may use `mainspring \
             sends answer`]"
        )
    };
    output::harmless(&text)
}

/// A question to a person: what is asked, the options, the time limit and the default.
fn asks(question: &Question) -> String {
    let confirm = match question.kind {
        QuestionKind::Confirm => " (yes/no)",
        QuestionKind::Text | QuestionKind::Choice => "",
    };
    let mut lines = vec![format!("[asks] {}{confirm}", question.question)];
    lines.extend(question.expires().map(|within| {
        let default = question.default.iter();
        let default = default.map(|default| format!(", else: {default}"));
        format!("  within {}{}", Span(within), default.collect::<String>())
    }));
    let options = question.options.iter().zip(1..);
    lines.extend(options.map(|(option, n)| format!("  {n}. {option}")));
    lines.join("\n")
}

/// The answer that a line gives to a call, or an error that says what would be one.
fn answer(call: &Value, line: &str) -> Result<Value, String> {
    let line = line.trim();
    if asks_reply(call) {
        return reply(call, line);
    }
    if asks_permission(call) {
        let (word, note) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        return match word.trim_end_matches(',').to_lowercase().as_str() {
            "y" | "yes" => Ok(json!({ "approved": true })),
            "n" | "no" if note.trim().is_empty() => Ok(json!({ "approved": false })),
            "n" | "no" => Ok(json!({ "approved": false, "note": note.trim() })),
            _ => Err("please answer y, or n and why not".to_owned()),
        };
    }
    if call["waiting_on"] == "tool" {
        // The result of a tool: parsed as JSON if it is valid, else a string.
        return Ok(serde_json::from_str(line).unwrap_or_else(|_| json!(line)));
    }
    let Some(question) = question(call) else {
        return Ok(json!(line));
    };
    let chosen = line.parse::<usize>().ok().and_then(|n| n.checked_sub(1));
    let chosen = chosen.and_then(|place| question.options.get(place));
    let said = match (question.kind, line.to_lowercase().as_str()) {
        (QuestionKind::Confirm, "y" | "yes") => json!(true),
        (QuestionKind::Confirm, "n" | "no") => json!(false),
        _ => json!(chosen.map_or(line, String::as_str)),
    };
    question.answer(&said).map(|_| said)
}

/// The answer to what a tool asks.
fn reply(call: &Value, line: &str) -> Result<Value, String> {
    let wants_values = call["asks"]["mode"] == "form";
    match (line.to_lowercase().as_str(), serde_json::from_str(line)) {
        ("n" | "no", _) => Ok(json!({ "action": "decline" })),
        ("y" | "yes", _) if !wants_values => Ok(json!({ "action": "accept" })),
        (_, Ok(values @ Value::Object(_))) if wants_values => {
            Ok(json!({ "action": "accept", "content": values }))
        }
        _ if wants_values => Err("please answer with a JSON object, or n".to_owned()),
        _ => Err("please answer y or n".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(wants: &str, waiting_on: &str, arguments: &Value) -> Value {
        json!({ "name": "pay", "wants": wants, "waiting_on": waiting_on, "arguments": arguments })
    }

    fn asking(arguments: &Value) -> Value {
        let mut call = call("answer", "human", arguments);
        call["name"] = json!("ask_person");
        call
    }

    #[test]
    fn permission_and_the_result_of_one_call_are_two_questions() {
        let arguments = json!({ "invoice": 3 });
        let [first, second] = ["permission", "answer"].map(|wants| {
            let mut call = call(wants, "tool", &arguments);
            call["call_id"] = json!("call_1");
            call
        });
        assert_ne!(asked(&first), asked(&second));
        let mut seen = BTreeSet::new();
        assert!(seen.insert(asked(&first)) && seen.insert(asked(&second)));
    }

    #[test]
    fn a_permission_is_given_or_refused_with_a_note() {
        let call = call("permission", "human", &json!({ "euro": 5 }));
        assert_eq!(shown(&call), "[approve pay {\"euro\":5}? y/n]");
        assert_eq!(answer(&call, "y"), Ok(json!({ "approved": true })));
        assert_eq!(answer(&call, "Yes "), Ok(json!({ "approved": true })));
        assert_eq!(answer(&call, "n"), Ok(json!({ "approved": false })));
        assert_eq!(
            answer(&call, "no, too dear"),
            Ok(json!({ "approved": false, "note": "too dear" }))
        );
        for unclear in ["", "perhaps", "yellow"] {
            answer(&call, unclear).expect_err(unclear);
        }
    }

    #[test]
    fn a_question_takes_any_line_or_the_number_of_an_option() {
        let free = asking(&json!({ "question": "go on?\u{1b}[2J" }));
        assert_eq!(shown(&free), "[asks] go on?[2J");
        assert_eq!(answer(&free, " in green "), Ok(json!("in green")));
        assert_eq!(answer(&free, "2"), Ok(json!("2")));
        answer(&free, " ").expect_err("nothing is no answer");
        let advice = asking(&json!({ "question": "which?", "options": ["red", "green"] }));
        assert_eq!(shown(&advice), "[asks] which?\n  1. red\n  2. green");
        assert_eq!(answer(&advice, "2"), Ok(json!("green")));
        assert_eq!(answer(&advice, "0"), Ok(json!("0")));
        assert_eq!(answer(&advice, "blue"), Ok(json!("blue")));
    }

    #[test]
    fn a_question_says_which_answers_it_takes_and_no_other_line_is_one() {
        let choice =
            asking(&json!({ "question": "which?", "kind": "choice", "options": ["red", "green"] }));
        assert_eq!(answer(&choice, "1"), Ok(json!("red")));
        assert_eq!(answer(&choice, "green"), Ok(json!("green")));
        let told = answer(&choice, "blue").expect_err("none of them");
        assert!(told.contains("red, green"), "{told}");
        let confirm = asking(&json!({
            "question": "delete all?", "kind": "confirm", "expires_seconds": 300, "default": "no",
        }));
        assert_eq!(
            shown(&confirm),
            "[asks] delete all? (yes/no)\n  within 5m, else: no"
        );
        for (line, says) in [("y", true), ("Yes", true), ("n", false), ("no", false)] {
            assert_eq!(answer(&confirm, line), Ok(json!(says)), "{line}");
        }
        answer(&confirm, "perhaps").expect_err("neither");
    }

    #[test]
    fn the_result_of_a_tool_is_json_where_it_can_be() {
        let tool = call("answer", "tool", &json!({ "invoice": 3 }));
        let asked = shown(&tool);
        assert!(
            asked.starts_with("[wants the result of pay {\"invoice\":3}: JSON or text"),
            "{asked}"
        );
        assert_eq!(
            answer(&tool, "{\"paid\": true}"),
            Ok(json!({ "paid": true }))
        );
        assert_eq!(answer(&tool, "it is paid"), Ok(json!("it is paid")));
    }

    #[test]
    fn what_a_tool_asks_is_shown_and_takes_values_or_a_word() {
        let mut form = call("reply", "human", &json!({}));
        form["asks"] = json!({"question": 1, "mode": "form", "message": "Sure?",
            "requested_schema": {"properties": {}}});
        assert_eq!(
            shown(&form),
            "[pay asks] Sure?\n  JSON that fits {\"properties\":{}}, or n"
        );
        let values = json!({"action": "accept", "content": {"sure": true}});
        assert_eq!(answer(&form, "{\"sure\": true}"), Ok(values));
        assert_eq!(answer(&form, "N"), Ok(json!({"action": "decline"})));
        answer(&form, "y").expect_err("values are asked for");
        let mut page = call("reply", "human", &json!({}));
        page["asks"] =
            json!({"question": 2, "mode": "url", "message": "Sign in.", "url": "https://a"});
        assert_eq!(
            shown(&page),
            "[pay asks] Sign in.\n  open https://a, then y; or n"
        );
        assert_eq!(answer(&page, "y"), Ok(json!({"action": "accept"})));
        answer(&page, "{}").expect_err("no values are asked for");
        assert_ne!(
            asked(&form),
            asked(&page),
            "another question of the same call"
        );
    }
}
