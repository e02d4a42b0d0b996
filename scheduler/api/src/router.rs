//! All routes, and the state that their handlers share.

use std::ops::Deref;
use std::sync::Arc;

use axum::Router;
use axum::http::HeaderValue;
use axum::http::header::X_CONTENT_TYPE_OPTIONS;
use mainspring_runtime::Shares;
use mainspring_scheduler::{App, SchedulerConfig};
use mainspring_shared::id::TenantId;
use tokio::sync::Semaphore;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::set_header::SetResponseHeaderLayer;
use utoipa_axum::router::OpenApiRouter;

use crate::access::{Access, Gatekeeper};
use crate::documents::Documents;
use crate::gate::Places;
use crate::run::RenderMetrics;
use crate::{
    a2a, acts, ag_ui, again, agents, batch, below, blobs, calls, claims, console, context, copies,
    deliver, documents, events, exports, gate, health, mcp, memories, messages, openai, openapi,
    operations, pauses, problem, provider_keys, prune, runs, secrets, sends, sessions, skills,
    tenants, timers, tokens, usage, waiting, webhooks, workflows,
};

/// The scheduler, and the limits of requests in flight. Derefs to the scheduler.
pub(crate) struct Api {
    pub(crate) scheduler: Arc<App>,
    /// Places for requests in flight.
    pub(crate) requests: Places,
    /// Places for requests that wait or stream.
    pub(crate) waiters: Places,
    /// Turns of the lists that the database reads at a time: half of them at most for one tenant.
    pub(crate) lists: Shares<TenantId>,
    /// Permits for the bytes of bodies that are held.
    pub(crate) bodies: Arc<Semaphore>,
    /// Permits for the bytes of blobs being sent in archives. They are separate from those of
    /// bodies, so that a slow reader delays other archives, but no requests.
    pub(crate) exported: Arc<Semaphore>,
    /// Who may use the API.
    pub(crate) gatekeeper: Arc<Gatekeeper>,
    /// Renders the content of `/metrics`; if absent, the path does not exist.
    pub(crate) metrics: Option<RenderMetrics>,
}

impl Api {
    fn new(scheduler: Arc<App>, metrics: Option<RenderMetrics>, access: Access) -> Self {
        let config: &SchedulerConfig = &scheduler.config;
        Self {
            requests: Places::new(config.requests_max),
            waiters: Places::new(config.waiters_max),
            lists: Shares::new(config.readers.max(2), 1),
            bodies: Arc::new(Semaphore::new(config.bodies_bytes_max)),
            exported: Arc::new(Semaphore::new(exported_bytes_max(config))),
            gatekeeper: Arc::new(Gatekeeper::new(access)),
            scheduler,
            metrics,
        }
    }
}

/// Maximum bytes of blobs that are being sent in archives at a time.
pub(crate) fn exported_bytes_max(config: &SchedulerConfig) -> usize {
    (config.bodies_bytes_max / 4).max(1)
}

impl Deref for Api {
    type Target = App;

    fn deref(&self) -> &App {
        &self.scheduler
    }
}

/// The router of a scheduler's API.
pub(crate) fn router(
    scheduler: Arc<App>,
    metrics: Option<RenderMetrics>,
    documents: Option<Documents>,
    access: Access,
) -> Router {
    let api = Arc::new(Api::new(scheduler, metrics, access));
    let (router, _) = paths().split_for_parts();
    router
        .merge(console::routes())
        .merge(documents::routes(documents))
        .method_not_allowed_fallback(problem::method_not_allowed)
        .fallback(problem::nothing_here)
        .layer(CatchPanicLayer::custom(problem::panicked))
        .layer(axum::middleware::from_fn_with_state(
            api.clone(),
            gate::pass,
        ))
        // Browsers must not guess the type of content that others wrote.
        .layer(SetResponseHeaderLayer::overriding(
            X_CONTENT_TYPE_OPTIONS,
            HeaderValue::from_static("nosniff"),
        ))
        .with_state(api)
}

/// Every operation of the OpenAPI document that only those may make who are known, for tests that cover all of them.
#[cfg(test)]
pub(crate) fn operations() -> Vec<(axum::http::Method, String)> {
    let (_, document) = paths().split_for_parts();
    let document = serde_json::to_value(document).expect("is JSON");
    let paths = document["paths"].as_object().expect("has paths");
    let mut found = Vec::new();
    let is_one = |path: &str| path.starts_with("/v1/") || crate::faces::is_ours(path);
    for (path, operations) in paths.iter().filter(|(path, _)| is_one(path)) {
        for name in operations.as_object().expect("an object").keys() {
            let method = axum::http::Method::from_bytes(name.to_uppercase().as_bytes());
            found.push((method.expect("a method"), path.clone()));
        }
    }
    assert!(found.len() > 40, "{found:?}");
    found
}

/// Every path with its description.
pub(crate) fn paths() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .merge(agents::routes())
        .merge(sessions::routes())
        .merge(copies::routes())
        .merge(exports::routes())
        .merge(memories::routes())
        .merge(messages::routes())
        .merge(sends::routes())
        .merge(again::routes())
        .merge(acts::routes())
        .merge(below::routes())
        .merge(tokens::routes())
        .merge(events::routes())
        .merge(blobs::routes())
        .merge(calls::routes())
        .merge(waiting::routes())
        .merge(claims::routes())
        .merge(deliver::routes())
        .merge(context::routes())
        .merge(usage::routes())
        .merge(prune::routes())
        .merge(batch::routes())
        .merge(timers::routes())
        .merge(runs::routes())
        .merge(runs::nodes::routes())
        .merge(runs::events::routes())
        .merge(workflows::routes())
        .merge(skills::routes())
        .merge(tenants::routes())
        .merge(tenants::keys::routes())
        .merge(provider_keys::routes())
        .merge(secrets::routes())
        .merge(webhooks::routes())
        .merge(pauses::routes())
        .merge(operations::routes())
        .merge(openai::routes())
        .merge(mcp::routes())
        .merge(a2a::routes())
        .merge(ag_ui::routes())
        .merge(health::routes())
        .merge(openapi::routes())
        .merge(problem::routes())
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::{Request, StatusCode};
    use axum::routing::get;
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn a_handler_that_panics_answers_a_problem() {
        async fn planted() {
            panic!("planted, with a secret");
        }
        let router: Router = Router::new()
            .route("/", get(planted))
            .layer(CatchPanicLayer::custom(problem::panicked));
        let request = Request::get("/").body(Body::empty());
        let response = router.oneshot(request.expect("a request")).await;
        let response = response.expect("it answers");
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let body = to_bytes(response.into_body(), 10_000).await;
        let body = String::from_utf8_lossy(&body.expect("a body")).into_owned();
        assert!(
            body.contains("\"code\":\"internal\"") && !body.contains("planted"),
            "{body}"
        );
    }
}
