//! Removes the beginning of a transcript.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use mainspring_scheduler::error::Error;
use mainspring_shared::store::{ERASED_AT_ONCE, PruneOutcome, PruneSession, PruneTo, prune_all};
use serde::{Deserialize, Serialize};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::problem::Problem;
use super::respond;
use super::validate::{COUNT_MAX, Checks};
use crate::access::refuse_held;
use crate::codes::{SessionNotFound, TenantHeld};
use crate::extract::{Json, JsonBody, NoQuery, Query, SessionPath};
use crate::router::Api;

/// What to remove: either `before_seq` or `keep_last`.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PruneBody {
    /// Messages with a lower `seq`.
    before_seq: Option<i64>,
    /// Keeps this many of the last messages, at least 1.
    keep_last: Option<u32>,
    /// Only counts what would be removed.
    #[serde(default)]
    dry_run: bool,
}

impl JsonBody for PruneBody {
    type Checked = (PruneTo, bool);

    fn checked(self, checks: &mut Checks) -> Self::Checked {
        if self.before_seq.is_some_and(|seq| seq < 1) {
            checks.refuse("/before_seq", "must be 1 or more");
        }
        if self
            .keep_last
            .is_some_and(|kept| !(1..=COUNT_MAX).contains(&kept))
        {
            checks.refuse("/keep_last", &format!("must be from 1 to {COUNT_MAX}"));
        }
        let to = match (self.before_seq, self.keep_last) {
            (Some(seq), None) => PruneTo::Before(seq),
            (None, Some(count)) => PruneTo::KeepLast(count),
            (None, None) | (Some(_), Some(_)) => {
                checks.refuse("", "must have either before_seq or keep_last");
                PruneTo::Before(1)
            }
        };
        (to, self.dry_run)
    }
}

/// What was removed, or would be.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Pruned {
    /// Messages.
    removed: i64,
    /// The `seq` of the first one that is left.
    first_seq: i64,
    /// Whether this was a dry run: nothing was removed.
    dry_run: bool,
}

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(prune))
}

/// Removes old messages; calls are kept with their results, as are the last message and those of the open send
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/prune",
    operation_id = "pruneSession",
    request_body = PruneBody,
    responses((status = 200, body = Pruned), SessionNotFound, TenantHeld)
)]
pub(super) async fn prune(
    State(app): State<Arc<Api>>,
    SessionPath(key): SessionPath,
    _: Query<NoQuery>,
    Json {
        value: (to, dry_run),
        ..
    }: Json<PruneBody>,
) -> Result<Response, Problem> {
    if !dry_run {
        refuse_held(&app, key.tenant).await?;
    }
    let item = PruneSession {
        key,
        to,
        dry_run,
        limit: ERASED_AT_ONCE,
    };
    match prune_all(app.store.as_ref(), item).await? {
        PruneOutcome::NotFound => Err(Error::session_not_found().into()),
        PruneOutcome::Pruned {
            removed, first_seq, ..
        } => respond::json(
            StatusCode::OK,
            &Pruned {
                removed,
                first_seq,
                dry_run,
            },
        ),
    }
}
