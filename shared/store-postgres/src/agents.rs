//! Published agents.

mod rows;

use std::collections::BTreeMap;

use async_trait::async_trait;
use mainspring_shared::agent::{
    AgentKey, AgentLimits, AgentName, AgentQuery, AgentVersion, NamedAgent, Pick,
};
use mainspring_shared::id::TenantId;
use mainspring_shared::store::{
    Agents, AliasOutcome, Error, ListAgentVersions, ListAgents, Page, PublishAgent, PublishNote,
    PublishOutcome, Result, SetAlias,
};
use mainspring_shared::time::Timestamp;
use sqlx::{Connection, PgConnection};

use self::rows::{read_agent, with_aliases};
use crate::accept::{Taken, lookup, take};
use crate::columns::json;
use crate::fault::Fault;
use crate::ledger::now;
use crate::money;
use crate::reads::page;
use crate::retry::{fetch, repeatable, sql};
use crate::rows::Fields;
use crate::seats;
use crate::store::PostgresStore;

pub(crate) use self::rows::{dump, read_limited, read_version};

#[async_trait]
impl Agents for PostgresStore {
    async fn publish_agent(&self, item: PublishAgent) -> Result<PublishOutcome> {
        for _ in 0..KEYS_MAX {
            let pool = &self.pools.writers;
            let done: Result<Option<PublishOutcome>> =
                repeatable!(pool, |connection| publish_once(connection, self.at, &item));
            if let Some(outcome) = done? {
                return Ok(outcome);
            }
        }
        Err(Error::Unavailable {
            source: "an idempotency key was taken and freed again and again".into(),
        })
    }

    async fn set_alias(&self, item: SetAlias) -> Result<AliasOutcome> {
        let pool = &self.pools.writers;
        repeatable!(pool, |connection| set_alias_once(
            connection, self.at, &item
        ))
    }

    async fn archive_agent(&self, key: AgentKey, archived: bool) -> Result<Option<NamedAgent>> {
        let pool = &self.pools.writers;
        repeatable!(pool, |connection| archive_once(
            connection, self.at, &key, archived
        ))
    }

    async fn get_agent(&self, key: AgentKey) -> Result<Option<NamedAgent>> {
        let pool = &self.pools.claimers;
        repeatable!(pool, |connection| get_once(connection, &key))
    }

    async fn list_agents(&self, query: ListAgents) -> Result<Page<NamedAgent>> {
        let pool = &self.pools.readers;
        repeatable!(pool, |connection| list_once(connection, &query))
    }

    async fn limited_agents(&self, tenant: TenantId) -> Result<Vec<(AgentName, AgentLimits)>> {
        let rows = fetch(&self.pools.claimers, || {
            sql!("agents/limited").bind(tenant.0)
        });
        rows.await?.iter().map(read_limited).collect()
    }

    async fn get_agent_version(&self, key: AgentKey, n: i32) -> Result<Option<AgentVersion>> {
        let pool = &self.pools.claimers;
        repeatable!(pool, |connection| version_once(connection, &key, n))
    }

    async fn list_agent_versions(&self, query: ListAgentVersions) -> Result<Page<AgentVersion>> {
        let rows = fetch(&self.pools.readers, || {
            sql!("agents/versions")
                .bind(query.key.tenant.0)
                .bind(query.key.name.as_str().to_owned())
                .bind(query.before)
                .bind(i64::from(query.limit) + 1)
                .persistent(false)
        });
        Ok(page(&rows.await?, query.limit, |row| {
            read_version(&mut Fields::new(row, "agent_versions"))
        }))
    }

    async fn find_agents(
        &self,
        tenant: TenantId,
        queries: Vec<AgentQuery>,
    ) -> Result<Vec<Option<AgentVersion>>> {
        let names = queries.iter().map(|query| query.name.as_str().to_owned());
        let names: Vec<String> = names.collect();
        let picked = queries.iter().map(|query| match &query.pick {
            Pick::Newest => (None, None),
            Pick::Version(n) => (Some(*n), None),
            Pick::Alias(alias) => (None, Some(alias.as_str().to_owned())),
        });
        let (numbers, aliases): (Vec<Option<i32>>, Vec<Option<String>>) = picked.unzip();
        let rows = fetch(&self.pools.claimers, || {
            sql!("agents/find")
                .bind(tenant.0)
                .bind(names.clone())
                .bind(numbers.clone())
                .bind(aliases.clone())
        });
        let mut found = vec![None; queries.len()];
        for row in &rows.await? {
            let mut fields = Fields::new(row, "agent_versions");
            let ord = fields.ord()?;
            found[ord] = Some(read_version(&mut fields)?);
        }
        Ok(found)
    }
}

/// Attempts at a request whose idempotency key a concurrent request takes.
const KEYS_MAX: u32 = 10;

type Step<T> = std::result::Result<T, Fault>;

/// `None` if a concurrent request took the idempotency key.
async fn publish_once(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    item: &PublishAgent,
) -> Step<Option<PublishOutcome>> {
    let key = &item.key;
    let mut tx = connection.begin().await?;
    if let Some(request) = &item.idempotency
        && let Some((_, known)) = lookup(&mut tx, vec![(0, request)]).await?.pop()
    {
        if !known.same_request {
            return Ok(Some(PublishOutcome::Mismatch));
        }
        let PublishNote { n, added } = known.resource.into();
        let version = version_once(&mut tx, key, n).await?;
        let version = version.ok_or(sqlx::Error::RowNotFound)?;
        return Ok(Some(PublishOutcome::Replayed {
            version: Box::new(version),
            added,
        }));
    }
    if item.limits.is_some() {
        // Lock the tenant's row before the agent's, in the order in which money is reserved.
        money::lock_for_agent(&mut tx, at, key).await?;
    }
    let now = now(&mut tx, at).await?;
    let row = sql!("agents/enter")
        .bind(key.tenant.0)
        .bind(key.name.as_str().to_owned())
        .bind(now.0)
        .fetch_one(&mut *tx)
        .await?;
    let known = read_agent(&row)?;
    if let Some(limits) = &item.limits {
        limit(&mut tx, &known, limits, now).await?;
    }
    let newest = version_once(&mut tx, key, known.version).await?;
    let (version, added) = if let Some(newest) = newest.filter(|newest| newest.spec == item.spec) {
        if known.archived_at.is_some() {
            mark(&mut tx, key, None, now).await?;
        }
        (newest, false)
    } else {
        let version = AgentVersion {
            key: key.clone(),
            n: known.version + 1,
            hash: item.spec.hash(),
            spec: item.spec.clone(),
            created_at: now,
        };
        add(&mut tx, &version).await?;
        (version, true)
    };
    if let Some(request) = &item.idempotency {
        let note = PublishNote {
            n: version.n,
            added,
        };
        let taken = take(&mut tx, Some(now), request, note.into()).await?;
        if taken != Taken::Now {
            tx.rollback().await?;
            return Ok(None);
        }
    }
    tx.commit().await?;
    Ok(Some(PublishOutcome::Published {
        version: Box::new(version),
        added,
    }))
}

async fn add(tx: &mut PgConnection, version: &AgentVersion) -> Step<()> {
    sql!("agents/add")
        .bind(version.key.tenant.0)
        .bind(version.key.name.as_str().to_owned())
        .bind(version.n)
        .bind(json(&version.spec))
        .bind(version.hash.clone())
        .bind(version.created_at.0)
        .execute(tx)
        .await?;
    Ok(())
}

async fn mark(
    tx: &mut PgConnection,
    key: &AgentKey,
    archived_at: Option<Timestamp>,
    now: Timestamp,
) -> Step<()> {
    sql!("agents/archive")
        .bind(key.tenant.0)
        .bind(key.name.as_str().to_owned())
        .bind(archived_at.map(|at| at.0))
        .bind(now.0)
        .execute(tx)
        .await?;
    Ok(())
}

/// Sets the limits of an agent and updates its seats and ledger accordingly. A repeat updates the
/// seats again.
async fn limit(
    tx: &mut PgConnection,
    known: &NamedAgent,
    limits: &AgentLimits,
    now: Timestamp,
) -> Step<()> {
    let key = &known.key;
    let is_limited = limits.sends_running.is_some();
    let of_seats = is_limited || known.limits.sends_running.is_some();
    if of_seats {
        seats::lock_for_agent(tx, key.tenant, is_limited, now).await?;
    }
    if *limits != known.limits {
        sql!("agents/limit")
            .bind(key.tenant.0)
            .bind(key.name.as_str().to_owned())
            .bind(limits.stored().map(json))
            .bind(now.0)
            .execute(&mut *tx)
            .await?;
        money::apply_agent_limits(tx, key, (&known.limits, limits)).await?;
    }
    if of_seats {
        seats::apply_agent_limits(tx, key, is_limited).await?;
    }
    Ok(())
}

/// The limits of sends in flight of a tenant's agents that have one.
pub(crate) async fn running(
    connection: &mut PgConnection,
    tenant: TenantId,
) -> Step<BTreeMap<AgentName, u32>> {
    let query = sql!("agents/running").bind(tenant.0);
    let rows = query.fetch_all(connection).await?;
    let limited: Vec<_> = rows.iter().map(read_limited).collect::<Result<_>>()?;
    let limited = limited.into_iter();
    let running = limited.filter_map(|(name, limits)| Some((name, limits.sends_running?)));
    Ok(running.collect())
}

/// Reads an agent with its aliases, and locks it until the transaction ends.
async fn lock(tx: &mut PgConnection, key: &AgentKey) -> Step<Option<NamedAgent>> {
    let row = sql!("agents/lock")
        .bind(key.tenant.0)
        .bind(key.name.as_str().to_owned())
        .fetch_optional(&mut *tx)
        .await?;
    let mut found = Vec::new();
    found.extend(row.as_ref().map(read_agent).transpose()?);
    with_aliases(tx, &mut found).await?;
    Ok(found.pop())
}

async fn archive_once(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    key: &AgentKey,
    archived: bool,
) -> Step<Option<NamedAgent>> {
    let mut tx = connection.begin().await?;
    let Some(mut agent) = lock(&mut tx, key).await? else {
        return Ok(None);
    };
    if agent.archived_at.is_some() != archived {
        let now = now(&mut tx, at).await?;
        agent.archived_at = archived.then_some(now);
        agent.updated_at = now;
        mark(&mut tx, key, agent.archived_at, now).await?;
    }
    tx.commit().await?;
    Ok(Some(agent))
}

async fn set_alias_once(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    item: &SetAlias,
) -> Step<AliasOutcome> {
    let mut tx = connection.begin().await?;
    let agent = lock(&mut tx, &item.key).await?;
    let Some(mut agent) = agent.filter(|agent| agent.archived_at.is_none()) else {
        return Ok(AliasOutcome::NotFound);
    };
    if item.version.is_some_and(|n| n < 1 || n > agent.version) {
        return Ok(AliasOutcome::NoVersion);
    }
    if agent.aliases.get(&item.alias).copied() != item.version {
        let now = now(&mut tx, at).await?;
        sql!("agents/point")
            .bind(item.key.tenant.0)
            .bind(item.key.name.as_str().to_owned())
            .bind(item.alias.as_str().to_owned())
            .bind(item.version)
            .bind(now.0)
            .execute(&mut *tx)
            .await?;
        agent.updated_at = now;
        match item.version {
            Some(n) => agent.aliases.insert(item.alias.clone(), n),
            None => agent.aliases.remove(&item.alias),
        };
    }
    tx.commit().await?;
    Ok(AliasOutcome::Changed(Box::new(agent)))
}

async fn get_once(connection: &mut PgConnection, key: &AgentKey) -> Step<Option<NamedAgent>> {
    // One snapshot for both tables.
    let mut tx = connection
        .begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        .await?;
    let row = sql!("agents/get")
        .bind(key.tenant.0)
        .bind(key.name.as_str().to_owned())
        .fetch_optional(&mut *tx)
        .await?;
    let mut found = Vec::new();
    found.extend(row.as_ref().map(read_agent).transpose()?);
    with_aliases(&mut tx, &mut found).await?;
    tx.commit().await?;
    Ok(found.pop())
}

async fn list_once(connection: &mut PgConnection, query: &ListAgents) -> Step<Page<NamedAgent>> {
    // One snapshot for both tables.
    let mut tx = connection
        .begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        .await?;
    let after = query.after.as_ref().map(AgentName::as_str);
    let rows = sql!("agents/list")
        .bind(query.tenant.0)
        .bind(after.map(str::to_owned))
        .bind(query.archived)
        .bind(i64::from(query.limit) + 1)
        .persistent(false)
        .fetch_all(&mut *tx)
        .await?;
    let mut page = page(&rows, query.limit, read_agent);
    with_aliases(&mut tx, &mut page.data).await?;
    tx.commit().await?;
    Ok(page)
}

async fn version_once(
    connection: &mut PgConnection,
    key: &AgentKey,
    n: i32,
) -> Step<Option<AgentVersion>> {
    let row = sql!("agents/version")
        .bind(key.tenant.0)
        .bind(key.name.as_str().to_owned())
        .bind(n)
        .fetch_optional(connection)
        .await?;
    let version = row.map(|row| read_version(&mut Fields::new(&row, "agent_versions")));
    Ok(version.transpose()?)
}
