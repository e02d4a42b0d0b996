//! Validation of workflow specs, and their JSON Schema.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use mainspring_scheduler::error::{Error, FieldError};
use mainspring_shared::error::Code;
use mainspring_shared::workflow::spec::Spec;
use mainspring_shared::workflow::validate::validate;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::problem::Problem;
use super::respond;
use super::validate::Checks;
use crate::codes::SpecInvalid;
use crate::extract::{Json, JsonBody, NoQuery, Query, parse, run_blocking};
use crate::router::Api;

/// A spec to validate.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ValidateBody {
    /// A workflow: an object, or a text that holds one as JSON.
    #[schema(value_type = Object)]
    spec: Value,
}

/// A bare spec, or a body that contains it as a member.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct SpecOrBody(Value);

impl JsonBody for SpecOrBody {
    type Checked = Value;

    fn unreadable(error: Error) -> Error {
        error.of_spec("")
    }

    fn checked(self, _checks: &mut Checks) -> Value {
        self.0
    }
}

/// The contents of a valid spec.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct SpecSummary {
    /// Its name.
    name: String,
    /// The number of nodes, by type.
    nodes: BTreeMap<String, u32>,
    /// The names that its nodes have.
    ids: Vec<String>,
}

/// Checks a spec. The pointers to its faults begin with `at`.
pub(super) fn check(spec: &Value, at: &str) -> Result<Spec, Error> {
    run_blocking(|| validate(spec)).map_err(|problems| {
        let errors = problems.into_iter().map(|problem| FieldError {
            pointer: format!("{at}{}", problem.pointer),
            detail: format!("{}. {}", problem.message, problem.hint),
        });
        Error::with_members(Code::SpecInvalid, errors.collect())
    })
}

/// Like `check`, but adds the faults to the request's other faults.
pub(super) fn check_into(spec: &Value, at: &str, checks: &mut Checks) -> Option<Spec> {
    match run_blocking(|| validate(spec)) {
        Ok(spec) => Some(spec),
        Err(problems) => {
            for problem in problems {
                let detail = format!("{}. {}", problem.message, problem.hint);
                checks.refuse_spec(&format!("{at}{}", problem.pointer), &detail);
            }
            None
        }
    }
}

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(check_spec))
        .routes(routes!(schema))
}

/// Validates a spec: 422 with all problems at once
#[utoipa::path(
    post,
    path = "/v1/workflows:validate",
    operation_id = "validateWorkflow",
    request_body = ValidateBody,
    responses((status = 200, body = SpecSummary), SpecInvalid)
)]
pub(super) async fn check_spec(
    State(_app): State<Arc<Api>>,
    _: Query<NoQuery>,
    json: Json<SpecOrBody>,
) -> Result<Response, Problem> {
    // A bare spec is accepted too: no spec has a member named `spec`.
    let bare = json
        .value
        .as_object()
        .is_some_and(|members| members.contains_key("root") && !members.contains_key("spec"));
    let spec = if bare {
        check(&json.value, "")?
    } else {
        let body: ValidateBody = parse(&json.whole, "")?;
        check(&body.spec, "/spec")?
    };
    let mut nodes = BTreeMap::new();
    for node in spec.nodes() {
        *nodes
            .entry(node.body.kind().as_str().to_owned())
            .or_default() += 1;
    }
    let ids = spec.nodes().iter().filter_map(|node| node.id.clone());
    let summary = SpecSummary {
        name: spec.envelope.name.clone(),
        nodes,
        ids: ids.collect(),
    };
    respond::json(StatusCode::OK, &summary)
}

/// The JSON Schema of specs
#[utoipa::path(
    get,
    path = "/v1/workflows/schema",
    operation_id = "getWorkflowSchema",
    responses((status = 200, body = Value))
)]
pub(super) async fn schema(_: Query<NoQuery>) -> Result<Response, Problem> {
    static SCHEMA: LazyLock<Value> = LazyLock::new(mainspring_shared::workflow::schema::schema);
    respond::json(StatusCode::OK, &*SCHEMA)
}
