//! The usage of tenants.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use mainspring_shared::store::{TenantUsage, TenantUsageQuery};
use mainspring_shared::time::Timestamp;
use mainspring_shared::usage::Usage;
use serde::{Deserialize, Serialize};
use utoipa::openapi::{RefOr, Schema};

use super::TenantPath;
use crate::access::no_tenant;
use crate::extract::Query;
use crate::openapi::form;
use crate::problem::Problem;
use crate::respond;
use crate::router::Api;

/// Milliseconds of a day.
const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

/// The default number of days.
const DAYS: u32 = 7;

/// The maximum number of days, since each takes a separate read.
const DAYS_MAX: u32 = 92;

/// What a tenant used.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(in crate::tenants) struct TenantUsageView {
    /// Each day, today first. A send counts on the day on which it was accepted, in UTC, with all it cost.
    days: Vec<DayView>,
    /// All of these days together.
    total: SpanView,
    /// Bytes of its blobs now.
    blob_bytes: u64,
}

/// One day.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = TenantUsageDay)]
struct DayView {
    /// When it began.
    #[schema(value_type = String, format = DateTime)]
    day: Timestamp,
    #[serde(flatten)]
    used: SpanView,
}

/// What sends used.
#[derive(Debug, Default, Serialize, utoipa::ToSchema)]
#[schema(as = TenantUsageSpan)]
struct SpanView {
    /// Sends that are still stored.
    sends: u64,
    /// Their model responses, including incomplete ones.
    calls: u64,
    /// What these cost.
    usage: Usage,
}

impl From<TenantUsage> for SpanView {
    fn from(found: TenantUsage) -> Self {
        Self {
            sends: found.sends,
            calls: found.calls,
            usage: found.usage,
        }
    }
}

/// Which days.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(in crate::tenants) struct UsageQuery {
    /// How many days, today included.
    #[serde(default)]
    #[param(inline)]
    days: Days,
}

/// A number of days.
#[derive(Debug, Clone, Copy)]
struct Days(u32);

impl Default for Days {
    fn default() -> Self {
        Self(DAYS)
    }
}

impl utoipa::PartialSchema for Days {
    fn schema() -> RefOr<Schema> {
        form::number(1, DAYS_MAX, DAYS)
    }
}

impl utoipa::ToSchema for Days {}

impl<'de> Deserialize<'de> for Days {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let days = text.parse().ok();
        let days = days.filter(|days| (1..=DAYS_MAX).contains(days));
        let wrong = || serde::de::Error::custom(format!("must be from 1 to {DAYS_MAX}"));
        days.map(Self).ok_or_else(wrong)
    }
}

/// A tenant's usage by day, from sends that are still stored
#[utoipa::path(
    get,
    path = "/v1/tenants/{id}/usage",
    operation_id = "getTenantUsage",
    params(UsageQuery),
    responses((status = 200, body = TenantUsageView))
)]
pub(in crate::tenants) async fn of_tenant(
    State(app): State<Arc<Api>>,
    TenantPath(tenant): TenantPath,
    Query(query): Query<UsageQuery>,
) -> Result<Response, Problem> {
    app.store.get_tenant(tenant).await?.ok_or_else(no_tenant)?;
    let today = app.database_time().await.0.div_euclid(DAY_MS);
    let mut days = Vec::new();
    let mut total = SpanView::default();
    for back in 0..i64::from(query.days.0) {
        let begins = (today - back) * DAY_MS;
        let ends = Timestamp(begins + DAY_MS);
        let query = TenantUsageQuery::accepted(tenant, Timestamp(begins), ends);
        let used = SpanView::from(app.store.tenant_usage(query).await?);
        total.sends += used.sends;
        total.calls += used.calls;
        total.usage.add(&used.usage);
        days.push(DayView {
            day: Timestamp(begins),
            used,
        });
    }
    let view = TenantUsageView {
        days,
        total,
        blob_bytes: app.store.tenant_bytes(tenant).await?,
    };
    respond::json(StatusCode::OK, &view)
}
