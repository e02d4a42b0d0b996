//! Events: the items of a stream. Durable ones are derived from steps, in order, each with an id;
//! live ones are sent once, without an id.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::id::SendId;
use crate::json::one_line;
use crate::message::{Message, Role};
use crate::send::{SendStatus, SendView};
use crate::step::{Step, StepKind};

/// The id of a durable event: the step's number and the event's index in it, printed as `n.i`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EventId {
    /// The step's number.
    pub n: i64,
    /// The event's index in its step, from 0.
    pub i: u32,
}

impl std::fmt::Display for EventId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.n, self.i)
    }
}

impl std::str::FromStr for EventId {
    type Err = ParseEventIdError;

    fn from_str(text: &str) -> Result<Self, ParseEventIdError> {
        let (n, i) = text.split_once('.').ok_or(ParseEventIdError)?;
        let n = n
            .parse()
            .ok()
            .filter(|n| *n >= 0)
            .ok_or(ParseEventIdError)?;
        Ok(Self {
            n,
            i: i.parse().map_err(|_| ParseEventIdError)?,
        })
    }
}

/// An event id that does not have the form `n.i`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event id has the form STEP.INDEX, like 12.0")]
pub struct ParseEventIdError;

/// A durable event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Its id, from which a reader resumes.
    pub id: EventId,
    /// Its type, such as `message.completed`.
    pub name: &'static str,
    /// Its data: a JSON object that names its send, in one line, with the model's own words for the arguments of calls.
    pub data: String,
    /// Whether its send's stream ends with it.
    pub last: bool,
}

/// Expands a step into its events. `messages` are those that the step wrote (or fewer, if they were
/// removed since), `send` is the current state of the send.
pub fn expand(step: &Step, messages: &[Message], send: Option<&SendView>) -> Vec<Event> {
    let mut events: Vec<(&'static str, String)> = Vec::new();
    let named = |data| named(data, step.send_id);
    match step.kind {
        StepKind::Accepted => events.push(("send.queued", named(brief(step, SendStatus::Queued)))),
        StepKind::Waiting => {
            let mut data = brief(step, SendStatus::Waiting);
            data["waiting_on"] = json!(step.refs.reason);
            events.push(("send.waiting", named(data)));
        }
        StepKind::Resumed => {
            let mut data = brief(step, SendStatus::Running);
            data["reason"] = json!(step.refs.reason);
            events.push(("send.resumed", named(data)));
        }
        StepKind::Round | StepKind::Calls => events.extend(written(step, messages)),
        StepKind::Folded => {
            let mut data = json!(step.refs.fold);
            if let Value::Object(members) = &mut data {
                members.insert("at".to_owned(), json!(step.at));
            }
            events.push(("context.folded", named(data)));
        }
        StepKind::Finished => {
            events.extend(written(step, messages));
            let (name, data) = ending(step, send);
            events.push((name, named(data)));
        }
    }
    let final_step = step.kind == StepKind::Finished;
    let count = events.len();
    let numbered = events
        .into_iter()
        .enumerate()
        .map(|(i, (name, data))| Event {
            id: EventId {
                n: step.n,
                i: i as u32,
            },
            name,
            data,
            last: final_step && i + 1 == count,
        });
    numbered.collect()
}

/// The data of an event with the send's id, so that the events of a session's stream can be told apart.
pub fn named(mut data: Value, send: SendId) -> String {
    if let Value::Object(members) = &mut data {
        let id = members.entry("send_id");
        id.or_insert_with(|| Value::String(send.to_string()));
    }
    // JSON contains no raw line breaks, so it fits on one line.
    data.to_string()
}

fn brief(step: &Step, status: SendStatus) -> Value {
    json!({ "id": step.send_id, "status": status, "at": step.at })
}

fn written(step: &Step, messages: &[Message]) -> Vec<(&'static str, String)> {
    let named = |data| named(data, step.send_id);
    let mut events = Vec::new();
    let round = step.refs.round.as_ref();
    if let Some(recalled) = round.and_then(|round| round.recalled.as_ref()) {
        events.push(("memory.recalled", named(json!(recalled))));
    }
    for message in messages {
        // It names its send. A value would not have the model's own words.
        let data = serde_json::to_string(message).unwrap_or_default();
        events.push(("message.completed", one_line(data)));
        if message.role == Role::Tool {
            let data = json!({
                "id": message.tool_call_id,
                "name": message.name,
                "result": message.content,
                "at": step.at,
            });
            let name = if message.failed {
                "tool_call.failed"
            } else {
                "tool_call.completed"
            };
            events.push((name, named(data)));
        }
    }
    if let Some(round) = round {
        let mut data = json!({
            "send_id": step.send_id,
            "round": round.index,
            "model": round.model,
            "usage": round.usage,
            "at": step.at,
        });
        if let Some(digest) = round.digest {
            data["digest"] = json!(digest);
        }
        events.push(("round.completed", named(data)));
    }
    events
}

fn ending(step: &Step, send: Option<&SendView>) -> (&'static str, Value) {
    let status = step.refs.status.as_deref().and_then(SendStatus::parse);
    let name = match status {
        Some(SendStatus::Completed) => "send.completed",
        Some(SendStatus::Cancelled) => "send.cancelled",
        Some(
            SendStatus::Failed | SendStatus::Queued | SendStatus::Running | SendStatus::Waiting,
        )
        | None => "send.failed",
    };
    let data = match send {
        Some(send) => serde_json::to_value(send).unwrap_or_default(),
        None => json!({ "id": step.send_id, "status": status, "stop_reason": step.refs.reason }),
    };
    (name, data)
}

/// A live event: sent to current readers, never stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LiveEvent {
    /// The send.
    pub send_id: SendId,
    /// What happened.
    #[serde(flatten)]
    pub kind: LiveKind,
}

/// The kinds of live events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", content = "data")]
pub enum LiveKind {
    /// A worker has claimed the send.
    #[serde(rename = "send.started")]
    SendStarted,
    /// The model is being called.
    #[serde(rename = "round.started")]
    RoundStarted {
        /// The round within the send, from 0.
        round: i32,
        /// The model.
        model: String,
    },
    /// A piece of the answer.
    #[serde(rename = "message.delta")]
    MessageDelta(Delta),
    /// A piece of the reasoning.
    #[serde(rename = "reasoning.delta")]
    ReasoningDelta(Delta),
    /// What was streamed of this round is void: a new attempt starts.
    #[serde(rename = "message.reset")]
    MessageReset {
        /// The round.
        round: i32,
        /// The new attempt.
        attempt: i32,
        /// Why, as a code.
        reason: String,
    },
    /// Something went wrong with the model and was put right: nothing has to be done for this send.
    #[serde(rename = "model.warning")]
    ModelWarning {
        /// The round.
        round: i32,
        /// The provider's configured name.
        provider: String,
        /// The model.
        model: String,
        /// What went wrong, as a code.
        code: String,
        /// The part of the request that the provider refused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        part: Option<String>,
        /// What happened, or the provider's words, shortened.
        message: String,
    },
    /// A call starts, here or outside.
    #[serde(rename = "tool_call.started")]
    ToolCallStarted {
        /// The call's id.
        id: String,
        /// The tool's name.
        name: String,
        /// Its arguments; null if they are too large for a live event. Its row has them.
        #[serde(default)]
        arguments: Value,
        /// The model's own words for them, where the value does not say it whole.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
    },
    /// A call that is being made reports how far it is.
    #[serde(rename = "tool_call.progress")]
    ToolCallProgress {
        /// The call's id.
        id: String,
        /// What is done, in a unit of the tool's own.
        progress: f64,
        /// All that is to be done, in the same unit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        total: Option<f64>,
        /// What the tool says of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
}

impl LiveKind {
    /// Its type on the stream.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::SendStarted => "send.started",
            Self::RoundStarted { .. } => "round.started",
            Self::MessageDelta(_) => "message.delta",
            Self::ReasoningDelta(_) => "reasoning.delta",
            Self::MessageReset { .. } => "message.reset",
            Self::ModelWarning { .. } => "model.warning",
            Self::ToolCallStarted { .. } => "tool_call.started",
            Self::ToolCallProgress { .. } => "tool_call.progress",
        }
    }
}

/// A piece of a stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Delta {
    /// The round within the send.
    pub round: i32,
    /// The attempt within the round: a reader drops pieces of older ones.
    pub attempt: i32,
    /// Characters (Unicode scalar values) of this attempt before this piece.
    pub offset: u64,
    /// The piece.
    pub text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_ids_print_and_parse() {
        let id = EventId { n: 12, i: 3 };
        assert_eq!(id.to_string().parse(), Ok(id));
        for text in ["", "1", "a.b", "-1.0", "1.-1"] {
            assert!(text.parse::<EventId>().is_err(), "{text}");
        }
    }

    #[test]
    fn event_ids_order_by_step_then_place() {
        assert!(EventId { n: 2, i: 0 } > EventId { n: 1, i: 9 });
    }

    #[test]
    fn a_live_event_survives_its_json() {
        let event = LiveEvent {
            send_id: SendId(uuid::Uuid::from_u128(7)),
            kind: LiveKind::MessageDelta(Delta {
                round: 0,
                attempt: 1,
                offset: 4,
                text: "hi".into(),
            }),
        };
        let json = serde_json::to_string(&event).expect("serializes");
        assert_eq!(
            serde_json::from_str::<LiveEvent>(&json).expect("parses"),
            event
        );
    }
}
