//! Delivers messages to busy sessions.

use mainspring_shared::agent::OnBusy;
use mainspring_shared::error::Code;
use mainspring_shared::id::SendId;
use mainspring_shared::inbox::{InboxItem, ItemKind};
use mainspring_shared::session::{SIGNAL_INBOX, SIGNAL_INTERRUPT};
use mainspring_shared::store::{AcceptSend, DeliverItem, DeliverOutcome, RefuseReason, Target};

use super::accept::retry_locked;
use crate::app::{App, each};
use crate::error::Error;

/// Maximum number of undelivered items in a session's inbox.
pub const ITEMS_MAX: i64 = 1_000;

/// How a message was delivered instead of becoming a send of its own.
#[derive(Debug, Clone)]
pub enum Delivery {
    /// To this send, as this inbox item.
    Delivered(SendId, Box<InboxItem>),
    /// To this send, by an earlier request with the same idempotency key.
    Replayed(SendId),
}

/// The message of a send as an inbox item, if its `on_busy` asks for delivery to an open send.
pub fn delivery(item: &AcceptSend) -> Option<DeliverItem> {
    let (Target::Existing(key), mode) = (&item.target, item.options.on_busy) else {
        return None;
    };
    match mode {
        OnBusy::Enqueue | OnBusy::Reject => return None,
        OnBusy::Coalesce | OnBusy::Steer | OnBusy::Interrupt => {}
    }
    Some(DeliverItem {
        key: *key,
        item_id: format!("itm_{}", item.id.0.simple()),
        kind: ItemKind::Message,
        mode,
        content: item.input.clone(),
        idempotency: item.idempotency.clone(),
        items_max: ITEMS_MAX,
    })
}

/// Delivers messages to the open sends of their sessions, and notifies the workers. Returns none
/// for a session without an open send: its message is then accepted as a send of its own.
pub async fn deliver(app: &App, items: Vec<DeliverItem>) -> Vec<Result<Option<Delivery>, Error>> {
    let boot = match app.boot_id() {
        Ok(boot) => boot,
        Err(error) => return vec![Err(error); items.len()],
    };
    let targets: Vec<_> = items.iter().map(|item| (item.key, item.mode)).collect();
    let step =
        async |items: Vec<_>| each(&items, |items| app.store.deliver_items(boot, items)).await;
    let is_locked = |outcome: &_| matches!(outcome, Ok(DeliverOutcome::Locked));
    let outcomes = step(items.clone()).await;
    let outcomes = retry_locked(app, items, outcomes, is_locked, step).await;
    let deliveries =
        outcomes
            .into_iter()
            .zip(targets)
            .map(|(outcome, (key, mode))| match outcome? {
                // Only items that are not messages are kept for the next send.
                DeliverOutcome::Idle | DeliverOutcome::Kept(_) => Ok(None),
                DeliverOutcome::Accepted {
                    send_id,
                    item,
                    enqueue,
                    owner,
                } => {
                    app.notifier.enqueue(enqueue);
                    if owner.is_some() {
                        let interrupt = i32::from(mode == OnBusy::Interrupt) * SIGNAL_INTERRUPT;
                        app.notifier.signal(key, SIGNAL_INBOX | interrupt);
                    }
                    Ok(Some(Delivery::Delivered(send_id, item)))
                }
                DeliverOutcome::Replayed(send_id) => Ok(Some(Delivery::Replayed(send_id))),
                DeliverOutcome::Mismatch => Err(Error::mismatch()),
                DeliverOutcome::Full => Err(Error::new(
                    Code::LimitExceeded,
                    format!("the session already has {ITEMS_MAX} undelivered items"),
                )),
                DeliverOutcome::NotFound => Err(Error::session_not_found()),
                DeliverOutcome::Closed => Err(Error::from(RefuseReason::SessionClosed)),
                DeliverOutcome::Locked => Err(Error::locked()),
            });
    deliveries.collect()
}
