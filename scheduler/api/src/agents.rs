//! Agents that are published under names.

mod diff;

use std::sync::Arc;

use axum::extract::{FromRequestParts, Path, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use mainspring_scheduler::App;
use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::agents::{Resolver, admit_agent};
use mainspring_scheduler::services::pools;
use mainspring_scheduler::services::prices::{self, Written};
use mainspring_scheduler::services::skills::pin;
use mainspring_shared::agent::{
    AgentKey, AgentLimits, AgentName, AgentSpec, AgentVersion, AgentVersionView, Alias, NamedAgent,
    NamedAgentView,
};
use mainspring_shared::error::Code;
use mainspring_shared::store::{
    AliasOutcome, ListAgentVersions, ListAgents, PublishAgent, PublishOutcome, SetAlias,
};
use mainspring_shared::tenant::{Binding, Right};
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::problem::Problem;
use super::respond::{self, Begin, List};
use super::tenants::{sends, spending};
use super::validate::Checks;
use crate::access::Caller;
use crate::codes::{AgentNotFound, BudgetNoPrice};
use crate::extract::{
    Json, JsonBody, Key, Limit, NoQuery, Nothing, PageQuery, Query, cursor, text,
};
use crate::openapi::form;
use crate::router::Api;

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(list, publish))
        .routes(routes!(show, archive))
        .routes(routes!(versions))
        .routes(routes!(version))
        .routes(routes!(point, drop_alias))
        .routes(routes!(diff::diff))
        .routes(routes!(diff::preview))
}

/// The agent that a path names, and the path's other parameters.
#[derive(Debug)]
pub(super) struct AgentPath {
    key: AgentKey,
    others: Vec<(String, String)>,
}

impl<S: Send + Sync> FromRequestParts<S> for AgentPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<Vec<(String, String)>>::from_request_parts(parts, state).await;
        let others = path.map(|Path(pairs)| pairs).unwrap_or_default();
        let name = others.iter().find(|(name, _)| name == "name");
        let name = name.and_then(|(_, text)| text.parse().ok());
        let name = name.ok_or_else(not_found)?;
        let Caller { tenant, .. } = Caller::from_request_parts(parts, state).await?;
        let key = AgentKey { tenant, name };
        Ok(Self { key, others })
    }
}

impl AgentPath {
    fn other<T: std::str::FromStr>(&self, wanted: &str) -> Result<T, T::Err> {
        let found = self.others.iter().find(|(name, _)| name == wanted);
        found.map_or("", |(_, text)| text).parse()
    }
}

pub(crate) fn not_found() -> Error {
    Error::new(Code::AgentNotFound, "no published agent has this name")
}

fn no_version() -> Error {
    Error::new(Code::AgentNotFound, "the agent has no such version")
}

/// An agent to publish.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewAgentBody {
    /// Its name: 1 to 64 of the characters `a-z`, `A-Z`, `0-9`, `.`, `_` and `-`.
    #[schema(value_type = String)]
    name: AgentName,
    /// What it is to be. Its `name` may be left out.
    spec: AgentSpec,
    /// Its limits, for all its versions; absent ones stay as they are, `{}` removes them.
    #[serde(default)]
    limits: Option<AgentLimits>,
}

impl JsonBody for NewAgentBody {
    type Checked = (AgentName, AgentSpec, Option<AgentLimits>);

    fn checked(mut self, checks: &mut Checks) -> Self::Checked {
        checks.own_agent("/spec", &self.spec);
        // A session gets the agent's published name anyway, so repeating it in the spec must not
        // create a new version.
        let own = self.spec.name.take();
        if own.is_some_and(|own| own != self.name.as_str()) {
            checks.refuse("/spec/name", "is not the agent's name; leave it out");
        }
        if let Some(limits) = &self.limits {
            sends(checks, "sends_open", limits.sends_open);
            sends(checks, "sends_running", limits.sends_running);
            spending(checks, &limits.spending());
        }
        (self.name, self.spec, self.limits)
    }
}

/// Publishes a version of an agent: 201, or 200 if its newest one is the same
#[utoipa::path(
    post,
    path = "/v1/agents",
    operation_id = "publishAgent",
    params(Key),
    request_body = NewAgentBody,
    responses((status = 200, body = AgentVersionView), (status = 201, body = AgentVersionView), BudgetNoPrice)
)]
pub(super) async fn publish(
    State(app): State<Arc<Api>>,
    caller: Caller,
    _: Query<NoQuery>,
    json: Json<NewAgentBody>,
) -> Result<Response, Problem> {
    let idempotency = json.idempotency("POST /v1/agents")?;
    let (name, mut spec, limits) = json.value;
    let tenant = caller.tenant;
    admit_agent(caller.binding(), &name)?;
    let is_limited = limits.is_some();
    if is_limited {
        // Whoever may define agents must not thereby change what they may spend.
        caller.require(Right::Manage)?;
    }
    if is_limited && caller.binding().is_some() {
        let detail = "a bound API key cannot set limits of agents";
        return Err(Error::new(Code::AuthBinding, detail).into());
    }
    pools::admit_agent(&app, tenant, &spec, "/spec").await?;
    if let Err(error) = prices::admit_agent(&app, &spec, Written::Whole("/spec")).await {
        let resolver = Resolver::new(&app, tenant, caller.allowed());
        if !resolver.is_known(idempotency.as_ref()).await? {
            return Err(error.into());
        }
    }
    pin(app.store.as_ref(), tenant, &mut spec, "/spec").await?;
    let item = PublishAgent {
        key: AgentKey { tenant, name },
        spec,
        limits,
        idempotency,
    };
    let (version, added, replayed) = match app.store.publish_agent(item).await? {
        PublishOutcome::Published { version, added } => (version, added, false),
        PublishOutcome::Replayed { version, added } => (version, added, true),
        PublishOutcome::Mismatch => return Err(Error::mismatch().into()),
    };
    if is_limited {
        // The limits apply here at once, and elsewhere within seconds. The version is stored even
        // if this fails.
        match app.store.limited_agents(tenant).await {
            Ok(agents) => app.known.agents.note(tenant, agents),
            Err(error) => tracing::debug!(%error, "could not read agents' limits; will retry"),
        }
        // Workers check at once whose spending is limited; otherwise they would within a second.
        app.notifier.pauses_changed();
        // More seats may be free now. If this fails, the sweep notices.
        if let Ok(called) = app.store.call_seats(Some(tenant)).await {
            app.notifier.enqueue(called.enqueue);
        }
    }
    let status = if added {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    let path = format!("/v1/agents/{}/versions/{}", version.key.name, version.n);
    let mut response = respond::created(status, &path, &AgentVersionView::from(*version))?;
    if replayed {
        respond::mark_replayed(&mut response);
    }
    Ok(response)
}

/// Which agents, by name.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct AgentsQuery {
    /// Maximum number of items on the page.
    #[serde(default)]
    #[param(inline)]
    limit: Limit,
    /// The `next_cursor` of the page before.
    #[serde(default, deserialize_with = "cursor")]
    #[param(value_type = Option<form::AgentName>, inline)]
    cursor: Option<AgentName>,
    /// Whether archived agents are listed too.
    #[serde(default, deserialize_with = "text")]
    #[param(default = false)]
    archived: Option<bool>,
}

/// Published agents, by name
#[utoipa::path(
    get,
    path = "/v1/agents",
    operation_id = "listAgents",
    params(AgentsQuery),
    responses((status = 200, body = List<NamedAgentView>))
)]
pub(super) async fn list(
    State(app): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<AgentsQuery>,
) -> Result<Response, Problem> {
    let archived = query.archived.unwrap_or_default();
    let begin = Begin {
        cursor: query.cursor,
        limit: query.limit.0,
    };
    let read = async |after: Option<AgentName>, limit: u32| {
        let wanted = ListAgents {
            tenant: caller.tenant,
            archived,
            after,
            limit,
        };
        if let Some(binding) = caller.binding().filter(|binding| binding.names_agents()) {
            return own(&app, binding, wanted).await;
        }
        let page = app.store.list_agents(wanted).await?;
        Ok((page.data, page.more))
    };
    let place = |agent: &NamedAgent| agent.key.name.clone();
    respond::page(&app, begin, read, place, NamedAgentView::from).await
}

/// The agents that a binding names, each looked up separately: a cursor is a name, so paging over
/// hidden agents would reveal their names.
async fn own(
    app: &App,
    binding: &Binding,
    wanted: ListAgents,
) -> Result<(Vec<NamedAgent>, bool), Error> {
    let mut found = Vec::new();
    for name in &binding.agents {
        if wanted.after.as_ref().is_some_and(|after| name <= after) {
            continue;
        }
        let key = AgentKey {
            tenant: wanted.tenant,
            name: name.clone(),
        };
        let agent = app.store.get_agent(key).await?;
        let Some(agent) = agent.filter(|agent| wanted.archived || agent.archived_at.is_none())
        else {
            continue;
        };
        if found.len() >= wanted.limit as usize {
            return Ok((found, true));
        }
        found.push(agent);
    }
    Ok((found, false))
}

/// A published agent, archived or not
#[utoipa::path(
    get,
    path = "/v1/agents/{name}",
    operation_id = "getAgent",
    responses((status = 200, body = NamedAgentView), AgentNotFound)
)]
pub(super) async fn show(
    State(app): State<Arc<Api>>,
    path: AgentPath,
    _: Query<NoQuery>,
) -> Result<Response, Problem> {
    let agent = read_agent(&app, path.key).await?;
    respond::json(StatusCode::OK, &NamedAgentView::from(agent))
}

async fn read_agent(app: &App, key: AgentKey) -> Result<NamedAgent, Error> {
    app.store.get_agent(key).await?.ok_or_else(not_found)
}

async fn read_version(app: &App, key: AgentKey, n: i32) -> Result<AgentVersion, Error> {
    let found = app.store.get_agent_version(key.clone(), n).await?;
    if let Some(version) = found {
        return Ok(version);
    }
    read_agent(app, key).await?;
    Err(no_version())
}

/// Archives an agent: existing sessions keep it; new ones cannot use it
#[utoipa::path(
    delete,
    path = "/v1/agents/{name}",
    operation_id = "archiveAgent",
    responses((status = 200, body = NamedAgentView), AgentNotFound)
)]
pub(super) async fn archive(
    State(app): State<Arc<Api>>,
    path: AgentPath,
    _: Query<NoQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    let archived = app.store.archive_agent(path.key, true).await?;
    let agent = archived.ok_or_else(not_found)?;
    respond::json(StatusCode::OK, &NamedAgentView::from(agent))
}

/// The versions of an agent, newest first
#[utoipa::path(
    get,
    path = "/v1/agents/{name}/versions",
    operation_id = "listAgentVersions",
    params(PageQuery),
    responses((status = 200, body = List<AgentVersionView>), AgentNotFound)
)]
pub(super) async fn versions(
    State(app): State<Arc<Api>>,
    path: AgentPath,
    Query(query): Query<PageQuery>,
) -> Result<Response, Problem> {
    read_agent(&app, path.key.clone()).await?;
    let begin = Begin {
        cursor: query.cursor,
        limit: query.limit.0,
    };
    let read = async |before: Option<i64>, limit: u32| {
        let wanted = ListAgentVersions {
            key: path.key.clone(),
            before: before.map(|n| i32::try_from(n).unwrap_or(i32::MAX)),
            limit,
        };
        let page = app.store.list_agent_versions(wanted).await?;
        Ok((page.data, page.more))
    };
    let place = |version: &AgentVersion| i64::from(version.n);
    respond::page(&app, begin, read, place, AgentVersionView::from).await
}

/// A version of an agent
#[utoipa::path(
    get,
    path = "/v1/agents/{name}/versions/{n}",
    operation_id = "getAgentVersion",
    responses((status = 200, body = AgentVersionView), AgentNotFound)
)]
pub(super) async fn version(
    State(app): State<Arc<Api>>,
    path: AgentPath,
    _: Query<NoQuery>,
) -> Result<Response, Problem> {
    let n = path.other("n").map_err(|_| no_version())?;
    let version = read_version(&app, path.key, n).await?;
    respond::json(StatusCode::OK, &AgentVersionView::from(version))
}

/// Where an alias is to point.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AliasBody {
    /// The number of the version.
    version: i32,
}

impl JsonBody for AliasBody {
    type Checked = i32;

    fn checked(self, _checks: &mut Checks) -> i32 {
        self.version
    }
}

/// Points an alias of an agent at a version
#[utoipa::path(
    put,
    path = "/v1/agents/{name}/aliases/{alias}",
    operation_id = "setAgentAlias",
    request_body = AliasBody,
    responses((status = 200, body = NamedAgentView), AgentNotFound)
)]
pub(super) async fn point(
    State(app): State<Arc<Api>>,
    path: AgentPath,
    _: Query<NoQuery>,
    Json { value: version, .. }: Json<AliasBody>,
) -> Result<Response, Problem> {
    set_alias(&app, path, Some(version)).await
}

/// Removes an alias of an agent
#[utoipa::path(
    delete,
    path = "/v1/agents/{name}/aliases/{alias}",
    operation_id = "removeAgentAlias",
    responses((status = 200, body = NamedAgentView), AgentNotFound)
)]
pub(super) async fn drop_alias(
    State(app): State<Arc<Api>>,
    path: AgentPath,
    _: Query<NoQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    set_alias(&app, path, None).await
}

async fn set_alias(app: &App, path: AgentPath, version: Option<i32>) -> Result<Response, Problem> {
    let alias: Alias =
        path.other("alias")
            .map_err(|fault: mainspring_shared::agent::NameFault| {
                Error::new(Code::RequestInvalid, fault.to_string())
            })?;
    let item = SetAlias {
        key: path.key,
        alias,
        version,
    };
    match app.store.set_alias(item).await? {
        AliasOutcome::Changed(agent) => {
            respond::json(StatusCode::OK, &NamedAgentView::from(*agent))
        }
        AliasOutcome::NotFound => Err(Error::new(
            Code::AgentNotFound,
            "no active published agent has this name",
        )
        .into()),
        AliasOutcome::NoVersion => {
            Err(Error::invalid("/version", "the agent has no such version").into())
        }
    }
}
