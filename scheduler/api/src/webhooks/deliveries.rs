//! Deliveries of events to webhooks.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Path, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use mainspring_scheduler::App;
use mainspring_scheduler::error::Error;
use mainspring_shared::error::Code;
use mainspring_shared::id::{TenantId, WebhookEventId, WebhookId};
use mainspring_shared::store::ListDeliveries;
use mainspring_shared::time::Timestamp;
use mainspring_shared::webhook::{DeliveryRecord, DeliveryStatus};
use serde::{Deserialize, Serialize};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{WebhookPath, no_webhook};
use crate::access::Caller;
use crate::acts::{self, ActedShape};
use crate::codes::{WebhookDeliveryNotFound, WebhookNotFound};
use crate::extract::{Json, Limit, NoQuery, Nothing, Query, cursor, text};
use crate::openapi::form;
use crate::problem::Problem;
use crate::respond::{self, Begin, List};
use crate::router::Api;

/// A delivery: one event on its way to one webhook.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = WebhookDelivery)]
pub(super) struct DeliveryView {
    /// The event's id, which is the header `webhook-id` of every attempt.
    #[schema(value_type = String)]
    id: WebhookEventId,
    /// The event's type.
    r#type: String,
    /// The send, the run or the timer that it is about.
    subject: String,
    /// When the event happened.
    #[schema(value_type = String, format = DateTime)]
    timestamp: Timestamp,
    /// The status of the delivery.
    status: DeliveryStatus,
    /// Attempts so far.
    attempts: u32,
    /// When the next attempt is due, or when the one in flight times out.
    #[schema(value_type = Option<String>, format = DateTime)]
    next_attempt_at: Option<Timestamp>,
    /// The HTTP status of the last answer.
    answer: Option<u16>,
    /// What went wrong last.
    error: Option<String>,
    /// When it was delivered or given up.
    #[schema(value_type = Option<String>, format = DateTime)]
    settled_at: Option<Timestamp>,
}

impl From<DeliveryRecord> for DeliveryView {
    fn from(record: DeliveryRecord) -> Self {
        Self {
            id: record.event,
            subject: record.subject().to_string(),
            r#type: record.event_type,
            timestamp: record.event_at,
            status: record.status,
            attempts: record.attempts,
            next_attempt_at: record.due_at,
            answer: record.answer,
            error: record.error,
            settled_at: record.settled_at,
        }
    }
}

/// The delivery that a path names.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeliveryPath(WebhookId, WebhookEventId);

impl<S: Send + Sync> FromRequestParts<S> for DeliveryPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<(String, String)>::from_request_parts(parts, state).await;
        let Path((webhook, event)) = path.map_err(|_| no_webhook())?;
        let webhook = webhook.parse().map_err(|_| no_webhook())?;
        let event = event.parse().map_err(|_| no_delivery())?;
        Ok(Self(webhook, event))
    }
}

fn no_delivery() -> Error {
    Error::new(
        Code::WebhookDeliveryNotFound,
        "the webhook has no delivery with this id",
    )
}

/// The routes of this module.
pub(super) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(redeliver))
        .routes(routes!(redeliver_many))
}

/// Which deliveries, newest event first.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct DeliveriesQuery {
    /// Maximum number of items on the page.
    #[serde(default)]
    #[param(inline)]
    limit: Limit,
    /// The `next_cursor` of the page before.
    #[serde(default, deserialize_with = "cursor")]
    #[param(value_type = Option<form::WebhookEventId>, inline)]
    cursor: Option<WebhookEventId>,
    /// Only those with this status.
    #[serde(default, deserialize_with = "text")]
    #[param(value_type = Option<DeliveryStatus>)]
    status: Option<DeliveryStatus>,
}

/// Deliveries to a webhook, newest event first
#[utoipa::path(
    get,
    path = "/v1/webhooks/{id}/deliveries",
    operation_id = "listWebhookDeliveries",
    params(DeliveriesQuery),
    responses((status = 200, body = List<DeliveryView>), WebhookNotFound)
)]
pub(super) async fn list(
    State(app): State<Arc<Api>>,
    caller: Caller,
    WebhookPath(id): WebhookPath,
    Query(query): Query<DeliveriesQuery>,
) -> Result<Response, Problem> {
    let tenant = caller.tenant;
    let found = app.store.get_webhook(tenant, id).await?;
    found.ok_or_else(no_webhook)?;
    let read = async |before, limit| query.read(&app, (tenant, id), before, limit).await;
    respond::page(&app, query.begin(), read, |it| it.event, DeliveryView::from).await
}

impl DeliveriesQuery {
    fn begin(&self) -> Begin<WebhookEventId> {
        Begin {
            cursor: self.cursor,
            limit: self.limit.0,
        }
    }

    async fn read(
        &self,
        app: &App,
        (tenant, webhook): (TenantId, WebhookId),
        before: Option<WebhookEventId>,
        limit: u32,
    ) -> Result<(Vec<DeliveryRecord>, bool), Error> {
        let query = ListDeliveries {
            tenant,
            webhook,
            status: self.status,
            before,
            limit,
        };
        let page = app.store.list_deliveries(query).await?;
        Ok((page.data, page.more))
    }
}

/// Delivers again what the list with the same parameters shows, each event under the same id
///
/// Each in a step of its own, up to `limit` of them. Without a filter nothing is.
#[utoipa::path(
    post,
    path = "/v1/webhooks/{id}/deliveries:redeliver",
    operation_id = "redeliverWebhooks",
    params(DeliveriesQuery),
    responses((status = 200, body = ActedShape), WebhookNotFound)
)]
pub(super) async fn redeliver_many(
    State(app): State<Arc<Api>>,
    caller: Caller,
    WebhookPath(id): WebhookPath,
    Query(query): Query<DeliveriesQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    let tenant = caller.tenant;
    let found = app.store.get_webhook(tenant, id).await?;
    found.ok_or_else(no_webhook)?;
    acts::refuse_all(query.status.is_some())?;
    let read = async |before, limit| {
        let (rows, more) = query.read(&app, (tenant, id), before, limit).await?;
        Ok((rows.into_iter().map(|row| (row, true)).collect(), more))
    };
    let act = async |delivery: DeliveryRecord| {
        let again = app.store.redeliver(tenant, id, delivery.event).await?;
        again.map(drop).ok_or_else(no_delivery)
    };
    acts::on(&app, query.begin(), read, |it| it.event, |_| true, act).await
}

/// Delivers an event again, under the same id
#[utoipa::path(
    post,
    path = "/v1/webhooks/{id}/deliveries/{delivery_id}/redeliver",
    operation_id = "redeliverWebhook",
    responses((status = 202, body = DeliveryView), WebhookDeliveryNotFound, WebhookNotFound)
)]
pub(super) async fn redeliver(
    State(app): State<Arc<Api>>,
    caller: Caller,
    DeliveryPath(webhook, event): DeliveryPath,
    _: Query<NoQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    let tenant = caller.tenant;
    let found = app.store.get_webhook(tenant, webhook).await?;
    found.ok_or_else(no_webhook)?;
    let again = app.store.redeliver(tenant, webhook, event).await?;
    let view = DeliveryView::from(again.ok_or_else(no_delivery)?);
    respond::json(StatusCode::ACCEPTED, &view)
}
