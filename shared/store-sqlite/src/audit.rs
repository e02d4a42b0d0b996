//! Every invariant as a query: one file each, named as in `mainspring_shared::invariants`.

use futures::TryStreamExt;
use mainspring_shared::agent::AgentSpec;
use mainspring_shared::id::{RunId, TimerId};
use mainspring_shared::invariants::READABLE;
use mainspring_shared::list::Entry;
use mainspring_shared::store::{AuditOptions, Error, Violation};
use mainspring_shared::time::Timestamp;
use mainspring_shared::timer::{Calendar, Occurrence, TimerRule};
use mainspring_shared::workflow::run::{NodeRecord, RunAsk};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sqlx::SqliteConnection;
use sqlx::sqlite::SqliteRow;

use crate::fault::{Fault, Result};
use crate::rows::{self, Cells};
use crate::writer::clock;
use crate::{runs, timers};

macro_rules! queries {
    ($($name:literal),* $(,)?) => {
        /// The name of each invariant and the query for the rows that violate it.
        const QUERIES: &[(&str, &str)] = &[
            $(($name, include_str!(concat!("../sql/audit/", $name, ".sql"))),)*
        ];
    };
}

queries![
    "send.one_final_step",
    "send.final_is_last",
    "session.seq_gap_free",
    "session.steps_gap_free",
    "session.positions_unique",
    "session.pending_matches",
    "session.ready_iff_work",
    "session.erased",
    "session.one_active_send",
    "epoch.never_decreases",
    "epoch.one_boot",
    "epoch.granted",
    "call.one_result",
    "call.settled_shape",
    "inbox.one_fate",
    "child.reported",
    "send.running_has_lease",
    "usage.matches_rounds",
    "send.shape",
    "run.leaf_one_send",
    "run.final_is_quiet",
    "run.steps_gap_free",
    "timer.fired_once",
    "timer.never_early",
    "timer.shape",
    "call.asked",
    "message.has_step",
    "send.unstarted_is_silent",
    "usage.sums",
    "budget.kept",
    "boot.in_flight",
    "tenant.own_rows",
    "send.rounds_in_order",
];

/// How long the end of a child may go unreported: the sweep that catches up is far quicker.
const UNREPORTED_MAX_MS: i64 = 60_000;

/// Runs every query. The caller gives a connection that stands on one snapshot.
pub(crate) async fn all(
    conn: &mut SqliteConnection,
    at: Option<Timestamp>,
    options: AuditOptions,
) -> Result<Vec<Violation>> {
    let now = clock(conn, at).await?;
    let bound = i64::try_from(options.takeover_bound.as_millis()).unwrap_or(i64::MAX);
    let mut violations = Vec::new();
    let mut unreadable = Vec::new();
    for (invariant, sql) in QUERIES {
        let rows: sqlx::Result<Vec<String>> = sqlx::query_scalar(*sql)
            .bind(options.rows_max)
            .bind(now.0.saturating_sub(bound))
            .bind(now.0.saturating_sub(UNREPORTED_MAX_MS))
            .bind(now.0)
            .fetch_all(&mut *conn)
            .await;
        let rows = match rows.map_err(Fault::from) {
            Ok(mut rows) => {
                if *invariant == COMPUTED {
                    let max = options.rows_max as usize;
                    rows.extend(off_course(conn, max).await?);
                    rows.truncate(max);
                }
                rows
            }
            // Some row is not what the query takes it for: it is named below.
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
    unreadable.extend(find_unreadable(conn, options.rows_max as usize).await?);
    if !unreadable.is_empty() {
        violations.push(Violation {
            invariant: READABLE.to_owned(),
            rows: unreadable,
        });
    }
    Ok(violations)
}

/// The invariant that the schedules of timers are computed anew for.
const COMPUTED: &str = "timer.never_early";

/// Occurrences that their timers' schedules do not allow, at most so many.
async fn off_course(conn: &mut SqliteConnection, max: usize) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut calendar: Option<Calendar> = None;
    let mut rows = sqlx::query(include_str!("../sql/timers/courses.sql")).fetch(conn);
    while let Some(row) = rows.try_next().await? {
        let Ok((timer, rule, created_at, occurrence)) = course(&row) else {
            // It is named among those that cannot be read.
            continue;
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
        if found.len() >= max {
            break;
        }
    }
    Ok(found)
}

fn course(row: &SqliteRow) -> Result<(TimerId, TimerRule, Timestamp, Occurrence)> {
    let mut cells = Cells::new(row, "timers");
    let _: i32 = cells.get("tenant")?;
    let timer = TimerId(cells.get("timer_id")?);
    let rule = cells.json("rule")?;
    let created_at = cells.time("created_at")?;
    Ok((timer, rule, created_at, timers::occurrence(&mut cells)?))
}

/// Reads a row, and keeps nothing of it.
type Try = fn(&SqliteRow) -> Result<()>;

/// Every kind of row that holds more than numbers.
const KINDS: &[(&str, Try)] = &[
    (include_str!("../sql/sends/dump.sql"), |row| {
        rows::send(&mut Cells::new(row, "sends")).map(drop)
    }),
    (include_str!("../sql/agents/dump.sql"), |row| {
        let mut cells = Cells::new(row, "agents");
        let key = cells.key()?;
        let spec: Result<AgentSpec> = cells.json("spec");
        spec.map(drop)
            .map_err(|fault| fault.of_row(|| key.to_string()))
    }),
    (include_str!("../sql/messages/dump.sql"), |row| {
        rows::message(row).map(drop)
    }),
    (include_str!("../sql/steps/dump.sql"), |row| {
        rows::step(row).map(drop)
    }),
    (include_str!("../sql/calls/dump.sql"), |row| {
        rows::call(row).map(drop)
    }),
    (include_str!("../sql/inbox/dump.sql"), |row| {
        rows::item(row).map(drop)
    }),
    (include_str!("../sql/lists/dump_entries.sql"), |row| {
        let mut cells = Cells::new(row, "list_entries");
        let _: i32 = cells.get("tenant")?;
        let list: String = cells.get("list")?;
        let entry: Result<Entry> = cells.json("body");
        entry.map(drop).map_err(|fault| fault.of_row(|| list))
    }),
    (include_str!("../sql/runs/dump.sql"), |row| {
        runs::record(&mut Cells::new(row, "runs")).map(drop)
    }),
    (include_str!("../sql/runs/dump_nodes.sql"), |row| {
        below_run::<NodeRecord>(row, "run_nodes", "node")
    }),
    (include_str!("../sql/runs/dump_asks.sql"), |row| {
        below_run::<RunAsk>(row, "run_asks", "ask")
    }),
    (include_str!("../sql/timers/dump.sql"), |row| {
        timers::timer(row).map(drop)
    }),
];

/// JSON behind the key of its run.
fn below_run<T: DeserializeOwned>(
    row: &SqliteRow,
    table: &'static str,
    column: &'static str,
) -> Result<()> {
    let mut cells = Cells::new(row, table);
    let _: i32 = cells.get("tenant")?;
    let run = RunId(cells.get("run_id")?);
    let value: Result<T> = cells.json(column);
    value
        .map(drop)
        .map_err(|fault| fault.of_row(|| run.to_string()))
}

/// Rows that cannot be read, at most so many.
async fn find_unreadable(conn: &mut SqliteConnection, max: usize) -> Result<Vec<Value>> {
    let mut found = Vec::new();
    for (sql, read) in KINDS {
        let mut rows = sqlx::query(*sql).fetch(&mut *conn);
        while let Some(row) = rows.try_next().await? {
            found.extend(read(&row).err().map(|fault| Error::from(fault).row()));
            if found.len() >= max {
                return Ok(found);
            }
        }
    }
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
        assert_eq!(here, wanted[..wanted.len() - 1]);
        assert_eq!(wanted.last(), Some(&READABLE));
    }
}
