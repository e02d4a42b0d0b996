//! The cost of sessions.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use mainspring_scheduler::error::Error;
use mainspring_shared::store::{ModelUsage, SessionUsage};
use mainspring_shared::usage::{Purpose, Usage};
use serde::Serialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::problem::Problem;
use super::respond;
use crate::codes::SessionNotFound;
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
    models: Vec<ModelUsageView>,
    /// The same by the purpose of the model calls.
    purposes: Vec<PurposeUsageView>,
}

/// The cost of one model's calls.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = ModelUsage)]
struct ModelUsageView {
    /// The requested model.
    model: String,
    /// Its responses, including incomplete ones.
    calls: u64,
    /// Their total cost.
    usage: Usage,
}

/// The cost of model calls of one kind.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = PurposeUsage)]
struct PurposeUsageView {
    /// What models were asked for.
    purpose: Purpose,
    /// Their responses, including incomplete ones.
    calls: u64,
    /// Their total cost.
    usage: Usage,
}

impl UsageView {
    fn of<'a>(parts: impl IntoIterator<Item = &'a ModelUsage>) -> Self {
        let mut sum = Self::default();
        let mut models: BTreeMap<&str, (u64, Usage)> = BTreeMap::new();
        let mut purposes: BTreeMap<Purpose, (u64, Usage)> = BTreeMap::new();
        for part in parts {
            sum.calls += part.calls;
            sum.usage.add(&part.usage);
            let model = models.entry(&part.model).or_default();
            for (calls, usage) in [model, purposes.entry(part.purpose).or_default()] {
                *calls += part.calls;
                usage.add(&part.usage);
            }
        }
        let models = models
            .into_iter()
            .map(|(model, (calls, usage))| ModelUsageView {
                model: model.to_owned(),
                calls,
                usage,
            });
        let purposes = purposes
            .into_iter()
            .map(|(purpose, (calls, usage))| PurposeUsageView {
                purpose,
                calls,
                usage,
            });
        Self {
            models: models.collect(),
            purposes: purposes.collect(),
            ..sum
        }
    }
}

impl From<SessionUsage> for SessionUsageView {
    fn from(found: SessionUsage) -> Self {
        Self {
            own: UsageView::of(&found.own),
            tree: UsageView::of(found.own.iter().chain(&found.below)),
            sessions: found.sessions,
        }
    }
}

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(of_session))
}

/// The cost of its model calls, and of those of the sessions below it, by model
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/usage",
    operation_id = "getSessionUsage",
    responses((status = 200, body = SessionUsageView), SessionNotFound)
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
