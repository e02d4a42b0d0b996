//! A parser for server-sent events, independent of how the network splits them.
//!
//! Follows the HTML standard's "event stream interpretation", of which a model's stream needs
//! `event` and `data`. Lines are split before they are decoded, so that a character split over two
//! reads is whole again; invalid UTF-8 becomes U+FFFD.

use mainspring_worker::llm::Error;

/// Buffer capacity kept for the next line; capacity beyond this is freed after a long line.
const KEPT_BYTES_MAX: usize = 16 * 1024;

/// The state between two reads.
#[derive(Debug)]
pub(super) struct Parser {
    limit: usize,
    started: bool,
    after_cr: bool,
    line: Vec<u8>,
    event: String,
    data: String,
    has_data: bool,
}

impl Parser {
    /// A parser for one stream, whose lines and events have at most `limit` bytes each.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            started: false,
            after_cr: false,
            line: Vec::new(),
            event: String::new(),
            data: String::new(),
            has_data: false,
        }
    }

    /// Parses more bytes. `on_event` gets each event's type, empty if it has none, and its data. An
    /// event that is not terminated by a blank line when the stream ends is incomplete and is
    /// dropped.
    pub(super) fn push(
        &mut self,
        mut bytes: &[u8],
        on_event: &mut impl FnMut(&str, &str) -> Result<(), Error>,
    ) -> Result<(), Error> {
        while !bytes.is_empty() {
            if self.after_cr {
                self.after_cr = false;
                if bytes[0] == b'\n' {
                    bytes = &bytes[1..];
                    continue;
                }
            }
            let Some(end) = bytes.iter().position(|b| matches!(b, b'\n' | b'\r')) else {
                return self.keep(bytes);
            };
            let (head, rest) = bytes.split_at(end);
            self.after_cr = rest[0] == b'\r';
            bytes = &rest[1..];
            if self.line.is_empty() {
                self.check(head.len())?;
                self.line(head, on_event)?;
            } else {
                self.keep(head)?;
                let mut line = std::mem::take(&mut self.line);
                self.line(&line, on_event)?;
                line.clear();
                line.shrink_to(KEPT_BYTES_MAX);
                self.line = line;
            }
        }
        Ok(())
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.check(self.line.len().saturating_add(bytes.len()))?;
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn check(&self, bytes: usize) -> Result<(), Error> {
        if bytes > self.limit {
            return Err(Error::bad(format!(
                "an event has more than {} bytes",
                self.limit
            )));
        }
        Ok(())
    }

    fn line(
        &mut self,
        line: &[u8],
        on_event: &mut impl FnMut(&str, &str) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let line = if self.started {
            line
        } else {
            line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line)
        };
        self.started = true;
        if line.is_empty() {
            return self.dispatch(on_event);
        }
        let (field, value) = match line.iter().position(|b| *b == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                // One more byte for the line's end, so that empty lines count too.
                self.check(self.data.len().saturating_add(value.len() + 1))?;
                if self.has_data {
                    self.data.push('\n');
                }
                self.has_data = true;
                self.data.push_str(&String::from_utf8_lossy(value));
            }
            b"event" => {
                self.event.clear();
                self.event.push_str(&String::from_utf8_lossy(value));
            }
            // Comments start with the colon; `id` and `retry` are for clients that reconnect.
            _ => {}
        }
        Ok(())
    }

    fn dispatch(
        &mut self,
        on_event: &mut impl FnMut(&str, &str) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let seen = if self.has_data {
            on_event(&self.event, &self.data)
        } else {
            Ok(())
        };
        self.event.clear();
        self.data.clear();
        self.data.shrink_to(KEPT_BYTES_MAX);
        self.has_data = false;
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Events = Vec<(String, String)>;

    fn read<'a>(limit: usize, pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Events, Error> {
        let mut parser = Parser::new(limit);
        let mut events = Vec::new();
        for piece in pieces {
            parser.push(piece, &mut |event: &str, data: &str| {
                events.push((event.to_owned(), data.to_owned()));
                Ok(())
            })?;
        }
        Ok(events)
    }

    fn data_of(stream: &[u8]) -> Vec<String> {
        let events = read(1024, [stream]).expect("within the limit");
        events.into_iter().map(|(_, data)| data).collect()
    }

    #[test]
    fn every_line_end_ends_a_line() {
        for end in ["\n", "\r", "\r\n"] {
            let stream = ["data: a", "", "event: e", "data:b", "data:  c", "", ""].join(end);
            let events = read(1024, [stream.as_bytes()]).expect("within the limit");
            let expected = [("", "a"), ("e", "b\n c")].map(|(e, d)| (e.to_owned(), d.to_owned()));
            assert_eq!(events, expected, "{end:?}");
        }
    }

    #[test]
    fn comments_other_fields_and_events_without_data_are_passed_over() {
        let stream = b": keep-alive\n\nid: 7\nretry: 10\nevent: ping\n\ndatax: no\n\ndata: yes\n\n";
        assert_eq!(data_of(stream), ["yes"]);
    }

    #[test]
    fn an_empty_data_line_is_an_event_with_empty_data() {
        assert_eq!(data_of(b"data\n\ndata:\ndata:\n\n"), ["", "\n"]);
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_line_only() {
        assert_eq!(
            data_of("\u{feff}data: a\n\n\u{feff}data: b\n\n".as_bytes()),
            ["a"]
        );
    }

    #[test]
    fn an_event_without_its_blank_line_is_never_seen() {
        assert_eq!(data_of(b"data: a\n\ndata: b"), ["a"]);
        assert_eq!(data_of(b"data: a\n\ndata: b\n"), ["a"]);
    }

    #[test]
    fn invalid_utf8_reads_as_the_replacement_character() {
        assert_eq!(data_of(b"data: a\xff\xc3\n\n"), ["a\u{fffd}\u{fffd}"]);
    }

    #[test]
    fn an_endless_line_and_an_endless_event_are_refused() {
        let line = [b'x'; 65];
        assert!(read(64, [&line[..]]).is_err());
        assert!(read(64, line.chunks(7)).is_err());
        let event = b"data: 123456789\n".repeat(8);
        assert!(read(64, [&event[..]]).is_err());
        assert!(read(64, [&b"data\n".repeat(80)[..]]).is_err());
        let many = b"data: 123456789\n\n".repeat(100);
        assert_eq!(read(64, [&many[..]]).map(|events| events.len()), Ok(100));
    }

    fn stream() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            Just(&b"data: "[..]),
            Just(&b"data:{\"a\":1}"[..]),
            Just(&b"event: x"[..]),
            Just(&b": note"[..]),
            Just(&b"\n"[..]),
            Just(&b"\r"[..]),
            Just(&b"\r\n"[..]),
            Just(&b"\n\n"[..]),
            Just("né€😀".as_bytes()),
            Just(&b"\xEF\xBB\xBF"[..]),
            Just(&b"\xFF\xE2\x82"[..]),
        ];
        proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn any_chunking_of_a_stream_gives_the_same_events(
            stream in stream(), mut cuts in proptest::collection::vec(0usize..400, 0..30),
        ) {
            let whole = read(4096, [&stream[..]]);
            cuts.retain(|cut| *cut <= stream.len());
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|pair| &stream[pair[0]..pair[1]]);
            prop_assert_eq!(&whole, &read(4096, pieces));
            prop_assert_eq!(&whole, &read(4096, stream.chunks(1)));
        }
    }
}
