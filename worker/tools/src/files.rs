//! Tools for the files of a session's workspace. No path from a model can leave the workspace, not
//! even through symbolic links.

pub(crate) mod apply_patch;
pub(crate) mod change;
pub(crate) mod diff;
pub(crate) mod edit_file;
pub(crate) mod glob;
pub(crate) mod grep;
pub(crate) mod leftovers;
pub(crate) mod list_dir;
pub(crate) mod page;
pub(crate) mod read_file;
pub(crate) mod stamps;
pub(crate) mod text;
pub(crate) mod walk;
pub(crate) mod work;
pub(crate) mod workspace;
pub(crate) mod write_file;

use std::sync::Arc;

use mainspring_shared::time::Clock;

use self::workspace::Workspace;
use crate::catalogue::{Listed, WORKSPACE, tool};

/// State that the tools of a workspace share.
pub(crate) struct FileTools {
    pub(crate) workspace: Arc<Workspace>,
    pub(crate) clock: Arc<dyn Clock>,
}

pub(crate) const TOOLS: [Listed<FileTools>; 7] = [
    tool(
        "read_file",
        WORKSPACE,
        "reads a file in the workspace",
        |place| {
            Arc::new(read_file::ReadFile {
                workspace: place.workspace.clone(),
            })
        },
    ),
    tool("write_file", WORKSPACE, "writes a whole file", |place| {
        Arc::new(write_file::WriteFile {
            workspace: place.workspace.clone(),
        })
    }),
    tool("edit_file", WORKSPACE, "replaces text in a file", |place| {
        Arc::new(edit_file::EditFile {
            workspace: place.workspace.clone(),
        })
    }),
    tool(
        "apply_patch",
        WORKSPACE,
        "applies diff hunks to a file",
        |place| {
            Arc::new(apply_patch::ApplyPatch {
                workspace: place.workspace.clone(),
            })
        },
    ),
    tool("list_dir", WORKSPACE, "lists a directory", |place| {
        Arc::new(list_dir::ListDir {
            workspace: place.workspace.clone(),
        })
    }),
    tool("glob", WORKSPACE, "finds files by path pattern", |place| {
        Arc::new(glob::Glob {
            workspace: place.workspace.clone(),
            clock: place.clock.clone(),
        })
    }),
    tool(
        "grep",
        WORKSPACE,
        "searches files with a regular expression",
        |place| {
            Arc::new(grep::Grep {
                workspace: place.workspace.clone(),
                clock: place.clock.clone(),
            })
        },
    ),
];
