//! Every invariant as a query.

use mainspring_shared::store::{AuditOptions, Result, Violation};
use mainspring_shared::time::Timestamp;

use crate::retry::{PgQuery, Pool, fetch};
use crate::rows::Fields;

macro_rules! audit {
    ($name:literal) => {
        ($name, include_str!(concat!("../sql/audit/", $name, ".sql")))
    };
}

/// The invariants in the order of `shared::invariants`.
const AUDITS: &[(&str, &str)] = &[
    audit!("send.one_final_step"),
    audit!("send.final_is_last"),
    audit!("session.seq_gap_free"),
    audit!("session.steps_gap_free"),
    audit!("session.positions_unique"),
    audit!("session.pending_matches"),
    audit!("session.ready_iff_work"),
    audit!("session.one_active_send"),
    audit!("epoch.never_decreases"),
    audit!("epoch.one_boot"),
    audit!("epoch.granted"),
    audit!("call.one_result"),
    audit!("send.running_has_lease"),
    audit!("usage.matches_rounds"),
    audit!("send.shape"),
];

/// Runs every invariant. Each query sees one snapshot, so live traffic does not confuse it.
pub(crate) async fn audit(
    pool: &PgPool,
    at: Option<Timestamp>,
    options: AuditOptions,
) -> Result<Vec<Violation>> {
    let mut attempts = Attempts::default();
    loop {
        let audited = match attempts.connection(pool).await {
            Ok(mut connection) => audit_once(&mut connection, at, options).await,
            Err(fault) => Err(fault),
        };
        match audited {
            Ok(violations) => return Ok(violations),
            Err(fault) => match attempts.weigh(fault)? {
                Verdict::Again | Verdict::Lost => {}
                Verdict::BadData(error) => return Err(error),
            },
        }
    }
}

async fn audit_once(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    options: AuditOptions,
) -> std::result::Result<Vec<Violation>, Fault> {
    let mut tx = connection.begin().await?;
    // Every query reads whole tables. Where they are larger than the planner knows, a nested loop
    // would take for ever.
    sqlx::query("SET LOCAL enable_nestloop = off")
        .execute(&mut *tx)
        .await?;
    sqlx::query("SET LOCAL work_mem = '32MB'")
        .execute(&mut *tx)
        .await?;
    let mut violations = Vec::new();
    for (name, text) in AUDITS {
        let rows = query(text, at, options).fetch_all(&mut *tx).await?;
        if rows.is_empty() {
            continue;
        }
        let rows = rows
            .iter()
            .map(|row| Fields::new(row, "audit").json("row"))
            .collect::<Result<Vec<_>>>()?;
        violations.push(Violation {
            invariant: (*name).to_owned(),
            rows,
        });
    }
    tx.commit().await?;
    Ok(violations)
}

fn query(text: &'static str, at: Option<Timestamp>, options: AuditOptions) -> PgQuery {
    sqlx::query(text)
        .bind(at.map(|at| at.0))
        .bind(options.takeover_bound.as_millis() as i64)
        .bind(i64::from(options.rows_max))
        .persistent(false)
}

#[cfg(test)]
mod tests {
    use mainspring_shared::invariants::INVARIANTS;

    #[test]
    fn every_invariant_has_its_query() {
        let known: Vec<_> = INVARIANTS.iter().map(|(name, _)| *name).collect();
        let queried: Vec<_> = super::AUDITS.iter().map(|(name, _)| *name).collect();
        assert_eq!(queried, known);
    }
}
