//! A memory provider behind a URL.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::id::{BootId, SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::memory::{
    Account, Forget, Memory, MemoryError, OnBehalfOf, Recall, Recalled, Remember,
};
use mainspring_shared::message::plain_text;
use mainspring_shared::stored::Extra;
use mainspring_shared::time::Span;
use mainspring_shared::tool::schema::any_object;
use mainspring_shared::tool::{HttpTool, Repeat};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::http::{Caller, Kind};
use mainspring_worker::tool::{Invocation, Skills, Tool, ToolError};

/// Memory kept by another service. It is called with signed `POST`s in the form of tool calls,
/// named `memory_recall`, `memory_remember` and `memory_forget`; docs/MEMORY.md describes their
/// arguments and responses.
#[derive(Debug)]
pub struct HttpMemory {
    caller: Caller,
    recall: Arc<dyn Tool>,
    remember: Arc<dyn Tool>,
    forget: Arc<dyn Tool>,
}

#[derive(Debug, Deserialize)]
struct Entries {
    entries: Vec<Recalled>,
}

#[derive(Debug, Deserialize)]
struct Kept {
    id: String,
}

#[derive(Debug, Deserialize)]
struct Forgotten {
    forgotten: bool,
}

impl HttpMemory {
    /// The provider at this URL. `caller` decides what is signed and which addresses may be
    /// reached.
    pub fn new(url: &str, timeout: Option<Duration>, caller: &Caller) -> Self {
        let tool = |name: &str| {
            let form = HttpTool {
                name: name.to_owned(),
                description: String::new(),
                parameters: any_object(),
                url: url.to_owned(),
                // A repeat uses the same key.
                repeat: Some(Repeat::Keyed),
                request: None,
                timeout: timeout.map(Span),
                parallel: true,
                approval: false,
                digest: None,
                pool: None,
                extra: Extra::default(),
            };
            caller.asking(Kind::Memory, &form)
        };
        Self {
            caller: caller.clone(),
            recall: tool("memory_recall"),
            remember: tool("memory_remember"),
            forget: tool("memory_forget"),
        }
    }
}

/// A request to the provider, with its idempotency key.
struct Question {
    key: String,
    session: SessionKey,
    send: SendId,
    arguments: Value,
}

impl Question {
    fn of(tenant: TenantId, on_behalf_of: OnBehalfOf, key: String, arguments: Value) -> Self {
        // Nil ids are left out of the request.
        let session = on_behalf_of.session.unwrap_or(SessionId(Uuid::nil()));
        Self {
            key,
            session: SessionKey { tenant, session },
            send: on_behalf_of.send.unwrap_or(SendId(Uuid::nil())),
            arguments,
        }
    }

    async fn ask<T: DeserializeOwned>(self, tool: &dyn Tool) -> Result<T, MemoryError> {
        let arguments = match self.arguments {
            Value::Object(members) => members,
            other => Map::from_iter([("value".to_owned(), other)]),
        };
        let invocation = Invocation {
            call_id: self.key,
            arguments,
            said: None,
            session: self.session,
            send_id: self.send,
            boot: BootId(Uuid::nil()),
            attempt: 1,
            stop: CancellationToken::new(),
            skills: Skills::default(),
            account: Account::default(),
            progress: mainspring_worker::tool::Progress::default(),
            kept: mainspring_worker::tool::Kept::default(),
            inquiring: mainspring_worker::tool::Inquiring::default(),
        };
        let output = tool.call(invocation).await.map_err(|error| match error {
            ToolError::Reply { message, .. }
            | ToolError::Abort { message }
            | ToolError::Lost { message } => MemoryError::Unavailable { why: message },
            asks @ ToolError::Asks(_) => MemoryError::Unavailable {
                why: asks.to_string(),
            },
        })?;
        let parsed = match output.value {
            Some(value) => serde_json::from_value(value),
            None => serde_json::from_str(&plain_text(&output.content)),
        };
        parsed.map_err(|_| MemoryError::Unavailable {
            why: "the provider's answer is of another form".to_owned(),
        })
    }
}

#[async_trait]
impl Memory for HttpMemory {
    async fn recall(&self, ask: Recall) -> Result<Vec<Recalled>, MemoryError> {
        let arguments = json!({
            "tenant": ask.tenant, "namespace": ask.namespace, "query": ask.query, "limit": ask.limit,
        });
        // The attempts of one recall share the key; the next recall may have another answer.
        let key = format!("recall_{}", self.caller.fresh_key());
        let question = Question::of(ask.tenant, ask.on_behalf_of, key, arguments);
        let found: Entries = question.ask(self.recall.as_ref()).await?;
        Ok(found.entries)
    }

    async fn remember(&self, entry: Remember) -> Result<String, MemoryError> {
        let mut arguments = json!({
            "tenant": entry.tenant, "namespace": entry.namespace, "text": entry.text,
            "metadata": entry.metadata, "source": entry.source, "key": entry.key,
        });
        if let Some(replaced) = &entry.replaces {
            arguments["replaces"] = json!(replaced);
        }
        let source = entry.source;
        let on_behalf_of = source.map(|source| OnBehalfOf::send(source.session_id, source.send_id));
        let (on_behalf_of, key) = (on_behalf_of.unwrap_or_default(), header(&entry.key));
        let question = Question::of(entry.tenant, on_behalf_of, key, arguments);
        let kept: Kept = question.ask(self.remember.as_ref()).await?;
        Ok(kept.id)
    }

    async fn forget(&self, entry: Forget) -> Result<bool, MemoryError> {
        let arguments = json!({
            "tenant": entry.tenant, "namespace": entry.namespace, "id": entry.id,
        });
        let key = format!("forget_{}", self.caller.fresh_key());
        let question = Question::of(entry.tenant, entry.on_behalf_of, key, arguments);
        let done: Forgotten = question.ask(self.forget.as_ref()).await?;
        Ok(done.forgotten)
    }
}

/// Makes a key fit for a header.
fn header(key: &str) -> String {
    let plain = |c: char| if c.is_ascii_graphic() { c } else { '_' };
    key.chars().map(plain).take(200).collect()
}

#[cfg(test)]
mod tests;
