//! Parking sends, and releasing leases without a change of their sends.

use mainspring_shared::id::SessionKey;
use mainspring_shared::lease::Lease;
use mainspring_shared::session::hot::SendState;
use mainspring_shared::session::transition::{self, Park, Parking};
use mainspring_shared::store::{ParkOutcome, ParkSend, ReleaseLoss, ReleaseSession};

use crate::calls;
use crate::fault::Result;
use crate::hot::{self, CommitExtras};
use crate::rounds::{LeasedSession, load_leased};
use crate::store::Tx;

/// Parks sends one after the other.
pub(crate) async fn all(tx: &mut Tx, items: Vec<ParkSend>) -> Result<Vec<ParkOutcome>> {
    let locked = hot::lock(tx, items.iter().map(|item| item.key)).await?;
    let mut outcomes = Vec::with_capacity(items.len());
    for item in items {
        outcomes.push(if locked.contains(&item.key) {
            ParkOutcome::Locked
        } else {
            one(tx, item).await?
        });
    }
    Ok(outcomes)
}

async fn one(tx: &mut Tx, item: ParkSend) -> Result<ParkOutcome> {
    let (id, now) = (item.send_id, tx.now);
    let Some(LeasedSession { hot, send }) = load_leased(tx, item.key, item.lease, id).await? else {
        return Ok(ParkOutcome::LeaseLost);
    };
    let parking = Parking {
        on: item.on,
        until: item.until,
        unless: item.unless,
        totals: &item.totals,
    };
    let extras = CommitExtras {
        usage: &item.usage,
        totals: Some(&item.totals),
        ..CommitExtras::default()
    };
    match transition::park(&hot, &send, item.lease, parking, now) {
        Park::LeaseLost => Ok(ParkOutcome::LeaseLost),
        Park::Woken(change) => {
            hot::commit(tx, change, CommitExtras::default()).await?;
            Ok(ParkOutcome::Woken {
                signals: hot.signals,
            })
        }
        Park::Cancelled(change) => {
            let messages = calls::end_open_round(tx, &hot, id).await?;
            let extras = CommitExtras {
                messages: &messages,
                ..extras
            };
            let done = hot::commit(tx, change, extras).await?;
            Ok(ParkOutcome::Cancelled {
                step: done.step,
                enqueue: done.notify.ready,
            })
        }
        Park::Parked(change) => {
            let step = hot::commit(tx, change, extras).await?.step;
            Ok(ParkOutcome::Parked { step })
        }
    }
}

/// Releases leases; true for each lease that was still held.
pub(crate) async fn release(tx: &mut Tx, items: Vec<ReleaseSession>) -> Result<Vec<bool>> {
    // If some stay locked, loading them below waits for the lock: a lease has to be released in any
    // case.
    hot::lock(tx, items.iter().map(|item| item.key)).await?;
    let mut released = Vec::with_capacity(items.len());
    for ReleaseSession { key, lease, lost } in items {
        released.push(give_back(tx, key, lease, lost).await?);
    }
    Ok(released)
}

async fn give_back(tx: &mut Tx, key: SessionKey, lease: Lease, lost: ReleaseLoss) -> Result<bool> {
    let Some(session) = hot::load(tx, key).await? else {
        return Ok(false);
    };
    let head = if lost == ReleaseLoss::Nothing {
        None
    } else {
        hot::head(tx, key).await?
    };
    let state = head.as_ref().map(SendState::of);
    let change = transition::release(&session.hot, state.as_ref(), lease, lost);
    let Some(change) = change else {
        return Ok(false);
    };
    hot::commit(tx, change, CommitExtras::default()).await?;
    Ok(true)
}
