//! The checks of operations: fates, registers and lists.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::streams::streams;
use super::{Entry, History, Op, Told, is_final};

/// Everything that no correct system could have told; empty if all is well.
pub fn violations(history: &History) -> Vec<String> {
    let mut found = Vec::new();
    fates(history, &mut found);
    registers(history, &mut found);
    acknowledged(history, &mut found);
    order(history, &mut found);
    transcripts(history, &mut found);
    posts(history, &mut found);
    streams(history, &mut found);
    found
}

/// One observation of a send: the period in which it was made, and its content.
struct Sight<'a> {
    begun: u64,
    ended: u64,
    send: &'a Value,
}

/// The observations of each send, from any kind of operation.
fn sights(history: &History) -> BTreeMap<&str, Vec<Sight<'_>>> {
    let mut sights: BTreeMap<&str, Vec<Sight>> = BTreeMap::new();
    for entry in &history.entries {
        let Told::Yes(send) = &entry.told else {
            continue;
        };
        if !matches!(
            entry.op,
            Op::Send { .. } | Op::Cancel { .. } | Op::Read { .. }
        ) {
            continue;
        }
        if let Some(id) = send["id"].as_str() {
            sights.entry(id).or_default().push(Sight {
                begun: entry.begun,
                ended: entry.ended,
                send,
            });
        }
    }
    sights
}

/// Whether a message was added to an existing send instead of creating one.
fn absorbed(send: &Value) -> bool {
    send.get("inbox_item").is_some()
}

/// Each key refers to exactly one send, forever; a key refused for good was never accepted.
fn fates(history: &History, found: &mut Vec<String>) {
    let mut ids: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    let mut refused = BTreeSet::new();
    for entry in &history.entries {
        let Op::Send { key, .. } = &entry.op else {
            continue;
        };
        match &entry.told {
            Told::Unknown => {}
            Told::No(_) => drop(refused.insert(key.as_str())),
            Told::Yes(send) => {
                let Some(id) = send["id"].as_str() else {
                    found.push(format!("{key} was answered without an id: {send}"));
                    continue;
                };
                ids.entry(key).or_default().insert(id);
                if !absorbed(send)
                    && let Some(other) = owners.insert(id, key).filter(|other| other != key)
                {
                    found.push(format!("{key} and {other} were given one send, {id}"));
                }
            }
        }
    }
    for (key, ids) in ids {
        if ids.len() > 1 {
            found.push(format!("{key} was given several sends: {ids:?}"));
        }
        if refused.contains(key) {
            found.push(format!("{key} was refused for good and accepted: {ids:?}"));
        }
    }
}

/// A send is a register that only moves forward: an observation that is later in real time shows
/// the same state or a later one, and a final state never changes.
fn registers(history: &History, found: &mut Vec<String>) {
    for (id, sights) in sights(history) {
        for later in &sights {
            for earlier in sights.iter().filter(|sight| sight.ended < later.begun) {
                let (was, is) = (&earlier.send["status"], &later.send["status"]);
                if is_final(earlier.send) {
                    if let Some(member) = changed(earlier.send, later.send) {
                        found.push(format!(
                            "{id} was final and changed its {member}: {} then {}",
                            earlier.send, later.send
                        ));
                    }
                } else if is == "queued" && was != "queued" {
                    found.push(format!("{id} was {was} and is queued again"));
                }
                if backwards(&earlier.send["rounds"], &later.send["rounds"]) {
                    found.push(format!(
                        "{id} has lost rounds: {} {}",
                        earlier.send, later.send
                    ));
                }
            }
        }
        let places = sights.iter().filter_map(|s| s.send["position"].as_i64());
        let places: BTreeSet<i64> = places.collect();
        if places.len() > 1 {
            found.push(format!("{id} has moved: it stood at {places:?}"));
        }
        let sessions: BTreeSet<&str> = sights
            .iter()
            .filter_map(|s| s.send["session_id"].as_str())
            .collect();
        if sessions.len() > 1 {
            found.push(format!("{id} is in several sessions: {sessions:?}"));
        }
    }
}

fn backwards(was: &Value, is: &Value) -> bool {
    was.as_i64()
        .zip(is.as_i64())
        .is_some_and(|(was, is)| is < was)
}

/// The member in which two views of a send differ, ignoring what is not part of the send itself.
fn changed<'a>(was: &'a Value, is: &Value) -> Option<&'a str> {
    let members = was.as_object()?.iter();
    members
        .filter(|(name, _)| *name != "inbox_item")
        .find(|(name, value)| is.get(name.as_str()) != Some(value))
        .map(|(name, _)| name.as_str())
}

/// Whatever was accepted can be read at once, by anyone.
fn acknowledged(history: &History, found: &mut Vec<String>) {
    let mut accepted: BTreeMap<&str, u64> = BTreeMap::new();
    for entry in &history.entries {
        if let (Op::Send { .. }, Told::Yes(send)) = (&entry.op, &entry.told)
            && let Some(id) = send["id"].as_str()
        {
            let at = accepted.entry(id).or_insert(entry.ended);
            *at = entry.ended.min(*at);
        }
    }
    for entry in &history.entries {
        let (Op::Read { send } | Op::Cancel { send }) = &entry.op else {
            continue;
        };
        let Told::No(why) = &entry.told else { continue };
        let known = accepted.get(send.as_str());
        if why.contains("not_found") && known.is_some_and(|at| *at < entry.begun) {
            found.push(format!("{send} was acknowledged and cannot be read: {why}"));
        }
    }
}

/// If one send was acknowledged before another was requested, they are in this order.
fn order(history: &History, found: &mut Vec<String>) {
    let places: BTreeMap<&str, i64> = sights(history)
        .into_iter()
        .filter_map(|(id, sights)| {
            let place = sights.iter().find_map(|s| s.send["position"].as_i64())?;
            Some((id, place))
        })
        .collect();
    let mut by_session: BTreeMap<&str, Vec<(&Entry, &str, i64)>> = BTreeMap::new();
    for entry in &history.entries {
        let Op::Send {
            session,
            in_order: true,
            ..
        } = &entry.op
        else {
            continue;
        };
        let Told::Yes(send) = &entry.told else {
            continue;
        };
        let Some(id) = send["id"].as_str().filter(|_| !absorbed(send)) else {
            continue;
        };
        if let Some(place) = places.get(id) {
            by_session
                .entry(session)
                .or_default()
                .push((entry, id, *place));
        }
    }
    for (session, sends) in by_session {
        for (before, first, place) in &sends {
            for (after, second, other) in &sends {
                if first != second && before.ended < after.begun && other <= place {
                    found.push(format!(
                        "{second} at {other} of {session} was asked for after {first} at {place} \
                         was acknowledged"
                    ));
                }
            }
        }
    }
}

/// Transcripts only grow: of any two reads, one is a prefix of the other, and a later read is not
/// shorter. Each message is at the position that its number says, and contains the answers that
/// sends were seen to give.
fn transcripts(history: &History, found: &mut Vec<String>) {
    let mut by_session: BTreeMap<&str, Vec<(&Entry, &Vec<Value>)>> = BTreeMap::new();
    for entry in &history.entries {
        if let (Op::Transcript { session }, Told::Yes(Value::Array(messages))) =
            (&entry.op, &entry.told)
        {
            by_session
                .entry(session)
                .or_default()
                .push((entry, messages));
        }
    }
    for (session, reads) in &by_session {
        for (entry, messages) in reads {
            for (place, message) in (1..).zip(*messages) {
                if message["seq"] != place {
                    let seq = &message["seq"];
                    found.push(format!("{session}: {seq} stands at {place}"));
                }
            }
            for (other, longer) in reads {
                if other.begun > entry.ended && longer.len() < messages.len() {
                    let (had, has) = (messages.len(), longer.len());
                    found.push(format!("{session} had {had} messages and has {has}"));
                }
                let shared = messages.len().min(longer.len());
                if let Some(at) = (0..shared).find(|at| messages[*at] != longer[*at]) {
                    let (one, two) = (&messages[at], &longer[at]);
                    found.push(format!("{session} reads {one} and {two}"));
                }
            }
        }
    }
    answers(history, &by_session, found);
}

/// A transcript read after a send was seen to end contains its answer.
fn answers(
    history: &History,
    transcripts: &BTreeMap<&str, Vec<(&Entry, &Vec<Value>)>>,
    found: &mut Vec<String>,
) {
    for (id, sights) in sights(history) {
        let ended = sights.iter().filter(|s| s.send["status"] == "completed");
        let Some(end) = ended.min_by_key(|sight| sight.ended) else {
            continue;
        };
        let session = end.send["session_id"].as_str().unwrap_or_default();
        for (entry, messages) in transcripts.get(session).into_iter().flatten() {
            if entry.begun < end.ended {
                continue;
            }
            let mut mine = messages.iter().filter(|message| message["send_id"] == id);
            let last = mine.rfind(|message| message["role"] == "assistant");
            let said = last.map(spoken);
            if said.as_deref() != end.send["output_text"].as_str() {
                let told = &end.send["output_text"];
                found.push(format!(
                    "{id} answered {told}, its transcript ends with {said:?}"
                ));
            }
        }
    }
}

/// The text of a message.
pub(super) fn spoken(message: &Value) -> String {
    let parts = message["content"].as_array().into_iter().flatten();
    parts.filter_map(|part| part["text"].as_str()).collect()
}

/// Only the first answer to a call is accepted, and it is what the model was told.
fn posts(history: &History, found: &mut Vec<String>) {
    let mut accepted: BTreeMap<&str, &str> = BTreeMap::new();
    for entry in &history.entries {
        let (Op::Post { call, text }, Told::Yes(status)) = (&entry.op, &entry.told) else {
            continue;
        };
        if status == "accepted"
            && let Some(first) = accepted.insert(call, text)
        {
            found.push(format!("{call} took two answers: {first:?} and {text:?}"));
        }
    }
    for entry in &history.entries {
        let Told::Yes(Value::Array(messages)) = &entry.told else {
            continue;
        };
        for message in messages {
            let call = message["tool_call_id"].as_str().unwrap_or_default();
            let Some(answer) = accepted.get(call) else {
                continue;
            };
            let said = spoken(message);
            if said != **answer {
                found.push(format!(
                    "{call} was answered {answer:?}, the model was told {said:?}"
                ));
            }
        }
    }
}
