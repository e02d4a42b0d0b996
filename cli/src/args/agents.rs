//! Published agents, on the command line.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use mainspring_shared::agent::{AgentName, AgentQuery, Alias};

use super::PageArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum AgentsCommand {
    /// Publishes agents from TOML, YAML or JSON files, any number in each
    Apply(ApplyArgs),
    /// Lists published agents by name
    List {
        /// Lists archived ones too
        #[arg(long)]
        archived: bool,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Shows an agent, or one of its versions: NAME, NAME@VERSION or NAME@ALIAS
    Show {
        /// The agent
        #[arg(value_name = "NAME[@V]")]
        agent: AgentQuery,
    },
    /// Lists an agent's versions, newest first
    Versions {
        /// The agent
        name: AgentName,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Shows the differences between two versions of an agent
    Diff {
        /// The agent
        name: AgentName,
        /// Number or alias of the first version; by default the one before the second
        #[arg(long, value_name = "V")]
        from: Option<String>,
        /// Number or alias of the second version; by default the newest
        #[arg(long, value_name = "V")]
        to: Option<String>,
    },
    /// Points an alias at a version, or removes it
    Alias {
        /// The agent
        name: AgentName,
        /// The alias
        alias: Alias,
        /// Number of the version
        #[arg(value_name = "VERSION", required_unless_present = "remove")]
        number: Option<i32>,
        /// Removes the alias
        #[arg(long, conflicts_with = "number")]
        remove: bool,
    },
    /// Archives an agent: existing sessions keep it; new ones cannot use it; `apply` restores it
    Archive {
        /// The agent
        name: AgentName,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// Files with agents: an object with a `name` and the members of the API's `agent`, or several in a list `agents`;
    /// - reads JSON or YAML from stdin
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Shows what would change, and publishes nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Points this alias at each applied version
    #[arg(long, value_name = "ALIAS", conflicts_with = "dry_run")]
    pub(crate) alias: Option<Alias>,
}
