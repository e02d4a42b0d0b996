//! What sessions cost.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use mainspring_scheduler::error::Error;
use mainspring_shared::store::{ModelUsage, SessionUsage};
use mainspring_shared::usage::Usage;
use serde::Serialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::problem::Problem;
use super::respond;
use crate::extract::{NoQuery, Query, SessionPath};
use crate::router::Api;

/// The cost of a session, as far as its sends are still stored.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct SessionUsageView {
    /// Its own model calls.
    own: UsageView,
    /// Those, and the calls of the sessions below it: its children's, and those of its runs' leaves.
    tree: UsageView,
    /// The session and those below it.
    sessions: u64,
}

/// The cost of model calls.
#[derive(Debug, Default, Serialize, utoipa::ToSchema)]
pub(super) struct UsageView {
    /// Model responses, including incomplete ones.
    calls: u64,
    /// Their total cost.
    usage: Usage,
    /// The same by model.
    models: Vec<ModelUsage>,
}

impl UsageView {
    fn of(models: Vec<ModelUsage>) -> Self {
        let mut sum = Self::default();
        for part in &models {
            sum.calls += part.calls;
            sum.usage.add(&part.usage);
        }
        Self { models, ..sum }
    }
}

impl From<SessionUsage> for SessionUsageView {
    fn from(found: SessionUsage) -> Self {
        let mut tree = found.own.clone();
        for part in found.below {
            match tree.iter_mut().find(|own| own.model == part.model) {
                Some(own) => {
                    own.calls += part.calls;
                    own.usage.add(&part.usage);
                }
                None => tree.push(part),
            }
        }
        tree.sort_by(|a, b| a.model.cmp(&b.model));
        Self {
            own: UsageView::of(found.own),
            tree: UsageView::of(tree),
            sessions: found.sessions,
        }
    }
}

/// Its paths.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(of_session))
}

/// The cost of its model calls, and of those of the sessions below it, by model
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/usage",
    operation_id = "getSessionUsage",
    responses((status = 200, body = SessionUsageView))
)]
pub(super) async fn of_session(
    State(app): State<Arc<Api>>,
    SessionPath(key): SessionPath,
    _: Query<NoQuery>,
) -> Result<Response, Problem> {
    let found = app.store.session_usage(key).await?;
    let found = found.ok_or_else(Error::session_not_found)?;
    respond::json(StatusCode::OK, &SessionUsageView::from(found))
}
