//! Items of the Responses and Conversations APIs.

use mainspring_shared::message::{Arguments, ContentPart};
use mainspring_shared::time::Timestamp;
use serde_json::{Map, Value};

use crate::parts;
use crate::session::{Session, System};
use crate::transcript::{Answered, Called, Transcript};

/// The conversation with these items.
pub(super) fn session(
    id: &str,
    at: Timestamp,
    metadata: Option<&Map<String, Value>>,
    mut items: Vec<Value>,
) -> Session {
    let mut session = Session::new(System::OpenAi, id, at);
    session.describe(metadata.cloned().unwrap_or_default());
    if is_newest_first(&items) {
        items.reverse();
    }
    let mut said = Said {
        transcript: Transcript::new(session),
        at,
        content: Vec::new(),
        calls: Vec::new(),
    };
    for item in &items {
        said.item(item);
    }
    said.end();
    said.transcript.finish()
}

/// Whether a list is in the order that the API has by default: results before their calls, or answers before what was
/// asked.
pub(super) fn is_newest_first(items: &[Value]) -> bool {
    let mut results = Vec::new();
    for item in items {
        let call = item["call_id"].as_str().unwrap_or_default();
        match item["type"].as_str().unwrap_or_default() {
            "function_call_output" => results.push(call),
            "function_call" => return results.contains(&call),
            _ => {}
        }
    }
    let mut roles = items.iter().filter_map(|item| item["role"].as_str());
    let answers = roles.next() == Some("assistant");
    answers && roles.next_back().is_some_and(|role| role != "assistant")
}

/// What the model says is several items, and one message.
struct Said {
    transcript: Transcript,
    at: Timestamp,
    content: Vec<ContentPart>,
    calls: Vec<Called>,
}

impl Said {
    fn item(&mut self, item: &Value) {
        let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
        match item["type"].as_str().unwrap_or("message") {
            "message" => self.message(item),
            "reasoning" => {
                if !self.calls.is_empty() {
                    self.end();
                }
                let thoughts = parts::content(&mut self.transcript, item);
                self.content.extend(thoughts);
            }
            "function_call" | "custom_tool_call" => {
                let arguments = text("arguments");
                let arguments = if item["input"].is_string() {
                    Arguments::from(item["input"].clone())
                } else {
                    Arguments::read(&arguments)
                };
                self.calls.push(Called {
                    id: text("call_id"),
                    name: text("name"),
                    arguments,
                });
            }
            "function_call_output" | "custom_tool_call_output" => {
                self.end();
                let content = parts::content(&mut self.transcript, &item["output"]);
                let answered = Answered {
                    call: text("call_id"),
                    name: None,
                    content,
                    failed: false,
                };
                self.transcript.result(answered, self.at);
            }
            other => self.transcript.leave(&format!("items of type {other}")),
        }
    }

    fn message(&mut self, item: &Value) {
        let role = item["role"].as_str().unwrap_or_default();
        let content = parts::content(&mut self.transcript, &item["content"]);
        if role == "assistant" {
            if !self.calls.is_empty() {
                self.end();
            }
            self.content.extend(content);
            return;
        }
        self.end();
        let is_first = self.transcript.len() == 0;
        let agent = &mut self.transcript.session.agent;
        match role {
            "user" => self.transcript.user(content, self.at, true),
            "system" | "developer" if is_first && agent.system_prompt.is_none() => {
                let text =
                    mainspring_shared::message::plain_text(&content).replace('\0', "\u{fffd}");
                agent.system_prompt = (!text.is_empty()).then_some(text);
            }
            other => {
                let name = format!("messages of role {other}, kept as the user's");
                self.transcript.leave(&name);
                let mut all = vec![ContentPart::text(format!("[{other}]"))];
                all.extend(content);
                self.transcript.user(all, self.at, false);
            }
        }
    }

    /// Ends what the model says.
    fn end(&mut self) {
        if self.content.is_empty() && self.calls.is_empty() {
            return;
        }
        let content = std::mem::take(&mut self.content);
        let calls = std::mem::take(&mut self.calls);
        self.transcript.assistant(content, calls, self.at);
    }
}
