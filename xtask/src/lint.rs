//! Runs every check that is not a test.

use std::process::Command;

use anyhow::bail;

use crate::process::run as start;
use crate::{deny, deps, msrv, process, tools};

/// A check, and its name in failures.
type Check = (&'static str, fn() -> anyhow::Result<()>);

const CHECKS: [Check; 7] = [
    ("formatting", || cargo(&["fmt", "--all", "--check"])),
    ("formatting of the engine's nodes", engine_nodes),
    ("dependencies", deps::run),
    ("bans, licences and sources", deny::check),
    ("the oldest Rust", msrv::check),
    ("clippy", || {
        let warnings = ["--", "-D", "warnings"];
        cargo(&[&["clippy", "--workspace", "--all-targets"], &warnings[..]].concat())
    }),
    ("documentation", || {
        let all = ["--workspace", "--no-deps", "--document-private-items"];
        let mut doc = Command::new("cargo");
        start(doc.arg("doc").args(all).env("RUSTDOCFLAGS", "-D warnings"))
    }),
];

/// Runs every check even after one has failed, so that all failures are reported at once.
pub(crate) fn run() -> anyhow::Result<()> {
    let mut failed = Vec::new();
    for (name, check) in CHECKS {
        if let Err(error) = check() {
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

fn cargo(arguments: &[&str]) -> anyhow::Result<()> {
    start(Command::new("cargo").args(arguments))
}

/// `cargo fmt` does not see modules that a macro declares.
fn engine_nodes() -> anyhow::Result<()> {
    let mut command = Command::new("rustfmt");
    command.args(["--edition", "2024", "--check"]);
    for file in std::fs::read_dir("scheduler/src/engine/nodes")? {
        command.arg(file?.path());
    }
    start(&mut command)
}
