//! `mainspring audit`

use crate::config::Config;
use mainspring_shared::invariants::INVARIANTS;
use mainspring_shared::store::{AuditOptions, Violation};
use serde_json::json;

use crate::args::{AuditArgs, Format};
use crate::failure::{Exit, Failure};
use crate::{output, wiring};

pub(crate) async fn run(args: &AuditArgs, format: Format, config: &Config) -> Result<(), Failure> {
    if format == Format::Table {
        output::note(&format!(
            "audits {}, not a server",
            wiring::database(config)
        ));
    }
    let store = wiring::store_to_read(config).await?;
    let options = AuditOptions {
        takeover_bound: args.takeover_bound.0,
        rows_max: args.rows,
    };
    let violations = store
        .audit(options)
        .await
        .map_err(|error| wiring::store_failure(config, &error))?;
    match format {
        Format::Table => violations.iter().try_for_each(print)?,
        Format::Json | Format::Jsonl => {
            let rows: Vec<_> = violations
                .iter()
                .map(|violation| json!(violation))
                .collect();
            output::list(format, &[], &rows)?;
        }
    }
    if violations.is_empty() {
        return Ok(());
    }
    let message = format!(
        "{} of {} invariants are violated",
        violations.len(),
        INVARIANTS.len()
    );
    Err(Failure::new(Exit::Failure, message).next("keep the database as it is and report this"))
}

fn print(violation: &Violation) -> Result<(), Failure> {
    let name = &violation.invariant;
    let meaning = INVARIANTS.iter().find(|(known, _)| known == name);
    output::line(&format!(
        "{name}: {}",
        meaning.map_or("", |(_, meaning)| meaning)
    ))?;
    violation
        .rows
        .iter()
        .try_for_each(|row| output::line(&format!("  {row}")))
}
