//! Tenants and API keys, on the command line.

use clap::{Args, Subcommand};

use super::PageArgs;
use super::sessions::pair;

/// For operators: a request acts for the tenant of its key.
#[derive(Debug, Subcommand)]
pub(crate) enum TenantsCommand {
    /// Lists tenants
    List {
        #[command(flatten)]
        page: PageArgs,
    },
    /// Shows a tenant
    Show {
        /// The tenant, like ten_2
        id: String,
    },
    /// Creates a tenant
    Create {
        /// Its name, unique among tenants
        name: String,
        #[command(flatten)]
        terms: TermsArgs,
    },
    /// Renames a tenant or replaces its limits, its weight, its retention or its pools
    Update {
        /// The tenant
        id: String,
        /// New name
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        #[command(flatten)]
        terms: TermsArgs,
    },
    /// Shows what a tenant used, by day
    Usage {
        /// The tenant
        id: String,
        /// How many days, today included
        #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=92))]
        days: u32,
    },
    /// Deletes a tenant without sessions and runs, and revokes its keys
    Delete {
        /// The tenant
        id: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct TermsArgs {
    #[command(flatten)]
    pub(crate) limits: LimitsArgs,
    /// How many of its sessions have their turn for each of a tenant with weight 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) weight: Option<u32>,
    #[command(flatten)]
    pub(crate) retention: RetentionArgs,
    #[command(flatten)]
    pub(crate) pools: PoolsArgs,
}

/// Given together they replace all that was said of pools before.
#[derive(Debug, Args)]
pub(crate) struct PoolsArgs {
    /// A pool that it may name, besides its own; may be repeated [default: any]
    #[arg(long = "pool", value_name = "POOL")]
    pub(crate) allowed: Vec<String>,
    /// A pool that is its own, so that no other tenant may name it; may be repeated
    #[arg(long = "own-pool", value_name = "POOL")]
    pub(crate) own: Vec<String>,
    /// It may name any pool, and has none of its own
    #[arg(long, conflicts_with_all = ["allowed", "own"])]
    pub(crate) any_pool: bool,
}

/// Those that are not named are as the installation has them.
#[derive(Debug, Args)]
pub(crate) struct RetentionArgs {
    /// How long sends are kept after their end, like 30d
    #[arg(long, value_name = "DURATION")]
    pub(crate) keep_sends: Option<String>,
    /// How long runs are kept after their end
    #[arg(long, value_name = "DURATION")]
    pub(crate) keep_runs: Option<String>,
    /// How long sessions are kept in which nothing happens
    #[arg(long, value_name = "DURATION")]
    pub(crate) keep_sessions: Option<String>,
    /// Nothing is removed, neither by age nor by a request
    #[arg(long, value_name = "BOOL")]
    pub(crate) hold: Option<bool>,
}

#[derive(Debug, Args)]
pub(crate) struct LimitsArgs {
    /// Requests per second of the tenant, over all schedulers; 0 for no limit
    #[arg(long, value_name = "N")]
    pub(crate) requests_per_second: Option<u32>,
    /// Sends at a time that requests of the tenant made and that have not ended; 0 for no limit
    #[arg(long, value_name = "N")]
    pub(crate) sends_open: Option<u32>,
    /// Sends in flight at once, over all workers; more wait; 0 for no limit
    #[arg(long, value_name = "N")]
    pub(crate) sends_running: Option<u32>,
    /// Leaves of runs in flight at once; more wait; 0 for no limit
    #[arg(long, value_name = "N")]
    pub(crate) leaves_running: Option<u32>,
    /// Tokens that its model calls may take in a minute; 0 for no limit
    #[arg(long, value_name = "N")]
    pub(crate) tokens_per_minute: Option<u64>,
    /// Tokens that its model calls of a day may take; 0 for no limit
    #[arg(long, value_name = "N")]
    pub(crate) tokens_per_day: Option<u64>,
    /// Tokens that its model calls of a calendar month may take; 0 for no limit
    #[arg(long, value_name = "N")]
    pub(crate) tokens_per_month: Option<u64>,
    /// US dollars that its sends of a day may cost; 0 for no limit
    #[arg(long, value_name = "USD", value_parser = dollars)]
    pub(crate) usd_per_day: Option<f64>,
    /// US dollars that its sends of a calendar month may cost; 0 for no limit
    #[arg(long, value_name = "USD", value_parser = dollars)]
    pub(crate) usd_per_month: Option<f64>,
    /// Bytes of its blobs; 0 for no limit
    #[arg(long, value_name = "N")]
    pub(crate) bytes: Option<u64>,
}

fn dollars(text: &str) -> Result<f64, String> {
    let dollars = text.parse().ok();
    let dollars = dollars.filter(|dollars: &f64| dollars.is_finite() && *dollars >= 0.0);
    dollars.ok_or_else(|| "must be an amount in US dollars, like 12.50".to_owned())
}

/// The part of the tenant that a key is bound to.
#[derive(Debug, Args)]
pub(crate) struct BindingArgs {
    /// Binds the key to sessions of this published agent; may be repeated
    #[arg(long = "agent", value_name = "NAME")]
    pub(crate) agents: Vec<String>,
    /// Binds the key to sessions with this metadata, which those that it creates get; may be repeated
    #[arg(long, value_name = "NAME=TEXT", value_parser = pair)]
    pub(crate) metadata: Vec<(String, String)>,
    /// Binds the key to this namespace of the memory, with all below it
    #[arg(long, value_name = "PATH")]
    pub(crate) namespace: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Lists API keys, newest first, revoked ones included
    List {
        #[command(flatten)]
        page: PageArgs,
    },
    /// Creates an API key and prints it: it cannot be shown again
    Create {
        /// A label
        name: String,
        /// What it allows; may be repeated
        #[arg(long = "scope", value_name = "SCOPE", required = true)]
        #[arg(value_parser = ["read", "send", "answer", "manage", "admin"])]
        scopes: Vec<String>,
        #[command(flatten)]
        binding: BindingArgs,
        /// Requests per second with the key, over all schedulers
        #[arg(long, value_name = "N")]
        requests_per_second: Option<u32>,
        /// Sends at a time that requests with the key made and that have not ended
        #[arg(long, value_name = "N")]
        sends_open: Option<u32>,
        /// Time from which it is refused, like 2027-01-31T08:00:00Z
        #[arg(long, value_name = "TIME")]
        expires_at: Option<String>,
    },
    /// Replaces an API key's secret and prints the new key
    Rotate {
        /// The key, like key_…
        id: String,
        /// How long the key before is still accepted [default: 24h]
        #[arg(long, value_name = "DURATION")]
        overlap: Option<String>,
    },
    /// Revokes an API key: it is refused everywhere within seconds
    Revoke {
        /// The key
        id: String,
    },
}
