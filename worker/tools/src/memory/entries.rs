//! `memory_search`, `memory_save`, `memory_forget`: what an agent remembers across sessions.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::error::{Code, Coded};
use mainspring_shared::memory::{
    Forget, MemoryError, MemorySource, Namespace, OnBehalfOf, Recall, Remember, TEXT_CHARS_MAX,
};
use mainspring_shared::tool::Repeat;
use mainspring_worker::memory::Memories;
use mainspring_worker::tool::{Effect, Invocation, Output, Tool, ToolError, ToolSpec, Traits};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::shared::{MemoryTools, arguments};
use crate::catalogue::{Listed, MEMORY, tool};
use crate::words::counted;

pub(crate) const TOOLS: [Listed<Remembers>; 3] = [
    tool(
        "memory_search",
        MEMORY,
        "searches what the agent remembers beyond the session",
        |of| Entries::with(of, Act::Search),
    ),
    tool("memory_save", MEMORY, "remembers something", |of| {
        Entries::with(of, Act::Save)
    }),
    tool(
        "memory_forget",
        MEMORY,
        "forgets an entry of the memory",
        |of| Entries::with(of, Act::Forget),
    ),
];

/// The tools of an agent that has a memory.
pub(crate) const MEMORY_TOOLS: [&str; 3] = ["memory_search", "memory_save", "memory_forget"];

/// Entries that a search returns unless the call sets a limit.
const FOUND_DEFAULT: u32 = 10;

/// Maximum number of entries that a search may ask for.
const FOUND_MAX: u32 = 25;

/// How long a provider may take for one call.
const ANSWER_MAX: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Search,
    Save,
    Forget,
}

impl Act {
    const fn name(self) -> &'static str {
        MEMORY_TOOLS[self as usize]
    }

    const fn description(self) -> &'static str {
        match self {
            Self::Search => {
                "Searches what you remember from earlier conversations. Returns the entries that fit \
                 best, with their ids."
            }
            Self::Save => {
                "Remembers something for later conversations: one fact that will still matter then, in \
                 a sentence that is clear on its own."
            }
            Self::Forget => "Forgets an entry that is wrong or no longer wanted.",
        }
    }

    fn parameters(self) -> Value {
        let (required, properties) = match self {
            Self::Search => (
                json!(["query"]),
                json!({
                    "query": {"type": "string", "minLength": 1, "description": "What to look for."},
                    "limit": {"type": "integer", "minimum": 1, "maximum": FOUND_MAX},
                }),
            ),
            Self::Save => (
                json!(["text"]),
                json!({"text": {
                    "type": "string",
                    "minLength": 1,
                    "description": format!("At most {TEXT_CHARS_MAX} characters."),
                }}),
            ),
            Self::Forget => (
                json!(["id"]),
                json!({"id": {"type": "string", "description": "As memory_search shows it."}}),
            ),
        };
        json!({
            "type": "object",
            "required": required,
            "additionalProperties": false,
            "properties": properties,
        })
    }
}

/// State that the tools share.
pub(crate) struct Remembers {
    pub(super) shared: Arc<MemoryTools>,
    pub(super) memories: Arc<Memories>,
}

#[derive(Debug)]
struct Entries {
    shared: Arc<MemoryTools>,
    memories: Arc<Memories>,
    act: Act,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    #[serde(default)]
    query: String,
    #[serde(default)]
    limit: Option<u32>,
    #[serde(default)]
    text: String,
    #[serde(default)]
    id: String,
}

impl Entries {
    fn with(of: &Remembers, act: Act) -> Arc<dyn Tool> {
        Arc::new(Self {
            shared: of.shared.clone(),
            memories: of.memories.clone(),
            act,
        })
    }

    /// The provider and the namespace with which the send started.
    async fn place(&self, invocation: &Invocation) -> Result<(String, Namespace), ToolError> {
        let send = self
            .shared
            .send(invocation.session, invocation.send_id)
            .await?;
        let memory = send.shown.and_then(|shown| shown.memory);
        let Some(memory) = memory else {
            return Err(unavailable(
                "you have no memory in this conversation".into(),
            ));
        };
        match memory.namespace {
            Some(namespace) => Ok((memory.provider, namespace)),
            None => Err(unavailable(memory.note.unwrap_or_default())),
        }
    }
}

fn unavailable(message: String) -> ToolError {
    ToolError::Reply {
        code: Code::MemoryUnavailable,
        message,
    }
}

fn failed(error: &MemoryError) -> ToolError {
    ToolError::Reply {
        code: error.code(),
        message: error.to_string(),
    }
}

#[async_trait]
impl Tool for Entries {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.act.name().into(),
            description: self.act.description().into(),
            parameters: self.act.parameters(),
        }
    }

    fn traits(&self) -> Traits {
        let repeat = match self.act {
            Act::Search => Repeat::Safe,
            Act::Save | Act::Forget => Repeat::Keyed,
        };
        Traits {
            effect: Effect::Remember,
            ..Traits::new(repeat)
        }
    }

    async fn call(&self, mut invocation: Invocation) -> Result<Output, ToolError> {
        let given: Arguments = arguments(std::mem::take(&mut invocation.arguments))?;
        let (provider, namespace) = self.place(&invocation).await?;
        let memory = self.memories.get(&provider).map_err(|e| failed(&e))?;
        let tenant = invocation.session.tenant;
        let on_behalf_of = OnBehalfOf::send(invocation.session.session, invocation.send_id);
        match self.act {
            Act::Search => {
                let ask = Recall {
                    tenant,
                    namespace,
                    query: given.query.clone(),
                    limit: given.limit.unwrap_or(FOUND_DEFAULT),
                    on_behalf_of,
                    account: invocation.account.clone(),
                };
                let limit = ask.limit as usize;
                let found = self.memories.within(ANSWER_MAX, memory.recall(ask)).await;
                let found = found.map_err(|e| failed(&e))?;
                let shown = found.into_iter().take(limit).map(|entry| {
                    let date = entry.updated_at.map(|at| at.to_string());
                    let date = date.and_then(|date| date.get(..10).map(str::to_owned));
                    json!({"id": entry.id, "text": entry.text, "updated": date})
                });
                let shown: Vec<_> = shown.collect();
                let found = counted(shown.len(), "entry", "entries");
                let digest = format!("found {found} for \"{}\"", given.query);
                Ok(Output::json(json!({ "entries": shown })).with_digest(digest))
            }
            Act::Save => {
                let entry = Remember {
                    tenant,
                    namespace,
                    text: given.text,
                    metadata: Map::new(),
                    source: Some(MemorySource {
                        session_id: invocation.session.session,
                        send_id: invocation.send_id,
                        from_seq: None,
                        to_seq: None,
                    }),
                    replaces: None,
                    key: invocation.call_id.clone(),
                };
                let kept = self.memories.within(ANSWER_MAX, memory.remember(entry));
                let id = kept.await.map_err(|e| failed(&e))?;
                Ok(Output::json(json!({"id": id})))
            }
            Act::Forget => {
                let entry = Forget {
                    tenant,
                    namespace,
                    id: given.id,
                    on_behalf_of,
                };
                let gone = self.memories.within(ANSWER_MAX, memory.forget(entry));
                let forgotten = gone.await.map_err(|e| failed(&e))?;
                // On a repeat of the call, the first one may already have deleted it.
                if forgotten || invocation.attempt > 1 {
                    return Ok(Output::text("It is forgotten."));
                }
                Err(ToolError::reply("you remember nothing with this id"))
            }
        }
    }
}
