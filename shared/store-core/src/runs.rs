//! Runs: creating, asking, claiming and advancing them.

use async_trait::async_trait;
use mainspring_shared::id::{BootId, RunId, RunKey, SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::store;
use mainspring_shared::store::{
    AdvanceOutcome, AdvanceRun, ClaimRuns, ClaimedRuns, CreateRunOutcome, EndedLeaf, ListRuns,
    NewRun, Page, ReadNodes, RunNews, RunStep, Runs, left_to_run,
};
use mainspring_shared::time::Timestamp;
use mainspring_shared::workflow::run::{NodeRecord, RunAsk, RunRecord, RunStatus};
use uuid::Uuid;

use crate::accept::{self, Seen};
use crate::db::{Commit, Conn, Statement, sql};
use crate::fault::{Result, skipped};
use crate::query::{query_as, query_scalar, statement};
use crate::row::Row;
use crate::rows::{self, Cells, json};
use crate::store::{SqlStore, Tx};

#[async_trait]
impl Runs for SqlStore {
    async fn create_runs(&self, items: Vec<NewRun>) -> store::Result<Vec<CreateRunOutcome>> {
        self.write(items, |tx, items| Box::pin(create(tx, items)))
            .await
    }

    async fn ask_runs(&self, items: Vec<(RunKey, RunAsk)>) -> store::Result<Vec<bool>> {
        self.write(items, |tx, items| Box::pin(ask(tx, items)))
            .await
    }

    async fn claim_runs(&self, query: ClaimRuns) -> store::Result<ClaimedRuns> {
        self.transact(Commit::Relaxed, query, |tx, query| {
            Box::pin(claim(tx, query))
        })
        .await
    }

    async fn advance_runs(
        &self,
        boot: BootId,
        items: Vec<AdvanceRun>,
    ) -> store::Result<Vec<AdvanceOutcome>> {
        self.write((boot, items), |tx, (boot, items)| {
            Box::pin(advance(tx, boot, items))
        })
        .await
    }

    async fn release_runs(&self, boot: BootId, keys: Vec<RunKey>) -> store::Result<()> {
        self.write((boot, keys), |tx, (boot, keys)| {
            Box::pin(release(tx, boot, keys))
        })
        .await
    }

    async fn get_runs(&self, keys: Vec<RunKey>) -> store::Result<Vec<Option<RunRecord>>> {
        self.read(|conn| Box::pin(get(conn, keys))).await
    }

    async fn read_asks(&self, keys: Vec<RunKey>) -> store::Result<Vec<Vec<RunAsk>>> {
        self.read(|conn| Box::pin(read_asks(conn, keys))).await
    }

    async fn list_runs(&self, query: ListRuns) -> store::Result<Page<RunRecord>> {
        self.read(|conn| Box::pin(list(conn, query))).await
    }

    async fn read_nodes(&self, query: ReadNodes) -> store::Result<Vec<NodeRecord>> {
        self.read(|conn| Box::pin(nodes(conn, query))).await
    }

    async fn forget_runs(&self, keys: Vec<RunKey>) -> store::Result<u64> {
        self.write(keys, |tx, keys| Box::pin(forget(tx, keys)))
            .await
    }

    async fn live_leaves(&self, key: RunKey) -> store::Result<Vec<SendId>> {
        self.read(move |conn| Box::pin(live_leaves(conn, key)))
            .await
    }

    async fn read_run_steps(
        &self,
        key: RunKey,
        after: i64,
        limit: u32,
    ) -> store::Result<Vec<RunStep>> {
        self.read(move |conn| Box::pin(steps(conn, key, after, limit)))
            .await
    }
}

mod advance;
mod reads;

pub(crate) use advance::advance;
pub(crate) use reads::{dump, get, list, live_leaves, nodes, read_asks, steps};

/// Creates runs one after the other.
pub(crate) async fn create(tx: &mut Tx, items: Vec<NewRun>) -> Result<Vec<CreateRunOutcome>> {
    let mut outcomes = Vec::with_capacity(items.len());
    for item in items {
        outcomes.push(create_one(tx, item).await?);
    }
    Ok(outcomes)
}

pub(crate) async fn create_one(tx: &mut Tx, new: NewRun) -> Result<CreateRunOutcome> {
    let RunKey { tenant, run } = new.key;
    if let Some(key) = &new.idempotency {
        match accept::seen(tx, key).await? {
            Seen::Never => {}
            Seen::Before(run) => return Ok(CreateRunOutcome::Replayed(RunId(run))),
            Seen::OtherBody => return Ok(CreateRunOutcome::Mismatch),
        }
    }
    if let Some(session) = new.session {
        let lives: bool = query_scalar(sql!("runs/session_lives"))
            .bind(tenant.0)
            .bind(session.0)
            .fetch_one(tx.conn())
            .await?;
        if !lives {
            return Ok(CreateRunOutcome::SessionNotFound);
        }
    }
    if let Some(key) = &new.idempotency {
        accept::remember(tx, key, run.0).await?;
    }
    let record = new.record(tx.now);
    statement(sql!("runs/create"))
        .bind(tenant.0)
        .bind(run.0)
        .bind(record.name.clone())
        .bind(record.status.as_str())
        .bind(json(&record.spec)?)
        .bind(record.dsl_version)
        .bind(json(&record.input)?)
        .bind(json(&record.options)?)
        .bind(record.session.map(|session| session.0))
        .bind(record.reports_to.clone())
        .bind(record.depth)
        .bind(record.attempt)
        .bind(json(&record.usage)?)
        .bind(json(&record.counts)?)
        .bind(record.alarm_at.map(|at| at.0))
        .bind(record.created_at.0)
        .execute(tx.conn())
        .await?;
    Ok(CreateRunOutcome::Created(Box::new(record)))
}

/// Removes runs that are final. Returns the number of removed rows.
pub(crate) async fn forget(tx: &mut Tx, keys: Vec<RunKey>) -> Result<u64> {
    let mut rows = 0;
    for key in keys {
        let gone = remove(tx, sql!("runs/forget"), key).await?;
        if gone == 0 {
            continue;
        }
        rows += gone;
        rows += remove(tx, sql!("runs/forget_nodes"), key).await?;
        rows += remove(tx, sql!("runs/forget_asks"), key).await?;
        rows += remove(tx, sql!("runs/forget_steps"), key).await?;
    }
    Ok(rows)
}

async fn remove(tx: &mut Tx, sql: &'static Statement, key: RunKey) -> Result<u64> {
    let done = statement(sql).bind(key.tenant.0).bind(key.run.0);
    Ok(done.execute(tx.conn()).await?.rows_affected())
}

/// Stores requests to runs.
pub(crate) async fn ask(tx: &mut Tx, items: Vec<(RunKey, RunAsk)>) -> Result<Vec<bool>> {
    let now = tx.now;
    let mut outcomes = Vec::with_capacity(items.len());
    for (key, ask) in items {
        let done = statement(sql!("runs/ask"))
            .bind(key.tenant.0)
            .bind(key.run.0)
            .bind(json(&ask)?)
            .bind(now.0)
            .execute(tx.conn())
            .await?;
        outcomes.push(done.rows_affected() > 0);
    }
    Ok(outcomes)
}

/// Asks the runs of a deleted session to end.
pub(crate) async fn cancel_of(tx: &mut Tx, key: SessionKey) -> Result<()> {
    let now = tx.now;
    statement(sql!("runs/ask_of_session"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(json(&RunAsk::session_deleted())?)
        .bind(now.0)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Claims runs that have to be advanced.
pub(crate) async fn claim(tx: &mut Tx, claim: ClaimRuns) -> Result<ClaimedRuns> {
    let now = tx.now;
    let aside = claim.aside.iter().map(|key| {
        let run = key.run.0.simple().to_string().to_uppercase();
        serde_json::json!([key.tenant.0, run])
    });
    let found: Vec<(i32, Uuid, i64, i32)> = query_as(
        sql!("runs/claimable"),
        ["tenant", "run_id", "step", "claims"],
    )
    .bind(now.0)
    .bind(claim.boot.0)
    .bind(claim.limit)
    .bind(claim.dsl_max)
    .bind(json(&aside.collect::<Vec<_>>())?)
    .fetch_all(tx.conn())
    .await?;
    let share = claim.share(found.len());
    let mut runs = Vec::with_capacity(found.len());
    for (tenant, run, step, claims) in found {
        let key = RunKey {
            tenant: TenantId(tenant),
            run: RunId(run),
        };
        runs.extend(own(tx, key, (step, claims), &claim, share).await?);
    }
    let next: Option<i64> = query_scalar(sql!("runs/next_alarm"))
        .bind(now.0)
        .fetch_one(tx.conn())
        .await?;
    Ok(ClaimedRuns {
        runs,
        now,
        next_alarm: next.map(Timestamp),
    })
}

/// Claims a run and reads its news; none if another scheduler was quicker.
async fn own(
    tx: &mut Tx,
    key: RunKey,
    (step, claims): (i64, i32),
    claim: &ClaimRuns,
    share: u32,
) -> Result<Option<RunNews>> {
    let now = tx.now;
    let owned = statement(sql!("runs/own"))
        .bind(key.tenant.0)
        .bind(key.run.0)
        .bind(claim.boot.0)
        .bind(step)
        .bind(now.0)
        .execute(tx.conn())
        .await?;
    if owned.rows_affected() == 0 {
        return Ok(None);
    }
    let mut news = RunNews {
        key,
        step,
        claims,
        ends: Vec::new(),
        asks: Vec::new(),
        unreadable_asks: Vec::new(),
        unreadable: false,
        live_max: None,
    };
    ended(tx, &mut news, share).await?;
    asked(tx, &mut news).await?;
    news.live_max = match claim.leaves_max {
        Some(max) => {
            let (all, own) = live(tx, key).await?;
            Some(left_to_run(max, all, own))
        }
        None => None,
    };
    Ok(Some(news))
}

async fn takes_sends(tx: &mut Tx, key: SessionKey) -> Result<bool> {
    let takes = query_scalar(sql!("runs/takes_sends"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .fetch_one(tx.conn())
        .await?;
    Ok(takes)
}

/// Number of leaves in progress in all runs of a run's tenant, and in the run itself. A leaf counts
/// until an advance has recorded its end.
async fn live(tx: &mut Tx, key: RunKey) -> Result<(u64, u64)> {
    let found: (i64, i64) = query_as(sql!("runs/live"), ["all_live", "own_live"])
        .bind(key.tenant.0)
        .bind(key.run.0)
        .fetch_one(tx.conn())
        .await?;
    Ok((found.0.unsigned_abs(), found.1.unsigned_abs()))
}

async fn ended(tx: &mut Tx, news: &mut RunNews, limit: u32) -> Result<()> {
    let key = news.key;
    let rows = statement(sql!("runs/ended"))
        .bind(key.tenant.0)
        .bind(key.run.0)
        .bind(limit)
        .fetch_all(tx.conn())
        .await?;
    for row in &rows {
        match rows::send(&mut Cells::new(row, "sends")) {
            Ok(send) => news.ends.extend(EndedLeaf::of(send)),
            Err(fault) => {
                skipped(&fault);
                news.unreadable = true;
                let mut cells = Cells::new(row, "sends");
                let send = cells.send_id()?;
                let (path, attempt) = (cells.get("run_path")?, cells.get("run_attempt")?);
                news.ends.push(EndedLeaf::unreadable(send, path, attempt));
            }
        }
    }
    Ok(())
}

/// Reads the requests to a run, in order.
async fn asked(tx: &mut Tx, news: &mut RunNews) -> Result<()> {
    let rows = statement(sql!("runs/asks"))
        .bind(news.key.tenant.0)
        .bind(news.key.run.0)
        .fetch_all(tx.conn())
        .await?;
    for row in &rows {
        let mut cells = Cells::new(row, "run_asks");
        let id: i64 = cells.get("ask_id")?;
        match cells.json("ask") {
            Ok(ask) => news.asks.push((id, ask)),
            Err(fault) => {
                skipped(&fault);
                news.unreadable = true;
                news.unreadable_asks.push(id);
            }
        }
    }
    Ok(())
}

/// The requests to a run, in order.
async fn asks(conn: &mut Conn, key: RunKey) -> Result<Vec<(i64, RunAsk)>> {
    let rows = statement(sql!("runs/asks"))
        .bind(key.tenant.0)
        .bind(key.run.0)
        .fetch_all(conn)
        .await?;
    let asks = rows.iter().map(|row| {
        let mut cells = Cells::new(row, "run_asks");
        Ok((cells.get("ask_id")?, cells.json("ask")?))
    });
    asks.collect()
}

/// Releases runs that the boot owns.
pub(crate) async fn release(tx: &mut Tx, boot: BootId, keys: Vec<RunKey>) -> Result<()> {
    for key in keys {
        statement(sql!("runs/release"))
            .bind(key.tenant.0)
            .bind(key.run.0)
            .bind(boot.0)
            .execute(tx.conn())
            .await?;
    }
    Ok(())
}

/// Reads `{run}`.
pub(crate) fn record(cells: &mut Cells<'_>) -> Result<RunRecord> {
    let key = RunKey {
        tenant: TenantId(cells.get("tenant")?),
        run: RunId(cells.get("run_id")?),
    };
    record_fields(cells, key).map_err(|fault| fault.of_row(|| key.to_string()))
}

fn record_fields(cells: &mut Cells<'_>, key: RunKey) -> Result<RunRecord> {
    Ok(RunRecord {
        key,
        name: cells.get("name")?,
        status: cells.word("status", RunStatus::parse)?,
        spec: cells.json("spec")?,
        dsl_version: cells.get("dsl_version")?,
        input: cells.json("input")?,
        options: cells.json("options")?,
        session: {
            let session: Option<Uuid> = cells.get("session_id")?;
            session.map(SessionId)
        },
        reports_to: cells.get("reports_to")?,
        depth: cells.get("depth")?,
        attempt: cells.get("attempt")?,
        result: cells.json_opt("result")?,
        error: cells.json_opt("error")?,
        usage: cells.json("usage")?,
        counts: cells.json("counts")?,
        alarm_at: cells.time_opt("alarm_at")?,
        created_at: cells.time("created_at")?,
        started_at: cells.time_opt("started_at")?,
        finished_at: cells.time_opt("finished_at")?,
    })
}

fn node(row: &Row) -> Result<NodeRecord> {
    Cells::new(row, "run_nodes").json("node")
}
