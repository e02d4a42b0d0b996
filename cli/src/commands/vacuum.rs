//! `mainspring vacuum`

use crate::config::Config;
use crate::failure::Failure;
use crate::{output, wiring};

pub(crate) async fn run(config: &Config) -> Result<(), Failure> {
    let (before, after) = wiring::vacuum(config).await?;
    let freed = before.saturating_sub(after);
    output::note(&format!(
        "{}: {after} bytes, {freed} less than before",
        wiring::database(config)
    ));
    Ok(())
}
