//! Folds: attached by a step, read with the window.

use mainspring_shared::id::SessionKey;
use mainspring_shared::session::fold::{Fold, FoldKind};
use mainspring_shared::session::transition;
use mainspring_shared::store::{FoldAtRest, FoldedAtRest};

use crate::db::{Conn, sql};
use crate::extractions;
use crate::fault::Result;
use crate::hot::{self, CommitExtras};
use crate::query::{Query, statement};
use crate::row::Row;
use crate::rows::Cells;
use crate::store::Tx;

/// Attaches a fold under the context version that it leads to.
pub(crate) async fn attach(tx: &mut Tx, key: SessionKey, fold: &Fold) -> Result<()> {
    bind(statement(sql!("folds/attach")), key, fold)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Stores the cost of a fold of an idle session, and attaches the fold if the session has not
/// changed since it was begun.
pub(crate) async fn at_rest(tx: &mut Tx, item: FoldAtRest) -> Result<FoldedAtRest> {
    let key = item.key;
    let is_free = hot::lock(tx, [key].into_iter()).await?.is_empty();
    let Some(session) = hot::load(tx, key).await? else {
        return Ok(FoldedAtRest::Dropped);
    };
    let send = statement(sql!("extractions/state"))
        .bind(key.tenant.0)
        .bind(item.send_id.0)
        .fetch_optional(tx.conn())
        .await?;
    if send.is_none() {
        return Ok(FoldedAtRest::Dropped);
    }
    for row in &item.usage {
        // Other rows have the same key wherever they are stored, so they cannot be stored twice.
        let stored = if row.is_of_step() {
            statement(sql!("folds/is_paid"))
                .bind(key.tenant.0)
                .bind(item.send_id.0)
                .bind(row.round)
                .bind(row.attempt)
                .fetch_optional(tx.conn())
                .await?
        } else {
            None
        };
        if stored.is_none() {
            extractions::pay(tx, key, item.send_id, &row.at_rest()).await?;
        }
    }
    let Some(fold) = item.fold else {
        return Ok(FoldedAtRest::Dropped);
    };
    if !is_free {
        return Ok(FoldedAtRest::Busy);
    }
    let change = transition::fold_at_rest(
        &session.hot,
        item.context_version,
        (item.send_id, item.boot),
        fold.reference(),
        tx.now,
    );
    let change = match change {
        Ok(change) => change,
        Err(why) => return Ok(why.into()),
    };
    let done = hot::commit(tx, change, CommitExtras::default()).await?;
    let fold = fold.at(done.hot.context_version, item.send_id, tx.now);
    attach(tx, key, &fold).await?;
    Ok(FoldedAtRest::Attached { step: done.step })
}

/// Stores the folds of an imported session.
pub(crate) async fn copy(tx: &mut Tx, key: SessionKey, folds: &[Fold]) -> Result<()> {
    for fold in folds {
        bind(statement(sql!("folds/copy")), key, fold)
            .bind(fold.covered_by)
            .execute(tx.conn())
            .await?;
    }
    Ok(())
}

fn bind(query: Query, key: SessionKey, fold: &Fold) -> Query {
    query
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(fold.n)
        .bind(fold.from_seq)
        .bind(fold.to_seq)
        .bind(fold.level)
        .bind(fold.kind.as_str())
        .bind(&fold.text)
        .bind(fold.model.clone())
        .bind(fold.tokens_before)
        .bind(fold.tokens_after)
        .bind(fold.send_id.0)
        .bind(fold.created_at.0)
}

/// The folds that are in use, in order.
pub(crate) async fn shown(conn: &mut Conn, key: SessionKey) -> Result<Vec<Fold>> {
    let rows = statement(sql!("folds/shown"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .fetch_all(conn)
        .await?;
    rows.iter().map(|row| Ok(read(row)?.1)).collect()
}

/// All folds of a session, by number.
pub(crate) async fn all(conn: &mut Conn, key: SessionKey) -> Result<Vec<Fold>> {
    let rows = statement(sql!("folds/read"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .fetch_all(conn)
        .await?;
    rows.iter().map(|row| Ok(read(row)?.1)).collect()
}

/// A fold with its session.
pub(crate) fn read(row: &Row) -> Result<(SessionKey, Fold)> {
    let mut cells = Cells::new(row, "folds");
    let key = cells.key()?;
    fields(&mut cells)
        .map(|fold| (key, fold))
        .map_err(|fault| fault.of_row(|| key.to_string()))
}

fn fields(cells: &mut Cells<'_>) -> Result<Fold> {
    Ok(Fold {
        n: cells.get("n")?,
        from_seq: cells.get("from_seq")?,
        to_seq: cells.get("to_seq")?,
        level: cells.get("level")?,
        kind: cells.word("kind", FoldKind::parse)?,
        text: cells.get("text")?,
        model: cells.get("model")?,
        tokens_before: cells.get("tokens_before")?,
        tokens_after: cells.get("tokens_after")?,
        send_id: cells.send_id()?,
        created_at: cells.time("created_at")?,
        covered_by: cells.get("covered_by")?,
    })
}
