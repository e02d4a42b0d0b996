//! Pauses: what is on hold, and for whom.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Path, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::pauses;
use mainspring_shared::error::Code;
use mainspring_shared::id::TenantId;
use mainspring_shared::pause::{
    PAUSE_REASON_BYTES_MAX, PAUSED_NAME_BYTES_MAX, PauseKey, PauseKind, PauseRecord, is_pause_name,
};
use mainspring_shared::store::{ListPauses, NewPause};
use mainspring_shared::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::problem::Problem;
use super::respond::{self, Begin, List};
use super::tenants::TenantPath;
use super::validate::Checks;
use crate::access::{Caller, no_tenant};
use crate::extract::{Json, JsonBody, Limit, NoQuery, Nothing, Query, cursor};
use crate::openapi::form;
use crate::router::Api;

/// Something that is paused.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Pause)]
pub(super) struct PauseView {
    /// What it is.
    kind: PauseKind,
    /// Its name; the id of a tenant.
    name: String,
    /// Whose agent or tool it is, or the tenant; absent for providers and pools, which are everybody's.
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    /// The reason given when it was paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Since when.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

impl From<PauseRecord> for PauseView {
    fn from(record: PauseRecord) -> Self {
        let PauseKey { tenant, kind, name } = record.key;
        let is_everybodys = matches!(kind, PauseKind::Provider | PauseKind::Pool);
        Self {
            kind,
            name,
            tenant: (!is_everybodys).then(|| tenant.to_string()),
            reason: record.reason,
            created_at: record.created_at,
        }
    }
}

/// Why something is paused.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PauseBody {
    /// At most 1000 bytes, for people.
    reason: Option<String>,
}

impl JsonBody for PauseBody {
    type Checked = Option<String>;

    fn absent() -> Option<Self> {
        Some(Self::default())
    }

    fn checked(self, checks: &mut Checks) -> Option<String> {
        let is_bad = |text: &String| {
            text.len() > PAUSE_REASON_BYTES_MAX || text.contains('\0') || text.trim().is_empty()
        };
        if self.reason.as_ref().is_some_and(is_bad) {
            checks.refuse(
                "/reason",
                &format!("must have 1 to {PAUSE_REASON_BYTES_MAX} bytes, and no null character"),
            );
        }
        self.reason
    }
}

/// The name in a path of something that can be paused.
#[derive(Debug, Clone)]
pub(super) struct PausedName(String);

impl<S: Send + Sync> FromRequestParts<S> for PausedName {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let name = path.ok().map(|Path(name)| name);
        let name = name.filter(|name| is_pause_name(name)).ok_or_else(|| {
            let detail = format!(
                "the name in the path must have 1 to {PAUSED_NAME_BYTES_MAX} bytes, none of them a \
                 control character"
            );
            Error::new(Code::RequestInvalid, detail)
        })?;
        Ok(Self(name))
    }
}

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(pause_tenant))
        .routes(routes!(resume_tenant))
        .routes(routes!(pause_agent))
        .routes(routes!(resume_agent))
        .routes(routes!(pause_provider))
        .routes(routes!(resume_provider))
        .routes(routes!(pause_tool))
        .routes(routes!(resume_tool))
        .routes(routes!(pause_pool))
        .routes(routes!(resume_pool))
}

/// Which pauses, by tenant, kind and name.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct PausesQuery {
    /// Maximum number of items on the page.
    #[serde(default)]
    #[param(inline)]
    limit: Limit,
    /// The `next_cursor` of the page before.
    #[serde(default, deserialize_with = "cursor")]
    #[param(value_type = Option<form::PauseKey>, inline)]
    cursor: Option<PauseKey>,
}

/// What is paused: the tenant, its agents and tools; everything, for the operator
#[utoipa::path(
    get,
    path = "/v1/pauses",
    operation_id = "listPauses",
    params(PausesQuery),
    responses((status = 200, body = List<PauseView>))
)]
pub(super) async fn list(
    State(app): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<PausesQuery>,
) -> Result<Response, Problem> {
    let tenant = (!caller.sees_all()).then_some(caller.tenant);
    let begin = Begin {
        cursor: query.cursor,
        limit: query.limit.0,
    };
    let read = async |after: Option<PauseKey>, limit: u32| {
        let query = ListPauses {
            tenant,
            after,
            limit,
        };
        let page = app.store.list_pauses(query).await?;
        Ok((page.data, page.more))
    };
    respond::page(
        &app,
        begin,
        read,
        |pause| pause.key.clone(),
        PauseView::from,
    )
    .await
}

async fn pause(app: &Api, key: PauseKey, reason: Option<String>) -> Result<Response, Problem> {
    let record = pauses::pause(app, NewPause { key, reason }).await?;
    respond::json(StatusCode::OK, &PauseView::from(record))
}

async fn resume(app: &Api, key: PauseKey) -> Result<Response, Problem> {
    pauses::resume(app, key).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn known_tenant(app: &Api, id: TenantId) -> Result<PauseKey, Problem> {
    app.store.get_tenant(id).await?.ok_or_else(no_tenant)?;
    Ok(PauseKey::tenant(id))
}

/// Pauses a tenant: its sends wait, and more are accepted
#[utoipa::path(
    post,
    path = "/v1/tenants/{id}/pause",
    operation_id = "pauseTenant",
    request_body = PauseBody,
    responses((status = 200, body = PauseView))
)]
pub(super) async fn pause_tenant(
    State(app): State<Arc<Api>>,
    TenantPath(id): TenantPath,
    _: Query<NoQuery>,
    Json { value: reason, .. }: Json<PauseBody>,
) -> Result<Response, Problem> {
    let key = known_tenant(&app, id).await?;
    pause(&app, key, reason).await
}

/// Resumes what waits because of a paused tenant
#[utoipa::path(
    post,
    path = "/v1/tenants/{id}/resume",
    operation_id = "resumeTenant",
    responses((status = 204))
)]
pub(super) async fn resume_tenant(
    State(app): State<Arc<Api>>,
    TenantPath(id): TenantPath,
    _: Query<NoQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    let key = known_tenant(&app, id).await?;
    resume(&app, key).await
}

/// Pauses the sends of an agent: they wait at the end of their round
#[utoipa::path(
    post,
    path = "/v1/agents/{name}/pause",
    operation_id = "pauseAgent",
    request_body = PauseBody,
    responses((status = 200, body = PauseView))
)]
pub(super) async fn pause_agent(
    State(app): State<Arc<Api>>,
    caller: Caller,
    PausedName(name): PausedName,
    _: Query<NoQuery>,
    Json { value: reason, .. }: Json<PauseBody>,
) -> Result<Response, Problem> {
    let key = PauseKey::of(caller.tenant, PauseKind::Agent, &name);
    pause(&app, key, reason).await
}

/// Resumes what waits because of a paused agent
#[utoipa::path(
    post,
    path = "/v1/agents/{name}/resume",
    operation_id = "resumeAgent",
    responses((status = 204))
)]
pub(super) async fn resume_agent(
    State(app): State<Arc<Api>>,
    caller: Caller,
    PausedName(name): PausedName,
    _: Query<NoQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    let key = PauseKey::of(caller.tenant, PauseKind::Agent, &name);
    resume(&app, key).await
}

/// Pauses a model provider for all tenants: it is not called
#[utoipa::path(
    post,
    path = "/v1/providers/{name}/pause",
    operation_id = "pauseProvider",
    request_body = PauseBody,
    responses((status = 200, body = PauseView))
)]
pub(super) async fn pause_provider(
    State(app): State<Arc<Api>>,
    PausedName(name): PausedName,
    _: Query<NoQuery>,
    Json { value: reason, .. }: Json<PauseBody>,
) -> Result<Response, Problem> {
    let key = PauseKey::of_system(PauseKind::Provider, &name);
    pause(&app, key, reason).await
}

/// Resumes what waits because of a paused provider
#[utoipa::path(
    post,
    path = "/v1/providers/{name}/resume",
    operation_id = "resumeProvider",
    responses((status = 204))
)]
pub(super) async fn resume_provider(
    State(app): State<Arc<Api>>,
    PausedName(name): PausedName,
    _: Query<NoQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    let key = PauseKey::of_system(PauseKind::Provider, &name);
    resume(&app, key).await
}

/// Pauses a tool: its calls by workers wait
#[utoipa::path(
    post,
    path = "/v1/tools/{name}/pause",
    operation_id = "pauseTool",
    request_body = PauseBody,
    responses((status = 200, body = PauseView))
)]
pub(super) async fn pause_tool(
    State(app): State<Arc<Api>>,
    caller: Caller,
    PausedName(name): PausedName,
    _: Query<NoQuery>,
    Json { value: reason, .. }: Json<PauseBody>,
) -> Result<Response, Problem> {
    let key = PauseKey::of(caller.tenant, PauseKind::Tool, &name);
    pause(&app, key, reason).await
}

/// Resumes what waits because of a paused tool
#[utoipa::path(
    post,
    path = "/v1/tools/{name}/resume",
    operation_id = "resumeTool",
    responses((status = 204))
)]
pub(super) async fn resume_tool(
    State(app): State<Arc<Api>>,
    caller: Caller,
    PausedName(name): PausedName,
    _: Query<NoQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    let key = PauseKey::of(caller.tenant, PauseKind::Tool, &name);
    resume(&app, key).await
}

/// Pauses a pool: its workers take no more work
#[utoipa::path(
    post,
    path = "/v1/pools/{name}/pause",
    operation_id = "pausePool",
    request_body = PauseBody,
    responses((status = 200, body = PauseView))
)]
pub(super) async fn pause_pool(
    State(app): State<Arc<Api>>,
    PausedName(name): PausedName,
    _: Query<NoQuery>,
    Json { value: reason, .. }: Json<PauseBody>,
) -> Result<Response, Problem> {
    let key = PauseKey::of_system(PauseKind::Pool, &name);
    pause(&app, key, reason).await
}

/// Resumes what waits because of a paused pool
#[utoipa::path(
    post,
    path = "/v1/pools/{name}/resume",
    operation_id = "resumePool",
    responses((status = 204))
)]
pub(super) async fn resume_pool(
    State(app): State<Arc<Api>>,
    PausedName(name): PausedName,
    _: Query<NoQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    let key = PauseKey::of_system(PauseKind::Pool, &name);
    resume(&app, key).await
}
