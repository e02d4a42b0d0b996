//! `list_dir`: lists a directory.

use std::fmt::Write as _;
use std::sync::Arc;

use async_trait::async_trait;
use cap_std::fs::Dir;
use mainspring_shared::tool::Repeat;
use serde::Deserialize;
use serde_json::json;

use crate::files::work::{arguments, blocking};
use crate::files::workspace::{Workspace, fault};
use crate::words::counted;
use mainspring_worker::tool::{Invocation, Output, Tool, ToolError, ToolSpec, Traits};

/// Entries shown; a directory with more is better searched.
const ENTRIES_SHOWN_MAX: usize = 200;

/// Entries read to find the first ones by name.
const ENTRIES_MAX: usize = 50_000;

#[derive(Debug)]
pub(crate) struct ListDir {
    pub(crate) workspace: Arc<Workspace>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    #[serde(default = "here")]
    path: String,
}

pub(crate) fn here() -> String {
    ".".to_owned()
}

#[async_trait]
impl Tool for ListDir {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "list_dir".into(),
            description: format!(
                "Lists a directory of the workspace: directories first, then files with \
                 their sizes in bytes. Shows at most {ENTRIES_SHOWN_MAX} entries; use \
                 glob to search."
            ),
            parameters: json!({
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "path": {
                        "type": "string",
                        "description": "Path relative to the workspace; the workspace itself by default.",
                    },
                },
            }),
        }
    }

    fn traits(&self) -> Traits {
        Traits::new(Repeat::Safe)
    }

    async fn call(&self, invocation: Invocation) -> Result<Output, ToolError> {
        let Arguments { path } = arguments(invocation.arguments)?;
        let workspace = self.workspace.clone();
        blocking(&invocation.stop, move |_| {
            let (dir, real) = workspace
                .session_dir(invocation.session)?
                .directory(&path)?;
            listing(&path, &real.to_string_lossy(), &dir)
        })
        .await
    }
}

/// The listing of a directory, in words.
pub(crate) fn listing(given: &str, real: &str, dir: &Dir) -> Result<Output, ToolError> {
    let entries = dir.entries().map_err(|error| fault(given, &error))?;
    let (mut directories, mut files) = (Vec::new(), Vec::new());
    let mut more = false;
    for entry in entries {
        // An entry may vanish while its directory is read.
        let Ok(entry) = entry else { continue };
        if directories.len() + files.len() == ENTRIES_MAX {
            more = true;
            break;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => directories.push((format!("{name}/"), None)),
            Ok(kind) if kind.is_symlink() => files.push((format!("{name}@"), None)),
            _ => files.push((name, Some(entry))),
        }
    }
    directories.sort_by(|a, b| a.0.cmp(&b.0));
    files.sort_by(|a, b| a.0.cmp(&b.0));
    let count = directories.len() + files.len();
    if count == 0 {
        return Ok(Output::text(format!("{real} is empty")));
    }
    let mut text = String::new();
    for (name, entry) in directories.iter().chain(&files).take(ENTRIES_SHOWN_MAX) {
        let bytes = entry.as_ref().and_then(|entry| entry.metadata().ok());
        let _ = match bytes {
            Some(kind) => writeln!(text, "{name}  {}", kind.len()),
            None => writeln!(text, "{name}"),
        };
    }
    if more {
        let _ = writeln!(text, "[… more than {ENTRIES_MAX} entries]");
    } else if count > ENTRIES_SHOWN_MAX {
        let _ = writeln!(text, "[… {} more entries]", count - ENTRIES_SHOWN_MAX);
    }
    let digest = format!(
        "listed {given}: {} and {}",
        counted(directories.len(), "directory", "directories"),
        counted(files.len(), "file", "files")
    );
    Ok(Output::text(text).with_digest(digest))
}
