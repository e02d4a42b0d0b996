//! Keys for model providers, on the command line.

use std::path::PathBuf;

use clap::Subcommand;

use super::PageArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum ProviderKeysCommand {
    /// Lists the providers that the tenant has keys of its own for
    List {
        #[command(flatten)]
        page: PageArgs,
    },
    /// Sets the tenant's key for a provider, read from stdin unless told otherwise
    Set {
        /// The provider's name in the workers' configuration, like anthropic
        provider: String,
        /// The key is in this variable of the environment
        #[arg(long, value_name = "VARIABLE", conflicts_with = "key_file")]
        key_env: Option<String>,
        /// The key is in this file
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
    },
    /// Removes the tenant's key: its calls are made with the operator's again
    Delete {
        /// The provider
        provider: String,
    },
}
