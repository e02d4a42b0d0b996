//! What every request passes through: checks of its origin, a limit on requests in flight, a
//! request id and a span.

use std::sync::Arc;

use axum::RequestExt;
use axum::body::{Body, HttpBody};
use axum::extract::{MatchedPath, RawPathParams, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use futures::stream::poll_fn;
use mainspring_runtime::telemetry::{TRACEPARENT, accepted, carrying, spans};
use mainspring_runtime::{Share, Shares};
use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::pressure::Work;
use mainspring_shared::id::{KeyId, TenantId};
use mainspring_shared::store::{in_scope, scoped};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::Instrument;

use super::browsers::{self, Visit};
use super::problem::{Problem, mark_quota};
use super::{faces, mcp, openai};
use crate::access::{Caller, reach};
use crate::metrics::{REQUEST_SECONDS, REQUESTS, WAITERS};
use crate::router::Api;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Maximum length of a caller's request id; a longer one is replaced.
const REQUEST_ID_MAX: usize = 128;

/// The places of a request in flight; a stream holds them until it ends.
#[derive(Debug, Clone)]
pub(super) struct Admission {
    _places: Arc<Held>,
}

#[derive(Debug)]
struct Held {
    _permit: OwnedSemaphorePermit,
    _shares: Shared,
    /// Its turn among the lists that the database reads at a time.
    turn: Option<Share<TenantId>>,
}

/// The places of a request among those of its tenant and of its key.
type Shared = (Share<TenantId>, Option<Share<KeyId>>);

/// Places for requests of one kind: as many as there may be, of which no tenant and no key can take
/// all.
pub(crate) struct Places {
    all: Arc<Semaphore>,
    tenants: Shares<TenantId>,
    keys: Shares<KeyId>,
}

/// How many times what is left for the others one tenant's requests may take: three quarters of all
/// when it is alone.
const TENANT_PARTS: usize = 3;

/// The same for one key: two thirds, so that its tenant's other keys are left some too.
const KEY_PARTS: usize = 2;

impl Places {
    pub(crate) fn new(places: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(places)),
            tenants: Shares::new(places, TENANT_PARTS),
            keys: Shares::new(places, KEY_PARTS),
        }
    }

    /// A place among all, for a request of whoever.
    pub(crate) fn enter(&self, kind: &'static str) -> Result<OwnedSemaphorePermit, Error> {
        let permit = self.all.clone().try_acquire_owned();
        permit.map_err(|_| Error::too_much(kind))
    }

    /// A place for a caller; none if its tenant or its key holds its share.
    fn share(&self, caller: &Caller) -> Option<Shared> {
        let key = match caller.key_id() {
            Some(key) => Some(self.keys.take(key)?),
            None => None,
        };
        Some((self.tenants.take(caller.tenant)?, key))
    }
}

/// Admits a request, or rejects it before its body is read.
pub(super) async fn pass(
    State(app): State<Arc<Api>>,
    mut request: Request,
    next: Next,
) -> Response {
    let started = app.clock.monotonic();
    let asked = request.uri().path();
    let in_openais_form = openai::is_ours(asked).then(|| asked.to_owned());
    let of_mcp = (asked == "/mcp").then(|| faces::base(request.uri(), request.headers()));
    let id = request_id(&app, request.headers());
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let path = route.as_ref().map_or("", MatchedPath::as_str);
    let caller = request.headers().get(TRACEPARENT);
    let caller = caller.and_then(|header| accepted(header.to_str().ok()?));
    let id_shown = id.to_str().unwrap_or_default();
    // Probes and scrapes are not worth a trace.
    let traced = if is_api(path) {
        spans::request(method_label(&method), path, id_shown, caller.as_deref())
    } else {
        tracing::Span::none()
    };
    let span = tracing::info_span!(
        "http.request",
        http.method = %method,
        http.route = path,
        request.id = id_shown,
    );
    let (cors, entered) = match browsers::receive(&app.config, &request, app.gatekeeper.is_open()) {
        Err(error) => (None, Err(Problem::from(error).into_response())),
        Ok(Visit::Preflight(answer)) => (None, Err(*answer)),
        Ok(Visit::Welcome(cors)) => {
            let entered = admit(&app, &mut request, path)
                .await
                .map_err(|error| Problem::from(error).into_response());
            (cors, entered)
        }
    };
    let mut response = match entered {
        Err(response) => response,
        Ok(Admitted {
            caller: admitted,
            admission,
        }) => {
            let scope = admitted.as_ref().and_then(Caller::scope);
            let served = next
                .run(request)
                .instrument(span)
                .instrument(traced.clone());
            let served = carrying(caller, served);
            let mut response = match scope {
                Some(tenant) => within(tenant, served).await,
                None => served.await,
            };
            drop(admission);
            for quota in admitted.iter().flat_map(|caller| &caller.quotas) {
                mark_quota(response.headers_mut(), quota);
            }
            match admitted.filter(|_| is_stream(&response)) {
                Some(caller) => response.map(|body| {
                    let keeper = app.gatekeeper.clone();
                    keeper.watched(app.scheduler.clone(), &caller, body)
                }),
                None => response,
            }
        }
    };
    if let Some(path) = in_openais_form {
        response = openai::reshaped(&path, response).await;
    }
    if let Some(base) = of_mcp {
        mcp::challenge(&base, &mut response);
    }
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, id);
    if let Some(cors) = cors {
        cors.mark(headers);
    }
    let took = app.clock.monotonic().saturating_sub(started);
    let status = response.status();
    let code = response.extensions().get().copied();
    spans::responded(&traced, status.as_u16(), code);
    tracing::debug!(http.route = path, http.status = status.as_u16(), "answered");
    let route = route
        .as_ref()
        .map_or_else(|| "none".to_owned(), |path| path.as_str().to_owned());
    metrics::histogram!(REQUEST_SECONDS, "route" => route.clone()).record(took.as_secs_f64());
    let labels = [
        ("method", method_label(&method).to_owned()),
        ("route", route),
        ("status", status.as_str().to_owned()),
    ];
    metrics::counter!(REQUESTS, &labels).increment(1);
    response
}

/// An admitted request.
struct Admitted {
    /// The sender; none outside `/v1`.
    caller: Option<Caller>,
    /// Its permit among the requests in flight.
    admission: Option<Admission>,
}

/// Whether only those may send a request here who are known.
fn is_api(path: &str) -> bool {
    path.starts_with("/v1/") || faces::is_ours(path)
}

/// Identifies the sender of a request, and admits the request.
async fn admit(app: &Api, request: &mut Request, route: &str) -> Result<Admitted, Error> {
    if !is_api(request.uri().path()) {
        return Ok(Admitted {
            caller: None,
            admission: None,
        });
    }
    // Before the key is looked up, which already counts as in flight.
    let entered = enter(app, request)?;
    if let Some(work) = work(request.method(), route)
        && app.acceptor.refuses(work)
    {
        return Err(Error::shed(work));
    }
    let (method, headers) = (request.method(), request.headers());
    let keeper = &app.gatekeeper;
    let scheduler = &app.scheduler;
    let caller = keeper.admit(scheduler, method, route, headers).await?;
    // A list that also waits must not hold a turn meanwhile.
    let is_list = work(method, route) == Some(Work::List) && entered.kind == "request";
    let mut held = entered.of(&caller)?;
    if is_list {
        held.turn = Some(app.lists.wait(caller.tenant).await);
    }
    let admission = Admission {
        _places: Arc::new(held),
    };
    if let Some(binding) = caller.binding() {
        let method = method.clone();
        // A path whose parameters cannot be read names nothing.
        let path: Result<RawPathParams, _> = request.extract_parts().await;
        let (path, within) = (path.as_ref().ok(), (caller.tenant, binding));
        reach::enter(scheduler, within, &method, route, path).await?;
    }
    if streams(request) {
        request.extensions_mut().insert(admission.clone());
    }
    request.extensions_mut().insert(caller.clone());
    Ok(Admitted {
        caller: Some(caller),
        admission: Some(admission),
    })
}

/// Lists of tenants' data, whose pages cost the database the most.
const LISTS: [&str; 11] = [
    "/v1/memories",
    "/v1/runs",
    "/v1/runs/{id}/nodes",
    "/v1/sends",
    "/v1/sessions",
    "/v1/sessions/{id}/messages",
    "/v1/sessions/{id}/usage",
    "/v1/tenants/{id}/usage",
    "/v1/timers",
    "/v1/timers/{id}/occurrences",
    "/v1/webhooks/{id}/deliveries",
];

/// The routes that create single pieces of new work.
const SINGLE: [&str; 9] = [
    "/v1/chat/completions",
    "/v1/conversations",
    "/v1/memories",
    "/v1/responses",
    "/v1/runs",
    "/v1/sends",
    "/v1/sessions",
    "/v1/sessions/{id}/sends",
    "/v1/timers",
];

/// The kind of work that may be refused while the database is slow. Never refused are requests that
/// end or steer existing work, read a single item, inform operators, or let a worker's calls
/// continue.
fn work(method: &Method, route: &str) -> Option<Work> {
    let bulk = [":batch", ":import", "/export", "/fork"];
    if bulk.iter().any(|end| route.ends_with(end)) {
        Some(Work::Bulk)
    } else if *method == Method::GET && LISTS.contains(&route) {
        Some(Work::List)
    } else if *method == Method::POST && SINGLE.contains(&route) {
        Some(Work::Single)
    } else {
        None
    }
}

/// Serves a request on behalf of its tenant only, including reads while the response is being
/// streamed.
async fn within(tenant: TenantId, served: impl Future<Output = Response>) -> Response {
    let response = scoped(tenant, served).await;
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    response.map(|body| {
        let mut pieces = body.into_data_stream();
        Body::from_stream(poll_fn(move |context| {
            in_scope(tenant, || pieces.poll_next_unpin(context))
        }))
    })
}

/// Whether a response is an event stream, which may outlive its key.
fn is_stream(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

/// A request that has a place, but is not known to be anyone's yet.
struct Entered<'a> {
    places: &'a Places,
    kind: &'static str,
    permit: OwnedSemaphorePermit,
}

impl Entered<'_> {
    /// Counts it among the requests of its tenant and its key.
    fn of(self, caller: &Caller) -> Result<Held, Error> {
        let shares = self.places.share(caller);
        let shares = shares.ok_or_else(|| Error::too_much_of_one(self.kind))?;
        Ok(Held {
            _permit: self.permit,
            _shares: shares,
            turn: None,
        })
    }
}

/// Whether a request is answered with a stream.
fn streams(request: &Request) -> bool {
    let path = request.uri().path();
    path.ends_with("/events")
        || path.ends_with("/export")
        || openai::lasts(request.method(), request.uri())
        || faces::lasts(request.method(), request.uri())
}

/// Takes a permit for a request. Those that wait or stream are counted separately, since they hold
/// few resources and last long. Probes always pass.
fn enter<'a>(app: &'a Api, request: &Request) -> Result<Entered<'a>, Error> {
    let waits = request.uri().query().is_some_and(|query| {
        query
            .split('&')
            .any(|parameter| parameter.starts_with("wait="))
    });
    let lasts = streams(request) || waits;
    let (places, kind) = if lasts {
        (&app.waiters, "waiter")
    } else {
        (&app.requests, "request")
    };
    let permit = places.enter(kind)?;
    if lasts {
        let free = places.all.available_permits();
        let taken = app.config.waiters_max.saturating_sub(free);
        metrics::gauge!(WAITERS).set(taken as f64);
    }
    Ok(Entered {
        places,
        kind,
        permit,
    })
}

/// The caller's request id, or a new one.
fn request_id(app: &Api, headers: &HeaderMap) -> HeaderValue {
    let given = headers.get(REQUEST_ID).filter(|value| {
        let bytes = value.as_bytes();
        !bytes.is_empty() && bytes.len() <= REQUEST_ID_MAX && bytes.iter().all(u8::is_ascii_graphic)
    });
    given.cloned().unwrap_or_else(|| {
        let id = app.entropy.random_id().simple().to_string();
        HeaderValue::try_from(id).unwrap_or(HeaderValue::from_static("none"))
    })
}

/// The label value for a method. Unknown methods share one, so that callers cannot create labels.
fn method_label(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::router::operations;

    #[test]
    fn what_is_refused_first_are_routes_that_exist() {
        let all = operations();
        let has = |method: Method, route: &str| all.contains(&(method, route.to_owned()));
        for route in LISTS {
            assert!(has(Method::GET, route), "GET {route}");
        }
        for route in SINGLE {
            assert!(has(Method::POST, route), "POST {route}");
        }
        let of = |wanted: Work| {
            let of = all.iter();
            let of = of.filter(|(method, route)| work(method, route) == Some(wanted));
            of.count()
        };
        assert_eq!(of(Work::Bulk), 6);
        assert_eq!(of(Work::List), LISTS.len());
        assert_eq!(of(Work::Single), SINGLE.len());
    }
}
