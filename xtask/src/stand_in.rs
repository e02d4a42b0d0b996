//! The chart's pods as processes of this machine, on servers of their own.

use std::path::Path;
use std::process::Command;

use anyhow::Context;

use crate::process::{self, run};
use crate::{chart, packages, postgres, redis, tools};

/// Installs the chart on a stand-in for a cluster, which runs the containers' commands, and upgrades, scales, drains
/// and breaks it under load. `binary` is the program that they run; it is built where none is given.
pub(crate) fn check(binary: Option<&Path>) -> anyhow::Result<()> {
    // From here on a signal is only noted, so that no server is left behind.
    process::interrupted();
    let (python, node) = (chart::python()?, chart::node()?);
    let binary = match binary {
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
    cluster.arg("--postgres").arg(&postgres.url);
    run(cluster.arg("--redis").arg(&redis.url))
}
