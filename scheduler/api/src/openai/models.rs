//! Who can answer: published agents, and the models that workers are configured with.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use mainspring_scheduler::error::Error;
use mainspring_shared::agent::AgentQuery;
use mainspring_shared::error::Code;
use mainspring_shared::store::ListAgents;
use mainspring_shared::tenant::Binding;
use serde_json::{Value, json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Caller;
use crate::codes::AgentNotFound;
use crate::extract::{NoQuery, Query};
use crate::problem::Problem;
use crate::respond;
use crate::router::Api;

/// Agents per read.
const PAGE: u32 = 200;

/// The routes of this module.
pub(super) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show))
}

/// The published agents and the models that this key may use, in the form of OpenAI's API
#[utoipa::path(
    get,
    path = "/v1/models",
    operation_id = "listOpenAiModels",
    responses((status = 200, body = Value))
)]
pub(super) async fn list(
    State(app): State<Arc<Api>>,
    caller: Caller,
    _: Query<NoQuery>,
) -> Result<Response, Problem> {
    let found = models(&app, &caller).await?;
    let data: Vec<Value> = found
        .into_iter()
        .map(|(id, since)| model(&id, &since))
        .collect();
    respond::json(StatusCode::OK, &json!({ "object": "list", "data": data }))
}

/// A published agent or a model
#[utoipa::path(
    get,
    path = "/v1/models/{*id}",
    operation_id = "getOpenAiModel",
    responses((status = 200, body = Value), AgentNotFound)
)]
pub(super) async fn show(
    State(app): State<Arc<Api>>,
    caller: Caller,
    id: Result<Path<String>, PathRejection>,
    _: Query<NoQuery>,
) -> Result<Response, Problem> {
    let unknown = || Error::new(Code::AgentNotFound, "no model has this id").at("/model");
    let Ok(Path(id)) = id else {
        return Err(unknown().into());
    };
    let found = models(&app, &caller).await?;
    if let Some(since) = found.get(&id) {
        return respond::json(StatusCode::OK, &model(&id, since));
    }
    // A version has no place in the list, but may be asked for.
    let query: Option<AgentQuery> = id.strip_prefix("agent/").and_then(|name| name.parse().ok());
    let query = query.ok_or_else(unknown)?;
    let mut agents = mainspring_scheduler::services::agents::Resolver::new(
        &app,
        caller.tenant,
        caller.allowed(),
    );
    let version = agents.find(&query).await.map_err(|_| unknown())?;
    let since = Since {
        at: version.created_at.0 / 1_000,
        owner: "agent",
    };
    respond::json(StatusCode::OK, &model(&id, &since))
}

/// Since when there is a model, and whose it is.
struct Since {
    at: i64,
    owner: &'static str,
}

fn model(id: &str, since: &Since) -> Value {
    json!({ "id": id, "object": "model", "created": since.at, "owned_by": since.owner })
}

async fn models(app: &Api, caller: &Caller) -> Result<BTreeMap<String, Since>, Error> {
    let mut models = BTreeMap::new();
    if !caller.binding().is_some_and(Binding::names_agents) {
        for pool in app.store.list_tools().await? {
            for published in pool.models.iter().flatten() {
                for (provider, model) in &published.providers {
                    let is_default = *provider == published.default;
                    let id = match (is_default, model.as_str()) {
                        (_, "") => provider.clone(),
                        (true, model) => model.to_owned(),
                        (false, model) => format!("{provider}/{model}"),
                    };
                    models.insert(
                        id,
                        Since {
                            at: 0,
                            owner: "provider",
                        },
                    );
                }
                let others = published.priced.iter().chain(&published.vectors).cloned();
                models.extend(others.map(|id| {
                    (
                        id,
                        Since {
                            at: 0,
                            owner: "provider",
                        },
                    )
                }));
            }
        }
    }
    let mut after = None;
    loop {
        let wanted = ListAgents {
            tenant: caller.tenant,
            archived: false,
            after,
            limit: PAGE,
        };
        let page = app.store.list_agents(wanted).await?;
        after = page.data.last().map(|agent| agent.key.name.clone());
        for agent in page.data {
            let name = &agent.key.name;
            if caller
                .binding()
                .is_some_and(|binding| !binding.has_agent(name))
            {
                continue;
            }
            let at = agent.created_at.0 / 1_000;
            models.insert(format!("agent/{name}"), Since { at, owner: "agent" });
            for alias in agent.aliases.keys() {
                models.insert(
                    format!("agent/{name}@{alias}"),
                    Since { at, owner: "agent" },
                );
            }
        }
        if !page.more {
            return Ok(models);
        }
    }
}
