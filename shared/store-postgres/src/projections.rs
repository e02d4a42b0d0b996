//! Projections of finished sends: reading them with the window, and copying them with their
//! session. The statement that ends a send stores them.

use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::session::projection::{Projection, SendDigest, VERSION};
use mainspring_shared::store::Result;
use sqlx::PgConnection;

use crate::columns::ProjectionColumns;
use crate::fault::Fault;
use crate::retry::{Pool, fetch, sql};
use crate::rows::{Fields, key_columns};

/// A projection of one of several sessions.
pub(crate) struct Found {
    /// The index of its session.
    pub(crate) place: usize,
    pub(crate) projection: Projection,
    /// The first `seq` of the session's transcript.
    pub(crate) first_seq: i64,
}

/// Reads the projections of these sessions from these messages on, in order.
pub(crate) async fn read_from(pool: &Pool, from: &[(SessionKey, i64)]) -> Result<Vec<Found>> {
    let (tenants, sessions) = key_columns(from.iter().map(|(key, _)| *key));
    let begins: Vec<i64> = from.iter().map(|(_, begin)| *begin).collect();
    let rows = fetch(pool, || {
        sql!("projections/window")
            .bind(tenants.clone())
            .bind(sessions.clone())
            .bind(begins.clone())
    })
    .await?;
    let mut found = Vec::with_capacity(rows.len());
    for row in &rows {
        let mut fields = Fields::new(row, "projections");
        let place = fields.ord()?;
        // An unreadable one counts as missing: the sequence ends there.
        if let Ok((_, projection)) = read(&mut fields) {
            let first_seq = fields.take("first_seq")?;
            found.push(Found {
                place,
                projection,
                first_seq,
            });
        }
    }
    Ok(found)
}

/// Stores the projections of a copied session.
pub(crate) async fn copy(
    connection: &mut PgConnection,
    key: SessionKey,
    projections: &[Projection],
) -> std::result::Result<(), Fault> {
    if projections.is_empty() {
        return Ok(());
    }
    let mut columns = ProjectionColumns::default();
    columns.push(0, projections);
    let query = sql!("projections/copy")
        .bind(key.tenant.0)
        .bind(key.session.0);
    columns.bind(query).execute(connection).await?;
    Ok(())
}

/// Reads a projection with its session.
pub(crate) fn read(fields: &mut Fields<'_>) -> Result<(SessionKey, Projection)> {
    let key = fields.key()?;
    fields.name_row(key.to_string());
    Ok((key, after_key(fields)?))
}

/// Reads a projection after the session of its row.
pub(crate) fn after_key(fields: &mut Fields<'_>) -> Result<Projection> {
    let (from_seq, to_seq) = (fields.take("from_seq")?, fields.take("to_seq")?);
    let send_id = SendId(fields.take("send_id")?);
    let version = fields.take("version")?;
    Ok(Projection {
        from_seq,
        to_seq,
        send_id,
        version,
        // The digest of another version is not read.
        left: if version == VERSION {
            fields.json("digest")?
        } else {
            SendDigest::default()
        },
    })
}
