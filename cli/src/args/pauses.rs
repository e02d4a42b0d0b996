//! Pauses, on the command line.

use clap::{Args, ValueEnum};

/// What can be paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PausedKind {
    /// A tenant, like `ten_2`
    Tenant,
    /// The sends of agents with this name
    Agent,
    /// A model provider, for all tenants
    Provider,
    /// Calls by workers of tools with this name
    Tool,
    /// The workers of a pool
    Pool,
}

#[derive(Debug, Args)]
pub(crate) struct PausedArgs {
    /// What kind of thing it is
    #[arg(value_name = "KIND")]
    pub(crate) kind: PausedKind,
    /// Its name; the id of a tenant
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    pub(crate) paused: PausedArgs,
    /// Reason, shown to people
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}
