//! Agents by name.

use std::collections::BTreeMap;

use async_trait::async_trait;
use mainspring_shared::agent::{
    AgentKey, AgentLimits, AgentName, AgentQuery, AgentVersion, Alias, NamedAgent, Pick,
};
use mainspring_shared::id::TenantId;
use mainspring_shared::store;
use mainspring_shared::store::{
    Agents, AliasOutcome, ListAgentVersions, ListAgents, Page, PublishAgent, PublishNote,
    PublishOutcome, SetAlias,
};

use crate::accept::{self, Seen};
use crate::db::{Conn, sql};
use crate::fault::{Fault, Result, readable};
use crate::money;
use crate::query::statement;
use crate::reads::page;
use crate::row::Row;
use crate::rows::{Cells, json};
use crate::seats;
use crate::store::{SqlStore, Tx};

#[async_trait]
impl Agents for SqlStore {
    async fn publish_agent(&self, item: PublishAgent) -> store::Result<PublishOutcome> {
        self.write(item, |tx, item| Box::pin(publish(tx, item)))
            .await
    }

    async fn set_alias(&self, item: SetAlias) -> store::Result<AliasOutcome> {
        self.write(item, |tx, item| Box::pin(set_alias(tx, item)))
            .await
    }

    async fn archive_agent(
        &self,
        key: AgentKey,
        archived: bool,
    ) -> store::Result<Option<NamedAgent>> {
        self.write((key, archived), |tx, (key, archived)| {
            Box::pin(archive(tx, key, archived))
        })
        .await
    }

    async fn get_agent(&self, key: AgentKey) -> store::Result<Option<NamedAgent>> {
        self.snapshot(move |conn| Box::pin(async move { agent(conn, &key).await }))
            .await
    }

    async fn list_agents(&self, query: ListAgents) -> store::Result<Page<NamedAgent>> {
        self.snapshot(|conn| Box::pin(list(conn, query))).await
    }

    async fn limited_agents(
        &self,
        tenant: TenantId,
    ) -> store::Result<Vec<(AgentName, AgentLimits)>> {
        self.read(move |conn| Box::pin(limited(conn, tenant))).await
    }

    async fn get_agent_version(
        &self,
        key: AgentKey,
        n: i32,
    ) -> store::Result<Option<AgentVersion>> {
        self.read(move |conn| Box::pin(async move { version(conn, &key, n).await }))
            .await
    }

    async fn list_agent_versions(
        &self,
        query: ListAgentVersions,
    ) -> store::Result<Page<AgentVersion>> {
        self.read(|conn| Box::pin(versions(conn, query))).await
    }

    async fn find_agents(
        &self,
        tenant: TenantId,
        queries: Vec<AgentQuery>,
    ) -> store::Result<Vec<Option<AgentVersion>>> {
        self.snapshot(move |conn| Box::pin(find(conn, tenant, queries)))
            .await
    }
}

async fn publish(tx: &mut Tx, item: PublishAgent) -> Result<PublishOutcome> {
    let PublishAgent {
        key,
        spec,
        limits,
        idempotency,
    } = item;
    if let Some(request) = &idempotency {
        match accept::seen(tx, request).await? {
            Seen::Never => {}
            Seen::OtherBody => return Ok(PublishOutcome::Mismatch),
            Seen::Before(note) => {
                let PublishNote { n, added } = note.into();
                let version = version(tx.conn(), &key, n).await?.ok_or(Fault::NoRow)?;
                return Ok(PublishOutcome::Replayed {
                    version: Box::new(version),
                    added,
                });
            }
        }
    }
    if limits.is_some() {
        // Lock order: reserving money locks the tenant's row before the agent's.
        money::lock_for_agent(tx, &key).await?;
    }
    let now = tx.now;
    statement(sql!("named/enter"))
        .bind(key.tenant.0)
        .bind(key.name.as_str())
        .bind(now.0)
        .execute(tx.conn())
        .await?;
    let known = agent(tx.conn(), &key).await?.ok_or(Fault::NoRow)?;
    if let Some(limits) = limits {
        limit(tx, &known, &limits).await?;
    }
    let newest = version(tx.conn(), &key, known.version).await?;
    let (version, added) = if let Some(newest) = newest.filter(|newest| newest.spec == spec) {
        if known.archived_at.is_some() {
            mark(tx, &key, false).await?;
        }
        (newest, false)
    } else {
        let version = AgentVersion {
            n: known.version + 1,
            hash: spec.hash(),
            key,
            spec,
            created_at: now,
        };
        add(tx, &version).await?;
        (version, true)
    };
    if let Some(request) = &idempotency {
        let note = PublishNote {
            n: version.n,
            added,
        };
        accept::remember(tx, request, note.into()).await?;
    }
    Ok(PublishOutcome::Published {
        version: Box::new(version),
        added,
    })
}

async fn add(tx: &mut Tx, version: &AgentVersion) -> Result<()> {
    statement(sql!("named/add"))
        .bind(version.key.tenant.0)
        .bind(version.key.name.as_str())
        .bind(version.n)
        .bind(json(&version.spec)?)
        .bind(version.hash.as_str())
        .bind(version.created_at.0)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Sets the limits of an agent and adapts money and seats to them. A repeat adapts the seats again.
async fn limit(tx: &mut Tx, known: &NamedAgent, limits: &AgentLimits) -> Result<()> {
    let key = &known.key;
    let is_limited = limits.sends_running.is_some();
    let of_seats = is_limited || known.limits.sends_running.is_some();
    if of_seats {
        seats::lock_for_agent(tx, key.tenant, is_limited).await?;
    }
    if *limits != known.limits {
        let now = tx.now;
        statement(sql!("named/limit"))
            .bind(key.tenant.0)
            .bind(key.name.as_str())
            .bind(limits.stored().map(json).transpose()?)
            .bind(now.0)
            .execute(tx.conn())
            .await?;
        money::apply_agent_limits(tx, key, (&known.limits, limits)).await?;
    }
    if of_seats {
        seats::apply_agent_limits(tx, key, is_limited).await?;
    }
    Ok(())
}

/// Whether the agent exists. Locks it until the transaction ends.
async fn lock(tx: &mut Tx, key: &AgentKey) -> Result<bool> {
    let row = statement(sql!("named/lock"))
        .bind(key.tenant.0)
        .bind(key.name.as_str())
        .fetch_optional(tx.conn())
        .await?;
    Ok(row.is_some())
}

async fn mark(tx: &mut Tx, key: &AgentKey, archived: bool) -> Result<()> {
    let now = tx.now;
    statement(sql!("named/archive"))
        .bind(key.tenant.0)
        .bind(key.name.as_str())
        .bind(archived.then_some(now.0))
        .bind(now.0)
        .execute(tx.conn())
        .await?;
    Ok(())
}

async fn archive(tx: &mut Tx, key: AgentKey, archived: bool) -> Result<Option<NamedAgent>> {
    if !lock(tx, &key).await? {
        return Ok(None);
    }
    let known = agent(tx.conn(), &key).await?;
    if known.is_some_and(|agent| agent.archived_at.is_some() != archived) {
        mark(tx, &key, archived).await?;
    }
    agent(tx.conn(), &key).await
}

async fn set_alias(tx: &mut Tx, item: SetAlias) -> Result<AliasOutcome> {
    let key = item.key;
    if !lock(tx, &key).await? {
        return Ok(AliasOutcome::NotFound);
    }
    let known = agent(tx.conn(), &key).await?;
    let Some(known) = known.filter(|known| known.archived_at.is_none()) else {
        return Ok(AliasOutcome::NotFound);
    };
    if item.version.is_some_and(|n| n < 1 || n > known.version) {
        return Ok(AliasOutcome::NoVersion);
    }
    if known.aliases.get(&item.alias).copied() == item.version {
        return Ok(AliasOutcome::Changed(Box::new(known)));
    }
    let change = match item.version {
        Some(_) => statement(sql!("named/point")),
        None => statement(sql!("named/drop_alias")),
    };
    let mut change = change
        .bind(key.tenant.0)
        .bind(key.name.as_str())
        .bind(item.alias.as_str());
    if let Some(n) = item.version {
        change = change.bind(n);
    }
    change.execute(tx.conn()).await?;
    let now = tx.now;
    statement(sql!("named/touch"))
        .bind(key.tenant.0)
        .bind(key.name.as_str())
        .bind(now.0)
        .execute(tx.conn())
        .await?;
    let changed = agent(tx.conn(), &key).await?.ok_or(Fault::NoRow)?;
    Ok(AliasOutcome::Changed(Box::new(changed)))
}

/// An agent with its aliases.
async fn agent(conn: &mut Conn, key: &AgentKey) -> Result<Option<NamedAgent>> {
    let row = statement(sql!("named/get"))
        .bind(key.tenant.0)
        .bind(key.name.as_str())
        .fetch_optional(conn)
        .await?;
    let Some(row) = row else {
        return Ok(None);
    };
    let mut found = vec![read_agent(&row)?];
    with_aliases(conn, &mut found).await?;
    Ok(found.pop())
}

async fn list(conn: &mut Conn, query: ListAgents) -> Result<Page<NamedAgent>> {
    let rows = statement(sql!("named/list"))
        .bind(query.tenant.0)
        .bind(query.after.as_ref().map(AgentName::as_str))
        .bind(query.archived)
        .bind(i64::from(query.limit) + 1)
        .fetch_all(conn)
        .await?;
    let mut page = page(&rows, query.limit, read_agent);
    with_aliases(conn, &mut page.data).await?;
    Ok(page)
}

async fn limited(conn: &mut Conn, tenant: TenantId) -> Result<Vec<(AgentName, AgentLimits)>> {
    let rows = statement(sql!("named/limited")).bind(tenant.0);
    read_limited(&rows.fetch_all(conn).await?)
}

/// Agents with their limits, by the columns `name, limits`.
fn read_limited(rows: &[Row]) -> Result<Vec<(AgentName, AgentLimits)>> {
    let limited = rows.iter().map(|row| {
        let mut cells = Cells::new(row, "agents_named");
        Ok((parsed(&mut cells, "name")?, cells.json("limits")?))
    });
    limited.collect()
}

/// The limits of sends in flight of a tenant's agents, for the agents that have one.
pub(crate) async fn running(conn: &mut Conn, tenant: TenantId) -> Result<BTreeMap<AgentName, u32>> {
    let rows = statement(sql!("named/running")).bind(tenant.0);
    let limited = read_limited(&rows.fetch_all(conn).await?)?.into_iter();
    let running = limited.filter_map(|(name, limits)| Some((name, limits.sends_running?)));
    Ok(running.collect())
}

/// Reads the aliases of agents of one tenant; the agents are ordered by name.
async fn with_aliases(conn: &mut Conn, agents: &mut [NamedAgent]) -> Result<()> {
    let (Some(first), Some(last)) = (agents.first(), agents.last()) else {
        return Ok(());
    };
    let rows = statement(sql!("named/aliases"))
        .bind(first.key.tenant.0)
        .bind(first.key.name.as_str())
        .bind(last.key.name.as_str())
        .fetch_all(conn)
        .await?;
    put_aliases(&rows, agents);
    Ok(())
}

fn put_aliases(rows: &[Row], agents: &mut [NamedAgent]) {
    let aliases = rows.iter().map(|row| {
        let mut cells = Cells::new(row, "agent_aliases");
        let (key, alias) = (read_key(&mut cells)?, parsed::<Alias>(&mut cells, "alias")?);
        Ok((key, alias, cells.get("version")?))
    });
    for (key, alias, version) in readable(aliases) {
        if let Ok(place) = agents.binary_search_by(|agent| agent.key.cmp(&key)) {
            agents[place].aliases.insert(alias, version);
        }
    }
}

async fn version(conn: &mut Conn, key: &AgentKey, n: i32) -> Result<Option<AgentVersion>> {
    let row = statement(sql!("named/version"))
        .bind(key.tenant.0)
        .bind(key.name.as_str())
        .bind(n)
        .fetch_optional(conn)
        .await?;
    row.as_ref().map(read_version).transpose()
}

async fn versions(conn: &mut Conn, query: ListAgentVersions) -> Result<Page<AgentVersion>> {
    let rows = statement(sql!("named/versions"))
        .bind(query.key.tenant.0)
        .bind(query.key.name.as_str())
        .bind(query.before)
        .bind(i64::from(query.limit) + 1)
        .fetch_all(conn)
        .await?;
    Ok(page(&rows, query.limit, read_version))
}

async fn find(
    conn: &mut Conn,
    tenant: TenantId,
    queries: Vec<AgentQuery>,
) -> Result<Vec<Option<AgentVersion>>> {
    let mut found = Vec::with_capacity(queries.len());
    for query in queries {
        let (n, alias) = match &query.pick {
            Pick::Newest => (None, None),
            Pick::Version(n) => (Some(*n), None),
            Pick::Alias(alias) => (None, Some(alias.as_str())),
        };
        let row = statement(sql!("named/find"))
            .bind(tenant.0)
            .bind(query.name.as_str())
            .bind(n)
            .bind(alias)
            .fetch_optional(conn)
            .await?;
        found.push(row.as_ref().map(read_version).transpose()?);
    }
    Ok(found)
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(
    cells: &mut Cells<'_>,
    column: &'static str,
) -> Result<T> {
    let text: String = cells.get(column)?;
    text.parse().map_err(|why| cells.corrupt(column, &why))
}

fn read_key(cells: &mut Cells<'_>) -> Result<AgentKey> {
    Ok(AgentKey {
        tenant: TenantId(cells.get("tenant")?),
        name: parsed(cells, "name")?,
    })
}

fn read_agent(row: &Row) -> Result<NamedAgent> {
    let mut cells = Cells::new(row, "agents_named");
    Ok(NamedAgent {
        key: read_key(&mut cells)?,
        version: cells.get("version")?,
        aliases: BTreeMap::new(),
        created_at: cells.time("created_at")?,
        updated_at: cells.time("updated_at")?,
        archived_at: cells.time_opt("archived_at")?,
        limits: cells.json_opt("limits")?.unwrap_or_default(),
    })
}

pub(crate) fn read_version(row: &Row) -> Result<AgentVersion> {
    let mut cells = Cells::new(row, "agent_versions");
    let key = read_key(&mut cells)?;
    let n: i32 = cells.get("n")?;
    let name = || format!("{}@{n}", key.name);
    Ok(AgentVersion {
        spec: cells.json("spec").map_err(|fault| fault.of_row(name))?,
        hash: cells.get("hash")?,
        created_at: cells.time("created_at")?,
        n,
        key,
    })
}

/// All agents with their versions.
pub(crate) async fn dump(conn: &mut Conn) -> Result<Vec<(NamedAgent, Vec<AgentVersion>)>> {
    let rows = statement(sql!("named/dump")).fetch_all(conn).await?;
    let mut agents: Vec<NamedAgent> = rows.iter().map(read_agent).collect::<Result<_>>()?;
    let rows = statement(sql!("named/dump_aliases"))
        .fetch_all(conn)
        .await?;
    put_aliases(&rows, &mut agents);
    let mut dump: Vec<_> = agents
        .into_iter()
        .map(|agent| (agent, Vec::new()))
        .collect();
    let rows = statement(sql!("named/dump_versions"))
        .fetch_all(conn)
        .await?;
    for row in &rows {
        let version = read_version(row)?;
        let place = dump.binary_search_by(|(agent, _)| agent.key.cmp(&version.key));
        if let Ok(place) = place {
            dump[place].1.push(version);
        }
    }
    Ok(dump)
}
