//! `note_add`, `note_update`, `note_delete`, `note_list`: what a session wants to remember.

use std::fmt::Write as _;
use std::sync::Arc;

use async_trait::async_trait;
use mainspring_shared::list::{Bounds, Change, Entry, ListName, NOTE_CHARS_MAX, NewEntry};
use mainspring_shared::tool::Repeat;
use serde::Deserialize;
use serde_json::{Value, json};

use super::shared::{MemoryTools, arguments};
use mainspring_worker::tool::{Effect, Invocation, Output, Tool, ToolError, ToolSpec, Traits};

/// The tools of an agent that is shown its notes.
pub(crate) const NOTE_TOOLS: [&str; 4] = ["note_add", "note_update", "note_delete", "note_list"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Add,
    Update,
    Delete,
    List,
}

impl Act {
    const fn name(self) -> &'static str {
        NOTE_TOOLS[self as usize]
    }

    const fn description(self) -> &'static str {
        match self {
            Self::Add => {
                "Saves a note that you will need later. Notes outlive the visible part of \
                 this conversation: you see them at the start of each task."
            }
            Self::Update => "Updates the text of a note, or whether it is pinned.",
            Self::Delete => "Deletes a note that is no longer needed.",
            Self::List => "Shows all your notes.",
        }
    }

    fn parameters(self) -> Value {
        let id = json!({"type": "integer", "minimum": 1});
        let content = json!({
            "type": "string",
            "minLength": 1,
            "description": format!("At most {NOTE_CHARS_MAX} characters."),
        });
        let pinned = json!({
            "type": "boolean",
            "description": "Pinned notes are always shown and never dropped.",
        });
        let (required, properties) = match self {
            Self::Add => (
                json!(["content"]),
                json!({"content": content, "pinned": pinned}),
            ),
            Self::Update => (
                json!(["note_id"]),
                json!({"note_id": id, "content": content, "pinned": pinned}),
            ),
            Self::Delete => (json!(["note_id"]), json!({"note_id": id})),
            Self::List => (json!([]), json!({})),
        };
        json!({
            "type": "object",
            "required": required,
            "additionalProperties": false,
            "properties": properties,
        })
    }
}

#[derive(Debug)]
pub(super) struct Notes {
    pub(super) shared: Arc<MemoryTools>,
    pub(super) act: Act,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    #[serde(default)]
    note_id: i64,
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    pinned: Option<bool>,
}

impl Arguments {
    fn change(self, act: Act) -> Option<Change> {
        let id = self.note_id;
        match act {
            Act::Add => Some(Change::Add(NewEntry {
                text: self.content.unwrap_or_default(),
                pinned: self.pinned.unwrap_or(false),
                ..NewEntry::default()
            })),
            Act::Update => Some(Change::Update {
                id,
                text: self.content,
                status: None,
                pinned: self.pinned,
                if_version: None,
            }),
            Act::Delete => Some(Change::Remove { id }),
            Act::List => None,
        }
    }
}

impl Notes {
    pub(super) fn with(shared: &Arc<MemoryTools>, act: Act) -> Arc<dyn Tool> {
        let shared = shared.clone();
        Arc::new(Self { shared, act })
    }
}

#[async_trait]
impl Tool for Notes {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.act.name().into(),
            description: self.act.description().into(),
            parameters: self.act.parameters(),
        }
    }

    fn traits(&self) -> Traits {
        let repeat = match self.act {
            Act::List => Repeat::Safe,
            Act::Add | Act::Update | Act::Delete => Repeat::Keyed,
        };
        Traits {
            effect: Effect::Recall,
            ..Traits::new(repeat)
        }
    }

    async fn call(&self, mut invocation: Invocation) -> Result<Output, ToolError> {
        let given: Arguments = arguments(std::mem::take(&mut invocation.arguments))?;
        let key = invocation.session;
        let name = ListName::Notes(key.session);
        let Some(change) = given.change(self.act) else {
            let list = self.shared.read(key.tenant, name).await?;
            return Ok(Output::text(shown(&list.entries)));
        };
        let agent = self.shared.session(key).await?.agent;
        let policy = agent.notes.unwrap_or_default();
        let bounds = Bounds {
            entries_max: policy.max,
            chars_max: NOTE_CHARS_MAX,
            when_full: policy.when_full,
        };
        let written = self.shared.write(&invocation, key, name, change, bounds);
        let (written, list) = written.await?;
        let id = written.entry.unwrap_or_default();
        let did = match self.act {
            Act::Add => "added",
            Act::Update => "changed",
            Act::Delete => "deleted",
            Act::List => "shown",
        };
        let mut said = format!(
            "Note #{id} {did}; {} of {}.",
            list.entries.len(),
            policy.max
        );
        if let Some(evicted) = written.evicted {
            let _ = write!(said, " Note #{evicted}, the oldest, was dropped for it.");
        }
        Ok(Output::text(said))
    }
}

fn shown(entries: &[Entry]) -> String {
    if entries.is_empty() {
        return "No notes.".to_owned();
    }
    let lines = entries.iter().map(|entry| {
        let pinned = if entry.pinned { " [pinned]" } else { "" };
        format!("#{}{pinned} {}", entry.id, entry.text)
    });
    lines.collect::<Vec<_>>().join("\n")
}
