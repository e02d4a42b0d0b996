//! Reads.

use async_trait::async_trait;
use mainspring_shared::id::{SendId, SessionKey, TenantId};
use mainspring_shared::message::Message;
use mainspring_shared::send::{SendRecord, SendStatus};
use mainspring_shared::session::fold::Fold;
use mainspring_shared::session::{SessionRecord, SessionStatus};
use mainspring_shared::step::Step;
use mainspring_shared::store;
use mainspring_shared::store::{
    AuditOptions, AuditPiece, Audited, FindMessages, FindSteps, FoundSteps, ListSends,
    ListSessions, ModelUsage, Page, QueueStats, ReadMessages, Reads, ScalingStats, SchemaFault,
    ServerInfo, SessionUsage, Violation,
};
use mainspring_shared::time::Timestamp;
use mainspring_shared::usage::{Purpose, Usage};

use crate::audit;
use crate::audit_pieces;
use crate::db::{Conn, Server, sql};
use crate::fault::{Result, skipped};
use crate::folds;
use crate::query::{query_scalar, statement};
use crate::row::Row;
use crate::rows::{self, Cells, json};
use crate::store::{SqlStore, clock};

#[async_trait]
impl Reads for SqlStore {
    async fn now(&self) -> store::Result<Timestamp> {
        self.read(|conn| Box::pin(clock(conn, self.at))).await
    }

    async fn check(&self) -> store::Result<ServerInfo> {
        self.read(|conn| Box::pin(check(conn))).await
    }

    async fn schema_faults(&self) -> store::Result<Vec<SchemaFault>> {
        self.read(|conn| conn.schema_faults()).await
    }

    async fn last_steps(&self, keys: Vec<SessionKey>) -> store::Result<Vec<i64>> {
        self.read(move |conn| Box::pin(last_steps(conn, keys)))
            .await
    }

    async fn read_messages(&self, query: ReadMessages) -> store::Result<Vec<Message>> {
        self.read(move |conn| Box::pin(messages(conn, query))).await
    }

    async fn read_folds(&self, key: SessionKey) -> store::Result<Vec<Fold>> {
        self.read(move |conn| Box::pin(folds::all(conn, key))).await
    }

    async fn find_messages(&self, query: FindMessages) -> store::Result<Vec<Message>> {
        self.read(move |conn| Box::pin(find(conn, query))).await
    }

    async fn read_steps(
        &self,
        key: SessionKey,
        after: i64,
        limit: u32,
    ) -> store::Result<Vec<Step>> {
        self.read(move |conn| Box::pin(steps(conn, key, after, limit)))
            .await
    }

    async fn index_steps(&self) -> store::Result<()> {
        Ok(self.db.index_steps().await?)
    }

    async fn find_steps(&self, query: FindSteps) -> store::Result<Vec<FoundSteps>> {
        self.read(move |conn| Box::pin(find_steps(conn, query.clone())))
            .await
    }

    async fn queue_stats(&self) -> store::Result<Vec<QueueStats>> {
        self.read(move |conn| Box::pin(queue_stats(conn, self.at)))
            .await
    }

    async fn scaling(&self, pool: &str) -> store::Result<ScalingStats> {
        let pool = pool.to_owned();
        self.read(move |conn| Box::pin(scaling(conn, self.at, pool)))
            .await
    }

    async fn audit(&self, options: AuditOptions) -> store::Result<Vec<Violation>> {
        self.snapshot(move |conn| Box::pin(audit::all(conn, self.at, options)))
            .await
    }

    async fn audit_piece(&self, piece: AuditPiece) -> store::Result<Audited> {
        self.snapshot(move |conn| Box::pin(audit_pieces::check(conn, self.at, piece)))
            .await
    }
}

/// The version of the database, the schema, and the clock.
pub(crate) async fn check(conn: &mut Conn) -> Result<ServerInfo> {
    let Server {
        name,
        schema,
        is_read_only,
    } = conn.server().await?;
    Ok(ServerInfo {
        is_read_only,
        connections_short: None,
        server: name,
        schema,
        now: clock(conn, None).await?,
    })
}

/// The numbers of sessions' last steps.
pub(crate) async fn last_steps(conn: &mut Conn, keys: Vec<SessionKey>) -> Result<Vec<i64>> {
    let mut last = Vec::with_capacity(keys.len());
    for key in keys {
        let step: Option<i64> = query_scalar(sql!("sessions/last_step"))
            .bind(key.tenant.0)
            .bind(key.session.0)
            .fetch_optional(&mut *conn)
            .await?;
        last.push(step.unwrap_or(0));
    }
    Ok(last)
}

/// Sends by id.
pub(crate) async fn sends(
    conn: &mut Conn,
    ids: Vec<(TenantId, SendId)>,
) -> Result<Vec<Option<SendRecord>>> {
    let mut found = Vec::with_capacity(ids.len());
    for (tenant, id) in ids {
        found.push(send(conn, tenant, id).await?);
    }
    Ok(found)
}

/// A send by id.
pub(crate) async fn send(
    conn: &mut Conn,
    tenant: TenantId,
    id: SendId,
) -> Result<Option<SendRecord>> {
    let row = statement(sql!("sends/get"))
        .bind(tenant.0)
        .bind(id.0)
        .fetch_optional(conn)
        .await?;
    let row = row.as_ref();
    row.map(|row| rows::send(&mut Cells::new(row, "sends")))
        .transpose()
}

/// A session as it is now.
pub(crate) async fn session(conn: &mut Conn, key: SessionKey) -> Result<Option<SessionRecord>> {
    let now = clock(conn, None).await?;
    session_at(conn, now, key).await
}

/// A session as it is at `now`.
pub(crate) async fn session_at(
    conn: &mut Conn,
    now: Timestamp,
    key: SessionKey,
) -> Result<Option<SessionRecord>> {
    let row = statement(sql!("sessions/get"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(now.0)
        .fetch_optional(conn)
        .await?;
    row.as_ref().map(session_record).transpose()
}

/// A session as returned to clients.
fn session_record(row: &Row) -> Result<SessionRecord> {
    let mut cells = Cells::new(row, "sessions");
    let key = cells.key()?;
    session_fields(cells, key).map_err(|fault| fault.of_row(|| key.to_string()))
}

fn session_fields(mut cells: Cells<'_>, key: SessionKey) -> Result<SessionRecord> {
    let status = cells.word("status", SessionStatus::parse)?;
    let agent_version = cells.get("agent_version")?;
    let metadata = cells.json("metadata")?;
    let created_at = cells.time("created_at")?;
    let updated_at = cells.time("updated_at")?;
    let messages = cells.get("messages")?;
    let first_seq = cells.get("first_seq")?;
    let mut cells = cells.of("agents");
    let agent = cells.json("spec")?;
    let parent = rows::parent(&mut cells.of("sessions"))?;
    Ok(SessionRecord {
        key,
        status,
        agent,
        agent_version,
        metadata,
        messages,
        first_seq,
        parent,
        created_at,
        updated_at,
    })
}

/// Sessions, newest first.
pub(crate) async fn sessions(conn: &mut Conn, query: ListSessions) -> Result<Page<SessionRecord>> {
    let now = clock(conn, None).await?;
    let rows = statement(sql!("sessions/list"))
        .bind(query.tenant.0)
        .bind(query.before.map(|id| id.0))
        .bind(now.0)
        .bind(query.status.map(SessionStatus::as_str))
        .bind(query.agent)
        .bind(json(&query.metadata)?)
        .bind(i64::from(query.limit) + 1)
        .fetch_all(conn)
        .await?;
    Ok(page(&rows, query.limit, session_record))
}

/// Sends, newest first.
pub(crate) async fn list_sends(conn: &mut Conn, query: ListSends) -> Result<Page<SendRecord>> {
    let sql = match (query.session, query.status) {
        (Some(_), _) => sql!("sends/list_of_session"),
        (None, Some(SendStatus::Failed | SendStatus::Cancelled)) => {
            sql!("sends/list_not_completed")
        }
        (None, _) => sql!("sends/list"),
    };
    let rows = statement(sql)
        .bind(query.tenant.0)
        .bind(query.before.map(|id| id.0))
        .bind(query.status.map(SendStatus::as_str))
        .bind(i64::from(query.limit) + 1)
        .bind(query.session.map(|id| id.0))
        .fetch_all(conn)
        .await?;
    Ok(page(&rows, query.limit, |row| {
        rows::send(&mut Cells::new(row, "sends"))
    }))
}

/// A page of rows, which were queried with one more than the limit. Unreadable rows are left out.
pub(crate) fn page<T>(rows: &[Row], limit: u32, read: impl Fn(&Row) -> Result<T>) -> Page<T> {
    let limit = limit as usize;
    let data = rows.iter().take(limit).map(read);
    let data = data.map(|row| row.inspect_err(skipped));
    let data = data.filter_map(Result::ok).collect();
    let more = rows.len() > limit;
    Page { data, more }
}

/// A page of a transcript.
pub(crate) async fn messages(conn: &mut Conn, query: ReadMessages) -> Result<Vec<Message>> {
    let rows = statement(sql!("messages/read"))
        .bind(query.key.tenant.0)
        .bind(query.key.session.0)
        .bind(query.after)
        .bind(query.limit)
        .fetch_all(conn)
        .await?;
    rows.iter()
        .map(|row| rows::message(row).map(|(_, message)| message))
        .collect()
}

/// Messages of a transcript, newest first.
pub(crate) async fn find(conn: &mut Conn, query: FindMessages) -> Result<Vec<Message>> {
    let rows = statement(sql!("messages/find"))
        .bind(query.key.tenant.0)
        .bind(query.key.session.0)
        .bind(query.after)
        .bind(query.before)
        .bind(query.send.map(|send| send.0))
        .bind(query.call)
        .bind(query.limit)
        .fetch_all(conn)
        .await?;
    rows.iter()
        .map(|row| rows::message(row).map(|(_, message)| message))
        .collect()
}

/// A page of a session's steps.
pub(crate) async fn steps(
    conn: &mut Conn,
    key: SessionKey,
    after: i64,
    limit: u32,
) -> Result<Vec<Step>> {
    let rows = statement(sql!("steps/read"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(after)
        .bind(limit)
        .fetch_all(conn)
        .await?;
    rows.iter()
        .map(|row| rows::step(row).map(|(_, step)| step))
        .collect()
}

/// The steps that were committed within a period.
pub(crate) async fn find_steps(conn: &mut Conn, query: FindSteps) -> Result<Vec<FoundSteps>> {
    let begin = query.begin();
    let rows = statement(sql!("steps/find"))
        .bind(query.from.0)
        .bind(query.until.0)
        .bind(begin.tenant.0)
        .bind(begin.session.0)
        .bind(query.limit)
        .fetch_all(conn)
        .await?;
    let found = |row| {
        let mut cells = Cells::new(row, "steps");
        Ok(FoundSteps {
            key: cells.key()?,
            first: cells.get("first_n")?,
            last: cells.get("last_n")?,
        })
    };
    rows.iter().map(found).collect()
}

/// The child sessions of a session, oldest first.
pub(crate) async fn children(conn: &mut Conn, key: SessionKey) -> Result<Vec<SessionKey>> {
    let rows = statement(sql!("sessions/children"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .fetch_all(conn)
        .await?;
    rows.iter()
        .map(|row| Cells::new(row, "sessions").key())
        .collect()
}

/// The usage of a session and those below it.
pub(crate) async fn usage(conn: &mut Conn, key: SessionKey) -> Result<Option<SessionUsage>> {
    let rows = statement(sql!("sessions/usage"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .fetch_all(conn)
        .await?;
    if rows.is_empty() {
        return Ok(None);
    }
    let mut found = SessionUsage::default();
    for row in &rows {
        let mut cells = Cells::new(row, "usage_rows");
        found.sessions = count(&mut cells, "sessions")?;
        let own: bool = cells.get("own")?;
        let Some(model) = cells.get("model")? else {
            continue;
        };
        let purpose: Option<String> = cells.get("purpose")?;
        let part = ModelUsage {
            model,
            purpose: Purpose::stored(purpose.as_deref()),
            calls: count(&mut cells, "calls")?,
            usage: sum(&mut cells)?,
        };
        if own {
            found.own.push(part);
        } else {
            found.below.push(part);
        }
    }
    Ok(Some(found))
}

/// The sum of a row's model calls.
pub(crate) fn sum(cells: &mut Cells<'_>) -> Result<Usage> {
    Ok(Usage {
        input_tokens: count(cells, "input_tokens")?,
        output_tokens: count(cells, "output_tokens")?,
        cache_read_tokens: count(cells, "cache_read_tokens")?,
        cache_write_tokens: count(cells, "cache_write_tokens")?,
        reasoning_tokens: count(cells, "reasoning_tokens")?,
        cost_usd: cells.get("cost_usd")?,
        estimated: cells.get("estimated")?,
    })
}

pub(crate) fn count(cells: &mut Cells<'_>, column: &'static str) -> Result<u64> {
    let count: i64 = cells.get(column)?;
    Ok(count.unsigned_abs())
}

/// Number of a session's children with sends that are not final.
pub(crate) async fn open_children(conn: &mut Conn, key: SessionKey) -> Result<u64> {
    let count: i64 = query_scalar(sql!("sessions/open_children"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .fetch_one(conn)
        .await?;
    Ok(count.unsigned_abs())
}

/// The number of ready and running sessions, by pool.
pub(crate) async fn queue_stats(conn: &mut Conn, at: Option<Timestamp>) -> Result<Vec<QueueStats>> {
    let now = clock(conn, at).await?;
    let rows = statement(sql!("stats/queue"))
        .bind(now.0)
        .fetch_all(conn)
        .await?;
    let stats = rows.iter().map(|row| {
        let mut cells = Cells::new(row, "session_hot");
        let pool = cells.get("pool")?;
        let mut number = |column| cells.get::<i64>(column).map(i64::unsigned_abs);
        Ok(QueueStats {
            pool,
            ready: number("ready")?,
            running: number("running")?,
            oldest_ready_ms: number("oldest_ready_ms")?,
        })
    });
    stats.collect()
}

/// The numbers that an autoscaler of one pool needs.
pub(crate) async fn scaling(
    conn: &mut Conn,
    at: Option<Timestamp>,
    pool: String,
) -> Result<ScalingStats> {
    let stats = queue_stats(conn, at).await?;
    let stats = stats.into_iter().find(|stats| stats.pool == pool);
    let (ready, running) = stats.map_or((0, 0), |stats| (stats.ready, stats.running));
    Ok(ScalingStats {
        ready,
        running,
        demand: ready + running,
    })
}
