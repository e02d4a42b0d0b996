//! The events of a response's stream, and its output.
//!
//! Every event has a number that follows from what it says: the round, the attempt, and the character that it ends
//! with. So the numbers are the same on every scheduler and after a restart, and a reader that names the last one it
//! has gets the rest, from the middle of a text if need be. They grow, but not by one.

use mainspring_shared::id::SendId;
use serde_json::{Value, json};

use super::ids::{self, ResponseId};
use super::listen::{Called, FIRST, Heard, Kind, Piece};

/// The numbers of what begins a stream.
pub(super) const CREATED: u64 = 0;
pub(super) const IN_PROGRESS: u64 = 1;

/// The number of the last event: above all others, and exact in every JSON reader.
pub(super) const LAST: u64 = 1 << 52;

/// How many numbers an attempt has, and a round.
const ATTEMPT: u64 = 1 << 24;
const ROUND: u64 = ATTEMPT << 8;

/// The places within an attempt: of its reasoning, of its text, and of its calls.
const REASONING: u64 = 0;
const TEXT: u64 = 1 << 22;
const CALLS: u64 = 2 << 22;

/// The places of an item's end behind its beginning.
const END: u64 = TEXT - 8;

/// Characters that have numbers of their own; more than any answer has.
const CHARS_MAX: u64 = END - 8;

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
    /// The round and the attempt that its last event was of.
    cursor: (i32, i32),
    /// The finished items with their rounds.
    output: Vec<(i32, Value)>,
    /// The number of items that were begun.
    items: usize,
    open: Option<Item>,
    /// The round that is being told, its attempt, and whether an earlier attempt was void.
    at: (i32, i32, bool),
    told: Vec<Told>,
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
}

impl Encoder {
    pub(super) fn new(id: ResponseId, after: Option<u64>) -> Self {
        let place = after
            .filter(|after| *after < LAST)
            .and_then(|after| after.checked_sub(IN_PROGRESS + 1));
        let cursor = place.map_or((-1, 0), |place| {
            let round = i32::try_from(place / ROUND).unwrap_or(i32::MAX);
            (
                id.round.saturating_add(round),
                ((place % ROUND) / ATTEMPT) as i32,
            )
        });
        Self {
            send: id.send,
            from: id.round,
            after,
            cursor,
            output: Vec::new(),
            items: 0,
            open: None,
            at: (-1, FIRST, false),
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
                self.enter(*round, None);
                for (place, call) in calls.iter().enumerate() {
                    self.call(place, call);
                }
            }
            Heard::Over(_) => self.close("completed"),
        }
        std::mem::take(&mut self.told)
    }

    /// Notes the round that is being told.
    fn enter(&mut self, round: i32, attempt: Option<i32>) {
        let (at, known, is_again) = self.at;
        let known = if at == round { known } else { FIRST };
        let attempt = attempt.unwrap_or(known).max(known);
        // A round that is read from the database was said in some attempt, and the reader knows in which.
        let attempt = if self.cursor.0 == round {
            attempt.max(self.cursor.1)
        } else {
            attempt
        };
        self.at = (round, attempt, is_again && at == round);
    }

    /// The first number of the attempt that is being told.
    fn base(&self) -> u64 {
        let (round, attempt, _) = self.at;
        let round = u64::from(round.saturating_sub(self.from).unsigned_abs());
        let attempt = u64::from(attempt.unsigned_abs()).min(ROUND / ATTEMPT - 1);
        IN_PROGRESS + 1 + round * ROUND + attempt * ATTEMPT
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
            self.enter(piece.round, Some(piece.attempt));
            self.begin(piece);
        }
        let Some(item) = &mut self.open else {
            return;
        };
        item.text.push_str(&piece.text);
        let first = item.base + 2;
        let length = piece.text.chars().count();
        let number = first + ((piece.from + length) as u64).min(CHARS_MAX);
        if self.after.is_some_and(|after| number <= after) {
            return;
        }
        // Of a piece that the reader has in part, the rest.
        let has = self
            .after
            .and_then(|after| after.checked_sub(first))
            .unwrap_or(0);
        let has = (has as usize).saturating_sub(piece.from);
        let delta: String = piece.text.chars().skip(has).collect();
        let (id, index) = (&item.id, item.index);
        let (kind, body) = match piece.kind {
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

    fn begin(&mut self, piece: &Piece) {
        let (round, attempt, is_again) = self.at;
        let again = is_again.then_some(attempt);
        let (id, base) = match piece.kind {
            Kind::Text => (ids::message(self.send, round, again), self.base() + TEXT),
            Kind::Reasoning => (
                ids::reasoning(self.send, round, again),
                self.base() + REASONING,
            ),
        };
        let index = self.items;
        self.items += 1;
        let item = Item {
            kind: piece.kind,
            id,
            index,
            round,
            base,
            text: String::new(),
        };
        let added = item.shown("in_progress", false);
        self.push(
            "response.output_item.added",
            base,
            json!({ "output_index": index, "item": added }),
        );
        let (kind, mut body) = match piece.kind {
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
        let Some(item) = self.open.take() else {
            return;
        };
        let (number, index) = (item.base + END, item.index);
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
        }
    }

    /// Leaves what was said of the round out of the output: there is no event to take it back.
    fn void(&mut self) {
        self.close("incomplete");
        let (round, attempt, _) = self.at;
        self.output.retain(|(of, _)| *of != round);
        self.at = (round, attempt + 1, true);
    }

    fn call(&mut self, place: usize, call: &Called) {
        let number = self.base() + CALLS + CALL * place as u64;
        let index = self.items;
        self.items += 1;
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
