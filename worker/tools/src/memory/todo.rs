//! `todo`: the session's to-do list.

use std::sync::Arc;

use async_trait::async_trait;
use mainspring_shared::error::Code;
use mainspring_shared::list::{
    Bounds, Change, ListName, NewEntry, TODO_CHARS_MAX, TODO_COMPLETED, TODO_IN_PROGRESS, TODO_MAX,
    WhenFull, todo_text,
};
use mainspring_shared::tool::Repeat;
use serde::Deserialize;
use serde_json::json;

use super::shared::{MemoryTools, arguments};
use mainspring_worker::tool::{Effect, Invocation, Output, Tool, ToolError, ToolSpec, Traits};

#[derive(Debug)]
pub(super) struct Todo {
    pub(super) shared: Arc<MemoryTools>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    #[serde(default)]
    items: Option<Vec<Item>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    text: String,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    #[default]
    Pending,
    InProgress,
    Completed,
}

impl Status {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::InProgress => TODO_IN_PROGRESS,
            Self::Completed => TODO_COMPLETED,
        }
    }
}

const BOUNDS: Bounds = Bounds {
    entries_max: TODO_MAX,
    chars_max: TODO_CHARS_MAX,
    when_full: WhenFull::Reject,
};

#[async_trait]
impl Tool for Todo {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "todo".into(),
            description:
                "Maintains your to-do list. With `items`, replaces the whole list: always \
                          give all items, with at most one in progress. Without `items`, shows the \
                          list."
                    .into(),
            parameters: json!({
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "items": {
                        "type": "array",
                        "maxItems": TODO_MAX,
                        "items": {
                            "type": "object",
                            "required": ["text"],
                            "additionalProperties": false,
                            "properties": {
                                "text": {"type": "string", "minLength": 1},
                                "status": {"enum": ["pending", "in_progress", "completed"]},
                            },
                        },
                    },
                },
            }),
        }
    }

    fn traits(&self) -> Traits {
        Traits {
            effect: Effect::RecallTodo,
            ..Traits::new(Repeat::Keyed)
        }
    }

    async fn call(&self, mut invocation: Invocation) -> Result<Output, ToolError> {
        let Arguments { items } = arguments(std::mem::take(&mut invocation.arguments))?;
        let key = invocation.session;
        let name = ListName::Todo(key.session);
        let list = match items {
            None => self.shared.read(key.tenant, name).await?,
            Some(items) => {
                let begun = items
                    .iter()
                    .filter(|item| item.status == Status::InProgress);
                if begun.count() > 1 {
                    return Err(ToolError::Reply {
                        code: Code::ToolInvalidArguments,
                        message: "at most one item may be in progress".into(),
                    });
                }
                let entries = items.into_iter().map(|item| NewEntry {
                    text: item.text,
                    status: Some(item.status.as_str().to_owned()),
                    ..NewEntry::default()
                });
                let change = Change::Replace(entries.collect());
                let written = self.shared.write(&invocation, key, name, change, BOUNDS);
                written.await?.1
            }
        };
        let shown = todo_text(&list.entries);
        let last = shown.lines().last().unwrap_or_default();
        let digest = format!("the to-do list {last}");
        Ok(Output::text(shown).with_digest(digest))
    }
}
