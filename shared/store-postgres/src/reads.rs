//! Reads.

use async_trait::async_trait;
use mainspring_shared::id::{SendId, SessionKey, TenantId};
use mainspring_shared::inbox::InboxItem;
use mainspring_shared::message::Message;
use mainspring_shared::send::{SendRecord, SendStatus, WaitingOn};
use mainspring_shared::session::fold::Fold;
use mainspring_shared::session::{SessionRecord, SessionStatus};
use mainspring_shared::step::Step;
use mainspring_shared::store::{
    AuditOptions, AuditPiece, Audited, ClaimableCalls, FindMessages, FindSteps, FoundSteps,
    ListSends, ListSessions, ListWaitingCalls, ModelUsage, Page, QueueStats, ReadInbox,
    ReadMessages, Reads, Result, ScalingStats, SchemaFault, ServerInfo, SessionUsage, Violation,
    schema_fits,
};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::CallRecord;
use mainspring_shared::usage::{Purpose, Usage};
use serde_json::{Map, Value};
use sqlx::postgres::PgRow;

use crate::audit;
use crate::audit_pieces;
use crate::columns::{metadata, text};
use crate::folds;
use crate::ledger::RoundKey;
use crate::migrate::{demands, needed};
use crate::retry::{Pool, fetch, sql};
use crate::rows::{Fields, calls_in_order, key_columns, readable, send_columns, sends_in_order};
use crate::schema;
use crate::store::PostgresStore;

#[async_trait]
impl Reads for PostgresStore {
    async fn now(&self) -> Result<Timestamp> {
        match self.at {
            Some(at) => Ok(at),
            None => now(&self.pools.claimers).await,
        }
    }

    async fn check(&self) -> Result<ServerInfo> {
        let mut info = check(&self.pools.claimers).await?;
        let needed = self.pools.connections_max();
        info.connections_short = info
            .connections_short
            .filter(|(allowed, _)| *allowed < needed);
        info.connections_short = info.connections_short.map(|(allowed, _)| (allowed, needed));
        Ok(info)
    }

    async fn schema_faults(&self) -> Result<Vec<SchemaFault>> {
        schema::faults(&self.pools.readers).await
    }

    async fn last_steps(&self, keys: Vec<SessionKey>) -> Result<Vec<i64>> {
        last_steps(&self.pools.streamers, &keys).await
    }

    async fn read_messages(&self, query: ReadMessages) -> Result<Vec<Message>> {
        messages(&self.pools.streamers, query).await
    }

    async fn read_folds(&self, key: SessionKey) -> Result<Vec<Fold>> {
        folds::all(&self.pools.streamers, key).await
    }

    async fn find_messages(&self, query: FindMessages) -> Result<Vec<Message>> {
        find(&self.pools.claimers, query).await
    }

    async fn read_steps(&self, key: SessionKey, after: i64, limit: u32) -> Result<Vec<Step>> {
        steps(&self.pools.streamers, key, after, limit).await
    }

    /// Does nothing: the schema already has the index, a block summary that costs the steps
    /// nothing.
    async fn index_steps(&self) -> Result<()> {
        Ok(())
    }

    async fn find_steps(&self, query: FindSteps) -> Result<Vec<FoundSteps>> {
        find_steps(&self.pools.readers, &query).await
    }

    async fn queue_stats(&self) -> Result<Vec<QueueStats>> {
        queue_stats(&self.pools.readers, self.at, None).await
    }

    async fn scaling(&self, pool: &str) -> Result<ScalingStats> {
        scaling(&self.pools.readers, self.at, pool).await
    }

    async fn audit(&self, options: AuditOptions) -> Result<Vec<Violation>> {
        audit::audit(&self.pools.auditors, self.at, options).await
    }

    async fn audit_piece(&self, piece: AuditPiece) -> Result<Audited> {
        audit_pieces::audit(&self.pools.auditors, self.at, piece).await
    }
}

pub(crate) async fn now(pool: &Pool) -> Result<Timestamp> {
    let rows = fetch(pool, || sql!("reads/now")).await?;
    let mut now = Timestamp::default();
    for row in &rows {
        now = Fields::new(row, "pg_settings").time("now")?;
    }
    Ok(now)
}

/// Reads the server's version and schema; fails if this program does not work with the schema.
pub(crate) async fn check(pool: &Pool) -> Result<ServerInfo> {
    let rows = fetch(pool, || sql!("reads/schema")).await?;
    let mut schema = 0;
    for row in &rows {
        schema = Fields::new(row, "_sqlx_migrations").take("version")?;
    }
    let mut demanded = None;
    if schema > needed() {
        for row in &fetch(pool, || sql!("reads/demands")).await? {
            demanded = Some(demands(row)?);
        }
    }
    schema_fits(schema, needed(), demanded)?;
    let info = server(pool, schema).await?;
    if !info.is_read_only {
        return Ok(info);
    }
    // The connection may be an old one, to a server that was demoted, or with an old setting.
    pool.silence.found_read_only();
    server(pool, schema).await
}

async fn server(pool: &Pool, schema: i64) -> Result<ServerInfo> {
    let rows = fetch(pool, || sql!("reads/server")).await?;
    let mut info = ServerInfo {
        server: "postgres".to_owned(),
        schema,
        now: Timestamp::default(),
        is_read_only: false,
        connections_short: None,
    };
    for row in &rows {
        let mut fields = Fields::new(row, "pg_settings");
        let version: &str = fields.take("version")?;
        info.server = format!("postgres {version}");
        info.now = fields.time("now")?;
        info.is_read_only = fields.take("read_only")?;
        let allowed: Option<i64> = fields.take("allowed")?;
        let allowed = allowed.and_then(|allowed| u32::try_from(allowed).ok());
        // How many are needed is known to the caller.
        info.connections_short = allowed.map(|allowed| (allowed, 0));
    }
    Ok(info)
}

pub(crate) async fn sends(
    pool: &Pool,
    ids: &[(TenantId, SendId)],
) -> Result<Vec<Option<SendRecord>>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let rows = fetch(pool, || {
        let (tenants, ids) = send_columns(ids.iter().copied());
        sql!("sends/get").bind(tenants).bind(ids)
    })
    .await?;
    sends_in_order(&rows, ids.len())
}

pub(crate) async fn session(pool: &Pool, key: SessionKey) -> Result<Option<SessionRecord>> {
    let rows = fetch(pool, || {
        sql!("sessions/get")
            .bind(key.tenant.0)
            .bind(key.session.0)
            .bind(None::<i64>)
    })
    .await?;
    let row = rows.first();
    row.map(|row| Fields::new(row, "sessions").session())
        .transpose()
}

pub(crate) async fn list_sessions(
    pool: &Pool,
    query: &ListSessions,
) -> Result<Page<SessionRecord>> {
    let wanted = query.metadata.iter();
    let wanted: Map<String, Value> = wanted
        .map(|(name, text)| (name.clone(), Value::String(text.clone())))
        .collect();
    let rows = fetch(pool, || {
        sql!("sessions/list")
            .bind(query.tenant.0)
            .bind(query.status.map(SessionStatus::as_str))
            .bind(query.agent.as_deref().map(text))
            .bind((!wanted.is_empty()).then(|| metadata(&wanted)))
            .bind(query.before.map(|id| id.0))
            .bind(i64::from(query.limit) + 1)
            .persistent(false)
    })
    .await?;
    let read = |row: &PgRow| Fields::new(row, "sessions").session();
    Ok(page(&rows, query.limit, read))
}

pub(crate) async fn list_sends(pool: &Pool, query: &ListSends) -> Result<Page<SendRecord>> {
    let rows = fetch(pool, || {
        sql!("sends/list")
            .bind(query.tenant.0)
            .bind(query.session.map(|id| id.0))
            .bind(query.status.map(SendStatus::as_str))
            .bind(query.before.map(|id| id.0))
            .bind(i64::from(query.limit) + 1)
            .bind(!matches!(
                query.status,
                Some(SendStatus::Failed | SendStatus::Cancelled)
            ))
            .persistent(false)
    })
    .await?;
    Ok(page(&rows, query.limit, |row| {
        let mut fields = Fields::new(row, "sends");
        fields.send()
    }))
}

/// A page of rows that were queried with a limit of one more. Unreadable rows are left out.
pub(crate) fn page<T>(rows: &[PgRow], limit: u32, read: impl Fn(&PgRow) -> Result<T>) -> Page<T> {
    let limit = limit as usize;
    Page {
        data: readable(rows.iter().take(limit).map(read)),
        more: rows.len() > limit,
    }
}

pub(crate) async fn messages(pool: &Pool, query: ReadMessages) -> Result<Vec<Message>> {
    let rows = fetch(pool, || {
        sql!("sessions/messages")
            .bind(query.key.tenant.0)
            .bind(query.key.session.0)
            .bind(query.after)
            .bind(i64::from(query.limit))
    })
    .await?;
    let messages = rows.iter().map(|row| {
        let mut fields = Fields::new(row, "messages");
        fields.message()
    });
    messages.collect()
}

pub(crate) async fn find(pool: &Pool, query: FindMessages) -> Result<Vec<Message>> {
    let rows = fetch(pool, || {
        sql!("sessions/find_messages")
            .bind(query.key.tenant.0)
            .bind(query.key.session.0)
            .bind(query.after)
            .bind(query.before)
            .bind(query.send.map(|send| send.0))
            .bind(query.call.as_deref().map(|call| text(call).into_owned()))
            .bind(i64::from(query.limit))
    })
    .await?;
    let messages = rows.iter().map(|row| {
        let mut fields = Fields::new(row, "messages");
        fields.message()
    });
    messages.collect()
}

pub(crate) async fn last_steps(pool: &Pool, keys: &[SessionKey]) -> Result<Vec<i64>> {
    let (tenants, sessions) = key_columns(keys.iter().copied());
    let rows = fetch(pool, || {
        sql!("sessions/last_steps")
            .bind(tenants.clone())
            .bind(sessions.clone())
    })
    .await?;
    let mut last = vec![0; keys.len()];
    for row in &rows {
        let mut fields = Fields::new(row, "session_hot");
        let ord = fields.ord()?;
        last[ord] = fields.take("last_step")?;
    }
    Ok(last)
}

pub(crate) async fn steps(
    pool: &Pool,
    key: SessionKey,
    after: i64,
    limit: u32,
) -> Result<Vec<Step>> {
    let rows = fetch(pool, || {
        sql!("sessions/steps")
            .bind(key.tenant.0)
            .bind(key.session.0)
            .bind(after)
            .bind(i64::from(limit))
    })
    .await?;
    rows.iter()
        .map(|row| Fields::new(row, "steps").step())
        .collect()
}

pub(crate) async fn find_steps(pool: &Pool, query: &FindSteps) -> Result<Vec<FoundSteps>> {
    let begin = query.begin();
    let rows = fetch(pool, || {
        sql!("reads/find_steps")
            .bind(query.from.0)
            .bind(query.until.0)
            .bind(begin.tenant.0)
            .bind(begin.session.0)
            .bind(i64::from(query.limit))
    })
    .await?;
    let found = |row| {
        let mut fields = Fields::new(row, "steps");
        Ok(FoundSteps {
            key: fields.key()?,
            first: fields.take("first_n")?,
            last: fields.take("last_n")?,
        })
    };
    rows.iter().map(found).collect()
}

/// The calls of a round, in the order of their places.
pub(crate) async fn round(
    pool: &Pool,
    key: SessionKey,
    send: SendId,
    round: i32,
) -> Result<Vec<CallRecord>> {
    let tenant = key.tenant;
    let (first, behind) = RoundKey {
        tenant,
        send,
        round,
    }
    .bounds();
    let rows = fetch(pool, || {
        sql!("calls/rounds")
            .bind(vec![tenant.0])
            .bind(vec![first.clone()])
            .bind(vec![behind.clone()])
    })
    .await?;
    let calls = rows.iter().map(|row| {
        let mut fields = Fields::new(row, "tool_calls");
        fields.call()
    });
    let mut calls = calls.collect::<Result<Vec<_>>>()?;
    calls.retain(|call| call.session == key.session);
    Ok(calls)
}

pub(crate) async fn calls(
    pool: &Pool,
    ids: &[(TenantId, String)],
) -> Result<Vec<Option<CallRecord>>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let rows = fetch(pool, || {
        let tenants: Vec<i32> = ids.iter().map(|(tenant, _)| tenant.0).collect();
        let texts = ids.iter().map(|(_, id)| text(id).into_owned());
        sql!("calls/get")
            .bind(tenants)
            .bind(texts.collect::<Vec<_>>())
    })
    .await?;
    calls_in_order(&rows, ids.len())
}

/// Calls that wait for a person or a client.
pub(crate) async fn waiting_calls(
    pool: &Pool,
    query: &ListWaitingCalls,
) -> Result<Page<CallRecord>> {
    let (since, id) = query
        .after
        .as_ref()
        .map_or((i64::MIN, ""), |(at, id)| (at.0, id));
    let rows = fetch(pool, || {
        sql!("calls/waiting")
            .bind(query.tenant.0)
            .bind(query.on.map(WaitingOn::as_str))
            .bind(since)
            .bind(text(id))
            .bind(i64::from(query.limit) + 1)
    })
    .await?;
    Ok(page(&rows, query.limit, |row| {
        Fields::new(row, "tool_calls").call()
    }))
}

/// Calls of external tools that a claim would get.
pub(crate) async fn claimable_calls(
    pool: &Pool,
    at: Option<Timestamp>,
    query: &ClaimableCalls,
) -> Result<Page<CallRecord>> {
    let read = |row: &PgRow| Fields::new(row, "tool_calls").call();
    let limit = i64::from(query.limit) + 1;
    if query.after.is_none() {
        let rows = fetch(pool, || {
            sql!("calls/held")
                .bind(query.tenant.0)
                .bind(query.token)
                .bind(limit)
        });
        let mut held = page(&rows.await?, query.limit, read);
        held.data.retain(|call| query.names.contains(&call.name));
        if !held.data.is_empty() {
            return Ok(held);
        }
    }
    let (since, id) = match &query.after {
        Some((at, id)) => (at.0, id.as_str()),
        None => (i64::MIN, ""),
    };
    let rows = fetch(pool, || {
        let names = query.names.iter().map(|name| text(name).into_owned());
        sql!("calls/claimable")
            .bind(at.map(|at| at.0))
            .bind(query.tenant.0)
            .bind(names.collect::<Vec<_>>())
            .bind(limit)
            .bind(since)
            .bind(text(id))
    })
    .await?;
    Ok(page(&rows, query.limit, read))
}

/// Calls whose claim has lapsed and that nobody else may make.
pub(crate) async fn lapsed_calls(
    pool: &Pool,
    at: Option<Timestamp>,
    limit: u32,
) -> Result<Vec<(SessionKey, String)>> {
    let rows = fetch(pool, || {
        sql!("calls/lapsed")
            .bind(at.map(|at| at.0))
            .bind(i64::from(limit))
    })
    .await?;
    let read = |row: &PgRow| {
        let mut fields = Fields::new(row, "tool_calls");
        Ok((fields.key()?, fields.take("call_id")?))
    };
    Ok(page(&rows, limit, read).data)
}

/// Reads inbox items. Pending ones have their own index.
pub(crate) async fn inbox(pool: &Pool, query: ReadInbox) -> Result<Vec<InboxItem>> {
    let rows = fetch(pool, || {
        let statement = if query.pending {
            sql!("inbox/pending")
        } else {
            sql!("inbox/all")
        };
        statement
            .bind(query.key.tenant.0)
            .bind(query.key.session.0)
            .bind(query.after)
            .bind(i64::from(query.limit))
    })
    .await?;
    rows.iter()
        .map(|row| Fields::new(row, "inbox").item())
        .collect()
}

pub(crate) async fn children(pool: &Pool, key: SessionKey) -> Result<Vec<SessionKey>> {
    let rows = fetch(pool, || {
        sql!("sessions/children")
            .bind(key.tenant.0)
            .bind(key.session.0)
    })
    .await?;
    rows.iter()
        .map(|row| Fields::new(row, "sessions").key())
        .collect()
}

pub(crate) async fn usage(pool: &Pool, key: SessionKey) -> Result<Option<SessionUsage>> {
    let rows = fetch(pool, || {
        sql!("sessions/usage")
            .bind(key.tenant.0)
            .bind(key.session.0)
    })
    .await?;
    if rows.is_empty() {
        return Ok(None);
    }
    let mut found = SessionUsage::default();
    for row in &rows {
        let mut fields = Fields::new(row, "usage_rows");
        found.sessions = fields.total("sessions")?;
        let own: bool = fields.take("own")?;
        let Some(model) = fields.take("model")? else {
            continue;
        };
        let purpose: Option<String> = fields.take("purpose")?;
        let part = ModelUsage {
            model,
            purpose: Purpose::stored(purpose.as_deref()),
            calls: fields.total("calls")?,
            usage: sum(&mut fields)?,
        };
        if own {
            found.own.push(part);
        } else {
            found.below.push(part);
        }
    }
    Ok(Some(found))
}

/// Reads the summed usage of a row's model calls.
pub(crate) fn sum(fields: &mut Fields<'_>) -> Result<Usage> {
    Ok(Usage {
        input_tokens: fields.total("input_tokens")?,
        output_tokens: fields.total("output_tokens")?,
        cache_read_tokens: fields.total("cache_read_tokens")?,
        cache_write_tokens: fields.total("cache_write_tokens")?,
        reasoning_tokens: fields.total("reasoning_tokens")?,
        cost_usd: fields.take("cost_usd")?,
        estimated: fields.take("estimated")?,
    })
}

pub(crate) async fn open_children(pool: &Pool, key: SessionKey) -> Result<u64> {
    let rows = fetch(pool, || {
        sql!("sessions/open_children")
            .bind(key.tenant.0)
            .bind(key.session.0)
    })
    .await?;
    let count = rows
        .first()
        .map(|row| Fields::new(row, "sessions").total("n"));
    count.unwrap_or(Ok(0))
}

/// Statistics per pool, by name; of `only` that pool, if given.
pub(crate) async fn queue_stats(
    pool: &Pool,
    at: Option<Timestamp>,
    only: Option<&str>,
) -> Result<Vec<QueueStats>> {
    let rows = fetch(pool, || {
        sql!("sweeps/queue_stats")
            .bind(at.map(|at| at.0))
            .bind(only.map(text))
    })
    .await?;
    let stats = rows.iter().map(|row| {
        let mut fields = Fields::new(row, "session_hot");
        Ok(QueueStats {
            pool: fields.take("pool")?,
            ready: fields.total("ready")?,
            running: fields.total("running")?,
            oldest_ready_ms: fields.total("oldest_ready_ms")?,
        })
    });
    stats.collect()
}

pub(crate) async fn scaling(
    pool: &Pool,
    at: Option<Timestamp>,
    name: &str,
) -> Result<ScalingStats> {
    let stats = queue_stats(pool, at, Some(name)).await?;
    Ok(stats
        .first()
        .map_or_else(ScalingStats::default, |stats| ScalingStats {
            ready: stats.ready,
            running: stats.running,
            demand: stats.ready + stats.running,
        }))
}
