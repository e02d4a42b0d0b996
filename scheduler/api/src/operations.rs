//! Endpoints for operators and autoscalers about the whole system.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use mainspring_scheduler::App;
use mainspring_scheduler::services::pools;
use mainspring_shared::agent::Priority;
use mainspring_shared::queue::Lane;
use mainspring_shared::store::{PoolTools, QueueStats, Role};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::{is_pool, preset};
use serde::Serialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::problem::{self, Problem};
use super::respond::{self, List};
use crate::access::Caller;
use crate::extract::{NoQuery, Query};
use crate::router::Api;

/// A live worker.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct WorkerView {
    /// One lifetime of the process.
    #[schema(value_type = String)]
    id: mainspring_shared::id::BootId,
    /// Its label.
    name: String,
    /// The pool it serves.
    pool: String,
    /// Maximum number of sends in flight.
    concurrency: u32,
    /// Sends it had in flight at its last renewal.
    in_flight: u32,
    /// When it began.
    #[schema(value_type = String, format = DateTime)]
    started_at: Timestamp,
    /// When it counts as dead unless it renews.
    #[schema(value_type = String, format = DateTime)]
    lease_until: Timestamp,
    /// Which version of what processes say to each other its program speaks; 0 for a release that did not note it. Two
    /// of them are two releases.
    protocol: u32,
}

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(workers))
        .routes(routes!(tools))
        .routes(routes!(queue))
        .routes(routes!(scaling))
}

/// Live workers
#[utoipa::path(
    get,
    path = "/v1/workers",
    operation_id = "listWorkers",
    responses((status = 200, body = List<WorkerView>))
)]
pub(super) async fn workers(
    State(app): State<Arc<Api>>,
    _: Query<NoQuery>,
) -> Result<Response, Problem> {
    let now = app.store.now().await?;
    let boots = app.store.list_boots().await?;
    let alive = boots
        .into_iter()
        .filter(|boot| boot.role == Role::Worker && boot.dead_at.is_none())
        .filter(|boot| boot.lease_until > now)
        .map(|boot| WorkerView {
            id: boot.id,
            name: boot.name,
            pool: boot.pool,
            concurrency: boot.concurrency,
            in_flight: boot.in_flight,
            started_at: boot.started_at,
            lease_until: boot.lease_until,
            protocol: boot.protocol,
        });
    respond::json(StatusCode::OK, &List::whole(alive.collect()))
}

/// The names that agents can use in `tools`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct ToolView {
    /// Its name.
    name: String,
    /// Whether it is a tool, or an MCP server whose tools an entry `{"type": "mcp", "server": NAME}`
    /// brings.
    kind: ToolKind,
    /// What it does, in a line.
    description: String,
    /// The presets that hold it.
    presets: Vec<&'static str>,
    /// The pools whose workers have it.
    pools: Vec<String>,
}

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToolKind {
    /// A tool.
    Tool,
    /// An MCP server.
    McpServer,
}

/// The names that agents can use in `tools`, as published by live and recent workers
#[utoipa::path(
    get,
    path = "/v1/tools",
    operation_id = "listTools",
    responses((status = 200, body = List<ToolView>))
)]
pub(super) async fn tools(
    State(app): State<Arc<Api>>,
    caller: Caller,
    _: Query<NoQuery>,
) -> Result<Response, Problem> {
    let mut found: BTreeMap<(ToolKind, String), ToolView> = BTreeMap::new();
    for PoolTools { pool, tools, .. } in app.store.list_tools().await? {
        // The tools of others' own workers are nobody else's business, nor are the pools' names.
        if !caller.sees_all() && !pools::may_name(&app, caller.tenant, &pool).await? {
            continue;
        }
        let servers = tools.servers.into_iter().map(|name| (name, String::new()));
        let servers = servers.map(|named| (ToolKind::McpServer, named));
        let tools = tools.tools.into_iter().map(|named| (ToolKind::Tool, named));
        for (kind, (name, description)) in tools.chain(servers) {
            let view = found
                .entry((kind, name.clone()))
                .or_insert_with(|| ToolView {
                    presets: presets_of(kind, &name),
                    name,
                    kind,
                    description,
                    pools: Vec::new(),
                });
            view.pools.push(pool.clone());
        }
    }
    respond::json(StatusCode::OK, &List::whole(found.into_values().collect()))
}

fn presets_of(kind: ToolKind, name: &str) -> Vec<&'static str> {
    let holds = |preset_name: &&str| {
        kind == ToolKind::Tool && preset(preset_name).is_some_and(|names| names.contains(&name))
    };
    ["core", "explore", "full"]
        .into_iter()
        .filter(holds)
        .collect()
}

/// One pool's work: in the database, and as jobs in the queue.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct PoolView {
    #[serde(flatten)]
    stats: QueueStats,
    /// Jobs in the queue; null while it is unavailable.
    depth: Option<u64>,
}

/// Waiting and running sends by pool
#[utoipa::path(
    get,
    path = "/v1/queue",
    operation_id = "getQueue",
    responses((status = 200, body = List<PoolView>))
)]
pub(super) async fn queue(
    State(app): State<Arc<Api>>,
    _: Query<NoQuery>,
) -> Result<Response, Problem> {
    let mut pools = Vec::new();
    for stats in app.store.queue_stats().await? {
        let depth = depth(&app, &stats.pool).await;
        pools.push(PoolView { stats, depth });
    }
    respond::json(StatusCode::OK, &List::whole(pools))
}

async fn depth(app: &App, pool: &str) -> Option<u64> {
    let mut sum = 0;
    for priority in [Priority::High, Priority::Low] {
        sum += app
            .notifier
            .queue
            .depth(&Lane {
                pool: pool.to_owned(),
                priority,
            })
            .await?;
    }
    Some(sum)
}

/// Metrics for autoscaling
#[utoipa::path(
    get,
    path = "/v1/scaling/{pool}",
    operation_id = "getScaling",
    responses((status = 200, body = mainspring_shared::store::ScalingStats))
)]
pub(super) async fn scaling(
    State(app): State<Arc<Api>>,
    pool: Result<Path<String>, PathRejection>,
    _: Query<NoQuery>,
) -> Result<Response, Problem> {
    let Some(Path(pool)) = pool.ok().filter(|Path(pool)| is_pool(pool)) else {
        return Err(problem::nothing_here().await);
    };
    respond::json(StatusCode::OK, &app.store.scaling(&pool).await?)
}
