//! `mainspring-bench`, which `mainspring bench` executes. It measures that program from outside,
//! and is not part of it.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, ValueEnum};
use mainspring_benches::{Options, WORKLOADS};
use mimalloc::MiMalloc;
use serde_json::{Value, json};

/// On the same machine, load generation takes processor time from what is measured, so keep it
/// cheap.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The command or its settings are invalid; the same exit code as in `mainspring`.
const USAGE: u8 = 2;

/// Runs a benchmark; prints one line of JSON per measurement
#[derive(Debug, Parser)]
#[command(name = "mainspring-bench", version)]
struct Args {
    /// The workload; without one, lists the workloads
    workload: Option<String>,
    /// Runs per measurement; the median is reported
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// The `mainspring` to measure; the one beside this program by default
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Runs briefly to check that the workload works; its figures mean nothing
    #[arg(long)]
    short: bool,
    /// How a failure is told
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    output: Format,
}

/// How a failure is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// One line of JSON
    Json,
}

/// A failed command.
#[derive(Debug)]
struct Failure {
    exit: u8,
    message: String,
    next: Option<&'static str>,
}

impl Failure {
    fn report(&self, format: Format) -> ExitCode {
        let text = match (format, self.next) {
            (Format::Table, None) => format!("error: {}\n", self.message),
            (Format::Table, Some(next)) => format!("error: {}\n  {next}\n", self.message),
            (Format::Json, next) => {
                let mut document = json!({
                    "type": "about:blank", "detail": self.message, "exit_code": self.exit,
                });
                if let Some(next) = next {
                    document["next"] = json!(next);
                }
                format!("{document}\n")
            }
        };
        // If stderr is closed, only the exit code is left to report it.
        let _ = std::io::stderr().write_all(text.as_bytes());
        ExitCode::from(self.exit)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self {
            exit: 1,
            message: format!("{error:#}"),
            next: None,
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(args.output),
    }
}

async fn run(args: &Args) -> Result<(), Failure> {
    let Some(workload) = &args.workload else {
        let list = WORKLOADS.iter();
        let list = list.map(|(name, what)| format!("{name:<14} {what}\n"));
        return print(&list.collect::<String>()).map_err(Failure::from);
    };
    check(workload)?;
    let options = Options {
        binary: measured(args.binary.as_ref())?,
        runs: args.runs,
        short: args.short,
    };
    // If stdout is closed, the print fails and its error is dropped.
    let mut emit = |figures: Value| drop(print(&format!("{figures}\n")));
    mainspring_benches::run(workload, &options, &mut emit).await?;
    Ok(())
}

fn check(workload: &str) -> Result<(), Failure> {
    if WORKLOADS.iter().any(|(name, _)| *name == workload) {
        return Ok(());
    }
    Err(Failure {
        exit: USAGE,
        message: format!("there is no workload {workload}"),
        next: Some("`mainspring bench` lists them"),
    })
}

/// The program to measure.
fn measured(named: Option<&PathBuf>) -> anyhow::Result<PathBuf> {
    if let Some(binary) = named {
        return Ok(binary.clone());
    }
    let own = std::env::current_exe().context("where am I?")?;
    Ok(own.with_file_name("mainspring"))
}

fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .context("stdout")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn an_unknown_workload_is_a_mistake_of_the_caller() {
        let failure = check("nothing").expect_err("there is none");
        assert_eq!(failure.exit, USAGE);
        assert!(failure.message.contains("nothing"), "{failure:?}");
        check("throughput").expect("there is one");
    }

    #[test]
    fn what_is_measured_is_beside_this_program_unless_it_is_named() {
        let named = PathBuf::from("/elsewhere/mainspring");
        assert_eq!(measured(Some(&named)).expect("named"), named);
        let own = std::env::current_exe().expect("there is one");
        let beside = measured(None).expect("there is a folder");
        assert_eq!(beside, own.with_file_name("mainspring"));
    }
}
