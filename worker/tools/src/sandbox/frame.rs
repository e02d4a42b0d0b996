//! The protocol between a worker and its child: one JSON object per line.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use mainspring_shared::error::Code;
use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::message::ContentPart;
use mainspring_shared::tool::{Asked, DeclaredTool, Inquiry, Repeat};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _};

use super::outside::WireCell;
use crate::settings::{Limits, Shell, Template};

/// Maximum bytes of a line, which bounds a call's arguments and its output.
const LINE_BYTES_MAX: usize = 32 << 20;

/// What a child is started with.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Begin {
    pub(crate) token: String,
    /// The session's directory; none if workers have no workspace.
    pub(crate) root: Option<PathBuf>,
    pub(crate) shell: WireShell,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) limits: Limits,
    /// Limits and settings for the child of an isolated agent; other children make no calls to the
    /// outside.
    #[serde(default)]
    pub(crate) cell: Option<WireCell>,
}

/// How commands run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WireShell {
    Off,
    Local,
    Template {
        argv: Vec<String>,
        cleanup: Vec<String>,
    },
}

impl WireShell {
    pub(crate) fn of(shell: &Shell) -> Result<Self, String> {
        match shell {
            Shell::Off => Ok(Self::Off),
            Shell::Local => Ok(Self::Local),
            Shell::Template(Template { argv, cleanup }) => Ok(Self::Template {
                argv: argv.clone(),
                cleanup: cleanup.clone(),
            }),
            Shell::Backend(_) => {
                Err("a shell of one's own does not go into another process".to_owned())
            }
        }
    }

    pub(crate) fn shell(self) -> Shell {
        match self {
            Self::Off => Shell::Off,
            Self::Local => Shell::Local,
            Self::Template { argv, cleanup } => Shell::Template(Template { argv, cleanup }),
        }
    }
}

/// A frame to the child.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum ToChild {
    Call {
        token: String,
        id: u64,
        tool: String,
        /// How the agent declares the tool, if the worker has none of that name.
        #[serde(default)]
        declared: Option<Box<DeclaredTool>>,
        call_id: String,
        arguments: Box<Map<String, Value>>,
        /// See [`Invocation::said`](mainspring_worker::tool::Invocation::said).
        #[serde(default)]
        said: Option<String>,
        session: SessionKey,
        send_id: SendId,
        attempt: i32,
        /// What it has asked before, if it may ask.
        #[serde(default)]
        asked: Option<Vec<Asked>>,
    },
    Stop {
        token: String,
        id: u64,
    },
    /// Asks which tools an entry of the agent's list stands for.
    List {
        token: String,
        id: u64,
        declared: Box<DeclaredTool>,
    },
}

/// A frame from the child.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum FromChild {
    Ready {
        token: String,
    },
    Done {
        token: String,
        id: u64,
        content: Vec<ContentPart>,
        value: Option<Value>,
        #[serde(default)]
        failed: bool,
    },
    Failed {
        token: String,
        id: u64,
        code: Code,
        message: String,
    },
    Aborted {
        token: String,
        id: u64,
        message: String,
    },
    Asks {
        token: String,
        id: u64,
        inquiry: Box<Inquiry>,
    },
    Listed {
        token: String,
        id: u64,
        tools: Vec<WireTool>,
    },
    Away {
        token: String,
        id: u64,
        which: String,
        why: String,
    },
}

/// A tool that the child knows and the worker does not.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WireTool {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) parameters: Value,
    pub(crate) repeat: Repeat,
    pub(crate) timeout: Duration,
}

impl FromChild {
    /// Its token, and the id of the call that it answers.
    pub(crate) fn about(&self) -> (&str, Option<u64>) {
        match self {
            Self::Ready { token } => (token, None),
            Self::Done { token, id, .. }
            | Self::Failed { token, id, .. }
            | Self::Asks { token, id, .. }
            | Self::Aborted { token, id, .. }
            | Self::Listed { token, id, .. }
            | Self::Away { token, id, .. } => (token, Some(*id)),
        }
    }
}

/// Encodes a frame as a line; fails if it is longer than the other side accepts.
pub(crate) fn line(frame: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(frame)?;
    if line.len() >= LINE_BYTES_MAX {
        let detail = format!("{} bytes are more than the sandbox takes", line.len());
        return Err(io::Error::other(detail));
    }
    line.push(b'\n');
    Ok(line)
}

/// The next line, or `None` at the end. If this is dropped, a partial line stays in `held`.
pub(crate) async fn next_line(
    from: &mut (impl AsyncBufRead + Unpin),
    held: &mut Vec<u8>,
) -> io::Result<Option<Vec<u8>>> {
    loop {
        let piece = from.fill_buf().await?;
        if piece.is_empty() {
            return Ok(None);
        }
        let end = piece.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(piece.len(), |end| end + 1);
        held.extend_from_slice(&piece[..taken]);
        from.consume(taken);
        if held.len() > LINE_BYTES_MAX {
            return Err(io::Error::other("a line is longer than any may be"));
        }
        if end.is_some() {
            return Ok(Some(std::mem::take(held)));
        }
    }
}
