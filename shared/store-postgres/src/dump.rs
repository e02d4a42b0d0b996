//! A dump of the whole content in a fixed order.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use mainspring_shared::id::{SendId, SessionKey, TenantId};
use mainspring_shared::session::hot::HotRow;
use mainspring_shared::store::{COUNT_TENANT_ROWS, Dump, DumpSession, Inspect, Result};
use mainspring_shared::time::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection};

use crate::fault::Fault;
use crate::ledger::Hot;
use crate::lists;
use crate::memories;
use crate::retry::{Attempts, Pool, Verdict, fetch, sql};
use crate::rows::Fields;
use crate::runs;
use crate::store::PostgresStore;
use crate::timers;
use crate::{agents, blobs, extractions, folds, money, projections, seats, skills};

#[async_trait]
impl Inspect for PostgresStore {
    fn at(&self, now: Timestamp) -> Arc<dyn Inspect> {
        Arc::new(Self {
            at: Some(now),
            ..self.clone()
        })
    }

    async fn dump(&self) -> Result<Dump> {
        dump(&self.pools.auditors).await
    }

    async fn rows_of(&self, tenant: TenantId) -> Result<BTreeMap<String, u64>> {
        let read = || sqlx::query(COUNT_TENANT_ROWS).bind(tenant.0);
        let rows = fetch(&self.pools.auditors, read).await?;
        let mut found = BTreeMap::new();
        for row in &rows {
            let mut fields = Fields::new(row, "tenants");
            let count: i64 = fields.take("count")?;
            if count > 0 {
                found.insert(fields.take("kind")?, count.unsigned_abs());
            }
        }
        Ok(found)
    }
}

async fn dump(pool: &Pool) -> Result<Dump> {
    let mut attempts = Attempts::default();
    loop {
        let dump = attempts.on(pool, async |connection| dump_once(connection).await);
        match dump.await {
            Ok(dump) => return Ok(dump),
            Err(fault) => match attempts.weigh(fault)? {
                Verdict::Again | Verdict::Lost => {}
                Verdict::BadData(error) => return Err(error),
            },
        }
    }
}

type Sessions = BTreeMap<SessionKey, DumpSession>;

async fn dump_once(connection: &mut PgConnection) -> std::result::Result<Dump, Fault> {
    // One snapshot for all tables.
    let mut tx = connection
        .begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        .await?;
    let rows = sql!("reads/dump_boots").fetch_all(&mut *tx).await?;
    let boots = rows.iter().map(|row| Fields::new(row, "boots").boot());
    let boots = boots.collect::<Result<Vec<_>>>()?;
    let rows = sql!("reads/dump_hot").fetch_all(&mut *tx).await?;
    let sessions = rows.iter().map(|row| {
        let session = session(&mut Fields::new(row, "session_hot"))?;
        Ok((session.key, session))
    });
    let mut sessions = sessions.collect::<Result<Sessions>>()?;
    let rows = sql!("reads/dump_sends").fetch_all(&mut *tx).await?;
    add_sends(&mut sessions, &rows)?;
    let rows = sql!("reads/dump_messages").fetch_all(&mut *tx).await?;
    each(&mut sessions, &rows, "messages", |session, fields| {
        session.messages.push(fields.message()?);
        Ok(())
    })?;
    let rows = sql!("reads/dump_folds").fetch_all(&mut *tx).await?;
    each(&mut sessions, &rows, "folds", |session, fields| {
        session.folds.push(folds::after_key(fields)?);
        Ok(())
    })?;
    let rows = sql!("reads/dump_projections").fetch_all(&mut *tx).await?;
    each(&mut sessions, &rows, "projections", |session, fields| {
        session.projections.push(projections::after_key(fields)?);
        Ok(())
    })?;
    let rows = sql!("reads/dump_steps").fetch_all(&mut *tx).await?;
    each(&mut sessions, &rows, "steps", |session, fields| {
        session.steps.push(fields.step()?);
        Ok(())
    })?;
    let rows = sql!("reads/dump_calls").fetch_all(&mut *tx).await?;
    each(&mut sessions, &rows, "tool_calls", |session, fields| {
        session.calls.push(fields.call()?);
        Ok(())
    })?;
    let rows = sql!("reads/dump_inbox").fetch_all(&mut *tx).await?;
    each(&mut sessions, &rows, "inbox", |session, fields| {
        session.inbox.push(fields.item()?);
        Ok(())
    })?;
    let rows = sql!("reads/dump_usage").fetch_all(&mut *tx).await?;
    each(&mut sessions, &rows, "usage_rows", |session, fields| {
        session.usage.push((
            SendId(fields.take("send_id")?),
            fields.take("round")?,
            fields.take("attempt")?,
        ));
        session.paid.push(fields.json("usage")?);
        Ok(())
    })?;
    let rows = sql!("blobs/dump").fetch_all(&mut *tx).await?;
    let blobs = rows.iter().map(blobs::dumped).collect::<Result<_>>()?;
    let rows = sql!("reads/dump_lists").fetch_all(&mut *tx).await?;
    let lists = rows.iter().map(lists::dumped).collect::<Result<_>>()?;
    let extractions = extractions::dump(&mut tx).await?;
    let (memories, memory_erasures) = memories::dump(&mut tx).await?;
    let runs = runs::dump(&mut tx).await?;
    let agents = agents::dump(&mut tx).await?;
    let skills = skills::dump(&mut tx).await?;
    let rows = sql!("reads/dump_tenants").fetch_all(&mut *tx).await?;
    let tenants = rows
        .iter()
        .map(|row| Fields::new(row, "tenants").take("tenant"));
    let tenants = tenants.map(|id| id.map(TenantId)).collect::<Result<_>>()?;
    let (seat_limits, seats) = seats::dump(&mut tx).await?;
    let money = money::dump(&mut tx).await?;
    let timers = timers::dump(&mut tx).await?;
    tx.commit().await?;
    Ok(Dump {
        boots,
        sessions: sessions.into_values().collect(),
        blobs,
        lists,
        memories,
        memory_erasures,
        extractions,
        runs,
        agents,
        skills,
        tenants,
        seat_limits,
        seats,
        money_aside: money.aside,
        money_days: money.days,
        agent_money_aside: money.agent_aside,
        agent_money_days: money.agent_days,
        timers,
    })
}

fn session(fields: &mut Fields<'_>) -> Result<DumpSession> {
    let hot = Hot::read(fields)?;
    let first_seq = fields.take("first_seq")?;
    let agent_version = fields.take("agent_version")?;
    let parent = fields.maybe_parent()?;
    let spent = fields.maybe_json("spent")?;
    let retired_steps = fields.take("retired_steps")?;
    let erasing = fields.take("erasing")?;
    let context_version = fields.take("context_version")?;
    Ok(DumpSession {
        key: hot.row.key,
        hot: HotRow {
            context_version,
            spent,
            ..hot.row
        },
        first_seq,
        erasing,
        agent_version,
        parent,
        sends: Vec::new(),
        messages: Vec::new(),
        folds: Vec::new(),
        projections: Vec::new(),
        steps: Vec::new(),
        retired_steps,
        calls: Vec::new(),
        inbox: Vec::new(),
        usage: Vec::new(),
        paid: Vec::new(),
    })
}

fn add_sends(sessions: &mut Sessions, rows: &[PgRow]) -> Result<()> {
    for row in rows {
        let mut fields = Fields::new(row, "sends");
        let send = fields.send()?;
        if let Some(session) = sessions.get_mut(&send.key) {
            session.sends.push(send);
        }
    }
    Ok(())
}

/// Adds each row, which starts with the key of its session, to that session.
fn each(
    sessions: &mut Sessions,
    rows: &[PgRow],
    table: &'static str,
    mut add: impl FnMut(&mut DumpSession, &mut Fields<'_>) -> Result<()>,
) -> Result<()> {
    for row in rows {
        let mut fields = Fields::new(row, table);
        let key = fields.key()?;
        if let Some(session) = sessions.get_mut(&key) {
            add(session, &mut fields)?;
        }
    }
    Ok(())
}
