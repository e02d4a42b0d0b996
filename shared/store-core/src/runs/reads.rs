//! Reads of runs.

use mainspring_shared::id::{BootId, RunKey, SendId};
use mainspring_shared::store::{DumpRun, ListRuns, Page, ReadNodes, RunStep};
use mainspring_shared::workflow::run::{NodeRecord, RunAsk, RunRecord};
use uuid::Uuid;

use super::{asks, node, record};
use crate::db::{Conn, sql};
use crate::fault::Result;
use crate::query::{query_scalar, statement};
use crate::reads::page;
use crate::rows::Cells;

/// Runs by id.
pub(crate) async fn get(conn: &mut Conn, keys: Vec<RunKey>) -> Result<Vec<Option<RunRecord>>> {
    let mut found = Vec::with_capacity(keys.len());
    for key in keys {
        let row = statement(sql!("runs/get"))
            .bind(key.tenant.0)
            .bind(key.run.0)
            .fetch_optional(&mut *conn)
            .await?;
        let row = row.as_ref();
        found.push(
            row.map(|row| record(&mut Cells::new(row, "runs")))
                .transpose()?,
        );
    }
    Ok(found)
}

/// The requests to runs, in order.
pub(crate) async fn read_asks(conn: &mut Conn, keys: Vec<RunKey>) -> Result<Vec<Vec<RunAsk>>> {
    let mut found = Vec::with_capacity(keys.len());
    for key in keys {
        let of_run = asks(&mut *conn, key).await?;
        found.push(of_run.into_iter().map(|(_, ask)| ask).collect());
    }
    Ok(found)
}

/// A page of runs, newest first.
pub(crate) async fn list(conn: &mut Conn, query: ListRuns) -> Result<Page<RunRecord>> {
    let rows = statement(sql!("runs/list"))
        .bind(query.tenant.0)
        .bind(query.before.map(|run| run.0))
        .bind(
            query
                .status
                .map(mainspring_shared::workflow::run::RunStatus::as_str),
        )
        .bind(query.session.map(|session| session.0))
        .bind(i64::from(query.limit) + 1)
        .fetch_all(conn)
        .await?;
    Ok(page(&rows, query.limit, |row| {
        record(&mut Cells::new(row, "runs"))
    }))
}

/// A page of a run's nodes.
pub(crate) async fn nodes(conn: &mut Conn, query: ReadNodes) -> Result<Vec<NodeRecord>> {
    let rows = statement(sql!("runs/nodes"))
        .bind(query.key.tenant.0)
        .bind(query.key.run.0)
        .bind(query.after)
        .bind(query.prefix)
        .bind(query.limit)
        .fetch_all(conn)
        .await?;
    rows.iter().map(node).collect()
}

/// Advances of a run.
pub(crate) async fn steps(
    conn: &mut Conn,
    key: RunKey,
    after: i64,
    limit: u32,
) -> Result<Vec<RunStep>> {
    let rows = statement(sql!("runs/steps"))
        .bind(key.tenant.0)
        .bind(key.run.0)
        .bind(after)
        .bind(limit)
        .fetch_all(conn)
        .await?;
    let steps = rows.iter().map(|row| {
        let mut cells = Cells::new(row, "run_steps");
        Ok(RunStep {
            n: cells.get("n")?,
            at: cells.time("at")?,
            boot: cells.get("boot").map(BootId)?,
            changes: cells.json("changes")?,
        })
    });
    steps.collect()
}

/// The sends of a run that are not final yet.
pub(crate) async fn live_leaves(conn: &mut Conn, key: RunKey) -> Result<Vec<SendId>> {
    let sends: Vec<Uuid> = query_scalar(sql!("runs/live_leaves"))
        .bind(key.tenant.0)
        .bind(key.run.0)
        .fetch_all(conn)
        .await?;
    Ok(sends.into_iter().map(SendId).collect())
}

/// All runs with everything that belongs to them.
pub(crate) async fn dump(conn: &mut Conn) -> Result<Vec<DumpRun>> {
    let rows = statement(sql!("runs/dump")).fetch_all(&mut *conn).await?;
    let mut runs = Vec::with_capacity(rows.len());
    for row in &rows {
        let mut cells = Cells::new(row, "runs");
        let run = record(&mut cells)?;
        let key = run.key;
        let (owner, step) = (cells.boot_opt("owner_boot")?, cells.get("step")?);
        let query = ReadNodes {
            key,
            prefix: None,
            after: 0,
            limit: u32::MAX,
        };
        let asked = asks(conn, key).await?;
        runs.push(DumpRun {
            run,
            owner,
            step,
            nodes: nodes(conn, query).await?,
            asks: asked.into_iter().map(|(_, ask)| ask).collect(),
            steps: steps(conn, key, 0, u32::MAX).await?,
        });
    }
    Ok(runs)
}
