//! The event stream of a run: each advance becomes the events of its nodes, followed by the run's.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::response::sse::Event;
use mainspring_scheduler::services::runs::read;
use mainspring_scheduler::services::watch::Watcher;
use mainspring_shared::event::EventId;
use mainspring_shared::id::RunKey;
use mainspring_shared::store::{self, RunStep};
use mainspring_shared::workflow::run::RunStatus;
use serde_json::{Value, json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::RunPath;
use crate::codes::RunNotFound;
use crate::events::EventsQuery;
use crate::extract::{LastEventId, Query};
use crate::gate::Admission;
use crate::problem::Problem;
use crate::router::Api;
use crate::sse;

/// Advances per read.
const STEPS: u32 = 64;

/// Pause after a failed read.
const RETRY: Duration = Duration::from_millis(500);

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(of_run))
}

/// The run's events, up to its final one
#[utoipa::path(
    get,
    path = "/v1/runs/{id}/events",
    operation_id = "streamRun",
    params(EventsQuery, LastEventId),
    responses(
        (status = 200, body = crate::openapi::RunEvent, content_type = "text/event-stream"),
        (status = 204, description = "The run has ended, and nothing follows the last event read"), RunNotFound)
)]
pub(crate) async fn of_run(
    State(app): State<Arc<Api>>,
    RunPath(key): RunPath,
    Query(query): Query<EventsQuery>,
    Extension(admission): Extension<Admission>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let seen = query.seen(&headers)?;
    let watcher = app.watch.run(key);
    let is_rest = read(&app, key).await?.status.is_final() && seen.is_some();
    let next_beat = app.clock.monotonic() + app.config.heartbeat;
    let seen = seen.unwrap_or_default();
    let reader = RunReader {
        app,
        key,
        // The last seen event's advance is read again because it may have more events.
        read_to: (seen.n - 1).max(0),
        seen,
        watcher,
        over: false,
        unread: true,
        next_beat,
    };
    Ok(sse::read(reader, is_rest, admission).await)
}

/// A reader of a run's events. It can resume with only the database.
struct RunReader {
    app: Arc<Api>,
    key: RunKey,
    /// The number of the last advance that was read.
    read_to: i64,
    /// The last event that was delivered.
    seen: EventId,
    watcher: Watcher<RunKey>,
    over: bool,
    unread: bool,
    next_beat: Duration,
}

impl sse::Source for RunReader {
    async fn next(&mut self) -> Option<Vec<Event>> {
        while !self.over {
            if self.unread {
                match self.read().await {
                    Ok(events) if events.is_empty() => {}
                    Ok(events) => return Some(events),
                    Err(error) => {
                        tracing::debug!(%error, "could not read a stream; will retry");
                        tokio::select! {
                            biased;
                            () = self.app.clock.sleep(RETRY) => {}
                            () = self.app.process.lifecycle.stopping() => self.over = true,
                        }
                    }
                }
                continue;
            }
            let rest = self.next_beat.saturating_sub(self.app.clock.monotonic());
            tokio::select! {
                biased;
                () = self.app.process.lifecycle.stopping() => self.over = true,
                () = self.watcher.woken() => self.unread = true,
                () = self.app.clock.sleep(rest) => {
                    self.next_beat = self.app.clock.monotonic() + self.app.config.heartbeat;
                    return Some(Vec::new());
                }
            }
        }
        None
    }

    fn is_over(&self) -> bool {
        self.over && !self.app.process.lifecycle.is_stopping()
    }
}

impl RunReader {
    /// Reads further events. The stream ends after a final event that is not followed by a retry.
    async fn read(&mut self) -> Result<Vec<Event>, store::Error> {
        let steps = self.app.store.read_run_steps(self.key, self.read_to, STEPS);
        let steps = steps.await?;
        self.unread = steps.len() == STEPS as usize;
        let mut out = Vec::new();
        for step in &steps {
            self.read_to = step.n;
            for event in events(self.key, step) {
                if event.id > self.seen {
                    self.seen = event.id;
                    let told = Event::default().id(event.id.to_string());
                    out.push(told.event(event.name).data(event.data.to_string()));
                }
            }
        }
        if !self.unread && steps.last().is_none_or(is_final) {
            let found = self.app.store.get_runs(vec![self.key]).await?;
            let found = found.into_iter().flatten().next();
            self.over = found.is_none_or(|run| run.status.is_final());
        }
        Ok(out)
    }
}

fn status(step: &RunStep) -> Option<RunStatus> {
    RunStatus::parse(step.changes["status"].as_str()?)
}

fn is_final(step: &RunStep) -> bool {
    status(step).is_some_and(RunStatus::is_final)
}

/// An event of a run's stream.
struct RunEvent {
    id: EventId,
    name: String,
    data: Value,
}

/// The events of an advance: its nodes' first, then the run's.
fn events(key: RunKey, step: &RunStep) -> Vec<RunEvent> {
    let nodes = step.changes["nodes"].as_array().into_iter().flatten();
    let nodes = nodes.map(|node| {
        let state = node["state"].as_str().unwrap_or("changed");
        (format!("node.{state}"), node.clone())
    });
    let mut named: Vec<(String, Value)> = nodes.collect();
    let mut data = step.changes.clone();
    if let Some(members) = data.as_object_mut() {
        members.remove("nodes");
        members.insert("run_id".to_owned(), json!(key.run));
    }
    let name = status(step).map_or("progress", RunStatus::as_str);
    named.push((format!("run.{name}"), data));
    let events = named.into_iter().zip(0..);
    events
        .map(|((name, data), i)| RunEvent {
            id: EventId { n: step.n, i },
            name,
            data,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use mainspring_shared::id::{BootId, RunId, TenantId};
    use mainspring_shared::time::Timestamp;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn an_advance_becomes_its_nodes_events_and_then_the_runs() {
        let key = RunKey {
            tenant: TenantId::DEFAULT,
            run: RunId(Uuid::from_u128(1)),
        };
        let step = RunStep {
            n: 3,
            at: Timestamp(0),
            boot: BootId(Uuid::nil()),
            changes: json!({
                "status": "completed", "counts": { "leaves": 1 },
                "nodes": [{ "path": "/0", "state": "queued" }, { "path": "/1", "state": "failed" }],
            }),
        };
        let events = events(key, &step);
        let names: Vec<_> = events
            .iter()
            .map(|e| (e.id.to_string(), e.name.as_str()))
            .collect();
        let expected = [
            ("3.0".to_owned(), "node.queued"),
            ("3.1".to_owned(), "node.failed"),
            ("3.2".to_owned(), "run.completed"),
        ];
        assert_eq!(names, expected);
        assert_eq!(events[2].data["run_id"], json!(key.run));
        assert!(events[2].data.get("nodes").is_none());
        assert!(is_final(&step));
    }
}
