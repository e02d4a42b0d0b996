//! Results of calls that come from outside, and permission to make them.

use mainspring_shared::id::SessionKey;
use mainspring_shared::send::{SendStatus, WaitingOn};
use mainspring_shared::session::SIGNAL_RESULT;
use mainspring_shared::store::{CallAnswer, PostOutcome, PostResult};
use mainspring_shared::tool::{Approval, CallRecord};

use crate::calls;
use crate::cancel::wake;
use crate::db::sql;
use crate::fault::Result;
use crate::hot::{self, Hot};
use crate::inbox::Told;
use crate::query::query_scalar;
use crate::store::Tx;

/// Takes answers in order, so that later ones of a session see the earlier ones.
pub(crate) async fn all(tx: &mut Tx, items: Vec<PostResult>) -> Result<Vec<PostOutcome>> {
    let mut outcomes = Vec::with_capacity(items.len());
    for item in items {
        outcomes.push(one(tx, item).await?);
    }
    Ok(outcomes)
}

async fn one(tx: &mut Tx, item: PostResult) -> Result<PostOutcome> {
    let tenant = item.key.tenant;
    let Some(call) = calls::get(tx.conn(), tenant, &item.call_id).await? else {
        return Ok(PostOutcome::Unknown);
    };
    let key = SessionKey {
        tenant,
        session: call.session,
    };
    if !is_below(tx, key, item.key).await? {
        return Ok(PostOutcome::Unknown);
    }
    let Some(session) = hot::load(tx, key).await? else {
        return Ok(PostOutcome::Unknown);
    };
    // The call may have been settled before its session was locked.
    let Some(call) = calls::get(tx.conn(), tenant, &item.call_id).await? else {
        return Ok(PostOutcome::Unknown);
    };
    if call.result.is_some() {
        return Ok(PostOutcome::AlreadySettled);
    }
    let asked = call.approval == Approval::Asked;
    match (&item.answer, call.waits_on) {
        (CallAnswer::Approve, Some(_)) if asked => {
            calls::approve(tx, tenant, &call.call_id).await?;
        }
        (CallAnswer::Result(result), Some(on))
            if asked || matches!(on, WaitingOn::Tool | WaitingOn::Human) =>
        {
            calls::settle(tx, tenant, &call.call_id, result).await?;
        }
        (CallAnswer::Approve | CallAnswer::Result(_), _) => return Ok(PostOutcome::NotWaiting),
    }
    let mut hot = session.hot;
    let Told { ring, owner } = answered(tx, &mut hot, &call).await?;
    Ok(PostOutcome::Accepted {
        key,
        send_id: call.send_id,
        ring,
        owner,
    })
}

/// Whether `key` is `of`, or one of its descendants.
async fn is_below(tx: &mut Tx, key: SessionKey, of: SessionKey) -> Result<bool> {
    let below = query_scalar(sql!("sessions/below"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(of.session.0)
        .fetch_one(tx.conn())
        .await?;
    Ok(below)
}

/// Tells the send that asked for a call that it was answered, if it is under way. One that waits
/// goes on once no call of its round waits for anyone.
pub(crate) async fn answered(tx: &mut Tx, hot: &mut Hot, call: &CallRecord) -> Result<Told> {
    let mut told = Told::default();
    let head = hot::head(tx, hot.key).await?;
    let Some(send) = head.filter(|head| head.id == call.send_id) else {
        return Ok(told);
    };
    hot.signals |= SIGNAL_RESULT;
    if send.status == SendStatus::Running {
        told.owner = hot.owner;
    }
    let waits_for_calls = matches!(
        send.waiting_on,
        Some(WaitingOn::Tool | WaitingOn::Human | WaitingOn::Agent | WaitingOn::Run)
    );
    if waits_for_calls && !calls::any_waits(tx, hot.key, send.id, call.round).await? {
        told.ring = Some(wake(tx, hot, &send).await?);
    }
    hot.save(tx).await?;
    Ok(told)
}
