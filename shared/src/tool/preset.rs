//! Presets: names for sets of the workers' tools.

/// Tools that read and change files, run commands and ask people.
pub const CORE: &[&str] = &[
    "read_file",
    "write_file",
    "edit_file",
    "apply_patch",
    "list_dir",
    "glob",
    "grep",
    "shell",
    "read_output",
    "ask_person",
];

/// Read-only tools.
pub const EXPLORE: &[&str] = &[
    "read_file",
    "list_dir",
    "glob",
    "grep",
    "read_output",
    "ask_person",
];

/// All tools.
pub const FULL: &[&str] = &[
    "read_file",
    "write_file",
    "edit_file",
    "apply_patch",
    "list_dir",
    "glob",
    "grep",
    "shell",
    "command_start",
    "command_output",
    "command_stop",
    "read_output",
    "recall",
    "current_time",
    "todo",
    "note_add",
    "note_update",
    "note_delete",
    "note_list",
    "schedule_wakeup",
    "list_wakeups",
    "cancel_wakeup",
    "ask_person",
    "spawn_agent",
];

/// The tools of a preset.
pub fn preset(name: &str) -> Option<&'static [&'static str]> {
    match name {
        "core" => Some(CORE),
        "explore" => Some(EXPLORE),
        "full" => Some(FULL),
        _ => None,
    }
}
