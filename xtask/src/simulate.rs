//! Builds the simulation with optimisations, in a folder of its own, and runs it; and the soak.

use std::process::Command;

use crate::{packages, process};

/// Runs simulated worlds; the words are the simulation's own.
pub(crate) fn run(words: &[&str]) -> anyhow::Result<()> {
    process::run(
        Command::new("cargo")
            .args(["run", "--quiet", "--package", "mainspring-tests"])
            .args(["--bin", "simulate", "--profile", "simulate"])
            .args(["--target-dir", "target/simulate", "--"])
            .args(words),
    )
}

/// Does harm to real processes for hours; the words are the soak's own. Servers are the machine's.
pub(crate) fn soak(words: &[&str]) -> anyhow::Result<()> {
    let binary = packages::binary()?;
    process::run(
        Command::new("cargo")
            .args(["run", "--quiet", "--package", "mainspring-tests"])
            .args(["--bin", "soak", "--"])
            .args(words)
            .env("MAINSPRING_TEST_BINARY", binary),
    )
}
