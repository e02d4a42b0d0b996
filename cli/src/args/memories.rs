//! The memory, on the command line.

use clap::Subcommand;

use super::PageArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum MemoriesCommand {
    /// Lists entries, newest first
    List {
        /// Only those of this namespace and below it
        #[arg(long, value_name = "PATH")]
        namespace: Option<String>,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Lists the entries of a namespace that best match a query, best first
    Search {
        /// What to look for
        query: String,
        /// Namespace to search, including those below it
        #[arg(long, value_name = "PATH")]
        namespace: String,
        /// Maximum number of entries
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=i64::from(crate::client::PAGE_MAX)))]
        limit: u32,
    },
    /// Shows an entry
    Show {
        /// The entry
        id: String,
    },
    /// Adds an entry
    Add {
        /// What to remember
        text: String,
        /// Namespace of the entry, like user/42
        #[arg(long, value_name = "PATH")]
        namespace: String,
        /// Expiry time, like 2027-01-31T08:00:00Z
        #[arg(long, value_name = "TIME")]
        expires_at: Option<String>,
    },
    /// Replaces the text of an entry
    Edit {
        /// The entry
        id: String,
        /// The new text
        text: String,
    },
    /// Deletes an entry
    Delete {
        /// The entry
        id: String,
    },
    /// Prints all entries, one line of JSON each
    Export {
        /// Only those of this namespace and below it
        #[arg(long, value_name = "PATH")]
        namespace: Option<String>,
    },
    /// Lists erasures of namespaces: when, by whom and how many entries
    Erasures {
        /// Only those of exactly this namespace
        #[arg(long, value_name = "PATH")]
        namespace: Option<String>,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Erases all entries of a namespace and those below it
    Erase {
        /// Namespace to erase
        #[arg(long, value_name = "PATH")]
        namespace: String,
    },
}
