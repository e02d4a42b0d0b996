//! Updating seats when limits change, in the transaction that changes them.

use mainspring_shared::agent::AgentKey;
use mainspring_shared::id::TenantId;
use mainspring_shared::tenant::SeatLimits;
use mainspring_shared::time::Timestamp;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{Faulty, published};
use crate::agents;
use crate::retry::sql;
use crate::rows::Fields;

/// Applies a tenant's new limits to its seats, in the transaction that changes them.
pub(crate) async fn apply_limits(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    tenant: TenantId,
    limits: Option<SeatLimits>,
) -> Faulty<()> {
    let Some(limits) = limits else {
        // First take the lock under which seats are taken.
        let lift = sql!("seats/lift").bind(tenant.0);
        lift.execute(&mut *connection).await?;
        return clear(connection, tenant).await;
    };
    let number = |limit: Option<u32>| limit.map(|limit| i32::try_from(limit).unwrap_or(i32::MAX));
    let set = sql!("seats/set")
        .bind(at.map(|at| at.0))
        .bind(tenant.0)
        .bind(number(limits.sends))
        .bind(number(limits.leaves));
    set.execute(&mut *connection).await?;
    let seed = sql!("seats/seed").bind(tenant.0);
    seed.execute(connection).await?;
    Ok(())
}

/// Removes all seats of a tenant if it has no limits any more. Its row of limits must be locked.
async fn clear(connection: &mut PgConnection, tenant: TenantId) -> Faulty<()> {
    let lifted = sql!("seats/drop").bind(tenant.0);
    lifted.execute(&mut *connection).await?;
    let clear = sql!("seats/clear").bind(tenant.0);
    clear.execute(connection).await?;
    Ok(())
}

/// Locks a tenant's seats while the limit of one of its agents changes.
pub(crate) async fn lock_for_agent(
    connection: &mut PgConnection,
    tenant: TenantId,
    is_limited: bool,
    now: Timestamp,
) -> Faulty<()> {
    if is_limited {
        let lock = sql!("seats/set_agents").bind(tenant.0).bind(now.0);
        lock.execute(connection).await?;
    } else {
        super::limits(connection, tenant).await?;
    }
    Ok(())
}

/// Applies an agent's new limit, which must be stored, to its tenant's seats, which must be locked.
pub(crate) async fn apply_agent_limits(
    connection: &mut PgConnection,
    key: &AgentKey,
    is_limited: bool,
) -> Faulty<()> {
    if is_limited {
        let seed = sql!("seats/seed").bind(key.tenant.0);
        seed.execute(&mut *connection).await?;
        return mark(connection, key).await;
    }
    let unmark = sql!("seats/unmark")
        .bind(key.tenant.0)
        .bind(key.name.as_str().to_owned());
    unmark.execute(&mut *connection).await?;
    let others = agents::running(connection, key.tenant).await?;
    if others.is_empty() {
        let lift = sql!("seats/lift_agents").bind(key.tenant.0);
        lift.execute(&mut *connection).await?;
        clear(connection, key.tenant).await?;
    }
    Ok(())
}

/// Marks the seats of sends that an agent runs, or would run, as the agent's.
async fn mark(connection: &mut PgConnection, key: &AgentKey) -> Faulty<()> {
    let query = sql!("seats/heads")
        .bind(key.tenant.0)
        .bind(key.name.as_str().to_owned());
    let rows = query.fetch_all(&mut *connection).await?;
    let (mut sessions, mut sends, mut versions) = (Vec::new(), Vec::new(), Vec::new());
    for row in &rows {
        let mut fields = Fields::new(row, "sends");
        let session: Uuid = fields.take("session_id")?;
        let send: Uuid = fields.take("send_id")?;
        let version: i32 = fields.take("version")?;
        if published(&mut fields).as_ref() == Some(&key.name) {
            sessions.push(session);
            sends.push(send);
            versions.push(version);
        }
    }
    let mark = sql!("seats/mark")
        .bind(key.tenant.0)
        .bind(key.name.as_str().to_owned())
        .bind(sessions)
        .bind(sends)
        .bind(versions);
    mark.execute(connection).await?;
    Ok(())
}
