//! Runs every test, with every server that is available.

use std::path::PathBuf;
use std::process::Command;

use anyhow::bail;

use crate::server::Server;
use crate::{mysql, packages, postgres, process, redis, scratch, tools};

pub(crate) const POSTGRES_URL: &str = "MAINSPRING_TEST_POSTGRES_URL";
/// How many tests run at once.
const THREADS: &str = "RUST_TEST_THREADS";

/// Most tests with servers and processes wait for them: with one for each core, the cores were idle for two thirds of the
/// fault tests.
const THREADS_PER_CORE: usize = 2;

const MYSQL_URL: &str = "MAINSPRING_TEST_MYSQL_URL";
pub(crate) const REDIS_URL: &str = "MAINSPRING_TEST_REDIS_URL";

/// What to run.
#[derive(Debug)]
pub(crate) struct Options {
    /// Fail if a server is missing instead of skipping its tests.
    pub(crate) require_all: bool,
    /// Passed to `cargo test`.
    pub(crate) cargo_arguments: Vec<String>,
    /// Runs while the tests do, once they are built.
    pub(crate) beside: Option<fn() -> anyhow::Result<()>>,
}

/// A server for tests: a given one, one of our own, or none.
enum Given {
    Url(String),
    Own(Server),
    Missing(&'static str),
}

impl Given {
    fn url(&self) -> Option<&str> {
        match self {
            Self::Url(url) => Some(url),
            Self::Own(server) => Some(&server.url),
            Self::Missing(_) => None,
        }
    }
}

/// Builds the binary, then runs the tests of the whole workspace.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    // From here on a signal is only recorded, so that no server is left behind.
    process::interrupted();
    let mut missing = Vec::new();
    if tools::variable(POSTGRES_URL).is_none() && postgres::find().is_none() {
        missing.push("postgresql");
    }
    if tools::variable(MYSQL_URL).is_none() && mysql::find().is_none() {
        missing.push("mariadb-server");
    }
    if tools::variable(REDIS_URL).is_none() && redis::find().is_none() {
        missing.push("redis-server");
    }
    if tools::program("pgbouncer").is_none() {
        missing.push("pgbouncer");
    }
    if tools::program("openssl").is_none() {
        missing.push("openssl");
    }
    if tools::program("curl").is_none() {
        missing.extend(["curl", "ca-certificates"]);
    }
    if options.require_all && tools::program("npm").is_none() {
        missing.push("npm");
    }
    if !missing.is_empty() {
        tools::install(&missing);
    }
    if options.require_all && tools::program("npm").is_none() {
        bail!("npm cannot be found or installed, and --require-all asks for it");
    }
    let postgres = obtain(POSTGRES_URL, "Postgres", postgres::find, postgres::start)?;
    let mysql = obtain(MYSQL_URL, "MariaDB", mysql::find, mysql::start)?;
    let redis = obtain(REDIS_URL, "Redis", redis::find, redis::start)?;
    let missing: Vec<&str> = [&postgres, &mysql, &redis]
        .into_iter()
        .filter_map(|given| {
            if let Given::Missing(name) = given {
                Some(*name)
            } else {
                None
            }
        })
        .collect();
    if !missing.is_empty() && options.require_all {
        bail!(
            "{} cannot be found or installed, and --require-all asks for it",
            missing.join(", ")
        );
    }
    // Built up front, because tests start the binary. Where checks run beside the tests, so are these: cargo holds the lock
    // of its target folder only while it builds.
    if options.beside.is_some() {
        packages::binary_and_tests()?;
    } else {
        packages::binary()?;
    }
    let mut command = Command::new("cargo");
    command
        .args(["test", "--workspace"])
        .args(&options.cargo_arguments)
        .env("TMPDIR", scratch::folder());
    for (name, given) in [
        (POSTGRES_URL, &postgres),
        (MYSQL_URL, &mysql),
        (REDIS_URL, &redis),
    ] {
        match given.url() {
            Some(url) => command.env(name, url),
            None => command.env_remove(name),
        };
    }
    if tools::variable(THREADS).is_none() {
        let cores = std::thread::available_parallelism()?.get();
        command.env(THREADS, (THREADS_PER_CORE * cores).to_string());
    }
    if missing.is_empty() {
        command.env("REQUIRE_STORES", "all");
    }
    // Then nothing is skipped, and a package that npm cannot fetch fails its tests as well.
    if options.require_all {
        command.env("REQUIRE_NPM", "1");
    }
    let result = match options.beside {
        Some(other) => with(&mut command, other),
        None => tests(&mut command),
    };
    drop((postgres, mysql, redis));
    for name in missing {
        tools::say(&format!(
            "xtask: SKIPPED every test that needs {name}: install it, or name a server in {}",
            match name {
                "Postgres" => POSTGRES_URL,
                "MariaDB" => MYSQL_URL,
                _ => REDIS_URL,
            }
        ));
    }
    result
}

fn tests(command: &mut Command) -> anyhow::Result<()> {
    repeated(process::run_noting(command, Failures::default().notes()))
}

/// The tests, which are built, and something else.
fn with(command: &mut Command, other: fn() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let other = std::thread::spawn(other);
    let tests = process::run_noting(command, Failures::default().notes());
    let other = other.join().unwrap_or_else(|_| bail!("it panicked"));
    repeated(tests).and(other)
}

/// What failed, after everything else that was printed.
fn repeated((result, noted): (anyhow::Result<()>, Vec<String>)) -> anyhow::Result<()> {
    if result.is_err() {
        for line in noted {
            tools::say(&format!("xtask: {line}"));
        }
    }
    result
}

/// Lines repeated after the location of a panic: the message, and what an assertion compared.
const LINES_OF_A_PANIC: usize = 3;

/// Selects the lines of `cargo test` that say what failed, where and why.
#[derive(Default)]
struct Failures {
    /// How many more lines belong to the last panic.
    left: usize,
}

impl Failures {
    fn notes(mut self) -> impl FnMut(&str) -> bool {
        move |line| self.is_noted(line)
    }

    fn is_noted(&mut self, line: &str) -> bool {
        if line.starts_with("test ") && line.ends_with(" ... FAILED") {
            return true;
        }
        if line.starts_with("thread '") && line.contains("panicked at") {
            self.left = LINES_OF_A_PANIC;
            return true;
        }
        let ends = line.is_empty() || line == "stack backtrace:" || line.starts_with("note: ");
        let is_noted = self.left > 0 && !ends;
        self.left = if ends { 0 } else { self.left.saturating_sub(1) };
        is_noted
    }
}

fn obtain(
    variable: &str,
    name: &'static str,
    find: impl Fn() -> Option<PathBuf>,
    start: impl Fn(&std::path::Path) -> anyhow::Result<Server>,
) -> anyhow::Result<Given> {
    if let Some(url) = tools::variable(variable) {
        return Ok(Given::Url(url));
    }
    let Some(program) = find() else {
        return Ok(Given::Missing(name));
    };
    // A port that was free may be taken by the time the server binds it.
    let mut last = None;
    for _ in 0..3 {
        match start(&program) {
            Ok(server) => return Ok(Given::Own(server)),
            Err(error) if process::interrupted() => return Err(error),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| anyhow::anyhow!("{name} does not start")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_are_repeated_with_where_and_why() {
        let output = [
            (
                true,
                "test file::a_migration_says_which_programs_still_work ... FAILED",
            ),
            (
                false,
                "test file::a_migration_says_which_programs_still_work ... ok",
            ),
            (
                true,
                "thread 'file::a_migration_says_which' (305) panicked at tests/tests/store/sqlite/file.rs:241:13:",
            ),
            (true, "assertion `left == right` failed: 3 migrations"),
            (true, "  left: 1"),
            (true, " right: 2"),
            (false, "stack backtrace:"),
            (false, "   0: core::panicking::panic_fmt"),
            (true, "thread 'main' (7) panicked at src/a.rs:1:1:"),
            (true, "it must not"),
            (false, "note: run with `RUST_BACKTRACE=1`"),
            (false, "test result: FAILED. 31 passed; 1 failed; 1 ignored"),
        ];
        let mut failures = Failures::default();
        for (expected, line) in output {
            assert_eq!(failures.is_noted(line), expected, "{line}");
        }
    }
}
