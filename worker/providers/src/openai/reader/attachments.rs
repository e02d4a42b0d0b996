//! What servers attach to a message as a whole, beside its text and calls.

use serde_json::{Map, Value};

use crate::answer::ChunkSink;
use crate::surrogates;
use mainspring_worker::llm::Error;

/// The members, all of which their servers want back: OpenRouter and MiniMax; LiteLLM; Gemini.
const MEMBERS: &[&str] = &[
    "reasoning_details",
    "thinking_blocks",
    "provider_specific_fields",
    "extra_content",
];

/// The members of an item whose deltas continue a text; those of any other are whole.
const TEXTS: &[&str] = &["text", "summary", "thinking", "data"];

/// The members that end an item: what follows is another one.
const ENDS: &[&str] = &["signature"];

/// What was attached to a message, by member and in the order in which the members first came.
#[derive(Debug, Default)]
pub(super) struct Attachments {
    members: Map<String, Value>,
    /// Whether deltas ended inside a character.
    halves: bool,
}

impl Attachments {
    /// Reads those of a message or of a delta.
    pub(super) fn read(&mut self, delta: &Value, sink: &mut ChunkSink<'_>) -> Result<(), Error> {
        for name in MEMBERS {
            let Some(value) = delta.get(name).filter(|value| !value.is_null()) else {
                continue;
            };
            sink.keeps(value)?;
            self.halves |= sink.has_halves();
            match (self.members.get_mut(*name), value) {
                (Some(Value::Array(items)), Value::Array(more)) => {
                    for item in more {
                        add(items, item);
                    }
                }
                (Some(Value::Object(members)), Value::Object(more)) => {
                    members.extend(more.clone());
                }
                (None, Value::Array(more)) => {
                    let mut items = Vec::new();
                    for item in more {
                        add(&mut items, item);
                    }
                    self.members.insert((*name).to_owned(), Value::Array(items));
                }
                _ => {
                    self.members.insert((*name).to_owned(), value.clone());
                }
            }
        }
        Ok(())
    }

    /// The reasoning in a delta that has it only as details.
    pub(super) fn thoughts(delta: &Value) -> impl Iterator<Item = &str> {
        let lists = ["reasoning_details", "thinking_blocks"];
        let items = lists
            .into_iter()
            .find_map(|name| delta.get(name)?.as_array());
        items.into_iter().flatten().filter_map(|item| {
            let texts = ["text", "summary", "thinking"];
            texts.iter().find_map(|name| item.get(name)?.as_str())
        })
    }

    /// The members and their values.
    pub(super) fn into_members(self) -> impl Iterator<Item = (String, Value)> {
        let halves = self.halves;
        let whole = move |value| {
            if halves {
                surrogates::whole(value)
            } else {
                value
            }
        };
        let members = self.members.into_iter();
        members.map(move |(name, value)| (name, whole(value)))
    }
}

/// Adds an item, or the rest of one: of that with its index, or of the last one if that is of its type and not ended.
fn add(items: &mut Vec<Value>, item: &Value) {
    let (index, kind) = (item.get("index"), item.get("type"));
    let ended = |one: &Value| {
        ENDS.iter().any(|name| {
            one.get(name)
                .and_then(Value::as_str)
                .is_some_and(|it| !it.is_empty())
        })
    };
    let same = match index {
        Some(_) => items
            .iter()
            .rposition(|one| one.get("index") == index && one.get("type") == kind),
        None => items.len().checked_sub(1).filter(|last| {
            items[*last].get("type") == kind && kind.is_some() && !ended(&items[*last])
        }),
    };
    let (Some(Value::Object(known)), Value::Object(more)) =
        (same.and_then(|at| items.get_mut(at)), item)
    else {
        items.push(item.clone());
        return;
    };
    for (name, value) in more {
        match (known.get_mut(name), value) {
            (Some(Value::String(text)), Value::String(piece)) if TEXTS.contains(&name.as_str()) => {
                text.push_str(piece);
            }
            (Some(_), Value::Null) => {}
            _ => {
                known.insert(name.clone(), value.clone());
            }
        }
    }
}
