//! What a session's agent asks, and what a typed line answers.

use std::collections::{BTreeSet, VecDeque};

use serde_json::{Value, json};

use crate::client::{Client, Request};
use crate::failure::Failure;
use crate::output;

/// Questions in the order in which they were asked, each shown once.
#[derive(Debug, Default)]
pub(super) struct Questions {
    open: VecDeque<Value>,
    seen: BTreeSet<String>,
}

impl Questions {
    /// The one that the next line answers.
    pub(super) fn first(&self) -> Option<&Value> {
        self.open.front()
    }

    /// Nothing is asked any more.
    pub(super) fn clear(&mut self) {
        self.open.clear();
    }

    /// Looks what waits, in the session and below it, and shows the first one if it is new.
    pub(super) async fn look(&mut self, client: &Client, session: &str) -> Result<(), Failure> {
        let path = format!("/v1/sessions/{session}/calls");
        let listed = client.ask(Request::get(path)).await?;
        let waiting = listed["data"].as_array().cloned().unwrap_or_default();
        // Others may answer, too.
        self.open.retain(|known| {
            let id = &known["call_id"];
            waiting.iter().any(|call| call["call_id"] == *id)
        });
        for call in waiting {
            let id = call["call_id"].as_str().unwrap_or_default().to_owned();
            if self.seen.insert(id) {
                self.open.push_back(call);
                if self.open.len() == 1 {
                    self.show();
                }
            }
        }
        Ok(())
    }

    /// Answers the first one with a line. A line that is no answer is said to be none.
    pub(super) async fn answer(
        &mut self,
        client: &Client,
        session: &str,
        line: &str,
    ) -> Result<(), Failure> {
        let Some(call) = self.open.front() else {
            return Ok(());
        };
        let Some(output) = answer(call, line) else {
            output::note("please answer y, or n and why not");
            return Ok(());
        };
        let result = json!({ "call_id": call["call_id"], "output": output });
        let path = format!("/v1/sessions/{session}/tool-results");
        let posted = client
            .ask(Request::post(path).body(json!({ "results": [result] })))
            .await?;
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

fn asks_permission(call: &Value) -> bool {
    call["wants"] == "permission"
}

fn options(call: &Value) -> impl Iterator<Item = &str> {
    let options = call["arguments"]["options"].as_array();
    options.into_iter().flatten().filter_map(Value::as_str)
}

/// A question as it is shown.
fn shown(call: &Value) -> String {
    let name = call["name"].as_str().unwrap_or_default();
    let arguments = &call["arguments"];
    let text = if asks_permission(call) {
        format!("[permit {name} {arguments}? y/n]")
    } else if let Some(question) = arguments["question"].as_str() {
        let options = options(call)
            .zip(1..)
            .fold(String::new(), |list, (option, n)| {
                format!("{list}\n  {n}. {option}")
            });
        format!("[asks] {question}{options}")
    } else {
        format!("[wants the result of {name} {arguments}]")
    };
    output::harmless(&text)
}

/// What a line says to a call; none where it is no answer to it.
fn answer(call: &Value, line: &str) -> Option<Value> {
    let line = line.trim();
    if asks_permission(call) {
        let (word, note) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        return match word.trim_end_matches(',').to_lowercase().as_str() {
            "y" | "yes" => Some(json!({ "approved": true })),
            "n" | "no" if note.trim().is_empty() => Some(json!({ "approved": false })),
            "n" | "no" => Some(json!({ "approved": false, "note": note.trim() })),
            _ => None,
        };
    }
    if call["waiting_on"] == "tool" {
        // The result of a tool: JSON where it is some.
        return Some(serde_json::from_str(line).unwrap_or_else(|_| json!(line)));
    }
    let chosen = line.parse::<usize>().ok().and_then(|n| n.checked_sub(1));
    let chosen = chosen.and_then(|place| options(call).nth(place));
    Some(json!(chosen.unwrap_or(line)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(wants: &str, waiting_on: &str, arguments: &Value) -> Value {
        json!({ "name": "pay", "wants": wants, "waiting_on": waiting_on, "arguments": arguments })
    }

    #[test]
    fn a_permission_is_given_or_refused_with_a_note() {
        let call = call("permission", "human", &json!({ "euro": 5 }));
        assert_eq!(shown(&call), "[permit pay {\"euro\":5}? y/n]");
        assert_eq!(answer(&call, "y"), Some(json!({ "approved": true })));
        assert_eq!(answer(&call, "Yes "), Some(json!({ "approved": true })));
        assert_eq!(answer(&call, "n"), Some(json!({ "approved": false })));
        assert_eq!(
            answer(&call, "no, too dear"),
            Some(json!({ "approved": false, "note": "too dear" }))
        );
        for unclear in ["", "perhaps", "yellow"] {
            assert_eq!(answer(&call, unclear), None, "{unclear}");
        }
    }

    #[test]
    fn a_question_takes_any_line_or_the_number_of_an_option() {
        let free = call("answer", "human", &json!({ "question": "go on?\u{1b}[2J" }));
        assert_eq!(shown(&free), "[asks] go on?[2J");
        assert_eq!(answer(&free, " in green "), Some(json!("in green")));
        assert_eq!(answer(&free, "2"), Some(json!("2")));
        let arguments = json!({ "question": "which?", "options": ["red", "green"] });
        let choice = call("answer", "human", &arguments);
        assert_eq!(shown(&choice), "[asks] which?\n  1. red\n  2. green");
        assert_eq!(answer(&choice, "2"), Some(json!("green")));
        assert_eq!(answer(&choice, "0"), Some(json!("0")));
        assert_eq!(answer(&choice, "blue"), Some(json!("blue")));
    }

    #[test]
    fn the_result_of_a_tool_is_json_where_it_can_be() {
        let tool = call("answer", "tool", &json!({ "invoice": 3 }));
        assert_eq!(shown(&tool), "[wants the result of pay {\"invoice\":3}]");
        assert_eq!(
            answer(&tool, "{\"paid\": true}"),
            Some(json!({ "paid": true }))
        );
        assert_eq!(answer(&tool, "it is paid"), Some(json!("it is paid")));
    }
}
