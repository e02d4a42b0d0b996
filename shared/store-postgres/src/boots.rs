//! Boots of processes.

use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::id::{BootId, LeaseToken, SessionKey};
use mainspring_shared::store::{
    BootRecord, Boots, Connections, NewBoot, Owned, PoolTools, Renewal, Result, WentBack,
};
use mainspring_shared::stored;
use mainspring_shared::time::Timestamp;
use mainspring_store_core::{FoundLease, LeaseMarks};
use uuid::Uuid;

use crate::claim::GrantsToRelease;
use crate::columns::{json, text};
use crate::retry::{Pool, execute, fetch, sql};
use crate::rows::{Fields, readable};
use crate::store::PostgresStore;

#[async_trait]
impl Boots for PostgresStore {
    fn connections(&self) -> Vec<Connections> {
        let pools = self.pools.named();
        pools.map(|(name, pool)| pool.used(name)).to_vec()
    }

    async fn register_boot(&self, boot: NewBoot) -> Result<()> {
        register(&self.pools.writers, self.at, boot).await
    }

    fn losses(&self) -> u64 {
        self.pools.writers.silence.losses() + self.lease_marks.times()
    }

    fn went_back(&self) -> Option<WentBack> {
        self.lease_marks.last()
    }

    async fn renew_boot(&self, boot: BootId, ttl: Duration, in_flight: u32) -> Result<Renewal> {
        renew(
            &self.pools.renewers,
            (&self.grants_to_release, &self.lease_marks),
            self.at,
            boot,
            ttl,
            in_flight,
        )
        .await
    }

    async fn stop_boot(&self, boot: BootId) -> Result<()> {
        self.lease_marks.ended(boot);
        stop(&self.pools.writers, self.at, boot).await
    }

    async fn owned_sessions(
        &self,
        boot: BootId,
        after: Option<(Timestamp, SessionKey)>,
        limit: u32,
    ) -> Result<Owned> {
        owned(&self.pools.claimers, boot, after, limit).await
    }

    async fn list_boots(&self) -> Result<Vec<BootRecord>> {
        // Each sweep starts with this read, so it must not queue behind lists or an audit.
        list(&self.pools.claimers, self.at).await
    }

    async fn list_tools(&self) -> Result<Vec<PoolTools>> {
        tools(&self.pools.claimers, self.at).await
    }
}

/// How long an ended boot is listed.
const SHOWN_FOR: Duration = Duration::from_mins(10);

pub(crate) async fn register(pool: &Pool, at: Option<Timestamp>, boot: NewBoot) -> Result<()> {
    let concurrency = i32::try_from(boot.concurrency).unwrap_or(i32::MAX);
    let protocol = i32::try_from(boot.protocol).unwrap_or(i32::MAX);
    let tools = json(&boot.tools);
    execute(pool, || {
        sql!("boots/register")
            .bind(at.map(|at| at.0))
            .bind(boot.id.0)
            .bind(boot.role.as_str())
            .bind(text(&boot.name))
            .bind(text(&boot.pool))
            .bind(concurrency)
            .bind(boot.ttl.as_millis() as i64)
            .bind(protocol)
            .bind(&tools)
    })
    .await
    .map(|_| ())
}

/// Renews a lease. The renewal commits asynchronously: if a crash of the server loses it, the boot
/// may expire, and nothing else happens.
pub(crate) async fn renew(
    pool: &Pool,
    (grants_to_release, lease_marks): (&GrantsToRelease, &LeaseMarks),
    at: Option<Timestamp>,
    boot: BootId,
    ttl: Duration,
    in_flight: u32,
) -> Result<Renewal> {
    let in_flight = i32::try_from(in_flight).unwrap_or(i32::MAX);
    let rows = fetch(pool, || {
        sql!("boots/renew")
            .bind(at.map(|at| at.0))
            .bind(boot.0)
            .bind(ttl.as_millis() as i64)
            .bind(in_flight)
    })
    .await?;
    let mut signals = Vec::new();
    let mut renewed_at = None;
    for row in &rows {
        let mut fields = Fields::new(row, "session_hot");
        let renewed: bool = fields.take("renewed")?;
        let now = fields.time("now")?;
        let until: Option<i64> = fields.take("until")?;
        if renewed_at.is_none() {
            let found = match until {
                Some(until) if renewed => FoundLease::Until(Timestamp(until)),
                Some(until) => FoundLease::Dead(Timestamp(until)),
                None => FoundLease::Missing,
            };
            lease_marks.renewed(boot, found, now, ttl);
        }
        if !renewed {
            return Ok(Renewal::Dead);
        }
        renewed_at = Some(now);
        signals.extend(fields.maybe_signals()?);
    }
    if let Err(error) = grants_to_release.give_back(pool).await {
        tracing::warn!(%error, "releasing grants failed; will retry with the next renewal");
    }
    // There is always at least one row.
    Ok(renewed_at.map_or(Renewal::Dead, |at| Renewal::Renewed { at, signals }))
}

pub(crate) async fn owned(
    pool: &Pool,
    boot: BootId,
    after: Option<(Timestamp, SessionKey)>,
    limit: u32,
) -> Result<Owned> {
    let after = after.map_or((i64::MIN, i32::MIN, Uuid::nil()), |(at, key)| {
        (at.0, key.tenant.0, key.session.0)
    });
    let rows = fetch(pool, || {
        sql!("boots/owned")
            .bind(boot.0)
            .bind(after.0)
            .bind(after.1)
            .bind(after.2)
            .bind(i64::from(limit))
    })
    .await?;
    let mut owned = Owned::default();
    let full = rows.len() == limit as usize;
    for row in &rows {
        let mut fields = Fields::new(row, "session_hot");
        let key = fields.key()?;
        let ready_since = fields.time("ready_since")?;
        let token: Option<Uuid> = fields.take("token")?;
        owned
            .sessions
            .extend(token.map(|token| (key, LeaseToken(token))));
        owned.next = Some((ready_since, key)).filter(|_| full);
    }
    Ok(owned)
}

pub(crate) async fn stop(pool: &Pool, at: Option<Timestamp>, boot: BootId) -> Result<()> {
    execute(pool, || {
        sql!("boots/stop").bind(at.map(|at| at.0)).bind(boot.0)
    })
    .await
    .map(|_| ())
}

pub(crate) async fn list(pool: &Pool, at: Option<Timestamp>) -> Result<Vec<BootRecord>> {
    let rows = fetch(pool, || {
        sql!("boots/list")
            .bind(at.map(|at| at.0))
            .bind(SHOWN_FOR.as_millis() as i64)
    })
    .await?;
    let boots = rows.iter().map(|row| Fields::new(row, "boots").boot());
    // Those of a later release with a role that is not known here are not this program's business.
    Ok(readable(boots))
}

pub(crate) async fn tools(pool: &Pool, at: Option<Timestamp>) -> Result<Vec<PoolTools>> {
    let rows = fetch(pool, || {
        sql!("boots/tools")
            .bind(at.map(|at| at.0))
            .bind(SHOWN_FOR.as_millis() as i64)
    })
    .await?;
    let workers = rows.iter().map(|row| {
        let mut fields = Fields::new(row, "boots");
        let pool: String = fields.take("pool")?;
        let tools: String = fields.take("tools")?;
        // Unreadable tools count as none.
        Ok((pool, stored::read(&tools).unwrap_or_default()))
    });
    Ok(PoolTools::of(readable(workers)))
}
