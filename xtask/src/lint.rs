//! Everything that can be wrong without a test failing.

use std::process::Command;

use anyhow::bail;

use crate::{deps, process, tools};

/// Runs every check, also after one has failed, so that all is known at once.
pub(crate) fn run() -> anyhow::Result<()> {
    let cargo = |arguments: &[&str]| {
        let mut command = Command::new("cargo");
        command.args(arguments);
        command
    };
    let mut doc = cargo(&[
        "doc",
        "--workspace",
        "--no-deps",
        "--document-private-items",
    ]);
    doc.env("RUSTDOCFLAGS", "-D warnings");
    let clippy = &[
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ];
    let mut failed = Vec::new();
    let checks: [(&str, Option<Command>); 5] = [
        ("formatting", Some(cargo(&["fmt", "--all", "--check"]))),
        ("formatting of the engine's nodes", Some(engine_nodes()?)),
        ("dependencies", None),
        ("clippy", Some(cargo(clippy))),
        ("documentation", Some(doc)),
    ];
    for (name, command) in checks {
        let result = match command {
            Some(mut command) => process::run(&mut command),
            None => deps::run(),
        };
        if let Err(error) = result {
            tools::say(&format!("xtask: {error:#}"));
            failed.push(name);
        }
        if process::interrupted() {
            bail!("interrupted");
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    bail!("failed: {}", failed.join(", "))
}

/// `cargo fmt` does not see modules that a macro declares.
fn engine_nodes() -> anyhow::Result<Command> {
    let mut command = Command::new("rustfmt");
    command.args(["--edition", "2024", "--check"]);
    for file in std::fs::read_dir("scheduler/src/engine/nodes")? {
        command.arg(file?.path());
    }
    Ok(command)
}
