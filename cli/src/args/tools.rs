//! Tools, on the command line.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum ToolsCommand {
    /// Makes HTTP tools of an OpenAPI document, as an agent declares them
    Import(ImportToolsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ImportToolsArgs {
    /// The document, 3.0 or 3.1, in JSON or YAML
    pub(crate) document: PathBuf,
    /// The operations to import, by id or as "GET /path"; all of them by default
    #[arg(long, value_delimiter = ',')]
    pub(crate) operations: Vec<String>,
    /// The server to call, in place of those that the document names
    #[arg(long, value_name = "URL")]
    pub(crate) api_server: Option<String>,
    /// File to write; stdout by default
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}
