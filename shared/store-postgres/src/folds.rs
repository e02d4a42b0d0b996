//! Folds: read with the window, copied with their session. A round's statement attaches them.

use mainspring_shared::id::SessionKey;
use mainspring_shared::session::fold::{Fold, FoldKind};
use mainspring_shared::store::Result;
use sqlx::PgConnection;

use crate::columns::CopiedFolds;
use crate::retry::{Fault, Pool, fetch, sql};
use crate::rows::{Fields, key_columns};

/// All folds of a session, by number.
pub(crate) async fn all(pool: &Pool, key: SessionKey) -> Result<Vec<Fold>> {
    let rows = fetch(pool, || {
        sql!("folds/read").bind(key.tenant.0).bind(key.session.0)
    })
    .await?;
    let read = rows.iter().map(|row| read(&mut Fields::new(row, "folds")));
    read.map(|row| Ok(row?.1)).collect()
}

/// The folds that are shown of these sessions, each with the place of its session.
pub(crate) async fn shown(
    pool: &Pool,
    keys: impl Iterator<Item = SessionKey>,
) -> Result<Vec<(usize, Fold)>> {
    let (tenants, sessions) = key_columns(keys);
    let rows = fetch(pool, || {
        sql!("folds/shown")
            .bind(tenants.clone())
            .bind(sessions.clone())
    })
    .await?;
    let read = rows.iter().map(|row| {
        let mut fields = Fields::new(row, "folds");
        let place = fields.ord()?;
        Ok((place, read(&mut fields)?.1))
    });
    read.collect()
}

/// Stores the folds of a copied session.
pub(crate) async fn copy(
    connection: &mut PgConnection,
    key: SessionKey,
    folds: &[Fold],
) -> std::result::Result<(), Fault> {
    if folds.is_empty() {
        return Ok(());
    }
    let query = sql!("folds/copy").bind(key.tenant.0).bind(key.session.0);
    CopiedFolds(folds).bind(query).execute(connection).await?;
    Ok(())
}

/// A fold with its session.
pub(crate) fn read(fields: &mut Fields<'_>) -> Result<(SessionKey, Fold)> {
    let key = fields.key()?;
    fields.name_row(key.to_string());
    Ok((key, after_key(fields)?))
}

/// A fold, of whose row the session was read.
pub(crate) fn after_key(fields: &mut Fields<'_>) -> Result<Fold> {
    Ok(Fold {
        n: fields.take("n")?,
        from_seq: fields.take("from_seq")?,
        to_seq: fields.take("to_seq")?,
        level: fields.take("level")?,
        kind: fields.name("kind", FoldKind::parse)?,
        text: fields.take("text")?,
        model: fields.take("model")?,
        tokens_before: fields.take("tokens_before")?,
        tokens_after: fields.take("tokens_after")?,
        send_id: mainspring_shared::id::SendId(fields.take("send_id")?),
        created_at: fields.time("created_at")?,
        covered_by: fields.take("covered_by")?,
    })
}
