//! Code shared by the tools that change files: they change only what the session has read.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::files::diff::unified;
use crate::files::stamps::{Digest, Known};
use crate::files::text::Editable;
use crate::files::work::blocking;
use crate::files::workspace::{Present, SessionDir, Workspace};
use mainspring_worker::tool::{Invocation, Output, ToolError};

/// Changes an existing text file: `change` gets its text and returns the new text and a sentence
/// that says what was done.
pub(crate) async fn change_text(
    workspace: Arc<Workspace>,
    invocation: &Invocation,
    path: String,
    change: impl FnOnce(&str) -> Result<(String, String), ToolError> + Send + 'static,
) -> Result<Output, ToolError> {
    let (session, call_id) = (invocation.session, invocation.call_id.clone());
    blocking(&invocation.stop, move |stop| {
        let session_dir = workspace.session_dir(session)?;
        // Resolved first, because resolving a write target would create the directories on its
        // path.
        let real = session_dir.file(&path)?.real;
        let target = session_dir.target(&path)?;
        let _alone = workspace.lock(&session_dir, &real);
        let Some(present) = target.read(workspace.limits.file_bytes_max)? else {
            return Err(ToolError::reply(format!("{path} does not exist")));
        };
        require_seen(&workspace, &session_dir, &path, target.real(), &present)?;
        let editable = Editable::of(&path, &present.bytes)?;
        let (text, done) = change(editable.text)?;
        if text == editable.text {
            return Err(ToolError::reply(format!("nothing changes in {path}")));
        }
        let difference = unified(&path, editable.text, &text);
        let content = editable.with(&text);
        let content = content.as_bytes();
        check_size(&workspace, content)?;
        target.put(content, Some(&present), &call_id, stop)?;
        let digest = Digest::of(content);
        workspace
            .stamps
            .note(session_dir.session(), target.real(), digest);
        Ok(Output::text(format!("{done}\n{difference}")).with_digest(done))
    })
    .await
}

/// Writes a whole file. Idempotent.
pub(crate) fn write_whole(
    workspace: &Workspace,
    session_dir: &SessionDir,
    wanted: &Whole<'_>,
    stop: &CancellationToken,
) -> Result<String, ToolError> {
    let Whole { path, content, .. } = *wanted;
    check_size(workspace, content.as_bytes())?;
    let target = session_dir.target(path)?;
    let _alone = workspace.lock(session_dir, target.real());
    let present = target.read(workspace.limits.file_bytes_max)?;
    let digest = Digest::of(content.as_bytes());
    let said = match &present {
        // This is also what a repeat of the call finds after a crash.
        Some(present) if present.digest == digest => format!("{path} has this content"),
        Some(_) if !wanted.overwrite => {
            return Err(ToolError::reply(format!("{path} exists already")));
        }
        Some(before) => {
            require_seen(workspace, session_dir, path, target.real(), before)?;
            target.put(content.as_bytes(), Some(before), wanted.call_id, stop)?;
            let (now, was) = (content.len(), before.bytes.len());
            format!("{path} is written: {now} bytes instead of {was}")
        }
        None => {
            target.put(content.as_bytes(), None, wanted.call_id, stop)?;
            format!("{path} is made: {} bytes", content.len())
        }
    };
    workspace
        .stamps
        .note(session_dir.session(), target.real(), digest);
    Ok(said)
}

/// A file to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Whole<'a> {
    pub(crate) path: &'a str,
    pub(crate) content: &'a str,
    /// Whether an existing file with other content may be replaced.
    pub(crate) overwrite: bool,
    pub(crate) call_id: &'a str,
}

fn require_seen(
    workspace: &Workspace,
    session_dir: &SessionDir,
    given: &str,
    real: &std::path::Path,
    present: &Present,
) -> Result<(), ToolError> {
    let known = workspace
        .stamps
        .known(session_dir.session(), real, present.digest);
    let why = match known {
        Known::Current => return Ok(()),
        Known::Outdated => "has changed since you read it: read it again",
        Known::Unread => {
            "must be read first (also if you read it long ago, or before this session moved to \
             another worker)"
        }
    };
    Err(ToolError::reply(format!(
        "{given} {why}; nothing was written"
    )))
}

fn check_size(workspace: &Workspace, content: &[u8]) -> Result<(), ToolError> {
    let max = workspace.limits.file_bytes_max;
    if content.len() as u64 > max {
        return Err(ToolError::reply(format!(
            "the file would have {} bytes, more than {max}; nothing was written",
            content.len()
        )));
    }
    Ok(())
}
