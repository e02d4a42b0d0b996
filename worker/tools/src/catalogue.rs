//! What ships, in a list for people: the names that an agent's `tools` may hold without more.

use mainspring_shared::tool::preset;

/// The presets: names that stand for several tools.
pub const PRESETS: [&str; 3] = ["core", "explore", "full"];

const WORKSPACE: &str = "tools.workspace";
const SHELL: &str = "tools.workspace and tools.shell";
const MEMORY: &str = "the agent's memory";
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
    tool("read_file", WORKSPACE, "reads a file in the workspace"),
    tool("write_file", WORKSPACE, "writes a whole file"),
    tool("edit_file", WORKSPACE, "replaces text in a file"),
    tool("apply_patch", WORKSPACE, "applies diff hunks to a file"),
    tool("list_dir", WORKSPACE, "lists a directory"),
    tool("glob", WORKSPACE, "finds files by path pattern"),
    tool(
        "grep",
        WORKSPACE,
        "searches files with a regular expression",
    ),
    tool("shell", SHELL, "runs a command and waits for it"),
    tool("command_start", SHELL, "starts a command in the background"),
    tool(
        "command_output",
        SHELL,
        "shows the status and output of a background command",
    ),
    tool("command_stop", SHELL, "stops a background command"),
    tool(
        "read_output",
        NOTHING,
        "reads the part of an output that was cut",
    ),
    tool("skill_read", NOTHING, "reads a skill, or a file of it"),
    tool(
        "recall",
        NOTHING,
        "reads earlier messages: by send, by number, by search, or of a child",
    ),
    tool("current_time", NOTHING, "returns the current date and time"),
    tool("pass_turn", NOTHING, "ends the turn without an answer"),
    tool("todo", NOTHING, "maintains the session's to-do list"),
    tool(
        "note_add",
        NOTHING,
        "saves a note for later sends of the session",
    ),
    tool("note_update", NOTHING, "updates a note"),
    tool("note_delete", NOTHING, "deletes a note"),
    tool("note_list", NOTHING, "lists the notes"),
    tool(
        "memory_search",
        MEMORY,
        "searches what the agent remembers beyond the session",
    ),
    tool("memory_save", MEMORY, "remembers something"),
    tool("memory_forget", MEMORY, "forgets an entry of the memory"),
    tool(
        "board_read",
        NOTHING,
        "reads the board shared by the agents of a tree",
    ),
    tool("board_post", NOTHING, "adds an entry to the board"),
    tool("board_update", NOTHING, "updates an entry on the board"),
    tool("board_remove", NOTHING, "removes an entry from the board"),
    tool(
        "schedule_wakeup",
        NOTHING,
        "schedules a wake-up in the same conversation",
    ),
    tool("list_wakeups", NOTHING, "lists the session's wake-ups"),
    tool("cancel_wakeup", NOTHING, "cancels a wake-up"),
    tool(
        "ask_person",
        NOTHING,
        "asks the user and waits for the answer",
    ),
    tool("spawn_agent", NOTHING, "delegates a task to another agent"),
    tool("create_workflow", NOTHING, "runs a workflow"),
    tool(
        "validate_workflow",
        NOTHING,
        "validates a workflow without running it",
    ),
    tool(
        "workflow_status",
        NOTHING,
        "shows the conversation's workflow runs",
    ),
    tool("cancel_workflow", NOTHING, "cancels a workflow run"),
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
