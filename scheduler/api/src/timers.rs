//! Timers.

mod batch;
mod body;

use std::sync::Arc;

use axum::extract::{FromRequestParts, Path, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use mainspring_scheduler::App;
use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::agents::Resolver;
use mainspring_scheduler::services::blobs;
use mainspring_shared::error::Code;
use mainspring_shared::id::{SessionId, SessionKey, TenantId, TimerId};
use mainspring_shared::store::{
    ChangeTimer, ChangeTimerOutcome, CreateTimerOutcome, ListOccurrences, ListTimers, RefuseTimer,
};
use mainspring_shared::time::Timestamp;
use mainspring_shared::timer::{
    Merge, Occurrence, OccurrenceView, TimerChange, TimerRecord, TimerStatus, TimerTarget,
    TimerView,
};
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::problem::Problem;
use super::respond::{self, Begin, List};
use super::validate::Checks;
use crate::access::Caller;
use crate::access::reach::{Inside, session_of};
use crate::codes::{SpecInvalid, Starts, TimerInvalidSchedule, TimerNotArmed, TimerNotFound};
use crate::created::Created;
use crate::extract::{Json, Key, Limit, NoQuery, Nothing, PageQuery, Query, cursor, text};
use crate::openapi::form;
use crate::router::Api;

pub(super) use batch::{ResultsShape as TimerResultsShape, TimerBatchBody, Timers};
use body::{FireTimerBody, TimerChangeBody};

pub(super) use body::TimerBody;

const ROUTE: &str = "POST /v1/timers";

/// The timer that a path names, with the caller's tenant.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimerPath(TenantId, TimerId);

impl<S: Send + Sync> FromRequestParts<S> for TimerPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let id = path.ok().and_then(|Path(text)| text.parse().ok());
        let id = id.ok_or_else(not_found)?;
        let Caller { tenant, .. } = Caller::from_request_parts(parts, state).await?;
        Ok(Self(tenant, id))
    }
}

pub(crate) fn not_found() -> Error {
    Error::new(Code::TimerNotFound, "no timer has this id")
}

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(show, amend, cancel))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(fire))
        .routes(routes!(occurrences))
}

/// Creates a timer
#[utoipa::path(
    post,
    path = "/v1/timers",
    operation_id = "createTimer",
    params(Key),
    request_body = TimerBody,
    responses((status = 201, body = TimerView), Starts, SpecInvalid, TimerInvalidSchedule)
)]
pub(super) async fn create(
    State(app): State<Arc<Api>>,
    caller: Caller,
    _: Query<NoQuery>,
    json: Json<TimerBody>,
) -> Result<Response, Problem> {
    let tenant = caller.tenant;
    let key = json.idempotency(ROUTE)?;
    let body = json.value;
    let mut checks = Checks::new();
    if body.idempotency_key.is_some() {
        checks.refuse(
            "/idempotency_key",
            "must be sent as the Idempotency-Key header",
        );
    }
    let mut agents = Resolver::new(&app, tenant, caller.allowed());
    let mut timer = body
        .timer(&mut agents, &app, tenant, checks, key.as_ref())
        .await?;
    blobs::prepare_timer(&app, &mut timer, "").await?;
    let made = app.store.create_timers(vec![(timer, key)]).await?;
    match made.into_iter().next().ok_or_else(Error::internal)? {
        CreateTimerOutcome::Created(record) => {
            tell(&app, std::slice::from_ref(record.as_ref()));
            answer(StatusCode::CREATED, *record)
        }
        CreateTimerOutcome::Replayed(id) => {
            let mut response = answer(StatusCode::CREATED, read(&app, tenant, id).await?)?;
            respond::mark_replayed(&mut response);
            Ok(response)
        }
        CreateTimerOutcome::Mismatch => Err(Error::mismatch().into()),
        CreateTimerOutcome::Refused(reason) => Err(Error::from(reason).into()),
    }
}

fn answer(status: StatusCode, record: TimerRecord) -> Result<Response, Problem> {
    let view = TimerView::from(record);
    if status == StatusCode::CREATED {
        return respond::created(status, &format!("/v1/timers/{}", view.id), &view);
    }
    respond::json(status, &view)
}

/// Wakes the schedulers if timers are due before their next check.
fn tell(app: &App, armed: &[TimerRecord]) {
    let interval = app.config.timer_interval;
    let soon = |timer: &&TimerRecord| {
        let due = timer.state.fire_at;
        due.is_some_and(|due| due.since(timer.updated_at) < interval)
    };
    let first = armed.iter().filter(soon).filter_map(|t| t.state.fire_at);
    if let Some(first) = first.min() {
        app.notifier.timer_due(first);
    }
}

async fn read(app: &App, tenant: TenantId, id: TimerId) -> Result<TimerRecord, Error> {
    let found = app.store.get_timers(vec![(tenant, id)]).await?;
    found.into_iter().flatten().next().ok_or_else(not_found)
}

/// Which timers, newest first.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct TimersQuery {
    /// Maximum number of items on the page.
    #[serde(default)]
    #[param(inline)]
    limit: Limit,
    /// The `next_cursor` of the page before.
    #[serde(default, deserialize_with = "cursor")]
    #[param(value_type = Option<form::TimerId>, inline)]
    cursor: Option<TimerId>,
    /// Only those of this session.
    #[serde(default, deserialize_with = "text")]
    #[param(value_type = Option<form::SessionId>, inline)]
    session_id: Option<SessionId>,
    /// Only those with this status.
    #[serde(default, deserialize_with = "text")]
    #[param(value_type = Option<TimerStatus>)]
    status: Option<TimerStatus>,
    /// Only those that were created at this time or later, like `2030-01-31T08:00:00Z`.
    #[serde(default, deserialize_with = "text")]
    #[param(value_type = Option<form::Time>, inline)]
    created_from: Option<Timestamp>,
    /// Only those that were created before this time.
    #[serde(default, deserialize_with = "text")]
    #[param(value_type = Option<form::Time>, inline)]
    created_before: Option<Timestamp>,
}

/// Timers, newest first
#[utoipa::path(
    get,
    path = "/v1/timers",
    operation_id = "listTimers",
    params(TimersQuery),
    responses((status = 200, body = List<TimerView>))
)]
pub(super) async fn list(
    State(app): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<TimersQuery>,
) -> Result<Response, Problem> {
    let created = Created {
        from: query.created_from,
        before: query.created_before,
    };
    let begin = created.begin(query.cursor, query.limit, TimerId);
    let inside = Inside::of(&app, &caller);
    let (session, status) = (inside.session(query.session_id), query.status);
    let read = async |before: Option<TimerId>, limit: u32| {
        let query = ListTimers {
            tenant: caller.tenant,
            session,
            status,
            before,
            limit,
        };
        let mut page = app.store.list_timers(query).await?;
        let more = created.keep(&mut page.data, page.more, |timer| timer.id.0);
        let rows = inside.mark(page.data, session_of).await?;
        Ok((rows, more))
    };
    respond::page_of_some(&app, begin, read, |timer| timer.id, TimerView::from).await
}

/// A timer with its next five times
#[utoipa::path(
    get,
    path = "/v1/timers/{id}",
    operation_id = "getTimer",
    responses((status = 200, body = TimerView), TimerNotFound)
)]
pub(super) async fn show(
    State(app): State<Arc<Api>>,
    TimerPath(tenant, id): TimerPath,
    _: Query<NoQuery>,
) -> Result<Response, Problem> {
    answer(StatusCode::OK, read(&app, tenant, id).await?)
}

/// A timer's occurrences with their outcomes, newest first
#[utoipa::path(
    get,
    path = "/v1/timers/{id}/occurrences",
    operation_id = "listOccurrences",
    params(PageQuery),
    responses((status = 200, body = List<OccurrenceView>), TimerNotFound)
)]
pub(super) async fn occurrences(
    State(app): State<Arc<Api>>,
    TimerPath(tenant, id): TimerPath,
    Query(query): Query<PageQuery>,
) -> Result<Response, Problem> {
    let target = read(&app, tenant, id).await?.target;
    let begin = Begin {
        cursor: query.cursor,
        limit: query.limit.0,
    };
    let read = async |before: Option<i64>, limit: u32| {
        let query = ListOccurrences {
            tenant,
            timer: id,
            before,
            limit,
        };
        let page = app.store.list_occurrences(query).await?;
        Ok((page.data, page.more))
    };
    let view = |occurrence: Occurrence| OccurrenceView::of(&target, &occurrence);
    respond::page(&app, begin, read, |occurrence| occurrence.n, view).await
}

/// Cancels a timer; sends that it created continue
#[utoipa::path(
    delete,
    path = "/v1/timers/{id}",
    operation_id = "cancelTimer",
    responses((status = 200, body = TimerView), TimerNotFound)
)]
pub(super) async fn cancel(
    State(app): State<Arc<Api>>,
    path: TimerPath,
    _: Query<NoQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    change(&app, path, TimerChange::Cancel).await
}

/// Pauses a timer
#[utoipa::path(
    post,
    path = "/v1/timers/{id}/pause",
    operation_id = "pauseTimer",
    responses((status = 200, body = TimerView), TimerNotArmed, TimerNotFound)
)]
pub(super) async fn pause(
    State(app): State<Arc<Api>>,
    path: TimerPath,
    _: Query<NoQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    change(&app, path, TimerChange::Pause).await
}

/// Resumes a paused or dead timer
#[utoipa::path(
    post,
    path = "/v1/timers/{id}/resume",
    operation_id = "resumeTimer",
    responses((status = 200, body = TimerView), TimerNotArmed, TimerNotFound)
)]
pub(super) async fn resume(
    State(app): State<Arc<Api>>,
    path: TimerPath,
    _: Query<NoQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    change(&app, path, TimerChange::Resume).await
}

/// Fires a timer's next occurrence now
///
/// A timer that is due once has fired with it. The schedule of one that recurs goes on as it was, and this is one more
/// occurrence; one that is late or waits for its jitter or a retry is fired itself. It is delivered as any other: it is merged if
/// the last send has not started, and tried again if it is refused.
#[utoipa::path(
    post,
    path = "/v1/timers/{id}/fire",
    operation_id = "fireTimer",
    request_body = FireTimerBody,
    responses((status = 200, body = TimerView), Starts, TimerNotArmed, TimerNotFound)
)]
pub(super) async fn fire(
    State(app): State<Arc<Api>>,
    TimerPath(tenant, id): TimerPath,
    _: Query<NoQuery>,
    json: Json<FireTimerBody>,
) -> Result<Response, Problem> {
    let next = read(&app, tenant, id).await?.state.next_n;
    let n = json.value.filter(|n| *n <= next).ok_or_else(|| {
        let why = format!("must be the number of an occurrence; the timer's next one is {next}");
        Error::invalid("/n", why)
    })?;
    change(&app, TimerPath(tenant, id), TimerChange::Fire { n }).await
}

/// Changes what a timer says and when it is due
///
/// Its occurrences are counted on. A paused timer stays paused, and a dead one dead until it is resumed.
#[utoipa::path(
    patch,
    path = "/v1/timers/{id}",
    operation_id = "changeTimer",
    request_body = TimerChangeBody,
    responses((status = 200, body = TimerView), TimerInvalidSchedule, TimerNotArmed, TimerNotFound)
)]
pub(super) async fn amend(
    State(app): State<Arc<Api>>,
    TimerPath(tenant, id): TimerPath,
    _: Query<NoQuery>,
    json: Json<TimerChangeBody>,
) -> Result<Response, Problem> {
    let mut amendment = json.value;
    match read(&app, tenant, id).await?.target {
        TimerTarget::Send { session, .. } => {
            if let Some(input) = &mut amendment.input {
                let to = SessionKey { tenant, session };
                blobs::prepare_said(&app, to, id, input, "/input").await?;
            }
        }
        TimerTarget::Run { .. } => {
            let mut checks = Checks::new();
            if amendment.input.is_some() {
                checks.refuse("/input", "is not allowed for a timer that starts runs");
            }
            if amendment.on_busy == Some(Merge::Coalesce) {
                checks.refuse("/on_busy", "must be enqueue for a timer that starts runs");
            }
            checks.finish()?;
        }
    }
    let path = TimerPath(tenant, id);
    change(&app, path, TimerChange::Amend(Box::new(amendment))).await
}

async fn change(
    app: &App,
    TimerPath(tenant, id): TimerPath,
    change: TimerChange,
) -> Result<Response, Problem> {
    let item = ChangeTimer {
        tenant,
        id,
        session: None,
        change,
    };
    let changed = app.store.change_timers(vec![item]).await?;
    match changed.into_iter().next().ok_or_else(Error::internal)? {
        ChangeTimerOutcome::Changed(record) => {
            tell(app, std::slice::from_ref(record.as_ref()));
            answer(StatusCode::OK, *record)
        }
        ChangeTimerOutcome::Illegal(record) => {
            let status = record.state.status.as_str();
            let detail = format!("the timer is {status}");
            Err(Error::new(Code::TimerNotArmed, detail).into())
        }
        ChangeTimerOutcome::Refused(fault) => Err(Error::from(RefuseTimer::Schedule(fault)).into()),
        ChangeTimerOutcome::NotFound => Err(not_found().into()),
    }
}
