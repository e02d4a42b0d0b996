//! Folds: attached with a step, read with the window.

use mainspring_shared::id::SessionKey;
use mainspring_shared::session::fold::{Fold, FoldKind};

use crate::db::{Conn, sql};
use crate::fault::Result;
use crate::query::{Query, statement};
use crate::row::Row;
use crate::rows::Cells;
use crate::store::Tx;

/// Attaches a fold under the number that the context has with it.
pub(crate) async fn attach(tx: &mut Tx, key: SessionKey, fold: &Fold) -> Result<()> {
    bind(statement(sql!("folds/attach")), key, fold)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Stores the folds of a copied session.
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

/// The folds that are shown, in order.
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
