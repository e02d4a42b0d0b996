//! Ending sends that were about to be parked when a cancel was raised.

use std::collections::BTreeSet;

use mainspring_shared::id::{BootId, SessionKey};
use mainspring_shared::session::hot::SendState;
use mainspring_shared::session::transition::{self, Park, Parking};
use mainspring_shared::step::StepKind;
use mainspring_shared::store::{ParkOutcome, ParkSend, Result};
use mainspring_shared::time::Timestamp;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::{asked, read_written};
use crate::columns::{TotalColumns, UsageColumns, ord};
use crate::fault::Fault;
use crate::group::{Group, drive};
use crate::ledger::Ledger;
use crate::retry::{Pool, sql};
use crate::rows::send_columns;

/// Ends sends as cancelled under their leases, and releases the leases.
pub(super) async fn end(
    pool: &Pool,
    at: Option<Timestamp>,
    items: Vec<ParkSend>,
) -> Result<Vec<ParkOutcome>> {
    drive(pool, &End { at }, &items).await
}

struct End {
    at: Option<Timestamp>,
}

impl Group for End {
    type Item = ParkSend;
    type Outcome = ParkOutcome;
    type Seen = BTreeSet<SessionKey>;

    fn conflicts_with(&self, item: &ParkSend, seen: &mut BTreeSet<SessionKey>) -> bool {
        !seen.insert(item.key)
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        items: &[&ParkSend],
    ) -> std::result::Result<Vec<Option<ParkOutcome>>, Fault> {
        let mut tx = connection.begin().await?;
        // Each step gets the boot that holds the lease.
        let nobody = BootId(Uuid::nil());
        let keys = items.iter().map(|item| item.key);
        let mut ledger = Ledger::lock(&mut tx, self.at, nobody, keys).await?;
        let ids = items.iter().map(|item| (item.key.tenant, item.send_id));
        ledger.read_sends(&mut tx, ids).await?;
        ledger.read_last(&mut tx).await?;
        let mut outcomes = Vec::with_capacity(items.len());
        let mut ended = Vec::new();
        for item in items {
            let outcome = end_one(&mut ledger, item);
            if matches!(outcome, ParkOutcome::Cancelled { .. }) {
                ended.push(*item);
            }
            outcomes.push(Some(outcome));
        }
        write_sums(&mut tx, ledger.now, &ended).await?;
        ledger.write(&mut tx).await?;
        tx.commit().await?;
        Ok(outcomes)
    }

    /// The send is final if its last step under this grant says so.
    async fn read_back(
        &self,
        connection: &mut PgConnection,
        items: &[&ParkSend],
    ) -> std::result::Result<Vec<Option<ParkOutcome>>, Fault> {
        let written = read_written(connection, items.iter().map(|item| asked(item))).await?;
        let outcomes = written.into_iter().map(|written| {
            let written = written.unwrap_or_default();
            match written.step {
                Some(step) if step.kind == StepKind::Finished => Some(ParkOutcome::Cancelled {
                    step: step.n,
                    enqueue: written.enqueue,
                }),
                _ if written.held => None,
                _ => Some(ParkOutcome::LeaseLost),
            }
        });
        Ok(outcomes.collect())
    }

    fn unsettled(&self, _: &ParkSend) -> Result<ParkOutcome> {
        Ok(ParkOutcome::LeaseLost)
    }

    fn session(&self, item: &Self::Item) -> Option<SessionKey> {
        Some(item.key)
    }

    fn locked(&self, _: &Self::Item) -> Result<Self::Outcome> {
        Ok(ParkOutcome::Locked)
    }
}

fn end_one(ledger: &mut Ledger, item: &ParkSend) -> ParkOutcome {
    let place = (item.key.tenant, item.send_id);
    let Some((row, send)) = ledger.row(item.key).zip(ledger.sends.get(&place)) else {
        return ParkOutcome::LeaseLost;
    };
    let parking = Parking {
        on: item.on,
        until: item.until,
        unless: item.unless,
        totals: &item.totals,
    };
    let state = SendState::of(send);
    match transition::park(row, &state, item.lease, parking, ledger.now) {
        Park::Cancelled(change) => {
            let step = change.step_n();
            let enqueue = ledger.settle_leased(change).ready;
            ParkOutcome::Cancelled { step, enqueue }
        }
        // A raised cancel stays for as long as the lease holds, so the lease is gone.
        Park::LeaseLost | Park::Woken(_) | Park::Parked(_) => ParkOutcome::LeaseLost,
    }
}

async fn write_sums(
    connection: &mut PgConnection,
    now: Timestamp,
    items: &[&ParkSend],
) -> std::result::Result<(), Fault> {
    if items.is_empty() {
        return Ok(());
    }
    let mut totals = TotalColumns::default();
    let mut usage = UsageColumns::default();
    for (index, item) in items.iter().enumerate() {
        totals.push(&item.totals);
        usage.push(ord(index), &item.usage);
    }
    let (tenants, ids) = send_columns(items.iter().map(|item| (item.key.tenant, item.send_id)));
    let query = sql!("leases/sums").bind(now.0).bind(tenants).bind(ids);
    usage.bind(totals.bind(query)).execute(connection).await?;
    Ok(())
}
