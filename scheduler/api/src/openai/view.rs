//! A response as its readers see it: a view of a send's rows and steps, of which nothing is stored besides.

use std::collections::BTreeSet;

use mainspring_scheduler::App;
use mainspring_scheduler::error::Error;
use mainspring_shared::agent::{AgentSpec, ToolChoice};
use mainspring_shared::error::Code;
use mainspring_shared::event::expand;
use mainspring_shared::id::TenantId;
use mainspring_shared::message::Message;
use mainspring_shared::send::{SendRecord, SendStatus, SendView, StopReason};
use mainspring_shared::session::SessionRecord;
use mainspring_shared::step::StepKind;
use mainspring_shared::store::ReadMessages;
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::{ASK_PERSON, DeclaredTool, ExternalTool, ToolEntry};
use mainspring_shared::usage::Usage;
use serde_json::{Value, json};

use super::encode::Encoder;
use super::ids::{self, ResponseId};
use super::listen::{Heard, Listener, Over};
use super::turn::sees;
use crate::access::Caller;

/// Steps per read.
const STEPS: u32 = 64;

/// A send with what its responses are made of.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) id: ResponseId,
    pub(super) send: SendRecord,
    /// The agent that it runs with.
    pub(super) agent: AgentSpec,
    pub(super) session: SessionRecord,
}

impl Source {
    /// Reads what there is of a response.
    pub(super) async fn read(app: &App, tenant: TenantId, id: ResponseId) -> Result<Self, Error> {
        let send = app.watch.read_send(tenant, id.send).await?;
        let send = send.ok_or_else(ResponseId::not_found)?;
        let session = app.store.get_session(send.key).await?;
        let session = session.ok_or_else(ResponseId::not_found)?;
        if id.round > send.rounds {
            return Err(ResponseId::not_found());
        }
        let agent = send.options.agent_in(session.agent.clone());
        Ok(Self {
            id,
            send,
            agent,
            session,
        })
    }

    /// Reads what there is of a response that the caller may see.
    pub(super) async fn find(
        app: &App,
        caller: &Caller,
        id: Option<ResponseId>,
    ) -> Result<Self, Error> {
        let id = id.ok_or_else(ResponseId::not_found)?;
        let source = Self::read(app, caller.tenant, id).await?;
        if sees(caller, &source.session) {
            Ok(source)
        } else {
            Err(ResponseId::not_found())
        }
    }

    /// Listens to the response.
    pub(super) fn listener(&self) -> Listener {
        Listener::new(
            self.id.round,
            functions(&self.agent),
            self.agent_schema().is_some(),
        )
    }

    /// The schema that the answer has to fit.
    fn agent_schema(&self) -> Option<&Value> {
        let own = self.send.options.output_schema.as_ref();
        own.or(self.agent.output_schema.as_ref())
    }

    /// What is stored of the response. The send may have ended since it was read: how is read with the step that ended it.
    pub(super) async fn heard(&self, app: &App) -> Result<Stored, Error> {
        let mut listener = self.listener();
        let mut encoder = Encoder::new(self.id, None);
        let (tenant, id) = (self.send.key.tenant, self.send.id);
        let mut after = self.send.first_step - 1;
        loop {
            let steps = app.store.read_steps(self.send.key, after, STEPS).await?;
            let count = steps.len();
            for step in steps {
                after = step.n;
                if step.send_id != self.send.id {
                    continue;
                }
                let messages = self
                    .messages(app, step.refs.first_seq, step.refs.messages)
                    .await?;
                let ended = match step.kind {
                    StepKind::Finished => app.watch.read_send(tenant, id).await?,
                    _ => None,
                };
                let view = ended.map(SendView::from);
                for event in expand(&step, &messages, view.as_ref()) {
                    for heard in listener.hear(event.name, &event.data) {
                        encoder.tell(&heard);
                        if let Heard::Over(over) = heard {
                            return Ok(Stored::of(&encoder, &listener, Some(over)));
                        }
                    }
                }
            }
            if count < STEPS as usize {
                break;
            }
        }
        Ok(Stored::of(&encoder, &listener, None))
    }

    async fn messages(
        &self,
        app: &App,
        first: Option<i64>,
        count: u32,
    ) -> Result<Vec<Message>, Error> {
        let Some(first) = first.filter(|_| count > 0) else {
            return Ok(Vec::new());
        };
        let wanted = ReadMessages {
            key: self.send.key,
            after: first - 1,
            limit: count,
        };
        Ok(app.store.read_messages(wanted).await?)
    }

    /// The response with what was heard of it.
    pub(super) fn view(&self, stored: &Stored) -> Value {
        let (status, incomplete, error, finished) = self.state(stored.over.as_ref());
        let note = self
            .send
            .options
            .openai
            .as_deref()
            .cloned()
            .unwrap_or_default();
        let agent = &self.agent;
        let conversation = note
            .in_conversation
            .then(|| json!({ "id": ids::conversation(self.session.key.session) }));
        let usage = stored.over.is_some().then(|| usage(&stored.usage));
        json!({
            "id": self.id.to_string(),
            "object": "response",
            "created_at": seconds(self.send.created_at),
            "completed_at": finished.map(seconds),
            "status": status,
            "error": error,
            "incomplete_details": incomplete.map(|reason| json!({ "reason": reason })),
            "background": note.background,
            "conversation": conversation,
            "previous_response_id": self.previous(note.previous, stored.previous),
            "instructions": agent.system_prompt,
            "model": model(agent),
            "output": stored.output,
            "parallel_tool_calls": agent.parallel_tool_calls.unwrap_or(true),
            "tool_choice": tool_choice(agent.tool_choice.as_ref()),
            "tools": tools(agent),
            "temperature": agent.temperature,
            "top_p": agent.top_p,
            "max_output_tokens": agent.max_tokens,
            "reasoning": { "effort": agent.reasoning_effort, "summary": null },
            "text": { "format": format(self.agent_schema()) },
            "truncation": "disabled",
            "metadata": note.metadata,
            "store": true,
            "usage": usage,
        })
    }

    /// The response before: the one that asked for the calls, or the one that the request named.
    fn previous(&self, named: Option<String>, start: Option<i32>) -> Option<String> {
        match self.id.round {
            0 => named,
            _ => start.map(|round| ResponseId::new(self.id.send, round).to_string()),
        }
    }

    /// The status, why it is incomplete, the error, and when it ended.
    fn state(
        &self,
        over: Option<&Over>,
    ) -> (
        &'static str,
        Option<&'static str>,
        Option<Value>,
        Option<Timestamp>,
    ) {
        match over {
            None if self.send.status == SendStatus::Queued => ("queued", None, None, None),
            None => ("in_progress", None, None, None),
            Some(Over::Calls) => ("completed", None, None, Some(self.send.created_at)),
            Some(Over::Send(view)) => {
                let at = view.finished_at;
                match (view.status, view.stop_reason) {
                    (SendStatus::Cancelled, _) => ("cancelled", None, None, at),
                    (SendStatus::Failed, _) => ("failed", None, Some(failure(view)), at),
                    (_, Some(StopReason::Length)) => {
                        ("incomplete", Some("max_output_tokens"), None, at)
                    }
                    _ => ("completed", None, None, at),
                }
            }
        }
    }
}

/// What is stored of a response.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) output: Vec<Value>,
    pub(super) usage: Usage,
    /// Where the response began whose calls it continues.
    previous: Option<i32>,
    /// How it ended; none while it lasts.
    pub(super) over: Option<Over>,
}

impl Stored {
    /// What was told and heard.
    pub(super) fn of(encoder: &Encoder, listener: &Listener, over: Option<Over>) -> Self {
        Self {
            output: encoder.output(),
            usage: listener.usage,
            previous: listener.previous(),
            over,
        }
    }
}

/// The functions of an agent that its clients run.
pub(super) fn functions(agent: &AgentSpec) -> BTreeSet<String> {
    let declared = external(agent).map(|tool| tool.name.clone());
    declared.chain([ASK_PERSON.to_owned()]).collect()
}

fn external(agent: &AgentSpec) -> impl Iterator<Item = &ExternalTool> {
    agent.tools.iter().filter_map(|tool| match tool {
        ToolEntry::Declared(DeclaredTool::External(tool)) => Some(tool),
        ToolEntry::Named(_)
        | ToolEntry::Declared(
            DeclaredTool::Http(_) | DeclaredTool::Mcp(_) | DeclaredTool::Worker(_),
        ) => None,
    })
}

/// The model that answers: the version of a published agent, or a provider's model.
pub(super) fn model(agent: &AgentSpec) -> String {
    match agent.reference() {
        Some(reference) => format!("agent/{reference}"),
        None => agent.model.clone().unwrap_or_default(),
    }
}

fn tools(agent: &AgentSpec) -> Value {
    let tools = external(agent).map(|tool| {
        json!({
            "type": "function", "name": tool.name, "description": tool.description,
            "parameters": tool.parameters, "strict": false,
        })
    });
    tools.collect()
}

fn tool_choice(choice: Option<&ToolChoice>) -> Value {
    match choice {
        None | Some(ToolChoice::Auto) => json!("auto"),
        Some(ToolChoice::None) => json!("none"),
        Some(ToolChoice::Required) => json!("required"),
        Some(ToolChoice::Tool(name)) => json!({ "type": "function", "name": name }),
    }
}

fn format(schema: Option<&Value>) -> Value {
    let Some(schema) = schema else {
        return json!({ "type": "text" });
    };
    if schema["type"] == "json_object" {
        return json!({ "type": "json_object" });
    }
    let (name, inner) = match (&schema["name"], &schema["schema"]) {
        (Value::String(name), inner @ (Value::Object(_) | Value::Bool(_))) => {
            (name.as_str(), inner)
        }
        _ => ("answer", schema),
    };
    json!({ "type": "json_schema", "name": name, "schema": inner, "strict": schema["strict"] == true })
}

/// The tokens of a response.
pub(super) fn usage(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read_tokens, "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": { "reasoning_tokens": usage.reasoning_tokens },
        "total_tokens": usage.input_tokens.saturating_add(usage.output_tokens),
    })
}

/// The error of a failed send. Its code is one of those that clients know; ours begins the message.
pub(super) fn failure(view: &SendView) -> Value {
    let Some(failure) = &view.error else {
        return json!({ "code": "server_error", "message": "the send failed" });
    };
    let code = match failure.code {
        Code::LlmRateLimited => "rate_limit_exceeded",
        Code::LlmContextOverflow | Code::ContextCannotFit => "invalid_prompt",
        _ => "server_error",
    };
    json!({ "code": code, "message": format!("{}: {}", failure.code, failure.message) })
}

/// A time as a number of seconds.
pub(super) fn seconds(at: Timestamp) -> f64 {
    at.0 as f64 / 1_000.0
}
