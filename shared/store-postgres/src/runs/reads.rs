//! Reading runs.

use std::collections::BTreeMap;

use mainspring_shared::id::{BootId, RunKey, SendId};
use mainspring_shared::store::{DumpRun, ListRuns, Page, ReadNodes, Result, RunStep};
use mainspring_shared::workflow::run::{NodeRecord, RunAsk, RunRecord, RunStatus};
use sqlx::PgConnection;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::run_columns;
use crate::columns::maybe_text;
use crate::fault::Fault;
use crate::reads::page;
use crate::retry::{Pool, fetch, sql};
use crate::rows::Fields;

pub(crate) async fn get(pool: &Pool, keys: &[RunKey]) -> Result<Vec<Option<RunRecord>>> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let (tenants, runs) = run_columns(keys);
    let rows = fetch(pool, || {
        sql!("runs/get").bind(tenants.clone()).bind(runs.clone())
    });
    let mut found: Vec<_> = keys.iter().map(|_| None).collect();
    for row in &rows.await? {
        let mut fields = Fields::new(row, "runs");
        let ord = fields.ord()?;
        found[ord] = Some(fields.run()?);
    }
    Ok(found)
}

pub(crate) async fn read_asks(pool: &Pool, keys: &[RunKey]) -> Result<Vec<Vec<RunAsk>>> {
    let mut found: Vec<Vec<RunAsk>> = keys.iter().map(|_| Vec::new()).collect();
    if keys.is_empty() {
        return Ok(found);
    }
    let (tenants, runs) = run_columns(keys);
    let rows = fetch(pool, || {
        sql!("runs/asks").bind(tenants.clone()).bind(runs.clone())
    });
    for row in &rows.await? {
        let mut fields = Fields::new(row, "run_asks");
        let ord = fields.ord()?;
        found[ord].push(fields.json("ask")?);
    }
    Ok(found)
}

pub(crate) async fn list(pool: &Pool, query: &ListRuns) -> Result<Page<RunRecord>> {
    let rows = fetch(pool, || {
        sql!("runs/list")
            .bind(query.tenant.0)
            .bind(query.session.map(|session| session.0))
            .bind(query.status.map(RunStatus::as_str))
            .bind(query.before.map(|run| run.0))
            .bind(i64::from(query.limit) + 1)
    })
    .await?;
    Ok(page(&rows, query.limit, |row| {
        let mut fields = Fields::new(row, "runs");
        fields.run()
    }))
}

pub(crate) async fn nodes(pool: &Pool, query: &ReadNodes) -> Result<Vec<NodeRecord>> {
    let rows = fetch(pool, || {
        sql!("runs/nodes")
            .bind(query.key.tenant.0)
            .bind(query.key.run.0)
            .bind(query.after)
            .bind(maybe_text(query.prefix.as_deref()))
            .bind(i64::from(query.limit))
    })
    .await?;
    let nodes = rows.iter();
    let nodes = nodes.map(|row| Fields::new(row, "run_nodes").json("node"));
    nodes.collect()
}

pub(crate) async fn steps(
    pool: &Pool,
    key: RunKey,
    after: i64,
    limit: u32,
) -> Result<Vec<RunStep>> {
    let rows = fetch(pool, || {
        sql!("runs/steps")
            .bind(key.tenant.0)
            .bind(key.run.0)
            .bind(after)
            .bind(i64::from(limit))
    })
    .await?;
    let steps = rows.iter();
    let steps = steps.map(|row| step(&mut Fields::new(row, "run_steps")));
    steps.collect()
}

/// The open sends of a run.
pub(crate) async fn live_leaves(pool: &Pool, key: RunKey) -> Result<Vec<SendId>> {
    let rows = fetch(pool, || {
        sql!("runs/live_leaves").bind(key.tenant.0).bind(key.run.0)
    })
    .await?;
    let sends = rows.iter();
    let sends = sends.map(|row| Ok(SendId(Fields::new(row, "sends").take("send_id")?)));
    sends.collect()
}

/// Reads the columns `n, at, boot, changes`.
fn step(fields: &mut Fields<'_>) -> Result<RunStep> {
    Ok(RunStep {
        n: fields.take("n")?,
        at: fields.time("at")?,
        boot: BootId(fields.take("boot")?),
        changes: fields.json("changes")?,
    })
}

/// Every run and everything below it.
pub(crate) async fn dump(
    connection: &mut PgConnection,
) -> std::result::Result<Vec<DumpRun>, Fault> {
    let mut runs: BTreeMap<RunKey, DumpRun> = BTreeMap::new();
    for row in &sql!("runs/dump").fetch_all(&mut *connection).await? {
        let mut fields = Fields::new(row, "runs");
        let run = fields.run()?;
        let owner: Option<Uuid> = fields.take("owner_boot")?;
        let dumped = DumpRun {
            owner: owner.map(BootId),
            step: fields.take("step")?,
            nodes: Vec::new(),
            asks: Vec::new(),
            steps: Vec::new(),
            run,
        };
        runs.insert(dumped.run.key, dumped);
    }
    let rows = sql!("runs/dump_nodes").fetch_all(&mut *connection).await?;
    each(&mut runs, &rows, |run, fields| {
        run.nodes.push(fields.json("node")?);
        Ok(())
    })?;
    let rows = sql!("runs/dump_asks").fetch_all(&mut *connection).await?;
    each(&mut runs, &rows, |run, fields| {
        run.asks.push(fields.json("ask")?);
        Ok(())
    })?;
    let rows = sql!("runs/dump_steps").fetch_all(&mut *connection).await?;
    each(&mut runs, &rows, |run, fields| {
        run.steps.push(step(fields)?);
        Ok(())
    })?;
    Ok(runs.into_values().collect())
}

/// Adds each row, which starts with the key of its run, to that run.
fn each(
    runs: &mut BTreeMap<RunKey, DumpRun>,
    rows: &[PgRow],
    mut add: impl FnMut(&mut DumpRun, &mut Fields<'_>) -> Result<()>,
) -> Result<()> {
    for row in rows {
        let mut fields = Fields::new(row, "runs");
        let key = fields.run_key()?;
        if let Some(run) = runs.get_mut(&key) {
            add(run, &mut fields)?;
        }
    }
    Ok(())
}
