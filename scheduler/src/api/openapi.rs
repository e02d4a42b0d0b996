//! The API's description. Shapes come from the types; paths from one table, which a test compares
//! with the router.

use std::sync::LazyLock;

use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Map, Value, json};
use utoipa::OpenApi;

use super::copies::LINES;
use super::problem::Problem;
use super::{
    batch, calls, copies, operations, problem, prune, respond, runs, timers, validate, waiting,
    workflows,
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Mainspring",
        description = "Durable, distributed work of LLM agents: sessions, sends and their events.",
    ),
    components(schemas(
        mainspring_shared::inbox::InboxItem,
        mainspring_shared::message::Message,
        mainspring_shared::send::SendView,
        mainspring_shared::session::SessionView,
        mainspring_shared::store::QueueStats,
        mainspring_shared::store::ScalingStats,
        mainspring_shared::timer::OccurrenceView,
        mainspring_shared::timer::TimerRun,
        mainspring_shared::timer::TimerView,
        batch::sends::ResultsShape,
        calls::PostedResults,
        calls::ResultsBody,
        copies::ForkBody,
        mainspring_shared::workflow::view::NodeView,
        mainspring_shared::workflow::view::RunView,
        operations::PoolView,
        operations::WorkerView,
        problem::ProblemDocument,
        prune::PruneBody,
        prune::Pruned,
        timers::TimerBatchBody,
        timers::TimerBody,
        timers::TimerResultsShape,
        runs::CancelRunBody,
        runs::NewRunBody,
        runs::RunBody,
        runs::RetryRunBody,
        runs::nodes::AmendBody,
        runs::nodes::SteerBody,
        workflows::SpecSummary,
        workflows::ValidateBody,
        validate::BatchBody,
        validate::NewSessionBody,
        validate::SendAnywhereBody,
        validate::SendBody,
        validate::SessionChangeBody,
        waiting::WaitingCall,
    ))
)]
struct Shapes;

/// What an answer holds.
enum Holds {
    Nothing,
    Text,
    Events,
    /// An archive of a session.
    Lines,
    Object,
    One(&'static str),
    Many(&'static str),
}

/// One operation.
struct Operation {
    method: &'static str,
    path: &'static str,
    id: &'static str,
    says: &'static str,
    /// Query parameters and headers, by their names in [`PARAMETERS`].
    takes: &'static [&'static str],
    /// The name of a schema, or [`LINES`].
    body: Option<&'static str>,
    answers: &'static [u16],
    holds: Holds,
}

/// A parameter: name, place, meaning.
const PARAMETERS: &[(&str, &str, &str)] = &[
    (
        "limit",
        "query",
        "Items of a page, from 1 to 200; 50 by default.",
    ),
    ("cursor", "query", "The `next_cursor` of the page before."),
    (
        "wait",
        "query",
        "How long to wait for the end, such as `30s`.",
    ),
    ("status", "query", "Only those with this status."),
    (
        "fate",
        "query",
        "`pending`: only what was not delivered yet.",
    ),
    ("agent", "query", "Only those whose agent has this name."),
    (
        "metadata",
        "query",
        "`metadata.NAME=TEXT`: only those whose metadata say so.",
    ),
    ("session_id", "query", "Only those of this session."),
    (
        "after",
        "query",
        "Only what comes behind this `seq`, or behind this event's id.",
    ),
    ("prefix", "query", "Only nodes whose paths begin so."),
    ("folded", "query", "Whether to include what folding hid."),
    (
        "Last-Event-ID",
        "header",
        "The last event that the reader has.",
    ),
    (
        "Idempotency-Key",
        "header",
        "1 to 255 visible ASCII characters that make a repeat harmless.",
    ),
];

const PAGE: [&str; 2] = ["limit", "cursor"];

#[rustfmt::skip]
const OPERATIONS: &[Operation] = &[
    Operation { method: "get", path: "/v1/sessions", id: "listSessions", says: "Sessions, newest first",
        takes: &[PAGE[0], PAGE[1], "status", "agent", "metadata"], body: None, answers: &[200], holds: Holds::Many("SessionView") },
    Operation { method: "post", path: "/v1/sessions", id: "createSession", says: "Creates a session",
        takes: &["Idempotency-Key"], body: Some("NewSessionBody"), answers: &[201], holds: Holds::One("SessionView") },
    Operation { method: "get", path: "/v1/sessions/{id}", id: "getSession", says: "A session",
        takes: &[], body: None, answers: &[200], holds: Holds::One("SessionView") },
    Operation { method: "patch", path: "/v1/sessions/{id}", id: "changeSession", says: "Replaces the agent or the metadata, closes or reopens",
        takes: &[], body: Some("SessionChangeBody"), answers: &[200], holds: Holds::One("SessionView") },
    Operation { method: "delete", path: "/v1/sessions/{id}", id: "deleteSession", says: "Cancels its open sends and removes its transcript",
        takes: &[], body: None, answers: &[204], holds: Holds::Nothing },
    Operation { method: "post", path: "/v1/sessions:import", id: "importSession", says: "Creates a session from an archive",
        takes: &["Idempotency-Key"], body: Some(LINES), answers: &[201], holds: Holds::One("SessionView") },
    Operation { method: "post", path: "/v1/sessions/{id}/fork", id: "forkSession", says: "Creates a session with a copy of this transcript, up to a seq where every call has its result",
        takes: &["Idempotency-Key"], body: Some("ForkBody"), answers: &[201], holds: Holds::One("SessionView") },
    Operation { method: "get", path: "/v1/sessions/{id}/export", id: "exportSession", says: "An archive: a line that says what it is, a line per message, a line with counts and a SHA-256 over the lines before",
        takes: &[], body: None, answers: &[200], holds: Holds::Lines },
    Operation { method: "get", path: "/v1/sessions/{id}/messages", id: "listMessages", says: "The transcript by seq",
        takes: &[PAGE[0], PAGE[1], "after", "folded"], body: None, answers: &[200], holds: Holds::Many("Message") },
    Operation { method: "post", path: "/v1/sessions/{id}/sends", id: "createSendInSession", says: "Accepts a send: 202, or 200 when it ends within `wait`",
        takes: &["wait", "Idempotency-Key"], body: Some("SendBody"), answers: &[200, 202], holds: Holds::One("SendView") },
    Operation { method: "get", path: "/v1/sessions/{id}/events", id: "streamSession", says: "The session's events, for ever",
        takes: &["after", "Last-Event-ID"], body: None, answers: &[200], holds: Holds::Events },
    Operation { method: "post", path: "/v1/sessions/{id}/tool-results", id: "postToolResults", says: "Answers external tools, and people's questions and permissions; the first answer counts",
        takes: &[], body: Some("ResultsBody"), answers: &[200], holds: Holds::One("PostedResults") },
    Operation { method: "get", path: "/v1/sessions/{id}/calls", id: "listWaitingCalls", says: "Calls of the session, and of the sessions below it, that wait for an answer from outside",
        takes: &[], body: None, answers: &[200], holds: Holds::Many("WaitingCall") },
    Operation { method: "get", path: "/v1/sessions/{id}/calls/{call_id}/output", id: "getCallOutput", says: "The whole output of a tool call",
        takes: &[], body: None, answers: &[200], holds: Holds::Text },
    Operation { method: "get", path: "/v1/sessions/{id}/inbox", id: "listInbox", says: "What reached the session while it worked, and what became of it",
        takes: &["limit", "cursor", "fate"], body: None, answers: &[200], holds: Holds::Many("InboxItem") },
    Operation { method: "post", path: "/v1/sessions/{id}/prune", id: "pruneSession", says: "Removes old messages; calls stay with their results, and so do the last message and what the open send wrote",
        takes: &[], body: Some("PruneBody"), answers: &[200], holds: Holds::One("Pruned") },
    Operation { method: "post", path: "/v1/sessions/{id}/resume", id: "resumeSession", says: "Lets a send that waits for recovery go on",
        takes: &[], body: None, answers: &[202], holds: Holds::One("SendView") },
    Operation { method: "post", path: "/v1/sessions/{id}/abort", id: "abortSession", says: "Ends a send that waits for recovery",
        takes: &[], body: None, answers: &[200], holds: Holds::One("SendView") },
    Operation { method: "get", path: "/v1/sends", id: "listSends", says: "Sends, newest first",
        takes: &[PAGE[0], PAGE[1], "session_id", "status"], body: None, answers: &[200], holds: Holds::Many("SendView") },
    Operation { method: "post", path: "/v1/sends", id: "createSend", says: "Accepts a send to a session that exists or is created with it",
        takes: &["wait", "Idempotency-Key"], body: Some("SendAnywhereBody"), answers: &[200, 202], holds: Holds::One("SendView") },
    Operation { method: "post", path: "/v1/sends:batch", id: "createSends", says: "Accepts or refuses each of up to 1000 sends",
        takes: &["Idempotency-Key"], body: Some("BatchBody"), answers: &[200], holds: Holds::One("BatchResults") },
    Operation { method: "get", path: "/v1/sends/{id}", id: "getSend", says: "A send, now or once it ended",
        takes: &["wait"], body: None, answers: &[200], holds: Holds::One("SendView") },
    Operation { method: "post", path: "/v1/sends/{id}/cancel", id: "cancelSend", says: "Ends it at once, or at its worker's next safe point",
        takes: &["wait"], body: None, answers: &[200, 202], holds: Holds::One("SendView") },
    Operation { method: "get", path: "/v1/sends/{id}/events", id: "streamSend", says: "The send's events, up to its final one",
        takes: &["after", "Last-Event-ID"], body: None, answers: &[200], holds: Holds::Events },
    Operation { method: "get", path: "/v1/timers", id: "listTimers", says: "Timers, newest first",
        takes: &[PAGE[0], PAGE[1], "session_id", "status"], body: None, answers: &[200], holds: Holds::Many("TimerView") },
    Operation { method: "post", path: "/v1/timers", id: "createTimer", says: "Makes a timer, armed from now on",
        takes: &["Idempotency-Key"], body: Some("TimerBody"), answers: &[201], holds: Holds::One("TimerView") },
    Operation { method: "post", path: "/v1/timers:batch", id: "createTimers", says: "Makes or refuses each of up to 1000 timers",
        takes: &["Idempotency-Key"], body: Some("TimerBatchBody"), answers: &[200], holds: Holds::One("TimerBatchResults") },
    Operation { method: "get", path: "/v1/timers/{id}", id: "getTimer", says: "A timer with its next five times",
        takes: &[], body: None, answers: &[200], holds: Holds::One("TimerView") },
    Operation { method: "delete", path: "/v1/timers/{id}", id: "cancelTimer", says: "Ends a timer; what it has sent goes on",
        takes: &[], body: None, answers: &[200], holds: Holds::One("TimerView") },
    Operation { method: "post", path: "/v1/timers/{id}/pause", id: "pauseTimer", says: "Stops a timer for a while",
        takes: &[], body: None, answers: &[200], holds: Holds::One("TimerView") },
    Operation { method: "post", path: "/v1/timers/{id}/resume", id: "resumeTimer", says: "Lets a paused or dead timer go on",
        takes: &[], body: None, answers: &[200], holds: Holds::One("TimerView") },
    Operation { method: "get", path: "/v1/timers/{id}/occurrences", id: "listOccurrences", says: "What became of a timer's occurrences, newest first",
        takes: &[PAGE[0], PAGE[1]], body: None, answers: &[200], holds: Holds::Many("OccurrenceView") },
    Operation { method: "post", path: "/v1/runs", id: "createRun", says: "Starts a workflow: 202, or 200 when it ends within `wait`; 422 with every problem of its spec",
        takes: &["wait", "Idempotency-Key"], body: Some("NewRunBody"), answers: &[200, 202], holds: Holds::One("RunView") },
    Operation { method: "get", path: "/v1/runs", id: "listRuns", says: "Runs, newest first",
        takes: &[PAGE[0], PAGE[1], "session_id", "status"], body: None, answers: &[200], holds: Holds::Many("RunView") },
    Operation { method: "get", path: "/v1/runs/{id}", id: "getRun", says: "A run, now or once it ended",
        takes: &["wait"], body: None, answers: &[200], holds: Holds::One("RunView") },
    Operation { method: "get", path: "/v1/runs/{id}/nodes", id: "listNodes", says: "A run's nodes in the order in which they were reached",
        takes: &[PAGE[0], PAGE[1], "prefix"], body: None, answers: &[200], holds: Holds::Many("NodeView") },
    Operation { method: "get", path: "/v1/runs/{id}/events", id: "streamRun", says: "The run's events, up to its final one",
        takes: &["after", "Last-Event-ID"], body: None, answers: &[200], holds: Holds::Events },
    Operation { method: "get", path: "/v1/runs/{id}/export", id: "exportRun", says: "The run with its spec, its nodes and its events",
        takes: &[], body: None, answers: &[200], holds: Holds::Object },
    Operation { method: "post", path: "/v1/runs/{id}/cancel", id: "cancelRun", says: "Ends a run and everything below it",
        takes: &["wait"], body: Some("CancelRunBody"), answers: &[200, 202], holds: Holds::One("RunView") },
    Operation { method: "post", path: "/v1/runs/{id}/retry", id: "retryRun", says: "Runs again what failed, was cancelled or was never reached",
        takes: &["wait"], body: Some("RetryRunBody"), answers: &[200, 202], holds: Holds::One("RunView") },
    Operation { method: "post", path: "/v1/runs/{id}/nodes/{path}/cancel", id: "cancelNode", says: "Ends a node, whose path is percent-encoded, and what is below it",
        takes: &["wait"], body: None, answers: &[200, 202], holds: Holds::One("RunView") },
    Operation { method: "post", path: "/v1/runs/{id}/nodes/{path}/retry", id: "retryNode", says: "Runs a settled node again, and what depends on it",
        takes: &["wait"], body: None, answers: &[200, 202], holds: Holds::One("RunView") },
    Operation { method: "post", path: "/v1/runs/{id}/nodes/{path}/steer", id: "steerNode", says: "Tells a leaf something at its next round",
        takes: &[], body: Some("SteerBody"), answers: &[202], holds: Holds::One("NodeView") },
    Operation { method: "post", path: "/v1/runs/{id}/nodes/{path}/amend", id: "amendNode", says: "Gives a node's result by hand; what depends on it runs again",
        takes: &["wait"], body: Some("AmendBody"), answers: &[200, 202], holds: Holds::One("RunView") },
    Operation { method: "post", path: "/v1/workflows:validate", id: "validateWorkflow", says: "Checks a spec: 422 with every problem at once",
        takes: &[], body: Some("ValidateBody"), answers: &[200], holds: Holds::One("SpecSummary") },
    Operation { method: "get", path: "/v1/workflows/schema", id: "getWorkflowSchema", says: "The JSON Schema of specs",
        takes: &[], body: None, answers: &[200], holds: Holds::Object },
    Operation { method: "get", path: "/v1/workers", id: "listWorkers", says: "The workers that live",
        takes: &[], body: None, answers: &[200], holds: Holds::Many("WorkerView") },
    Operation { method: "get", path: "/v1/queue", id: "getQueue", says: "What waits and runs, by pool",
        takes: &[], body: None, answers: &[200], holds: Holds::Many("PoolView") },
    Operation { method: "get", path: "/v1/scaling/{pool}", id: "getScaling", says: "What an autoscaler needs",
        takes: &[], body: None, answers: &[200], holds: Holds::One("ScalingStats") },
    Operation { method: "get", path: "/v1/info", id: "getInfo", says: "Versions of this server and its database",
        takes: &[], body: None, answers: &[200], holds: Holds::Object },
    Operation { method: "get", path: "/livez", id: "getLive", says: "The process runs",
        takes: &[], body: None, answers: &[200], holds: Holds::Text },
    Operation { method: "get", path: "/readyz", id: "getReady", says: "Requests can be served",
        takes: &[], body: None, answers: &[200], holds: Holds::Text },
    Operation { method: "get", path: "/metrics", id: "getMetrics", says: "Figures in the Prometheus text format",
        takes: &[], body: None, answers: &[200], holds: Holds::Text },
    Operation { method: "get", path: "/openapi.json", id: "getOpenApi", says: "This description",
        takes: &[], body: None, answers: &[200], holds: Holds::Object },
    Operation { method: "get", path: "/errors/{code}", id: "getAdvice", says: "What an error code means and what to do about it",
        takes: &[], body: None, answers: &[200], holds: Holds::Text },
];

/// `GET /openapi.json`
pub(super) async fn show() -> Result<Response, Problem> {
    static DOCUMENT: LazyLock<Value> = LazyLock::new(document);
    respond::json(StatusCode::OK, &*DOCUMENT)
}

fn document() -> Value {
    let mut document = serde_json::to_value(Shapes::openapi()).unwrap_or_default();
    let mut paths = Map::new();
    for operation in OPERATIONS {
        let item = paths.entry(operation.path).or_insert_with(|| json!({}));
        item[operation.method] = describe(operation);
    }
    document["paths"] = Value::Object(paths);
    document["info"]["version"] = json!(env!("CARGO_PKG_VERSION"));
    document
}

fn describe(operation: &Operation) -> Value {
    let mut parameters: Vec<Value> = operation
        .path
        .split(['{', '}'])
        .skip(1)
        .step_by(2)
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect();
    for (name, place, says) in PARAMETERS
        .iter()
        .filter(|(name, ..)| operation.takes.contains(name))
    {
        parameters.push(json!({
            "name": name, "in": place, "required": false, "description": says,
            "schema": { "type": "string" },
        }));
    }
    let mut responses = Map::new();
    for status in operation.answers {
        responses.insert(status.to_string(), answer(operation));
    }
    responses.insert(
        "default".to_owned(),
        json!({
            "description": "A problem",
            "content": { "application/problem+json": { "schema": named("Problem") } },
        }),
    );
    let mut described = json!({
        "operationId": operation.id,
        "summary": operation.says,
        "parameters": parameters,
        "responses": responses,
    });
    if let Some(body) = operation.body {
        let content = if body == LINES {
            json!({ LINES: { "schema": { "type": "string" } } })
        } else {
            json!({ "application/json": { "schema": named(body) } })
        };
        described["requestBody"] = json!({ "required": true, "content": content });
    }
    described
}

fn answer(operation: &Operation) -> Value {
    let (kind, schema) = match operation.holds {
        Holds::Nothing => return json!({ "description": operation.says }),
        Holds::Text => ("text/plain", json!({ "type": "string" })),
        Holds::Lines => (LINES, json!({ "type": "string" })),
        Holds::Events => ("text/event-stream", json!({ "type": "string" })),
        Holds::Object => ("application/json", json!({ "type": "object" })),
        Holds::One(name) => ("application/json", named(name)),
        Holds::Many(name) => (
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
    json!({ "description": operation.says, "content": { kind: { "schema": schema } } })
}

fn named(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_description_is_stable() {
        insta::assert_json_snapshot!(document());
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

    #[test]
    fn the_table_and_the_router_name_the_same_paths() {
        let source = include_str!("../api.rs");
        let routed: BTreeSet<&str> = source.split('"').skip(1).step_by(2).collect();
        let described: BTreeSet<&str> = OPERATIONS.iter().map(|o| o.path).collect();
        assert_eq!(routed, described);
    }
}
