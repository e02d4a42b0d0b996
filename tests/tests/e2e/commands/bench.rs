//! `mainspring bench` runs a separate program.

use std::os::unix::fs::symlink;
use std::process::Command;

use tempfile::TempDir;

use crate::commands::program::{Ended, binary};

/// A folder that contains only the program.
fn alone() -> TempDir {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let program = folder.path().join("mainspring");
    std::fs::hard_link(binary(), program).expect("one file system");
    folder
}

fn bench(folder: &TempDir, arguments: &[&str]) -> Ended {
    let mut command = Command::new(folder.path().join("mainspring"));
    command.env_clear().arg("bench").args(arguments);
    command.output().expect("runs").into()
}

#[test]
fn bench_becomes_the_program_that_stands_beside() {
    let folder = alone();
    let program = folder.path().join("mainspring-bench");
    symlink("/bin/echo", &program).expect("a link");
    let ended = bench(&folder, &["takeover", "--runs", "3", "--short"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
    let own = folder.path().join("mainspring");
    let own = own.canonicalize().expect("it is there");
    assert_eq!(
        ended.stdout,
        format!("takeover --runs 3 --binary {} --short\n", own.display())
    );
    std::fs::remove_file(&program).expect("removed");
    symlink("/bin/false", &program).expect("a link");
    let ended = bench(&folder, &[]);
    assert_eq!((ended.code, ended.stderr.as_str()), (1, ""));
}

#[test]
fn bench_says_where_its_program_comes_from_and_what_it_takes() {
    let folder = alone();
    let ended = bench(&folder, &["start"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (1, ""));
    let how = "cargo build --release -p mainspring-benches";
    assert!(ended.stderr.contains(how), "{}", ended.stderr);
    let ended = bench(&folder, &["--help"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("--binary"), "{}", ended.stdout);
}
