//! Cancelling sends, and resuming those that wait for an operator's decision.

use mainspring_shared::id::{BootId, SendId, SessionKey, TenantId};
use mainspring_shared::send::{SendRecord, SendResult, SendStatus};
use mainspring_shared::session::hot::SendState;
use mainspring_shared::session::transition;
use mainspring_shared::store::CancelOutcome;

use crate::boots::lease_of;
use crate::complete::settle;
use crate::fault::Result;
use crate::hot::{self, CommitExtras, Session};
use crate::reads;
use crate::store::Tx;

/// Requests the end of sends, one after the other.
pub(crate) async fn all(
    tx: &mut Tx,
    boot: BootId,
    items: Vec<(TenantId, SendId)>,
) -> Result<Vec<CancelOutcome>> {
    let mut found = Vec::with_capacity(items.len());
    for (tenant, send) in items {
        found.push(reads::send(tx.conn(), tenant, send).await?);
    }
    let open = found
        .iter()
        .flatten()
        .filter(|send| !send.status.is_final());
    let locked = hot::lock(tx, open.map(|send| send.key)).await?;
    let mut outcomes = Vec::with_capacity(found.len());
    for send in found {
        outcomes.push(match send {
            None => CancelOutcome::NotFound,
            Some(send) if send.status.is_final() => CancelOutcome::AlreadyFinal(Box::new(send)),
            Some(send) if locked.contains(&send.key) => CancelOutcome::Locked,
            Some(send) => one(tx, boot, send).await?,
        });
    }
    Ok(outcomes)
}

async fn one(tx: &mut Tx, boot: BootId, found: SendRecord) -> Result<CancelOutcome> {
    let (tenant, id) = (found.key.tenant, found.id);
    let Some(session) = hot::load(tx, found.key).await? else {
        // All sends of a deleted session are final.
        return Ok(CancelOutcome::NotFound);
    };
    // It may have changed before the session was locked.
    let Some(mut send) = reads::send(tx.conn(), tenant, id).await? else {
        return Ok(CancelOutcome::NotFound);
    };
    let Session { hot, head, .. } = session;
    let lease_until = match send.status {
        SendStatus::Running => lease_of(tx, hot.owner).await?,
        _ => None,
    };
    let state = SendState::of(&send);
    let Some(change) = transition::cancel(&hot, &state, head, lease_until, boot, tx.now) else {
        return Ok(CancelOutcome::AlreadyFinal(Box::new(send)));
    };
    let (after, end) = (change.send.unwrap_or(state), change.end.clone());
    let done = settle(tx, change, &send).await?;
    after.store_in(&mut send);
    let Some(end) = end else {
        let send = Box::new(send);
        return Ok(match done.notify.owner {
            Some(owner) => CancelOutcome::Signalled { send, owner },
            None => CancelOutcome::NotFound,
        });
    };
    Ok(CancelOutcome::Cancelled {
        send: Box::new(ended(send, end)),
        step: done.step,
        enqueue: done.notify.ready,
    })
}

/// The send with its end, as its row is now.
fn ended(send: SendRecord, end: SendResult) -> SendRecord {
    SendRecord {
        stop_reason: Some(end.stop_reason),
        output_text: end.output_text,
        output: end.output,
        error: end.error,
        ..send
    }
}

/// Makes a session ready if its head waits for `recovery`; the claim does the rest.
pub(crate) async fn resume_recovery(tx: &mut Tx, key: SessionKey) -> Result<Option<SendId>> {
    let Some(session) = hot::load(tx, key).await? else {
        return Ok(None);
    };
    let head = hot::head(tx, key).await?;
    let state = head.as_ref().map(SendState::of);
    let Some(change) = transition::resume(&session.hot, state.as_ref(), tx.now) else {
        return Ok(None);
    };
    hot::commit(tx, change, CommitExtras::default()).await?;
    Ok(head.map(|send| send.id))
}
