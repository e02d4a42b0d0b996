//! Vectors of entries. The column `embedding` contains all of them; with the extension pgvector, a
//! second column contains those that the extension compares.

use mainspring_shared::id::{MemoryId, SendId, SessionKey, TenantId};
use mainspring_shared::memory::Embedding;
use mainspring_shared::memory::rank::{Alike, PLACES_MAX, Placed, compared};
use mainspring_shared::store::{
    ClaimUnembedded, PaidVectors, Result, SearchMemories, SetEmbedding, Unembedded, VECTORS_MAX,
    VECTORS_MAX_INSIDE,
};
use mainspring_shared::time::Timestamp;
use sqlx::{Connection, PgConnection, Row};

use super::search::{place, within};
use crate::columns::{json, text};
use crate::extractions;
use crate::fault::Fault;
use crate::ledger::now;
use crate::retry::{Pool, fetch, repeatable, sql};
use crate::rows::Fields;

/// What to do about pgvector when the store is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Add it if possible.
    Added,
    /// Use it if it is installed.
    Used,
}

/// Returns whether the extension compares the vectors of this database. Its absence is no error: a
/// server without it, or a user who may not add it, is only logged.
pub(crate) async fn prepare(connection: &mut PgConnection, wanted: Wanted) -> Result<bool> {
    let mut found = find(connection).await?;
    if wanted == Wanted::Added && found.available && !(found.kept && found.complete) {
        if let Err(error) = add(connection, found.known).await {
            tracing::info!(
                %error,
                "could not add pgvector; memory vectors are compared without it"
            );
        }
        found = find(connection).await?;
    }
    Ok(found.kept)
}

#[derive(Debug, Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an answer of the database"
)]
struct Found {
    available: bool,
    known: bool,
    kept: bool,
    complete: bool,
}

async fn find(connection: &mut PgConnection) -> Result<Found> {
    let row = sql!("pgvector/found").fetch_one(connection).await;
    let row = row.map_err(Fault::from)?;
    let get = |name| row.try_get(name).map_err(Fault::from);
    Ok(Found {
        available: get("available")?,
        known: get("known")?,
        kept: get("kept")?,
        complete: get("complete")?,
    })
}

/// Adds the extension, under a lock: of two processes that add it at the same time, one would fail.
async fn add(connection: &mut PgConnection, known: bool) -> std::result::Result<(), sqlx::Error> {
    let mut tx = connection.begin().await?;
    sql!("pgvector/lock").execute(&mut *tx).await?;
    if !known {
        sql!("pgvector/create").execute(&mut *tx).await?;
    }
    sql!("pgvector/column").execute(&mut *tx).await?;
    sql!("pgvector/outside").execute(&mut *tx).await?;
    sql!("pgvector/forget").execute(&mut *tx).await?;
    sql!("pgvector/trigger").execute(&mut *tx).await?;
    tx.commit().await
}

pub(super) async fn claim(
    pool: &Pool,
    now: Timestamp,
    claim: ClaimUnembedded,
) -> Result<Vec<Unembedded>> {
    let rows = fetch(pool, || {
        sql!("memories/unembedded")
            .bind(now.0)
            .bind(now.after(claim.lease).0)
            .bind(i64::from(claim.limit))
    });
    let rows = rows.await?;
    let claimed = rows.iter().map(|row| {
        let mut fields = Fields::new(row, "memories");
        Ok(Unembedded {
            tenant: TenantId(fields.take("tenant")?),
            id: MemoryId(fields.take("memory_id")?),
            text: fields.take("text")?,
            source: fields.maybe_json("source")?,
        })
    });
    claimed.collect()
}

pub(super) async fn set(
    pool: &Pool,
    (at, inside): (Option<Timestamp>, bool),
    item: &SetEmbedding,
) -> Result<bool> {
    repeatable!(pool, |connection| set_once(connection, at, inside, item))
}

async fn set_once(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    inside: bool,
    item: &SetEmbedding,
) -> std::result::Result<bool, Fault> {
    let mut tx = connection.begin().await?;
    if let Some(paid) = &item.paid {
        let now = now(&mut tx, at).await?;
        pay(&mut tx, now, item.tenant, std::slice::from_ref(paid)).await?;
    }
    let mut is_set = false;
    if let Some(embedding) = &item.embedding {
        let query = if inside {
            sql!("pgvector/embed")
        } else {
            sql!("memories/embed")
        };
        let mut query = query
            .bind(item.tenant.0)
            .bind(item.id.0)
            .bind(text(&item.text).into_owned())
            .bind(embedding.bytes())
            .bind(text(&embedding.model).into_owned());
        if inside {
            query = query.bind(written(embedding));
        }
        is_set = query.execute(&mut *tx).await?.rows_affected() > 0;
    }
    tx.commit().await?;
    Ok(is_set)
}

pub(super) async fn pay_for(
    pool: &Pool,
    at: Option<Timestamp>,
    tenant: TenantId,
    paid: &[PaidVectors],
) -> Result<()> {
    repeatable!(pool, |connection| pay_once(connection, at, tenant, paid))
}

async fn pay_once(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    tenant: TenantId,
    paid: &[PaidVectors],
) -> std::result::Result<(), Fault> {
    let mut tx = connection.begin().await?;
    let now = now(&mut tx, at).await?;
    pay(&mut tx, now, tenant, paid).await?;
    tx.commit().await?;
    Ok(())
}

/// Charges the cost of vectors to their sends, as far as those exist.
async fn pay(
    connection: &mut PgConnection,
    now: Timestamp,
    tenant: TenantId,
    paid: &[PaidVectors],
) -> std::result::Result<(), Fault> {
    let mut entered = Vec::new();
    for one in paid {
        if pay_by_send(&mut *connection, now, tenant, one).await? {
            continue;
        }
        sql!("memories/pay")
            .bind(tenant.0)
            .bind(one.id)
            .bind(text(&one.call.model).into_owned())
            .bind(json(&one.call.usage))
            .execute(&mut *connection)
            .await?;
        entered.push(one.id);
    }
    if let Some(kept) = PaidVectors::kept_from(entered) {
        sql!("memories/paid_long_ago")
            .bind(tenant.0)
            .bind(kept)
            .execute(connection)
            .await?;
    }
    Ok(())
}

/// Charges the cost to the send whose vectors they are; false if it is gone, or there is none.
async fn pay_by_send(
    connection: &mut PgConnection,
    now: Timestamp,
    tenant: TenantId,
    paid: &PaidVectors,
) -> std::result::Result<bool, Fault> {
    let Some((session, send)) = paid.payer else {
        return Ok(false);
    };
    let key = SessionKey { tenant, session };
    if !can_pay(connection, key, send).await? {
        return Ok(false);
    }
    extractions::pay(connection, now, (key, send), &paid.row()).await?;
    Ok(true)
}

/// Whether a send and its session exist to be charged. Locks them until the transaction ends.
pub(crate) async fn can_pay(
    connection: &mut PgConnection,
    key: SessionKey,
    send: SendId,
) -> std::result::Result<bool, Fault> {
    let there = sql!("memories/payer")
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(send.0)
        .fetch_optional(connection)
        .await?;
    Ok(there.is_some())
}

/// A vector in the text format of the extension.
fn written(embedding: &Embedding) -> String {
    let numbers: Vec<String> = embedding.vector.iter().map(f32::to_string).collect();
    format!("[{}]", numbers.join(","))
}

/// The similarity of a namespace's vectors to that of the query. Those that the extension does not
/// have are compared here.
pub(super) async fn alike(
    connection: &mut PgConnection,
    query: &SearchMemories,
    now: Timestamp,
    inside: bool,
) -> std::result::Result<Vec<Alike>, Fault> {
    let Some(embedding) = &query.embedding else {
        return Ok(Vec::new());
    };
    let model = text(&embedding.model).into_owned();
    let mut found = Vec::new();
    if inside {
        let rows = within(query, now, sql!("pgvector/nearest"))
            .bind(model.clone())
            .bind(i64::from(VECTORS_MAX_INSIDE))
            .bind(written(embedding))
            .bind(PLACES_MAX as i64)
            .fetch_all(&mut *connection)
            .await?;
        for row in &rows {
            let (id, updated_at) = place(row)?;
            found.push(Alike {
                id,
                updated_at,
                cosine: Fields::new(row, "memories").take("cosine")?,
            });
        }
    }
    let rest = if inside {
        sql!("pgvector/vectors")
    } else {
        sql!("memories/vectors")
    };
    let rows = within(query, now, rest)
        .bind(model)
        .bind(i64::from(VECTORS_MAX))
        .fetch_all(connection)
        .await?;
    let mut placed = Vec::new();
    for row in &rows {
        let (id, updated_at) = place(row)?;
        let bytes: &[u8] = Fields::new(row, "memories").take("embedding")?;
        // An entry with an unreadable vector is skipped.
        if let Some(vector) = Embedding::vector_of(bytes) {
            placed.push(Placed {
                id,
                updated_at,
                vector,
            });
        }
    }
    found.extend(compared(&embedding.vector, &placed));
    Ok(found)
}
