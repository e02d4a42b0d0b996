//! Which tools are offered under which settings, and what each tool declares.

use std::fmt::Write as _;
use std::sync::Arc;

use mainspring_runtime::{Environment, SystemClock};
use mainspring_shared::tool::{CORE, EXPLORE, FULL};
use serde_json::json;

use super::bed::{Bed, files};
use crate::builtin::{
    ENVIRONMENT_DEFAULT, Settings, Shell, Template, WorkspaceSettings, allowed, register,
};
use mainspring_worker::tool::{Tools, ToolsError};

fn names(settings: Settings) -> Result<Vec<String>, ToolsError> {
    let mut tools = Tools::default();
    register(settings, Arc::new(SystemClock::new()), &mut tools)?;
    Ok(tools.names().map(str::to_owned).collect())
}

const FILES: [&str; 7] = [
    "apply_patch",
    "edit_file",
    "glob",
    "grep",
    "list_dir",
    "read_file",
    "write_file",
];

#[test]
fn without_a_workspace_there_are_no_files_and_no_shell() {
    assert_eq!(
        names(Settings::default()),
        Ok(vec!["current_time".to_owned(), "pass_turn".to_owned()])
    );
    let fault = names(Settings {
        shell: Shell::Local,
        ..Settings::default()
    });
    assert!(matches!(fault, Err(ToolsError::Settings { .. })));
}

#[test]
fn the_shell_is_off_unless_it_is_granted() {
    let dir = tempfile::tempdir().expect("a directory");
    let off = names(files(dir.path().join("new/root"))).expect("registers");
    assert!(!off.contains(&"shell".to_owned()));
    for name in FILES {
        assert!(off.contains(&name.to_owned()), "{name}");
    }
    let on = names(Settings {
        shell: Shell::Local,
        ..files(dir.path().to_owned())
    });
    assert!(on.expect("registers").contains(&"shell".to_owned()));
}

#[test]
fn a_worker_that_cannot_do_as_it_is_told_does_not_start() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("file");
    std::fs::write(&file, "").expect("writes");
    let template = |argv: &[&str]| Settings {
        shell: Shell::Template(Template {
            argv: argv.iter().map(|word| (*word).to_owned()).collect(),
            cleanup: Vec::new(),
        }),
        ..files(dir.path().to_owned())
    };
    for settings in [
        files(file),
        template(&[]),
        template(&["no-such-sandbox", "{workspace}", "{command}"]),
        template(&["sh", "-c", "{command}"]),
    ] {
        let fault = names(settings).expect_err("is refused");
        assert!(matches!(fault, ToolsError::Settings { .. }), "{fault}");
    }
}

#[test]
fn presets_name_what_there_is_and_exploring_changes_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut all = names(Settings {
        shell: Shell::Local,
        workspace: Some(WorkspaceSettings::shared(dir.path())),
        ..Settings::default()
    })
    .expect("registers");
    // Executed outside.
    all.extend(["ask_person", "spawn_agent"].map(str::to_owned));
    // Kept in a store, and so registered elsewhere.
    let stored = [
        "schedule_wakeup",
        "list_wakeups",
        "cancel_wakeup",
        "todo",
        "read_output",
        "recall",
    ];
    all.extend(stored.map(str::to_owned));
    all.extend(crate::memory::NOTE_TOOLS.map(str::to_owned));
    // Sessions are told when these end, which also requires a store.
    all.extend(["command_start", "command_output", "command_stop"].map(str::to_owned));
    for name in CORE.iter().chain(EXPLORE).chain(FULL) {
        assert!(all.contains(&(*name).to_owned()), "{name}");
    }
    // Whether an agent may end its turn without an answer is up to its author.
    all.retain(|name| name != "pass_turn");
    assert!(
        all.iter().all(|name| FULL.contains(&name.as_str())),
        "{all:?}"
    );
    assert!(CORE.iter().chain(EXPLORE).all(|name| FULL.contains(name)));
    for name in [
        "shell",
        "write_file",
        "edit_file",
        "apply_patch",
        "spawn_agent",
    ] {
        assert!(!EXPLORE.contains(&name), "{name}");
    }
}

#[tokio::test]
async fn what_models_are_told_is_always_the_same() {
    let bed = Bed::new(|root| Settings {
        shell: Shell::Local,
        ..files(root)
    })
    .await;
    let mut text = String::new();
    for spec in bed.offers().specs() {
        let tool = bed.tool(&spec.name);
        let traits = tool.traits();
        let parameters = serde_json::to_string_pretty(&spec.parameters).expect("serializes");
        let _ = writeln!(
            text,
            "{}: {}, {:?}, {:?}, {} s, {} characters\n{}\n{parameters}\n",
            spec.name,
            traits.repeat.as_str(),
            traits.concurrency,
            traits.on_interrupt,
            traits.timeout.as_secs(),
            traits.output_chars_max,
            spec.description,
        );
    }
    insta::assert_snapshot!(text);
}

#[test]
fn commands_see_what_is_allowed_and_no_more() {
    let environment = Environment::from_pairs(
        [
            ("PATH", "/bin"),
            ("LANG", "C"),
            ("OPENAI_API_KEY", "k"),
            ("LD_PRELOAD", "x"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned())),
    );
    let seen = allowed(&environment, ENVIRONMENT_DEFAULT.iter().copied());
    let names: Vec<&String> = seen.keys().collect();
    assert_eq!(names, ["LANG", "PATH"]);
}

#[tokio::test]
async fn the_time_is_told_in_any_zone() {
    let bed = Bed::files().await;
    let told = bed.call("current_time", json!({})).await;
    assert!(told.ends_with("+00:00 (UTC)"), "{told}");
    let told = bed
        .call("current_time", json!({"timezone": "Asia/Kolkata"}))
        .await;
    assert!(told.ends_with("+05:30 (Asia/Kolkata)"), "{told}");
    let told = bed
        .refused("current_time", json!({"timezone": "Mars/Olympus"}))
        .await;
    assert!(
        told.starts_with("Mars/Olympus is not a time zone"),
        "{told}"
    );
}
