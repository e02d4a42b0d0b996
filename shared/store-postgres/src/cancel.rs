//! Cancelling sends, and resuming one that waits for a person.

use std::collections::BTreeMap;

use mainspring_shared::id::{BootId, SendId, SessionKey, TenantId};
use mainspring_shared::send::SendStatus;
use mainspring_shared::session::hot::SendState;
use mainspring_shared::session::transition;
use mainspring_shared::store::{CancelOutcome, Result};
use mainspring_shared::time::Timestamp;
use sqlx::{Connection, PgConnection};

use crate::fault::Fault;
use crate::group::{Group, LostResponse, drive};
use crate::ledger::Ledger;
use crate::retry::{Attempts, Pool, Verdict, fetch, sql};
use crate::rows::{Fields, send_columns};

pub(crate) async fn cancel(
    pool: &Pool,
    at: Option<Timestamp>,
    boot: BootId,
    items: &[(TenantId, SendId)],
) -> Result<Vec<CancelOutcome>> {
    let homes = homes(pool, items).await?;
    let asked = items.iter().map(|(tenant, send)| CancelItem {
        tenant: *tenant,
        send: *send,
        home: homes.get(&(*tenant, *send)).copied(),
    });
    let group = Cancel {
        at,
        boot,
        lost_response: LostResponse::default(),
    };
    drive(pool, &group, &asked.collect::<Vec<_>>()).await
}

struct Cancel {
    at: Option<Timestamp>,
    boot: BootId,
    lost_response: LostResponse,
}

/// A send to cancel.
struct CancelItem {
    tenant: TenantId,
    send: SendId,
    /// Its session; `None` if the send is unknown.
    home: Option<SessionKey>,
}

impl Group for Cancel {
    type Item = CancelItem;
    type Outcome = CancelOutcome;
    type Seen = ();

    fn conflicts_with(&self, _: &CancelItem, (): &mut ()) -> bool {
        false
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        items: &[&CancelItem],
    ) -> std::result::Result<Vec<Option<CancelOutcome>>, Fault> {
        let ids: Vec<_> = items.iter().map(|item| (item.tenant, item.send)).collect();
        let mut tx = connection.begin().await?;
        let keys = items.iter().filter_map(|item| item.home);
        let mut ledger = Ledger::lock(&mut tx, self.at, self.boot, keys).await?;
        ledger.read_sends(&mut tx, ids.iter().copied()).await?;
        ledger.read_owners(&mut tx).await?;
        ledger.read_last(&mut tx).await?;
        let ours = if self.lost_response.any() {
            finished_by(&mut tx, &ids, self.boot).await?
        } else {
            BTreeMap::new()
        };
        let outcomes = ids
            .iter()
            .map(|(tenant, id)| Some(cancel_one(&mut ledger, *tenant, *id, &ours)))
            .collect();
        ledger.write(&mut tx).await?;
        tx.commit().await?;
        Ok(outcomes)
    }

    async fn read_back(
        &self,
        _: &mut PgConnection,
        items: &[&CancelItem],
    ) -> std::result::Result<Vec<Option<CancelOutcome>>, Fault> {
        self.lost_response.note();
        Ok(items.iter().map(|_| None).collect())
    }

    fn unsettled(&self, _: &CancelItem) -> Result<CancelOutcome> {
        Ok(CancelOutcome::Locked)
    }

    fn session(&self, item: &CancelItem) -> Option<SessionKey> {
        item.home
    }

    fn locked(&self, _: &CancelItem) -> Result<CancelOutcome> {
        Ok(CancelOutcome::Locked)
    }
}

/// The sessions of sends; a send never moves.
async fn homes(
    pool: &Pool,
    items: &[(TenantId, SendId)],
) -> Result<BTreeMap<(TenantId, SendId), SessionKey>> {
    let (tenants, ids) = send_columns(items.iter().copied());
    let rows = fetch(pool, || {
        sql!("ledger/homes").bind(tenants.clone()).bind(ids.clone())
    });
    let rows = rows.await?;
    let homes = rows.iter().map(|row| {
        let mut fields = Fields::new(row, "sends");
        let key = fields.key()?;
        Ok(((key.tenant, SendId(fields.take("send_id")?)), key))
    });
    homes.collect()
}

fn cancel_one(
    ledger: &mut Ledger,
    tenant: TenantId,
    id: SendId,
    ours: &BTreeMap<(TenantId, SendId), i64>,
) -> CancelOutcome {
    let Some(send) = ledger.sends.get(&(tenant, id)) else {
        return CancelOutcome::NotFound;
    };
    let (key, state) = (send.key, SendState::of(send));
    let Some(hot) = ledger.hot.get(&key) else {
        return CancelOutcome::NotFound;
    };
    let lease_until = ledger.lease_until(key);
    let change = transition::cancel(
        &hot.row,
        &state,
        hot.head(),
        lease_until,
        ledger.boot,
        ledger.now,
    );
    let Some(change) = change else {
        let send = Box::new(send.clone());
        return match ours.get(&(tenant, id)) {
            // An earlier attempt cancelled it; only its response was lost.
            Some(step) if send.status == SendStatus::Cancelled => CancelOutcome::Cancelled {
                send,
                step: *step,
                enqueue: hot.row.ready(),
            },
            _ => CancelOutcome::AlreadyFinal(send),
        };
    };
    let step = change.step_n();
    let notify = ledger.settle(change);
    let send = Box::new(ledger.sends[&(tenant, id)].clone());
    match notify.owner {
        Some(owner) => CancelOutcome::Signalled { send, owner },
        None => CancelOutcome::Cancelled {
            send,
            step,
            enqueue: notify.ready,
        },
    }
}

/// The final steps that this process wrote for some of the sends.
async fn finished_by(
    connection: &mut PgConnection,
    items: &[(TenantId, SendId)],
    boot: BootId,
) -> std::result::Result<BTreeMap<(TenantId, SendId), i64>, Fault> {
    let (tenants, ids) = send_columns(items.iter().copied());
    let rows = sql!("ledger/finished_by")
        .bind(tenants)
        .bind(ids)
        .bind(boot.0)
        .fetch_all(connection)
        .await?;
    let steps = rows.iter().map(|row| {
        let mut fields = Fields::new(row, "steps");
        let tenant = TenantId(fields.take("tenant")?);
        let send = SendId(fields.take("send_id")?);
        Ok(((tenant, send), fields.take("n")?))
    });
    Ok(steps.collect::<Result<_>>()?)
}

/// Makes a session ready whose send waits for a person's decision after a worker crash.
pub(crate) async fn resume_recovery(
    pool: &Pool,
    at: Option<Timestamp>,
    boot: BootId,
    key: SessionKey,
) -> Result<Option<SendId>> {
    let mut attempts = Attempts::default();
    loop {
        let resumed = attempts.on(pool, async |connection| {
            resume_once(connection, at, boot, key).await
        });
        match resumed.await {
            Ok(send) => return Ok(send),
            Err(fault) => match attempts.weigh(fault)? {
                Verdict::Again | Verdict::Lost => {}
                Verdict::BadData(error) => return Err(error),
            },
        }
    }
}

async fn resume_once(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    boot: BootId,
    key: SessionKey,
) -> std::result::Result<Option<SendId>, Fault> {
    // Each return path ends the transaction explicitly: one that is merely dropped keeps its locks
    // until the connection's next use, and a concurrent sweep would skip the session.
    let mut tx = connection.begin().await?;
    let mut ledger = Ledger::lock(&mut tx, at, boot, [key]).await?;
    let hot = ledger.hot.get(&key);
    if hot.is_none_or(|hot| hot.active != Some(SendStatus::Waiting)) {
        tx.rollback().await?;
        return Ok(None);
    }
    ledger.read_heads(&mut tx).await?;
    let head = ledger.head(key);
    let row = ledger.row(key);
    let resumed = row.and_then(|row| transition::resume(row, head.as_ref(), ledger.now));
    let Some(change) = resumed else {
        tx.rollback().await?;
        return Ok(None);
    };
    ledger.commit(change);
    ledger.write(&mut tx).await?;
    tx.commit().await?;
    Ok(head.map(|head| head.id))
}
