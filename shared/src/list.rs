//! Lists that agents keep: to-do lists, notes, and boards shared with others.
//!
//! A list is small and is changed as a whole: [`apply`] is a function of the list and one change,
//! so every store enforces the same limits and assigns the same numbers.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::id::SessionId;
use crate::stored::Extra;
use crate::time::Timestamp;

/// Default maximum number of notes of a session.
pub const NOTES_MAX_DEFAULT: u32 = 50;

/// Maximum length of a note, in characters.
pub const NOTE_CHARS_MAX: usize = 1_000;

/// Maximum number of entries of a board.
pub const BOARD_ENTRIES_MAX: u32 = 60;

/// Maximum length of a board's entry, in characters.
pub const BOARD_CHARS_MAX: usize = 2_000;

/// Maximum number of items of a to-do list.
pub const TODO_MAX: u32 = 20;

/// Maximum length of a to-do item, in characters.
pub const TODO_CHARS_MAX: usize = 1_000;

/// Number of writes that a list remembers by their call ids, so that a repeat changes nothing.
pub const WRITES_KEPT: i64 = 1_000;

/// The name of a list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListName {
    /// The to-do list of a session.
    Todo(SessionId),
    /// The notes of a session.
    Notes(SessionId),
    /// The outcomes of a session's background commands.
    Commands(SessionId),
    /// The board shared by a tree of sessions, by its root, or by agents that name the same board.
    Board(String),
}

impl ListName {
    /// The lists that are deleted with a session.
    pub fn of_session(session: SessionId) -> [Self; 4] {
        [
            Self::Todo(session),
            Self::Notes(session),
            Self::Commands(session),
            Self::root_board(session),
        ]
    }

    /// The board of the tree with this root.
    pub fn root_board(root: SessionId) -> Self {
        Self::Board(root.to_string())
    }

    /// The key in the database.
    pub fn key(&self) -> String {
        match self {
            Self::Todo(session) => format!("todo:{session}"),
            Self::Notes(session) => format!("notes:{session}"),
            Self::Commands(session) => format!("commands:{session}"),
            Self::Board(name) => format!("board:{name}"),
        }
    }
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its number in the list, from 1. Numbers are not reused, except in a to-do list, which is
    /// written as a whole.
    pub id: i64,
    /// Counts its changes, from 1.
    pub version: i64,
    /// Its text.
    pub text: String,
    /// Its kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Its status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Who wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// Whether it is never evicted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
    /// When it was written.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// Fields that this release does not know.
    #[serde(flatten, skip_serializing_if = "Extra::is_empty")]
    pub extra: Extra,
}

/// An entry to write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewEntry {
    /// Its text.
    pub text: String,
    /// Its kind.
    pub kind: Option<String>,
    /// Its status.
    pub status: Option<String>,
    /// Who writes it.
    pub author: Option<String>,
    /// Whether it is never evicted.
    pub pinned: bool,
}

/// A list with all its entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// The number of the next entry.
    pub next_id: i64,
    /// Counts its changes.
    pub version: i64,
    /// The entries by number.
    pub entries: Vec<Entry>,
}

impl Default for List {
    fn default() -> Self {
        Self {
            next_id: 1,
            version: 0,
            entries: Vec::new(),
        }
    }
}

impl List {
    /// Whether nothing was ever written to it.
    pub fn is_new(&self) -> bool {
        *self == Self::default()
    }

    /// What is wrong with a list that was written elsewhere.
    pub fn fault(&self, bounds: Bounds) -> Option<String> {
        let rising = self.entries.is_sorted_by(|a, b| a.id < b.id);
        let mut ids = self.entries.iter().map(|entry| entry.id);
        if !rising || ids.any(|id| !(1..self.next_id).contains(&id)) {
            return Some("the entries must be numbered upwards from 1, below next_id".to_owned());
        }
        if self.version < 0 || self.next_id < 1 {
            return Some("the counters must not be negative".to_owned());
        }
        if self.entries.len() > bounds.entries_max as usize {
            return Some(format!(
                "must not have more than {} entries",
                bounds.entries_max
            ));
        }
        let refused = self.entries.iter().find_map(|entry| {
            let fault = words(&entry.text, bounds).err();
            fault.map(|fault| format!("entry {}: {fault}", entry.id))
        });
        let mut texts = self.entries.iter().flat_map(|entry| {
            let more = [&entry.kind, &entry.status, &entry.author];
            let more = more.into_iter().flatten();
            std::iter::once(&entry.text).chain(more)
        });
        let nul = texts.any(|text| text.contains('\0'));
        refused.or_else(|| nul.then(|| "must not contain U+0000".to_owned()))
    }
}

/// What happens when a note is added to a full list.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Default,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum WhenFull {
    /// Reject the note.
    #[default]
    Reject,
    /// Evict the oldest note that is not pinned.
    Fifo,
}

/// The size limits of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum number of entries.
    pub entries_max: u32,
    /// Maximum length of an entry, in characters.
    pub chars_max: usize,
    /// What happens when it is full.
    pub when_full: WhenFull,
}

/// A change of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Replace all entries; the new ones are numbered from 1.
    Replace(Vec<NewEntry>),
    /// Add an entry.
    Add(NewEntry),
    /// Change at least one member of an entry.
    Update {
        /// The entry.
        id: i64,
        /// Its new text.
        text: Option<String>,
        /// Its new status.
        status: Option<String>,
        /// Whether to pin it.
        pinned: Option<bool>,
        /// Only if this is still its version.
        if_version: Option<i64>,
    },
    /// Remove an entry.
    Remove {
        /// The entry.
        id: i64,
    },
}

/// The effect of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Written {
    /// The entry that it was about.
    pub entry: Option<i64>,
    /// The entry that was evicted for it.
    pub evicted: Option<i64>,
}

/// Why a change was refused; nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The text is empty.
    #[error("the text is empty")]
    Empty,
    /// The text is too long.
    #[error("the text has more than {max} characters: shorten it")]
    TooLong {
        /// The maximum length in characters.
        max: usize,
    },
    /// The list is full.
    #[error("the limit of {max} entries is reached: remove or merge what is no longer needed")]
    Full {
        /// The maximum number of entries.
        max: u32,
    },
    /// The list is full and all entries are pinned.
    #[error("all {max} entries are pinned: unpin or remove one")]
    AllPinned {
        /// The maximum number of entries.
        max: u32,
    },
    /// No such entry.
    #[error("there is no entry {id}")]
    Unknown {
        /// The number.
        id: i64,
    },
    /// Someone else changed it.
    #[error("entry {id} was changed meanwhile and now has version {version}: read it again")]
    Changed {
        /// The entry.
        id: i64,
        /// Its version now.
        version: i64,
    },
    /// The change is empty.
    #[error("say what is to change")]
    Nothing,
}

/// The list after a change, and the effect of the change.
pub fn apply(
    list: &List,
    change: Change,
    bounds: Bounds,
    now: Timestamp,
) -> Result<(List, Written), Refusal> {
    let mut next = list.clone();
    next.version += 1;
    let written = match change {
        Change::Replace(entries) => replace(&mut next, entries, bounds, now)?,
        Change::Add(entry) => add(&mut next, &entry, bounds, now)?,
        Change::Update {
            id,
            text,
            status,
            pinned,
            if_version,
        } => {
            if text.is_none() && status.is_none() && pinned.is_none() {
                return Err(Refusal::Nothing);
            }
            let entry = next.entries.iter_mut().find(|entry| entry.id == id);
            let entry = entry.ok_or(Refusal::Unknown { id })?;
            let version = entry.version;
            if if_version.is_some_and(|expected| expected != version) {
                return Err(Refusal::Changed { id, version });
            }
            if let Some(text) = text {
                entry.text = words(&text, bounds)?;
            }
            if let Some(status) = status {
                entry.status = Some(clean(&status));
            }
            entry.pinned = pinned.unwrap_or(entry.pinned);
            entry.version += 1;
            entry.updated_at = now;
            Written {
                entry: Some(id),
                evicted: None,
            }
        }
        Change::Remove { id } => {
            let before = next.entries.len();
            next.entries.retain(|entry| entry.id != id);
            if next.entries.len() == before {
                return Err(Refusal::Unknown { id });
            }
            Written {
                entry: Some(id),
                evicted: None,
            }
        }
    };
    Ok((next, written))
}

fn replace(
    list: &mut List,
    entries: Vec<NewEntry>,
    bounds: Bounds,
    now: Timestamp,
) -> Result<Written, Refusal> {
    let max = bounds.entries_max;
    if entries.len() > max as usize {
        return Err(Refusal::Full { max });
    }
    let entries = entries.into_iter().zip(1..);
    let entries = entries.map(|(new, id)| {
        let before = list.entries.iter().find(|entry| entry.id == id);
        let fresh = entry(&new, id, bounds, now)?;
        Ok(match before {
            Some(before) if before.text == fresh.text => Entry {
                version: before.version + 1,
                created_at: before.created_at,
                ..fresh
            },
            _ => fresh,
        })
    });
    list.entries = entries.collect::<Result<_, _>>()?;
    list.next_id = list.next_id.max(list.entries.len() as i64 + 1);
    Ok(Written::default())
}

fn add(
    list: &mut List,
    new: &NewEntry,
    bounds: Bounds,
    now: Timestamp,
) -> Result<Written, Refusal> {
    let id = list.next_id;
    let fresh = entry(new, id, bounds, now)?;
    let max = bounds.entries_max;
    let mut evicted = None;
    if list.entries.len() >= max as usize {
        if bounds.when_full == WhenFull::Reject {
            return Err(Refusal::Full { max });
        }
        let oldest = list.entries.iter().position(|entry| !entry.pinned);
        let oldest = oldest.ok_or(Refusal::AllPinned { max })?;
        evicted = Some(list.entries.remove(oldest).id);
    }
    list.entries.push(fresh);
    list.next_id += 1;
    Ok(Written {
        entry: Some(id),
        evicted,
    })
}

fn entry(new: &NewEntry, id: i64, bounds: Bounds, now: Timestamp) -> Result<Entry, Refusal> {
    Ok(Entry {
        id,
        version: 1,
        text: words(&new.text, bounds)?,
        kind: new.kind.as_deref().map(clean),
        status: new.status.as_deref().map(clean),
        author: new.author.as_deref().map(clean),
        pinned: new.pinned,
        created_at: now,
        updated_at: now,
        extra: Extra::default(),
    })
}

fn words(text: &str, bounds: Bounds) -> Result<String, Refusal> {
    let text = clean(text.trim());
    if text.is_empty() {
        return Err(Refusal::Empty);
    }
    let max = bounds.chars_max;
    if text.chars().nth(max).is_some() {
        return Err(Refusal::TooLong { max });
    }
    Ok(text)
}

/// Makes a text storable in every database.
fn clean(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// The entries of `next` that differ from those of `before`, and the numbers that are gone.
pub fn difference<'l>(before: &List, next: &'l List) -> (Vec<&'l Entry>, Vec<i64>) {
    let changed = next.entries.iter();
    let changed = changed.filter(|entry| !before.entries.contains(entry));
    let gone = before.entries.iter().map(|entry| entry.id);
    let gone = gone.filter(|id| next.entries.iter().all(|entry| entry.id != *id));
    (changed.collect(), gone.collect())
}

/// The status of a finished to-do item.
pub const TODO_COMPLETED: &str = "completed";

/// The status of a to-do item in progress.
pub const TODO_IN_PROGRESS: &str = "in_progress";

/// A to-do list as text for a model.
pub fn todo_text(entries: &[Entry]) -> String {
    if entries.is_empty() {
        return "Nothing to do.".to_owned();
    }
    let mut text = String::new();
    for entry in entries {
        let mark = match entry.status.as_deref() {
            Some(TODO_COMPLETED) => "[x]",
            Some(TODO_IN_PROGRESS) => "[>]",
            _ => "[ ]",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{mark} {}. {}", entry.id, entry.text);
    }
    let done = entries.iter().filter(|entry| is_done(entry));
    let _ = write!(text, "({} of {} done)", done.count(), entries.len());
    text
}

/// The to-do list shown to a model when a send starts. `None` if nothing is left to do.
pub fn todo_shown(entries: &[Entry]) -> Option<String> {
    let is_left = entries.iter().any(|entry| !is_done(entry));
    let text = || todo_text(entries);
    is_left.then(|| format!("Your to-do list when this request came:\n{}", text()))
}

fn is_done(entry: &Entry) -> bool {
    entry.status.as_deref() == Some(TODO_COMPLETED)
}

/// The notes shown to a model when a send starts: pinned ones always, the others newest first, up
/// to the first that does not fit. `None` if there are no notes.
pub fn notes_shown(entries: &[Entry], chars_max: usize) -> Option<String> {
    if entries.is_empty() {
        return None;
    }
    let line = |entry: &Entry| {
        let pinned = if entry.pinned { " [pinned]" } else { "" };
        format!("#{}{pinned} {}", entry.id, entry.text)
    };
    let pinned = entries.iter().filter(|entry| entry.pinned);
    let mut used: usize = pinned.map(|entry| line(entry).chars().count() + 1).sum();
    let mut shown_from = i64::MAX;
    for entry in entries.iter().rev().filter(|entry| !entry.pinned) {
        used += line(entry).chars().count() + 1;
        if used > chars_max {
            break;
        }
        shown_from = entry.id;
    }
    let is_shown = |entry: &&Entry| entry.pinned || entry.id >= shown_from;
    let mut lines = vec!["Your notes from earlier:".to_owned()];
    lines.extend(entries.iter().filter(is_shown).map(line));
    let hidden = entries.len() - entries.iter().filter(is_shown).count();
    if hidden > 0 {
        lines.push(format!(
            "({hidden} older notes are not shown; note_list has them)"
        ));
    }
    Some(lines.join("\n"))
}

#[cfg(test)]
mod tests;
