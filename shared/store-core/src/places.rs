//! Places among the open sends of a tenant, and among those of an API key.

use mainspring_shared::id::{KeyId, SendId, TenantId};
use mainspring_shared::store::{PLACE_KEPT_MS, frees_places};

use crate::db::sql;
use crate::fault::Result;
use crate::query::{query_scalar, statement};
use crate::store::Tx;

/// The owner of places: a tenant, or one of its keys.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner {
    pub(crate) tenant: TenantId,
    pub(crate) key: Option<KeyId>,
}

/// Reserves places for as many of these sends as there is room for, from the first on.
pub(crate) async fn reserve(tx: &mut Tx, of: Owner, sends: Vec<SendId>, max: u32) -> Result<u32> {
    statement(sql!("tenants/lock_one"))
        .bind(of.tenant.0)
        .execute(tx.conn())
        .await?;
    // A repeat already has the first places.
    let mut have = 0;
    for send in &sends {
        if !has_place(tx, of, *send).await? {
            break;
        }
        have += 1;
    }
    let new = &sends[have..];
    let mut room = room(tx, of, max).await?;
    if room < new.len() as u64 || frees_places(new.iter().map(|send| send.0)) {
        free(tx, of).await?;
        room = self::room(tx, of, max).await?;
    }
    let taken = usize::try_from(room).unwrap_or(usize::MAX).min(new.len());
    for send in &new[..taken] {
        take(tx, of, *send).await?;
    }
    Ok(u32::try_from(have + taken).unwrap_or(u32::MAX))
}

async fn has_place(tx: &mut Tx, of: Owner, send: SendId) -> Result<bool> {
    let query = match of.key {
        Some(key) => query_scalar(sql!("keys/has_place"))
            .bind(of.tenant.0)
            .bind(key.0),
        None => query_scalar(sql!("tenants/has_place")).bind(of.tenant.0),
    };
    query.bind(send.0).fetch_one(tx.conn()).await
}

/// Number of free places.
async fn room(tx: &mut Tx, of: Owner, max: u32) -> Result<u64> {
    let query = match of.key {
        Some(key) => query_scalar(sql!("keys/places"))
            .bind(of.tenant.0)
            .bind(key.0),
        None => query_scalar(sql!("tenants/places")).bind(of.tenant.0),
    };
    let taken: i64 = query.fetch_one(tx.conn()).await?;
    Ok(u64::from(max).saturating_sub(taken.unsigned_abs()))
}

/// Frees the places of sends that have ended, and of sends that were not created in time.
async fn free(tx: &mut Tx, of: Owner) -> Result<()> {
    let query = match of.key {
        Some(key) => statement(sql!("keys/free")).bind(of.tenant.0).bind(key.0),
        None => statement(sql!("tenants/free")).bind(of.tenant.0),
    };
    let before = tx.now.0 - PLACE_KEPT_MS;
    query.bind(before).execute(tx.conn()).await.map(drop)
}

async fn take(tx: &mut Tx, of: Owner, send: SendId) -> Result<()> {
    let query = match of.key {
        Some(key) => statement(sql!("keys/reserve"))
            .bind(of.tenant.0)
            .bind(key.0),
        None => statement(sql!("tenants/reserve")).bind(of.tenant.0),
    };
    let query = query.bind(send.0).bind(tx.now.0);
    query.execute(tx.conn()).await.map(drop)
}

/// Releases places.
pub(crate) async fn release(tx: &mut Tx, of: Owner, sends: Vec<SendId>) -> Result<()> {
    for send in sends {
        let query = match of.key {
            Some(key) => statement(sql!("keys/release"))
                .bind(of.tenant.0)
                .bind(key.0),
            None => statement(sql!("tenants/release")).bind(of.tenant.0),
        };
        query.bind(send.0).execute(tx.conn()).await?;
    }
    Ok(())
}
