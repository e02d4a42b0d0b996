//! Many sends.

use std::sync::Arc;

use axum::http::StatusCode;
use mainspring_shared::id::{SendId, SessionKey, TenantId};
use mainspring_shared::send::SendView;
use mainspring_shared::store::{AcceptOutcome, AcceptSend, IdempotencyKey};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;

use super::{Batch, Made, items};
use crate::accept::many;
use crate::api::problem::{Problem, ProblemDocument};
use crate::api::sends::{accepted_view, build};
use crate::api::validate::{Checks, SendAnywhereBody};
use crate::app::App;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw<'a> {
    #[serde(borrow)]
    sends: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Checked {
    #[serde(rename = "sends")]
    _sends: Vec<serde::de::IgnoredAny>,
}

/// The shape of an answer.
#[derive(Debug, utoipa::ToSchema)]
#[schema(as = BatchResults)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::api) struct ResultsShape {
    /// One per item, in order.
    results: Vec<ResultShape>,
}

/// What became of one item: `send` or `problem` is there.
#[derive(Debug, utoipa::ToSchema)]
#[schema(as = BatchResult)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::api) struct ResultShape {
    /// The status that the item alone would have been answered with.
    status: u16,
    /// The accepted send.
    send: Option<SendView>,
    /// Why nothing was stored.
    problem: Option<ProblemDocument>,
}

/// `POST /v1/sends:batch`
pub(in crate::api) struct Sends;

impl Batch for Sends {
    const ITEMS: &'static str = "sends";
    const ITEM: &'static str = "send";
    const ROUTE: &'static str = "POST /v1/sends:batch";
    const STATUS: StatusCode = StatusCode::ACCEPTED;
    type Asked = SendAnywhereBody;
    type Item = AcceptSend;
    type Id = SendId;
    type View = SendView;

    fn items(json: &[u8]) -> Result<Vec<&RawValue>, Problem> {
        items::<Raw<'_>, Checked>(json, Self::ITEMS).map(|raw| raw.sends)
    }

    fn take_key(asked: &mut SendAnywhereBody) -> Option<String> {
        asked.idempotency_key.take()
    }

    fn item(
        app: &App,
        checks: Checks,
        asked: SendAnywhereBody,
        key: Option<IdempotencyKey>,
    ) -> Result<AcceptSend, Problem> {
        build(app, checks, asked, key)
    }

    fn room(app: &App, count: usize) -> Result<Option<OwnedSemaphorePermit>, Problem> {
        app.accept.take_room(count).map(Some)
    }

    async fn store(
        app: &Arc<App>,
        items: Vec<AcceptSend>,
    ) -> Vec<Result<Made<SendId, SendView>, Problem>> {
        let keys = items.iter().map(|item| (item.target.key(), item.id));
        let keys: Vec<(SessionKey, SendId)> = keys.collect();
        let outcomes = many(app, items).await.into_iter().zip(keys);
        let outcomes = outcomes.map(|(outcome, (key, id))| match outcome? {
            AcceptOutcome::Accepted(accepted) => Ok(Made::Now(accepted_view(key, id, &accepted))),
            AcceptOutcome::Replayed(first) => Ok(Made::Before(first)),
            AcceptOutcome::Mismatch => Err(Problem::mismatch()),
            AcceptOutcome::Refused(reason) => Err(Problem::from(reason)),
        });
        outcomes.collect()
    }

    async fn read(app: &App, ids: Vec<SendId>) -> Vec<Result<SendView, Problem>> {
        let named = ids.iter().map(|id| (TenantId::DEFAULT, *id)).collect();
        match app.store.get_sends(named).await {
            Ok(found) => {
                let views = found.into_iter();
                let views = views.map(|send| send.map(SendView::from));
                views
                    .map(|view| view.ok_or_else(Problem::send_not_found))
                    .collect()
            }
            Err(error) => ids.iter().map(|_| Err(Problem::from(&error))).collect(),
        }
    }
}
