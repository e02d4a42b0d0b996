//! Loads the configuration for a command line.

use std::path::Path;

use crate::config::{Config, Purpose};
use mainspring_runtime::{Environment, Problem, Sources};

use crate::args::{Cli, Command, ProcessArgs, QueueArgs, RunsArgs, SchedulesArgs, StoreArgs};
use crate::failure::{self, Failure};
use crate::output;

/// The manual, which contains every default.
pub(crate) const MANUAL: &str = include_str!("../config.default.toml");

/// The manual's defaults for the server and the log.
const SERVER_DEFAULT: &str = "http://127.0.0.1:7464";
const LOG_DEFAULT: &str = "info,apalis_core=off,rmcp=warn,sqlx=warn";

/// Loads the configuration and validates it for what the command does.
pub(crate) fn load(cli: &Cli, environment: &Environment) -> Result<Config, Failure> {
    let named = cli.config.as_deref();
    let file = named.or_else(|| environment.config_file().map(Path::new));
    let flags = flags(cli);
    let sources = Sources {
        defaults: MANUAL,
        file,
        environment,
        flags: &flags,
    };
    let config = Config::load(&sources).map_err(|problems| wrong(&problems.0))?;
    let purpose = match cli.command {
        Some(Command::Dev(_)) => Purpose::Dev,
        Some(Command::Scheduler(_)) => Purpose::Scheduler,
        Some(Command::Worker(_)) => Purpose::Worker,
        Some(Command::Serve(_)) => Purpose::Serve,
        Some(Command::Migrate(_) | Command::Vacuum(_) | Command::Audit(_) | Command::Diff(_)) => {
            Purpose::Database
        }
        // The doctor reports problems itself; the remaining commands only need a server's address.
        _ => return Ok(config),
    };
    let problems = config.validate(purpose);
    // `--print-config` shows the settings even if they are invalid.
    if problems.is_empty() || cli.print_config {
        Ok(config)
    } else {
        Err(wrong(&problems))
    }
}

fn wrong(problems: &[Problem]) -> Failure {
    let lines: Vec<String> = problems
        .iter()
        .map(|problem| format!("  {problem}"))
        .collect();
    let count = if problems.len() == 1 {
        "a problem"
    } else {
        "problems"
    };
    let message = format!("the configuration has {count}:\n{}", lines.join("\n"));
    failure::usage_text(message, "`mainspring config default` describes every key")
}

/// Prints the settings if requested; without a command, nothing else can be.
pub(crate) fn print(cli: &Cli, config: &Config) -> Result<(), Failure> {
    if cli.print_config {
        return output::raw(config.print());
    }
    Err(failure::usage_text(
        "a command is missing",
        "`mainspring --help` lists them",
    ))
}

/// Whether a server was named rather than left at its default.
pub(crate) fn names_server(cli: &Cli, environment: &Environment, config: &Config) -> bool {
    let variable = environment.get("MAINSPRING_SERVER");
    cli.server.is_some() || variable.is_some() || config.server != SERVER_DEFAULT
}

/// Turns off log lines and metrics that a command does not need. If the whole system runs just for
/// one command, its log lines would hide the command's output; a command that only queries a server
/// has nothing to measure.
pub(crate) fn quieten(cli: &Cli, config: &mut Config) {
    if cli
        .command
        .as_ref()
        .is_some_and(|command| !command.serves())
    {
        config.telemetry.otlp_metrics = false;
        config.telemetry.statsd_address = None;
    }
    if matches!(cli.command, Some(Command::Run(_))) && config.telemetry.log == LOG_DEFAULT {
        "error".clone_into(&mut config.telemetry.log);
    }
}

type Flags = Vec<(&'static str, String)>;

fn flags(cli: &Cli) -> Flags {
    let mut flags = Flags::new();
    add(&mut flags, "server", cli.server.as_ref());
    add(&mut flags, "tenant", cli.tenant.as_ref());
    let Some(command) = &cli.command else {
        return flags;
    };
    match command {
        Command::Dev(args) => {
            add(&mut flags, "listen", args.listen.as_ref());
            add(&mut flags, "data_dir", args.data_dir.as_ref());
            add(&mut flags, "database_url", args.database_url.as_ref());
            insecure(&mut flags, args.insecure);
            runs(&mut flags, &args.runs);
            process(&mut flags, &args.process);
        }
        Command::Scheduler(args) => {
            schedules(&mut flags, &args.schedules);
            process(&mut flags, &args.process);
        }
        Command::Serve(args) => {
            schedules(&mut flags, &args.schedules);
            runs(&mut flags, &args.runs);
            process(&mut flags, &args.process);
        }
        Command::Worker(args) => {
            store(&mut flags, &args.store);
            queue(&mut flags, &args.queue);
            add(&mut flags, "ops_listen", args.ops_listen.as_ref());
            runs(&mut flags, &args.runs);
            process(&mut flags, &args.process);
        }
        Command::Run(args) => add(&mut flags, "data_dir", args.data_dir.as_ref()),
        Command::Migrate(args) => {
            store(&mut flags, &args.store);
            add(&mut flags, "data_dir", args.data_dir.as_ref());
        }
        Command::Vacuum(args) => {
            store(&mut flags, &args.store);
            add(&mut flags, "data_dir", args.data_dir.as_ref());
        }
        Command::Audit(args) => {
            store(&mut flags, &args.store);
            add(&mut flags, "data_dir", args.data_dir.as_ref());
        }
        Command::Diff(args) => {
            store(&mut flags, &args.store);
            add(&mut flags, "data_dir", args.data_dir.as_ref());
        }
        Command::Doctor(args) => {
            store(&mut flags, &args.store);
            queue(&mut flags, &args.queue);
            add(&mut flags, "data_dir", args.data_dir.as_ref());
        }
        _ => {}
    }
    flags
}

fn add(flags: &mut Flags, path: &'static str, value: Option<&String>) {
    flags.extend(value.map(|value| (path, value.clone())));
}

fn schedules(flags: &mut Flags, args: &SchedulesArgs) {
    store(flags, &args.store);
    queue(flags, &args.queue);
    add(flags, "listen", args.listen.as_ref());
    insecure(flags, args.insecure);
    add(flags, "migrate", args.migrate.as_ref());
    add(flags, "sweep_interval", args.sweep_interval.as_ref());
}

fn insecure(flags: &mut Flags, given: bool) {
    if given {
        flags.push(("insecure", "true".to_owned()));
    }
}

fn store(flags: &mut Flags, args: &StoreArgs) {
    add(flags, "database_url", args.database_url.as_ref());
}

fn queue(flags: &mut Flags, args: &QueueArgs) {
    add(flags, "redis_url", args.redis_url.as_ref());
}

fn runs(flags: &mut Flags, args: &RunsArgs) {
    add(flags, "worker.concurrency", args.concurrency.as_ref());
    add(flags, "worker.pool", args.pool.as_ref());
    add(flags, "llm.provider", args.provider.as_ref());
    add(flags, "worker.drain_timeout", args.drain_timeout.as_ref());
}

fn process(flags: &mut Flags, args: &ProcessArgs) {
    add(flags, "name", args.name.as_ref());
    add(flags, "lease_ttl", args.lease_ttl.as_ref());
    add(flags, "log", args.log.as_ref());
    add(flags, "log_format", args.log_format.as_ref());
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn every_command_on_the_embedded_database_can_be_told_its_folder() {
        for command in ["dev", "migrate", "vacuum", "audit", "diff", "doctor"] {
            let cli = Cli::parse_from(["mainspring", command, "--data-dir", "elsewhere"]);
            let config = load(&cli, &Environment::from_pairs(None)).expect("it loads");
            assert_eq!(config.data_dir, Path::new("elsewhere"), "{command}");
        }
    }

    #[test]
    fn a_server_is_named_by_a_flag_or_a_variable_also_the_usual_one() {
        let named = |flags: &[&str], variable: Option<&str>| {
            let words = ["mainspring", "run", "spec.json"].iter().chain(flags);
            let cli = Cli::parse_from(words);
            let pair = |url: &str| ("MAINSPRING_SERVER".to_owned(), url.to_owned());
            let environment = Environment::from_pairs(variable.map(pair));
            let config = load(&cli, &environment).expect("it loads");
            names_server(&cli, &environment, &config)
        };
        assert!(!named(&[], None));
        assert!(named(&["--server", SERVER_DEFAULT], None));
        assert!(named(&[], Some(SERVER_DEFAULT)));
        assert!(named(&[], Some("http://example.test:1")));
    }
}
