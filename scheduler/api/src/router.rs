//! Every path, and what its handlers share.

use std::ops::Deref;
use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use mainspring_scheduler::{App, SchedulerConfig};
use tokio::sync::Semaphore;

use crate::run::RenderMetrics;
use crate::{
    batch, calls, copies, deliver, events, gate, health, messages, openapi, operations, problem,
    prune, runs, sends, sessions, timers, usage, waiting, workflows,
};

/// The scheduler behind the API, and the bounds of what is under way. It derefs to the scheduler.
pub(crate) struct Api {
    pub(crate) scheduler: Arc<App>,
    /// Requests under way.
    pub(crate) requests: Arc<Semaphore>,
    /// Requests that wait or stream.
    pub(crate) waiters: Arc<Semaphore>,
    /// Bytes of the bodies that are held.
    pub(crate) bodies: Arc<Semaphore>,
    /// What `/metrics` shows; without it the path does not exist.
    pub(crate) metrics: Option<RenderMetrics>,
}

impl Api {
    fn new(scheduler: Arc<App>, metrics: Option<RenderMetrics>) -> Self {
        let config: &SchedulerConfig = &scheduler.config;
        Self {
            requests: Arc::new(Semaphore::new(config.requests_max)),
            waiters: Arc::new(Semaphore::new(config.waiters_max)),
            bodies: Arc::new(Semaphore::new(config.bodies_bytes_max)),
            scheduler,
            metrics,
        }
    }
}

impl Deref for Api {
    type Target = App;

    fn deref(&self) -> &App {
        &self.scheduler
    }
}

/// Every path. `openapi.rs` documents the same ones; a test compares the two.
pub(crate) fn router(scheduler: Arc<App>, metrics: Option<RenderMetrics>) -> Router {
    let api = Arc::new(Api::new(scheduler, metrics));
    Router::new()
        .route("/v1/sessions", get(sessions::list).post(sessions::create))
        .route(
            "/v1/sessions/{id}",
            get(sessions::show)
                .patch(sessions::change)
                .delete(sessions::remove),
        )
        .route("/v1/sessions:import", post(copies::import))
        .route("/v1/sessions/{id}/fork", post(copies::fork))
        .route("/v1/sessions/{id}/export", get(copies::export))
        .route("/v1/sessions/{id}/messages", get(messages::list))
        .route("/v1/sessions/{id}/sends", post(sends::create_in_session))
        .route("/v1/sessions/{id}/events", get(events::of_session))
        .route("/v1/sessions/{id}/tool-results", post(calls::post_results))
        .route("/v1/sessions/{id}/calls", get(waiting::list))
        .route(
            "/v1/sessions/{id}/calls/{call_id}/output",
            get(calls::output),
        )
        .route("/v1/sessions/{id}/inbox", get(deliver::inbox))
        .route("/v1/sessions/{id}/usage", get(usage::of_session))
        .route("/v1/sessions/{id}/prune", post(prune::prune))
        .route("/v1/sessions/{id}/resume", post(sessions::resume))
        .route("/v1/sessions/{id}/abort", post(sessions::abort))
        .route("/v1/sends", get(sends::list).post(sends::create))
        .route(
            "/v1/sends:batch",
            post(batch::create::<batch::sends::Sends>),
        )
        .route("/v1/sends/{id}", get(sends::show))
        .route("/v1/sends/{id}/cancel", post(sends::cancel))
        .route("/v1/sends/{id}/events", get(events::of_send))
        .route("/v1/timers", get(timers::list).post(timers::create))
        .route("/v1/timers:batch", post(batch::create::<timers::Timers>))
        .route("/v1/timers/{id}", get(timers::show).delete(timers::cancel))
        .route("/v1/timers/{id}/pause", post(timers::pause))
        .route("/v1/timers/{id}/resume", post(timers::resume))
        .route("/v1/timers/{id}/occurrences", get(timers::occurrences))
        .route("/v1/runs", get(runs::list).post(runs::create))
        .route("/v1/runs/{id}", get(runs::show))
        .route("/v1/runs/{id}/nodes", get(runs::nodes::list))
        .route("/v1/runs/{id}/events", get(runs::events::of_run))
        .route("/v1/runs/{id}/export", get(runs::export))
        .route("/v1/runs/{id}/cancel", post(runs::cancel))
        .route("/v1/runs/{id}/retry", post(runs::retry))
        .route(
            "/v1/runs/{id}/nodes/{path}/cancel",
            post(runs::nodes::cancel),
        )
        .route("/v1/runs/{id}/nodes/{path}/retry", post(runs::nodes::retry))
        .route("/v1/runs/{id}/nodes/{path}/steer", post(runs::nodes::steer))
        .route("/v1/runs/{id}/nodes/{path}/amend", post(runs::nodes::amend))
        .route("/v1/workflows:validate", post(workflows::check_spec))
        .route("/v1/workflows/schema", get(workflows::schema))
        .route("/v1/workers", get(operations::workers))
        .route("/v1/tools", get(operations::tools))
        .route("/v1/queue", get(operations::queue))
        .route("/v1/scaling/{pool}", get(operations::scaling))
        .route("/v1/info", get(health::info))
        .route("/livez", get(health::live))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics))
        .route("/openapi.json", get(openapi::show))
        .route("/errors/{code}", get(problem::advice))
        .method_not_allowed_fallback(problem::method_not_allowed)
        .fallback(problem::nothing_here)
        .layer(axum::middleware::from_fn_with_state(
            api.clone(),
            gate::pass,
        ))
        .with_state(api)
}
