//! Rules whose violation makes providers reject a whole request, checked more strictly than they
//! do: the order of speakers, and that every call has exactly one result, in its place.

use std::collections::BTreeSet;
use std::sync::Arc;

use mainspring_shared::message::{Message, Role};
use serde_json::Value;

/// Longest name and ID accepted by every provider.
const NAME_CHARS_MAX: usize = 64;

/// Fails unless each call in the stored messages has one result, directly after the message that
/// made the call and in the order of the calls, and the last message is not the assistant's.
pub fn stored(messages: &[Arc<Message>]) -> Result<(), String> {
    let mut open: Vec<&str> = Vec::new();
    let mut known = BTreeSet::new();
    for message in messages {
        let seq = message.seq;
        if message.role == Role::Tool {
            let id = message.tool_call_id.as_deref().unwrap_or_default();
            if open.is_empty() || open.remove(0) != id {
                return Err(format!("the result {id:?} at {seq} is out of its place"));
            }
            continue;
        }
        if !open.is_empty() {
            return Err(format!("no result of {open:?} before {seq}"));
        }
        open = message.tool_calls.iter().map(|c| c.id.as_str()).collect();
        for id in &open {
            if !known.insert(*id) {
                return Err(format!("{id} at {seq} was used before"));
            }
        }
    }
    let last = messages.last().map(|message| message.role);
    if !open.is_empty() || last == Some(Role::Assistant) || last.is_none() {
        return Err(format!("it ends with {last:?} and open calls {open:?}"));
    }
    Ok(())
}

/// Checks the same for a chat completions request.
pub fn openai(body: &Value) -> Result<(), String> {
    let messages = body["messages"].as_array().ok_or("no messages")?;
    let mut open: Vec<&str> = Vec::new();
    let mut begun = false;
    for (at, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        if role == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            let asked = open.iter().position(|open| *open == id);
            let asked = asked.ok_or(format!("{at}: nobody waits for {id:?}"))?;
            open.remove(asked);
            continue;
        }
        if !open.is_empty() {
            return Err(format!("{at}: {open:?} have no result"));
        }
        match role {
            "system" | "developer" if at == 0 => {}
            "user" => begun = true,
            "assistant" if begun => open = openai_calls(message, at)?,
            _ => return Err(format!("{at}: {role:?} must not speak here")),
        }
        if open.is_empty() && is_empty(&message["content"]) {
            return Err(format!("{at}: {role} says nothing"));
        }
    }
    let last = messages.last().map(|message| &message["role"]);
    if !open.is_empty() || !last.is_some_and(|role| role == "user" || role == "tool") {
        return Err(format!("it ends with {last:?} and open calls {open:?}"));
    }
    Ok(())
}

fn openai_calls(message: &Value, at: usize) -> Result<Vec<&str>, String> {
    let mut ids = Vec::new();
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let function = &call["function"];
        let id = name(&call["id"]).map_err(|why| format!("{at}: {why}"))?;
        name(&function["name"]).map_err(|why| format!("{at}: {why}"))?;
        let arguments = function["arguments"].as_str().unwrap_or_default();
        if !serde_json::from_str::<Value>(arguments).is_ok_and(|value| value.is_object()) {
            return Err(format!("{at}: {id} has the arguments {arguments:.80}"));
        }
        if ids.contains(&id) {
            return Err(format!("{at}: {id} is there twice"));
        }
        ids.push(id);
    }
    Ok(ids)
}

/// Checks the same for a Messages request.
pub fn anthropic(body: &Value) -> Result<(), String> {
    let messages = body["messages"].as_array().ok_or("no messages")?;
    let mut open: Vec<&str> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let wanted = ["user", "assistant"][at % 2];
        if message["role"] != wanted {
            return Err(format!("{at}: {} and not {wanted}", message["role"]));
        }
        if is_empty(&message["content"]) {
            return Err(format!("{at}: it says nothing"));
        }
        // Plain string content is a block of its own, and never a result.
        let blocks = message["content"].as_array().map(Vec::as_slice);
        let blocks = blocks.unwrap_or_default();
        let asked = std::mem::take(&mut open);
        open = anthropic_blocks(blocks, asked, at)?;
    }
    if !open.is_empty() || messages.len() % 2 == 0 {
        return Err(format!(
            "{} messages and open calls {open:?}",
            messages.len()
        ));
    }
    Ok(())
}

/// The calls in a message's blocks; fails unless the blocks start with the results that are due.
fn anthropic_blocks<'b>(
    blocks: &'b [Value],
    mut due: Vec<&str>,
    at: usize,
) -> Result<Vec<&'b str>, String> {
    let mut calls = Vec::new();
    let mut others = false;
    for block in blocks {
        match block["type"].as_str().unwrap_or_default() {
            "tool_result" => {
                let id = block["tool_use_id"].as_str().unwrap_or_default();
                let asked = due.iter().position(|due| *due == id);
                let asked = asked.ok_or(format!("{at}: nobody waits for {id:?}"))?;
                due.remove(asked);
                if others {
                    return Err(format!("{at}: {id} stands behind something else"));
                }
            }
            "tool_use" => {
                others = true;
                let id = name(&block["id"]).map_err(|why| format!("{at}: {why}"))?;
                name(&block["name"]).map_err(|why| format!("{at}: {why}"))?;
                if !block["input"].is_object() || calls.contains(&id) {
                    return Err(format!("{at}: {id} is twice there or has no object"));
                }
                calls.push(id);
            }
            "text" if is_empty(&block["text"]) => return Err(format!("{at}: an empty text")),
            _ => others = true,
        }
    }
    if due.is_empty() {
        Ok(calls)
    } else {
        Err(format!("{at}: {due:?} have no result"))
    }
}

fn is_empty(content: &Value) -> bool {
    match content {
        Value::String(text) => text.trim().is_empty(),
        Value::Array(parts) => parts.is_empty(),
        _ => true,
    }
}

fn name(value: &Value) -> Result<&str, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let name = value.as_str().unwrap_or_default();
    if name.is_empty() || name.len() > NAME_CHARS_MAX || !name.chars().all(fits) {
        return Err(format!("{value} is no name"));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn user(text: &str) -> Value {
        json!({"role": "user", "content": text})
    }

    #[test]
    fn chat_completions_are_judged() {
        let call = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "t", "arguments": arguments}});
        let asks =
            |calls: Value| json!({"role": "assistant", "content": null, "tool_calls": calls});
        let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "r"});
        let ask = asks(json!([call("a", "{}"), call("b", "{}")]));
        let good = json!([{"role": "system", "content": "s"}, user("u"), ask, result("b"), result("a"), user("v")]);
        assert_eq!(openai(&json!({"messages": good})), Ok(()));
        for bad in [
            json!([]),
            json!([user("")]),
            json!([user("u"), {"role": "assistant", "content": "x"}]),
            json!([{"role": "assistant", "content": "x"}, user("u")]),
            json!([user("u"), {"role": "system", "content": "s"}]),
            json!([user("u"), ask, result("a")]),
            json!([user("u"), ask, result("a"), user("v"), result("b")]),
            json!([user("u"), ask, result("a"), result("a"), result("b")]),
            json!([user("u"), ask, result("a"), result("b"), result("c")]),
            json!([user("u"), result("a")]),
            json!([user("u"), asks(json!([call("a", "[]")])), result("a")]),
            json!([user("u"), asks(json!([call("a", "{")])), result("a")]),
            json!([user("u"), asks(json!([call("é", "{}")])), result("é")]),
            json!([
                user("u"),
                asks(json!([call("a", "{}"), call("a", "{}")])),
                result("a"),
                result("a")
            ]),
        ] {
            assert!(openai(&json!({"messages": bad})).is_err(), "{bad}");
        }
    }

    #[test]
    fn requests_for_messages_are_judged() {
        let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "t", "input": {}});
        let asks = |calls: Value| json!({"role": "assistant", "content": calls});
        let result = |id: &str| json!({"type": "tool_result", "tool_use_id": id, "content": "r"});
        let says = |blocks: Value| json!({"role": "user", "content": blocks});
        let text = json!({"type": "text", "text": "v"});
        let ask = asks(json!([text, call("a"), call("b")]));
        let good = json!([
            user("u"),
            ask,
            says(json!([result("b"), result("a"), text]))
        ]);
        assert_eq!(anthropic(&json!({"messages": good})), Ok(()));
        for bad in [
            json!([]),
            json!([user(" ")]),
            json!([user("u"), user("v")]),
            json!([user("u"), ask]),
            json!([user("u"), ask, says(json!([result("a")]))]),
            json!([
                user("u"),
                ask,
                says(json!([result("a"), text, result("b")]))
            ]),
            json!([
                user("u"),
                ask,
                says(json!([result("a"), result("a"), result("b")]))
            ]),
            json!([user("u"), ask, user("v")]),
            json!([
                user("u"),
                asks(json!([call("a"), call("a")])),
                says(json!([result("a")]))
            ]),
            json!([user("u"), asks(json!([])), user("v")]),
            json!([
                user("u"),
                asks(json!([{"type": "text", "text": ""}])),
                user("v")
            ]),
            json!([says(json!([result("a")]))]),
        ] {
            assert!(anthropic(&json!({"messages": bad})).is_err(), "{bad}");
        }
    }
}
