//! The lifetimes of processes.

use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::id::{BootId, SessionKey};
use mainspring_shared::store::{
    BootRecord, Boots, Connections, NewBoot, Owned, PoolTools, Renewal, WentBack,
};
use mainspring_shared::time::Timestamp;
use mainspring_shared::{store, stored};

use crate::db::{Commit, Conn, sql};
use crate::fault::{Result, readable};
use crate::lease_marks::FoundLease;
use crate::query::{query_scalar, statement};
use crate::rows::{self, Cells};
use crate::store::{SqlStore, Tx, clock};

#[async_trait]
impl Boots for SqlStore {
    fn connections(&self) -> Vec<Connections> {
        self.db.connections()
    }

    fn losses(&self) -> u64 {
        self.db.losses() + self.lease_marks.times()
    }

    fn went_back(&self) -> Option<WentBack> {
        self.lease_marks.last()
    }

    async fn register_boot(&self, boot: NewBoot) -> store::Result<()> {
        self.write(boot, |tx, boot| Box::pin(register(tx, boot)))
            .await
    }

    async fn renew_boot(
        &self,
        boot: BootId,
        ttl: Duration,
        in_flight: u32,
    ) -> store::Result<Renewal> {
        let renewal = (boot, ttl, in_flight);
        let renewed = self.transact(Commit::Renewal, renewal, |tx, (boot, ttl, in_flight)| {
            Box::pin(renew(tx, boot, ttl, in_flight))
        });
        let (found, at, renewal) = renewed.await?;
        self.lease_marks.renewed(boot, found, at, ttl);
        Ok(renewal)
    }

    async fn stop_boot(&self, boot: BootId) -> store::Result<()> {
        self.lease_marks.ended(boot);
        self.write(boot, |tx, boot| Box::pin(stop(tx, boot))).await
    }

    async fn owned_sessions(
        &self,
        boot: BootId,
        after: Option<(Timestamp, SessionKey)>,
        limit: u32,
    ) -> store::Result<Owned> {
        self.read(move |conn| Box::pin(owned(conn, boot, after, limit)))
            .await
    }

    async fn list_boots(&self) -> store::Result<Vec<BootRecord>> {
        self.read(move |conn| Box::pin(list(conn, self.at))).await
    }

    async fn list_tools(&self) -> store::Result<Vec<PoolTools>> {
        self.read(move |conn| Box::pin(tools(conn, self.at))).await
    }
}

/// How long an ended boot remains in the list.
const SHOWN_FOR_MS: i64 = 600_000;

/// Registers a boot; its lease runs from now.
pub(crate) async fn register(tx: &mut Tx, boot: NewBoot) -> Result<()> {
    let now = tx.now;
    statement(sql!("boots/register"))
        .bind(boot.id.0)
        .bind(boot.role.as_str())
        .bind(boot.name)
        .bind(boot.pool)
        .bind(boot.concurrency)
        .bind(now.0)
        .bind(now.after(boot.ttl).0)
        .bind(millis(boot.ttl))
        .bind(boot.protocol)
        .bind(rows::json(&boot.tools)?)
        .execute(tx.conn())
        .await?;
    Ok(())
}

fn millis(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX)
}

/// Extends a lease, unless the boot was declared dead, and reads the signals of its sessions.
pub(crate) async fn renew(
    tx: &mut Tx,
    boot: BootId,
    ttl: Duration,
    in_flight: u32,
) -> Result<(FoundLease, Timestamp, Renewal)> {
    let now = tx.now;
    let found = query_scalar(sql!("boots/found"))
        .bind(boot.0)
        .fetch_optional(tx.conn())
        .await?;
    let found = found.map(Timestamp);
    let renewed = statement(sql!("boots/renew"))
        .bind(boot.0)
        .bind(now.after(ttl).0)
        .bind(in_flight)
        .bind(millis(ttl))
        .execute(tx.conn())
        .await?;
    statement(sql!("boots/cut"))
        .bind(now.0)
        .execute(tx.conn())
        .await?;
    if renewed.rows_affected() == 0 {
        let found = found.map_or(FoundLease::Missing, FoundLease::Dead);
        return Ok((found, now, Renewal::Dead));
    }
    let rows = statement(sql!("boots/signals"))
        .bind(boot.0)
        .fetch_all(tx.conn())
        .await?;
    let signals = rows.iter().map(|row| {
        let mut cells = Cells::new(row, "session_hot");
        Ok((cells.key()?, cells.get("signals")?))
    });
    let signals = signals.collect::<Result<Vec<(SessionKey, i32)>>>()?;
    let found = found.map_or(FoundLease::Missing, FoundLease::Until);
    Ok((found, now, Renewal::Renewed { at: now, signals }))
}

/// The time until which the lease of a session's owner is valid. An owner whose lease has expired
/// is declared dead and owns nothing: none.
pub(crate) async fn lease_of(tx: &mut Tx, owner: Option<BootId>) -> Result<Option<Timestamp>> {
    let Some(owner) = owner else {
        return Ok(None);
    };
    let until: Option<i64> = query_scalar(sql!("boots/lease"))
        .bind(owner.0)
        .fetch_optional(tx.conn())
        .await?;
    if until.is_some_and(|until| until < tx.now.0) {
        declare_dead(tx, owner).await?;
        return Ok(None);
    }
    Ok(until.map(Timestamp))
}

/// Marks the boot from which a session was taken as dead, so that it cannot renew.
pub(crate) async fn declare_dead(tx: &mut Tx, boot: BootId) -> Result<()> {
    let now = tx.now;
    statement(sql!("boots/declare_dead"))
        .bind(boot.0)
        .bind(now.0)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Ends a boot, unless it has ended, and releases everything that it still owns.
pub(crate) async fn stop(tx: &mut Tx, boot: BootId) -> Result<()> {
    let now = tx.now;
    statement(sql!("boots/give_back"))
        .bind(boot.0)
        .execute(tx.conn())
        .await?;
    statement(sql!("boots/stop"))
        .bind(boot.0)
        .bind(now.0)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// A page of the sessions that a boot owns.
pub(crate) async fn owned(
    conn: &mut Conn,
    boot: BootId,
    after: Option<(Timestamp, SessionKey)>,
    limit: u32,
) -> Result<Owned> {
    let rows = statement(sql!("boots/owned"))
        .bind(boot.0)
        .bind(after.map_or(i64::MIN, |(since, _)| since.0))
        .bind(after.map_or(i32::MIN, |(_, key)| key.tenant.0))
        .bind(after.map(|(_, key)| key.session.0).unwrap_or_default())
        .bind(limit)
        .fetch_all(conn)
        .await?;
    let mut owned = Owned::default();
    let full = rows.len() == limit as usize;
    for row in &rows {
        let mut cells = Cells::new(row, "session_hot");
        let key = cells.key()?;
        let ready_since = Timestamp(cells.get("ready_since")?);
        let token = cells.token_opt("token")?;
        owned.sessions.extend(token.map(|token| (key, token)));
        owned.next = Some((ready_since, key)).filter(|_| full);
    }
    Ok(owned)
}

/// Makes everything committed so far survive a power cut.
pub(crate) async fn touch(tx: &mut Tx, boot: BootId) -> Result<()> {
    statement(sql!("boots/touch"))
        .bind(boot.0)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// The boots that are alive or ended a short while ago.
pub(crate) async fn list(conn: &mut Conn, at: Option<Timestamp>) -> Result<Vec<BootRecord>> {
    let now = clock(conn, at).await?;
    let rows = statement(sql!("boots/list"))
        .bind(now.0.saturating_sub(SHOWN_FOR_MS))
        .fetch_all(conn)
        .await?;
    // Those of a later release with a role that is not known here are not this program's business.
    Ok(readable(rows.iter().map(rows::boot)))
}

/// The tools of the workers that are alive or ended a short while ago.
pub(crate) async fn tools(conn: &mut Conn, at: Option<Timestamp>) -> Result<Vec<PoolTools>> {
    let now = clock(conn, at).await?;
    let rows = statement(sql!("boots/tools"))
        .bind(now.0.saturating_sub(SHOWN_FOR_MS))
        .fetch_all(conn)
        .await?;
    let workers = rows.iter().map(|row| {
        let mut cells = Cells::new(row, "boots");
        let pool: String = cells.get("pool")?;
        let tools: &str = cells.get("tools")?;
        // A worker whose tools cannot be read is taken to have none.
        Ok((pool, stored::read(tools).unwrap_or_default()))
    });
    Ok(PoolTools::of(readable(workers)))
}
