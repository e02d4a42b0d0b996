//! `write_file`: writes a whole file.

use std::sync::Arc;

use async_trait::async_trait;
use mainspring_shared::tool::Repeat;
use serde::Deserialize;
use serde_json::json;

use crate::files::change::{Whole, write_whole};
use crate::files::work::{arguments, blocking};
use crate::files::workspace::Workspace;
use mainspring_worker::tool::{Concurrency, Invocation, Output, Tool, ToolError, ToolSpec, Traits};

#[derive(Debug)]
pub(crate) struct WriteFile {
    pub(crate) workspace: Arc<Workspace>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    path: String,
    content: String,
    #[serde(default = "yes")]
    overwrite: bool,
}

fn yes() -> bool {
    true
}

#[async_trait]
impl Tool for WriteFile {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "write_file".into(),
            description: "Writes a file in the workspace and creates missing parent directories. \
                          An existing file is overwritten entirely and must have been read before; \
                          use edit_file to change part of it."
                .into(),
            parameters: json!({
                "type": "object",
                "required": ["path", "content"],
                "additionalProperties": false,
                "properties": {
                    "path": {
                        "type": "string",
                        "minLength": 1,
                        "description": "Path relative to the workspace.",
                    },
                    "content": {"type": "string", "description": "The full contents of the file."},
                    "overwrite": {
                        "type": "boolean",
                        "description": "Overwrite an existing file, true by default.",
                    },
                },
            }),
        }
    }

    fn traits(&self) -> Traits {
        Traits {
            concurrency: Concurrency::Exclusive,
            // Writing the same content twice has the same effect as once.
            ..Traits::new(Repeat::Keyed)
        }
    }

    async fn call(&self, invocation: Invocation) -> Result<Output, ToolError> {
        let arguments: Arguments = arguments(invocation.arguments)?;
        let workspace = self.workspace.clone();
        let (session, call_id) = (invocation.session, invocation.call_id);
        blocking(&invocation.stop, move |stop| {
            let session_dir = workspace.session_dir(session)?;
            let whole = Whole {
                path: &arguments.path,
                content: &arguments.content,
                overwrite: arguments.overwrite,
                call_id: &call_id,
            };
            let said = write_whole(&workspace, &session_dir, &whole, stop)?;
            Ok(Output::text(said.clone()).with_digest(said))
        })
        .await
    }
}
