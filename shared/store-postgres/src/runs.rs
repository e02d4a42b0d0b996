//! Runs: creating, asking, claiming and releasing them.

use async_trait::async_trait;
use mainspring_shared::store::{
    AdvanceOutcome, AdvanceRun, ListRuns, Page, ReadNodes, RunStep, Runs,
};
use mainspring_shared::workflow::run::NodeRecord;

use crate::store::PostgresStore;
mod advance;
mod reads;

use std::collections::{BTreeMap, BTreeSet};

use mainspring_shared::id::{BootId, RunId, RunKey, SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::store::{
    ClaimRuns, ClaimedRuns, CreateRunOutcome, EndedLeaf, Error, NewRun, Result, RunNews,
    left_to_run,
};
use mainspring_shared::time::Timestamp;
use mainspring_shared::workflow::run::{RunAsk, RunRecord, RunStatus};
use sqlx::{Connection, PgConnection, Row};
use uuid::Uuid;

use crate::accept::lookup;
use crate::columns::{KeyColumns, json, maybe_text, text};
use crate::fault::Fault;
use crate::group::{Effect, Group, drive};
use crate::ledger::now;
use crate::retry::{Attempts, Pool, Verdict, execute, fetch, sql};
use crate::rows::{Fields, skipped};

#[async_trait]
impl Runs for PostgresStore {
    async fn create_runs(&self, items: Vec<NewRun>) -> Result<Vec<CreateRunOutcome>> {
        create(&self.pools.writers, self.at, &items).await
    }

    async fn ask_runs(&self, items: Vec<(RunKey, RunAsk)>) -> Result<Vec<bool>> {
        ask(&self.pools.writers, self.at, &items).await
    }

    async fn claim_runs(&self, query: ClaimRuns) -> Result<ClaimedRuns> {
        claim(&self.pools.claimers, self.at, query).await
    }

    async fn advance_runs(
        &self,
        boot: BootId,
        items: Vec<AdvanceRun>,
    ) -> Result<Vec<AdvanceOutcome>> {
        advance(&self.pools.writers, self.at, boot, &items).await
    }

    async fn release_runs(&self, boot: BootId, keys: Vec<RunKey>) -> Result<()> {
        release(&self.pools.writers, boot, &keys).await
    }

    async fn get_runs(&self, keys: Vec<RunKey>) -> Result<Vec<Option<RunRecord>>> {
        get(&self.pools.claimers, &keys).await
    }

    async fn read_asks(&self, keys: Vec<RunKey>) -> Result<Vec<Vec<RunAsk>>> {
        read_asks(&self.pools.claimers, &keys).await
    }

    async fn list_runs(&self, query: ListRuns) -> Result<Page<RunRecord>> {
        list(&self.pools.readers, &query).await
    }

    async fn read_nodes(&self, query: ReadNodes) -> Result<Vec<NodeRecord>> {
        nodes(&self.pools.claimers, &query).await
    }

    async fn forget_runs(&self, keys: Vec<RunKey>) -> Result<u64> {
        forget(&self.pools.writers, &keys).await
    }

    async fn live_leaves(&self, key: RunKey) -> Result<Vec<SendId>> {
        live_leaves(&self.pools.claimers, key).await
    }

    async fn read_run_steps(&self, key: RunKey, after: i64, limit: u32) -> Result<Vec<RunStep>> {
        steps(&self.pools.streamers, key, after, limit).await
    }
}

pub(crate) use advance::advance;
pub(crate) use reads::{dump, get, list, live_leaves, nodes, read_asks, steps};

pub(crate) async fn create(
    pool: &Pool,
    at: Option<Timestamp>,
    items: &[NewRun],
) -> Result<Vec<CreateRunOutcome>> {
    drive(pool, &Create { at }, items).await
}

/// Creates runs without idempotency keys, within the caller's transaction.
pub(crate) async fn create_within(
    tx: &mut PgConnection,
    now: Timestamp,
    items: &[NewRun],
) -> std::result::Result<Vec<CreateRunOutcome>, Fault> {
    if items.is_empty() {
        return Ok(Vec::new());
    }
    let items: Vec<&NewRun> = items.iter().collect();
    let outcomes = Create { at: Some(now) }.store(tx, &items).await?;
    let outcomes = outcomes.into_iter();
    // A run without a key cannot be a repeat.
    Ok(outcomes
        .map(|outcome| outcome.unwrap_or(CreateRunOutcome::Mismatch))
        .collect())
}

struct Create {
    at: Option<Timestamp>,
}

impl Effect for CreateRunOutcome {
    fn took_effect(&self) -> bool {
        matches!(self, Self::Created(_))
    }
}

impl Group for Create {
    type Item = NewRun;
    type Outcome = CreateRunOutcome;
    type Seen = BTreeSet<(TenantId, String, String)>;

    /// Of two runs with the same key, the second must find the first.
    fn conflicts_with(&self, item: &NewRun, seen: &mut Self::Seen) -> bool {
        let key = item.idempotency.as_ref();
        key.is_some_and(|key| !seen.insert((key.tenant, key.route.clone(), key.key.clone())))
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        items: &[&NewRun],
    ) -> std::result::Result<Vec<Option<CreateRunOutcome>>, Fault> {
        let mut outcomes = self.store(connection, items).await?;
        let met = items.iter().enumerate().zip(&outcomes);
        let met = met.filter_map(|((index, item), outcome)| match outcome {
            Some(CreateRunOutcome::Created(_)) => None,
            _ => Some((index, item.idempotency.as_ref()?)),
        });
        for (index, known) in lookup(connection, met.collect()).await? {
            outcomes[index] = Some(if known.same_request {
                CreateRunOutcome::Replayed(RunId(known.resource))
            } else {
                CreateRunOutcome::Mismatch
            });
        }
        Ok(outcomes)
    }

    async fn read_back(
        &self,
        connection: &mut PgConnection,
        items: &[&NewRun],
    ) -> std::result::Result<Vec<Option<CreateRunOutcome>>, Fault> {
        let keys: Vec<RunKey> = items.iter().map(|item| item.key).collect();
        let (tenants, runs) = run_columns(&keys);
        let rows = sql!("runs/get")
            .bind(tenants)
            .bind(runs)
            .fetch_all(connection)
            .await?;
        let mut found: Vec<_> = items.iter().map(|_| None).collect();
        for row in &rows {
            let mut fields = Fields::new(row, "runs");
            let ord = fields.ord()?;
            let run = fields.run()?;
            found[ord] = Some(CreateRunOutcome::Created(Box::new(run)));
        }
        Ok(found)
    }

    fn unsettled(&self, _: &NewRun) -> Result<CreateRunOutcome> {
        Err(Error::Unavailable {
            source: "an idempotency key was taken and freed again and again".into(),
        })
    }
}

impl Create {
    /// Creates the runs. `None` for a run whose key exists already.
    async fn store(
        &self,
        connection: &mut PgConnection,
        items: &[&NewRun],
    ) -> std::result::Result<Vec<Option<CreateRunOutcome>>, Fault> {
        let records: Vec<RunRecord> = items.iter().map(|i| i.record(Timestamp(0))).collect();
        let keys: Vec<RunKey> = items.iter().map(|item| item.key).collect();
        let (tenants, runs) = run_columns(&keys);
        let rows = || records.iter();
        let query = sql!("runs/create")
            .bind(self.at.map(|at| at.0))
            .bind(tenants)
            .bind(runs)
            .bind(
                rows()
                    .map(|r| text(&r.name).into_owned())
                    .collect::<Vec<_>>(),
            )
            .bind(rows().map(|r| r.status.as_str()).collect::<Vec<_>>())
            .bind(rows().map(|r| json(&r.spec)).collect::<Vec<_>>())
            .bind(rows().map(|r| r.dsl_version).collect::<Vec<_>>())
            .bind(rows().map(|r| json(&r.input)).collect::<Vec<_>>())
            .bind(rows().map(|r| json(&r.options)).collect::<Vec<_>>())
            .bind(rows().map(|r| r.session.map(|s| s.0)).collect::<Vec<_>>())
            .bind(
                rows()
                    .map(|r| maybe_text(r.reports_to.as_deref()))
                    .collect::<Vec<_>>(),
            )
            .bind(rows().map(|r| r.depth).collect::<Vec<_>>())
            .bind(rows().map(|r| json(&r.usage)).collect::<Vec<_>>())
            .bind(rows().map(|r| json(&r.counts)).collect::<Vec<_>>());
        let mut columns = KeyColumns::default();
        for item in items {
            columns.push(item.idempotency.as_ref());
        }
        let answers = columns.bind(query).fetch_all(connection).await?;
        let mut outcomes: Vec<_> = items.iter().map(|_| None).collect();
        for row in &answers {
            let mut fields = Fields::new(row, "runs");
            let ord = fields.ord()?;
            let alive: bool = fields.take("alive")?;
            let created_at = fields.maybe_time("created_at")?;
            outcomes[ord] = match created_at {
                Some(now) => Some(CreateRunOutcome::Created(Box::new(items[ord].record(now)))),
                None if !alive => Some(CreateRunOutcome::SessionNotFound),
                None => None,
            };
        }
        Ok(outcomes)
    }
}

pub(crate) async fn ask(
    pool: &Pool,
    at: Option<Timestamp>,
    items: &[(RunKey, RunAsk)],
) -> Result<Vec<bool>> {
    let keys: Vec<RunKey> = items.iter().map(|(key, _)| *key).collect();
    let asks: Vec<String> = items.iter().map(|(_, ask)| json(ask)).collect();
    let (tenants, runs) = run_columns(&keys);
    // An ask that is stored twice, because a response was lost, is harmless: the second one finds
    // the run as the first left it.
    let rows = fetch(pool, || {
        sql!("runs/ask")
            .bind(at.map(|at| at.0))
            .bind(tenants.clone())
            .bind(runs.clone())
            .bind(asks.clone())
    })
    .await?;
    let mut known = vec![false; items.len()];
    for row in &rows {
        known[Fields::new(row, "run_asks").ord()?] = true;
    }
    Ok(known)
}

/// Asks the runs of a session that is being deleted to end.
pub(crate) async fn cancel_of(
    connection: &mut PgConnection,
    now: Timestamp,
    key: SessionKey,
) -> std::result::Result<(), Fault> {
    sql!("runs/ask_of_session")
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(json(&RunAsk::session_deleted()))
        .bind(now.0)
        .execute(connection)
        .await?;
    Ok(())
}

pub(crate) async fn claim(
    pool: &Pool,
    at: Option<Timestamp>,
    claim: ClaimRuns,
) -> Result<ClaimedRuns> {
    let mut attempts = Attempts::default();
    loop {
        let claimed = attempts.on(pool, async |connection| {
            claim_once(connection, at, &claim).await
        });
        match claimed.await {
            Ok(claimed) => return Ok(claimed),
            Err(fault) => match attempts.weigh(fault)? {
                // Runs that a lost attempt claimed belong to the boot and are returned again.
                Verdict::Again | Verdict::Lost => {}
                Verdict::BadData(error) => return Err(error),
            },
        }
    }
}

async fn claim_once(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    claim: &ClaimRuns,
) -> std::result::Result<ClaimedRuns, Fault> {
    let mut tx = connection.begin().await?;
    let now = now(&mut tx, at).await?;
    let (aside_tenants, aside) = run_columns(&claim.aside);
    let rows = sql!("runs/claim")
        .bind(now.0)
        .bind(claim.boot.0)
        .bind(i64::from(claim.limit))
        .bind(claim.dsl_max)
        .bind(aside_tenants)
        .bind(aside)
        .fetch_all(&mut *tx)
        .await?;
    let mut runs = Vec::with_capacity(rows.len());
    for row in &rows {
        let mut fields = Fields::new(row, "runs");
        let key = fields.run_key()?;
        runs.push(RunNews {
            key,
            step: fields.take("step")?,
            claims: fields.take("claims")?,
            ends: Vec::new(),
            asks: Vec::new(),
            unreadable_asks: Vec::new(),
            unreadable: false,
            live_max: None,
        });
    }
    if !runs.is_empty() {
        read_news(&mut tx, &mut runs, claim).await?;
        if let Some(max) = claim.leaves_max {
            let live = Live::read(&mut tx, runs.iter().map(|run| run.key)).await?;
            for run in &mut runs {
                let (all, own) = live.of(run.key);
                run.live_max = Some(left_to_run(max, all, own));
            }
        }
    }
    let row = sql!("runs/next_alarm")
        .bind(now.0)
        .fetch_one(&mut *tx)
        .await?;
    let next_alarm = Fields::new(&row, "runs").maybe_time("alarm_at")?;
    tx.commit().await?;
    Ok(ClaimedRuns {
        runs,
        now,
        next_alarm,
    })
}

/// Reads the news of claimed runs. A separate statement, so that it sees what the previous owner
/// recorded.
async fn read_news(
    connection: &mut PgConnection,
    runs: &mut [RunNews],
    claim: &ClaimRuns,
) -> std::result::Result<(), Fault> {
    let keys: Vec<RunKey> = runs.iter().map(|run| run.key).collect();
    let (tenants, ids) = run_columns(&keys);
    let rows = sql!("runs/ended")
        .bind(tenants.clone())
        .bind(ids.clone())
        .bind(i64::from(claim.share(keys.len())))
        .fetch_all(&mut *connection)
        .await?;
    for row in &rows {
        let mut fields = Fields::new(row, "sends");
        let ord = fields.ord()?;
        match fields.send() {
            Ok(send) => runs[ord].ends.extend(EndedLeaf::of(send)),
            Err(error) => {
                skipped(&error);
                runs[ord].unreadable = true;
                let send = SendId(row.try_get("send_id")?);
                let (path, attempt) = (row.try_get("run_path")?, row.try_get("run_attempt")?);
                runs[ord]
                    .ends
                    .push(EndedLeaf::unreadable(send, path, attempt));
            }
        }
    }
    let rows = sql!("runs/asks")
        .bind(tenants)
        .bind(ids)
        .fetch_all(connection)
        .await?;
    for row in &rows {
        let mut fields = Fields::new(row, "run_asks");
        let ord = fields.ord()?;
        let id: i64 = fields.take("ask_id")?;
        match fields.json("ask") {
            Ok(ask) => runs[ord].asks.push((id, ask)),
            Err(error) => {
                skipped(&error);
                runs[ord].unreadable = true;
                runs[ord].unreadable_asks.push(id);
            }
        }
    }
    Ok(())
}

/// The number of leaves in flight per run, as recorded by advances.
#[derive(Clone)]
struct Live(BTreeMap<RunKey, u64>);

impl Live {
    /// Reads the numbers for all live runs of these runs' tenants.
    async fn read(
        connection: &mut PgConnection,
        keys: impl Iterator<Item = RunKey>,
    ) -> std::result::Result<Self, Fault> {
        let rows = sql!("runs/live")
            .bind(keys.map(|key| key.tenant.0).collect::<Vec<_>>())
            .fetch_all(connection)
            .await?;
        let mut live = BTreeMap::new();
        for row in &rows {
            let mut fields = Fields::new(row, "runs");
            let key = fields.run_key()?;
            let count: i64 = fields.take("live")?;
            live.insert(key, count.unsigned_abs());
        }
        Ok(Self(live))
    }

    /// The number for all runs of a run's tenant, and for the run itself.
    fn of(&self, key: RunKey) -> (u64, u64) {
        let same = self.0.iter().filter(|(of, _)| of.tenant == key.tenant);
        let own = self.0.get(&key).copied().unwrap_or_default();
        (same.map(|(_, live)| live).sum(), own)
    }

    fn set(&mut self, key: RunKey, live: u64) {
        self.0.insert(key, live);
    }
}

pub(crate) async fn release(pool: &Pool, boot: BootId, keys: &[RunKey]) -> Result<()> {
    let (tenants, runs) = run_columns(keys);
    execute(pool, || {
        sql!("runs/release")
            .bind(boot.0)
            .bind(tenants.clone())
            .bind(runs.clone())
    })
    .await?;
    Ok(())
}

fn run_columns(keys: &[RunKey]) -> (Vec<i32>, Vec<Uuid>) {
    keys.iter().map(|key| (key.tenant.0, key.run.0)).unzip()
}

impl Fields<'_> {
    /// The columns `tenant, run_id`.
    pub(crate) fn run_key(&mut self) -> Result<RunKey> {
        let tenant = TenantId(self.take("tenant")?);
        let run = RunId(self.take("run_id")?);
        Ok(RunKey { tenant, run })
    }

    /// Reads `{run}`.
    pub(crate) fn run(&mut self) -> Result<RunRecord> {
        let key = self.run_key()?;
        self.name_row(key.to_string());
        Ok(RunRecord {
            key,
            name: self.take("name")?,
            status: self.name("status", RunStatus::parse)?,
            spec: self.json("spec")?,
            dsl_version: self.take("dsl_version")?,
            input: self.json("input")?,
            options: self.json("options")?,
            session: {
                let session: Option<Uuid> = self.take("session_id")?;
                session.map(SessionId)
            },
            reports_to: self.take("reports_to")?,
            depth: self.take("depth")?,
            attempt: self.take("attempt")?,
            result: self.maybe_json("result")?,
            error: self.maybe_json("error")?,
            usage: self.json("usage")?,
            counts: self.json("counts")?,
            alarm_at: self.maybe_time("alarm_at")?,
            created_at: self.time("created_at")?,
            started_at: self.maybe_time("started_at")?,
            finished_at: self.maybe_time("finished_at")?,
        })
    }
}

/// Deletes final runs; returns the number of deleted rows.
pub(crate) async fn forget(pool: &Pool, keys: &[RunKey]) -> Result<u64> {
    let tenants: Vec<i32> = keys.iter().map(|key| key.tenant.0).collect();
    let runs: Vec<Uuid> = keys.iter().map(|key| key.run.0).collect();
    let rows = fetch(pool, || {
        sql!("runs/forget").bind(tenants.clone()).bind(runs.clone())
    })
    .await?;
    let removed = rows
        .iter()
        .map(|row| Fields::new(row, "runs").take("removed"));
    let removed: Vec<i64> = removed.collect::<Result<_>>()?;
    Ok(removed.iter().sum::<i64>().unsigned_abs())
}
