//! To-do lists and notes.

use mainspring_shared::list::{
    Entry, List, NOTE_CHARS_MAX, NOTES_MAX_DEFAULT, TODO_CHARS_MAX, TODO_MAX,
};
use mainspring_shared::stored::Extra;
use mainspring_shared::time::Timestamp;
use serde_json::Value;

use crate::database::Row;
use crate::left_out::LeftOut;
use crate::session::{Session, time};

/// The to-do list in a runtime state: `{"items": [{text, status, owner?, ref?}]}`.
pub(super) fn todo(session: &mut Session, json: &str, at: Timestamp) {
    let Ok(state) = serde_json::from_str::<Value>(json) else {
        session.left_out.add("unreadable to-do lists");
        return;
    };
    let items = state["items"].as_array().map_or(&[][..], Vec::as_slice);
    let mut entries = Vec::new();
    for item in items {
        let Some(text) = item["text"].as_str().filter(|text| !text.trim().is_empty()) else {
            session.left_out.add("to-do items without a text");
            continue;
        };
        if entries.len() >= TODO_MAX as usize {
            session.left_out.add("to-do items beyond the twentieth");
            continue;
        }
        let owner = item["owner"].as_str().filter(|owner| *owner != "self");
        let name = [owner, item["ref"].as_str()];
        let author = name.into_iter().flatten().collect::<Vec<_>>().join(" ");
        let status = item["status"].as_str().unwrap_or("pending");
        entries.push(Entry {
            status: Some(clean(status)),
            author: (!author.is_empty()).then(|| clean(&author)),
            ..entry(
                entries.len() as i64 + 1,
                text,
                TODO_CHARS_MAX,
                at,
                &mut session.left_out,
            )
        });
    }
    session.todo = list(entries);
}

pub(super) fn notes(session: &mut Session, rows: &[Row]) {
    let mut entries = Vec::new();
    for row in rows {
        let number = |column| row.int(column).ok().flatten();
        let (Some(id), Ok(Some(text))) = (number(0).filter(|id| *id > 0), row.text(1)) else {
            session.left_out.add("unreadable notes");
            continue;
        };
        if text.trim().is_empty() {
            session.left_out.add("notes without a text");
            continue;
        }
        let at = time(number(3).unwrap_or(0));
        entries.push(Entry {
            pinned: number(2) == Some(1),
            updated_at: time(number(4).unwrap_or(0)),
            ..entry(id, &text, NOTE_CHARS_MAX, at, &mut session.left_out)
        });
    }
    // As when a note is added to a full list: the oldest that is not pinned makes room.
    while entries.len() > NOTES_MAX_DEFAULT as usize {
        let oldest = entries.iter().position(|entry| !entry.pinned).unwrap_or(0);
        entries.remove(oldest);
        session
            .left_out
            .add("notes beyond the fiftieth, the oldest");
    }
    session.notes = list(entries);
}

fn entry(id: i64, text: &str, chars_max: usize, at: Timestamp, left: &mut LeftOut) -> Entry {
    let text = clean(text);
    let fits = text.chars().count() <= chars_max;
    let text = if fits {
        text
    } else {
        left.add("notes and to-do items cut to 1,000 characters");
        let mut cut: String = text.chars().take(chars_max - 1).collect();
        cut.push('…');
        cut
    };
    Entry {
        id,
        version: 1,
        text,
        kind: None,
        status: None,
        author: None,
        pinned: false,
        created_at: at,
        updated_at: at,
        extra: Extra::default(),
    }
}

fn list(entries: Vec<Entry>) -> List {
    let Some(last) = entries.last() else {
        return List::default();
    };
    List {
        next_id: last.id.saturating_add(1),
        version: entries.len() as i64,
        entries,
    }
}

fn clean(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}
