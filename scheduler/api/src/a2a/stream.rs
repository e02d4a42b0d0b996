//! Streams of a task: first the task, then what becomes of it, up to its end or to a question.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use axum::response::Response;
use mainspring_scheduler::services::stream::{Reader, Scope};
use mainspring_shared::send::SendStatus;
use serde_json::{Value, json};

use super::Door;
use super::fault::Refusal;
use super::view::{self, ANSWER, Shown};
use crate::faces::rpc;
use crate::faces::sent::Sent;
use crate::gate::Admission;
use crate::openai::listen::{Heard, Kind, Listener, Over};
use crate::router::Api;
use crate::sse;

/// How an event is written.
pub(super) enum Form {
    /// Alone.
    Plain,
    /// As an answer to the request with this id.
    Rpc(Value),
}

/// The stream of a task that is open, or was when it was last read.
pub(super) async fn answer(
    door: &Door,
    sent: Sent,
    form: Form,
    admission: Admission,
) -> Result<Response, Refusal> {
    let app = door.app.clone();
    let watcher = app.watch.session(sent.send.key);
    let shown = Shown {
        history: None,
        artifacts: true,
    };
    let task = view::task(&app, &sent, shown).await?;
    let scope = Scope::Send {
        id: sent.send.id,
        is_final: sent.is_final(),
    };
    let (key, first) = (sent.send.key, sent.send.first_step);
    let reader = Reader::open(app.scheduler.clone(), key, scope, first, None, watcher).await;
    let agent = sent.send.options.agent_in(sent.session.agent.clone());
    let own = sent.send.options.output_schema.as_ref();
    let whole = own.or(agent.output_schema.as_ref()).is_some();
    let told = task["status"]["state"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let is_still = told == "TASK_STATE_INPUT_REQUIRED" || sent.is_final();
    let mut reading = Reading {
        app,
        sent,
        form,
        reader,
        listener: Listener::new(0, BTreeSet::new(), whole),
        told,
        appends: None,
        ahead: Vec::new(),
        ended: is_still,
        _admission: admission,
    };
    reading.write(&json!({ "task": task }));
    let pieces = futures::stream::unfold(reading, |mut reading| async move {
        let piece = reading.next().await?;
        Some((piece, reading))
    });
    Ok(sse::written(pieces))
}

struct Reading {
    app: Arc<Api>,
    sent: Sent,
    form: Form,
    reader: Reader,
    listener: Listener,
    /// The state that was told last.
    told: String,
    /// The round whose text the next piece is added to.
    appends: Option<i32>,
    ahead: Vec<String>,
    ended: bool,
    _admission: Admission,
}

impl Reading {
    async fn next(&mut self) -> Option<io::Result<String>> {
        loop {
            if !self.ahead.is_empty() {
                return Some(Ok(std::mem::take(&mut self.ahead).concat()));
            }
            if self.ended {
                return None;
            }
            let Some(events) = self.reader.next().await else {
                // The process ends; the task is subscribed to elsewhere.
                self.ended = true;
                return Some(Err(sse::cut()));
            };
            if events.is_empty() {
                self.look().await;
                if self.ahead.is_empty() {
                    return Some(Ok(sse::BEAT.to_owned()));
                }
            }
            for event in events {
                match event.name {
                    "send.started" | "send.resumed" => self.state("TASK_STATE_WORKING").await,
                    "send.waiting" => self.look().await,
                    _ => {}
                }
                for heard in self.listener.hear(event.name, &event.data) {
                    self.hear(heard).await;
                }
                if self.ended {
                    break;
                }
            }
        }
    }

    /// Tells what is heard. The artifact is what the last round says: each round begins it anew, and so does a text that
    /// replaces one that became void.
    async fn hear(&mut self, heard: Heard) {
        match heard {
            Heard::Piece(piece) if piece.kind == Kind::Text => {
                // That it was taken up is told only to those who listened then.
                self.state("TASK_STATE_WORKING").await;
                let append = self.appends == Some(piece.round);
                self.appends = Some(piece.round);
                let artifact = json!({ "artifactId": ANSWER, "name": ANSWER, "parts": [{ "text": piece.text }] });
                self.artifact(&artifact, append, false);
            }
            Heard::Void => self.appends = None,
            Heard::Piece(_) | Heard::Said { .. } | Heard::Over(Over::Calls) => {}
            Heard::Over(Over::Send(view)) => {
                if view.status == SendStatus::Completed
                    && let Some(answer) = view::answer(&view)
                {
                    self.artifact(&answer, false, true);
                }
                if self.sent.again(&self.app).await.is_ok() {
                    self.status(&view::status(&self.sent, &[]));
                }
                self.ended = true;
            }
        }
    }

    /// Looks whether a person is asked something, which ends the stream.
    async fn look(&mut self) {
        if self.sent.again(&self.app).await.is_err() {
            return;
        }
        let open = view::open(&self.app, &self.sent).await.unwrap_or_default();
        if !open.is_empty() {
            self.status(&view::status(&self.sent, &open));
            self.ended = true;
        }
    }

    async fn state(&mut self, state: &str) {
        if self.told != state && self.sent.again(&self.app).await.is_ok() {
            let mut status = view::status(&self.sent, &[]);
            status["state"] = json!(state);
            self.status(&status);
        }
    }

    fn status(&mut self, status: &Value) {
        let state = status["state"].as_str().unwrap_or_default();
        state.clone_into(&mut self.told);
        let update = json!({
            "taskId": self.sent.send.id, "contextId": view::context(&self.sent.session), "status": status,
        });
        self.write(&json!({ "statusUpdate": update }));
    }

    fn artifact(&mut self, artifact: &Value, append: bool, last: bool) {
        let update = json!({
            "taskId": self.sent.send.id, "contextId": view::context(&self.sent.session),
            "artifact": artifact, "append": append, "lastChunk": last,
        });
        self.write(&json!({ "artifactUpdate": update }));
    }

    fn write(&mut self, update: &Value) {
        let data = match &self.form {
            Form::Plain => update.clone(),
            Form::Rpc(id) => rpc::result(id, update),
        };
        self.ahead.push(format!("data: {data}\n\n"));
    }
}
