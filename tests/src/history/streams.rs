//! The checks of event streams: against each other, the transcripts and the sends.

use std::collections::BTreeMap;

use serde_json::Value;

use super::check::spoken;
use super::{History, Op, Reading, Seen, Told, is_final};

pub(super) fn streams(history: &History, found: &mut Vec<String>) {
    for reading in &history.readings {
        numbers(reading, found);
        ends(history, reading, found);
        deltas(reading, found);
        stored(history, reading, found);
    }
    agree(history, found);
}

fn durable(reading: &Reading) -> impl Iterator<Item = (&str, &Seen)> {
    let events = reading.events.iter();
    events.filter_map(|event| Some((event.id.as_deref()?, event)))
}

fn parsed(id: &str) -> Option<(i64, i64)> {
    let (n, i) = id.split_once('.')?;
    Some((n.parse().ok()?, i.parse().ok()?))
}

/// Steps arrive in order, each with its events once and from the first on. A step need not have events.
fn numbers(reading: &Reading, found: &mut Vec<String>) {
    let session = &reading.session;
    let mut next = (1, 0);
    for (id, event) in durable(reading) {
        let Some((n, i)) = parsed(id) else {
            found.push(format!("a reader of {session} saw the id {id}"));
            continue;
        };
        if (n, i) != next && !(i == 0 && (n, i) > next) {
            let name = &event.name;
            found.push(format!(
                "a reader of {session} saw {n}.{i} ({name}) after {next:?}"
            ));
        }
        next = (n, i + 1);
    }
}

/// Any two readers of a session saw the same event under the same ID; those who saw everything saw
/// the same events.
fn agree(history: &History, found: &mut Vec<String>) {
    let mut known: BTreeMap<(&str, &str), &Seen> = BTreeMap::new();
    for reading in &history.readings {
        for (id, event) in durable(reading) {
            let first = known.entry((&reading.session, id)).or_insert(event);
            if **first != *event {
                let session = &reading.session;
                found.push(format!("{id} of {session} reads {first:?} and {event:?}"));
            }
        }
    }
    let mut whole: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for reading in history.readings.iter().filter(|reading| reading.whole) {
        let ids: Vec<&str> = durable(reading).map(|(id, _)| id).collect();
        let first = whole.entry(&reading.session).or_insert_with(|| ids.clone());
        let missing = |of: &[&str], than: &[&str]| {
            let mut ids = of.iter().filter(|id| !than.contains(id));
            ids.next().map(|id| (*id).to_owned())
        };
        if let Some(id) = missing(first, &ids).or_else(|| missing(&ids, first)) {
            let session = &reading.session;
            found.push(format!("one reader of {session} saw {id}, another did not"));
        }
    }
}

/// Each send ends exactly once, and in the way that reads report.
fn ends(history: &History, reading: &Reading, found: &mut Vec<String>) {
    let mut told: BTreeMap<&str, &Value> = BTreeMap::new();
    for entry in &history.entries {
        if let (Op::Read { send }, Told::Yes(seen)) = (&entry.op, &entry.told)
            && is_final(seen)
        {
            told.insert(send, seen);
        }
    }
    let mut ended: BTreeMap<&str, &Value> = BTreeMap::new();
    for (_, event) in durable(reading) {
        if !matches!(
            event.name.as_str(),
            "send.completed" | "send.failed" | "send.cancelled"
        ) {
            continue;
        }
        let id = event.data["id"].as_str().unwrap_or_default();
        if ended.insert(id, &event.data).is_some() {
            found.push(format!("a reader saw two ends of {id}"));
        }
        let known = told.get(id);
        for member in ["status", "output_text"] {
            let differs = |send: &&&Value| send[member] != event.data[member];
            if let Some(send) = known.filter(differs) {
                let (event, read) = (&event.data[member], &send[member]);
                found.push(format!(
                    "{id} ended with {member} {event}, and reads {read}"
                ));
            }
        }
    }
    if reading.whole {
        for (id, send) in told {
            let mine = send["session_id"] == reading.session.as_str();
            if mine && !ended.contains_key(id) {
                found.push(format!("a reader of its session did not see {id} end"));
            }
        }
    }
}

/// An attempt number, and the attempt's pieces by offset.
type Attempt<'a> = (i64, Vec<(u64, &'a str)>);

/// The streamed pieces of a round's attempt, placed by offset, agree with the text of the message,
/// as far as they were received. Pieces of an attempt whose answer was not stored are ignored.
fn deltas(reading: &Reading, found: &mut Vec<String>) {
    let mut heard: BTreeMap<(&str, i64), Attempt> = BTreeMap::new();
    for event in &reading.events {
        let data = &event.data;
        match event.name.as_str() {
            "message.delta" => {
                let send = data["send_id"].as_str().unwrap_or_default();
                let round = data["round"].as_i64().unwrap_or_default();
                let attempt = data["attempt"].as_i64().unwrap_or_default();
                let piece = (
                    data["offset"].as_u64().unwrap_or_default(),
                    data["text"].as_str().unwrap_or_default(),
                );
                let known = heard.entry((send, round)).or_insert((attempt, Vec::new()));
                if attempt > known.0 {
                    *known = (attempt, Vec::new());
                }
                if attempt == known.0 {
                    known.1.push(piece);
                }
            }
            "message.reset" => {
                let send = data["send_id"].as_str().unwrap_or_default();
                let round = data["round"].as_i64().unwrap_or_default();
                let attempt = data["attempt"].as_i64().unwrap_or_default();
                let known = heard.entry((send, round)).or_insert((attempt, Vec::new()));
                if attempt > known.0 {
                    *known = (attempt, Vec::new());
                }
            }
            // The previous worker may have left an answer unfinished, with nothing but this event
            // to say so.
            "send.resumed" => {
                let resumed = data["send_id"].as_str().unwrap_or_default();
                for ((send, _), (attempt, pieces)) in &mut heard {
                    if *send == resumed {
                        // Its last pieces may still arrive after this: the bus is slower than the store.
                        *attempt += 1;
                        pieces.clear();
                    }
                }
            }
            "message.completed" if data["role"] == "assistant" => {
                let send = data["send_id"].as_str().unwrap_or_default();
                let round = data["round"].as_i64().unwrap_or_default();
                let said = spoken(data);
                let Some((attempt, pieces)) = heard.remove(&(send, round)) else {
                    continue;
                };
                // Pieces of older attempts are void; the text shows which attempt was stored.
                let fits = |(at, piece): &(u64, &str)| {
                    let rest = said.get(*at as usize..);
                    rest.is_some_and(|rest| rest.starts_with(piece))
                };
                if let Some((at, piece)) = pieces.iter().find(|piece| !fits(piece)) {
                    found.push(format!(
                        "{send} streamed {piece:?} at {at} of round {round}, attempt {attempt}, \
                         and said {said:?}"
                    ));
                }
            }
            _ => {}
        }
    }
}

/// The messages in a stream match those in the transcript.
fn stored(history: &History, reading: &Reading, found: &mut Vec<String>) {
    let mut messages: BTreeMap<i64, &Value> = BTreeMap::new();
    for entry in &history.entries {
        if let (Op::Transcript { session }, Told::Yes(Value::Array(read))) =
            (&entry.op, &entry.told)
            && *session == reading.session
        {
            let numbered = read.iter().filter_map(|m| Some((m["seq"].as_i64()?, m)));
            messages.extend(numbered);
        }
    }
    let mut last = 0;
    for (id, event) in durable(reading) {
        if event.name != "message.completed" {
            continue;
        }
        let seq = event.data["seq"].as_i64().unwrap_or_default();
        if seq != last + 1 {
            found.push(format!("{id} brought message {seq} after {last}"));
        }
        last = seq;
        if let Some(message) = messages.get(&seq)
            && **message != event.data
        {
            let data = &event.data;
            found.push(format!("{id} said {data}, the transcript says {message}"));
        }
    }
}
