//! As much of the Postgres protocol as it takes to tell where a write begins and ends.

use std::collections::BTreeMap;

/// Codes of the startup packets that request encryption; another startup packet follows them.
const ENCRYPTION: [u32; 2] = [80_877_103, 80_877_104];

/// Words that mark a statement as a write. Claims sit in functions and common table expressions, so
/// the first word alone tells nothing.
const WRITES: [&str; 5] = ["INSERT ", "UPDATE ", "DELETE ", "COMMIT", "CREATE "];

/// What a client sends before it waits for an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Batch {
    /// The bytes of the batch.
    pub(super) bytes: Vec<u8>,
    /// Whether it changes something, or ends a transaction that does.
    pub(super) writes: bool,
}

/// A client's byte stream, split into batches.
#[derive(Debug, Default)]
pub(super) struct Batches {
    unread: Vec<u8>,
    batch: Vec<u8>,
    writes: bool,
    started: bool,
    /// Whether each prepared statement writes, by name.
    statements: BTreeMap<Vec<u8>, bool>,
}

impl Batches {
    /// Adds received bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
    }

    /// The next complete batch.
    pub(super) fn next(&mut self) -> Option<Batch> {
        while let Some(message) = self.message() {
            let over = self.read(&message);
            self.batch.extend(message);
            if over {
                return Some(Batch {
                    bytes: std::mem::take(&mut self.batch),
                    writes: std::mem::take(&mut self.writes),
                });
            }
        }
        None
    }

    /// The next complete message.
    fn message(&mut self) -> Option<Vec<u8>> {
        // Startup packets have no type byte before their length.
        let head = usize::from(self.started);
        let length = number(&self.unread, head)? as usize;
        let end = head + length.max(4);
        (self.unread.len() >= end).then(|| self.unread.drain(..end).collect())
    }

    /// Records what a message does. Returns true if the client waits for an answer after it.
    fn read(&mut self, message: &[u8]) -> bool {
        if !self.started {
            self.started = number(message, 4).is_none_or(|code| !ENCRYPTION.contains(&code));
            return true;
        }
        let body = &message[5..];
        match message[0] {
            b'Q' => {
                self.writes |= is_write(body);
                true
            }
            b'P' => {
                let (name, rest) = split(body);
                self.statements.insert(name.to_vec(), is_write(rest));
                false
            }
            b'B' => {
                let (_portal, rest) = split(body);
                let (name, _) = split(rest);
                self.writes |= self.statements.get(name).copied().unwrap_or(false);
                false
            }
            b'C' if body.first() == Some(&b'S') => {
                self.statements.remove(split(&body[1..]).0);
                false
            }
            b'E' | b'D' | b'C' | b'd' => false,
            // Sync, Flush, the end of a copy, a password, or Terminate.
            _ => true,
        }
    }
}

/// Whether an answer is complete, that is, ends with `ReadyForQuery`: five bytes and a state.
pub(super) fn is_ready(answer: &[u8]) -> bool {
    let mut rest = answer;
    while let Some(length) = number(rest, 1) {
        let end = 1 + length as usize;
        if rest[0] == b'Z' && rest.len() >= end {
            return true;
        }
        match rest.get(end..) {
            Some(after) => rest = after,
            None => return false,
        }
    }
    false
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + 4)?;
    Some(u32::from_be_bytes(four.try_into().ok()?))
}

/// A zero-terminated string, and what follows it.
fn split(bytes: &[u8]) -> (&[u8], &[u8]) {
    match bytes.iter().position(|byte| *byte == 0) {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, &[]),
    }
}

fn is_write(statement: &[u8]) -> bool {
    let (text, _) = split(statement);
    let text = String::from_utf8_lossy(text).to_uppercase();
    // Statements span several lines and start with comments.
    let text = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("--"));
    let text = text.collect::<Vec<_>>().join(" ") + " ";
    WRITES.iter().any(|word| text.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = (body.len() as u32 + 4).to_be_bytes();
        [&[kind], &length[..], body].concat()
    }

    fn first(code: u32) -> Vec<u8> {
        [8_u32.to_be_bytes(), code.to_be_bytes()].concat()
    }

    fn writes(bytes: &[u8]) -> Vec<bool> {
        let mut batches = Batches::default();
        let mut found = Vec::new();
        let mut passed = Vec::new();
        // Byte by byte, since packets can end anywhere.
        for byte in bytes {
            batches.push(&[*byte]);
            while let Some(batch) = batches.next() {
                found.push(batch.writes);
                passed.extend(batch.bytes);
            }
        }
        assert_eq!(passed, bytes, "every byte is passed on, in order");
        found
    }

    #[test]
    fn a_batch_ends_where_the_client_waits() {
        let bytes = [
            first(80_877_103),
            first(196_608),
            message(b'Q', b"SELECT 1\0"),
            message(
                b'P',
                b"s1\0-- does not DELETE \nWITH x AS (\nupdate\nt SET a = 1) SELECT 1\0\0\0",
            ),
            message(b'D', b"Ss1\0"),
            message(b'S', b""),
            message(b'B', b"\0s1\0rest"),
            message(b'E', b"\0\0\0\0\0"),
            message(b'S', b""),
            message(b'P', b"s2\0SELECT updated_at FROM t\0\0\0"),
            message(b'B', b"\0s2\0"),
            message(b'E', b"\0\0\0\0\0"),
            message(b'S', b""),
            message(b'Q', b"commit\0"),
        ]
        .concat();
        assert_eq!(
            writes(&bytes),
            [false, false, false, false, true, false, true]
        );
    }

    #[test]
    fn an_answer_is_complete_with_ready_for_query_only() {
        let mut answer = message(b'C', b"INSERT 0 1\0Z");
        assert!(!is_ready(&answer));
        answer.extend(message(b'Z', b"I"));
        assert!(!is_ready(&answer[..answer.len() - 1]));
        assert!(is_ready(&answer));
        assert!(!is_ready(b""));
    }
}
