//! Collects all output into files: rows, Redis keys, metrics, archives.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use mainspring_benches::process::Process;
use mainspring_benches::servers::{Postgres, Redis, find_program};
use mainspring_tests::faults::blocking;

use super::api::Api;
use super::settings::DATABASE;

/// Records every command that Redis gets, until dropped.
#[derive(Debug)]
pub(super) struct Monitor(Child);

impl Monitor {
    pub(super) fn start(redis: &Redis, out: &Path) -> Result<Self> {
        let folder = out.join("redis");
        std::fs::create_dir_all(&folder)?;
        let address = redis.url();
        let child = Command::new(find_program("redis-cli")?)
            .args(["-u", &address, "MONITOR"])
            .stdin(Stdio::null())
            .stdout(File::create(folder.join("commands"))?)
            .spawn()?;
        Ok(Self(child))
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes every row of every table.
pub(super) fn database(postgres: &Postgres, out: &Path) -> Result<()> {
    let folder = out.join("database");
    std::fs::create_dir_all(&folder)?;
    let tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'";
    let tables = blocking(|| postgres.query(DATABASE, tables))?;
    for table in tables.lines() {
        let rows = format!("SELECT t::text FROM \"{table}\" t");
        let rows = blocking(|| postgres.query(DATABASE, &rows))?;
        std::fs::write(folder.join(table), rows)?;
    }
    Ok(())
}

/// Writes every Redis key with its value.
pub(super) fn redis(redis: &Redis, out: &Path) -> Result<()> {
    let keys = blocking(|| redis.command(&["--scan"]))?;
    let mut text = String::new();
    for key in keys.lines() {
        let kind = blocking(|| redis.command(&["TYPE", key]))?;
        let read: &[&str] = match kind.as_str() {
            "hash" => &["HGETALL", key],
            "list" => &["LRANGE", key, "0", "-1"],
            "set" => &["SMEMBERS", key],
            "stream" => &["XRANGE", key, "-", "+"],
            "zset" => &["ZRANGE", key, "0", "-1", "WITHSCORES"],
            _ => &["GET", key],
        };
        for part in [key, &blocking(|| redis.command(read))?] {
            text.push_str(part);
            text.push('\n');
        }
    }
    std::fs::write(out.join("redis/keys"), text)?;
    Ok(())
}

/// Writes the metrics of each process.
pub(super) async fn metrics(
    processes: &[&Process],
    root_keys: &[String],
    out: &Path,
) -> Result<()> {
    for process in processes {
        // Schedulers show metrics only to their operators.
        for key in root_keys {
            let api = Api::new(process.url(), key, out)?;
            let authorization = format!("Bearer {key}");
            let text = api.text("/metrics", &authorization).await?;
            api.write("metrics", &text)?;
        }
    }
    Ok(())
}

/// Asserts that processes leave no core dumps, which would contain all their secrets, and cannot
/// re-enable them.
pub(super) fn no_cores(processes: &[&Process]) -> Result<()> {
    for process in processes {
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", process.pid()))?;
        let line = limits
            .lines()
            .find(|line| line.starts_with("Max core file size"));
        let line = line.context("a limit of cores")?;
        let bounds: Vec<_> = line.split_whitespace().skip(4).take(2).collect();
        ensure!(bounds == ["0", "0"], "{}: {line}", process.name);
    }
    Ok(())
}

/// Writes what an image, and every other package, contains of this build: the program. The rest are documents
/// (`xtask/src/package/image.rs`).
pub(super) fn image(program: &Path, out: &Path) -> Result<()> {
    let folder = out.join("image");
    std::fs::create_dir_all(&folder)?;
    std::fs::copy(program, folder.join("mainspring"))?;
    Ok(())
}

/// Writes sessions, runs and agents as archives.
pub(super) async fn archives(api: &Api, session: &str, out: &Path) -> Result<()> {
    let folder = out.join("archives");
    std::fs::create_dir_all(&folder)?;
    let runs = api.get("/v1/runs").await?;
    let run = runs["data"][0]["id"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let authorization = format!("Bearer {}", api.key());
    for (name, path) in [
        ("session", format!("/v1/sessions/{session}/export")),
        ("run", format!("/v1/runs/{run}/export")),
    ] {
        let text = api.text(&path, &authorization).await?;
        std::fs::write(folder.join(name), text)?;
    }
    Ok(())
}
