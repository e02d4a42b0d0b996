//! Words for sessions that are busy.

use mainspring_shared::agent::OnBusy;
use mainspring_shared::id::SendId;
use mainspring_shared::inbox::{Fate, InboxItem, ItemKind};
use mainspring_shared::send::SendRecord;
use mainspring_shared::session::Lifecycle;
use mainspring_shared::store::{DeliverItem, DeliverOutcome};

use crate::accept::{self, Seen};
use crate::db::sql;
use crate::fault::Result;
use crate::hot::{self, Hot};
use crate::inbox::{self, Told};
use crate::query::statement;
use crate::rows::{self, Cells, json};
use crate::store::Tx;

/// Takes items in order, so that later ones of a session see the earlier ones.
pub(crate) async fn all(tx: &mut Tx, items: Vec<DeliverItem>) -> Result<Vec<DeliverOutcome>> {
    hot::lock(tx, items.iter().map(|item| item.key)).await?;
    let mut outcomes = Vec::with_capacity(items.len());
    for item in items {
        outcomes.push(one(tx, item).await?);
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

async fn take(tx: &mut Tx, hot: Hot, item: DeliverItem) -> Result<DeliverOutcome> {
    if let Some(stored) = inbox::find(tx, item.key, &item.item_id).await? {
        if let Some(send_id) = stored.send_id {
            return Ok(accepted(send_id, stored, Told::default()));
        }
        if stored.kind == item.kind {
            return Ok(DeliverOutcome::Kept(Box::new(stored)));
        }
    }
    if inbox::count_pending(tx, item.key).await? >= item.items_max {
        return Ok(DeliverOutcome::Full);
    }
    match item.mode {
        OnBusy::Coalesce => join(tx, hot, item).await,
        OnBusy::Steer | OnBusy::Interrupt => steer(tx, hot, item).await,
        // These make sends, never items.
        OnBusy::Enqueue | OnBusy::Reject => Ok(DeliverOutcome::Idle),
    }
}

fn accepted(send_id: SendId, item: InboxItem, told: Told) -> DeliverOutcome {
    DeliverOutcome::Accepted {
        send_id,
        item: Box::new(item),
        ring: told.ring,
        owner: told.owner,
    }
}

/// Adds to the input of the last queued send.
async fn join(tx: &mut Tx, mut hot: Hot, item: DeliverItem) -> Result<DeliverOutcome> {
    let row = statement(sql!("sends/last_queued"))
        .bind(item.key.tenant.0)
        .bind(item.key.session.0)
        .fetch_optional(tx.conn())
        .await?;
    let Some(row) = row else {
        return Ok(DeliverOutcome::Idle);
    };
    let send = rows::send(&mut Cells::new(&row, "sends"))?;
    let mut input = send.input;
    input.extend(item.content.iter().cloned());
    statement(sql!("sends/join"))
        .bind(item.key.tenant.0)
        .bind(send.id.0)
        .bind(json(&input)?)
        .execute(tx.conn())
        .await?;
    let stored = store(tx, &mut hot, item, Some(send.id), Fate::Delivered).await?;
    hot.save(tx).await?;
    Ok(accepted(send.id, stored, Told::default()))
}

/// Brings an item to the send that is under way, or to the one that comes next.
async fn steer(tx: &mut Tx, mut hot: Hot, item: DeliverItem) -> Result<DeliverOutcome> {
    let head: Option<SendRecord> = hot::head(tx, item.key).await?;
    if head.is_none() && item.kind == ItemKind::Message {
        return Ok(DeliverOutcome::Idle);
    }
    let (mode, send_id) = (item.mode, head.as_ref().map(|head| head.id));
    let stored = store(tx, &mut hot, item, send_id, Fate::Pending).await?;
    let told = inbox::tell(tx, &mut hot, head.as_ref(), mode).await?;
    hot.save(tx).await?;
    Ok(match send_id {
        Some(send_id) => accepted(send_id, stored, told),
        None => DeliverOutcome::Kept(Box::new(stored)),
    })
}

/// Stores an item for a send.
async fn store(
    tx: &mut Tx,
    hot: &mut Hot,
    item: DeliverItem,
    send_id: Option<SendId>,
    fate: Fate,
) -> Result<InboxItem> {
    let now = tx.now;
    let stored = InboxItem {
        id: item.item_id,
        n: hot.next_position,
        kind: item.kind,
        mode: item.mode,
        send_id,
        content: item.content,
        fate,
        seq: None,
        created_at: now,
        settled_at: (fate != Fate::Pending).then_some(now),
    };
    hot.next_position += 1;
    inbox::insert(tx, item.key, &stored).await?;
    Ok(stored)
}
