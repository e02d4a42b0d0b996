//! The OpenAPI document. Paths and schemas come from the annotations of the handlers.

mod events;
mod examples;
pub(crate) mod form;
mod operation;
mod parameters;
mod refine;

use std::sync::{Arc, LazyLock};

use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Map, Value, json};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::operation::{BYTES, Operation, ResponseContent};
use super::copies::LINES;
use super::problem::Problem;
use super::skills::ARCHIVE;
use super::{codes, faces, openai, respond, router};
use crate::router::Api;

/// The prefix of the schema names of pages.
const PAGE: &str = "List_";

/// An event of a send or a session.
#[derive(Debug, utoipa::ToSchema)]
pub(crate) struct SendEvent {}

/// An event of a run.
#[derive(Debug, utoipa::ToSchema)]
pub(crate) struct RunEvent {}

/// The whole document.
pub(crate) static DOCUMENT: LazyLock<Value> = LazyLock::new(document);

#[derive(OpenApi)]
#[openapi(info(
    title = "Mainspring",
    description = "LLM agents as durable, distributed work: sessions, sends and their events.",
))]
struct About;

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(show))
}

/// This description
#[utoipa::path(
    get,
    path = "/openapi.json",
    operation_id = "getOpenApi",
    responses((status = 200, body = Value))
)]
pub(super) async fn show() -> Result<Response, Problem> {
    respond::json(StatusCode::OK, &*DOCUMENT)
}

/// The tags of operations: the first segment of the path, and a description.
const TAGS: [(&str, &str); 22] = [
    (
        "agents",
        "Agents that are published under names, in versions.",
    ),
    (
        "sessions",
        "Conversations, their transcripts and pending calls.",
    ),
    ("sends", "A message for a session, with its outcome."),
    ("timers", "Scheduled sends and runs."),
    ("runs", "Workflows and their runs."),
    ("workflows", "The language of workflows."),
    (
        "skills",
        "Instructions for particular tasks, with resources and scripts.",
    ),
    ("memories", "What agents remember across sessions."),
    ("blobs", "Content stored by its SHA-256."),
    ("keys", "API keys of a tenant."),
    ("tokens", "Tokens for pages of browsers."),
    ("provider-keys", "Tenants' own keys for model providers."),
    ("secrets", "Secrets of a tenant, for its HTTP tools."),
    ("tenants", "Tenants, for operators."),
    ("responses", "Sends in the form of OpenAI's Responses API."),
    (
        "chat",
        "Sends in the form of OpenAI's Chat Completions API.",
    ),
    ("conversations", "Sessions in the form of OpenAI's API."),
    ("models", "Agents and models in the form of OpenAI's API."),
    ("a2a", "Published agents in the Agent2Agent protocol."),
    (
        "ag-ui",
        "Published agents in the Agent-User Interaction protocol.",
    ),
    (
        "mcp",
        "Published agents as tools of the Model Context Protocol.",
    ),
    ("operations", "For operators, autoscalers and probes."),
];

/// Where the id in a response can be used: schema, parameter, operations.
const LINKS: [(&str, &[&str]); 5] = [
    (
        "SessionView",
        &[
            "getSession",
            "listMessages",
            "createSendInSession",
            "exportSession",
            "deleteSession",
        ],
    ),
    ("SendView", &["getSend", "cancelSend", "streamSend"]),
    ("AcceptedSend", &["getSend", "cancelSend", "streamSend"]),
    (
        "TimerView",
        &[
            "getTimer",
            "pauseTimer",
            "resumeTimer",
            "fireTimer",
            "changeTimer",
            "listOccurrences",
            "cancelTimer",
        ],
    ),
    (
        "RunView",
        &[
            "getRun",
            "listNodes",
            "streamRun",
            "exportRun",
            "cancelRun",
            "pauseRun",
            "resumeRun",
            "retryRun",
        ],
    ),
];

/// Schemas that are stored with unknown members of later releases, but are shown without them.
const STORED: [&str; 16] = [
    "AgentSpec",
    "Budget",
    "ContextSpec",
    "ExternalTool",
    "HttpRequest",
    "HttpTool",
    "McpTools",
    "MemorySpec",
    "NotesSpec",
    "PromptSection",
    "PromptSpec",
    "PromptVariable",
    "RunOptions",
    "SendOptions",
    "ThinkingSpec",
    "WorkerTool",
];

fn document() -> Value {
    let (_, api) = router::paths().split_for_parts();
    let mut document = serde_json::to_value(About::openapi()).unwrap_or_default();
    let described = serde_json::to_value(api).unwrap_or_default();
    document["components"] = described["components"].clone();
    if let Some(schemas) = document["components"]["schemas"].as_object_mut() {
        // The schemas of pages are inlined in their responses.
        schemas.retain(|name, _| !name.starts_with(PAGE));
    }
    for name in STORED {
        document["components"]["schemas"][name]["additionalProperties"] = json!(false);
    }
    let mut paths = Map::new();
    let mut examples = examples::all();
    for operation in Operation::all(&described) {
        let mut says = describe(&operation);
        if let Some(example) = examples.remove(&operation.id) {
            example.add_to(&mut says);
        }
        let item = paths.entry(&operation.path).or_insert_with(|| json!({}));
        item[&operation.method] = says;
    }
    document["paths"] = Value::Object(paths);
    document["components"]["securitySchemes"] = json!({ "key": {
        "type": "http", "scheme": "bearer",
        "description": "An API key, `msk_…`, or a token for one session, `mst_…`. A server without keys takes requests without one.",
    } });
    document["security"] = json!([{ "key": [] }, {}]);
    document["x-common-codes"] = json!(codes::COMMON);
    document["info"]["version"] = json!(env!("CARGO_PKG_VERSION"));
    document["servers"] = json!([{ "url": "/", "description": "Where this was read." }]);
    let tags = TAGS.iter();
    let tags = tags.map(|(name, says)| json!({ "name": name, "description": says }));
    document["tags"] = Value::Array(tags.collect());
    if let Some(schemas) = document["components"]["schemas"].as_object_mut() {
        refine::refine(schemas);
        events::add(schemas);
    }
    document
}

fn tag(path: &str) -> &'static str {
    let part = path.strip_prefix("/v1/").unwrap_or(&path[1..]);
    let part = part.split(['/', ':']).next().unwrap_or_default();
    let found = TAGS.iter().find(|(name, _)| *name == part);
    found.map_or("operations", |(name, _)| *name)
}

fn describe(operation: &Operation) -> Value {
    let names = operation.path.split(['{', '}']).skip(1).step_by(2);
    let in_path = names.map(|name| parameters::in_path(&operation.path, name));
    let parameters: Vec<Value> = in_path
        .chain(operation.parameters.iter().cloned())
        .collect();
    let mut responses = Map::new();
    for status in &operation.answers {
        // These responses do not contain the content.
        let says = match status.as_str() {
            "304" | "416" => json!({ "description": operation.summary }),
            // What is no request is taken without an answer.
            "202" if faces::is_ours(&operation.path) => {
                json!({ "description": operation.summary })
            }
            _ => answer(operation),
        };
        responses.insert(status.clone(), says);
    }
    let problem = if openai::is_ours(&operation.path) {
        json!({ "application/json": { "schema": openai_error() } })
    } else if faces::is_ours(&operation.path) {
        let own = json!({ "type": "object", "additionalProperties": true });
        let problem = json!({ "schema": named("Problem") });
        json!({ "application/json": { "schema": own }, "application/problem+json": problem })
    } else {
        json!({ "application/problem+json": { "schema": named("Problem") } })
    };
    for (status, codes) in &operation.problems {
        let names: Vec<String> = codes.iter().map(|code| format!("`{code}`")).collect();
        let says = json!({
            "description": format!("A problem: {}", names.join(", ")),
            "x-codes": codes,
            "content": problem,
        });
        responses.insert(status.clone(), says);
    }
    responses.insert(
        "default".to_owned(),
        json!({ "description": "A problem that any operation may give: one of `x-common-codes`", "content": problem }),
    );
    let mut described = json!({
        "operationId": operation.id,
        "tags": [tag(&operation.path)],
        "summary": operation.summary,
        "parameters": parameters,
        "responses": responses,
    });
    if let Some((name, required)) = &operation.body {
        let content = if name == LINES {
            json!({ LINES: { "schema": { "type": "string" } } })
        } else if name == BYTES {
            json!({ BYTES: { "schema": { "type": "string", "format": "binary" } } })
        } else {
            let mut content = json!({ "application/json": { "schema": named(name) } });
            if name == "SkillBody" {
                let binary = json!({ "type": "string", "format": "binary" });
                content[ARCHIVE] = json!({ "schema": binary });
            }
            content
        };
        described["requestBody"] = json!({ "required": required, "content": content });
    }
    if !operation.path.starts_with("/v1/") && !faces::is_ours(&operation.path) {
        described["security"] = json!([]);
    }
    described
}

/// The schema of an error in OpenAI's form.
fn openai_error() -> Value {
    let text = json!({ "type": "string" });
    let maybe = json!({ "type": ["string", "null"] });
    json!({
        "type": "object", "required": ["error"],
        "properties": { "error": {
            "type": "object", "required": ["message", "type", "param", "code"],
            "properties": { "message": text, "type": text, "param": maybe, "code": maybe },
        } },
    })
}

fn answer(operation: &Operation) -> Value {
    let (kind, schema) = match &operation.content {
        ResponseContent::Nothing => return json!({ "description": operation.summary }),
        ResponseContent::Text => ("text/plain", json!({ "type": "string" })),
        ResponseContent::Lines => (LINES, json!({ "type": "string" })),
        ResponseContent::Bytes => (BYTES, json!({ "type": "string", "format": "binary" })),
        ResponseContent::Page => ("text/markdown", json!({ "type": "string" })),
        ResponseContent::Events(name) => ("text/event-stream", named(name)),
        ResponseContent::Object => (
            "application/json",
            json!({ "type": "object", "additionalProperties": true }),
        ),
        ResponseContent::One(name) => ("application/json", named(name)),
        ResponseContent::Many(name) => (
            "application/json",
            json!({
                "type": "object",
                "required": ["data", "next_cursor"],
                "properties": {
                    "data": { "type": "array", "items": named(name) },
                    "next_cursor": { "type": ["string", "null"] },
                },
            }),
        ),
    };
    let mut answer =
        json!({ "description": operation.summary, "content": { kind: { "schema": schema } } });
    let made = operation.method == "post" && operation.has_parameter("Idempotency-Key");
    if made
        && let ResponseContent::One(name) = &operation.content
        && let Some((_, leads)) = LINKS.iter().find(|(schema, _)| schema == name)
    {
        for id in *leads {
            answer["links"][*id] =
                json!({ "operationId": id, "parameters": { "id": "$response.body#/id" } });
        }
    }
    answer
}

fn named(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_committed_description_is_this_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        // By name: what moves in the code stays in its place here.
        let mut sorted = document();
        sorted.sort_all_objects();
        let written = serde_json::to_string_pretty(&sorted).expect("JSON") + "\n";
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, &written).expect("docs/openapi.json can be written");
        }
        let committed = std::fs::read_to_string(path).expect("docs/openapi.json can be read");
        assert!(
            committed == written,
            "docs/openapi.json is out of date; look at the difference after \
             UPDATE_DOCS=1 cargo test -p mainspring-api --lib openapi"
        );
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document = document();
        let text = document.to_string();
        let names: BTreeSet<&str> = text
            .split("#/components/schemas/")
            .skip(1)
            .filter_map(|rest| rest.split('"').next())
            .collect();
        assert!(names.len() > 10);
        for name in names {
            assert!(
                document["components"]["schemas"][name].is_object(),
                "{name}"
            );
        }
        assert_eq!(document["openapi"], "3.1.0");
    }
}
