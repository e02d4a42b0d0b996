//! The model and the tools, which keep ledgers outside the system.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use mainspring_shared::message::{ContentPart, Role, ToolCall, plain_text};
use mainspring_shared::usage::Usage;
use mainspring_worker::llm::{Chunk, Error, Finish, Model, Reply, Request};
use mainspring_worker::tool::{Invocation, Output, Tool, ToolError, ToolSpec, Traits};
use serde_json::Value;

use super::gate::{Gate, Virtual};
use crate::pairing;

/// One model call.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    /// The mark of the user text that it answers.
    pub(super) mark: String,
    /// What is wrong with the request, if anything.
    pub(super) fault: Option<String>,
    /// When it was made.
    pub(super) at_ms: u64,
}

/// Everything the model was asked.
#[derive(Debug, Default)]
pub(super) struct Ledger(Mutex<(Vec<Asked>, BTreeMap<String, u64>)>);

impl Ledger {
    pub(super) fn all(&self) -> Vec<Asked> {
        let ledger = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ledger.0.clone()
    }

    /// Records a call; returns how many calls there were for this mark, including this one.
    fn note(&self, asked: Asked) -> u64 {
        let mut ledger = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let times = ledger.1.entry(asked.mark.clone()).or_default();
        *times += 1;
        let times = *times;
        ledger.0.push(asked);
        times
    }
}

/// One process's access to the model. The user text says what the model does: `MARK {"ms", "fail",
/// "rounds"}`.
#[derive(Debug)]
pub(super) struct ModelClient {
    pub(super) gate: Gate,
    pub(super) time: Virtual,
    pub(super) ledger: Arc<Ledger>,
}

/// Parses a user text into its mark and what the model does with it.
fn understood(words: &str) -> (String, Value) {
    let (mark, rest) = words.split_once(' ').unwrap_or((words, ""));
    let first = serde_json::Deserializer::from_str(rest).into_iter().next();
    let does: Option<Value> = first.and_then(Result::ok);
    (mark.to_owned(), does.unwrap_or_default())
}

#[async_trait]
impl Model for ModelClient {
    async fn complete(
        &self,
        request: &Request,
        on_chunk: &mut (dyn for<'c> FnMut(Chunk<'c>) + Send),
    ) -> Result<Reply, Error> {
        self.gate.pass().await;
        let user = request.messages.iter().rposition(|m| m.role == Role::User);
        let words = user.map(|at| plain_text(&request.messages[at].content));
        let (mark, does) = understood(&words.unwrap_or_default());
        let since = request.messages.iter().skip(user.unwrap_or_default());
        let rounds = since.filter(|m| m.role == Role::Assistant).count();
        let times = self.ledger.note(Asked {
            mark: mark.clone(),
            fault: pairing::stored(&request.messages).err(),
            at_ms: self.time.ms(),
        });
        self.time.sleep(does["ms"].as_u64().unwrap_or(5)).await;
        self.gate.pass().await;
        if times <= does["fail"].as_u64().unwrap_or_default() {
            return Err(Error::Unavailable {
                message: "scripted".into(),
                retry_after: None,
            });
        }
        let calls = does["rounds"][rounds].as_array();
        let calls = calls.into_iter().flatten().map(|call| {
            ToolCall::new(
                "same",
                call[0].as_str().unwrap_or_default().to_owned(),
                call[1].clone(),
            )
        });
        let tool_calls: Vec<ToolCall> = calls.collect();
        let text = format!("echo {mark} {rounds}");
        let (first, rest) = text.split_at(text.len() / 2);
        on_chunk(Chunk::Text(first));
        self.time.sleep(3).await;
        self.gate.pass().await;
        on_chunk(Chunk::Text(rest));
        Ok(Reply {
            content: vec![ContentPart::text(text)],
            finish: if tool_calls.is_empty() {
                Finish::Stop
            } else {
                Finish::ToolCalls
            },
            tool_calls,
            usage: Usage {
                input_tokens: 10,
                output_tokens: 5,
                ..Usage::default()
            },
            model: "model".into(),
        })
    }
}

/// A tool as one process reaches it.
#[derive(Debug)]
pub(super) struct GatedTool {
    pub(super) gate: Gate,
    pub(super) tool: Arc<dyn Tool>,
}

#[async_trait]
impl Tool for GatedTool {
    fn spec(&self) -> ToolSpec {
        self.tool.spec()
    }

    fn traits(&self) -> Traits {
        self.tool.traits()
    }

    async fn call(&self, invocation: Invocation) -> Result<Output, ToolError> {
        self.gate.pass().await;
        let answer = self.tool.call(invocation).await;
        self.gate.pass().await;
        answer
    }
}
