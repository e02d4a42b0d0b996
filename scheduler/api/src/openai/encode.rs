//! The events of a response's stream, and its output.
//!
//! Every event has a number that follows from what it says: the round, how many items were void before, the character
//! that it ends with, and a few bits of the text up to there. So a reader that names the last one it has gets the rest
//! from every scheduler and after a restart, from the middle of a text if need be; and if what it has of that text is
//! void meanwhile, it is told so. The numbers grow, but not by one.

use mainspring_shared::id::SendId;
use serde_json::{Value, json};

use super::ids::{self, ResponseId};
use super::listen::{Called, Heard, Kind, Piece};

/// The numbers of what begins a stream.
pub(super) const CREATED: u64 = 0;
pub(super) const IN_PROGRESS: u64 = 1;

/// The number of the last event: above all others, and exact in every JSON reader.
pub(super) const LAST: u64 = 1 << 52;

/// How many numbers a character has, one for each hash of the text up to it, and an item.
const HASHES: u64 = 1 << 8;
const ITEM: u64 = HASHES << 21;

/// How many numbers there are between two items that are void, and in a round.
const SPAN: u64 = ITEM << 2;
const ROUND: u64 = SPAN << 6;

/// Voids that are told apart in one round; more than a send has.
const VOIDS_MAX: u64 = 31;

/// The places of a round's reasoning, of its text, and of its calls.
const REASONING: u64 = 0;
const TEXT: u64 = ITEM;
const CALLS: u64 = 2 * ITEM;

/// The places of an item's end behind its beginning, and of its end if it is void.
const END: u64 = ITEM - HASHES;
const VOID: u64 = END + 8;

/// Characters that have numbers of their own; more than any answer has.
const CHARS_MAX: u64 = ITEM / HASHES - 4;

/// Numbers of one call.
const CALL: u64 = 8;

/// An event, ready to be sent.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Told {
    pub(super) kind: &'static str,
    pub(super) body: Value,
}

impl Told {
    /// The event with this number.
    pub(super) fn new(kind: &'static str, number: u64, mut body: Value) -> Self {
        body["type"] = json!(kind);
        body["sequence_number"] = json!(number);
        Self { kind, body }
    }

    /// How it is written on the wire.
    pub(super) fn written(&self) -> String {
        format!("event: {}\ndata: {}\n\n", self.kind, self.body)
    }
}

/// Tells what is heard of one response.
#[derive(Debug)]
pub(super) struct Encoder {
    send: SendId,
    from: i32,
    /// The number of the last event that the reader has.
    after: Option<u64>,
    /// What that event was of.
    cursor: Cursor,
    /// The finished items with their rounds.
    output: Vec<(i32, Value)>,
    /// The number of items that were told and are void.
    voids: u64,
    open: Option<Item>,
    /// The round that is being told, and whether something that was told of it is void.
    at: (i32, bool),
    told: Vec<Told>,
}

/// What an event was of.
#[derive(Debug)]
struct Cursor {
    round: i32,
    voids: u64,
    /// Whether one of the voids is of this round.
    again: bool,
    /// Its place between two voids.
    place: u64,
}

impl Cursor {
    fn of(from: i32, after: Option<u64>) -> Self {
        let number = after
            .filter(|after| *after < LAST)
            .and_then(|after| after.checked_sub(IN_PROGRESS + 1));
        let Some(number) = number else {
            return Self {
                round: -1,
                voids: 0,
                again: false,
                place: 0,
            };
        };
        let span = number % ROUND / SPAN;
        let cursor = Self {
            round: from.saturating_add(i32::try_from(number / ROUND).unwrap_or(i32::MAX)),
            voids: span / 2,
            again: span % 2 == 1,
            place: number % SPAN,
        };
        if cursor.place % ITEM < VOID {
            return cursor;
        }
        Self {
            voids: cursor.voids + 1,
            again: true,
            place: 0,
            ..cursor
        }
    }

    /// How many characters the reader has of the item at this place, and their hash.
    fn in_item(&self, place: u64) -> Option<(usize, u8)> {
        let within = self.place.checked_sub(place)?;
        let chars = (within / HASHES).checked_sub(1)?;
        let is_text = chars > 0 && within < END;
        is_text.then_some((chars as usize, (within % HASHES) as u8))
    }
}

/// An item that is being told.
#[derive(Debug)]
struct Item {
    kind: Kind,
    id: String,
    index: usize,
    round: i32,
    base: u64,
    text: String,
    /// How many characters the text has, and their hash.
    so_far: (usize, Hash),
    /// What the reader has of it, until that is known to be the same.
    reader: Option<(usize, u8)>,
}

/// FNV-1a of the characters of a text.
#[derive(Debug, Clone, Copy)]
struct Hash(u32);

impl Hash {
    const NONE: Self = Self(0x811c_9dc5);

    fn with(self, text: impl Iterator<Item = char>) -> Self {
        text.fold(self, |Self(hash), c| {
            Self((hash ^ u32::from(c)).wrapping_mul(0x0100_0193))
        })
    }

    fn short(self) -> u8 {
        self.0
            .to_be_bytes()
            .into_iter()
            .fold(0, |all, byte| all ^ byte)
    }
}

impl Encoder {
    pub(super) fn new(id: ResponseId, after: Option<u64>) -> Self {
        let cursor = Cursor::of(id.round, after);
        Self {
            send: id.send,
            from: id.round,
            after,
            voids: cursor.voids,
            cursor,
            output: Vec::new(),
            open: None,
            at: (-1, false),
            told: Vec::new(),
        }
    }

    /// The finished items.
    pub(super) fn output(&self) -> Vec<Value> {
        self.output.iter().map(|(_, item)| item.clone()).collect()
    }

    /// Whether the reader does not have the event with this number.
    pub(super) fn wants(&self, number: u64) -> bool {
        self.after.is_none_or(|after| number > after)
    }

    /// What to tell of this.
    pub(super) fn tell(&mut self, heard: &Heard) -> Vec<Told> {
        match heard {
            Heard::Piece(piece) => self.piece(piece),
            Heard::Void => self.void(),
            Heard::Said { round, calls } => {
                self.close("completed");
                self.enter(*round);
                for (place, call) in calls.iter().enumerate() {
                    self.call(place, call);
                }
            }
            Heard::Over(_) => self.close("completed"),
        }
        std::mem::take(&mut self.told)
    }

    /// Notes the round that is being told.
    fn enter(&mut self, round: i32) {
        if self.at.0 != round {
            self.at = (round, self.cursor.round == round && self.cursor.again);
        }
    }

    /// The first number of what is being told.
    fn base(&self) -> u64 {
        let (round, again) = self.at;
        let round = u64::from(round.saturating_sub(self.from).unsigned_abs());
        let span = self.voids.min(VOIDS_MAX) * 2 + u64::from(again);
        IN_PROGRESS + 1 + round * ROUND + span * SPAN
    }

    /// The place of the next item in the output, with those that are void.
    fn index(&self) -> usize {
        self.output.len() + self.voids as usize
    }

    fn push(&mut self, kind: &'static str, number: u64, body: Value) {
        if self.wants(number) {
            self.told.push(Told::new(kind, number, body));
        }
    }

    fn piece(&mut self, piece: &Piece) {
        let is_open = |item: &Item| item.kind == piece.kind && item.round == piece.round;
        if !self.open.as_ref().is_some_and(is_open) {
            self.close("completed");
            self.enter(piece.round);
            self.begin(piece.kind);
        }
        self.say(&piece.text);
    }

    /// Adds to the item that is being told.
    fn say(&mut self, text: &str) {
        let Some(item) = &mut self.open else {
            return;
        };
        let (known, hash) = item.so_far;
        let length = text.chars().count();
        let has = item.reader.map_or(0, |(has, _)| has);
        if let Some((_, expected)) = item.reader.take_if(|(has, _)| known + length >= *has) {
            let same = hash.with(text.chars().take(has - known));
            if same.short() != expected {
                item.text.push_str(text);
                self.say_again();
                return;
            }
        }
        item.text.push_str(text);
        item.so_far = (known + length, hash.with(text.chars()));
        let place = (item.so_far.0 as u64).min(CHARS_MAX) + 1;
        let number = item.base + place * HASHES + u64::from(item.so_far.1.short());
        if self.after.is_some_and(|after| number <= after) {
            return;
        }
        // Of a piece that the reader has in part, the rest.
        let delta: String = text.chars().skip(has.saturating_sub(known)).collect();
        let (id, index) = (&item.id, item.index);
        let (kind, body) = match item.kind {
            Kind::Text => (
                "response.output_text.delta",
                json!({ "item_id": id, "output_index": index, "content_index": 0, "delta": delta, "logprobs": [] }),
            ),
            Kind::Reasoning => (
                "response.reasoning_summary_text.delta",
                json!({ "item_id": id, "output_index": index, "summary_index": 0, "delta": delta }),
            ),
        };
        self.told.push(Told::new(kind, number, body));
    }

    /// Ends an item of which the reader has another text, which nobody here knows.
    fn lose(&mut self) -> Option<Item> {
        let item = self.open.take()?;
        let lost = json!({ "output_index": item.index, "item": item.shown("incomplete", false) });
        self.push("response.output_item.done", item.base + VOID + 2, lost);
        self.voids += 1;
        self.at.1 = true;
        Some(item)
    }

    /// Tells such an item as a new one.
    fn say_again(&mut self) {
        if let Some(item) = self.lose() {
            self.begin(item.kind);
            self.say(&item.text);
        }
    }

    fn begin(&mut self, kind: Kind) {
        let (round, is_again) = self.at;
        let again = is_again.then_some(self.voids as i32);
        let (id, place) = match kind {
            Kind::Text => (ids::message(self.send, round, again), TEXT),
            Kind::Reasoning => (ids::reasoning(self.send, round, again), REASONING),
        };
        let base = self.base() + place;
        let index = self.index();
        let cursor = &self.cursor;
        let is_there = (cursor.round, cursor.voids, cursor.again) == (round, self.voids, is_again);
        let reader = is_there.then(|| cursor.in_item(place)).flatten();
        let item = Item {
            kind,
            id,
            index,
            round,
            base,
            text: String::new(),
            so_far: (0, Hash::NONE),
            reader,
        };
        let added = item.shown("in_progress", false);
        self.push(
            "response.output_item.added",
            base,
            json!({ "output_index": index, "item": added }),
        );
        let (kind, mut body) = match kind {
            Kind::Text => (
                "response.content_part.added",
                json!({ "content_index": 0, "part": output_text("") }),
            ),
            Kind::Reasoning => (
                "response.reasoning_summary_part.added",
                json!({ "summary_index": 0, "part": summary_text("") }),
            ),
        };
        body["item_id"] = json!(item.id);
        body["output_index"] = json!(index);
        self.push(kind, base + 1, body);
        self.open = Some(item);
    }

    /// Ends the item that is being told.
    fn close(&mut self, status: &'static str) {
        // The reader has more of it than there is.
        if self.open.as_ref().is_some_and(|item| item.reader.is_some()) {
            if status == "completed" {
                self.say_again();
            } else {
                self.lose();
            }
        }
        let Some(item) = self.open.take() else {
            return;
        };
        let end = if status == "completed" { END } else { VOID };
        let (number, index) = (item.base + end, item.index);
        let mut said = match item.kind {
            Kind::Text => [
                (
                    "response.output_text.done",
                    json!({ "content_index": 0, "text": item.text, "logprobs": [] }),
                ),
                (
                    "response.content_part.done",
                    json!({ "content_index": 0, "part": output_text(&item.text) }),
                ),
            ],
            Kind::Reasoning => [
                (
                    "response.reasoning_summary_text.done",
                    json!({ "summary_index": 0, "text": item.text }),
                ),
                (
                    "response.reasoning_summary_part.done",
                    json!({ "summary_index": 0, "part": summary_text(&item.text) }),
                ),
            ],
        };
        for (place, (kind, body)) in said.iter_mut().enumerate() {
            body["item_id"] = json!(item.id);
            body["output_index"] = json!(index);
            self.push(kind, number + place as u64, body.take());
        }
        let shown = item.shown(status, true);
        let done = json!({ "output_index": index, "item": shown });
        self.push("response.output_item.done", number + 2, done);
        if status == "completed" {
            self.output.push((item.round, shown));
        } else {
            self.voids += 1;
        }
    }

    /// Leaves what was said of the round out of the output: there is no event to take it back.
    fn void(&mut self) {
        self.close("incomplete");
        let (round, _) = self.at;
        let before = self.output.len();
        self.output.retain(|(of, _)| *of != round);
        self.voids += (before - self.output.len()) as u64;
        self.at.1 = true;
    }

    fn call(&mut self, place: usize, call: &Called) {
        let number = self.base() + CALLS + CALL * place as u64;
        let index = self.index();
        let shown = |status: &str, arguments: &str| function_call(call, status, arguments);
        let added = shown("in_progress", "");
        self.push(
            "response.output_item.added",
            number,
            json!({ "output_index": index, "item": added }),
        );
        let id = ids::call(&call.id);
        let said = json!({ "item_id": id, "output_index": index, "delta": call.arguments });
        self.push("response.function_call_arguments.delta", number + 1, said);
        let said = json!({
            "item_id": id, "output_index": index, "name": call.name, "arguments": call.arguments,
        });
        self.push("response.function_call_arguments.done", number + 2, said);
        let done = shown("completed", &call.arguments);
        self.push(
            "response.output_item.done",
            number + 3,
            json!({ "output_index": index, "item": done }),
        );
        self.output.push((self.at.0, done));
    }
}

/// A call as an item.
pub(super) fn function_call(call: &Called, status: &str, arguments: &str) -> Value {
    json!({
        "type": "function_call", "id": ids::call(&call.id), "call_id": call.id,
        "name": call.name, "arguments": arguments, "status": status,
    })
}

impl Item {
    /// The item, with its text once it is whole.
    fn shown(&self, status: &str, is_whole: bool) -> Value {
        let text = is_whole.then_some(self.text.as_str());
        match self.kind {
            Kind::Text => json!({
                "type": "message", "id": self.id, "status": status, "role": "assistant",
                "content": text.into_iter().map(output_text).collect::<Vec<_>>(),
            }),
            Kind::Reasoning => json!({
                "type": "reasoning", "id": self.id, "status": status,
                "summary": text.into_iter().map(summary_text).collect::<Vec<_>>(),
            }),
        }
    }
}

pub(super) fn output_text(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

fn summary_text(text: &str) -> Value {
    json!({ "type": "summary_text", "text": text })
}

#[cfg(test)]
mod tests;
