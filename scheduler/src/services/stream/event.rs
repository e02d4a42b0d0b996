//! Events in the form that readers get.

use mainspring_shared::event::{Event, EventId, LiveEvent, LiveKind, named};
use mainspring_shared::id::SendId;
use mainspring_shared::json::one_line;
use serde::Serialize;
use serde_json::value::RawValue;
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
    pub(super) fn durable(event: Event) -> Self {
        Self {
            id: Some(event.id),
            name: event.name,
            data: event.data,
        }
    }

    /// A live event.
    pub(super) fn live(event: &LiveEvent) -> Self {
        Self {
            id: None,
            name: event.kind.name(),
            data: verbatim(event).unwrap_or_else(|| plain(event)),
        }
    }
}

fn plain(event: &LiveEvent) -> String {
    let mut kind = serde_json::to_value(&event.kind).unwrap_or_default();
    let data = kind
        .get_mut("data")
        .map_or_else(|| Value::Object(Map::default()), Value::take);
    named(data, event.send_id)
}

/// The data of a call that starts, with arguments as the model wrote them, if a value does not say it whole.
fn verbatim(event: &LiveEvent) -> Option<String> {
    #[derive(Serialize)]
    struct Started<'a> {
        id: &'a str,
        name: &'a str,
        arguments: &'a RawValue,
        send_id: SendId,
    }
    let LiveKind::ToolCallStarted { id, name, text, .. } = &event.kind else {
        return None;
    };
    let started = Started {
        id,
        name,
        arguments: serde_json::from_str(text.as_deref()?).ok()?,
        send_id: event.send_id,
    };
    serde_json::to_string(&started).ok().map(one_line)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_call_that_starts_is_told_in_the_models_own_words() {
        let event = |text: Option<&str>| LiveEvent {
            send_id: SendId(Uuid::from_u128(7)),
            kind: LiveKind::ToolCallStarted {
                id: "call_1".to_owned(),
                name: "pay".to_owned(),
                arguments: json!({ "amount": 1 }),
                text: text.map(str::to_owned),
            },
        };
        let told = |event: LiveEvent| StreamEvent::live(&event).data;
        assert_eq!(
            told(event(Some("{\r\"amount\": 1.00\n}"))),
            "{\"id\":\"call_1\",\"name\":\"pay\",\"arguments\":{ \"amount\": 1.00 },\
             \"send_id\":\"snd_00000000000000000000000000000007\"}"
        );
        assert_eq!(
            told(event(None)),
            "{\"id\":\"call_1\",\"name\":\"pay\",\"arguments\":{\"amount\":1},\
             \"send_id\":\"snd_00000000000000000000000000000007\"}"
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
