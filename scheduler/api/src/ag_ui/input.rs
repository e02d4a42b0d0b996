//! What a run is asked for with.

use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::agents::Resolver;
use mainspring_shared::agent::AgentQuery;
use mainspring_shared::message::ContentPart;
use mainspring_shared::tool::{DeclaredTool, ToolEntry};
use serde_json::{Map, Value, json};

use super::VERSION;
use crate::access::Caller;
use crate::input::Input;
use crate::router::Api;

/// A request for a run, checked.
#[derive(Debug)]
pub(super) struct RunInput {
    pub(super) thread: String,
    pub(super) run: String,
    pub(super) parent: Option<String>,
    /// What the person says: all user messages at the end.
    pub(super) said: Vec<ContentPart>,
    /// Results of tools of the client, at the end.
    pub(super) results: Vec<(String, Vec<ContentPart>)>,
    /// Answers to what was asked.
    pub(super) answers: Vec<Answer>,
    pub(super) variables: Map<String, Value>,
    /// The names of the tools that the client has.
    tools: Vec<String>,
}

/// An answer to an interrupt.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) id: String,
    pub(super) payload: Value,
    pub(super) is_cancelled: bool,
}

impl RunInput {
    pub(super) fn read(given: &Value) -> Result<Self, Error> {
        let text = |name: &str| {
            let text = given[name].as_str().filter(|text| !text.is_empty());
            text.map(str::to_owned)
                .ok_or_else(|| Error::invalid(format!("/{name}"), "must be a text"))
        };
        let list = |name: &str| match &given[name] {
            Value::Null => Ok([].as_slice()),
            Value::Array(items) => Ok(items.as_slice()),
            _ => Err(Error::invalid(format!("/{name}"), "must be a list")),
        };
        if let Some(version) = given["protocolVersion"].as_str()
            && version.split('.').next() != VERSION.split('.').next()
        {
            let detail = format!("this server speaks {VERSION}");
            return Err(Error::invalid("/protocolVersion", detail));
        }
        let messages = list("messages")?;
        let role = |message: &Value| message["role"].as_str().unwrap_or_default().to_owned();
        let new = |wanted: &str| {
            let new = messages.iter().enumerate().rev();
            let mut new: Vec<_> = new
                .take_while(|(_, message)| role(message) == wanted)
                .collect();
            new.reverse();
            new
        };
        let mut said = Vec::new();
        for (place, message) in new("user") {
            said.extend(content(
                &format!("/messages/{place}/content"),
                &message["content"],
            )?);
        }
        let mut results = Vec::new();
        for (place, message) in new("tool") {
            let at = format!("/messages/{place}");
            let call = message["toolCallId"].as_str();
            let call =
                call.ok_or_else(|| Error::invalid(format!("{at}/toolCallId"), "must be a text"))?;
            results.push((
                call.to_owned(),
                content(&format!("{at}/content"), &message["content"])?,
            ));
        }
        let mut answers = Vec::new();
        for (place, entry) in list("resume")?.iter().enumerate() {
            let at = |name: &str| format!("/resume/{place}/{name}");
            let id = entry["interruptId"].as_str();
            let id = id.ok_or_else(|| Error::invalid(at("interruptId"), "must be a text"))?;
            let is_cancelled = match entry["status"].as_str() {
                Some("resolved") => false,
                Some("cancelled") => true,
                _ => {
                    return Err(Error::invalid(
                        at("status"),
                        "must be resolved or cancelled",
                    ));
                }
            };
            answers.push(Answer {
                id: id.to_owned(),
                payload: entry["payload"].clone(),
                is_cancelled,
            });
        }
        if said.is_empty() && results.is_empty() && answers.is_empty() {
            let detail = "must end with what the user says, or with results of tools, unless resume answers something";
            return Err(Error::invalid("/messages", detail));
        }
        let context = list("context")?.iter().map(|entry| {
            let part = |name: &str| entry[name].as_str().unwrap_or_default();
            format!("{}: {}", part("description"), part("value"))
        });
        let context: Vec<String> = context.collect();
        if !context.is_empty() && !said.is_empty() {
            said.insert(
                0,
                ContentPart::text(format!("Context:\n{}", context.join("\n"))),
            );
        }
        let tools = list("tools")?.iter();
        let tools = tools.map(|tool| tool["name"].as_str().unwrap_or_default().to_owned());
        let variables = given["forwardedProps"]["variables"].as_object();
        Ok(Self {
            thread: text("threadId")?,
            run: text("runId")?,
            parent: given["parentRunId"].as_str().map(str::to_owned),
            said,
            results,
            answers,
            variables: variables.cloned().unwrap_or_default(),
            tools: tools.collect(),
        })
    }

    /// Refuses tools that the agent does not declare: it could not call them.
    pub(super) async fn offers(
        &self,
        app: &Api,
        caller: &Caller,
        agent: &AgentQuery,
    ) -> Result<(), Error> {
        if self.tools.is_empty() {
            return Ok(());
        }
        let mut agents = Resolver::new(app, caller.tenant, caller.allowed());
        let spec = agents.find(agent).await?.spec;
        let declares = |name: &str| {
            spec.tools.iter().any(|tool| match tool {
                ToolEntry::Declared(DeclaredTool::External(tool)) => tool.name == name,
                ToolEntry::Named(_)
                | ToolEntry::Declared(
                    DeclaredTool::Http(_) | DeclaredTool::Mcp(_) | DeclaredTool::Worker(_),
                ) => false,
            })
        };
        for (place, name) in self.tools.iter().enumerate() {
            if !declares(name) {
                let detail = format!("the agent declares no external tool named {name:?}");
                return Err(Error::invalid(format!("/tools/{place}/name"), detail));
            }
        }
        Ok(())
    }
}

/// The content of a message: a text, or parts.
fn content(at: &str, given: &Value) -> Result<Vec<ContentPart>, Error> {
    let parts = match given {
        Value::String(text) => return Ok(vec![ContentPart::text(text.clone())]),
        Value::Array(parts) => parts,
        _ => return Err(Error::invalid(at, "must be a text or a list of parts")),
    };
    let read = parts.iter().enumerate().map(|(place, part)| {
        let at = format!("{at}/{place}");
        let source = &part["source"];
        let kind = source["mimeType"].as_str().unwrap_or_default();
        let value = source["value"].as_str().unwrap_or_default();
        let bytes = json!({ "type": "base64", "media_type": kind, "data": value });
        let shown = match (part["type"].as_str(), source["type"].as_str()) {
            (Some("text"), _) => json!({ "type": "text", "text": part["text"] }),
            (Some("image"), Some("data")) => json!({ "type": "image", "source": bytes }),
            (Some("image"), Some("url")) => {
                json!({ "type": "image", "source": { "type": "url", "url": value } })
            }
            (Some("document"), Some("data")) => {
                json!({ "type": "file", "name": "document", "source": bytes })
            }
            _ => {
                let detail = "must be a text, a picture, or a document that is in the message";
                return Err(Error::invalid(at, detail));
            }
        };
        let read = serde_json::from_value::<Input>(json!([shown]));
        read.map(|Input(parts)| parts)
            .map_err(|error| Error::invalid(at, error.to_string()))
    });
    Ok(read.collect::<Result<Vec<_>, _>>()?.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(given: &Value) -> Result<RunInput, Error> {
        let mut whole = json!({ "threadId": "t", "runId": "r", "messages": [] });
        for (name, value) in given.as_object().expect("an object") {
            whole[name] = value.clone();
        }
        RunInput::read(&whole)
    }

    #[test]
    fn only_what_is_new_is_said() {
        let input = read(&json!({ "messages": [
            { "id": "1", "role": "user", "content": "old" },
            { "id": "2", "role": "assistant", "content": "said" },
            { "id": "3", "role": "user", "content": "new" },
            { "id": "4", "role": "user", "content": [{ "type": "text", "text": "and" }] },
        ], "context": [{ "description": "page", "value": "cart" }] }))
        .expect("is read");
        let texts = ["Context:\npage: cart", "new", "and"].map(ContentPart::text);
        assert_eq!(input.said, texts);
        assert!(input.results.is_empty());
    }

    #[test]
    fn results_of_tools_and_answers_are_read() {
        let input = read(&json!({ "messages": [
            { "id": "1", "role": "user", "content": "old" },
            { "id": "2", "role": "tool", "toolCallId": "call_a", "content": "sun" },
        ], "resume": [{ "interruptId": "call_b", "status": "resolved", "payload": { "approved": true } }] }))
        .expect("is read");
        assert!(input.said.is_empty());
        assert_eq!(
            input.results,
            [("call_a".to_owned(), vec![ContentPart::text("sun")])]
        );
        assert_eq!(input.answers[0].id, "call_b");
    }

    #[test]
    fn what_cannot_be_meant_is_refused_by_name() {
        let user = json!({ "id": "1", "role": "user", "content": "hi" });
        for (given, pointer) in [
            (json!({}), "/messages"),
            (
                json!({ "messages": [user], "protocolVersion": "2.0" }),
                "/protocolVersion",
            ),
            (json!({ "messages": [user], "threadId": "" }), "/threadId"),
            (
                json!({ "messages": [{ "role": "user", "content": 1 }] }),
                "/messages/0/content",
            ),
            (
                json!({ "messages": [{ "role": "user", "content": [{ "type": "audio" }] }] }),
                "/messages/0/content/0",
            ),
            (
                json!({ "resume": [{ "interruptId": "a", "status": "maybe" }] }),
                "/resume/0/status",
            ),
        ] {
            let error = read(&given).expect_err("is refused");
            assert_eq!(error.members()[0].pointer, pointer);
        }
    }
}
