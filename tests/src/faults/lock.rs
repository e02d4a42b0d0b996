//! Rows that someone outside the system holds.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Result, ensure};
use mainspring_benches::servers::{Postgres, find_program};

use super::{blocking, pause};

/// A transaction that holds rows of a database until its time is over.
#[derive(Debug)]
pub struct RowLock(Child);

impl RowLock {
    /// Locks what a query selects, which ends in `FOR UPDATE`; returns once it holds the rows.
    pub async fn hold(
        postgres: &Postgres,
        database: &str,
        rows: &str,
        length: Duration,
    ) -> Result<Self> {
        let sql = format!("{rows}; SELECT pg_sleep({})", length.as_secs_f64());
        let mut holder = Command::new(find_program("psql")?)
            .args(["-XAtq", "-d", &postgres.url(database), "-c", &sql])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        let asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        while blocking(|| postgres.query(database, asleep))? != "1" && holder.try_wait()?.is_none()
        {
            pause(Duration::from_millis(5)).await;
        }
        Ok(Self(holder))
    }

    /// Waits for its end; an error where the rows were not held.
    pub fn released(mut self) -> Result<()> {
        ensure!(
            blocking(|| self.0.wait())?.success(),
            "the rows were not held"
        );
        Ok(())
    }
}
