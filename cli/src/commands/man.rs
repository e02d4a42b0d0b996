//! `mainspring man`

use std::path::Path;

use clap::CommandFactory;

use crate::args::Cli;
use crate::failure::{Exit, Failure};

pub(crate) fn run(folder: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), folder))
        .map_err(|error| Failure::new(Exit::Failure, format!("{}: {error}", folder.display())))
}
