//! Streams in the form that OpenAI's clients read.

use std::io;
use std::sync::Arc;

use axum::response::Response;
use mainspring_scheduler::services::stream::{Reader, Scope};
use serde_json::json;

use super::encode::{CREATED, Encoder, IN_PROGRESS, LAST, Told};
use super::listen::{Heard, Listener, Over};
use super::view::{Source, Stored};
use crate::gate::Admission;
use crate::router::Api;
use crate::sse;

/// Turns what is heard into the text of a stream.
pub(super) trait Writer: Send + 'static {
    /// What to write of this.
    fn write(&mut self, heard: &Heard) -> String;

    /// What to write at the end.
    fn end(&mut self, source: &Source, listener: &Listener, over: &Over) -> String;
}

/// The events of a response. The first ones are written at once, so that a client knows the id.
pub(super) async fn responses(
    app: &Arc<Api>,
    source: Source,
    after: Option<u64>,
    admission: Admission,
) -> Response {
    let encoder = Encoder::new(source.id, after);
    let begun = source.view(&Stored::of(&encoder, &source.listener(), None));
    let first = [
        ("response.created", CREATED),
        ("response.in_progress", IN_PROGRESS),
    ];
    let first = first
        .into_iter()
        .filter(|(_, number)| encoder.wants(*number));
    let first =
        first.map(|(kind, number)| Told::new(kind, number, json!({ "response": begun })).written());
    let first: String = first.collect();
    answer(app, source, (first, Responses { encoder }), admission).await
}

struct Responses {
    encoder: Encoder,
}

impl Writer for Responses {
    fn write(&mut self, heard: &Heard) -> String {
        self.encoder.tell(heard).iter().map(Told::written).collect()
    }

    fn end(&mut self, source: &Source, listener: &Listener, over: &Over) -> String {
        if !self.encoder.wants(LAST) {
            return String::new();
        }
        let stored = Stored::of(&self.encoder, listener, Some(over.clone()));
        let view = source.view(&stored);
        let kind = match view["status"].as_str().unwrap_or_default() {
            "completed" => "response.completed",
            "failed" => "response.failed",
            // There is no event for what was cancelled.
            _ => "response.incomplete",
        };
        Told::new(kind, LAST, json!({ "response": view })).written()
    }
}

/// A stream that writes what is heard of a response, up to its end.
///
/// One that has to end before the response does is cut off, which all clients report.
pub(super) async fn answer<W: Writer>(
    app: &Arc<Api>,
    source: Source,
    (first, writer): (String, W),
    admission: Admission,
) -> Response {
    let watcher = app.watch.session(source.send.key);
    let scope = Scope::Send {
        id: source.send.id,
        is_final: source.send.status.is_final(),
    };
    let (key, first_step) = (source.send.key, source.send.first_step);
    let reader = Reader::open(app.scheduler.clone(), key, scope, first_step, None, watcher).await;
    let state = Reading {
        app: app.clone(),
        listener: source.listener(),
        source,
        writer,
        reader,
        first: (!first.is_empty()).then_some(first),
        ended: false,
        _admission: admission,
    };
    sse::written(futures::stream::unfold(state, |mut state| async move {
        let piece = state.next().await?;
        Some((piece, state))
    }))
}

struct Reading<W> {
    app: Arc<Api>,
    source: Source,
    listener: Listener,
    writer: W,
    reader: Reader,
    first: Option<String>,
    ended: bool,
    _admission: Admission,
}

impl<W: Writer> Reading<W> {
    async fn next(&mut self) -> Option<io::Result<String>> {
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        while !self.ended {
            let Some(events) = self.reader.next().await else {
                self.ended = true;
                return Some(Err(sse::cut()));
            };
            if events.is_empty() {
                // An event that clients do not know would break them.
                return Some(Ok(sse::BEAT.to_owned()));
            }
            let mut text = String::new();
            for event in events {
                for heard in self.listener.hear(event.name, &event.data) {
                    text.push_str(&self.writer.write(&heard));
                    if let Heard::Over(over) = heard {
                        self.ended = true;
                        // It has changed since it was read.
                        let (tenant, id) = (self.source.send.key.tenant, self.source.id);
                        if let Ok(source) = Source::read(&self.app, tenant, id).await {
                            self.source = source;
                        }
                        text.push_str(&self.writer.end(&self.source, &self.listener, &over));
                    }
                }
            }
            if !text.is_empty() {
                return Some(Ok(text));
            }
        }
        None
    }
}
