//! `apply_patch`: changes several places of a file at once.

mod apply;
mod parse;

use std::sync::Arc;

use async_trait::async_trait;
use mainspring_shared::tool::Repeat;
use serde::Deserialize;
use serde_json::json;

use crate::files::change::change_text;
use crate::files::work::arguments;
use crate::files::workspace::Workspace;
use mainspring_worker::tool::{Concurrency, Invocation, Output, Tool, ToolError, ToolSpec, Traits};

#[derive(Debug)]
pub(crate) struct ApplyPatch {
    pub(crate) workspace: Arc<Workspace>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    path: String,
    patch: String,
}

#[async_trait]
impl Tool for ApplyPatch {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "apply_patch".into(),
            description: "Applies unified diff hunks to one file of the workspace, all of them or \
                          none. A hunk begins with `@@ -line,count +line,count @@`, or with `@@ \
                          text` where text is a line above the change; the lines after it begin \
                          with ` ` for context, `-` to remove and `+` to add. Give hunks in the \
                          order of the file. Read the file first."
                .into(),
            parameters: json!({
                "type": "object",
                "required": ["path", "patch"],
                "additionalProperties": false,
                "properties": {
                    "path": {
                        "type": "string",
                        "minLength": 1,
                        "description": "Path relative to the workspace.",
                    },
                    "patch": {"type": "string", "minLength": 1, "description": "The hunks."},
                },
            }),
        }
    }

    fn traits(&self) -> Traits {
        Traits {
            concurrency: Concurrency::Exclusive,
            // A patch that only adds lines would apply again.
            ..Traits::new(Repeat::Once)
        }
    }

    async fn call(&self, mut invocation: Invocation) -> Result<Output, ToolError> {
        let given = std::mem::take(&mut invocation.arguments);
        let Arguments { path, patch } = arguments(given)?;
        let named = path.clone();
        change_text(self.workspace.clone(), &invocation, path, move |text| {
            let refused =
                |why: String| ToolError::reply(format!("{why}; nothing was changed in {named}"));
            let hunks = parse::hunks(&patch).map_err(refused)?;
            let applied = apply::apply(text, &hunks).map_err(refused)?;
            Ok((applied.text, format!("{named}: {}", applied.said)))
        })
        .await
    }
}
