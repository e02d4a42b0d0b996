//! Exports of OpenAI conversations, as files of JSON or JSON lines.
//!
//! A file holds pages of items as `GET /v1/conversations/{id}/items` lists them, conversations with their items,
//! or ChatGPT's conversations. Each is read on its own, so that one that is damaged does not hide the others.

mod chatgpt;
mod items;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::time::UNIX_EPOCH;

use mainspring_shared::time::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::archive::hex;
use crate::error::Error;
use crate::parts::taken;
use crate::session::time;
use crate::source::Found;

/// Maximum size of a file in bytes.
const FILE_BYTES_MAX: u64 = 2 << 30;

/// An export, read one conversation at a time.
#[derive(Debug)]
pub(crate) struct OpenAi {
    /// The JSON of each conversation that is left, the next one last.
    left: Vec<Piece>,
    count: usize,
    /// The file's time, for conversations that have none.
    at: Timestamp,
}

/// A conversation that is not read yet.
#[derive(Debug)]
enum Piece {
    /// An object that holds it.
    Whole(Box<RawValue>),
    /// Its items.
    Items(Vec<Box<RawValue>>),
    /// A line that is no JSON.
    Damaged(usize),
}

/// Tells what an object is.
#[derive(Debug, Deserialize)]
struct Peek<'a> {
    #[serde(borrow)]
    mapping: Option<&'a RawValue>,
    #[serde(borrow)]
    items: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

impl OpenAi {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(Error::File)?;
        let about = file.metadata().map_err(Error::File)?;
        let changed = about.modified().ok();
        let changed = changed.and_then(|changed| changed.duration_since(UNIX_EPOCH).ok());
        let millis = changed.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(0));
        let mut text = Vec::new();
        let read = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text);
        let read = read.map_err(Error::File)?;
        if read as u64 > FILE_BYTES_MAX {
            return Err(Error::shape(
                "it has more than 2 GiB: split it into several files",
            ));
        }
        Self::of(&text, time(millis))
    }

    fn of(text: &[u8], at: Timestamp) -> Result<Self, Error> {
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        let mut pieces = Vec::new();
        let mut items = Vec::new();
        if let Ok(whole) = serde_json::from_slice::<&RawValue>(text) {
            sort(whole, &mut pieces, &mut items);
        } else {
            for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
                if line.trim_ascii().is_empty() {
                    continue;
                }
                match serde_json::from_slice::<&RawValue>(line) {
                    Ok(value) => sort(value, &mut pieces, &mut items),
                    Err(_) => pieces.push(Piece::Damaged(number + 1)),
                }
            }
        }
        if !items.is_empty() {
            pieces.push(Piece::Items(items));
        }
        if pieces
            .iter()
            .all(|piece| matches!(piece, Piece::Damaged(_)))
        {
            return Err(Error::shape(
                "it has no conversations as JSON or JSON lines",
            ));
        }
        pieces.reverse();
        Ok(Self {
            count: pieces.len(),
            left: pieces,
            at,
        })
    }

    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn next(&mut self) -> Option<Found> {
        let piece = self.left.pop()?;
        Some(match piece {
            Piece::Damaged(line) => refused(&format!("line {line}"), "it is no JSON".to_owned()),
            Piece::Whole(json) => self.whole(&json),
            Piece::Items(list) => {
                let mut damaged = 0;
                let mut values = Vec::new();
                for json in &list {
                    match serde_json::from_str::<Value>(json.get()) {
                        Ok(value) => values.push(value),
                        Err(_) => damaged += 1,
                    }
                }
                drop(list);
                let id = items_id(&values);
                let mut session = items::session(&id, self.at, None, values);
                session
                    .left_out
                    .add_many("items that cannot be read", damaged);
                Found::Session(Box::new(session))
            }
        })
    }

    fn whole(&self, json: &RawValue) -> Found {
        let Ok(mut conversation) = serde_json::from_str::<Value>(json.get()) else {
            let hash = hashed(json.get().as_bytes());
            return refused(&hash[..16], "it is nested too deeply".to_owned());
        };
        let given = [&conversation["conversation_id"], &conversation["id"]];
        let given = given.iter().find_map(|id| id.as_str()).map(str::to_owned);
        if conversation["mapping"].is_object() {
            let id = given.unwrap_or_else(|| hashed(json.get().as_bytes()));
            return match chatgpt::session(&id, self.at, &mut conversation) {
                Ok(session) => Found::Session(Box::new(session)),
                Err(Error::Shape(why)) => refused(&id, why),
                Err(other) => refused(&id, other.to_string()),
            };
        }
        let list = match taken(&mut conversation, "items") {
            // A page of them.
            Value::Object(mut page) => page.remove("data").unwrap_or_default(),
            list => list,
        };
        let Value::Array(list) = list else {
            let id = given.unwrap_or_else(|| "a conversation".to_owned());
            return refused(&id, "its items are no list".to_owned());
        };
        let id = given.unwrap_or_else(|| items_id(&list));
        let at = conversation["created_at"].as_i64();
        let at = at.map_or(self.at, |seconds| time(seconds.saturating_mul(1_000)));
        let metadata = conversation["metadata"].as_object();
        let session = items::session(&id, at, metadata, list);
        Found::Session(Box::new(session))
    }
}

fn refused(id: &str, why: String) -> Found {
    let id = id.to_owned();
    Found::Refused { id, why }
}

/// Sorts a value into conversations and items of one conversation.
fn sort(value: &RawValue, pieces: &mut Vec<Piece>, items: &mut Vec<Box<RawValue>>) {
    if value.get().trim_start().starts_with('[') {
        let list: Vec<&RawValue> = serde_json::from_str(value.get()).unwrap_or_default();
        for one in list {
            sort_one(one, pieces, items);
        }
    } else {
        sort_one(value, pieces, items);
    }
}

fn sort_one(value: &RawValue, pieces: &mut Vec<Piece>, items: &mut Vec<Box<RawValue>>) {
    match serde_json::from_str::<Peek<'_>>(value.get()) {
        Ok(Peek {
            data: Some(data), ..
        }) => {
            let list: Vec<&RawValue> = serde_json::from_str(data.get()).unwrap_or_default();
            items.extend(list.into_iter().map(RawValue::to_owned));
        }
        Ok(Peek { mapping, items, .. }) if mapping.is_some() || items.is_some() => {
            pieces.push(Piece::Whole(value.to_owned()));
        }
        _ => items.push(value.to_owned()),
    }
}

/// An id for items whose conversation is not named: it follows from the first of them.
fn items_id(items: &[Value]) -> String {
    // The oldest one stays the same when more is said.
    let oldest = if items::is_newest_first(items) {
        items.last()
    } else {
        items.first()
    };
    let id = oldest.and_then(|item| item["id"].as_str());
    let named = id.map_or_else(
        || {
            let oldest = oldest.map(Value::to_string);
            hashed(oldest.unwrap_or_default().as_bytes())
        },
        str::to_owned,
    );
    format!("items:{named}")
}

fn hashed(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

#[cfg(test)]
mod tests;
