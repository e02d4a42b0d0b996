//! A second Postgres server that replicates a first one and takes over from it.

use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::archive::server_folder;
use super::{Postgres, as_server_user, find_program, free_port, wait_for};

/// How long a standby may take to catch up, and to become a primary.
const LIMIT: Duration = Duration::from_mins(1);

impl Postgres {
    /// Starts a standby. From then on a synchronous commit on this server returns only once the
    /// standby has it on disk.
    pub fn standby(&self) -> Result<Self> {
        let dir = server_folder()?;
        let mut copy = Command::new(find_program("pg_basebackup")?);
        copy.args(["-h", "127.0.0.1", "-U", "postgres", "-p"])
            .arg(self.port.to_string())
            // Configured as a standby of this server, from an immediate checkpoint.
            .args(["--write-recovery-conf", "--checkpoint=fast", "-D"])
            .arg(dir.path().join("data"));
        succeeded("pg_basebackup", &as_server_user(copy).output()?)?;
        let mut standby = Self {
            dir,
            port: free_port()?,
            child: None,
        };
        standby.restart()?;
        let follows = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";
        wait_for("the standby", LIMIT, || {
            Ok(self.query("postgres", follows)? == "1")
        })?;
        self.query(
            "postgres",
            "ALTER SYSTEM SET synchronous_standby_names = '*'",
        )?;
        self.query("postgres", "SELECT pg_reload_conf()")?;
        let synchronous = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        wait_for("the standby", LIMIT, || {
            Ok(self.query("postgres", synchronous)? == "1")
        })?;
        Ok(standby)
    }

    /// Promotes a standby, whose primary is gone, to primary.
    pub fn promote(&self) -> Result<()> {
        let promoted = self.query("postgres", "SELECT pg_promote(TRUE, 60)")?;
        if promoted != "t" {
            bail!("the standby did not become a primary");
        }
        Ok(())
    }
}

pub(super) fn succeeded(program: &str, output: &Output) -> Result<()> {
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(anyhow::anyhow!(said)).with_context(|| format!("running {program}"));
    }
    Ok(())
}
