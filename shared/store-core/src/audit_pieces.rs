//! Audits of a few sessions, runs or timers at a time, by their own rows alone.

use mainspring_shared::store::{AuditKind, AuditPiece, AuditPlace, Audited};
use mainspring_shared::time::Timestamp;
use serde_json::Value;

use crate::db::{Conn, Statement, parts, sql};
use crate::fault::{Fault, Result};
use crate::query::statement;
use crate::row::Row;
use crate::rows::Cells;
use crate::store::clock;

/// One statement for all invariants, on one state of the database. It defines common table
/// expressions with the names of the tables, so that the invariants' texts see only the rows of one
/// piece.
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

/// The query that finds the next ids, and the one that checks them.
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

/// Checks the next piece. The caller passes a connection with a snapshot.
pub(crate) async fn check(
    conn: &mut Conn,
    at: Option<Timestamp>,
    piece: AuditPiece,
) -> Result<Audited> {
    let (next, check) = statements(piece.kind);
    // One more than the limit: the next piece begins there.
    let found = statement(next)
        .bind(piece.from.tenant.0)
        .bind(piece.from.id)
        .bind(i64::from(piece.limit) + 1)
        .fetch_all(conn)
        .await?;
    // Ids that cannot be read are left to the full audit.
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
        // A row is not as its query expects.
        Err(fault) if fault.is_of_data() => {
            return Ok(Audited::unreadable(range, next, &fault));
        }
        Err(fault) => return Err(fault),
    };
    let mut violating = Vec::new();
    for row in &rows {
        let mut cells = Cells::new(row, "audit");
        let name: String = cells.get("invariant")?;
        // A row without an invariant's name belongs to the piece itself.
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
