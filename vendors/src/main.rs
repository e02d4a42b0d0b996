//! `mainspring-vendors`: serves the emulators, lists them, explains their rules.

use std::io::Write;

use anyhow::Context;
use clap::{Parser, Subcommand};
use mainspring_vendors::{Laboratory, catalogue};

#[derive(Debug, Parser)]
#[command(
    name = "mainspring-vendors",
    about = "Strict emulators of the vendors of language models"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serves one vendor, or all of them below their names.
    Serve {
        /// A vendor; may be repeated.
        #[arg(long)]
        vendor: Vec<String>,
        /// Every vendor.
        #[arg(long, conflicts_with = "vendor")]
        all: bool,
        #[arg(long, default_value = "127.0.0.1:8088")]
        listen: String,
        /// Tokens of every model's window, instead of its own.
        #[arg(long)]
        window: Option<u64>,
    },
    /// Lists the vendors and how many rules each has.
    List,
    /// Explains rules: `mistral`, or `mistral/order`.
    Explain {
        /// A vendor, or a vendor and a rule.
        rule: String,
    },
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    match Arguments::parse().command {
        Command::List => list(&mut out),
        Command::Explain { rule } => explain(&mut out, &rule),
        Command::Serve {
            vendor,
            all,
            listen,
            window,
        } => {
            anyhow::ensure!(all || !vendor.is_empty(), "name a --vendor, or say --all");
            let names: Vec<&str> = vendor.iter().map(String::as_str).collect();
            let laboratory = if all {
                Laboratory::all(window)?
            } else {
                Laboratory::of(&names, window)?
            };
            let listener = tokio::net::TcpListener::bind(&listen)
                .await
                .with_context(|| format!("cannot listen on {listen}"))?;
            let address = listener.local_addr()?;
            for emulator in laboratory.emulators() {
                let rules = emulator.rules();
                writeln!(out, "http://{address}/{}{}", rules.name, rules.path)?;
            }
            out.flush()?;
            Ok(laboratory.serve(listener).await?)
        }
    }
}

fn list(out: &mut impl Write) -> anyhow::Result<()> {
    for name in catalogue::names() {
        let rules = catalogue::load(name)?;
        let count = rules.rule.len() + rules.members.len();
        writeln!(out, "{name:<18} {count:>3} rules  {}", rules.title)?;
    }
    Ok(())
}

/// Prints rules as their file has them.
fn explain(out: &mut impl Write, wanted: &str) -> anyhow::Result<()> {
    let (vendor, id) = wanted.split_once('/').unwrap_or((wanted, ""));
    let file: toml::Table = catalogue::text(vendor)?.parse()?;
    let mut found = false;
    for kind in ["members", "rule"] {
        for rule in file
            .get(kind)
            .and_then(toml::Value::as_array)
            .into_iter()
            .flatten()
        {
            let name = rule
                .get("id")
                .and_then(toml::Value::as_str)
                .unwrap_or_default();
            if id.is_empty() || name == id {
                found = true;
                writeln!(out, "# {vendor}/{name}\n{}", toml::to_string(rule)?)?;
            }
        }
    }
    anyhow::ensure!(found, "{vendor} has no rule `{id}`");
    Ok(())
}
