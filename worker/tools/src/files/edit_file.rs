//! `edit_file`: replaces a text in a file with another.

mod replace;

use std::sync::Arc;

use async_trait::async_trait;
use mainspring_shared::tool::Repeat;
use serde::Deserialize;
use serde_json::json;

use crate::files::change::change_text;
use crate::files::work::{arguments, invalid};
use crate::files::workspace::Workspace;
use mainspring_worker::tool::{Concurrency, Invocation, Output, Tool, ToolError, ToolSpec, Traits};

#[derive(Debug)]
pub(crate) struct EditFile {
    pub(crate) workspace: Arc<Workspace>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    path: String,
    old_text: String,
    new_text: String,
    #[serde(default)]
    replace_all: bool,
}

#[async_trait]
impl Tool for EditFile {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "edit_file".into(),
            description: "Replaces text in a file of the workspace and shows the diff. old_text \
                          must match the file exactly, and exactly once unless replace_all is set: \
                          include enough surrounding lines to make it unique. Read the file first."
                .into(),
            parameters: json!({
                "type": "object",
                "required": ["path", "old_text", "new_text"],
                "additionalProperties": false,
                "properties": {
                    "path": {
                        "type": "string",
                        "minLength": 1,
                        "description": "Path relative to the workspace.",
                    },
                    "old_text": {
                        "type": "string",
                        "minLength": 1,
                        "description": "The text to replace, without line numbers.",
                    },
                    "new_text": {"type": "string", "description": "The replacement text."},
                    "replace_all": {
                        "type": "boolean",
                        "description": "Replace every occurrence, false by default.",
                    },
                },
            }),
        }
    }

    fn traits(&self) -> Traits {
        Traits {
            concurrency: Concurrency::Exclusive,
            // The new text may well contain the old one, so a repeat could replace it again.
            ..Traits::new(Repeat::Once)
        }
    }

    async fn call(&self, mut invocation: Invocation) -> Result<Output, ToolError> {
        let given = std::mem::take(&mut invocation.arguments);
        let Arguments {
            path,
            old_text,
            new_text,
            replace_all,
        } = arguments(given)?;
        if old_text.is_empty() {
            return Err(invalid("old_text is empty: there is nothing to look for"));
        }
        let named = path.clone();
        change_text(self.workspace.clone(), &invocation, path, move |text| {
            let replaced = replace::replace(text, &old_text, &new_text, replace_all);
            let (text, places) = replaced.map_err(|fault| fault.said_of(&named))?;
            let places = match places {
                1 => "1 place".to_owned(),
                n => format!("{n} places"),
            };
            Ok((text, format!("{named} is changed in {places}")))
        })
        .await
    }
}
