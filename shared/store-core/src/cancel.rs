//! Asking sends to end, and letting those go on that wait for a person's word.

use std::time::Duration;

use mainspring_shared::id::{BootId, SendId, SessionKey, TenantId};
use mainspring_shared::send::{SendRecord, SendResult, SendStatus, WaitingOn};
use mainspring_shared::session::SIGNAL_CANCEL;
use mainspring_shared::store::{CancelOutcome, ReadySession};
use mainspring_shared::time::Timestamp;

use crate::boots::lease_of;
use crate::complete::{finish_queued, finish_unowned};
use crate::db::sql;
use crate::fault::Result;
use crate::hot::{self, Hot};
use crate::query::statement;
use crate::reads;
use crate::store::Tx;

/// Asks sends to end one after the other.
pub(crate) async fn all(
    tx: &mut Tx,
    boot: BootId,
    items: Vec<(TenantId, SendId)>,
) -> Result<Vec<CancelOutcome>> {
    let mut outcomes = Vec::with_capacity(items.len());
    for (tenant, send) in items {
        outcomes.push(one(tx, boot, tenant, send).await?);
    }
    Ok(outcomes)
}

async fn one(tx: &mut Tx, boot: BootId, tenant: TenantId, id: SendId) -> Result<CancelOutcome> {
    let Some(found) = reads::send(tx.conn(), tenant, id).await? else {
        return Ok(CancelOutcome::NotFound);
    };
    if found.status.is_final() {
        return Ok(CancelOutcome::AlreadyFinal(Box::new(found)));
    }
    let Some(session) = hot::load(tx, found.key).await? else {
        // A deleted session's sends are all final.
        return Ok(CancelOutcome::NotFound);
    };
    // It may have changed before the session was locked.
    let Some(mut send) = reads::send(tx.conn(), tenant, id).await? else {
        return Ok(CancelOutcome::NotFound);
    };
    if send.status.is_final() {
        return Ok(CancelOutcome::AlreadyFinal(Box::new(send)));
    }
    let mut hot = session.hot;
    statement(sql!("sends/request_cancel"))
        .bind(tenant.0)
        .bind(id.0)
        .execute(tx.conn())
        .await?;
    send.cancel_requested = true;
    let end = SendResult::cancelled();
    let lease = match send.status {
        SendStatus::Running => lease_of(tx, hot.owner).await?,
        _ => None,
    };
    let (step, ring) = match (send.status, hot.owner.zip(lease)) {
        (SendStatus::Running, Some((owner, lease_until))) => {
            hot.signals |= SIGNAL_CANCEL;
            hot.save(tx).await?;
            // Should the worker die before it obeys, the alarm finds the send.
            let lease_end = lease_until.after(Duration::from_millis(1));
            send.alarm_at = send.alarm_at.into_iter().chain([lease_end]).min();
            watch(tx, &send, send.alarm_at).await?;
            let send = Box::new(send);
            return Ok(CancelOutcome::Signalled { send, owner });
        }
        (SendStatus::Queued, _) => {
            let step = finish_queued(tx, &mut hot, boot, &send, &end).await?;
            (step, None)
        }
        _ => finish_unowned(tx, &mut hot, boot, &send, &end).await?,
    };
    let send = Box::new(ended(send, end, tx));
    Ok(CancelOutcome::Cancelled { send, step, ring })
}

/// The send as its row is now.
fn ended(send: SendRecord, end: SendResult, tx: &Tx) -> SendRecord {
    SendRecord {
        status: end.status,
        stop_reason: Some(end.stop_reason),
        output_text: end.output_text,
        output: end.output,
        error: end.error,
        waiting_on: None,
        alarm_at: None,
        finished_at: Some(tx.now),
        ..send
    }
}

/// Makes a session ready whose head waits for `recovery`; the claim takes it from there.
pub(crate) async fn resume_recovery(tx: &mut Tx, key: SessionKey) -> Result<Option<SendId>> {
    let Some(session) = hot::load(tx, key).await? else {
        return Ok(None);
    };
    let mut hot = session.hot;
    let head = hot::head(tx, key).await?;
    let Some(send) = head.filter(|send| send.waiting_on == Some(WaitingOn::Recovery)) else {
        return Ok(None);
    };
    wake(tx, &mut hot, &send).await?;
    hot.save(tx).await?;
    Ok(Some(send.id))
}

/// Lets a waiting send go on: its session is ready, and its next alarm is its deadline. The claim
/// does the rest. Returns whom to ring for; the hot row is the caller's to save.
pub(crate) async fn wake(tx: &mut Tx, hot: &mut Hot, send: &SendRecord) -> Result<ReadySession> {
    set_alarm(tx, send, send.position).await?;
    Ok(hot.wake(tx.now))
}

/// Sets a running send's next alarm.
pub(crate) async fn watch(tx: &mut Tx, send: &SendRecord, at: Option<Timestamp>) -> Result<()> {
    statement(sql!("sends/set_alarm"))
        .bind(send.key.tenant.0)
        .bind(send.id.0)
        .bind(at.map(|at| at.0))
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Leaves a send with its deadline as its alarm, in its place.
pub(crate) async fn set_alarm(tx: &mut Tx, send: &SendRecord, position: Option<i64>) -> Result<()> {
    statement(sql!("sends/rearm"))
        .bind(send.key.tenant.0)
        .bind(send.id.0)
        .bind(send.deadline_at.map(|at| at.0))
        .bind(position)
        .execute(tx.conn())
        .await?;
    Ok(())
}
