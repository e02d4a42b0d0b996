//! What sends are shown as once they are old: read with the window, copied with their session. A send's end
//! stores it in its statement.

use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::session::projection::{Projection, SendDigest, VERSION};
use mainspring_shared::store::Result;
use sqlx::PgConnection;

use crate::columns::ProjectionColumns;
use crate::retry::{Fault, Pool, fetch, sql};
use crate::rows::{Fields, key_columns};

/// A projection of one of several sessions.
pub(crate) struct Found {
    /// The place of its session.
    pub(crate) place: usize,
    pub(crate) projection: Projection,
    /// Where the session's transcript begins.
    pub(crate) first_seq: i64,
}

/// The projections of these sessions from these messages on, in order.
pub(crate) async fn behind(pool: &Pool, from: &[(SessionKey, i64)]) -> Result<Vec<Found>> {
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
        // One that cannot be read is as one that is not there: it breaks the row.
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

/// A projection with its session.
pub(crate) fn read(fields: &mut Fields<'_>) -> Result<(SessionKey, Projection)> {
    let key = fields.key()?;
    fields.name_row(key.to_string());
    Ok((key, after_key(fields)?))
}

/// A projection, of whose row the session was read.
pub(crate) fn after_key(fields: &mut Fields<'_>) -> Result<Projection> {
    let (from_seq, to_seq) = (fields.take("from_seq")?, fields.take("to_seq")?);
    let send_id = SendId(fields.take("send_id")?);
    let version = fields.take("version")?;
    Ok(Projection {
        from_seq,
        to_seq,
        send_id,
        version,
        // What another version wrote is for that one to read.
        left: if version == VERSION {
            fields.json("digest")?
        } else {
            SendDigest::default()
        },
    })
}
