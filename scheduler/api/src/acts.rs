//! Many things acted on in one request: those that the list shows with the same parameters, newest first.
//!
//! Each is acted on in a step of its own, so that what a request had done when it broke off stays done, and the same request does
//! the rest: it no longer finds the others, or finds that nothing is left to do for them.

mod runs;
mod sends;
mod sessions;

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::Response;
use futures::StreamExt as _;
use mainspring_scheduler::App;
use mainspring_scheduler::error::Error;
use mainspring_shared::error::Code;
use serde::Serialize;
use utoipa_axum::router::OpenApiRouter;

use crate::problem::{Problem, ProblemDocument};
use crate::respond::{self, Begin};
use crate::router::Api;

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .merge(sends::routes())
        .merge(runs::routes())
        .merge(sessions::routes())
}

/// Rows per read.
const PIECE: u32 = 32;

/// Maximum number of rows that a request looks at.
const LOOKED_MAX: usize = 1_000;

/// Maximum number of steps in flight of one request.
const AT_ONCE: usize = 8;

/// After this time a request begins nothing more, and answers where it stopped.
const TIME_MAX: Duration = Duration::from_secs(10);

/// What became of one of them.
#[derive(Debug, Serialize)]
struct Acted {
    id: String,
    done: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<Problem>,
}

#[derive(Debug, Serialize)]
struct AllActed {
    results: Vec<Acted>,
    next_cursor: Option<String>,
}

/// What became of those that a request acted on.
#[derive(Debug, utoipa::ToSchema)]
#[schema(as = ActedResults)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct ActedShape {
    /// One for each, newest first.
    results: Vec<OneShape>,
    /// The `cursor` of the request that goes on; null if there are no more.
    next_cursor: Option<String>,
}

/// What became of one of them.
#[derive(Debug, utoipa::ToSchema)]
#[schema(as = ActedResult)]
#[expect(dead_code, reason = "only its schema is used")]
struct OneShape {
    id: String,
    /// Whether it was done.
    done: bool,
    /// Why it was not.
    problem: Option<ProblemDocument>,
}

/// Refuses a request without a filter.
pub(crate) fn refuse_all(is_filtered: bool) -> Result<(), Error> {
    let detail = "name at least one filter: without one, the request would concern everything";
    let refused = || Error::new(Code::RequestInvalid, detail);
    is_filtered.then_some(()).ok_or_else(refused)
}

/// Acts on up to `begin.limit` rows that fit. `read`, `place` and their meaning are those of [`respond::page_of_some`].
pub(crate) async fn on<C, T, R, A>(
    app: &App,
    begin: Begin<C>,
    mut read: impl FnMut(Option<C>, u32) -> R,
    place: impl Fn(&T) -> C,
    fits: impl Fn(&T) -> bool,
    act: impl Fn(T) -> A,
) -> Result<Response, Problem>
where
    C: Copy + Display,
    R: Future<Output = Result<(Vec<(T, bool)>, bool), Error>>,
    A: Future<Output = Result<(), Error>>,
{
    let started = app.clock.monotonic();
    let (mut last, mut left, mut looked) = (begin.cursor, begin.limit as usize, 0);
    let mut results = Vec::new();
    let more = loop {
        let (rows, more) = read(last, PIECE).await?;
        let mut more = more && !rows.is_empty();
        let mut hit = Vec::new();
        for (row, is_inside) in rows {
            let at = place(&row);
            if is_inside && fits(&row) {
                if hit.len() == left {
                    more = true;
                    break;
                }
                hit.push((at, row));
            }
            last = Some(at);
            looked += 1;
        }
        left -= hit.len();
        let acted = futures::stream::iter(hit).map(|(at, row)| {
            let act = act(row);
            async move {
                let problem = act.await.err().map(Problem::from);
                Acted {
                    id: at.to_string(),
                    done: problem.is_none(),
                    problem,
                }
            }
        });
        results.extend(acted.buffered(AT_ONCE).collect::<Vec<_>>().await);
        let took = app.clock.monotonic().saturating_sub(started);
        let is_over = left == 0 || looked >= LOOKED_MAX || took >= TIME_MAX;
        if !more || is_over || app.process.lifecycle.is_stopping() {
            break more;
        }
    };
    let answer = AllActed {
        results,
        next_cursor: last.filter(|_| more).map(|last| last.to_string()),
    };
    respond::json(StatusCode::OK, &answer)
}
