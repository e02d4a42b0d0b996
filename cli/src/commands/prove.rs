//! `mainspring prove`: does harm to processes of its own, and compares what clients were told with what the model and the
//! tools saw. Each proof can plant the fault that it would find.

mod asking;
mod burn_queue;
mod capped_fan_out;
mod cheap_history;
mod kill_everything;
mod migrate_stream;
mod model;
mod one_writer;
mod stage;
mod tools;
mod unknown_outcome;
mod warm_cache;

use clap::ValueEnum as _;
use serde_json::{Value, json};

use self::stage::Stage;
use crate::args::{Format, ProofName, ProveArgs};
use crate::config::Config;
use crate::failure::{Exit, Failure, usage_text};
use crate::output::{self, Column};
use crate::signals::Signals;

/// The columns of the list.
const COLUMNS: [Column; 3] = [
    ("PROOF", "proof"),
    ("PROMISE", "promise"),
    ("--break", "break"),
];

pub(crate) async fn run(args: &ProveArgs, format: Format, config: &Config) -> Result<(), Failure> {
    let name = match args.name {
        Some(name) if !args.list => name,
        _ => return list(format),
    };
    check(name, args)?;
    let mut signals = Signals::listen()?;
    let mut stage = Stage::new(args, format, config)?;
    let played = tokio::select! {
        played = play(name, &mut stage) => played,
        () = signals.next() => Err(Failure::new(Exit::Failure, "stopped before there was a verdict")
            .next("its processes are gone, and so is its folder")),
    };
    played?;
    stage.conclude(word(name).as_str())
}

/// Refuses servers that a proof has no use for.
fn check(name: ProofName, args: &ProveArgs) -> Result<(), Failure> {
    let takes_redis = name == ProofName::BurnQueue;
    let takes_database = takes_redis || name == ProofName::OneWriter;
    if args.database_url.is_some() && !takes_database {
        return Err(usage_text(
            "this proof runs on SQLite",
            "one-writer and burn-queue take --database-url",
        ));
    }
    if args.redis_url.is_some() && !takes_redis {
        return Err(usage_text(
            "this proof has no use for Redis",
            "burn-queue takes --redis-url",
        ));
    }
    if args.redis_url.is_some() && args.database_url.is_none() {
        return Err(usage_text(
            "a queue in Redis needs a database server beside it",
            "give --database-url as well",
        ));
    }
    Ok(())
}

async fn play(name: ProofName, stage: &mut Stage) -> Result<(), Failure> {
    match name {
        ProofName::UnknownOutcome => unknown_outcome::prove(stage).await,
        ProofName::KillEverything => kill_everything::prove(stage).await,
        ProofName::MigrateStream => migrate_stream::prove(stage).await,
        ProofName::OneWriter => one_writer::prove(stage).await,
        ProofName::CappedFanOut => capped_fan_out::prove(stage).await,
        ProofName::CheapHistory => cheap_history::prove(stage).await,
        ProofName::WarmCache => warm_cache::prove(stage).await,
        ProofName::BurnQueue => burn_queue::prove(stage).await,
    }
}

/// The name as it is typed.
fn word(name: ProofName) -> String {
    let value = name.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// What `--break` plants.
fn planted(name: ProofName) -> &'static str {
    match name {
        ProofName::UnknownOutcome => "the tool is declared safe to repeat",
        ProofName::KillEverything => "clients repeat requests without an Idempotency-Key",
        ProofName::MigrateStream => "the client forgets the last id",
        ProofName::OneWriter => "the lock is removed; on a server, the client asks twice",
        ProofName::CappedFanOut => "there is no budget",
        ProofName::CheapHistory => "the agent shows all of its history",
        ProofName::WarmCache => "the system prompt has a counter",
        ProofName::BurnQueue => "the client takes a lost response for a refusal",
    }
}

fn list(format: Format) -> Result<(), Failure> {
    let rows: Vec<Value> = ProofName::value_variants()
        .iter()
        .map(|name| {
            let value = name.to_possible_value();
            let help = value.as_ref().and_then(|value| value.get_help());
            let promise = help.map(ToString::to_string).unwrap_or_default();
            json!({ "proof": word(*name), "promise": promise, "break": planted(*name) })
        })
        .collect();
    if format != Format::Table {
        return output::list(format, &COLUMNS, &rows);
    }
    for row in &rows {
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        output::line(&text("proof"))?;
        output::line(&format!("  {}", text("promise")))?;
        output::line(&format!("  --break: {}", text("break")))?;
    }
    Ok(())
}
