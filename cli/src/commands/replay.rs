//! `mainspring replay`

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use mainspring_shared::id::{SendId, SessionId, TenantId};
use mainspring_shared::journal::{JournalCall, JournalHead, JournalLine, JournalRound};
use mainspring_shared::session::fold::FoldRef;
use mainspring_shared::time::{Span, Timestamp};
use mainspring_shared::usage::Usage;

use crate::args::{Format, ReplayArgs};
use crate::failure::{Exit, Failure, usage_text};
use crate::output;

/// Prints journals, session by session.
pub(crate) fn run(args: &ReplayArgs, format: Format) -> Result<(), Failure> {
    let mut sessions = Sessions::default();
    for file in &args.files {
        read(file, args, &mut sessions)?;
    }
    let as_json = args.json || format != Format::Table;
    if sessions.order.is_empty() && !as_json {
        output::note("(nothing)");
    }
    for key in &sessions.order {
        let lines = &sessions.lines[key];
        if as_json {
            for line in lines.values() {
                let text = serde_json::to_string(line).unwrap_or_default();
                output::line(&text)?;
            }
        } else {
            output::raw(&output::harmless(&timeline(key.1, lines)))?;
        }
    }
    Ok(())
}

type Key = (TenantId, SessionId);

/// The lines of each session by number, so that duplicates are dropped.
#[derive(Debug, Default)]
struct Sessions {
    order: Vec<Key>,
    lines: HashMap<Key, BTreeMap<i64, JournalLine>>,
}

/// Reads a file. A damaged line is reported and skipped.
fn read(path: &Path, args: &ReplayArgs, sessions: &mut Sessions) -> Result<(), Failure> {
    let name = path.display();
    let unreadable = |error| {
        usage_text(
            format!("{name} cannot be read: {error}"),
            "telemetry.jsonl_path says where a journal is",
        )
    };
    let mut reader = BufReader::new(File::open(path).map_err(unreadable)?);
    let (mut number, mut bytes) = (0_u64, Vec::new());
    loop {
        bytes.clear();
        let count = reader.read_until(b'\n', &mut bytes);
        if count.map_err(unreadable)? == 0 {
            return Ok(());
        }
        number += 1;
        if bytes.trim_ascii().is_empty() {
            continue;
        }
        match serde_json::from_slice::<JournalLine>(&bytes) {
            Ok(line) => sessions.add(line, args),
            Err(error) => match serde_json::from_slice::<JournalHead>(&bytes) {
                Ok(head) if head.journal > JournalHead::VERSION => {
                    let message = format!("{name} is of a later release");
                    return Err(Failure::new(Exit::Failure, message));
                }
                Ok(_) => {}
                Err(_) => output::note(&format!(
                    "{name}: line {number} is damaged and left out: {error}"
                )),
            },
        }
    }
}

impl Sessions {
    fn add(&mut self, line: JournalLine, args: &ReplayArgs) {
        let other_session = args.session.is_some_and(|id| id != line.session_id);
        let other_send = args.send.is_some_and(|id| id != line.send_id);
        if other_session || other_send {
            return;
        }
        let key = (line.tenant, line.session_id);
        let lines = self.lines.entry(key).or_insert_with(|| {
            self.order.push(key);
            BTreeMap::new()
        });
        lines.entry(line.n).or_insert(line);
    }
}

/// The running totals of a send.
#[derive(Debug, Default)]
struct Sum {
    since: Option<Timestamp>,
    rounds: u32,
    usage: Usage,
}

fn timeline(session: SessionId, lines: &BTreeMap<i64, JournalLine>) -> String {
    let mut text = format!("{session}\n");
    let mut sums = HashMap::<SendId, Sum>::new();
    for line in lines.values() {
        let sum = sums.entry(line.send_id).or_default();
        sum.since.get_or_insert(line.at);
        if let Some(round) = &line.round {
            sum.rounds += 1;
            sum.usage.add(&round.usage);
        }
        let said = said(line, sum);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {}  {}  {said}", line.at, line.send_id);
    }
    text
}

fn said(line: &JournalLine, sum: &Sum) -> String {
    let mut parts = Vec::new();
    if !line.results.is_empty() {
        parts.push(format!("results: {}", results(&line.results)));
    }
    if let Some(round) = &line.round {
        parts.push(self::round(round));
    }
    if !line.calls.is_empty() {
        let names: Vec<&str> = line.calls.iter().map(|call| call.name.as_str()).collect();
        parts.push(format!("calls {}", names.join(", ")));
    }
    if let Some(fold) = &line.fold {
        parts.push(folded(fold));
    }
    let reason = line.reason.as_deref();
    match (line.event.as_str(), reason) {
        ("waiting", Some(on)) => parts.push(format!("waits for {on}")),
        ("resumed", Some(after)) => parts.push(format!("goes on after {after}")),
        ("finished", _) => {
            let status = line.status.as_deref().unwrap_or("ended");
            let why = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
            parts.push(format!("{status}{why}: {}", in_all(line.at, sum)));
        }
        ("accepted" | "waiting" | "resumed", _) => parts.push(line.event.clone()),
        (event, _) if parts.is_empty() => parts.push(event.to_owned()),
        _ => {}
    }
    parts.join("; ")
}

fn results(results: &[JournalCall]) -> String {
    let each = results.iter().map(|call| {
        let end = if call.failed { "failed" } else { "ok" };
        format!("{} {end}", call.name)
    });
    each.collect::<Vec<_>>().join(", ")
}

fn round(round: &JournalRound) -> String {
    format!(
        "round {} of {}: {}",
        round.index,
        round.model,
        took(&round.usage)
    )
}

fn took(usage: &Usage) -> String {
    let mut text = format!("{} tokens in", usage.input_tokens);
    if usage.cache_read_tokens > 0 {
        let _ = write!(text, " ({} cached)", usage.cache_read_tokens);
    }
    let _ = write!(text, ", {} out", usage.output_tokens);
    if let Some(cost) = usage.cost_usd {
        let _ = write!(text, ", ${cost:.6}");
    }
    if usage.estimated {
        text.push_str(" (estimated)");
    }
    text
}

fn folded(fold: &FoldRef) -> String {
    format!(
        "messages {} to {} folded ({}): {} tokens became {}",
        fold.from_seq,
        fold.to_seq,
        fold.kind.as_str(),
        fold.tokens_before,
        fold.tokens_after
    )
}

fn in_all(at: Timestamp, sum: &Sum) -> String {
    let rounds = match sum.rounds {
        1 => "1 round".to_owned(),
        rounds => format!("{rounds} rounds"),
    };
    let time = sum.since.map(|since| Span(at.since(since)));
    let time = time.map_or_else(String::new, |time| format!(", {time}"));
    format!("{rounds}, {}{time}", took(&sum.usage))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    fn line(n: i64, event: &str, more: &serde_json::Value) -> serde_json::Value {
        let mut line = json!({
            "at": format!("2026-01-02T03:04:0{n}.000Z"), "tenant": 1, "n": n, "event": event,
            "session_id": format!("ses_{:032x}", 1), "send_id": format!("snd_{:032x}", 2),
        });
        for (name, value) in more.as_object().expect("members") {
            line[name] = value.clone();
        }
        line
    }

    fn lines() -> Vec<serde_json::Value> {
        let round = json!({
            "index": 0, "model": "m",
            "usage": { "input_tokens": 7, "output_tokens": 2, "cache_read_tokens": 3, "cost_usd": 0.5 },
        });
        let call = json!([{ "id": "c", "name": "add" }]);
        let result = json!([{ "id": "c", "name": "add", "failed": true }]);
        vec![
            line(1, "accepted", &json!({})),
            line(2, "round", &json!({ "round": round, "calls": call })),
            line(3, "calls", &json!({ "results": result })),
            line(4, "waiting", &json!({ "reason": "human" })),
            line(
                5,
                "finished",
                &json!({ "round": round, "status": "completed", "reason": "end" }),
            ),
        ]
    }

    fn args(file: &Path) -> ReplayArgs {
        ReplayArgs {
            files: vec![file.to_owned()],
            session: None,
            send: None,
            json: false,
        }
    }

    #[test]
    fn a_session_is_told_in_its_order_each_step_once_without_what_is_damaged() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("journal.jsonl");
        let head = serde_json::to_string(&JournalHead::new(Timestamp(0))).expect("JSON");
        let mut text = format!("{head}\n{{\"at\": \"20\n\n");
        for line in lines().iter().rev().chain(&lines()) {
            let _ = writeln!(text, "{line}");
        }
        fs::write(&file, text).expect("room");
        let mut sessions = Sessions::default();
        read(&file, &args(&file), &mut sessions).expect("it is there");
        let key = sessions.order[0];
        let told = timeline(key.1, &sessions.lines[&key]);
        let said = told.lines().skip(1);
        let said = said.filter_map(|line| line.rsplit("  ").next());
        let said: Vec<&str> = said.collect();
        assert_eq!(
            said,
            [
                "accepted",
                "round 0 of m: 7 tokens in (3 cached), 2 out, $0.500000; calls add",
                "results: add failed",
                "waits for human",
                "round 0 of m: 7 tokens in (3 cached), 2 out, $0.500000; completed (end): 2 rounds, \
                 14 tokens in (6 cached), 4 out, $1.000000, 4s",
            ],
            "{told}"
        );
        let other = ReplayArgs {
            send: format!("snd_{:032x}", 3).parse().ok(),
            ..args(&file)
        };
        let mut sessions = Sessions::default();
        read(&file, &other, &mut sessions).expect("it is there");
        assert!(sessions.order.is_empty());
    }
}
