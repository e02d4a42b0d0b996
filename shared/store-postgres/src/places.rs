//! Places among the open sends of a tenant or of an API key, which may be limited.

use mainspring_shared::id::{KeyId, SendId, TenantId};
use mainspring_shared::store::{Error, PLACE_KEPT_MS, Result, frees_places};
use mainspring_shared::time::Timestamp;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::fault::Fault;
use crate::retry::{PgQuery, execute, repeatable, sql};
use crate::rows::Fields;
use crate::store::PostgresStore;

type Faulty<T> = std::result::Result<T, Fault>;

/// The owner of places: a tenant, or one of its keys.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner {
    pub(crate) tenant: TenantId,
    pub(crate) key: Option<KeyId>,
}

/// Takes places for as many of these sends as there are free ones, first sends first. Returns how
/// many have a place.
pub(crate) async fn reserve(
    store: &PostgresStore,
    of: Owner,
    sends: Vec<SendId>,
    max: u32,
) -> Result<u32> {
    let (at, pool) = (store.at, &store.pools.writers);
    let sends: Vec<Uuid> = sends.into_iter().map(|send| send.0).collect();
    repeatable!(pool, |connection| reserve_now(
        connection, at, of, &sends, max
    ))
}

/// Gives places back.
pub(crate) async fn release(store: &PostgresStore, of: Owner, sends: Vec<SendId>) -> Result<()> {
    let sends: Vec<Uuid> = sends.into_iter().map(|send| send.0).collect();
    let release = || {
        let query = match of.key {
            Some(key) => sql!("keys/release").bind(of.tenant.0).bind(key.0),
            None => sql!("tenants/release").bind(of.tenant.0),
        };
        query.bind(sends.clone())
    };
    execute(&store.pools.writers, release).await.map(drop)
}

async fn reserve_now(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    of: Owner,
    sends: &[Uuid],
    max: u32,
) -> Faulty<u32> {
    let at = at.map(|at| at.0);
    let mut tx = connection.begin().await?;
    let lock = sql!("tenants/lock_one").bind(of.tenant.0);
    lock.execute(&mut *tx).await?;
    let (mut taken, had) = taken(&mut tx, of, sends).await?;
    // In a repeat, the first sends have places already.
    let new = &sends[had.min(sends.len())..];
    let max = usize::try_from(max).unwrap_or(usize::MAX);
    if max.saturating_sub(taken) < new.len() || frees_places(new.iter().copied()) {
        let free = match of.key {
            Some(key) => with_key(sql!("keys/free"), at, of.tenant, key),
            None => sql!("tenants/free").bind(at).bind(of.tenant.0),
        };
        free.bind(PLACE_KEPT_MS).execute(&mut *tx).await?;
        taken = self::taken(&mut tx, of, sends).await?.0;
    }
    let more = max.saturating_sub(taken).min(new.len());
    if more > 0 {
        let reserve = match of.key {
            Some(key) => with_key(sql!("keys/reserve"), at, of.tenant, key),
            None => sql!("tenants/reserve").bind(at).bind(of.tenant.0),
        };
        let reserve = reserve.bind(new[..more].to_vec());
        reserve.execute(&mut *tx).await?;
    }
    tx.commit().await?;
    Ok(u32::try_from(had + more).unwrap_or(u32::MAX))
}

fn with_key(query: PgQuery, at: Option<i64>, tenant: TenantId, key: KeyId) -> PgQuery {
    query.bind(at).bind(tenant.0).bind(key.0)
}

/// The number of places taken, and of those that these sends have.
async fn taken(connection: &mut PgConnection, of: Owner, sends: &[Uuid]) -> Faulty<(usize, usize)> {
    let (query, table) = match of.key {
        Some(key) => (
            sql!("keys/places").bind(of.tenant.0).bind(key.0),
            "key_sends",
        ),
        None => (sql!("tenants/places").bind(of.tenant.0), "open_sends"),
    };
    let row = query.bind(sends.to_vec()).fetch_one(connection).await?;
    let mut fields = Fields::new(&row, table);
    let mut count = |column| {
        let total = fields.total(column)?;
        Ok::<_, Error>(usize::try_from(total).unwrap_or(usize::MAX))
    };
    Ok((count("taken")?, count("had")?))
}
