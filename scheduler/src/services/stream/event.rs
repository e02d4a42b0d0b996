//! Events in the form that readers get.

use mainspring_shared::event::{Event, EventId, LiveEvent};
use mainspring_shared::id::SendId;
use serde_json::{Map, Value};

/// An event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamEvent {
    /// The id from which a reader can resume after it; none for a live event, which is sent once.
    pub id: Option<EventId>,
    /// Its type.
    pub name: &'static str,
    /// Its data: JSON in one line.
    pub data: String,
}

impl StreamEvent {
    /// A durable event.
    pub(super) fn durable(event: &Event, send: SendId) -> Self {
        Self {
            id: Some(event.id),
            name: event.name,
            data: match &event.text {
                // A stored message names its send.
                Some(text) => text.clone(),
                None => naming(event.data.clone(), send),
            },
        }
    }

    /// A live event.
    pub(super) fn live(event: &LiveEvent) -> Self {
        let mut kind = serde_json::to_value(&event.kind).unwrap_or_default();
        let data = kind
            .get_mut("data")
            .map_or_else(|| Value::Object(Map::default()), Value::take);
        Self {
            id: None,
            name: event.kind.name(),
            data: naming(data, event.send_id),
        }
    }
}

/// Adds the send's id to the data of an event, so that the events of a session's stream can be told
/// apart.
fn naming(mut data: Value, send: SendId) -> String {
    if let Value::Object(members) = &mut data {
        members
            .entry("send_id")
            .or_insert_with(|| Value::String(send.to_string()));
    }
    // JSON contains no raw line breaks, so it fits on one line.
    data.to_string()
}

#[cfg(test)]
mod tests {
    use mainspring_shared::event::LiveKind;
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_durable_event_has_an_id_and_names_its_send() {
        let event = Event {
            id: EventId { n: 3, i: 1 },
            name: "round.completed",
            data: json!({ "round": 0, "text": "a\nb" }),
            text: None,
            last: false,
        };
        let told = StreamEvent::durable(&event, SendId(Uuid::from_u128(7)));
        assert_eq!((told.id, told.name), (Some(event.id), "round.completed"));
        assert_eq!(
            told.data,
            "{\"round\":0,\"text\":\"a\\nb\",\"send_id\":\"snd_00000000000000000000000000000007\"}"
        );
    }

    #[test]
    fn a_live_event_without_data_still_names_its_send() {
        let event = LiveEvent {
            send_id: SendId(Uuid::from_u128(7)),
            kind: LiveKind::SendStarted,
        };
        let told = StreamEvent::live(&event);
        assert_eq!((told.id, told.name), (None, "send.started"));
        assert_eq!(
            told.data,
            "{\"send_id\":\"snd_00000000000000000000000000000007\"}"
        );
    }
}
