//! Lists that agents keep.

use async_trait::async_trait;
use mainspring_shared::id::{SessionId, TenantId};
use mainspring_shared::list::{List, ListName, WRITES_KEPT, Written, apply, difference};
use mainspring_shared::store;
use mainspring_shared::store::{DumpList, ListOutcome, Lists, WriteList};

use crate::db::{Conn, sql};
use crate::fault::Result;
use crate::hot;
use crate::query::{query_scalar, statement};
use crate::rows::{Cells, json};
use crate::store::{SqlStore, Tx};

#[async_trait]
impl Lists for SqlStore {
    async fn write_list(&self, item: WriteList) -> store::Result<ListOutcome> {
        self.write(item, |tx, item| Box::pin(write(tx, item))).await
    }

    async fn read_list(&self, tenant: TenantId, name: ListName) -> store::Result<List> {
        let name = name.key();
        self.snapshot(|conn| Box::pin(async move { read(conn, tenant, &name).await }))
            .await
    }
}

/// Applies each call's change to a list once.
pub(crate) async fn write(tx: &mut Tx, item: WriteList) -> Result<ListOutcome> {
    if hot::load(tx, item.session).await?.is_none() {
        return Ok(ListOutcome::Gone);
    }
    let (tenant, name, now) = (item.session.tenant, item.name.key(), tx.now);
    statement(sql!("lists/lock"))
        .bind(tenant.0)
        .bind(&name)
        .execute(tx.conn())
        .await?;
    let list = read(tx.conn(), tenant, &name).await?;
    let before = statement(sql!("lists/written"))
        .bind(tenant.0)
        .bind(&name)
        .bind(&item.call_id)
        .fetch_optional(tx.conn())
        .await?;
    if let Some(row) = before {
        let mut cells = Cells::new(&row, "list_writes");
        let written = Written {
            entry: cells.get("entry_id")?,
            evicted: cells.get("evicted")?,
        };
        return Ok(ListOutcome::Written { written, list });
    }
    let (next, written) = match apply(&list, item.change, item.bounds, now) {
        Ok(changed) => changed,
        Err(refusal) => return Ok(ListOutcome::Refused(refusal)),
    };
    store(tx, tenant, &name, &list, &next).await?;
    statement(sql!("lists/remember"))
        .bind(tenant.0)
        .bind(&name)
        .bind(&item.call_id)
        .bind(next.version)
        .bind(written.entry)
        .bind(written.evicted)
        .execute(tx.conn())
        .await?;
    statement(sql!("lists/forget"))
        .bind(tenant.0)
        .bind(&name)
        .bind(next.version - WRITES_KEPT)
        .execute(tx.conn())
        .await?;
    Ok(ListOutcome::Written {
        written,
        list: next,
    })
}

/// Reads a list.
pub(crate) async fn read(conn: &mut Conn, tenant: TenantId, name: &str) -> Result<List> {
    let row = statement(sql!("lists/load"))
        .bind(tenant.0)
        .bind(name)
        .fetch_optional(&mut *conn)
        .await?;
    let Some(row) = row else {
        return Ok(List::default());
    };
    let mut cells = Cells::new(&row, "lists");
    let mut list = List {
        next_id: cells.get("next_id")?,
        version: cells.get("version")?,
        entries: Vec::new(),
    };
    let rows = statement(sql!("lists/entries"))
        .bind(tenant.0)
        .bind(name)
        .fetch_all(conn)
        .await?;
    for row in &rows {
        let entry = Cells::new(row, "list_entries").json("body")?;
        list.entries.push(entry);
    }
    Ok(list)
}

/// Stores an imported list.
pub(crate) async fn copy(
    tx: &mut Tx,
    tenant: TenantId,
    name: &ListName,
    list: &List,
) -> Result<()> {
    let empty = List::default();
    if *list == empty {
        return Ok(());
    }
    store(tx, tenant, &name.key(), &empty, list).await
}

async fn store(
    tx: &mut Tx,
    tenant: TenantId,
    name: &str,
    before: &List,
    next: &List,
) -> Result<()> {
    statement(sql!("lists/save"))
        .bind(tenant.0)
        .bind(name)
        .bind(next.next_id)
        .bind(next.version)
        .execute(tx.conn())
        .await?;
    let (changed, gone) = difference(before, next);
    for entry in changed {
        statement(sql!("lists/put"))
            .bind(tenant.0)
            .bind(name)
            .bind(entry.id)
            .bind(json(entry)?)
            .execute(tx.conn())
            .await?;
    }
    for id in gone {
        statement(sql!("lists/drop"))
            .bind(tenant.0)
            .bind(name)
            .bind(id)
            .execute(tx.conn())
            .await?;
    }
    Ok(())
}

/// Removes the lists that belong to a session.
pub(crate) async fn erase(tx: &mut Tx, tenant: TenantId, session: SessionId) -> Result<()> {
    for name in ListName::of_session(session) {
        statement(sql!("lists/erase"))
            .bind(tenant.0)
            .bind(name.key())
            .execute(tx.conn())
            .await?;
    }
    Ok(())
}

/// All lists.
pub(crate) async fn dump(conn: &mut Conn) -> Result<Vec<DumpList>> {
    let rows = statement(sql!("lists/dump")).fetch_all(&mut *conn).await?;
    let mut lists = Vec::with_capacity(rows.len());
    for row in &rows {
        let mut cells = Cells::new(row, "lists");
        let tenant = TenantId(cells.get("tenant")?);
        let name: String = cells.get("list")?;
        let calls = query_scalar(sql!("lists/dump_writes"))
            .bind(tenant.0)
            .bind(&name)
            .fetch_all(&mut *conn)
            .await?;
        let list = read(conn, tenant, &name).await?;
        lists.push(DumpList {
            tenant,
            name,
            list,
            calls,
        });
    }
    Ok(lists)
}
