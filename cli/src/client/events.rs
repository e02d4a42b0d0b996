//! Server-sent events, resumed by id after a disconnect.

use std::time::Duration;

use mainspring_shared::entropy::Entropy;
use mainspring_shared::time::Clock;
use reqwest::{Method, StatusCode};
use serde_json::Value;

use super::{Client, RETRY};
use crate::failure::{Exit, Failure};

/// Maximum bytes of an event: a stored message with its JSON around it.
const EVENT_BYTES_MAX: usize = 64 << 20;

/// The server sends something at least every 15 s; if it is silent for over twice that, the
/// connection is dead.
const SILENCE_MAX: Duration = Duration::from_secs(40);

/// One event of a stream.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    /// Its type.
    pub(crate) name: String,
    /// The id to resume from; only durable events have one.
    pub(crate) id: Option<String>,
    pub(crate) data: Value,
}

impl Event {
    /// The event as one JSON document.
    pub(crate) fn to_json(&self) -> Value {
        match &self.id {
            Some(id) => serde_json::json!({ "event": self.name, "id": id, "data": self.data }),
            None => serde_json::json!({ "event": self.name, "data": self.data }),
        }
    }

    /// Whether this event ends a send's stream.
    pub(crate) fn is_final(&self) -> bool {
        matches!(
            self.name.as_str(),
            "send.completed" | "send.failed" | "send.cancelled"
        )
    }
}

/// A stream of events that survives disconnects.
#[derive(Debug)]
pub(crate) struct Events {
    client: Client,
    path: String,
    last_id: Option<String>,
    response: Option<reqwest::Response>,
    parser: Parser,
    /// Consecutive attempts without an event.
    failed: u32,
}

impl Events {
    /// A stream of a path's events after the given id; does not connect yet.
    pub(crate) fn new(client: &Client, path: String, after: Option<String>) -> Self {
        Self {
            client: client.clone(),
            path,
            last_id: after,
            response: None,
            parser: Parser::default(),
            failed: 0,
        }
    }

    /// Connects now, so that the stream includes everything that happens from here on.
    pub(crate) async fn open(&mut self) -> Result<(), Failure> {
        match self.response {
            Some(_) => Ok(()),
            None => self.connect().await,
        }
    }

    /// The next event, or `None` if the server ended the stream. Reconnects where that may help.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, Failure> {
        loop {
            if let Some(event) = self.parser.next() {
                self.failed = 0;
                if event.id.is_some() {
                    self.last_id.clone_from(&event.id);
                }
                return Ok(Some(event));
            }
            if self.response.is_none() {
                self.connect().await?;
            }
            let Some(response) = &mut self.response else {
                return Ok(None);
            };
            match tokio::time::timeout(SILENCE_MAX, response.chunk()).await {
                Ok(Ok(Some(bytes))) if self.parser.push(&bytes) => {}
                Ok(Ok(Some(_))) => {
                    return Err(self.client.strange("an event is larger than 64 MiB"));
                }
                Ok(Ok(None)) => return Ok(None),
                Ok(Err(error)) => {
                    let failure = self.client.unreachable(&error);
                    self.cut(failure).await?;
                }
                Err(_) => {
                    let failure = Failure::new(Exit::Unavailable, "the event stream timed out");
                    self.cut(failure).await?;
                }
            }
        }
    }

    /// Reconnects after a short wait, if the server ended the stream before its final event.
    pub(crate) async fn reconnect(&mut self) -> Result<(), Failure> {
        self.cut(Failure::new(
            Exit::Unavailable,
            "the event stream ended early",
        ))
        .await
    }

    async fn connect(&mut self) -> Result<(), Failure> {
        loop {
            let url = format!("{}{}", self.client.server, self.path);
            let mut request = self
                .client
                .start(Method::GET, url)
                .header("Accept", "text/event-stream");
            if let Some(id) = &self.last_id {
                request = request.header("Last-Event-ID", id);
            }
            match request.send().await {
                Ok(response) if response.status().is_success() => {
                    self.response = Some(response);
                    self.parser = Parser::default();
                    return Ok(());
                }
                Ok(response) => {
                    let later = [
                        StatusCode::TOO_MANY_REQUESTS,
                        StatusCode::SERVICE_UNAVAILABLE,
                    ]
                    .contains(&response.status());
                    let failure = self.client.refused(response).await;
                    if !later {
                        return Err(failure);
                    }
                    self.cut(failure).await?;
                }
                Err(error) => {
                    let failure = self.client.unreachable(&error);
                    self.cut(failure).await?;
                }
            }
        }
    }

    /// Waits before the next attempt; fails with `failure` after too many futile ones.
    async fn cut(&mut self, failure: Failure) -> Result<(), Failure> {
        self.response = None;
        self.failed += 1;
        match RETRY.wait(self.failed, None, self.client.entropy.fraction()) {
            Some(wait) => {
                self.client.clock.sleep(wait).await;
                Ok(())
            }
            None => Err(failure),
        }
    }
}

/// Parses bytes as they arrive into complete events.
#[derive(Debug, Default)]
struct Parser {
    buffer: Vec<u8>,
    /// Bytes of the buffer already searched for a line end.
    searched: usize,
    name: String,
    id: Option<String>,
    data: String,
}

impl Parser {
    /// Appends bytes; returns false if an event exceeds its size limit.
    fn push(&mut self, bytes: &[u8]) -> bool {
        self.buffer.extend_from_slice(bytes);
        self.buffer.len() + self.data.len() <= EVENT_BYTES_MAX
    }

    fn next(&mut self) -> Option<Event> {
        loop {
            let end = self.buffer[self.searched..]
                .iter()
                .position(|byte| *byte == b'\n');
            let Some(end) = end else {
                self.searched = self.buffer.len();
                return None;
            };
            let line: Vec<u8> = self.buffer.drain(..=self.searched + end).collect();
            self.searched = 0;
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches(['\n', '\r']);
            if line.is_empty() {
                if let Some(event) = self.finish() {
                    return Some(event);
                }
            } else {
                self.field(line);
            }
        }
    }

    fn field(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "event" => value.clone_into(&mut self.name),
            "id" => self.id = Some(value.to_owned()),
            "data" => {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            // A comment is only a keep-alive; other fields do not matter to us.
            _ => {}
        }
    }

    fn finish(&mut self) -> Option<Event> {
        let (name, id) = (std::mem::take(&mut self.name), self.id.take());
        let data = std::mem::take(&mut self.data);
        if data.is_empty() {
            return None;
        }
        let data = serde_json::from_str(&data).unwrap_or(Value::String(data));
        Some(Event { name, id, data })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const STREAM: &str = ": hello\n\nevent: send.queued\nid: 1.0\ndata: {\"status\":\"queued\"}\n\n\
                          event: message.delta\r\ndata: {\"text\":\r\ndata:  \"hé\"}\r\n\r\n\
                          id: 9.9\n\nevent: send.completed\ndata: no";

    fn events(pieces: &[&[u8]]) -> Vec<Event> {
        let mut parser = Parser::default();
        let mut events = Vec::new();
        for piece in pieces {
            assert!(parser.push(piece));
            while let Some(event) = parser.next() {
                events.push(event);
            }
        }
        events
    }

    #[test]
    fn events_are_the_same_however_the_bytes_are_cut() {
        let whole = events(&[STREAM.as_bytes()]);
        assert_eq!(
            whole,
            [
                Event {
                    name: "send.queued".into(),
                    id: Some("1.0".into()),
                    data: json!({ "status": "queued" }),
                },
                Event {
                    name: "message.delta".into(),
                    id: None,
                    data: json!({ "text": "hé" })
                },
            ]
        );
        for size in 1..STREAM.len() {
            let pieces: Vec<&[u8]> = STREAM.as_bytes().chunks(size).collect();
            assert_eq!(events(&pieces), whole, "in pieces of {size}");
        }
    }

    #[test]
    fn an_event_without_end_is_given_up() {
        let mut parser = Parser::default();
        let megabyte = vec![b'x'; 1 << 20];
        let taken = (0..100).take_while(|_| parser.push(&megabyte) && parser.next().is_none());
        assert_eq!(taken.count(), 64);
    }
}
