//! A reader of server-sent event streams.

use anyhow::{Context as _, Result, ensure};
use mainspring_benches::client::{Client, Stream};
use serde_json::Value;

/// An event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The ID to resume after; `None` for live events.
    pub id: Option<String>,
    /// Its type.
    pub name: String,
    /// Its data.
    pub data: Value,
}

/// An open event stream.
#[derive(Debug)]
pub struct Events {
    stream: Stream,
    unread: Vec<u8>,
}

impl Events {
    /// Opens a stream on a replica, after the event `last` if given.
    pub async fn open(url: &str, path: &str, last: Option<&str>) -> Result<Self> {
        let headers: Vec<_> = last.iter().map(|id| ("last-event-id", *id)).collect();
        let client = Client::connect(url).await?;
        let stream = client.stream(path, &headers).await?;
        ensure!(stream.status == 200, "{path}: status {}", stream.status);
        Ok(Self {
            stream,
            unread: Vec::new(),
        })
    }

    /// The next event; `None` at the end of the stream. Fails if the connection breaks.
    pub async fn next(&mut self) -> Result<Option<Event>> {
        loop {
            while let Some(at) = self.unread.windows(2).position(|two| two == b"\n\n") {
                let frame: Vec<u8> = self.unread.drain(..at + 2).collect();
                if let Some(event) = parse(std::str::from_utf8(&frame)?)? {
                    return Ok(Some(event));
                }
            }
            match self.stream.next().await? {
                Some(piece) => self.unread.extend_from_slice(&piece),
                None => return Ok(None),
            }
        }
    }

    /// The next event of one of these types, skipping others.
    pub async fn until(&mut self, names: &[&str]) -> Result<Event> {
        loop {
            let event = self.next().await?.context("the stream ended")?;
            if names.contains(&event.name.as_str()) {
                return Ok(event);
            }
        }
    }
}

/// The event in a frame; `None` for a comment.
pub(crate) fn parse(frame: &str) -> Result<Option<Event>> {
    let mut event = Event {
        id: None,
        name: String::new(),
        data: Value::Null,
    };
    for line in frame.lines() {
        match line.split_once(": ") {
            Some(("id", id)) => event.id = Some(id.to_owned()),
            Some(("event", name)) => name.clone_into(&mut event.name),
            Some(("data", data)) => event.data = serde_json::from_str(data)?,
            _ => {}
        }
    }
    Ok((!event.name.is_empty()).then_some(event))
}
