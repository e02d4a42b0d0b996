//! What an emulator judged and counted.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::count::{Tokens, money};
use crate::rules::Price;

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It keeps the rules, and was answered.
    Kept,
    /// It breaks a rule, and was refused.
    Refused,
    /// It was answered, but something that it sends is dropped or does harm.
    Harmful,
    /// It keeps the rules, and an error was asked for.
    Injected,
    /// It keeps the rules, and its prompt is too long.
    Overflow,
}

/// One request as it was judged.
#[derive(Debug, Clone, Serialize)]
pub struct Judgement {
    pub vendor: String,
    pub model: String,
    pub conversation: String,
    pub verdict: Verdict,
    /// The beginning of the user's text with the script, or of the last one.
    pub said: String,
    /// The rules that it breaks, the one that it was refused for first.
    pub rules: Vec<String>,
    /// Where it breaks the first.
    pub at: String,
    pub status: u16,
    /// The body of a refusal.
    pub answer: String,
}

/// What one conversation took of one model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Entry {
    pub answers: u64,
    pub prompt: u64,
    pub cached: u64,
    pub written: u64,
    pub output: u64,
    pub thinking: u64,
    /// Millionths of a millionth of a dollar.
    pub pico_dollars: u128,
}

/// All conversations, by conversation and model.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: BTreeMap<(String, String), Entry>,
}

/// An entry with what it is of.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub vendor: String,
    pub conversation: String,
    pub model: String,
    #[serde(flatten)]
    pub entry: Entry,
}

impl Ledger {
    /// Adds an answer.
    pub fn add(&mut self, conversation: &str, model: &str, tokens: Tokens, price: Price) {
        let key = (conversation.to_owned(), model.to_owned());
        let entry = self.entries.entry(key).or_default();
        entry.answers += 1;
        entry.prompt += tokens.prompt;
        entry.cached += tokens.cached;
        entry.written += tokens.written;
        entry.output += tokens.output;
        entry.thinking += tokens.thinking;
        entry.pico_dollars += money(tokens, price);
    }

    /// All entries in order.
    pub fn rows(&self, vendor: &str) -> Vec<Row> {
        self.entries
            .iter()
            .map(|((conversation, model), entry)| Row {
                vendor: vendor.to_owned(),
                conversation: conversation.clone(),
                model: model.clone(),
                entry: entry.clone(),
            })
            .collect()
    }
}
