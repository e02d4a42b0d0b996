//! Rows locked by a client outside the system.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use mainspring_benches::servers::{Postgres, find_program};

use super::blocking;

/// A transaction that holds row locks until it is released or dropped.
#[derive(Debug)]
pub struct RowLock {
    psql: Child,
    /// The session ends when this is closed.
    input: Option<ChildStdin>,
}

impl RowLock {
    /// Locks the rows selected by a query, which must end in `FOR UPDATE`; returns once it holds them.
    pub fn hold(postgres: &Postgres, database: &str, rows: &str) -> Result<Self> {
        let mut psql = Command::new(find_program("psql")?)
            .args(["-XAtq", "-v", "ON_ERROR_STOP=1"])
            .args(["-d", &postgres.url(database)])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut input = psql.stdin.take().context("psql has an input")?;
        writeln!(input, "BEGIN;\n{rows};\n\\echo held")?;
        let output = psql.stdout.take().context("psql has an output")?;
        let mut lines = BufReader::new(output).lines();
        let held = blocking(|| lines.any(|line| line.is_ok_and(|line| line == "held")));
        ensure!(held, "the rows could not be locked: {rows}");
        Ok(Self {
            psql,
            input: Some(input),
        })
    }

    /// Releases the rows, and waits until they are free.
    pub fn release(self) {
        drop(self);
    }
}

impl Drop for RowLock {
    fn drop(&mut self) {
        self.input = None;
        let _ = blocking(|| self.psql.wait());
    }
}
