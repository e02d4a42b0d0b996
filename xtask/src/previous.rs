//! The program of the previous release, from which upgrades are tested.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::packages::{self, installed};
use crate::process::run;

/// Builds the program of the newest release before what is checked out; before the first release, of the last commit that
/// landed. It is built once.
pub(crate) fn binary() -> anyhow::Result<PathBuf> {
    let revision = revision(Path::new("."))?;
    let work = packages::target()?.join("previous");
    std::fs::create_dir_all(&work)?;
    let folder = installed(&work, "at", &[&revision], |folder| {
        let source = folder.join("source");
        run(Command::new("git").args(["worktree", "prune"]))?;
        run(Command::new("git")
            .args(["worktree", "add", "--force", "--detach"])
            .arg(&source)
            .arg(&revision))?;
        // What several revisions have in common is compiled once.
        run(Command::new("cargo")
            .args(["build", "--locked", "--release", "--package=mainspring-cli"])
            .env("CARGO_TARGET_DIR", work.join("target"))
            .current_dir(&source))?;
        std::fs::copy(
            work.join("target/release/mainspring"),
            folder.join("mainspring"),
        )?;
        run(Command::new("git")
            .args(["worktree", "remove", "--force"])
            .arg(&source))
    })?;
    Ok(folder.join("mainspring"))
}

/// The commit of the newest tag `v…` that this one descends from and is not; else what the remote's main branch has, or
/// if that is this one, its parent.
fn revision(repository: &Path) -> anyhow::Result<String> {
    let git = |arguments: &[&str]| -> anyhow::Result<String> {
        let output = Command::new("git")
            .current_dir(repository)
            .args(arguments)
            .output()?;
        ensure!(
            output.status.success(),
            "git {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    };
    let head = git(&["rev-parse", "HEAD"])?;
    let tags = git(&[
        "tag",
        "--list",
        "v*",
        "--merged",
        "HEAD",
        "--no-contains",
        "HEAD",
        "--sort=-version:refname",
    ])?;
    if let Some(tag) = tags.lines().next() {
        return git(&["rev-parse", &format!("{tag}^{{commit}}")]);
    }
    let landed = git(&[
        "rev-parse",
        "--verify",
        "--quiet",
        "refs/remotes/origin/main",
    ]);
    match landed {
        Ok(landed) if landed != head => Ok(landed),
        _ => git(&["rev-parse", "HEAD^"]).context("nothing was there before the first commit"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_release_before_this_one_is_the_previous_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let git = |arguments: &[&str]| {
            let output = Command::new("git")
                .current_dir(folder.path())
                .args([
                    "-c",
                    "user.name=t",
                    "-c",
                    "user.email=t@t",
                    "-c",
                    "tag.gpgSign=false",
                ])
                .args(arguments)
                .output()
                .expect("git");
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout)
                .expect("text")
                .trim()
                .to_owned()
        };
        let commit = |name: &str| {
            git(&[
                "commit",
                "--quiet",
                "--allow-empty",
                "--no-gpg-sign",
                "-m",
                name,
            ]);
            git(&["rev-parse", "HEAD"])
        };
        git(&["init", "--quiet"]);
        let first = commit("first");
        revision(folder.path()).expect_err("there is none");
        let second = commit("second");
        assert_eq!(revision(folder.path()).expect("its parent"), first);
        git(&["update-ref", "refs/remotes/origin/main", &second]);
        assert_eq!(revision(folder.path()).expect("its parent"), first);
        git(&["tag", "v0.9.0"]);
        assert_eq!(
            revision(folder.path()).expect("its parent"),
            first,
            "it is this one"
        );
        let third = commit("third");
        assert_eq!(revision(folder.path()).expect("a release"), second);
        git(&["tag", "--annotate", "v0.10.0", "-m", "a release"]);
        git(&["tag", "another"]);
        commit("fourth");
        assert_eq!(revision(folder.path()).expect("a release"), third);
    }
}
