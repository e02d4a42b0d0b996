//! Tenants, for operators.

mod erasure;
pub(crate) mod keys;
mod usage;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, Path, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use mainspring_scheduler::error::Error;
use mainspring_shared::agent::DEFAULT_POOL;
use mainspring_shared::error::Code;
use mainspring_shared::id::TenantId;
use mainspring_shared::queue::WEIGHT_MAX;
use mainspring_shared::store::{
    CreateTenantOutcome, DeleteTenantOutcome, ListTenants, NewTenant, TenantPatch,
    UpdateTenantOutcome,
};
use mainspring_shared::tenant::{Limits, NAME_CHARS_MAX, Pools, Retention, Tenant};
use mainspring_shared::time::{Span, Timestamp};
use mainspring_shared::tool::is_pool;
use serde::{Deserialize, Serialize};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::problem::Problem;
use super::respond::{self, Begin, List};
use super::validate::Checks;
use crate::access::{no_tenant, refuse_held};
use crate::codes::{TenantHeld, TenantNameTaken, TenantNotEmpty};
use crate::extract::{Json, JsonBody, Key, Limit, NoQuery, Nothing, Query, cursor};
use crate::openapi::form;
use crate::router::Api;

/// Maximum limit on requests per second. A higher one would limit nothing.
const REQUESTS_MAX: u32 = 1_000_000;

/// Maximum number of pools that a tenant may list.
const POOLS_MAX: usize = 100;

/// Maximum limit on sends, open or in flight. When no place seems to be left, this many rows may be
/// checked.
const SENDS_MAX: u32 = 100_000;

/// A tenant.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Tenant)]
pub(super) struct TenantView {
    /// `ten_` and a number.
    id: String,
    /// Unique among tenants.
    name: String,
    /// What it may use.
    limits: Limits,
    /// Scheduling weight relative to other tenants, 1 to 1000, while several have sessions waiting.
    weight: u32,
    /// For how long what it has is kept.
    retention: Retention,
    /// Worker pools that it may name.
    pools: Pools,
    /// Since when it is being erased, if it is.
    #[schema(value_type = Option<String>, format = DateTime)]
    erasing_at: Option<Timestamp>,
    /// When it was created.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

impl From<Tenant> for TenantView {
    fn from(tenant: Tenant) -> Self {
        Self {
            id: tenant.id.to_string(),
            name: tenant.name,
            limits: tenant.limits,
            weight: tenant.weight,
            retention: tenant.retention,
            pools: tenant.pools,
            erasing_at: tenant.erasing_at,
            created_at: tenant.created_at,
        }
    }
}

/// A tenant to create.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewTenantBody {
    /// At most 100 characters, unique among tenants.
    name: String,
    /// What it may use; everything when absent.
    #[serde(default)]
    limits: Limits,
    /// Scheduling weight relative to other tenants, from 1 to 1000.
    #[serde(default = "one")]
    #[schema(default = 1)]
    weight: u32,
    /// For how long what it has is kept; as the installation says when absent.
    #[serde(default)]
    retention: Retention,
    /// Worker pools that it may name; any but other tenants' own when absent.
    #[serde(default)]
    pools: Pools,
}

fn one() -> u32 {
    1
}

impl JsonBody for NewTenantBody {
    type Checked = NewTenant;

    fn checked(self, checks: &mut Checks) -> NewTenant {
        name(checks, "/name", &self.name);
        limits(checks, &self.limits);
        weight(checks, self.weight);
        pools(checks, &self.pools);
        NewTenant {
            name: self.name,
            limits: self.limits,
            weight: self.weight,
            retention: self.retention,
            pools: self.pools,
        }
    }
}

/// Changes of a tenant; absent members stay as they are.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TenantChangeBody {
    /// At most 100 characters, unique among tenants.
    name: Option<String>,
    /// Replaces all limits.
    limits: Option<Limits>,
    /// Scheduling weight relative to other tenants, from 1 to 1000.
    weight: Option<u32>,
    /// Replaces all of its retention.
    retention: Option<Retention>,
    /// Replaces all of its pools.
    pools: Option<Pools>,
}

impl JsonBody for TenantChangeBody {
    type Checked = TenantPatch;

    fn checked(self, checks: &mut Checks) -> TenantPatch {
        if let Some(text) = &self.name {
            name(checks, "/name", text);
        }
        if let Some(given) = &self.limits {
            limits(checks, given);
        }
        if let Some(given) = self.weight {
            weight(checks, given);
        }
        if let Some(given) = &self.pools {
            pools(checks, given);
        }
        TenantPatch {
            name: self.name,
            limits: self.limits,
            weight: self.weight,
            retention: self.retention,
            pools: self.pools,
        }
    }
}

/// Checks the name of a tenant or a key.
pub(super) fn name(checks: &mut Checks, pointer: &str, text: &str) {
    let chars = text.chars().count();
    if text.trim().is_empty() || chars > NAME_CHARS_MAX || text.chars().any(char::is_control) {
        checks.refuse(
            pointer,
            &format!(
                "must have 1 to {NAME_CHARS_MAX} characters, none of them a control character"
            ),
        );
    }
}

fn weight(checks: &mut Checks, weight: u32) {
    if !(1..=WEIGHT_MAX).contains(&weight) {
        checks.refuse("/weight", &format!("must be from 1 to {WEIGHT_MAX}"));
    }
}

/// Refuses retention periods shorter than `least`, which is how long idempotency keys are kept: a
/// repeated request must find what it created.
fn check_retention(retention: &Retention, least: Duration) -> Result<(), Error> {
    let mut checks = Checks::new();
    let Retention {
        sends,
        runs,
        sessions,
        hold: _,
        extra: _,
    } = retention;
    for (keep, name) in [(sends, "sends"), (runs, "runs"), (sessions, "sessions")] {
        if keep.is_some_and(|keep| keep.0 < least) {
            let least = Span(least);
            let detail = format!("must be at least {least}, as scheduler.idempotency_keep");
            checks.refuse(&format!("/retention/{name}"), &detail);
        }
    }
    checks.finish()
}

fn pools(checks: &mut Checks, pools: &Pools) {
    let Pools {
        allowed,
        own,
        extra: _,
    } = pools;
    for (names, member) in [(allowed.as_ref(), "allowed"), (Some(own), "own")] {
        let pointer = format!("/pools/{member}");
        let Some(names) = names else { continue };
        if names.len() > POOLS_MAX {
            checks.refuse(&pointer, &format!("must have at most {POOLS_MAX}"));
        }
        if !names.iter().all(|name| is_pool(name)) {
            let detail = "must be names of 1 to 40 of the characters a-z, 0-9 and -";
            checks.refuse(&pointer, detail);
        }
    }
    if own.contains(DEFAULT_POOL) {
        let detail = format!("must not contain {DEFAULT_POOL}, which all tenants share");
        checks.refuse("/pools/own", &detail);
    }
    if own.is_empty() && allowed.as_ref().is_some_and(BTreeSet::is_empty) {
        let detail = "must not be empty if the tenant has no pools of its own";
        checks.refuse("/pools/allowed", detail);
    }
}

fn limits(checks: &mut Checks, limits: &Limits) {
    for (sends, name) in [
        (limits.sends_open, "sends_open"),
        (limits.sends_running, "sends_running"),
        (limits.leaves_running, "leaves_running"),
    ] {
        self::sends(checks, name, sends);
    }
    spending(checks, limits);
    if limits.bytes == Some(0) {
        checks.refuse("/limits/bytes", "must be at least 1");
    }
    requests_per_second(checks, limits.requests_per_second);
}

/// Checks the limits on money and tokens of a tenant or an agent.
pub(super) fn spending(checks: &mut Checks, limits: &Limits) {
    for (tokens, name) in [
        (limits.tokens_per_minute, "tokens_per_minute"),
        (limits.tokens_per_day, "tokens_per_day"),
        (limits.tokens_per_month, "tokens_per_month"),
    ] {
        if tokens == Some(0) {
            checks.refuse(&format!("/limits/{name}"), "must be at least 1");
        }
    }
    for (amount, name) in [
        (limits.usd_per_minute, "usd_per_minute"),
        (limits.usd_per_day, "usd_per_day"),
        (limits.usd_per_month, "usd_per_month"),
    ] {
        if amount.is_some_and(|amount| amount.0 == 0) {
            checks.refuse(&format!("/limits/{name}"), "must be more than 0");
        }
    }
}

/// Checks the limit on requests of a tenant or a key.
pub(super) fn requests_per_second(checks: &mut Checks, rate: Option<u32>) {
    if rate.is_some_and(|rate| !(1..=REQUESTS_MAX).contains(&rate)) {
        let detail = format!("must be from 1 to {REQUESTS_MAX}");
        checks.refuse("/limits/requests_per_second", &detail);
    }
}

/// Checks the limit on sends of a tenant or a key.
pub(super) fn sends(checks: &mut Checks, name: &str, sends: Option<u32>) {
    if sends.is_some_and(|sends| !(1..=SENDS_MAX).contains(&sends)) {
        let pointer = format!("/limits/{name}");
        checks.refuse(&pointer, &format!("must be from 1 to {SENDS_MAX}"));
    }
}

/// The tenant that a path names.
#[derive(Debug, Clone, Copy)]
pub(super) struct TenantPath(pub(super) TenantId);

impl<S: Send + Sync> FromRequestParts<S> for TenantPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let id = path.ok().and_then(|Path(text)| text.parse().ok());
        Ok(Self(id.ok_or_else(no_tenant)?))
    }
}

fn name_taken() -> Error {
    Error::new(Code::TenantNameTaken, "another tenant has this name")
}

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(show, change, remove))
        .routes(routes!(usage::of_tenant))
        .routes(routes!(erasure::begin))
        .routes(routes!(erasure::show))
}

/// Creates a tenant
#[utoipa::path(
    post,
    path = "/v1/tenants",
    operation_id = "createTenant",
    params(Key),
    request_body = NewTenantBody,
    responses((status = 201, body = TenantView), TenantNameTaken)
)]
pub(super) async fn create(
    State(app): State<Arc<Api>>,
    _: Query<NoQuery>,
    json: Json<NewTenantBody>,
) -> Result<Response, Problem> {
    check_retention(&json.value.retention, app.config.idempotency_keep)?;
    let key = json.idempotency("POST /v1/tenants")?;
    match app.store.create_tenant(json.value, key).await? {
        CreateTenantOutcome::Created(tenant) => {
            app.known.pools.changed(tenant.id, &tenant.pools);
            answer_created(tenant)
        }
        CreateTenantOutcome::Replayed(tenant) => {
            let mut response = answer_created(tenant)?;
            respond::mark_replayed(&mut response);
            Ok(response)
        }
        CreateTenantOutcome::Gone => Err(no_tenant().into()),
        CreateTenantOutcome::NameTaken => Err(name_taken().into()),
        CreateTenantOutcome::Mismatch => Err(Error::mismatch().into()),
    }
}

fn answer_created(tenant: Tenant) -> Result<Response, Problem> {
    let path = format!("/v1/tenants/{}", tenant.id);
    respond::created(StatusCode::CREATED, &path, &TenantView::from(tenant))
}

/// Which tenants, by number.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct TenantsQuery {
    /// Maximum number of items on the page.
    #[serde(default)]
    #[param(inline)]
    limit: Limit,
    /// The `next_cursor` of the page before.
    #[serde(default, deserialize_with = "cursor")]
    #[param(value_type = Option<form::TenantId>, inline)]
    cursor: Option<TenantId>,
}

/// Tenants, by number
#[utoipa::path(
    get,
    path = "/v1/tenants",
    operation_id = "listTenants",
    params(TenantsQuery),
    responses((status = 200, body = List<TenantView>))
)]
pub(super) async fn list(
    State(app): State<Arc<Api>>,
    Query(query): Query<TenantsQuery>,
) -> Result<Response, Problem> {
    let begin = Begin {
        cursor: query.cursor,
        limit: query.limit.0,
    };
    let read = async |after: Option<TenantId>, limit: u32| {
        let page = app.store.list_tenants(ListTenants { after, limit }).await?;
        Ok((page.data, page.more))
    };
    respond::page(&app, begin, read, |tenant| tenant.id, TenantView::from).await
}

/// A tenant
#[utoipa::path(
    get,
    path = "/v1/tenants/{id}",
    operation_id = "getTenant",
    responses((status = 200, body = TenantView))
)]
pub(super) async fn show(
    State(app): State<Arc<Api>>,
    TenantPath(id): TenantPath,
    _: Query<NoQuery>,
) -> Result<Response, Problem> {
    let found = app.store.get_tenant(id).await?.ok_or_else(no_tenant)?;
    respond::json(StatusCode::OK, &TenantView::from(found))
}

/// Changes a tenant's name or limits; schedulers follow within seconds
#[utoipa::path(
    patch,
    path = "/v1/tenants/{id}",
    operation_id = "changeTenant",
    request_body = TenantChangeBody,
    responses((status = 200, body = TenantView), TenantNameTaken)
)]
pub(super) async fn change(
    State(app): State<Arc<Api>>,
    TenantPath(id): TenantPath,
    _: Query<NoQuery>,
    Json { value: patch, .. }: Json<TenantChangeBody>,
) -> Result<Response, Problem> {
    if let Some(given) = &patch.retention {
        check_retention(given, app.config.idempotency_keep)?;
    }
    match app.store.update_tenant(id, patch).await? {
        UpdateTenantOutcome::Updated(tenant) => {
            // More seats may be free now. If this fails, the sweep notices.
            if let Ok(called) = app.store.call_seats(Some(id)).await {
                app.notifier.enqueue(called.enqueue);
            }
            // Workers check at once whose spending is limited; otherwise they would within a
            // second.
            app.notifier.pauses_changed();
            app.known.pools.changed(id, &tenant.pools);
            respond::json(StatusCode::OK, &TenantView::from(*tenant))
        }
        UpdateTenantOutcome::NameTaken => Err(name_taken().into()),
        UpdateTenantOutcome::NotFound => Err(no_tenant().into()),
    }
}

/// Deletes a tenant without sessions and runs, and revokes its keys
#[utoipa::path(
    delete,
    path = "/v1/tenants/{id}",
    operation_id = "deleteTenant",
    responses((status = 204), TenantHeld, TenantNotEmpty)
)]
pub(super) async fn remove(
    State(app): State<Arc<Api>>,
    TenantPath(id): TenantPath,
    _: Query<NoQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    if id == TenantId::DEFAULT {
        let detail = "the default tenant cannot be deleted";
        return Err(Error::new(Code::TenantNotEmpty, detail).into());
    }
    refuse_held(&app, id).await?;
    match app.store.delete_tenant(id).await? {
        DeleteTenantOutcome::Deleted => Ok(StatusCode::NO_CONTENT.into_response()),
        DeleteTenantOutcome::NotEmpty => Err(Error::new(
            Code::TenantNotEmpty,
            "the tenant has sessions, runs or timers",
        )
        .into()),
        DeleteTenantOutcome::NotFound => Err(no_tenant().into()),
    }
}
