//! What ships, in a list for people: the names that an agent's `tools` may hold without more.

use mainspring_shared::tool::preset;

/// The presets: names that stand for several tools.
pub const PRESETS: [&str; 3] = ["core", "explore", "full"];

const WORKSPACE: &str = "tools.workspace";
const SHELL: &str = "tools.workspace and tools.shell";
const NOTHING: &str = "-";

/// A tool that ships.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuiltIn {
    /// What agents call it.
    pub name: &'static str,
    /// The settings of a worker without which it is not there; `-` where it always is.
    pub needs: &'static str,
    /// What it does, in a line.
    pub does: &'static str,
}

impl BuiltIn {
    /// The presets that hold it.
    pub fn presets(&self) -> impl Iterator<Item = &'static str> {
        let name = self.name;
        PRESETS.into_iter().filter(move |preset_name| {
            preset(preset_name).is_some_and(|names| names.contains(&name))
        })
    }
}

const fn tool(name: &'static str, needs: &'static str, does: &'static str) -> BuiltIn {
    BuiltIn { name, needs, does }
}

/// Every tool that ships.
pub const BUILT_IN: &[BuiltIn] = &[
    tool("read_file", WORKSPACE, "reads a file of the workspace"),
    tool("write_file", WORKSPACE, "writes a file as a whole"),
    tool("edit_file", WORKSPACE, "replaces a text in a file"),
    tool("apply_patch", WORKSPACE, "changes several files by a patch"),
    tool("list_dir", WORKSPACE, "lists a directory"),
    tool("glob", WORKSPACE, "finds files by a pattern of their paths"),
    tool("grep", WORKSPACE, "finds lines by a regular expression"),
    tool("shell", SHELL, "runs a command and waits for its end"),
    tool(
        "command_start",
        SHELL,
        "lets a command run in the background",
    ),
    tool(
        "command_output",
        SHELL,
        "shows how a command in the background stands",
    ),
    tool("command_stop", SHELL, "ends a command in the background"),
    tool(
        "read_output",
        NOTHING,
        "reads what was left out of an output",
    ),
    tool("current_time", NOTHING, "says when it is"),
    tool("todo", NOTHING, "keeps what the session has to do"),
    tool(
        "note_add",
        NOTHING,
        "notes something for later sends of the session",
    ),
    tool("note_update", NOTHING, "changes a note"),
    tool("note_delete", NOTHING, "removes a note"),
    tool("note_list", NOTHING, "lists the notes"),
    tool(
        "board_read",
        NOTHING,
        "reads the board that the agents of a tree share",
    ),
    tool("board_post", NOTHING, "puts an entry on the board"),
    tool("board_update", NOTHING, "changes an entry of the board"),
    tool("board_remove", NOTHING, "removes an entry of the board"),
    tool(
        "schedule_wakeup",
        NOTHING,
        "sets an alarm into the same conversation",
    ),
    tool("list_wakeups", NOTHING, "lists the session's alarms"),
    tool("cancel_wakeup", NOTHING, "ends an alarm"),
    tool(
        "ask_person",
        NOTHING,
        "asks a person and waits for the answer",
    ),
    tool("spawn_agent", NOTHING, "hands a task to another agent"),
    tool("create_workflow", NOTHING, "starts a run of a workflow"),
    tool(
        "validate_workflow",
        NOTHING,
        "checks a workflow without running it",
    ),
    tool("workflow_status", NOTHING, "shows the conversation's runs"),
    tool("cancel_workflow", NOTHING, "ends a run"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_a_preset_is_listed_once() {
        for preset_name in PRESETS {
            for name in preset(preset_name).expect("a preset") {
                let listed = BUILT_IN.iter().filter(|tool| tool.name == *name);
                assert_eq!(listed.count(), 1, "{name} of {preset_name}");
            }
        }
    }
}
