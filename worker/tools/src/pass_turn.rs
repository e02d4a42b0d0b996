//! `pass_turn`: lets a model that has nothing to say end its turn.

use std::sync::Arc;

use async_trait::async_trait;
use mainspring_shared::tool::Repeat;
use serde::Deserialize;
use serde_json::json;

use crate::catalogue::{Listed, NOTHING, tool};
use crate::files::work::arguments;
use mainspring_worker::tool::{Effect, Invocation, Output, Tool, ToolError, ToolSpec, Traits};

pub(crate) const TOOLS: [Listed<()>; 1] = [tool(
    "pass_turn",
    NOTHING,
    "ends the turn without an answer",
    |()| Arc::new(PassTurn),
)];

/// Ends the send. The kernel does that; the call itself only reports it.
#[derive(Debug)]
struct PassTurn;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    #[serde(default)]
    reason: Option<String>,
}

#[async_trait]
impl Tool for PassTurn {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "pass_turn".into(),
            description: "Ends your turn without an answer. Use it when nothing needs to be said: the \
                          message was not for you, the work is done and reported already, or you wait \
                          for something that will be delivered to you."
                .into(),
            parameters: json!({
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "reason": {
                        "type": "string",
                        "maxLength": 500,
                        "description": "Reason, for readers of the transcript.",
                    },
                },
            }),
        }
    }

    fn traits(&self) -> Traits {
        Traits {
            effect: Effect::PassTurn,
            ..Traits::new(Repeat::Safe)
        }
    }

    async fn call(&self, invocation: Invocation) -> Result<Output, ToolError> {
        let Arguments { reason } = arguments(invocation.arguments)?;
        Ok(Output::text(match reason {
            Some(reason) => format!("The turn ends: {reason}"),
            None => "The turn ends.".to_owned(),
        }))
    }
}
