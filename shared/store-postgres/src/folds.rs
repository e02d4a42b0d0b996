//! Folds: reading them with the window, and copying them with their session. The statement of a
//! round attaches them.

use mainspring_shared::id::SessionKey;
use mainspring_shared::session::fold::{Fold, FoldKind, NewFold};
use mainspring_shared::step::StepRefs;
use mainspring_shared::store::{FoldAtRest, FoldedAtRest, Result, UsageRow};
use mainspring_shared::time::Timestamp;
use sqlx::{Connection as _, PgConnection};

use crate::columns::{CopiedFolds, FoldColumns, UsageColumns, json};
use crate::fault::Fault;
use crate::retry::{Pool, fetch, repeatable, sql};
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

/// Stores the cost of a fold at rest, and attaches the fold if nothing has changed meanwhile.
pub(crate) async fn at_rest(
    pool: &Pool,
    at: Option<Timestamp>,
    item: &FoldAtRest,
) -> Result<FoldedAtRest> {
    repeatable!(pool, |connection| at_rest_once(connection, at, item))
}

/// Locks the session first if a step may have stored the usage: a statement that waits for the lock
/// itself does not see a step that commits meanwhile.
async fn at_rest_once(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    item: &FoldAtRest,
) -> std::result::Result<FoldedAtRest, Fault> {
    if !item.usage.iter().any(UsageRow::is_of_step) {
        return attach(connection, at, item).await;
    }
    let mut tx = connection.begin().await?;
    sql!("ledger/lock")
        .bind(vec![item.key.tenant.0])
        .bind(vec![item.key.session.0])
        .execute(&mut *tx)
        .await?;
    let done = attach(&mut tx, at, item).await?;
    tx.commit().await?;
    Ok(done)
}

async fn attach(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    item: &FoldAtRest,
) -> std::result::Result<FoldedAtRest, Fault> {
    let refs = StepRefs {
        fold: item.fold.as_ref().map(NewFold::reference),
        ..StepRefs::default()
    };
    let rows: Vec<UsageRow> = item.usage.iter().map(UsageRow::at_rest).collect();
    let mut usage = UsageColumns::default();
    usage.push(0, &rows);
    let mut folds = FoldColumns::default();
    folds.push(0, item.fold.as_ref());
    let query = sql!("folds/at_rest")
        .bind(at.map(|at| at.0))
        .bind(item.key.tenant.0)
        .bind(item.key.session.0)
        .bind(item.send_id.0)
        .bind(item.context_version)
        .bind(item.boot.0)
        .bind(json(&refs));
    let of_step = item.usage.iter();
    let (rounds, attempts): (Vec<i32>, Vec<i32>) =
        of_step.map(|row| (row.round, row.attempt)).unzip();
    let purposes: Vec<&str> = rows.iter().map(|row| row.purpose().as_str()).collect();
    let query = folds.bind(usage.bind(query));
    let query = query.bind(rounds).bind(attempts).bind(purposes);
    let Some(row) = query.fetch_optional(connection).await? else {
        return Ok(FoldedAtRest::Dropped);
    };
    let mut fields = Fields::new(&row, "session_hot");
    let step: Option<i64> = fields.take("step")?;
    let busy: bool = fields.take("busy")?;
    Ok(match (step, busy) {
        (Some(step), _) => FoldedAtRest::Attached { step },
        (None, true) if item.fold.is_some() => FoldedAtRest::Busy,
        (None, _) => FoldedAtRest::Dropped,
    })
}

/// The current folds of these sessions, each with the index of its session.
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

/// Reads a fold with its session.
pub(crate) fn read(fields: &mut Fields<'_>) -> Result<(SessionKey, Fold)> {
    let key = fields.key()?;
    fields.name_row(key.to_string());
    Ok((key, after_key(fields)?))
}

/// Reads a fold after the session of its row.
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
