//! Lists of agents: to-do lists, notes and boards.

use async_trait::async_trait;
use mainspring_shared::id::{BootId, SessionId, TenantId};
use mainspring_shared::list::{List, ListName, WRITES_KEPT, Written, apply, difference};
use mainspring_shared::session::Lifecycle;
use mainspring_shared::store::{DumpList, ListOutcome, Lists, Result, WriteList};
use mainspring_shared::time::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::columns::{json, text};
use crate::fault::Fault;
use crate::ledger::Ledger;
use crate::retry::{Attempts, PgQuery, Pool, Verdict, sql};
use crate::rows::Fields;
use crate::store::PostgresStore;

#[async_trait]
impl Lists for PostgresStore {
    async fn write_list(&self, item: WriteList) -> Result<ListOutcome> {
        write(&self.pools.writers, self.at, &item).await
    }

    async fn read_list(&self, tenant: TenantId, name: ListName) -> Result<List> {
        read(&self.pools.claimers, tenant, &name).await
    }
}

pub(crate) async fn write(
    pool: &Pool,
    at: Option<Timestamp>,
    item: &WriteList,
) -> Result<ListOutcome> {
    let mut attempts = Attempts::default();
    loop {
        let written = attempts.on(pool, async |connection| {
            write_once(connection, at, item).await
        });
        match written.await {
            Ok(outcome) => return Ok(outcome),
            // A repeat recognizes what the first attempt did.
            Err(fault) => match attempts.weigh(fault)? {
                Verdict::Again | Verdict::Lost => {}
                Verdict::BadData(error) => return Err(error),
            },
        }
    }
}

async fn write_once(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    item: &WriteList,
) -> std::result::Result<ListOutcome, Fault> {
    let mut tx = connection.begin().await?;
    // Lock the session's row first, in the same order as deleting the session.
    let nobody = BootId(Uuid::nil());
    let ledger = Ledger::lock(&mut tx, at, nobody, [item.session]).await?;
    let hot = ledger.hot.get(&item.session);
    if hot.is_none_or(|hot| hot.row.lifecycle == Lifecycle::Deleted) {
        tx.rollback().await?;
        return Ok(ListOutcome::Gone);
    }
    let (tenant, name) = (item.session.tenant, key(&item.name));
    let row = sql!("lists/lock")
        .bind(tenant.0)
        .bind(name.clone())
        .fetch_one(&mut *tx)
        .await?;
    let list = with_entries(&mut tx, tenant, &name, &row).await?;
    let before = sql!("lists/written")
        .bind(tenant.0)
        .bind(name.clone())
        .bind(text(&item.call_id).into_owned())
        .fetch_optional(&mut *tx)
        .await?;
    if let Some(row) = before {
        tx.rollback().await?;
        let mut fields = Fields::new(&row, "list_writes");
        let written = Written {
            entry: fields.take("entry_id")?,
            evicted: fields.take("evicted")?,
        };
        return Ok(ListOutcome::Written { written, list });
    }
    let (next, written) = match apply(&list, item.change.clone(), item.bounds, ledger.now) {
        Ok(changed) => changed,
        Err(refusal) => {
            tx.rollback().await?;
            return Ok(ListOutcome::Refused(refusal));
        }
    };
    store(&mut tx, tenant, &name, &list, &next).await?;
    sql!("lists/remember")
        .bind(tenant.0)
        .bind(name)
        .bind(text(&item.call_id).into_owned())
        .bind(next.version)
        .bind(written.entry)
        .bind(written.evicted)
        .bind(next.version - WRITES_KEPT)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(ListOutcome::Written {
        written,
        list: next,
    })
}

pub(crate) async fn read(pool: &Pool, tenant: TenantId, name: &ListName) -> Result<List> {
    let mut attempts = Attempts::default();
    loop {
        let list = attempts.on(pool, async |connection| {
            read_once(connection, tenant, &key(name)).await
        });
        match list.await {
            Ok(list) => return Ok(list),
            Err(fault) => match attempts.weigh(fault)? {
                Verdict::Again | Verdict::Lost => {}
                Verdict::BadData(error) => return Err(error),
            },
        }
    }
}

async fn read_once(
    connection: &mut PgConnection,
    tenant: TenantId,
    name: &str,
) -> std::result::Result<List, Fault> {
    // One snapshot for both tables.
    let mut tx = connection
        .begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        .await?;
    let row = sql!("lists/load")
        .bind(tenant.0)
        .bind(name.to_owned())
        .fetch_optional(&mut *tx)
        .await?;
    let list = match row {
        None => List::default(),
        Some(row) => with_entries(&mut tx, tenant, name, &row).await?,
    };
    tx.commit().await?;
    Ok(list)
}

async fn with_entries(
    connection: &mut PgConnection,
    tenant: TenantId,
    name: &str,
    row: &PgRow,
) -> std::result::Result<List, Fault> {
    let mut fields = Fields::new(row, "lists");
    let (next_id, version) = (fields.take("next_id")?, fields.take("version")?);
    let rows = sql!("lists/entries")
        .bind(tenant.0)
        .bind(name.to_owned())
        .fetch_all(connection)
        .await?;
    let entries = rows.iter();
    let entries = entries.map(|row| Fields::new(row, "list_entries").json("body"));
    Ok(List {
        next_id,
        version,
        entries: entries.collect::<Result<_>>()?,
    })
}

/// Binds copied lists as the arrays of one statement.
pub(crate) fn bind_copies(query: PgQuery, copies: &[(ListName, &List)]) -> PgQuery {
    let empty = List::default();
    let copies = copies.iter().filter(|(_, list)| **list != empty);
    let (mut names, mut next_ids, mut versions) = (Vec::new(), Vec::new(), Vec::new());
    let (mut owners, mut ids, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
    for (name, list) in copies {
        names.push(key(name));
        next_ids.push(list.next_id);
        versions.push(list.version);
        for entry in &list.entries {
            owners.push(key(name));
            ids.push(entry.id);
            bodies.push(json(entry));
        }
    }
    let query = query.bind(names).bind(next_ids).bind(versions);
    query.bind(owners).bind(ids).bind(bodies)
}

async fn store(
    connection: &mut PgConnection,
    tenant: TenantId,
    name: &str,
    before: &List,
    next: &List,
) -> std::result::Result<(), Fault> {
    let (changed, gone) = difference(before, next);
    let ids: Vec<i64> = changed.iter().map(|entry| entry.id).collect();
    let bodies: Vec<String> = changed.iter().map(json).collect();
    sql!("lists/store")
        .bind(tenant.0)
        .bind(name.to_owned())
        .bind(next.next_id)
        .bind(next.version)
        .bind(ids)
        .bind(bodies)
        .bind(gone)
        .execute(connection)
        .await?;
    Ok(())
}

/// Removes the lists of a session.
pub(crate) async fn erase(
    connection: &mut PgConnection,
    tenant: TenantId,
    session: SessionId,
) -> std::result::Result<(), Fault> {
    for name in ListName::of_session(session) {
        sql!("lists/erase")
            .bind(tenant.0)
            .bind(key(&name))
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

/// Reads a row of the dump.
pub(crate) fn dumped(row: &PgRow) -> Result<DumpList> {
    let mut fields = Fields::new(row, "lists");
    let (tenant, name) = (TenantId(fields.take("tenant")?), fields.take("list")?);
    let (next_id, version) = (fields.take("next_id")?, fields.take("version")?);
    let bodies: Vec<String> = fields.take("bodies")?;
    let entries = bodies.iter().map(|body| {
        mainspring_shared::stored::read(body)
            .map_err(|error| fields.corrupt("body", error.to_string()))
    });
    let list = List {
        next_id,
        version,
        entries: entries.collect::<Result<_>>()?,
    };
    Ok(DumpList {
        tenant,
        name,
        list,
        calls: fields.take("calls")?,
    })
}

fn key(name: &ListName) -> String {
    text(&name.key()).into_owned()
}
