//! The inbox of a session: items that arrive while one of its sends is in progress.

use std::collections::BTreeSet;

use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::inbox::InboxItem;
use mainspring_shared::session::transition::{Notify, Stored};
use mainspring_shared::store::{Delivery, ReadInbox};
use serde::Serialize;

use crate::calls;
use crate::db::{Conn, sql};
use crate::fault::Result;
use crate::hot::{self, CommitExtras};
use crate::query::{query_scalar, statement};
use crate::rows::{self, json, mode_word};
use crate::store::Tx;

/// Stores an item.
pub(crate) async fn insert(tx: &mut Tx, key: SessionKey, item: &InboxItem) -> Result<()> {
    statement(sql!("inbox/insert"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(item.id.clone())
        .bind(item.n)
        .bind(item.kind.as_str())
        .bind(mode_word(item.mode))
        .bind(item.send_id.map(|send| send.0))
        .bind(json(&item.content)?)
        .bind(item.fate.as_str())
        .bind(item.seq)
        .bind(item.created_at.0)
        .bind(item.settled_at.map(|at| at.0))
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// An item by id.
pub(crate) async fn find(tx: &mut Tx, key: SessionKey, id: &str) -> Result<Option<InboxItem>> {
    let row = statement(sql!("inbox/find"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(id.to_owned())
        .fetch_optional(tx.conn())
        .await?;
    let item = row.as_ref().map(rows::item).transpose()?;
    Ok(item.map(|(_, item)| item))
}

/// Number of a session's items that are not delivered yet.
pub(crate) async fn count_pending(tx: &mut Tx, key: SessionKey) -> Result<i64> {
    let count = query_scalar(sql!("inbox/count_pending"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .fetch_one(tx.conn())
        .await?;
    Ok(count)
}

/// Stores a pending item, and its effect on its session.
pub(crate) async fn store(
    tx: &mut Tx,
    key: SessionKey,
    what: Stored,
    item: &InboxItem,
) -> Result<Notify> {
    insert(tx, key, item).await?;
    if what.interrupts
        && let Some(send) = what.send
    {
        calls::interrupt(tx, key, send).await?;
    }
    let done = hot::commit(tx, what.change, CommitExtras::default()).await?;
    Ok(done.notify)
}

/// A delivery, as the statement's parameter.
#[derive(Debug, Serialize)]
struct DeliveryCells<'d> {
    item_id: &'d str,
    seq: i64,
}

/// Records that items were delivered as messages of a send, numbered from `first_seq`.
pub(crate) async fn deliver(
    tx: &mut Tx,
    key: SessionKey,
    send: SendId,
    deliveries: &[Delivery],
    first_seq: i64,
) -> Result<()> {
    if deliveries.is_empty() {
        return Ok(());
    }
    let now = tx.now;
    let mut seen = BTreeSet::new();
    let once = deliveries
        .iter()
        .filter(|delivery| seen.insert(&delivery.item_id));
    let rows = once.map(|delivery| DeliveryCells {
        item_id: &delivery.item_id,
        seq: first_seq + i64::from(delivery.message),
    });
    let rows = json(&rows.collect::<Vec<_>>())?;
    statement(sql!("inbox/deliver"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(send.0)
        .bind(rows)
        .bind(now.0)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// A page of a session's inbox, in order.
pub(crate) async fn read(conn: &mut Conn, query: ReadInbox) -> Result<Vec<InboxItem>> {
    let sql = if query.pending {
        sql!("inbox/read_pending")
    } else {
        sql!("inbox/read")
    };
    let rows = statement(sql)
        .bind(query.key.tenant.0)
        .bind(query.key.session.0)
        .bind(query.after)
        .bind(query.limit)
        .fetch_all(conn)
        .await?;
    rows.iter()
        .map(|row| rows::item(row).map(|(_, item)| item))
        .collect()
}
