//! Event streams from bytes, however these are cut into chunks.

use std::mem::take;

use serde_json::Value;

/// Bytes of one event at most, with what is yet unread of it. The largest that a server sends is a send with its output.
const EVENT_BYTES_MAX: usize = 64 << 20;

/// One event as it was sent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Raw {
    pub(crate) event: String,
    pub(crate) data: Value,
    pub(crate) id: Option<String>,
}

/// What makes a stream unreadable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) String);

/// Parses `text/event-stream`.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    rest: Vec<u8>,
    /// Whether the first bytes, which may be a byte order mark, were seen.
    begun: bool,
    /// Whether the last chunk ended with a CR, which may be half of a CRLF.
    after_cr: bool,
    event: String,
    data: Vec<String>,
    data_bytes: usize,
    id: Option<String>,
}

impl Lines {
    /// The events that a chunk completes.
    pub(crate) fn feed(&mut self, chunk: &[u8]) -> Result<Vec<Raw>, Malformed> {
        let mut events = Vec::new();
        for &byte in chunk {
            match byte {
                b'\n' if take(&mut self.after_cr) => {}
                b'\n' | b'\r' => {
                    self.after_cr = byte == b'\r';
                    let line = take(&mut self.rest);
                    events.extend(self.line(&line)?);
                }
                byte => {
                    self.after_cr = false;
                    self.rest.push(byte);
                }
            }
        }
        if self.rest.len() + self.data_bytes > EVENT_BYTES_MAX {
            return Err(Malformed("an event is too long".to_owned()));
        }
        Ok(events)
    }

    fn line(&mut self, line: &[u8]) -> Result<Option<Raw>, Malformed> {
        let mut line = line;
        if !self.begun {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
            self.begun = true;
        }
        if line.is_empty() {
            return self.end();
        }
        let text = String::from_utf8_lossy(line);
        let (member, value) = text.split_once(':').unwrap_or((&text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match member {
            "data" => {
                self.data_bytes += value.len();
                self.data.push(value.to_owned());
            }
            "event" => value.clone_into(&mut self.event),
            "id" => self.id = Some(value.to_owned()),
            _ => {}
        }
        Ok(None)
    }

    fn end(&mut self) -> Result<Option<Raw>, Malformed> {
        let (event, id, data) = (take(&mut self.event), self.id.take(), take(&mut self.data));
        self.data_bytes = 0;
        if data.is_empty() {
            return Ok(None);
        }
        let data = serde_json::from_str(&data.join("\n"));
        let data = data.map_err(|error| Malformed(format!("an event is not JSON: {error}")))?;
        Ok(Some(Raw { event, data, id }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_are_the_same_however_bytes_are_cut() {
        let text = "\u{feff}: hello\nid: 1.0\r\nevent: a.b\r\ndata: {\"x\":\r\ndata: \"\u{1f44b}\"}\r\n\r\ndata:1\rdata\r\rid: 2\n\ndata: 2\n\nevent: cut\ndata: 3";
        let whole = Lines::default().feed(text.as_bytes());
        let whole = whole.expect("they are well-formed");
        let named = |event: &str, data, id: Option<&str>| Raw {
            event: event.to_owned(),
            data,
            id: id.map(str::to_owned),
        };
        let expected = [
            named("a.b", json!({"x": "\u{1f44b}"}), Some("1.0")),
            named("", json!(1), None),
            named("", json!(2), None),
        ];
        assert_eq!(whole, expected);
        for size in 1..text.len() {
            let mut lines = Lines::default();
            let mut events = Vec::new();
            for chunk in text.as_bytes().chunks(size) {
                events.extend(lines.feed(chunk).expect("they are well-formed"));
            }
            assert_eq!(events, whole, "in chunks of {size}");
        }
    }

    #[test]
    fn what_is_not_json_is_an_error() {
        assert!(Lines::default().feed(b"data: {\n\n").is_err());
    }
}
