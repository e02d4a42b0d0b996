//! Sessions deleted.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use mainspring_scheduler::deleting;
use mainspring_scheduler::error::Error;
use mainspring_shared::session::SessionRecord;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{ActedShape, on, refuse_all};
use crate::access::{Caller, refuse_held};
use crate::codes::TenantHeld;
use crate::extract::{Json, Nothing, Query};
use crate::problem::Problem;
use crate::router::Api;
use crate::sessions::SessionsQuery;

/// The routes of this module.
pub(super) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(remove))
}

/// Deletes the sessions that a list with the same parameters shows
///
/// Each in a step of its own, with what is below it, up to `limit` of them. Without a filter nothing is deleted.
#[utoipa::path(
    post,
    path = "/v1/sessions:delete",
    operation_id = "deleteSessions",
    params(SessionsQuery),
    responses((status = 200, body = ActedShape), TenantHeld)
)]
async fn remove(
    State(app): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<SessionsQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    if query.key.is_some() {
        return Err(Error::invalid("?key", "names one session: delete it by its id").into());
    }
    refuse_all(query.is_filtered())?;
    refuse_held(&app, caller.tenant).await?;
    let boot = app.boot_id()?;
    let read = async |before, limit| query.read(&app, &caller, before, limit).await;
    let act = async |session: SessionRecord| {
        // It may have been deleted with another one.
        deleting::delete(&app, boot, session.key).await?;
        Ok(())
    };
    let place = |session: &SessionRecord| session.key.session;
    on(&app, query.begin(), read, place, |_| true, act).await
}
