//! What an emulator remembers: the answers that it gave, and what it signed.

use std::collections::{HashMap, VecDeque};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::rules::Protocol;

/// The most answers that are remembered; older ones are foreign again.
const ANSWERS_MAX: usize = 20_000;
/// The most prompts of one conversation that a cache keeps.
const PROMPTS_MAX: usize = 8;

/// What is remembered between requests.
#[derive(Debug, Default)]
pub struct Memory {
    answers: VecDeque<Answer>,
    forgotten: usize,
    by_id: HashMap<String, Vec<usize>>,
    by_text: HashMap<String, Vec<usize>>,
    by_signature: HashMap<String, Signed>,
    prompts: HashMap<String, VecDeque<Vec<(u64, u64)>>>,
    injected: HashMap<String, u32>,
    /// Answers so far, which makes each one different.
    pub count: u64,
}

/// An answer as it was given.
#[derive(Debug, Clone)]
pub struct Answer {
    pub conversation: String,
    pub model: String,
    /// The assistant message, or `{"items": […]}` of Responses.
    pub message: Value,
    /// Name and arguments of its calls.
    pub calls: Vec<(String, Value)>,
}

/// What a signature was given for.
#[derive(Debug, Clone)]
pub struct Signed {
    pub model: String,
    /// Of all that stood before it.
    pub prefix: String,
    /// The signature before it in that request or answer.
    pub before: Option<String>,
    /// The text that it signs.
    pub text: String,
}

impl Memory {
    /// Remembers an answer by the ids of its calls, and by its text if it has no calls.
    pub fn keep(&mut self, answer: Answer, ids: Vec<String>, text: &str) {
        let place = self.forgotten + self.answers.len();
        if ids.is_empty() && !text.is_empty() {
            self.by_text.entry(text.to_owned()).or_default().push(place);
        }
        for id in ids {
            self.by_id.entry(id).or_default().push(place);
        }
        self.answers.push_back(answer);
        if self.answers.len() > ANSWERS_MAX {
            self.answers.pop_front();
            self.forgotten += 1;
        }
    }

    /// Remembers a signature.
    pub fn sign(&mut self, signature: String, signed: Signed) {
        self.by_signature.insert(signature, signed);
    }

    /// What a signature was given for, if it is of this vendor's.
    pub fn signed(&self, signature: &str) -> Option<&Signed> {
        self.by_signature.get(signature)
    }

    /// The answers that had a call of this id: one vendor counts calls anew in each conversation.
    pub fn of_id(&self, id: &str) -> Vec<&Answer> {
        let places = self.by_id.get(id).into_iter().flatten();
        places.filter_map(|place| self.at(*place)).collect()
    }

    /// The answers without calls that had this text.
    pub fn of_text(&self, text: &str) -> Vec<&Answer> {
        let places = self.by_text.get(text).into_iter().flatten();
        places.filter_map(|place| self.at(*place)).collect()
    }

    /// The answers of a conversation with these very calls, the last one first.
    pub fn of_calls(&self, conversation: &str, calls: &[(String, Value)]) -> Vec<&Answer> {
        self.answers
            .iter()
            .rev()
            .filter(|answer| answer.conversation == conversation && answer.calls == calls)
            .collect()
    }

    fn at(&self, place: usize) -> Option<&Answer> {
        self.answers.get(place.checked_sub(self.forgotten)?)
    }

    /// How many tokens of a prompt's beginning an earlier prompt of the conversation had. The prompt comes
    /// as pieces, each with its hash and its tokens, and is remembered.
    pub fn cached(&mut self, conversation: &str, pieces: Vec<(u64, u64)>) -> u64 {
        let prompts = self.prompts.entry(conversation.to_owned()).or_default();
        let cached = prompts.iter().map(|prompt| common(prompt, &pieces)).max();
        prompts.push_back(pieces);
        if prompts.len() > PROMPTS_MAX {
            prompts.pop_front();
        }
        cached.unwrap_or(0)
    }

    /// Whether an error that is to come so many times is due once more.
    pub fn inject(&mut self, what: String, times: u32) -> bool {
        let count = self.injected.entry(what).or_default();
        *count += 1;
        *count <= times
    }
}

fn common(one: &[(u64, u64)], other: &[(u64, u64)]) -> u64 {
    one.iter()
        .zip(other)
        .take_while(|(one, other)| one == other)
        .map(|(one, _)| one.1)
        .sum()
}

/// A hash of words, as so many letters and digits.
pub fn digest(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    hash.finalize()
        .iter()
        .fold(String::new(), |mut text, byte| {
            use std::fmt::Write;
            write!(text, "{byte:02x}").expect("writing to a string cannot fail");
            text
        })
}

/// The pieces of a prompt in order: tools, system, then message by message.
pub fn pieces(protocol: Protocol, body: &Value) -> Vec<Value> {
    let mut pieces = Vec::new();
    for name in ["tools", "system", "instructions"] {
        if let Some(value) = body.get(name) {
            pieces.push(value.clone());
        }
    }
    let list = match protocol {
        Protocol::Responses => body.get("input"),
        Protocol::Chat | Protocol::Messages => body.get("messages"),
    };
    match list {
        Some(Value::Array(list)) => pieces.extend(list.iter().cloned()),
        Some(other) => pieces.push(other.clone()),
        None => {}
    }
    for piece in &mut pieces {
        strip(piece);
    }
    pieces
}

/// Takes out what is no part of a conversation: marks for caches. A text and one text block are the same.
fn strip(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.remove("cache_control");
            for (name, member) in object.iter_mut() {
                if name == "content" && member.is_string() {
                    *member = json!([{"type": "text", "text": member.clone()}]);
                }
                strip(member);
            }
        }
        Value::Array(list) => list.iter_mut().for_each(strip),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A hash of the beginning of a Messages conversation: system, tools and so many messages, without thinking.
pub fn prefix(body: &Value, messages: usize) -> String {
    let mut body = body.clone();
    if let Some(list) = body.get_mut("messages").and_then(Value::as_array_mut) {
        list.truncate(messages);
        for message in list {
            if let Some(blocks) = message.get_mut("content").and_then(Value::as_array_mut) {
                blocks.retain(|block| {
                    block["type"] != "thinking" && block["type"] != "redacted_thinking"
                });
            }
        }
    }
    if let Some(system) = body.get_mut("system")
        && system.is_string()
    {
        *system = json!([{"type": "text", "text": system.clone()}]);
    }
    digest(&[&Value::Array(pieces(Protocol::Messages, &body)).to_string()])
}
