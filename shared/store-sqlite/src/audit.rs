//! Every invariant as a query: one file each, named as in `mainspring_shared::invariants`.

use mainspring_shared::store::{AuditOptions, Violation};
use mainspring_shared::time::Timestamp;
use serde_json::Value;
use sqlx::SqliteConnection;

use crate::fault::{Fault, Result};
use crate::writer::clock;

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
    for (invariant, sql) in QUERIES {
        let rows: Vec<String> = sqlx::query_scalar(*sql)
            .bind(options.rows_max)
            .bind(now.0.saturating_sub(bound))
            .bind(now.0.saturating_sub(UNREPORTED_MAX_MS))
            .fetch_all(&mut *conn)
            .await?;
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
    Ok(violations)
}

#[cfg(test)]
mod tests {
    use mainspring_shared::invariants::INVARIANTS;

    use super::*;

    #[test]
    fn every_invariant_has_its_query() {
        let wanted: Vec<&str> = INVARIANTS.iter().map(|(name, _)| *name).collect();
        let here: Vec<&str> = QUERIES.iter().map(|(name, _)| *name).collect();
        assert_eq!(here, wanted);
    }
}
