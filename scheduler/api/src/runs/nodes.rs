//! The nodes of runs, and requests to single nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Path, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::accept::retry_locked;
use mainspring_scheduler::services::runs::read;
use mainspring_scheduler::{App, each};
use mainspring_shared::agent::OnBusy;
use mainspring_shared::error::Code;
use mainspring_shared::id::{RunKey, SendId, SessionKey};
use mainspring_shared::inbox::ItemKind;
use mainspring_shared::message::ContentPart;
use mainspring_shared::session::SIGNAL_INBOX;
use mainspring_shared::store::{DeliverItem, DeliverOutcome, ReadNodes};
use mainspring_shared::workflow::run::{NodeRecord, RunAsk};
use mainspring_shared::workflow::view::NodeView;
use serde::Deserialize;
use serde_json::Value;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{RunPath, asked};
use crate::codes::{
    IdempotencyMismatch, RunNotFound, Starts, WorkflowNodeNotFound, WorkflowNotResumable,
};
use crate::extract::{Json, JsonBody, Limit, NoQuery, Nothing, Query, WaitQuery, cursor};
use crate::idempotency;
use crate::openapi::form;
use crate::problem::Problem;
use crate::respond::{self, Begin, List};
use crate::router::Api;
use crate::validate::Checks;

/// Nodes per read of an export.
const PAGE: u32 = 1_000;

/// Maximum number of undelivered items in the inbox of a leaf's session.
const ITEMS_MAX: i64 = 100;

/// Maximum number of characters of a message to a node that its record keeps. The transcript has
/// all of it.
const STEERED_CHARS: usize = 1_000;

/// The node that a path names, percent-encoded as one segment.
#[derive(Debug)]
pub(crate) struct NodePath(RunKey, String);

impl<S: Send + Sync> FromRequestParts<S> for NodePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let RunPath(key) = RunPath::from_request_parts(parts, state).await?;
        let pairs = Path::<Vec<(String, String)>>::from_request_parts(parts, state).await;
        let pairs = pairs.map(|Path(pairs)| pairs).unwrap_or_default();
        let path = pairs.into_iter().find(|(name, _)| name == "path");
        let (_, path) = path.ok_or_else(not_found)?;
        let path = if path.starts_with('/') {
            path
        } else {
            format!("/{path}")
        };
        Ok(Self(key, path))
    }
}

fn not_found() -> Error {
    Error::new(
        Code::WorkflowNodeNotFound,
        "the run has no node with this path",
    )
}

/// Which nodes, in the order of their paths.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct NodesQuery {
    /// Maximum number of items on the page.
    #[serde(default)]
    #[param(inline)]
    limit: Limit,
    /// The `next_cursor` of the page before.
    #[serde(default, deserialize_with = "cursor")]
    #[param(value_type = Option<form::Number>, inline)]
    cursor: Option<i64>,
    /// Only nodes whose paths start with this.
    prefix: Option<String>,
}

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(cancel))
        .routes(routes!(retry))
        .routes(routes!(steer))
        .routes(routes!(amend))
}

/// A run's nodes in the order in which they were reached
#[utoipa::path(
    get,
    path = "/v1/runs/{id}/nodes",
    operation_id = "listNodes",
    params(NodesQuery),
    responses((status = 200, body = List<NodeView>), RunNotFound)
)]
pub(crate) async fn list(
    State(app): State<Arc<Api>>,
    RunPath(key): RunPath,
    Query(query): Query<NodesQuery>,
) -> Result<Response, Problem> {
    let (limit, after, prefix) = (query.limit.0, query.cursor, query.prefix);
    let begin = Begin {
        cursor: after,
        limit,
    };
    let some = async |after: Option<i64>, limit: u32| {
        // Read one more than requested to see whether there are more.
        let query = ReadNodes {
            key,
            prefix: prefix.clone(),
            after: after.unwrap_or(0),
            limit: limit + 1,
        };
        let mut nodes = app.store.read_nodes(query).await?;
        if nodes.is_empty() {
            read(&app, key).await?;
        }
        let more = nodes.len() > limit as usize;
        nodes.truncate(limit as usize);
        Ok((views(&app, key, nodes).await?, more))
    };
    respond::page(&app, begin, some, |node| node.n, |node| node).await
}

/// The views of nodes, with the state of their sends.
async fn views(app: &App, key: RunKey, nodes: Vec<NodeRecord>) -> Result<Vec<NodeView>, Error> {
    let live = nodes.iter().filter(|node| !node.state.is_settled());
    let ids: Vec<SendId> = live.filter_map(|node| node.send).collect();
    let named = ids.iter().map(|send| (key.tenant, *send)).collect();
    let found = if ids.is_empty() {
        Vec::new()
    } else {
        app.store.get_sends(named).await?
    };
    let found = found.into_iter().flatten();
    let found: BTreeMap<SendId, _> = found
        .map(|send| (send.id, (send.status, send.waiting_on)))
        .collect();
    let views = nodes.into_iter().map(|node| {
        let send = node.send.and_then(|send| found.get(&send).copied());
        NodeView::of(node, send)
    });
    Ok(views.collect())
}

/// All nodes of a run.
pub(super) async fn all(app: &App, key: RunKey) -> Result<Vec<NodeView>, Error> {
    let mut all: Vec<NodeView> = Vec::new();
    loop {
        let query = ReadNodes {
            key,
            prefix: None,
            after: all.last().map_or(0, |node| node.n),
            limit: PAGE,
        };
        let page = app.store.read_nodes(query).await?;
        let is_last = page.len() < PAGE as usize;
        all.extend(views(app, key, page).await?);
        if is_last {
            return Ok(all);
        }
    }
}

/// Finds a node by its path.
async fn find(app: &App, key: RunKey, path: &str) -> Result<NodeRecord, Error> {
    let mut after = 0;
    loop {
        let query = ReadNodes {
            key,
            prefix: Some(path.to_owned()),
            after,
            limit: PAGE,
        };
        let page = app.store.read_nodes(query).await?;
        let Some(last) = page.last().map(|node| node.n) else {
            // This fails for an unknown run.
            read(app, key).await?;
            return Err(not_found());
        };
        if let Some(node) = page.into_iter().find(|node| node.path == path) {
            return Ok(node);
        }
        after = last;
    }
}

/// Cancels a node, whose path is percent-encoded, and everything below it
#[utoipa::path(
    post,
    path = "/v1/runs/{id}/nodes/{path}/cancel",
    operation_id = "cancelNode",
    params(WaitQuery),
    responses((status = 200, body = mainspring_shared::workflow::view::RunView), (status = 202, body = mainspring_shared::workflow::view::RunView), RunNotFound, WorkflowNodeNotFound, WorkflowNotResumable)
)]
pub(crate) async fn cancel(
    State(app): State<Arc<Api>>,
    NodePath(key, path): NodePath,
    Query(query): Query<WaitQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    let wait = query.within(app.config.wait_max);
    let node = find(&app, key, &path).await?;
    if node.state.is_settled() {
        return Err(settled(&node, "cannot be cancelled").into());
    }
    asked(&app, key, RunAsk::CancelNode { path }, wait).await
}

/// Runs a settled node and those that depend on it again
#[utoipa::path(
    post,
    path = "/v1/runs/{id}/nodes/{path}/retry",
    operation_id = "retryNode",
    params(WaitQuery),
    responses((status = 200, body = mainspring_shared::workflow::view::RunView), (status = 202, body = mainspring_shared::workflow::view::RunView), Starts, RunNotFound, WorkflowNodeNotFound, WorkflowNotResumable)
)]
pub(crate) async fn retry(
    State(app): State<Arc<Api>>,
    NodePath(key, path): NodePath,
    Query(query): Query<WaitQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    let wait = query.within(app.config.wait_max);
    let node = find(&app, key, &path).await?;
    if !node.state.is_settled() {
        return Err(settled(&node, "has not ended").into());
    }
    asked(&app, key, RunAsk::RetryNode { path }, wait).await
}

/// A result that replaces a node's.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AmendBody {
    /// The text that replaces the node's.
    text: Option<String>,
    /// The value that replaces the node's.
    #[schema(value_type = Option<Object>)]
    output: Option<Value>,
}

impl JsonBody for AmendBody {
    type Checked = Self;

    fn checked(self, checks: &mut Checks) -> Self {
        if self.text.is_none() && self.output.is_none() {
            checks.refuse("", "needs text or output");
        }
        self
    }
}

/// Replaces a node's result; nodes that depend on it run again
#[utoipa::path(
    post,
    path = "/v1/runs/{id}/nodes/{path}/amend",
    operation_id = "amendNode",
    params(WaitQuery),
    request_body = AmendBody,
    responses((status = 200, body = mainspring_shared::workflow::view::RunView), (status = 202, body = mainspring_shared::workflow::view::RunView), Starts, RunNotFound, WorkflowNodeNotFound, WorkflowNotResumable)
)]
pub(crate) async fn amend(
    State(app): State<Arc<Api>>,
    NodePath(key, path): NodePath,
    Query(query): Query<WaitQuery>,
    Json { value: body, .. }: Json<AmendBody>,
) -> Result<Response, Problem> {
    let wait = query.within(app.config.wait_max);
    find(&app, key, &path).await?;
    let ask = RunAsk::AmendNode {
        path,
        text: body.text,
        payload: body.output,
    };
    asked(&app, key, ask, wait).await
}

/// A message for a running leaf.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SteerBody {
    /// The message that it gets before its next round.
    text: String,
}

impl JsonBody for SteerBody {
    type Checked = Self;

    fn checked(self, checks: &mut Checks) -> Self {
        if self.text.trim().is_empty() {
            checks.refuse("/text", "is empty");
        }
        self
    }
}

/// Sends a message to a running leaf, delivered before its next round
#[utoipa::path(
    post,
    path = "/v1/runs/{id}/nodes/{path}/steer",
    operation_id = "steerNode",
    request_body = SteerBody,
    responses((status = 202, body = NodeView), IdempotencyMismatch, RunNotFound, WorkflowNodeNotFound, WorkflowNotResumable)
)]
pub(crate) async fn steer(
    State(app): State<Arc<Api>>,
    NodePath(key, path): NodePath,
    _: Query<NoQuery>,
    json: Json<SteerBody>,
) -> Result<Response, Problem> {
    let route = format!("POST /v1/runs/{}/nodes/{path}/steer", key.run);
    let idempotency = json.idempotency(&route)?;
    let body = json.value;
    let node = find(&app, key, &path).await?;
    // A repeated request gets the same response as before, whatever the node's state is now.
    let told = node
        .session
        .filter(|_| !node.state.is_settled() || idempotency.is_some());
    let Some(session) = told else {
        return Err(settled(&node, "has no send in flight").into());
    };
    let session = SessionKey {
        tenant: key.tenant,
        session,
    };
    // A repeated request names the same item, so that the run records it only once.
    let item_id = match &idempotency {
        Some(key) => format!("itm_{}", idempotency::digest(key).simple()),
        None => format!("itm_{}", app.entropy.ordered_id().simple()),
    };
    let item = DeliverItem {
        key: session,
        item_id: item_id.clone(),
        kind: ItemKind::Message,
        mode: OnBusy::Steer,
        content: vec![ContentPart::text(body.text.clone())],
        idempotency,
        items_max: ITEMS_MAX,
    };
    let boot = app.boot_id()?;
    let step =
        async |items: Vec<_>| each(&items, |items| app.store.deliver_items(boot, items)).await;
    let is_locked = |outcome: &_| matches!(outcome, Ok(DeliverOutcome::Locked));
    let outcomes = step(vec![item.clone()]).await;
    let mut outcomes = retry_locked(&app, vec![item], outcomes, is_locked, step).await;
    match outcomes.pop().ok_or_else(Error::internal)?? {
        DeliverOutcome::Locked => Err(Error::locked().into()),
        outcome @ (DeliverOutcome::Accepted { .. } | DeliverOutcome::Replayed(_)) => {
            if let DeliverOutcome::Accepted { enqueue, owner, .. } = outcome {
                app.notifier.enqueue(enqueue);
                if owner.is_some() {
                    app.notifier.signal(session, SIGNAL_INBOX);
                }
            }
            let text = body.text.chars().take(STEERED_CHARS).collect();
            let ask = RunAsk::Steered {
                path,
                item_id,
                text,
            };
            app.store.ask_runs(vec![(key, ask)]).await?;
            app.notifier.run_changed(key);
            let mut views = views(&app, key, vec![node]).await?;
            let view = views.pop().ok_or_else(Error::internal)?;
            respond::json(StatusCode::ACCEPTED, &view)
        }
        DeliverOutcome::Full => Err(Error::new(
            Code::LimitExceeded,
            format!("the node's session already has {ITEMS_MAX} undelivered items"),
        )
        .into()),
        DeliverOutcome::Mismatch => Err(Error::mismatch().into()),
        DeliverOutcome::Idle
        | DeliverOutcome::Kept(_)
        | DeliverOutcome::NotFound
        | DeliverOutcome::Closed => Err(settled(&node, "has no send in flight").into()),
    }
}

fn settled(node: &NodeRecord, what: &str) -> Error {
    let detail = format!("the node is {} and {what}", node.state.as_str());
    Error::new(Code::WorkflowNotResumable, detail)
}
