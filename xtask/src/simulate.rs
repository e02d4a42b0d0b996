//! Builds the simulation with optimisations in its own target folder and runs it; and the soak
//! test.

use std::process::Command;

use crate::{packages, process};

/// Runs simulated worlds; the arguments are passed to the simulation.
pub(crate) fn run(words: &[&str]) -> anyhow::Result<()> {
    process::run(
        Command::new("cargo")
            .args(["run", "--quiet", "--package", "mainspring-tests"])
            .args(["--bin", "simulate", "--profile", "simulate"])
            .args(["--target-dir", "target/simulate", "--"])
            .args(words),
    )
}

/// Injects faults into real processes for hours; the arguments are passed to the soak. It uses the
/// machine's server programs.
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
