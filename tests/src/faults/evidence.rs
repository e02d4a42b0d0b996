//! Compares what the system says with two ledgers that it cannot touch. A pure function, so that
//! tests can plant every kind of inconsistency.

use std::collections::{BTreeMap, BTreeSet};

use mainspring_shared::time::Timestamp;
use serde_json::Value;

use super::fault_log::{Effect, Fault};
use crate::fake_model::Entry;

/// How far a timestamp of this process may lag behind its event on a machine with few cores: a
/// request sent before its process was killed may be read later.
const SLACK_MS: i64 = 500;

/// How long a resumed process may take to finish the step in which it was stopped.
const WAKING_MS: i64 = 5_000;

/// A send as its client knows it.
#[derive(Debug, Clone)]
pub struct Told {
    /// The client that sent it; a client's sends are in the order of its requests.
    pub client: usize,
    /// The idempotency key, which is also the send's label in the model's ledger.
    pub key: String,
    /// The session.
    pub session: String,
    /// The user text.
    pub text: String,
    /// Whether the model calls a tool first, and answers in a second round.
    pub calls_tool: bool,
    /// The ID in every answer to this key.
    pub ids: Vec<String>,
    /// The first report that it ended.
    pub ended: Option<Ended>,
}

/// The result of calling a tool that does not exist.
const NO_TOOL: &str = "error: there is no tool named \"look\"";

impl Told {
    /// The number of rounds it takes.
    pub fn rounds(&self) -> usize {
        1 + usize::from(self.calls_tool)
    }

    /// The model's final answer.
    fn answer(&self) -> String {
        if self.calls_tool {
            format!("results: {NO_TOOL}")
        } else {
            format!("echo: {}", self.text)
        }
    }

    /// Its part of the transcript: role and text of each message.
    fn said(&self) -> Vec<(&'static str, String)> {
        let mut said = vec![("user", self.text.clone())];
        if self.calls_tool {
            said.push(("assistant", String::new()));
            said.push(("tool", NO_TOOL.to_owned()));
        }
        said.push(("assistant", self.answer()));
        said
    }
}

/// How a send ended, as a client was told.
#[derive(Debug, Clone)]
pub struct Ended {
    /// When the client was told.
    pub at: Timestamp,
    /// The send.
    pub send: Value,
}

/// Everything to be compared.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// What clients were told while faults were injected.
    pub told: Vec<Told>,
    /// Each send as read at the end.
    pub read_again: BTreeMap<String, Value>,
    /// Each session's transcript.
    pub transcripts: BTreeMap<String, Vec<Value>>,
    /// The step positions `(n, i)` of each watched session's events, as its reader saw them.
    pub watched: BTreeMap<String, Vec<(i64, i64)>>,
    /// The last step of each session that has events.
    pub steps: BTreeMap<String, i64>,
    /// Steps without events: they record that calls began, or the cost of an attempt that broke off.
    pub silent: BTreeSet<(String, i64)>,
    /// The number of sends in the database.
    pub sends: usize,
    /// Sessions in the database.
    pub sessions: BTreeSet<String>,
    /// Sessions named by jobs in the queue.
    pub queued: BTreeSet<String>,
    /// What the model was asked.
    pub calls: Vec<Entry>,
    /// The faults injected.
    pub faults: Vec<Fault>,
}

impl Evidence {
    /// Model calls beyond one per round.
    pub fn repeated_calls(&self) -> usize {
        let rounds: usize = self.told.iter().map(Told::rounds).sum();
        self.calls.len().saturating_sub(rounds)
    }
}

/// All inconsistencies between the ledgers; empty if all is well.
pub fn violations(evidence: &Evidence) -> Vec<String> {
    let mut found = Vec::new();
    ids(evidence, &mut found);
    ends(evidence, &mut found);
    transcripts(evidence, &mut found);
    readers(evidence, &mut found);
    calls(evidence, &mut found);
    queue(evidence, &mut found);
    found
}

/// Each key refers to exactly one send, forever, and nothing else was stored.
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

/// Every send completed, and still reads as its client was told then.
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
        if send["status"] != "completed" || send["output_text"] != told.answer().as_str() {
            found.push(format!("{} has the wrong end: {send}", told.key));
        }
        if send["session_id"] != told.session.as_str() {
            found.push(format!("{} moved to another session: {send}", told.key));
        }
        let written = send["usage"]["output_tokens"].as_u64();
        if send["rounds"] != told.rounds() || written.unwrap_or(0) == 0 {
            found.push(format!(
                "{} has not the usage of its rounds: {send}",
                told.key
            ));
        }
    }
}

/// A session's transcript is its sends in order of position, each with its answer, and nothing
/// else. Sends of one client are positioned in the order of its requests.
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
            let said = told.said().into_iter();
            said.map(|(role, text)| (role, told.ids[0].as_str(), text))
        });
        let wanted: Vec<_> = wanted.collect();
        for (place, message) in messages.iter().enumerate() {
            let seq = place as i64 + 1;
            if message["seq"] != seq {
                found.push(format!("{session}: {} stands at {seq}", message["seq"]));
            }
            let wanted = wanted.get(place);
            if !wanted.is_some_and(|wanted| says(message, wanted)) {
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

fn says(message: &Value, (role, send, text): &(&str, &str, String)) -> bool {
    let said = match message["content"].as_array().map(Vec::as_slice) {
        Some([]) => "",
        Some([part]) => part["text"].as_str().unwrap_or_default(),
        _ => return false,
    };
    message["role"] == *role && message["send_id"] == *send && said == text
}

/// A reader of a session sees every step, and each of its events once and in order.
fn readers(evidence: &Evidence, found: &mut Vec<String>) {
    for (session, seen) in &evidence.watched {
        let mut next = (1, 0);
        for (n, i) in seen {
            // Either the step's next event, or the first event of the next step that has any.
            let mut after = next.0 + i64::from(next.1 > 0);
            while evidence.silent.contains(&(session.clone(), after)) {
                after += 1;
            }
            if (*n, *i) != next && (*n, *i) != (after, 0) {
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

/// The queue names no session missing from the database. Such a job would be harmless, but
/// something must have enqueued it.
fn queue(evidence: &Evidence, found: &mut Vec<String>) {
    let strangers = evidence.queued.difference(&evidence.sessions);
    found.extend(strangers.map(|id| format!("the queue names {id}, which the database has not")));
}

/// The model was asked once for each round, and again only if a fault could have lost the answer;
/// never for anything else, and never after the send's end.
fn calls(evidence: &Evidence, found: &mut Vec<String>) {
    let mut by_mark: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
    for call in &evidence.calls {
        let mark = call.send.as_deref().unwrap_or_default();
        by_mark.entry(mark).or_default().push(call);
    }
    let mut excused = 0;
    let mut once: Vec<Fault> = evidence.faults.clone();
    once.retain(|fault| fault.effect == Effect::One);
    for told in &evidence.told {
        let calls = by_mark.remove(told.key.as_str()).unwrap_or_default();
        let mut mine_alone = excuses(&evidence.faults);
        for round in 0..told.rounds() {
            let mine: Vec<&Entry> = calls.iter().filter(|c| c.round == round).copied().collect();
            if mine.is_empty() {
                found.push(format!("{} went past the model in round {round}", told.key));
            }
            let had = mine_alone.len();
            for pair in unexcused(&mine, &mut mine_alone) {
                // A fault that excuses one send excuses no other.
                if let Some(fault) = once.iter().position(|fault| lies_between(fault, pair)) {
                    once.remove(fault);
                    continue;
                }
                let (first, again) = (pair[0].at, pair[1].at);
                found.push(format!(
                    "{} was asked at {first} and without reason again at {again}",
                    told.key
                ));
            }
            excused += had - mine_alone.len();
        }
        if calls.iter().any(|call| call.round >= told.rounds()) {
            found.push(format!("{} was asked for a round too many", told.key));
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

/// Consecutive calls of one round without a fault between them that could have lost the first one's
/// answer. Each excuse is used up by the pair it explains.
pub(super) fn without_reason(
    calls: &[&Entry],
    excuses: &mut Vec<Fault>,
) -> Vec<(Timestamp, Timestamp)> {
    let found = unexcused(calls, excuses).into_iter();
    found.map(|pair| (pair[0].at, pair[1].at)).collect()
}

/// The same pairs, as entries.
fn unexcused<'a, 'c>(calls: &'a [&'c Entry], excuses: &mut Vec<Fault>) -> Vec<&'a [&'c Entry]> {
    let mut found = Vec::new();
    for pair in calls.windows(2) {
        if model_failed(pair[0]) {
            continue;
        }
        match excuses.iter().position(|fault| lies_between(fault, pair)) {
            Some(fault) => drop(excuses.remove(fault)),
            None => found.push(pair),
        }
    }
    found
}

/// The faults that excuse repeated calls of one send, each as often as its effect allows, in the
/// order in which they ended.
pub(super) fn excuses(faults: &[Fault]) -> Vec<Fault> {
    let times = |fault: &Fault| match fault.effect {
        Effect::None | Effect::One => 0,
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

/// Whether the model itself failed, so that asking again is required.
fn model_failed(call: &Entry) -> bool {
    !matches!(call.answer.as_str(), "reply" | "tool_calls")
}

fn lies_between(fault: &Fault, calls: &[&Entry]) -> bool {
    let over = fault
        .to
        .map_or(i64::MAX, |to| to.0.saturating_add(SLACK_MS));
    let over = match fault.effect {
        Effect::Sleeps => over.saturating_add(WAKING_MS),
        Effect::None | Effect::One | Effect::Repeats => over,
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
