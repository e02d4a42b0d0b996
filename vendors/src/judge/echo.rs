//! What an earlier answer gave and has to come back.

use serde_json::{Value, json};

use super::{Case, Found};
use crate::memory::{Answer, Memory, prefix};
use crate::rules::{Echo, Need, On, Role};

/// An assistant message of the request.
struct Said {
    index: usize,
    /// As an answer is remembered: of Responses all items, as `{"items": […]}`.
    message: Value,
}

/// The first thing that does not come back as it has to.
pub(super) fn fault(echo: &Echo, case: &Case<'_>, memory: &Memory) -> Option<Found> {
    let messages = said(echo, case);
    match echo.need {
        Need::Present => messages.iter().find_map(|said| present(echo, said)),
        Need::Own => messages.iter().find_map(|said| own(echo, said, memory)),
        Need::Equal => messages
            .iter()
            .find_map(|said| against(said, case, memory, |answer| equal(echo, said, answer))),
        Need::Unchanged => messages
            .iter()
            .find_map(|said| against(said, case, memory, |answer| unchanged(echo, said, answer))),
        Need::Bound => bound(&messages, case, memory),
        Need::Order => messages
            .iter()
            .find_map(|said| against(said, case, memory, |answer| order(said, answer))),
    }
}

/// The fault of a message if it is none of the answers that it may repeat.
fn against(
    said: &Said,
    case: &Case<'_>,
    memory: &Memory,
    fault: impl Fn(&Answer) -> Option<Found>,
) -> Option<Found> {
    let answers = given(&said.message, case.conversation, memory);
    let mut faults = answers.into_iter().map(fault);
    let first = faults.next()??;
    faults.all(|fault| fault.is_some()).then_some(first)
}

/// The assistant messages that a rule is about.
fn said(echo: &Echo, case: &Case<'_>) -> Vec<Said> {
    let turns = &case.view.turns;
    let from = if echo.this_turn {
        turns
            .iter()
            .rposition(|turn| turn.role == Role::User)
            .unwrap_or(0)
    } else {
        0
    };
    let mut messages = Vec::new();
    for (place, turn) in turns.iter().enumerate().skip(from) {
        if turn.role != Role::Assistant || (echo.on == On::WithCalls && turn.calls.is_empty()) {
            continue;
        }
        let message = if let Some(items) = case.root.get("input").and_then(Value::as_array) {
            let end = turns.get(place + 1).map_or(items.len(), |next| next.index);
            json!({"items": &items[turn.index..end]})
        } else {
            turn.value.clone()
        };
        messages.push(Said {
            index: turn.index,
            message,
        });
    }
    messages
}

fn missing(said: &Said, at: &str, value: &str) -> Found {
    Found::from([
        ("index", said.index.to_string()),
        ("at", format!("messages.{}.{at}", said.index)),
        ("name", at.to_owned()),
        ("value", value.to_owned()),
        ("call", call_name(&said.message)),
    ])
}

fn call_name(message: &Value) -> String {
    let name = message.pointer("/tool_calls/0/function/name");
    name.and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn present(echo: &Echo, said: &Said) -> Option<Found> {
    let places = echo.member.places(&said.message);
    if places.is_empty() {
        // What would hold it is absent itself.
        return Some(missing(said, echo.member.as_str(), ""));
    }
    places
        .iter()
        .take(if echo.first_only { 1 } else { usize::MAX })
        .find(|place| place.value.is_none_or(Value::is_null))
        .map(|place| missing(said, &place.at, ""))
}

fn own(echo: &Echo, said: &Said, memory: &Memory) -> Option<Found> {
    echo.member
        .places(&said.message)
        .into_iter()
        .find_map(|place| {
            let value = place.value?.as_str()?;
            let strange =
                memory.signed(value).is_none() && !echo.instead.iter().any(|text| text == value);
            strange.then(|| missing(said, &place.at, value))
        })
}

/// The answers of this vendor's that a message may repeat.
fn given<'a>(message: &Value, conversation: &str, memory: &'a Memory) -> Vec<&'a Answer> {
    let (ids, calls, text) = read(message);
    if ids.is_empty() {
        return memory.of_text(&text);
    }
    let named = ids.iter().map(|id| memory.of_id(id));
    let Some(named) = named.into_iter().find(|answers| !answers.is_empty()) else {
        return memory.of_calls(conversation, &calls);
    };
    // Of several, those with these calls; a fold makes another conversation of the same answers.
    let fitting: Vec<&Answer> = named
        .iter()
        .copied()
        .filter(|it| it.calls == calls)
        .collect();
    // An id that only counts calls may be of a call that another vendor's model made.
    let counts = ids.iter().any(|id| {
        let number = id.rsplit_once(':').map_or("", |(_, number)| number);
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    });
    if counts || !fitting.is_empty() {
        fitting
    } else {
        named
    }
}

/// Ids and calls of an assistant message of any protocol, and its text.
pub(crate) fn read(message: &Value) -> (Vec<String>, Vec<(String, Value)>, String) {
    let mut ids = Vec::new();
    let mut calls = Vec::new();
    let mut text = String::new();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let parsed = |value: &Value| {
        value.as_str().map_or_else(
            || value.clone(),
            |text| serde_json::from_str(text).unwrap_or_else(|_| value.clone()),
        )
    };
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        ids.push(word(&call["id"]));
        let function = &call["function"];
        calls.push((word(&function["name"]), parsed(&function["arguments"])));
    }
    for part in message["items"].as_array().into_iter().flatten() {
        match part["type"].as_str() {
            Some("function_call") => {
                ids.push(word(&part["call_id"]));
                calls.push((word(&part["name"]), parsed(&part["arguments"])));
            }
            _ => text += &plain(&part["content"]),
        }
    }
    for block in message["content"].as_array().into_iter().flatten() {
        if block["type"] == "tool_use" {
            ids.push(word(&block["id"]));
            calls.push((word(&block["name"]), block["input"].clone()));
        }
    }
    text += &plain(&message["content"]);
    (ids, calls, text)
}

fn plain(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            .filter_map(|part| part["text"].as_str())
            .collect(),
        _ => String::new(),
    }
}

fn values(echo: &Echo, message: &Value) -> Vec<Value> {
    let places = echo.member.places(message);
    places
        .into_iter()
        .filter_map(|place| place.value.cloned())
        .collect()
}

fn unchanged(echo: &Echo, said: &Said, answer: &Answer) -> Option<Found> {
    let gave = values(echo, &answer.message);
    let sent = values(echo, &said.message);
    let strange = sent.iter().find(|value| !gave.contains(value))?;
    Some(missing(said, echo.member.as_str(), &strange.to_string()))
}

fn equal(echo: &Echo, said: &Said, answer: &Answer) -> Option<Found> {
    let (sent, gave) = (values(echo, &said.message), values(echo, &answer.message));
    if gave.is_empty() || sent == gave {
        return None;
    }
    let differing = sent.iter().find(|value| !gave.contains(value));
    let value = differing.map(Value::to_string).unwrap_or_default();
    Some(missing(said, echo.member.as_str(), &value))
}

/// Pieces of an answer by what tells them apart.
fn keys(message: &Value) -> Vec<String> {
    let parts = message["items"]
        .as_array()
        .or_else(|| message["content"].as_array());
    // A message goes by its text: nobody need send the id of an item that is not stored.
    let text_of = |part: &Value| {
        let said = match &part["content"] {
            Value::String(text) => text.clone(),
            content => {
                let inner = content.as_array()?.iter();
                inner.filter_map(|it| it["text"].as_str()).collect()
            }
        };
        (part["role"] == "assistant").then(|| format!("text {said}"))
    };
    let key = |part: &Value| {
        if let Some(key) = text_of(part) {
            return Some(key);
        }
        ["signature", "encrypted_content", "call_id", "id", "text"]
            .iter()
            .find_map(|name| part[*name].as_str().map(|word| format!("{name} {word}")))
    };
    parts.into_iter().flatten().filter_map(key).collect()
}

fn order(said: &Said, answer: &Answer) -> Option<Found> {
    let gave = keys(&answer.message);
    let sent: Vec<usize> = keys(&said.message)
        .iter()
        .filter_map(|key| gave.iter().position(|other| other == key))
        .collect();
    if let Some(place) = sent.windows(2).position(|pair| pair[0] > pair[1]) {
        return Some(missing(
            said,
            &format!("content.{place}"),
            &gave[sent[place]],
        ));
    }
    // A reasoning item is nothing without the item that it was for.
    sent.iter().enumerate().find_map(|(place, number)| {
        let reasoning = gave[*number].starts_with("encrypted_content");
        let followed = sent.get(place + 1) == Some(&(number + 1));
        (reasoning && !followed && gave.len() > number + 1)
            .then(|| missing(said, &format!("items.{place}"), &gave[*number]))
    })
}

/// Signatures are for what stood before them: whatever changed there makes them invalid.
fn bound(messages: &[Said], case: &Case<'_>, memory: &Memory) -> Option<Found> {
    let mut before: Option<String> = None;
    for said in messages {
        for (place, block) in said.message["content"]
            .as_array()
            .into_iter()
            .flatten()
            .enumerate()
        {
            let Some(signature) = block["signature"].as_str() else {
                continue;
            };
            let signed = memory.signed(signature)?;
            let at = format!("content.{place}");
            if signed.model != case.model {
                return Some(missing(said, &at, "model"));
            }
            let gap = before.is_some() && before != signed.before;
            if gap || signed.prefix != prefix(case.root, said.index) {
                return Some(missing(said, &at, "prefix"));
            }
            before = Some(signature.to_owned());
        }
    }
    None
}
