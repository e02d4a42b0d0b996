//! Writing the files of skills into a workspace.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cap_std::fs::PermissionsExt as _;
use mainspring_shared::skill::{SKILL_BYTES_MAX, SkillFile, SkillHash};
use mainspring_shared::tool::Repeat;
use mainspring_worker::tool::{Invocation, Output, Tool, ToolError, ToolSpec, Traits};
use serde::Deserialize;
use serde_json::json;

use crate::files::work::{arguments, blocking, stopped};
use crate::files::workspace::{SessionDir, Workspace, read_whole};

/// Places the files of a skill wherever the workspace is: in the worker, or in the child that has
/// it. Models do not call it.
#[derive(Debug)]
pub(crate) struct PlaceFiles {
    pub(crate) workspace: Arc<Workspace>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The version's folder in the workspace.
    folder: String,
    /// All files of the version.
    files: Vec<SkillFile>,
    /// The contents that the call brings along, in base64.
    contents: BTreeMap<String, String>,
}

#[async_trait]
impl Tool for PlaceFiles {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "place_skill_files".into(),
            description: "Places files of a skill into the workspace.".into(),
            parameters: json!({ "type": "object" }),
        }
    }

    fn traits(&self) -> Traits {
        Traits::new(Repeat::Safe)
    }

    async fn call(&self, invocation: Invocation) -> Result<Output, ToolError> {
        let wanted: Arguments = arguments(invocation.arguments)?;
        let workspace = self.workspace.clone();
        let (session, call_id) = (invocation.session, invocation.call_id);
        blocking(&invocation.stop, move |stop| {
            let session_dir = workspace.session_dir(session)?;
            let mut missing = Vec::new();
            for file in &wanted.files {
                if stop.is_cancelled() {
                    return Err(stopped());
                }
                let path = format!("{}/{}", wanted.folder, file.path);
                let target = std::path::Path::new(&path);
                // Two calls of one round may place the same file.
                let _turn = workspace.lock(&session_dir, target);
                if is_there(&session_dir, &path, file) {
                    continue;
                }
                match wanted.contents.get(&file.path) {
                    None => missing.push(file.path.clone()),
                    Some(content) => write(&session_dir, &path, file, content, &call_id)?,
                }
            }
            Ok(Output {
                value: Some(json!(missing)),
                ..Output::default()
            })
        })
        .await
    }
}

/// Whether the file is there exactly as in the version.
fn is_there(session_dir: &SessionDir, path: &str, file: &SkillFile) -> bool {
    let Ok(mut found) = session_dir.file(path) else {
        return false;
    };
    let runs = found
        .open
        .metadata()
        .map(|data| data.permissions().mode() & 0o100 != 0);
    if found.bytes != file.bytes || runs.ok() != Some(file.executable) {
        return false;
    }
    let content = read_whole(&mut found.open, SKILL_BYTES_MAX as u64);
    let content = content.ok().flatten();
    content.is_some_and(|content| SkillHash::of_file(&content) == file.sha256)
}

fn write(
    session_dir: &SessionDir,
    path: &str,
    file: &SkillFile,
    content: &str,
    call_id: &str,
) -> Result<(), ToolError> {
    let content = BASE64_STANDARD.decode(content).ok();
    let content = content.filter(|content| SkillHash::of_file(content) == file.sha256);
    let content = content.ok_or_else(|| {
        ToolError::reply(format!("{path} is not what the skill's version says it is"))
    })?;
    let mode = if file.executable { 0o755 } else { 0o644 };
    session_dir.target(path)?.place(&content, mode, call_id)
}
