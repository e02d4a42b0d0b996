//! Parking a send, and giving a lease back with its send as it is.

use mainspring_shared::send::SendResult;
use mainspring_shared::session::SIGNAL_CANCEL;
use mainspring_shared::step::{StepKind, StepRefs};
use mainspring_shared::store::{ParkOutcome, ParkSend, ParkUntil, ReleaseSession};

use crate::calls;
use crate::complete::{End, finish};
use crate::db::sql;
use crate::fault::Result;
use crate::hot::{self, Author, NewStep};
use crate::query::statement;
use crate::rounds::{Held, held, usage_rows};
use crate::rows::json;
use crate::store::Tx;

/// Parks sends one after the other.
pub(crate) async fn all(tx: &mut Tx, items: Vec<ParkSend>) -> Result<Vec<ParkOutcome>> {
    hot::lock(tx, items.iter().map(|item| item.key)).await?;
    let mut outcomes = Vec::with_capacity(items.len());
    for item in items {
        outcomes.push(one(tx, item).await?);
    }
    Ok(outcomes)
}

async fn one(tx: &mut Tx, item: ParkSend) -> Result<ParkOutcome> {
    let now = tx.now;
    let send = item.send_id;
    let Some(held) = held(tx, item.key, item.lease, send).await? else {
        return Ok(ParkOutcome::LeaseLost);
    };
    let Held {
        mut hot,
        deadline_at,
    } = held;
    let author = Author::from(item.lease);
    if hot.signals & SIGNAL_CANCEL != 0 {
        let unsaid = calls::end_open_round(tx, &hot, send).await?;
        hot.keep_for_next();
        let ring = hot.give_back(now);
        let result = SendResult::cancelled();
        let end = End {
            messages: &unsaid,
            usage: &item.usage,
            totals: Some(&item.totals),
            ..End::of(send, &result)
        };
        let (_, step) = finish(tx, &mut hot, author, end).await?;
        return Ok(ParkOutcome::Cancelled { step, ring });
    }
    if hot.signals & item.unless != 0 {
        let signals = hot.signals;
        hot.signals = 0;
        hot.save(tx).await?;
        return Ok(ParkOutcome::Woken { signals });
    }
    hot.spend(tx, &item.totals).await?;
    let due = match item.until {
        ParkUntil::After(wait) => Some(now.after(wait)),
        ParkUntil::Asked => None,
    };
    let alarm = [due, deadline_at].into_iter().flatten().min();
    // Whatever is queued behind a send that waits has to wait too.
    hot.owner = None;
    hot.token = None;
    hot.ready_since = None;
    let refs = StepRefs {
        reason: Some(item.on.as_str().to_owned()),
        ..StepRefs::default()
    };
    let step = NewStep {
        author,
        send,
        kind: StepKind::Waiting,
        at: now,
        refs: &refs,
    };
    let sql = sql!("usage/insert", "sends/park", "steps/write");
    let (step, query) = hot.step(sql, step)?;
    query
        .bind(None::<String>)
        .bind(usage_rows(&item.usage)?)
        .bind(json(&item.totals.spending())?)
        .bind(item.totals.rounds)
        .bind(item.totals.attempts)
        .bind(item.on.as_str())
        .bind(alarm.map(|at| at.0))
        .execute(tx.conn())
        .await?;
    Ok(ParkOutcome::Parked { step })
}

/// Gives leases back; true where the lease was still held.
pub(crate) async fn release(tx: &mut Tx, items: Vec<ReleaseSession>) -> Result<Vec<bool>> {
    hot::lock(tx, items.iter().map(|item| item.key)).await?;
    let mut released = Vec::with_capacity(items.len());
    for ReleaseSession { key, lease, lost } in items {
        if lost {
            statement(sql!("sessions/lost"))
                .bind(key.tenant.0)
                .bind(key.session.0)
                .bind(lease.token.0)
                .bind(lease.boot.0)
                .execute(tx.conn())
                .await?;
        }
        let done = statement(sql!("sessions/release"))
            .bind(key.tenant.0)
            .bind(key.session.0)
            .bind(lease.token.0)
            .bind(lease.boot.0)
            .execute(tx.conn())
            .await?;
        released.push(done.rows_affected() == 1);
    }
    Ok(released)
}
