//! Messages to sessions that may be busy.

use mainspring_shared::agent::OnBusy;
use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::inbox::{Fate, InboxItem};
use mainspring_shared::send::SendRecord;
use mainspring_shared::session::Lifecycle;
use mainspring_shared::session::hot::{HotRow, SendState};
use mainspring_shared::session::transition::{self, Delivery, DeliveryFacts, Notify};
use mainspring_shared::store::{DeliverItem, DeliverOutcome};
use mainspring_shared::time::Timestamp;

use crate::accept::{self, Seen};
use crate::db::sql;
use crate::fault::Result;
use crate::hot::{self, CommitExtras};
use crate::inbox;
use crate::query::statement;
use crate::rows::{self, Cells, json};
use crate::store::Tx;

/// Delivers items in order, so that later ones of a session see the earlier ones.
pub(crate) async fn all(tx: &mut Tx, items: Vec<DeliverItem>) -> Result<Vec<DeliverOutcome>> {
    let locked = hot::lock(tx, items.iter().map(|item| item.key)).await?;
    let mut outcomes = Vec::with_capacity(items.len());
    for item in items {
        outcomes.push(if locked.contains(&item.key) {
            DeliverOutcome::Locked
        } else {
            one(tx, item).await?
        });
    }
    Ok(outcomes)
}

async fn one(tx: &mut Tx, mut item: DeliverItem) -> Result<DeliverOutcome> {
    let request = item.idempotency.take();
    if let Some(key) = &request {
        match accept::seen(tx, key).await? {
            Seen::Never => {}
            Seen::Before(send) => return Ok(DeliverOutcome::Replayed(SendId(send))),
            Seen::OtherBody => return Ok(DeliverOutcome::Mismatch),
        }
    }
    let Some(session) = hot::load(tx, item.key).await? else {
        return Ok(DeliverOutcome::NotFound);
    };
    if session.hot.lifecycle == Lifecycle::Closed {
        return Ok(DeliverOutcome::Closed);
    }
    let outcome = take(tx, session.hot, item).await?;
    if let (Some(key), DeliverOutcome::Accepted { send_id, .. }) = (&request, &outcome) {
        accept::remember(tx, key, send_id.0).await?;
    }
    Ok(outcome)
}

async fn take(tx: &mut Tx, hot: HotRow, item: DeliverItem) -> Result<DeliverOutcome> {
    if let Some(stored) = inbox::find(tx, item.key, &item.item_id).await? {
        if let Some(send_id) = stored.send_id {
            return Ok(accepted(send_id, stored, Notify::default()));
        }
        if stored.kind == item.kind {
            return Ok(DeliverOutcome::Kept(Box::new(stored)));
        }
    }
    let (head, last) = match item.mode {
        OnBusy::Coalesce => (None, last_queued(tx, item.key).await?),
        OnBusy::Steer | OnBusy::Interrupt | OnBusy::Enqueue | OnBusy::Reject => {
            (hot::head(tx, item.key).await?, None)
        }
    };
    let state = head.as_ref().map(SendState::of);
    let facts = DeliveryFacts {
        head: state.as_ref(),
        last_queued: last.as_ref().map(|send| send.id),
        pending_items: inbox::count_pending(tx, item.key).await?,
    };
    let (mode, kind) = (item.mode, item.kind);
    match transition::deliver(&hot, facts, mode, kind, item.items_max, tx.now) {
        Delivery::Full => Ok(DeliverOutcome::Full),
        Delivery::Idle => Ok(DeliverOutcome::Idle),
        Delivery::Joined { change, n, send } => {
            let mut input = last.map(|send| send.input).unwrap_or_default();
            input.extend(item.content.iter().cloned());
            statement(sql!("sends/join"))
                .bind(item.key.tenant.0)
                .bind(send.0)
                .bind(json(&input)?)
                .execute(tx.conn())
                .await?;
            let key = item.key;
            let stored = stored(item, n, Some(send), Fate::Delivered, tx.now);
            inbox::insert(tx, key, &stored).await?;
            let done = hot::commit(tx, change, CommitExtras::default()).await?;
            Ok(accepted(send, stored, done.notify))
        }
        Delivery::Stored(what) => {
            let (key, send) = (item.key, what.send);
            let pending = stored(item, what.n, send, Fate::Pending, tx.now);
            let notify = inbox::store(tx, key, what, &pending).await?;
            Ok(match send {
                Some(send) => accepted(send, pending, notify),
                None => DeliverOutcome::Kept(Box::new(pending)),
            })
        }
    }
}

fn accepted(send_id: SendId, item: InboxItem, notify: Notify) -> DeliverOutcome {
    DeliverOutcome::Accepted {
        send_id,
        item: Box::new(item),
        enqueue: notify.ready,
        owner: notify.owner,
    }
}

/// The queued send with the highest position.
async fn last_queued(tx: &mut Tx, key: SessionKey) -> Result<Option<SendRecord>> {
    let row = statement(sql!("sends/last_queued"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .fetch_optional(tx.conn())
        .await?;
    let row = row.as_ref();
    row.map(|row| rows::send(&mut Cells::new(row, "sends")))
        .transpose()
}

fn stored(
    item: DeliverItem,
    n: i64,
    send_id: Option<SendId>,
    fate: Fate,
    now: Timestamp,
) -> InboxItem {
    InboxItem {
        id: item.item_id,
        n,
        kind: item.kind,
        mode: item.mode,
        send_id,
        content: item.content,
        fate,
        seq: None,
        created_at: now,
        settled_at: (fate != Fate::Pending).then_some(now),
    }
}
