//! The stream of a run.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;

use axum::response::Response;
use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::stream::{Reader, Scope};
use mainspring_shared::message::{Message, Role};
use mainspring_shared::send::{SendStatus, SendView};
use mainspring_shared::tool::Wants;
use mainspring_shared::usage::Usage;
use serde_json::{Value, json};

use super::VERSION;
use super::encode::Encoder;
use super::input::RunInput;
use super::messages::snapshot;
use crate::faces::asks::{Ask, Kind};
use crate::faces::sent::Sent;
use crate::gate::Admission;
use crate::openai::listen::{Heard, Listener, Over};
use crate::router::Api;
use crate::sse;

/// A run that is streamed.
pub(super) struct Run {
    app: Arc<Api>,
    sent: Sent,
    thread: String,
    id: String,
    reader: Reader,
    listener: Listener,
    encoder: Encoder,
    /// The round that it begins with, and the message behind which it does.
    from: (i32, i64),
    ahead: VecDeque<String>,
    ended: bool,
}

impl Run {
    /// Begins to read a send. If something of it was told before, the client first gets all there is.
    pub(super) async fn open(
        app: Arc<Api>,
        sent: Sent,
        input: RunInput,
        is_behind: bool,
    ) -> Result<Self, Error> {
        let watcher = app.watch.session(sent.send.key);
        let scope = Scope::Send {
            id: sent.send.id,
            is_final: sent.is_final(),
        };
        let (key, first) = (sent.send.key, sent.send.first_step);
        let reader = Reader::open(app.scheduler.clone(), key, scope, first, None, watcher).await;
        let agent = sent.send.options.agent_in(sent.session.agent.clone());
        let own = sent.send.options.output_schema.as_ref();
        let whole = own.or(agent.output_schema.as_ref()).is_some();
        let mut started = json!({
            "type": "RUN_STARTED", "threadId": input.thread, "runId": input.run, "protocolVersion": VERSION,
        });
        if let Some(parent) = &input.parent {
            started["parentRunId"] = json!(parent);
        }
        let mut from = (0, 0);
        let mut told = vec![started];
        if is_behind {
            let (messages, seen) = snapshot(&app, &sent.send).await?;
            told.push(json!({ "type": "MESSAGES_SNAPSHOT", "messages": messages }));
            from = (sent.send.rounds, seen);
        }
        let mut run = Self {
            app,
            sent,
            thread: input.thread,
            id: input.run,
            reader,
            listener: Listener::new(from.0, BTreeSet::new(), whole),
            encoder: Encoder::default(),
            from,
            ahead: VecDeque::new(),
            ended: false,
        };
        for event in &told {
            run.write(event);
        }
        Ok(run)
    }

    /// The response.
    pub(super) fn stream(self, admission: Admission) -> Response {
        sse::written(futures::stream::unfold(
            (self, admission),
            |(mut run, admission)| async move {
                let piece = run.next().await?;
                Some((piece, (run, admission)))
            },
        ))
    }

    async fn next(&mut self) -> Option<io::Result<String>> {
        loop {
            if !self.ahead.is_empty() {
                return Some(Ok(self.ahead.drain(..).collect()));
            }
            if self.ended {
                return None;
            }
            let Some(events) = self.reader.next().await else {
                // The process ends; the same request goes on elsewhere.
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
                self.take(event.name, &event.data).await;
                if self.ended {
                    break;
                }
            }
        }
    }

    async fn take(&mut self, name: &str, data: &str) {
        let message = (name == "message.completed")
            .then(|| serde_json::from_str::<Message>(data).ok())
            .flatten();
        if message
            .as_ref()
            .is_some_and(|message| message.seq <= self.from.1)
        {
            return;
        }
        match name {
            "send.waiting" => return self.look().await,
            "round.started" => {
                let started: Value = serde_json::from_str(data).unwrap_or_default();
                let round = started["round"]
                    .as_i64()
                    .and_then(|round| i32::try_from(round).ok());
                self.begin(round);
            }
            "message.completed" => {
                let said = message
                    .as_ref()
                    .filter(|message| message.role == Role::Assistant);
                self.begin(said.map(|message| message.round));
            }
            _ => {}
        }
        for heard in self.listener.hear(name, data) {
            for told in self.encoder.tell(self.sent.send.id, &heard) {
                self.write(&told);
            }
            if std::mem::take(&mut self.encoder.is_void) {
                // What was said is taken back by saying all that is left.
                if let Ok((messages, _)) = snapshot(&self.app, &self.sent.send).await {
                    self.write(&json!({ "type": "MESSAGES_SNAPSHOT", "messages": messages }));
                }
            }
            if let Heard::Over(Over::Send(view)) = heard {
                self.end(&view);
            }
        }
        if let Some(message) = message {
            for told in self.encoder.calls(&message) {
                self.write(&told);
            }
        }
        if name == "round.completed" {
            for told in self.encoder.finish() {
                self.write(&told);
            }
        }
    }

    /// A round of this run begins.
    fn begin(&mut self, round: Option<i32>) {
        let round = round.filter(|round| *round >= self.from.0);
        if let Some(begun) = round.and_then(|round| self.encoder.begin(round)) {
            self.write(&begun);
        }
    }

    /// Looks whether the send waits for someone outside, which ends the run.
    async fn look(&mut self) {
        if self.sent.again(&self.app).await.is_err() || self.sent.send.status != SendStatus::Waiting
        {
            return;
        }
        let open = self.sent.asks(&self.app).await.unwrap_or_default();
        let (people, tools): (Vec<Ask>, Vec<Ask>) = open.into_iter().partition(Ask::is_for_people);
        let interrupts: Vec<Value> = people.iter().map(|ask| self.interrupt(ask)).collect();
        let own = tools
            .iter()
            .filter(|ask| ask.call.send_id == self.sent.send.id);
        let pending: Vec<&String> = own.map(|ask| &ask.call.call_id).collect();
        if !interrupts.is_empty() {
            self.finish(json!({ "outcome": { "type": "interrupt", "interrupts": interrupts } }));
        } else if !pending.is_empty() {
            self.finish(json!({ "outcome": { "type": "success", "pendingToolCallIds": pending } }));
        }
    }

    fn interrupt(&self, ask: &Ask) -> Value {
        let reason = match ask.kind {
            Kind::Permission => "tool_approval",
            Kind::Answer(_) => "question",
            Kind::Reply(..) => "tool_question",
            Kind::Result => "tool_result",
        };
        let mut interrupt = json!({ "id": ask.id(), "reason": reason, "message": ask.message() });
        if ask.call.send_id == self.sent.send.id {
            interrupt["toolCallId"] = json!(ask.call.call_id);
        }
        match ask.wants() {
            Wants::Form(schema) => interrupt["responseSchema"] = schema,
            Wants::Url(url) => interrupt["metadata"] = json!({ "url": url }),
        }
        if let Some(at) = ask.call.deadline_at {
            interrupt["expiresAt"] = json!(at);
        }
        interrupt
    }

    fn end(&mut self, view: &SendView) {
        let usage = json!([usage(&view.usage)]);
        match view.status {
            SendStatus::Failed => {
                let error = view.error.as_ref();
                let message = error.map_or("the send failed", |error| error.message.as_str());
                for told in self.encoder.finish() {
                    self.write(&told);
                }
                let mut failed = json!({ "type": "RUN_ERROR", "message": message, "usage": usage });
                if let Some(error) = error {
                    failed["code"] = json!(error.code);
                }
                self.write(&failed);
                self.ended = true;
            }
            SendStatus::Cancelled => {
                self.finish(json!({ "outcome": { "type": "cancelled" }, "usage": usage }));
            }
            SendStatus::Queued
            | SendStatus::Running
            | SendStatus::Waiting
            | SendStatus::Completed => {
                let mut finished = json!({ "outcome": { "type": "success" }, "usage": usage });
                if let Some(output) = &view.output {
                    finished["result"] = output.clone();
                }
                self.finish(finished);
            }
        }
    }

    fn finish(&mut self, mut finished: Value) {
        for told in self.encoder.finish() {
            self.write(&told);
        }
        finished["type"] = json!("RUN_FINISHED");
        finished["threadId"] = json!(self.thread);
        finished["runId"] = json!(self.id);
        self.write(&finished);
        self.ended = true;
    }

    fn write(&mut self, event: &Value) {
        self.ahead.push_back(format!("data: {event}\n\n"));
    }
}

fn usage(usage: &Usage) -> Value {
    json!({
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "totalTokens": usage.input_tokens.saturating_add(usage.output_tokens),
        "reasoningTokens": usage.reasoning_tokens,
        "cachedInputTokens": usage.cache_read_tokens,
    })
}
