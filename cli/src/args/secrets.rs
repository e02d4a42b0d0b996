//! Secrets of HTTP tools, on the command line.

use std::path::PathBuf;

use clap::Subcommand;

use super::PageArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum SecretsCommand {
    /// Lists the tenant's secrets, without their values
    List {
        #[command(flatten)]
        page: PageArgs,
    },
    /// Shows where a secret may be sent, and when it was set
    Show {
        /// The secret's name
        name: String,
    },
    /// Sets a secret, read from stdin by default
    Set {
        /// The name that tools use
        name: String,
        /// Host that it may be sent to, like api.example or http://10.0.0.1:8080; repeatable
        #[arg(long = "host", required = true)]
        hosts: Vec<String>,
        /// Environment variable that holds the value
        #[arg(long, value_name = "VARIABLE", conflicts_with = "value_file")]
        value_env: Option<String>,
        /// File that holds the value
        #[arg(long, value_name = "FILE")]
        value_file: Option<PathBuf>,
    },
    /// Removes a secret: tools that name it are not called any more
    Delete {
        /// The secret's name
        name: String,
    },
}
