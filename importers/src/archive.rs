//! Writes sessions as archives.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mainspring_shared::id::SessionId;
use mainspring_shared::message::Message;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::session::{Blob, Session, derived};

/// Bytes of a blob on one line, so that the line is shorter than a mebibyte.
const PIECE_BYTES: usize = 765 << 10;

impl Session {
    /// The archive: lines of JSON, for `POST /v1/sessions:import`.
    pub fn archive(&self) -> Vec<u8> {
        let mut lines = Vec::new();
        line(&mut lines, &self.header());
        let mut blobs = 0;
        let mut calls = 0;
        for blob in &self.blobs {
            blobs += 1;
            pieces(&mut lines, blob);
        }
        for message in &self.messages {
            calls += message.tool_calls.len();
            message_line(&mut lines, message);
        }
        let hash = hex(&Sha256::digest(&lines));
        let mut footer = json!({ "messages": self.messages.len(), "calls": calls, "sha256": hash });
        if blobs > 0 {
            footer["blobs"] = json!(blobs);
        }
        line(&mut lines, &footer);
        lines
    }

    /// An idempotency key for a request about it with this content.
    pub fn key(&self, content: &[u8]) -> String {
        let mut hash = Sha256::new();
        for word in [self.system.as_str(), self.source()] {
            hash.update(word);
            hash.update([0]);
        }
        hash.update(content);
        format!("import:{}", hex(&hash.finalize()))
    }

    fn header(&self) -> Value {
        let words = [self.system.as_str(), self.source()];
        let mut session = json!({
            "id": SessionId(derived(self.created_at, &words)),
            "agent": self.agent,
            "metadata": self.metadata,
            "created_at": self.created_at,
        });
        if !self.todo.is_new() {
            session["todo"] = json!(self.todo);
        }
        if !self.notes.is_new() {
            session["notes"] = json!(self.notes);
        }
        if !self.folds.is_empty() {
            session["folds"] = json!(self.folds);
        }
        json!({ "format": "mainspring.session", "version": 1, "session": session })
    }
}

/// Bytes in lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn line(lines: &mut Vec<u8>, value: &Value) {
    lines.extend_from_slice(value.to_string().as_bytes());
    lines.push(b'\n');
}

/// Writes a message with the arguments of its calls as they were written, but on one line: inside of strings JSON has no
/// raw line breaks.
fn message_line(lines: &mut Vec<u8>, message: &Message) {
    let from = lines.len();
    // Writing to memory cannot fail, and messages have no maps with keys that are no texts.
    let _ = serde_json::to_writer(&mut *lines, message);
    for byte in &mut lines[from..] {
        if matches!(*byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    lines.push(b'\n');
}

fn pieces(lines: &mut Vec<u8>, blob: &Blob) {
    for (place, piece) in blob.data.chunks(PIECE_BYTES).enumerate() {
        let data = STANDARD.encode(piece);
        line(
            lines,
            &json!({ "blob": blob.name, "at": place * PIECE_BYTES, "data": data }),
        );
    }
}
