//! The final contents of a store, without anything that depends on chance or time.

use mainspring_shared::message::{Message, plain_text};
use mainspring_shared::session::fold::Fold;
use mainspring_shared::session::projection::Projection;
use mainspring_shared::store::{Dump, DumpRun, DumpSession};
use mainspring_shared::tool::CallRecord;
use mainspring_shared::workflow::run::NodeRecord;
use serde_json::{Value, json};

/// What remains of a dump without IDs, times, leases and step counts: equal for two systems that
/// did the same work, whatever faults they went through.
pub fn essence(dump: &Dump) -> Value {
    let sessions = dump.sessions.iter().map(session);
    let mut sessions: Vec<Value> = sessions.map(|one| without_ids(&one)).collect();
    sessions.sort_by_key(Value::to_string);
    let mut runs: Vec<Value> = dump.runs.iter().map(|one| without_ids(&run(one))).collect();
    runs.sort_by_key(Value::to_string);
    let timers = dump.timers.iter().map(|(timer, occurrences)| {
        let fates: Vec<_> = occurrences.iter().map(|one| one.fate).collect();
        json!({ "status": timer.state.status, "fates": fates })
    });
    let timers: Vec<Value> = timers.collect();
    json!({ "sessions": sessions, "runs": runs, "timers": timers })
}

/// Length of an ID after its prefix, in characters.
const ID: usize = 32;

/// The value with every ID in its strings removed.
fn without_ids(value: &Value) -> Value {
    match value {
        Value::String(text) => {
            let mut kept = String::with_capacity(text.len());
            let mut digits = 0;
            for char in text.chars() {
                kept.push(char);
                digits = if char.is_ascii_hexdigit() {
                    digits + 1
                } else {
                    0
                };
                if digits == ID {
                    kept.truncate(kept.len() - ID);
                    digits = 0;
                }
            }
            Value::String(kept)
        }
        Value::Array(items) => items.iter().map(without_ids).collect(),
        Value::Object(members) => {
            let members = members.iter();
            members
                .map(|(name, value)| (name.clone(), without_ids(value)))
                .collect()
        }
        other => other.clone(),
    }
}

fn session(session: &DumpSession) -> Value {
    let sends: Vec<Value> = session
        .sends
        .iter()
        .map(|send| {
            json!({
                "position": send.position,
                "status": send.status,
                "waiting_on": send.waiting_on,
                "stop_reason": send.stop_reason,
                "input": plain_text(&send.input),
                "output_text": send.output_text,
                "output": send.output,
                "error": send.error,
                "usage": send.usage,
                "rounds": send.rounds,
                "attempt": send.run.as_ref().map(|leaf| (&leaf.path, leaf.attempt)),
            })
        })
        .collect();
    let inbox: Vec<Value> = session
        .inbox
        .iter()
        .map(|item| {
            let said = plain_text(&item.content);
            json!([item.n, item.kind, item.mode, item.fate, item.seq, said])
        })
        .collect();
    let mut calls: Vec<&CallRecord> = session.calls.iter().collect();
    calls.sort_by_key(|call| (call.round, call.place));
    json!({
        "lifecycle": format!("{:?}", session.hot.lifecycle),
        "owned": session.hot.owner.is_some(),
        "ready": session.hot.ready_since.is_some(),
        "pending": session.hot.pending,
        "spent": session.hot.spent,
        "depth": session.parent.as_ref().map(|parent| parent.depth),
        "sends": sends,
        "folds": session.folds.iter().map(fold).collect::<Vec<_>>(),
        "projections": session.projections.iter().map(projection).collect::<Vec<_>>(),
        "messages": session.messages.iter().map(message).collect::<Vec<_>>(),
        "calls": calls.into_iter().map(call).collect::<Vec<_>>(),
        "inbox": inbox,
        "usage_rows": session.usage.len(),
    })
}

fn fold(fold: &Fold) -> Value {
    json!({
        "from_seq": fold.from_seq,
        "to_seq": fold.to_seq,
        "level": fold.level,
        "kind": fold.kind,
        "text": fold.text,
        "shown": fold.covered_by.is_none(),
    })
}

fn projection(projection: &Projection) -> Value {
    json!({
        "from_seq": projection.from_seq,
        "to_seq": projection.to_seq,
        "left": projection.left,
    })
}

fn message(message: &Message) -> Value {
    let asked = message.tool_calls.iter();
    let asked: Vec<_> = asked.map(|call| (&call.name, &call.arguments)).collect();
    json!({
        "seq": message.seq,
        "role": message.role,
        "round": message.round,
        "name": message.name,
        "failed": message.failed,
        "text": plain_text(&message.content),
        "calls": asked,
    })
}

fn call(call: &CallRecord) -> Value {
    json!({
        "round": call.round,
        "place": call.place,
        "name": call.name,
        "arguments": call.arguments,
        "state": format!("{:?}", call.state()),
        "result": call.result.as_ref().map(|result| (plain_text(&result.content), result.code)),
    })
}

fn run(dump: &DumpRun) -> Value {
    let run = &dump.run;
    let mut nodes: Vec<&NodeRecord> = dump.nodes.iter().collect();
    nodes.sort_by(|a, b| a.path.cmp(&b.path));
    json!({
        "name": run.name,
        "status": run.status,
        "input": run.input,
        "attempt": run.attempt,
        "result": run.result,
        "error": run.error,
        "usage": run.usage,
        "counts": run.counts,
        "asks": dump.asks,
        "nodes": nodes.into_iter().map(node).collect::<Vec<_>>(),
    })
}

fn node(node: &NodeRecord) -> Value {
    json!({
        "path": node.path,
        "kind": node.kind,
        "state": node.state,
        "tolerated": node.tolerated,
        "attempt": node.attempt,
        "earlier": node.earlier.len(),
        "frozen": node.frozen,
        "text": node.text,
        "payload": node.payload,
        "error": node.error,
        "usage": node.usage,
        "reserved": node.reserved,
        "started": node.send.is_some(),
    })
}

/// The paths at which two essences differ, with both values.
pub fn differences(found: &Value, expected: &Value) -> Vec<String> {
    let mut differ = Vec::new();
    compare("", found, expected, &mut differ);
    differ
}

fn compare(place: &str, found: &Value, expected: &Value, differ: &mut Vec<String>) {
    match (found, expected) {
        (Value::Object(a), Value::Object(b)) if a.keys().eq(b.keys()) => {
            for (key, value) in a {
                compare(&format!("{place}/{key}"), value, &b[key], differ);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (n, value) in a.iter().enumerate() {
                compare(&format!("{place}/{n}"), value, &b[n], differ);
            }
        }
        _ if found == expected => {}
        _ => differ.push(format!("{place}: {found}, not {expected}")),
    }
}
