//! Words for a session that may be busy.

use mainspring_shared::agent::OnBusy;
use mainspring_shared::error::Code;
use mainspring_shared::id::SendId;
use mainspring_shared::inbox::{InboxItem, ItemKind};
use mainspring_shared::session::{SIGNAL_INBOX, SIGNAL_INTERRUPT};
use mainspring_shared::store::{AcceptSend, DeliverItem, DeliverOutcome, RefuseReason, Target};

use super::accept::again;
use crate::app::{App, each};
use crate::error::Error;

/// Undelivered items that one session may have: a conversation, not a feed.
const ITEMS_MAX: i64 = 1_000;

/// Where the words of a send went instead of becoming one of their own.
#[derive(Debug, Clone)]
pub enum Joined {
    /// To this send, as this item.
    Now(SendId, Box<InboxItem>),
    /// To this send, when the request came first.
    Before(SendId),
}

/// The words of a send as an item for whatever is under way, where its sender asks for that.
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

/// Brings words to what is under way, and tells whom it concerns; none where nothing is, and the
/// words are to be accepted as a send of their own.
pub async fn deliver(app: &App, items: Vec<DeliverItem>) -> Vec<Result<Option<Joined>, Error>> {
    let boot = match app.boot_id() {
        Ok(boot) => boot,
        Err(error) => return vec![Err(error); items.len()],
    };
    let whose: Vec<_> = items.iter().map(|item| (item.key, item.mode)).collect();
    let step = |items| each(items, |items| app.store.deliver_items(None, boot, items));
    let is_locked = |outcome: &_| matches!(outcome, Ok(DeliverOutcome::Locked));
    let outcomes = step(items.clone()).await;
    let outcomes = again(app, items, outcomes, is_locked, step).await;
    let told = outcomes
        .into_iter()
        .zip(whose)
        .map(|(outcome, (key, mode))| match outcome? {
            // Only what is no message is kept.
            DeliverOutcome::Idle | DeliverOutcome::Kept(_) => Ok(None),
            DeliverOutcome::Accepted {
                send_id,
                item,
                ring,
                owner,
            } => {
                app.notifier.ring(ring);
                if owner.is_some() {
                    let interrupt = i32::from(mode == OnBusy::Interrupt) * SIGNAL_INTERRUPT;
                    app.notifier.signal(key, SIGNAL_INBOX | interrupt);
                }
                Ok(Some(Joined::Now(send_id, item)))
            }
            DeliverOutcome::Replayed(send_id) => Ok(Some(Joined::Before(send_id))),
            DeliverOutcome::Mismatch => Err(Error::mismatch()),
            DeliverOutcome::Full => Err(Error::new(
                Code::LimitExceeded,
                format!("the session has {ITEMS_MAX} undelivered items already"),
            )),
            DeliverOutcome::NotFound => Err(Error::session_not_found()),
            DeliverOutcome::Closed => Err(Error::from(RefuseReason::SessionClosed)),
            DeliverOutcome::Locked => Err(Error::locked()),
        });
    told.collect()
}
