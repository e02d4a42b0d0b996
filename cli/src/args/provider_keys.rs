//! Keys for model providers, on the command line.

use std::path::PathBuf;

use clap::Subcommand;

use super::PageArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum ProviderKeysCommand {
    /// Lists the providers for which the tenant has its own key
    List {
        #[command(flatten)]
        page: PageArgs,
    },
    /// Sets the tenant's key for a provider, read from stdin by default
    Set {
        /// The provider's name in the workers' configuration, like anthropic
        provider: String,
        /// Environment variable that holds the key
        #[arg(long, value_name = "VARIABLE", conflicts_with = "key_file")]
        key_env: Option<String>,
        /// File that holds the key
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
    },
    /// Removes the tenant's key: its calls use the operator's again
    Delete {
        /// The provider
        provider: String,
    },
}
