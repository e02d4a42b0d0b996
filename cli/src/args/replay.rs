//! Replaying a journal, on the command line.

use std::path::PathBuf;

use clap::Args;
use mainspring_shared::id::{SendId, SessionId};

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The journal's files, oldest first
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Only this session
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<SessionId>,
    /// Only this send
    #[arg(long, value_name = "ID")]
    pub(crate) send: Option<SendId>,
    /// Prints the raw JSON lines without duplicates, in each session's order
    #[arg(long)]
    pub(crate) json: bool,
}
