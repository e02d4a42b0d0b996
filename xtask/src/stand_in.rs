//! Runs the chart's pods as processes of this machine, on private servers.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::process::{self, run};
use crate::{chart, packages, postgres, previous, redis, tools};

/// The options of `cargo xtask stand-in`.
#[derive(Debug, Default)]
pub(crate) struct Options<'a> {
    /// The program that the containers run; built if none is given.
    binary: Option<&'a Path>,
    /// The program of the previous release, or `release` to build it. With it, only upgrades from it
    /// and back to it are tested.
    previous: Option<&'a str>,
    /// The number of sends in a burst, which scales the workers out and in. With it, nothing else
    /// is done.
    burst: Option<&'a str>,
    /// The only chapter to run.
    only: Option<&'a str>,
}

/// The chapter that follows docs/guides/production.md.
const WALK: &str = "walk";

/// What stands for the program of the previous release where none is given.
const PREVIOUS: &str = "release";

impl<'a> Options<'a> {
    /// Reads `--binary FILE`, `--previous FILE` or `--previous release`, `--burst COUNT` and `--only CHAPTER`.
    pub(crate) fn parse(words: &[&'a str]) -> anyhow::Result<Self> {
        let mut options = Self::default();
        for pair in words.chunks(2) {
            match *pair {
                ["--binary", file] => options.binary = Some(file.as_ref()),
                ["--previous", file] => options.previous = Some(file),
                ["--burst", count] => options.burst = Some(count),
                ["--only", chapter] => options.only = Some(chapter),
                _ => bail!(
                    "stand-in takes --binary FILE, --previous FILE, --burst COUNT and --only CHAPTER, not {pair:?}"
                ),
            }
        }
        Ok(options)
    }
}

/// Installs the chart on a stand-in for a cluster, which runs the containers' commands, and
/// upgrades, scales, drains and breaks it under load.
pub(crate) fn check(options: &Options<'_>) -> anyhow::Result<()> {
    // From here on a signal is only recorded, so that no server is left behind.
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
    let programs = postgres::find().context("Postgres is missing")?;
    let postgres = postgres::start(&programs)?;
    let redis = redis::start(&redis::find().context("Redis is missing")?)?;
    let program = |name: &str| {
        let mut program = Command::new(&python);
        program.arg(format!("tests/chart/{name}.py"));
        program.arg("--helm").arg(chart::helm(&node));
        program.arg("--binary").arg(&binary);
        program.arg("--postgres").arg(&postgres.url);
        program.arg("--redis").arg(&redis.url);
        program
    };
    // It has its own databases and starts with an empty queue.
    let walk = || run(program(WALK).env("PATH", with(&programs)?));
    if options.only == Some(WALK) {
        return walk();
    }
    let mut cluster = program("cluster");
    if let Some(program) = options.previous {
        cluster.arg("--previous").arg(match program {
            PREVIOUS => previous::binary()?,
            file => PathBuf::from(file),
        });
    }
    if let Some(burst) = options.burst {
        cluster.arg("--burst").arg(burst);
    }
    if let Some(chapter) = options.only {
        cluster.arg("--only").arg(chapter);
    }
    run(&mut cluster)?;
    if (options.previous, options.burst, options.only) == (None, None, None) {
        walk()?;
    }
    Ok(())
}

/// The `PATH` with a server's programs in front.
fn with(programs: &Path) -> anyhow::Result<std::ffi::OsString> {
    let path = tools::variable("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).collect::<Vec<_>>();
    let all = [programs.to_owned()].into_iter().chain(folders);
    Ok(std::env::join_paths(all)?)
}
