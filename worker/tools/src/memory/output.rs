//! The full text of an output that the model was shown in part.

use std::sync::Arc;

use async_trait::async_trait;
use mainspring_shared::error::Code;
use mainspring_shared::tool::Repeat;
use serde::Deserialize;
use serde_json::json;

use super::shared::{self, MemoryTools};
use mainspring_worker::tool::{Effect, Invocation, Output, Tool, ToolError, ToolSpec, Traits};

/// Characters of one page unless the model sets a limit.
const LIMIT_DEFAULT: usize = 20_000;

/// Maximum characters of one page; below the limit at which an output would itself be cut.
const LIMIT_MAX: usize = 40_000;

#[derive(Debug, Deserialize)]
struct Arguments {
    call_id: String,
    #[serde(default)]
    offset: usize,
    #[serde(default)]
    limit: Option<usize>,
}

/// `read_output`: a page of the output of one of this session's calls.
#[derive(Debug)]
pub(super) struct ReadOutput {
    pub(super) shared: Arc<MemoryTools>,
}

#[async_trait]
impl Tool for ReadOutput {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "read_output".into(),
            description: "Reads the truncated part of a tool's output. The note in the output \
                          names the call. Offsets count characters from the start of the full \
                          output."
                .into(),
            parameters: json!({
                "type": "object",
                "required": ["call_id"],
                "additionalProperties": false,
                "properties": {
                    "call_id": {"type": "string", "minLength": 1, "maxLength": 200},
                    "offset": {"type": "integer", "minimum": 0},
                    "limit": {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX},
                },
            }),
        }
    }

    fn traits(&self) -> Traits {
        Traits {
            effect: Effect::ReadBack,
            ..Traits::new(Repeat::Safe)
        }
    }

    async fn call(&self, invocation: Invocation) -> Result<Output, ToolError> {
        let Arguments {
            call_id,
            offset,
            limit,
        } = shared::arguments(invocation.arguments)?;
        let Some(whole) = self.shared.output(invocation.session, &call_id).await? else {
            return Err(ToolError::Reply {
                code: Code::CallNotFound,
                message: format!("no output of {call_id:?} is stored for this conversation"),
            });
        };
        let chars = whole.chars().count();
        let limit = limit.unwrap_or(LIMIT_DEFAULT).min(LIMIT_MAX);
        let page: String = whole.chars().skip(offset).take(limit).collect();
        let end = offset.saturating_add(page.chars().count());
        let head = if offset >= chars {
            format!("[the output has {chars} characters, none after {offset}]")
        } else if end < chars {
            format!("[characters {offset} to {end} of {chars}; continue with offset {end}]")
        } else {
            format!("[characters {offset} to {end} of {chars}, the end]")
        };
        let digest = format!("read characters {offset} to {end} of {chars} of {call_id}");
        Ok(Output::text(format!("{head}\n{page}")).with_digest(digest))
    }
}
