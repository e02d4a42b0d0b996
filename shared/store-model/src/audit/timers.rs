//! Timers and their occurrences.

use std::collections::BTreeSet;

use mainspring_shared::store::Dump;
use mainspring_shared::timer::{Calendar, Fate, TimerRecord, TimerStatus};
use serde_json::json;

use super::Findings;

/// Checks every timer. Retention may have removed the oldest occurrences, but never one in between.
pub(super) fn timers(findings: &mut Findings, dump: &Dump) {
    let mut add = |invariant, row| findings.entry(invariant).or_default().push(row);
    let mut fired = BTreeSet::new();
    for (timer, occurrences) in &dump.timers {
        let mut calendar = Calendar::new(timer.id, timer.rule.clone(), timer.created_at);
        let first = occurrences.first().map(|o| o.n);
        let last = occurrences.last().map_or(0, |o| o.n);
        let whole = first.is_none_or(|first| last - first + 1 == occurrences.len() as i64);
        if !whole || (first.is_some() && last != timer.state.next_n - 1) {
            add(
                "timer.fired_once",
                json!({ "timer": timer.id, "next_n": timer.state.next_n }),
            );
        }
        for occurrence in occurrences {
            let row = json!({ "timer": timer.id, "n": occurrence.n, "fate": occurrence.fate });
            let names = occurrence.send_id.is_some();
            let sends = matches!(occurrence.fate, Fate::Fired | Fate::Merged);
            let twice = occurrence.fate == Fate::Fired
                && occurrence
                    .send_id
                    .is_some_and(|send| !fired.insert((timer.tenant, send)));
            if names != sends || twice {
                add("timer.fired_once", row.clone());
            }
            if occurrence.fired_at < occurrence.due_at || !calendar.allows(occurrence) {
                add("timer.never_early", row);
            }
        }
        if !fits(timer) {
            add(
                "timer.shape",
                json!({ "timer": timer.id, "status": timer.state.status }),
            );
        }
    }
}

fn fits(timer: &TimerRecord) -> bool {
    let state = &timer.state;
    let ended = matches!(
        state.status,
        TimerStatus::Done | TimerStatus::Cancelled | TimerStatus::Dead
    );
    state.fire_at.is_some() == (state.status == TimerStatus::Armed)
        && state.due_at.is_none() == ended
        && state.ended_at.is_some() == ended
}
