//! A private MariaDB for the MySQL tests. It leaves flushing to the operating system, as no test
//! cuts the power.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::server::{self, Server};
use crate::{scratch, tools};

/// Connections for tests that run concurrently, each with its own pools.
const CONNECTIONS: u32 = 300;

/// The server, if it and the program that creates its data folder are installed.
pub(crate) fn find() -> Option<PathBuf> {
    tools::program("mariadb-install-db")?;
    tools::program("mariadb")?;
    tools::program("mariadbd").or_else(|| {
        let debian = PathBuf::from("/usr/sbin/mariadbd");
        debian.is_file().then_some(debian)
    })
}

/// Starts a server on a free port, in its own folder.
pub(crate) fn start(program: &Path) -> anyhow::Result<Server> {
    let user = unprivileged_user()?;
    let folder = tempfile::Builder::new()
        .prefix("mainspring-mariadb-")
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
    let install = tools::program("mariadb-install-db").context("mariadb-install-db is missing")?;
    let output = server::command(user, "KILL", &install)
        .arg("--no-defaults")
        .arg(format!("--datadir={}", data.display()))
        .args(["--auth-root-authentication-method=normal", "--skip-test-db"])
        .output()
        .context("mariadb-install-db does not start")?;
    if !output.status.success() {
        bail!(
            "mariadb-install-db failed:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let port = tools::free_port()?.to_string();
    let mut command = server::command(user, "QUIT", program);
    command
        .arg("--no-defaults")
        .arg(format!("--datadir={}", data.display()))
        .arg(format!("--socket={}", data.join("socket").display()))
        .arg(format!("--port={port}"))
        .args(["--bind-address=127.0.0.1", "--skip-log-bin"])
        .args([
            "--innodb-flush-method=nosync",
            "--innodb-flush-log-at-trx-commit=2",
        ])
        .arg(format!("--max-connections={CONNECTIONS}"));
    let ready = || {
        let mut question = Command::new("mariadb");
        question.args(["--no-defaults", "-h127.0.0.1", "-uroot", "-eSELECT 1"]);
        question
            .arg(format!("-P{port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    let url = format!("mysql://root@127.0.0.1:{port}/");
    Server::start("MariaDB", url, folder, "-KILL", command, ready)
}

/// The user to run MariaDB as, because it refuses to run as root.
fn unprivileged_user() -> anyhow::Result<Option<&'static str>> {
    if !tools::is_root() {
        return Ok(None);
    }
    let user = ["mysql", "nobody"]
        .into_iter()
        .find(|user| tools::has_user(user));
    user.map(Some)
        .context("no user to run MariaDB as: neither mysql nor nobody exists")
}
