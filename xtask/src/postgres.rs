//! A private Postgres.
//!
//! It leaves flushing to the operating system: no test of its suites cuts the power. Tests that
//! crash a Postgres, and benchmarks, start other servers with default durability.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::server::{self, Server};
use crate::{scratch, tools};

/// Connections for tests that run concurrently, each with its own pools.
const CONNECTIONS: u32 = 300;

/// The folder with the programs of the newest Postgres on this machine.
pub(crate) fn find() -> Option<PathBuf> {
    let on_path = tools::program("initdb").and_then(|initdb| {
        let real = initdb.canonicalize().ok()?;
        Some(real.parent()?.to_owned())
    });
    // Debian keeps them off the path, one folder per version.
    let mut folders: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    folders.sort();
    let folders = folders.into_iter().rev().map(|(_, folder)| folder);
    on_path.into_iter().chain(folders).find(|folder| {
        ["initdb", "postgres"]
            .iter()
            .all(|name| folder.join(name).is_file())
    })
}

/// Starts a server on a free port, in its own folder.
pub(crate) fn start(programs: &Path) -> anyhow::Result<Server> {
    let user = unprivileged_user()?;
    let folder = tempfile::Builder::new()
        .prefix("mainspring-postgres-")
        .tempdir_in(scratch::folder())?;
    let data = folder.path().join("data");
    std::fs::create_dir(&data)?;
    if let Some(user) = user {
        // We keep the folder itself, so that we can remove it; others may only pass through.
        let mode = Command::new("chmod")
            .arg("711")
            .arg(folder.path())
            .status()?;
        let owner = Command::new("chown")
            .arg(format!("{user}:"))
            .arg(&data)
            .status()?;
        if !mode.success() || !owner.success() {
            bail!("{} cannot be given to {user}", data.display());
        }
    }
    let output = server::command(user, "KILL", &programs.join("initdb"))
        .args([
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "-D",
        ])
        .arg(&data)
        .output()
        .context("initdb does not start")?;
    if !output.status.success() {
        bail!(
            "initdb failed:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let port = tools::free_port()?.to_string();
    let mut command = server::command(user, "QUIT", &programs.join("postgres"));
    command.arg("-D").arg(&data).args(["-p", &port]);
    for setting in [
        "listen_addresses=127.0.0.1".to_owned(),
        "unix_socket_directories=".to_owned(),
        format!("max_connections={CONNECTIONS}"),
        "fsync=off".to_owned(),
        "full_page_writes=off".to_owned(),
    ] {
        command.args(["-c", &setting]);
    }
    // Server-only packages lack the client programs; another version's will do.
    let is_ready = programs.join("pg_isready");
    let is_ready = if is_ready.is_file() {
        is_ready
    } else {
        tools::program("pg_isready").context("pg_isready is missing")?
    };
    let ready = || {
        let mut question = Command::new(&is_ready);
        question.args(["-q", "-h", "127.0.0.1", "-p", &port, "-U", "postgres"]);
        question
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
    Server::start("Postgres", url, folder, "-QUIT", command, ready)
}

/// The user to run Postgres as, because it refuses to run as root.
fn unprivileged_user() -> anyhow::Result<Option<&'static str>> {
    if !tools::is_root() {
        return Ok(None);
    }
    let user = ["postgres", "nobody"]
        .into_iter()
        .find(|user| tools::has_user(user));
    user.map(Some)
        .context("no user to run Postgres as: neither postgres nor nobody exists")
}
