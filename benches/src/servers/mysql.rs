//! A MariaDB server, for tests on MySQL.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::{as_server_user, find_program, hand_over, on_a_free_port, wait_for};

/// A MariaDB server with default durability.
#[derive(Debug)]
pub struct Mysql {
    dir: tempfile::TempDir,
    port: u16,
    child: Option<Child>,
}

impl Mysql {
    /// Creates a data folder and starts the server on it.
    pub fn start() -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("mainspring-my-")
            .tempdir()?;
        hand_over(dir.path())?;
        let mut install = Command::new(find_program("mariadb-install-db")?);
        install
            .arg("--no-defaults")
            .arg(format!("--datadir={}", dir.path().join("data").display()))
            .args(["--auth-root-authentication-method=normal", "--skip-test-db"])
            .current_dir("/");
        let output = as_server_user(install)
            .current_dir("/")
            .output()
            .context("running mariadb-install-db")?;
        if !output.status.success() {
            bail!(
                "mariadb-install-db failed: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        let mut server = Self {
            dir,
            port: 0,
            child: None,
        };
        on_a_free_port(|port| {
            server.port = port;
            server.restart()
        })?;
        Ok(server)
    }

    /// Starts or restarts the server, and waits until it answers.
    pub fn restart(&mut self) -> Result<()> {
        self.stop();
        let log = std::fs::File::create(self.dir.path().join("log"))?;
        let mut command = Command::new(find_program("mariadbd")?);
        let file = |name: &str| self.dir.path().join(name).display().to_string();
        command
            .args([
                "--no-defaults",
                "--bind-address=127.0.0.1",
                "--skip-log-bin",
            ])
            .arg("--max-connections=300")
            .arg(format!("--port={}", self.port))
            .arg(format!("--datadir={}", file("data")))
            .arg(format!("--socket={}", file("socket")));
        let mut command = as_server_user(command);
        command
            .current_dir("/")
            .stdout(Stdio::null())
            .stderr(log)
            .stdin(Stdio::null());
        self.child = Some(command.spawn().context("starting mariadbd")?);
        wait_for("mariadbd", Duration::from_mins(1), || {
            let child = self.child.as_mut().context("it was started")?;
            if let Some(status) = child.try_wait()? {
                bail!("mariadbd ended with {status}");
            }
            // Another server may have taken the port first.
            let folder = self.dir.path().join("data").display().to_string();
            let said = self.query("mysql", "SELECT @@datadir");
            Ok(said.is_ok_and(|said| said.trim_end_matches('/') == folder))
        })
    }

    /// Kills the server, as a crash of its machine would: it recovers at the next start.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// The URL of a database.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("mysql://root@127.0.0.1:{}/{database}", self.port)
    }

    /// Creates a database and returns its URL.
    pub fn create_database(&self, name: &str) -> Result<String> {
        self.query("mysql", &format!("CREATE DATABASE {name}"))?;
        Ok(self.url(name))
    }

    /// Runs SQL and returns its output as psql prints it, unaligned, with ids as hex digits.
    pub fn query(&self, database: &str, sql: &str) -> Result<String> {
        let output = Command::new(find_program("mariadb")?)
            .args(["--no-defaults", "-h127.0.0.1", "-uroot", "-BN"])
            .args(["--binary-as-hex", "-P", &self.port.to_string(), "-e", sql])
            .arg(database)
            .output()?;
        if !output.status.success() {
            bail!("mariadb: {}", String::from_utf8_lossy(&output.stderr));
        }
        let text = String::from_utf8(output.stdout)?;
        let rows = text.trim().lines().map(|row| {
            let cells = row.split('\t').map(|cell| match cell.strip_prefix("0x") {
                Some(digits) => digits.to_lowercase(),
                None => cell.to_owned(),
            });
            cells.collect::<Vec<_>>().join("|")
        });
        Ok(rows.collect::<Vec<_>>().join("\n"))
    }
}

impl Drop for Mysql {
    fn drop(&mut self) {
        self.stop();
    }
}
