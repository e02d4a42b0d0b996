//! `board_read`, `board_post`, `board_update`, `board_remove`: messages between agents.

use std::sync::Arc;

use async_trait::async_trait;
use mainspring_shared::id::SessionKey;
use mainspring_shared::list::{
    BOARD_CHARS_MAX, BOARD_ENTRIES_MAX, Bounds, Change, Entry, ListName, NewEntry, WhenFull,
};
use mainspring_shared::session::SessionRecord;
use mainspring_shared::tool::Repeat;
use serde::Deserialize;
use serde_json::{Value, json};

use super::shared::{MemoryTools, arguments};
use mainspring_worker::tool::{Invocation, Output, Tool, ToolError, ToolSpec, Traits};

const BOUNDS: Bounds = Bounds {
    entries_max: BOARD_ENTRIES_MAX,
    chars_max: BOARD_CHARS_MAX,
    when_full: WhenFull::Reject,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Read,
    Post,
    Update,
    Remove,
}

impl Act {
    const fn name(self) -> &'static str {
        match self {
            Self::Read => "board_read",
            Self::Post => "board_post",
            Self::Update => "board_update",
            Self::Remove => "board_remove",
        }
    }

    const fn description(self) -> &'static str {
        match self {
            Self::Read => "Reads the board that you share with other agents.",
            Self::Post => "Adds an entry to the board that you share with other agents.",
            Self::Update => {
                "Updates the text or status of an entry on the board. With `version`, as \
                 shown on the board, only if nobody has changed it since."
            }
            Self::Remove => "Removes an entry from the board.",
        }
    }

    fn parameters(self) -> Value {
        let id = json!({"type": "integer", "minimum": 1});
        let text = json!({
            "type": "string",
            "minLength": 1,
            "description": format!("At most {BOARD_CHARS_MAX} characters."),
        });
        let status = json!({"enum": ["open", "doing", "done"]});
        let version = json!({"type": "integer", "minimum": 1});
        let (required, properties) = match self {
            Self::Read => (json!([]), json!({})),
            Self::Post => (
                json!(["text"]),
                json!({"text": text, "kind": {"enum": ["note", "task"]}, "status": status}),
            ),
            Self::Update => (
                json!(["entry_id"]),
                json!({"entry_id": id, "text": text, "status": status, "version": version}),
            ),
            Self::Remove => (json!(["entry_id"]), json!({"entry_id": id})),
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
pub(super) struct Board {
    pub(super) shared: Arc<MemoryTools>,
    pub(super) act: Act,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    #[serde(default)]
    entry_id: i64,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    version: Option<i64>,
}

impl Arguments {
    fn change(self, act: Act, author: String) -> Option<Change> {
        let id = self.entry_id;
        match act {
            Act::Read => None,
            Act::Post => Some(Change::Add(NewEntry {
                text: self.text.unwrap_or_default(),
                kind: Some(self.kind.unwrap_or_else(|| "note".to_owned())),
                status: self.status,
                author: Some(author),
                pinned: false,
            })),
            Act::Update => Some(Change::Update {
                id,
                text: self.text,
                status: self.status,
                pinned: None,
                if_version: self.version,
            }),
            Act::Remove => Some(Change::Remove { id }),
        }
    }
}

impl Board {
    pub(super) fn with(shared: &Arc<MemoryTools>, act: Act) -> Arc<dyn Tool> {
        let shared = shared.clone();
        Arc::new(Self { shared, act })
    }
}

#[async_trait]
impl Tool for Board {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.act.name().into(),
            description: self.act.description().into(),
            parameters: self.act.parameters(),
        }
    }

    fn traits(&self) -> Traits {
        Traits::new(match self.act {
            Act::Read => Repeat::Safe,
            Act::Post | Act::Update | Act::Remove => Repeat::Keyed,
        })
    }

    async fn call(&self, mut invocation: Invocation) -> Result<Output, ToolError> {
        let given: Arguments = arguments(std::mem::take(&mut invocation.arguments))?;
        let session = self.shared.session(invocation.session).await?;
        let (owner, name) = board(&session);
        let list = match given.change(self.act, author(&session)) {
            None => self.shared.read(owner.tenant, name).await?,
            Some(change) => {
                let written = self.shared.write(&invocation, owner, name, change, BOUNDS);
                written.await?.1
            }
        };
        Ok(Output::text(shown(&list.entries)))
    }
}

/// The board of a session and the session that owns it: the root of the tree or, for a board shared
/// by many trees, the session itself.
fn board(session: &SessionRecord) -> (SessionKey, ListName) {
    let key = session.key;
    if let Some(name) = &session.agent.board {
        return (key, ListName::Board(name.clone()));
    }
    let root = session
        .parent
        .as_ref()
        .map_or(key.session, |parent| parent.root);
    let owner = SessionKey {
        session: root,
        ..key
    };
    (owner, ListName::root_board(root))
}

fn author(session: &SessionRecord) -> String {
    let name = session.agent.name.clone();
    name.unwrap_or_else(|| session.key.session.to_string())
}

fn shown(entries: &[Entry]) -> String {
    if entries.is_empty() {
        return "The board is empty.".to_owned();
    }
    let lines = entries.iter().map(|entry| {
        let kind = entry.kind.as_deref().unwrap_or("note");
        let status = entry.status.as_deref();
        let status = status
            .map(|status| format!("\u{b7}{status}"))
            .unwrap_or_default();
        let author = entry.author.as_deref().unwrap_or("unknown");
        let version = entry.version;
        format!(
            "- #{} [{kind}{status}] ({author}, version {version}) {}",
            entry.id, entry.text
        )
    });
    lines.collect::<Vec<_>>().join("\n")
}
