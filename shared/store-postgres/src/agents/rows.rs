//! Rows of published agents.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use mainspring_shared::agent::{AgentKey, AgentLimits, AgentName, AgentVersion, Alias, NamedAgent};
use mainspring_shared::id::TenantId;
use mainspring_shared::store::Result;
use sqlx::PgConnection;
use sqlx::postgres::PgRow;

use crate::fault::Fault;
use crate::retry::sql;
use crate::rows::{Fields, readable};

impl Fields<'_> {
    /// A text that is parsed into `T`.
    fn parsed<T: FromStr<Err: Display>>(&mut self, column: &'static str) -> Result<T> {
        let text: &str = self.take(column)?;
        let read = text.parse();
        read.map_err(|why: T::Err| self.corrupt(column, why.to_string()))
    }

    fn agent_key(&mut self) -> Result<AgentKey> {
        Ok(AgentKey {
            tenant: TenantId(self.take("tenant")?),
            name: self.parsed("name")?,
        })
    }
}

/// Reads `tenant, name, version, created_at, updated_at, archived_at, limits`.
pub(super) fn read_agent(row: &PgRow) -> Result<NamedAgent> {
    let mut fields = Fields::new(row, "agents_named");
    Ok(NamedAgent {
        key: fields.agent_key()?,
        version: fields.take("version")?,
        aliases: BTreeMap::new(),
        created_at: fields.time("created_at")?,
        updated_at: fields.time("updated_at")?,
        archived_at: fields.maybe_time("archived_at")?,
        limits: fields.maybe_json("limits")?.unwrap_or_default(),
    })
}

/// Reads `name, limits`.
pub(crate) fn read_limited(row: &PgRow) -> Result<(AgentName, AgentLimits)> {
    let mut fields = Fields::new(row, "agents_named");
    Ok((fields.parsed("name")?, fields.json("limits")?))
}

/// Reads `tenant, name, n, spec, hash, created_at`.
pub(crate) fn read_version(fields: &mut Fields<'_>) -> Result<AgentVersion> {
    let key = fields.agent_key()?;
    let n = fields.take("n")?;
    fields.name_row(format!("{}@{n}", key.name));
    Ok(AgentVersion {
        key,
        n,
        spec: fields.json("spec")?,
        hash: fields.take("hash")?,
        created_at: fields.time("created_at")?,
    })
}

/// Adds the aliases to agents of one tenant, which must be sorted by name.
pub(super) async fn with_aliases(
    connection: &mut PgConnection,
    agents: &mut [NamedAgent],
) -> std::result::Result<(), Fault> {
    let (Some(first), Some(last)) = (agents.first(), agents.last()) else {
        return Ok(());
    };
    let rows = sql!("agents/aliases")
        .bind(first.key.tenant.0)
        .bind(first.key.name.as_str().to_owned())
        .bind(last.key.name.as_str().to_owned())
        .fetch_all(connection)
        .await?;
    put_aliases(&rows, agents);
    Ok(())
}

fn put_aliases(rows: &[PgRow], agents: &mut [NamedAgent]) {
    let aliases = rows.iter().map(|row| {
        let mut fields = Fields::new(row, "agent_aliases");
        let (key, alias): (_, Alias) = (fields.agent_key()?, fields.parsed("alias")?);
        Ok((key, alias, fields.take("version")?))
    });
    for (key, alias, version) in readable(aliases) {
        if let Ok(place) = agents.binary_search_by(|agent| agent.key.cmp(&key)) {
            agents[place].aliases.insert(alias, version);
        }
    }
}

/// Every agent with its versions.
pub(crate) async fn dump(
    tx: &mut PgConnection,
) -> std::result::Result<Vec<(NamedAgent, Vec<AgentVersion>)>, Fault> {
    let rows = sql!("reads/dump_named").fetch_all(&mut *tx).await?;
    let mut agents: Vec<NamedAgent> = rows.iter().map(read_agent).collect::<Result<_>>()?;
    let rows = sql!("reads/dump_aliases").fetch_all(&mut *tx).await?;
    put_aliases(&rows, &mut agents);
    let mut dump: Vec<_> = agents
        .into_iter()
        .map(|agent| (agent, Vec::new()))
        .collect();
    for row in &sql!("reads/dump_agent_versions").fetch_all(tx).await? {
        let version = read_version(&mut Fields::new(row, "agent_versions"))?;
        let place = dump.binary_search_by(|(agent, _)| agent.key.cmp(&version.key));
        if let Ok(place) = place {
            dump[place].1.push(version);
        }
    }
    Ok(dump)
}
