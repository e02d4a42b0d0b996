//! `glob`: finds files by name.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::sync::Arc;

use async_trait::async_trait;
use cap_std::time::SystemTime;
use mainspring_shared::time::Clock;
use mainspring_shared::tool::Repeat;
use serde::Deserialize;
use serde_json::json;

use crate::files::list_dir::here;
use crate::files::walk::{self, CutShort, Scope, WalkLimits};
use crate::files::work::{arguments, blocking, stopped};
use crate::files::workspace::{SessionDir, Workspace};
use crate::words::counted;
use mainspring_worker::tool::{Invocation, Output, Tool, ToolError, ToolSpec, Traits};

/// Paths shown unless the call sets a limit.
const RESULTS_DEFAULT: usize = 100;

/// Maximum number of paths shown.
const RESULTS_MAX: usize = 500;

/// Number of files that a digest names.
const DIGEST_PATHS: usize = 3;

#[derive(Debug)]
pub(crate) struct Glob {
    pub(crate) workspace: Arc<Workspace>,
    pub(crate) clock: Arc<dyn Clock>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    pattern: String,
    #[serde(default = "here")]
    path: String,
    #[serde(default)]
    max_results: Option<usize>,
    #[serde(default)]
    include_hidden: bool,
    #[serde(default)]
    include_ignored: bool,
}

#[async_trait]
impl Tool for Glob {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "glob".into(),
            description: "Finds files in the workspace by path, newest first. `*` and `?` match \
                          within a name, `**` matches across directories, `{a,b}` matches either. \
                          A pattern without a slash matches in every directory. Skips hidden \
                          files, files ignored by .gitignore, and directories like node_modules \
                          and target, unless they are named or included."
                .into(),
            parameters: json!({
                "type": "object",
                "required": ["pattern"],
                "additionalProperties": false,
                "properties": {
                    "pattern": {"type": "string", "minLength": 1, "description": "Glob pattern, like src/**/*.rs."},
                    "path": {
                        "type": "string",
                        "description": "Directory to search; the workspace by default.",
                    },
                    "max_results": {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": RESULTS_MAX,
                        "description": format!("Maximum number of files, {RESULTS_DEFAULT} by default."),
                    },
                    "include_hidden": {"type": "boolean", "description": "false by default"},
                    "include_ignored": {"type": "boolean", "description": "false by default"},
                },
            }),
        }
    }

    fn traits(&self) -> Traits {
        Traits::new(Repeat::Safe)
    }

    async fn call(&self, invocation: Invocation) -> Result<Output, ToolError> {
        let arguments: Arguments = arguments(invocation.arguments)?;
        let (workspace, clock) = (self.workspace.clone(), self.clock.clone());
        blocking(&invocation.stop, move |stop| {
            let session_dir = workspace.session_dir(invocation.session)?;
            let mut limits = WalkLimits::new(&workspace.limits, clock, stop.clone());
            search(&session_dir, &arguments, &mut limits)
        })
        .await
    }
}

fn search(
    session_dir: &SessionDir,
    wanted: &Arguments,
    limits: &mut WalkLimits,
) -> Result<Output, ToolError> {
    let pattern = walk::pattern(&wanted.pattern)?;
    let mut scope = Scope::new(wanted.include_hidden, wanted.include_ignored);
    scope.name(&wanted.pattern);
    let mut found = Vec::new();
    let cut_short = walk::walk(
        session_dir,
        &wanted.path,
        &scope,
        limits,
        &mut |_, entry| {
            if pattern.is_match(entry.below) {
                let changed = entry.dir.symlink_metadata(entry.name);
                let changed = changed.and_then(|kind| kind.modified()).ok();
                let changed = changed.map(SystemTime::into_std);
                found.push((changed, entry.path.to_string_lossy().into_owned()));
            }
            ControlFlow::Continue(())
        },
    )?;
    if cut_short == Some(CutShort::Stopped) {
        return Err(stopped());
    }
    found.sort_by(|(new, a), (old, b)| old.cmp(new).then_with(|| a.cmp(b)));
    let max = wanted.max_results.unwrap_or(RESULTS_DEFAULT);
    let max = max.min(RESULTS_MAX);
    let mut text = String::new();
    for (_, path) in found.iter().take(max) {
        let _ = writeln!(text, "{path}");
    }
    if found.is_empty() {
        let _ = writeln!(text, "no file matches {}", wanted.pattern);
    } else if found.len() > max {
        let _ = writeln!(text, "[… {} more files]", found.len() - max);
    }
    if let Some(cut_short) = cut_short {
        let _ = writeln!(text, "{}", cut_short.said());
    }
    if found.is_empty() {
        return Ok(Output::text(text));
    }
    let files = counted(found.len(), "file matches", "files match");
    let first: Vec<_> = found
        .iter()
        .take(DIGEST_PATHS)
        .map(|(_, path)| path.as_str())
        .collect();
    let digest = format!("{files} {}: {}", wanted.pattern, first.join(", "));
    Ok(Output::text(text).with_digest(digest))
}
