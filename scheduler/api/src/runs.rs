//! Runs of workflows.

pub(super) mod events;
pub(super) mod nodes;
mod pauses;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, Path, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use mainspring_runtime::telemetry;
use mainspring_scheduler::App;
use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::agents::Resolver;
use mainspring_scheduler::services::runs;
use mainspring_shared::error::Code;
use mainspring_shared::id::{RunId, RunKey, SessionId};
use mainspring_shared::store::{CreateRunOutcome, IdempotencyKey, ListRuns, NewRun};
use mainspring_shared::time::Timestamp;
use mainspring_shared::timer::TimerRun;
use mainspring_shared::workflow::run::{DSL_VERSION, RunAsk, RunOptions, RunRecord, RunStatus};
use mainspring_shared::workflow::spec::Spec;
use mainspring_shared::workflow::view::RunView;
use serde::Deserialize;
use serde_json::Value;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::problem::Problem;
use super::respond::{self, Begin, List};
use super::validate::{Checks, NUL, has_nul};
use super::workflows;
use crate::access::Caller;
use crate::access::reach::Inside;
use crate::codes::{RunNotFound, SpecInvalid, Starts, WorkflowNotResumable};
use crate::created::Created;
use crate::extract::{
    Json, JsonBody, Key, Limit, NoQuery, Nothing, Query, WaitQuery, cursor, no_id, session_id, text,
};
use crate::filters::has_all;
use crate::openapi::form;
use crate::router::Api;

/// The message for a limit of zero.
const AT_LEAST_1: &str = "must be at least 1";

/// The run that a path names.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunPath(pub(super) RunKey);

impl<S: Send + Sync> FromRequestParts<S> for RunPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<Vec<(String, String)>>::from_request_parts(parts, state).await;
        let pairs = path.map(|Path(pairs)| pairs).unwrap_or_default();
        let text = pairs.into_iter().find(|(name, _)| name == "id");
        let text = text.map(|(_, text)| text).unwrap_or_default();
        let run: Result<RunId, _> = text.parse();
        let run = run.map_err(|_| no_id(Code::RunNotFound, "run", "run_"))?;
        let Caller { tenant, .. } = Caller::from_request_parts(parts, state).await?;
        Ok(Self(RunKey { tenant, run }))
    }
}

/// The parameters of a run that belongs to no session.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RunBody {
    /// A workflow: an object, or a text that holds one as JSON.
    #[schema(value_type = Object)]
    spec: Value,
    /// The value of `input`; the spec's own where absent.
    #[schema(value_type = Option<Object>)]
    input: Option<Value>,
    /// Options in addition to its spec.
    options: Option<RunOptions>,
}

impl RunBody {
    /// Builds the template of a timer's runs. All faults of the timer and of the spec are reported
    /// at once, with pointers to members of `run`.
    pub(super) async fn checked(
        self,
        agents: &mut Resolver<'_>,
        mut checks: Checks,
        key: Option<&IdempotencyKey>,
    ) -> Result<TimerRun, Error> {
        let spec = workflows::check_into(&self.spec, "/run/spec", &mut checks);
        let given = (self.input.as_ref(), self.options.as_ref());
        check_given(&mut checks, "/run", given);
        checks.finish()?;
        let spec = spec.ok_or_else(Error::internal)?;
        let mut made = made_of(&spec, self.input, self.options.unwrap_or_default())?;
        made.options.agents = agents.pin(spec.agents(), key).await?;
        made.options.skills = agents
            .pin_skills(&spec, (&self.spec, "/run/spec"), key)
            .await?;
        agents
            .admit_run(&spec, &made.options, ("/run", key))
            .await?;
        Ok(made)
    }
}

/// Checks the parameters of a run other than its spec: the members `input` and `options` below
/// `at`.
fn check_given(
    checks: &mut Checks,
    at: &str,
    (input, options): (Option<&Value>, Option<&RunOptions>),
) {
    if input.is_some_and(has_nul) {
        checks.refuse(&format!("{at}/input"), NUL);
    }
    let Some(options) = options else {
        return;
    };
    for (name, is_zero) in [
        ("max_tokens", options.max_tokens == Some(0)),
        ("raised_tokens", options.raised_tokens == Some(0)),
        ("max_concurrency", options.max_concurrency == Some(0)),
    ] {
        if is_zero {
            checks.refuse(&format!("{at}/options/{name}"), AT_LEAST_1);
        }
    }
    for (place, name) in options.allow.iter().flatten().enumerate() {
        checks.text(&format!("{at}/options/allow/{place}"), Some(name));
    }
    checks.text(&format!("{at}/options/pool"), options.pool.as_deref());
}

/// Builds a run's parts, or explains why its options do not allow that.
fn made_of(spec: &Spec, input: Option<Value>, options: RunOptions) -> Result<TimerRun, Error> {
    if options.starter.is_some() {
        let detail = "options.starter is an unknown field: only runs that agents start have one";
        return Err(Error::new(Code::RequestInvalid, detail));
    }
    if !options.skills.is_empty() {
        let detail = "options.skills is an unknown field: they are found by the names in the spec";
        return Err(Error::new(Code::RequestInvalid, detail));
    }
    if !options.agents.is_empty() {
        let detail = "options.agents is an unknown field: they are found by the names in the spec";
        return Err(Error::new(Code::RequestInvalid, detail));
    }
    if options.paused_at.is_some() {
        let detail = "options.paused_at is an unknown field: a run is paused once it exists";
        return Err(Error::new(Code::RequestInvalid, detail));
    }
    if options.traceparent.is_some() {
        let detail = "options.traceparent is an unknown field: it is a header of the request";
        return Err(Error::new(Code::RequestInvalid, detail));
    }
    if let Err(failure) = spec.admitted(&options) {
        return Err(Error::new(failure.code, failure.message));
    }
    Ok(TimerRun {
        name: spec.envelope.name.clone(),
        spec: spec.to_value(),
        dsl_version: DSL_VERSION,
        input: input.unwrap_or_else(|| Value::String(spec.envelope.input.clone())),
        options: RunOptions {
            traceparent: telemetry::traceparent(),
            ..options
        },
    })
}

/// A run to start.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewRunBody {
    /// A workflow: an object, or a text that holds one as JSON.
    #[schema(value_type = Object)]
    spec: Value,
    /// The value of `input`; the spec's own where absent.
    #[schema(value_type = Option<Object>)]
    input: Option<Value>,
    /// The session it belongs to: its leaves' sessions are children of that one.
    session_id: Option<String>,
    /// Options in addition to its spec.
    options: Option<RunOptions>,
}

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(show))
        .routes(routes!(export))
        .routes(routes!(cancel))
        .routes(routes!(retry))
        .merge(pauses::routes())
}

/// Starts a workflow: 202, or 200 if it ends within `wait`; 422 with all problems of its spec
#[utoipa::path(
    post,
    path = "/v1/runs",
    operation_id = "createRun",
    params(WaitQuery, Key),
    request_body = NewRunBody,
    responses((status = 200, body = RunView), (status = 202, body = RunView), Starts, SpecInvalid)
)]
pub(super) async fn create(
    State(app): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<WaitQuery>,
    json: Json<NewRunBody>,
) -> Result<Response, Problem> {
    let wait = query.within(app.config.wait_max);
    let idempotency = json.idempotency("POST /v1/runs");
    let Json {
        value: body, whole, ..
    } = json;
    let mut checks = Checks::new();
    let spec = workflows::check_into(&body.spec, "/spec", &mut checks);
    let given = (body.input.as_ref(), body.options.as_ref());
    check_given(&mut checks, "", given);
    checks.finish()?;
    let spec = spec.ok_or_else(Error::internal)?;
    let session = body.session_id.as_deref().map(session_id).transpose()?;
    let depth = match session {
        Some(session) => runs::depth_below(&app, caller.tenant, session).await?,
        None => 0,
    };
    let mut made = made_of(&spec, body.input, body.options.unwrap_or_default())?;
    let idempotency = idempotency?;
    let mut agents = Resolver::new(&app, caller.tenant, caller.allowed());
    let key = idempotency.as_ref();
    made.options.agents = agents.pin(spec.agents(), key).await?;
    made.options.skills = agents.pin_skills(&spec, (&body.spec, "/spec"), key).await?;
    agents.admit_run(&spec, &made.options, ("", key)).await?;
    let run = RunId(app.entropy.ordered_id());
    let new = NewRun {
        key: RunKey {
            tenant: caller.tenant,
            run,
        },
        name: made.name,
        spec: made.spec,
        dsl_version: made.dsl_version,
        input: made.input,
        options: made.options,
        session,
        reports_to: None,
        depth,
        idempotency,
    };
    let waiting = wait.map(|wait| (app.watch.run(new.key), wait));
    let mut outcomes = app.store.create_runs(vec![new]).await?;
    // A waiting request must not hold its body.
    drop(whole);
    match outcomes.pop().ok_or_else(Error::internal)? {
        CreateRunOutcome::Created(record) => {
            app.notifier.run_changed(record.key);
            let Some((watching, wait)) = waiting else {
                return answer(StatusCode::ACCEPTED, *record);
            };
            let ended = runs::wait_for(&app, &watching, wait).await?;
            answer(status_of(&ended), ended)
        }
        CreateRunOutcome::Replayed(run) => {
            let key = RunKey {
                tenant: caller.tenant,
                run,
            };
            let record = match wait {
                Some(wait) => runs::wait_for(&app, &app.watch.run(key), wait).await?,
                None => runs::read(&app, key).await?,
            };
            let status = wait.map_or(StatusCode::ACCEPTED, |_| status_of(&record));
            let mut response = answer(status, record)?;
            respond::mark_replayed(&mut response);
            Ok(response)
        }
        CreateRunOutcome::Mismatch => Err(Error::mismatch().into()),
        CreateRunOutcome::SessionNotFound => Err(Error::session_not_found().into()),
    }
}

fn status_of(record: &RunRecord) -> StatusCode {
    if record.status.is_final() {
        StatusCode::OK
    } else {
        StatusCode::ACCEPTED
    }
}

fn answer(status: StatusCode, record: RunRecord) -> Result<Response, Problem> {
    let path = format!("/v1/runs/{}", record.key.run);
    respond::created(status, &path, &RunView::from(record))
}

/// Which runs, newest first.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct RunsQuery {
    /// Maximum number of items on the page.
    #[serde(default)]
    #[param(inline)]
    limit: Limit,
    /// The `next_cursor` of the page before.
    #[serde(default, deserialize_with = "cursor")]
    #[param(value_type = Option<form::RunId>, inline)]
    cursor: Option<RunId>,
    /// Only those of this session.
    #[serde(default, deserialize_with = "text")]
    #[param(value_type = Option<form::SessionId>, inline)]
    session_id: Option<SessionId>,
    /// Only those with this status.
    #[serde(default, deserialize_with = "text")]
    #[param(value_type = Option<RunStatus>)]
    status: Option<RunStatus>,
    /// Only those whose workflow has this name.
    name: Option<String>,
    /// `metadata[NAME]=TEXT`, or `metadata.NAME=TEXT`: only those whose workflow's metadata say so.
    #[serde(default)]
    #[param(value_type = Option<form::Metadata>, inline, style = DeepObject, explode = true)]
    metadata: BTreeMap<String, String>,
    /// Only those that were created at this time or later, like `2030-01-31T08:00:00Z`.
    #[serde(default, deserialize_with = "text")]
    #[param(value_type = Option<form::Time>, inline)]
    created_from: Option<Timestamp>,
    /// Only those that were created before this time.
    #[serde(default, deserialize_with = "text")]
    #[param(value_type = Option<form::Time>, inline)]
    created_before: Option<Timestamp>,
}

/// Runs, newest first
#[utoipa::path(
    get,
    path = "/v1/runs",
    operation_id = "listRuns",
    params(RunsQuery),
    responses((status = 200, body = List<RunView>))
)]
pub(super) async fn list(
    State(app): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<RunsQuery>,
) -> Result<Response, Problem> {
    let inside = Inside::of(&app, &caller);
    let begin = query.begin();
    let read = async |before, limit| query.read(&inside, before, limit).await;
    respond::page_of_some(&app, begin, read, |run| run.key.run, RunView::from).await
}

impl RunsQuery {
    fn created(&self) -> Created {
        Created {
            from: self.created_from,
            before: self.created_before,
        }
    }

    pub(super) fn begin(&self) -> Begin<RunId> {
        self.created().begin(self.cursor, self.limit, RunId)
    }

    pub(super) fn is_filtered(&self) -> bool {
        let is_named = self.session_id.is_some() || self.name.is_some();
        let is_dated = self.status.is_some() || self.created().is_some();
        is_named || is_dated || !self.metadata.is_empty()
    }

    fn fits(&self, run: &RunRecord) -> bool {
        let metadata = run.spec.get("metadata").and_then(Value::as_object);
        let is_named = self.name.as_ref().is_none_or(|name| *name == run.name);
        is_named && has_all(metadata, &self.metadata)
    }

    /// The runs before one, whether each is shown, and whether there are more.
    pub(super) async fn read(
        &self,
        inside: &Inside<'_>,
        before: Option<RunId>,
        limit: u32,
    ) -> Result<(Vec<(RunRecord, bool)>, bool), Error> {
        let query = ListRuns {
            tenant: inside.tenant(),
            status: self.status,
            session: self.session_id,
            before,
            limit,
        };
        let mut page = inside.app().store.list_runs(query).await?;
        let more = self
            .created()
            .keep(&mut page.data, page.more, |run| run.key.run.0);
        let rows = inside.mark(page.data, |run| run.session).await?;
        let rows = rows.into_iter().map(|(run, is_shown)| {
            let is_shown = is_shown && self.fits(&run);
            (run, is_shown)
        });
        Ok((rows.collect(), more))
    }
}

/// A run, at once or after its end
#[utoipa::path(
    get,
    path = "/v1/runs/{id}",
    operation_id = "getRun",
    params(WaitQuery),
    responses((status = 200, body = RunView), RunNotFound)
)]
pub(super) async fn show(
    State(app): State<Arc<Api>>,
    RunPath(key): RunPath,
    Query(query): Query<WaitQuery>,
) -> Result<Response, Problem> {
    let wait = query.within(app.config.wait_max);
    let record = match wait {
        Some(wait) => runs::wait_for(&app, &app.watch.run(key), wait).await?,
        None => runs::read(&app, key).await?,
    };
    respond::json(StatusCode::OK, &RunView::from(record))
}

/// Options of a cancellation.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CancelRunBody {
    /// For people.
    reason: Option<String>,
}

/// Options of a retry.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RetryRunBody {
    /// A new limit of tokens.
    max_tokens: Option<u64>,
}

impl JsonBody for NewRunBody {
    type Checked = Self;

    fn unreadable(error: Error) -> Error {
        error.of_spec("/spec")
    }

    fn checked(self, _checks: &mut Checks) -> Self {
        self
    }
}

impl JsonBody for CancelRunBody {
    type Checked = Self;

    fn absent() -> Option<Self> {
        Some(Self::default())
    }

    fn checked(self, _checks: &mut Checks) -> Self {
        self
    }
}

impl JsonBody for RetryRunBody {
    type Checked = Self;

    fn absent() -> Option<Self> {
        Some(Self::default())
    }

    fn checked(self, checks: &mut Checks) -> Self {
        if self.max_tokens == Some(0) {
            checks.refuse("/max_tokens", AT_LEAST_1);
        }
        self
    }
}

/// Cancels a run and everything below it
///
/// Leaves in flight are cancelled, and the others do not start. The end of a leaf that was stored before is kept: a run
/// whose last leaf has ended by then completes instead.
#[utoipa::path(
    post,
    path = "/v1/runs/{id}/cancel",
    operation_id = "cancelRun",
    params(WaitQuery),
    request_body = Option<CancelRunBody>,
    responses((status = 200, body = RunView), (status = 202, body = RunView), RunNotFound, WorkflowNotResumable)
)]
pub(super) async fn cancel(
    State(app): State<Arc<Api>>,
    RunPath(key): RunPath,
    Query(query): Query<WaitQuery>,
    Json { value: body, .. }: Json<CancelRunBody>,
) -> Result<Response, Problem> {
    let wait = query.within(app.config.wait_max);
    let record = runs::read(&app, key).await?;
    match record.status {
        RunStatus::Cancelled => return answer(StatusCode::OK, record),
        RunStatus::Completed | RunStatus::Failed => {
            return Err(conflict(&record, "cannot be cancelled").into());
        }
        RunStatus::Queued | RunStatus::Running | RunStatus::Waiting => {}
    }
    let ask = RunAsk::Cancel {
        reason: body.reason,
    };
    asked(&app, key, ask, wait).await
}

/// Runs again what failed, was cancelled or was never reached
#[utoipa::path(
    post,
    path = "/v1/runs/{id}/retry",
    operation_id = "retryRun",
    params(WaitQuery),
    request_body = Option<RetryRunBody>,
    responses((status = 200, body = RunView), (status = 202, body = RunView), Starts, RunNotFound, WorkflowNotResumable)
)]
pub(super) async fn retry(
    State(app): State<Arc<Api>>,
    RunPath(key): RunPath,
    Query(query): Query<WaitQuery>,
    Json { value: body, .. }: Json<RetryRunBody>,
) -> Result<Response, Problem> {
    let wait = query.within(app.config.wait_max);
    let record = runs::read(&app, key).await?;
    match record.status {
        RunStatus::Failed | RunStatus::Cancelled => {}
        RunStatus::Completed | RunStatus::Queued | RunStatus::Running | RunStatus::Waiting => {
            return Err(conflict(&record, "has nothing to retry").into());
        }
    }
    let ask = RunAsk::Retry {
        max_tokens: body.max_tokens,
    };
    asked(&app, key, ask, wait).await
}

fn conflict(record: &RunRecord, what: &str) -> Error {
    let detail = format!("the run is {} and {what}", record.status.as_str());
    Error::new(Code::WorkflowNotResumable, detail)
}

/// Stores an ask for the run's owner. Responds with 202, or with 200 if the run is final within
/// `wait`.
pub(super) async fn asked(
    app: &App,
    key: RunKey,
    ask: RunAsk,
    wait: Option<Duration>,
) -> Result<Response, Problem> {
    let record = runs::ask(app, key, ask, wait).await?;
    let status = wait.map_or(StatusCode::ACCEPTED, |_| status_of(&record));
    answer(status, record)
}

/// The run with its spec, its nodes and its events
#[utoipa::path(
    get,
    path = "/v1/runs/{id}/export",
    operation_id = "exportRun",
    responses((status = 200, body = Value), RunNotFound)
)]
pub(super) async fn export(
    State(app): State<Arc<Api>>,
    RunPath(key): RunPath,
    _: Query<NoQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    let record = runs::read(&app, key).await?;
    let nodes = nodes::all(&app, key).await?;
    let mut steps = Vec::new();
    loop {
        let after = steps
            .last()
            .map_or(0, |step: &Value| step["n"].as_i64().unwrap_or(0));
        let page = app.store.read_run_steps(key, after, 500).await?;
        let is_last = page.len() < 500;
        steps.extend(page.into_iter().map(
            |step| serde_json::json!({ "n": step.n, "at": step.at, "changes": step.changes }),
        ));
        if is_last {
            break;
        }
    }
    let document = serde_json::json!({
        "format": "mainspring.run.1",
        "spec": record.spec.clone(),
        "dsl_version": record.dsl_version,
        "run": RunView::from(record),
        "nodes": nodes,
        "steps": steps,
    });
    respond::json(StatusCode::OK, &document)
}
