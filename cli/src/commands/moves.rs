//! `mainspring tenants move` and `mainspring tenants places`

use mainspring_shared::id::TenantId;
use mainspring_shared::store::placements::Placement;
use mainspring_store_placed::{MoveError, Mover, Step};
use serde_json::{Value, json};

use crate::args::Format;
use crate::config::Config;
use crate::failure::{Exit, Failure, causes, usage_text};
use crate::output::{self, Column};
use crate::wiring;

const COLUMNS: [Column; 5] = [
    ("TENANT", "tenant"),
    ("DATABASE", "database"),
    ("PHASE", "phase"),
    ("OTHER", "other"),
    ("SINCE", "since"),
];

/// Moves a tenant; without a target database, aborts a move and leaves it where it was.
pub(crate) async fn run(
    tenant: &str,
    to: Option<&str>,
    format: Format,
    config: &Config,
) -> Result<(), Failure> {
    let mover = opened(config).await?;
    let tenant = find(&mover, tenant).await?;
    let Some(to) = to else {
        let placement = mover.abort(tenant).await.map_err(|error| failed(&error))?;
        return output::object(format, &shown(&placement));
    };
    let mut tell = |step: &Step| {
        output::note(&said(step));
        true
    };
    let moved = mover.take(tenant, to, &mut tell).await;
    let moved = moved.map_err(|error| failed(&error))?;
    let mut shown = shown(&moved.placement);
    shown["rows"] = json!(moved.rows);
    shown["bytes"] = json!(moved.bytes);
    shown["frozen_ms"] = json!(moved.frozen.as_millis() as u64);
    output::object(format, &shown)
}

/// Lists the rows of the catalogue.
pub(crate) async fn list(format: Format, config: &Config) -> Result<(), Failure> {
    let mover = opened(config).await?;
    let places = mover.placements().await.map_err(|error| failed(&error))?;
    let rows: Vec<Value> = places.iter().map(shown).collect();
    output::list(format, &COLUMNS, &rows)
}

async fn opened(config: &Config) -> Result<Mover, Failure> {
    if config.databases.is_empty() {
        return Err(usage_text(
            "the configuration names no further databases",
            "set databases, as docs/SCALING.md describes it",
        ));
    }
    wiring::mover(config).await
}

/// The tenant with this id or name.
async fn find(mover: &Mover, tenant: &str) -> Result<TenantId, Failure> {
    if let Ok(id) = tenant.parse::<TenantId>() {
        return Ok(id);
    }
    let found = mover.named(tenant.to_owned()).await;
    let found = found.map_err(|error| failed(&error))?;
    found.ok_or_else(|| {
        Failure::new(Exit::NotFound, format!("no tenant is called {tenant}"))
            .next("`mainspring tenants list` lists them")
    })
}

fn said(step: &Step) -> String {
    match step {
        Step::Begun => "the move has begun".to_owned(),
        Step::Frozen => "writes wait".to_owned(),
        Step::Drained => "earlier writes have ended".to_owned(),
        Step::Copied(copied) => {
            let (rows, mib) = (copied.rows(), copied.bytes >> 20);
            format!("{rows} rows are copied and compared, {mib} MiB")
        }
        Step::Arrived => "the catalogue names the other database".to_owned(),
        Step::Thawed => "writes go on".to_owned(),
        Step::Erased(rows) => format!("{rows} rows are removed where it was"),
        Step::Settled => "the move is done".to_owned(),
    }
}

fn shown(placement: &Placement) -> Value {
    json!({
        "tenant": placement.tenant.to_string(),
        "database": placement.place,
        "phase": placement.phase.as_str(),
        "other": placement.other,
        "since": placement.changed_at,
    })
}

fn failed(error: &MoveError) -> Failure {
    let (exit, next) = match error {
        MoveError::UnknownTenant(_) => (Exit::NotFound, "`mainspring tenants list` lists them"),
        MoveError::UnknownPlace(..) => (
            Exit::NotFound,
            "name one of these, or add it to `databases` of every process, as docs/SCALING.md describes it",
        ),
        MoveError::NotMoving(_) => (
            Exit::Conflict,
            "there is nothing to cancel: `mainspring tenants move TENANT --to NAME` begins a move",
        ),
        MoveError::TooLate => (
            Exit::Failure,
            "`mainspring tenants move TENANT --to NAME` finishes it; `mainspring tenants places` says where it goes",
        ),
        _ => (
            Exit::Failure,
            "the same command goes on where this one ended; `mainspring tenants places` says how far that is",
        ),
    };
    Failure::new(exit, causes(error)).next(next)
}
