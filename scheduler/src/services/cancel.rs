//! Cancels sends and the work below them.

use std::time::Duration;

use mainspring_shared::bus::StepNotice;
use mainspring_shared::error::Code;
use mainspring_shared::id::{BootId, SendId, SessionKey, TenantId};
use mainspring_shared::send::{SendStatus, SendView};
use mainspring_shared::store::{self, CancelOutcome, cancel_below};

use super::accept::retry_locked;
use super::watch::wait_for;
use crate::app::{App, each};
use crate::error::Error;

/// Cancels a send. If no worker runs it, it ends at once. Otherwise its worker is signalled, and
/// this function waits up to `wait` for the end.
pub async fn send(
    app: &App,
    tenant: TenantId,
    id: SendId,
    wait: Option<Duration>,
) -> Result<SendView, Error> {
    let watcher = app.watch.send(id);
    let boot = app.boot_id()?;
    let step =
        async |items: Vec<_>| each(&items, |items| app.store.cancel_sends(boot, items)).await;
    let is_locked = |outcome: &_| matches!(outcome, Ok(CancelOutcome::Locked));
    let items = vec![(tenant, id)];
    let outcomes = step(items.clone()).await;
    let mut outcomes = retry_locked(app, items, outcomes, is_locked, step).await;
    match outcomes.pop().transpose()? {
        Some(CancelOutcome::Cancelled {
            send,
            step,
            enqueue,
        }) => {
            app.notifier.enqueue(enqueue);
            let notice = StepNotice::new(send.key, id, step, true);
            app.notifier.publish_steps(&[notice]);
            cancel_work_of(app, send.key, id).await?;
            Ok(SendView::from(*send))
        }
        Some(CancelOutcome::Signalled { send, .. }) => {
            app.notifier.signal(send.key, 0);
            let Some(wait) = wait else {
                return Ok(SendView::from(*send));
            };
            let known = Some(*send);
            let outcomes = wait_for(app, &watcher, tenant, known, wait).await?;
            outcomes.ok_or_else(Error::send_not_found)
        }
        Some(CancelOutcome::AlreadyFinal(send)) if send.status == SendStatus::Cancelled => {
            // The process that cancelled it may have died before cancelling the work below.
            cancel_work_of(app, send.key, id).await?;
            Ok(SendView::from(*send))
        }
        Some(CancelOutcome::AlreadyFinal(send)) => Err(Error::new(
            Code::SendNotCancellable,
            format!("the send is already {}", send.status.as_str()),
        )),
        Some(CancelOutcome::NotFound) => Err(Error::send_not_found()),
        Some(CancelOutcome::Locked) => Err(Error::locked()),
        None => Err(Error::internal()),
    }
}

/// Cancels the sub-agents and runs of a send that ended without a worker. Retries for some seconds
/// while sessions are locked.
async fn cancel_work_of(app: &App, key: SessionKey, send: SendId) -> Result<(), Error> {
    let boot = app.boot_id()?;
    let step = |items| try_cancel_work_of(app, boot, items);
    let items = vec![(key, send)];
    let outcomes = step(items.clone()).await;
    let is_locked = |outcomes: &_| matches!(outcomes, Ok(false));
    match retry_locked(app, items, outcomes, is_locked, step)
        .await
        .pop()
    {
        Some(Ok(true)) => Ok(()),
        Some(Ok(false)) => Err(Error::locked()),
        Some(Err(error)) => Err(Error::from(&error)),
        None => Err(Error::internal()),
    }
}

async fn try_cancel_work_of(
    app: &App,
    boot: BootId,
    items: Vec<(SessionKey, SendId)>,
) -> Vec<store::Result<bool>> {
    let mut outcomes = Vec::with_capacity(items.len());
    for (key, send) in items {
        let below = cancel_below(app.store.as_ref(), boot, key, send).await;
        outcomes.push(below.map(|below| app.notifier.cancelled(below)));
    }
    outcomes
}
