//! A Postgres server that archives its log, and one restored from that archive to a point in time.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use super::standby::succeeded;
use super::{Postgres, as_server_user, find_program, hand_over, wait_for};

/// How long the server may take to archive a log segment, or to restore.
const LIMIT: Duration = Duration::from_mins(1);

/// A base backup, from which a server can be restored together with the archived log.
#[derive(Debug)]
pub struct BaseBackup(tempfile::TempDir);

impl Postgres {
    /// Makes the server archive its log from here on, which takes a restart.
    pub fn archive(&mut self) -> Result<()> {
        let archive = self.archived();
        fs::create_dir(&archive)?;
        hand_over(&archive)?;
        let command = format!("test ! -f {0}/%f && cp %p {0}/%f", archive.display());
        self.query("postgres", "ALTER SYSTEM SET archive_mode = on")?;
        self.query(
            "postgres",
            &format!("ALTER SYSTEM SET archive_command = '{command}'"),
        )?;
        self.restart()
    }

    /// Copies the server's files while it is running.
    pub fn base_backup(&self) -> Result<BaseBackup> {
        let dir = server_folder()?;
        let mut copy = Command::new(find_program("pg_basebackup")?);
        copy.args(["-h", "127.0.0.1", "-U", "postgres", "-p"])
            .arg(self.port.to_string())
            .args(["--checkpoint=fast", "-D"])
            .arg(dir.path().join("data"));
        succeeded("pg_basebackup", &as_server_user(copy).output()?)?;
        Ok(BaseBackup(dir))
    }

    /// Creates a named restore point. When this returns, everything committed so far is archived.
    pub fn restore_point(&self, name: &str) -> Result<()> {
        let made = format!("SELECT pg_walfile_name(pg_create_restore_point('{name}'))");
        let segment = self.query("postgres", &made)?;
        self.query("postgres", "SELECT pg_switch_wal()")?;
        let archive = self.archived();
        wait_for("the archive", LIMIT, || {
            Ok(archive.join(&segment).is_file())
        })
    }

    /// Starts another server from a backup of this one, restored to a named restore point.
    pub fn restored(&self, backup: BaseBackup, point: &str) -> Result<Self> {
        let BaseBackup(dir) = backup;
        let data = dir.path().join("data");
        let archive = self.archived();
        // Of several lines for a setting, the last one applies.
        let settings = [
            "archive_mode = off".to_owned(),
            format!("restore_command = 'cp {}/%f %p'", archive.display()),
            format!("recovery_target_name = '{point}'"),
            "recovery_target_action = promote".to_owned(),
        ];
        let conf = data.join("postgresql.auto.conf");
        let mut conf = File::options().append(true).open(conf)?;
        writeln!(conf, "{}", settings.join("\n"))?;
        let wanted = data.join("recovery.signal");
        File::create(&wanted)?;
        hand_over(&wanted)?;
        let server = Self::started(dir)?;
        wait_for("the restored server", LIMIT, || {
            Ok(server.query("postgres", "SELECT pg_is_in_recovery()")? == "f")
        })?;
        if wanted.exists() {
            bail!("the server did not restore anything");
        }
        Ok(server)
    }

    fn archived(&self) -> PathBuf {
        self.dir.path().join("archive")
    }
}

/// A folder that the server's user owns.
pub(super) fn server_folder() -> Result<tempfile::TempDir> {
    let dir = tempfile::Builder::new()
        .prefix("mainspring-pg-")
        .tempdir()?;
    hand_over(dir.path())?;
    Ok(dir)
}
