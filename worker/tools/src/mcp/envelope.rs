//! Messages of a server, read so that one odd member costs no more than itself.
//!
//! The protocol library decodes a result as a whole: one member of a form that it does not know,
//! anywhere in a list, and the whole list is lost. So results pass through it sealed, as a value
//! that it does not look into, and are decoded here element by element.

use std::borrow::Cow;

use mainspring_worker::llm::json;
use rmcp::model::{RequestId, ServerResult};
use serde_json::{Map, Value};

use super::inquiring::ASKS;

/// The member of a sealed result that holds the result.
const SEALED: &str = "mainspring/result";

/// The capability under which the handshake keeps what the server says of its tasks.
pub(super) const TASKS: &str = "mainspring/tasks";

/// Capabilities that matter here; anything else that a server says of itself is ignored.
const CAPABILITIES: [&str; 3] = ["prompts", "resources", "tools"];

/// The method, after sealing, of a request that asks a person; its parameters are sealed in the same way.
pub(super) const QUESTION: &str = "mainspring/question";

/// The member of a sealed question that names the request on whose events it came.
pub(super) const DURING: &str = "mainspring/during";

/// The message with its result or question sealed, or the message itself if it has neither. A question that came with the
/// events of one request names that: nothing else tells of which call it is.
pub(super) fn sealed<'t>(text: &'t str, during: Option<&RequestId>) -> Cow<'t, str> {
    match json::parse(text) {
        Some(Value::Object(mut message)) if message.get("method").is_some_and(|it| it == ASKS) => {
            let params = message.remove("params").unwrap_or_default();
            let during = during.and_then(|id| serde_json::to_value(id).ok());
            let params = serde_json::json!({ SEALED: params, DURING: during });
            message.insert("method".to_owned(), QUESTION.into());
            message.insert("params".to_owned(), params);
            Cow::Owned(Value::Object(message).to_string())
        }
        Some(Value::Object(message)) if message.contains_key("result") => {
            Cow::Owned(Value::Object(seal(message)).to_string())
        }
        _ => Cow::Borrowed(text),
    }
}

fn seal(mut message: Map<String, Value>) -> Map<String, Value> {
    let result = message.remove("result").unwrap_or_default();
    let result = match handshake(&result) {
        Some(plain) => plain,
        None => Value::Object(Map::from_iter([(SEALED.to_owned(), result)])),
    };
    message.insert("result".to_owned(), result);
    message
        .entry("jsonrpc")
        .or_insert_with(|| Value::from("2.0"));
    // An error beside a result is none if it is empty, and the library would see both.
    if message.get("error").is_some_and(Value::is_null) {
        message.remove("error");
    }
    message
}

/// The result of `initialize` with only the members that are needed, in the form that they must
/// have; `None` if the result is another one.
fn handshake(result: &Value) -> Option<Value> {
    let version = result.get("protocolVersion")?.as_str()?;
    let said = result.get("capabilities")?;
    let mut capabilities = Map::new();
    for name in CAPABILITIES {
        if let Some(about) = said.get(name).filter(|about| is_said(about)) {
            let flag = |flag: &str| about.get(flag) == Some(&Value::Bool(true));
            let about = serde_json::json!({ "listChanged": flag("listChanged") });
            capabilities.insert(name.to_owned(), about);
        }
    }
    if let Some(tasks) = said.get("tasks").filter(|tasks| tasks.is_object()) {
        let kept = serde_json::json!({ TASKS: tasks });
        capabilities.insert("experimental".to_owned(), kept);
    }
    let info = result.get("serverInfo");
    let word = |name: &str| {
        let word = info.and_then(|info| info.get(name));
        word.and_then(Value::as_str).unwrap_or("?").to_owned()
    };
    Some(serde_json::json!({
        "protocolVersion": version,
        "capabilities": capabilities,
        "serverInfo": { "name": word("name"), "version": word("version") },
    }))
}

fn is_said(capability: &Value) -> bool {
    !matches!(capability, Value::Null | Value::Bool(false))
}

/// The parameters of a sealed question as the server wrote them, and the request on whose events it came.
pub(super) fn question(params: Option<Value>) -> (Value, Option<Value>) {
    let mut params = params.unwrap_or_default();
    let mut taken = |name: &str| params.get_mut(name).map(Value::take).unwrap_or_default();
    let (said, during) = (taken(SEALED), taken(DURING));
    (said, Some(during).filter(|during| !during.is_null()))
}

/// The result in a response, as the server wrote it.
pub(super) fn opened(result: ServerResult) -> Value {
    let value = match result {
        ServerResult::CustomResult(custom) => custom.0,
        // Only a result that was not sealed is decoded as anything else.
        other => serde_json::to_value(other).unwrap_or_default(),
    };
    match value {
        Value::Object(mut members) if members.contains_key(SEALED) => {
            members.remove(SEALED).unwrap_or_default()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{ServerJsonRpcMessage, ServerPeerInfo, ServerRequest};
    use serde_json::json;

    use super::*;

    fn result(text: &str) -> Value {
        let message = serde_json::from_str(&sealed(text, None)).expect("a message");
        let ServerJsonRpcMessage::Response(response) = message else {
            panic!("{text}");
        };
        opened(response.result)
    }

    #[test]
    fn a_result_of_any_form_arrives_as_it_was_written() {
        for odd in [
            json!({"tools": [{"name": 7}, null], "nextCursor": ""}),
            json!({"content": [{"type": "hologram"}], "_meta": 3}),
            json!({"resultType": "complete"}),
            json!({}),
            json!("text"),
            json!(null),
        ] {
            let text = json!({"jsonrpc": "2.0", "id": 1, "result": odd}).to_string();
            assert_eq!(result(&text), odd);
        }
        let lone = r#"{"id":1,"result":{"content":[{"type":"text","text":"a\ud83d"}]}}"#;
        assert_eq!(result(lone)["content"][0]["text"], "a\u{fffd}");
    }

    #[test]
    fn other_messages_are_left_alone() {
        for text in [
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"no"}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#,
            "not JSON",
        ] {
            assert_eq!(sealed(text, None), text);
        }
    }

    #[test]
    fn a_question_of_any_form_arrives_as_it_was_written_and_names_its_request() {
        for params in [
            json!({"message": 3, "requestedSchema": []}),
            json!(null),
            json!({}),
        ] {
            let text =
                json!({"jsonrpc": "2.0", "id": "q", "method": ASKS, "params": params}).to_string();
            for during in [None, Some(RequestId::Number(7))] {
                let message =
                    serde_json::from_str(&sealed(&text, during.as_ref())).expect("a message");
                let ServerJsonRpcMessage::Request(request) = message else {
                    panic!("{text}");
                };
                let ServerRequest::CustomRequest(asked) = request.request else {
                    panic!("{text}");
                };
                assert_eq!(asked.method, QUESTION);
                let expected = during.is_some().then(|| json!(7));
                assert_eq!(question(asked.params), (params.clone(), expected));
            }
        }
    }

    #[test]
    fn a_handshake_with_odd_members_is_one() {
        let text = json!({"id": 0, "result": {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": true, "resources": false, "prompts": null, "logging": 3,
                "tasks": {"requests": {}}},
            "serverInfo": {"name": "x", "icons": "none"},
        }});
        let message = serde_json::from_str(&sealed(&text.to_string(), None)).expect("a message");
        let ServerJsonRpcMessage::Response(response) = message else {
            panic!("a response");
        };
        let ServerResult::InitializeResult(result) = response.result else {
            panic!("{:?}", response.result);
        };
        let info = ServerPeerInfo::from(result);
        assert!(info.capabilities.tools.is_some());
        assert!(info.capabilities.resources.is_none() && info.capabilities.prompts.is_none());
        let kept = info.capabilities.experimental.expect("tasks");
        assert!(kept.contains_key(TASKS), "{kept:?}");
    }
}
