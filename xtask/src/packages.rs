//! Programs that checks need, installed from package registries below cargo's target folder.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::process::run;
use crate::tools;

/// The folder that cargo builds in.
pub(crate) fn target() -> anyhow::Result<PathBuf> {
    let folder = tools::variable("CARGO_TARGET_DIR").unwrap_or_else(|| "target".to_owned());
    Ok(std::env::current_dir()?.join(folder))
}

/// Builds the binary. It names the whole workspace and the test profile, so that its dependencies
/// are the ones that tests use: otherwise they would all be compiled twice.
pub(crate) fn binary() -> anyhow::Result<PathBuf> {
    run(Command::new("cargo").args([
        "build",
        "--profile=test",
        "--workspace",
        "--bin=mainspring",
    ]))?;
    Ok(target()?.join("debug/mainspring"))
}

/// The same, and everything that `cargo test` builds, at once: no core waits at the end of the one for the other to begin.
pub(crate) fn binary_and_tests() -> anyhow::Result<()> {
    run(Command::new("cargo").args([
        "build",
        "--profile=test",
        "--workspace",
        "--bin=mainspring",
        "--tests",
        "--examples",
    ]))
}

/// Finds a program; if it is missing, installs these system packages.
pub(crate) fn needed(program: &str, packages: &[&str]) -> anyhow::Result<PathBuf> {
    if tools::program(program).is_none() {
        tools::install(packages);
    }
    tools::program(program).with_context(|| format!("{program} is missing"))
}

/// Runs npm in a folder.
pub(crate) fn npm(folder: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let npm = needed("npm", &["nodejs", "npm"])?;
    run(Command::new(npm).args(arguments).current_dir(folder))
}

/// Installs what the lock file in a folder names, unless npm has done that since it changed. Packages run nothing of
/// theirs meanwhile.
pub(crate) fn npm_locked(folder: &str) -> anyhow::Result<()> {
    let changed = |file: &str| std::fs::metadata(Path::new(folder).join(file))?.modified();
    let lock = changed("package-lock.json")?;
    if changed("node_modules/.package-lock.json").is_ok_and(|installed| installed >= lock) {
        return Ok(());
    }
    let options = ["--no-audit", "--no-fund", "--ignore-scripts", "--silent"];
    npm(folder, &[&["ci"], &options[..]].concat())
}

/// The marker file, written last once a folder has been installed completely.
const COMPLETE: &str = ".complete";

/// The folder with exactly these packages. Other versions use another folder, and an incomplete one
/// is rebuilt.
pub(crate) fn installed(
    work: &Path,
    kind: &str,
    packages: &[&str],
    install: impl Fn(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<PathBuf> {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '.' {
            c
        } else {
            '-'
        }
    };
    let named: String = packages.join("-").chars().map(plain).collect();
    let folder = work.join(format!("{kind}-{named}"));
    let complete = folder.join(COMPLETE);
    if !complete.is_file() {
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        install(&folder)?;
        std::fs::write(complete, "")?;
    }
    Ok(folder)
}

/// Creates a Python environment in a folder and installs what the arguments for pip name.
pub(crate) fn python_environment(folder: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let python = needed("python3", &["python3", "python3-venv"])?;
    let make = || run(Command::new(&python).args(["-m", "venv"]).arg(folder));
    if make().is_err() {
        // Debian may package Python without `venv`.
        tools::install(&["python3-venv"]);
        make()?;
    }
    run(Command::new(folder.join("bin/python"))
        .args(["-m", "pip", "install", "--quiet"])
        .args(arguments))
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn what_was_installed_is_kept_until_it_is_something_else_and_what_was_begun_is_not() {
        let work = tempfile::tempdir().expect("a folder");
        let install = |folder: &Path| {
            anyhow::ensure!(!folder.exists(), "nothing is left there");
            std::fs::create_dir_all(folder)?;
            std::fs::write(folder.join("half"), "")?;
            Ok(())
        };
        let breaks = |folder: &Path| {
            install(folder)?;
            bail!("interrupted")
        };
        let keeps = |_: &Path| bail!("it is there already");
        let packages = ["@types/node@20", "made==1.0"];
        installed(work.path(), "some", &packages, breaks).expect_err("it is not finished");
        let made = installed(work.path(), "some", &packages, install).expect("made anew");
        assert!(made.join("half").is_file());
        assert_eq!(made.parent(), Some(work.path()));
        let same = installed(work.path(), "some", &packages, keeps).expect("kept");
        assert_eq!(same, made);
        let other = installed(work.path(), "some", &["made==1.1"], install).expect("made");
        assert_ne!(other, made);
    }
}
