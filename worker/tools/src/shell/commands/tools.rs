//! The tools through which models use background commands.

use std::sync::Arc;

use async_trait::async_trait;
use mainspring_shared::tool::Repeat;
use mainspring_worker::tool::{Invocation, Tool, ToolSpec, Traits};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{COMMAND_CHARS_MAX, Commands, Reply, TIME, TIME_MAX};
use crate::catalogue::{Listed, SHELL, tool};
use crate::files::list_dir::here;
use crate::files::work::arguments;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Start {
    pub(super) command: String,
    #[serde(default = "here")]
    pub(super) cwd: String,
    #[serde(default)]
    pub(super) timeout: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    #[serde(default)]
    command_id: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Start,
    Output,
    Stop,
}

impl Act {
    fn parameters(self) -> Value {
        let id = json!({"type": "integer", "minimum": 1});
        let (required, properties) = match self {
            Self::Start => (
                json!(["command"]),
                json!({
                    "command": {
                        "type": "string", "minLength": 1, "maxLength": COMMAND_CHARS_MAX,
                    },
                    "cwd": {
                        "type": "string",
                        "description": "Working directory; the workspace by default.",
                    },
                    "timeout": {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": TIME_MAX.as_secs(),
                        "description": format!("Timeout in seconds, {} by default.", TIME.as_secs()),
                    },
                }),
            ),
            Self::Output => (json!([]), json!({"command_id": id})),
            Self::Stop => (json!(["command_id"]), json!({"command_id": id})),
        };
        json!({
            "type": "object",
            "required": required,
            "additionalProperties": false,
            "properties": properties,
        })
    }
}

pub(crate) const TOOLS: [Listed<Arc<Commands>>; 3] = [
    tool(
        "command_start",
        SHELL,
        "starts a command in the background",
        |all| Command::with(all, Act::Start),
    ),
    tool(
        "command_output",
        SHELL,
        "shows the status and output of a background command",
        |all| Command::with(all, Act::Output),
    ),
    tool("command_stop", SHELL, "stops a background command", |all| {
        Command::with(all, Act::Stop)
    }),
];

#[derive(Debug)]
struct Command {
    commands: Arc<Commands>,
    act: Act,
}

impl Command {
    fn with(commands: &Arc<Commands>, act: Act) -> Arc<dyn Tool> {
        let commands = commands.clone();
        Arc::new(Self { commands, act })
    }
}

#[async_trait]
impl Tool for Command {
    fn spec(&self) -> ToolSpec {
        let (name, description) = match self.act {
            Act::Start => (
                "command_start",
                "Starts a command in the workspace in the background; you are notified \
                 when it ends. At most 8 run at a time.",
            ),
            Act::Output => (
                "command_output",
                "Shows the status and output of a background command; without an id, of all of them.",
            ),
            Act::Stop => ("command_stop", "Stops a background command."),
        };
        ToolSpec {
            name: name.into(),
            description: description.into(),
            parameters: self.act.parameters(),
        }
    }

    fn traits(&self) -> Traits {
        Traits::new(match self.act {
            Act::Start => Repeat::Once,
            Act::Output => Repeat::Safe,
            Act::Stop => Repeat::Keyed,
        })
    }

    async fn call(&self, mut invocation: Invocation) -> Reply {
        let given = std::mem::take(&mut invocation.arguments);
        let key = invocation.session;
        match self.act {
            Act::Start => self.commands.start(&invocation, arguments(given)?).await,
            Act::Output => {
                let Which { command_id } = arguments(given)?;
                self.commands.output(key, command_id).await
            }
            Act::Stop => {
                let Which { command_id } = arguments(given)?;
                self.commands
                    .stop(key, command_id.unwrap_or_default())
                    .await
            }
        }
    }
}
