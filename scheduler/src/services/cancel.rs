//! Cancelling sends, and what works for them.

use std::time::Duration;

use mainspring_shared::bus::StepNotice;
use mainspring_shared::error::Code;
use mainspring_shared::id::{BootId, SendId, SessionKey, TenantId};
use mainspring_shared::send::{SendRecord, SendStatus};
use mainspring_shared::store::{self, CancelOutcome, cancel_below};

use super::accept::again;
use super::watch::wait_for;
use crate::app::{App, each};
use crate::error::Error;

/// Cancels a send: it has ended, or its worker was told and the wait is over.
pub async fn send(app: &App, id: SendId, wait: Option<Duration>) -> Result<SendRecord, Error> {
    let tenant = TenantId::DEFAULT;
    let watching = app.watch.send(id);
    let boot = app.boot_id()?;
    let step = |items| each(items, |items| app.store.cancel_sends(None, boot, items));
    let is_locked = |outcome: &_| matches!(outcome, Ok(CancelOutcome::Locked));
    let asked = vec![(tenant, id)];
    let outcomes = step(asked.clone()).await;
    let mut outcomes = again(app, asked, outcomes, is_locked, step).await;
    match outcomes.pop().transpose()? {
        Some(CancelOutcome::Cancelled { send, step, ring }) => {
            app.notifier.ring(ring);
            let notice = StepNotice {
                key: send.key,
                send: id,
                n: step,
                settled: true,
            };
            app.notifier.steps(&[notice]);
            end_below(app, send.key, id).await?;
            Ok(*send)
        }
        Some(CancelOutcome::Signalled { send, .. }) => {
            app.notifier.signal(send.key, 0);
            let Some(wait) = wait else {
                return Ok(*send);
            };
            let known = Some(*send);
            let ended = wait_for(app, &watching, tenant, known, wait).await?;
            ended.ok_or_else(Error::send_not_found)
        }
        Some(CancelOutcome::AlreadyFinal(send)) if send.status == SendStatus::Cancelled => {
            // Whoever cancelled it may have been stopped here.
            end_below(app, send.key, id).await?;
            Ok(*send)
        }
        Some(CancelOutcome::AlreadyFinal(send)) => Err(Error::new(
            Code::SendNotCancellable,
            format!("the send is {} already", send.status.as_str()),
        )),
        Some(CancelOutcome::NotFound) => Err(Error::send_not_found()),
        Some(CancelOutcome::Locked) => Err(Error::locked()),
        None => Err(Error::internal()),
    }
}

/// Ends what works for a send that ended without a worker. Sessions that someone else has locked are
/// waited for, for a while.
async fn end_below(app: &App, key: SessionKey, send: SendId) -> Result<(), Error> {
    let boot = app.boot_id()?;
    let step = |asked| ask_below(app, boot, asked);
    let asked = vec![(key, send)];
    let ended = step(asked.clone()).await;
    let is_locked = |ended: &_| matches!(ended, Ok(false));
    match again(app, asked, ended, is_locked, step).await.pop() {
        Some(Ok(true)) => Ok(()),
        Some(Ok(false)) => Err(Error::locked()),
        Some(Err(error)) => Err(Error::from(&error)),
        None => Err(Error::internal()),
    }
}

async fn ask_below(
    app: &App,
    boot: BootId,
    asked: Vec<(SessionKey, SendId)>,
) -> Vec<store::Result<bool>> {
    let mut ended = Vec::with_capacity(asked.len());
    for (key, send) in asked {
        let below = cancel_below(app.store.as_ref(), boot, key, send).await;
        ended.push(below.map(|below| app.notifier.ends(below)));
    }
    ended
}
