//! The live audit: checks some sessions, runs or timers at a time, by their own rows alone.

use std::sync::LazyLock;

use mainspring_shared::store::columns::expand;
use mainspring_shared::store::{AuditKind, AuditPiece, AuditPlace, AuditRange, Audited, Result};
use mainspring_shared::time::Timestamp;
use sqlx::postgres::PgRow;

use crate::retry::{PgQuery, Pool, fetch, sql};
use crate::rows::Fields;

macro_rules! text {
    ($folder:literal, $name:literal) => {
        include_str!(concat!("../sql/", $folder, $name, ".sql"))
    };
}

/// One statement for all invariants of a kind, on one snapshot. Its CTEs have the names of the
/// tables, so that the invariants' texts see only the rows of the piece.
macro_rules! piece {
    ($head:literal: $($name:literal),+ $(,)?) => {{
        static TEXT: LazyLock<String> = LazyLock::new(|| {
            let text = concat!(
                text!("pieces/", $head),
                $("\nUNION ALL SELECT '", $name, "', v.* FROM (\n", text!("audit/", $name), "\n) v",)+
            );
            expand(text).into_owned()
        });
        TEXT.as_str()
    }};
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

/// The query for the next keys of a kind.
fn next(kind: AuditKind) -> PgQuery {
    match kind {
        AuditKind::Sessions => sql!("pieces/next_sessions"),
        AuditKind::Runs => sql!("pieces/next_runs"),
        AuditKind::Timers => sql!("pieces/next_timers"),
    }
}

/// The query that checks a range of keys.
fn check(kind: AuditKind) -> &'static str {
    match kind {
        AuditKind::Sessions => mainspring_shared::piecewise_invariants!(sessions, sessions),
        AuditKind::Runs => mainspring_shared::piecewise_invariants!(runs, runs),
        AuditKind::Timers => mainspring_shared::piecewise_invariants!(timers, timers),
    }
}

/// Checks the next piece.
pub(crate) async fn audit(
    pool: &Pool,
    at: Option<Timestamp>,
    piece: AuditPiece,
) -> Result<Audited> {
    let read = || {
        let query = next(piece.kind).bind(piece.from.tenant.0);
        // One key more than the limit: the next piece starts there.
        query.bind(piece.from.id).bind(i64::from(piece.limit) + 1)
    };
    let rows = fetch(pool, read).await?;
    let places: Vec<AuditPlace> = rows.iter().map(place).collect::<Result<_>>()?;
    let Some((range, next)) = AuditPlace::range(places, piece.limit) else {
        return Ok(Audited::NOTHING);
    };
    let rows = match fetch(pool, || query(at, piece, range)).await {
        Ok(rows) => rows,
        // A query fails on an unreadable row.
        Err(error) if error.is_of_data() => return Ok(Audited::unreadable(range, next, &error)),
        Err(error) => return Err(error),
    };
    let mut violating = Vec::new();
    for row in &rows {
        let mut fields = Fields::new(row, "audit");
        let name: String = fields.take("invariant")?;
        // A row without an invariant comes from the statement's head.
        if !name.is_empty() {
            violating.push((name, fields.json("row")?));
        }
    }
    Ok(Audited::of_rows(violating, range.count, next))
}

fn query(at: Option<Timestamp>, piece: AuditPiece, range: AuditRange) -> PgQuery {
    sqlx::query(check(piece.kind))
        .bind(at.map(|at| at.0))
        .bind(piece.options.takeover_bound.as_millis() as i64)
        .bind(i64::from(piece.options.rows_max))
        .bind(range.tenant.0)
        .bind(range.first)
        .bind(range.last)
}

fn place(row: &PgRow) -> Result<AuditPlace> {
    let mut fields = Fields::new(row, "audit");
    Ok(AuditPlace::of(fields.take("tenant")?, fields.take("id")?))
}
