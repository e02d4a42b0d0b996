//! The folder in which tests and their servers write.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::tools;

/// The usual in-memory folder.
const MEMORY: &str = "/dev/shm";

/// Bytes that must be free there, and in memory overall: tests write up to 2 GiB at a time, and a
/// linker needs the rest.
const FREE_MIN: u64 = 8 << 30;

/// The folder for throwaway data of tests and their servers: in memory if there is room, unless
/// `TMPDIR` names one. Creating a database there takes a sixth of the time that it takes on a disk,
/// and the tests of the stores spend most of their time on that.
pub(crate) fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let named = tools::variable("TMPDIR").is_some();
        let room = || available().is_some_and(|free| free >= FREE_MIN);
        if !named && room() && tempfile::tempfile_in(MEMORY).is_ok() {
            return PathBuf::from(MEMORY);
        }
        std::env::temp_dir()
    })
}

/// Bytes that can be written to the in-memory folder.
fn available() -> Option<u64> {
    let output = Command::new("df").args(["-Pk", MEMORY]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let in_folder: u64 = text
        .lines()
        .nth(1)?
        .split_whitespace()
        .nth(3)?
        .parse()
        .ok()?;
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find(|line| line.starts_with("MemAvailable:"))?;
    let in_memory: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(in_folder.min(in_memory) << 10)
}
