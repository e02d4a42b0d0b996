//! `read_file`: returns a page of a text file.

use std::io::{self, Read as _};
use std::sync::Arc;

use async_trait::async_trait;
use mainspring_shared::tool::Repeat;
use serde::Deserialize;
use serde_json::json;

use crate::files::list_dir::listing;
use crate::files::page::{self, Page};
use crate::files::stamps::Digest;
use crate::files::text::is_binary;
use crate::files::work::{arguments, blocking};
use crate::files::workspace::{File, SessionDir, Workspace, fault, read_whole};
use mainspring_worker::tool::{Invocation, Output, Tool, ToolError, ToolSpec, Traits};

/// Lines of a page unless the call sets a limit.
const LINES_DEFAULT: usize = 2_000;

/// Maximum number of lines of a page.
const LINES_MAX: usize = 20_000;

#[derive(Debug)]
pub(crate) struct ReadFile {
    pub(crate) workspace: Arc<Workspace>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    path: String,
    #[serde(default)]
    offset: Option<usize>,
    #[serde(default)]
    limit: Option<usize>,
}

#[async_trait]
impl Tool for ReadFile {
    fn spec(&self) -> ToolSpec {
        let max = self.workspace.limits.file_bytes_max;
        ToolSpec {
            name: "read_file".into(),
            description: format!(
                "Reads a text file of the workspace. Each line is shown as its number, a \
                 bar and its text. Long files are paged: the first line of the result \
                 says how to continue. Files larger than {max} bytes require `limit`. \
                 Read a file before you change it."
            ),
            parameters: json!({
                "type": "object",
                "required": ["path"],
                "additionalProperties": false,
                "properties": {
                    "path": {
                        "type": "string",
                        "minLength": 1,
                        "description": "Path relative to the workspace.",
                    },
                    "offset": {
                        "type": "integer",
                        "minimum": 1,
                        "description": "First line to show, 1 by default.",
                    },
                    "limit": {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": LINES_MAX,
                        "description": format!("Number of lines to show, {LINES_DEFAULT} by default."),
                    },
                },
            }),
        }
    }

    fn traits(&self) -> Traits {
        Traits::new(Repeat::Safe)
    }

    async fn call(&self, invocation: Invocation) -> Result<Output, ToolError> {
        let arguments: Arguments = arguments(invocation.arguments)?;
        let workspace = self.workspace.clone();
        blocking(&invocation.stop, move |_| {
            let session_dir = workspace.session_dir(invocation.session)?;
            read(&workspace, &session_dir, &arguments)
        })
        .await
    }
}

fn read(
    workspace: &Workspace,
    session_dir: &SessionDir,
    arguments: &Arguments,
) -> Result<Output, ToolError> {
    let given = &arguments.path;
    // A model that reads a directory wants its listing.
    if let Ok((dir, real)) = session_dir.directory(given) {
        return listing(given, &real.to_string_lossy(), &dir);
    }
    let mut file = session_dir.file(given)?;
    let limits = &workspace.limits;
    let wanted = page::Wanted {
        first: arguments.offset.unwrap_or(1).max(1),
        lines: arguments.limit.unwrap_or(LINES_DEFAULT).min(LINES_MAX),
        chars: limits.read_chars_max,
        scan_bytes: limits.scan_bytes_max,
    };
    let whole = read_whole(&mut file.open, limits.file_bytes_max);
    let page = match whole.map_err(|error| fault(given, &error))? {
        Some(bytes) => {
            if is_binary(&bytes) {
                return Err(not_text(given, bytes.len() as u64));
            }
            // Recorded even if only a part is shown: the session can ask for the rest, and the
            // stamp is there to detect changes that others make from now on.
            let digest = Digest::of(&bytes);
            workspace
                .stamps
                .note(session_dir.session(), &file.real, digest);
            Page::read(bytes.as_slice(), &wanted)
        }
        None if arguments.limit.is_none() => {
            return Err(ToolError::reply(format!(
                "{given} has {} bytes; read it in pages, with offset and limit, or search it",
                file.bytes
            )));
        }
        None => large(given, session_dir, &wanted)?,
    };
    let page = page.map_err(|error| fault(given, &error))?;
    let shown = page.show(given, &wanted).map_err(ToolError::reply)?;
    let head = shown.lines().next().unwrap_or_default();
    let head = head.split_once(';').map_or(head, |(head, _)| head);
    let digest = format!("read {head}");
    Ok(Output::text(shown).with_digest(digest))
}

/// A page of a file that is too large to hold in memory.
fn large(
    given: &str,
    session_dir: &SessionDir,
    wanted: &page::Wanted,
) -> Result<io::Result<Page>, ToolError> {
    let File {
        mut open, bytes, ..
    } = session_dir.file(given)?;
    let sample = page::sample(&mut open).map_err(|error| fault(given, &error))?;
    if is_binary(&sample) {
        return Err(not_text(given, bytes));
    }
    let whole = io::Cursor::new(sample).chain(open);
    Ok(Page::read(whole, wanted))
}

fn not_text(given: &str, bytes: u64) -> ToolError {
    ToolError::reply(format!("{given} is not a text file ({bytes} bytes)"))
}
