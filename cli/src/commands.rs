//! One module per verb.

mod access;
mod agents;
mod answer;
mod archives;
mod audit;
mod bench;
mod chat;
mod completions;
mod dev;
mod diff;
mod doctor;
mod erase;
mod follow;
mod imports;
mod inbox;
mod keys;
mod lists;
mod live;
mod man;
mod memories;
mod migrate;
mod moves;
mod pauses;
mod progress;
mod prove;
mod provider_keys;
mod replay;
mod reply;
mod run;
mod run_tools;
mod runs;
mod scheduler;
mod secrets;
mod send;
mod sends;
mod serve;
mod server_process;
mod sessions;
mod signing_key;
mod skills;
mod tail;
mod tenants;
mod timers;
mod tools;
mod top;
mod transfers;
mod vacuum;
mod webhooks;
mod worker;
mod wrap;

use std::future::Future;
use std::path::Path;

use crate::config::Config;
use tokio::runtime::{Builder, Runtime};

use crate::args::{Command, ConfigCommand, Format, SkillsCommand, TenantsCommand, ToolsCommand};
use crate::client::Client;
use crate::failure::{Exit, Failure};
use crate::{output, settings};

/// Runs a command to its end.
pub(crate) fn run(
    command: &Command,
    format: Format,
    config: &Config,
    names_server: bool,
) -> Result<(), Failure> {
    match command {
        Command::Dev(args) => serving(dev::run(args, config)),
        Command::Scheduler(_) => serving(scheduler::run(config)),
        Command::Worker(_) => serving(worker::run(config)),
        Command::Serve(_) => serving(serve::run(config)),
        Command::Migrate(args) => asking(migrate::run(args, config)),
        Command::Vacuum(_) => asking(vacuum::run(config)),
        Command::Send(args) => asking(send::run(args, format, Client::new(config)?)),
        Command::Chat(args) => asking(chat::run(args, Client::new(config)?)),
        Command::Run(args) if names_server => {
            asking(run::on_server(args, format, Client::new(config)?))
        }
        Command::Run(args) => serving(run::embedded(args, format, config)),
        Command::Runs(args) => asking(runs::run(args, format, Client::new(config)?)),
        Command::Sessions(args) => asking(sessions::run(args, format, Client::new(config)?)),
        Command::Sends(args) => asking(sends::run(args, format, Client::new(config)?)),
        Command::Calls { id } => asking(reply::list(Client::new(config)?, format, id)),
        Command::Inbox { command, list } => asking(inbox::run(
            command.as_ref(),
            list,
            format,
            Client::new(config)?,
        )),
        Command::Agents(args) => asking(agents::run(args, format, Client::new(config)?)),
        Command::Timers(args) => asking(timers::run(args, format, Client::new(config)?)),
        Command::Skills(SkillsCommand::Check { dirs }) => skills::check(dirs, format),
        Command::Skills(args) => asking(skills::run(args, format, Client::new(config)?)),
        Command::Memories(args) => asking(memories::run(args, format, Client::new(config)?)),
        Command::Export { file, no_sessions } => {
            let client = Client::new(config)?;
            asking(transfers::export(file.as_deref(), !no_sessions, client))
        }
        Command::Import {
            file: Some(_),
            from: Some(_),
        } => Err(Failure::new(Exit::Usage, "an import has one source")),
        Command::Import {
            from: Some(from), ..
        } => asking(imports::run(from, format, Client::new(config)?)),
        Command::Import { file, .. } => {
            let file = file.as_deref().unwrap_or(Path::new("-"));
            asking(transfers::import(file, format, Client::new(config)?))
        }
        Command::Keys(args) => asking(keys::run(args, format, Client::new(config)?)),
        Command::ProviderKeys(args) => {
            asking(provider_keys::run(args, format, Client::new(config)?))
        }
        Command::Secrets(args) => asking(secrets::run(args, format, Client::new(config)?)),
        Command::Webhooks(args) => asking(webhooks::run(args, format, Client::new(config)?)),
        Command::Tenants(TenantsCommand::Move { tenant, to, abort }) => {
            let to = to.as_deref().filter(|_| !abort);
            asking(moves::run(tenant, to, format, config))
        }
        Command::Tenants(TenantsCommand::Places) => asking(moves::list(format, config)),
        Command::Tenants(args) => asking(tenants::run(args, format, Client::new(config)?)),
        Command::Erase { name, no_wait } => asking(erase::run(name, !no_wait, format, config)),
        Command::Pause(args) => asking(pauses::pause(args, format, Client::new(config)?)),
        Command::Resume(args) => asking(pauses::resume(args, Client::new(config)?)),
        Command::Pauses { page } => asking(pauses::list(page, format, Client::new(config)?)),
        Command::Workers { command } => asking(lists::workers(
            command.as_ref(),
            format,
            Client::new(config)?,
        )),
        Command::Queue => asking(lists::queue(format, Client::new(config)?)),
        Command::Top(args) => asking(top::run(args, format, Client::new(config)?)),
        Command::Audit(args) => asking(audit::run(args, format, config)),
        Command::Diff(args) => asking(diff::run(args, format, config)),
        Command::Replay(args) => replay::run(args, format),
        Command::Doctor(args) => asking(doctor::run(args, format, config)),
        Command::Tools {
            command: Some(ToolsCommand::Import(args)),
            ..
        } => tools::import(args),
        Command::Tools { workers: false, .. } => tools::run(format),
        Command::Tools { workers: true, .. } => asking(lists::tools(format, Client::new(config)?)),
        Command::SigningKey(args) => signing_key::run(args, config),
        Command::Config(ConfigCommand::Default) => output::raw(settings::MANUAL),
        Command::Prove(args) => serving(prove::run(args, format, config)),
        Command::Bench(args) => bench::run(args, format),
        Command::RunTools => asking(run_tools::run()),
        Command::Completions { shell } => completions::run(*shell),
        Command::Man { folder } => man::run(folder),
    }
}

/// Runs on a multi-threaded runtime.
fn serving(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    block_on(Builder::new_multi_thread().enable_all().build(), work)
}

/// Runs on this thread: a client mostly waits.
fn asking(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    block_on(Builder::new_current_thread().enable_all().build(), work)
}

fn block_on(
    runtime: std::io::Result<Runtime>,
    work: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    let runtime =
        runtime.map_err(|error| Failure::new(Exit::Failure, format!("no runtime: {error}")))?;
    let result = runtime.block_on(work);
    // Do not wait for a blocking read of the terminal.
    runtime.shutdown_background();
    result
}
