//! What a client of this API hears of a send, derived from the events that native streams are made of.
//!
//! A response begins with a round and ends with the send, or with calls that the client has to answer. The same
//! listener reads stored events alone and stored and live ones together, so a response reads the same however it was
//! read. It is a pure function of the events.

use std::collections::BTreeSet;

use mainspring_shared::message::{ContentPart, Message, Role};
use mainspring_shared::send::SendView;
use mainspring_shared::usage::Usage;
use serde::Deserialize;
use serde_json::Value;

/// What is heard.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Heard {
    /// A piece of what a round says.
    Piece(Piece),
    /// What was said of a round is void: it is said again from the start.
    Void,
    /// A round has said all, and makes these calls to the client.
    Said { round: i32, calls: Vec<Called> },
    /// The response is over.
    Over(Over),
}

/// A piece of text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Piece {
    pub(crate) kind: Kind,
    pub(crate) round: i32,
    pub(crate) text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Reasoning,
    Text,
}

/// A call that the client makes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Called {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

/// How a response ends.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Over {
    /// With calls for the client: the send waits for their results.
    Calls,
    /// With the send.
    Send(Box<SendView>),
}

/// Listens to one response.
#[derive(Debug)]
pub(crate) struct Listener {
    /// Its first round.
    from: i32,
    /// The functions that the client runs.
    functions: BTreeSet<String>,
    /// Whether only a whole answer is told, because it has to fit a schema.
    whole: bool,
    open: Option<Open>,
    /// What a round said, kept until it is known to be the answer.
    kept: Option<(i32, String)>,
    /// The calls that the response may end with.
    asked: Vec<String>,
    /// What its rounds used.
    pub(crate) usage: Usage,
    /// Where the response before began, and where the one behind it does.
    before: (Option<i32>, i32),
    over: bool,
}

/// What was heard of a round that is not stored yet.
#[derive(Debug)]
struct Open {
    round: i32,
    attempt: i32,
    reasoning: String,
    text: String,
}

#[derive(Deserialize)]
struct Delta {
    round: i32,
    attempt: i32,
    offset: usize,
    text: String,
}

#[derive(Deserialize)]
struct Reset {
    round: i32,
    attempt: i32,
}

#[derive(Deserialize)]
struct RoundEnd {
    round: i32,
    usage: Usage,
}

impl Listener {
    pub(crate) fn new(from: i32, functions: BTreeSet<String>, whole: bool) -> Self {
        Self {
            from,
            functions,
            whole,
            open: None,
            kept: None,
            asked: Vec::new(),
            usage: Usage::default(),
            before: (None, 0),
            over: false,
        }
    }

    /// The first round of the response that asked for the calls which this one continues.
    pub(super) fn previous(&self) -> Option<i32> {
        let (start, next) = self.before;
        start.filter(|_| next == self.from)
    }

    /// Takes the next event. After [`Heard::Over`] it hears nothing more.
    pub(crate) fn hear(&mut self, name: &str, data: &str) -> Vec<Heard> {
        let mut heard = Vec::new();
        if self.over {
            return heard;
        }
        match name {
            "message.delta" => self.delta(data, Kind::Text, &mut heard),
            "reasoning.delta" => self.delta(data, Kind::Reasoning, &mut heard),
            "message.reset" => {
                if let Ok(reset) = serde_json::from_str::<Reset>(data) {
                    self.reset(&reset, &mut heard);
                }
            }
            "message.completed" => {
                if let Ok(message) = serde_json::from_str::<Message>(data) {
                    self.message(&message, &mut heard);
                }
            }
            "round.completed" => {
                if let Ok(end) = serde_json::from_str::<RoundEnd>(data)
                    && end.round >= self.from
                {
                    self.usage.add(&end.usage);
                }
            }
            "send.waiting" => {
                let waiting: Value = serde_json::from_str(data).unwrap_or_default();
                let outside =
                    ["tool", "human"].contains(&waiting["waiting_on"].as_str().unwrap_or_default());
                if outside && !self.asked.is_empty() {
                    self.end(Over::Calls, &mut heard);
                }
            }
            "send.completed" | "send.failed" | "send.cancelled" => {
                if let Ok(view) = serde_json::from_str::<SendView>(data) {
                    self.finish(view, &mut heard);
                }
            }
            _ => {}
        }
        heard
    }

    fn end(&mut self, over: Over, heard: &mut Vec<Heard>) {
        self.over = true;
        heard.push(Heard::Over(over));
    }

    fn finish(&mut self, view: SendView, heard: &mut Vec<Heard>) {
        if let Some((round, text)) = self.kept.take() {
            // The value fits the schema; the text around it may be the model's own.
            let text = view.output.as_ref().map_or(text, Value::to_string);
            self.tell(Kind::Text, round, &text, heard);
            heard.push(Heard::Said {
                round,
                calls: Vec::new(),
            });
        }
        self.end(Over::Send(Box::new(view)), heard);
    }

    fn delta(&mut self, data: &str, kind: Kind, heard: &mut Vec<Heard>) {
        let Ok(delta) = serde_json::from_str::<Delta>(data) else {
            return;
        };
        if delta.round < self.from || self.whole {
            return;
        }
        self.reset(
            &Reset {
                round: delta.round,
                attempt: delta.attempt,
            },
            heard,
        );
        let open = self
            .open
            .get_or_insert_with(|| Open::new(delta.round, delta.attempt));
        // Reasoning behind the text cannot be put before it any more.
        if kind == Kind::Reasoning && !open.text.is_empty() {
            return;
        }
        let said = open.said(kind);
        let known = said.chars().count();
        // Behind a gap nothing is told until the message is stored.
        let Some(again) = known.checked_sub(delta.offset) else {
            return;
        };
        let text: String = delta.text.chars().skip(again).collect();
        if text.is_empty() {
            return;
        }
        said.push_str(&text);
        heard.push(Heard::Piece(Piece {
            kind,
            round: delta.round,
            text,
        }));
    }

    /// Forgets what was heard of the round unless it is of this attempt.
    fn reset(&mut self, reset: &Reset, heard: &mut Vec<Heard>) {
        if reset.round < self.from {
            return;
        }
        let other = self
            .open
            .take_if(|open| (open.round, open.attempt) != (reset.round, reset.attempt));
        if let Some(open) = other
            && !(open.text.is_empty() && open.reasoning.is_empty())
        {
            heard.push(Heard::Void);
        }
    }

    fn message(&mut self, message: &Message, heard: &mut Vec<Heard>) {
        match message.role {
            Role::Assistant if message.round >= self.from => self.said(message, heard),
            Role::Assistant => {
                let mut calls = message.tool_calls.iter();
                if calls.any(|call| self.functions.contains(&call.name)) {
                    self.before = (Some(self.before.1), message.round + 1);
                }
            }
            // Someone has answered already.
            Role::Tool
                if message
                    .tool_call_id
                    .as_ref()
                    .is_some_and(|id| self.asked.contains(id)) =>
            {
                self.end(Over::Calls, heard);
            }
            Role::Tool | Role::User => {}
        }
    }

    fn said(&mut self, message: &Message, heard: &mut Vec<Heard>) {
        let round = message.round;
        let calls = message.tool_calls.iter();
        let calls = calls.filter(|call| self.functions.contains(&call.name));
        let calls = calls.map(|call| Called {
            id: call.id.clone(),
            name: call.name.clone(),
            arguments: call.arguments.text().into_owned(),
        });
        let calls: Vec<Called> = calls.collect();
        let (reasoning, text) = words(&message.content);
        self.asked = calls.iter().map(|call| call.id.clone()).collect();
        if self.whole {
            if calls.is_empty() {
                self.kept = Some((round, text));
                return;
            }
            self.kept = None;
        } else {
            self.tell(Kind::Reasoning, round, &reasoning, heard);
        }
        self.tell(Kind::Text, round, &text, heard);
        self.open = None;
        heard.push(Heard::Said { round, calls });
    }

    /// Tells what is still untold of a stored text. If something else was told, that is void.
    fn tell(&mut self, kind: Kind, round: i32, all: &str, heard: &mut Vec<Heard>) {
        let open = self.open.take_if(|open| open.round != round);
        if open.is_some() {
            heard.push(Heard::Void);
        }
        let mut open = self.open.take().unwrap_or_else(|| Open::new(round, FIRST));
        if kind == Kind::Reasoning && !open.text.is_empty() {
            // It cannot be put before the text any more.
            self.open = Some(open);
            return;
        }
        if !all.starts_with(open.said(kind).as_str()) {
            heard.push(Heard::Void);
            open = Open::new(round, open.attempt + 1);
        }
        let said = open.said(kind);
        let text = all[said.len()..].to_owned();
        if !text.is_empty() {
            said.push_str(&text);
            heard.push(Heard::Piece(Piece { kind, round, text }));
        }
        self.open = Some(open);
    }
}

/// The attempt that a round is taken to have been said in, unless another one was heard.
const FIRST: i32 = 1;

impl Open {
    fn new(round: i32, attempt: i32) -> Self {
        Self {
            round,
            attempt,
            reasoning: String::new(),
            text: String::new(),
        }
    }

    fn said(&mut self, kind: Kind) -> &mut String {
        match kind {
            Kind::Reasoning => &mut self.reasoning,
            Kind::Text => &mut self.text,
        }
    }
}

/// The reasoning and the text of a message.
pub(crate) fn words(parts: &[ContentPart]) -> (String, String) {
    let (mut reasoning, mut said) = (String::new(), String::new());
    for part in parts {
        match part {
            ContentPart::Text { text } => said.push_str(text),
            ContentPart::Reasoning { text, .. } => reasoning.push_str(text),
            ContentPart::Image { .. }
            | ContentPart::File { .. }
            | ContentPart::Digest { .. }
            | ContentPart::Attached(_) => {}
        }
    }
    (reasoning, said)
}

#[cfg(test)]
mod tests;
