//! Words for a session that may be busy, and its inbox.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use mainspring_shared::agent::OnBusy;
use mainspring_shared::error::Code;
use mainspring_shared::id::{SendId, TenantId};
use mainspring_shared::inbox::{InboxItem, ItemKind};
use mainspring_shared::send::{SendRecord, SendView};
use mainspring_shared::session::{SIGNAL_INBOX, SIGNAL_INTERRUPT};
use mainspring_shared::store::{
    AcceptSend, DeliverItem, DeliverOutcome, ReadInbox, RefuseReason, Target,
};
use serde::Serialize;

use super::extract::{Params, SessionPath, Whole, parameter};
use super::problem::Problem;
use super::respond::{self, Begin};
use super::sends::watched;
use crate::app::{App, each};
use crate::error::Error;
use crate::services::accept::{again, signal};

/// Undelivered items that one session may have: a conversation, not a feed.
const ITEMS_MAX: i64 = 1_000;

/// A send as it was accepted, or the one that took the words in.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = AcceptedSend)]
pub(super) struct AcceptedSend {
    #[serde(flatten)]
    send: SendView,
    /// The item in the session's inbox, where the words went to a send under way (`on_busy`). Not
    /// there when an earlier request had brought them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    inbox_item: Option<InboxItem>,
}

impl From<SendView> for AcceptedSend {
    fn from(send: SendView) -> Self {
        Self {
            send,
            inbox_item: None,
        }
    }
}

/// Where the words of a send went instead of becoming one of their own.
#[derive(Clone)]
pub(super) enum Joined {
    /// To this send, as this item.
    Now(SendId, Box<InboxItem>),
    /// To this send, when the request came first.
    Before(SendId),
}

/// The words of a send as an item for whatever is under way, where its sender asks for that.
pub(super) fn delivery(item: &AcceptSend) -> Option<DeliverItem> {
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
pub(super) async fn deliver(
    app: &App,
    items: Vec<DeliverItem>,
) -> Vec<Result<Option<Joined>, Error>> {
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
                app.ringer.ring(ring);
                if owner.is_some() {
                    let interrupt = i32::from(mode == OnBusy::Interrupt) * SIGNAL_INTERRUPT;
                    signal(app, key, SIGNAL_INBOX | interrupt);
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

/// Brings the words of a send to the send that is under way, where its sender asks for that; gives
/// the body back when the words are to be accepted as a send of their own.
pub(super) async fn to_busy(
    app: &App,
    item: &AcceptSend,
    body: Whole,
    wait: Option<Duration>,
) -> Result<Result<Response, Whole>, Problem> {
    let Some(delivery) = delivery(item) else {
        return Ok(Err(body));
    };
    let tenant = delivery.key.tenant;
    let mut told = deliver(app, vec![delivery]).await;
    let Some(joined) = told.pop().ok_or_else(Error::internal)?? else {
        return Ok(Err(body));
    };
    drop(body);
    match joined {
        Joined::Now(send_id, item) => {
            let send = absorbing(app, tenant, send_id, wait).await?;
            answer(send, Some(*item), wait.is_some()).map(Ok)
        }
        Joined::Before(send_id) => {
            let send = absorbing(app, tenant, send_id, wait).await?;
            let mut response = answer(send, None, wait.is_some())?;
            respond::mark_replayed(&mut response);
            Ok(Ok(response))
        }
    }
}

impl AcceptedSend {
    /// A send that took words in.
    pub(super) fn joined(send: SendRecord, item: InboxItem) -> Self {
        Self {
            send: SendView::from(send),
            inbox_item: Some(item),
        }
    }
}

async fn absorbing(
    app: &App,
    tenant: TenantId,
    send: SendId,
    wait: Option<Duration>,
) -> Result<SendRecord, Error> {
    let found = match wait {
        Some(wait) => watched(app, app.watch.send(send), tenant, wait).await?,
        None => app.read_send(tenant, send).await?,
    };
    found.ok_or_else(Error::send_not_found)
}

fn answer(
    send: SendRecord,
    inbox_item: Option<InboxItem>,
    waited: bool,
) -> Result<Response, Problem> {
    let status = if waited {
        respond::status_of(&send)
    } else {
        StatusCode::ACCEPTED
    };
    let path = format!("/v1/sends/{}", send.id);
    let absorbed = AcceptedSend {
        send: SendView::from(send),
        inbox_item,
    };
    respond::created(status, &path, &absorbed)
}

/// `GET /v1/sessions/{id}/inbox`
pub(super) async fn inbox(
    State(app): State<Arc<App>>,
    SessionPath(key): SessionPath,
    mut params: Params,
) -> Result<Response, Problem> {
    let limit = params.limit()?;
    let after = params.parsed::<i64>("cursor", "must be a next_cursor")?;
    let pending = match params.take("fate").as_deref() {
        None => false,
        Some("pending") => true,
        Some(_) => return Err(parameter("fate", "must be pending").into()),
    };
    params.finish()?;
    if app.store.get_session(key).await?.is_none() {
        return Err(Error::session_not_found().into());
    }
    let begin = Begin {
        cursor: after,
        limit,
    };
    let read = async |after: Option<i64>, limit: u32| {
        // One more than asked for tells whether there is more.
        let query = ReadInbox {
            key,
            pending,
            after: after.unwrap_or(0),
            limit: limit + 1,
        };
        let mut items = app.store.read_inbox(query).await?;
        let more = items.len() > limit as usize;
        items.truncate(limit as usize);
        Ok((items, more))
    };
    respond::page(&app, begin, read, |item| item.n, |item| item).await
}
