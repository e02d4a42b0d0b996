//! Every invariant as a query: one file each, named as in `mainspring_shared::invariants`.

use mainspring_shared::agent::AgentSpec;
use mainspring_shared::blob::NamedBlobs;
use mainspring_shared::id::{RunId, TimerId};
use mainspring_shared::invariants::{NAMED, READABLE};
use mainspring_shared::list::Entry;
use mainspring_shared::store::{AuditOptions, Error, Violation};
use mainspring_shared::time::Timestamp;
use mainspring_shared::timer::{Calendar, Occurrence, TimerRule};
use mainspring_shared::workflow::run::{NodeRecord, RunAsk};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::db::{Conn, Statement, sql};
use crate::fault::{Fault, Result};
use crate::query::{query_scalar, statement};
use crate::row::Row;
use crate::rows::{self, Cells};
use crate::store::clock;
use crate::{agents, blobs, folds, memories, projections, runs, timers};

macro_rules! queries {
    ($($name:literal in $file:literal),* $(,)?) => {
        /// The name of each invariant and the query for the rows that violate it.
        static QUERIES: &[(&str, &Statement)] = &[
            $(($name, sql!($file)),)*
        ];
    };
}

queries![
    "send.one_final_step" in "audit/send.one_final_step",
    "send.final_is_last" in "audit/send.final_is_last",
    "session.seq_gap_free" in "audit/session.seq_gap_free",
    "session.steps_gap_free" in "audit/session.steps_gap_free",
    "session.positions_unique" in "audit/session.positions_unique",
    "session.pending_matches" in "audit/session.pending_matches",
    "session.ready_iff_work" in "audit/session.ready_iff_work",
    "session.erased" in "audit/session.erased",
    "session.one_active_send" in "audit/session.one_active_send",
    "epoch.never_decreases" in "audit/epoch.never_decreases",
    "epoch.one_boot" in "audit/epoch.one_boot",
    "epoch.granted" in "audit/epoch.granted",
    "call.one_result" in "audit/call.one_result",
    "call.settled_shape" in "audit/call.settled_shape",
    "inbox.one_fate" in "audit/inbox.one_fate",
    "child.reported" in "audit/child.reported",
    "send.running_has_lease" in "audit/send.running_has_lease",
    "usage.matches_rounds" in "audit/usage.matches_rounds",
    "send.shape" in "audit/send.shape",
    "run.leaf_one_send" in "audit/run.leaf_one_send",
    "run.final_is_quiet" in "audit/run.final_is_quiet",
    "run.steps_gap_free" in "audit/run.steps_gap_free",
    "timer.fired_once" in "audit/timer.fired_once",
    "timer.never_early" in "audit/timer.never_early",
    "timer.shape" in "audit/timer.shape",
    "call.asked" in "audit/call.asked",
    "message.has_step" in "audit/message.has_step",
    "send.unstarted_is_silent" in "audit/send.unstarted_is_silent",
    "usage.sums" in "audit/usage.sums",
    "budget.kept" in "audit/budget.kept",
    "boot.in_flight" in "audit/boot.in_flight",
    "tenant.own_rows" in "audit/tenant.own_rows",
    "send.rounds_in_order" in "audit/send.rounds_in_order",
    "fold.in_order" in "audit/fold.in_order",
    "agent.versions" in "audit/agent.versions",
    "skill.complete" in "audit/skill.complete",
    "tenant.exists" in "audit/tenant.exists",
    "blob.held" in "audit/blob.held",
    "projection.of_send" in "audit/projection.of_send",
    "tenant.seats" in "audit/tenant.seats",
    "tenant.money" in "audit/tenant.money",
];

/// How long the end of a child may go unreported; the sweep that reports it is far quicker.
const UNREPORTED_MAX_MS: i64 = 60_000;

/// Runs every query. The caller passes a connection with a snapshot.
pub(crate) async fn all(
    conn: &mut Conn,
    at: Option<Timestamp>,
    options: AuditOptions,
) -> Result<Vec<Violation>> {
    let now = clock(conn, at).await?;
    let bound = i64::try_from(options.takeover_bound.as_millis()).unwrap_or(i64::MAX);
    let mut violations = Vec::new();
    let mut unreadable = Vec::new();
    for (invariant, sql) in QUERIES {
        let rows: Result<Vec<String>> = query_scalar(sql)
            .bind(options.rows_max)
            .bind(now.0.saturating_sub(bound))
            .bind(now.0.saturating_sub(UNREPORTED_MAX_MS))
            .bind(now.0)
            .fetch_all(&mut *conn)
            .await;
        let rows = match rows {
            Ok(mut rows) => {
                if *invariant == COMPUTED {
                    let max = options.rows_max as usize;
                    rows.extend(off_course(conn, max).await?);
                    rows.truncate(max);
                }
                rows
            }
            // A row is not as the query expects; it is named below.
            Err(fault) if fault.is_of_data() => {
                let detail = fault.to_string();
                unreadable.push(json!({ "unchecked": invariant, "detail": detail }));
                continue;
            }
            Err(fault) => return Err(fault),
        };
        if !rows.is_empty() {
            let rows = rows.iter().map(|row| serde_json::from_str(row));
            violations.push(Violation {
                invariant: (*invariant).to_owned(),
                rows: rows
                    .collect::<std::result::Result<Vec<Value>, _>>()
                    .map_err(Fault::Encode)?,
            });
        }
    }
    let read = read_all(conn, options.rows_max as usize).await?;
    unreadable.extend(read.unreadable);
    if !read.unheld.is_empty() {
        violations.push(Violation {
            invariant: NAMED.to_owned(),
            rows: read.unheld,
        });
    }
    if !unreadable.is_empty() {
        violations.push(Violation {
            invariant: READABLE.to_owned(),
            rows: unreadable,
        });
    }
    Ok(violations)
}

/// The invariant for which the timers' schedules are recomputed.
const COMPUTED: &str = "timer.never_early";

/// Occurrences that their timers' schedules do not allow, at most `max` of them.
async fn off_course(conn: &mut Conn, max: usize) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut calendar: Option<Calendar> = None;
    let mut visit = |row: &Row| {
        let Ok((timer, rule, created_at, occurrence)) = course(row) else {
            // Reported among the unreadable rows.
            return true;
        };
        if calendar.as_ref().is_none_or(|known| known.timer() != timer) {
            calendar = Some(Calendar::new(timer, rule, created_at));
        }
        if calendar
            .as_mut()
            .is_some_and(|calendar| !calendar.allows(&occurrence))
        {
            let (n, due_at) = (occurrence.n, occurrence.due_at);
            found.push(json!({ "timer": timer, "n": n, "due_at": due_at }).to_string());
        }
        found.len() < max
    };
    let courses = statement(sql!("timers/courses"));
    courses.scan(conn, &mut visit).await?;
    Ok(found)
}

fn course(row: &Row) -> Result<(TimerId, TimerRule, Timestamp, Occurrence)> {
    let mut cells = Cells::new(row, "timers");
    let timer = TimerId(cells.get("timer_id")?);
    let rule = cells.json("rule")?;
    let created_at = cells.time("created_at")?;
    Ok((timer, rule, created_at, timers::occurrence(&mut cells)?))
}

/// Reads a row to check that it can be read, and records the blobs that it names.
type Try = fn(&Row, &mut NamedBlobs) -> Result<()>;

/// Every kind of row that holds more than plain columns.
const KINDS: &[(&Statement, Try)] = &[
    (sql!("sends/dump"), |row, named| {
        named.send(&rows::send(&mut Cells::new(row, "sends"))?);
        Ok(())
    }),
    (sql!("agents/dump"), |row, _| {
        let mut cells = Cells::new(row, "agents");
        let key = cells.key()?;
        let spec: Result<AgentSpec> = cells.json("spec");
        spec.map(drop)
            .map_err(|fault| fault.of_row(|| key.to_string()))
    }),
    (sql!("messages/dump"), |row, named| {
        let (key, message) = rows::message(row)?;
        named.message(key, &message);
        Ok(())
    }),
    (sql!("folds/dump"), |row, _| folds::read(row).map(drop)),
    (sql!("projections/dump"), |row, _| {
        projections::read(row).map(drop)
    }),
    (sql!("steps/dump"), |row, _| rows::step(row).map(drop)),
    (sql!("calls/dump"), |row, named| {
        let (key, call) = rows::call(row)?;
        named.call(key, &call);
        Ok(())
    }),
    (sql!("inbox/dump"), |row, named| {
        let (key, item) = rows::item(row)?;
        named.item(key, &item);
        Ok(())
    }),
    (sql!("lists/dump_entries"), |row, _| {
        let mut cells = Cells::new(row, "list_entries");
        let list: String = cells.get("list")?;
        let entry: Result<Entry> = cells.json("body");
        entry.map(drop).map_err(|fault| fault.of_row(|| list))
    }),
    (sql!("runs/dump"), |row, _| {
        runs::record(&mut Cells::new(row, "runs")).map(drop)
    }),
    (sql!("runs/dump_nodes"), |row, _| {
        below_run::<NodeRecord>(row, "run_nodes", "node")
    }),
    (sql!("runs/dump_asks"), |row, _| {
        below_run::<RunAsk>(row, "run_asks", "ask")
    }),
    (sql!("timers/dump"), |row, named| {
        named.timer(&timers::timer(row)?);
        Ok(())
    }),
    (sql!("named/dump_versions"), |row, _| {
        agents::read_version(row).map(drop)
    }),
    (sql!("memories/dump"), |row, _| {
        memories::entry(row).map(drop)
    }),
];

/// Checks a JSON column of a row that belongs to a run.
fn below_run<T: DeserializeOwned>(
    row: &Row,
    table: &'static str,
    column: &'static str,
) -> Result<()> {
    let mut cells = Cells::new(row, table);
    let run = RunId(cells.get("run_id")?);
    let value: Result<T> = cells.json(column);
    value
        .map(drop)
        .map_err(|fault| fault.of_row(|| run.to_string()))
}

/// The findings from reading every row once.
#[derive(Default)]
struct Read {
    unreadable: Vec<Value>,
    /// Blobs that are named but not held.
    unheld: Vec<Value>,
}

/// Reads every row. Keeps at most `max` findings of each kind.
async fn read_all(conn: &mut Conn, max: usize) -> Result<Read> {
    let mut found = Read::default();
    let mut named = NamedBlobs::default();
    for (sql, read) in KINDS {
        let mut visit = |row: &Row| {
            let fault = read(row, &mut named).err();
            found
                .unreadable
                .extend(fault.map(|fault| Error::from(fault).row()));
            found.unreadable.len() < max
        };
        statement(sql).scan(conn, &mut visit).await?;
        if found.unreadable.len() >= max {
            break;
        }
    }
    found.unheld = blobs::unheld(conn, named, max).await?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use mainspring_shared::invariants::INVARIANTS;

    use super::*;

    #[test]
    fn every_invariant_has_its_query() {
        let wanted: Vec<&str> = INVARIANTS.iter().map(|(name, _)| *name).collect();
        let here: Vec<&str> = QUERIES.iter().map(|(name, _)| *name).collect();
        let (queried, read) = wanted.split_at(wanted.len() - 2);
        assert_eq!(here, queried);
        assert_eq!(read, [NAMED, READABLE]);
    }
}
