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

use super::extract::{Params, SessionPath, parameter};
use super::problem::Problem;
use super::respond::{self, List};
use super::sends::watched;
use crate::accept::signal;
use crate::app::App;

/// Undelivered items that one session may have: a conversation, not a feed.
const ITEMS_MAX: i64 = 1_000;

/// A send, and the item that it absorbed.
#[derive(Debug, Serialize)]
struct Absorbed {
    #[serde(flatten)]
    send: SendView,
    /// Null when the item is told by an earlier answer.
    inbox_item: Option<InboxItem>,
}

/// Brings the words of a send to the send that is under way, where its sender asks for that; none
/// when the words are to be accepted as a send of their own.
pub(super) async fn to_busy(
    app: &App,
    item: &AcceptSend,
    wait: Option<Duration>,
) -> Result<Option<Response>, Problem> {
    let (Target::Existing(key), mode) = (&item.target, item.options.on_busy) else {
        return Ok(None);
    };
    match mode {
        OnBusy::Enqueue | OnBusy::Reject => return Ok(None),
        OnBusy::Coalesce | OnBusy::Steer | OnBusy::Interrupt => {}
    }
    let delivery = DeliverItem {
        key: *key,
        item_id: format!("itm_{}", item.id.0.simple()),
        kind: ItemKind::Message,
        mode,
        content: item.input.clone(),
        idempotency: item.idempotency.clone(),
        items_max: ITEMS_MAX,
    };
    let boot = app.boot_id()?;
    let mut outcomes = app.store.deliver_items(None, boot, vec![delivery]).await?;
    match outcomes.pop().ok_or_else(Problem::internal)? {
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
                signal(app, *key, SIGNAL_INBOX | interrupt);
            }
            let send = absorbing(app, key.tenant, send_id, wait).await?;
            answer(send, Some(*item), wait.is_some()).map(Some)
        }
        DeliverOutcome::Replayed(send_id) => {
            let send = absorbing(app, key.tenant, send_id, wait).await?;
            let mut response = answer(send, None, wait.is_some())?;
            respond::mark_replayed(&mut response);
            Ok(Some(response))
        }
        DeliverOutcome::Mismatch => Err(Problem::mismatch()),
        DeliverOutcome::Full => Err(Problem::new(
            Code::LimitExceeded,
            format!("the session has {ITEMS_MAX} undelivered items already"),
        )),
        DeliverOutcome::NotFound => Err(Problem::session_not_found()),
        DeliverOutcome::Closed => Err(Problem::from(RefuseReason::SessionClosed)),
    }
}

async fn absorbing(
    app: &App,
    tenant: TenantId,
    send: SendId,
    wait: Option<Duration>,
) -> Result<SendRecord, Problem> {
    let found = match wait {
        Some(wait) => watched(app, app.watch.send(send), tenant, wait).await?,
        None => app.read_send(tenant, send).await?,
    };
    found.ok_or_else(Problem::send_not_found)
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
    let absorbed = Absorbed {
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
        Some(_) => return Err(parameter("fate", "must be pending")),
    };
    params.finish()?;
    if app.store.get_session(key).await?.is_none() {
        return Err(Problem::session_not_found());
    }
    // One more than asked for tells whether there is a next page.
    let query = ReadInbox {
        key,
        pending,
        after: after.unwrap_or(0),
        limit: limit + 1,
    };
    let mut data = app.store.read_inbox(query).await?;
    let more = data.len() > limit as usize;
    data.truncate(limit as usize);
    let next_cursor = data.last().filter(|_| more).map(|item| item.n.to_string());
    respond::json(StatusCode::OK, &List { data, next_cursor })
}
