//! Erases tenants with all their data.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use mainspring_scheduler::error::Error;
use mainspring_shared::error::Code;
use mainspring_shared::id::TenantId;
use mainspring_shared::store::BeginErasureOutcome;
use mainspring_shared::tenant::TenantErasure;
use mainspring_shared::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::TenantPath;
use crate::access::no_tenant;
use crate::codes::TenantHeld;
use crate::extract::{Json, JsonBody, NoQuery, Query};
use crate::problem::Problem;
use crate::respond;
use crate::router::Api;
use crate::validate::Checks;

/// How far the erasure of a tenant is.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = TenantErasure)]
pub(super) struct ErasureView {
    /// `ten_` and a number, which is not used again.
    tenant: String,
    /// `erasing`, or `erased` once nothing of it is left.
    status: &'static str,
    /// When it began.
    #[schema(value_type = String, format = DateTime)]
    begun_at: Timestamp,
    /// When nothing was left.
    #[schema(value_type = Option<String>, format = DateTime)]
    ended_at: Option<Timestamp>,
    /// Rows that were removed, by table.
    removed: BTreeMap<String, u64>,
    /// Blobs that are still to be removed with their bytes.
    blobs_left: u64,
    /// What could not be removed at the last attempt; it is retried.
    failed: Option<String>,
    /// What the erasure itself does not reach, and what becomes of it.
    elsewhere: Vec<&'static str>,
}

/// What an erasure of rows and blobs does not reach.
const ELSEWHERE: [&str; 4] = [
    "files in workspaces: each worker removes those of deleted sessions within minutes, or once it \
     runs again; a folder that sessions share (tools.workspace_shared) stays",
    "backups of the database, and exports",
    "logs and traces, which have ids but no contents",
    "what model providers, tools, MCP servers, memory services and receivers of webhooks keep",
];

impl From<TenantErasure> for ErasureView {
    fn from(erasure: TenantErasure) -> Self {
        Self {
            tenant: erasure.tenant.to_string(),
            status: match erasure.ended_at {
                None => "erasing",
                Some(_) => "erased",
            },
            begun_at: erasure.begun_at,
            ended_at: erasure.ended_at,
            removed: erasure.progress.removed,
            blobs_left: erasure.progress.blobs_left,
            failed: erasure.progress.failed,
            elsewhere: ELSEWHERE.to_vec(),
        }
    }
}

/// The wish to erase a tenant.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EraseTenantBody {
    /// The tenant's name: what is erased cannot be brought back, so that a wrong number must not be enough.
    name: String,
}

impl JsonBody for EraseTenantBody {
    type Checked = String;

    fn checked(self, _checks: &mut Checks) -> String {
        self.name
    }
}

/// Erases a tenant: ends its work, and removes all its data in the background
#[utoipa::path(
    post,
    path = "/v1/tenants/{id}/erase",
    operation_id = "eraseTenant",
    request_body = EraseTenantBody,
    responses((status = 202, body = ErasureView), TenantHeld)
)]
pub(super) async fn begin(
    State(app): State<Arc<Api>>,
    TenantPath(id): TenantPath,
    _: Query<NoQuery>,
    Json { value: name, .. }: Json<EraseTenantBody>,
) -> Result<Response, Problem> {
    if id == TenantId::DEFAULT {
        let detail = "the default tenant cannot be erased";
        return Err(Error::new(Code::TenantNotEmpty, detail).into());
    }
    let found = app.store.get_tenant(id).await?.ok_or_else(no_tenant)?;
    if found.name != name {
        return Err(Error::invalid("/name", "is not the name of this tenant").into());
    }
    match app.store.begin_tenant_erasure(id).await? {
        BeginErasureOutcome::Begun(erasure) => {
            respond::json(StatusCode::ACCEPTED, &ErasureView::from(erasure))
        }
        BeginErasureOutcome::Held => {
            let detail = "the tenant is on legal hold: nothing can be deleted";
            Err(Error::new(Code::TenantHeld, detail).into())
        }
        BeginErasureOutcome::NotFound => Err(no_tenant().into()),
    }
}

/// How far the erasure of a tenant is, also after its end
#[utoipa::path(
    get,
    path = "/v1/tenants/{id}/erasure",
    operation_id = "getTenantErasure",
    responses((status = 200, body = ErasureView))
)]
pub(super) async fn show(
    State(app): State<Arc<Api>>,
    TenantPath(id): TenantPath,
    _: Query<NoQuery>,
) -> Result<Response, Problem> {
    let found = app.store.tenant_erasure(id).await?.ok_or_else(|| {
        let detail = "no tenant with this id is being erased, or was";
        Error::new(Code::TenantNotFound, detail)
    })?;
    respond::json(StatusCode::OK, &ErasureView::from(found))
}
