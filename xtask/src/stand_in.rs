//! The chart's pods as processes of this machine, on servers of their own.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use crate::process::{self, run};
use crate::{chart, packages, postgres, redis, tools};

/// What `cargo xtask stand-in` is told.
#[derive(Debug, Default)]
pub(crate) struct Options<'a> {
    /// The program that the containers run; it is built where none is given.
    binary: Option<&'a Path>,
    /// That of the previous release. With it, upgrades from it and back to it are all that is done.
    previous: Option<&'a Path>,
}

impl<'a> Options<'a> {
    /// Reads `--binary FILE` and `--previous FILE`.
    pub(crate) fn parse(words: &[&'a str]) -> anyhow::Result<Self> {
        let mut options = Self::default();
        for pair in words.chunks(2) {
            match *pair {
                ["--binary", file] => options.binary = Some(file.as_ref()),
                ["--previous", file] => options.previous = Some(file.as_ref()),
                _ => bail!("stand-in takes --binary FILE and --previous FILE, not {pair:?}"),
            }
        }
        Ok(options)
    }
}

/// Installs the chart on a stand-in for a cluster, which runs the containers' commands, and upgrades, scales, drains
/// and breaks it under load.
pub(crate) fn check(options: &Options<'_>) -> anyhow::Result<()> {
    // From here on a signal is only noted, so that no server is left behind.
    process::interrupted();
    let (python, node) = (chart::python()?, chart::node()?);
    let binary = match options.binary {
        Some(binary) => binary.to_owned(),
        None => packages::binary()?,
    };
    let mut missing = Vec::new();
    if postgres::find().is_none() {
        missing.push("postgresql");
    }
    if redis::find().is_none() {
        missing.push("redis-server");
    }
    if !missing.is_empty() {
        tools::install(&missing);
    }
    let postgres = postgres::start(&postgres::find().context("Postgres is missing")?)?;
    let redis = redis::start(&redis::find().context("Redis is missing")?)?;
    let mut cluster = Command::new(python);
    cluster.arg("tests/chart/cluster.py");
    cluster.arg("--helm").arg(chart::helm(&node));
    cluster.arg("--binary").arg(binary);
    if let Some(previous) = options.previous {
        cluster.arg("--previous").arg(previous);
    }
    cluster.arg("--postgres").arg(&postgres.url);
    run(cluster.arg("--redis").arg(&redis.url))
}
