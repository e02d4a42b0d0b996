//! Creates many items in one request. Each is created or refused on its own, in order.
//!
//! A key for the whole request is taken before any item is created, whatever happens to the items:
//! a request with the same key but another body creates nothing. Each item has its own key derived
//! from that one, so that a repeated request creates what a crash or a refusal left out, and
//! nothing twice.

pub(super) mod sends;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use mainspring_scheduler::App;
use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::agents::Resolver;
use mainspring_scheduler::services::limits::KeySends;
use mainspring_shared::id::TenantId;
use mainspring_shared::store::{IdempotencyKey, KeyOutcome};
use serde::de::DeserializeOwned;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::idempotency;
use super::problem::Problem;
use super::respond;
use super::validate::Checks;
use crate::access::Caller;
use crate::extract::{Key, NoQuery, Query, Weight, json_body, parse};
use crate::router::Api;

/// The outcome of an item that was not refused.
pub(super) enum Creation<I, V> {
    /// It was created by this request.
    New(V),
    /// It was created by an earlier request with the same idempotency key.
    Replayed(I),
}

/// Permits for the items in flight and for the bytes of their body.
pub(super) type Permits = (Option<OwnedSemaphorePermit>, Weight);

/// The outcome of storing one item.
type Outcome<B> = Result<Creation<<B as Batch>::Id, <B as Batch>::View>, Error>;

/// One item of the response.
enum ItemResult<B: Batch> {
    Made(Box<B::View>),
    Refused(Box<Problem>),
}

impl<B: Batch> From<Result<B::View, Error>> for ItemResult<B> {
    fn from(result: Result<B::View, Error>) -> Self {
        match result {
            Ok(view) => Self::Made(Box::new(view)),
            Err(error) => {
                error.count_if_limit();
                Self::Refused(Box::new(error.into()))
            }
        }
    }
}

impl<B: Batch> Serialize for ItemResult<B> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(Some(2))?;
        match self {
            Self::Made(view) => {
                members.serialize_entry("status", &B::STATUS.as_u16())?;
                members.serialize_entry(B::ITEM, view)?;
            }
            Self::Refused(problem) => {
                members.serialize_entry("status", &problem.status())?;
                members.serialize_entry("problem", problem)?;
            }
        }
        members.end()
    }
}

/// The response: one result per item, in order.
#[derive(Serialize)]
#[serde(bound = "")]
struct Results<B: Batch> {
    results: Vec<ItemResult<B>>,
}

/// A kind of item that is created in batches.
pub(super) trait Batch: 'static {
    /// The member of the body that contains the items.
    const ITEMS: &'static str;
    /// The member of a result that contains an item.
    const ITEM: &'static str;
    /// The route that idempotency keys are stored under.
    const ROUTE: &'static str;
    /// The status of an item that was created.
    const STATUS: StatusCode;
    /// An item of the request.
    type Input: DeserializeOwned + Send;
    /// An item as it is stored.
    type Item: Send;
    /// The id of an item.
    type Id: Copy + Ord + Send;
    /// An item as it is shown.
    type View: Serialize + Clone + Send;

    /// The unparsed items of a body, so that a malformed one does not affect the others.
    fn items(json: &[u8]) -> Result<Vec<&RawValue>, Error>;

    /// Takes the idempotency key out of an item.
    fn take_key(input: &mut Self::Input) -> Option<String>;

    /// Checks an item and resolves it to what is to be stored.
    fn item(
        agents: &mut Resolver<'_>,
        app: &App,
        tenant: TenantId,
        checks: Checks,
        input: Self::Input,
        key: Option<IdempotencyKey>,
    ) -> impl Future<Output = Result<Self::Item, Error>> + Send
    where
        Self: Sized;

    /// Does what takes time before an item can be stored. `at` points to the item in the request.
    fn prepare(
        app: &App,
        item: &mut Self::Item,
        at: &str,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Reserves capacity for `count` items in flight until the permit is dropped.
    fn room(app: &App, count: usize) -> Result<Option<OwnedSemaphorePermit>, Error>;

    /// Stores items in order. Keeps the permits until then, even if the client disconnects.
    fn store(
        app: &Arc<App>,
        items: Vec<Self::Item>,
        permits: Permits,
        limited: Option<KeySends>,
    ) -> impl Future<Output = Vec<Outcome<Self>>> + Send
    where
        Self: Sized;

    /// The current state of items that had been created before.
    fn read(
        app: &App,
        tenant: TenantId,
        ids: Vec<Self::Id>,
    ) -> impl Future<Output = Vec<Result<Self::View, Error>>> + Send;
}

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(create_sends))
        .routes(routes!(create_timers))
}

/// Accepts or rejects each of up to 1000 sends
#[utoipa::path(
    post,
    path = "/v1/sends:batch",
    operation_id = "createSends",
    params(Key),
    request_body = crate::bodies::BatchBody,
    responses((status = 200, body = sends::ResultsShape))
)]
async fn create_sends(
    State(app): State<Arc<Api>>,
    caller: Caller,
    _: Query<NoQuery>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    create::<sends::Sends>(app, caller, headers, body).await
}

/// Creates or rejects each of up to 1000 timers
#[utoipa::path(
    post,
    path = "/v1/timers:batch",
    operation_id = "createTimers",
    params(Key),
    request_body = crate::timers::TimerBatchBody,
    responses((status = 200, body = crate::timers::TimerResultsShape))
)]
async fn create_timers(
    State(app): State<Arc<Api>>,
    caller: Caller,
    _: Query<NoQuery>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    Box::pin(create::<crate::timers::Timers>(app, caller, headers, body)).await
}

/// Handles the `POST` of a batch.
async fn create<B: Batch>(
    app: Arc<Api>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let tenant = caller.tenant;
    let batch_key = idempotency::header(&headers)?;
    let mut json = json_body(&app, &headers, body, app.config.batch_bytes_max).await?;
    let raw = B::items(&json)?;
    let count_max = app.config.batch_sends_max;
    if raw.len() > count_max {
        let detail = format!("a batch has at most {count_max} {}", B::ITEMS);
        return Err(Error::invalid(format!("/{}", B::ITEMS), detail).into());
    }
    let whole = match batch_key {
        Some(key) => Some((key, idempotency::body_hash(&json)?)),
        None => None,
    };
    let mut results: Vec<Option<ItemResult<B>>> = Vec::with_capacity(raw.len());
    let mut items = Vec::with_capacity(raw.len());
    let mut agents = Resolver::new(&app, tenant, caller.allowed());
    for (index, text) in raw.iter().enumerate() {
        let ready = match item::<B>(&mut agents, &app, &caller, index, text.get(), whole).await {
            Ok(mut item) => {
                let at = format!("/{}/{index}", B::ITEMS);
                let prepared = B::prepare(&app, &mut item, &at).await;
                prepared.map(|()| item)
            }
            Err(error) => Err(error),
        };
        match ready {
            Ok(item) => {
                items.push(item);
                results.push(None);
            }
            Err(error) => results.push(Some(ItemResult::from(Err(error)))),
        }
    }
    let room = B::room(&app, items.len())?;
    let known = match whole {
        Some((key, hash)) => take_key::<B>(&app, &caller, key, hash).await?,
        None => false,
    };
    drop(raw);
    let permits = (room, json.weight());
    drop(json);
    let outcomes = B::store(&app.scheduler, items, permits, caller.limited_sends()).await;
    let made = outcomes
        .iter()
        .any(|one| matches!(one, Ok(Creation::New(_))));
    let repeated = fill::<B>(&app, tenant, &mut results, outcomes).await;
    let results = results
        .into_iter()
        .map(|result| result.unwrap_or_else(|| ItemResult::from(Err(Error::internal()))));
    let results = Results {
        results: results.collect(),
    };
    let mut response = respond::json(StatusCode::OK, &results)?;
    if whole.is_some() && (repeated || known && !made) {
        respond::mark_replayed(&mut response);
    }
    Ok(response)
}

/// Checks one item and resolves it to what is to be stored.
async fn item<B: Batch>(
    agents: &mut Resolver<'_>,
    app: &App,
    caller: &Caller,
    index: usize,
    text: &str,
    whole: Option<(&str, [u8; 32])>,
) -> Result<B::Item, Error> {
    let at = format!("/{}/{index}", B::ITEMS);
    let mut input: B::Input = parse(text.as_bytes(), &at)?;
    let key = match (B::take_key(&mut input), whole) {
        (Some(own), _) => {
            idempotency::check(&own, &format!("{at}/idempotency_key"))?;
            let hash = idempotency::body_hash(text.as_bytes())?;
            Some(idempotency::key(caller, B::ROUTE, &own, hash))
        }
        (None, Some((key, hash))) => Some(idempotency::key(
            caller,
            B::ROUTE,
            &format!("{key}#{index}"),
            hash,
        )),
        (None, None) => None,
    };
    B::item(agents, app, caller.tenant, Checks::at(at), input, key).await
}

/// Takes the key of the whole batch. Returns true if the same batch has already used it.
async fn take_key<B: Batch>(
    app: &App,
    caller: &Caller,
    key: &str,
    hash: [u8; 32],
) -> Result<bool, Error> {
    // Keeps these keys apart from the keys of items.
    let route = format!("{} (whole)", B::ROUTE);
    let key = idempotency::key(caller, &route, key, hash);
    match app.store.take_key(key).await? {
        KeyOutcome::Taken => Ok(false),
        KeyOutcome::Known => Ok(true),
        KeyOutcome::Mismatch => Err(Error::mismatch()),
    }
}

/// Fills the missing results with the outcomes. Returns whether any item had been created before.
async fn fill<B: Batch>(
    app: &App,
    tenant: TenantId,
    results: &mut [Option<ItemResult<B>>],
    outcomes: Vec<Outcome<B>>,
) -> bool {
    let before = outcomes.iter().filter_map(|outcome| match outcome {
        Ok(Creation::Replayed(id)) => Some(*id),
        Ok(Creation::New(_)) | Err(_) => None,
    });
    let ids: Vec<B::Id> = before.collect();
    let views = if ids.is_empty() {
        Vec::new()
    } else {
        B::read(app, tenant, ids.clone()).await
    };
    let before: BTreeMap<B::Id, Result<B::View, Error>> = ids.into_iter().zip(views).collect();
    let open = results.iter_mut().filter(|result| result.is_none());
    for (result, outcome) in open.zip(outcomes) {
        *result = Some(ItemResult::from(match outcome {
            Ok(Creation::New(view)) => Ok(view),
            Ok(Creation::Replayed(id)) => {
                let found = before.get(&id).cloned();
                found.unwrap_or_else(|| Err(Error::internal()))
            }
            Err(error) => Err(error),
        }));
    }
    !before.is_empty()
}

/// The items of a body, parsed as `Raw`. If that fails, parsing it as `Checked` explains what is
/// wrong.
pub(super) fn items<'a, Raw, Checked>(json: &'a [u8], member: &str) -> Result<Raw, Error>
where
    Raw: serde::Deserialize<'a>,
    Checked: DeserializeOwned,
{
    serde_json::from_slice(json).map_err(|_| match parse::<Checked>(json, "") {
        Err(error) => error,
        Ok(_) => Error::invalid(format!("/{member}"), "could not be parsed"),
    })
}
