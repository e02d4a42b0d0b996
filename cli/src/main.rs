//! The single binary: parses arguments, loads the configuration, and runs the command.

mod args;
mod argv;
mod client;
mod commands;
mod config;
mod failure;
mod ops;
mod output;
mod pod;
mod settings;
mod signals;
mod wiring;

use std::process::ExitCode;

use clap::Parser;
use mainspring_runtime::{Environment, Telemetry};
use mimalloc::MiMalloc;

/// Many threads make short-lived allocations, which are a large part of what a send costs this
/// process.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    // Every TLS client of the process needs a provider; this only fails if one is already
    // installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    private();
    let cli = args::Cli::parse_from(argv::read());
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(cli.output),
    }
}

/// Keeps what this process has from others on the machine: arguments, and the files that it makes.
fn private() {
    // Passwords stay where they are, but the program works.
    let _ = argv::hide();
    #[cfg(unix)]
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
}

fn run(cli: &args::Cli) -> Result<(), failure::Failure> {
    // The defaults must be printable even if the settings are invalid, so this comes first.
    if let Some(args::Command::Config(args::ConfigCommand::Default)) = &cli.command
        && !cli.print_config
    {
        return output::raw(settings::MANUAL);
    }
    let environment = Environment::read();
    let mut config = settings::load(cli, &environment)?;
    let Some(command) = cli.command.as_ref().filter(|_| !cli.print_config) else {
        return settings::print(cli, &config);
    };
    settings::quieten(cli, &mut config);
    let telemetry =
        Telemetry::install(&config.telemetry, command.role()).map_err(failure::usage)?;
    let names_server = settings::names_server(cli, &environment, &config);
    let result = commands::run(command, cli.output, &config, names_server);
    telemetry.shut_down();
    result
}
