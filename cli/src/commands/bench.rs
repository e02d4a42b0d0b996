//! `mainspring bench`: executes `mainspring-bench`, a separate program that measures this one from
//! outside.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::args::{BenchArgs, Format};
use crate::failure::{Exit, Failure};

/// The measuring program.
const PROGRAM: &str = "mainspring-bench";

/// Replaces this process with the measuring program and these arguments, so that its output and
/// exit code are those of this command.
pub(crate) fn run(args: &BenchArgs, format: Format) -> Result<(), Failure> {
    let own = std::env::current_exe()
        .map_err(|error| Failure::new(Exit::Failure, format!("where am I? {error}")))?;
    let error = command(args, format, &own).exec();
    Err(match error.kind() {
        ErrorKind::NotFound => missing(&own),
        _ => Failure::new(
            Exit::Failure,
            format!("{PROGRAM} could not be started: {error}"),
        ),
    })
}

fn command(args: &BenchArgs, format: Format, own: &Path) -> Command {
    let mut command = Command::new(program(own));
    command.args(&args.workload);
    command.arg("--runs").arg(args.runs.to_string());
    command
        .arg("--binary")
        .arg(args.binary.as_deref().unwrap_or(own));
    if args.short {
        command.arg("--short");
    }
    if format != Format::Table {
        command.args(["--output", "json"]);
    }
    command
}

/// The program next to this one, or else the one on the `PATH`.
fn program(own: &Path) -> PathBuf {
    let beside = own.with_file_name(PROGRAM);
    if beside.is_file() {
        beside
    } else {
        PROGRAM.into()
    }
}

fn missing(own: &Path) -> Failure {
    let folder = own.parent().unwrap_or(own).display();
    let message = format!("there is no {PROGRAM} in {folder} or on the PATH");
    Failure::new(Exit::Failure, message)
        .next("`cargo build --release -p mainspring-benches` makes it, in target/release")
}
