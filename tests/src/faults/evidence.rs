//! The comparison of the system's word with two ledgers that it cannot touch: a pure function, so
//! that a test can plant every kind of lie in it.

use std::collections::BTreeMap;

use mainspring_shared::time::Timestamp;
use serde_json::Value;

use super::harm::{Effect, Fault};
use crate::fake_model::Entry;

/// How far a stamp of this process may lag behind what it stands for, on a machine with few cores:
/// a request that was sent before its process was killed may be read later.
const SLACK_MS: i64 = 500;

/// How long a process that was woken up may take to finish the step in which it fell asleep.
const WAKING_MS: i64 = 5_000;

/// A send as its client knows it.
#[derive(Debug, Clone)]
pub struct Told {
    /// Who sent it; a client's sends are in the order of its requests.
    pub client: usize,
    /// The idempotency key, which is also the mark in the model's ledger.
    pub key: String,
    /// The session.
    pub session: String,
    /// The user's words.
    pub text: String,
    /// The id in every answer to the key.
    pub ids: Vec<String>,
    /// The first word of its end.
    pub ended: Option<Ended>,
}

/// How a send ended, as a client was told.
#[derive(Debug, Clone)]
pub struct Ended {
    /// When the client was told.
    pub at: Timestamp,
    /// The send.
    pub send: Value,
}

/// Everything that is compared.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// What clients were told while harm was done.
    pub told: Vec<Told>,
    /// Each send as it reads in the end.
    pub read_again: BTreeMap<String, Value>,
    /// Each session's transcript.
    pub transcripts: BTreeMap<String, Vec<Value>>,
    /// The numbers of each watched session's steps, by its reader's events: `(n, i)`.
    pub watched: BTreeMap<String, Vec<(i64, i64)>>,
    /// How many steps each session has.
    pub steps: BTreeMap<String, i64>,
    /// Sends in the database.
    pub sends: usize,
    /// What the model was asked.
    pub calls: Vec<Entry>,
    /// What was done to the system.
    pub faults: Vec<Fault>,
}

impl Evidence {
    /// Model calls beyond one for each send.
    pub fn repeated_calls(&self) -> usize {
        self.calls.len().saturating_sub(self.told.len())
    }
}

/// Everything in which the ledgers differ; empty when all is well.
pub fn violations(evidence: &Evidence) -> Vec<String> {
    let mut found = Vec::new();
    ids(evidence, &mut found);
    ends(evidence, &mut found);
    transcripts(evidence, &mut found);
    readers(evidence, &mut found);
    calls(evidence, &mut found);
    found
}

/// One key is one send, for ever, and nothing else was stored.
fn ids(evidence: &Evidence, found: &mut Vec<String>) {
    let mut owners = BTreeMap::new();
    for told in &evidence.told {
        if told.ids.iter().any(|id| *id != told.ids[0]) {
            found.push(format!(
                "{} was given several ids: {:?}",
                told.key, told.ids
            ));
        }
        if let Some(other) = owners.insert(&told.ids[0], &told.key) {
            found.push(format!("{} and {other} were given one id", told.key));
        }
    }
    if evidence.sends != evidence.told.len() {
        let (stored, accepted) = (evidence.sends, evidence.told.len());
        found.push(format!(
            "{stored} sends are stored, {accepted} were accepted"
        ));
    }
}

/// Every send ended, completed, as its client was told then and is told now.
fn ends(evidence: &Evidence, found: &mut Vec<String>) {
    for told in &evidence.told {
        let Some(ended) = &told.ended else {
            found.push(format!("{} never ended", told.key));
            continue;
        };
        let send = &ended.send;
        if evidence.read_again.get(&told.ids[0]) != Some(send) {
            let now = evidence.read_again.get(&told.ids[0]);
            found.push(format!("{} changed: told {send}, now {now:?}", told.key));
        }
        if send["status"] != "completed" || send["output_text"] != echo(&told.text) {
            found.push(format!("{} has the wrong end: {send}", told.key));
        }
        if send["session_id"] != told.session.as_str() {
            found.push(format!("{} moved to another session: {send}", told.key));
        }
        if send["rounds"] != 1 || send["usage"]["output_tokens"].as_u64().unwrap_or(0) == 0 {
            found.push(format!("{} has no usage of one round: {send}", told.key));
        }
    }
}

/// What the model answers to a text.
fn echo(text: &str) -> String {
    format!("echo: {text}")
}

/// A session's transcript is its sends in the order of their places, each with its answer, and
/// nothing else. A client's own sends have their places in the order of its requests.
fn transcripts(evidence: &Evidence, found: &mut Vec<String>) {
    let mut sessions: BTreeMap<&str, Vec<(i64, &Told)>> = BTreeMap::new();
    for told in &evidence.told {
        let position = told
            .ended
            .as_ref()
            .and_then(|e| e.send["position"].as_i64());
        let Some(position) = position else {
            found.push(format!("{} has no place", told.key));
            continue;
        };
        let places = sessions.entry(&told.session).or_default();
        let later =
            |(place, other): &&(i64, &Told)| other.client == told.client && *place >= position;
        if let Some((place, other)) = places.iter().find(later) {
            let (key, before) = (&told.key, &other.key);
            found.push(format!("{key} at {position} overtook {before} at {place}"));
        }
        places.push((position, told));
    }
    for (session, messages) in &evidence.transcripts {
        let mut sends = sessions.remove(session.as_str()).unwrap_or_default();
        sends.sort_unstable_by_key(|(position, _)| *position);
        let wanted = sends.iter().flat_map(|(_, told)| {
            [
                ("user", &told.ids[0], told.text.clone()),
                ("assistant", &told.ids[0], echo(&told.text)),
            ]
        });
        let wanted: Vec<_> = wanted.collect();
        for (place, message) in messages.iter().enumerate() {
            let seq = place as i64 + 1;
            if message["seq"] != seq {
                found.push(format!("{session}: {} stands at {seq}", message["seq"]));
            }
            let right = wanted.get(place).is_some_and(|(role, send, text)| {
                message["role"] == *role
                    && message["send_id"] == send.as_str()
                    && message["content"][0]["text"] == text.as_str()
                    && message["content"]
                        .as_array()
                        .is_some_and(|parts| parts.len() == 1)
            });
            if !right {
                let wanted = wanted.get(place);
                found.push(format!("{session}: {wanted:?} expected, {message} found"));
            }
        }
        if messages.len() < wanted.len() {
            let (there, due) = (messages.len(), wanted.len());
            found.push(format!("{session} has {there} messages of {due}"));
        }
    }
    for session in sessions.keys() {
        found.push(format!("{session} has no transcript"));
    }
}

/// Whoever follows a session sees every step, each of its events once, in order.
fn readers(evidence: &Evidence, found: &mut Vec<String>) {
    for (session, seen) in &evidence.watched {
        let mut next = (1, 0);
        for (n, i) in seen {
            // Either the step's next event, or the first of the next step.
            if (*n, *i) != next && (*n, *i) != (next.0 + i64::from(next.1 > 0), 0) {
                found.push(format!(
                    "the reader of {session} saw {n}.{i} after {next:?}"
                ));
            }
            next = (*n, i + 1);
        }
        let steps = evidence.steps.get(session).copied().unwrap_or_default();
        let last = seen.last().map_or(0, |(n, _)| *n);
        if last != steps {
            found.push(format!(
                "the reader of {session} saw {last} of {steps} steps"
            ));
        }
    }
}

/// The model was asked once for each send, and again only where a fault can have lost its answer;
/// never for anything else, and not after the end.
fn calls(evidence: &Evidence, found: &mut Vec<String>) {
    let mut by_mark: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
    for call in &evidence.calls {
        by_mark
            .entry(call.send.as_deref().unwrap_or_default())
            .or_default()
            .push(call);
    }
    let mut excused = 0;
    for told in &evidence.told {
        let calls = by_mark.remove(told.key.as_str()).unwrap_or_default();
        if calls.is_empty() {
            found.push(format!("{} was answered without the model", told.key));
        }
        let mut excuses = excuses(&evidence.faults);
        for pair in calls.windows(2) {
            let place = excuses.iter().position(|fault| lies_between(fault, pair));
            match place {
                Some(place) => {
                    excuses.remove(place);
                    excused += 1;
                }
                None => found.push(format!(
                    "{} was asked at {} and without reason again at {}",
                    told.key, pair[0].at, pair[1].at
                )),
            }
        }
        let Some(ended) = &told.ended else { continue };
        for call in calls.iter().filter(|call| call.at > ended.at) {
            if !evidence.faults.iter().any(|fault| woke_before(fault, call)) {
                let (end, at) = (ended.at, call.at);
                found.push(format!("{} ended at {end} and was asked at {at}", told.key));
            }
        }
    }
    for mark in by_mark.keys() {
        found.push(format!(
            "the model was asked for {mark:?}, which nobody sent"
        ));
    }
    let bound = excuses(&evidence.faults).len() * evidence.transcripts.len();
    if excused > bound {
        found.push(format!("{excused} repeated calls, {bound} are excused"));
    }
}

/// The faults that excuse a repeated call of one send, as often as they do, those that were over
/// first in front.
fn excuses(faults: &[Fault]) -> Vec<Fault> {
    let times = |fault: &Fault| match fault.effect {
        Effect::None => 0,
        Effect::Repeats => 1,
        Effect::Sleeps => 2,
    };
    let mut excuses: Vec<Fault> = faults
        .iter()
        .flat_map(|fault| std::iter::repeat_n(*fault, times(fault)))
        .collect();
    excuses.sort_by_key(|fault| fault.to.map_or(i64::MAX, |to| to.0));
    excuses
}

fn lies_between(fault: &Fault, calls: &[&Entry]) -> bool {
    let over = fault
        .to
        .map_or(i64::MAX, |to| to.0.saturating_add(SLACK_MS));
    let over = match fault.effect {
        Effect::Sleeps => over.saturating_add(WAKING_MS),
        Effect::None | Effect::Repeats => over,
    };
    fault.from <= calls[1].at && over >= calls[0].at.0
}

fn woke_before(fault: &Fault, call: &Entry) -> bool {
    fault.effect == Effect::Sleeps
        && fault.from <= call.at
        && fault.to.is_none_or(|to| to.0 + WAKING_MS >= call.at.0)
}

#[cfg(test)]
mod tests;
