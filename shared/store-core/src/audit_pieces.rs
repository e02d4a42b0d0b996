//! Audits of some sessions, runs or timers at a time, by their own rows alone.

use mainspring_shared::store::{AuditKind, AuditPiece, AuditPlace, Audited};
use mainspring_shared::time::Timestamp;
use serde_json::Value;

use crate::db::{Conn, Statement, parts, sql};
use crate::fault::{Fault, Result};
use crate::query::statement;
use crate::row::Row;
use crate::rows::Cells;
use crate::store::clock;

/// A statement that gives common tables the names of the tables, so that the texts of the invariants see no other rows: one
/// statement for all of them, on one state of the database.
macro_rules! piece {
    ($head:literal: $($name:literal),+ $(,)?) => {
        parts!(true:
            (concat!("pieces/", $head), text!("pieces/", $head)),
            $(
                ("", concat!("\nUNION ALL SELECT '", $name, "', v.* FROM (\n")),
                (concat!("audit/", $name), text!("audit/", $name)),
                ("", "\n) v")
            ),+
        )
    };
}

macro_rules! text {
    ($folder:literal, $name:literal) => {
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/sql/",
            $folder,
            $name,
            ".sql"
        ))
    };
}

macro_rules! sessions {
    ($($name:literal),+ $(,)?) => { piece!("sessions": $($name),+) };
}

macro_rules! runs {
    ($($name:literal),+ $(,)?) => { piece!("runs": $($name),+) };
}

macro_rules! timers {
    ($($name:literal),+ $(,)?) => { piece!("timers": $($name),+) };
}

/// The query for the next ones, and the one that checks them.
fn statements(kind: AuditKind) -> (&'static Statement, &'static Statement) {
    match kind {
        AuditKind::Sessions => (
            sql!("pieces/next_sessions"),
            mainspring_shared::piecewise_invariants!(sessions, sessions),
        ),
        AuditKind::Runs => (
            sql!("pieces/next_runs"),
            mainspring_shared::piecewise_invariants!(runs, runs),
        ),
        AuditKind::Timers => (
            sql!("pieces/next_timers"),
            mainspring_shared::piecewise_invariants!(timers, timers),
        ),
    }
}

/// Checks the next ones. The caller gives a connection that stands on one snapshot.
pub(crate) async fn check(
    conn: &mut Conn,
    at: Option<Timestamp>,
    piece: AuditPiece,
) -> Result<Audited> {
    let (next, check) = statements(piece.kind);
    // With the one behind them, where the next piece begins.
    let found = statement(next)
        .bind(piece.from.tenant.0)
        .bind(piece.from.id)
        .bind(i64::from(piece.limit) + 1)
        .fetch_all(conn)
        .await?;
    // An id that is none is left to the audit of everything.
    let places: Vec<AuditPlace> = found.iter().filter_map(|row| place(row).ok()).collect();
    let Some((range, next)) = AuditPlace::range(places, piece.limit) else {
        return Ok(Audited::NOTHING);
    };
    let now = clock(conn, at).await?;
    let bound = i64::try_from(piece.options.takeover_bound.as_millis()).unwrap_or(i64::MAX);
    let rows = statement(check)
        .bind(piece.options.rows_max)
        .bind(now.0.saturating_sub(bound))
        .bind(now.0)
        .bind(now.0)
        .bind(range.tenant.0)
        .bind(range.first)
        .bind(range.last)
        .fetch_all(conn)
        .await;
    let rows = match rows {
        Ok(rows) => rows,
        // Some row is not what its query takes it for.
        Err(fault) if fault.is_of_data() => {
            return Ok(Audited::unreadable(range, next, &fault));
        }
        Err(fault) => return Err(fault),
    };
    let mut violating = Vec::new();
    for row in &rows {
        let mut cells = Cells::new(row, "audit");
        let name: String = cells.get("invariant")?;
        // The first row is of the sessions themselves.
        if !name.is_empty() {
            let row: String = cells.get("violation")?;
            let row: Value = serde_json::from_str(&row).map_err(Fault::Encode)?;
            violating.push((name, row));
        }
    }
    Ok(Audited::of_rows(violating, range.count, next))
}

fn place(row: &Row) -> Result<AuditPlace> {
    let mut cells = Cells::new(row, "audit");
    Ok(AuditPlace::of(cells.get("tenant")?, cells.get("id")?))
}
