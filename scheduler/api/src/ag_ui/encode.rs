//! Events of a send as events of the protocol. A pure function of what is heard.

use mainspring_shared::id::SendId;
use mainspring_shared::message::{Message, Role};
use serde_json::{Value, json};

use crate::openai::listen::{Heard, Kind, Piece, words};

/// The id of what a round says. An attempt whose text was void before it has the plain id.
pub(super) fn message_id(send: SendId, round: i32, attempt: Option<i32>) -> String {
    let again = attempt.map(|attempt| format!("_{attempt}"));
    format!(
        "msg_{}_{round}{}",
        send.0.simple(),
        again.unwrap_or_default()
    )
}

/// What a round has begun and not ended.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    text: Option<String>,
    reasoning: Option<String>,
    step: Option<i32>,
    /// The last message that was begun, with its round.
    begun: Option<(i32, String)>,
    /// What was said and became void, since the last snapshot.
    pub(super) is_void: bool,
    /// How often what the open round had said became void.
    voids: i32,
}

impl Encoder {
    /// What is told of this. Void text is taken back by a snapshot, which the caller makes.
    pub(super) fn tell(&mut self, send: SendId, heard: &Heard) -> Vec<Value> {
        let mut told = Vec::new();
        match heard {
            Heard::Piece(piece) => self.piece(send, piece, &mut told),
            Heard::Void => {
                self.close(&mut told);
                self.is_void = true;
                self.voids += 1;
            }
            Heard::Said { .. } => {
                self.close(&mut told);
                self.voids = 0;
            }
            Heard::Over(_) => {}
        }
        told
    }

    fn piece(&mut self, send: SendId, piece: &Piece, told: &mut Vec<Value>) {
        // That a round began is told only to those who listened then.
        told.extend(self.begin(piece.round));
        let attempt = (self.voids > 0).then_some(self.voids + 1);
        let id = message_id(send, piece.round, attempt);
        match piece.kind {
            Kind::Text => {
                self.close_reasoning(told);
                if self.text.is_none() {
                    told.push(json!({ "type": "TEXT_MESSAGE_START", "messageId": id, "role": "assistant" }));
                    self.text = Some(id.clone());
                    self.begun = Some((piece.round, id.clone()));
                }
                told.push(
                    json!({ "type": "TEXT_MESSAGE_CONTENT", "messageId": id, "delta": piece.text }),
                );
            }
            Kind::Reasoning => {
                let id = id.replacen("msg_", "rsn_", 1);
                if self.reasoning.is_none() {
                    told.push(json!({ "type": "REASONING_START", "messageId": id }));
                    told.push(json!({ "type": "REASONING_MESSAGE_START", "messageId": id, "role": "reasoning" }));
                    self.reasoning = Some(id.clone());
                }
                told.push(json!({ "type": "REASONING_MESSAGE_CONTENT", "messageId": id, "delta": piece.text }));
            }
        }
    }

    fn close_reasoning(&mut self, told: &mut Vec<Value>) {
        if let Some(id) = self.reasoning.take() {
            told.push(json!({ "type": "REASONING_MESSAGE_END", "messageId": id }));
            told.push(json!({ "type": "REASONING_END", "messageId": id }));
        }
    }

    fn close(&mut self, told: &mut Vec<Value>) {
        self.close_reasoning(told);
        if let Some(id) = self.text.take() {
            told.push(json!({ "type": "TEXT_MESSAGE_END", "messageId": id }));
        }
    }

    /// The calls that a message makes, or the result that it is.
    pub(super) fn calls(&self, message: &Message) -> Vec<Value> {
        let mut told = Vec::new();
        match message.role {
            Role::Assistant => {
                let begun = self.begun.as_ref();
                let begun = begun.filter(|(round, _)| *round == message.round);
                let parent = begun.map_or_else(
                    || message_id(message.send_id, message.round, None),
                    |(_, id)| id.clone(),
                );
                for call in &message.tool_calls {
                    told.push(json!({
                        "type": "TOOL_CALL_START", "toolCallId": call.id, "toolCallName": call.name,
                        "parentMessageId": parent,
                    }));
                    let arguments = call.arguments.text();
                    if !arguments.is_empty() {
                        told.push(json!({ "type": "TOOL_CALL_ARGS", "toolCallId": call.id, "delta": arguments }));
                    }
                    told.push(json!({ "type": "TOOL_CALL_END", "toolCallId": call.id }));
                }
            }
            Role::Tool => {
                let (_, text) = words(&message.content);
                if let Some(call) = &message.tool_call_id {
                    told.push(json!({
                        "type": "TOOL_CALL_RESULT", "messageId": format!("res_{call}"), "toolCallId": call,
                        "content": text, "role": "tool",
                    }));
                }
            }
            Role::User => {}
        }
        told
    }

    /// A round begins, unless one is open.
    pub(super) fn begin(&mut self, round: i32) -> Option<Value> {
        if self.step.is_some() {
            return None;
        }
        self.step = Some(round);
        Some(json!({ "type": "STEP_STARTED", "stepName": step(round) }))
    }

    /// Ends what is open.
    pub(super) fn finish(&mut self) -> Vec<Value> {
        let mut told = Vec::new();
        self.close(&mut told);
        if let Some(round) = self.step.take() {
            told.push(json!({ "type": "STEP_FINISHED", "stepName": step(round) }));
        }
        told
    }
}

fn step(round: i32) -> String {
    format!("round {}", round + 1)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn piece(kind: Kind, text: &str) -> Heard {
        Heard::Piece(Piece {
            kind,
            round: 0,
            text: text.to_owned(),
        })
    }

    #[test]
    fn whatever_begins_ends_before_something_else_begins() {
        let mut encoder = Encoder::default();
        let heard = [
            piece(Kind::Reasoning, "why"),
            piece(Kind::Text, "so"),
            piece(Kind::Text, " what"),
            Heard::Void,
            piece(Kind::Text, "anew"),
            Heard::Said {
                round: 0,
                calls: Vec::new(),
            },
        ];
        let begun = encoder.begin(0).expect("a step");
        let told = heard
            .iter()
            .flat_map(|heard| encoder.tell(SendId(Uuid::nil()), heard));
        let told: Vec<Value> = std::iter::once(begun).chain(told).collect();
        let told: Vec<Value> = told.into_iter().chain(encoder.finish()).collect();
        let types: Vec<&str> = told
            .iter()
            .filter_map(|event| event["type"].as_str())
            .collect();
        assert_eq!(
            types,
            [
                "STEP_STARTED",
                "REASONING_START",
                "REASONING_MESSAGE_START",
                "REASONING_MESSAGE_CONTENT",
                "REASONING_MESSAGE_END",
                "REASONING_END",
                "TEXT_MESSAGE_START",
                "TEXT_MESSAGE_CONTENT",
                "TEXT_MESSAGE_CONTENT",
                "TEXT_MESSAGE_END",
                "TEXT_MESSAGE_START",
                "TEXT_MESSAGE_CONTENT",
                "TEXT_MESSAGE_END",
                "STEP_FINISHED",
            ]
        );
        assert!(encoder.is_void);
        let ids: Vec<&Value> = told.iter().map(|event| &event["messageId"]).collect();
        assert_ne!(ids[6], ids[10], "void text and new text are two messages");
        assert_eq!(encoder.finish(), Vec::<Value>::new());
    }
}
