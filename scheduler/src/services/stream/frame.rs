//! Events as the lines of an event stream.

use std::io::Write;

use bytes::Bytes;
use mainspring_shared::event::{Event, LiveEvent};
use mainspring_shared::id::SendId;
use serde_json::{Map, Value};

/// An empty comment, which keeps the connection open.
pub(super) const COMMENT: Bytes = Bytes::from_static(b":\n\n");

/// Writes a durable event, with its id.
pub(super) fn durable(out: &mut Vec<u8>, event: &Event, send: SendId) {
    // Writing to memory does not fail.
    let _ = writeln!(out, "id: {}", event.id);
    frame(out, event.name, event.data.clone(), send);
}

/// Writes a live event, without an id: a reader does not resume at it.
pub(super) fn live(out: &mut Vec<u8>, event: &LiveEvent) {
    let mut kind = serde_json::to_value(&event.kind).unwrap_or_default();
    let data = kind
        .get_mut("data")
        .map_or_else(|| Value::Object(Map::default()), Value::take);
    frame(out, event.kind.name(), data, event.send_id);
}

/// Every event's data names its send, so that a session's stream can be told apart.
fn frame(out: &mut Vec<u8>, name: &str, mut data: Value, send: SendId) {
    if let Value::Object(members) = &mut data {
        members
            .entry("send_id")
            .or_insert_with(|| Value::String(send.to_string()));
    }
    // JSON has no raw line breaks, so that one line holds it.
    let _ = write!(out, "event: {name}\ndata: {data}\n\n");
}

#[cfg(test)]
mod tests {
    use mainspring_shared::event::{EventId, LiveKind};
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_durable_event_has_an_id_and_names_its_send() {
        let event = Event {
            id: EventId { n: 3, i: 1 },
            name: "round.completed",
            data: json!({ "round": 0, "text": "a\nb" }),
            last: false,
        };
        let mut out = Vec::new();
        durable(&mut out, &event, SendId(Uuid::from_u128(7)));
        let text = String::from_utf8(out).expect("utf-8");
        assert_eq!(
            text,
            "id: 3.1\nevent: round.completed\ndata: {\"round\":0,\"send_id\":\
             \"snd_00000000000000000000000000000007\",\"text\":\"a\\nb\"}\n\n"
        );
    }

    #[test]
    fn a_live_event_without_data_still_names_its_send() {
        let event = LiveEvent {
            send_id: SendId(Uuid::from_u128(7)),
            kind: LiveKind::SendStarted,
        };
        let mut out = Vec::new();
        live(&mut out, &event);
        let text = String::from_utf8(out).expect("utf-8");
        assert_eq!(
            text,
            "event: send.started\ndata: {\"send_id\":\"snd_00000000000000000000000000000007\"}\n\n"
        );
    }
}
