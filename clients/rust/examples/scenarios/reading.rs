//! A stream while it is read, and what holds of every stream.

use mainspring_client::types::{ContentPart, Role, SendEvent};
use mainspring_client::{Error, Event, SendStream};
use serde_json::Value;

use crate::{Failed, must, text};

/// A stream, and what was seen of it.
pub(crate) struct Reading {
    pub(crate) stream: SendStream<String>,
    events: Vec<Event>,
    /// The text of the attempt that is streamed.
    written: String,
    of: (i64, i64),
}

/// Reading ended with an error of the client, which may be what is expected; or the stream is not as it should be.
pub(crate) enum Broke {
    Client(Error),
    Rule(Failed),
}

impl Reading {
    pub(crate) fn new(stream: SendStream<String>) -> Self {
        Self {
            stream,
            events: Vec::new(),
            written: String::new(),
            of: (-1, -1),
        }
    }

    /// Reads to the end, or until so many events of a kind.
    pub(crate) async fn read(&mut self, until: &Value) -> Result<(), Broke> {
        let mut left = until["times"].as_u64();
        while let Some(event) = self.stream.next().await.map_err(Broke::Client)? {
            let is_counted = event.data.name() == text(&until["event"]);
            self.check(event).map_err(Broke::Rule)?;
            if let Some(left) = left.as_mut().filter(|_| is_counted) {
                *left -= 1;
                if *left == 0 {
                    break;
                }
            }
        }
        Ok(())
    }

    fn check(&mut self, event: Event) -> Result<(), Failed> {
        if let Some(cursor) = &event.cursor {
            must!(
                self.stream.cursor() == Some(cursor),
                "the cursor is not {cursor}"
            );
            let last = self.cursors().last().map(|last| place(last));
            must!(
                last.is_none_or(|last| last < place(cursor)),
                "{cursor} is not after those before"
            );
        }
        let shown = self.stream.text();
        let holds = match &event.data {
            SendEvent::MessageDelta(delta) => {
                let of = (delta.round, delta.attempt);
                if of > self.of {
                    (self.of, self.written) = (of, String::new());
                }
                // That of an older attempt is void.
                let length = self.written.chars().count();
                let goes_on = of == self.of && usize::try_from(delta.offset)? == length;
                if goes_on {
                    self.written.push_str(&delta.text);
                }
                shown == self.written || (!goes_on && shown.is_empty())
            }
            SendEvent::MessageReset(_) => shown.is_empty(),
            SendEvent::MessageCompleted(message) if message.role == Role::Assistant => {
                let texts = message.content.iter().filter_map(|part| match part {
                    ContentPart::TextPart(part) => Some(part.text.as_str()),
                    _ => None,
                });
                self.written = texts.collect();
                shown == self.written
            }
            SendEvent::SendCompleted(send) => Some(shown) == send.output_text.as_deref(),
            _ => shown == self.written || shown.is_empty(),
        };
        must!(holds, "the text is {shown:?} after {event:?}");
        self.events.push(event);
        Ok(())
    }

    fn cursors(&self) -> impl Iterator<Item = &String> {
        self.events.iter().filter_map(|event| event.cursor.as_ref())
    }

    /// What a scenario expects besides the answer.
    pub(crate) fn expected(
        &self,
        expect: &Value,
        recording: Option<&Vec<Value>>,
    ) -> Result<(), Failed> {
        if let Some(last) = expect["last"].as_str() {
            let seen = self.events.last().map(|event| event.data.name());
            must!(seen == Some(last), "the last event is {seen:?}");
        }
        if expect["reconnects"] == true {
            must!(self.stream.connections() > 1, "it was connected once");
        }
        if expect["durable_once"] == true {
            let recorded = recording.into_iter().flatten();
            let recorded: Vec<&str> = recorded.filter_map(|event| event["id"].as_str()).collect();
            let seen: Vec<&String> = self.cursors().collect();
            must!(seen == recorded, "durable events were {seen:?}");
        }
        Ok(())
    }
}

fn place(cursor: &str) -> Vec<u64> {
    let parts = cursor.split('.').filter_map(|part| part.parse().ok());
    parts.collect()
}
