//! The differences between two versions of an agent.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::agents::admit_agent;
use mainspring_scheduler::services::skills::pin;
use mainspring_shared::agent::{AgentKey, AgentName, NamedAgent};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{AgentPath, NewAgentBody, no_version, read_agent, read_version};
use crate::access::Caller;
use crate::codes::AgentNotFound;
use crate::extract::{Json, NoQuery, Query, parameter, push};
use crate::problem::Problem;
use crate::respond;
use crate::router::Api;

/// Which versions to compare, by their numbers or by aliases.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct DiffQuery {
    /// The number of a version, or an alias.
    #[param(min_length = 1)]
    from: Option<String>,
    /// The number of a version, or an alias.
    #[param(min_length = 1)]
    to: Option<String>,
}

/// The differences between two versions of an agent.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct AgentDiff {
    /// The agent.
    #[schema(value_type = String)]
    name: AgentName,
    /// The number of the first version; 0 if the agent would be new.
    from: i32,
    /// The number of the other.
    to: i32,
    /// The differences, ordered by pointer.
    changes: Vec<AgentChange>,
}

/// A member that differs.
#[derive(Debug, Serialize, PartialEq, utoipa::ToSchema)]
pub(super) struct AgentChange {
    /// A JSON pointer into the spec, or into `/limits`, the agent's limits.
    pointer: String,
    /// The old value; absent if it was added.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    before: Option<Value>,
    /// The new value; absent if it was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    after: Option<Value>,
}

/// The differences between two versions: `to`, by default the newest, and `from`, by default the one before
#[utoipa::path(
    get,
    path = "/v1/agents/{name}/diff",
    operation_id = "diffAgent",
    params(DiffQuery),
    responses((status = 200, body = AgentDiff), AgentNotFound)
)]
pub(super) async fn diff(
    State(app): State<Arc<Api>>,
    path: AgentPath,
    Query(query): Query<DiffQuery>,
) -> Result<Response, Problem> {
    let agent = read_agent(&app, path.key.clone()).await?;
    let to = match &query.to {
        Some(text) => number(&agent, "to", text)?,
        None => agent.version,
    };
    let from = match &query.from {
        Some(text) => number(&agent, "from", text)?,
        None => (to - 1).max(1),
    };
    let before = read_version(&app, path.key.clone(), from).await?;
    let after = read_version(&app, path.key, to).await?;
    let mut changes = Vec::new();
    compare(
        &as_json(&before.spec)?,
        &as_json(&after.spec)?,
        &mut String::new(),
        &mut changes,
    );
    let answer = AgentDiff {
        name: agent.key.name,
        from,
        to,
        changes,
    };
    respond::json(StatusCode::OK, &answer)
}

/// The differences between a spec and the newest version, without publishing it
#[utoipa::path(
    post,
    path = "/v1/agents:diff",
    operation_id = "previewAgent",
    request_body = NewAgentBody,
    responses((status = 200, body = AgentDiff))
)]
pub(super) async fn preview(
    State(app): State<Arc<Api>>,
    caller: Caller,
    _: Query<NoQuery>,
    json: Json<NewAgentBody>,
) -> Result<Response, Problem> {
    let (name, mut spec, limits) = json.value;
    let tenant = caller.tenant;
    admit_agent(caller.binding(), &name)?;
    pin(app.store.as_ref(), tenant, &mut spec, "/spec").await?;
    let key = AgentKey { tenant, name };
    let known = app.store.get_agent(key.clone()).await?;
    let from = known.as_ref().map_or(0, |agent| agent.version);
    let newest = app.store.get_agent_version(key.clone(), from).await?;
    let before = match newest {
        Some(version) => as_json(&version.spec)?,
        None => Value::Object(Map::new()),
    };
    let mut changes = Vec::new();
    compare(&before, &as_json(&spec)?, &mut String::new(), &mut changes);
    let is_same = from > 0 && changes.is_empty();
    if let Some(limits) = limits {
        // Limits belong to the agent with all its versions, so changing them does not create a
        // version.
        let before = known.map(|agent| agent.limits).unwrap_or_default();
        let (before, after) = (as_json(&before)?, as_json(&limits)?);
        compare(&before, &after, &mut "/limits".to_owned(), &mut changes);
        changes.sort_by(|one, other| one.pointer.cmp(&other.pointer));
    }
    let answer = AgentDiff {
        name: key.name,
        from,
        to: if is_same { from } else { from + 1 },
        changes,
    };
    respond::json(StatusCode::OK, &answer)
}

fn as_json(of: &impl Serialize) -> Result<Value, Error> {
    serde_json::to_value(of).map_err(|_| Error::internal())
}

fn number(agent: &NamedAgent, parameter_name: &str, text: &str) -> Result<i32, Error> {
    if let Ok(n) = text.parse() {
        return Ok(n);
    }
    let alias = text.parse().map_err(|_| {
        parameter(
            parameter_name,
            "must be the number of a version, or an alias",
        )
    })?;
    agent.aliases.get(&alias).copied().ok_or_else(no_version)
}

/// Collects the differences. Objects are compared member by member, and lists of equal length item
/// by item.
fn compare(before: &Value, after: &Value, at: &mut String, changes: &mut Vec<AgentChange>) {
    let length = at.len();
    match (before, after) {
        (Value::Object(one), Value::Object(other)) => {
            let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            for name in names {
                push(at, name);
                match (one.get(name), other.get(name)) {
                    (Some(one), Some(other)) => compare(one, other, at, changes),
                    (before, after) => changes.push(AgentChange {
                        pointer: at.clone(),
                        before: before.cloned(),
                        after: after.cloned(),
                    }),
                }
                at.truncate(length);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (place, (one, other)) in one.iter().zip(other).enumerate() {
                push(at, &place.to_string());
                compare(one, other, at, changes);
                at.truncate(length);
            }
        }
        _ if before == after => {}
        _ => changes.push(AgentChange {
            pointer: at.clone(),
            before: Some(before.clone()),
            after: Some(after.clone()),
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_are_named_by_their_innermost_pointers() {
        let before = json!({"a": 1, "b": {"c": [1, 2], "d": "x"}, "tools": ["core"], "same": [1]});
        let after = json!({"b": {"c": [1, 3], "d": "x", "e/f": null}, "tools": ["core", "full"], "same": [1]});
        let mut changes = Vec::new();
        compare(&before, &after, &mut String::new(), &mut changes);
        let pointers: Vec<&str> = changes.iter().map(|one| one.pointer.as_str()).collect();
        assert_eq!(pointers, ["/a", "/b/c/1", "/b/e~1f", "/tools"]);
        assert_eq!(
            (&changes[0].before, &changes[0].after),
            (&Some(json!(1)), &None)
        );
        assert_eq!(changes[2].after, Some(Value::Null));
    }
}
