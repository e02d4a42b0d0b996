//! Results of calls that come from outside, and approvals of calls.

use mainspring_shared::id::SessionKey;
use mainspring_shared::session::hot::{HotRow, SendState};
use mainspring_shared::session::transition::{self, Notify, Post};
use mainspring_shared::store::{PostOutcome, PostResult};
use mainspring_shared::tool::CallRecord;

use crate::calls;
use crate::db::sql;
use crate::fault::Result;
use crate::hot::{self, CommitExtras};
use crate::query::query_scalar;
use crate::store::Tx;

/// Stores answers in order, so that later ones of a session see the earlier ones.
pub(crate) async fn all(tx: &mut Tx, items: Vec<PostResult>) -> Result<Vec<PostOutcome>> {
    let mut found = Vec::with_capacity(items.len());
    for item in items {
        found.push((asked_by(tx, &item).await?, item));
    }
    let locked = hot::lock(tx, found.iter().filter_map(|(key, _)| *key)).await?;
    let mut outcomes = Vec::with_capacity(found.len());
    for (key, item) in found {
        outcomes.push(match key {
            None => PostOutcome::Unknown,
            Some(key) if locked.contains(&key) => PostOutcome::Locked,
            Some(key) => one(tx, key, item).await?,
        });
    }
    Ok(outcomes)
}

/// The session that requested a call, if it is the item's session or one below it.
async fn asked_by(tx: &mut Tx, item: &PostResult) -> Result<Option<SessionKey>> {
    let tenant = item.key.tenant;
    let Some(call) = calls::get(tx.conn(), tenant, &item.call_id).await? else {
        return Ok(None);
    };
    let key = SessionKey {
        tenant,
        session: call.session,
    };
    Ok(is_below(tx, key, item.key).await?.then_some(key))
}

async fn one(tx: &mut Tx, key: SessionKey, item: PostResult) -> Result<PostOutcome> {
    let tenant = key.tenant;
    let Some(session) = hot::load(tx, key).await? else {
        return Ok(PostOutcome::Unknown);
    };
    // The call may have been settled before its session was locked.
    let Some(mut call) = calls::get(tx.conn(), tenant, &item.call_id).await? else {
        return Ok(PostOutcome::Unknown);
    };
    let claims = match transition::post(&call, &item.answer, tx.now) {
        Post::AlreadySettled => return Ok(PostOutcome::AlreadySettled),
        Post::NotWaiting => return Ok(PostOutcome::NotWaiting),
        Post::ClaimLost => return Ok(PostOutcome::ClaimLost),
        Post::Claims => true,
        Post::Approves | Post::Settles | Post::Replies => false,
    };
    transition::take(&mut call, item.answer, tx.now);
    calls::answer(tx, tenant, &call).await?;
    if claims {
        return Ok(PostOutcome::of_claim(key, &call));
    }
    let notify = answered(tx, &session.hot, &call).await?;
    Ok(PostOutcome::Accepted {
        key,
        send_id: call.send_id,
        enqueue: notify.ready,
        owner: notify.owner,
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

/// Notifies the send that requested a call of its answer, if the send is in progress. A parked send
/// continues once no call of its round waits for an answer.
pub(crate) async fn answered(tx: &mut Tx, hot: &HotRow, call: &CallRecord) -> Result<Notify> {
    let head = hot::head(tx, hot.key).await?;
    let state = head.as_ref().map(SendState::of);
    let waits = calls::any_waits(tx, hot.key, call.send_id, call.round).await?;
    let change = transition::answer(hot, state.as_ref(), call.send_id, waits, tx.now);
    Ok(hot::commit(tx, change, CommitExtras::default())
        .await?
        .notify)
}
