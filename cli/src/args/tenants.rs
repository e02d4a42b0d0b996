//! Tenants and API keys, on the command line.

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use mainspring_shared::tenant::Scope;

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
    /// Shows a tenant's usage by day
    Usage {
        /// The tenant
        id: String,
        /// How many days, today included
        #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=92))]
        days: u32,
    },
    /// Moves a tenant to another database while it is in use, or continues such a move
    ///
    /// Connects to the databases of the configuration, not to a server.
    Move {
        /// The tenant, or its name
        tenant: String,
        /// The database, by its name in `databases`; `home` for that of `database_url`
        #[arg(long, value_name = "NAME", required_unless_present = "abort")]
        to: Option<String>,
        /// Cancels a move that has not arrived: the tenant accepts writes again where it was
        #[arg(long, conflicts_with = "to")]
        abort: bool,
    },
    /// Shows tenants that are not at home, and the state of their moves
    ///
    /// Connects to the databases of the configuration, not to a server.
    Places,
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
    /// Scheduling weight relative to other tenants (1 to 1000)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) weight: Option<u32>,
    #[command(flatten)]
    pub(crate) retention: RetentionArgs,
    #[command(flatten)]
    pub(crate) pools: PoolsArgs,
}

/// Together they replace all of the tenant's pools.
#[derive(Debug, Args)]
pub(crate) struct PoolsArgs {
    /// A pool that it may name besides its own; may be repeated [default: any]
    #[arg(long = "pool", value_name = "POOL")]
    pub(crate) allowed: Vec<String>,
    /// A pool of its own, which no other tenant may name; may be repeated
    #[arg(long = "own-pool", value_name = "POOL")]
    pub(crate) own: Vec<String>,
    /// Lets it name any pool, with none of its own
    #[arg(long, conflicts_with_all = ["allowed", "own"])]
    pub(crate) any_pool: bool,
}

/// Those that are not named are as the installation has them.
#[derive(Debug, Args)]
pub(crate) struct RetentionArgs {
    /// How long to keep finished sends, like 30d
    #[arg(long, value_name = "DURATION")]
    pub(crate) keep_sends: Option<String>,
    /// How long to keep finished runs
    #[arg(long, value_name = "DURATION")]
    pub(crate) keep_runs: Option<String>,
    /// How long to keep idle sessions
    #[arg(long, value_name = "DURATION")]
    pub(crate) keep_sessions: Option<String>,
    /// Legal hold: block all deletion, by retention or on request
    #[arg(long, value_name = "BOOL")]
    pub(crate) hold: Option<bool>,
}

#[derive(Debug, Args)]
pub(crate) struct LimitsArgs {
    /// Maximum requests per second of the tenant, over all schedulers; 0 for no limit
    #[arg(long, value_name = "N")]
    pub(crate) requests_per_second: Option<u32>,
    /// Maximum unfinished sends created by the tenant's requests; 0 for no limit
    #[arg(long, value_name = "N")]
    pub(crate) sends_open: Option<u32>,
    /// Maximum sends in flight on all workers together; others wait; 0 for no limit
    #[arg(long, value_name = "N")]
    pub(crate) sends_running: Option<u32>,
    /// Maximum leaves of runs in flight; others wait; 0 for no limit
    #[arg(long, value_name = "N")]
    pub(crate) leaves_running: Option<u32>,
    /// Tokens per minute of its model calls; 0 for no limit
    #[arg(long, value_name = "N")]
    pub(crate) tokens_per_minute: Option<u64>,
    /// Tokens that its model calls may use per day; 0 for no limit
    #[arg(long, value_name = "N")]
    pub(crate) tokens_per_day: Option<u64>,
    /// Tokens that its model calls may use per calendar month; 0 for no limit
    #[arg(long, value_name = "N")]
    pub(crate) tokens_per_month: Option<u64>,
    /// US dollars that model calls that begin in a minute may cost; others wait; 0 for no limit
    #[arg(long, value_name = "USD", value_parser = dollars)]
    pub(crate) usd_per_minute: Option<f64>,
    /// US dollars that its model calls may cost per day; 0 for no limit
    #[arg(long, value_name = "USD", value_parser = dollars)]
    pub(crate) usd_per_day: Option<f64>,
    /// US dollars that its model calls may cost per calendar month; 0 for no limit
    #[arg(long, value_name = "USD", value_parser = dollars)]
    pub(crate) usd_per_month: Option<f64>,
    /// Maximum bytes of its blobs; 0 for no limit
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
    /// Binds the key to sessions with this metadata, and sets it on sessions that it creates; may be repeated
    #[arg(long, value_name = "NAME=TEXT", value_parser = pair)]
    pub(crate) metadata: Vec<(String, String)>,
    /// Binds the key to this memory namespace and all below it
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
        #[arg(value_parser = PossibleValuesParser::new(Scope::ALL.iter().map(|it| it.as_str())))]
        scopes: Vec<String>,
        #[command(flatten)]
        binding: BindingArgs,
        /// Maximum requests per second with the key, over all schedulers
        #[arg(long, value_name = "N")]
        requests_per_second: Option<u32>,
        /// Maximum open sends created with the key
        #[arg(long, value_name = "N")]
        sends_open: Option<u32>,
        /// Expiry time, like 2027-01-31T08:00:00Z
        #[arg(long, value_name = "TIME")]
        expires_at: Option<String>,
        /// Prints nothing but the key, for scripts
        #[arg(long)]
        print_key: bool,
    },
    /// Replaces an API key's secret and prints the new key
    Rotate {
        /// The key, like key_…
        id: String,
        /// How long the previous key remains valid [default: 24h]
        #[arg(long, value_name = "DURATION")]
        overlap: Option<String>,
    },
    /// Revokes an API key: it is refused everywhere within seconds
    Revoke {
        /// The key
        id: String,
    },
}
