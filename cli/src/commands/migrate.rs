//! `mainspring migrate`

use crate::config::{Config, Migrate};

use crate::args::MigrateArgs;
use crate::failure::Failure;
use crate::{output, wiring};

pub(crate) async fn run(args: &MigrateArgs, config: &Config) -> Result<(), Failure> {
    if args.print {
        return output::raw(&wiring::ddl(config));
    }
    let store = wiring::store(config, Migrate::Create).await?;
    let info = store
        .check()
        .await
        .map_err(|error| wiring::store_failure(config, &error))?;
    let database = wiring::database(config);
    output::note(&format!(
        "{database}: the schema is at version {} ({})",
        info.schema, info.server
    ));
    Ok(())
}
