//! Webhooks: endpoints that are notified of events, and deliveries to them.

mod deliveries;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, Path, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::webhooks::new_secret;
use mainspring_shared::error::Code;
use mainspring_shared::id::WebhookId;
use mainspring_shared::store::{
    ChangeWebhook, CreateWebhookOutcome, ListWebhooks, NewSecret, NewWebhook,
};
use mainspring_shared::time::{Span, Timestamp};
use mainspring_shared::webhook::{FILTERS_MAX, Filter, SigningKey, URL_CHARS_MAX, WebhookRecord};
use serde::{Deserialize, Serialize};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{Caller, no_tenant};
use crate::codes::{WebhookNoKey, WebhookNotFound, WebhookTooMany};
use crate::extract::{Json, JsonBody, Key, Limit, NoQuery, Nothing, Query, cursor};
use crate::openapi::form;
use crate::problem::Problem;
use crate::respond::{self, Begin, List};
use crate::router::Api;
use crate::validate::Checks;

/// How long the previous secret still signs after a rotation, unless the request says otherwise:
/// time for the verifying side to deploy the new one.
const OVERLAP_DEFAULT: Duration = Duration::from_hours(24);

const OVERLAP_MAX: Duration = Duration::from_hours(24 * 30);

/// A webhook.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Webhook)]
pub(super) struct WebhookView {
    /// Its id.
    #[schema(value_type = String)]
    id: WebhookId,
    /// Where events are posted.
    url: String,
    /// Event filters: types like `send.completed`, prefixes like `send.*`, or `*`.
    #[schema(value_type = Vec<String>)]
    events: Vec<Filter>,
    /// The secret that verifies the signatures. Only in the response that creates or rotates it, and not in a repeated
    /// one (`Idempotency-Replayed`).
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    /// Whether it is disabled.
    disabled: bool,
    /// Why it is disabled.
    disabled_reason: Option<String>,
    /// When it was disabled.
    #[schema(value_type = Option<String>, format = DateTime)]
    disabled_at: Option<Timestamp>,
    /// Until when messages are also signed with the previous secret.
    #[schema(value_type = Option<String>, format = DateTime)]
    previous_until: Option<Timestamp>,
    /// When it was created.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

impl From<WebhookRecord> for WebhookView {
    fn from(record: WebhookRecord) -> Self {
        let (disabled_at, disabled_reason) = record.disabled.map(|it| (it.at, it.reason)).unzip();
        Self {
            id: record.id,
            url: record.url,
            events: record.events,
            secret: None,
            disabled: disabled_at.is_some(),
            disabled_reason,
            disabled_at,
            previous_until: record.previous.map(|(until, _)| until),
            created_at: record.created_at,
        }
    }
}

/// A webhook to create.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewWebhookBody {
    /// URL that events are posted to, `http` or `https`; a public address unless the operator allows others.
    url: String,
    /// Event filters: types like `send.completed`, prefixes like `send.*`, or `*`.
    events: Vec<String>,
    /// The signing secret: `whsec_` and the base64 of 24 to 64 bytes; generated if absent.
    secret: Option<String>,
}

/// A webhook to create, checked.
#[derive(Debug)]
pub(super) struct CheckedWebhook {
    url: String,
    events: Vec<Filter>,
    secret: Option<SigningKey>,
}

impl JsonBody for NewWebhookBody {
    type Checked = CheckedWebhook;

    fn checked(self, checks: &mut Checks) -> CheckedWebhook {
        url(checks, &self.url);
        CheckedWebhook {
            events: filters(checks, &self.events),
            secret: self.secret.and_then(|text| secret(checks, &text)),
            url: self.url,
        }
    }
}

/// Changes of a webhook; absent members stay as they are.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WebhookChangeBody {
    /// Where events are posted.
    url: Option<String>,
    /// Its event filters.
    events: Option<Vec<String>>,
    /// Whether it is disabled. Pending deliveries continue when it is enabled again.
    disabled: Option<bool>,
    /// The new signing secret; messages are also signed with the previous one for 24 hours.
    secret: Option<String>,
}

/// Changes of a webhook, checked.
#[derive(Debug)]
pub(super) struct CheckedChange {
    url: Option<String>,
    events: Option<Vec<Filter>>,
    disabled: Option<bool>,
    secret: Option<SigningKey>,
}

impl JsonBody for WebhookChangeBody {
    type Checked = CheckedChange;

    fn checked(self, checks: &mut Checks) -> CheckedChange {
        if let Some(text) = &self.url {
            url(checks, text);
        }
        CheckedChange {
            events: self.events.map(|events| filters(checks, &events)),
            secret: self.secret.and_then(|text| secret(checks, &text)),
            url: self.url,
            disabled: self.disabled,
        }
    }
}

/// How a webhook's secret is rotated.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RotateWebhookBody {
    /// How long the previous secret remains valid for signing; `24h` if absent, at most `30d`.
    #[schema(value_type = Option<String>)]
    overlap: Option<Span>,
    /// The new secret; made up if absent.
    secret: Option<String>,
}

impl JsonBody for RotateWebhookBody {
    type Checked = (Duration, Option<SigningKey>);

    fn absent() -> Option<Self> {
        Some(Self::default())
    }

    fn checked(self, checks: &mut Checks) -> Self::Checked {
        let overlap = self.overlap.map_or(OVERLAP_DEFAULT, |span| span.0);
        if overlap > OVERLAP_MAX {
            checks.refuse("/overlap", "must be at most 30d");
        }
        let secret = self.secret.and_then(|text| secret(checks, &text));
        (overlap, secret)
    }
}

fn url(checks: &mut Checks, text: &str) {
    if text.chars().count() > URL_CHARS_MAX || text.chars().any(char::is_control) {
        let most =
            format!("must have at most {URL_CHARS_MAX} characters, none a control character");
        checks.refuse("/url", &most);
    }
}

fn filters(checks: &mut Checks, texts: &[String]) -> Vec<Filter> {
    if !(1..=FILTERS_MAX).contains(&texts.len()) {
        checks.refuse("/events", &format!("must have 1 to {FILTERS_MAX} filters"));
    }
    let mut filters = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        match text.parse() {
            Ok(filter) => filters.push(filter),
            Err(error) => checks.refuse(&format!("/events/{index}"), &format!("{error}")),
        }
    }
    filters
}

fn secret(checks: &mut Checks, text: &str) -> Option<SigningKey> {
    let parsed = text.parse();
    parsed
        .inspect_err(|error: &mainspring_shared::webhook::ParseSecretError| {
            checks.refuse("/secret", &error.to_string());
        })
        .ok()
}

/// The webhook that a path names.
#[derive(Debug, Clone, Copy)]
pub(super) struct WebhookPath(WebhookId);

impl<S: Send + Sync> FromRequestParts<S> for WebhookPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let id = path.ok().and_then(|Path(text)| text.parse().ok());
        Ok(Self(id.ok_or_else(no_webhook)?))
    }
}

fn no_webhook() -> Error {
    Error::new(
        Code::WebhookNotFound,
        "the tenant has no webhook with this id",
    )
}

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(show, change, delete))
        .routes(routes!(rotate))
        .merge(deliveries::routes())
}

/// Refuses URLs that nothing would be posted to.
fn check_url(app: &Api, url: &str) -> Result<(), Error> {
    let checked = app.outside.webhooks.check_url(url);
    checked.map_err(|why| Error::invalid("/url", why))
}

/// Creates a webhook; its secret is in this response only
///
/// It is told of what happens to sends that are accepted after this response, and to runs that end after it.
#[utoipa::path(
    post,
    path = "/v1/webhooks",
    operation_id = "createWebhook",
    params(Key),
    request_body = NewWebhookBody,
    responses((status = 201, body = WebhookView), WebhookNoKey, WebhookTooMany)
)]
pub(super) async fn create(
    State(app): State<Arc<Api>>,
    caller: Caller,
    _: Query<NoQuery>,
    json: Json<NewWebhookBody>,
) -> Result<Response, Problem> {
    let idempotency = json.idempotency("POST /v1/webhooks")?;
    let body = json.value;
    check_url(&app, &body.url)?;
    let id = WebhookId(app.entropy.ordered_id());
    let secret = body
        .secret
        .unwrap_or_else(|| new_secret(app.entropy.as_ref()));
    let (tenant, entropy) = (caller.tenant, app.entropy.as_ref());
    let new = NewWebhook {
        tenant,
        id,
        url: body.url,
        events: body.events,
        secret: app.outside.webhooks.seal(entropy, tenant, id, &secret)?,
    };
    match app.store.create_webhook(new, idempotency).await? {
        CreateWebhookOutcome::Created { webhook, known_in } => {
            app.clock.sleep(known_in).await;
            answer_created(webhook, Some(&secret))
        }
        CreateWebhookOutcome::Replayed { webhook, known_in } => {
            app.clock.sleep(known_in).await;
            let mut response = answer_created(webhook, None)?;
            respond::mark_replayed(&mut response);
            Ok(response)
        }
        CreateWebhookOutcome::Gone => Err(no_webhook().into()),
        CreateWebhookOutcome::NoTenant => Err(no_tenant().into()),
        CreateWebhookOutcome::TooMany => Err(Error::new(
            Code::WebhookTooMany,
            format!(
                "a tenant has at most {} webhooks",
                mainspring_shared::store::WEBHOOKS_MAX
            ),
        )
        .into()),
        CreateWebhookOutcome::Mismatch => Err(Error::mismatch().into()),
    }
}

fn answer_created(record: WebhookRecord, secret: Option<&SigningKey>) -> Result<Response, Problem> {
    let path = format!("/v1/webhooks/{}", record.id);
    let view = WebhookView {
        secret: secret.map(SigningKey::reveal),
        ..WebhookView::from(record)
    };
    respond::created(StatusCode::CREATED, &path, &view)
}

/// Which webhooks, newest first.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct WebhooksQuery {
    /// Maximum number of items on the page.
    #[serde(default)]
    #[param(inline)]
    limit: Limit,
    /// The `next_cursor` of the page before.
    #[serde(default, deserialize_with = "cursor")]
    #[param(value_type = Option<form::WebhookId>, inline)]
    cursor: Option<WebhookId>,
}

/// The tenant's webhooks, newest first
#[utoipa::path(
    get,
    path = "/v1/webhooks",
    operation_id = "listWebhooks",
    params(WebhooksQuery),
    responses((status = 200, body = List<WebhookView>))
)]
pub(super) async fn list(
    State(app): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<WebhooksQuery>,
) -> Result<Response, Problem> {
    let begin = Begin {
        cursor: query.cursor,
        limit: query.limit.0,
    };
    let read = async |before: Option<WebhookId>, limit: u32| {
        let query = ListWebhooks {
            tenant: caller.tenant,
            before,
            limit,
        };
        let page = app.store.list_webhooks(query).await?;
        Ok((page.data, page.more))
    };
    respond::page(&app, begin, read, |it| it.id, WebhookView::from).await
}

/// A webhook
#[utoipa::path(
    get,
    path = "/v1/webhooks/{id}",
    operation_id = "getWebhook",
    responses((status = 200, body = WebhookView), WebhookNotFound)
)]
pub(super) async fn show(
    State(app): State<Arc<Api>>,
    caller: Caller,
    WebhookPath(id): WebhookPath,
    _: Query<NoQuery>,
) -> Result<Response, Problem> {
    let found = app.store.get_webhook(caller.tenant, id).await?;
    let view = WebhookView::from(found.ok_or_else(no_webhook)?);
    respond::json(StatusCode::OK, &view)
}

/// Changes a webhook
#[utoipa::path(
    patch,
    path = "/v1/webhooks/{id}",
    operation_id = "updateWebhook",
    request_body = WebhookChangeBody,
    responses((status = 200, body = WebhookView), WebhookNotFound)
)]
pub(super) async fn change(
    State(app): State<Arc<Api>>,
    caller: Caller,
    WebhookPath(id): WebhookPath,
    _: Query<NoQuery>,
    Json { value: body, .. }: Json<WebhookChangeBody>,
) -> Result<Response, Problem> {
    if let Some(url) = &body.url {
        check_url(&app, url)?;
    }
    let (tenant, entropy) = (caller.tenant, app.entropy.as_ref());
    let seal = |secret: &SigningKey| app.outside.webhooks.seal(entropy, tenant, id, secret);
    let sealed = body.secret.as_ref().map(seal).transpose()?;
    let change = ChangeWebhook {
        tenant,
        id,
        url: body.url,
        events: body.events,
        disabled: body
            .disabled
            .map(|disabled| disabled.then(|| "disabled on request".to_owned())),
        secret: sealed.map(|sealed| NewSecret {
            sealed,
            overlap_ms: OVERLAP_DEFAULT.as_millis() as i64,
        }),
    };
    let changed = app.store.change_webhook(change).await?;
    let view = WebhookView::from(changed.ok_or_else(no_webhook)?);
    respond::json(StatusCode::OK, &view)
}

/// Deletes a webhook; what was on its way to it is not delivered
#[utoipa::path(
    delete,
    path = "/v1/webhooks/{id}",
    operation_id = "deleteWebhook",
    responses((status = 204), WebhookNotFound)
)]
pub(super) async fn delete(
    State(app): State<Arc<Api>>,
    caller: Caller,
    WebhookPath(id): WebhookPath,
    _: Query<NoQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    if !app.store.delete_webhook(caller.tenant, id).await? {
        return Err(no_webhook().into());
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Replaces a webhook's secret; the new one is in this response only
///
/// Until the overlap ends, messages carry a signature of each.
#[utoipa::path(
    post,
    path = "/v1/webhooks/{id}/rotate",
    operation_id = "rotateWebhook",
    request_body = Option<RotateWebhookBody>,
    responses((status = 200, body = WebhookView), WebhookNoKey, WebhookNotFound)
)]
pub(super) async fn rotate(
    State(app): State<Arc<Api>>,
    caller: Caller,
    WebhookPath(id): WebhookPath,
    _: Query<NoQuery>,
    Json {
        value: (overlap, given),
        ..
    }: Json<RotateWebhookBody>,
) -> Result<Response, Problem> {
    let (tenant, entropy) = (caller.tenant, app.entropy.as_ref());
    let secret = given.unwrap_or_else(|| new_secret(entropy));
    let change = ChangeWebhook {
        secret: Some(NewSecret {
            sealed: app.outside.webhooks.seal(entropy, tenant, id, &secret)?,
            overlap_ms: overlap.as_millis() as i64,
        }),
        ..ChangeWebhook::nothing(tenant, id)
    };
    let changed = app.store.change_webhook(change).await?;
    let view = WebhookView {
        secret: Some(secret.reveal()),
        ..WebhookView::from(changed.ok_or_else(no_webhook)?)
    };
    respond::json(StatusCode::OK, &view)
}
