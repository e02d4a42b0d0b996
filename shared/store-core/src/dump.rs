//! A dump of the whole content in a fixed order.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use mainspring_shared::id::{SendId, SessionKey, TenantId};
use mainspring_shared::store::{self, COUNT_TENANT_ROWS, Dump, DumpSession, Inspect};
use mainspring_shared::time::Timestamp;
use mainspring_shared::usage::Usage;

use crate::db::{Conn, Statement, parts, sql};
use crate::extractions;
use crate::fault::Result;
use crate::folds;
use crate::hot;
use crate::lists;
use crate::memories;
use crate::projections;
use crate::query::{query_as, statement};
use crate::row::Row;
use crate::rows::{self, Cells};
use crate::runs;
use crate::store::SqlStore;
use crate::timers;
use crate::{agents, blobs, money, seats, skills, tenants};

#[async_trait]
impl Inspect for SqlStore {
    fn at(&self, now: Timestamp) -> Arc<dyn Inspect> {
        Arc::new(Self {
            at: Some(now),
            ..self.clone()
        })
    }

    async fn dump(&self) -> store::Result<Dump> {
        self.snapshot(|conn| Box::pin(all(conn))).await
    }

    async fn rows_of(&self, tenant: TenantId) -> store::Result<BTreeMap<String, u64>> {
        self.read(move |conn| {
            Box::pin(async move {
                let found: Vec<(String, i64)> = query_as(
                    parts!(("tenants/rows_of", COUNT_TENANT_ROWS)),
                    ["kind", "count"],
                )
                .bind(tenant.0)
                .fetch_all(conn)
                .await?;
                let found = found.into_iter().filter(|(_, count)| *count > 0);
                Ok(found
                    .map(|(table, count)| (table, count.unsigned_abs()))
                    .collect())
            })
        })
        .await
    }
}

/// Reads everything. The caller passes a connection with a snapshot.
async fn all(conn: &mut Conn) -> Result<Dump> {
    let boots = fetch(conn, sql!("boots/dump")).await?;
    let boots = boots.iter().map(rows::boot).collect::<Result<_>>()?;
    let mut sessions = BTreeMap::new();
    for row in fetch(conn, sql!("sessions/dump")).await? {
        let session = session(&row)?;
        sessions.insert(session.key, session);
    }
    for row in fetch(conn, sql!("sends/dump")).await? {
        let send = rows::send(&mut Cells::new(&row, "sends"))?;
        put(&mut sessions, send.key, |session| session.sends.push(send));
    }
    for row in fetch(conn, sql!("messages/dump")).await? {
        let (key, message) = rows::message(&row)?;
        put(&mut sessions, key, |session| session.messages.push(message));
    }
    for row in fetch(conn, sql!("folds/dump")).await? {
        let (key, fold) = folds::read(&row)?;
        put(&mut sessions, key, |session| session.folds.push(fold));
    }
    for row in fetch(conn, sql!("projections/dump")).await? {
        let (key, projection) = projections::read(&row)?;
        put(&mut sessions, key, |session| {
            session.projections.push(projection);
        });
    }
    for row in fetch(conn, sql!("steps/dump")).await? {
        let (key, step) = rows::step(&row)?;
        put(&mut sessions, key, |session| session.steps.push(step));
    }
    for row in fetch(conn, sql!("calls/dump")).await? {
        let (key, call) = rows::call(&row)?;
        put(&mut sessions, key, |session| session.calls.push(call));
    }
    for row in fetch(conn, sql!("inbox/dump")).await? {
        let (key, item) = rows::item(&row)?;
        put(&mut sessions, key, |session| session.inbox.push(item));
    }
    for row in fetch(conn, sql!("usage/dump")).await? {
        let (key, row, usage) = usage(&row)?;
        put(&mut sessions, key, |session| {
            session.usage.push(row);
            session.paid.push(usage);
        });
    }
    let runs = runs::dump(conn).await?;
    let (memories, memory_erasures) = memories::dump(conn).await?;
    let extractions = extractions::dump(conn).await?;
    let (seat_limits, seats) = seats::dump(conn).await?;
    let money = money::dump(conn).await?;
    Ok(Dump {
        boots,
        sessions: sessions.into_values().collect(),
        blobs: blobs::dump(conn).await?,
        lists: lists::dump(conn).await?,
        memories,
        memory_erasures,
        extractions,
        runs,
        agents: agents::dump(conn).await?,
        skills: skills::dump(conn).await?,
        tenants: tenants::dump(conn).await?,
        seat_limits,
        seats,
        money_aside: money.aside,
        money_days: money.days,
        agent_money_aside: money.agent_aside,
        agent_money_days: money.agent_days,
        timers: timers::dump(conn).await?,
    })
}

async fn fetch(conn: &mut Conn, sql: &'static Statement) -> Result<Vec<Row>> {
    statement(sql).fetch_all(conn).await
}

/// Adds to a session. Rows of sessions without a hot row are not part of a dump.
fn put(
    sessions: &mut BTreeMap<SessionKey, DumpSession>,
    key: SessionKey,
    add: impl FnOnce(&mut DumpSession),
) {
    if let Some(session) = sessions.get_mut(&key) {
        add(session);
    }
}

fn session(row: &Row) -> Result<DumpSession> {
    let mut cells = Cells::new(row, "session_hot");
    let hot = hot::read(&mut cells)?;
    let mut cells = cells.of("sessions");
    Ok(DumpSession {
        key: hot.key,
        hot,
        first_seq: cells.get("first_seq")?,
        agent_version: cells.get("agent_version")?,
        sends: Vec::new(),
        messages: Vec::new(),
        folds: Vec::new(),
        projections: Vec::new(),
        steps: Vec::new(),
        calls: Vec::new(),
        inbox: Vec::new(),
        parent: rows::parent(&mut cells)?,
        retired_steps: cells.get("retired_steps")?,
        erasing: cells.get("erasing")?,
        usage: Vec::new(),
        paid: Vec::new(),
    })
}

fn usage(row: &Row) -> Result<(SessionKey, (SendId, i32, i32), Usage)> {
    let mut cells = Cells::new(row, "usage_rows");
    let key = cells.key()?;
    let send = cells.send_id()?;
    let row = (send, cells.get("round")?, cells.get("attempt")?);
    Ok((key, row, cells.json("usage")?))
}
