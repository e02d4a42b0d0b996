//! Answers in the form of each protocol, whole and in pieces.

mod chat;
mod messages;
mod responses;

use serde_json::Value;

use crate::count::Tokens;
use crate::memory::digest;
use crate::rules::{Protocol, Rules};

/// What is answered, before it has a form.
#[derive(Debug, Clone)]
pub struct Content {
    pub model: String,
    /// Different for each answer.
    pub seed: String,
    pub think: Option<String>,
    pub say: Option<String>,
    pub calls: Vec<Made>,
    pub cut: bool,
    pub tokens: Tokens,
}

/// A call with its id.
#[derive(Debug, Clone)]
pub struct Made {
    pub id: String,
    pub name: String,
    pub arguments: Value,
}

/// An answer in its form.
#[derive(Debug, Clone)]
pub struct Formed {
    /// The whole body.
    pub body: Value,
    /// The events of a stream, each with its lines.
    pub frames: Vec<String>,
    /// What a client sends back: the assistant message, or `{"items": […]}`.
    pub message: Value,
    /// What was signed: signature and text.
    pub signatures: Vec<(String, String)>,
}

/// Gives an answer the form that a vendor's protocol has.
pub fn form(rules: &Rules, content: &Content) -> Formed {
    match rules.protocol {
        Protocol::Chat => chat::form(rules, content),
        Protocol::Messages => messages::form(content),
        Protocol::Responses => responses::form(content),
    }
}

/// The id of a call as a vendor makes it.
pub fn id(form: &str, seed: &str, name: &str, place: usize, counter: usize) -> String {
    let hash = digest(&[seed, &place.to_string()]);
    form.replace("{hex}", &hash[..24])
        .replace("{nine}", &hash[..9])
        .replace("{name}", name)
        .replace("{n}", &counter.to_string())
}

/// A signature of something.
fn signature(seed: &str, what: &str) -> String {
    format!("sig{}==", &digest(&[seed, what])[..40])
}

/// A text in pieces of a few characters.
fn split(text: &str) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    characters
        .chunks(12)
        .map(|piece| piece.iter().collect())
        .collect()
}

fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

fn event(name: &str, value: &Value) -> String {
    format!("event: {name}\ndata: {value}\n\n")
}
